// SPDX-License-Identifier: GPL-3.0-or-later
#include "daemon/write_back.hpp"

#include <new>

namespace ecfs::daemon {

WriteBack::WriteBack(Filesystem& fs, std::string mount, Bystander& bystander)
    : fs_(fs), mount_(std::move(mount)), bystander_(bystander), thread_([this] { run(); }) {}

WriteBack::~WriteBack() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void WriteBack::then(NodePtr node, std::function<void(std::error_code)> answer) {
  {
    const std::lock_guard lock(mutex_);
    tasks_.push_back({std::move(node), std::move(answer)});
  }
  wake_.notify_one();
}

std::error_code WriteBack::write_back(const Task& task) {
  try {
    const auto plain = fs_.plain_path(fs_.lower_path_of(task.node));  // a removed file has none
    const auto r = bystander_.write_back(mount_, plain ? *plain : "", task.node->key.ino, task.node->key.dev);
    return r.error();
  } catch (const std::bad_alloc&) {
    return errno_code(ENOMEM);
  }
}

void WriteBack::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [&] { return stop_ || !tasks_.empty(); });
    if (tasks_.empty()) return;
    const Task task = std::move(tasks_.front());
    tasks_.pop_front();
    const bool ending = stop_;
    lock.unlock();
    task.answer(ending ? errno_code(EINVAL) : write_back(task));
    lock.lock();
  }
}

}  // namespace ecfs::daemon
