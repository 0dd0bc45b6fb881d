// SPDX-License-Identifier: GPL-3.0-or-later
// Calls on names: making, removing, renaming, linking, listing.
#include <dirent.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "program.hpp"

namespace compare {
namespace {

Outcome make_dir(Side& s, const Call& c) { return done(::mkdirat(s.base(c), c.a.c_str(), c.mode)); }
void fill_make_dir(Generator& g, Call& c) {
  if (!g.one_in(6)) c.mode |= 0700;
  if (g.one_in(2)) c.a = g.one_in(2) ? "d1" : g.one_in(2) ? "d2" : "d1/e";
}
Outcome remove_dir(Side& s, const Call& c) { return done(::unlinkat(s.base(c), c.a.c_str(), AT_REMOVEDIR)); }
Outcome unlink_it(Side& s, const Call& c) { return done(::unlinkat(s.base(c), c.a.c_str(), 0)); }
Outcome rename_it(Side& s, const Call& c) {
  return done(::renameat2(s.base(c), c.a.c_str(), s.root(), c.b.c_str(), static_cast<unsigned>(c.flags)));
}
void fill_rename(Generator& g, Call& c) {
  static const unsigned flags[] = {0, 0, 0, 0, RENAME_EXCHANGE, RENAME_EXCHANGE, RENAME_NOREPLACE, RENAME_WHITEOUT,
                                   RENAME_NOREPLACE | RENAME_EXCHANGE, 1u << 5};
  c.flags = static_cast<int>(g.pick(flags));
  // One that fails has made and removed its whiteout on some lower filesystems, and has not on others.
  if (c.flags & static_cast<int>(RENAME_WHITEOUT)) c.watch = false;
}
Outcome link_it(Side& s, const Call& c) {
  return done(::linkat(s.base(c), c.a.c_str(), s.root(), c.b.c_str(), c.flags & 1 ? AT_SYMLINK_FOLLOW : 0));
}
Outcome link_fd(Side& s, const Call& c) {
  const int fd = s.fd(c);
  if (c.flags & 1) return done(::linkat(fd, "", s.root(), c.b.c_str(), AT_EMPTY_PATH));
  return done(::linkat(AT_FDCWD, s.proc_fd(fd).c_str(), s.root(), c.b.c_str(), AT_SYMLINK_FOLLOW));
}
Outcome symlink_it(Side& s, const Call& c) { return done(::symlinkat(c.b.c_str(), s.base(c), c.a.c_str())); }
void fill_symlink(Generator& g, Call& c) {
  static const std::size_t lengths[] = {1, 15, 60, 255, 700, 1100, 3000, 3100, 4095};
  if (!g.one_in(3)) c.b = std::string(std::min(lengths[g.random(9)], g_settings.max_target), 't');
  if (g.one_in(40)) c.b = "";
}
Outcome read_link(Side& s, const Call& c) {
  char text[4096];
  const ssize_t n = ::readlinkat(s.base(c), c.a.c_str(), text, c.flags & 1 ? sizeof text : 7);
  return done(n, n > 0 ? std::string(text, static_cast<std::size_t>(n)) : "");
}
Outcome make_node(Side& s, const Call& c) {
  static const mode_t types[] = {S_IFIFO, S_IFSOCK, S_IFREG, S_IFCHR, S_IFBLK, 0, S_IFDIR, S_IFLNK};
  static const dev_t devices[] = {makedev(1, 3), makedev(0, 0), makedev(300, 70000)};
  return done(::mknodat(s.base(c), c.a.c_str(), types[c.flags % 8] | (c.mode & 07777), devices[c.seed % 3]));
}
Outcome tmpfile_it(Side& s, const Call& c) {
  int& fd = s.fd(c);
  s.unmap(c);
  if (fd >= 0) ::close(fd);
  fd = ::openat(s.base(c), c.flags & 8 ? "." : c.a.c_str(), O_TMPFILE | (c.flags & 1 ? O_RDWR : O_WRONLY) | (c.flags & 2 ? O_EXCL : 0) | O_CLOEXEC, c.mode);
  return done(fd < 0 ? -1 : 0);
}
void fill_tmpfile(Generator& g, Call& c) {
  static const char* dirs[] = {"", "d1", "d2", "d1/e", "."};
  c.a = g.pick(dirs);
}

Outcome stat_it(Side& s, const Call& c) {
  struct stat st;
  const int r = ::fstatat(s.base(c), c.a.c_str(), &st, c.flags & 3 ? AT_SYMLINK_NOFOLLOW : 0);
  return done(r, r == 0 ? describe(st) : "");
}
Outcome fstat_it(Side& s, const Call& c) {
  struct stat st;
  const int r = ::fstat(s.fd(c), &st);
  return done(r, r == 0 ? describe(st) : "");
}
Outcome statfs_it(Side& s, const Call& c) {
  struct statfs st;
  const int r = ::fstatfs(s.fd(c), &st);
  return done(r, r == 0 ? "names of " + std::to_string(st.f_namelen) : "");
}

struct Listing {
  std::vector<std::pair<std::string, long>> entries;  // name and type; the position after it
};
// By the directory's own descriptor.
int open_listing(Side& s, const Call& c) { return ::openat(s.base(c), c.a.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); }
void fill_listing(Generator& g, Call& c) {
  static const char* dirs[] = {".", "d1", "d2", "d1/e"};
  if (!g.one_in(6)) c.a = g.pick(dirs);
}
std::string entry_text(const dirent* e) { return std::string(e->d_name) + "/" + std::to_string(e->d_type); }

Outcome list_it(Side& s, const Call& c) {
  const int fd = c.flags & 1 ? open_listing(s, c) : ::openat(s.fd(c), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return done(-1);
  DIR* d = ::fdopendir(fd);
  if (!d) return done(-1);
  std::multiset<std::string> names;
  errno = 0;
  while (const dirent* e = ::readdir(d)) names.insert(entry_text(e));
  const int error = errno;
  ::closedir(d);
  std::string out;
  for (const auto& n : names) out += n + " ";
  errno = error;
  return done(error ? -1 : 0, out);
}

// Entries come in another order on each side, so each is asked whether it agrees with itself.
Outcome seek_listing(Side& s, const Call& c) {
  const int fd = open_listing(s, c);
  if (fd < 0) return done(-1);
  DIR* d = ::fdopendir(fd);
  std::vector<std::pair<std::string, long>> all;  // an entry, and the position before it
  for (long at = ::telldir(d);; at = ::telldir(d)) {
    const dirent* e = ::readdir(d);
    if (!e) break;
    all.emplace_back(entry_text(e), at);
  }
  std::string verdict = std::to_string(all.size()) + " entries";
  if (!all.empty())
    for (const std::size_t from : {c.seed % all.size(), (c.seed / 7) % all.size()}) {
      ::seekdir(d, all[from].second);
      std::size_t at = from;
      while (const dirent* e = ::readdir(d)) {
        if (at >= all.size() || all[at].first != entry_text(e)) verdict = "seekdir led elsewhere";
        ++at;
      }
      if (at != all.size()) verdict = "seekdir lost entries";
    }
  ::rewinddir(d);
  std::size_t again = 0;
  while (::readdir(d)) ++again;
  if (again != all.size()) verdict = "rewinddir lost entries";
  ::closedir(d);
  return done(0, verdict);
}

// What stays is listed exactly once, whatever comes and goes meanwhile.
Outcome change_while_listing(Side& s, const Call& c) {
  const int fd = open_listing(s, c);
  if (fd < 0) return done(-1);
  std::set<std::string> stay, go;
  int error = 0;
  for (int i = 0; i < 60 && !error; ++i) {
    const std::string name = "~" + std::to_string(i) + std::string(c.seed % 5 == 0 ? 190 : 8, 'l');
    const int f = ::openat(fd, name.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
    if (f < 0) error = errno;
    if (f >= 0) ::close(f), (i % 3 ? stay : go).insert(name);
  }
  DIR* d = ::fdopendir(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
  ::rewinddir(d);
  std::multiset<std::string> seen;
  std::string verdict = "good";
  unsigned step = 0;
  auto leaving = go.begin();
  while (const dirent* e = ::readdir(d)) {
    seen.insert(e->d_name);
    ++step;
    if (leaving != go.end() && (step + c.seed) % 2 == 0) {
      if (::unlinkat(fd, leaving->c_str(), 0) != 0) verdict = "unlink: errno " + std::to_string(errno);
      ++leaving;
    }
    if (step < 20 && step % 4 == 0) {
      const std::string fresh = "~new" + std::to_string(step);
      const int f = ::openat(fd, fresh.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
      if (f >= 0) ::close(f);
    }
    if (step > 100000) {
      verdict = "endless";
      break;
    }
  }
  for (const auto& n : stay)
    if (seen.count(n) != 1) verdict = "what stayed was listed " + std::to_string(seen.count(n)) + " times";
  for (const auto& n : go)
    if (seen.count(n) > 1) verdict = "what went was listed twice";
  ::closedir(d);
  for (const auto& n : stay) ::unlinkat(fd, n.c_str(), 0);
  for (const auto& n : go) ::unlinkat(fd, n.c_str(), 0);
  for (unsigned i = 0; i < 20; ++i) ::unlinkat(fd, ("~new" + std::to_string(i)).c_str(), 0);
  ::close(fd);
  return {error ? -1 : 0, error, verdict};
}

// A file that is used after its last name is gone.
Outcome use_unlinked(Side& s, const Call& c) {
  const int fd = ::openat(s.base(c), c.a.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) return done(-1);
  const std::string data = bytes(c.seed, c.len);
  std::string text = std::to_string(::write(fd, data.data(), data.size()));
  const auto note = [&](long r) { text += " " + std::to_string(r) + "/" + std::to_string(r < 0 ? errno : 0); };
  note(::unlinkat(s.base(c), c.a.c_str(), 0));
  note(::pwrite(fd, "more", 4, static_cast<off_t>(c.off)));
  note(::fchmod(fd, 0640));
  note(::ftruncate(fd, static_cast<off_t>(c.off / 2 + 3)));
  note(::fsync(fd));
  std::string back(c.len + 8, '\0');
  const ssize_t n = ::pread(fd, back.data(), back.size(), 0);
  note(n);
  struct stat st;
  note(::fstat(fd, &st));
  text += describe(st);
  note(::linkat(AT_FDCWD, s.proc_fd(fd).c_str(), s.root(), c.b.c_str(), AT_SYMLINK_FOLLOW));
  ::close(fd);
  return done(0, text + back.substr(0, n > 0 ? static_cast<std::size_t>(n) : 0));
}

// A directory that somebody stands in while it is removed.
Outcome use_removed(Side& s, const Call& c) {
  if (::mkdirat(s.base(c), c.a.c_str(), 0700) != 0) return done(-1);
  const int dir = ::openat(s.base(c), c.a.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (dir < 0) return done(-1);
  std::string text;
  const auto note = [&](long r) { text += " " + std::to_string(r < 0 ? -1 : 0) + "/" + std::to_string(r < 0 ? errno : 0); };
  struct stat st;
  if (c.flags & 1) {
    note(::mkdirat(dir, "in", 0700));
    note(::unlinkat(s.base(c), c.a.c_str(), AT_REMOVEDIR));  // not empty
    note(::unlinkat(dir, "in", AT_REMOVEDIR));
  }
  const int here = ::open(".", O_PATH | O_CLOEXEC);
  note(::fchdir(dir));
  const timespec past[2] = {{1000000, 5}, {2000000, 7}};
  if (c.flags & 2) note(::futimens(dir, past));
  note(::unlinkat(s.base(c), c.a.c_str(), AT_REMOVEDIR));
  note(::fstat(dir, &st));
  text += describe(st) + (c.flags & 2 ? time_text(st.st_mtim) : "");
  note(::openat(AT_FDCWD, "new", O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
  note(::mkdirat(dir, "new", 0700));
  note(::symlinkat("t", dir, "new"));
  note(::mknodat(dir, "new", S_IFIFO | 0600, 0));
  note(::faccessat(dir, "in", F_OK, 0));
  note(::fstatat(dir, ".", &st, 0));
  const int up = ::openat(AT_FDCWD, "..", O_PATH | O_CLOEXEC);
  note(up);
  if (up >= 0) ::close(up);
  char where[8192];
  note(::getcwd(where, sizeof where) ? 0 : -1);
  const int tmp = ::openat(dir, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  note(tmp);
  if (tmp >= 0) ::close(tmp);
  note(::renameat(s.root(), c.b.c_str(), dir, "x"));
  note(::fchmod(dir, 0711));
  note(::futimens(dir, past));
  note(::fstat(dir, &st));
  text += describe(st) + time_text(st.st_mtim);
  note(::fsync(dir));
  DIR* d = ::fdopendir(dir);
  int n = 0;
  errno = 0;
  while (const dirent* e = ::readdir(d)) n += e->d_name[0] != '.';
  text += " listed " + std::to_string(n) + "/" + std::to_string(errno);
  ::closedir(d);
  note(::fchdir(here));
  ::close(here);
  return done(0, text);
}

Outcome access_it(Side& s, const Call& c) {
  static const int flags[] = {0, AT_EACCESS, AT_SYMLINK_NOFOLLOW, AT_EACCESS | AT_SYMLINK_NOFOLLOW};
  return done(::faccessat(s.base(c), c.a.c_str(), c.flags % 9, flags[c.seed % 4]));
}

}  // namespace

std::vector<Kind> names_kinds() {
  return {
      {"mkdir", 4, fill_make_dir, make_dir},
      {"rmdir", 3, nullptr, remove_dir},
      {"unlink", 6, nullptr, unlink_it},
      {"rename", 6, fill_rename, rename_it},
      {"link", 3, nullptr, link_it},
      {"link_fd", 2, nullptr, link_fd},
      {"symlink", 3, fill_symlink, symlink_it},
      {"readlink", 2, nullptr, read_link},
      {"mknod", 4, nullptr, make_node},
      {"tmpfile", 2, fill_tmpfile, tmpfile_it, true, false},
      {"stat", 4, nullptr, stat_it},
      {"fstat", 4, nullptr, fstat_it},
      {"statfs", 1, nullptr, statfs_it},
      {"list", 3, fill_listing, list_it},
      {"seek_listing", 1, fill_listing, seek_listing},
      {"change_while_listing", 1, fill_listing, change_while_listing, false},
      {"use_unlinked", 1, nullptr, use_unlinked},
      {"use_removed", 1, nullptr, use_removed},
      {"access", 2, nullptr, access_it},
  };
}

}  // namespace compare
