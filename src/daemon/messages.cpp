// SPDX-License-Identifier: GPL-3.0-or-later
#include "daemon/messages.hpp"

#include <fcntl.h>
#include <linux/fuse.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <new>
#include <optional>

namespace ecfs::daemon {
namespace {

// <linux/fuse.h> of Debian 12 is older than these.
constexpr std::uint32_t kInitExt = 1u << 30;
constexpr std::uint32_t kKillprivV2 = 1u << 28;
constexpr std::uint32_t kNoExportSupport2 = 1u << (38 - 32);    // in flags2
constexpr std::uint32_t kDirectIoAllowMmap2 = 1u << (36 - 32);  // likewise
constexpr std::uint32_t kAllowIdmap2 = 1u << (40 - 32);         // likewise; the kernel takes it with default_permissions only
constexpr std::uint32_t kSecurityCtx2 = 1u << (32 - 32);        // likewise
constexpr std::uint32_t kSetattrKillSuidgid = 1u << 11;
constexpr std::uint32_t kTmpfile = 51;
constexpr std::uint32_t kStatx = 52;
// The message STATX and its answer. Answers beyond statx(2)'s basic fields and the time of birth the kernel does not take.
struct StatxIn {
  std::uint32_t getattr_flags, reserved;
  std::uint64_t handle;
  std::uint32_t flags, mask;
};
struct StatxTime {
  std::int64_t seconds;
  std::uint32_t nanoseconds;
  std::int32_t reserved;
};
struct StatxOut {
  std::uint64_t valid;  // seconds
  std::uint32_t valid_nanoseconds, flags;
  std::uint64_t spare[2];
  std::uint32_t mask, blksize;
  std::uint64_t attributes;
  std::uint32_t nlink, uid, gid;
  std::uint16_t mode, spare_mode;
  std::uint64_t ino, size, blocks, attributes_mask;
  StatxTime atime, btime, ctime, mtime;
  std::uint32_t rdev_major, rdev_minor, dev_major, dev_minor;
  std::uint64_t spare_end[14];
};
static_assert(sizeof(StatxIn) == 24 && sizeof(StatxOut) == 288);

constexpr std::array<const char*, 64> kNames = [] {
  std::array<const char*, 64> n{};
  n[1] = "LOOKUP", n[2] = "FORGET", n[3] = "GETATTR", n[4] = "SETATTR", n[5] = "READLINK", n[6] = "SYMLINK", n[8] = "MKNOD";
  n[9] = "MKDIR", n[10] = "UNLINK", n[11] = "RMDIR", n[12] = "RENAME", n[13] = "LINK", n[14] = "OPEN", n[15] = "READ";
  n[16] = "WRITE", n[17] = "STATFS", n[18] = "RELEASE", n[20] = "FSYNC", n[21] = "SETXATTR", n[22] = "GETXATTR";
  n[23] = "LISTXATTR", n[24] = "REMOVEXATTR", n[25] = "FLUSH", n[26] = "INIT", n[27] = "OPENDIR", n[28] = "READDIR";
  n[29] = "RELEASEDIR", n[30] = "FSYNCDIR", n[31] = "GETLK", n[32] = "SETLK", n[33] = "SETLKW", n[34] = "ACCESS";
  n[35] = "CREATE", n[36] = "INTERRUPT", n[37] = "BMAP", n[38] = "DESTROY", n[39] = "IOCTL", n[40] = "POLL";
  n[41] = "NOTIFY_REPLY", n[42] = "BATCH_FORGET", n[43] = "FALLOCATE", n[44] = "READDIRPLUS", n[45] = "RENAME2";
  n[46] = "LSEEK", n[47] = "COPY_FILE_RANGE", n[48] = "SETUPMAPPING", n[49] = "REMOVEMAPPING", n[50] = "SYNCFS";
  n[51] = "TMPFILE", n[52] = "STATX";
  return n;
}();

// What a message holds beside its header: a fixed part, then so many names, each with its NUL.
struct Shape {
  std::uint8_t fixed = 0;
  std::uint8_t names = 0;
  bool of_node = true;  // the header names a node
};
constexpr std::array<Shape, 64> kShapes = [] {
  std::array<Shape, 64> s{};
  for (auto& shape : s) shape.of_node = false;
  s[FUSE_LOOKUP] = s[FUSE_UNLINK] = s[FUSE_RMDIR] = s[FUSE_REMOVEXATTR] = {0, 1};
  s[FUSE_READLINK] = {};
  s[FUSE_SYMLINK] = {0, 2};
  s[FUSE_FORGET] = {sizeof(fuse_forget_in)};
  s[FUSE_GETATTR] = {sizeof(fuse_getattr_in)};
  s[FUSE_SETATTR] = {sizeof(fuse_setattr_in)};
  s[FUSE_MKNOD] = {sizeof(fuse_mknod_in), 1};
  s[FUSE_MKDIR] = {sizeof(fuse_mkdir_in), 1};
  s[FUSE_RENAME] = {sizeof(fuse_rename_in), 2};
  s[FUSE_RENAME2] = {sizeof(fuse_rename2_in), 2};
  s[FUSE_LINK] = {sizeof(fuse_link_in), 1};
  s[FUSE_READ] = s[FUSE_READDIR] = s[FUSE_READDIRPLUS] = {sizeof(fuse_read_in)};
  s[FUSE_WRITE] = {sizeof(fuse_write_in)};
  s[FUSE_FSYNC] = s[FUSE_FSYNCDIR] = {sizeof(fuse_fsync_in)};
  s[FUSE_SETXATTR] = {FUSE_COMPAT_SETXATTR_IN_SIZE, 1};
  s[FUSE_GETXATTR] = {sizeof(fuse_getxattr_in), 1};
  s[FUSE_LISTXATTR] = {sizeof(fuse_getxattr_in)};
  s[FUSE_OPEN] = s[FUSE_OPENDIR] = {sizeof(fuse_open_in)};
  s[FUSE_RELEASE] = s[FUSE_RELEASEDIR] = {sizeof(fuse_release_in)};
  s[FUSE_CREATE] = {sizeof(fuse_create_in), 1};
  s[kTmpfile] = {sizeof(fuse_create_in), 1};
  s[FUSE_FALLOCATE] = {sizeof(fuse_fallocate_in)};
  s[FUSE_LSEEK] = {sizeof(fuse_lseek_in)};
  s[FUSE_INTERRUPT] = {sizeof(fuse_interrupt_in), 0, false};
  s[FUSE_BATCH_FORGET] = {sizeof(fuse_batch_forget_in), 0, false};
  s[kStatx] = {sizeof(StatxIn)};
  s[FUSE_NOTIFY_REPLY] = {sizeof(fuse_notify_retrieve_in), 0, false};
  return s;
}();
constexpr std::uint32_t kMostAskedFor = 16 << 20;  // by far more than max_write and max_readahead let through

bool unanswered(std::uint32_t opcode) {
  return opcode == FUSE_FORGET || opcode == FUSE_BATCH_FORGET || opcode == FUSE_INTERRUPT || opcode == FUSE_NOTIFY_REPLY;
}

using Clock = std::chrono::steady_clock;

// What this thread is working on. A worker handles one message from its reading to its reply.
struct Current {
  std::uint32_t opcode = 0;
  std::uint64_t unique = 0;
  Clock::time_point start;
  bool kill_suidgid = false;
  bool reads_quietly = false;
  std::uint32_t init_flags = 0;
  std::uint32_t init_flags2 = 0;
  std::string_view label;
};
thread_local Current t_current;

template <class T>
bool body(const void* message, std::size_t size, T& out) {
  if (size < sizeof(fuse_in_header) + sizeof(T)) return false;
  std::memcpy(&out, static_cast<const char*>(message) + sizeof(fuse_in_header), sizeof(T));
  return true;
}

// What follows the message's fixed part and names; nothing where these are not whole.
std::optional<std::string_view> after_names(const Shape& shape, const void* message, std::size_t size) {
  if (size < sizeof(fuse_in_header) + shape.fixed) return std::nullopt;
  std::string_view rest(static_cast<const char*>(message) + sizeof(fuse_in_header) + shape.fixed, size - sizeof(fuse_in_header) - shape.fixed);
  for (unsigned n = 0; n < shape.names; ++n) {
    const auto end = rest.find('\0');
    if (end == rest.npos) return std::nullopt;
    rest.remove_prefix(end + 1);
  }
  return rest;
}

// The value of security.selinux that stands behind the names of a message that makes something: a fuse_secctx_header, then fuse_secctx, the
// xattr's name with its NUL, and the value.
std::string_view label_in(std::uint32_t opcode, const void* message, std::size_t size) {
  const auto rest = after_names(kShapes[opcode], message, size);
  fuse_secctx_header header;
  fuse_secctx context;
  constexpr std::string_view kName{"security.selinux", sizeof "security.selinux"};
  constexpr std::size_t kBefore = sizeof header + sizeof context + kName.size();
  if (!rest || rest->size() < kBefore) return {};
  std::memcpy(&header, rest->data(), sizeof header);
  std::memcpy(&context, rest->data() + sizeof header, sizeof context);
  if (header.nr_secctx != 1 || rest->substr(sizeof header + sizeof context, kName.size()) != kName) return {};
  return context.size <= rest->size() - kBefore ? rest->substr(kBefore, context.size) : std::string_view();
}

// libfuse believes the sizes in a message. The kernel's are right; this keeps whatever else it might be from reading past the end.
bool well_formed(const fuse_in_header& header, const void* message, std::size_t size) {
  if (header.opcode >= kShapes.size()) return true;
  const Shape& shape = kShapes[header.opcode];
  if (shape.of_node && header.nodeid == 0) return false;
  const auto after = after_names(shape, message, size);
  if (!after) return false;
  const std::size_t rest = after->size();
  const auto in = [&]<class T>(T value) {
    (void)body(message, size, value);
    return value;
  };
  switch (header.opcode) {
    case FUSE_WRITE: return in(fuse_write_in{}).size <= rest;
    case FUSE_SETXATTR: {
      std::uint32_t length = 0;
      return body(message, size, length) && length <= rest;
    }
    case FUSE_READ:
    case FUSE_READDIR:
    case FUSE_READDIRPLUS: return in(fuse_read_in{}).size <= kMostAskedFor;
    case FUSE_RENAME:
    case FUSE_RENAME2: return in(fuse_rename_in{}).newdir != 0;
    case FUSE_LINK: return in(fuse_link_in{}).oldnodeid != 0;
    case FUSE_BATCH_FORGET: return in(fuse_batch_forget_in{}).count <= rest / sizeof(fuse_forget_one);
    default: return true;
  }
}

void fill_attr(fuse_attr& a, const struct stat& st) {
  a.ino = st.st_ino;
  a.size = static_cast<std::uint64_t>(st.st_size);
  a.blocks = static_cast<std::uint64_t>(st.st_blocks);
  a.atime = static_cast<std::uint64_t>(st.st_atim.tv_sec), a.atimensec = static_cast<std::uint32_t>(st.st_atim.tv_nsec);
  a.mtime = static_cast<std::uint64_t>(st.st_mtim.tv_sec), a.mtimensec = static_cast<std::uint32_t>(st.st_mtim.tv_nsec);
  a.ctime = static_cast<std::uint64_t>(st.st_ctim.tv_sec), a.ctimensec = static_cast<std::uint32_t>(st.st_ctim.tv_nsec);
  a.mode = st.st_mode;
  a.nlink = static_cast<std::uint32_t>(st.st_nlink);
  a.uid = st.st_uid;
  a.gid = st.st_gid;
  a.rdev = static_cast<std::uint32_t>(st.st_rdev);
  a.blksize = static_cast<std::uint32_t>(st.st_blksize);
}

StatxTime statx_time(const timespec& t) { return {t.tv_sec, static_cast<std::uint32_t>(t.tv_nsec), 0}; }

void fill_statx(StatxOut& out, const struct stat& st, const timespec& born) {
  out.mask = STATX_BASIC_STATS;
  out.ino = st.st_ino;
  out.size = static_cast<std::uint64_t>(st.st_size);
  out.blocks = static_cast<std::uint64_t>(st.st_blocks);
  out.atime = statx_time(st.st_atim);
  out.mtime = statx_time(st.st_mtim);
  out.ctime = statx_time(st.st_ctim);
  if (born.tv_sec != 0 || born.tv_nsec != 0) {
    out.mask |= STATX_BTIME;
    out.btime = statx_time(born);
  }
  out.mode = static_cast<std::uint16_t>(st.st_mode);
  out.nlink = static_cast<std::uint32_t>(st.st_nlink);
  out.uid = st.st_uid;
  out.gid = st.st_gid;
  out.rdev_major = major(st.st_rdev), out.rdev_minor = minor(st.st_rdev);
  out.blksize = static_cast<std::uint32_t>(st.st_blksize);
}

}  // namespace

// Damaged data is EIO, never EPERM: permission is not what is wrong.
int to_errno(const std::error_code& error) noexcept {
  if (error.category() == std::system_category() || error.category() == std::generic_category()) return error.value();
  return EIO;
}

bool Messages::kill_suidgid() noexcept { return t_current.kill_suidgid; }
std::string_view Messages::label() noexcept { return t_current.label; }
bool Messages::reads_quietly() noexcept { return t_current.reads_quietly; }

ssize_t Messages::read(int fd, void* buffer, std::size_t size) {
  for (;;) {
    const ssize_t n = ::read(fd, buffer, size);
    if (n < static_cast<ssize_t>(sizeof(fuse_in_header))) return n;
    fuse_in_header header;
    std::memcpy(&header, buffer, sizeof header);
    const auto got = static_cast<std::size_t>(n);
    Current& now = t_current;
    now = {};
    now.opcode = header.opcode;
    now.unique = header.unique;
    now.start = Clock::now();
    if (header.opcode < kOpcodes) stats_[header.opcode].count.fetch_add(1, std::memory_order_relaxed);
    if (!well_formed(header, buffer, got)) {
      fuse_out_header out{sizeof out, -EINVAL, header.unique};
      // Who sent this need not be there any more.
      if (!unanswered(header.opcode) && ::write(fd, &out, sizeof out) < 0) return -1;
      continue;
    }
    switch (header.opcode) {
      case FUSE_WRITE: {
        fuse_write_in in;
        now.kill_suidgid = body(buffer, got, in) && (in.write_flags & FUSE_WRITE_KILL_SUIDGID);
        break;
      }
      case FUSE_SETATTR: {
        fuse_setattr_in in;
        now.kill_suidgid = body(buffer, got, in) && (in.valid & kSetattrKillSuidgid);
        break;
      }
      case FUSE_READ:
      case FUSE_READDIR:
      case FUSE_READDIRPLUS: {
        fuse_read_in in;
        now.reads_quietly = body(buffer, got, in) && ((in.flags & O_NOATIME) || (in.flags & O_ACCMODE) == O_WRONLY);
        break;
      }
      case FUSE_INIT: {
        fuse_init_in in;
        if (body(buffer, got, in)) now.init_flags = in.flags, now.init_flags2 = in.flags & kInitExt ? in.flags2 : 0;
        break;
      }
      case FUSE_MKNOD:
      case FUSE_MKDIR:
      case FUSE_SYMLINK:
      case FUSE_CREATE:
        if (keep_labels_) now.label = label_in(header.opcode, buffer, got);
        break;
      case kTmpfile:
        if (keep_labels_) now.label = label_in(header.opcode, buffer, got);
        answer_tmpfile(fd, buffer, got);
        continue;
      case kStatx:
        answer_statx(fd, header.nodeid, header.unique);
        continue;
      default: break;
    }
    return n;
  }
}

NodePtr Messages::node(std::uint64_t id) const {
  return id == FUSE_ROOT_ID ? fs_.nodes().root() : reinterpret_cast<Node*>(id)->shared_from_this();
}

void Messages::note_reply() noexcept {
  if (t_current.opcode >= kOpcodes) return;
  const auto ns = static_cast<std::uint64_t>((Clock::now() - t_current.start).count());
  MessageStats& s = stats_[t_current.opcode];
  s.total_ns.fetch_add(ns, std::memory_order_relaxed);
  for (auto max = s.max_ns.load(std::memory_order_relaxed); ns > max && !s.max_ns.compare_exchange_weak(max, ns);) {
  }
}

ssize_t Messages::writev(int fd, struct iovec* iov, int count) {
  fuse_out_header out;
  if (count > 0 && iov[0].iov_len >= sizeof out) {
    std::memcpy(&out, iov[0].iov_base, sizeof out);
    if (out.unique == t_current.unique) {
      note_reply();
      // Newer than this libfuse, or forgotten by it, and asked for here. Without killpriv_v2 every write(2) sends a GETXATTR; libfuse before
      // 3.16.2 asks for parallel lookups and listings everywhere but in this answer; a file handle cannot find an inode that has left
      // memory, so none are offered; what was opened for appending, past the cache, may be mapped all the same; SELinux's label comes with
      // what makes a file; and root's mounts may be shown with other owners (mount_setattr(2), MOUNT_ATTR_IDMAP). With that the kernel
      // names the caller in messages that make something alone.
      if (t_current.opcode == FUSE_INIT && out.error == 0 && count > 1 && iov[1].iov_len >= sizeof(fuse_init_out)) {
        auto* init = static_cast<fuse_init_out*>(iov[1].iov_base);
        init->flags |= t_current.init_flags & (kKillprivV2 | FUSE_PARALLEL_DIROPS);
        const std::uint32_t wanted = kNoExportSupport2 | (::geteuid() == 0 ? kAllowIdmap2 : 0) | (fs_.changes_beneath() ? kDirectIoAllowMmap2 : 0) |
                                     (ask_for_labels_ ? kSecurityCtx2 : 0);
        if (const auto more = t_current.init_flags2 & wanted) {
          init->flags |= kInitExt;
          init->flags2 |= more;
        }
      }
    }
  }
  return ::writev(fd, iov, count);
}

void Messages::answer_tmpfile(int fd, const void* message, std::size_t size) {
  fuse_in_header header;
  std::memcpy(&header, message, sizeof header);
  fuse_create_in in;
  struct {
    fuse_out_header out{};
    fuse_entry_out entry{};
    fuse_open_out open{};
  } reply;
  reply.out.unique = header.unique;
  reply.out.len = sizeof reply.out;
  NodePtr made;
  if (!body(message, size, in)) {
    reply.out.error = -EINVAL;
  } else {
    try {
      const auto entry = fs_.make_tmpfile(node(header.nodeid), in.mode, {header.uid, header.gid, static_cast<pid_t>(header.pid), in.umask, label()});
      if (entry) {
        made = entry->node;
        made->opens.fetch_add(1, std::memory_order_relaxed);
        reply.out.len = sizeof reply;
        reply.entry.nodeid = reinterpret_cast<std::uint64_t>(made.get());
        reply.entry.attr_valid = static_cast<std::uint64_t>(attr_timeout_);
        fill_attr(reply.entry.attr, entry->attr);
        reply.open.open_flags = FOPEN_KEEP_CACHE;
      } else {
        reply.out.error = -to_errno(entry.error());
      }
    } catch (const std::bad_alloc&) {
      reply.out.error = -ENOMEM;
    }
  }
  note_reply();
  // The caller was interrupted: it will never know the node.
  if (::write(fd, &reply, reply.out.len) >= 0 || !made) return;
  fs_.closed(made);
  fs_.nodes().forget(made, 1);
}

// Asked only by who wants to know the time of birth, and once an object: the kernel keeps the answer.
void Messages::answer_statx(int fd, std::uint64_t id, std::uint64_t unique) {
  struct {
    fuse_out_header out{};
    StatxOut statx{};
  } reply;
  reply.out.unique = unique;
  reply.out.len = sizeof reply.out;
  try {
    const NodePtr asked = node(id);
    const auto st = fs_.attributes(asked);
    const auto born = st ? fs_.birth(asked) : Result<timespec>(st.error());
    if (born) {
      reply.out.len = sizeof reply;
      fill_statx(reply.statx, *st, *born);
      // As in the answer to GETATTR: a writer is still to ask, and be told.
      reply.statx.valid = asked->unwritten ? 0 : static_cast<std::uint64_t>(attr_timeout_);
    } else {
      reply.out.error = -to_errno(born.error());
    }
  } catch (const std::bad_alloc&) {
    reply.out.error = -ENOMEM;
  }
  note_reply();
  (void)!::write(fd, &reply, reply.out.len);  // who asked may be gone
}

std::vector<Messages::Count> Messages::counts() const {
  std::vector<Count> out;
  for (std::size_t i = 0; i < kOpcodes; ++i) {
    const auto n = stats_[i].count.load(std::memory_order_relaxed);
    if (n == 0) continue;
    out.push_back({kNames[i] ? kNames[i] : "OPCODE_" + std::to_string(i), n, stats_[i].total_ns.load(std::memory_order_relaxed),
                   stats_[i].max_ns.load(std::memory_order_relaxed)});
  }
  return out;
}

}  // namespace ecfs::daemon
