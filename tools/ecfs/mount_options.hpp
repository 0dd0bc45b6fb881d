// SPDX-License-Identifier: GPL-3.0-or-later
// The -o options of mount(8), FUSE and ours.
#pragma once

#include <string>
#include <vector>

#include "report.hpp"

namespace ecfs {

struct MountOptions {
  std::vector<std::string> daemon;  // what ecfsd is to know, "name" or "name=value"
  std::string passfile;
  std::string askpass;
  bool nonempty = false;

  // Is anybody but the mounting user to get in?
  bool for_others() const;
  // The daemon's as one -o argument: commas and backslashes in values escaped as FUSE does.
  std::string joined() const;
};

// Takes one -o argument. A comma ends an option unless a backslash stands before it or, as libmount writes
// it, the value is in double quotes. An option that nobody knows is Exit::usage by name; with `sloppy` (mount
// -s) it is passed over.
Outcome<void> add_options(MountOptions& options, const std::string& text, bool sloppy);

}  // namespace ecfs
