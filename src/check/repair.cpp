// SPDX-License-Identifier: GPL-3.0-or-later
#include "ecfs/repair.hpp"

#include <fcntl.h>
#include <linux/fs.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>

#include "check/walk.hpp"
#include "ecfs/lower.hpp"

namespace ecfs::check {
namespace {

constexpr int kReadDir = O_RDONLY | O_DIRECTORY | O_NONBLOCK;
const std::string kDir(kDirFile);
const std::string kDirNew = kDir + std::string(kNewSuffix);

int rank(Kind kind) {
  constexpr Kind kOrder[] = {Kind::volume_file, Kind::volume_copy, Kind::directory_file, Kind::directory_copy, Kind::directory_new, Kind::directory_lost,
                             Kind::size_hint,   Kind::first_write, Kind::orphan,         Kind::name,           Kind::header,        Kind::target,
                             Kind::session};
  const auto* at = std::find(std::begin(kOrder), std::end(kOrder), kind);
  // All that is set aside goes by depth alone.
  return sets_aside(kind) ? rank(Kind::orphan) + 1 : static_cast<int>(at - std::begin(kOrder));
}

std::string_view leaf(std::string_view path) {
  const auto slash = path.rfind('/');
  return slash == path.npos ? path : path.substr(slash + 1);
}

// The directory at a lower path below the root, step by step: no link is followed.
Result<UniqueFd> open_below(int root, std::string_view path) {
  auto fd = lower::reopen(root, kReadDir);
  while (fd && !path.empty()) {
    const auto slash = path.find('/');
    const std::string step(path.substr(0, slash));
    fd = lower::open_at(fd->get(), step.c_str(), kReadDir);
    path = slash == path.npos ? std::string_view() : path.substr(slash + 1);
  }
  return fd;
}
// That of an object.
Result<UniqueFd> open_above(int root, std::string_view path) {
  const auto slash = path.rfind('/');
  return open_below(root, slash == path.npos ? std::string_view() : path.substr(0, slash));
}

// What root makes belongs to whom the directory belongs.
Result<void> give_to_owner(int dir, int fd) {
  const auto at = lower::stat_fd(dir), st = lower::stat_fd(fd);
  if (!at) return at.error();
  if (!st) return st.error();
  if (st->st_uid == at->st_uid && st->st_gid == at->st_gid) return {};
  const auto given = lower::chown_fd(fd, at->st_uid, at->st_gid);
  // Only root can; whoever else may write here makes what is theirs.
  return !given && is_errno(given.error(), EPERM) ? Result<void>() : given;
}

// A new file with this content, on the disk, then under its name.
Result<void> put_file(int dir, const std::string& name, const std::string& new_name, std::string_view content, mode_t mode) {
  if (const auto u = lower::unlink_at(dir, new_name.c_str(), false); !u && !is_errno(u.error(), ENOENT)) return u;
  const auto fd = lower::open_at(dir, new_name.c_str(), O_WRONLY | O_CREAT | O_EXCL, mode);
  if (!fd) return fd.error();
  const auto w = lower::pwrite(fd->get(), as_bytes(content), 0);
  auto done = w.error ? Result<void>(w.error) : give_to_owner(dir, fd->get());
  if (done) done = lower::fsync(fd->get(), false);
  if (done && new_name != name) done = lower::rename_at(dir, new_name.c_str(), dir, name.c_str(), 0);
  if (done) return lower::fsync(dir, false);
  (void)lower::unlink_at(dir, new_name.c_str(), false);
  return done;
}

// Both copies, the journaled one first.
Result<void> put_record(int dir, std::string_view raw) {
  const auto x = lower::setxattr(dir, nullptr, kDirXattr, raw, 0);
  if (!x && !is_errno(x.error(), EOPNOTSUPP)) return x;
  return put_file(dir, kDir, kDirNew, raw, 0444);
}

Result<DirRecord> put_new_record(int dir, const KeyRing& keys) {
  DirRecord record;
  random_bytes(record.id);
  record.epoch = keys.newest().epoch;
  const auto raw = seal_dir_record(keys, record);
  if (!raw) return raw.error();
  if (const auto p = put_record(dir, {reinterpret_cast<const char*>(raw->data()), raw->size()}); !p) return p.error();
  return record;
}

// For writing, though its owner has no right to write it now.
Result<UniqueFd> open_to_mend(int dir, const char* name) {
  auto fd = lower::open_at(dir, name, O_RDWR | O_NONBLOCK);
  if (fd || !is_errno(fd.error(), EACCES)) return fd;
  const auto st = lower::stat_at(dir, name);
  if (!st) return st.error();
  if (const auto c = lower::chmod_at(dir, name, (st->st_mode & 07777) | S_IRUSR | S_IWUSR); !c) return fd;
  fd = lower::open_at(dir, name, O_RDWR | O_NONBLOCK);
  if (const auto c = lower::chmod_at(dir, name, st->st_mode & 07777); !c) return c.error();
  return fd;
}

std::string time_word() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  ::gmtime_r(&now, &utc);
  char text[32];
  return {text, std::strftime(text, sizeof text, "%Y%m%d-%H%M%S", &utc)};
}

}  // namespace

std::vector<Finding> repair_order(const std::vector<Finding>& findings) {
  std::vector<Finding> out;
  for (const auto& f : findings)
    if (f.repairable) out.push_back(f);
  const auto depth = [](const Finding& f) { return std::count(f.lower.begin(), f.lower.end(), '/'); };
  std::stable_sort(out.begin(), out.end(), [&](const Finding& a, const Finding& b) {
    if (rank(a.kind) != rank(b.kind)) return rank(a.kind) < rank(b.kind);
    return sets_aside(a.kind) && depth(a) > depth(b);
  });
  return out;
}

Result<std::string> Repairer::mend(const Finding& finding) {
  switch (finding.kind) {
    case Kind::size_hint:
    case Kind::first_write:
      return mend_size(finding);
    case Kind::directory_file:
    case Kind::directory_copy:
    case Kind::directory_new:
    case Kind::directory_lost:
      return mend_record(finding);
    case Kind::orphan:
      return remove_orphan(finding);
    case Kind::name:
    case Kind::header:
    case Kind::target:
      return set_aside(finding);
    default:
      return std::string();
  }
}

Result<std::string> Repairer::mend_size(const Finding& finding) {
  const auto dir = open_above(root_, finding.lower);
  if (!dir) return dir.error();
  const auto fd = open_to_mend(dir->get(), std::string(leaf(finding.lower)).c_str());
  if (!fd) return fd.error();
  const auto st = lower::stat_fd(fd->get());
  if (!st) return st.error();
  const auto state = inspect(fd->get(), static_cast<std::uint64_t>(st->st_size), keys_, in_cut_ && in_cut_(st->st_ctim));
  if (!state) return state.error();
  if (!state->lower_size) return std::string();
  const std::uint64_t size = *state->lower_size;
  // At the page's end first: the tail behind the last page is only a size, and must not keep bytes of what was there.
  if (size > 0)
    if (const auto t = lower::ftruncate(fd->get(), size / kPage * kPage); !t) return t.error();
  if (const auto t = lower::ftruncate(fd->get(), size); !t) return t.error();
  const timespec times[2] = {{0, UTIME_OMIT}, st->st_mtim};
  (void)lower::utimens_fd(fd->get(), times);  // only a time
  if (const auto s = lower::fsync(fd->get(), false); !s) return s.error();
  if (size == 0) return std::string("is an empty file now");
  return "has its size of " + std::to_string(plain_size_by_hint(size).value_or(0)) + " bytes now";
}

Result<std::string> Repairer::mend_record(const Finding& finding) {
  const auto dir = open_below(root_, finding.lower);
  if (!dir) return dir.error();
  const DirCopies c = read_dir_copies(dir->get(), keys_);
  const bool from_copy = finding.kind == Kind::directory_file;
  if (finding.kind == Kind::directory_copy && c.file) {
    if (const auto x = lower::setxattr(dir->get(), nullptr, kDirXattr, *c.file_text, 0); !x) return x.error();
    if (const auto s = lower::fsync(dir->get(), false); !s) return s.error();
    return std::string("has the copy of its id again");
  }
  if (from_copy && c.copy) {
    if (const auto p = put_file(dir->get(), kDir, kDirNew, *c.copy_text, 0444); !p) return p.error();
    return std::string("has its id again, from the copy");
  }
  // Meanwhile one of the two is good again, or the other one is lost, too: the next look says.
  if (c.file || c.copy || from_copy || finding.kind == Kind::directory_copy) return std::string();
  if (const auto r = put_new_record(dir->get(), keys_); !r) return r.error();
  return std::string("has a new id");
}

Result<std::string> Repairer::remove_orphan(const Finding& finding) {
  const auto dir = open_above(root_, finding.lower);
  if (!dir) return dir.error();
  const std::string name(leaf(finding.lower));
  if (const auto u = lower::unlink_at(dir->get(), name.c_str(), false); !u)
    return is_errno(u.error(), ENOENT) ? Result<std::string>(std::string()) : u.error();
  return std::string("is removed");
}

Result<LowerName> Repairer::lower_name(const DirRecord& record, std::string_view name) const {
  if (volume_.names == NameMode::plain) return LowerName{std::string(name), {}};
  const EpochKeys* epoch = keys_.find(record.epoch);
  if (!epoch) return Errc::damaged_directory;
  return encode_name(*epoch, record.id, name, volume_.long_name_max);
}

Result<void> Repairer::open_lost_found() {
  if (lost_found_) return {};
  LostFound out;
  DirRecord root_record;
  const bool plain = volume_.names == NameMode::plain;
  if (!plain) {
    const DirCopies c = read_dir_copies(root_, keys_);
    if (!c.file && !c.copy) return Errc::damaged_directory;
    root_record = c.file ? *c.file : *c.copy;
  }
  const auto name = lower_name(root_record, kLostFound);
  if (!name) return name.error();
  out.lower = name->name;
  auto made = lower::mkdir_at(root_, out.lower.c_str(), 0700);
  if (!made && !is_errno(made.error(), EEXIST)) return made;
  auto fd = lower::open_at(root_, out.lower.c_str(), kReadDir);
  if (!fd) return fd.error();
  out.fd = std::move(*fd);
  if (made)
    if (const auto g = give_to_owner(root_, out.fd.get()); !g) return g;
  if (!plain) {
    const DirCopies c = read_dir_copies(out.fd.get(), keys_);
    auto record = c.file ? c.file : c.copy;
    if (!record) {
      // Fresh, or of a run that was cut here. With something in it and its id lost it is mended as any directory is, before this.
      record = put_new_record(out.fd.get(), keys_);
      if (!record) return record.error();
    }
    out.record = *record;
  }
  if (const auto s = lower::fsync(root_, false); !s) return s;
  lost_found_ = std::move(out);
  return {};
}

Result<void> Repairer::write_report(const std::string& text) {
  const std::string base = "report-" + time_word();
  for (int i = 1; i < 1000; ++i) {
    const auto name = lower_name(lost_found_->record, base + (i > 1 ? "." + std::to_string(i) : "") + ".txt");
    if (!name) return name.error();
    auto fd = lower::open_at(lost_found_->fd.get(), name->name.c_str(), O_RDWR | O_CREAT | O_EXCL, 0600);
    if (!fd && is_errno(fd.error(), EEXIST)) continue;
    if (!fd) return fd.error();
    if (const auto g = give_to_owner(lost_found_->fd.get(), fd->get()); !g) return g;
    EncryptedFile::Options options;
    options.suite = volume_.suite;
    auto file = EncryptedFile::open(std::move(*fd), keys_, options);
    if (!file) return file.error();
    if (const auto w = file->write(0, as_bytes(text)); !w) return w;
    if (const auto s = file->sync(false); !s) return s;
    return lower::fsync(lost_found_->fd.get(), false);
  }
  return errno_code(EEXIST);
}

Result<void> Repairer::plan_moves(const std::vector<Finding>& findings) {
  if (const auto o = open_lost_found(); !o) return o;
  planned_.clear();
  std::string text = "What ecfs check --repair has set aside here, and where it was.\n\n";
  for (const auto& f : findings) {
    if (!sets_aside(f.kind) || !f.repairable) continue;
    if (std::any_of(planned_.begin(), planned_.end(), [&](const auto& p) { return p.first == f.lower; })) continue;
    // Under its old lower name, which says more than any other to whoever has a backup of the directory's id. One whose name is good keeps it.
    const std::string wanted(f.kind == Kind::name ? leaf(f.lower) : leaf(f.path));
    std::string name = wanted;
    for (int i = 2;; ++i) {
      const auto lower = lower_name(lost_found_->record, name);
      if (!lower) return lower.error();
      const bool planned = std::any_of(planned_.begin(), planned_.end(), [&](const auto& p) { return p.second == name; });
      if (!planned && !lower::stat_at(lost_found_->fd.get(), lower->name.c_str())) break;
      const std::string suffix = "." + std::to_string(i);
      name = wanted.substr(0, kNameMax - suffix.size()) + suffix;
    }
    planned_.emplace_back(f.lower, name);
    text += name + "\n  was " + (f.path.empty() ? "/" : f.path) + "\n  lower " + f.lower + "\n  " + std::string(word(f.kind)) + ": " + f.detail + "\n";
  }
  return planned_.empty() ? Result<void>() : write_report(text);
}

Result<std::string> Repairer::set_aside(const Finding& finding) {
  const auto plan = std::find_if(planned_.begin(), planned_.end(), [&](const auto& p) { return p.first == finding.lower; });
  if (!lost_found_ || plan == planned_.end()) return std::string();
  const auto dir = open_above(root_, finding.lower);
  if (!dir) return dir.error();
  const std::string old(leaf(finding.lower));
  if (!lower::stat_at(dir->get(), old.c_str())) return std::string();  // with another finding, already
  const auto name = lower_name(lost_found_->record, plan->second);
  if (!name) return name.error();
  const int to = lost_found_->fd.get();
  if (name->is_long()) {
    // On the disk before the object appears. One that is there is of a run that was cut.
    const std::string file = name->name_file();
    if (const auto p = put_file(to, file, file, name->encoded, 0444); !p) return p.error();
  }
  auto moved = lower::rename_at(dir->get(), old.c_str(), to, name->name.c_str(), RENAME_NOREPLACE);
  if (!moved && is_errno(moved.error(), EINVAL)) moved = lower::rename_at(dir->get(), old.c_str(), to, name->name.c_str(), 0);
  if (!moved) return moved.error();
  for (const int fd : {to, dir->get()})
    if (const auto s = lower::fsync(fd, false); !s) return s.error();
  moves_.push_back({finding.lower, join(lost_found_->lower, name->name), join(kLostFound, plan->second)});
  return "is now " + moves_.back().shown;
}

}  // namespace ecfs::check
