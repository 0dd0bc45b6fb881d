// SPDX-License-Identifier: GPL-3.0-or-later
// Arithmetic between plaintext and lower offsets, sizes and blocks of a regular file. Pure and constexpr.
//
//   page 0:   header (128) | block 0        page k:   block k
//   block:    nonce 12 | length 2 | zero 2 | tag 16 | ciphertext ... (zero-padded to the page)
//
// A file of n >= 1 blocks, the last of which holds r bytes, has the lower size 4096 n + r: the r bytes past the
// last page are never written. So stat alone tells the plaintext size (docs/FORMAT.md, "Size").
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>

namespace ecfs {

inline constexpr std::size_t kPage = 4096;
inline constexpr std::size_t kHeaderSize = 128;
inline constexpr std::size_t kBlockHeaderSize = 32;
inline constexpr std::size_t kPayload = kPage - kBlockHeaderSize;                // 4064, blocks 1, 2, ...
inline constexpr std::size_t kPayload0 = kPage - kHeaderSize - kBlockHeaderSize;  // 3936, block 0
inline constexpr std::uint64_t kMaxOffset = std::numeric_limits<std::int64_t>::max();

constexpr std::size_t payload(std::uint64_t block) noexcept { return block == 0 ? kPayload0 : kPayload; }

// Plaintext offset of a block's first byte.
constexpr std::uint64_t block_start(std::uint64_t block) noexcept {
  return block == 0 ? 0 : kPayload0 + (block - 1) * kPayload;
}

// The block that holds a plaintext offset.
constexpr std::uint64_t block_of(std::uint64_t plain_off) noexcept {
  return plain_off < kPayload0 ? 0 : 1 + (plain_off - kPayload0) / kPayload;
}

// Offset of a plaintext byte inside its block.
constexpr std::size_t offset_in_block(std::uint64_t plain_off) noexcept {
  return static_cast<std::size_t>(plain_off - block_start(block_of(plain_off)));
}

// Lower offset of the page that holds a block.
constexpr std::uint64_t page_off(std::uint64_t block) noexcept { return block * kPage; }

// Number of blocks of a file of that plaintext size.
constexpr std::uint64_t block_count(std::uint64_t plain_size) noexcept {
  return plain_size == 0 ? 0 : block_of(plain_size - 1) + 1;
}

// Bytes in the last block of a file of that plaintext size; 0 for an empty file.
constexpr std::size_t last_length(std::uint64_t plain_size) noexcept {
  return plain_size == 0 ? 0 : offset_in_block(plain_size - 1) + 1;
}

// Plaintext size of n blocks, the last of which holds r bytes.
constexpr std::uint64_t plain_size_of(std::uint64_t n, std::size_t r) noexcept {
  return n == 0 ? 0 : block_start(n - 1) + r;
}

// The largest plaintext size whose lower size still is a file offset (2^63 - 1).
inline constexpr std::uint64_t kMaxPlainSize = plain_size_of(kMaxOffset / kPage, kPayload);

// Lower size, with its hint, of a file of that plaintext size (at most kMaxPlainSize).
constexpr std::uint64_t lower_size(std::uint64_t plain_size) noexcept {
  return block_count(plain_size) * kPage + last_length(plain_size);
}

// What a lower size says: whole pages, and the hint when there is one.
struct LowerSize {
  std::uint64_t pages = 0;
  std::optional<std::size_t> hint;  // bytes in the last block, when the lower size says so
};

constexpr LowerSize split_lower_size(std::uint64_t size) noexcept {
  LowerSize s{size / kPage, {}};
  const auto r = static_cast<std::size_t>(size % kPage);
  if (s.pages > 0 && r > 0 && r <= payload(s.pages - 1)) s.hint = r;
  return s;
}

// Plaintext size by a lower size alone; nothing when the hint is missing and the last block must be asked.
// A file that is cut inside its first page is damaged; it shows its lower size, so that a read is asked for
// and fails, instead of looking empty.
constexpr std::optional<std::uint64_t> plain_size_by_hint(std::uint64_t size) noexcept {
  const LowerSize s = split_lower_size(size);
  if (s.pages == 0) return size;
  if (!s.hint) return std::nullopt;
  return plain_size_of(s.pages, *s.hint);
}

static_assert(lower_size(0) == 0 && lower_size(1) == 4097 && lower_size(kPayload0) == 4096 + kPayload0);
static_assert(lower_size(kPayload0 + 1) == 2 * 4096 + 1);
static_assert(lower_size(kMaxPlainSize) <= kMaxOffset);
static_assert(plain_size_by_hint(lower_size(kMaxPlainSize)) == kMaxPlainSize);

}  // namespace ecfs
