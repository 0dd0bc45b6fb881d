// SPDX-License-Identifier: GPL-3.0-or-later
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <cstdio>

#include "ecfs/crypto.hpp"

int main(int argc, char** argv) {
  if (!ecfs::crypto_init()) {
    std::fputs("unit: the cryptographic libraries do not start\n", stderr);
    return 1;
  }
  doctest::Context context(argc, argv);
  return context.run();
}
