// SPDX-License-Identifier: GPL-3.0-or-later
#include "daemon/ops.hpp"

#include <sys/uio.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <string>
#include <vector>

#include "daemon/messages.hpp"
#include "ecfs/secret.hpp"

namespace ecfs::daemon {
namespace {

OpsContext& context(fuse_req_t req) { return *static_cast<OpsContext*>(fuse_req_userdata(req)); }
Filesystem& fs(fuse_req_t req) { return context(req).fs; }

// A node id is the node's address; the kernel holds a lookup on it, which keeps it alive.
NodePtr node(fuse_req_t req, fuse_ino_t id) {
  if (id == FUSE_ROOT_ID) return fs(req).nodes().root();
  return reinterpret_cast<Node*>(id)->shared_from_this();
}
fuse_ino_t id_of(fuse_req_t req, const NodePtr& n) {
  return n == fs(req).nodes().root() ? FUSE_ROOT_ID : reinterpret_cast<fuse_ino_t>(n.get());
}

Caller caller(fuse_req_t req) {
  const fuse_ctx* c = fuse_req_ctx(req);
  return {c->uid, c->gid, c->pid, c->umask, Messages::label()};
}

void fail(fuse_req_t req, const std::error_code& error) { fuse_reply_err(req, to_errno(error)); }
void reply(fuse_req_t req, const Result<void>& r) {
  if (r)
    fuse_reply_err(req, 0);
  else
    fail(req, r.error());
}

fuse_entry_param entry_param(fuse_req_t req, const Entry& e) {
  fuse_entry_param p{};
  p.ino = id_of(req, e.node);
  p.attr = e.attr;
  p.attr_timeout = p.entry_timeout = context(req).timeout;
  return p;
}

void reply(fuse_req_t req, const Result<Entry>& e) {
  if (!e) return fail(req, e.error());
  const auto p = entry_param(req, *e);
  Filesystem& filesystem = fs(req);  // the reply frees the request
  // The caller was interrupted and never learns of the lookup.
  if (fuse_reply_entry(req, &p) == -ENOENT) filesystem.nodes().forget(e->node, 1);
}

void reply(fuse_req_t req, const Result<struct stat>& st) {
  if (!st) return fail(req, st.error());
  fuse_reply_attr(req, &*st, context(req).timeout);
}

// The one wrapper around every operation: memory that runs out is an errno.
template <auto F>
struct Guard;
template <class... A, void (*F)(fuse_req_t, A...)>
struct Guard<F> {
  static void call(fuse_req_t req, A... a) {
    try {
      F(req, a...);
    } catch (const std::bad_alloc&) {
      fuse_reply_err(req, ENOMEM);
    }
  }
};

void on_init(void* userdata, fuse_conn_info* conn) {
  const auto& c = *static_cast<OpsContext*>(userdata);
  // All that we want and nothing that libfuse wants by itself: atomic O_TRUNC would go past the SETATTR that no-open needs, v1
  // killpriv would exclude v2, and splice is of no use to who must touch the bytes.
  unsigned want = FUSE_CAP_ASYNC_READ | FUSE_CAP_ASYNC_DIO | FUSE_CAP_PARALLEL_DIROPS | FUSE_CAP_READDIRPLUS | FUSE_CAP_DONT_MASK;
  want |= c.changes_beneath ? FUSE_CAP_AUTO_INVAL_DATA
                            : FUSE_CAP_NO_OPEN_SUPPORT | FUSE_CAP_NO_OPENDIR_SUPPORT | FUSE_CAP_WRITEBACK_CACHE | FUSE_CAP_CACHE_SYMLINKS |
                                  FUSE_CAP_EXPLICIT_INVAL_DATA;
  if (c.acl) want |= FUSE_CAP_POSIX_ACL;
  conn->want = conn->capable & want;
  conn->max_readahead = 1 << 20;
  conn->max_write = 1 << 20;
  conn->time_gran = 1;
}

void on_lookup(fuse_req_t req, fuse_ino_t parent, const char* name) {
  const auto entry = fs(req).lookup(node(req, parent), name);
  if (!entry && is_errno(entry.error(), ENOENT)) {
    // Inode 0: the kernel remembers that there is no such name.
    fuse_entry_param none{};
    none.entry_timeout = context(req).timeout;
    fuse_reply_entry(req, &none);
    return;
  }
  reply(req, entry);
}

void on_forget(fuse_req_t req, fuse_ino_t id, std::uint64_t count) {
  if (id != FUSE_ROOT_ID) fs(req).nodes().forget(node(req, id), count);
  fuse_reply_none(req);
}

void on_forget_multi(fuse_req_t req, std::size_t count, fuse_forget_data* forgets) {
  for (std::size_t i = 0; i < count; ++i)
    if (forgets[i].ino != FUSE_ROOT_ID) fs(req).nodes().forget(node(req, forgets[i].ino), forgets[i].nlookup);
  fuse_reply_none(req);
}

// The kernel's write-back cache takes what write(2) gives it, and finds out later that there is no room. Only close and fsync would say so, and a
// program that never closes, or does not look, would go on writing into nothing. But before it takes a write it asks for the file's size, with the
// program's handle, if it does not know it: so the size is made unknown (on_write), and the answer to that question is the error. Once for each
// failure: the next write is accepted again, and shows whether there is room by now. A reader may send the same question, and is told the size.
bool told_of_unwritten(fuse_req_t req, const NodePtr& file, const fuse_file_info* fi) {
  if (!fi || file->unwritten == 0 || only_reads(fuse_req_ctx(req)->pid, file->key.ino)) return false;
  const int error = file->unwritten.exchange(0);
  if (error) fuse_reply_err(req, error);
  return error != 0;
}

void on_getattr(fuse_req_t req, fuse_ino_t id, fuse_file_info* fi) {
  const NodePtr file = node(req, id);
  if (told_of_unwritten(req, file, fi)) return;
  const auto st = fs(req).attributes(file);
  if (!st) return fail(req, st.error());
  fuse_reply_attr(req, &*st, file->unwritten ? 0 : context(req).timeout);
}

void on_setattr(fuse_req_t req, fuse_ino_t id, struct stat* attr, int to_set, fuse_file_info*) {
  AttrChange c;
  if (to_set & FUSE_SET_ATTR_MODE) c.mode = attr->st_mode;
  if (to_set & FUSE_SET_ATTR_UID) c.uid = attr->st_uid;
  if (to_set & FUSE_SET_ATTR_GID) c.gid = attr->st_gid;
  if (to_set & FUSE_SET_ATTR_SIZE) c.size = static_cast<std::uint64_t>(attr->st_size);
  if (to_set & FUSE_SET_ATTR_ATIME) c.atime = attr->st_atim;
  if (to_set & FUSE_SET_ATTR_MTIME) c.mtime = attr->st_mtim;
  if (to_set & FUSE_SET_ATTR_ATIME_NOW) c.atime = timespec{0, UTIME_NOW};
  if (to_set & FUSE_SET_ATTR_MTIME_NOW) c.mtime = timespec{0, UTIME_NOW};
  // A ctime alone is all that the kernel says of chown(path, -1, -1), and not even that of what is no regular file, or where it does not write
  // back. (Else a ctime is the lower filesystem's to keep.) Of a regular file nothing at all also comes before a write that costs it set-id
  // bits, by whoever may write, which then takes them away.
  const bool regular = node(req, id)->type == S_IFREG;
  if (to_set == FUSE_SET_ATTR_CTIME || (to_set == 0 && (!regular || changes_owner(fuse_req_ctx(req)->pid)))) c.uid = c.gid = kUnknown;
  c.kill_suidgid = Messages::kill_suidgid();
  c.caller = caller(req);
  reply(req, fs(req).change_attributes(node(req, id), c));
}

void on_readlink(fuse_req_t req, fuse_ino_t id) {
  const auto target = fs(req).read_link(node(req, id));
  if (!target) return fail(req, target.error());
  fuse_reply_readlink(req, target->c_str());
}

void on_mknod(fuse_req_t req, fuse_ino_t parent, const char* name, mode_t mode, dev_t rdev) {
  reply(req, fs(req).make_node(node(req, parent), name, mode, rdev, caller(req)));
}

void on_mkdir(fuse_req_t req, fuse_ino_t parent, const char* name, mode_t mode) {
  reply(req, fs(req).make_dir(node(req, parent), name, mode, caller(req)));
}

void on_symlink(fuse_req_t req, const char* target, fuse_ino_t parent, const char* name) {
  reply(req, fs(req).make_symlink(node(req, parent), name, target, caller(req)));
}

void on_link(fuse_req_t req, fuse_ino_t id, fuse_ino_t parent, const char* name) {
  reply(req, fs(req).link(node(req, id), node(req, parent), name, caller(req)));
}

void on_unlink(fuse_req_t req, fuse_ino_t parent, const char* name) { reply(req, fs(req).unlink(node(req, parent), name)); }
void on_rmdir(fuse_req_t req, fuse_ino_t parent, const char* name) { reply(req, fs(req).remove_dir(node(req, parent), name)); }

void on_rename(fuse_req_t req, fuse_ino_t from_parent, const char* from, fuse_ino_t to_parent, const char* to, unsigned flags) {
  reply(req, fs(req).rename(node(req, from_parent), from, node(req, to_parent), to, flags, caller(req)));
}

// What is appended must go past the kernel's cache, which may not know how long the file is by now: whole, to wherever its end is.
void set_caching(fuse_file_info* fi) {
  fi->keep_cache = 0;
  fi->direct_io = (fi->flags & O_APPEND) != 0;
}

// Alone on the lower directory: ENOSYS once, and from then on the kernel opens by itself, and keeps contents across opens. With others beside
// us each opening makes it forget what it has of the file, so that what another has written and closed is read.
void on_open(fuse_req_t req, fuse_ino_t id, fuse_file_info* fi) {
  if (!context(req).changes_beneath) return fail(req, errno_code(ENOSYS));
  const NodePtr file = node(req, id);
  if (const auto r = fs(req).opened(file); !r) return fail(req, r.error());
  // The size too, by which reads are cut. Where this fails the kernel does not know the file, and has nothing to forget.
  if (context(req).session) (void)fuse_lowlevel_notify_inval_inode(context(req).session, id, -1, 0);
  set_caching(fi);
  Filesystem& filesystem = fs(req);
  if (fuse_reply_open(req, fi) == -ENOENT) filesystem.closed(file);
}

void on_release(fuse_req_t req, fuse_ino_t id, fuse_file_info*) {
  fs(req).closed(node(req, id));
  fuse_reply_err(req, 0);
}

// Listings likewise: answered, they are not kept.
void on_opendir(fuse_req_t req, fuse_ino_t, fuse_file_info* fi) {
  if (!context(req).changes_beneath) return fail(req, errno_code(ENOSYS));
  fuse_reply_open(req, fi);
}

// Alone, ENOSYS once: the kernel then makes files by MKNOD. With others beside us only this says whether the file had to be a new one. Where it
// need not be and another was quicker, ESTALE makes the kernel look the name up again, and open what is there.
void on_create(fuse_req_t req, fuse_ino_t parent, const char* name, mode_t mode, fuse_file_info* fi) {
  if (!context(req).changes_beneath) return fail(req, errno_code(ENOSYS));
  const auto entry = fs(req).make_node(node(req, parent), name, S_IFREG | (mode & 07777), 0, caller(req));
  if (!entry) {
    const bool other = is_errno(entry.error(), EEXIST) && (fi->flags & O_EXCL) == 0;
    return fail(req, other ? errno_code(ESTALE) : entry.error());
  }
  entry->node->opens.fetch_add(1, std::memory_order_relaxed);
  const auto p = entry_param(req, *entry);
  set_caching(fi);
  Filesystem& filesystem = fs(req);
  if (fuse_reply_create(req, &p, fi) != -ENOENT) return;
  filesystem.closed(entry->node);
  filesystem.nodes().forget(entry->node, 1);
}

PageBuffer& thread_buffer() {
  thread_local PageBuffer buffer;
  return buffer;
}

void on_read(fuse_req_t req, fuse_ino_t id, std::size_t size, off_t off, fuse_file_info*) {
  const auto buffer = thread_buffer().reserve(size);
  const auto n = fs(req).read(node(req, id), static_cast<std::uint64_t>(off), buffer, Messages::reads_quietly());
  if (!n) return fail(req, n.error());
  fuse_reply_buf(req, reinterpret_cast<const char*>(buffer.data()), *n);
}

// Is what a program writes to go to the end of the file? A descriptor's O_APPEND comes with the message; what pwritev2(2) says for one call
// (RWF_APPEND, RWF_NOAPPEND) does not, and the offset is then the end that the kernel knows of, which may not be the end any more. So the
// thread is looked at, which waits in its call (proc_pid_syscall(5)).
bool appends(int open_flags, pid_t writer) {
  constexpr unsigned long kNoAppend = 0x20;  // RWF_NOAPPEND, newer than Debian 12's headers
  const unsigned long flags = write_flags(writer);
  return (flags & RWF_APPEND) || ((open_flags & O_APPEND) && !(flags & kNoAppend));
}

void on_write(fuse_req_t req, fuse_ino_t id, const char* data, std::size_t size, off_t off, fuse_file_info* fi) {
  const NodePtr file = node(req, id);
  const bool beneath = context(req).changes_beneath;
  const bool append = beneath && !fi->writepage && appends(fi->flags, fuse_req_ctx(req)->pid);
  const auto r = fs(req).write(file, append ? Filesystem::kAppend : static_cast<std::uint64_t>(off),
                               {reinterpret_cast<const std::uint8_t*>(data), size}, Messages::kill_suidgid(), fi->writepage && !beneath,
                               caller(req));
  if (!r) {
    // Before the answer, after which the inode may go. ENOENT: the kernel does not have it any more.
    if (file->unwritten && context(req).session) (void)fuse_lowlevel_notify_inval_inode(context(req).session, id, -1, 0);
    return fail(req, r.error());
  }
  fuse_reply_write(req, size);
}

void on_fallocate(fuse_req_t req, fuse_ino_t id, int mode, off_t off, off_t len, fuse_file_info*) {
  reply(req, fs(req).allocate(node(req, id), mode, static_cast<std::uint64_t>(off), static_cast<std::uint64_t>(len), caller(req)));
}

void on_lseek(fuse_req_t req, fuse_ino_t id, off_t off, int whence, fuse_file_info*) {
  const NodePtr file = node(req, id);
  const auto answer = [=](std::error_code unsure) {
    // EINVAL, "no such whence here": programs then copy all of the file instead of what they take for its data.
    if (unsure) return fail(req, errno_code(EINVAL));
    const auto at = fs(req).seek(file, static_cast<std::uint64_t>(off), whence);
    if (!at) return fail(req, at.error());
    fuse_reply_lseek(req, static_cast<off_t>(*at));
  };
  if (context(req).write_back && file->type == S_IFREG)
    context(req).write_back->then(file, answer);
  else
    answer({});
}

void on_fsync(fuse_req_t req, fuse_ino_t id, int data_only, fuse_file_info*) {
  reply(req, fs(req).sync(node(req, id), data_only != 0));
}

void on_fsyncdir(fuse_req_t req, fuse_ino_t id, int data_only, fuse_file_info*) {
  reply(req, fs(req).sync_dir(node(req, id), data_only != 0));
}

// The kernel's header before each name, with attributes and without (<linux/fuse.h>).
constexpr std::size_t kDirentHeader = 24, kDirentPlusHeader = 152;

// Lookups that are given back unless the kernel has learnt of them.
struct Lookups {
  NodeTable& nodes;
  std::vector<NodePtr> held;
  ~Lookups() {
    for (const auto& n : held) nodes.forget(n, 1);
  }
};

void list(fuse_req_t req, fuse_ino_t id, std::size_t size, off_t off, bool plus) {
  const auto buffer = thread_buffer().reserve(size);
  auto* p = reinterpret_cast<char*>(buffer.data());
  std::size_t used = 0;
  Lookups lookups{fs(req).nodes(), {}};
  if (plus) lookups.held.reserve(size / kDirentPlusHeader);
  const auto r = fs(req).list(node(req, id), static_cast<std::uint64_t>(off), plus, [&](const Listed& e) {
    const std::size_t need = ((plus ? kDirentPlusHeader : kDirentHeader) + e.name.size() + 7) / 8 * 8;
    if (used + need > size) return false;
    const auto next = static_cast<off_t>(e.next);
    if (plus) {
      fuse_entry_param param{};
      if (e.entry) {
        param = entry_param(req, *e.entry);
        lookups.held.push_back(e.entry->node);
      } else {
        // No lookup for these: the kernel takes the type and the number, and no more.
        param.attr.st_ino = e.ino;
        param.attr.st_mode = e.type;
      }
      used += fuse_add_direntry_plus(req, p + used, size - used, e.name.c_str(), &param, next);
    } else {
      struct stat st {};
      st.st_ino = e.ino;
      st.st_mode = e.type;
      used += fuse_add_direntry(req, p + used, size - used, e.name.c_str(), &st, next);
    }
    return true;
  }, Messages::reads_quietly());
  // An error after entries would lose their lookups: what there is goes out, and the error comes with the next request.
  if (!r && used == 0) return fail(req, r.error());
  if (fuse_reply_buf(req, p, used) != -ENOENT) lookups.held.clear();
}

void on_readdir(fuse_req_t req, fuse_ino_t id, std::size_t size, off_t off, fuse_file_info*) { list(req, id, size, off, false); }
void on_readdirplus(fuse_req_t req, fuse_ino_t id, std::size_t size, off_t off, fuse_file_info*) { list(req, id, size, off, true); }

void on_statfs(fuse_req_t req, fuse_ino_t) {
  const auto st = fs(req).stat_volume();
  if (!st) return fail(req, st.error());
  fuse_reply_statfs(req, &*st);
}

// getxattr(2)'s two steps: the size, then the value.
void reply_sized(fuse_req_t req, std::string_view value, std::size_t size) {
  if (size == 0)
    fuse_reply_xattr(req, value.size());
  else if (value.size() > size)
    fuse_reply_err(req, ERANGE);
  else
    fuse_reply_buf(req, value.data(), value.size());
}

void on_getxattr(fuse_req_t req, fuse_ino_t id, const char* name, std::size_t size) {
  if (context(req).noxattr) return fail(req, errno_code(ENOSYS));
  const auto value = fs(req).get_xattr(node(req, id), name);
  if (!value) return fail(req, value.error());
  reply_sized(req, *value, size);
}

void on_setxattr(fuse_req_t req, fuse_ino_t id, const char* name, const char* value, std::size_t size, int flags) {
  if (context(req).noxattr) return fail(req, errno_code(ENOSYS));
  reply(req, fs(req).set_xattr(node(req, id), name, {value, size}, flags, caller(req)));
}

void on_listxattr(fuse_req_t req, fuse_ino_t id, std::size_t size) {
  if (context(req).noxattr) return fail(req, errno_code(ENOSYS));
  const auto names = fs(req).list_xattrs(node(req, id), caller(req));
  if (!names) return fail(req, names.error());
  std::string text;
  for (const auto& n : *names) text.append(n.c_str(), n.size() + 1);
  reply_sized(req, text, size);
}

void on_removexattr(fuse_req_t req, fuse_ino_t id, const char* name) {
  if (context(req).noxattr) return fail(req, errno_code(ENOSYS));
  reply(req, fs(req).remove_xattr(node(req, id), name));
}

void on_ioctl(fuse_req_t req, fuse_ino_t, unsigned, void*, fuse_file_info*, unsigned, const void*, std::size_t, std::size_t) {
  fuse_reply_err(req, ENOTTY);
}

fuse_lowlevel_ops make_table() {
  fuse_lowlevel_ops t{};
  t.init = on_init;
  t.lookup = Guard<on_lookup>::call;
  t.forget = on_forget;
  t.forget_multi = on_forget_multi;
  t.getattr = Guard<on_getattr>::call;
  t.setattr = Guard<on_setattr>::call;
  t.readlink = Guard<on_readlink>::call;
  t.mknod = Guard<on_mknod>::call;
  t.mkdir = Guard<on_mkdir>::call;
  t.unlink = Guard<on_unlink>::call;
  t.rmdir = Guard<on_rmdir>::call;
  t.symlink = Guard<on_symlink>::call;
  t.rename = Guard<on_rename>::call;
  t.link = Guard<on_link>::call;
  t.open = Guard<on_open>::call;
  t.release = on_release;
  t.opendir = on_opendir;
  t.create = Guard<on_create>::call;
  t.read = Guard<on_read>::call;
  t.write = Guard<on_write>::call;
  t.fsync = Guard<on_fsync>::call;
  t.fsyncdir = Guard<on_fsyncdir>::call;
  t.readdir = Guard<on_readdir>::call;
  t.readdirplus = Guard<on_readdirplus>::call;
  t.statfs = Guard<on_statfs>::call;
  t.getxattr = Guard<on_getxattr>::call;
  t.setxattr = Guard<on_setxattr>::call;
  t.listxattr = Guard<on_listxattr>::call;
  t.removexattr = Guard<on_removexattr>::call;
  t.fallocate = Guard<on_fallocate>::call;
  t.lseek = Guard<on_lseek>::call;
  t.ioctl = on_ioctl;
  return t;
}

}  // namespace

const fuse_lowlevel_ops& ops_table() {
  static const fuse_lowlevel_ops table = make_table();
  return table;
}

}  // namespace ecfs::daemon
