// SPDX-License-Identifier: GPL-3.0-or-later
#include "disk.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "ecfs/format.hpp"

namespace ecfs::crash {
namespace {

[[noreturn]] void fail(const std::string& what, const std::string& path) {
  throw std::runtime_error(what + " " + path + ": " + std::strerror(errno));
}

std::map<std::string, std::string> xattrs_of(const std::string& path) {
  std::map<std::string, std::string> out;
  char list[4096];
  const ssize_t n = ::llistxattr(path.c_str(), list, sizeof list);
  if (n < 0) fail("listxattr", path);
  for (ssize_t at = 0; at < n; at += static_cast<ssize_t>(std::strlen(list + at)) + 1) {
    std::string value(8192, '\0');
    const ssize_t size = ::lgetxattr(path.c_str(), list + at, value.data(), value.size());
    if (size < 0) fail("getxattr", path);
    value.resize(static_cast<std::size_t>(size));
    out.emplace(list + at, std::move(value));
  }
  return out;
}

void scan_pages(const std::string& path, Object& object, PagePool& pool) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) fail("open", path);
  Page page;
  for (std::uint64_t off = 0; off < object.size; off += kPageSize) {
    page.fill(0);
    const ssize_t n = ::pread(fd, page.data(), page.size(), static_cast<off_t>(off));
    if (n < 0) fail("read", path);
    if (const PageId id = pool.add(page)) object.pages[off / kPageSize] = id;
  }
  ::close(fd);
}

}  // namespace

Tree scan(const std::string& root, PagePool& pool, const std::function<Id(const struct stat&)>& ids) {
  Tree tree;
  const std::function<void(const std::string&)> down = [&](const std::string& path) {
    struct stat st;
    if (::lstat(path.c_str(), &st) != 0) fail("stat", path);
    const Id id = ids(st);
    if (tree.objects.contains(id)) return;
    Object object;
    object.mode = st.st_mode;
    object.uid = st.st_uid;
    object.gid = st.st_gid;
    object.rdev = S_ISCHR(st.st_mode) || S_ISBLK(st.st_mode) ? st.st_rdev : 0;
    object.xattrs = xattrs_of(path);
    if (S_ISREG(st.st_mode)) {
      object.size = static_cast<std::uint64_t>(st.st_size);
      scan_pages(path, object, pool);
    } else if (S_ISLNK(st.st_mode)) {
      std::string target(8192, '\0');
      const ssize_t n = ::readlink(path.c_str(), target.data(), target.size());
      if (n < 0) fail("readlink", path);
      object.target = target.substr(0, static_cast<std::size_t>(n));
    }
    std::vector<std::string> below;
    if (S_ISDIR(st.st_mode))
      for (const auto& e : std::filesystem::directory_iterator(path)) {
        struct stat child;
        if (::lstat(e.path().c_str(), &child) != 0) fail("stat", e.path().string());
        object.entries.emplace(e.path().filename().string(), ids(child));
        below.push_back(e.path().string());
      }
    tree.objects[id] = std::move(object);
    for (const auto& child : below) down(child);
  };
  down(root);
  return tree;
}

Disk::Disk(const std::string& parent) : path_(parent + "/ecfs-crash-XXXXXX") {
  if (::mkdtemp(path_.data()) == nullptr) fail("mkdtemp", path_);
  scratch_ = path_ + "/clock";
  const int fd = ::open(scratch_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) fail("open", scratch_);
  ::close(fd);
}

Disk::~Disk() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

// A time of the lower filesystem that is after those of everything made so far, and not after those of what is made from now on. Kernels
// with fine-grained times (6.13) give one at once; older ones when their clock has ticked.
timespec Disk::now_after(const timespec& last) const {
  for (;;) {
    if (::chmod(scratch_.c_str(), 0600) != 0) fail("chmod", scratch_);
    struct stat st;
    if (::stat(scratch_.c_str(), &st) != 0) fail("stat", scratch_);
    const auto& c = st.st_ctim;
    if (c.tv_sec > last.tv_sec || (c.tv_sec == last.tv_sec && c.tv_nsec > last.tv_nsec)) return c;
    ::usleep(200);
  }
}

void Disk::make(const std::string& path, const Object& object, const PagePool& pool, const std::string* instead) const {
  switch (object.mode & S_IFMT) {
    case S_IFREG: {
      const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
      if (fd < 0) fail("create", path);
      if (instead) {
        if (::pwrite(fd, instead->data(), instead->size(), 0) != static_cast<ssize_t>(instead->size())) fail("write", path);
      } else {
        for (const auto& [number, page] : object.pages) {
          const std::uint64_t off = number * kPageSize;
          if (off >= object.size) continue;
          const std::size_t n = static_cast<std::size_t>(std::min<std::uint64_t>(kPageSize, object.size - off));
          if (::pwrite(fd, pool[page].data(), n, static_cast<off_t>(off)) != static_cast<ssize_t>(n)) fail("write", path);
        }
        if (::ftruncate(fd, static_cast<off_t>(object.size)) != 0) fail("truncate", path);
      }
      if (::fchmod(fd, object.mode & 07777) != 0) fail("chmod", path);
      ::close(fd);
      break;
    }
    case S_IFLNK:
      if (::symlink(object.target.c_str(), path.c_str()) != 0) fail("symlink", path);
      break;
    case S_IFDIR: break;
    default:
      if (::mknod(path.c_str(), object.mode, object.rdev) != 0) fail("mknod", path);
      if (::chmod(path.c_str(), object.mode & 07777) != 0) fail("chmod", path);
  }
  for (const auto& [name, value] : object.xattrs)
    if (::lsetxattr(path.c_str(), name.c_str(), value.data(), value.size(), 0) != 0) fail("setxattr", path);
}

namespace {

std::string content_of(const Object& object, const PagePool& pool) {
  std::string text(object.size, '\0');
  for (const auto& [number, page] : object.pages)
    if (number * kPageSize < object.size)
      std::memcpy(text.data() + number * kPageSize, pool[page].data(), std::min<std::uint64_t>(kPageSize, object.size - number * kPageSize));
  return text;
}

// The marker's time of start, moved to the times of this directory. Nothing where it holds none.
std::string with_start(const std::string& text, const timespec& start) {
  auto json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object() || !json.contains("start")) return text;
  json["start"] = {start.tv_sec, start.tv_nsec};
  return json.dump(2) + "\n";
}

bool is_marker(const std::string& path) { return path.starts_with(kSessionFile); }

}  // namespace

Disk::Placed Disk::place(const Tree& tree, const PagePool& pool) const {
  Placed placed;
  placed.path = path_ + "/lower";
  std::error_code ignored;
  std::filesystem::remove_all(placed.path, ignored);
  struct Todo {
    std::string path, relative;
    Id id;
  };
  std::vector<Todo> old, recent, dirs;
  tree.walk([&](const std::string& path, Id id) {
    const Object& object = tree.at(id);
    const std::string full = path.empty() ? placed.path : placed.path + "/" + path;
    if (S_ISDIR(object.mode)) {
      if (::mkdir(full.c_str(), 0700) != 0) fail("mkdir", full);
      make(full, object, pool, nullptr);
      dirs.push_back({full, path, id});
    } else {
      (object.touched ? recent : old).push_back({full, path, id});
    }
  });
  std::map<Id, std::string> made;
  timespec last{0, 0};
  const auto put = [&](const Todo& todo, const std::string* instead) {
    if (const auto [it, fresh] = made.emplace(todo.id, todo.path); !fresh) {
      if (::link(it->second.c_str(), todo.path.c_str()) != 0) fail("link", todo.path);
    } else {
      make(todo.path, tree.at(todo.id), pool, instead);
    }
    struct stat st;
    if (::lstat(todo.path.c_str(), &st) != 0) fail("stat", todo.path);
    placed.ids[st.st_ino] = todo.id;
    if (st.st_ctim.tv_sec > last.tv_sec || (st.st_ctim.tv_sec == last.tv_sec && st.st_ctim.tv_nsec > last.tv_nsec)) last = st.st_ctim;
  };
  for (const auto& todo : old) put(todo, nullptr);
  const timespec start = now_after(last);
  for (const auto& todo : recent) {
    if (!is_marker(todo.relative)) {
      put(todo, nullptr);
      continue;
    }
    const std::string text = with_start(content_of(tree.at(todo.id), pool), start);
    put(todo, &text);
  }
  for (auto dir = dirs.rbegin(); dir != dirs.rend(); ++dir) {
    if (::chmod(dir->path.c_str(), tree.at(dir->id).mode & 07777) != 0) fail("chmod", dir->path);
    struct stat st;
    if (::lstat(dir->path.c_str(), &st) != 0) fail("stat", dir->path);
    placed.ids[st.st_ino] = dir->id;
  }
  return placed;
}

}  // namespace ecfs::crash
