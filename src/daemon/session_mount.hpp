// SPDX-License-Identifier: GPL-3.0-or-later
// The mount of a session in the kernel: made, found again wherever it was moved to, and taken away.
#pragma once

#include <sys/types.h>

#include <string>
#include <thread>
#include <vector>

#include "daemon/bystander.hpp"
#include "ecfs/error.hpp"
#include "ecfs/unique_fd.hpp"

struct fuse_session;

namespace ecfs::daemon {

// Root mounts by mount(2), in a thread: under SELinux, where its policy keeps labels on FUSE, mount(2) asks for the root's label before it
// returns, and the session must be there to answer. An ordinary user's mount is fusermount3's, through libfuse.
class SessionMount {
 public:
  explicit SessionMount(std::string path) : path_(std::move(path)) {}
  ~SessionMount() { (void)wait(); }
  SessionMount(const SessionMount&) = delete;
  SessionMount& operator=(const SessionMount&) = delete;

  // Returns as soon as the session has something to read; mount(2) may still be at work. `source` is what the list of mounts shows,
  // `options` are mount(8)'s and the kernel's, one each: ro, nosuid, allow_other, context="..." ...
  Result<void> begin(fuse_session* session, const std::string& source, const std::vector<std::string>& options);
  // Waits until mount(2) has returned; what it said.
  Result<void> wait();
  // At the session's end. Nothing is done where the kernel has taken the mount away already.
  void end(fuse_session* session);

 private:
  Result<void> mount_by_root(fuse_session* session, const std::string& source, const std::vector<std::string>& options);
  const std::string path_;
  std::thread thread_;
  UniqueFd done_;
  int error_ = 0;  // of mount(2)
  bool by_root_ = false;
};

// Where the mount with that device number is now; empty where it is nowhere to be seen, or something else is mounted on top of it.
std::string mount_path(dev_t device, Bystander& bystander);

// Does the kernel keep an SELinux label for each file of this mount?
bool has_labels(dev_t device);

// As root by umount2(2), as a user through fusermount3.
bool unmount(const std::string& mount, bool lazy);

}  // namespace ecfs::daemon
