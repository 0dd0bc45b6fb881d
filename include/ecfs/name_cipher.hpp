// SPDX-License-Identifier: GPL-3.0-or-later
// One name, symlink target or user xattr, both ways (docs/FORMAT.md, "Names" and "Symlinks and xattrs").
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

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

// Is it a file of the format's own, which no listing shows? `root`: in the volume's root, where there are more.
bool is_own_name(std::string_view name, bool root) noexcept;

// What a sync tool makes of one of our names when both sides have changed the object, and editors of what they keep beside it: the name
// with a mark behind it, or before the `.H` that looks like an extension (docs/FORMAT.md, "Foreign entries").
struct CopyName {
  std::string of;    // the lower name that it may be a copy of
  std::string mark;  // what was added
};
// Everything that `lower_name` may be a copy of; which of it is, only decoding tells. The likelier first.
std::vector<CopyName> copy_readings(std::string_view lower_name);
// The name under which the copy of `plain` is shown: with its mark, and cut before it where both together are too long; empty where the
// mark alone is.
std::string shown_copy(std::string_view plain, std::string_view mark);

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
