// SPDX-License-Identifier: GPL-3.0-or-later
// Nodes: the lower objects that the kernel knows, keyed by lower (device, inode) and, where others change the lower directory too, by the
// time of birth: an inode number that was given away anew is another object. A node says where its object is (parent and
// lower name, for each name that the kernel has looked up); it holds no descriptor. Open directories and files live in two
// bounded caches beside it, since a home directory has more files than a process may have descriptors.
//
// Lock order: NodeTable's mutex, then an OpenCache's mutex. Neither is held across a lower call.
#pragma once

#include <sys/stat.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <shared_mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "ecfs/encrypted_file.hpp"
#include "ecfs/format.hpp"
#include "ecfs/lower.hpp"
#include "ecfs/unique_fd.hpp"

namespace ecfs::daemon {

class Node;
using NodePtr = std::shared_ptr<Node>;

struct NodeKey {
  dev_t dev = 0;
  ino_t ino = 0;
  std::int64_t born = 0;
  bool operator==(const NodeKey&) const = default;
  static NodeKey of(const lower::Stat& st) noexcept { return {st.st_dev, st.st_ino, st.born}; }
};

// What is kept open for a node; `lru` is its OpenCache's.
struct Open {
  virtual ~Open() = default;
  std::list<std::weak_ptr<Node>>::iterator lru;
};

// The conflict copies in a directory.
struct Copies {
  std::map<std::string, std::string, std::less<>> by_name;  // shown name -> lower name
  std::set<std::string, std::less<>> of_long;               // the `ecfs.long.H` that some of them were made from
  timespec changed{};                                       // the directory's mtime when they were looked for
  std::chrono::steady_clock::time_point looked{};           // and when that was
};

struct OpenDir final : Open {
  UniqueFd fd;               // O_PATH
  Result<DirRecord> record;  // an error where names can't be read; unused with plain names
  bool root = false;         // the volume's root, where there are more files of the format's own
  std::mutex copies_mutex;   // guards `copies`; held over lower calls
  std::optional<Copies> copies;
  // Where others change the lower directory: what `ecfs.dir` was when `record` was read. None where it was not there: then it is not kept.
  std::optional<lower::Stat> record_file;
  OpenDir(UniqueFd f, Result<DirRecord> r) : fd(std::move(f)), record(std::move(r)) {}
};

struct OpenFile final : Open {
  std::shared_mutex mutex;  // shared for EncryptedFile's const members, exclusive for the others
  EncryptedFile file;
  const int refused;     // errno of opening it for writing; 0: it is open so
  bool in_cut = false;  // refreshed with `file`: it may have been changed by a session that was cut
  std::atomic<bool> quiet{false};           // what `file` was last told of its atime; written under `mutex`
  std::atomic<std::uint64_t> next_read{0};  // where a sequential reader would go on
  OpenFile(EncryptedFile f, int r) : file(std::move(f)), refused(r) {}
};

// A name that the kernel knows a node by.
struct Link {
  NodePtr parent;
  std::string name;  // lower
  bool operator==(const Link&) const = default;
  bool operator<(const Link& other) const { return parent != other.parent ? parent < other.parent : name < other.name; }
};

class Node : public std::enable_shared_from_this<Node> {
 public:
  Node(NodeKey k, mode_t m) : key(k), type(m & S_IFMT) {}
  const NodeKey key;
  const mode_t type;
  std::atomic<bool> no_capability{false};  // made by us: no security.capability since
  std::atomic<bool> size_known{false};     // the hint was checked after a session that was cut
  std::atomic<int> unwritten{0};           // errno of what the kernel's cache gave us in vain, until a writer was told
  std::atomic<bool> no_copies{false};      // a directory without conflict copies; outlives the open directory, so that each is looked through once
  std::atomic<std::uint32_t> opens{0};     // by programs, where the kernel tells (a mount with others beside it)

 private:
  friend class NodeTable;
  template <class T>
  friend class OpenCache;
  // Guarded by NodeTable's mutex. Most nodes have one name, which therefore stands in place.
  std::uint64_t lookups_ = 0;
  std::uint32_t children_ = 0;  // names in this directory by which other nodes are known
  NodePtr parent_;
  std::unique_ptr<char[]> name_;
  std::unique_ptr<std::set<Link>> more_;  // a file may have 65,000
  std::shared_ptr<UniqueFd> pin_;  // O_PATH, once no name is left
  // Guarded by the OpenCache's mutex.
  std::shared_ptr<Open> open_;
};

// Bounded cache of what is open, least recently used out first. What is in use is never closed under its user.
template <class T>
class OpenCache {
 public:
  explicit OpenCache(std::size_t capacity) : capacity_(capacity) {}

  std::shared_ptr<T> get(Node& node) {
    const std::lock_guard lock(mutex_);
    if (!node.open_) return nullptr;
    list_.splice(list_.begin(), list_, node.open_->lru);
    return std::static_pointer_cast<T>(node.open_);
  }

  // The one that is kept: `fresh`, or the one that another thread put first.
  std::shared_ptr<T> put(const NodePtr& node, std::shared_ptr<T> fresh) {
    std::vector<std::shared_ptr<Open>> closing;  // closed after the lock is gone
    const std::lock_guard lock(mutex_);
    if (node->open_) return std::static_pointer_cast<T>(node->open_);
    list_.push_front(node);
    fresh->lru = list_.begin();
    node->open_ = fresh;
    for (std::size_t tries = list_.size(); list_.size() > capacity_ && tries > 0; --tries) {
      const NodePtr oldest = list_.back().lock();
      if (!oldest) {
        list_.pop_back();
      } else if (oldest->open_.use_count() == 1 && oldest != node) {
        closing.push_back(std::move(oldest->open_));
        oldest->open_ = nullptr;
        list_.pop_back();
      } else {
        list_.splice(list_.begin(), list_, std::prev(list_.end()));
      }
    }
    return fresh;
  }

  void drop(Node& node) {
    std::shared_ptr<Open> closing;
    const std::lock_guard lock(mutex_);
    if (!node.open_) return;
    list_.erase(node.open_->lru);
    closing.swap(node.open_);
  }

  std::size_t size() const {
    const std::lock_guard lock(mutex_);
    return list_.size();
  }
  std::size_t capacity() const noexcept { return capacity_; }

 private:
  const std::size_t capacity_;
  mutable std::mutex mutex_;
  std::list<std::weak_ptr<Node>> list_;
};

class NodeTable {
 public:
  NodeTable(std::size_t max_dirs, std::size_t max_files) : dirs(max_dirs), files(max_files) {}

  OpenCache<OpenDir> dirs;
  OpenCache<OpenFile> files;

  // The root has no name and is never forgotten.
  NodePtr make_root(NodeKey key);
  const NodePtr& root() const noexcept { return root_; }

  // The kernel looked an object up: one lookup more, the name noted. `link` is none for a file without a name (O_TMPFILE).
  NodePtr look_up(NodeKey key, mode_t mode, std::optional<Link> link);
  NodePtr find(NodeKey key) const;
  // `count` lookups fewer; at none the node goes from the table, with what it has open. The kernel may forget a directory before a
  // file in it that it still caches: such a directory stays for as long as the file has its name in it.
  void forget(const NodePtr& node, std::uint64_t count);

  // A name of the node; nothing for the root and for a node that has lost its last.
  std::optional<Link> where(const Node& node) const;
  std::vector<Link> names(const Node& node) const;  // all of them
  std::shared_ptr<UniqueFd> pin(const Node& node) const;
  void set_pin(Node& node, std::shared_ptr<UniqueFd> fd);
  // Is there room for one pin more, with `max` at most? Where there is none, the kernel may be about to forget what was removed just now and
  // nobody has open: that is waited for, a moment.
  bool room_for_pin(std::size_t max);
  // What is left to tell of a directory that was removed and could not be pinned, and of a removed link.
  void set_removed(const Node& node, const struct stat& last);
  std::optional<struct stat> removed(const Node& node) const;
  // Is `link` the node's only known name? (Then what unlinks it pins the object first.)
  bool only_name(const Node& node, const Link& link) const;

  void add_name(Node& node, const Link& link);
  void remove_name(Node& node, const Link& link);
  void move_name(Node& node, const Link& from, const Link& to);

  std::size_t size() const;
  std::size_t pinned() const noexcept { return pinned_.load(std::memory_order_relaxed); }

 private:
  struct Hash {
    std::size_t operator()(const NodeKey& k) const noexcept { return k.ino * 0x9E3779B97F4A7C15u ^ k.dev; }
  };
  // What has left the table, chained by parent_ so that forgetting needs no memory; what it has open is closed without the lock.
  using Gone = NodePtr;
  void add_locked(Node& node, const Link& link, Gone& gone);
  void remove_locked(Node& node, const Link& link, Gone& gone);
  void leave_locked(NodePtr parent, Gone& gone);  // one child fewer
  void erase_locked(const NodePtr& node, Gone& gone);
  void close(Gone gone);
  void set_pin_locked(Node& node, std::shared_ptr<UniqueFd> fd);

  mutable std::mutex mutex_;
  std::unordered_map<NodeKey, NodePtr, Hash> nodes_;
  // Nodes whose number another object has taken: the kernel still has their addresses, until it forgets them.
  std::vector<NodePtr> displaced_;
  NodePtr root_;
  std::unordered_map<const Node*, struct stat> removed_;
  std::condition_variable unpinned_;
  unsigned waiting_ = 0;          // for a pin to go
  std::uint64_t unpins_ = 0;      // pins that went
  std::uint64_t vain_ = ~0ULL;    // `unpins_` when it was last waited for one more in vain
  std::size_t peak_ = 0;  // most nodes since memory was last given back
  std::atomic<std::size_t> pinned_{0};
};

}  // namespace ecfs::daemon
