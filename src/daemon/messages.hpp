// SPDX-License-Identifier: GPL-3.0-or-later
// The FUSE messages themselves, seen on their way in and out (libfuse's custom I/O): counted and timed, and what this libfuse does
// not know yet is read from or put into them - the kill-set-id flags, some INIT flags, labels of new files, O_TMPFILE, and statx.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/identity.hpp"
#include "daemon/filesystem.hpp"

namespace ecfs::daemon {

struct MessageStats {
  std::atomic<std::uint64_t> count{0}, total_ns{0}, max_ns{0};
};

class Messages {
 public:
  Messages(Filesystem& fs, double attr_timeout) : fs_(fs), attr_timeout_(attr_timeout) {}

  // For fuse_custom_io. One message; those that are answered here are answered and the next one is read.
  ssize_t read(int fd, void* buffer, std::size_t size);
  ssize_t writev(int fd, struct iovec* iov, int count);

  // Of the message that this thread is working on: may the caller not keep set-id bits?
  static bool kill_suidgid() noexcept;
  // The SELinux label that the kernel wants what this message makes to have; empty: none. As long as the message is.
  static std::string_view label() noexcept;

  // Ask the kernel for the label of each new file (before INIT), and whether it is kept (as soon as the mount says so).
  void ask_for_labels() noexcept { ask_for_labels_ = true; }
  void keep_labels(bool keep) noexcept { keep_labels_ = keep; }

  // Likewise: does its reading leave the atime as it is? So it is for who has opened with O_NOATIME; and who has opened for writing only is no
  // reader: the kernel asks for the rest of what it writes to.
  static bool reads_quietly() noexcept;

  struct Count {
    std::string name;
    std::uint64_t count, total_ns, max_ns;
  };
  // Each kind of message that was seen, by its name in <linux/fuse.h> without FUSE_.
  std::vector<Count> counts() const;

 private:
  void note_reply() noexcept;
  NodePtr node(std::uint64_t id) const;
  void answer_tmpfile(int fd, const void* message, std::size_t size);
  void answer_statx(int fd, std::uint64_t id, std::uint64_t unique);

  static constexpr std::size_t kOpcodes = 64;
  Filesystem& fs_;
  const double attr_timeout_;
  bool ask_for_labels_ = false;
  std::atomic<bool> keep_labels_{false};
  std::array<MessageStats, kOpcodes> stats_;
};

int to_errno(const std::error_code& error) noexcept;

}  // namespace ecfs::daemon
