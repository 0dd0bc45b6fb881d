// SPDX-License-Identifier: GPL-3.0-or-later
// Writes down every change that goes through `lower`, in order, while it lives. Several threads' calls are told one after the other.
#pragma once

#include <mutex>
#include <string>
#include <unordered_map>

#include "ecfs/lower.hpp"
#include "journal.hpp"

namespace ecfs::crash {

class Recorder {
 public:
  // What is below `root` now is the journal's base: taken to be on the disk.
  explicit Recorder(std::string root);
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;
  ~Recorder();

  // Events so far.
  std::size_t position();
  // The object of that inode number; kNone where there is none.
  Id id_of(ino_t ino);
  // No more is recorded; barriers are found. The self-check's complaint, empty where the journal replayed is the tree that is there.
  std::string stop();
  Journal& journal() { return journal_; }

 private:
  void before(const lower::Call& call);
  void after(const lower::Call& call, const lower::Outcome& outcome);
  void record(const lower::Call& call, const lower::Outcome& outcome);
  Event make_event(const lower::Call& call, const struct stat& st);
  void add(Event event);
  Id known(const struct stat& st);
  Id object_at(int fd, const char* name);
  void object_into(Event& event, int fd, const char* name);

  std::string root_;
  std::mutex mutex_;
  Journal journal_;
  Tree live_;
  std::unordered_map<ino_t, Id> ids_;
  Id next_ = 0;
  bool existed_ = false;     // before an open that may make a file
  Id gone_ = kNone;          // what an unlink or a rename takes
  std::string fault_;
  bool recording_ = true;
};

}  // namespace ecfs::crash
