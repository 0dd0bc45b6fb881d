// SPDX-License-Identifier: GPL-3.0-or-later
// Makes the kernel write its dirty pages of a file back before a question about the file's holes is answered: the kernel's write-back
// cache does not do so itself before LSEEK, and a program that copies only what SEEK_DATA shows would lose what was just written.
// Waiting for write-back needs a worker free to take the WRITEs, so it is done in a thread of its own.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "daemon/filesystem.hpp"

struct fuse_session;

namespace ecfs::daemon {

class WriteBack {
 public:
  WriteBack(Filesystem& fs, std::string mount, fuse_session* session);
  // Answers what is queued, without waiting for write-back any more.
  ~WriteBack();

  // Calls `answer` in this object's thread once the kernel has written `node` back. `id` is its node id.
  void then(NodePtr node, std::uint64_t id, std::function<void()> answer);

 private:
  struct Task {
    NodePtr node;
    std::uint64_t id;
    std::function<void()> answer;
  };
  void run();
  bool sync_by_path(const NodePtr& node);

  Filesystem& fs_;
  const std::string mount_;
  fuse_session* session_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Task> tasks_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace ecfs::daemon
