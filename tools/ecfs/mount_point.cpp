// SPDX-License-Identifier: GPL-3.0-or-later
#include "mount_point.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "control_client.hpp"
#include "ecfs/lower.hpp"
#include "mountinfo.hpp"
#include "paths.hpp"
#include "process.hpp"

namespace ecfs {
namespace {

Failure unusable(const std::string& path, std::string why, std::string hint = {}) {
  return {Exit::mount_point, "mount point " + shell_word(path), std::move(why), std::move(hint)};
}

// Whether the directory at `inner` lies in the one at `outer`, by identity, so that bind mounts do not
// deceive.
bool lies_in(const std::string& inner, const std::string& outer) {
  struct stat out, in;
  if (::stat(outer.c_str(), &out) < 0) return false;
  for (std::string p = parent_of(inner);; p = parent_of(p)) {
    if (::stat(p.c_str(), &in) == 0 && in.st_dev == out.st_dev && in.st_ino == out.st_ino) return true;
    if (p == "/") return false;
  }
}

Outcome<void> check_empty(const std::string& path) {
  const auto dir = lower::open_path(path, O_RDONLY | O_DIRECTORY);
  if (!dir) return unusable(path, dir.error().message());
  bool empty = true;
  const auto r = lower::read_dir(dir->get(), 0, [&](const lower::Dirent& e) {
    empty = e.name == "." || e.name == "..";
    return empty;
  });
  if (!r) return unusable(path, r.error().message());
  if (!empty)
    return unusable(path, "it is not empty; what is in it would be hidden", "--nonempty mounts all the same");
  return {};
}

// As fusermount3 reads its configuration: a word on a line of its own.
bool users_may_allow_others() {
  std::ifstream conf("/etc/fuse.conf");
  for (std::string line; std::getline(conf, line);) {
    const auto first = line.find_first_not_of(" \t"), last = line.find_last_not_of(" \t\r");
    if (first != line.npos && line.substr(first, last - first + 1) == "user_allow_other") return true;
  }
  return false;
}

// The lower directory of a mount as its daemon says, else as the mount's source.
std::string lower_of(const Mount& mount) {
  if (const auto reply = ask_daemon(mount, "status"); reply && reply->good) {
    const auto j = nlohmann::json::parse(reply->text, nullptr, false);
    if (j.is_object() && j.contains("lower") && j["lower"].is_string()) return j["lower"].get<std::string>();
  }
  return mount.source;
}

}  // namespace

Outcome<MountPoint> examine_mount_point(const std::string& given, const std::string& real_lower,
                                        bool nonempty) {
  MountPoint point;
  struct stat st;
  if (::stat(given.c_str(), &st) < 0) {
    if (errno != ENOENT) return unusable(given, last_errno().message());
    // A link that leads nowhere is not ours to fill.
    if (::lstat(given.c_str(), &st) == 0) return unusable(given, "it is a symbolic link that leads nowhere");
    const auto path = real_parent(given);
    if (!path)
      return unusable(given, path.error().message(),
                      "only the mount point itself is made, not what it is in");
    point = {*path, true};
    const std::string parent = parent_of(*path);
    if (::faccessat(AT_FDCWD, parent.c_str(), W_OK | X_OK, AT_EACCESS) < 0)
      return unusable(given, "it cannot be made in " + shell_word(parent) + ": " + last_errno().message());
    if (::stat(parent.c_str(), &st) == 0 && !S_ISDIR(st.st_mode))
      return unusable(given, errno_code(ENOTDIR).message());
  } else {
    if (!S_ISDIR(st.st_mode)) return unusable(given, "it is not a directory");
    const auto path = real_path(given);
    if (!path) return unusable(given, path.error().message());
    point.path = *path;
  }
  struct stat lower_st;
  const bool is_lower = !point.missing && ::stat(real_lower.c_str(), &lower_st) == 0 &&
                        lower_st.st_dev == st.st_dev && lower_st.st_ino == st.st_ino;
  if (is_lower) return point;
  if (lies_in(point.path, real_lower))
    return unusable(given, "it is inside the lower directory " + shell_word(real_lower));
  if (point.missing) return point;
  if (lies_in(real_lower, point.path))
    return unusable(given, "the lower directory " + shell_word(real_lower) + " is inside it");
  // fusermount3 asks for the same, but only after the passphrase.
  if (::geteuid() != 0 && ::faccessat(AT_FDCWD, point.path.c_str(), W_OK, AT_EACCESS) < 0)
    return unusable(given, last_errno().message(),
                    "a user can mount only on a directory that is the user's to write");
  if (!nonempty)
    if (auto r = check_empty(point.path); !r) return r.failure();
  return point;
}

Outcome<bool> mounted_already(const std::string& given, const std::string& lower, bool if_needed) {
  for (int i = 0; i < 8; ++i) {
    auto m = find_ecfs_mount(given);
    if (!m) return m.failure().exit == Exit::not_mounted ? Outcome<bool>(false) : m.failure();
    if (is_dead(*m)) {
      if (auto r = clear_dead(*m); !r) return r.failure();
      print_note("took away the mount of a daemon that is dead: " + shell_word(m->target));
      continue;  // there may be another one under it
    }
    const std::string there = lower_of(*m);
    const std::string real = real_path(lower).value_or("");
    // Mounted over its own lower directory, the path of that leads into the mount.
    if (if_needed && (there == real || there == absolute_path(lower))) return true;
    return Failure{Exit::mounted, "mount point " + shell_word(given),
                   shell_word(there) + " is mounted on " + shell_word(m->target) + " already", ""};
  }
  return false;
}

Outcome<void> check_fuse(bool for_others) {
  const UniqueFd fd(::open("/dev/fuse", O_RDWR | O_CLOEXEC));
  const int e = fd ? 0 : errno;
  const bool root = ::geteuid() == 0;
  // For a user fusermount3 opens the device, with more rights than the user has.
  if (e != 0 && (root || e != EACCES))
    return Failure{Exit::fuse, "/dev/fuse", errno_code(e).message(),
                   e == ENOENT || e == ENODEV || e == ENXIO
                       ? "load the kernel module: modprobe fuse; a container needs the device given to it"
                       : "a container must be allowed to use the device"};
  if (!root && find_program("fusermount3").empty())
    return Failure{Exit::fuse, "fusermount3", "it is not installed, and without it only root can mount",
                   "install the package fuse3"};
  if (!root && for_others && !users_may_allow_others())
    return Failure{Exit::fuse, "-o allow_other", "an ordinary user may not let others in",
                   "root can permit it: a line 'user_allow_other' in /etc/fuse.conf"};
  return {};
}

}  // namespace ecfs
