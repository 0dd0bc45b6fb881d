// SPDX-License-Identifier: GPL-3.0-or-later
#include "ecfs/format.hpp"

#include <algorithm>

#include "ecfs/endian.hpp"

namespace ecfs {
namespace {

bool all_zero(std::span<const std::uint8_t> bytes) noexcept {
  return std::all_of(bytes.begin(), bytes.end(), [](std::uint8_t b) { return b == 0; });
}

constexpr std::string_view kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

constexpr std::array<std::int8_t, 256> make_reverse() {
  std::array<std::int8_t, 256> r{};
  r.fill(-1);
  for (std::size_t i = 0; i < kAlphabet.size(); ++i) r[static_cast<unsigned char>(kAlphabet[i])] = static_cast<std::int8_t>(i);
  return r;
}
constexpr auto kReverse = make_reverse();

}  // namespace

void FileHeader::encode(std::span<std::uint8_t, kHeaderSize> out) const noexcept {
  std::fill(out.begin(), out.end(), 0);
  std::copy(kMagic.begin(), kMagic.end(), out.begin());
  store_le<std::uint16_t>(&out[8], kFormatVersion);
  out[10] = static_cast<std::uint8_t>(suite);
  store_le<std::uint32_t>(&out[12], epoch);
  std::copy(file_id.begin(), file_id.end(), out.begin() + 16);
  std::copy(wrap_nonce.begin(), wrap_nonce.end(), out.begin() + 32);
  std::copy(wrapped_key.begin(), wrapped_key.end(), out.begin() + 56);
}

Result<FileHeader> FileHeader::decode(std::span<const std::uint8_t, kHeaderSize> in) {
  if (!std::equal(kMagic.begin(), kMagic.end(), in.begin())) return Errc::damaged_header;
  const auto version = load_le<std::uint16_t>(&in[8]);
  if (version == 0) return Errc::damaged_header;
  if (version != kFormatVersion) return Errc::unsupported_format;
  if (in[10] == 0) return Errc::damaged_header;
  if (in[10] > static_cast<std::uint8_t>(Suite::chacha20_poly1305)) return Errc::unsupported_format;
  if (in[11] != 0 || !all_zero(in.subspan(104))) return Errc::damaged_header;
  FileHeader h;
  h.suite = static_cast<Suite>(in[10]);
  h.epoch = load_le<std::uint32_t>(&in[12]);
  std::copy_n(in.begin() + 16, h.file_id.size(), h.file_id.begin());
  std::copy_n(in.begin() + 32, h.wrap_nonce.size(), h.wrap_nonce.begin());
  std::copy_n(in.begin() + 56, h.wrapped_key.size(), h.wrapped_key.begin());
  return h;
}

Result<BlockHeader> BlockHeader::decode(std::uint64_t block, std::span<const std::uint8_t> in) {
  if (in.size() < kBlockHeaderSize + payload(block)) return Errc::damaged_block;
  const auto length = load_le<std::uint16_t>(&in[kNonceSize]);
  if (length == 0 || length > payload(block)) return Errc::damaged_block;
  if (in[14] != 0 || in[15] != 0) return Errc::damaged_block;
  // The padding is outside the tag; holding it to zero means that no byte of a page can change unnoticed.
  if (!all_zero(in.subspan(kBlockHeaderSize + length, payload(block) - length))) return Errc::damaged_block;
  return BlockHeader{in.first<kNonceSize>(), length, in.subspan<16, kTagSize>()};
}

void DirRecord::encode(std::span<std::uint8_t, kSize> out) const noexcept {
  std::fill(out.begin(), out.end(), 0);
  std::copy(id.begin(), id.end(), out.begin());
  store_le<std::uint32_t>(&out[16], epoch);
  store_le<std::uint32_t>(&out[20], next_epoch);
}

Result<DirRecord> DirRecord::decode(std::span<const std::uint8_t> in) {
  if (in.size() != kSize || !all_zero(in.subspan(24, 8))) return Errc::damaged_directory;
  DirRecord r;
  std::copy_n(in.begin(), r.id.size(), r.id.begin());
  r.epoch = load_le<std::uint32_t>(&in[16]);
  r.next_epoch = load_le<std::uint32_t>(&in[20]);
  return r;
}

std::string base64url(std::span<const std::uint8_t> in) {
  std::string out;
  out.reserve((in.size() * 4 + 2) / 3);
  std::uint32_t bits = 0;
  int have = 0;
  for (const std::uint8_t b : in) {
    bits = bits << 8 | b;
    for (have += 8; have >= 6; have -= 6) out += kAlphabet[bits >> (have - 6) & 63];
  }
  if (have > 0) out += kAlphabet[bits << (6 - have) & 63];
  return out;
}

std::optional<std::string> from_base64url(std::string_view text) {
  if (text.size() % 4 == 1) return std::nullopt;
  std::string out;
  out.reserve(text.size() * 3 / 4);
  std::uint32_t bits = 0;
  int have = 0;
  for (const char c : text) {
    const int v = kReverse[static_cast<unsigned char>(c)];
    if (v < 0) return std::nullopt;
    bits = bits << 6 | static_cast<std::uint32_t>(v);
    have += 6;
    if (have >= 8) {
      have -= 8;
      out += static_cast<char>(bits >> have & 255);
    }
  }
  // One text for one name: unused bits must be zero.
  if ((bits & ((1u << have) - 1)) != 0) return std::nullopt;
  return out;
}

}  // namespace ecfs
