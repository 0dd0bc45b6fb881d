// SPDX-License-Identifier: GPL-3.0-or-later
#include "ecfs/keyslot.hpp"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <fstream>

namespace ecfs {
namespace {

using std::chrono::duration;
using std::chrono::steady_clock;

constexpr std::size_t kGroups = 8;
constexpr std::size_t kGroupDigits = 4;
constexpr std::size_t kGroupText = kGroupDigits + 1;  // with the check character
constexpr std::string_view kAlphabet = "0123456789abcdefghjkmnpqrstvwxy";
static_assert(kAlphabet.size() == 31);  // prime: every single wrong character and every swap changes the sum
static_assert(kGroups * kGroupText + kGroups - 1 == kRecoveryText);

// Binds a slot to its volume and to what it is for.
std::string slot_ad(const Volume& volume, SlotType type) {
  return std::string(word(type)) + " " + volume.uuid;
}

char check_character(const std::size_t digits[kGroupDigits], std::size_t group) {
  std::size_t sum = 7 * group;
  for (std::size_t i = 0; i < kGroupDigits; ++i) sum += (i + 1) * digits[i];
  return kAlphabet[sum % kAlphabet.size()];
}

// MemAvailable of /proc/meminfo in bytes; a guess on the low side when it cannot be read.
std::uint64_t available_memory() {
  std::ifstream in("/proc/meminfo");
  std::string name, unit;
  std::uint64_t kib = 0;
  while (in >> name >> kib) {
    std::getline(in, unit);
    if (name == "MemAvailable:") return kib * 1024;
  }
  return std::uint64_t{256} << 20;
}

Result<duration<double, std::milli>> time_kdf(KdfCost cost) {
  const SecretBuffer secret(std::string_view("calibration"));
  const std::array<std::uint8_t, 16> salt{};
  const auto start = steady_clock::now();
  const auto kek = argon2id(secret, salt, cost.ops, cost.mem);
  if (!kek) return kek.error();
  return duration<double, std::milli>(steady_clock::now() - start);
}

}  // namespace

Result<SecretBuffer> normalise_passphrase(SecretBuffer raw) {
  std::size_t size = raw.size();
  if (size > 0 && raw.data()[size - 1] == '\n') --size;
  if (size == 0 || size > kMaxPassphrase || std::memchr(raw.data(), 0, size)) return Errc::bad_passphrase;
  raw.shrink(size);
  return raw;
}

Result<KdfCost> calibrate_kdf(std::chrono::milliseconds target) {
  const double want = std::max<double>(1, static_cast<double>(target.count()));
  const std::uint64_t most =
      std::clamp<std::uint64_t>(available_memory() / 2, 1 << 20, std::uint64_t{1} << 30);
  // Memory first, passes only when it is at its limit: memory is what an attacker's hardware pays for.
  KdfCost cost{1, 1 << 20};
  for (int round = 0; round < 8; ++round) {
    const auto took = time_kdf(cost);
    if (!took) return took.error();
    const double factor = want / std::max(took->count(), 0.01);
    if (factor < 1.15 && (factor > 0.87 || cost.mem <= (1 << 20))) break;
    if (cost.mem >= most && factor > 1) {
      cost.ops = std::clamp<std::uint64_t>(
          static_cast<std::uint64_t>(static_cast<double>(cost.ops) * factor + 0.5), 1, kMaxKdfOps);
      break;
    }
    // Not more than eightfold at once: small runs say little about large ones.
    const double next = static_cast<double>(cost.mem) * std::min(factor, 8.0);
    cost.mem = std::clamp<std::uint64_t>(static_cast<std::uint64_t>(next) / 1024 * 1024, 1 << 20,
                                         most / 1024 * 1024);
  }
  return cost;
}

Volume new_volume(Suite suite, NameMode names, std::vector<EpochMaster>& masters) {
  Volume v;
  std::array<std::uint8_t, 16> raw;
  random_bytes(raw);
  raw[6] = static_cast<std::uint8_t>((raw[6] & 0x0f) | 0x40);  // RFC 4122: version 4, random
  raw[8] = static_cast<std::uint8_t>((raw[8] & 0x3f) | 0x80);
  for (std::size_t i = 0; i < raw.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) v.uuid += '-';
    v.uuid += kAlphabet[raw[i] >> 4];
    v.uuid += kAlphabet[raw[i] & 15];
  }
  v.created = now_rfc3339();
  v.suite = suite;
  v.names = names;
  v.epochs = {1};
  masters.clear();
  EpochMaster& m = masters.emplace_back();
  m.epoch = 1;
  random_bytes(m.key.bytes());
  return v;
}

Result<Keyslot> make_slot(const Volume& volume, SlotType type, std::string label, const SecretBuffer& secret,
                          KdfCost cost, const std::vector<EpochMaster>& masters) {
  if (cost.ops > kMaxKdfOps || cost.mem > kMaxKdfMemory) return Errc::kdf_too_costly;
  Keyslot slot;
  slot.type = type;
  slot.label = std::move(label);
  slot.created = now_rfc3339();
  slot.argon2_ops = cost.ops;
  slot.argon2_mem = cost.mem;
  random_bytes(slot.salt);
  const auto kek = argon2id(secret, slot.salt, cost.ops, cost.mem);
  if (!kek) return kek.error();
  const SecretBuffer plain = pack_masters(masters);
  const std::string sealed = seal_value(kek->bytes(), as_bytes(slot_ad(volume, type)),
                                        {reinterpret_cast<const char*>(plain.data()), plain.size()});
  std::copy_n(sealed.begin(), kXNonceSize, slot.nonce.begin());
  slot.wrapped = sealed.substr(kXNonceSize);
  return slot;
}

Result<std::vector<EpochMaster>> open_slot(const Volume& volume, const Keyslot& slot,
                                           const SecretBuffer& secret) {
  if (slot.argon2_ops > kMaxKdfOps || slot.argon2_mem > kMaxKdfMemory) return Errc::kdf_too_costly;
  const auto kek = argon2id(secret, slot.salt, slot.argon2_ops, slot.argon2_mem);
  if (!kek) return kek.error();
  const auto plain = open_secret(*kek, as_bytes(slot_ad(volume, slot.type)), slot.nonce, slot.wrapped);
  if (!plain) return Errc::wrong_passphrase;
  // What authenticates was written by somebody who knew the secret; it must still be whole and of these
  // epochs.
  auto masters = unpack_masters(plain->bytes());
  if (!masters || !std::equal(masters->begin(), masters->end(), volume.epochs.begin(), volume.epochs.end(),
                              [](const EpochMaster& m, Epoch e) { return m.epoch == e; }))
    return Errc::damaged_volume;
  return masters;
}

Result<Unlocked> unlock_volume(const Volume& volume, const SecretBuffer& secret) {
  int bad_group = 0;
  const auto recovery =
      parse_recovery_key({reinterpret_cast<const char*>(secret.data()), secret.size()}, bad_group);
  std::error_code failed = make_error_code(Errc::wrong_passphrase);
  // Recovery slots first: they cost nothing. A passphrase may look like a recovery key, so the others are
  // tried too.
  for (const SlotType type : {SlotType::recovery, SlotType::passphrase}) {
    if (type == SlotType::recovery && !recovery) continue;
    for (std::size_t i = 0; i < volume.slots.size(); ++i) {
      if (volume.slots[i].type != type) continue;
      auto masters = open_slot(volume, volume.slots[i], type == SlotType::recovery ? *recovery : secret);
      if (!masters) {
        // One that could not be tried says more than one that did not fit.
        if (masters.error() != Errc::wrong_passphrase) failed = masters.error();
        continue;
      }
      auto keys = make_key_ring(*masters);
      if (!keys) return keys.error();
      if (const auto r = verify_volume(volume, *keys); !r) return r.error();
      return Unlocked{std::move(*masters), std::move(*keys), i};
    }
  }
  return failed;
}

SecretBuffer new_recovery_key() {
  SecretBuffer key(kRecoveryBytes);
  random_bytes(key.bytes());
  return key;
}

SecretBuffer format_recovery_key(const SecretBuffer& bytes) {
  SecretBuffer text(kRecoveryText);
  std::uint8_t* out = text.data();
  for (std::size_t g = 0; g < kGroups && 2 * g + 1 < bytes.size(); ++g) {
    if (g > 0) *out++ = '-';
    const std::uint8_t* p = bytes.data() + 2 * g;
    const std::size_t digits[kGroupDigits] = {p[0] / 16u, p[0] % 16u, p[1] / 16u, p[1] % 16u};
    for (const std::size_t d : digits) *out++ = static_cast<std::uint8_t>(kAlphabet[d]);
    *out++ = static_cast<std::uint8_t>(check_character(digits, g));
  }
  return text;
}

std::optional<SecretBuffer> parse_recovery_key(std::string_view text, int& bad_group) {
  bad_group = 0;
  // Indices into the alphabet; guarded memory, as they are the key.
  SecretBuffer read(kGroups * kGroupText);
  std::size_t n = 0;
  for (char c : text) {
    if (c == '-' || c == ' ' || c == '\t') continue;
    c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    if (c == 'o') c = '0';
    if (c == 'i' || c == 'l') c = '1';
    const std::size_t index = kAlphabet.find(c);
    if (index == kAlphabet.npos || n == read.size()) return std::nullopt;
    read.data()[n++] = static_cast<std::uint8_t>(index);
  }
  if (n != read.size()) return std::nullopt;
  SecretBuffer key(kRecoveryBytes);
  for (std::size_t g = 0; g < kGroups; ++g) {
    const std::uint8_t* p = read.data() + g * kGroupText;
    const std::size_t digits[kGroupDigits] = {p[0], p[1], p[2], p[3]};
    const bool good = std::all_of(digits, digits + kGroupDigits, [](std::size_t d) { return d < 16; }) &&
                      kAlphabet[p[kGroupDigits]] == check_character(digits, g);
    if (!good) {
      bad_group = static_cast<int>(g) + 1;
      return std::nullopt;
    }
    key.data()[2 * g] = static_cast<std::uint8_t>(digits[0] << 4 | digits[1]);
    key.data()[2 * g + 1] = static_cast<std::uint8_t>(digits[2] << 4 | digits[3]);
  }
  return key;
}

}  // namespace ecfs
