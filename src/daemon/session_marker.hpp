// SPDX-License-Identifier: GPL-3.0-or-later
// `ecfs.session` in the lower root: there while the volume is mounted for writing by one mount alone; `ecfs.session.ID` for each of several that
// share it. Found at mount, and not locked by a session that lives, it says that one was cut, and since when; files changed in that time have
// their size hints verified when they are looked up. The lock is on the file, and so is seen by other hosts where locks are.
#pragma once

#include <sys/stat.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ecfs/error.hpp"
#include "ecfs/unique_fd.hpp"

namespace ecfs::daemon {

class SessionMarker {
 public:
  struct Interval {
    timespec from;
    timespec to;
  };
  enum class Kind { reader, exclusive, shared };

  // Reads the markers that were left behind, and, unless for a reader, puts this session's there. Times are the lower filesystem's own (the
  // marker's ctime), so that they compare with its files'. Errc::locked where another session is at work that leaves no room for this one;
  // ENOLCK for a shared one where the lower filesystem has no locks.
  static Result<SessionMarker> begin(int lower_root, Kind kind);

  // Was an object of that ctime perhaps changed in a session that was cut?
  bool in_cut(const timespec& ctime) const noexcept;
  bool any_cut() const noexcept { return !cuts_.empty(); }
  // Sessions beside this one that have been cut since it began.
  void look_for_cuts(int lower_root);

  // Is a marker of this session there? Not on a lower filesystem without any room, and not for readers.
  bool written() const noexcept { return written_; }

  // A clean end: takes the marker away, or leaves what is still unverified in it.
  Result<void> end(int lower_root);

  // "pid N on HOST" of a session that is at work, for telling who holds the lock; empty where there is none.
  static std::string holder(int lower_root);

 private:
  std::vector<Interval> cuts_;
  timespec start_{};
  Kind kind_ = Kind::reader;
  bool written_ = false;
  std::string name_;                    // of its file
  std::shared_ptr<const UniqueFd> held_;  // the marker, locked
  std::vector<std::string> known_cut_;  // markers of others that look_for_cuts has seen

  Result<void> put(int lower_root);
  Result<UniqueFd> open_new(int lower_root) const;
  Result<void> take_over(int lower_root);
  Result<void> write(int lower_root, int fd, bool running);
};

}  // namespace ecfs::daemon
