// SPDX-License-Identifier: GPL-3.0-or-later
// Keyslots, the rule for passphrases, and the recovery key's written form.
#include "ecfs/keyslot.hpp"

#include <algorithm>
#include <cctype>

#include "support.hpp"

using namespace ecfs;

namespace {

constexpr KdfCost kQuick{1, 8192};

SecretBuffer secret(std::string_view text) { return SecretBuffer(text); }
std::string text_of(const SecretBuffer& s) { return {reinterpret_cast<const char*>(s.data()), s.size()}; }

Keyslot slot_for(const Volume& v, SlotType type, const SecretBuffer& s,
                 const std::vector<EpochMaster>& masters) {
  auto slot = make_slot(v, type, "", s, kQuick, masters);
  REQUIRE(slot);
  return std::move(*slot);
}

// A volume with the MAC that store_volume would write.
void set_mac(Volume& v, const std::vector<EpochMaster>& masters) {
  const auto keys = make_key_ring(masters);
  REQUIRE(keys);
  VolumeError error;
  auto again = parse_volume(render_volume(v, *keys), error);
  REQUIRE_MESSAGE(again, error.part);
  v = std::move(*again);
}

}  // namespace

TEST_SUITE_BEGIN("volume");

TEST_CASE("passphrase: one newline is cut, nothing else; empty, NUL and too long are refused") {
  struct Row {
    std::string in;
    const char* out;  // null: refused
  };
  const std::string longest(kMaxPassphrase, 'p');
  const Row rows[] = {
      {"abc", "abc"},
      {"abc\n", "abc"},
      {"abc\n\n", "abc\n"},
      {"abc\r\n", "abc\r"},
      {" abc ", " abc "},
      {"\n\n", "\n"},
      {"a\nb", "a\nb"},
      {"\xff\xfe", "\xff\xfe"},
      {"", nullptr},
      {"\n", nullptr},
      {std::string("a\0b", 3), nullptr},
      {std::string("ab\0", 3), nullptr},
      {longest, longest.c_str()},
      {longest + "\n", longest.c_str()},
      {longest + "p", nullptr},
      {longest + "\n\n", nullptr},
  };
  for (const Row& row : rows) {
    const auto r = normalise_passphrase(secret(row.in));
    CHECK_MESSAGE(r.has_value() == (row.out != nullptr), row.in);
    if (r && row.out) CHECK(text_of(*r) == row.out);
    if (!r) CHECK(r.error() == Errc::bad_passphrase);
  }
}

TEST_CASE("keyslot: opens with its secret, in its volume, as its type, and not otherwise") {
  std::vector<EpochMaster> masters, others;
  Volume v = new_volume(Suite::aes_256_gcm, NameMode::encrypted, masters);
  const Volume other = new_volume(Suite::aes_256_gcm, NameMode::encrypted, others);
  const Keyslot slot = slot_for(v, SlotType::passphrase, secret("one"), masters);
  const auto opened = open_slot(v, slot, secret("one"));
  REQUIRE(opened);
  REQUIRE(opened->size() == 1);
  CHECK(std::equal(masters[0].key.bytes().begin(), masters[0].key.bytes().end(),
                   (*opened)[0].key.bytes().begin()));
  CHECK(open_slot(v, slot, secret("two")).error() == Errc::wrong_passphrase);
  CHECK(open_slot(v, slot, secret("one ")).error() == Errc::wrong_passphrase);
  CHECK(open_slot(other, slot, secret("one")).error() == Errc::wrong_passphrase);
  Keyslot changed = slot;
  changed.type = SlotType::recovery;
  CHECK(open_slot(v, changed, secret("one")).error() == Errc::wrong_passphrase);
  changed = slot;
  changed.argon2_ops = 2;
  CHECK(open_slot(v, changed, secret("one")).error() == Errc::wrong_passphrase);
  changed.argon2_ops = kMaxKdfOps + 1;
  CHECK(open_slot(v, changed, secret("one")).error() == Errc::kdf_too_costly);
  changed = slot;
  changed.argon2_mem = kMaxKdfMemory + 1024;
  CHECK(open_slot(v, changed, secret("one")).error() == Errc::kdf_too_costly);
  CHECK(make_slot(v, SlotType::passphrase, "", secret("x"), {kMaxKdfOps + 1, 8192}, masters).error() ==
        Errc::kdf_too_costly);
  for (std::size_t i = 0; i < slot.wrapped.size(); ++i) {
    changed = slot;
    changed.wrapped[i] = static_cast<char>(changed.wrapped[i] ^ 1);
    CHECK(open_slot(v, changed, secret("one")).error() == Errc::wrong_passphrase);
  }
  // The same passphrase in two slots gives different bytes.
  CHECK(slot_for(v, SlotType::passphrase, secret("one"), masters).wrapped != slot.wrapped);
}

TEST_CASE("keyslot: unlock tells a wrong passphrase from a forged volume, and finds the right slot") {
  std::vector<EpochMaster> masters;
  Volume v = new_volume(Suite::aes_256_gcm, NameMode::encrypted, masters);
  const SecretBuffer recovery = new_recovery_key();
  const SecretBuffer written = format_recovery_key(recovery);
  v.slots.push_back(slot_for(v, SlotType::passphrase, secret("one"), masters));
  v.slots.push_back(slot_for(v, SlotType::passphrase, secret("two"), masters));
  v.slots.push_back(slot_for(v, SlotType::recovery, recovery, masters));
  set_mac(v, masters);
  CHECK(unlock_volume(v, secret("one"))->slot == 0);
  CHECK(unlock_volume(v, secret("two"))->slot == 1);
  CHECK(unlock_volume(v, written)->slot == 2);
  CHECK(unlock_volume(v, secret("three")).error() == Errc::wrong_passphrase);
  CHECK(unlock_volume(v, format_recovery_key(new_recovery_key())).error() == Errc::wrong_passphrase);
  v.names = NameMode::plain;
  CHECK(unlock_volume(v, secret("one")).error() == Errc::damaged_volume);
  v.slots.clear();
  CHECK(unlock_volume(v, secret("one")).error() == Errc::wrong_passphrase);
}

TEST_CASE("keyslot: a passphrase that looks like a recovery key works as a passphrase") {
  std::vector<EpochMaster> masters;
  Volume v = new_volume(Suite::aes_256_gcm, NameMode::encrypted, masters);
  const SecretBuffer written = format_recovery_key(new_recovery_key());
  v.slots.push_back(slot_for(v, SlotType::recovery, new_recovery_key(), masters));
  v.slots.push_back(slot_for(v, SlotType::passphrase, written, masters));
  set_mac(v, masters);
  CHECK(unlock_volume(v, written)->slot == 1);
}

TEST_CASE("keyslot: several epochs") {
  std::vector<EpochMaster> masters;
  Volume v = new_volume(Suite::aes_256_gcm, NameMode::encrypted, masters);
  EpochMaster second;
  second.epoch = 2;
  random_bytes(second.key.bytes());
  masters.push_back(std::move(second));
  v.epochs = {1, 2};
  v.slots.push_back(slot_for(v, SlotType::passphrase, secret("one"), masters));
  set_mac(v, masters);
  const auto u = unlock_volume(v, secret("one"));
  REQUIRE(u);
  CHECK(u->masters.size() == 2);
  CHECK(u->keys.newest().epoch == 2);
}

TEST_CASE("recovery key: written form, and what a person does to it") {
  SecretBuffer full(kRecoveryBytes);
  const std::uint8_t raw[] = {0x1f, 0x0a, 0x00, 0xff, 0x42, 0x99, 0xab, 0xcd,
                              0xef, 0x01, 0x23, 0x45, 0x67, 0x89, 0x10, 0x20};
  std::copy(std::begin(raw), std::end(raw), full.data());
  const std::string text = text_of(format_recovery_key(full));
  CHECK(text.size() == kRecoveryText);
  // (1*1 + 2*15 + 3*0 + 4*10 + 7*0) mod 31 = 9
  CHECK(text.substr(0, 6) == "1f0a9-");
  int bad = -1;
  const auto same = [&](const std::string& t) {
    const auto k = parse_recovery_key(t, bad);
    return k && text_of(*k) == text_of(full) && bad == 0;
  };
  CHECK(same(text));
  std::string changed = text;
  for (char& c : changed) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  CHECK(same(changed));
  changed = text;
  for (char& c : changed) c = c == '0' ? 'O' : c == '1' ? 'l' : c == '-' ? ' ' : c;
  CHECK(same(changed));
  changed.clear();
  for (const char c : text)
    if (c != '-') changed += c;
  CHECK(same(changed));
  for (const char* no : {"", "hello", "correct horse battery staple", "1f0a9"}) {
    CHECK_FALSE(parse_recovery_key(no, bad));
    CHECK(bad == 0);
  }
  CHECK_FALSE(parse_recovery_key(text + "0", bad));
  CHECK(bad == 0);
}

TEST_CASE("recovery key: every wrong character, swap and exchanged group is caught, with its group") {
  const std::string alphabet = "0123456789abcdefghjkmnpqrstvwxy";
  for (int round = 0; round < 20; ++round) {
    const std::string text = text_of(format_recovery_key(new_recovery_key()));
    int bad = 0;
    for (std::size_t i = 0; i < text.size(); ++i) {
      if (text[i] == '-') continue;
      const int group = static_cast<int>(i / 6) + 1;
      std::string wrong = text;
      for (const char c : alphabet) {
        if (c == text[i]) continue;
        wrong[i] = c;
        if (parse_recovery_key(wrong, bad) || bad != group) FAIL(text, " ", wrong, " ", bad);
      }
      // Swaps with any later character of the group, and with the next group's first.
      for (std::size_t j = i + 1; j <= i + 6 && j < text.size(); ++j) {
        if (text[j] == '-' || text[i] == text[j] || (j / 6 != i / 6 && j % 6 != 0)) continue;
        wrong = text;
        std::swap(wrong[i], wrong[j]);
        if (parse_recovery_key(wrong, bad) || bad != group) FAIL(text, " ", wrong, " ", bad);
      }
    }
    for (std::size_t a = 0; a < 8; ++a)
      for (std::size_t b = a + 1; b < 8; ++b) {
        std::string wrong = text;
        wrong.replace(a * 6, 5, text.substr(b * 6, 5)).replace(b * 6, 5, text.substr(a * 6, 5));
        if (parse_recovery_key(wrong, bad) || bad != static_cast<int>(a) + 1)
          FAIL(text, " ", wrong, " ", bad);
      }
  }
}

TEST_CASE("argon2id: calibration stays inside its limits") {
  const auto start = std::chrono::steady_clock::now();
  for (const int ms : {0, 1, 50}) {
    const auto cost = calibrate_kdf(std::chrono::milliseconds(ms));
    REQUIRE(cost);
    CHECK(cost->ops >= 1);
    CHECK(cost->ops <= kMaxKdfOps);
    CHECK(cost->mem >= kMinKdfMemory);
    CHECK(cost->mem <= std::uint64_t{1} << 30);
    CHECK(cost->mem % 1024 == 0);
  }
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(5));
}

TEST_SUITE_END();
