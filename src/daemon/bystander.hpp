// SPDX-License-Identifier: GPL-3.0-or-later
// A process beside the daemon that touches the mount for it. The daemon itself must never wait for its own mount: a daemon that is killed while
// one of its threads waits there, uninterruptibly, keeps /dev/fuse open for ever, and the mount hangs instead of failing. When the daemon
// ends, the bystander's call fails and it ends too. It is forked before there is any key, and holds nothing but its socket.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <mutex>
#include <span>
#include <string>

#include "ecfs/error.hpp"
#include "ecfs/unique_fd.hpp"

namespace ecfs::daemon {

class Bystander {
 public:
  // Forks. Call before any thread, key or /dev/fuse. `command_line`: where main's arguments are, which in the new process say what it is, so
  // that nobody takes it for the daemon.
  static Result<Bystander> start(std::span<char> command_line);
  Bystander(Bystander&& o) noexcept : socket_(std::move(o.socket_)) {}

  // The device number of what is at `path` (lstat).
  Result<dev_t> device_of(const std::string& path);
  // Has the kernel write a file's dirty pages back: those of `path` below `mount`, if that is the file with this inode number, else all of
  // the mount's (`path` may be empty). EINVAL where the mount is not to be seen at its place, but the lower device.
  Result<void> write_back(const std::string& mount, const std::string& path, std::uint64_t inode, dev_t lower_device);

 private:
  explicit Bystander(UniqueFd socket) : socket_(std::move(socket)) {}
  struct Request;
  struct Reply;
  Result<dev_t> ask(char what, const std::string& mount, const std::string& path, std::uint64_t inode, dev_t lower_device);
  [[noreturn]] static void serve(int socket);
  std::mutex mutex_;  // one question at a time
  UniqueFd socket_;
};

}  // namespace ecfs::daemon
