// SPDX-License-Identifier: GPL-3.0-or-later
// Calls on attributes: modes, owners, times, xattrs, ACLs, locks.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "program.hpp"

namespace compare {
namespace {

Outcome chmod_it(Side& s, const Call& c) {
  if (c.flags & 4) return done(::fchmod(s.fd(c), c.mode));
  if (c.flags & 8) return done(::fchmodat(s.base(c), c.a.c_str(), c.mode, AT_SYMLINK_NOFOLLOW));
  return done(::fchmodat(s.base(c), c.a.c_str(), c.mode, 0));
}
void fill_chmod(Generator& g, Call& c) {
  // Mostly such that the owner can go on.
  if (!g.one_in(6) || c.a == "." || c.base >= 0) c.mode |= 0700;
}

// An ordinary user who has locked itself out of the directories would have nothing left to compare.
Outcome let_in(Side& s, const Call&) {
  Outcome all = done(::fchmod(s.root(), 0777));
  for (const char* d : {"d1", "d2", "d1/e"}) {
    struct stat st;
    if (::fstatat(s.root(), d, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode))
      all.data += std::to_string(::fchmodat(s.root(), d, 0777, 0));
  }
  return all;
}
void fill_let_in(Generator&, Call& c) { c.actor = 0; }

Outcome chown_it(Side& s, const Call& c) {
  const auto uid = static_cast<uid_t>(c.off), gid = static_cast<gid_t>(c.len);
  if (c.flags & 4) return done(::fchown(s.fd(c), uid, gid));
  return done(::fchownat(s.base(c), c.a.c_str(), uid, gid, c.flags & 3 ? AT_SYMLINK_NOFOLLOW : 0));
}
void fill_chown(Generator& g, Call& c) {
  c.off = g.uid();
  c.len = g.gid();
}

timespec chosen_time(unsigned how, std::uint64_t n) {
  switch (how % 8) {
    case 0: return {0, UTIME_NOW};
    case 1: return {0, UTIME_OMIT};
    case 2: return {static_cast<time_t>(6000000000 + n % 1000), static_cast<long>(n * 7 % 1000000000)};  // 2160
    case 3: return {-static_cast<time_t>(n % 1000000), static_cast<long>(n * 13 % 1000000000)};
    case 4: return {0, n % 50 ? 0 : 1000000000};  // now and then not a time
    default: return {static_cast<time_t>(n * 31 % 1500000000), static_cast<long>(n * 7919 % 1000000000)};
  }
}
Outcome utimens_it(Side& s, const Call& c) {
  const timespec t[2] = {chosen_time(c.seed, c.off), chosen_time(c.seed / 8, c.len)};
  struct stat st;
  const bool by_fd = c.flags & 4;
  const int nofollow = c.flags & 3 ? AT_SYMLINK_NOFOLLOW : 0;
  if ((by_fd ? ::futimens(s.fd(c), t) : ::utimensat(s.base(c), c.a.c_str(), c.flags % 32 == 8 ? nullptr : t, nofollow)) != 0) return done(-1);
  if ((by_fd ? ::fstat(s.fd(c), &st) : ::fstatat(s.base(c), c.a.c_str(), &st, nofollow)) != 0) return done(-1);
  s.mapped.erase(st.st_ino);
  // Difference: atime. One that was left as it is, is whatever reading made of it.
  return done(0, (t[0].tv_nsec == UTIME_OMIT ? "" : time_text(st.st_atim)) + " " + time_text(st.st_mtim));
}

std::string acl_value(unsigned seed) {
  // struct posix_acl_xattr_header and its entries: tag, perm, id, in the order that the kernel wants.
  std::string out("\2\0\0\0", 4);
  const auto add = [&](unsigned tag, unsigned perm, std::uint32_t id) {
    const char entry[8] = {static_cast<char>(tag), 0, static_cast<char>(perm), 0, static_cast<char>(id), static_cast<char>(id >> 8),
                           static_cast<char>(id >> 16), static_cast<char>(id >> 24)};
    out.append(entry, 8);
  };
  const auto& actors = g_settings.actors;
  add(1, seed % 6 ? 7 : seed & 7, 0xffffffff);
  if (seed & 16) add(2, seed >> 5 & 7, actors.back().uid);
  add(4, seed >> 8 & 7, 0xffffffff);
  if (seed & 32) add(8, seed >> 11 & 7, actors.back().groups.back());
  if (seed & 48) add(16, seed >> 14 & 7, 0xffffffff);
  add(32, seed >> 17 & 7, 0xffffffff);
  if (seed % 37 == 0) out.resize(out.size() - 3);  // not an ACL
  return out;
}
bool is_acl(const std::string& name) { return name.starts_with("system.posix_acl_"); }

Outcome set_xattr(Side& s, const Call& c) {
  const std::string value = is_acl(c.b) ? acl_value(c.seed) : bytes(c.seed, c.len % 300);
  const int flags = is_acl(c.b) ? 0 : c.flags % 4;
  if (c.flags & 4) return done(::fsetxattr(s.fd(c), c.b.c_str(), value.data(), value.size(), flags));
  return done((c.flags & 8 ? ::setxattr : ::lsetxattr)(s.proc(c, c.a).c_str(), c.b.c_str(), value.data(), value.size(), flags));
}
Outcome get_xattr(Side& s, const Call& c) {
  char value[4096];
  const std::size_t room = c.flags & 48 ? sizeof value : c.flags & 16 ? 5 : 0;
  const ssize_t n = c.flags & 4 ? ::fgetxattr(s.fd(c), c.b.c_str(), value, room)
                                : (c.flags & 8 ? ::getxattr : ::lgetxattr)(s.proc(c, c.a).c_str(), c.b.c_str(), value, room);
  return done(n, n > 0 && room > 0 ? std::string(value, static_cast<std::size_t>(n)) : "");
}
Outcome list_xattrs(Side& s, const Call& c) { return done(0, xattr_list(c.flags & 4 ? s.proc_fd(s.fd(c)) + "/." : s.proc(c, c.a))); }
Outcome remove_xattr(Side& s, const Call& c) {
  if (c.flags & 4) return done(::fremovexattr(s.fd(c), c.b.c_str()));
  return done((c.flags & 8 ? ::removexattr : ::lremovexattr)(s.proc(c, c.a).c_str(), c.b.c_str()));
}
void fill_xattr(Generator& g, Call& c) { c.b = g.attribute(); }
void fill_remove_xattr(Generator& g, Call& c) {
  fill_xattr(g, c);
  // Difference: write-back-times. The kernel moves the ctime for an ACL that was not there.
  if (is_acl(c.b)) c.watch = false;
}

// Two who lock: by flock and by open file descriptions two slots are, by fcntl's old kind two processes.
Outcome lock_it(Side& s, const Call& c) {
  const int fd = s.fd(c);
  if (c.flags % 4 == 0) return done(::flock(fd, (c.seed % 3 == 0 ? LOCK_UN : c.seed % 3 == 1 ? LOCK_SH : LOCK_EX) | LOCK_NB));
  struct flock range {};
  range.l_type = static_cast<short>(c.seed % 3 == 0 ? F_UNLCK : c.seed % 3 == 1 ? F_RDLCK : F_WRLCK);
  range.l_whence = static_cast<short>(c.seed % 7 == 0 ? SEEK_END : SEEK_SET);
  range.l_start = static_cast<off_t>(c.off);
  range.l_len = static_cast<off_t>(c.len);
  const bool ask = c.flags & 64;
  const auto call = [&](int how) {
    const int r = ::fcntl(fd, how, &range);
    return done(r, r == 0 && ask ? std::to_string(range.l_type) + " " + std::to_string(range.l_start) + " " + std::to_string(range.l_len) : "");
  };
  if (c.flags % 4 == 1) return call(ask ? F_OFD_GETLK : F_OFD_SETLK);
  if (c.flags % 4 == 2) return call(ask ? F_GETLK : F_SETLK);
  // The other process: it has the descriptors, and none of the locks.
  const pid_t child = ::fork();
  if (child < 0) return done(-1);
  if (child == 0) {
    const int r = ::fcntl(fd, ask ? F_GETLK : F_SETLK, &range);
    ::_exit(r != 0 ? errno : ask ? 200 + range.l_type : 0);
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return {WEXITSTATUS(status), 0, ""};
}

}  // namespace

std::vector<Kind> attributes_kinds() {
  return {
      {"chmod", 5, fill_chmod, chmod_it},
      {"let_in", 1, fill_let_in, let_in},
      {"chown", 4, fill_chown, chown_it},
      {"utimens", 5, nullptr, utimens_it},
      {"setxattr", 4, fill_xattr, set_xattr},
      {"getxattr", 3, fill_xattr, get_xattr},
      {"listxattr", 2, nullptr, list_xattrs},
      {"removexattr", 2, fill_remove_xattr, remove_xattr},
      {"lock", 3, nullptr, lock_it},
  };
}

}  // namespace compare
