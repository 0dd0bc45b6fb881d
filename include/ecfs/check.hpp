// SPDX-License-Identifier: GPL-3.0-or-later
// Looks through a lower directory without mounting it and tells what is wrong (docs/FORMAT.md): `scan` gives findings, `repair` (repair.hpp)
// mends what can be mended. Nothing here prints, asks or changes anything. It shares no code with what writes but the format's decoders.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ecfs/crypto.hpp"
#include "ecfs/error.hpp"
#include "ecfs/volume.hpp"

namespace ecfs::check {

// Where `repair` sets aside what cannot be read where it was: an ordinary directory of the volume, in its root.
inline constexpr std::string_view kLostFound = "lost+found";

enum class Kind : std::uint8_t {
  volume_file,      // ecfs.volume is missing, damaged, or not what its copy says
  volume_copy,      // ecfs.volume.bak is missing, damaged or old
  size_hint,        // the lower size says another length than the last block does
  first_write,      // a first write was cut: no header, or nothing but one
  header,           // the header does not authenticate: nothing in the file can be read
  block,            // a range of blocks does not authenticate, or cannot be read
  directory_file,   // ecfs.dir is missing, damaged, or another directory's, and the xattr copy is good
  directory_copy,   // the other way round
  directory_new,    // an empty directory without an id
  directory_lost,   // both copies are lost, and there is something in the directory
  name,             // an object of ours whose name cannot be read
  target,           // a symlink whose target cannot be read
  xattr,            // an extended attribute whose name or value cannot be read
  orphan,           // what an operation that was cut left behind, and means nothing
  session,          // a session was cut; its marker is there
  lock_file,        // ecfs.lock is no regular file
  foreign,          // nobody's: not made by ecfs, and left alone
  unreadable,       // the lower filesystem refused; it could not be checked
  later,            // of a later release
};
// One word or two for a kind, for people and for --json.
std::string_view word(Kind kind) noexcept;

enum class Severity : std::uint8_t {
  note,    // nothing is wrong
  mends,   // wrong, and `repair` sets it right
  damage,  // something is lost
};
std::string_view word(Severity severity) noexcept;

struct Finding {
  Kind kind{};
  Severity severity{};
  std::string path;   // plaintext, without a leading slash; where a name cannot be read the lower one stands for it. Empty: the root
  std::string lower;  // path below the lower root; empty: the root itself
  std::string detail;
  // Of a damaged range: in plaintext.
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
  timespec changed{};  // the ctime of the object, where it was read; what is younger than a session that lives may be its work in flight
  bool repairable = false;
  bool lost_and_found = false;  // it is set aside in lost+found already
};

struct Counts {
  std::uint64_t directories = 0, files = 0, links = 0, others = 0, xattrs = 0;
  std::uint64_t bytes = 0;    // plaintext bytes of the files
  std::uint64_t blocks = 0;   // authenticated
  std::uint64_t skipped = 0;  // ranges that an earlier run had authenticated
};

// Which ranges of which files an earlier run has authenticated. Called by several threads.
class Memory {
 public:
  virtual ~Memory() = default;
  virtual bool known(std::uint64_t key) = 0;
  virtual void remember(std::uint64_t key) = 0;
};

struct Options {
  bool scrub = false;  // every block, xattr and target, not only headers and last blocks
  unsigned jobs = 1;   // 1: no thread is started
  // Was an object of that ctime perhaps changed in a session that was cut?
  std::function<bool(const timespec&)> in_cut;
  // A daemon is at work: what it has begun is not told as damage. Set when it started.
  std::optional<timespec> live_since;
  Memory* memory = nullptr;
  std::atomic<bool>* stop = nullptr;              // set by somebody else: the scan ends soon
  std::atomic<std::uint64_t>* progress = nullptr;  // lower bytes and objects done, counted as in `measure`
};

struct Report {
  std::vector<Finding> findings;  // ordered by lower path, then offset
  Counts counts;
  std::uint64_t unsettled = 0;  // left out since a daemon was at work on them
  bool stopped = false;
};

// The directory and everything below it. `root`: open for reading. Errors are those that end it all: the root cannot be listed.
Result<Report> scan(int root, const Volume& volume, const KeyRing& keys, const Options& options);

// What `progress` will have counted at the end of a scan, about.
Result<std::uint64_t> measure(int root, bool scrub, const std::atomic<bool>* stop);

}  // namespace ecfs::check
