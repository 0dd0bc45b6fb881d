// SPDX-License-Identifier: GPL-3.0-or-later
// What is recorded: small programs' calls on a volume, each with what is there before.
#pragma once

#include <string>
#include <vector>

#include "driver.hpp"

namespace ecfs::crash {

inline const std::string kPassphrase = "first words";

struct Workload {
  const char* name;
  void (*before)(Driver&);          // on the disk when the recording begins
  void (*work)(Driver&, Random&);
  // What else must hold in each state; may be null. `scratch` is a directory for it.
  std::vector<std::string> (*check)(const History&, const Plan&, const Seen&, const std::string& scratch) = nullptr;
};
const std::vector<Workload>& workloads();

}  // namespace ecfs::crash
