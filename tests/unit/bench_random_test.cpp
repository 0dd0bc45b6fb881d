// SPDX-License-Identifier: GPL-3.0-or-later
// The benchmark's random numbers: the same ones everywhere, and distributed as they say.
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <vector>

#include "random.hpp"

using namespace ecfs::bench;

TEST_SUITE("bench") {
  TEST_CASE("the generator is xoshiro256**, seeded by splitmix64") {
    // splitmix64 of seed 0 begins with e220a8397b1dcdaf, 6e789e6aa1b965f4, 06c45d188009454f, f88bb8a8724c81ec (published vector);
    // the first output is then rotl(s1 * 5, 7) * 9.
    const std::uint64_t s1 = 0x6e789e6aa1b965f4, times5 = s1 * 5;
    CHECK(Random(0).next() == ((times5 << 7) | (times5 >> 57)) * 9);
    Random a(7), b(7), c(8);
    CHECK(a.next() == b.next());
    CHECK(a.next() != c.next());
  }

  TEST_CASE("numbers never change: a run of today does the work of a run of last year") {
    Random random(42);
    std::uint64_t sum = 0;
    for (int i = 0; i < 1000; ++i) sum = sum * 31 + random.next();
    CHECK(sum == 14358092893230813775u);
    CHECK(derive_seed(1, 2) == 16171810823986729605u);
    CHECK(derive_seed(1, 2) != derive_seed(2, 1));
  }

  TEST_CASE("below and between keep their bounds and favour nobody") {
    Random random(1);
    std::map<std::uint64_t, int> counts;
    for (int i = 0; i < 60000; ++i) ++counts[random.below(6)];
    REQUIRE(counts.size() == 6);
    for (const auto& [value, count] : counts) {
      CHECK(value < 6);
      CHECK(count == doctest::Approx(10000).epsilon(0.05));
    }
    CHECK(random.below(1) == 0);
    bool low = false, high = false;
    for (int i = 0; i < 1000; ++i) {
      const auto value = random.between(10, 13);
      CHECK((value >= 10 && value <= 13));
      low |= value == 10, high |= value == 13;
    }
    CHECK((low && high));
    CHECK(random.between(5, 5) == 5);
    random.between(0, UINT64_MAX);  // the whole range has no count that fits
  }

  TEST_CASE("pick goes by weight") {
    Random random(3);
    const unsigned weights[] = {10, 0, 60, 30};
    std::map<std::size_t, int> counts;
    for (int i = 0; i < 100000; ++i) ++counts[random.pick(weights)];
    CHECK(counts[0] == doctest::Approx(10000).epsilon(0.05));
    CHECK(counts.count(1) == 0);
    CHECK(counts[2] == doctest::Approx(60000).epsilon(0.05));
    CHECK(counts[3] == doctest::Approx(30000).epsilon(0.05));
    CHECK(counts.rbegin()->first == 3);
  }

  TEST_CASE("from_quantiles follows its table") {
    Random random(4);
    const std::uint64_t quantiles[] = {1, 10, 100, 100000};
    int small = 0, middle = 0, large = 0;
    for (int i = 0; i < 30000; ++i) {
      const auto value = random.from_quantiles(quantiles);
      CHECK((value >= 1 && value <= 100000));
      (value < 10 ? small : value < 100 ? middle : large)++;
    }
    CHECK(small == doctest::Approx(9000).epsilon(0.06));  // 10 itself is in two segments
    CHECK(middle == doctest::Approx(10900).epsilon(0.06));
    CHECK(large == doctest::Approx(10100).epsilon(0.06));
  }

  TEST_CASE("shuffle and chance") {
    Random random(5);
    std::vector<int> list(100);
    std::iota(list.begin(), list.end(), 0);
    auto shuffled = list;
    random.shuffle(shuffled);
    CHECK(shuffled != list);
    std::ranges::sort(shuffled);
    CHECK(shuffled == list);
    int hits = 0;
    for (int i = 0; i < 10000; ++i) hits += random.chance(80);
    CHECK(hits == doctest::Approx(8000).epsilon(0.03));
    CHECK_FALSE(random.chance(0));
    CHECK(random.chance(100));
  }

  TEST_CASE("fill fills every byte") {
    std::vector<std::byte> bytes(1003), again(1003);
    Random(6).fill(bytes);
    Random(6).fill(again);
    CHECK(bytes == again);
    CHECK(std::ranges::count(bytes, std::byte{0}) < 20);
    CHECK(std::ranges::count(std::span(bytes).last(8), std::byte{0}) < 8);
  }
}
