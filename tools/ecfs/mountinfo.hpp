// SPDX-License-Identifier: GPL-3.0-or-later
// The mounts of this mount namespace, by libmount.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "report.hpp"

namespace ecfs {

struct Mount {
  int id = 0;
  int parent = 0;
  dev_t device = 0;
  std::string target;
  std::string source;
  std::string type;
  uid_t owner = 0;  // a FUSE mount's user_id: whose daemon it is

  bool is_ecfs() const { return type == "fuse.ecfs"; }
};

Outcome<std::vector<Mount>> read_mounts();

// The topmost mount at exactly this real path; null when there is none.
const Mount* mount_at(const std::vector<Mount>& mounts, const std::string& target);

// The ecfs mount at a path as given. Nothing is asked of the mount itself, whose daemon may be dead.
// not_mounted when there is none.
Outcome<Mount> find_ecfs_mount(const std::string& path);

// Whether the daemon is gone and only its mount is left ("Transport endpoint is not connected").
bool is_dead(const Mount& mount);

// Takes a mount away: umount2 for root, else fusermount3. Busy is Exit::busy.
Outcome<void> unmount(const Mount& mount, bool lazy);

// Removes a dead mount's control socket and unmounts it.
Outcome<void> clear_dead(const Mount& mount);

}  // namespace ecfs
