// SPDX-License-Identifier: GPL-3.0-or-later
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <ctime>

#include "program.hpp"

namespace compare {

Side::Side(std::string path, bool is_mount) : path_(std::move(path)), is_mount_(is_mount) {
  fds_.fill(-1);
  open_root();
}
Side::~Side() { close_all(); }

void Side::open_root() {
  root_ = ::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (root_ < 0) {
    std::perror(path_.c_str());
    std::exit(2);
  }
}

void Side::close_all() {
  Call c;
  for (c.slot = 0; c.slot < kSlots; ++c.slot) {
    unmap(c);
    if (fd(c) >= 0) ::close(fd(c));
    fd(c) = -1;
  }
  if (root_ >= 0) ::close(root_);
  root_ = -1;
}

void Side::unmap(const Call& c) {
  Mapping& m = mapping(c);
  if (m.at) ::munmap(m.at, m.size);
  m = {};
}

std::string Side::proc_fd(int fd) const { return "/proc/self/fd/" + std::to_string(fd); }
std::string Side::proc(const Call& c, const std::string& path) const { return path.empty() ? path : proc_fd(base(c)) + "/" + path; }

Outcome Side::run(const Call& c) {
  ::umask(c.umask);
  errno = 0;
  const As as(g_settings.actors[c.actor]);
  return kinds()[c.kind].run(*this, c);
}

Outcome done(long r, std::string data) { return {r < 0 ? -1 : r, r < 0 ? errno : 0, r < 0 ? std::string() : std::move(data)}; }

std::string bytes(unsigned seed, std::size_t n) {
  std::mt19937 r(seed);
  std::string s(n, '\0');
  for (auto& c : s) c = static_cast<char>(r() % 255 + 1);
  return s;
}

std::string describe(const struct stat& st) {
  char text[256];
  // Difference: storage. A directory's size and every st_blocks are the lower object's.
  std::snprintf(text, sizeof text, "mode %o nlink %lu uid %u gid %u size %lld rdev %lx", st.st_mode, static_cast<unsigned long>(st.st_nlink),
                st.st_uid, st.st_gid, S_ISDIR(st.st_mode) ? 0LL : static_cast<long long>(st.st_size), static_cast<unsigned long>(st.st_rdev));
  return text;
}

std::string time_text(const timespec& t) {
  // What is not far from now was not set by hand.
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  if (t.tv_sec > now.tv_sec - 100000 && t.tv_sec < now.tv_sec + 100000) return "now";
  return std::to_string(t.tv_sec) + "." + std::to_string(t.tv_nsec);
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
    all[name] = v < 0 ? "errno " + std::to_string(errno) : value.substr(0, static_cast<std::size_t>(v));
  }
  std::string out;
  for (const auto& [k, v] : all) out += k + "=" + v + ";";
  return out;
}

As::As(const Actor& who) {
  if (who.uid == 0 || ::geteuid() != 0) return;
  // The bare calls: there is one thread, and the saved id stays root's, for the way back.
  if (::syscall(SYS_setgroups, who.groups.size(), who.groups.data()) != 0 || ::syscall(SYS_setresgid, who.groups[0], who.groups[0], 0) != 0 ||
      ::syscall(SYS_setresuid, who.uid, who.uid, 0) != 0) {
    std::perror("compare: becoming another user");
    std::exit(2);
  }
  switched_ = true;
}
As::~As() {
  if (!switched_) return;
  const int error = errno;
  if (::syscall(SYS_setresuid, 0, 0, 0) != 0 || ::syscall(SYS_setresgid, 0, 0, 0) != 0 || ::syscall(SYS_setgroups, 0, nullptr) != 0) {
    std::perror("compare: becoming root again");
    std::exit(2);
  }
  errno = error;
}

}  // namespace compare
