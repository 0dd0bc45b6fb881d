// SPDX-License-Identifier: GPL-3.0-or-later
// The mount point: what is there, whether it will do, and whether FUSE is to be had. All asked before the
// passphrase is.
#pragma once

#include <string>

#include "report.hpp"

namespace ecfs {

struct MountPoint {
  std::string path;  // real, or real parent and a name that is to be made
  bool missing = false;
};

// Exit::mount_point when it cannot be used.
Outcome<MountPoint> examine_mount_point(const std::string& given, const std::string& real_lower,
                                        bool nonempty);

// Whether an ecfs mount already is at `given`. One whose daemon is dead is taken away, with a note, and does
// not count. With `if_needed`, true when it is of `lower`; every other one is Exit::mounted.
Outcome<bool> mounted_already(const std::string& given, const std::string& lower, bool if_needed);

// Exit::fuse with the next step when /dev/fuse or (for users) fusermount3 will not do. for_others: with allow_other, for which a
// user needs user_allow_other in /etc/fuse.conf (fuse(8)).
Outcome<void> check_fuse(bool for_others);

}  // namespace ecfs
