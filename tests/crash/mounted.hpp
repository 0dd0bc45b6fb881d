// SPDX-License-Identifier: GPL-3.0-or-later
// A volume opened by the daemon's own code, without libfuse.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "daemon/filesystem.hpp"
#include "readers.hpp"

namespace ecfs::crash {

struct Opened {
  std::unique_ptr<daemon::Filesystem> fs;
  std::string passphrase;
};
// As `ecfs mount` and ecfsd do: volume file, keyslots, session marker, filesystem. `problems` gets what goes to the log, and must live as long.
Result<Opened> open_volume(const std::string& lower, const OpenWith& how, std::vector<std::string>& problems);
// Whoever runs this.
daemon::Caller caller();

}  // namespace ecfs::crash
