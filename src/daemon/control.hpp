// SPDX-License-Identifier: GPL-3.0-or-later
// The daemon's side of the control socket (include/ecfs/control.hpp).
#pragma once

#include <chrono>
#include <string>

#include "daemon/filesystem.hpp"
#include "daemon/messages.hpp"
#include "ecfs/unique_fd.hpp"

namespace ecfs::daemon {

struct StatusContext {
  Filesystem& fs;
  const Messages& messages;
  std::string lower;  // as told to the user
  std::string mount;
  std::string mode;   // "exclusive", "shared", or "read-only beside a writer"
  std::chrono::steady_clock::time_point started = std::chrono::steady_clock::now();
};

class ControlServer {
 public:
  // Binds the socket for the mount with that device number; what dead daemons of this user left beside it is removed.
  static Result<ControlServer> bind(dev_t device);
  ControlServer(ControlServer&&) = default;
  ~ControlServer();

  int fd() const noexcept { return listener_.get(); }
  // Takes one connection and answers its one request. A peer that does not ask within a second is dropped.
  void serve_one(const StatusContext& context) noexcept;

 private:
  ControlServer(UniqueFd fd, std::string path, ino_t inode) : listener_(std::move(fd)), path_(std::move(path)), inode_(inode) {}
  UniqueFd listener_;
  std::string path_;
  ino_t inode_;
};

// `ecfs status --json`.
std::string status_json(const StatusContext& context);

}  // namespace ecfs::daemon
