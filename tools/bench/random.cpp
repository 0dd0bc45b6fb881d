// SPDX-License-Identifier: GPL-3.0-or-later
#include "random.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>

namespace ecfs::bench {
namespace {

std::uint64_t splitmix64(std::uint64_t& state) {
  state += 0x9e3779b97f4a7c15;
  std::uint64_t z = state;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

}  // namespace

std::uint64_t derive_seed(std::uint64_t seed, std::uint64_t part) {
  std::uint64_t state = part;
  state = splitmix64(state) ^ seed;
  return splitmix64(state);
}

Random::Random(std::uint64_t seed) {
  for (auto& word : state_) word = splitmix64(seed);
}

std::uint64_t Random::next() {
  const std::uint64_t result = std::rotl(state_[1] * 5, 7) * 9;
  const std::uint64_t shifted = state_[1] << 17;
  state_[2] ^= state_[0];
  state_[3] ^= state_[1];
  state_[1] ^= state_[2];
  state_[0] ^= state_[3];
  state_[2] ^= shifted;
  state_[3] = std::rotl(state_[3], 45);
  return result;
}

std::uint64_t Random::below(std::uint64_t n) {
  // What is over the last whole multiple of n would make the small values likelier.
  const std::uint64_t over = (0 - n) % n;
  std::uint64_t value = next();
  while (value < over) value = next();
  return value % n;
}

std::uint64_t Random::between(std::uint64_t low, std::uint64_t high) {
  return high - low == UINT64_MAX ? next() : low + below(high - low + 1);
}

std::size_t Random::pick(std::span<const unsigned> weights) {
  std::uint64_t at = below(std::accumulate(weights.begin(), weights.end(), std::uint64_t{0}));
  std::size_t i = 0;
  while (at >= weights[i]) at -= weights[i++];
  return i;
}

std::uint64_t Random::from_quantiles(std::span<const std::uint64_t> quantiles) {
  const std::size_t i = below(quantiles.size() - 1);
  return between(quantiles[i], quantiles[i + 1]);
}

void Random::fill(std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    const std::uint64_t word = next();
    const std::size_t n = std::min(bytes.size(), sizeof word);
    std::memcpy(bytes.data(), &word, n);
    bytes = bytes.subspan(n);
  }
}

}  // namespace ecfs::bench
