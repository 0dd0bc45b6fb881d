// SPDX-License-Identifier: GPL-3.0-or-later
// Who keeps a mount busy.
#pragma once

#include <string>
#include <vector>

#include "mountinfo.hpp"

namespace ecfs {

// "vim (pid 4711: working directory, 2 open files)", a line a process; other mounts below it too. The mount
// itself is asked nothing. Processes of other users show only to root.
std::vector<std::string> holders(const Mount& mount);

}  // namespace ecfs
