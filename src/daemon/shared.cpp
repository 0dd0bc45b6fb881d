// SPDX-License-Identifier: GPL-3.0-or-later
// Filesystem: beside others who change the lower directory too - other mounts of the volume, which keep to the locks here, and whatever else
// works there, which does not. Lower files are locked whole, as their size and last block change with most writes; the lock is the open file
// description's, which a process gives up only when it ends, and which other hosts see where the lower filesystem's locks reach them.
#include <algorithm>
#include <thread>

#include "daemon/filesystem.hpp"
#include "daemon/writers_file.hpp"
#include "ecfs/lower.hpp"

namespace ecfs::daemon {
namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;

const std::string kLock(kLockFile);

bool same_time(const timespec& a, const timespec& b) { return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec; }

bool same_object(const lower::Stat& a, const lower::Stat& b) { return NodeKey::of(a) == NodeKey::of(b); }

// Said by filesystems that have no such locks.
bool no_locks(const std::error_code& e) {
  return is_errno(e, ENOLCK) || is_errno(e, EINVAL) || is_errno(e, ENOSYS) || is_errno(e, EOPNOTSUPP) || is_errno(e, ENOTTY);
}

}  // namespace

Result<lower::Stat> Filesystem::stat_of(int fd) const {
  if (config_.changes_beneath) return lower::stat_now(fd);
  const auto st = lower::stat_fd(fd);
  if (!st) return st.error();
  return lower::Stat{*st};
}

Result<lower::Stat> Filesystem::stat_of(int dir, const char* name) const {
  if (config_.changes_beneath) return lower::stat_now_at(dir, name);
  const auto st = lower::stat_at(dir, name);
  if (!st) return st.error();
  return lower::Stat{*st};
}

// Asks again and again, rather than wait in the kernel: the waiting can then end with the session, and at a time. The steps are short at
// first, since most locks are held for one read or write.
Result<void> Filesystem::wait_for_lock(int fd, lower::FileLock how, Deadline deadline, const std::function<std::string()>& lower_path) {
  constexpr steady_clock::duration kLongest = 5ms;
  for (steady_clock::duration pause = 50us;; pause = std::min(pause * 2, kLongest)) {
    const auto locked = lower::lock_file(fd, how);
    if (locked || !is_errno(locked.error(), EAGAIN)) return locked;
    if (stopping_) return errno_code(EIO);
    if (steady_clock::now() >= deadline) {
      log_once("another process holds the lock for too long; the call that waited for it failed", lower_path());
      return errno_code(ETIMEDOUT);
    }
    std::this_thread::sleep_for(pause);
  }
}

bool Filesystem::still_there(Node& node, const Link& link, int dir) {
  const auto st = stat_of(dir, link.name.c_str());
  const bool gone = st ? NodeKey::of(*st) != node.key : is_errno(st.error(), ENOENT) || is_errno(st.error(), ESTALE);
  if (gone) nodes_.remove_name(node, link);
  return !gone;
}

bool Filesystem::record_is_current(const OpenDir& dir) const {
  if (plain_names()) return true;
  if (!dir.record_file) return false;
  const auto now = stat_of(dir.fd.get(), kDirFile.data());
  return now && same_object(*now, *dir.record_file) && now->st_size == dir.record_file->st_size &&
         same_time(now->st_mtim, dir.record_file->st_mtim) && same_time(now->st_ctim, dir.record_file->st_ctim);
}

// A mount beside us that was cut says so only now: its marker is there, and nobody holds it.
bool Filesystem::in_cut(const timespec& ctime) {
  if (!config_.changes_beneath) return config_.marker.in_cut(ctime);
  const std::lock_guard lock(root_mutex_);
  return config_.marker.in_cut(ctime);
}

bool Filesystem::any_cut() {
  const std::lock_guard lock(root_mutex_);
  return config_.marker.any_cut();
}

bool Filesystem::cut_since(const timespec& ctime) {
  if (!config_.shared) return false;
  const std::lock_guard lock(root_mutex_);
  const auto now = steady_clock::now();
  if (now - cut_looked_ >= 1s || cut_looked_ == steady_clock::time_point{}) {
    cut_looked_ = now;
    config_.marker.look_for_cuts(lower_root());
  }
  return config_.marker.in_cut(ctime);
}

Result<void> Filesystem::opened(const NodePtr& node) {
  const auto key = at_node(
      node, [&](int dir, const char* name) { return stat_of(dir, name); }, [&](int fd) { return stat_of(fd); });
  if (!key) return is_errno(key.error(), ENOENT) ? errno_code(ESTALE) : key.error();
  if (NodeKey::of(*key) != node->key) return errno_code(ESTALE);
  // A descriptor of what another host has removed, with another now under its number, is of no use.
  if (const auto file = node->type == S_IFREG ? nodes_.files.get(*node) : nullptr)
    if (const auto st = stat_of(file->file.fd()); !st && is_errno(st.error(), ESTALE)) nodes_.files.drop(*node);
  node->opens.fetch_add(1, std::memory_order_relaxed);
  return {};
}

Result<Filesystem::LowerLock> Filesystem::take_file(const NodePtr& node, OpenFile& open, Access access, Deadline deadline) {
  const int fd = open.file.fd();
  const auto how = access == Access::read ? lower::FileLock::shared : lower::FileLock::exclusive;
  const auto locked = wait_for_lock(fd, how, deadline, [&] { return lower_path_of(node); });
  // Who only reads can do without: what then comes out torn is read once more.
  const bool without = !locked && !config_.shared && no_locks(locked.error());
  if (!locked && !without) return locked.error();
  LowerLock held(without ? -1 : fd);
  const auto st = stat_of(fd);
  if (!st) {
    // Removed on another host: this descriptor is of no use any more.
    if (is_errno(st.error(), ESTALE)) nodes_.files.drop(*node);
    return st.error();
  }
  open.in_cut = in_cut(st->st_ctim);
  if (access == Access::replace) return held;
  const auto lower_bytes = static_cast<std::uint64_t>(st->st_size);
  const bool mend = access == Access::write && open.refused == 0;
  // Whether a mount beside us was cut, and the file is one that it changed, is to be known before anything is mended.
  const bool older = !open.in_cut && any_cut();
  auto fresh = open.file.refresh(lower_bytes, mend && !older, open.in_cut, false);
  const bool doubtful = !open.in_cut && (fresh ? open.file.hint_differed_from().has_value() : fresh.error().category() == ecfs_category());
  if (doubtful && cut_since(st->st_ctim)) {
    open.in_cut = true;
    fresh = open.file.refresh(lower_bytes, mend, true, false);
  } else if (older && (mend || doubtful)) {
    fresh = open.file.refresh(lower_bytes, mend, false, true);
  }
  if (!fresh) return fresh.error();
  return held;
}

// `ecfs.lock`, made where it is not there. What another has put in its place since, or taken away, is the one that the others lock.
Result<void> Filesystem::take_volume_lock(Deadline deadline) {
  const int root = lower_root();
  for (;;) {
    if (!lock_file_) {
      // Whoever may make names in the volume may lock it, and nobody else.
      auto fd = open_for_writers(root, kLock.c_str());
      if (!fd) return fd.error();
      lock_file_ = std::move(*fd);
    }
    const auto locked = wait_for_lock(lock_file_.get(), lower::FileLock::exclusive, deadline, [] { return kLock; });
    if (!locked && !is_errno(locked.error(), ESTALE)) return locked;
    const auto ours = stat_of(lock_file_.get()), there = stat_of(root, kLock.c_str());
    if (ours && there && same_object(*ours, *there)) return {};
    lock_file_ = UniqueFd();  // and the lock with it
    if (steady_clock::now() >= deadline) return errno_code(ETIMEDOUT);
  }
}

Filesystem::Changing::Changing(Filesystem& fs) : fs_(fs) {
  if (!fs.config_.shared || fs.changing_here()) return;
  const Deadline deadline = fs.lock_deadline();
  {
    std::unique_lock lock(fs.changing_mutex_);
    if (!fs.turn_.wait_until(lock, deadline, [&] { return !fs.changing_; })) {
      held = errno_code(ETIMEDOUT);
      return;
    }
    fs.changing_ = true;
    turn_.of = &fs;
  }
  held = fs.take_volume_lock(deadline);
  if (held)
    fs.changer_ = std::this_thread::get_id();
  else
    turn_.give_back();
}

void Filesystem::Changing::Turn::give_back() noexcept {
  if (!of) return;
  {
    const std::lock_guard lock(of->changing_mutex_);
    of->changing_ = false;
  }
  of->turn_.notify_one();
  of = nullptr;
}

Filesystem::Changing::~Changing() {
  if (!turn_.of) return;
  fs_.changer_ = std::thread::id();
  lower::unlock_file(fs_.lock_file_.get());
}

}  // namespace ecfs::daemon
