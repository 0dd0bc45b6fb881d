// SPDX-License-Identifier: GPL-3.0-or-later
#include <fcntl.h>

#include <algorithm>
#include <tuple>

#include "check/walk.hpp"
#include "ecfs/lower.hpp"

namespace ecfs::check {
namespace {

constexpr std::string_view kLongFront = kLongPrefix.substr(0, kLongPrefix.size() - 1);  // of long names, and of copies with a mark inside
constexpr int kReadDir = O_RDONLY | O_DIRECTORY | O_NONBLOCK;
constexpr std::uint64_t kObjectUnits = kPage;  // an object without its content counts as one page of progress
const std::string kDir(kDirFile);

struct Word {
  Kind kind;
  std::string_view word;
};
constexpr Word kKinds[] = {
    {Kind::volume_file, "volume file"},       {Kind::volume_copy, "volume file copy"},   {Kind::size_hint, "size hint"},
    {Kind::first_write, "lost first write"},  {Kind::header, "header"},                  {Kind::block, "block"},
    {Kind::directory_file, "directory id"},   {Kind::directory_copy, "directory id copy"}, {Kind::directory_new, "directory without id"},
    {Kind::directory_lost, "lost directory id"}, {Kind::name, "name"},                   {Kind::target, "link target"},
    {Kind::xattr, "extended attribute"},      {Kind::orphan, "orphan"},                  {Kind::session, "cut session"},
    {Kind::lock_file, "lock file"},           {Kind::foreign, "foreign"},                {Kind::unreadable, "unreadable"},
    {Kind::later, "later version"},
};

std::vector<std::string> names_in(int fd, std::error_code& error) {
  std::vector<std::string> names;
  const auto scanned = lower::read_dir(fd, 0, [&](const lower::Dirent& d) {
    if (!is_dot(d.name)) names.emplace_back(d.name);
    return true;
  });
  if (!scanned) error = scanned.error();
  return names;
}

}  // namespace

std::string_view word(Kind kind) noexcept {
  for (const auto& k : kKinds)
    if (k.kind == kind) return k.word;
  return "?";
}

std::string_view word(Severity severity) noexcept {
  return severity == Severity::note ? "note" : severity == Severity::mends ? "repairable" : "damage";
}

std::string join(std::string_view dir, std::string_view name) {
  std::string out(dir);
  if (!out.empty() && !name.empty()) out += '/';
  return out.append(name);
}

bool is_dot(std::string_view name) noexcept { return name == "." || name == ".."; }

bool is_younger(const timespec& a, const timespec& b) noexcept { return std::tie(a.tv_sec, a.tv_nsec) >= std::tie(b.tv_sec, b.tv_nsec); }

Result<UniqueFd> open_quietly(int dir, const char* name, int flags) {
  auto fd = lower::open_at(dir, name, flags | O_NOATIME);
  if (!fd && is_errno(fd.error(), EPERM)) fd = lower::open_at(dir, name, flags);
  return fd;
}

Result<std::string> read_small(int dir, const char* name, std::size_t max) {
  const auto fd = open_quietly(dir, name, O_RDONLY | O_NONBLOCK);
  if (!fd) return fd.error();
  const auto st = lower::stat_fd(fd->get());
  if (!st) return st.error();
  if (!S_ISREG(st->st_mode)) return errno_code(EINVAL);
  std::string text(max + 1, '\0');
  const auto n = lower::pread(fd->get(), {reinterpret_cast<std::uint8_t*>(text.data()), text.size()}, 0);
  if (!n) return n.error();
  if (*n > max) return errno_code(EFBIG);
  text.resize(*n);
  return text;
}

DirCopies read_dir_copies(int dir, const KeyRing& keys) {
  DirCopies out;
  out.file_text = read_small(dir, kDir.c_str(), DirRecord::kSize);
  out.copy_text = lower::getxattr(dir, nullptr, kDirXattr);
  out.no_xattrs = !out.copy_text && is_errno(out.copy_text.error(), EOPNOTSUPP);
  if (out.file_text) out.file = open_dir_record(keys, as_bytes(*out.file_text));
  if (out.copy_text) out.copy = open_dir_record(keys, as_bytes(*out.copy_text));
  return out;
}

Result<std::string> name_under(const KeyRing& keys, const DirRecord& record, std::string_view encoded) {
  const EpochKeys* epoch = keys.find(record.epoch);
  auto name = epoch ? decode_name(*epoch, record.id, encoded) : Result<std::string>(Errc::damaged_name);
  if (name || record.next_epoch == 0) return name;
  const EpochKeys* next = keys.find(record.next_epoch);
  return next ? decode_name(*next, record.id, encoded) : name;
}

Finding Walk::about(const Dir& dir, std::string_view name, std::string_view plain, Kind kind, Severity severity, std::string detail) const {
  Finding f;
  f.kind = kind;
  f.severity = severity;
  f.path = join(dir.path, plain);
  f.lower = join(dir.lower, name);
  f.detail = std::move(detail);
  f.changed = dir.changed;
  f.repairable = severity == Severity::mends;
  f.lost_and_found = dir.set_aside;
  return f;
}

void Walk::add(Finding finding) {
  // What a daemon at work leaves for a moment, and what would be the leavings of one that was cut, look alike.
  const bool may_be_work = finding.kind != Kind::block && finding.kind != Kind::header && finding.kind != Kind::xattr &&
                           finding.severity != Severity::note && finding.kind != Kind::unreadable;
  const std::lock_guard lock(mutex_);
  if (may_be_work && in_flight(finding.changed))
    ++report_.unsettled;
  else
    report_.findings.push_back(std::move(finding));
}

void Walk::cannot(const Dir& dir, std::string_view name, std::string_view plain, const std::error_code& why) {
  {
    const std::lock_guard lock(mutex_);
    incomplete_ = true;
  }
  // Gone since it was listed.
  if (is_errno(why, ENOENT) || is_errno(why, ESTALE)) return;
  add(about(dir, name, plain, Kind::unreadable, Severity::damage, why.message()));
}

// Which of the two copies of its id a directory has; and what is to be said of the other.
void Walk::settle_record(Dir& dir, const std::vector<std::string>& names) {
  const DirCopies c = read_dir_copies(dir.fd.get(), keys_);
  const auto say = [&](Kind kind, Severity severity, std::string detail) { add(about(dir, "", "", kind, severity, std::move(detail))); };
  if (c.file && c.copy && (*c.file_text != *c.copy_text)) {
    // The file counts, but where it is another directory's the names tell.
    std::size_t by_file = 0, by_copy = 0, tried = 0;
    for (const auto& name : names) {
      if (name.starts_with(kReservedPrefix)) continue;
      by_file += name_under(keys_, *c.file, name).has_value();
      by_copy += name_under(keys_, *c.copy, name).has_value();
      if (++tried == 64) break;
    }
    dir.record = by_copy > by_file ? *c.copy : *c.file;
    if (by_copy > by_file)
      say(Kind::directory_file, Severity::mends, "ecfs.dir is another directory's; the copy of it in the xattr is right");
    else
      say(Kind::directory_copy, Severity::mends, "the xattr says another id than ecfs.dir");
    return;
  }
  if (c.file) {
    dir.record = *c.file;
    if (c.copy || c.no_xattrs) return;
    const bool missing = !c.copy_text && is_errno(c.copy_text.error(), ENODATA);
    say(Kind::directory_copy, Severity::mends, missing ? "the copy of ecfs.dir in the xattr is missing" : "the copy of ecfs.dir in the xattr is damaged");
    return;
  }
  const bool missing = !c.file_text && is_errno(c.file_text.error(), ENOENT);
  const bool refused = !c.file_text && (is_errno(c.file_text.error(), EACCES) || is_errno(c.file_text.error(), EIO));
  if (c.copy) {
    dir.record = *c.copy;
    say(Kind::directory_file, Severity::mends, missing ? "ecfs.dir is missing" : refused ? "ecfs.dir cannot be read" : "ecfs.dir is damaged");
    return;
  }
  dir.lost = true;
  if (refused && is_errno(c.file_text.error(), EACCES)) return cannot(dir, kDir, kDir, c.file_text.error());
  const bool empty = std::all_of(names.begin(), names.end(), [&](const auto& n) {
    return n == kDirFile || n == kDir + std::string(kNewSuffix) || n == kLockFile;
  });
  if (empty)
    say(Kind::directory_new, Severity::mends, "the directory is empty and has no id: making it was cut");
  else {
    auto f = about(dir, "", "", Kind::directory_lost, Severity::damage, "both copies of the directory's id are lost; the names in it cannot be read");
    f.repairable = true;
    add(std::move(f));
  }
}

Result<void> Walk::look_into(std::shared_ptr<Dir> dir) {
  if (stopped()) return {};
  const auto st = lower::stat_fd(dir->fd.get());
  if (!st) return st.error();
  dir->changed = st->st_ctim;
  std::error_code error;
  const auto names = names_in(dir->fd.get(), error);
  if (error) return error;
  if (!plain_names()) settle_record(*dir, names);
  {
    const std::lock_guard lock(mutex_);
    ++report_.counts.directories;
  }
  done(kObjectUnits);
  const DirPtr shared = dir;
  if (options_.scrub) xattrs(*dir, nullptr, "", dir->fd.get(), *st);

  // Names that a name file may belong to: long names, and what copies are copies of.
  std::unordered_set<std::string> long_names;
  std::vector<std::string> others;
  for (const auto& name : names) {
    if (!plain_names() && name.starts_with(kLongFront)) {
      long_names.insert(name);
      for (const auto& reading : copy_readings(name)) long_names.insert(reading.of);
    }
    const bool own = plain_names() ? dir->root && is_own_name(name, true) && !name.starts_with(kLongNamePrefix) : is_own_name(name, dir->root);
    if (!own) others.push_back(name);
  }
  for (const auto& name : names)
    if (plain_names() ? dir->root && is_own_name(name, true) && !name.starts_with(kLongNamePrefix) : is_own_name(name, dir->root))
      own_file(*dir, name, long_names);

  // A directory of very many files is shared out.
  constexpr std::size_t kBatch = 128;
  const auto batch = [this, shared](const std::vector<std::string>& part) {
    for (const auto& name : part) {
      if (stopped()) return;
      entry(shared, name);
    }
  };
  if (options_.jobs <= 1 || others.size() <= kBatch) {
    batch(others);
    return {};
  }
  for (std::size_t at = 0; at < others.size(); at += kBatch) {
    const std::size_t end = std::min(others.size(), at + kBatch);
    tasks_.push([batch, part = std::vector<std::string>(others.begin() + static_cast<std::ptrdiff_t>(at), others.begin() + static_cast<std::ptrdiff_t>(end))] { batch(part); });
  }
  return {};
}

void Walk::own_file(const Dir& dir, const std::string& name, const std::unordered_set<std::string>& long_names) {
  const auto orphan = [&](std::string detail) {
    auto f = about(dir, name, name, Kind::orphan, Severity::mends, std::move(detail));
    const auto st = lower::stat_at(dir.fd.get(), name.c_str());
    if (!st) return;
    f.changed = st->st_ctim;
    add(std::move(f));
  };
  if (name.ends_with(kNewSuffix)) {
    VolumeError ignored;
    // Should it be all that there is, it stays.
    if (name.starts_with(kVolumeFile) && !load_volume(dir.fd.get(), ignored)) return;
    return orphan("it was not yet in place when its making was cut");
  }
  if (name.starts_with(kTargetPrefix)) {
    const std::lock_guard lock(mutex_);
    target_files_.push_back(name);
    return;
  }
  if (name == kLockFile) {
    const auto st = lower::stat_at(dir.fd.get(), name.c_str());
    if (st && !S_ISREG(st->st_mode)) add(about(dir, name, name, Kind::lock_file, Severity::damage, "ecfs.lock is not a regular file"));
    return;
  }
  if (!name.starts_with(kLongNamePrefix)) return;
  const std::string owner = std::string(kLongPrefix) + name.substr(kLongNamePrefix.size());
  if (long_names.contains(owner)) return;
  // Listed before its object was made, perhaps.
  if (!lower::stat_at(dir.fd.get(), owner.c_str())) orphan("there is no object with this name");
}

// After everything else: which target files do links name?
void Walk::target_files(const Dir& root) {
  for (const auto& name : target_files_) {
    if (named_targets_.contains(name) || incomplete_) continue;
    const auto st = lower::stat_at(root.fd.get(), name.c_str());
    // One that may be executed is named from elsewhere, too: nobody can tell how often, and it never goes.
    if (!st || (st->st_mode & S_IXUSR)) continue;
    auto f = about(root, name, name, Kind::orphan, Severity::mends, "no link names it");
    f.changed = st->st_ctim;
    add(std::move(f));
  }
}

void Walk::subdirectory(const DirPtr& parent, const std::string& name, const Named& named) {
  tasks_.push([this, parent, name, named] {
    auto fd = open_quietly(parent->fd.get(), name.c_str(), kReadDir);
    if (!fd) return cannot(*parent, name, named.plain, fd.error());
    auto dir = std::make_shared<Dir>();
    dir->fd = std::move(*fd);
    dir->path = join(parent->path, named.plain);
    dir->lower = join(parent->lower, name);
    dir->set_aside = parent->set_aside || dir->path == kLostFound;
    if (const auto r = look_into(dir); !r) cannot(*parent, name, named.plain, r.error());
  });
}

void Walk::volume_file(const Dir& root) {
  VolumeError error;
  const auto volume = load_volume(root.fd.get(), error);
  const auto good = volume ? verify_volume(*volume, keys_) : Result<void>(error.code);
  if (good) return;
  const std::string name(kVolumeFile);
  add(about(root, name, name, Kind::volume_file, Severity::damage, volume ? "it does not match its MAC: it was changed" : error.part));
}

Result<Report> Walk::run(int root) {
  auto fd = lower::reopen(root, kReadDir);
  if (!fd) return fd.error();
  auto dir = std::make_shared<Dir>();
  dir->fd = std::move(*fd);
  dir->root = true;
  root_ = dir->fd.get();
  volume_file(*dir);
  if (const auto r = look_into(dir); !r) return r.error();
  tasks_.run(options_.jobs);
  report_.stopped = stopped();
  if (!report_.stopped) target_files(*dir);
  std::sort(report_.findings.begin(), report_.findings.end(),
            [](const Finding& a, const Finding& b) { return std::tie(a.lower, a.offset, a.kind) < std::tie(b.lower, b.offset, b.kind); });
  return std::move(report_);
}

Result<Report> scan(int root, const Volume& volume, const KeyRing& keys, const Options& options) { return Walk(volume, keys, options).run(root); }

Result<std::uint64_t> measure(int root, bool scrub, const std::atomic<bool>* stop) {
  auto first = lower::reopen(root, kReadDir);
  if (!first) return first.error();
  std::uint64_t units = 0;
  struct Level {
    UniqueFd fd;
    std::vector<std::string> left;
  };
  std::vector<Level> stack;
  const auto enter = [&](UniqueFd fd) {
    std::error_code ignored;  // what cannot be listed now is told by the scan
    auto names = names_in(fd.get(), ignored);
    units += kObjectUnits;
    stack.push_back({std::move(fd), std::move(names)});
  };
  enter(std::move(*first));
  while (!stack.empty() && !(stop && stop->load())) {
    Level& level = stack.back();
    if (level.left.empty()) {
      stack.pop_back();
      continue;
    }
    const std::string name = std::move(level.left.back());
    level.left.pop_back();
    const auto st = lower::stat_at(level.fd.get(), name.c_str());
    if (!st) continue;
    if (S_ISDIR(st->st_mode)) {
      if (auto fd = open_quietly(level.fd.get(), name.c_str(), kReadDir)) enter(std::move(*fd));
    } else if (!name.starts_with(kReservedPrefix) || name.starts_with(kLongFront)) {
      units += kObjectUnits + (scrub ? static_cast<std::uint64_t>(st->st_blocks) * 512 : 0);
    }
  }
  return units;
}

}  // namespace ecfs::check
