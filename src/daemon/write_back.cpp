// SPDX-License-Identifier: GPL-3.0-or-later
#include "daemon/write_back.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <new>

#include "daemon/ops.hpp"
#include "ecfs/lower.hpp"

namespace ecfs::daemon {

WriteBack::WriteBack(Filesystem& fs, std::string mount, fuse_session* session)
    : fs_(fs), mount_(std::move(mount)), session_(session), thread_([this] { run(); }) {}

WriteBack::~WriteBack() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void WriteBack::then(NodePtr node, std::uint64_t id, std::function<void()> answer) {
  {
    const std::lock_guard lock(mutex_);
    tasks_.push_back({std::move(node), id, std::move(answer)});
  }
  wake_.notify_one();
}

// The file as a program sees it, through our own mount: sync_file_range leaves the pages cached and takes no inode lock, which the
// program that seeks holds. False where the file is not to be had so (unlinked, unreadable, the mount hidden).
bool WriteBack::sync_by_path(const NodePtr& node) {
  try {
    const auto plain = fs_.plain_path(fs_.lower_path_of(node));
    if (!plain) return false;
    const auto fd = lower::open_path(mount_ + *plain, O_RDONLY | O_NONBLOCK | O_NOFOLLOW);
    struct stat st;
    // The same inode number on the lower device would be the lower file itself: then the mount is not in the way.
    if (!fd || ::fstat(fd->get(), &st) != 0 || st.st_ino != node->key.ino || st.st_dev == node->key.dev) return false;
    return ::sync_file_range(fd->get(), 0, 0,
                             SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER) == 0;
  } catch (const std::bad_alloc&) {
    return false;
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
    // Dropping the pages writes the dirty ones back too: the dearer way, which always works.
    if (!ending && !sync_by_path(task.node)) fuse_lowlevel_notify_inval_inode(session_, task.id, 0, 0);
    task.answer();
    lock.lock();
  }
}

}  // namespace ecfs::daemon
