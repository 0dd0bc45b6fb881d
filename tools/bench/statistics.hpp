// SPDX-License-Identifier: GPL-3.0-or-later
// Medians, and 95 % confidence intervals by Student's t on logarithms: figures and their ratios are positive and multiply, so that
// "half as fast" and "twice as fast" lie equally far from 1.
#pragma once

#include <span>
#include <vector>

namespace ecfs::bench {

// Of at least one value.
double median(std::span<const double> values);

// The 97.5 % quantile of Student's t with so many degrees of freedom (> 0, also between whole ones): half a two-sided 95 % interval.
double student_t(double degrees);

struct Interval {
  double low = 0, high = 0;
  bool contains(double x) const { return low <= x && x <= high; }
};

struct Spread {
  std::size_t n = 0;
  double median = 0, min = 0, max = 0;
  double mean = 0;    // geometric
  Interval interval;  // of the geometric mean; of one value alone: from 0 to infinity, nothing is known
};
// Of positive values.
Spread spread_of(std::span<const double> values);

// By what factor `later` differs from `earlier` (Welch's t-test on logarithms, which supposes neither equal counts nor equal variances).
struct Change {
  double factor = 1;
  Interval interval;
};
Change change_between(std::span<const double> earlier, std::span<const double> later);

}  // namespace ecfs::bench
