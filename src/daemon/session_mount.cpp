// SPDX-License-Identifier: GPL-3.0-or-later
#define FUSE_USE_VERSION 312
#include "daemon/session_mount.hpp"

#include <fcntl.h>
#include <fuse3/fuse_lowlevel.h>
#include <libmount/libmount.h>
#include <poll.h>
#include <spawn.h>
#include <sys/eventfd.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <memory>

#include "ecfs/lower.hpp"

extern char** environ;

namespace ecfs::daemon {
namespace {

struct Flag {
  const char* name;
  unsigned long set, clear;
};
constexpr Flag kFlags[] = {{"ro", MS_RDONLY, 0},     {"rw", 0, MS_RDONLY},           {"suid", 0, MS_NOSUID}, {"nosuid", MS_NOSUID, 0}, {"dev", 0, MS_NODEV},
                           {"nodev", MS_NODEV, 0},   {"exec", 0, MS_NOEXEC},         {"noexec", MS_NOEXEC, 0}, {"sync", MS_SYNCHRONOUS, 0}, {"async", 0, MS_SYNCHRONOUS},
                           {"dirsync", MS_DIRSYNC, 0}, {"noatime", MS_NOATIME, 0}};

std::unique_ptr<libmnt_table, decltype(&mnt_unref_table)> mounts() {
  return {mnt_new_table_from_file("/proc/self/mountinfo"), &mnt_unref_table};
}

}  // namespace

Result<void> SessionMount::begin(fuse_session* session, const std::string& source, const std::vector<std::string>& options) {
  by_root_ = ::geteuid() == 0;
  if (by_root_) return mount_by_root(session, source, options);
  return fuse_session_mount(session, path_.c_str()) == 0 ? Result<void>() : errno_code(errno);
}

Result<void> SessionMount::mount_by_root(fuse_session* session, const std::string& source, const std::vector<std::string>& options) {
  struct stat st {};
  if (::stat(path_.c_str(), &st) != 0) return errno_code(errno);
  const int fd = ::open("/dev/fuse", O_RDWR | O_CLOEXEC);
  if (fd < 0) return errno_code(errno);
  // The session's from here on, which closes it.
  if (fuse_session_mount(session, ("/dev/fd/" + std::to_string(fd)).c_str()) != 0) {
    ::close(fd);
    return errno_code(EINVAL);
  }
  char mode[16];
  std::snprintf(mode, sizeof mode, "%o", st.st_mode & S_IFMT);
  std::string data = "fd=" + std::to_string(fd) + ",rootmode=" + mode + ",user_id=0,group_id=0";
  unsigned long flags = MS_NODEV | MS_NOSUID;  // unless it is asked for otherwise, as fusermount3 and libfuse do it
  for (const auto& o : options) {
    const Flag* known = nullptr;
    for (const auto& f : kFlags)
      if (o == f.name) known = &f;
    if (known)
      flags = (flags | known->set) & ~known->clear;
    else
      data += "," + o;
  }
  done_ = UniqueFd(::eventfd(0, EFD_CLOEXEC));
  if (!done_) return errno_code(errno);
  thread_ = std::thread([this, source, data, flags] {
    if (::mount(source.c_str(), path_.c_str(), "fuse.ecfs", flags, data.c_str()) != 0) error_ = errno;
    const std::uint64_t one = 1;
    // A fresh eventfd takes any number.
    if (::write(done_.get(), &one, sizeof one) < 0) error_ = errno;
  });
  // Until the kernel has tied the descriptor to the mount nothing can be read from it, and poll(2) says so at once; nothing else tells.
  for (;;) {
    pollfd ended{done_.get(), POLLIN, 0};
    if (::poll(&ended, 1, 1) > 0) return wait();
    pollfd message{fd, POLLIN, 0};
    if (::poll(&message, 1, 0) > 0 && message.revents == POLLIN) return {};
  }
}

Result<void> SessionMount::wait() {
  if (thread_.joinable()) thread_.join();
  return error_ ? Result<void>(errno_code(error_)) : Result<void>();
}

void SessionMount::end(fuse_session* session) {
  if (!by_root_) return fuse_session_unmount(session);
  pollfd gone{fuse_session_fd(session), 0, 0};
  if (::poll(&gone, 1, 0) > 0 && (gone.revents & POLLERR)) return;
  ::umount2(path_.c_str(), MNT_DETACH | UMOUNT_NOFOLLOW);
}

std::string mount_path(dev_t device, Bystander& bystander) {
  const auto table = mounts();
  libmnt_fs* entry = table ? mnt_table_find_devno(table.get(), device, MNT_ITER_BACKWARD) : nullptr;
  const char* target = entry ? mnt_fs_get_target(entry) : nullptr;
  if (!target) return {};
  const auto there = bystander.device_of(target);
  return there && *there == device ? target : "";
}

bool has_labels(dev_t device) {
  const auto table = mounts();
  libmnt_fs* entry = table ? mnt_table_find_devno(table.get(), device, MNT_ITER_BACKWARD) : nullptr;
  return entry && mnt_fs_get_option(entry, "seclabel", nullptr, nullptr) == 0;
}

bool unmount(const std::string& mount, bool lazy) {
  if (::geteuid() == 0) return ::umount2(mount.c_str(), (lazy ? MNT_DETACH : 0) | UMOUNT_NOFOLLOW) == 0;
  std::vector<const char*> argv{"fusermount3", "-u", "-q"};
  if (lazy) argv.push_back("-z");
  argv.push_back("--");
  argv.push_back(mount.c_str());
  argv.push_back(nullptr);
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_t attr;
  posix_spawnattr_init(&attr);
  posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK);
  posix_spawnattr_setsigmask(&attr, &none);
  pid_t pid = 0;
  const int failed = ::posix_spawnp(&pid, argv[0], nullptr, &attr, const_cast<char* const*>(argv.data()), environ);
  posix_spawnattr_destroy(&attr);
  if (failed) return false;
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace ecfs::daemon
