// SPDX-License-Identifier: GPL-3.0-or-later
// Makes the same random sequence of system calls in a plain directory and in a mount over the same filesystem, and compares results, errnos,
// bytes and, every so often, the whole trees. A sequence that differs is shrunk to the shortest that still does.
//
//   compare --seed N --calls N [--max-target N] PLAIN MOUNT      both directories must be empty
//   compare --verify PLAIN MOUNT                only compares the trees (after a remount)
//
// What differs by design, and is therefore not compared: st_blocks, st_blksize and a directory's st_size; where holes lie (our blocks are
// 4064 bytes), though SEEK_DATA and SEEK_HOLE must agree with the contents; times, unless they were set. An xattr
// name of over 167 bytes stands in the xattr's value, so that an ordinary user's daemon cannot list it where the user may not read. Set-id bits go when
// a mapped page is written back by an ordinary user's daemon, since to the lower filesystem that is a write. chown(-1, -1), which clears set-id bits and nothing else, is not made: with killpriv_v2 the kernel does not tell the filesystem of it.
#include <dirent.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace {

constexpr int kSlots = 8;

enum class Kind {
  open, close, pwrite, pread, append, truncate, ftruncate, fallocate, seek, mmap_write, mkdir, rmdir, unlink, rename, exchange, noreplace,
  link, symlink, readlink, mknod, chmod, chown, utimens, setxattr, getxattr, listxattr, removexattr, stat, list, fsync, flock, tmpfile,
  linkat_fd, fstat, access, writev, count
};

struct Call {
  Kind kind;
  int slot;
  std::string a, b;  // paths below the root
  std::uint64_t off, len;
  int flags;
  unsigned seed;
};

struct Outcome {
  long result = 0;
  int error = 0;
  std::string data;
  bool operator==(const Outcome&) const = default;
};

// One side: a directory and its open files.
class Side {
 public:
  explicit Side(int root) : root_(root) { fds_.fill(-1); }
  ~Side() {
    for (const int fd : fds_)
      if (fd >= 0) ::close(fd);
  }
  Outcome run(const Call& c);

 private:
  Outcome done(long r, std::string data = {}) { return {r < 0 ? -1 : r, r < 0 ? errno : 0, r < 0 ? std::string() : std::move(data)}; }
  std::string proc(const std::string& path) const { return "/proc/self/fd/" + std::to_string(root_) + "/" + path; }
  int root_;
  std::array<int, kSlots> fds_;
};

std::string describe(const struct stat& st) {
  char text[256];
  std::snprintf(text, sizeof text, "mode %o nlink %lu uid %u gid %u size %lld rdev %lx", st.st_mode, static_cast<unsigned long>(st.st_nlink),
                st.st_uid, st.st_gid, S_ISDIR(st.st_mode) ? 0LL : static_cast<long long>(st.st_size), static_cast<unsigned long>(st.st_rdev));
  return text;
}

std::string bytes(unsigned seed, std::size_t n) {
  std::mt19937 r(seed);
  std::string s(n, '\0');
  for (auto& c : s) c = static_cast<char>(r() % 255 + 1);
  return s;
}

std::string listing(int dir) {
  std::set<std::string> names;
  DIR* d = ::fdopendir(dir);
  if (!d) return "?";
  while (const dirent* e = ::readdir(d)) names.insert(std::string(e->d_name) + "/" + std::to_string(e->d_type));
  ::closedir(d);
  std::string out;
  for (const auto& n : names) out += n + " ";
  return out;
}

std::string xattr_list(const std::string& path) {
  std::string text(65536, '\0');
  const ssize_t n = ::llistxattr(path.c_str(), text.data(), text.size());
  if (n < 0) return "errno " + std::to_string(errno);
  std::map<std::string, std::string> all;
  for (ssize_t at = 0; at < n;) {
    const std::string name = text.c_str() + at;
    at += static_cast<ssize_t>(name.size()) + 1;
    if (name == "security.selinux") continue;
    std::string value(65536, '\0');
    const ssize_t v = ::lgetxattr(path.c_str(), name.c_str(), value.data(), value.size());
    all[name] = v < 0 ? "errno" : value.substr(0, static_cast<std::size_t>(v));
  }
  std::string out;
  for (const auto& [k, v] : all) out += k + "=" + v + ";";
  return out;
}

// The data that SEEK_DATA leads to, holes as zeros: equal to what reading gives, wherever the holes lie.
bool seeks_agree(int fd, off_t size) {
  off_t at = 0;
  std::string whole(static_cast<std::size_t>(size), '\0'), seen(static_cast<std::size_t>(size), '\0');
  if (size > (8 << 20)) return true;
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

Outcome Side::run(const Call& c) {
  int& fd = fds_[static_cast<std::size_t>(c.slot)];
  const char* a = c.a.c_str();
  const char* b = c.b.c_str();
  struct stat st;
  errno = 0;
  switch (c.kind) {
    case Kind::open: {
      if (fd >= 0) ::close(fd);
      fd = ::openat(root_, a, c.flags | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0200u | (c.seed & 0666u));
      return done(fd < 0 ? -1 : 0);
    }
    case Kind::close: {
      const int r = fd >= 0 ? ::close(fd) : 0;
      fd = -1;
      return done(r);
    }
    case Kind::pwrite: {
      const std::string data = bytes(c.seed, c.len);
      return done(::pwrite(fd, data.data(), data.size(), static_cast<off_t>(c.off)));
    }
    case Kind::writev: {
      const std::string data = bytes(c.seed, c.len);
      iovec v[2] = {{const_cast<char*>(data.data()), data.size() / 3}, {const_cast<char*>(data.data()) + data.size() / 3, data.size() - data.size() / 3}};
      return done(::pwritev(fd, v, 2, static_cast<off_t>(c.off)));
    }
    case Kind::pread: {
      std::string data(c.len, '\0');
      const ssize_t n = ::pread(fd, data.data(), data.size(), static_cast<off_t>(c.off));
      return done(n, n > 0 ? data.substr(0, static_cast<std::size_t>(n)) : "");
    }
    case Kind::append: {
      const int f = ::openat(root_, a, O_WRONLY | O_APPEND | O_NONBLOCK | O_CLOEXEC);
      if (f < 0) return done(-1);
      const std::string data = bytes(c.seed, c.len);
      const ssize_t n = ::write(f, data.data(), data.size());
      const int error = errno;
      ::close(f);
      errno = error;
      return done(n);
    }
    case Kind::truncate: return done(::truncate(proc(c.a).c_str(), static_cast<off_t>(c.off)));
    case Kind::ftruncate: return done(::ftruncate(fd, static_cast<off_t>(c.off)));
    case Kind::fallocate: return done(::fallocate(fd, c.flags, static_cast<off_t>(c.off), static_cast<off_t>(c.len)));
    case Kind::seek: {
      if (fd < 0 || ::fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) return done(0, "none");
      const int flags = ::fcntl(fd, F_GETFL);
      if ((flags & O_ACCMODE) == O_WRONLY) return done(0, "none");
      return done(0, seeks_agree(fd, st.st_size) ? "agree" : "DISAGREE");
    }
    case Kind::mmap_write: {
      if (fd < 0 || ::fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_size == 0 || (st.st_mode & 06000)) return done(0, "none");
      const auto size = static_cast<std::size_t>(st.st_size);
      auto* p = static_cast<char*>(::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
      if (p == MAP_FAILED) return done(-1);
      const std::size_t at = c.off % size, n = std::min(c.len, size - at);
      const std::string data = bytes(c.seed, n);
      std::memcpy(p + at, data.data(), n);
      const int r = (c.flags & 1) ? ::msync(p, size, MS_SYNC) : 0;
      ::munmap(p, size);
      return done(r);
    }
    case Kind::mkdir: return done(::mkdirat(root_, a, c.seed & 07777u));
    case Kind::rmdir: return done(::unlinkat(root_, a, AT_REMOVEDIR));
    case Kind::unlink: return done(::unlinkat(root_, a, 0));
    case Kind::rename: return done(::renameat(root_, a, root_, b));
    case Kind::exchange: return done(::renameat2(root_, a, root_, b, RENAME_EXCHANGE));
    case Kind::noreplace: return done(::renameat2(root_, a, root_, b, RENAME_NOREPLACE));
    case Kind::link: return done(::linkat(root_, a, root_, b, 0));
    case Kind::symlink: return done(::symlinkat(b, root_, a));
    case Kind::readlink: {
      char text[4096];
      const ssize_t n = ::readlinkat(root_, a, text, sizeof text);
      return done(n, n > 0 ? std::string(text, static_cast<std::size_t>(n)) : "");
    }
    case Kind::mknod: return done(::mknodat(root_, a, (c.flags % 3 == 0 ? S_IFIFO : c.flags % 3 == 1 ? S_IFSOCK : S_IFREG) | (c.seed & 0777u), 0));
    case Kind::chmod: return done(::fchmodat(root_, a, c.seed & 07777u, 0));
    case Kind::chown: return done(::fchownat(root_, a, c.flags % 3 != 1 ? ::getuid() : static_cast<uid_t>(-1), c.flags % 3 != 0 ? ::getgid() : static_cast<gid_t>(-1), AT_SYMLINK_NOFOLLOW));
    case Kind::utimens: {
      const timespec t[2] = {{static_cast<time_t>(c.off % 2000000000), static_cast<long>(c.seed % 1000000000)},
                             {static_cast<time_t>(c.len % 2000000000), static_cast<long>((c.seed * 7) % 1000000000)}};
      if (::utimensat(root_, a, t, AT_SYMLINK_NOFOLLOW) != 0) return done(-1);
      if (::fstatat(root_, a, &st, AT_SYMLINK_NOFOLLOW) != 0) return done(-1);
      return done(0, std::to_string(st.st_atim.tv_sec) + "." + std::to_string(st.st_atim.tv_nsec) + " " + std::to_string(st.st_mtim.tv_sec) + "." + std::to_string(st.st_mtim.tv_nsec));
    }
    case Kind::setxattr: {
      const std::string value = bytes(c.seed, c.len % 300);
      return done(::lsetxattr(proc(c.a).c_str(), c.b.c_str(), value.data(), value.size(), c.flags % 3));
    }
    case Kind::getxattr: {
      char value[4096];
      const ssize_t n = ::lgetxattr(proc(c.a).c_str(), c.b.c_str(), value, (c.flags & 7) == 0 ? 5 : sizeof value);
      return done(n, n > 0 ? std::string(value, static_cast<std::size_t>(n)) : "");
    }
    case Kind::listxattr: return done(0, xattr_list(proc(c.a)));
    case Kind::removexattr: return done(::lremovexattr(proc(c.a).c_str(), c.b.c_str()));
    case Kind::stat: {
      const int r = ::fstatat(root_, a, &st, AT_SYMLINK_NOFOLLOW);
      return done(r, r == 0 ? describe(st) : "");
    }
    case Kind::fstat: {
      const int r = ::fstat(fd, &st);
      return done(r, r == 0 ? describe(st) : "");
    }
    case Kind::access: return done(::faccessat(root_, a, c.flags % 8, 0));
    case Kind::list: {
      const int d = ::openat(root_, a, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
      return d < 0 ? done(-1) : done(0, listing(d));
    }
    case Kind::fsync: return done(c.flags & 1 ? ::fsync(fd) : ::fdatasync(fd));
    case Kind::flock: return done(::flock(fd, (c.flags % 3 == 0 ? LOCK_UN : c.flags % 3 == 1 ? LOCK_SH : LOCK_EX) | LOCK_NB));
    case Kind::tmpfile: {
      if (fd >= 0) ::close(fd);
      fd = ::openat(root_, a, O_TMPFILE | O_RDWR | O_CLOEXEC, c.seed & 0777u);
      return done(fd < 0 ? -1 : 0);
    }
    case Kind::linkat_fd: return done(::linkat(AT_FDCWD, ("/proc/self/fd/" + std::to_string(fd)).c_str(), root_, b, AT_SYMLINK_FOLLOW));
    case Kind::count: break;
  }
  return {};
}

// Names of many lengths, in a few directories, so that calls meet each other.
class Generator {
 public:
  Generator(unsigned seed, std::size_t max_target) : r_(seed), max_target_(max_target) {
    for (const std::size_t n : {1u, 2u, 15u, 16u, 17u, 100u, 160u, 161u, 175u, 200u, 254u, 255u}) names_.push_back(std::string(n, static_cast<char>('a' + n % 26)));
    names_.push_back("ecfs.dir.x");
    names_.push_back("\xc3\xa4\xf0\x9f\x98\x80");
  }
  Call next() {
    Call c{};
    c.kind = static_cast<Kind>(r_() % static_cast<unsigned>(Kind::count));
    // Half of all calls work on contents.
    if (r_() % 2) c.kind = static_cast<Kind>(r_() % 10);
    c.slot = static_cast<int>(r_() % kSlots);
    c.a = path();
    c.b = path();
    c.seed = static_cast<unsigned>(r_());
    c.off = offset();
    c.len = r_() % 4 == 0 ? r_() % 70000 : r_() % 5000;
    c.flags = static_cast<int>(r_() % 1024);
    switch (c.kind) {
      case Kind::open: {
        static const int access[] = {O_RDONLY, O_WRONLY, O_RDWR, O_RDWR};
        c.flags = access[r_() % 4];
        for (const int f : {O_CREAT, O_CREAT, O_EXCL, O_TRUNC, O_APPEND, O_NOFOLLOW, O_SYNC})
          if (r_() % 4 == 0) c.flags |= f;
        if (r_() % 16 == 0) c.flags |= O_DIRECTORY;
        if (!(c.flags & O_CREAT)) c.flags &= ~O_EXCL;
        break;
      }
      case Kind::fallocate: {
        static const int modes[] = {0, FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, FALLOC_FL_ZERO_RANGE, FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE};
        c.flags = modes[r_() % 6];
        break;
      }
      case Kind::symlink: {
        static const std::size_t lengths[] = {1, 15, 60, 255, 700, 1100, 3000, 3100, 4095};
        c.b = r_() % 3 ? std::string(std::min(lengths[r_() % 9], max_target_), 't') : path();
        break;
      }
      case Kind::setxattr:
      case Kind::getxattr:
      case Kind::removexattr: {
        static const char* attrs[] = {"user.a", "user.b", "user.ecfs.dir", "user.a.rather.longer.name", "bogus.x"};
        c.b = r_() % 8 ? attrs[r_() % 5] : "user." + std::string(::geteuid() == 0 ? 250 : 160, 'n');
        break;
      }
      default: break;
    }
    return c;
  }

 private:
  std::string path() {
    static const char* dirs[] = {"", "", "d1/", "d2/", "d1/e/"};
    std::string p = dirs[r_() % 5];
    if (r_() % 10 == 0) return p.empty() ? "d1" : p == "d1/" ? "d2" : "d1/e";
    return p + names_[r_() % names_.size()];
  }
  std::uint64_t offset() {
    static const std::uint64_t edges[] = {0, 1, 3935, 3936, 3937, 4064, 4095, 4096, 4097, 7999, 8000, 8001, 12063, 12064, 65536, 1 << 20};
    const auto e = edges[r_() % 16];
    return r_() % 2 ? e : r_() % 4 ? r_() % 40000 : e + r_() % 3;
  }
  std::mt19937 r_;
  std::size_t max_target_;
  std::vector<std::string> names_;
};

// The whole tree as text, one line an object.
void walk(int dir, const std::string& prefix, std::map<std::string, std::string>& out) {
  const int copy = ::openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* d = copy < 0 ? nullptr : ::fdopendir(copy);
  if (!d) {
    out[prefix + "?"] = "unreadable " + std::to_string(errno);
    return;
  }
  std::vector<std::string> names;
  while (const dirent* e = ::readdir(d))
    if (std::strcmp(e->d_name, ".") != 0 && std::strcmp(e->d_name, "..") != 0) names.emplace_back(e->d_name);
  ::closedir(d);
  for (const auto& n : names) {
    struct stat st;
    const std::string at = prefix + n;
    if (::fstatat(dir, n.c_str(), &st, AT_SYMLINK_NOFOLLOW) != 0) {
      out[at] = "stat " + std::to_string(errno);
      continue;
    }
    std::string text = describe(st) + " x[" + xattr_list("/proc/self/fd/" + std::to_string(dir) + "/" + n) + "]";
    if (S_ISREG(st.st_mode)) {
      const int fd = ::openat(dir, n.c_str(), O_RDONLY | O_CLOEXEC);
      if (fd < 0) {
        text += " open " + std::to_string(errno);
      } else {
        std::uint64_t hash = 14695981039346656037u;
        std::string buffer(1 << 16, '\0');
        ssize_t got;
        while ((got = ::read(fd, buffer.data(), buffer.size())) > 0)
          for (ssize_t i = 0; i < got; ++i) hash = (hash ^ static_cast<unsigned char>(buffer[static_cast<std::size_t>(i)])) * 1099511628211u;
        text += got < 0 ? " read " + std::to_string(errno) : " hash " + std::to_string(hash);
        ::close(fd);
      }
    } else if (S_ISLNK(st.st_mode)) {
      char target[4096];
      const ssize_t got = ::readlinkat(dir, n.c_str(), target, sizeof target);
      text += " -> " + (got < 0 ? std::to_string(errno) : std::string(target, static_cast<std::size_t>(got)));
    }
    out[at] = text;
    if (S_ISDIR(st.st_mode)) {
      const int sub = ::openat(dir, n.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
      if (sub >= 0) {
        walk(sub, at + "/", out);
        ::close(sub);
      } else {
        out[at + "/?"] = std::to_string(errno);
      }
    }
  }
}

// The first line in which the trees differ; empty where none does.
std::string tree_difference(int plain, int mount) {
  std::map<std::string, std::string> p, m;
  walk(plain, "", p);
  walk(mount, "", m);
  for (const auto& [path, text] : p) {
    const auto it = m.find(path);
    if (it == m.end()) return "'" + path + "' is missing in the mount; plain: " + text;
    if (it->second != text) return "'" + path + "'\n  plain " + text + "\n  mount " + it->second;
  }
  for (const auto& [path, text] : m)
    if (!p.count(path)) return "'" + path + "' is only in the mount: " + text;
  return {};
}

void clear(int dir) {
  const int copy = ::openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* d = copy < 0 ? nullptr : ::fdopendir(copy);
  if (!d) return;
  while (const dirent* e = ::readdir(d)) {
    if (std::strcmp(e->d_name, ".") == 0 || std::strcmp(e->d_name, "..") == 0) continue;
    if (::unlinkat(dir, e->d_name, 0) == 0) continue;
    ::fchmodat(dir, e->d_name, 0700, 0);
    const int sub = ::openat(dir, e->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (sub < 0) continue;
    clear(sub);
    ::close(sub);
    ::unlinkat(dir, e->d_name, AT_REMOVEDIR);
  }
  ::closedir(d);
}

std::string show(const Call& c) {
  static const char* names[] = {"open", "close", "pwrite", "pread", "append", "truncate", "ftruncate", "fallocate", "seek", "mmap_write", "mkdir", "rmdir",
                                "unlink", "rename", "exchange", "noreplace", "link", "symlink", "readlink", "mknod", "chmod", "chown", "utimens",
                                "setxattr", "getxattr", "listxattr", "removexattr", "stat", "list", "fsync", "flock", "tmpfile", "linkat_fd", "fstat", "access", "writev"};
  const auto brief = [](const std::string& s) { return s.size() > 40 ? s.substr(0, 12) + "...(" + std::to_string(s.size()) + ")" : s; };
  char text[256];
  std::snprintf(text, sizeof text, " slot %d off %llu len %llu flags 0%o seed %u", c.slot, static_cast<unsigned long long>(c.off),
                static_cast<unsigned long long>(c.len), c.flags, c.seed);
  return names[static_cast<int>(c.kind)] + (" '" + brief(c.a)) + "' '" + brief(c.b) + "'" + text;
}

// Runs the calls on both sides; index of the first that differs, or -1. The trees are compared every `every` calls and at the end.
long run(const std::vector<Call>& calls, int plain, int mount, std::size_t every, std::string& why) {
  Side p(plain), m(mount);
  for (std::size_t i = 0; i < calls.size(); ++i) {
    const Outcome x = p.run(calls[i]), y = m.run(calls[i]);
    if (x != y) {
      const auto text = [](const Outcome& o) {
        return std::to_string(o.result) + " errno " + std::to_string(o.error) + " (" + std::strerror(o.error) + ") " + (o.data.size() > 200 ? std::to_string(o.data.size()) + " bytes" : o.data);
      };
      why = "plain " + text(x) + "\n  mount " + text(y);
      return static_cast<long>(i);
    }
    if ((i + 1) % every == 0 || i + 1 == calls.size()) {
      why = tree_difference(plain, mount);
      if (!why.empty()) return static_cast<long>(i);
    }
  }
  return -1;
}

// Drops calls, in ever smaller pieces, as long as what is left still differs.
std::vector<Call> shrink(std::vector<Call> calls, int plain, int mount, std::string& why) {
  int budget = 400;
  for (std::size_t piece = calls.size() / 2; piece > 0 && budget > 0; piece /= 2) {
    for (std::size_t at = 0; at + piece <= calls.size() && budget > 0;) {
      std::vector<Call> fewer(calls.begin(), calls.begin() + static_cast<long>(at));
      fewer.insert(fewer.end(), calls.begin() + static_cast<long>(at + piece), calls.end());
      clear(plain);
      clear(mount);
      --budget;
      std::string w;
      const long where = run(fewer, plain, mount, fewer.size() < 60 ? 1 : 50, w);
      if (where >= 0) {
        fewer.resize(static_cast<std::size_t>(where) + 1);
        calls = std::move(fewer);
        why = w;
      } else {
        at += piece;
      }
      if (piece > calls.size()) piece = calls.size();
    }
  }
  return calls;
}

}  // namespace

int main(int argc, char** argv) {
  unsigned seed = 1;
  std::size_t count = 2000, max_target = 4095;
  bool verify = false;
  std::vector<std::string> dirs;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    if (arg == "--seed" && i + 1 < argc) seed = static_cast<unsigned>(std::strtoul(argv[++i], nullptr, 10));
    else if (arg == "--calls" && i + 1 < argc) count = std::strtoul(argv[++i], nullptr, 10);
    else if (arg == "--max-target" && i + 1 < argc) max_target = std::strtoul(argv[++i], nullptr, 10);
    else if (arg == "--verify") verify = true;
    else dirs.push_back(arg);
  }
  if (dirs.size() != 2) {
    std::fputs("usage: compare [--seed N] [--calls N] [--max-target N] [--verify] PLAIN MOUNT\n", stderr);
    return 2;
  }
  const int plain = ::open(dirs[0].c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const int mount = ::open(dirs[1].c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (plain < 0 || mount < 0) {
    std::perror("compare");
    return 2;
  }
  std::string why;
  if (verify) {
    why = tree_difference(plain, mount);
    if (!why.empty()) std::printf("trees differ: %s\n", why.c_str());
    return why.empty() ? 0 : 1;
  }
  std::printf("seed %u, %zu calls\n", seed, count);
  ::umask(022);
  Generator generator(seed, max_target);
  std::vector<Call> calls;
  for (const char* d : {"d1", "d2", "d1/e"}) {
    Call c{};
    c.kind = Kind::mkdir;
    c.a = d;
    c.seed = 0755;
    calls.push_back(c);
  }
  while (calls.size() < count) calls.push_back(generator.next());
  const long where = run(calls, plain, mount, 250, why);
  if (where < 0) return 0;
  std::printf("call %ld differs: %s\n  %s\nshrinking...\n", where, show(calls[static_cast<std::size_t>(where)]).c_str(), why.c_str());
  calls.resize(static_cast<std::size_t>(where) + 1);
  calls = shrink(std::move(calls), plain, mount, why);
  std::printf("the shortest sequence found (%zu calls):\n", calls.size());
  for (const auto& c : calls) std::printf("  %s\n", show(c).c_str());
  std::printf("  %s\n", why.c_str());
  return 1;
}
