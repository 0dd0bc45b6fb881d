// SPDX-License-Identifier: GPL-3.0-or-later
// Lower names, link targets and xattrs. The first byte says as what the rest is taken: as it stands in a lower directory, or as what
// somebody who has the keys put under them.
#include "ecfs/name_cipher.hpp"

#include "fuzz.hpp"

namespace {

using namespace ecfs;

DirId dir() {
  DirId id;
  std::iota(id.begin(), id.end(), std::uint8_t{0x70});
  return id;
}

void check_plain_name(std::string_view name) {
  fuzz::must(!name.empty() && name.size() <= kNameMax, "a name's length");
  fuzz::must(name != "." && name != "..", "not a dot");
  fuzz::must(name.find('/') == name.npos && name.find('\0') == name.npos, "one component");
}

void lower_name(std::string_view text) {
  const auto name = decode_name(fuzz::keys().newest(), dir(), text);
  if (!name) return fuzz::must(name.error() == Errc::damaged_name, "its own error");
  check_plain_name(*name);
  const auto again = encode_name(fuzz::keys().newest(), dir(), *name, 4096);
  fuzz::must(again && again->name == text, "one text for one name");
}

void plain_name(std::string_view name) {
  if (name.find('\0') != name.npos) return;  // no caller can have one
  const auto lower = encode_name(fuzz::keys().newest(), dir(), name, 255);
  if (!lower) return fuzz::must(name.empty() || name.size() > kNameMax, "only a length is refused");
  fuzz::must(lower->name.size() <= 255 && lower->name.find('/') == std::string::npos, "a lower component");
  const auto back = decode_name(fuzz::keys().newest(), dir(), lower->is_long() ? lower->encoded : lower->name);
  if (back) fuzz::must(*back == name, "there and back");
}

void target(std::string_view text) {
  const auto open = open_target(fuzz::keys(), text);
  if (open && !open->empty()) fuzz::must(target_length(text.size()) == open->size(), "lstat's length");
}

void xattr(std::string_view in) {
  const EpochKeys& k = fuzz::keys().newest();
  const std::string_view lower = in.substr(0, in.find('\0')), sealed = in.substr(std::min(in.size(), lower.size() + 1));
  if (const auto name = decode_xattr_name(k, lower)) {
    fuzz::must(name->find('\0') == std::string::npos, "no NUL in a name");
    (void)open_xattr_value(fuzz::keys(), {std::string(lower), false}, *name, sealed).has_value();
  }
  if (is_long_xattr(lower))
    if (const auto name = long_xattr_name(fuzz::keys(), lower, sealed)) {
      fuzz::must(name->find('\0') == std::string::npos, "no NUL in a long name");
      fuzz::must(open_xattr_value(fuzz::keys(), {std::string(lower), true}, *name, sealed).has_value(), "a listed name has a value");
    }
}

// Content that authenticates, of any shape, as a long xattr.
void long_content(std::string_view content) {
  const EpochKeys& k = fuzz::keys().newest();
  const LowerXattr lower{std::string(kXattrLongPrefix) + std::string(kHashLength, 'A'), true};
  const std::string ad = std::string("\x01\0\0\0", 4) + lower.name;
  const std::string sealed = std::string("\x01\0\0\0", 4) + seal_value(k.xattr.bytes(), as_bytes(ad), content);
  xattr(lower.name + std::string(1, '\0') + sealed);
}

void padded_name(std::string_view padded) {
  if (padded.empty()) return;
  const auto sealed = fuzz::keys().newest().names.seal(dir(), padded);
  if (sealed) lower_name(base64url(as_bytes(*sealed)));
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view rest = fuzz::text({data + 1, size - 1});
  switch (data[0] % 6) {
    case 0: lower_name(rest); break;
    case 1: plain_name(rest); break;
    case 2: target(rest); break;
    case 3: xattr(rest); break;
    case 4: long_content(rest); break;
    case 5: padded_name(rest); break;
  }
  return 0;
}
