// SPDX-License-Identifier: GPL-3.0-or-later
// Exit codes of ecfs and ecfsd, documented in ecfs(1). A number never changes its meaning and is never used again.
#pragma once

namespace ecfs {

enum class Exit : int {
  ok = 0,
  failure = 1,          // anything without a number of its own; of `ecfs check`: there were faults, all are repaired
  usage = 2,            // wrong command line or mount option
  passphrase = 3,       // wrong passphrase, or none to be had
  check_left = 4,       // ecfs check: damage, or faults that are not repaired
  no_volume = 5,        // there is no volume in the lower directory
  volume_exists = 6,    // there is one already
  damaged_volume = 7,   // the volume file is damaged
  not_checked = 8,      // ecfs check: could not check, or not to the end
  unsupported = 9,      // the volume needs another version of ecfs
  mount_point = 10,     // the mount point cannot be used
  mounted = 11,         // something of ours is mounted there already
  lower_in_use = 12,    // another daemon holds the lower directory
  lower = 13,           // the lower directory cannot be used
  fuse = 14,            // FUSE is not available
  not_mounted = 15,     // there is no (living) ecfs mount
  busy = 16,            // the mount is in use
};

}  // namespace ecfs
