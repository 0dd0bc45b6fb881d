// SPDX-License-Identifier: GPL-3.0-or-later
// Work that makes more work, done by several threads, or by the caller alone. The newest is done first, so that a tree is gone through
// depth first and few directories are open at a time.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace ecfs::check {

class Tasks {
 public:
  using Task = std::function<void()>;

  void push(Task task) {
    {
      const std::lock_guard lock(mutex_);
      waiting_.push_back(std::move(task));
    }
    changed_.notify_one();
  }

  // Until nothing is left. A task must not throw but std::bad_alloc, which ends it all and is thrown again here.
  void run(unsigned threads) {
    std::vector<std::thread> helpers;
    for (unsigned i = 1; i < threads; ++i) {
      try {
        helpers.emplace_back([this] { work(); });
      } catch (const std::system_error&) {
        break;  // no more threads to be had: fewer do it
      }
    }
    work();
    for (auto& t : helpers) t.join();
    if (failed_) std::rethrow_exception(failed_);
  }

 private:
  void work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return !waiting_.empty() || busy_ == 0; });
      if (waiting_.empty()) return;
      Task task = std::move(waiting_.back());
      waiting_.pop_back();
      ++busy_;
      lock.unlock();
      try {
        task();
        task = nullptr;  // its descriptors go before others are waited for
      } catch (...) {
        lock.lock();
        if (!failed_) failed_ = std::current_exception();
        waiting_.clear();
        lock.unlock();
      }
      lock.lock();
      if (--busy_ == 0 && waiting_.empty()) changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Task> waiting_;
  unsigned busy_ = 0;
  std::exception_ptr failed_;
};

}  // namespace ecfs::check
