// SPDX-License-Identifier: GPL-3.0-or-later
// On-disk structures other than the volume file, each drawn beside its code. All integers are little-endian.
// Decoders give a whole valid object or an error; they never index before a check. docs/FORMAT.md is the contract.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "ecfs/error.hpp"
#include "ecfs/layout.hpp"

namespace ecfs {

inline constexpr std::uint16_t kFormatVersion = 1;
inline constexpr std::array<std::uint8_t, 8> kMagic = {0x89, 'e', 'c', 'f', 's', 0x0d, 0x0a, 0x1a};

enum class Suite : std::uint8_t { aes_256_gcm = 1, chacha20_poly1305 = 2 };

inline constexpr std::size_t kNonceSize = 12;
inline constexpr std::size_t kTagSize = 16;
inline constexpr std::size_t kXNonceSize = 24;  // XChaCha20-Poly1305

using Epoch = std::uint32_t;
using DirId = std::array<std::uint8_t, 16>;

// File header, the first 128 bytes of a non-empty lower file:
//   0 magic 8 | 8 version 2 | 10 suite 1 | 11 zero 1 | 12 epoch 4 | 16 file id 16
//   32 wrap nonce 24 | 56 wrapped file key and tag 48 | 104 zero 24
// The wrap's additional data is bytes 0..31.
struct FileHeader {
  Suite suite = Suite::aes_256_gcm;
  Epoch epoch = 0;
  std::array<std::uint8_t, 16> file_id{};
  std::array<std::uint8_t, kXNonceSize> wrap_nonce{};
  std::array<std::uint8_t, 48> wrapped_key{};

  static constexpr std::size_t kAdditionalData = 32;
  void encode(std::span<std::uint8_t, kHeaderSize> out) const noexcept;
  // damaged_header, or unsupported_format for a later version or an unknown suite.
  static Result<FileHeader> decode(std::span<const std::uint8_t, kHeaderSize> in);
};

// Block header: nonce 12 | length 2 | zero 2 | tag 16. `length` is 1..payload(block).
struct BlockHeader {
  std::span<const std::uint8_t, kNonceSize> nonce;
  std::uint16_t length;
  std::span<const std::uint8_t, kTagSize> tag;
  // `in`: the page from the block header on (3968 bytes for block 0, 4096 for others).
  static Result<BlockHeader> decode(std::uint64_t block, std::span<const std::uint8_t> in);
};

// `ecfs.dir`: directory id 16 | epoch 4 | next epoch 4 | zero 8 | keyed BLAKE2b 16 (K_conf of `epoch`) of the 32 before.
struct DirRecord {
  DirId id{};
  Epoch epoch = 0;
  Epoch next_epoch = 0;  // 0: no rotation of this directory's names is under way
  static constexpr std::size_t kSize = 48;
  static constexpr std::size_t kAuthenticated = 32;
  // Fills the 32 authenticated bytes; the MAC is the caller's.
  void encode(std::span<std::uint8_t, kSize> out) const noexcept;
  // Structure only; the caller checks the MAC under the epoch that it names.
  static Result<DirRecord> decode(std::span<const std::uint8_t> in);
};

// base64url without padding (RFC 4648, section 5).
std::string base64url(std::span<const std::uint8_t> in);
// Strict: nothing for a byte outside the alphabet, a length of 1 mod 4 or unused bits that are not zero.
std::optional<std::string> from_base64url(std::string_view text);

// Names of the format's own files in a lower directory.
inline constexpr std::string_view kReservedPrefix = "ecfs.";
inline constexpr std::string_view kDirFile = "ecfs.dir";
inline constexpr std::string_view kVolumeFile = "ecfs.volume";
inline constexpr std::string_view kSessionFile = "ecfs.session";
inline constexpr std::string_view kLockFile = "ecfs.lock";
inline constexpr std::string_view kLongPrefix = "ecfs.long.";
inline constexpr std::string_view kLongNamePrefix = "ecfs.name.";
inline constexpr std::string_view kTargetPrefix = "ecfs.target.";
inline constexpr std::string_view kNewSuffix = ".new";  // written first, then renamed
inline constexpr std::size_t kHashLength = 43;  // base64url of 32 bytes

// Xattr names on lower objects.
inline constexpr std::string_view kXattrPrefix = "user.ecfs.";
inline constexpr std::string_view kXattrLongPrefix = "user.ecfs.long.";
inline constexpr const char* kDirXattr = "user.ecfs.dir";

}  // namespace ecfs
