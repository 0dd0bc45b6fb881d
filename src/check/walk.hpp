// SPDX-License-Identifier: GPL-3.0-or-later
// The inside of check::scan: one walk through a tree.
#pragma once

#include <set>
#include <unordered_set>

#include "check/tasks.hpp"
#include "ecfs/check.hpp"
#include "ecfs/check_file.hpp"
#include "ecfs/name_cipher.hpp"
#include "ecfs/unique_fd.hpp"

namespace ecfs::check {

std::string join(std::string_view dir, std::string_view name);
bool is_dot(std::string_view name) noexcept;
bool is_younger(const timespec& a, const timespec& b) noexcept;  // or as young
// Where only the owner may ask that no time moves, without.
Result<UniqueFd> open_quietly(int dir, const char* name, int flags);
// A file of at most `max` bytes that is a regular one. EFBIG for a larger one, EINVAL for what is no file.
Result<std::string> read_small(int dir, const char* name, std::size_t max);
// The two copies of a directory's id.
struct DirCopies {
  Result<std::string> file_text = errno_code(ENOENT), copy_text = errno_code(ENODATA);
  Result<DirRecord> file = Errc::damaged_directory, copy = Errc::damaged_directory;
  bool no_xattrs = false;  // the lower filesystem has none
};
DirCopies read_dir_copies(int dir, const KeyRing& keys);
// One name of a directory under a record, by its encoded text.
Result<std::string> name_under(const KeyRing& keys, const DirRecord& record, std::string_view encoded);

struct Dir {
  UniqueFd fd;
  std::string path, lower;
  bool root = false;
  bool set_aside = false;  // lost+found, or below it
  bool lost = false;       // its id is, and so are the names in it
  DirRecord record;
  timespec changed{};
};
using DirPtr = std::shared_ptr<const Dir>;

class Walk {
 public:
  Walk(const Volume& volume, const KeyRing& keys, const Options& options) : volume_(volume), keys_(keys), options_(options) {}
  Result<Report> run(int root);

 private:
  // What a lower name stands for.
  struct Named {
    enum class What : std::uint8_t { named, nobodys };
    What what = What::nobodys;
    std::string plain;   // for `nobodys` the lower name
    std::string detail;
    bool ours_by_name = false;  // nobody else's names look like it
  };
  struct Scrubbing;

  // scan.cpp
  Result<void> look_into(std::shared_ptr<Dir> dir);
  void subdirectory(const DirPtr& parent, const std::string& name, const Named& named);
  void settle_record(Dir& dir, const std::vector<std::string>& names);
  void own_file(const Dir& dir, const std::string& name, const std::unordered_set<std::string>& long_names);
  void target_files(const Dir& root);
  void volume_file(const Dir& root);
  bool stopped() const noexcept { return options_.stop && options_.stop->load(std::memory_order_relaxed); }
  bool plain_names() const noexcept { return volume_.names == NameMode::plain; }
  bool in_cut(const timespec& t) const { return options_.in_cut && options_.in_cut(t); }
  bool in_flight(const timespec& t) const noexcept { return options_.live_since && is_younger(t, *options_.live_since); }
  Finding about(const Dir& dir, std::string_view name, std::string_view plain, Kind kind, Severity severity, std::string detail) const;
  void add(Finding finding);
  void cannot(const Dir& dir, std::string_view name, std::string_view plain, const std::error_code& why);
  void done(std::uint64_t units) noexcept {
    if (options_.progress) options_.progress->fetch_add(units, std::memory_order_relaxed);
  }

  // entry.cpp
  Named name_of(const Dir& dir, const std::string& name) const;
  void entry(const DirPtr& dir, const std::string& name);
  void file(const DirPtr& dir, const std::string& name, const Named& named, const struct stat& st);
  void link(const DirPtr& dir, const std::string& name, const Named& named, const struct stat& st);
  void unreadable_name(const Dir& dir, const std::string& name, const Named& named, const struct stat& st, bool ours);
  void scrub_file(const DirPtr& dir, const std::string& name, const Named& named, const struct stat& st, UniqueFd fd, FileState state);
  void scrub_part(const std::shared_ptr<Scrubbing>& work, std::uint64_t part);
  void tell_range(const Dir& dir, std::string_view name, std::string_view plain, const struct stat& st, const Range& range);
  void finish_file(Scrubbing& work);
  void xattrs(const Dir& dir, const char* name, std::string_view plain, int fd, const struct stat& st);
  void xattr(const Dir& dir, const char* name, std::string_view plain, int fd, const std::string& attr, const struct stat& st);
  bool first_time(const struct stat& st);

  const Volume& volume_;
  const KeyRing& keys_;
  const Options& options_;
  int root_ = -1;
  Tasks tasks_;
  std::mutex mutex_;  // all below
  Report report_;
  std::set<std::pair<dev_t, ino_t>> seen_;       // files with several names that were looked at
  std::unordered_set<std::string> named_targets_;  // target files that links name
  std::vector<std::string> target_files_;
  bool incomplete_ = false;  // something was not entered, where a link could be that names a target file
};

}  // namespace ecfs::check
