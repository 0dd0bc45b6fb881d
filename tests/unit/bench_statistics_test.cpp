// SPDX-License-Identifier: GPL-3.0-or-later
// The benchmark's arithmetic against values from tables.
#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include "statistics.hpp"

using namespace ecfs::bench;
using doctest::Approx;

TEST_SUITE("bench") {
  TEST_CASE("median") {
    CHECK(median(std::vector{3.0}) == 3);
    CHECK(median(std::vector{5.0, 1.0, 3.0}) == 3);
    CHECK(median(std::vector{4.0, 1.0, 3.0, 2.0}) == 2.5);
  }

  TEST_CASE("Student's t, as printed in tables") {
    const std::pair<double, double> table[] = {{1, 12.706}, {2, 4.303}, {3, 3.182}, {4, 2.776}, {9, 2.262}, {30, 2.042}, {120, 1.980}, {1e6, 1.960}};
    for (const auto& [degrees, t] : table) CHECK(student_t(degrees) == Approx(t).epsilon(0.0003));
    CHECK(student_t(2.5) < student_t(2));
    CHECK(student_t(2.5) > student_t(3));
  }

  TEST_CASE("the interval of a mean") {
    // Logarithms 0, 1, 2: mean 1, standard deviation 1, half width 4.3027 / sqrt(3).
    const Spread s = spread_of(std::vector{1.0, std::exp(1.0), std::exp(2.0)});
    CHECK(s.n == 3);
    CHECK(s.mean == Approx(std::exp(1.0)));
    CHECK(std::log(s.interval.low) == Approx(1 - 4.30265 / std::sqrt(3.0)).epsilon(0.0001));
    CHECK(std::log(s.interval.high) == Approx(1 + 4.30265 / std::sqrt(3.0)).epsilon(0.0001));
    CHECK((s.min == 1 && s.max == Approx(std::exp(2.0))));
    const Spread same = spread_of(std::vector{2.0, 2.0});
    CHECK(same.interval.low == Approx(2));
    CHECK(same.interval.high == Approx(2));
    const Spread one = spread_of(std::vector{2.0});
    CHECK((one.interval.low == 0 && std::isinf(one.interval.high)));
  }

  TEST_CASE("twice as fast and half as fast lie equally far from 1") {
    const Spread s = spread_of(std::vector{0.5, 2.0});
    CHECK(s.mean == Approx(1));
    CHECK(s.interval.low * s.interval.high == Approx(1));
  }

  TEST_CASE("a change beyond noise, and one within") {
    // Welch on logarithms: means 0 and ln 2 with variances v/3 each; equal variances give 4 degrees of freedom.
    const double d = 0.1;
    const std::vector<double> a = {std::exp(-d), 1, std::exp(d)}, b = {2 * std::exp(-d), 2, 2 * std::exp(d)};
    const Change c = change_between(a, b);
    CHECK(c.factor == Approx(2));
    CHECK(std::log(c.interval.low) == Approx(std::log(2.0) - 2.77645 * std::sqrt(2 * d * d / 3)).epsilon(0.0001));
    CHECK_FALSE(c.interval.contains(1));
    CHECK(change_between(a, a).interval.contains(1));
    // One value says nothing.
    CHECK(change_between(a, std::vector{5.0}).interval.contains(1));
    CHECK(change_between(std::vector{2.0, 2.0}, std::vector{4.0, 4.0}).interval.low == Approx(2));
  }
}
