// SPDX-License-Identifier: GPL-3.0-or-later
// What a report says about where it was made.
#pragma once

#include <string>

namespace ecfs::bench {

struct Machine {
  std::string cpu;       // "AMD EPYC, 2 processors"
  std::string aes;       // the processor's instructions for it, or "none"
  std::string memory;    // "23.0 GiB"
  std::string kernel;    // "Linux 6.18.1 x86_64"
  std::string system;    // "Debian GNU/Linux 12 (bookworm)"
  std::string lower;     // "ext4 on /dev/vda1, rw,relatime"
  std::string disk;      // its model and kind, as far as the kernel says
};

// Of the filesystem that `directory` is on.
Machine describe_machine(const std::string& directory);

}  // namespace ecfs::bench
