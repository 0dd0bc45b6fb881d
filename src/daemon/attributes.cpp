// SPDX-License-Identifier: GPL-3.0-or-later
// Filesystem: attributes, owners, times, extended attributes.
#include <fcntl.h>
#include <sys/xattr.h>

#include <algorithm>

#include "daemon/filesystem.hpp"
#include "ecfs/lower.hpp"

namespace ecfs::daemon {
namespace {

constexpr std::string_view kUser = "user.";
constexpr std::string_view kTrusted = "trusted.";
constexpr std::string_view kAcl = "system.posix_acl_";
constexpr std::string_view kCapability = "security.capability";
constexpr blksize_t kListingRequest = 128 * 1024;
constexpr std::size_t kSealedText = 60;  // no sealed target has a shorter text (docs/FORMAT.md)

}  // namespace

Result<std::string> Filesystem::read_target_file(const std::string& name) {
  const int root = root_dir_->fd.get();
  const auto fd = lending(root, S_IXUSR, [&] { return lower::open_at(root, name.c_str(), O_RDONLY | O_NONBLOCK); });
  if (!fd) return is_errno(fd.error(), ENOENT) ? Errc::damaged_name : Result<std::string>(fd.error());
  std::string text(8192, '\0');
  const auto n = lower::pread(fd->get(), {reinterpret_cast<std::uint8_t*>(text.data()), text.size()}, 0);
  if (!n) return n.error();
  text.resize(*n);
  if (target_file(text) != name) return Errc::damaged_name;
  return text;
}

// From the lower link's length, since reading a link would move its atime; only one that is too short for a sealed target names a file.
Result<std::uint64_t> Filesystem::symlink_size(int dir, const std::string& name, const struct stat& st) {
  const auto length = static_cast<std::size_t>(st.st_size);
  if (const auto n = target_length(length); n && length >= kSealedText) return static_cast<std::uint64_t>(*n);
  const auto text = lower::readlink_at(dir, name.c_str());
  if (!text) return text.error();
  if (!is_target_file(*text)) return static_cast<std::uint64_t>(length);  // not ours; readlink tells the damage
  const int root = root_dir_->fd.get();
  const auto file = lending(root, S_IXUSR, [&] { return lower::stat_at(root, text->c_str()); });
  if (!file) return static_cast<std::uint64_t>(length);
  return static_cast<std::uint64_t>(target_length(static_cast<std::size_t>(file->st_size)).value_or(length));
}

// A lower object's attributes as the plaintext's.
Result<struct stat> Filesystem::plain_attributes(const NodePtr& node, struct stat st) {
  if (S_ISLNK(st.st_mode)) {
    const auto size = at_node(
        node, [&](int dir, const char* name) { return symlink_size(dir, name, st); },
        [&](int fd) { return symlink_size(fd, "", st); });
    if (!size) return size.error();
    st.st_size = static_cast<off_t>(*size);
    return st;
  }
  // The C library's readdir asks for so much at a time, and the kernel sends one message for each.
  if (S_ISDIR(st.st_mode)) st.st_blksize = kListingRequest;
  if (!S_ISREG(st.st_mode)) return st;
  const auto lower_bytes = static_cast<std::uint64_t>(st.st_size);
  auto by_hint = plain_size_by_hint(lower_bytes);
  const bool doubtful = !by_hint || (lower_bytes > 0 && !node->size_known && in_cut(st.st_ctim));
  if (doubtful) {
    // Opening asks the last block and sets the hint right. A file that can't be opened so shows what its lower size says.
    const auto file = open_file(node);
    const auto size = !file ? Result<std::uint64_t>(file.error())
                            : use(node, **file, Access::read, [](const EncryptedFile& f) { return Result<std::uint64_t>(f.size()); });
    if (size) {
      by_hint = *size;
      node->size_known = !config_.changes_beneath;
    } else if (!by_hint) {
      const std::uint64_t pages = split_lower_size(lower_bytes).pages;
      by_hint = plain_size_of(pages, payload(pages - 1));
    }
  }
  st.st_size = static_cast<off_t>(*by_hint);
  return st;
}

Result<struct stat> Filesystem::attributes(const NodePtr& node) {
  // What is open answers itself, and under its lock: not in the middle of a write.
  if (const auto file = node->type == S_IFREG ? nodes_.files.get(*node) : nullptr) {
    if (config_.changes_beneath) {
      // By its hint, which is right between two writes of whoever keeps to the locks; a reader in between waits for the end.
      const auto st = stat_of(file->file.fd());
      if (st) return plain_attributes(node, *st);
      if (!is_errno(st.error(), ESTALE)) return st.error();
      nodes_.files.drop(*node);  // removed on another host, perhaps with another now under its number
    } else {
      const std::shared_lock lock(file->mutex);
      auto st = lower::stat_fd(file->file.fd());
      if (st) st->st_size = static_cast<off_t>(file->file.size());
      return st;
    }
  }
  const auto st = at_node(
      node, [&](int dir, const char* name) { return stat_of(dir, name); }, [&](int fd) { return stat_of(fd); });
  if (!st || node->type == S_IFLNK)
    if (const auto last = nodes_.removed(*node)) return *last;
  if (!st) return st.error();
  if (NodeKey::of(*st) != node->key) return errno_code(ESTALE);  // the lower directory was changed beneath us
  return plain_attributes(node, *st);
}

Result<timespec> Filesystem::birth(const NodePtr& node) {
  const auto st = at_node(
      node, [](int dir, const char* name) { return lower::stat_now_at(dir, name); }, [](int fd) { return lower::stat_now(fd); });
  if (!st) return nodes_.removed(*node) ? Result<timespec>(timespec{}) : st.error();
  if (st->st_dev != node->key.dev || st->st_ino != node->key.ino) return errno_code(ESTALE);
  constexpr std::int64_t kSecond = 1'000'000'000;
  const std::int64_t below = (st->born % kSecond + kSecond) % kSecond;
  return timespec{(st->born - below) / kSecond, below};
}

// Which bits go depends on the caller's groups, and the lower kernel knows the rules: it does the same for a chown(2) that changes nobody.
// unless_capable: for a message by which the kernel does not say whether the caller may keep them.
Result<void> Filesystem::kill_set_ids(const EncryptedFile& file, const Caller& caller, bool unless_capable) {
  const auto st = lower::stat_fd(file.fd());
  if (!st) return st.error();
  if (!(st->st_mode & (S_ISUID | S_ISGID))) return {};
  if (unless_capable && has_capability(caller, CAP_FSETID)) return {};
  const AsCaller as(caller, Rules::caller);
  return lower::chown_fd(file.fd(), kUnknown, kUnknown);
}

// What the format keeps beside an object: the files of its long names, of its long target, of a directory's id. Only what the object's
// owner owns: whoever owns a lower directory can put another's file, or a link to it, in these places.
Result<std::vector<UniqueFd>> Filesystem::belongings(const NodePtr& node, int object, const struct stat& st) {
  std::vector<UniqueFd> out;
  const auto add = [&](int dir, const std::string& name) -> Result<void> {
    auto fd = lower::open_at(dir, name.c_str(), O_PATH);
    if (!fd) return is_errno(fd.error(), ENOENT) ? Result<void>() : fd.error();
    const auto file = lower::stat_fd(fd->get());
    if (!file) return file.error();
    if (S_ISREG(file->st_mode) && file->st_nlink == 1 && file->st_uid == st.st_uid) out.push_back(std::move(*fd));
    return {};
  };
  if (S_ISDIR(st.st_mode) && !plain_names())
    if (const auto r = add(object, std::string(kDirFile)); !r) return r.error();
  if (S_ISLNK(st.st_mode)) {
    const auto text = lower::readlink_at(object, "");
    if (!text) return text.error();
    if (is_target_file(*text))
      if (const auto r = add(root_dir_->fd.get(), *text); !r) return r.error();
  }
  for (const Link& link : nodes_.names(*node)) {
    const LowerName name{link.name, {}};
    if (plain_names() || !link.name.starts_with(kLongPrefix)) continue;
    const auto dir = open_dir(link.parent);
    if (!dir && (is_errno(dir.error(), ENOENT) || is_errno(dir.error(), ESTALE))) continue;  // removed since
    if (!dir) return dir.error();
    if (const auto r = add((*dir)->fd.get(), name.name_file()); !r) return r.error();
  }
  return out;
}

Result<void> Filesystem::change_owner(const NodePtr& node, uid_t uid, gid_t gid, const Caller& caller) {
  const auto own = on_object(node, [](int fd) { return lower::dup_fd(fd); });
  if (!own) return own.error();
  const int fd = own->get();
  const auto st = lower::stat_fd(fd);
  if (!st) return st.error();
  std::vector<UniqueFd> beside;
  if (::geteuid() == 0 && ((uid != kUnknown && uid != st->st_uid) || (gid != kUnknown && gid != st->st_gid))) {
    auto found = belongings(node, fd, *st);
    if (!found) return found.error();
    beside = std::move(*found);
  }
  // The kernel has not judged whether set-id bits may be taken away, since it leaves that to us.
  const Rules rules = !S_ISDIR(st->st_mode) && (st->st_mode & (S_ISUID | S_ISGID)) ? Rules::owner : Rules::caller;
  return as_caller(caller, rules, [&] {
    std::size_t done = 0;
    Result<void> r;
    // First these, which can be given back when a quota has no room for all.
    for (; r && done < beside.size(); ++done) r = lower::chown_fd(beside[done].get(), uid, gid);
    if (r) r = lower::chown_fd(fd, uid, gid);
    if (!r)
      for (std::size_t i = 0; i < done; ++i) (void)lower::chown_fd(beside[i].get(), st->st_uid, st->st_gid);
    return r;
  });
}

Result<struct stat> Filesystem::change_attributes(const NodePtr& node, const AttrChange& change) {
  if (config_.read_only) return errno_code(EROFS);
  if (change.mode) {
    const auto r = on_object(node, [&](int fd) { return lower::chmod_fd(fd, *change.mode & 07777); });
    if (!r) return r.error();
    if (node->type == S_IFDIR) nodes_.dirs.drop(*node);  // what could not be read before may be now
  }
  if (change.uid || change.gid) {
    const uid_t uid = change.uid.value_or(kUnknown);
    const gid_t gid = change.gid.value_or(kUnknown);
    if (const auto r = change_owner(node, uid, gid, change.caller); !r) return r.error();
  }
  if (change.size) {
    const auto file = writable_file(node);
    if (file) {
      // Emptying needs no look at what may be damaged.
      const auto access = *change.size == 0 ? Access::replace : Access::write;
      const auto r = noted(node, use(node, **file, access, [&](EncryptedFile& f) {
        auto done = as_caller(change.caller, [&] { return f.truncate(*change.size); });
        return done && change.kill_suidgid ? kill_set_ids(f, change.caller) : done;
      }));
      if (!r) return r.error();
    } else if (*change.size == 0 && file.error().category() == ecfs_category()) {
      // What does not open for its damage can still be emptied.
      int refused = 0;
      const auto fd = open_lower(node, refused);
      if (!fd) return fd.error();
      if (refused) return errno_code(refused);
      if (const auto r = lower::ftruncate(fd->get(), 0); !r) return r.error();
    } else {
      return file.error();
    }
  }
  if (change.atime || change.mtime) {
    const timespec omit{0, UTIME_OMIT};
    const timespec times[2] = {change.atime.value_or(omit), change.mtime.value_or(omit)};
    const auto r = on_object(node, [&](int fd) { return lower::utimens_fd(fd, times); });
    if (!r) return r.error();
  }
  return attributes(node);
}

namespace {

// The newest epoch's name first, while a rotation is under way then the ones before it.
Result<std::string> find_xattr(const KeyRing& keys, std::string_view name, const std::function<Result<std::string>(const LowerXattr&)>& get) {
  const auto& epochs = keys.epochs();
  for (auto k = epochs.rbegin(); k != epochs.rend(); ++k) {
    const auto lower = encode_xattr_name(*k, name);
    if (!lower) return lower.error();
    auto value = get(*lower);
    if (value || !is_errno(value.error(), ENODATA)) return value;
  }
  return errno_code(ENODATA);
}

}  // namespace

Result<std::string> Filesystem::get_xattr(const NodePtr& node, const char* name) {
  const std::string_view view(name);
  if (view == kCapability && node->no_capability) return errno_code(ENODATA);
  if (!config_.acl && view.starts_with(kAcl)) return errno_code(EOPNOTSUPP);
  const auto raw = [&](const char* lower_name) {
    return on_object(node, [&](int fd) { return lower::getxattr(fd, nullptr, lower_name); });
  };
  if (!view.starts_with(kUser)) return raw(name);
  const std::string_view user = view.substr(kUser.size());
  if (user.empty()) return errno_code(EINVAL);
  LowerXattr found;
  const auto sealed = find_xattr(config_.keys, user, [&](const LowerXattr& lower) {
    found = lower;
    return raw(lower.name.c_str());
  });
  if (!sealed) return sealed;
  return noted(node, open_xattr_value(config_.keys, found, user, *sealed));
}

Result<void> Filesystem::set_xattr(const NodePtr& node, const char* name, std::string_view value, int flags, const Caller& caller) {
  if (config_.read_only) return errno_code(EROFS);
  const std::string_view view(name);
  if (!config_.acl && view.starts_with(kAcl)) return errno_code(EOPNOTSUPP);
  if (view == kCapability) node->no_capability = false;
  const auto raw = [&](const char* lower_name, std::string_view v, int f) {
    // An ACL can cost a file its set-gid bit.
    const Rules rules = view.starts_with(kAcl) ? Rules::caller : Rules::root;
    return on_object(node, [&](int fd) { return as_caller(caller, rules, [&] { return lower::setxattr(fd, nullptr, lower_name, v, f); }); });
  };
  if (!view.starts_with(kUser)) return raw(name, value, flags);
  const std::string_view user = view.substr(kUser.size());
  if (user.empty()) return errno_code(EINVAL);
  const EpochKeys& newest = config_.keys.newest();
  const auto lower = encode_xattr_name(newest, user);
  if (!lower) return lower.error();
  if (config_.keys.epochs().size() > 1 && flags != 0) {
    // CREATE and REPLACE mean the plaintext name, under whichever epoch it is.
    const auto there = get_xattr(node, name);
    if (there && flags == XATTR_CREATE) return errno_code(EEXIST);
    if (!there && flags == XATTR_REPLACE) return errno_code(ENODATA);
    flags = 0;
  }
  if (const auto r = raw(lower->name.c_str(), seal_xattr_value(newest, *lower, user, value), flags); !r) return r;
  // The same name under an older epoch is history now.
  for (const auto& k : config_.keys.epochs()) {
    if (k.epoch == newest.epoch) break;
    if (const auto old = encode_xattr_name(k, user))
      (void)on_object(node, [&](int fd) { return lower::removexattr(fd, nullptr, old->name.c_str()); });
  }
  return {};
}

Result<std::vector<std::string>> Filesystem::list_xattrs(const NodePtr& node, const Caller& caller) {
  const auto lower_names = on_object(node, [](int fd) { return lower::listxattr(fd, nullptr); });
  if (!lower_names) return lower_names.error();
  // The kernel refuses these to others by name, but does not sort them out of a list.
  std::optional<bool> sees_trusted;
  std::vector<std::string> names;
  for (const auto& lower_name : *lower_names) {
    if (lower_name.starts_with(kTrusted)) {
      if (!sees_trusted) sees_trusted = has_capability(caller, CAP_SYS_ADMIN);
      if (!*sees_trusted) continue;
    }
    if (!lower_name.starts_with(kUser)) {
      if (config_.acl || !lower_name.starts_with(kAcl)) names.push_back(lower_name);
      continue;
    }
    if (lower_name == kDirXattr) continue;
    Result<std::string> name = Errc::damaged_name;
    if (is_long_xattr(lower_name)) {
      const auto sealed = on_object(node, [&](int fd) { return lower::getxattr(fd, nullptr, lower_name.c_str()); });
      if (sealed) name = long_xattr_name(config_.keys, lower_name, *sealed);
    } else {
      for (const auto& k : config_.keys.epochs())
        if ((name = decode_xattr_name(k, lower_name))) break;
    }
    if (name) {
      // Twice only where the older epoch's could not be removed.
      if (std::string full = std::string(kUser) + *name; std::find(names.begin(), names.end(), full) == names.end()) names.push_back(std::move(full));
    } else {
      note(damage_.foreign, "an extended attribute whose name does not decode is left out", node);
    }
  }
  return names;
}

Result<void> Filesystem::remove_xattr(const NodePtr& node, const char* name) {
  if (config_.read_only) return errno_code(EROFS);
  const std::string_view view(name);
  if (!config_.acl && view.starts_with(kAcl)) return errno_code(EOPNOTSUPP);
  const auto raw = [&](const char* lower_name) {
    return on_object(node, [&](int fd) { return lower::removexattr(fd, nullptr, lower_name); });
  };
  if (!view.starts_with(kUser)) return raw(name);
  if (view.size() == kUser.size()) return errno_code(EINVAL);
  // Under every epoch: what set_xattr could not take away must not come back.
  Result<void> removed = errno_code(ENODATA);
  for (const auto& k : config_.keys.epochs()) {
    const auto lower = encode_xattr_name(k, view.substr(kUser.size()));
    if (!lower) return lower.error();
    const auto r = raw(lower->name.c_str());
    if (r) removed = r;
    if (!r && !is_errno(r.error(), ENODATA)) return r;
  }
  return removed;
}

Result<struct statvfs> Filesystem::stat_volume() {
  auto st = lower::statvfs(lower_root());
  if (st) st->f_namemax = kNameMax;
  return st;
}

}  // namespace ecfs::daemon
