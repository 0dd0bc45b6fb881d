// SPDX-License-Identifier: GPL-3.0-or-later
// The volume file `ecfs.volume`: JSON that a person can read and nobody can change without the master key.
// Keyslots are only data here; opening and making them is keyslot.hpp's, which the daemon does not use.
//
// One JSON object, keys sorted, indented by two spaces, one newline at the end; no other layout is accepted:
//   checksum       base64url of BLAKE2b-256 over the compact form (sorted keys, no white space) without `checksum`. Needs no
//                  key: it tells accidental damage from a wrong passphrase before a passphrase is asked for
//   created        RFC 3339, UTC, whole seconds: "2025-01-31T12:00:00Z"
//   epochs         living key epochs, ascending, each 1 .. 2^32-1
//   format         1
//   keyslots       array of objects: argon2_mem (bytes, a multiple of 1024, 8 KiB .. 4 GiB), argon2_ops (1 .. 100), created,
//                  label (UTF-8, at most 255 bytes, no control characters), nonce (24 bytes), salt (16 bytes), type
//                  (passphrase | recovery | keyfile), wrapped (36 bytes an epoch and the 16-byte tag)
//   long_name_max  64 .. 255
//   mac            base64url of BLAKE2b-256, keyed with the newest epoch's K_conf, over the compact form without `mac` and
//                  `checksum`
//   names          encrypted | plain
//   suite          aes-256-gcm | chacha20-poly1305
//   uuid           RFC 4122, lower case
// Bytes are base64url without padding.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ecfs/crypto.hpp"
#include "ecfs/error.hpp"
#include "ecfs/unique_fd.hpp"

namespace ecfs {

enum class NameMode { encrypted, plain };
enum class SlotType { passphrase, recovery, keyfile };

// The words that stand for them in the volume file and in reports.
std::string_view word(Suite suite) noexcept;
std::string_view word(NameMode names) noexcept;
std::string_view word(SlotType type) noexcept;

inline constexpr std::uint64_t kMinKdfMemory = 8192;
inline constexpr std::uint64_t kMaxKdfMemory = std::uint64_t{4} << 30;
inline constexpr std::uint64_t kMaxKdfOps = 100;
inline constexpr std::size_t kMaxVolumeFile = std::size_t{1} << 20;
inline constexpr std::size_t kMaxLabel = 255;
inline constexpr std::size_t kMaxSlots = 256;
inline constexpr std::size_t kMaxEpochs = 256;

struct Keyslot {
  SlotType type = SlotType::passphrase;
  std::string label;             // valid_label()
  std::string created;           // RFC 3339, UTC
  std::uint64_t argon2_ops = 0;  // passes, at most 100
  std::uint64_t argon2_mem = 0;  // bytes, at most 4 GiB
  std::array<std::uint8_t, 16> salt{};
  std::array<std::uint8_t, kXNonceSize> nonce{};
  std::string wrapped;  // sealed, for each living epoch: epoch 4 | master key 32; then the tag
};

struct Volume {
  std::string uuid;     // RFC 4122 text
  std::string created;  // RFC 3339, UTC
  Suite suite = Suite::aes_256_gcm;
  NameMode names = NameMode::encrypted;
  std::size_t long_name_max = 255;
  std::vector<Epoch> epochs;  // ascending; the last is the newest
  std::vector<Keyslot> slots;
  std::array<std::uint8_t, 32> mac{};
};

// A parse error says which part is wrong ("keyslots[1].salt: not 16 bytes of base64url").
struct VolumeError {
  std::error_code code;  // damaged_volume, unsupported_format, not_a_volume, kdf_too_costly or an errno
  std::string part;
};

// UTF-8, at most kMaxLabel bytes, no control characters: what may stand in a keyslot's label.
bool valid_label(std::string_view label) noexcept;

// The text of the volume file, MAC included. Strict both ways: parse(render(v)) is v, and parse refuses any text that render
// would not make, so that no byte of the file can change unnoticed.
std::string render_volume(const Volume& volume, const KeyRing& keys);
// Structure and checksum only, no key needed. On failure `error` is filled and the Result holds its code.
Result<Volume> parse_volume(std::string_view text, VolumeError& error);
// Reads and parses `ecfs.volume` of an open lower directory.
Result<Volume> load_volume(int lower_dir, VolumeError& error);
// damaged_volume when the MAC is wrong under the newest epoch's K_conf or an epoch of the file has no key.
Result<void> verify_volume(const Volume& volume, const KeyRing& keys);
// Write-new (`ecfs.volume.new`), fsync, rename, fsync the directory; nothing is left behind on failure. Owner and mode of the
// file that is replaced stay. With `fresh`, volume_exists when there is one already. An error after the rename (the last
// fsync) means that the new file is there but may not survive a power cut.
Result<void> store_volume(int lower_dir, const Volume& volume, const KeyRing& keys, bool fresh);

// A master key with its number, as it travels from ecfs to ecfsd.
struct EpochMaster {
  Epoch epoch = 0;
  MasterKey key;
};
inline constexpr std::size_t kPackedMaster = 4 + MasterKey::kSize;
// Epoch 4 | key 32 for each, ascending: what a keyslot wraps and what --key-fd carries. unpack: EPROTO when it is not that.
SecretBuffer pack_masters(const std::vector<EpochMaster>& masters);
Result<std::vector<EpochMaster>> unpack_masters(std::span<const std::uint8_t> raw);
Result<KeyRing> make_key_ring(const std::vector<EpochMaster>& masters);
// --key-fd: the packed masters, read to the end of the file.
Result<void> write_keys(int fd, const std::vector<EpochMaster>& masters);
Result<std::vector<EpochMaster>> read_keys(int fd);

std::string now_rfc3339();

}  // namespace ecfs
