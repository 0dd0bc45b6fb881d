// SPDX-License-Identifier: GPL-3.0-or-later
// SQLite at work on a recorded volume: the library's own code, over a VFS that makes its calls on the Filesystem as its Unix VFS makes them on a
// mount. Between the two is the kernel's cache, which here writes back at once; later it could only write less before the cut.
#pragma once

#include <string>
#include <vector>

#include "driver.hpp"

namespace ecfs::crash {

void sqlite_delete(Driver& driver, Random& rng);  // rollback journal
void sqlite_wal(Driver& driver, Random& rng);

// Opens the database that a state holds with SQLite on the plain directory `scratch`: sound, and with every transaction that was committed.
std::vector<std::string> check_sqlite(const History& history, const Plan& plan, const Seen& seen, const std::string& scratch);

}  // namespace ecfs::crash
