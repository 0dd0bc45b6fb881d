// SPDX-License-Identifier: GPL-3.0-or-later
// Makes a workload's calls on a Filesystem and tells the history of them.
#pragma once

#include <string>
#include <vector>

#include "history.hpp"
#include "mounted.hpp"
#include "recorder.hpp"

namespace ecfs::crash {

class Driver {
 public:
  explicit Driver(History& history) : history_(history) {}
  // What it works on from now on; `recorder` may be null. What was made before is looked up again.
  void attach(daemon::Filesystem& fs, Recorder* recorder);
  void detach();

  Thing mkdir(Thing dir, const std::string& name, mode_t mode = 0755);
  Thing create(Thing dir, const std::string& name, mode_t mode = 0644);
  // Nothing is written to it.
  Thing symlink(Thing dir, const std::string& name, const std::string& target);
  void link(Thing thing, Thing dir, const std::string& name);
  void write(Thing file, std::uint64_t off, const std::string& bytes);
  void append(Thing file, const std::string& bytes) { write(file, history_.now(file).size(), bytes); }
  void truncate(Thing file, std::uint64_t size);
  void punch(Thing file, std::uint64_t off, std::uint64_t len);
  void zero(Thing file, std::uint64_t off, std::uint64_t len);
  void allocate(Thing file, std::uint64_t off, std::uint64_t len);
  void fsync(Thing thing, bool data_only = false);
  void unlink(Thing dir, const std::string& name);
  void rmdir(Thing dir, const std::string& name);
  void rename(Thing from_dir, const std::string& from, Thing to_dir, const std::string& to);
  void exchange(Thing a_dir, const std::string& a, Thing b_dir, const std::string& b);
  void chmod(Thing thing, mode_t mode);
  void set_xattr(Thing thing, const std::string& name, const std::string& value);
  void remove_xattr(Thing thing, const std::string& name);
  // The volume file is written anew with another passphrase, as `ecfs passphrase` does.
  void change_passphrase(const std::string& old_one, const std::string& new_one);

  // Bytes that no other call of this run gets, n of them.
  std::string stamp(std::size_t n);
  const std::string& content(Thing file) const { return history_.now(file); }
  // Whatever comes before it is kept, says the program that works here.
  void promise(int number);
  std::size_t size(Thing file) const { return history_.now(file).size(); }

 private:
  struct Known {
    daemon::NodePtr node;
    Thing dir = kNoThing;  // one of its names
    std::string name;
  };
  // Around one call.
  class Call {
   public:
    explicit Call(Driver& d) : d_(d) { d_.history_.begin(d_.position()); }
    ~Call() { d_.history_.end(d_.position()); }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

   private:
    Driver& d_;
  };
  std::size_t position() { return recorder_ ? recorder_->position() : 0; }
  const daemon::NodePtr& node(Thing thing) const { return things_.at(thing).node; }
  Thing made(Result<daemon::Entry> entry, Thing dir, const std::string& name, mode_t mode, const std::string& target);
  void bind(Thing thing, ino_t ino);

  History& history_;
  daemon::Filesystem* fs_ = nullptr;
  Recorder* recorder_ = nullptr;
  std::vector<Known> things_;
  std::uint64_t stamps_ = 0;
};

}  // namespace ecfs::crash
