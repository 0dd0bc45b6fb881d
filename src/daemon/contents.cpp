// SPDX-License-Identifier: GPL-3.0-or-later
// Filesystem: what is in files - opening, reading, writing, seeking, syncing.
#include <fcntl.h>
#include <linux/falloc.h>
#include <unistd.h>

#include "daemon/filesystem.hpp"
#include "ecfs/lower.hpp"

namespace ecfs::daemon {

// Counts and logs damage on its way up. Defined for every type that `noted` is used with.
template <class T>
Result<T> Filesystem::noted(const NodePtr& node, Result<T> result) {
  if (result || result.error().category() != ecfs_category()) return result;
  switch (static_cast<Errc>(result.error().value())) {
    case Errc::damaged_block: note(damage_.blocks, "a block is damaged", node); break;
    case Errc::damaged_header: note(damage_.headers, "the header is damaged", node); break;
    case Errc::unsupported_format: note(damage_.headers, "the header is of a format that is not supported", node); break;
    case Errc::damaged_directory: note(damage_.directories, "the directory's id is damaged in both copies", node); break;
    case Errc::damaged_name: note(damage_.names, "a link target or an extended attribute is damaged", node); break;
    default: break;
  }
  return result;
}
template Result<void> Filesystem::noted(const NodePtr&, Result<void>);
template Result<std::string> Filesystem::noted(const NodePtr&, Result<std::string>);
template Result<Filesystem::Place> Filesystem::noted(const NodePtr&, Result<Place>);

namespace {

// For reading and writing where that is possible: the kernel's cache asks to read what a program may only write. Without
// O_NOATIME where the file is another's. refused: why it is for reading only.
Result<UniqueFd> try_open(const std::function<Result<UniqueFd>(int)>& open, bool read_only, bool noatime, int& refused) {
  const int common = O_NONBLOCK | O_CLOEXEC;
  refused = read_only ? EROFS : 0;
  Result<UniqueFd> fd = errno_code(EROFS);
  for (const int access : {O_RDWR, O_RDONLY}) {
    if (access == O_RDWR && read_only) continue;
    fd = open(access | common | (noatime ? O_NOATIME : 0));
    if (!fd && noatime && is_errno(fd.error(), EPERM)) fd = open(access | common);
    if (fd) return fd;
    const bool maybe_readable = is_errno(fd.error(), EACCES) || is_errno(fd.error(), EROFS) || is_errno(fd.error(), EPERM) ||
                                is_errno(fd.error(), ETXTBSY);
    if (!maybe_readable) return fd;
    if (access == O_RDWR) refused = fd.error().value();
  }
  return fd;
}

}  // namespace

Result<UniqueFd> Filesystem::open_lower(const NodePtr& node, int& refused) {
  return at_node(
      node,
      [&](int dir, const char* name) -> Result<UniqueFd> {
        const auto open = [&](int flags) { return lower::open_at(dir, name, flags); };
        auto fd = try_open(open, config_.read_only, config_.noatime, refused);
        if (config_.read_only || (fd && refused == 0)) return fd;
        // The owner's own file without the owner's permission bits (0200, 0444): widened for as long as it takes to open it.
        const auto st = lower::stat_at(dir, name);
        if (!st || !S_ISREG(st->st_mode) || st->st_uid != ::geteuid()) return fd;
        const mode_t mode = st->st_mode & 07777;
        if ((mode & (S_IRUSR | S_IWUSR)) == (S_IRUSR | S_IWUSR)) return fd;
        if (!lower::chmod_at(dir, name, mode | S_IRUSR | S_IWUSR)) return fd;
        auto wide = try_open(open, false, config_.noatime, refused);
        const auto narrowed = wide ? lower::chmod_fd(wide->get(), mode) : lower::chmod_at(dir, name, mode);
        if (!narrowed) return narrowed.error();
        return wide;
      },
      [&](int fd) { return try_open([&](int flags) { return lower::reopen(fd, flags); }, config_.read_only, config_.noatime, refused); });
}

Result<Filesystem::FilePtr> Filesystem::keep_open(const NodePtr& node, UniqueFd fd, int refused, const struct stat& st) {
  EncryptedFile::Options options;
  options.suite = config_.volume.suite;
  options.writable = refused == 0;
  options.noatime = config_.noatime;
  // Where others write too it is read before each use, and under their lock.
  if (config_.changes_beneath)
    return nodes_.files.put(node, std::make_shared<OpenFile>(EncryptedFile::unread(std::move(fd), config_.keys, options), refused));
  options.lost_header_is_empty = config_.marker.in_cut(st.st_ctim);
  options.inode_may_lag = config_.marker.any_cut() && !options.lost_header_is_empty;
  auto file = EncryptedFile::open(std::move(fd), config_.keys, options, static_cast<std::uint64_t>(st.st_size));
  if (!file) return file.error();
  return nodes_.files.put(node, std::make_shared<OpenFile>(std::move(*file), refused));
}

Result<Filesystem::FilePtr> Filesystem::open_file(const NodePtr& node) {
  if (node->type != S_IFREG) return errno_code(node->type == S_IFDIR ? EISDIR : EINVAL);
  if (auto file = nodes_.files.get(*node)) return file;
  const std::lock_guard lock(opening(node->key));
  if (auto file = nodes_.files.get(*node)) return file;
  int refused = 0;
  auto fd = open_lower(node, refused);
  if (!fd) return fd.error();
  const auto st = stat_of(fd->get());
  if (!st) return st.error();
  if (NodeKey::of(*st) != node->key || !S_ISREG(st->st_mode)) return errno_code(ESTALE);
  return keep_open(node, std::move(*fd), refused, *st);
}

Result<Filesystem::FilePtr> Filesystem::writable_file(const NodePtr& node) {
  if (config_.read_only) return errno_code(EROFS);
  auto file = open_file(node);
  if (!file) (void)noted(node, Result<void>(file.error()));
  if (file && (*file)->refused) {
    // It may have become writable since it was opened: by another host, or with the filesystem beneath.
    nodes_.files.drop(*node);
    file = open_file(node);
  }
  if (file && (*file)->refused) return errno_code((*file)->refused);
  return file;
}

Result<std::size_t> Filesystem::read(const NodePtr& node, std::uint64_t off, std::span<std::uint8_t> out, bool quiet) {
  Result<std::size_t> n = errno_code(EIO);
  // What works beneath us without our locks may be in the middle of a change, which then looks like damage: looked at again, it is not.
  constexpr std::chrono::milliseconds kPauses[] = {std::chrono::milliseconds(1), std::chrono::milliseconds(10), std::chrono::milliseconds(50)};
  for (std::size_t tries = 0;; ++tries) {
    const auto file = open_file(node);
    // The descriptor's flag, not the call's: it changes while nobody reads. Of two who read in both ways at once each may be taken for the other.
    if (file && !config_.noatime && (*file)->quiet != quiet) {
      const std::unique_lock lock((*file)->mutex);
      (*file)->file.keep_atime(quiet);
      (*file)->quiet = quiet;
    }
    n = !file ? Result<std::size_t>(file.error()) : use(node, **file, Access::read, [&](const EncryptedFile& f) -> Result<std::size_t> {
      // The kernel was told the hint's size and keeps to it: what a wrong hint hides or makes up must not look good. (After a session that was
      // cut, sizes are verified before they are told.)
      const auto differs = f.hint_differed_from();
      if (differs && !node->size_known && !(*file)->in_cut && off + out.size() > *differs) return Errc::damaged_block;
      const auto got = f.read(off, out);
      if (!got) return got;
      // A sequential reader: let the lower file's reading ahead overlap our decrypting.
      constexpr std::uint64_t kAhead = 2 << 20;
      if (off > 0 && (*file)->next_read.load(std::memory_order_relaxed) == off && off + *got < f.size())
        lower::will_need(f.fd(), page_off(block_of(off + *got)), kAhead);
      (*file)->next_read.store(off + *got, std::memory_order_relaxed);
      return got;
    });
    const bool again = !n && config_.changes_beneath && n.error().category() == ecfs_category() && tries < std::size(kPauses);
    if (!again) break;
    std::this_thread::sleep_for(kPauses[tries]);
  }
  if (!n) (void)noted(node, Result<void>(n.error()));
  return n;
}

Result<void> Filesystem::write(const NodePtr& node, std::uint64_t off, std::span<const std::uint8_t> in, bool kill_suidgid, bool cached,
                               const Caller& caller) {
  const auto file = writable_file(node);
  if (!file) return file.error();
  return noted(node, use(node, **file, Access::write, [&](EncryptedFile& f) -> Result<void> {
    const auto before = cached ? lower::stat_fd(f.fd()) : Result<struct stat>(errno_code(ENODATA));
    // The kernel's cache does not say who wrote: nobody then gets at what is kept back for root but root's own files.
    const Caller writer = before ? Caller{before->st_uid, before->st_gid, 0, 0} : caller;
    if (const auto r = as_caller(writer, [&] { return f.write(off == kAppend ? f.size() : off, in); }); !r) {
      // write(2) returned long ago. Whoever writes to the file next is told (ops), and so are fsync and close.
      if (cached) {
        node->unwritten = is_errno(r.error(), r.error().value()) ? r.error().value() : EIO;
        note(damage_.unwritten, "what a program wrote could not be stored, and is lost", node);
      }
      return r;
    }
    if (before) {
      // Else the time of the writing back would come out once the kernel has forgotten the inode. What cannot be set is only a time.
      const timespec times[2] = {{0, UTIME_OMIT}, before->st_mtim};
      (void)lower::utimens_fd(f.fd(), times);
    }
    return kill_suidgid ? kill_set_ids(f, caller) : Result<void>();
  }));
}

Result<void> Filesystem::allocate(const NodePtr& node, int mode, std::uint64_t off, std::uint64_t len, const Caller& caller) {
  const auto file = writable_file(node);
  if (!file) return file.error();
  const bool keep_size = (mode & FALLOC_FL_KEEP_SIZE) != 0;
  return noted(node, use(node, **file, Access::write, [&](EncryptedFile& f) -> Result<void> {
    const auto done = as_caller(caller, [&]() -> Result<void> {
      switch (mode & ~FALLOC_FL_KEEP_SIZE) {
        case 0: return f.allocate(off, len, keep_size);
        case FALLOC_FL_PUNCH_HOLE: return keep_size ? f.punch(off, len) : errno_code(EOPNOTSUPP);
        case FALLOC_FL_ZERO_RANGE: return f.zero_range(off, len, keep_size);
        default: return errno_code(EOPNOTSUPP);
      }
    });
    return done ? kill_set_ids(f, caller, true) : done;
  }));
}

Result<std::uint64_t> Filesystem::seek(const NodePtr& node, std::uint64_t off, int whence) {
  if (whence != SEEK_DATA && whence != SEEK_HOLE) return errno_code(EINVAL);
  const auto file = open_file(node);
  if (!file) return file.error();
  return use(node, **file, Access::read,
             [&](const EncryptedFile& f) { return whence == SEEK_DATA ? f.seek_data(off) : f.seek_hole(off); });
}

// "Not supported here" is no failure to store: programs that save take any error of fsync for lost data.
Result<void> Filesystem::lenient(Result<void> synced) {
  return !synced && is_errno(synced.error(), EINVAL) ? Result<void>() : synced;
}

Result<void> Filesystem::sync(const NodePtr& node, bool data_only) {
  if (node->type != S_IFREG) return {};
  const auto file = open_file(node);
  if (!file) {
    if (file.error().category() != ecfs_category()) return file.error();
    // Damage doesn't keep what is there from being synced.
    int refused = 0;
    const auto fd = open_lower(node, refused);
    return fd ? lenient(lower::fsync(fd->get(), data_only)) : Result<void>(fd.error());
  }
  // Without the file's lock: what was answered is in the lower file, and writers need not wait for the disk.
  return lenient((*file)->file.sync(data_only));
}

}  // namespace ecfs::daemon
