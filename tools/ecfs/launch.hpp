// SPDX-License-Identifier: GPL-3.0-or-later
// Starting ecfsd and waiting until its mount answers.
#pragma once

#include <string>
#include <vector>

#include "ecfs/volume.hpp"
#include "report.hpp"

namespace ecfs {

struct Launch {
  std::string lower;    // real path
  std::string mount;    // real path
  std::string options;  // one -o argument, may be empty
  std::string log;      // absolute, may be empty
  bool foreground = false;
  bool debug = false;
};

// Hands the keys down a pipe. In the background: returns when the daemon says that the mount answers, or with
// its failure; a signal ends the daemon and then us. In the foreground: this process becomes the daemon, and
// only a failure returns.
Outcome<void> launch(const Launch& what, std::vector<EpochMaster> masters);

}  // namespace ecfs
