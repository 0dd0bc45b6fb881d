// SPDX-License-Identifier: GPL-3.0-or-later
#include "ecfs/layout.hpp"

#include <doctest/doctest.h>

#include <array>

namespace {

using namespace ecfs;

// The documented numbers, so that a changed constant does not pass as long as it is changed everywhere.
static_assert(kPage == 4096 && kHeaderSize == 128 && kBlockHeaderSize == 32);
static_assert(kPayload0 == 3936 && kPayload == 4064);
static_assert(payload(0) == 3936 && payload(1) == 4064 && payload(~std::uint64_t{0}) == 4064);
static_assert(block_start(0) == 0 && block_start(1) == 3936 && block_start(2) == 8000 && block_start(3) == 12064);
static_assert(block_of(0) == 0 && block_of(3935) == 0 && block_of(3936) == 1 && block_of(7999) == 1 && block_of(8000) == 2);
static_assert(offset_in_block(3935) == 3935 && offset_in_block(3936) == 0 && offset_in_block(8001) == 1);
static_assert(block_count(0) == 0 && block_count(1) == 1 && block_count(3936) == 1 && block_count(3937) == 2);
static_assert(last_length(0) == 0 && last_length(3936) == 3936 && last_length(3937) == 1 && last_length(8000) == 4064);
static_assert(lower_size(3935) == 8031 && lower_size(3936) == 8032 && lower_size(3937) == 8193);
static_assert(lower_size(8000) == 12256 && lower_size(8001) == 12289);
// The worked examples of docs/FORMAT.md, "Sizes".
static_assert(lower_size(1) == 4097 && lower_size(4096) == 8352 && lower_size(1000000) == 1012096);
static_assert(lower_size(1048576) == 1061056 && lower_size(std::uint64_t{1} << 30) == 1082200704);
static_assert(block_count(1000000) == 247 && block_count(1048576) == 259 && block_count(std::uint64_t{1} << 30) == 264209);
static_assert(kMaxPlainSize == 9151314442816843680u && lower_size(kMaxPlainSize) == (std::uint64_t{1} << 63) - 32);
static_assert(page_off(0) == 0 && page_off(3) == 12288);
static_assert(!plain_size_by_hint(4096) && !plain_size_by_hint(8192));
static_assert(!plain_size_by_hint(4096 + 3937) && plain_size_by_hint(4096 + 3936) == 3936);
static_assert(!plain_size_by_hint(8192 + 4065) && plain_size_by_hint(8192 + 4064) == 8000);
static_assert(plain_size_by_hint(0) == 0 && plain_size_by_hint(1) == 1 && plain_size_by_hint(4095) == 4095);
static_assert(kMaxOffset == (std::uint64_t{1} << 63) - 1);

void check_size(std::uint64_t size) {
  CAPTURE(size);
  const std::uint64_t n = block_count(size);
  const std::size_t r = last_length(size);
  CHECK(plain_size_of(n, r) == size);
  const std::uint64_t lower = lower_size(size);
  CHECK(lower == n * 4096 + r);
  CHECK(plain_size_by_hint(lower) == size);
  const LowerSize split = split_lower_size(lower);
  CHECK(split.pages == n);
  if (size > 0) {
    CHECK(r >= 1);
    CHECK(r <= payload(n - 1));
    REQUIRE(split.hint);
    CHECK(*split.hint == r);
  } else {
    CHECK(!split.hint);
  }
}

void check_offset(std::uint64_t off) {
  CAPTURE(off);
  const std::uint64_t block = block_of(off);
  CHECK(block_start(block) <= off);
  CHECK(off - block_start(block) < payload(block));
  CHECK(block_start(block) + offset_in_block(off) == off);
}

}  // namespace

TEST_SUITE("pure") {
  TEST_CASE("layout: round trips over the first 20,000 sizes") {
    std::uint64_t last = 0;
    for (std::uint64_t size = 0; size <= 20000; ++size) {
      check_size(size);
      check_offset(size);
      if (size > 0) CHECK(lower_size(size) > last);  // two sizes never share a lower size
      last = lower_size(size);
    }
  }

  TEST_CASE("layout: both sides of every border") {
    constexpr std::uint64_t p0 = kPayload0, p = kPayload;
    const std::array<std::uint64_t, 22> sizes = {
        0,          1,          p - 1,          p,          p + 1,          p0 - 1,  p0,           p0 + 1,
        p0 + p - 1, p0 + p,     p0 + p + 1,     2 * p - 1,  2 * p,          2 * p + 1, p0 + 2 * p, p0 + 2 * p + 1,
        1u << 30,   (1ull << 32) - 1, 1ull << 32, 1ull << 40, kMaxPlainSize - 1, kMaxPlainSize};
    for (const auto size : sizes) check_size(size);
    for (const std::uint64_t off : sizes) check_offset(off);
    check_offset(kMaxOffset);
    check_offset(kMaxOffset - 1);
  }

  TEST_CASE("layout: the largest file") {
    CHECK(lower_size(kMaxPlainSize) <= kMaxOffset);
    // One block more would not be a file offset any more.
    CHECK(lower_size(kMaxPlainSize + 1) > kMaxOffset);
    CHECK(kMaxPlainSize < kMaxOffset);
  }

  TEST_CASE("layout: lower sizes that say nothing") {
    // Every lower size of three pages: exactly those that a plaintext size makes give one.
    for (std::uint64_t lower = 4096; lower < 4 * 4096; ++lower) {
      CAPTURE(lower);
      const std::uint64_t pages = lower / 4096, r = lower % 4096;
      const bool valid = r >= 1 && r <= payload(pages - 1);
      const auto size = plain_size_by_hint(lower);
      CHECK(size.has_value() == valid);
      if (size) CHECK(lower_size(*size) == lower);
    }
  }
}
