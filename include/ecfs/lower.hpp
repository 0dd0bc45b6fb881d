// SPDX-License-Identifier: GPL-3.0-or-later
// Every system call on the lower filesystem, each returning Result: EINTR is retried, short reads and writes are gone on
// with. Errors are errnos (man 2 of the call). Names are single components, never followed when they are links.
#pragma once

#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/types.h>

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ecfs/error.hpp"
#include "ecfs/unique_fd.hpp"

namespace ecfs::lower {

// What a call is about to do, for tests that record the stream of calls or make one fail.
enum class Op : std::uint8_t {
  open, pread, pwrite, ftruncate, fallocate, seek, fsync, stat, mkdir, mknod, symlink, link, unlink, rename,
  readlink, chmod, chown, utimens, getxattr, setxattr, listxattr, removexattr, getdents, statvfs, flock, lock, syncfs
};
struct Call {
  Op op;
  int fd;                 // the descriptor, or the directory's
  const char* name;       // the component, or the extended attribute, or null
  std::uint64_t offset;   // pwrite, pread, ftruncate (the size), fallocate
  std::size_t length;
  std::span<const std::uint8_t> data{};  // pwrite: what is written; setxattr: the value; symlink: the target
  int flags = 0;                // open; fallocate: its mode; rename; unlink: AT_REMOVEDIR; fsync: 1 for fdatasync; setxattr
  mode_t mode = 0;              // open, mkdir, mknod, chmod
  dev_t rdev = 0;               // mknod
  uid_t uid = 0;                // chown
  gid_t gid = 0;
  int fd2 = -1;                 // rename, link: the directory, or the descriptor, where the object comes from
  const char* name2 = nullptr;  // its name there; the xattr calls: the component that the attribute is of
};
struct Verdict {
  int error = 0;                                          // fail with this errno, or
  std::size_t limit = static_cast<std::size_t>(-1);       // move at most so many bytes (one short read or write)
};
using Hook = std::function<Verdict(const Call&)>;
// What became of a call, told after it: its errno, or 0 and what it answered (the new descriptor; bytes moved).
struct Outcome {
  int error = 0;
  std::int64_t value = 0;
};
using Observer = std::function<void(const Call&, const Outcome&)>;
// Null to take them away. Not while other threads are in a call.
void set_hook(Hook hook, Observer observer = nullptr);

Result<UniqueFd> open_at(int dir, const char* name, int flags, mode_t mode = 0);  // adds O_CLOEXEC | O_NOFOLLOW
// An absolute or relative path as the user gave it; links are followed. Only for the volume's root.
Result<UniqueFd> open_path(const std::string& path, int flags);
// Another open file description of what `fd` (O_PATH too) refers to, by /proc/self/fd.
Result<UniqueFd> reopen(int fd, int flags);
Result<UniqueFd> dup_fd(int fd);

// Bytes read: fewer than asked for only at the end of the file.
Result<std::size_t> pread(int fd, std::span<std::uint8_t> out, std::uint64_t off);
// How many bytes were written before the error, if there was one.
struct Written {
  std::size_t bytes = 0;
  std::error_code error;
};
[[nodiscard]] Written pwrite(int fd, std::span<const std::uint8_t> in, std::uint64_t off);
Result<void> ftruncate(int fd, std::uint64_t size);
Result<void> fallocate(int fd, int mode, std::uint64_t off, std::uint64_t len);
// lseek(2); ENXIO as there. Moves the descriptor's offset, which nothing else uses.
Result<std::uint64_t> seek(int fd, std::uint64_t off, int whence);
Result<void> fsync(int fd, bool data_only);
Result<void> syncfs(int fd);  // the whole lower filesystem that `fd` is on
void will_need(int fd, std::uint64_t off, std::uint64_t len) noexcept;  // posix_fadvise; advice cannot fail usefully
// Sets or clears O_NOATIME on the open file description; false where only the owner may.
bool set_noatime(int fd, bool on) noexcept;

// Attributes, and when the object was made: an inode number that has been given away anew is another object.
struct Stat : ::stat {
  std::int64_t born = 0;  // nanoseconds since 1970; 0 where the lower filesystem does not say, or was not asked
};
Result<struct stat> stat_fd(int fd);
Result<struct stat> stat_at(int dir, const char* name);
// The same as they are now, also where the lower filesystem is a network's and remembers for a while. With the time of birth.
Result<Stat> stat_now(int fd);
Result<Stat> stat_now_at(int dir, const char* name);
Result<struct statvfs> statvfs(int fd);

Result<void> mkdir_at(int dir, const char* name, mode_t mode);
Result<void> mknod_at(int dir, const char* name, mode_t mode, dev_t rdev);
Result<void> symlink_at(const char* target, int dir, const char* name);
Result<void> link_at(int from_dir, const char* from, int to_dir, const char* to);
// Gives a name to an open (O_TMPFILE or unlinked-but-linkable) descriptor, by /proc/self/fd.
Result<void> link_fd(int fd, int to_dir, const char* to);
Result<void> unlink_at(int dir, const char* name, bool directory);
Result<void> rename_at(int from_dir, const char* from, int to_dir, const char* to, unsigned flags);
Result<std::string> readlink_at(int dir, const char* name);

// By name in a directory. chmod never follows a link (fchmodat2, or an O_PATH descriptor before Linux 6.6).
Result<void> chmod_at(int dir, const char* name, mode_t mode);
Result<void> chown_at(int dir, const char* name, uid_t uid, gid_t gid);
Result<void> utimens_at(int dir, const char* name, const timespec times[2]);
// By descriptor; O_PATH descriptors too.
Result<void> chmod_fd(int fd, mode_t mode);
Result<void> chown_fd(int fd, uid_t uid, gid_t gid);
Result<void> utimens_fd(int fd, const timespec times[2]);

// The xattr calls take a name in a directory, or, with `name` null, the object that `fd` (O_PATH too) refers to.
Result<std::string> getxattr(int fd, const char* name, const char* attr);
Result<void> setxattr(int fd, const char* name, const char* attr, std::string_view value, int flags);
Result<std::vector<std::string>> listxattr(int fd, const char* name);
Result<void> removexattr(int fd, const char* name, const char* attr);

struct Dirent {
  std::uint64_t ino;
  std::uint64_t next;  // d_off: the position after this entry
  unsigned char type;  // DT_*
  std::string_view name;
};
// Reads entries from position `off` (0: the start) of a directory opened for reading and calls `each` until it returns
// false or the directory ends. getdents64(2).
Result<void> read_dir(int fd, std::uint64_t off, const std::function<bool(const Dirent&)>& each);

// Lock of an open file description on a whole file (F_OFD_SETLK, fcntl(2)), without waiting; EAGAIN where another one is in the way. It reaches
// other hosts where the lower filesystem's locks do. `exclusive` needs a descriptor open for writing, `shared` one for reading.
enum class FileLock : std::uint8_t { shared, exclusive };
Result<void> lock_file(int fd, FileLock how);
void unlock_file(int fd) noexcept;  // like closing, which would do it too: it cannot fail usefully

// flock(2), without waiting; EWOULDBLOCK when somebody else holds it.
Result<void> lock(int fd, bool exclusive);

}  // namespace ecfs::lower
