// SPDX-License-Identifier: GPL-3.0-or-later
// A tree of the journal as a real directory, for the programs that read it.
#pragma once

#include <map>
#include <string>

#include "journal.hpp"

namespace ecfs::crash {

class Disk {
 public:
  // In a directory of its own below `parent`, which should be a tmpfs. Throws std::runtime_error where that has no room.
  explicit Disk(const std::string& parent);
  Disk(const Disk&) = delete;
  Disk& operator=(const Disk&) = delete;
  ~Disk();

  struct Placed {
    std::string path;
    std::map<ino_t, Id> ids;
  };
  // In place of what was placed before. What was not touched since the recording began gets a ctime before the session's start, all else one
  // that is not before it: the start that the session marker tells is moved there, since a ctime cannot be set.
  Placed place(const Tree& tree, const PagePool& pool) const;
  // A directory for other things, removed with the rest.
  std::string path() const { return path_; }

 private:
  timespec now_after(const timespec& last) const;
  void make(const std::string& path, const Object& object, const PagePool& pool, const std::string* instead) const;

  std::string path_;
  std::string scratch_;
};

}  // namespace ecfs::crash
