// SPDX-License-Identifier: GPL-3.0-or-later
#include "calls.hpp"

#include <dirent.h>
#include <unistd.h>

#include <cerrno>
#include <memory>

#include "interrupt.hpp"

namespace ecfs::bench {
namespace {

// The traced calls. The numbers are in the hash: append only.
enum class Call : std::uint64_t {
  open = 1, close, write, pwrite, read, pread, seek, ftruncate, allocate, sync, sync_data, fstat, mkdir, rmdir, unlink, rename, link, symlink,
  truncate, chmod, set_times, stat, lstat, exists, list, sync_directory, sync_filesystem
};

template <class... Values>
void note(Trace& t, Call call, const Values&... values) {
  check_interrupt();
  t.count(static_cast<std::uint64_t>(call));
  (t.add(values), ...);
}

// The result of a call, or what it failed with, thrown. A call that a signal interrupted is the user's Ctrl-C; another signal's is repeated.
template <class F>
auto checked(std::string_view call, std::string_view path, F f) {
  for (;;) {
    const auto result = f();
    if (result >= 0) return result;
    const int error = errno;
    check_interrupt();
    if (error != EINTR) throw CallFailed(call, path, error);
  }
}

template <class F>
void write_all(std::string_view path, std::span<const std::byte> bytes, F write_some) {
  while (!bytes.empty()) {
    const auto n = checked("write", path, [&] { return write_some(bytes); });
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
}

}  // namespace

CallFailed::CallFailed(std::string_view call, std::string_view path, int error)
    : std::system_error(error, std::system_category(), std::string(call) + " of " + std::string(path)) {}

void File::write(std::span<const std::byte> bytes) {
  note(calls_->trace_, Call::write, bytes.size());
  write_all(path_, bytes, [this](auto rest) { return ::write(fd(), rest.data(), rest.size()); });
}

void File::pwrite(std::span<const std::byte> bytes, std::uint64_t offset) {
  note(calls_->trace_, Call::pwrite, offset, bytes.size());
  write_all(path_, bytes, [&, end = offset + bytes.size()](auto rest) {
    return ::pwrite(fd(), rest.data(), rest.size(), static_cast<off_t>(end - rest.size()));
  });
}

std::size_t File::read(std::span<std::byte> bytes) {
  note(calls_->trace_, Call::read, bytes.size());
  return static_cast<std::size_t>(checked("read", path_, [&] { return ::read(fd(), bytes.data(), bytes.size()); }));
}

std::size_t File::pread(std::span<std::byte> bytes, std::uint64_t offset) {
  note(calls_->trace_, Call::pread, offset, bytes.size());
  return static_cast<std::size_t>(
      checked("read", path_, [&] { return ::pread(fd(), bytes.data(), bytes.size(), static_cast<off_t>(offset)); }));
}

void File::seek(std::uint64_t offset) {
  note(calls_->trace_, Call::seek, offset);
  checked("seek", path_, [&] { return ::lseek(fd(), static_cast<off_t>(offset), SEEK_SET); });
}

void File::truncate(std::uint64_t size) {
  note(calls_->trace_, Call::ftruncate, size);
  checked("truncation", path_, [&] { return ::ftruncate(fd(), static_cast<off_t>(size)); });
}

void File::allocate(std::uint64_t size) {
  note(calls_->trace_, Call::allocate, size);
  checked("allocation", path_, [&] {
    errno = ::posix_fallocate(fd(), 0, static_cast<off_t>(size));
    return errno == 0 ? 0 : -1;
  });
}

void File::sync() {
  note(calls_->trace_, Call::sync);
  checked("fsync", path_, [this] { return ::fsync(fd()); });
}

void File::sync_data() {
  note(calls_->trace_, Call::sync_data);
  checked("fdatasync", path_, [this] { return ::fdatasync(fd()); });
}

struct stat File::stat() {
  note(calls_->trace_, Call::fstat);
  struct stat st;
  checked("stat", path_, [&] { return ::fstat(fd(), &st); });
  return st;
}

void File::close() {
  note(calls_->trace_, Call::close);
  // The descriptor is gone whatever close says.
  if (::close(fd_.release()) != 0 && errno != EINTR) throw CallFailed("close", path_, errno);
}

File Calls::open(const std::string& path, int flags, mode_t mode) {
  note(trace_, Call::open, path, static_cast<std::uint64_t>(flags), mode);
  return File(*this, UniqueFd(checked("opening", path, [&] { return ::openat(directory_, path.c_str(), flags | O_CLOEXEC, mode); })), path);
}

void Calls::mkdir(const std::string& path, mode_t mode) {
  note(trace_, Call::mkdir, path, mode);
  checked("mkdir", path, [&] { return ::mkdirat(directory_, path.c_str(), mode); });
}

void Calls::rmdir(const std::string& path) {
  note(trace_, Call::rmdir, path);
  checked("rmdir", path, [&] { return ::unlinkat(directory_, path.c_str(), AT_REMOVEDIR); });
}

void Calls::unlink(const std::string& path) {
  note(trace_, Call::unlink, path);
  checked("unlink", path, [&] { return ::unlinkat(directory_, path.c_str(), 0); });
}

void Calls::rename(const std::string& from, const std::string& to) {
  note(trace_, Call::rename, from, to);
  checked("rename", from, [&] { return ::renameat(directory_, from.c_str(), directory_, to.c_str()); });
}

void Calls::link(const std::string& from, const std::string& to) {
  note(trace_, Call::link, from, to);
  checked("link", from, [&] { return ::linkat(directory_, from.c_str(), directory_, to.c_str(), 0); });
}

void Calls::symlink(const std::string& target, const std::string& path) {
  note(trace_, Call::symlink, target, path);
  checked("symlink", path, [&] { return ::symlinkat(target.c_str(), directory_, path.c_str()); });
}

void Calls::truncate(const std::string& path, std::uint64_t size) {
  note(trace_, Call::truncate, path, size);
  // There is no truncateat.
  const UniqueFd fd(checked("opening", path, [&] { return ::openat(directory_, path.c_str(), O_WRONLY | O_CLOEXEC); }));
  checked("truncation", path, [&] { return ::ftruncate(fd.get(), static_cast<off_t>(size)); });
}

void Calls::chmod(const std::string& path, mode_t mode) {
  note(trace_, Call::chmod, path, mode);
  checked("chmod", path, [&] { return ::fchmodat(directory_, path.c_str(), mode, 0); });
}

void Calls::set_times(const std::string& path, const timespec (&times)[2]) {
  note(trace_, Call::set_times, path);
  checked("setting times", path, [&] { return ::utimensat(directory_, path.c_str(), times, AT_SYMLINK_NOFOLLOW); });
}

struct stat Calls::stat(const std::string& path) {
  note(trace_, Call::stat, path);
  struct stat st;
  checked("stat", path, [&] { return ::fstatat(directory_, path.c_str(), &st, 0); });
  return st;
}

struct stat Calls::lstat(const std::string& path) {
  note(trace_, Call::lstat, path);
  struct stat st;
  checked("lstat", path, [&] { return ::fstatat(directory_, path.c_str(), &st, AT_SYMLINK_NOFOLLOW); });
  return st;
}

bool Calls::exists(const std::string& path) {
  note(trace_, Call::exists, path);
  struct stat st;
  return checked("stat", path, [&] {
           if (::fstatat(directory_, path.c_str(), &st, AT_SYMLINK_NOFOLLOW) == 0) return 1;
           return errno == ENOENT ? 0 : -1;
         }) == 1;
}

std::vector<std::string> Calls::list(const std::string& path) {
  note(trace_, Call::list, path);
  const int fd = checked("opening", path, [&] { return ::openat(directory_, path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); });
  const std::unique_ptr<DIR, int (*)(DIR*)> stream(::fdopendir(fd), ::closedir);
  if (!stream) {
    const int error = errno;
    ::close(fd);
    throw CallFailed("reading", path, error);
  }
  std::vector<std::string> names;
  for (;;) {
    errno = 0;
    const dirent* entry = ::readdir(stream.get());
    if (!entry && errno != 0) throw CallFailed("reading", path, errno);
    if (!entry) return names;
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
}

void Calls::sync_directory(const std::string& path) {
  note(trace_, Call::sync_directory, path);
  const UniqueFd fd(checked("opening", path, [&] { return ::openat(directory_, path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); }));
  checked("fsync", path, [&] { return ::fsync(fd.get()); });
}

void Calls::sync_filesystem() {
  note(trace_, Call::sync_filesystem);
  checked("syncfs", ".", [this] { return ::syncfs(directory_); });
}

}  // namespace ecfs::bench
