// SPDX-License-Identifier: GPL-3.0-or-later
// Random numbers that are the same everywhere: the distributions of <random> differ between libraries, and two runs with one seed
// must do the same work. Integer arithmetic alone.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace ecfs::bench {

// A seed for a part of the work (a thread, a file) that is independent of the seeds of the other parts.
std::uint64_t derive_seed(std::uint64_t seed, std::uint64_t part);

// xoshiro256**, seeded by splitmix64.
class Random {
 public:
  explicit Random(std::uint64_t seed);

  std::uint64_t next();
  // Each of 0 … n-1 equally likely; n > 0.
  std::uint64_t below(std::uint64_t n);
  // Each of low … high equally likely.
  std::uint64_t between(std::uint64_t low, std::uint64_t high);
  // True in `percent` of a hundred.
  bool chance(unsigned percent) { return below(100) < percent; }
  // The index of a weight, as often as the weight is of their sum. The sum must not be 0.
  std::size_t pick(std::span<const unsigned> weights);
  // A value of the distribution whose quantiles these are, at equal distances of probability: the first is the minimum, the last
  // the maximum, and between two neighbours every value is equally likely. At least two, ascending.
  std::uint64_t from_quantiles(std::span<const std::uint64_t> quantiles);
  // Incompressible bytes.
  void fill(std::span<std::byte> bytes);
  // Each order equally likely.
  template <class List>
  void shuffle(List& list) {
    for (std::size_t i = list.size(); i > 1; --i) std::swap(list[i - 1], list[below(i)]);
  }

 private:
  std::array<std::uint64_t, 4> state_;
};

}  // namespace ecfs::bench
