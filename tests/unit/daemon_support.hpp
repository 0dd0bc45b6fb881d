// SPDX-License-Identifier: GPL-3.0-or-later
// A Filesystem on a temporary directory, for the tests of the daemon: no libfuse, no mount. A Ref stands for what the kernel holds of a
// name: a lookup on the node, and the directories above it, which the kernel never forgets before what is in them.
#pragma once

#include <dirent.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>

#include "daemon/filesystem.hpp"
#include "ecfs/lower.hpp"
#include "support.hpp"

namespace ecfs::test {

using daemon::Caller;
using daemon::Entry;
using daemon::Filesystem;
using daemon::Listed;
using daemon::Node;
using daemon::NodePtr;

// The hook goes with the scope, so that a failing test does not make the next one fail.
struct LowerHook {
  explicit LowerHook(lower::Hook hook) { lower::set_hook(std::move(hook)); }
  LowerHook(const LowerHook&) = delete;
  LowerHook& operator=(const LowerHook&) = delete;
  ~LowerHook() { lower::set_hook(nullptr); }
};

inline bool as_root() { return ::geteuid() == 0; }

inline std::size_t open_fds() {
  DIR* dir = ::opendir("/proc/self/fd");
  REQUIRE(dir);
  std::size_t n = 0;
  while (::readdir(dir)) ++n;
  ::closedir(dir);
  return n;
}

// The same tests on a volume that is shared with other mounts: the test program's second run.
inline bool as_shared() { return std::getenv("ECFS_UNIT_SHARED") != nullptr; }

inline Caller self(mode_t umask = 022) { return {::geteuid(), ::getegid(), ::getpid(), umask}; }

// Epochs 1 to `count`, each with a fixed key of its own.
inline KeyRing ring_of(Epoch count) {
  KeyRing ring;
  for (Epoch e = 1; e <= count; ++e) ring.add(epoch_keys(e, static_cast<std::uint8_t>(e * 50)));
  return ring;
}

struct VolumeOptions {
  NameMode names = NameMode::encrypted;
  std::size_t long_name_max = 255;
  Suite suite = Suite::aes_256_gcm;
  std::size_t max_dirs = 64;
  std::size_t max_files = 128;
  Epoch epochs = 1;
  bool read_only = false;
  bool acl = false;
  bool noatime = false;
  std::chrono::milliseconds lock_wait{30'000};
};

struct Held {
  Filesystem& fs;
  NodePtr node;
  struct stat attr;
  std::shared_ptr<const Held> parent;
  // Open, as far as the kernel would tell: a removed file is still to be read.
  Held(Filesystem& f, NodePtr n, const struct stat& st, std::shared_ptr<const Held> p) : fs(f), node(std::move(n)), attr(st), parent(std::move(p)) {
    ++node->opens;
  }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
  ~Held() {
    fs.closed(node);
    fs.nodes().forget(node, 1);  // which the root does not mind
  }
};
using Ref = std::shared_ptr<const Held>;

// What a tree holds: path -> "dir", "file CONTENT", "link TARGET", "fifo".
using Snapshot = std::map<std::string, std::string>;

class TestVolume {
 public:
  explicit TestVolume(VolumeOptions options = {}) : options_(options), fds_(open_fds()) { open(); }
  TestVolume(const TestVolume&) = delete;
  TestVolume& operator=(const TestVolume&) = delete;
  ~TestVolume() {
    fs_.reset();
    widen(dir_.path());
  }

  Result<std::unique_ptr<Filesystem>> try_open(daemon::SessionMarker marker = {}) {
    auto root = lower::open_path(dir_.path(), O_RDONLY | O_DIRECTORY);
    REQUIRE(root);
    Filesystem::Config c;
    c.lower_root = std::move(*root);
    c.volume.uuid = "00000000-0000-4000-8000-000000000000";
    c.volume.suite = options_.suite;
    c.volume.names = options_.names;
    c.volume.long_name_max = options_.long_name_max;
    for (Epoch e = 1; e <= options_.epochs; ++e) c.volume.epochs.push_back(e);
    c.keys = ring_of(options_.epochs);
    c.read_only = options_.read_only;
    c.acl = options_.acl;
    c.noatime = options_.noatime;
    c.lock_wait = options_.lock_wait;
    c.changes_beneath = c.shared = as_shared();
    if (c.read_only) c.shared = false;
    c.max_dirs = options_.max_dirs;
    c.max_files = options_.max_files;
    c.marker = std::move(marker);
    c.log = [this](const std::string& what, const std::string& where) {
      const std::lock_guard lock(log_mutex_);
      log_.push_back(what + ": " + where);
    };
    return Filesystem::create(std::move(c));
  }
  void open(daemon::SessionMarker marker = {}) {
    fs_.reset();
    auto made = try_open(std::move(marker));
    REQUIRE_MESSAGE(made, made.error().message());
    fs_ = std::move(*made);
  }
  void close() { fs_.reset(); }
  void reopen(VolumeOptions options) {
    options_ = options;
    open();
  }

  Filesystem& fs() { return *fs_; }
  const VolumeOptions& options() const { return options_; }
  const std::string& path() const { return dir_.path(); }
  std::vector<std::string> log() const {
    const std::lock_guard lock(log_mutex_);
    return log_;
  }

  // Nothing that the tests did is still known, pinned or open.
  void check_clean() {
    CHECK(fs_->nodes().size() == 1);
    CHECK(fs_->nodes().pinned() == 0);
    CHECK(fs_->nodes().dirs.size() == 0);
    CHECK(fs_->nodes().files.size() == 0);
    fs_.reset();
    CHECK(open_fds() == fds_);
    open();
  }

  Ref root() { return std::make_shared<const Held>(*fs_, fs_->nodes().root(), fs_->attributes(fs_->nodes().root()).value(), nullptr); }
  Ref keep(Result<Entry> entry, const Ref& parent) {
    REQUIRE_MESSAGE(entry, entry.error().message());
    return std::make_shared<const Held>(*fs_, entry->node, entry->attr, parent);
  }
  // Gives a lookup back that the test does not need; the error.
  std::error_code drop(const Result<Entry>& entry) {
    if (entry) fs_->nodes().forget(entry->node, 1);
    return entry.error();
  }

  Ref lookup(const Ref& dir, std::string_view name) { return keep(fs_->lookup(dir->node, name), dir); }
  std::error_code lookup_error(const Ref& dir, std::string_view name) { return drop(fs_->lookup(dir->node, name)); }
  bool exists(const Ref& dir, std::string_view name) { return !lookup_error(dir, name); }
  Ref walk(std::string_view path) {
    Ref at = root();
    while (!path.empty()) {
      const std::string_view name = path.substr(0, path.find('/'));
      path.remove_prefix(std::min(path.size(), name.size() + 1));
      at = lookup(at, name);
    }
    return at;
  }
  Ref mkdir(const Ref& dir, std::string_view name, mode_t mode = 0755) { return keep(fs_->make_dir(dir->node, name, mode, self()), dir); }
  Ref create(const Ref& dir, std::string_view name, std::string_view content = {}, mode_t mode = 0644) {
    Ref file = keep(fs_->make_node(dir->node, name, S_IFREG | mode, 0, self()), dir);
    if (!content.empty()) write(file, content);
    return file;
  }
  Ref symlink(const Ref& dir, std::string_view name, std::string_view target) {
    return keep(fs_->make_symlink(dir->node, name, target, self()), dir);
  }
  void write(const Ref& file, std::string_view content, std::uint64_t off = 0) {
    const auto w = fs_->write(file->node, off, as_bytes(content), false);
    REQUIRE_MESSAGE(w, w.error().message());
  }
  Result<std::string> try_read(const NodePtr& node, std::size_t max = 1 << 20) {
    std::string text(max, '\0');
    const auto n = fs_->read(node, 0, {reinterpret_cast<std::uint8_t*>(text.data()), text.size()});
    if (!n) return n.error();
    text.resize(*n);
    return text;
  }
  std::string read(const Ref& file) {
    const auto text = try_read(file->node);
    REQUIRE_MESSAGE(text, text.error().message());
    return *text;
  }
  struct stat stat(const Ref& ref) {
    const auto st = fs_->attributes(ref->node);
    REQUIRE_MESSAGE(st, st.error().message());
    return *st;
  }
  std::error_code rename(const Ref& from_dir, std::string_view from, const Ref& to_dir, std::string_view to, unsigned flags = 0) {
    return fs_->rename(from_dir->node, from, to_dir->node, to, flags).error();
  }
  std::error_code unlink(const Ref& dir, std::string_view name) { return fs_->unlink(dir->node, name).error(); }
  std::error_code rmdir(const Ref& dir, std::string_view name) { return fs_->remove_dir(dir->node, name).error(); }

  // Names without the two dots.
  std::set<std::string> names(const Ref& dir) {
    std::set<std::string> out;
    const auto r = fs_->list(dir->node, 0, false, [&](const Listed& e) {
      if (e.name != "." && e.name != "..") CHECK(out.insert(e.name).second);
      return true;
    });
    REQUIRE_MESSAGE(r, r.error().message());
    return out;
  }

  // Everything below `dir`, by listing it with attributes.
  void snapshot(const Ref& dir, const std::string& prefix, Snapshot& out) {
    std::vector<std::pair<std::string, Ref>> entries;
    const auto r = fs_->list(dir->node, 0, true, [&](const Listed& e) {
      if (e.name == "." || e.name == "..") return true;
      REQUIRE_MESSAGE(e.entry, prefix, e.name, " has no attributes");
      entries.emplace_back(e.name, std::make_shared<const Held>(*fs_, e.entry->node, e.entry->attr, dir));
      return true;
    });
    REQUIRE_MESSAGE(r, "listing '", prefix, "': ", r.error().message());
    for (const auto& [name, ref] : entries) {
      std::string& what = out[prefix + name];
      switch (ref->node->type) {
        case S_IFDIR:
          what = "dir";
          snapshot(ref, prefix + name + "/", out);
          break;
        case S_IFLNK: {
          const auto target = fs_->read_link(ref->node);
          what = target ? "link " + *target : "link: " + target.error().message();
          if (target) CHECK(ref->attr.st_size == static_cast<off_t>(target->size()));
          break;
        }
        case S_IFREG: {
          const auto text = try_read(ref->node);
          what = text ? "file " + *text : "file: " + text.error().message();
          if (text) CHECK(ref->attr.st_size == static_cast<off_t>(text->size()));
          break;
        }
        case S_IFIFO: what = "fifo"; break;
        default: what = "other";
      }
    }
  }
  Snapshot snapshot() {
    Snapshot out;
    snapshot(root(), "", out);
    return out;
  }

  // The lower object's path.
  std::string lower(std::string_view plain_path) {
    const auto p = fs_->lower_path(plain_path);
    REQUIRE_MESSAGE(p, p.error().message());
    return dir_.path() + (p->empty() ? "" : "/" + *p);
  }
  // Names in a lower directory, those of the format's own files too.
  static std::set<std::string> lower_names(const std::string& path) {
    std::set<std::string> out;
    for (const auto& e : std::filesystem::directory_iterator(path)) out.insert(e.path().filename().string());
    return out;
  }

 private:
  // So that an ordinary user can remove directories that the tests made unreadable.
  static void widen(const std::string& path) {
    std::error_code ignored;
    std::filesystem::permissions(path, std::filesystem::perms::owner_all, std::filesystem::perm_options::add, ignored);
    for (const auto& e : std::filesystem::directory_iterator(path, ignored))
      if (e.is_directory(ignored) && !e.is_symlink(ignored)) widen(e.path().string());
  }

  TempDir dir_;
  VolumeOptions options_;
  std::size_t fds_;
  mutable std::mutex log_mutex_;
  std::vector<std::string> log_;
  std::unique_ptr<Filesystem> fs_;
};

// Does the temporary directory's filesystem keep user xattrs? Without them the second copy of a directory's id is not there.
inline bool have_user_xattrs(const std::string& dir) {
  const bool have = ::setxattr(dir.c_str(), "user.ecfs-unit", "x", 1, 0) == 0;
  if (have) ::removexattr(dir.c_str(), "user.ecfs-unit");
  return have;
}

}  // namespace ecfs::test
