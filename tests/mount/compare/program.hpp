// SPDX-License-Identifier: GPL-3.0-or-later
// The random program that runs in a plain directory and in a mount: its calls, the sides that they run on, and what is compared.
//
//   generator.cpp            random calls                    calls_contents.cpp    reading, writing, mapping, allocating
//   calls_names.cpp          making, removing, listing       calls_attributes.cpp  modes, owners, times, xattrs, locks
//   tree.cpp                 whole trees                     differences.cpp       what differs by design
//   main.cpp                 running and shrinking
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace compare {

constexpr int kSlots = 8;

struct Actor {
  uid_t uid;
  std::vector<gid_t> groups;  // the first is the primary one
};

struct Settings {
  unsigned seed = 1;
  std::size_t calls = 2000;
  std::size_t max_target = 4095;  // longest symlink target
  std::size_t remount_every = 0;  // 0: never
  bool acl = false;
  bool names_short = false;       // short names only
  std::vector<Actor> actors;      // the first is who runs this; more than one only as root
};
extern Settings g_settings;

struct Call {
  std::size_t kind = 0;
  std::size_t actor = 0;
  int slot = 0, slot2 = 0;
  int base = -1;     // the slot of the directory that paths start at; -1: the root
  std::string a, b;  // paths
  std::uint64_t off = 0, len = 0;
  int flags = 0;
  mode_t mode = 0, umask = 022;
  unsigned seed = 0;
  bool watch = false;  // times before and after are compared
};

struct Outcome {
  long result = 0;
  int error = 0;
  std::string data;
  bool operator==(const Outcome&) const = default;
};

// A mapping, and the inode that it maps.
struct Mapping {
  char* at = nullptr;
  std::size_t size = 0;
  int prot = 0;
  bool shared = false;
};

// One side: a directory and its open files.
class Side {
 public:
  Side(std::string path, bool is_mount);
  ~Side();
  Side(const Side&) = delete;
  Side& operator=(const Side&) = delete;

  Outcome run(const Call& c);
  void open_root();
  void close_all();
  int root() const noexcept { return root_; }
  bool is_mount() const noexcept { return is_mount_; }

  int base(const Call& c) const { return c.base >= 0 && fds_[static_cast<std::size_t>(c.base)] >= 0 ? fds_[static_cast<std::size_t>(c.base)] : root_; }
  int& fd(const Call& c) { return fds_[static_cast<std::size_t>(c.slot)]; }
  int& fd2(const Call& c) { return fds_[static_cast<std::size_t>(c.slot2)]; }
  Mapping& mapping(const Call& c) { return maps_[static_cast<std::size_t>(c.slot)]; }
  void unmap(const Call& c);
  std::string proc(const Call& c, const std::string& path) const;
  std::string proc_fd(int fd) const;

  // Inodes whose mtime is the kernel's to choose: difference mapped-mtime.
  std::set<ino_t> mapped;

 private:
  std::string path_;
  bool is_mount_;
  int root_ = -1;
  std::array<int, kSlots> fds_;
  std::array<Mapping, kSlots> maps_;
};

class Generator;
struct Kind {
  const char* name;
  unsigned weight;
  void (*fill)(Generator&, Call&);  // null: as the generator made it
  Outcome (*run)(Side&, const Call&);
  bool times = true;  // its effect on times may be compared
  bool slots = true;  // those of its slots, too: they hold the same objects before and after
};
const std::vector<Kind>& kinds();
std::vector<Kind> contents_kinds();
std::vector<Kind> names_kinds();
std::vector<Kind> attributes_kinds();
extern const char* const kRemount;  // the kind that main.cpp itself makes

class Generator {
 public:
  explicit Generator(unsigned seed);
  Call next();
  unsigned random(unsigned below) { return static_cast<unsigned>(r_() % below); }
  bool one_in(unsigned n) { return random(n) == 0; }
  template <class T, std::size_t N>
  T pick(const T (&list)[N]) {
    return list[random(N)];
  }
  std::string path();
  std::string name();
  std::uint64_t offset();
  uid_t uid();
  gid_t gid();
  std::string attribute();

 private:
  std::mt19937 r_;
  std::vector<std::string> names_;
  unsigned total_ = 0;
};

// ---- helpers of the calls ----
Outcome done(long r, std::string data = {});
std::string bytes(unsigned seed, std::size_t n);  // never a zero among them
std::string describe(const struct stat& st);      // without times
std::string time_text(const timespec& t);
std::string xattr_list(const std::string& path);
// Acts as somebody for one call; as root alone.
class As {
 public:
  explicit As(const Actor& who);
  ~As();

 private:
  bool switched_ = false;
};

// ---- trees ----
// The first line in which the trees differ; empty where none does.
std::string tree_difference(const Side& plain, const Side& mount);
void clear(int dir);

// ---- what differs by design ----
struct Difference {
  const char* id;
  const char* what;
};
extern const std::vector<Difference> kDifferences;
std::string show(const Call& c);

}  // namespace compare
