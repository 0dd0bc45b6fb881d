// SPDX-License-Identifier: GPL-3.0-or-later
// Little-endian load and store, whatever the machine's own order and alignment.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>

namespace ecfs {

template <std::unsigned_integral T>
constexpr T load_le(const std::uint8_t* p) noexcept {
  T v = 0;
  for (std::size_t i = 0; i < sizeof(T); ++i) v = static_cast<T>(v | static_cast<T>(T{p[i]} << (8 * i)));
  return v;
}

template <std::unsigned_integral T>
constexpr void store_le(std::uint8_t* p, T v) noexcept {
  for (std::size_t i = 0; i < sizeof(T); ++i) p[i] = static_cast<std::uint8_t>(v >> (8 * i));
}

}  // namespace ecfs
