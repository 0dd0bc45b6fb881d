// SPDX-License-Identifier: GPL-3.0-or-later
// Filesystem: looking up, making, removing, renaming and linking.
#include "daemon/filesystem.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <unistd.h>

#include "ecfs/lower.hpp"

namespace ecfs::daemon {
namespace {

// Gives what the format keeps beside an object, and belongs to `from`, to the object's owner. (Root's daemon; in a user's all is the user's.)
Result<void> own_as(int dir, const char* name, uid_t from, const struct stat& owner) {
  if (::geteuid() != 0) return {};
  const auto fd = lower::open_at(dir, name, O_PATH);
  if (!fd) return fd.error();
  const auto st = lower::stat_fd(fd->get());
  if (!st) return st.error();
  if (st->st_uid == owner.st_uid && st->st_gid == owner.st_gid) return {};
  // Whoever owns a lower directory can put another's file, or a link to it, in this place: it must not change hands.
  if (!S_ISREG(st->st_mode) || st->st_nlink != 1 || st->st_uid != from) return errno_code(ESTALE);
  return lower::chown_fd(fd->get(), owner.st_uid, owner.st_gid);
}

Caller owner_of(const struct stat& st, pid_t caller) { return {st.st_uid, st.st_gid, caller, 0}; }

}  // namespace

Filesystem::Filesystem(Config config)
    : config_(std::move(config)), nodes_(config_.max_dirs, config_.max_files) {}

Result<std::unique_ptr<Filesystem>> Filesystem::create(Config config) {
  std::unique_ptr<Filesystem> fs(new Filesystem(std::move(config)));
  const auto st = fs->stat_of(fs->lower_root());
  if (!st) return st.error();
  auto fd = lower::reopen(fs->lower_root(), O_PATH | O_DIRECTORY);
  if (!fd) return fd.error();
  fs->nodes_.make_root(NodeKey::of(*st));
  const Changing changing(*fs);
  if (!changing.held) return changing.held.error();
  fs->root_dir_ = fs->root_names_ = fs->make_open_dir(std::move(*fd), true);
  if (!fs->root_dir_->record) return fs->root_dir_->record.error();
  return fs;
}

Result<Filesystem::Place> Filesystem::place(const NodePtr& parent, std::string_view name) {
  auto dir = open_dir(parent);
  if (!dir) return dir.error();
  auto lower_name = name_in(**dir, name);
  if (!lower_name) return noted(parent, Result<Place>(lower_name.error()));
  return Place{std::move(*dir), std::move(*lower_name)};
}

Result<Entry> Filesystem::entry_at(const NodePtr& parent, const Place& at) {
  const auto st = stat_of(at.fd(), at.c_str());
  if (!st) return st.error();
  const NodePtr node = nodes_.look_up(NodeKey::of(*st), st->st_mode, Link{parent, at.name.name});
  // Given back unless it is answered, also when memory runs out on the way.
  struct Lookup {
    NodeTable& nodes;
    NodePtr node;
    ~Lookup() {
      if (node) nodes.forget(node, 1);
    }
  } lookup{nodes_, node};
  const auto attr = plain_attributes(node, *st);
  if (!attr) return attr.error();
  lookup.node = nullptr;
  return Entry{node, *attr};
}

Result<Entry> Filesystem::lookup(const NodePtr& parent, std::string_view name) {
  auto at = place(parent, name);
  if (!at) return is_errno(at.error(), EPERM) ? errno_code(ENOENT) : at.error();
  return entry_called(parent, *at, name);
}

// Labelled before anybody can see it: the kernel lets nobody else look the name up until it has its answer. Where the lower filesystem
// keeps no labels, neither do we.
Result<void> Filesystem::label(const NodePtr& made, const Caller& caller) {
  if (caller.label.empty()) return {};
  const auto labelled = set_xattr(made, "security.selinux", caller.label, 0, caller);
  return is_errno(labelled.error(), EOPNOTSUPP) ? Result<void>() : labelled;
}

Result<Entry> Filesystem::make(const NodePtr& parent, std::string_view name, const Caller& owner,
                               const std::function<Result<Entry>(const Place&)>& how) {
  auto entry = make_unlabelled(parent, name, owner, how);
  if (!entry) return entry;
  if (const auto labelled = label(entry->node, owner); !labelled) {
    (void)(entry->node->type == S_IFDIR ? remove_dir(parent, name) : unlink(parent, name));
    nodes_.forget(entry->node, 1);
    return labelled.error();
  }
  return entry;
}

// Around every call that makes an entry: the long name's file before it, and away again when it came to nothing.
Result<Entry> Filesystem::make_unlabelled(const NodePtr& parent, std::string_view name, const Caller& owner,
                                          const std::function<Result<Entry>(const Place&)>& how) {
  const Changing changing(*this);
  if (!changing.held) return changing.held.error();
  const auto at = place(parent, name);
  if (!at) return at.error();
  if (const auto p = prepare_long_name(*at->dir, at->name, owner); !p) return p.error();
  auto entry = how(*at);
  if (!entry) drop_long_name(parent, at->dir, at->name);
  return entry;
}

// What only we change cannot have got what it was not made with.
void Filesystem::note_made(Node& node) const noexcept {
  node.no_capability = !config_.changes_beneath;
  node.size_known = !config_.changes_beneath;
}

// As other files are opened; not with O_NOATIME, since what is refused to that has been made all the same.
void Filesystem::leave_atime(int made) const noexcept {
  if (config_.noatime) (void)lower::set_noatime(made, true);
}

Result<Entry> Filesystem::make_node(const NodePtr& parent, std::string_view name, mode_t mode, dev_t rdev, const Caller& caller) {
  // The kernel has judged a set-gid bit that is asked for. Those before 6.0 leave that to the filesystem beneath.
  const Rules rules = mode & S_ISGID ? Rules::caller : Rules::root;
  return make(parent, name, caller, [&](const Place& at) -> Result<Entry> {
    if (!S_ISREG(mode)) {
      const auto made = as_caller(caller, rules, [&] { return lower::mknod_at(at.fd(), at.c_str(), mode, rdev); });
      if (!made) return made.error();
      return entry_at(parent, at);
    }
    // The descriptor is kept: a file made 0444 is still to be written.
    auto fd = as_caller(caller, rules, [&] { return lower::open_at(at.fd(), at.c_str(), O_RDWR | O_CREAT | O_EXCL, mode & 07777); });
    if (!fd) return fd.error();
    leave_atime(fd->get());
    const auto st = stat_of(fd->get());
    if (!st) return st.error();
    const NodePtr node = nodes_.look_up(NodeKey::of(*st), st->st_mode, Link{parent, at.name.name});
    note_made(*node);
    if (const auto kept = keep_open(node, std::move(*fd), 0, *st); !kept) {
      nodes_.forget(node, 1);
      return kept.error();
    }
    return Entry{node, *st};
  });
}

// The id of a directory that was just made, and the mode that its maker asked for.
Result<void> Filesystem::fill_dir(const Place& at, mode_t wanted, const Caller& caller) {
  auto dir = lower::open_at(at.fd(), at.c_str(), O_PATH | O_DIRECTORY);
  if (!dir) return dir.error();
  const auto st = lower::stat_fd(dir->get());
  if (!st) return st.error();
  // Another directory in its place is not to be touched.
  if (::geteuid() == 0 && st->st_uid != caller.uid) return errno_code(ESTALE);
  const mode_t made = st->st_mode & 07777;
  const mode_t final = made & ~(S_IRWXU & ~wanted);
  // Under a umask that takes the owner's own bits even the maker can't put a file into it.
  if ((made & S_IRWXU) != S_IRWXU)
    if (const auto r = lower::chmod_fd(dir->get(), made | S_IRWXU); !r) return r;
  if (!plain_names())
    if (const auto r = new_dir_record(dir->get(), caller.pid); !r) return r.error();
  if (final == made && (made & S_IRWXU) == S_IRWXU) return {};
  return lower::chmod_fd(dir->get(), final);
}

Result<Entry> Filesystem::make_dir(const NodePtr& parent, std::string_view name, mode_t mode, const Caller& caller) {
  return make(parent, name, caller, [&](const Place& at) -> Result<Entry> {
    const auto made = as_caller(caller, [&] { return lower::mkdir_at(at.fd(), at.c_str(), (mode & 07777) | S_IRWXU); });
    if (!made) return made.error();
    if (const auto filled = fill_dir(at, mode, caller); !filled) {
      if (auto emptied = empty_dir(at.fd(), at.c_str(), parent)) (void)lower::unlink_at(at.fd(), at.c_str(), true);
      return filled.error();
    }
    auto entry = entry_at(parent, at);
    if (entry) entry->node->no_copies = !config_.changes_beneath;
    return entry;
  });
}

Result<Entry> Filesystem::make_symlink(const NodePtr& parent, std::string_view name, std::string_view target, const Caller& caller) {
  if (target.empty() || target.size() > kTargetMax) return errno_code(target.empty() ? ENOENT : ENAMETOOLONG);
  return make(parent, name, caller, [&](const Place& at) -> Result<Entry> {
    const std::string text = seal_target(config_.keys.newest(), target);
    const auto link_to = [&](const std::string& what) {
      return as_caller(caller, [&] { return lower::symlink_at(what.c_str(), at.fd(), at.c_str()); });
    };
    auto made = text.size() < PATH_MAX ? link_to(text) : Result<void>(errno_code(ENAMETOOLONG));
    if (!made && is_errno(made.error(), ENAMETOOLONG)) {
      // Kept in the root, whatever directory the link is in: renaming or hard-linking the link then has nothing to move, and a
      // volume with plain names reserves names in the root alone.
      const std::string file = target_file(text);
      const int root = root_dir_->fd.get();
      made = as_caller({caller.uid, caller.gid, caller.pid, 0}, [&] {
        return lending(root, S_IWUSR | S_IXUSR, [&] { return write_synced(root, file.c_str(), text, true); });
      });
      if (!made) return made.error();
      made = link_to(file);
      // Another group than the link's where one of the two directories is set-gid.
      if (made)
        if (const auto st = lower::stat_at(at.fd(), at.c_str()))
          if (made = own_as(root, file.c_str(), caller.uid, *st); !made) (void)lower::unlink_at(at.fd(), at.c_str(), false);
      if (!made) drop_target_file(file);
    }
    if (!made) return made.error();
    return entry_at(parent, at);
  });
}

Result<Entry> Filesystem::make_tmpfile(const NodePtr& parent, mode_t mode, const Caller& caller) {
  if (!nodes_.room_for_pin(config_.max_pinned)) return errno_code(EMFILE);
  // A removed directory that somebody still stands in may make files without a name; the lower filesystem decides.
  const auto removed = nodes_.pin(*parent);
  const auto dir = removed ? Result<DirPtr>(DirPtr()) : open_dir(parent);
  if (!dir) return dir.error();
  auto fd = as_caller(caller, mode & S_ISGID ? Rules::caller : Rules::root,
                      [&] { return lower::open_at(removed ? removed->get() : (*dir)->fd.get(), ".", O_RDWR | O_TMPFILE, mode & 07777); });
  if (!fd) return fd.error();
  leave_atime(fd->get());
  const auto st = stat_of(fd->get());
  if (!st) return st.error();
  auto pinned = lower::dup_fd(fd->get());
  if (!pinned) return pinned.error();
  const NodePtr node = nodes_.look_up(NodeKey::of(*st), st->st_mode, std::nullopt);
  nodes_.set_pin(*node, std::make_shared<UniqueFd>(std::move(*pinned)));
  note_made(*node);
  if (const auto kept = keep_open(node, std::move(*fd), 0, *st); !kept) {
    nodes_.forget(node, 1);
    return kept.error();
  }
  if (const auto labelled = label(node, caller); !labelled) {
    nodes_.forget(node, 1);
    return labelled.error();
  }
  return Entry{node, *st};
}

Result<Entry> Filesystem::link(const NodePtr& node, const NodePtr& parent, std::string_view name, const Caller& caller) {
  const auto st = attributes(node);
  if (!st) return st.error();
  return make(parent, name, owner_of(*st, caller.pid), [&](const Place& at) -> Result<Entry> {
    const auto made = on_object(node, [&](int fd) { return as_caller(caller, [&] { return lower::link_fd(fd, at.fd(), at.c_str()); }); });
    if (made) own_name_file(at, st->st_uid, *st);
    if (!made) return made.error();
    return entry_at(parent, at);
  });
}

Result<Filesystem::Victim> Filesystem::victim_at(const NodePtr& parent, const Place& at, const lower::Stat& st) {
  Victim victim{nodes_.find(NodeKey::of(st)), nullptr, std::nullopt};
  if (!victim.node) return victim;
  if (config_.changes_beneath) {
    // What no program has open is let go: a network's filesystem keeps a removed file that is open under another name, and the directory
    // could not be removed. And the names that we know may be gone; the link count tells.
    const bool open = S_ISDIR(st.st_mode) || victim.node->opens > 0;
    const bool last = S_ISDIR(st.st_mode) || st.st_nlink == 1 || nodes_.only_name(*victim.node, Link{parent, at.name.name});
    if (!open || !last) {
      // A program may still hold it by a descriptor of which nobody tells us (O_PATH), and ask for its attributes.
      if (S_ISLNK(st.st_mode) && !last) return victim;
      if (const auto attr = plain_attributes(victim.node, st)) victim.last = *attr;
      if (!open && S_ISREG(st.st_mode)) nodes_.files.drop(*victim.node);
      if (!victim.last) return victim;
      victim.last->st_nlink = st.st_nlink - 1;
      ::clock_gettime(CLOCK_REALTIME_COARSE, &victim.last->st_ctim);
      return victim;
    }
  } else if (!nodes_.only_name(*victim.node, Link{parent, at.name.name})) {
    return victim;
  }
  // Of a removed directory only its attributes are of use to who has it open. Files need the descriptors more.
  if (S_ISDIR(st.st_mode) && nodes_.pinned() >= config_.max_pinned / 2) {
    victim.last = st;
    victim.last->st_nlink = 0;
    return victim;
  }
  // The last descriptors are for what is still to be written back: refusing this removal loses nothing.
  if (!nodes_.room_for_pin(config_.max_pinned)) return errno_code(EMFILE);
  auto fd = lower::open_at(at.fd(), at.c_str(), O_PATH);
  if (!fd) return fd.error();
  victim.fd = std::make_shared<UniqueFd>(std::move(*fd));
  return victim;
}

Result<void> Filesystem::keep_length(Victim& victim, const std::string& target_file, const struct stat& st) {
  if (!victim.fd || target_file.empty()) return {};
  const auto attr = plain_attributes(victim.node, st);
  if (!attr) return attr.error();
  victim.last = *attr;
  victim.last->st_nlink = 0;
  return {};
}

void Filesystem::lose_name(const Victim& victim, const Link& name) {
  if (!victim.node) return;
  if (victim.fd) nodes_.set_pin(*victim.node, victim.fd);
  if (victim.last) nodes_.set_removed(*victim.node, *victim.last);
  nodes_.remove_name(*victim.node, name);
}

// Where the new owner's quota has no room for it, the former owner's keeps counting it: the entry is there.
void Filesystem::own_name_file(const Place& at, uid_t from, const struct stat& owner) {
  if (at.name.is_long()) (void)own_as(at.fd(), at.name.name_file().c_str(), from, owner);
}

Result<std::string> Filesystem::target_named(const Place& at, const struct stat& st) const {
  if (!S_ISLNK(st.st_mode) || target_length(static_cast<std::size_t>(st.st_size))) return std::string();
  auto text = lower::readlink_at(at.fd(), at.c_str());
  if (text && !is_target_file(*text)) text->clear();
  return text;
}

// A conflict copy of a link names the same target file as the link, and a copy of a directory has copies of the links in it. Where that can't
// be known, there may be one.
bool Filesystem::target_is_shared(const NodePtr& parent, const Place& at, const struct stat& st, const std::string& target) {
  const bool any_name = at.copy || plain_names();  // else only copies are copies of this one
  if (!any_name && !config_.changes_beneath) {
    // Once for the directory; where this fails it is looked through each time.
    const std::lock_guard lock(at.dir->copies_mutex);
    (void)find_copies(parent, *at.dir);
  }
  if (any_name || !parent->no_copies) {
    const auto fd = lending(at.fd(), S_IRUSR, [&] { return reopen_quietly(at.fd()); });
    if (!fd) return true;
    bool shared = false;
    const auto scanned = lower::read_dir(fd->get(), 0, [&](const lower::Dirent& d) {
      if ((d.type != DT_LNK && d.type != DT_UNKNOWN) || d.name == at.name.name) return true;
      if (d.ino == st.st_ino) return true;  // another name of this link, which its link count tells
      if (!any_name && copy_readings(d.name).empty()) return true;
      const auto text = lending(at.fd(), S_IXUSR, [&] { return lower::readlink_at(at.fd(), std::string(d.name).c_str()); });
      // EINVAL: no link.
      shared = text ? *text == target : !is_errno(text.error(), ENOENT) && !is_errno(text.error(), EINVAL);
      return !shared;
    });
    if (!scanned || shared) return true;
  }
  if (plain_names()) return false;
  for (NodePtr dir = parent; dir != nodes_.root();) {
    const auto link = nodes_.where(*dir);
    if (!link) return true;
    if (!link->parent->no_copies) {
      const auto open = open_dir(link->parent);
      if (!open) return true;
      const std::lock_guard lock((*open)->copies_mutex);
      if (!find_copies(link->parent, **open)) return true;
      if (!(*open)->copies->by_name.empty() || !(*open)->copies->of_long.empty()) return true;
    }
    dir = link->parent;
  }
  return false;
}

// A target file that its owner may execute is named from more than one directory, and goes with none of the links.
Result<void> Filesystem::keep_target_file(const std::string& name) {
  const int root = root_dir_->fd.get();
  // Only what is a target file by its content: whoever may write to the root can put another's file, or a link to it, in this place.
  const auto text = read_target_file(name);
  if (!text) return text.error() == Errc::damaged_name ? Result<void>() : Result<void>(text.error());
  const auto fd = lending(root, S_IXUSR, [&] { return lower::open_at(root, name.c_str(), O_PATH); });
  if (!fd) return fd.error();
  const auto st = lower::stat_fd(fd->get());
  if (!st) return st.error();
  if (!S_ISREG(st->st_mode)) return errno_code(ESTALE);
  return st->st_mode & S_IXUSR ? Result<void>() : lower::chmod_fd(fd->get(), (st->st_mode & 07777) | S_IXUSR);
}

// Before a link leaves the name beside which its copies are.
Result<void> Filesystem::keep_shared_target(const NodePtr& parent, const Place& at, const struct stat& st) {
  const auto target = target_named(at, st);
  if (!target) return target.error();
  return target->empty() || !target_is_shared(parent, at, st, *target) ? Result<void>() : keep_target_file(*target);
}

Result<std::string> Filesystem::target_file_of(const NodePtr& parent, const Place& at, const struct stat& st) {
  auto target = target_named(at, st);
  if (!target || target->empty()) return target;
  if (target_is_shared(parent, at, st, *target)) {
    // The link's other names may be in other directories, where there is no copy of it.
    if (st.st_nlink > 1)
      if (const auto kept = keep_target_file(*target); !kept) return kept.error();
    return std::string();
  }
  if (st.st_nlink > 1) return std::string();
  // Whoever may write to a lower directory can make a link that names another's target; only one's own goes with the link.
  const auto file = lower::stat_at(root_dir_->fd.get(), target->c_str());
  return file && file->st_uid == st.st_uid && !(file->st_mode & S_IXUSR) ? std::move(target) : Result<std::string>(std::string());
}

void Filesystem::drop_target_file(const std::string& name) {
  // What is left behind by a fault is an orphan that no link names.
  const int root = root_dir_->fd.get();
  if (!name.empty()) (void)lending(root, S_IWUSR | S_IXUSR, [&] { return lower::unlink_at(root, name.c_str(), false); });
}

Result<void> Filesystem::unlink(const NodePtr& parent, std::string_view name) {
  const Changing changing(*this);
  if (!changing.held) return changing.held.error();
  auto at = place(parent, name);
  if (!at) return at.error();
  const auto st = existing(parent, *at, name);
  if (!st) return st.error();
  const auto target = target_file_of(parent, *at, *st);
  if (!target) return target.error();
  auto victim = victim_at(parent, *at, *st);
  if (!victim) return victim.error();
  if (const auto r = keep_length(*victim, *target, *st); !r) return r;
  {
    const std::unique_lock lock(names_mutex_);
    if (const auto r = lower::unlink_at(at->fd(), at->c_str(), false); !r) return r;
    lose_name(*victim, Link{parent, at->name.name});
  }
  drop_target_file(*target);
  clear_up(parent, *at, name);
  return {};
}

Result<void> Filesystem::remove_dir(const NodePtr& parent, std::string_view name) {
  const Changing changing(*this);
  if (!changing.held) return changing.held.error();
  auto at = place(parent, name);
  if (!at) return at.error();
  const auto st = existing(parent, *at, name);
  if (!st) return st.error();
  if (!S_ISDIR(st->st_mode)) return errno_code(ENOTDIR);
  const auto victim = victim_at(parent, *at, *st);
  if (!victim) return victim.error();
  const auto emptied = empty_dir(at->fd(), at->c_str(), parent);
  {
    const std::unique_lock lock(names_mutex_);
    const auto removed = emptied ? lower::unlink_at(at->fd(), at->c_str(), true) : Result<void>(emptied.error());
    if (!removed) {
      if (emptied) restore(*emptied);
      return removed;
    }
    lose_name(*victim, Link{parent, at->name.name});
  }
  clear_up(parent, *at, name);
  return {};
}

Result<void> Filesystem::rename(const NodePtr& from_parent, std::string_view from, const NodePtr& to_parent, std::string_view to,
                                unsigned flags, const Caller& caller) {
  if ((flags & ~static_cast<unsigned>(RENAME_NOREPLACE | RENAME_EXCHANGE | RENAME_WHITEOUT)) != 0) return errno_code(EINVAL);
  if ((flags & RENAME_EXCHANGE) && (flags & ~static_cast<unsigned>(RENAME_EXCHANGE))) return errno_code(EINVAL);
  const Changing changing(*this);
  if (!changing.held) return changing.held.error();
  auto src = place(from_parent, from);
  if (!src) return src.error();
  auto dst = place(to_parent, to);
  if (!dst) return dst.error();
  const auto src_st = existing(from_parent, *src, from);
  if (!src_st) return src_st.error();
  const auto dst_st = existing(to_parent, *dst, to);
  if (!dst_st && !is_errno(dst_st.error(), ENOENT)) return dst_st.error();
  if (dst_st && (flags & RENAME_NOREPLACE)) return errno_code(EEXIST);
  if (!dst_st && (flags & RENAME_EXCHANGE)) return errno_code(ENOENT);
  if (dst_st && NodeKey::of(*dst_st) == NodeKey::of(*src_st)) return {};  // two names of one file: nothing happens, rename(2)
  // What changes places, is replaced or leaves something behind does so under names of its own.
  if (src->copy && (flags & (RENAME_EXCHANGE | RENAME_WHITEOUT)))
    if (const auto r = adopt(from_parent, *src, from, caller.pid); !r) return r;
  if (dst->copy)
    if (const auto r = adopt(to_parent, *dst, to, caller.pid); !r) return r;
  if (const auto r = keep_shared_target(from_parent, *src, *src_st); !r) return r;
  if (flags & RENAME_EXCHANGE)
    if (const auto r = keep_shared_target(to_parent, *dst, *dst_st); !r) return r;
  const Link src_link{from_parent, src->name.name}, dst_link{to_parent, dst->name.name};
  const NodePtr moved = nodes_.find(NodeKey::of(*src_st));

  const auto move = [&] {
    return as_caller(caller, [&] { return lower::rename_at(src->fd(), src->c_str(), dst->fd(), dst->c_str(), flags); });
  };
  if (flags & RENAME_EXCHANGE) {
    // Both names exist already, so their name files do too.
    const std::unique_lock lock(names_mutex_);
    const auto r = move();
    if (!r) return r;
    const NodePtr other = nodes_.find(NodeKey::of(*dst_st));
    if (moved) nodes_.move_name(*moved, src_link, dst_link);
    if (other) nodes_.move_name(*other, dst_link, src_link);
    own_name_file(*src, src_st->st_uid, *dst_st);
    own_name_file(*dst, dst_st->st_uid, *src_st);
    return r;
  }

  Victim victim;
  Emptied emptied;
  std::string target;
  if (dst_st) {
    auto named = target_file_of(to_parent, *dst, *dst_st);
    if (!named) return named.error();
    target = std::move(*named);
    auto found = victim_at(to_parent, *dst, *dst_st);
    if (!found) return found.error();
    victim = std::move(*found);
    if (const auto r = keep_length(victim, target, *dst_st); !r) return r;
    if (S_ISDIR(dst_st->st_mode) && S_ISDIR(src_st->st_mode)) {
      auto e = empty_dir(dst->fd(), dst->c_str(), to_parent);
      // Not empty: the lower call says so in its own words, which are EEXIST on some filesystems.
      if (!e && !is_errno(e.error(), ENOTEMPTY)) return e.error();
      if (e) emptied = std::move(*e);
    }
  }
  auto r = prepare_long_name(*dst->dir, dst->name, owner_of(*src_st, caller.pid));
  if (r) {
    const std::unique_lock lock(names_mutex_);
    r = move();
    if (r) lose_name(victim, dst_link);
    if (r && moved) nodes_.move_name(*moved, src_link, dst_link);
  }
  if (!r) {
    restore(emptied);
    drop_long_name(to_parent, dst->dir, dst->name);
    return r;
  }
  own_name_file(*dst, dst_st ? dst_st->st_uid : src_st->st_uid, *src_st);
  if (flags & RENAME_WHITEOUT)
    if (const auto left = lower::stat_at(src->fd(), src->c_str())) own_name_file(*src, src_st->st_uid, *left);
  drop_target_file(target);
  clear_up(from_parent, *src, from);
  return {};
}

Result<std::string> Filesystem::read_link(const NodePtr& node) {
  const auto text = on_object(node, [](int fd) { return lower::readlink_at(fd, ""); });
  if (!text) return text;
  if (!is_target_file(*text)) return noted(node, open_target(config_.keys, *text));
  const auto content = read_target_file(*text);
  // Removed since: then its target went with it, and nothing is damaged.
  if (!content && !nodes_.where(*node)) return errno_code(ENOENT);
  if (!content) return noted(node, Result<std::string>(content.error()));
  return noted(node, open_target(config_.keys, *content));
}

}  // namespace ecfs::daemon
