// SPDX-License-Identifier: GPL-3.0-or-later
// ecfs check --salvage: what can still be read of damaged files, into a directory outside of the volume.
#pragma once

#include <string>
#include <vector>

#include "ecfs/check.hpp"
#include "report.hpp"

namespace ecfs {

struct Salvaged {
  std::uint64_t files = 0;
  std::uint64_t bytes = 0;  // that were good
};

// `dir` is made, or must be empty, and not in the lower directory `lower`. Asked before a long scan whether it can be used.
Outcome<void> prepare_salvage(const std::string& dir, const std::string& lower);

// Of each file with a `block` finding: its good blocks at their offsets, and beside it NAME.holes, a line "OFFSET LENGTH" for each range that is missing.
Outcome<Salvaged> salvage(const std::string& dir, int root, const KeyRing& keys, const std::vector<check::Finding>& findings);

}  // namespace ecfs
