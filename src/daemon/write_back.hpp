// SPDX-License-Identifier: GPL-3.0-or-later
// Makes the kernel write its dirty pages of a file back before a question about the file's holes is answered: the kernel's write-back
// cache does not do so itself before LSEEK, and a program that copies only what SEEK_DATA shows would lose what was just written.
// Waiting for write-back needs a worker free to take the WRITEs, so it is done in a thread of its own, by the bystander.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "daemon/bystander.hpp"
#include "daemon/filesystem.hpp"

namespace ecfs::daemon {

class WriteBack {
 public:
  WriteBack(Filesystem& fs, std::string mount, Bystander& bystander);
  // Answers what is queued, without waiting for write-back any more.
  ~WriteBack();

  // Calls `answer` in this object's thread once the kernel has written `node` back; with an error where that could not be had, and the
  // lower file may not have all of it.
  void then(NodePtr node, std::function<void(std::error_code)> answer);

 private:
  struct Task {
    NodePtr node;
    std::function<void(std::error_code)> answer;
  };
  void run();
  std::error_code write_back(const Task& task);

  Filesystem& fs_;
  const std::string mount_;
  Bystander& bystander_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Task> tasks_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace ecfs::daemon
