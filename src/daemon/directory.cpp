// SPDX-License-Identifier: GPL-3.0-or-later
// Filesystem: directories, their ids, the names in them, and listing.
#include <dirent.h>
#include <fcntl.h>

#include <algorithm>
#include <cstring>

#include "daemon/filesystem.hpp"
#include "ecfs/lower.hpp"

namespace ecfs::daemon {
namespace {

const std::string kDir(kDirFile);
const std::string kDirNew = kDir + std::string(kNewSuffix);
constexpr int kReadDir = O_RDONLY | O_DIRECTORY | O_NONBLOCK;

// For our own looking: no time moves where we may ask for that.
Result<UniqueFd> open_quietly(int dir, const char* name, int flags) {
  auto fd = lower::open_at(dir, name, flags | O_NOATIME);
  if (!fd && is_errno(fd.error(), EPERM)) fd = lower::open_at(dir, name, flags);
  return fd;
}

Result<std::string> read_small(int dir, const char* name, std::size_t max) {
  const auto fd = open_quietly(dir, name, O_RDONLY | O_NONBLOCK);
  if (!fd) return fd.error();
  std::string text(max + 1, '\0');
  const auto n = lower::pread(fd->get(), {reinterpret_cast<std::uint8_t*>(text.data()), text.size()}, 0);
  if (!n) return n.error();
  if (*n > max) return errno_code(EFBIG);
  text.resize(*n);
  return text;
}

// A default ACL of the directory may have taken bits away, and an ordinary user's daemon could then not read its own file.
Result<void> set_mode(int fd, mode_t mode) {
  const auto st = lower::stat_fd(fd);
  if (!st) return st.error();
  return (st->st_mode & 07777) == mode ? Result<void>() : lower::chmod_fd(fd, mode);
}

}  // namespace

Result<void> write_synced(int dir, const char* name, std::string_view content, bool sync) {
  constexpr mode_t kMode = 0444;
  const auto fd = lower::open_at(dir, name, O_WRONLY | O_CREAT | O_EXCL, kMode);
  if (!fd) return fd.error();
  const auto w = lower::pwrite(fd->get(), as_bytes(content), 0);
  auto result = w.error ? Result<void>(w.error) : Result<void>();
  if (result) result = set_mode(fd->get(), kMode);
  if (result && sync) result = lower::fsync(fd->get(), false);
  if (!result) (void)lower::unlink_at(dir, name, false);
  return result;
}

namespace {

// What cannot be set is only a time.
void set_mtime(int fd, const timespec& mtime) {
  const timespec times[2] = {{0, UTIME_OMIT}, mtime};
  (void)lower::utimens_fd(fd, times);
}

bool is_dot(std::string_view name) { return name == "." || name == ".."; }

}  // namespace

// By its descriptor, since looking up "." in it would need search permission.
Result<UniqueFd> Filesystem::reopen_quietly(int dir) {
  auto fd = lower::reopen(dir, kReadDir | O_NOATIME);
  if (!fd && is_errno(fd.error(), EPERM)) fd = lower::reopen(dir, kReadDir);
  return fd;
}

Filesystem::DirPtr Filesystem::make_open_dir(UniqueFd fd, bool root) {
  // Before the record is read: what it is found to be later says whether that is still what stands there.
  const auto file = config_.changes_beneath && !plain_names() ? stat_of(fd.get(), kDir.c_str()) : Result<lower::Stat>(errno_code(ENODATA));
  auto record = plain_names() ? Result<DirRecord>(DirRecord{})
                              : lending(fd.get(), S_IRUSR | S_IXUSR, [&] { return read_dir_record(fd.get()); });
  auto dir = std::make_shared<OpenDir>(std::move(fd), std::move(record));
  dir->root = root;
  if (file) dir->record_file = *file;
  return dir;
}

// The cached descriptor, or the way down to it from the nearest ancestor that is open.
Result<Filesystem::DirPtr> Filesystem::open_dir(const NodePtr& node, bool names_held) {
  if (node->type != S_IFDIR) return errno_code(ENOTDIR);
  // What was moved while it was looked for is looked for once more, with no rename between its lower call and its nodes' change.
  std::shared_lock names(names_mutex_, std::defer_lock);
  for (int attempt = 0; attempt < 2; ++attempt) {
    if (attempt > 0 && !names_held) names.lock();
    if (node == nodes_.root()) return root_names();
    if (auto dir = nodes_.dirs.get(*node)) {
      if (!config_.changes_beneath) return dir;
      const auto st = stat_of(dir->fd.get());
      if (!st && !is_errno(st.error(), ESTALE)) return st.error();
      if (st && st->st_nlink > 0 && record_is_current(*dir)) return dir;
      nodes_.dirs.drop(*node);  // removed, perhaps with another now under its number; or its id is another by now
    }
    if (nodes_.pin(*node) || nodes_.removed(*node)) return errno_code(ENOENT);  // removed, and only still open
    std::vector<std::pair<NodePtr, std::string>> down;
    DirPtr base;
    for (NodePtr at = node; !base;) {
      auto link = nodes_.where(*at);
      if (!link) return errno_code(ESTALE);
      down.emplace_back(at, std::move(link->name));
      at = link->parent;
      base = at == nodes_.root() ? root_dir_ : nodes_.dirs.get(*at);
    }
    bool moved = false;
    for (auto step = down.rbegin(); step != down.rend() && !moved; ++step) {
      const int above = base->fd.get();
      auto fd = lending(above, S_IXUSR, [&] { return lower::open_at(above, step->second.c_str(), O_PATH | O_DIRECTORY); });
      if (!fd) {
        moved = is_errno(fd.error(), ENOENT) || is_errno(fd.error(), ENOTDIR) || is_errno(fd.error(), ELOOP);
        if (!moved) return fd.error();
        break;
      }
      const auto st = stat_of(fd->get());
      if (!st) return st.error();
      moved = NodeKey::of(*st) != step->first->key;
      if (moved) break;
      auto dir = make_open_dir(std::move(*fd), false);
      // What may not be read now may be after a chmod: not kept.
      // Nor is an id that does not stand in its file yet.
      const bool keep = (dir->record.has_value() || !is_errno(dir->record.error(), EACCES)) &&
                        (!config_.changes_beneath || plain_names() || dir->record_file);
      if (!keep && step + 1 == down.rend()) return dir;
      base = keep ? nodes_.dirs.put(step->first, std::move(dir)) : std::move(dir);
    }
    if (!moved) return base;
  }
  return errno_code(ESTALE);
}

// The root's directory, with the id that it has now.
Filesystem::DirPtr Filesystem::root_names() {
  if (!config_.changes_beneath) return root_dir_;
  (void)stat_of(root_dir_->fd.get());  // a network's filesystem then looks names up anew
  if (plain_names()) return root_dir_;
  const std::lock_guard lock(root_mutex_);
  if (record_is_current(*root_names_)) return root_names_;
  auto fd = lower::dup_fd(root_dir_->fd.get());
  if (!fd) return root_names_;
  return root_names_ = make_open_dir(std::move(*fd), true);
}

// Both copies are read; the good one mends the other. The file wins where both are good.
Result<DirRecord> Filesystem::read_dir_record(int dir) {
  const auto text = read_small(dir, kDir.c_str(), DirRecord::kSize);
  const auto copy = lower::getxattr(dir, nullptr, kDirXattr);
  auto by_file = text ? open_dir_record(config_.keys, as_bytes(*text)) : Result<DirRecord>(text.error());
  auto by_copy = copy ? open_dir_record(config_.keys, as_bytes(*copy)) : Result<DirRecord>(copy.error());
  const auto denied = [](const std::error_code& e) { return is_errno(e, EACCES) || is_errno(e, EPERM); };
  if (by_file) {
    // Mending is on the side: where it fails the good copy still serves, and the next opening tries again.
    if (!by_copy && may_mend() && !denied(by_copy.error())) (void)lower::setxattr(dir, nullptr, kDirXattr, *text, 0);
    return by_file;
  }
  if (by_copy) {
    if (may_mend() && !denied(by_file.error())) (void)write_dir_record(dir, as_bytes(*copy));
    return by_copy;
  }
  if (denied(by_file.error()) && denied(by_copy.error())) return errno_code(EACCES);
  if (!text && !is_errno(text.error(), ENOENT) && !denied(text.error()) && !is_errno(text.error(), EFBIG)) return text.error();

  // A mkdir that was cut leaves a directory without an id and without anything else.
  const auto listing = reopen_quietly(dir);
  if (!listing) return denied(listing.error()) ? errno_code(EACCES) : listing.error();
  bool empty = true;
  const auto scanned = lower::read_dir(listing->get(), 0, [&](const lower::Dirent& d) {
    empty = is_dot(d.name) || d.name == kDir || d.name == kDirNew || d.name == kLockFile;
    return empty;
  });
  if (!scanned) return scanned.error();
  if (!empty) return Errc::damaged_directory;
  return new_dir_record(dir);
}

Result<DirRecord> Filesystem::new_dir_record(int dir, pid_t caller) {
  DirRecord record;
  random_bytes(record.id);
  record.epoch = config_.keys.newest().epoch;
  if (!may_mend()) return record;  // it holds nothing, so any id will do
  const auto raw = seal_dir_record(config_.keys, record);
  if (!raw) return raw.error();
  if (const auto w = write_dir_record(dir, *raw, caller); !w) return w.error();
  return record;
}

// The xattr first: it is journaled with the inode. Where there are no user xattrs, the file must have reached the disk before the
// first entry is made.
Result<void> Filesystem::write_dir_record(int dir, std::span<const std::uint8_t> raw, pid_t caller) {
  const auto st = lower::stat_fd(dir);
  if (!st) return st.error();
  // The directory's owner pays for its id; and the id is readable to whoever may enter, whatever the umask.
  const Caller owner{st->st_uid, st->st_gid, caller, 0};
  const std::string_view content(reinterpret_cast<const char*>(raw.data()), raw.size());
  const bool journaled = as_caller(owner, [&] { return lower::setxattr(dir, nullptr, kDirXattr, content, 0); }).has_value();
  auto w = as_caller(owner, [&] { return write_synced(dir, kDir.c_str(), content, !journaled); });
  if (!w && is_errno(w.error(), EEXIST)) {
    (void)lower::unlink_at(dir, kDirNew.c_str(), false);  // of a mending that was cut
    w = as_caller(owner, [&] { return write_synced(dir, kDirNew.c_str(), content, true); });
    if (w) w = lower::rename_at(dir, kDirNew.c_str(), dir, kDir.c_str(), 0);
  }
  if (!w || journaled) return w;
  const auto self = reopen_quietly(dir);
  return self ? lower::fsync(self->get(), false) : Result<void>(self.error());
}

Result<void> Filesystem::sync_dir(const NodePtr& node, bool data_only) {
  const auto dir = open_dir(node);
  if (!dir) return is_errno(dir.error(), ENOENT) ? Result<void>() : Result<void>(dir.error());  // removed: nothing to keep
  const auto fd = lending((*dir)->fd.get(), S_IRUSR, [&] { return reopen_quietly((*dir)->fd.get()); });
  return fd ? lenient(lower::fsync(fd->get(), data_only)) : Result<void>(fd.error());
}

Result<Filesystem::Emptied> Filesystem::empty_dir(int parent, const char* name, const NodePtr& parent_node) {
  Emptied out;
  if (plain_names()) return out;  // nothing of ours is in it; the lower call knows whether it is empty
  // A directory without write or search permission can be removed, but not emptied: its owner lends itself the bits.
  const auto widen = [&]() -> Result<void> {
    const auto st = lower::stat_at(parent, name);
    if (!st) return st.error();
    if (out.mode || (st->st_mode & S_IRWXU) == S_IRWXU) return errno_code(EACCES);
    out.mode = st->st_mode & 07777;
    return lower::chmod_at(parent, name, *out.mode | S_IRWXU);
  };
  const auto undone = [&](std::error_code error) {
    restore(out);
    return error;
  };
  auto listing = open_quietly(parent, name, kReadDir);
  if (!listing && is_errno(listing.error(), EACCES)) {
    if (const auto w = widen(); !w) return undone(w.error());
    listing = open_quietly(parent, name, kReadDir);
  }
  if (!listing) return undone(listing.error());
  out.dir = std::move(*listing);
  const int dir = out.dir.get();

  const auto before = lower::stat_fd(dir);
  if (!before) return undone(before.error());
  out.mtime = before->st_mtim;

  std::vector<std::string> own, other;
  const auto scanned = lower::read_dir(dir, 0, [&](const lower::Dirent& d) {
    if (is_dot(d.name)) return true;
    (is_own_name(d.name, false) ? own : other).emplace_back(d.name);
    return other.size() < 64;  // enough to tell
  });
  if (!scanned) return undone(scanned.error());
  if (!other.empty()) {
    const OpenDir as_dir(UniqueFd(lower::dup_fd(dir).value_or(UniqueFd()).release()), read_dir_record(dir));
    const bool seen = std::any_of(other.begin(), other.end(), [&](const auto& n) { return plain_name(as_dir, n) || copy_name(as_dir, n); });
    if (!seen) note(damage_.foreign, "a directory that looks empty holds entries that are not ecfs's; it is kept", parent_node, name);
    return undone(errno_code(ENOTEMPTY));
  }
  if (auto text = read_small(dir, kDir.c_str(), DirRecord::kSize)) out.record = std::move(*text);
  // A name file without its entry is of an operation that was cut.
  for (const auto& n : own) {
    auto r = lower::unlink_at(dir, n.c_str(), false);
    if (!r && is_errno(r.error(), EACCES)) {
      if (const auto w = widen(); !w) return undone(w.error());
      r = lower::unlink_at(dir, n.c_str(), false);
    }
    if (!r && !is_errno(r.error(), ENOENT)) return undone(r.error());
  }
  set_mtime(dir, out.mtime);
  return out;
}

void Filesystem::restore(const Emptied& dir) {
  if (!dir.dir) return;
  // Where this fails the xattr copy has the id.
  if (const auto st = lower::stat_fd(dir.dir.get()); st && !dir.record.empty()) {
    (void)as_caller({st->st_uid, st->st_gid, 0, 0}, [&] { return write_synced(dir.dir.get(), kDir.c_str(), dir.record, false); });
    set_mtime(dir.dir.get(), dir.mtime);
  }
  if (dir.mode) (void)lower::chmod_fd(dir.dir.get(), *dir.mode);
}

Result<LowerName> Filesystem::encode_in(const OpenDir& dir, Epoch epoch, std::string_view name) const {
  const EpochKeys* keys = config_.keys.find(epoch);
  if (!keys) return Errc::damaged_directory;
  return encode_name(*keys, dir.record->id, name, config_.volume.long_name_max);
}

// The lower name: the one that exists, where names are being rotated, else the one to make.
Result<LowerName> Filesystem::name_in(const OpenDir& dir, std::string_view name) const {
  if (name.size() > kNameMax) return errno_code(ENAMETOOLONG);
  if (plain_names()) {
    if (dir.root && name.starts_with(kReservedPrefix)) return errno_code(EPERM);
    return LowerName{std::string(name), {}};
  }
  if (!dir.record) return dir.record.error();
  // An old copy of the volume file may lack the next epoch's key.
  if (!config_.keys.find(dir.record->next_epoch)) return encode_in(dir, dir.record->epoch, name);
  const auto newer = encode_in(dir, dir.record->next_epoch, name);
  if (!newer || lower::stat_at(dir.fd.get(), newer->name.c_str())) return newer;
  const auto older = encode_in(dir, dir.record->epoch, name);
  if (!older || lower::stat_at(dir.fd.get(), older->name.c_str())) return older;
  return newer;
}

// ENOENT for what is the format's own, damaged_name for what is nobody's, another errno where it cannot be known.
Result<std::string> Filesystem::plain_name(const OpenDir& dir, std::string_view lower_name) const {
  if (plain_names()) {
    if (!dir.root || !lower_name.starts_with(kReservedPrefix)) return std::string(lower_name);
    return is_own_name(lower_name, true) ? errno_code(ENOENT) : Result<std::string>(Errc::damaged_name);
  }
  if (!dir.record) return dir.record.error();
  if (is_own_name(lower_name, dir.root)) return errno_code(ENOENT);
  std::string encoded(lower_name);
  if (lower_name.starts_with(kLongPrefix)) {
    const LowerName name{std::string(lower_name), {}};
    const std::string file = name.name_file();
    auto text = lending(dir.fd.get(), S_IXUSR, [&] { return read_small(dir.fd.get(), file.c_str(), 4096); });
    if (!text && config_.changes_beneath && !lower::stat_at(dir.fd.get(), name.name.c_str())) return errno_code(ENOENT);  // gone since it was listed
    // What cannot be read now is not nobody's: an error, rather than a listing without it that the kernel would keep. But what is no file is
    // not ours, and must not make the whole directory unreadable: a link, a directory, a FIFO or a socket.
    constexpr int kNobodys[] = {ENOENT, EFBIG, ELOOP, EISDIR, ESPIPE, ENXIO};
    if (!text && std::ranges::none_of(kNobodys, [&](int e) { return is_errno(text.error(), e); })) return text.error();
    if (!text || hash_name(*text) != lower_name.substr(kLongPrefix.size())) return Errc::damaged_name;
    encoded = std::move(*text);
  }
  const EpochKeys* keys = config_.keys.find(dir.record->epoch);
  auto name = keys ? decode_name(*keys, dir.record->id, encoded) : Result<std::string>(Errc::damaged_directory);
  if (!name && dir.record->next_epoch != 0)
    if (const EpochKeys* next = config_.keys.find(dir.record->next_epoch)) name = decode_name(*next, dir.record->id, encoded);
  return name;
}

// Written and synced before the entry appears.
Result<void> Filesystem::prepare_long_name(const OpenDir& dir, const LowerName& name, const Caller& owner) {
  if (!name.is_long()) return {};
  const std::string file = name.name_file();
  const auto write = [&] {
    return as_caller({owner.uid, owner.gid, owner.pid, 0}, [&] { return write_synced(dir.fd.get(), file.c_str(), name.encoded, true); });
  };
  auto w = write();
  if (w || !is_errno(w.error(), EEXIST)) return w;
  // There already: the entry exists, or an operation was cut, perhaps before the content reached the disk.
  const auto text = read_small(dir.fd.get(), file.c_str(), 4096);
  if (text && *text == name.encoded) {
    const auto fd = lower::open_at(dir.fd.get(), file.c_str(), O_RDONLY);
    return fd ? lower::fsync(fd->get(), false) : Result<void>(fd.error());
  }
  if (const auto u = lower::unlink_at(dir.fd.get(), file.c_str(), false); !u) return u;
  return write();
}

// Goes when the entry is not there, be it gone or never made, and no copy of it needs it. Left behind by a fault it is an orphan that
// nothing reads.
void Filesystem::drop_long_name(const NodePtr& parent, const DirPtr& dir, const LowerName& name) {
  if (!name.name.starts_with(kLongPrefix) || plain_names()) return;
  const auto entry = lower::stat_at(dir->fd.get(), name.name.c_str());
  if (!entry && is_errno(entry.error(), ENOENT) && !has_copy_of(parent, dir, name.name))
    (void)lower::unlink_at(dir->fd.get(), name.name_file().c_str(), false);
}

Result<void> Filesystem::list(const NodePtr& node, std::uint64_t off, bool with_attributes,
                              const std::function<bool(const Listed&)>& each, bool quiet) {
  const auto dir = open_dir(node);
  if (!dir) return dir.error();
  const OpenDir& open = **dir;
  if (!open.record) return noted(node, Result<void>(open.record.error()));
  auto fd = lending(open.fd.get(), S_IRUSR, [&] {
    return quiet || config_.noatime || config_.nodiratime ? reopen_quietly(open.fd.get()) : lower::reopen(open.fd.get(), kReadDir);
  });
  if (!fd) return fd.error();
  std::error_code failed;
  const auto scanned = lower::read_dir(fd->get(), off, [&](const lower::Dirent& d) {
    Listed listed;
    listed.next = d.next;
    listed.ino = d.ino;
    listed.type = DTTOIF(d.type);
    if (is_dot(d.name)) {
      listed.name = d.name;
      if (node == nodes_.root()) listed.ino = node->key.ino;  // what is above the root is not ours to show
      return each(listed);
    }
    auto name = shown_name(node, *dir, d.name);
    if (!name) {
      if (is_errno(name.error(), ENOENT)) return true;
      if (name.error() != Errc::damaged_name) {
        failed = name.error();
        return false;
      }
      note(damage_.foreign, "an entry whose name does not decode is left out", node, d.name);
      return true;
    }
    listed.name = std::move(*name);
    if (with_attributes) {
      // `encoded` matters only for making; the entry exists.
      auto entry = entry_at(node, Place{*dir, LowerName{std::string(d.name), {}}});
      if (entry)
        listed.entry = std::move(*entry);
      else if (is_errno(entry.error(), ENOENT))
        return true;  // gone since
    }
    if (each(listed)) return true;
    if (listed.entry) nodes_.forget(listed.entry->node, 1);
    return false;
  });
  return failed ? Result<void>(failed) : scanned;
}

Result<std::string> Filesystem::lower_path(std::string_view plain_path) {
  std::string out;
  NodePtr held;  // the lookup that lets us stand on the directory we are in
  NodePtr at = nodes_.root();
  bool exists = true;
  std::error_code error;
  while (!plain_path.empty() && !error) {
    const std::string_view name = plain_path.substr(0, plain_path.find('/'));
    plain_path.remove_prefix(std::min(plain_path.size(), name.size() + 1));
    if (name.empty() || name == ".") continue;
    if (name == "..") {
      error = errno_code(EINVAL);
      break;
    }
    if (!exists) {
      error = errno_code(ENOENT);  // only the last component may be missing
      break;
    }
    auto where = place(at, name);
    if (!where) {
      error = where.error();
      break;
    }
    auto entry = entry_called(at, *where, name);
    out += (out.empty() ? "" : "/") + where->name.name;
    exists = entry.has_value();
    if (!exists) continue;
    if (held) nodes_.forget(held, 1);
    held = at = entry->node;
    if (!plain_path.empty() && at->type != S_IFDIR) error = errno_code(ENOTDIR);
  }
  if (held) nodes_.forget(held, 1);
  if (error) return error;
  return out;
}

Result<std::string> Filesystem::plain_path(std::string_view lower_path) {
  std::string out;
  auto fd = lower::dup_fd(root_dir_->fd.get());
  if (!fd) return fd.error();
  bool root = true;
  while (!lower_path.empty()) {
    const std::string_view name = lower_path.substr(0, lower_path.find('/'));
    lower_path.remove_prefix(std::min(lower_path.size(), name.size() + 1));
    if (name.empty() || name == ".") continue;
    if (name == "..") return errno_code(EINVAL);
    const DirPtr dir = make_open_dir(std::move(*fd), root);
    root = false;
    auto plain = plain_name(*dir, name);
    if (!plain && plain.error() == Errc::damaged_name) plain = copy_name(*dir, name);
    if (!plain) return plain.error();
    out += "/" + *plain;
    if (lower_path.empty()) break;
    fd = lower::open_at(dir->fd.get(), std::string(name).c_str(), O_PATH | O_DIRECTORY);
    if (!fd) return fd.error();
  }
  return out.empty() ? "/" : out;
}

std::string Filesystem::lower_path_of(const NodePtr& node) {
  std::string path;
  for (NodePtr at = node; at && at != nodes_.root();) {
    auto link = nodes_.where(*at);
    if (!link) return path.empty() ? "(removed)" : "(removed)/" + path;
    path = path.empty() ? link->name : link->name + "/" + path;
    at = link->parent;
  }
  return path.empty() ? "." : path;
}

void Filesystem::note(std::atomic<std::uint64_t>& counter, const char* what, const NodePtr& node, std::string_view lower_name) {
  std::string path = lower_path_of(node);
  if (!lower_name.empty()) path += "/" + std::string(lower_name);
  // Damage is counted as often as it is met; a foreign entry is one however often its directory is listed.
  if (log_once(what, path) || &counter != &damage_.foreign) counter.fetch_add(1, std::memory_order_relaxed);
}

bool Filesystem::log_once(const char* what, const std::string& path) {
  constexpr std::size_t kLogged = 1024, kRemembered = 65536;  // after so many different ones, the log has said enough
  bool fresh = false, say = false;
  {
    const std::lock_guard lock(log_mutex_);
    const std::size_t key = std::hash<std::string>()(std::string(what) + '\0' + path);
    fresh = noted_.size() < kRemembered ? noted_.insert(key).second : !noted_.contains(key);
    say = fresh && noted_.size() <= kLogged;
  }
  if (say && config_.log) config_.log(what, path);
  return fresh;
}

}  // namespace ecfs::daemon
