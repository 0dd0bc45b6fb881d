// SPDX-License-Identifier: GPL-3.0-or-later
// Keyslots: Argon2id (RFC 9106) over a passphrase gives a KEK, which wraps the master keys of all living epochs by
// XChaCha20-Poly1305 (additional data: "TYPE UUID"). Also the recovery key's written form.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ecfs/error.hpp"
#include "ecfs/secret.hpp"
#include "ecfs/volume.hpp"

namespace ecfs {

inline constexpr std::size_t kMaxPassphrase = 1024;

// One rule for the bytes everywhere: exactly one trailing newline is cut, nothing else; empty, NUL inside and more than
// kMaxPassphrase bytes are refused (bad_passphrase), never cut.
Result<SecretBuffer> normalise_passphrase(SecretBuffer raw);

struct KdfCost {
  std::uint64_t ops = 1;
  std::uint64_t mem = 0;  // bytes
};
// Costs that take about `target` here, at most half of the free memory (MemAvailable) and 1 GiB.
Result<KdfCost> calibrate_kdf(std::chrono::milliseconds target);
// For recovery slots: 128 random bits need no stretching.
inline constexpr KdfCost kRecoveryCost{1, 64 * 1024};

// A fresh volume with one epoch and no slot yet, and its master key.
Volume new_volume(Suite suite, NameMode names, std::vector<EpochMaster>& masters);

// `secret` is a normalised passphrase, or a recovery key's 16 bytes. ENOMEM when Argon2id's memory cannot be had.
Result<Keyslot> make_slot(const Volume& volume, SlotType type, std::string label, const SecretBuffer& secret,
                          KdfCost cost, const std::vector<EpochMaster>& masters);
// wrong_passphrase when the slot does not open.
Result<std::vector<EpochMaster>> open_slot(const Volume& volume, const Keyslot& slot, const SecretBuffer& secret);

struct Unlocked {
  std::vector<EpochMaster> masters;
  KeyRing keys;
  std::size_t slot = 0;  // index of the slot that opened
};
// Tries `secret` (a normalised passphrase, or a written recovery key) on the slots that it can be for (a written recovery key on recovery slots first), then verifies the
// volume's MAC. wrong_passphrase, or damaged_volume.
Result<Unlocked> unlock_volume(const Volume& volume, const SecretBuffer& secret);

inline constexpr std::size_t kRecoveryBytes = 16;
inline constexpr std::size_t kRecoveryText = 47;
// Recovery key: 128 random bits as 8 groups of 4 hexadecimal digits and a check character: "1f0ac-...". The check character is
// of "0123456789abcdefghjkmnpqrstvwxy": (sum of (i+1) d_i, i = 0..3, + 7 g) mod 31 for group g = 0..7.
SecretBuffer new_recovery_key();  // the 16 bytes
SecretBuffer format_recovery_key(const SecretBuffer& bytes);  // kRecoveryText characters
// Case, spaces and dashes do not matter; o is 0, i and l are 1. Nothing when it does not look like one (not 40 characters of the
// alphabet); `bad_group` is 1..8 when it does but that group has a typing error.
std::optional<SecretBuffer> parse_recovery_key(std::string_view text, int& bad_group);

}  // namespace ecfs
