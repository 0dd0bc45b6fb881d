// SPDX-License-Identifier: GPL-3.0-or-later
#include "recorder.hpp"

#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/fs.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace ecfs::crash {
namespace {

using lower::Call;
using lower::Op;
using lower::Outcome;

bool changes(const Call& c) {
  switch (c.op) {
    case Op::open: return (c.flags & (O_CREAT | O_TRUNC)) != 0 || (c.flags & O_TMPFILE) == O_TMPFILE;
    case Op::pwrite:
    case Op::ftruncate:
    case Op::fallocate:
    case Op::fsync:
    case Op::mkdir:
    case Op::mknod:
    case Op::symlink:
    case Op::link:
    case Op::unlink:
    case Op::rename:
    case Op::chmod:
    case Op::chown:
    case Op::utimens:
    case Op::setxattr:
    case Op::syncfs:
    case Op::removexattr: return true;
    case Op::pread:
    case Op::seek:
    case Op::stat:
    case Op::readlink:
    case Op::getxattr:
    case Op::listxattr:
    case Op::getdents:
    case Op::statvfs:
    case Op::flock:
    case Op::lock: return false;
  }
  return true;
}

bool stat_of(int fd, const char* name, struct stat& st) {
  return ::fstatat(fd, name ? name : "", &st, AT_SYMLINK_NOFOLLOW | (name ? 0 : AT_EMPTY_PATH)) == 0;
}

}  // namespace

Recorder::Recorder(std::string root) : root_(std::move(root)) {
  struct stat st;
  if (::stat(root_.c_str(), &st) == 0) ids_[st.st_ino] = next_++;  // kRoot
  journal_.base = scan(root_, *journal_.pool, [this](const struct stat& s) { return known(s); });
  live_ = journal_.base;
  lower::set_hook(
      [this](const Call& c) {
        before(c);
        return lower::Verdict{};
      },
      [this](const Call& c, const Outcome& o) { after(c, o); });
}

Recorder::~Recorder() {
  if (recording_) lower::set_hook(nullptr);
}

Id Recorder::known(const struct stat& st) {
  const auto [it, fresh] = ids_.emplace(st.st_ino, next_);
  if (fresh) ++next_;
  return it->second;
}

Id Recorder::id_of(ino_t ino) {
  const std::lock_guard lock(mutex_);
  const auto it = ids_.find(ino);
  return it == ids_.end() ? kNone : it->second;
}

std::size_t Recorder::position() {
  const std::lock_guard lock(mutex_);
  return journal_.events.size();
}

Id Recorder::object_at(int fd, const char* name) {
  struct stat st;
  if (!stat_of(fd, name, st)) {
    fault_ = "an object that was changed cannot be found";
    return kRoot;
  }
  const auto it = ids_.find(st.st_ino);
  if (it == ids_.end()) {
    fault_ = "an object that was changed was never made";
    return kRoot;
  }
  return it->second;
}

// The lock is held until the call has been told, so that the order of events is that of the calls.
void Recorder::before(const Call& c) {
  if (!changes(c)) return;
  mutex_.lock();
  struct stat st;
  if (c.op == Op::open) existed_ = (c.flags & O_TMPFILE) != O_TMPFILE && stat_of(c.fd, c.name, st);
  gone_ = kNone;
  if (c.op == Op::unlink && stat_of(c.fd, c.name, st)) gone_ = known(st);
  if (c.op == Op::rename && stat_of(c.fd2, c.name2, st)) gone_ = known(st);
}

void Recorder::after(const Call& c, const Outcome& o) {
  if (!changes(c)) return;
  if (o.error == 0) record(c, o);
  mutex_.unlock();
}

void Recorder::add(Event event) {
  apply(event, live_, *journal_.pool, true);
  journal_.events.push_back(std::move(event));
}

Event Recorder::make_event(const Call& c, const struct stat& st) {
  Event e{.change = Change::make};
  ids_[st.st_ino] = e.object = next_++;  // a number that an object had before is another object's now
  e.mode = st.st_mode;
  e.uid = st.st_uid;
  e.gid = st.st_gid;
  e.rdev = S_ISCHR(st.st_mode) || S_ISBLK(st.st_mode) ? st.st_rdev : 0;
  if (c.op == Op::symlink) e.value.assign(c.data.begin(), c.data.end());
  return e;
}

void Recorder::record(const Call& c, const Outcome& o) {
  Event e{.change = Change::times};
  struct stat st {};
  switch (c.op) {
    case Op::open: {
      const int fd = static_cast<int>(o.value);
      if (::fstat(fd, &st) != 0) return;
      if ((c.flags & O_TMPFILE) == O_TMPFILE) {
        e = make_event(c, st);
      } else if (!existed_) {
        e = make_event(c, st);
        e.dir = object_at(c.fd, nullptr);
        e.name = c.name;
      } else if (c.flags & O_TRUNC) {
        e.change = Change::resize;
        e.object = known(st);
      } else {
        return;
      }
      break;
    }
    case Op::mkdir:
    case Op::mknod:
    case Op::symlink:
      if (!stat_of(c.fd, c.name, st)) fault_ = "what was made is not there";
      e = make_event(c, st);
      e.dir = object_at(c.fd, nullptr);
      e.name = c.name;
      break;
    case Op::link:
      e.change = Change::link;
      e.object = object_at(c.fd2, c.name2);
      e.dir = object_at(c.fd, nullptr);
      e.name = c.name;
      break;
    case Op::unlink:
      e.change = Change::unlink;
      e.object = gone_;
      e.dir = object_at(c.fd, nullptr);
      e.name = c.name;
      break;
    case Op::rename:
      if (c.flags & RENAME_WHITEOUT) fault_ = "whiteouts are not recorded";
      e.change = Change::rename;
      e.object = gone_;
      e.dir = object_at(c.fd2, nullptr);
      e.name = c.name2;
      e.dir2 = object_at(c.fd, nullptr);
      e.name2 = c.name;
      e.exchange = (c.flags & RENAME_EXCHANGE) != 0;
      break;
    case Op::pwrite: {
      e.change = Change::write;
      e.object = object_at(c.fd, nullptr);
      e.offset = c.offset;
      e.size = static_cast<std::uint64_t>(o.value);
      const Object& object = live_.at(e.object);
      for (std::uint64_t off = e.offset; off < e.offset + e.size;) {
        const std::uint64_t number = off / kPageSize;
        const std::size_t at = off % kPageSize, n = static_cast<std::size_t>(std::min<std::uint64_t>(kPageSize - at, e.offset + e.size - off));
        const auto there = object.pages.find(number);
        Page page = (*journal_.pool)[there == object.pages.end() ? 0 : there->second];
        std::memcpy(page.data() + at, c.data.data() + (off - e.offset), n);
        e.pages.emplace_back(number, journal_.pool->add(page));
        off += n;
      }
      break;
    }
    case Op::ftruncate:
      e.change = Change::resize;
      e.object = object_at(c.fd, nullptr);
      e.size = c.offset;
      break;
    case Op::fallocate:
      e.object = object_at(c.fd, nullptr);
      e.offset = c.offset;
      e.size = c.length;
      if (c.flags & (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE)) e.change = Change::punch;
      if (!(c.flags & FALLOC_FL_KEEP_SIZE)) fault_ = "an allocation that sets the size is not recorded";
      break;
    case Op::chmod:
    case Op::chown:
      e.change = Change::attributes;
      e.object = object_at(c.fd, c.name);
      if (!stat_of(c.fd, c.name, st)) fault_ = "attributes cannot be read";
      e.mode = st.st_mode & 07777;
      e.uid = st.st_uid;
      e.gid = st.st_gid;
      break;
    case Op::utimens: e.object = object_at(c.fd, c.name); break;
    case Op::setxattr:
    case Op::removexattr:
      e.change = c.op == Op::setxattr ? Change::set_xattr : Change::remove_xattr;
      e.object = object_at(c.fd, c.name2);
      e.name = c.name;
      e.value.assign(c.data.begin(), c.data.end());
      break;
    case Op::fsync:
      e.change = c.flags ? Change::data_sync : Change::sync;
      e.object = object_at(c.fd, nullptr);
      break;
    case Op::syncfs: e.change = Change::sync_all; break;
    default: return;
  }
  if (fault_.empty()) add(std::move(e));
}

std::string Recorder::stop() {
  lower::set_hook(nullptr);
  recording_ = false;
  if (!fault_.empty()) return fault_;
  find_barriers(journal_);
  Tree replayed = journal_.base;
  for (const auto& e : journal_.events) apply(e, replayed, *journal_.pool, true);
  Id other = 0;
  std::unordered_map<ino_t, Id> ids;
  const Tree there = scan(root_, *journal_.pool, [&](const struct stat& st) {
    if (ids.empty()) ids[st.st_ino] = kRoot;
    const auto [it, fresh] = ids.emplace(st.st_ino, other + 1);
    if (fresh) ++other;
    return it->second;
  });
  const std::string d = difference(replayed, there, *journal_.pool);
  return d.empty() ? "" : "the journal, replayed, is not the tree that is there: " + d;
}

}  // namespace ecfs::crash
