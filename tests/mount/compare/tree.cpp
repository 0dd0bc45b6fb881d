// SPDX-License-Identifier: GPL-3.0-or-later
#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "program.hpp"

namespace compare {
namespace {

struct Entry {
  std::string text, mtime;
  bool mtime_counts = true;  // difference: mapped-mtime
};

std::string contents(int dir, const std::string& name) {
  const int fd = ::openat(dir, name.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return " open " + std::to_string(errno);
  std::uint64_t hash = 14695981039346656037u;
  static std::string buffer(1 << 18, '\0');
  ssize_t got;
  while ((got = ::read(fd, buffer.data(), buffer.size())) > 0) {
    if (got % 8) std::memset(buffer.data() + got, 0, 8);
    for (ssize_t i = 0; i < got; i += 8) {
      std::uint64_t word;
      std::memcpy(&word, buffer.data() + i, 8);
      hash = (hash ^ word) * 1099511628211u;
      hash ^= hash >> 29;
    }
  }
  const std::string text = got < 0 ? " read " + std::to_string(errno) : " hash " + std::to_string(hash);
  ::close(fd);
  return text;
}

std::string text_of(const Side& side, int dir, const std::string& name, const struct stat& st) {
  std::string text = describe(st) + " x[" + xattr_list(side.proc_fd(dir) + "/" + name) + "]";
  if (S_ISREG(st.st_mode)) return text + contents(dir, name);
  if (!S_ISLNK(st.st_mode)) return text;
  char target[4096];
  const ssize_t got = ::readlinkat(dir, name.c_str(), target, sizeof target);
  return text + " -> " + (got < 0 ? std::to_string(errno) : std::string(target, static_cast<std::size_t>(got)));
}

// One line an object.
void walk(const Side& side, int dir, const std::string& prefix, std::map<std::string, Entry>& out) {
  const int copy = ::openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* d = copy < 0 ? nullptr : ::fdopendir(copy);
  if (!d) {
    out[prefix + "?"].text = "unreadable " + std::to_string(errno);
    return;
  }
  std::vector<std::string> names;
  errno = 0;
  while (const dirent* e = ::readdir(d))
    if (std::strcmp(e->d_name, ".") != 0 && std::strcmp(e->d_name, "..") != 0) names.emplace_back(e->d_name);
  if (errno != 0) out[prefix + "?"].text = "unlistable " + std::to_string(errno);
  ::closedir(d);
  for (const auto& n : names) {
    struct stat st;
    const std::string at = prefix + n;
    if (::fstatat(dir, n.c_str(), &st, AT_SYMLINK_NOFOLLOW) != 0) {
      out[at].text = "stat " + std::to_string(errno);
      continue;
    }
    out[at] = {text_of(side, dir, n, st), time_text(st.st_mtim), !side.mapped.count(st.st_ino)};
    if (!S_ISDIR(st.st_mode)) continue;
    const int sub = ::openat(dir, n.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (sub >= 0) {
      walk(side, sub, at + "/", out);
      ::close(sub);
    } else {
      out[at + "/?"].text = std::to_string(errno);
    }
  }
}

std::map<std::string, Entry> tree(const Side& side) {
  std::map<std::string, Entry> out;
  struct stat st;
  if (::fstat(side.root(), &st) == 0)
    out["."] = {describe(st) + " x[" + xattr_list(side.proc_fd(side.root()) + "/.") + "]", time_text(st.st_mtim)};
  walk(side, side.root(), "", out);
  return out;
}

}  // namespace

std::string tree_difference(const Side& plain, const Side& mount) {
  const auto p = tree(plain), m = tree(mount);
  for (const auto& [path, x] : p) {
    // What cannot be read here is "?", and tells more than all that is missing for it.
    const std::string above = path.substr(0, path.rfind('/') + 1);
    const auto unread = m.find(above + "?");
    if (unread != m.end() && !p.count(unread->first)) {
      const auto dir = p.find(above.empty() ? "." : above.substr(0, above.size() - 1));
      return "'" + unread->first + "' in the mount: " + unread->second.text + "; plain: " + (dir == p.end() ? "" : dir->second.text);
    }
    const auto it = m.find(path);
    if (it == m.end()) return "'" + path + "' is missing in the mount; plain: " + x.text;
    const Entry& y = it->second;
    const bool times = x.mtime_counts && y.mtime_counts && x.mtime != y.mtime;
    if (times || x.text != y.text)
      return "'" + path + "'\n  plain " + x.text + " mtime " + x.mtime + "\n  mount " + y.text + " mtime " + y.mtime;
  }
  for (const auto& [path, y] : m)
    if (!p.count(path)) return "'" + path + "' is only in the mount: " + y.text;
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

}  // namespace compare
