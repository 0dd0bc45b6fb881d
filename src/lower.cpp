// SPDX-License-Identifier: GPL-3.0-or-later
#include "ecfs/lower.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <memory>

#ifndef SYS_fchmodat2
#define SYS_fchmodat2 452
#endif

namespace ecfs::lower {
namespace {

struct Hooks {
  Hook before;
  Observer after;
};
std::unique_ptr<const Hooks> g_hooks_owner;
std::atomic<const Hooks*> g_hooks{nullptr};

// Runs `call` (which returns -1 and sets errno) until a signal does not cut it; -1 with errno set on failure.
template <class F>
auto retry(F call) {
  for (;;) {
    const auto r = call();
    if (r != -1 || errno != EINTR) return r;
  }
}

constexpr std::size_t kNoLimit = static_cast<std::size_t>(-1);

// Makes a system call (`make` gets the most bytes to move, and returns -1 with errno on failure) and, where tests listen, tells them before and after.
template <class F>
auto hooked(const Call& call, F make) -> decltype(make(kNoLimit)) {
  const Hooks* hooks = g_hooks.load(std::memory_order_acquire);
  if (!hooks) [[likely]]
    return retry([&] { return make(kNoLimit); });
  const Verdict v = hooks->before ? hooks->before(call) : Verdict{};
  decltype(make(kNoLimit)) r = -1;
  if (v.error)
    errno = v.error;
  else
    r = retry([&] { return make(std::max<std::size_t>(v.limit, 1)); });
  if (hooks->after) {
    const int error = r == -1 ? errno : 0;
    hooks->after(call, {error, static_cast<std::int64_t>(r)});
    errno = error;
  }
  return r;
}

std::span<const std::uint8_t> bytes_of(std::string_view text) { return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()}; }

template <class F>
Result<void> simple(const Call& call, F make) {
  if (hooked(call, [&](std::size_t) { return make(); }) == -1) return last_errno();
  return {};
}

// "/proc/self/fd/N" or "/proc/self/fd/N/name": the *at form that the xattr calls lack, and the way to an O_PATH descriptor.
struct ProcPath {
  char text[PATH_MAX];
  explicit ProcPath(int fd, const char* name = nullptr) {
    std::snprintf(text, sizeof text, name ? "/proc/self/fd/%d/%s" : "/proc/self/fd/%d", fd, name);
  }
};

Result<Stat> ask_now(const Call& call, const char* name, int flags) {
  struct statx x;
  const auto asked = simple(
      call, [&] { return ::statx(call.fd, name, flags | AT_STATX_FORCE_SYNC, STATX_BASIC_STATS | STATX_BTIME, &x); });
  if (!asked) return asked.error();
  Stat st;
  static_cast<struct ::stat&>(st) = {};
  st.st_dev = makedev(x.stx_dev_major, x.stx_dev_minor);
  st.st_ino = x.stx_ino;
  st.st_mode = x.stx_mode;
  st.st_nlink = x.stx_nlink;
  st.st_uid = x.stx_uid;
  st.st_gid = x.stx_gid;
  st.st_rdev = makedev(x.stx_rdev_major, x.stx_rdev_minor);
  st.st_size = static_cast<off_t>(x.stx_size);
  st.st_blksize = static_cast<blksize_t>(x.stx_blksize);
  st.st_blocks = static_cast<blkcnt_t>(x.stx_blocks);
  st.st_atim = {x.stx_atime.tv_sec, x.stx_atime.tv_nsec};
  st.st_mtim = {x.stx_mtime.tv_sec, x.stx_mtime.tv_nsec};
  st.st_ctim = {x.stx_ctime.tv_sec, x.stx_ctime.tv_nsec};
  if (x.stx_mask & STATX_BTIME) st.born = x.stx_btime.tv_sec * 1'000'000'000 + x.stx_btime.tv_nsec;
  return st;
}

}  // namespace

void set_hook(Hook hook, Observer observer) {
  g_hooks.store(nullptr, std::memory_order_release);
  g_hooks_owner = hook || observer ? std::make_unique<const Hooks>(std::move(hook), std::move(observer)) : nullptr;
  g_hooks.store(g_hooks_owner.get(), std::memory_order_release);
}

Result<UniqueFd> open_at(int dir, const char* name, int flags, mode_t mode) {
  const int fd = hooked({.op = Op::open, .fd = dir, .name = name, .offset = 0, .length = 0, .flags = flags, .mode = mode},
                        [&](std::size_t) { return ::openat(dir, name, flags | O_CLOEXEC | O_NOFOLLOW, mode); });
  if (fd < 0) return last_errno();
  return UniqueFd(fd);
}

Result<UniqueFd> open_path(const std::string& path, int flags) {
  const int fd = retry([&] { return ::open(path.c_str(), flags | O_CLOEXEC); });
  if (fd < 0) return last_errno();
  return UniqueFd(fd);
}

Result<UniqueFd> reopen(int fd, int flags) {
  const ProcPath path(fd);
  const int n = hooked({.op = Op::open, .fd = fd, .name = nullptr, .offset = 0, .length = 0, .flags = flags},
                       [&](std::size_t) { return ::open(path.text, flags | O_CLOEXEC); });
  if (n < 0) return last_errno();
  return UniqueFd(n);
}

Result<UniqueFd> dup_fd(int fd) {
  const int n = ::fcntl(fd, F_DUPFD_CLOEXEC, 0);
  if (n < 0) return last_errno();
  return UniqueFd(n);
}

Result<std::size_t> pread(int fd, std::span<std::uint8_t> out, std::uint64_t off) {
  std::size_t done = 0;
  while (done < out.size()) {
    const std::size_t left = out.size() - done;
    const ssize_t n = hooked({Op::pread, fd, nullptr, off + done, left}, [&](std::size_t most) {
      return ::pread(fd, out.data() + done, std::min(left, most), static_cast<off_t>(off + done));
    });
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return last_errno();
    if (n == 0) break;
    done += static_cast<std::size_t>(n);
  }
  return done;
}

Written pwrite(int fd, std::span<const std::uint8_t> in, std::uint64_t off) {
  Written w;
  while (w.bytes < in.size()) {
    const auto left = in.subspan(w.bytes);
    const ssize_t n = hooked({.op = Op::pwrite, .fd = fd, .name = nullptr, .offset = off + w.bytes, .length = left.size(), .data = left},
                             [&](std::size_t most) {
                               return ::pwrite(fd, left.data(), std::min(left.size(), most), static_cast<off_t>(off + w.bytes));
                             });
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      w.error = n < 0 ? last_errno() : errno_code(EIO);
      return w;
    }
    w.bytes += static_cast<std::size_t>(n);
  }
  return w;
}

Result<void> ftruncate(int fd, std::uint64_t size) {
  return simple({Op::ftruncate, fd, nullptr, size, 0}, [&] { return ::ftruncate(fd, static_cast<off_t>(size)); });
}

Result<void> fallocate(int fd, int mode, std::uint64_t off, std::uint64_t len) {
  return simple({.op = Op::fallocate, .fd = fd, .name = nullptr, .offset = off, .length = len, .flags = mode},
                [&] { return ::fallocate(fd, mode, static_cast<off_t>(off), static_cast<off_t>(len)); });
}

Result<std::uint64_t> seek(int fd, std::uint64_t off, int whence) {
  const off_t r = hooked({Op::seek, fd, nullptr, off, 0}, [&](std::size_t) { return ::lseek(fd, static_cast<off_t>(off), whence); });
  if (r < 0) return last_errno();
  return static_cast<std::uint64_t>(r);
}

Result<void> fsync(int fd, bool data_only) {
  return simple({.op = Op::fsync, .fd = fd, .name = nullptr, .offset = 0, .length = 0, .flags = data_only ? 1 : 0}, [&] { return data_only ? ::fdatasync(fd) : ::fsync(fd); });
}

Result<void> syncfs(int fd) {
  return simple({Op::syncfs, fd, nullptr, 0, 0}, [&] { return ::syncfs(fd); });
}

void will_need(int fd, std::uint64_t off, std::uint64_t len) noexcept {
  ::posix_fadvise(fd, static_cast<off_t>(off), static_cast<off_t>(len), POSIX_FADV_WILLNEED);
}

bool set_noatime(int fd, bool on) noexcept {
  const int flags = ::fcntl(fd, F_GETFL);
  return flags >= 0 && ::fcntl(fd, F_SETFL, on ? flags | O_NOATIME : flags & ~O_NOATIME) == 0;
}

Result<struct stat> stat_fd(int fd) {
  struct stat st;
  if (const auto r = simple({Op::stat, fd, nullptr, 0, 0}, [&] { return ::fstat(fd, &st); }); !r) return r.error();
  return st;
}

Result<struct stat> stat_at(int dir, const char* name) {
  struct stat st;
  if (const auto r = simple({Op::stat, dir, name, 0, 0}, [&] { return ::fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW); }); !r) return r.error();
  return st;
}

Result<Stat> stat_now(int fd) {
  return ask_now({Op::stat, fd, nullptr, 0, 0}, "", AT_EMPTY_PATH);
}

Result<Stat> stat_now_at(int dir, const char* name) {
  return ask_now({Op::stat, dir, name, 0, 0}, name, AT_SYMLINK_NOFOLLOW);
}

Result<struct statvfs> statvfs(int fd) {
  struct statvfs st;
  if (const auto r = simple({Op::statvfs, fd, nullptr, 0, 0}, [&] { return ::fstatvfs(fd, &st); }); !r) return r.error();
  return st;
}

Result<void> mkdir_at(int dir, const char* name, mode_t mode) {
  return simple({.op = Op::mkdir, .fd = dir, .name = name, .offset = 0, .length = 0, .mode = mode}, [&] { return ::mkdirat(dir, name, mode); });
}

Result<void> mknod_at(int dir, const char* name, mode_t mode, dev_t rdev) {
  return simple({.op = Op::mknod, .fd = dir, .name = name, .offset = 0, .length = 0, .mode = mode, .rdev = rdev},
                [&] { return ::mknodat(dir, name, mode, rdev); });
}

Result<void> symlink_at(const char* target, int dir, const char* name) {
  return simple({.op = Op::symlink, .fd = dir, .name = name, .offset = 0, .length = 0, .data = bytes_of(target)},
                [&] { return ::symlinkat(target, dir, name); });
}

Result<void> link_at(int from_dir, const char* from, int to_dir, const char* to) {
  return simple({.op = Op::link, .fd = to_dir, .name = to, .offset = 0, .length = 0, .fd2 = from_dir, .name2 = from},
                [&] { return ::linkat(from_dir, from, to_dir, to, 0); });
}

Result<void> link_fd(int fd, int to_dir, const char* to) {
  const ProcPath path(fd);
  return simple({.op = Op::link, .fd = to_dir, .name = to, .offset = 0, .length = 0, .fd2 = fd},
                [&] { return ::linkat(AT_FDCWD, path.text, to_dir, to, AT_SYMLINK_FOLLOW); });
}

Result<void> unlink_at(int dir, const char* name, bool directory) {
  const int flags = directory ? AT_REMOVEDIR : 0;
  return simple({.op = Op::unlink, .fd = dir, .name = name, .offset = 0, .length = 0, .flags = flags}, [&] { return ::unlinkat(dir, name, flags); });
}

Result<void> rename_at(int from_dir, const char* from, int to_dir, const char* to, unsigned flags) {
  return simple({.op = Op::rename, .fd = to_dir, .name = to, .offset = 0, .length = 0, .flags = static_cast<int>(flags), .fd2 = from_dir, .name2 = from},
                [&] { return static_cast<int>(::renameat2(from_dir, from, to_dir, to, flags)); });
}

Result<std::string> readlink_at(int dir, const char* name) {
  char text[PATH_MAX];
  const ssize_t n = hooked({Op::readlink, dir, name, 0, 0}, [&](std::size_t) { return ::readlinkat(dir, name, text, sizeof text); });
  if (n < 0) return last_errno();
  return std::string(text, static_cast<std::size_t>(n));
}

Result<void> chmod_at(int dir, const char* name, mode_t mode) {
  static std::atomic<bool> have_fchmodat2{true};
  if (have_fchmodat2.load(std::memory_order_relaxed)) {
    const auto r = simple({.op = Op::chmod, .fd = dir, .name = name, .offset = 0, .length = 0, .mode = mode}, [&] {
      return static_cast<int>(::syscall(SYS_fchmodat2, dir, name, mode, AT_SYMLINK_NOFOLLOW));
    });
    if (r || !is_errno(r.error(), ENOSYS)) return r;
    have_fchmodat2.store(false, std::memory_order_relaxed);
  }
  const auto fd = open_at(dir, name, O_PATH);
  if (!fd) return fd.error();
  return chmod_fd(fd->get(), mode);
}

Result<void> chown_at(int dir, const char* name, uid_t uid, gid_t gid) {
  return simple({.op = Op::chown, .fd = dir, .name = name, .offset = 0, .length = 0, .uid = uid, .gid = gid},
                [&] { return ::fchownat(dir, name, uid, gid, AT_SYMLINK_NOFOLLOW); });
}

Result<void> utimens_at(int dir, const char* name, const timespec times[2]) {
  return simple({Op::utimens, dir, name, 0, 0}, [&] { return ::utimensat(dir, name, times, AT_SYMLINK_NOFOLLOW); });
}

Result<void> chmod_fd(int fd, mode_t mode) {
  const ProcPath path(fd);
  return simple({.op = Op::chmod, .fd = fd, .name = nullptr, .offset = 0, .length = 0, .mode = mode}, [&] { return ::chmod(path.text, mode); });
}

Result<void> chown_fd(int fd, uid_t uid, gid_t gid) {
  return simple({.op = Op::chown, .fd = fd, .name = nullptr, .offset = 0, .length = 0, .uid = uid, .gid = gid},
                [&] { return ::fchownat(fd, "", uid, gid, AT_EMPTY_PATH); });
}

Result<void> utimens_fd(int fd, const timespec times[2]) {
  const ProcPath path(fd);
  return simple({Op::utimens, fd, nullptr, 0, 0}, [&] { return ::utimensat(AT_FDCWD, path.text, times, 0); });
}

Result<std::string> getxattr(int fd, const char* name, const char* attr) {
  const ProcPath path(fd, name);
  const auto call = name ? ::lgetxattr : ::getxattr;
  std::string value(256, '\0');
  for (;;) {
    const ssize_t n = hooked({.op = Op::getxattr, .fd = fd, .name = attr, .offset = 0, .length = 0, .name2 = name},
                             [&](std::size_t) { return call(path.text, attr, value.data(), value.size()); });
    if (n >= 0) {
      value.resize(static_cast<std::size_t>(n));
      return value;
    }
    if (errno != ERANGE) return last_errno();
    const ssize_t need = call(path.text, attr, nullptr, 0);
    if (need < 0) return last_errno();
    value.resize(static_cast<std::size_t>(need) + 1);
  }
}

Result<void> setxattr(int fd, const char* name, const char* attr, std::string_view value, int flags) {
  const ProcPath path(fd, name);
  const auto call = name ? ::lsetxattr : ::setxattr;
  return simple({.op = Op::setxattr, .fd = fd, .name = attr, .offset = 0, .length = 0, .data = bytes_of(value), .flags = flags, .name2 = name},
                [&] { return call(path.text, attr, value.data(), value.size(), flags); });
}

Result<std::vector<std::string>> listxattr(int fd, const char* name) {
  const ProcPath path(fd, name);
  const auto call = name ? ::llistxattr : ::listxattr;
  std::string text(1024, '\0');
  for (;;) {
    const ssize_t n = hooked({Op::listxattr, fd, name, 0, 0}, [&](std::size_t) { return call(path.text, text.data(), text.size()); });
    if (n >= 0) {
      text.resize(static_cast<std::size_t>(n));
      break;
    }
    if (errno != ERANGE) return last_errno();
    const ssize_t need = call(path.text, nullptr, 0);
    if (need < 0) return last_errno();
    text.resize(static_cast<std::size_t>(need) + 1024);
  }
  std::vector<std::string> names;
  for (std::size_t at = 0; at < text.size();) {
    names.emplace_back(text.c_str() + at);
    at += names.back().size() + 1;
  }
  return names;
}

Result<void> removexattr(int fd, const char* name, const char* attr) {
  const ProcPath path(fd, name);
  const auto call = name ? ::lremovexattr : ::removexattr;
  return simple({.op = Op::removexattr, .fd = fd, .name = attr, .offset = 0, .length = 0, .name2 = name}, [&] { return call(path.text, attr); });
}

Result<void> read_dir(int fd, std::uint64_t off, const std::function<bool(const Dirent&)>& each) {
  if (::lseek(fd, static_cast<off_t>(off), SEEK_SET) < 0) return last_errno();
  alignas(dirent64) char buffer[32768];
  for (;;) {
    const ssize_t n = hooked({Op::getdents, fd, nullptr, 0, 0}, [&](std::size_t) { return ::getdents64(fd, buffer, sizeof buffer); });
    if (n < 0) return last_errno();
    if (n == 0) return {};
    for (ssize_t at = 0; at < n;) {
      const auto* d = reinterpret_cast<const dirent64*>(buffer + at);
      at += d->d_reclen;
      if (!each({d->d_ino, static_cast<std::uint64_t>(d->d_off), d->d_type, d->d_name})) return {};
    }
  }
}

Result<void> lock_file(int fd, FileLock how) {
  struct flock whole {};
  whole.l_type = how == FileLock::shared ? F_RDLCK : F_WRLCK;
  whole.l_whence = SEEK_SET;
  const auto r = simple({Op::lock, fd, nullptr, 0, 0}, [&] { return ::fcntl(fd, F_OFD_SETLK, &whole); });
  return !r && is_errno(r.error(), EACCES) ? errno_code(EAGAIN) : r;
}

void unlock_file(int fd) noexcept {
  struct flock whole {};
  whole.l_type = F_UNLCK;
  whole.l_whence = SEEK_SET;
  retry([&] { return ::fcntl(fd, F_OFD_SETLK, &whole); });
}

Result<void> lock(int fd, bool exclusive) {
  return simple({Op::flock, fd, nullptr, 0, 0}, [&] { return ::flock(fd, (exclusive ? LOCK_EX : LOCK_SH) | LOCK_NB); });
}

}  // namespace ecfs::lower
