// SPDX-License-Identifier: GPL-3.0-or-later
#include "ecfs/volume.hpp"

#include <fcntl.h>

#include <algorithm>

#include "ecfs/keyslot.hpp"
#include "ecfs/lower.hpp"
#include "support.hpp"

namespace {

using namespace ecfs;
using namespace ecfs::test;

constexpr KdfCost kCheap{.ops = 1, .mem = 64 * 1024};

struct Made {
  Volume volume;
  std::vector<EpochMaster> masters;
  KeyRing keys;
  std::string text;
};

Made make_volume(NameMode names = NameMode::encrypted) {
  Made m;
  m.volume = new_volume(Suite::chacha20_poly1305, names, m.masters);
  auto slot = make_slot(m.volume, SlotType::passphrase, "login", SecretBuffer(std::string_view("correct horse")), kCheap, m.masters);
  REQUIRE(slot);
  m.volume.slots.push_back(*slot);
  auto keys = make_key_ring(m.masters);
  REQUIRE(keys);
  m.keys = std::move(*keys);
  m.text = render_volume(m.volume, m.keys);
  return m;
}

std::error_code parse_error(std::string_view text) {
  VolumeError error;
  const auto v = parse_volume(text, error);
  if (!v) {
    CHECK(v.error() == error.code);
    CHECK(!error.part.empty());
  }
  return v.error();
}

SecretBuffer secret(std::string_view text) { return SecretBuffer(text); }

}  // namespace

TEST_SUITE("volume") {
  TEST_CASE("render and parse are each other's way back") {
    for (const NameMode names : {NameMode::encrypted, NameMode::plain}) {
      const Made m = make_volume(names);
      VolumeError error;
      const auto back = parse_volume(m.text, error);
      REQUIRE(back);
      CHECK(back->uuid == m.volume.uuid);
      CHECK(back->created == m.volume.created);
      CHECK(back->suite == Suite::chacha20_poly1305);
      CHECK(back->names == names);
      CHECK(back->long_name_max == 255);
      CHECK(back->epochs == std::vector<Epoch>{1});
      REQUIRE(back->slots.size() == 1);
      CHECK(back->slots[0].label == "login");
      CHECK(back->slots[0].salt == m.volume.slots[0].salt);
      CHECK(back->slots[0].wrapped == m.volume.slots[0].wrapped);
      CHECK(render_volume(*back, m.keys) == m.text);
      CHECK(verify_volume(*back, m.keys));
    }
  }

  TEST_CASE("the MAC: a file whose checksum was made right again") {
    Made m = make_volume();
    KeyRing wrong;
    wrong.add(epoch_keys(1, 77));
    Volume changed = m.volume;
    changed.slots[0].label = "changed";
    const std::string forged = render_volume(changed, wrong);  // a good checksum, a MAC under another key
    VolumeError error;
    const auto parsed = parse_volume(forged, error);
    REQUIRE(parsed);
    CHECK(verify_volume(*parsed, m.keys).error() == Errc::damaged_volume);
    CHECK(unlock_volume(*parsed, secret("correct horse")).error() == Errc::damaged_volume);
  }

  TEST_CASE("Argon2id costs over the limits are refused before they are spent") {
    Made m = make_volume();
    m.volume.slots[0].argon2_mem = kMaxKdfMemory + 1024;
    CHECK(parse_error(render_volume(m.volume, m.keys)) == Errc::kdf_too_costly);
    CHECK(open_slot(m.volume, m.volume.slots[0], secret("correct horse")).error() == Errc::kdf_too_costly);
    m.volume.slots[0].argon2_mem = kCheap.mem;
    m.volume.slots[0].argon2_ops = kMaxKdfOps + 1;
    CHECK(parse_error(render_volume(m.volume, m.keys)) == Errc::kdf_too_costly);
    CHECK(open_slot(m.volume, m.volume.slots[0], secret("correct horse")).error() == Errc::kdf_too_costly);
  }

  TEST_CASE("unlock: right, wrong, and bound to volume, type and salt") {
    Made m = make_volume();
    VolumeError error;
    const Volume v = std::move(*parse_volume(m.text, error));
    const auto unlocked = unlock_volume(v, secret("correct horse"));
    REQUIRE(unlocked);
    CHECK(unlocked->slot == 0);
    REQUIRE(unlocked->masters.size() == 1);
    CHECK(hex(unlocked->masters[0].key.bytes()) == hex(m.masters[0].key.bytes()));
    CHECK(unlock_volume(v, secret("correct horsf")).error() == Errc::wrong_passphrase);
    CHECK(unlock_volume(v, secret("correct horse\n")).error() == Errc::wrong_passphrase);
    Volume other = v;
    other.uuid[0] = other.uuid[0] == '0' ? '1' : '0';
    CHECK(open_slot(other, other.slots[0], secret("correct horse")).error() == Errc::wrong_passphrase);
    Keyslot slot = v.slots[0];
    slot.type = SlotType::recovery;
    CHECK(open_slot(v, slot, secret("correct horse")).error() == Errc::wrong_passphrase);
    slot = v.slots[0];
    slot.salt[3] ^= 1;
    CHECK(open_slot(v, slot, secret("correct horse")).error() == Errc::wrong_passphrase);
    slot = v.slots[0];
    slot.wrapped[0] = static_cast<char>(slot.wrapped[0] ^ 1);
    CHECK(open_slot(v, slot, secret("correct horse")).error() == Errc::wrong_passphrase);
  }

  TEST_CASE("recovery key: known text") {
    SecretBuffer zero(16);
    SecretBuffer form = format_recovery_key(zero);
    CHECK(std::string(form.bytes().begin(), form.bytes().end()) == "00000-00007-0000e-0000n-0000w-00004-0000b-0000j");
    SecretBuffer key(16);
    std::ranges::copy(unhex("00112233445566778899aabbccddeeff"), key.data());
    form = format_recovery_key(key);
    const std::string text(form.bytes().begin(), form.bytes().end());
    CHECK(text.substr(0, 5) == "00117");  // 3·1 + 4·1 = 7
    int bad = 0;
    const auto back = parse_recovery_key(text, bad);
    REQUIRE(back);
    CHECK(hex(back->bytes()) == "00112233445566778899aabbccddeeff");
  }

  TEST_CASE("store and load: fresh, replaced, refused, cut at every call") {
    const TempDir dir;
    const auto d = lower::open_path(dir.path(), O_RDONLY | O_DIRECTORY);
    REQUIRE(d);
    Made m = make_volume();
    VolumeError error;
    CHECK(load_volume(d->get(), error).error() == Errc::not_a_volume);
    REQUIRE(store_volume(d->get(), m.volume, m.keys, true));
    CHECK(read_file(dir / "ecfs.volume") == m.text);
    CHECK(store_volume(d->get(), m.volume, m.keys, true).error() == Errc::volume_exists);
    REQUIRE(load_volume(d->get(), error));

    // A new label, with the n-th lower call failing: the file is the old or the new one, whole, and nothing else is left.
    Volume changed = m.volume;
    changed.slots[0].label = "new label";
    const std::string next = render_volume(changed, m.keys);
    for (int n = 1;; ++n) {
      CAPTURE(n);
      REQUIRE(store_volume(d->get(), m.volume, m.keys, false));
      int calls = 0;
      lower::set_hook([&](const lower::Call&) -> lower::Verdict { return ++calls == n ? lower::Verdict{.error = ENOSPC} : lower::Verdict{}; });
      const auto r = store_volume(d->get(), changed, m.keys, false);
      lower::set_hook(nullptr);
      const std::string now = read_file(dir / "ecfs.volume");
      CHECK((now == m.text || now == next));
      if (r) CHECK(now == next);
      if (calls < n) {
        CHECK(r);
        break;
      }
      CHECK(n < 40);
    }
    std::size_t entries = 0;
    for ([[maybe_unused]] const auto& e : std::filesystem::directory_iterator(dir.path())) ++entries;
    CHECK(entries == 1);

    CHECK(::truncate((dir / "ecfs.volume").c_str(), 100) == 0);
    CHECK(load_volume(d->get(), error).error() == Errc::damaged_volume);
    CHECK(store_volume(d->get(), m.volume, m.keys, true).error() == Errc::volume_exists);  // damaged is not absent
  }

  TEST_CASE("master keys travel through a pipe") {
    int fds[2];
    REQUIRE(::pipe(fds) == 0);
    UniqueFd in(fds[0]), out(fds[1]);
    std::vector<EpochMaster> masters(2);
    masters[0].epoch = 3;
    masters[1].epoch = 9;
    std::ranges::copy(counting(32), masters[0].key.bytes().begin());
    std::ranges::copy(counting(32, 100), masters[1].key.bytes().begin());
    REQUIRE(write_keys(out.get(), masters));
    out.reset();
    const auto back = read_keys(in.get());
    REQUIRE(back);
    REQUIRE(back->size() == 2);
    CHECK((*back)[1].epoch == 9);
    CHECK(hex((*back)[1].key.bytes()) == hex(counting(32, 100)));
    for (const std::size_t n : {std::size_t{0}, std::size_t{35}, std::size_t{37}}) {
      REQUIRE(::pipe(fds) == 0);
      UniqueFd r(fds[0]), w(fds[1]);
      const Bytes bytes(n, 1);
      REQUIRE(::write(w.get(), bytes.data(), n) == static_cast<ssize_t>(n));
      w.reset();
      CHECK(!read_keys(r.get()));
    }
  }
}
