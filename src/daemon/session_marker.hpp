// SPDX-License-Identifier: GPL-3.0-or-later
// `ecfs.session` in the lower root: there while the volume is mounted for writing. Found at mount, it says that the last session
// was cut, and since when; files changed in that time have their size hints verified when they are looked up.
#pragma once

#include <sys/stat.h>

#include <optional>
#include <string>
#include <vector>

#include "ecfs/error.hpp"

namespace ecfs::daemon {

class SessionMarker {
 public:
  struct Interval {
    timespec from;
    timespec to;
  };

  // Reads a marker that was left behind, and, unless read_only, puts this session's in its place. Times are the lower
  // filesystem's own (the marker's ctime), so that they compare with its files'.
  static Result<SessionMarker> begin(int lower_root, bool read_only);

  // Was an object of that ctime perhaps changed in a session that was cut?
  bool in_cut(const timespec& ctime) const noexcept;
  bool any_cut() const noexcept { return !cuts_.empty(); }

  // Is a marker of this session there? Not on a lower filesystem without any room, and not for readers.
  bool written() const noexcept { return written_; }

  // A clean end: takes the marker away, or leaves what is still unverified in it.
  Result<void> end(int lower_root);

  // "pid N on HOST" of a marker, for telling who holds the lock; empty where there is none.
  static std::string holder(int lower_root);

 private:
  std::vector<Interval> cuts_;
  timespec start_{};
  bool written_ = false;
  Result<void> put(int lower_root, const std::optional<timespec>& cut_from);
  Result<void> write(int lower_root, bool running);
};

}  // namespace ecfs::daemon
