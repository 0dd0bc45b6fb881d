// SPDX-License-Identifier: GPL-3.0-or-later
// The stream of changes that a workload makes in a lower directory, complete: replayed onto the tree that it started from, it gives the tree
// that is there at its end, to the byte. What a power cut leaves of it, states.hpp says.
#pragma once

#include <sys/stat.h>

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

namespace ecfs::crash {

inline constexpr std::size_t kPageSize = 4096;

// An object of the lower tree: a number that no other object gets, though its inode number may be given away anew.
using Id = std::uint32_t;
inline constexpr Id kNone = ~Id{0};
inline constexpr Id kRoot = 0;

// Contents of pages, kept once each. 0 is the page of zeros.
using PageId = std::uint32_t;
using Page = std::array<std::uint8_t, kPageSize>;
class PagePool {
 public:
  PagePool() { pages_.emplace_back(); }
  PageId add(const Page& page);
  const Page& operator[](PageId id) const { return pages_[id]; }

 private:
  std::deque<Page> pages_;
};

struct Object {
  mode_t mode = 0;  // with the type
  uid_t uid = 0;
  gid_t gid = 0;
  dev_t rdev = 0;
  std::uint64_t size = 0;                  // files
  std::map<std::uint64_t, PageId> pages;   // files; what is not here is zeros
  std::map<std::string, Id> entries;       // directories
  std::string target;                      // links
  std::map<std::string, std::string> xattrs;
  bool touched = false;                    // its ctime is of the recorded time, not from before
  bool operator==(const Object& o) const = default;
};

// What is there; objects without a name (removed, but open) included, until `drop_nameless`.
struct Tree {
  std::unordered_map<Id, Object> objects;
  Object& at(Id id) { return objects.at(id); }
  const Object& at(Id id) const { return objects.at(id); }
  // Every object that the root reaches: its path, the root's empty.
  void walk(const std::function<void(const std::string& path, Id id)>& each) const;
};

enum class Change : std::uint8_t {
  make,      // of any type; `dir` may be kNone (a file without a name)
  link,      // another name
  unlink,    // files and directories
  rename,    // dir, name -> dir2, name2
  resize,    // size
  write,     // pages
  punch,     // offset, size (its length): whole pages become holes, parts of pages zeros
  attributes,  // mode, uid, gid
  set_xattr,
  remove_xattr,
  times,     // the ctime moves, and nothing else that counts
  sync,      // fsync of `object`
  data_sync, // fdatasync
  sync_all   // syncfs, or a clean unmount
};

struct Event {
  Change change;
  Id object = kNone;
  Id dir = kNone, dir2 = kNone;
  std::string name{}, name2{};   // set_xattr, remove_xattr: the attribute's
  std::string value{};         // of an attribute; the target of a link
  mode_t mode = 0;
  uid_t uid = 0;
  gid_t gid = 0;
  dev_t rdev = 0;
  bool exchange = false;
  std::uint64_t offset = 0, size = 0;
  std::vector<std::pair<std::uint64_t, PageId>> pages{};  // write: page number, content afterwards
  // sync, data_sync: as many events, from the start, must have reached the disk as far as names and attributes go
  std::size_t barrier = 0;
};

struct Journal {
  Tree base;  // all of it on the disk
  std::vector<Event> events;
  std::shared_ptr<PagePool> pool = std::make_shared<PagePool>();
};

// Names, sizes and attributes as after the event; of contents what the event takes away, and, with `data`, what it writes.
void apply(const Event& event, Tree& tree, PagePool& pool, bool data);
// Fills Event::barrier of the syncs.
void find_barriers(Journal& journal);
// One event in words, for a report.
std::string describe(const Event& event);

// The tree below a directory of this machine. `ids` gives an object's number for its inode.
Tree scan(const std::string& path, PagePool& pool, const std::function<Id(const struct stat&)>& ids);
// The first difference between two trees in words, by path; empty where there is none. Link counts are compared by identity of objects.
std::string difference(const Tree& a, const Tree& b, const PagePool& pool);

}  // namespace ecfs::crash
