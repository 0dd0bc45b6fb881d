// SPDX-License-Identifier: GPL-3.0-or-later
// What the fuzz targets share. A target ends the program where something that must hold does not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <span>
#include <string_view>

#include "ecfs/crypto.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace ecfs::fuzz {

inline void must(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "does not hold: %s\n", what);
  std::abort();
}

// The same keys in every run (master key 00 01 02 ..., epoch 1), so that the corpora hold inputs that authenticate.
inline const KeyRing& keys() {
  static const KeyRing* ring = [] {
    must(crypto_init().has_value(), "the libraries start");
    MasterKey master;
    std::iota(master.bytes().begin(), master.bytes().end(), std::uint8_t{0});
    auto* r = new KeyRing;
    auto derived = EpochKeys::derive(1, master);
    must(derived.has_value(), "keys derive");
    r->add(std::move(*derived));
    return r;
  }();
  return *ring;
}

inline std::string_view text(std::span<const std::uint8_t> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace ecfs::fuzz
