// SPDX-License-Identifier: GPL-3.0-or-later
// Files of the format's own that mounts lock: `ecfs.lock` and the session markers. Whoever may read a file may hold a lock on it that
// keeps the others' out (fcntl(2), F_RDLCK), so these are only for who may write to the directory that they stand in.
#pragma once

#include "ecfs/error.hpp"
#include "ecfs/unique_fd.hpp"

namespace ecfs::daemon {

// Opened for reading and writing, and made where it is not there: the directory's owner's, with the right to read and write for whom the
// directory's mode and ACL let write. One that is there loses the right to read where there is none to write, if it is ours to change.
Result<UniqueFd> open_for_writers(int dir, const char* name);

}  // namespace ecfs::daemon
