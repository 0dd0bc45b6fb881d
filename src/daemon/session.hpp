// SPDX-License-Identifier: GPL-3.0-or-later
// fuse_session's life: mount, serve, signals, background, unmount. Everything that can fail before the mount answers is reported
// through the status descriptor, or on the terminal.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "daemon/bystander.hpp"
#include "ecfs/exit_code.hpp"
#include "ecfs/volume.hpp"

namespace ecfs::daemon {

struct SessionConfig {
  std::string lower;
  std::string mount;
  std::string log_file;
  bool foreground = false;
  bool debug = false;
  bool read_only = false;
  bool noatime = false;
  bool nodiratime = false;
  bool noxattr = false;
  bool acl = false;
  bool shared = false;                    // others may mount the volume for writing too, and change the lower directory
  std::string fsname;                     // empty: the lower directory's path
  std::vector<std::string> contexts;  // SELinux's, "name=value"
  std::vector<std::string> fuse_options;  // for libfuse: ro, nosuid, allow_other ...
  int status_fd = -1;
};

// A failure as the user is told it.
struct Failure {
  Exit exit = Exit::failure;
  std::string what, why, hint;
};

// {"ok":...} and a newline, for --status-fd. `note` is something that the user should know of a mount that succeeded.
std::string status_line(const std::optional<Failure>& failure, const std::string& note = {});

// Mounts and serves until unmounted. Returns what went wrong, if anything did before the mount answered or while it served.
std::optional<Failure> run_session(SessionConfig config, std::vector<EpochMaster> masters, Bystander& bystander);

}  // namespace ecfs::daemon
