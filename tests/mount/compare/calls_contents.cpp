// SPDX-License-Identifier: GPL-3.0-or-later
// Calls on what is in files: opening, reading, writing, mapping, allocating, seeking, syncing.
#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/fs.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "program.hpp"

#ifndef RWF_NOAPPEND
#define RWF_NOAPPEND 0x20
#endif

namespace compare {
namespace {

// O_DIRECT wants whole blocks on the lower filesystem; any multiple of this is.
constexpr std::size_t kDirect = 4096;
struct Aligned {
  char* p;
  explicit Aligned(std::size_t n) : p(static_cast<char*>(std::aligned_alloc(kDirect, (n + kDirect) / kDirect * kDirect))) {}
  ~Aligned() { std::free(p); }
  Aligned(const Aligned&) = delete;
  Aligned& operator=(const Aligned&) = delete;
};
bool direct(int fd) {
  const int flags = ::fcntl(fd, F_GETFL);
  return flags >= 0 && (flags & O_DIRECT);
}
std::size_t length(int fd, std::uint64_t n) { return direct(fd) ? (n + kDirect) / kDirect * kDirect : n; }
off_t offset(int fd, std::uint64_t n) { return static_cast<off_t>(direct(fd) ? n / kDirect * kDirect : n); }

bool regular(int fd, struct stat& st) { return fd >= 0 && ::fstat(fd, &st) == 0 && S_ISREG(st.st_mode); }
// Reading from or writing to a FIFO, socket or device says nothing of the filesystem.
bool not_regular(int fd) {
  struct stat st;
  return fd >= 0 && ::fstat(fd, &st) == 0 && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode);
}

Outcome open_it(Side& s, const Call& c) {
  int& fd = s.fd(c);
  s.unmap(c);
  if (fd >= 0) ::close(fd);
  fd = ::openat(s.base(c), c.a.c_str(), c.flags | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, c.mode);
  return done(fd < 0 ? -1 : 0);
}
void fill_open(Generator& g, Call& c) {
  static const int access[] = {O_RDONLY, O_WRONLY, O_RDWR, O_RDWR, O_RDWR, 3};
  c.flags = access[g.random(g.one_in(20) ? 6 : 5)];
  for (const int f : {O_CREAT, O_CREAT, O_EXCL, O_TRUNC, O_APPEND, O_NOFOLLOW, O_SYNC, O_DSYNC, O_NOATIME})
    if (g.one_in(5)) c.flags |= f;
  if (g.one_in(16)) c.flags |= O_DIRECTORY;
  if (g.one_in(16)) c.flags |= O_PATH;
  if (g.one_in(10)) c.flags |= O_DIRECT;
  if (g.one_in(24)) c.flags |= O_TMPFILE;
  // What O_EXCL means without O_CREAT is undefined (open(2)), but for O_TMPFILE.
  if (!(c.flags & O_CREAT) && (c.flags & O_TMPFILE) != O_TMPFILE) c.flags &= ~O_EXCL;
  if (!g.one_in(8)) c.mode |= 0200;
}
void fill_open_dir(Generator& g, Call& c) {
  c.flags = O_RDONLY | (g.one_in(2) ? O_DIRECTORY : 0) | (g.one_in(4) ? O_PATH : 0);
  static const char* dirs[] = {"d1", "d2", "d1/e", "."};
  c.a = g.pick(dirs);
  c.base = -1;
}

Outcome close_it(Side& s, const Call& c) {
  int& fd = s.fd(c);
  if (c.flags & 1) s.unmap(c);  // else the mapping outlives it
  const int r = fd >= 0 ? ::close(fd) : 0;
  fd = -1;
  return done(r);
}

Outcome write_it(Side& s, const Call& c) {
  const int fd = s.fd(c);
  if (not_regular(fd)) return done(0, "none");
  const std::size_t n = length(fd, c.len);
  const Aligned buffer(n);
  std::memcpy(buffer.p, bytes(c.seed, n).data(), n);
  const off_t off = offset(fd, c.off);
  const bool whole = direct(fd);
  // Appending unaligned is what O_DIRECT refuses on the lower filesystem, and does not on ours.
  if (whole && (c.flags % 5 == 3 || (::fcntl(fd, F_GETFL) & O_APPEND))) return done(0, "none");
  const iovec v[2] = {{buffer.p, whole ? n : n / 3}, {buffer.p + n / 3, whole ? 0 : n - n / 3}};
  const int parts = whole ? 1 : 2;
  switch (c.flags % 5) {
    case 0: return done(::pwrite(fd, buffer.p, n, off));
    case 1: return done(::pwritev(fd, v, parts, off));
    case 2: {
      // At the descriptor's own offset, which must move alike.
      if (::lseek(fd, off, SEEK_SET) < 0) return done(-1);
      const ssize_t r = ::writev(fd, v, parts);
      return r < 0 ? done(-1) : done(r, std::to_string(::lseek(fd, 0, SEEK_CUR)));
    }
    case 3: {
      static const int flags[] = {RWF_APPEND, RWF_DSYNC, RWF_SYNC, RWF_NOAPPEND, RWF_APPEND | RWF_DSYNC};
      return done(::pwritev2(fd, v, parts, off, flags[c.seed % 5]));
    }
    default: {
      if (::lseek(fd, off, SEEK_SET) < 0) return done(-1);
      const ssize_t r = ::write(fd, buffer.p, n);
      return r < 0 ? done(-1) : done(r, std::to_string(::lseek(fd, 0, SEEK_CUR)));
    }
  }
}

Outcome read_it(Side& s, const Call& c) {
  const int fd = s.fd(c);
  if (not_regular(fd)) return done(0, "none");
  const std::size_t n = length(fd, c.len);
  const Aligned buffer(n);
  const off_t off = offset(fd, c.off);
  const bool whole = direct(fd);
  const iovec v[2] = {{buffer.p, whole ? n : n / 3}, {buffer.p + n / 3, whole ? 0 : n - n / 3}};
  const int parts = whole ? 1 : 2;
  ssize_t got = -1;
  std::string at;
  switch (c.flags % 4) {
    case 0: got = ::pread(fd, buffer.p, n, off); break;
    case 1: got = ::preadv(fd, v, parts, off); break;
    case 2: got = ::preadv2(fd, v, parts, off, 0); break;
    default:
      if (::lseek(fd, off, SEEK_SET) < 0) return done(-1);
      got = ::read(fd, buffer.p, n);
      if (got >= 0) at = std::to_string(::lseek(fd, 0, SEEK_CUR)) + " ";
  }
  return got < 0 ? done(-1) : done(got, at + std::string(buffer.p, static_cast<std::size_t>(got)));
}

Outcome append_it(Side& s, const Call& c) {
  const int f = ::openat(s.base(c), c.a.c_str(), O_WRONLY | O_APPEND | O_NONBLOCK | O_CLOEXEC);
  if (f < 0) return done(-1);
  if (not_regular(f)) {
    ::close(f);
    return done(0, "none");
  }
  const std::string data = bytes(c.seed, c.len);
  const ssize_t n = c.flags & 1 ? ::write(f, data.data(), data.size()) : ::pwrite(f, data.data(), data.size(), static_cast<off_t>(c.off));
  const int error = errno;
  const off_t at = ::lseek(f, 0, SEEK_CUR);
  ::close(f);
  errno = error;
  return done(n, std::to_string(at));
}

Outcome truncate_it(Side& s, const Call& c) {
  struct stat st;
  // Difference: write-back-times. To the size that the file has: ext4 moves its times, XFS does not, the kernel does not either.
  if (::fstatat(s.base(c), c.a.c_str(), &st, 0) == 0 && static_cast<std::uint64_t>(st.st_size) == c.off) s.mapped.insert(st.st_ino);
  return done(::truncate(s.proc(c, c.a).c_str(), static_cast<off_t>(c.off)));
}
Outcome ftruncate_it(Side& s, const Call& c) { return done(::ftruncate(s.fd(c), static_cast<off_t>(c.off))); }
void fill_truncate(Generator& g, Call& c) {
  if (g.one_in(40)) c.off = static_cast<std::uint64_t>(-1);
}

Outcome fallocate_it(Side& s, const Call& c) {
  if (not_regular(s.fd(c))) return done(0, "none");
  struct stat st;
  // Difference: write-back-times. Where nothing in the file changes, some filesystems move its times and some do not.
  if ((c.flags & FALLOC_FL_KEEP_SIZE) && ::fstat(s.fd(c), &st) == 0 && c.off + c.len > static_cast<std::uint64_t>(st.st_size)) s.mapped.insert(st.st_ino);
  return done(::fallocate(s.fd(c), c.flags, static_cast<off_t>(c.off), static_cast<off_t>(c.len)));
}
void fill_fallocate(Generator& g, Call& c) {
  static const int modes[] = {0, 0, FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                              FALLOC_FL_ZERO_RANGE, FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE,
                              FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE};
  c.flags = g.pick(modes);
  if (g.one_in(20)) c.off = static_cast<std::uint64_t>(-1);
  if (g.one_in(20)) c.len = 0;
}

// The data that SEEK_DATA leads to, holes as zeros: equal to what reading gives, wherever the holes lie.
bool seeks_agree(int fd, off_t size) {
  if (size > (8 << 20)) return true;
  off_t at = 0;
  std::string whole(static_cast<std::size_t>(size), '\0'), seen(static_cast<std::size_t>(size), '\0');
  if (::pread(fd, whole.data(), whole.size(), 0) != size) return false;
  while (at < size) {
    const off_t data = ::lseek(fd, at, SEEK_DATA);
    if (data < 0) {
      if (errno == ENXIO) break;
      return false;
    }
    const off_t hole = ::lseek(fd, data, SEEK_HOLE);
    if (data < at || hole <= data || hole > size) return false;
    std::memcpy(seen.data() + data, whole.data() + data, static_cast<std::size_t>(hole - data));
    at = hole;
  }
  return whole == seen;
}
Outcome seek_data(Side& s, const Call& c) {
  const int fd = s.fd(c);
  struct stat st;
  if (!regular(fd, st) || direct(fd)) return done(0, "none");
  const int flags = ::fcntl(fd, F_GETFL);
  if ((flags & O_PATH) || (flags & O_ACCMODE) == O_WRONLY || (flags & O_ACCMODE) == O_ACCMODE) return done(0, "none");
  if (c.off >= static_cast<std::uint64_t>(st.st_size)) return done(::lseek(fd, static_cast<off_t>(c.off), c.flags & 1 ? SEEK_DATA : SEEK_HOLE));
  // Difference: storage. Where the last of these leads to would be the descriptor's offset.
  const off_t before = ::lseek(fd, 0, SEEK_CUR);
  const bool agree = seeks_agree(fd, st.st_size);
  if (::lseek(fd, before, SEEK_SET) != before) return done(-1);
  return done(0, agree ? "agree" : "DISAGREE");
}
Outcome seek_it(Side& s, const Call& c) {
  struct stat st;
  const int fd = s.fd(c);
  if (fd >= 0 && ::fstat(fd, &st) == 0 && !S_ISREG(st.st_mode)) return done(0, "none");  // a directory's offsets are its own
  static const int whences[] = {SEEK_SET, SEEK_CUR, SEEK_END, 77};
  const auto by = static_cast<off_t>(c.off) * (c.flags & 8 ? -1 : 1);
  return done(::lseek(fd, by, whences[c.flags % 4]));
}

Outcome copy_it(Side& s, const Call& c) {
  struct stat a, b;
  if (!regular(s.fd(c), a) || !regular(s.fd2(c), b)) return done(0, "none");
  if (direct(s.fd(c)) || direct(s.fd2(c))) return done(0, "none");
  auto from = static_cast<loff_t>(c.off), to = static_cast<loff_t>(c.off / 2);
  long total = 0;
  // A copy may be short wherever it likes; the end is the same.
  for (std::size_t left = c.len; left > 0;) {
    const ssize_t n = ::copy_file_range(s.fd(c), &from, s.fd2(c), &to, left, 0);
    if (n < 0 && total == 0) return done(-1);
    if (n <= 0) break;
    total += n;
    left -= static_cast<std::size_t>(n);
  }
  return done(total);
}

// A page of a mapping whose file has become shorter is not there.
thread_local sigjmp_buf t_escape;
void on_bus(int) { siglongjmp(t_escape, 1); }
bool guarded(const std::function<void()>& touch) {
  struct sigaction act {}, before {};
  act.sa_handler = on_bus;
  act.sa_flags = SA_NODEFER;
  ::sigaction(SIGBUS, &act, &before);
  const bool fine = sigsetjmp(t_escape, 1) == 0;
  if (fine) touch();
  ::sigaction(SIGBUS, &before, nullptr);
  return fine;
}

Outcome map_it(Side& s, const Call& c) {
  struct stat st;
  const int fd = s.fd(c);
  if (!regular(fd, st) || st.st_size == 0) return done(0, "none");
  s.unmap(c);
  Mapping& m = s.mapping(c);
  m.size = static_cast<std::size_t>(std::min<off_t>(st.st_size, 1 << 20));
  m.prot = c.flags & 1 ? PROT_READ | PROT_WRITE : PROT_READ;
  m.shared = c.flags & 6;
  auto* p = ::mmap(nullptr, m.size, m.prot, m.shared ? MAP_SHARED : MAP_PRIVATE, fd, 0);
  if (p == MAP_FAILED) return done(-1);
  m.at = static_cast<char*>(p);
  return done(0);
}
// Only below the file's end: what is written behind it in its last page is nobody's.
Outcome map_touch(Side& s, const Call& c) {
  struct stat st;
  const int fd = s.fd(c);
  Mapping& m = s.mapping(c);
  if (!m.at || !regular(fd, st)) return done(0, "none");
  const auto size = std::min<std::size_t>(m.size, static_cast<std::size_t>(st.st_size));
  if (size == 0) return done(0, "none");
  const std::size_t at = c.off % size, n = std::min<std::size_t>(c.len, size - at);
  if (!(c.flags & 1)) {
    std::string data(n, '\0');
    if (!guarded([&] { std::memcpy(data.data(), m.at + at, n); })) return {-1, EFAULT, "SIGBUS"};
    return done(static_cast<long>(n), data);
  }
  if (!(m.prot & PROT_WRITE)) return done(0, "none");
  if (m.shared) {
    // Difference: set-id-write-back.
    if (::geteuid() != 0 && (st.st_mode & 06000)) return done(0, "none");
    s.mapped.insert(st.st_ino);
  }
  const std::string data = bytes(c.seed, n);
  if (!guarded([&] { std::memcpy(m.at + at, data.data(), n); })) return {-1, EFAULT, "SIGBUS"};
  return done(static_cast<long>(n));
}
Outcome sync_map(Side& s, const Call& c) {
  Mapping& m = s.mapping(c);
  static const int flags[] = {MS_SYNC, MS_ASYNC, MS_SYNC, MS_SYNC | MS_INVALIDATE, MS_SYNC | MS_ASYNC};
  if (m.at) return done(::msync(m.at, m.size, flags[c.seed % 5]));
  return done(0, "none");
}
Outcome unmap_it(Side& s, const Call& c) {
  s.unmap(c);
  return done(0);
}

Outcome sync_it(Side& s, const Call& c) {
  const int fd = s.fd(c);
  if (not_regular(fd)) return done(0, "none");
  switch (c.flags % 16) {
    case 0: return done(::syncfs(fd));
    case 1: return done(::sync_file_range(fd, static_cast<off_t>(c.off), static_cast<off_t>(c.len), SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER));
    case 2:
    case 3:
    case 4: {
      // Out of the page cache: what is read next comes from below.
      const int error = fd < 0 ? 0 : ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
      return {error, 0, ""};
    }
    default: return done(c.flags & 1 ? ::fsync(fd) : ::fdatasync(fd));
  }
}

}  // namespace

std::vector<Kind> contents_kinds() {
  return {
      {"open", 12, fill_open, open_it, true, false},
      {"open_dir", 2, fill_open_dir, open_it, true, false},
      {"close", 4, nullptr, close_it, true, false},
      {"write", 14, nullptr, write_it},
      {"read", 10, nullptr, read_it},
      {"append", 3, nullptr, append_it},
      {"truncate", 3, fill_truncate, truncate_it},
      {"ftruncate", 4, fill_truncate, ftruncate_it},
      {"fallocate", 5, fill_fallocate, fallocate_it},
      {"seek_data", 3, nullptr, seek_data},
      {"lseek", 2, nullptr, seek_it},
      {"copy_file_range", 2, nullptr, copy_it},
      {"mmap", 3, nullptr, map_it},
      {"map_touch", 6, nullptr, map_touch, false},
      {"msync", 2, nullptr, sync_map, false},
      {"munmap", 1, nullptr, unmap_it, false},
      {"sync", 4, nullptr, sync_it},
  };
}

}  // namespace compare
