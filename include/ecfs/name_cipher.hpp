// SPDX-License-Identifier: GPL-3.0-or-later
// One name, symlink target or user xattr, both ways (docs/FORMAT.md, "Names" and "Symlinks and xattrs").
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "ecfs/crypto.hpp"

namespace ecfs {

inline constexpr std::size_t kNameMax = 255;    // plaintext bytes
inline constexpr std::size_t kTargetMax = 4095;  // plaintext bytes of a symlink target

// A name as it stands in a lower directory. `encoded` is not empty for a long name, and then is the content of name_file().
struct LowerName {
  std::string name;
  std::string encoded;
  bool is_long() const noexcept { return !encoded.empty(); }
  // `ecfs.name.H` for `ecfs.long.H`.
  std::string name_file() const;
};

// plain: 1..255 bytes without NUL. ENAMETOOLONG over that.
Result<LowerName> encode_name(const EpochKeys& keys, const DirId& dir, std::string_view plain, std::size_t long_name_max);
// damaged_name when it is not one of this directory's names. `encoded` is the base64url text.
Result<std::string> decode_name(const EpochKeys& keys, const DirId& dir, std::string_view encoded);

// A symlink target as base64url text, and back under the epoch that it names.
std::string seal_target(const EpochKeys& keys, std::string_view target);
Result<std::string> open_target(const KeyRing& keys, std::string_view text);
// The length of the target from that of its text alone; nothing when no target has such a text (`ecfs.target.H` has not).
std::optional<std::size_t> target_length(std::size_t text_length) noexcept;
// `ecfs.target.H` for the text of a target that does not fit the lower link.
std::string target_file(std::string_view text);
// Is this exactly such a name? A lower link can say anything, a path elsewhere too.
bool is_target_file(std::string_view name) noexcept;

// A user xattr's lower name. `name` has no `user.` prefix. Names whose ciphertext does not fit 255 bytes get a hash instead, and
// their value holds the name.
struct LowerXattr {
  std::string name;
  bool is_long = false;
};
Result<LowerXattr> encode_xattr_name(const EpochKeys& keys, std::string_view name);
// The plaintext name without `user.`; damaged_name when it is not a short lower name of ours.
Result<std::string> decode_xattr_name(const EpochKeys& keys, std::string_view lower_name);
bool is_long_xattr(std::string_view lower_name) noexcept;

// epoch 4 | nonce 24 | sealed; additional data: the epoch and the name (long: the lower name, and the name is sealed with the value).
std::string seal_xattr_value(const EpochKeys& keys, const LowerXattr& lower, std::string_view name, std::string_view value);
Result<std::string> open_xattr_value(const KeyRing& keys, const LowerXattr& lower, std::string_view name,
                                     std::string_view sealed);
// The name that a long xattr's value holds.
Result<std::string> long_xattr_name(const KeyRing& keys, std::string_view lower_name, std::string_view sealed);

}  // namespace ecfs
