// SPDX-License-Identifier: GPL-3.0-or-later
#include "ecfs/name_cipher.hpp"

#include <algorithm>

#include "ecfs/endian.hpp"

namespace ecfs {
namespace {

constexpr std::size_t kEpochSize = 4;
constexpr std::size_t kSealedExtra = kEpochSize + kSealOverhead;  // 44
constexpr std::size_t kXattrNameMax = 255;                        // XATTR_NAME_MAX, xattr(7)

std::string epoch_bytes(Epoch epoch) {
  std::uint8_t raw[kEpochSize];
  store_le<std::uint32_t>(raw, epoch);
  return std::string(reinterpret_cast<const char*>(raw), sizeof raw);
}

// The keys of the epoch that stands at the front of `sealed`.
const EpochKeys* keys_of(const KeyRing& keys, std::string_view sealed) {
  if (sealed.size() < kSealedExtra) return nullptr;
  return keys.find(load_le<std::uint32_t>(as_bytes(sealed).data()));
}

}  // namespace

std::string LowerName::name_file() const {
  return std::string(kLongNamePrefix) + name.substr(kLongPrefix.size());
}

Result<LowerName> encode_name(const EpochKeys& keys, const DirId& dir, std::string_view plain,
                              std::size_t long_name_max) {
  if (plain.empty() || plain.size() > kNameMax) return errno_code(plain.empty() ? ENOENT : ENAMETOOLONG);
  // Padding hides the length to 16 bytes; a name holds no NUL, so cutting at the first one undoes it.
  std::string padded(plain);
  padded.resize((plain.size() + 15) / 16 * 16, '\0');
  auto sealed = keys.names.seal(dir, padded);
  if (!sealed) return sealed.error();
  LowerName out;
  out.name = base64url(as_bytes(*sealed));
  if (out.name.size() > long_name_max) {
    out.encoded = std::move(out.name);
    out.name = std::string(kLongPrefix) + hash_name(out.encoded);
  }
  return out;
}

Result<std::string> decode_name(const EpochKeys& keys, const DirId& dir, std::string_view encoded) {
  const auto sealed = from_base64url(encoded);
  if (!sealed || sealed->size() % 16 != 0) return Errc::damaged_name;
  auto padded = keys.names.open(dir, *sealed);
  if (!padded) return padded.error();
  const std::size_t end = std::min(padded->find('\0'), padded->size());
  if (end == 0 || end + 16 <= padded->size() || end > kNameMax ||
      padded->find_first_not_of('\0', end) != std::string::npos || padded->find('/') != std::string::npos)
    return Errc::damaged_name;
  padded->resize(end);
  if (*padded == "." || *padded == "..") return Errc::damaged_name;
  return padded;
}

namespace {

constexpr std::string_view kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

bool is_hash(std::string_view text) { return text.size() == kHashLength && from_base64url(text).has_value(); }
// `ecfs.session.ID`, the ID being 9 bytes.
bool is_shared_session(std::string_view name) {
  constexpr std::size_t kId = 12;
  if (name.size() != kSessionFile.size() + 1 + kId || !name.starts_with(kSessionFile) || name[kSessionFile.size()] != '.') return false;
  return from_base64url(name.substr(kSessionFile.size() + 1)).has_value();
}
bool is_hashed(std::string_view name, std::string_view prefix) { return name.starts_with(prefix) && is_hash(name.substr(prefix.size())); }

}  // namespace

bool is_own_name(std::string_view name, bool root) noexcept {
  if (!name.starts_with(kReservedPrefix)) return false;
  if (is_hashed(name, kLongNamePrefix) || (root && is_hashed(name, kTargetPrefix))) return true;
  if (name.ends_with(kNewSuffix)) name.remove_suffix(kNewSuffix.size());
  return name == kDirFile || (root && (name == kVolumeFile || name == kLockFile || name == kSessionFile || is_shared_session(name)));
}

std::vector<CopyName> copy_readings(std::string_view lower_name) {
  std::vector<CopyName> out;
  if (lower_name.starts_with(kReservedPrefix)) {
    constexpr std::size_t kLong = kLongPrefix.size() + kHashLength;
    if (lower_name.size() <= kLong) return out;
    if (is_hashed(lower_name.substr(0, kLong), kLongPrefix))
      out.push_back({std::string(lower_name.substr(0, kLong)), std::string(lower_name.substr(kLong))});
    // `ecfs.long` MARK `.` H
    constexpr std::size_t kFront = kLongPrefix.size() - 1;
    const std::string_view back = lower_name.substr(lower_name.size() - kHashLength - 1);
    if (lower_name.starts_with(kLongPrefix.substr(0, kFront)) && back[0] == '.' && is_hash(back.substr(1)))
      out.push_back({std::string(kLongPrefix) + std::string(back.substr(1)),
                     std::string(lower_name.substr(kFront, lower_name.size() - kFront - back.size()))});
    return out;
  }
  const std::size_t encoded = std::min(lower_name.find_first_not_of(kAlphabet), lower_name.size());
  // Of every length that a sealed name's text has, the longest first.
  for (std::size_t sealed = encoded * 3 / 4 / 16 * 16; sealed >= 32; sealed -= 16)
    if (const std::size_t n = (sealed * 4 + 2) / 3; n <= encoded && n < lower_name.size())
      out.push_back({std::string(lower_name.substr(0, n)), std::string(lower_name.substr(n))});
  return out;
}

std::string shown_copy(std::string_view plain, std::string_view mark) {
  if (mark.size() >= kNameMax) return {};
  std::size_t keep = std::min(plain.size(), kNameMax - mark.size());
  // Not in the middle of a character, where the name is UTF-8.
  const auto continues = [&](std::size_t at) { return (static_cast<unsigned char>(plain[at]) & 0xC0) == 0x80; };
  if (keep < plain.size()) {
    std::size_t at = keep;
    while (at > 0 && keep - at < 3 && continues(at)) --at;
    if (at > 0 && !continues(at)) keep = at;
  }
  return std::string(plain.substr(0, keep)) + std::string(mark);
}

std::string seal_target(const EpochKeys& keys, std::string_view target) {
  std::string sealed = epoch_bytes(keys.epoch);
  sealed += seal_value(keys.link.bytes(), as_bytes(sealed), target);
  return base64url(as_bytes(sealed));
}

Result<std::string> open_target(const KeyRing& keys, std::string_view text) {
  const auto sealed = from_base64url(text);
  if (!sealed) return Errc::damaged_name;
  const EpochKeys* k = keys_of(keys, *sealed);
  if (!k) return Errc::damaged_name;
  const std::string_view view(*sealed);
  auto target = open_value(k->link.bytes(), as_bytes(view.substr(0, kEpochSize)), view.substr(kEpochSize));
  if (target && (target->empty() || target->size() > kTargetMax || target->find('\0') != std::string::npos)) return Errc::damaged_name;
  return target;
}

std::optional<std::size_t> target_length(std::size_t text_length) noexcept {
  if (text_length % 4 == 1) return std::nullopt;
  const std::size_t sealed = text_length * 3 / 4;
  if (sealed <= kSealedExtra) return std::nullopt;
  return sealed - kSealedExtra;
}

std::string target_file(std::string_view text) { return std::string(kTargetPrefix) + hash_name(text); }

bool is_target_file(std::string_view name) noexcept {
  return is_hashed(name, kTargetPrefix);
}

Result<LowerXattr> encode_xattr_name(const EpochKeys& keys, std::string_view name) {
  auto sealed = keys.xattr_names.seal({}, name);
  if (!sealed) return sealed.error();
  LowerXattr out;
  out.name = std::string(kXattrPrefix) + base64url(as_bytes(*sealed));
  if (out.name.size() > kXattrNameMax) {
    out.is_long = true;
    out.name = std::string(kXattrLongPrefix) + hash_name(*sealed);
  }
  return out;
}

Result<std::string> decode_xattr_name(const EpochKeys& keys, std::string_view lower_name) {
  if (!lower_name.starts_with(kXattrPrefix)) return Errc::damaged_name;
  const auto sealed = from_base64url(lower_name.substr(kXattrPrefix.size()));
  if (!sealed) return Errc::damaged_name;
  auto name = keys.xattr_names.open({}, *sealed);
  if (!name) return name;
  // It is listed between NULs.
  if (name->find('\0') != std::string::npos) return Errc::damaged_name;
  return name;
}

bool is_long_xattr(std::string_view lower_name) noexcept {
  return lower_name.starts_with(kXattrLongPrefix) && lower_name.size() == kXattrLongPrefix.size() + kHashLength;
}

namespace {

std::string xattr_ad(Epoch epoch, const LowerXattr& lower, std::string_view name) {
  std::string ad = epoch_bytes(epoch);
  ad += lower.is_long ? std::string_view(lower.name) : name;
  return ad;
}

// The sealed content under the epoch that it names: the value, or name length 2 | name | value.
Result<std::string> open_xattr(const KeyRing& keys, const LowerXattr& lower, std::string_view name,
                               std::string_view sealed) {
  const EpochKeys* k = keys_of(keys, sealed);
  if (!k) return Errc::damaged_name;
  return open_value(k->xattr.bytes(), as_bytes(xattr_ad(k->epoch, lower, name)), sealed.substr(kEpochSize));
}

// Splits the content of a long xattr; the name's length, or an error.
Result<std::size_t> long_name_length(std::string_view content) {
  if (content.size() < 2) return Errc::damaged_name;
  const std::size_t n = load_le<std::uint16_t>(as_bytes(content).data());
  if (n == 0 || content.size() < 2 + n || content.substr(2, n).find('\0') != std::string_view::npos)
    return Errc::damaged_name;
  return n;
}

}  // namespace

std::string seal_xattr_value(const EpochKeys& keys, const LowerXattr& lower, std::string_view name,
                             std::string_view value) {
  std::string content;
  if (lower.is_long) {
    std::uint8_t length[2];
    store_le<std::uint16_t>(length, static_cast<std::uint16_t>(name.size()));
    content.assign(reinterpret_cast<const char*>(length), sizeof length);
    content += name;
  }
  content += value;
  return epoch_bytes(keys.epoch) + seal_value(keys.xattr.bytes(), as_bytes(xattr_ad(keys.epoch, lower, name)), content);
}

Result<std::string> open_xattr_value(const KeyRing& keys, const LowerXattr& lower, std::string_view name,
                                     std::string_view sealed) {
  auto content = open_xattr(keys, lower, name, sealed);
  if (!content || !lower.is_long) return content;
  const auto n = long_name_length(*content);
  if (!n) return n.error();
  if (content->compare(2, *n, name) != 0) return Errc::damaged_name;
  return content->substr(2 + *n);
}

Result<std::string> long_xattr_name(const KeyRing& keys, std::string_view lower_name, std::string_view sealed) {
  const auto content = open_xattr(keys, {std::string(lower_name), true}, {}, sealed);
  if (!content) return content.error();
  const auto n = long_name_length(*content);
  if (!n) return n.error();
  return content->substr(2, *n);
}

}  // namespace ecfs
