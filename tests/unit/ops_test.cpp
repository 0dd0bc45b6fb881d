// SPDX-License-Identifier: GPL-3.0-or-later
// Raw FUSE messages over a socket pair, as the kernel would send them: what each is answered with, that it is answered once, and what a
// message that no kernel sends does (nothing).
#define FUSE_USE_VERSION 312
#include <fuse_lowlevel.h>
#include <linux/falloc.h>
#include <linux/fs.h>
#include <linux/fuse.h>
#include <sys/socket.h>

#include <csignal>
#include <cstdarg>
#include <cstring>
#include <new>

#include "daemon/messages.hpp"
#include "daemon/ops.hpp"
#include "daemon_support.hpp"

namespace {

using namespace ecfs;
using namespace ecfs::test;
using daemon::Messages;
using daemon::OpsContext;
using lower::Call;
using lower::Op;
using lower::Verdict;

// Newer than Debian 12's <linux/fuse.h>.
constexpr std::uint32_t kTmpfile = 51, kStatx = 52;
constexpr std::uint32_t kNoExportSupport2 = 1u << 6, kDirectIoAllowMmap2 = 1u << 4, kAllowIdmap2 = 1u << 8, kSecurityCtx2 = 1u << 0, kKillprivV2 = 1u << 28, kInitExt = 1u << 30, kSetattrKillSuidgid = 1u << 11;
constexpr std::uint64_t kDay = 86400;

struct Reply {
  bool answered = false;
  int error = 0;  // positive errno
  Bytes data;
  template <class T>
  T as(std::size_t at = 0) const {
    T out{};
    REQUIRE(data.size() >= at + sizeof(T));
    std::memcpy(&out, data.data() + at, sizeof(T));
    return out;
  }
  std::string text() const { return text_of(data); }
};

class Body {
 public:
  template <class T>
    requires std::is_trivially_copyable_v<T>
  Body& add(const T& v) {
    const auto* p = reinterpret_cast<const std::uint8_t*>(&v);
    bytes_.insert(bytes_.end(), p, p + sizeof v);
    return *this;
  }
  // With its NUL.
  Body& name(std::string_view text) {
    raw(text);
    bytes_.push_back(0);
    return *this;
  }
  Body& raw(std::string_view text) {
    bytes_.insert(bytes_.end(), text.begin(), text.end());
    return *this;
  }
  const Bytes& bytes() const { return bytes_; }

 private:
  Bytes bytes_;
};

// What libfuse has to say of broken messages is counted, not printed.
struct QuietLibfuse {
  static inline int said = 0;
  QuietLibfuse() {
    said = 0;
    fuse_set_log_func([](fuse_log_level, const char*, va_list) { ++said; });
  }
  ~QuietLibfuse() { fuse_set_log_func(nullptr); }
};

struct Options {
  bool noxattr = false;
  bool acl = false;
  double timeout = static_cast<double>(kDay);
  bool beneath = false;
};

// The daemon's end of the socket pair with a session on it, and the kernel's.
class Wire {
 public:
  explicit Wire(Filesystem& fs, Options o = {}) : userdata_{{fs, o.timeout, o.noxattr, o.acl, o.beneath}, {fs, o.timeout}, -1} {
    int ends[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
    kernel_ = UniqueFd(ends[0]);
    const int room = 1 << 20;  // as far as the system lets it
    for (const int end : ends) ::setsockopt(end, SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
    const char* argv[] = {"ops-test", nullptr};
    fuse_args args = FUSE_ARGS_INIT(1, const_cast<char**>(argv));
    session_ = fuse_session_new(&args, &daemon::ops_table(), sizeof(fuse_lowlevel_ops), &userdata_);
    fuse_opt_free_args(&args);
    REQUIRE(session_);
    fuse_custom_io io{};
    io.read = [](int fd, void* buffer, std::size_t size, void* u) { return static_cast<UserData*>(u)->messages.read(fd, buffer, size); };
    io.writev = [](int fd, iovec* iov, int n, void* u) -> ssize_t {
      auto& data = *static_cast<UserData*>(u);
      if (data.fail_with > 0) {
        errno = std::exchange(data.fail_with, -1);
        return -1;
      }
      return data.messages.writev(fd, iov, n);
    };
    REQUIRE(fuse_session_custom_io(session_, &io, ends[1]) == 0);
    buffer_.mem = std::calloc(1, kBuffer);  // zeros behind every message, in every run
    REQUIRE(buffer_.mem);
  }
  Wire(const Wire&) = delete;
  Wire& operator=(const Wire&) = delete;
  ~Wire() {
    fuse_session_destroy(session_);  // closes its end
    std::free(buffer_.mem);
  }

  Messages& messages() { return userdata_.messages; }
  std::uint64_t last_unique() const { return unique_; }
  fuse_session* session() { return session_; }
  // The next reply finds nobody who waits for it.
  void interrupt_next(int error = ENOENT) { userdata_.fail_with = error; }
  void caller(std::uint32_t uid, std::uint32_t gid, pid_t pid = ::getpid()) { uid_ = uid, gid_ = gid, pid_ = static_cast<std::uint32_t>(pid); }
  void hang_up() { kernel_.reset(); }

  void send(const Bytes& message) { REQUIRE(::send(kernel_.get(), message.data(), message.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(message.size())); }
  // The session takes all that is there.
  void serve() {
    for (;;) {
      const int n = fuse_session_receive_buf(session_, &buffer_);
      if (n <= 0) return;
      fuse_session_process_buf(session_, &buffer_);
    }
  }
  Bytes header(std::uint32_t opcode, std::uint64_t node, std::size_t body, std::uint64_t unique) const {
    fuse_in_header h{};
    h.len = static_cast<std::uint32_t>(sizeof h + body);
    h.opcode = opcode;
    h.unique = unique;
    h.nodeid = node;
    h.uid = uid_;
    h.gid = gid_;
    h.pid = pid_;
    Bytes out(sizeof h);
    std::memcpy(out.data(), &h, sizeof h);
    return out;
  }
  // One message, and all that came back for it: one reply or none.
  Reply call(std::uint32_t opcode, std::uint64_t node, const Bytes& body = {}) {
    const std::uint64_t unique = unique_ += 2;
    Bytes message = header(opcode, node, body.size(), unique);
    message.insert(message.end(), body.begin(), body.end());
    send(message);
    serve();
    Reply reply = receive(unique);
    if (kernel_) CHECK_MESSAGE(::recv(kernel_.get(), message.data(), 1, 0) < 0, "a second reply to ", opcode);
    return reply;
  }
  Reply call(std::uint32_t opcode, std::uint64_t node, const Body& body) { return call(opcode, node, body.bytes()); }

  Reply receive(std::uint64_t unique) {
    Reply reply;
    if (!kernel_) return reply;
    Bytes raw(kBuffer);
    const ssize_t n = ::recv(kernel_.get(), raw.data(), raw.size(), 0);
    if (n < 0) {
      CHECK(errno == EAGAIN);
      return reply;
    }
    REQUIRE(n >= static_cast<ssize_t>(sizeof(fuse_out_header)));
    fuse_out_header out;
    std::memcpy(&out, raw.data(), sizeof out);
    CHECK(out.len == static_cast<std::uint32_t>(n));
    CHECK(out.unique == unique);
    CHECK(out.error <= 0);
    CHECK(out.error > -1000);
    reply.answered = true;
    reply.error = -out.error;
    if (out.error != 0) CHECK(n == sizeof out);
    reply.data.assign(raw.begin() + sizeof out, raw.begin() + n);
    return reply;
  }

  // As Linux 6 does it.
  fuse_init_out init(std::uint32_t flags = ~0u & ~(1u << 31), std::uint32_t flags2 = ~0u, std::uint32_t minor = 38) {
    fuse_init_in in{};
    in.major = 7;
    in.minor = minor;
    in.max_readahead = 1 << 20;
    in.flags = flags;
    in.flags2 = flags2;
    const Reply reply = call(FUSE_INIT, 0, Body().add(in));
    REQUIRE(reply.answered);
    CHECK(reply.error == 0);
    CHECK(reply.data.size() == sizeof(fuse_init_out));
    return reply.as<fuse_init_out>();
  }

  // What tests need again and again.
  Reply lookup(std::uint64_t parent, std::string_view name) { return call(FUSE_LOOKUP, parent, Body().name(name)); }
  std::uint64_t mknod(std::uint64_t parent, std::string_view name, std::uint32_t mode = S_IFREG | 0644) {
    fuse_mknod_in in{};
    in.mode = mode;
    in.umask = 022;
    const Reply r = call(FUSE_MKNOD, parent, Body().add(in).name(name));
    REQUIRE(r.error == 0);
    REQUIRE(r.data.size() == sizeof(fuse_entry_out));
    return r.as<fuse_entry_out>().nodeid;
  }
  std::uint64_t mkdir(std::uint64_t parent, std::string_view name) {
    fuse_mkdir_in in{};
    in.mode = 0755;
    in.umask = 022;
    const Reply r = call(FUSE_MKDIR, parent, Body().add(in).name(name));
    REQUIRE(r.error == 0);
    return r.as<fuse_entry_out>().nodeid;
  }
  Reply write(std::uint64_t node, std::string_view content, std::uint64_t off = 0, std::uint32_t flags = 0) {
    fuse_write_in in{};
    in.offset = off;
    in.size = static_cast<std::uint32_t>(content.size());
    in.write_flags = flags;
    return call(FUSE_WRITE, node, Body().add(in).raw(content));
  }
  // As by a descriptor that was opened with these flags.
  Reply write_opened(std::uint64_t node, std::string_view content, std::uint64_t off, int open_flags, std::uint32_t flags = 0) {
    fuse_write_in in{};
    in.offset = off;
    in.size = static_cast<std::uint32_t>(content.size());
    in.flags = static_cast<std::uint32_t>(open_flags);
    in.write_flags = flags;
    return call(FUSE_WRITE, node, Body().add(in).raw(content));
  }
  Reply open(std::uint64_t node, int open_flags) {
    fuse_open_in in{};
    in.flags = static_cast<std::uint32_t>(open_flags);
    return call(FUSE_OPEN, node, Body().add(in));
  }
  Reply create(std::uint64_t parent, std::string_view name, int open_flags) {
    fuse_create_in in{};
    in.flags = static_cast<std::uint32_t>(open_flags | O_CREAT);
    in.mode = S_IFREG | 0644;
    in.umask = 022;
    return call(FUSE_CREATE, parent, Body().add(in).name(name));
  }
  Reply release(std::uint64_t node) { return call(FUSE_RELEASE, node, Body().add(fuse_release_in{})); }
  Reply read(std::uint64_t node, std::uint32_t size, std::uint64_t off = 0, std::uint32_t opcode = FUSE_READ) {
    fuse_read_in in{};
    in.offset = off;
    in.size = size;
    return call(opcode, node, Body().add(in));
  }
  fuse_attr getattr(std::uint64_t node) {
    const Reply r = call(FUSE_GETATTR, node, Body().add(fuse_getattr_in{}));
    REQUIRE(r.error == 0);
    CHECK(r.data.size() == sizeof(fuse_attr_out));
    return r.as<fuse_attr_out>().attr;
  }
  void forget(std::uint64_t node, std::uint64_t count = 1) {
    fuse_forget_in in{};
    in.nlookup = count;
    CHECK(!call(FUSE_FORGET, node, Body().add(in)).answered);
  }

  // As if a program had opened it: what is removed then is still there for whoever has it open.
  static void hold_open(std::uint64_t node) { ++reinterpret_cast<daemon::Node*>(node)->opens; }

  static constexpr std::size_t kBuffer = (1 << 20) + 8192;

 private:
  struct UserData {
    OpsContext context;  // first: the operations see the user data as this
    Messages messages;
    int fail_with;
  };
  UserData userdata_;
  UniqueFd kernel_;
  fuse_session* session_ = nullptr;
  fuse_buf buffer_{};
  std::uint64_t unique_ = 100;
  std::uint32_t uid_ = ::geteuid(), gid_ = ::getegid(), pid_ = static_cast<std::uint32_t>(::getpid());
};

struct ListedEntry {
  std::uint64_t ino, off, nodeid;
  std::uint32_t type;
  fuse_attr attr;
};

// A READDIR or READDIRPLUS reply, taken apart and checked.
std::vector<std::pair<std::string, ListedEntry>> entries(const Reply& r, bool plus, std::uint32_t size) {
  CHECK(r.error == 0);
  CHECK(r.data.size() <= size);
  std::vector<std::pair<std::string, ListedEntry>> out;
  std::size_t at = 0;
  while (at < r.data.size()) {
    ListedEntry e{};
    std::size_t start = at;
    if (plus) {
      const auto entry = r.as<fuse_entry_out>(at);
      e.nodeid = entry.nodeid;
      e.attr = entry.attr;
      if (e.nodeid) CHECK(entry.entry_valid == kDay);
      at += sizeof(fuse_entry_out);
    }
    const auto d = r.as<fuse_dirent>(at);
    at += FUSE_NAME_OFFSET;
    REQUIRE(at + d.namelen <= r.data.size());
    e.ino = d.ino;
    e.off = d.off;
    e.type = d.type;
    out.emplace_back(std::string(reinterpret_cast<const char*>(r.data.data()) + at, d.namelen), e);
    at = start + (at + d.namelen - start + 7) / 8 * 8;
  }
  CHECK(at == r.data.size());
  return out;
}

}  // namespace

TEST_SUITE("ops") {
  TEST_CASE("ops: INIT asks for what the daemon needs and nothing else") {
    TestVolume v;
    // What both know and want, when all is offered; what libfuse's own answer adds is FUSE_BIG_WRITES and FUSE_MAX_PAGES.
    const std::uint32_t wanted = FUSE_ASYNC_READ | FUSE_PARALLEL_DIROPS | FUSE_DO_READDIRPLUS | FUSE_DONT_MASK | FUSE_WRITEBACK_CACHE | FUSE_CACHE_SYMLINKS |
                                 FUSE_EXPLICIT_INVAL_DATA | FUSE_ASYNC_DIO;
    const std::uint32_t of_libfuse = FUSE_BIG_WRITES | FUSE_MAX_PAGES;
    {
      Wire w(v.fs());
      const auto out = w.init();
      CHECK(out.major == 7);
      CHECK(out.minor >= 31);
      CHECK((out.flags & wanted) == wanted);
      CHECK((out.flags & ~(wanted | of_libfuse)) == (kKillprivV2 | kInitExt));
      CHECK(out.flags2 == (kNoExportSupport2 | (as_root() ? kAllowIdmap2 : 0) | (as_shared() ? kDirectIoAllowMmap2 : 0)));
      CHECK(out.max_write == 1 << 20);
      CHECK(out.max_readahead == 1 << 20);
      CHECK(out.time_gran == 1);
      if (out.flags & FUSE_MAX_PAGES) CHECK(out.max_pages == 256);
    }
    {  // An older kernel: nothing that it has not offered.
      Wire w(v.fs());
      const auto out = w.init(FUSE_ASYNC_READ | FUSE_BIG_WRITES | FUSE_DO_READDIRPLUS, ~0u, 31);
      CHECK((out.flags & (kKillprivV2 | kInitExt | FUSE_WRITEBACK_CACHE | FUSE_CACHE_SYMLINKS)) == 0);
      CHECK((out.flags & (FUSE_ASYNC_READ | FUSE_DO_READDIRPLUS)) == (FUSE_ASYNC_READ | FUSE_DO_READDIRPLUS));
      CHECK(out.flags2 == 0);
    }
    {  // flags2 means something only with FUSE_INIT_EXT.
      Wire w(v.fs());
      const auto out = w.init(~0u & ~(1u << 31) & ~kInitExt, ~0u);
      CHECK((out.flags & kKillprivV2) != 0);
      CHECK((out.flags & kInitExt) == 0);
      CHECK(out.flags2 == 0);
    }
    {
      Wire w(v.fs());
      const auto out = w.init(~0u & ~(1u << 31) & ~kKillprivV2, 0);
      CHECK((out.flags & kKillprivV2) == 0);
      CHECK(out.flags2 == 0);
    }
    {  // The short INIT of kernels before 5.17.
      Wire w(v.fs());
      fuse_init_in in{};
      in.major = 7;
      in.minor = 31;
      in.flags = FUSE_ASYNC_READ;
      const Bytes whole = Body().add(in).bytes();
      const Reply r = w.call(FUSE_INIT, 0, Bytes(whole.begin(), whole.begin() + 16));
      CHECK(r.error == 0);
      CHECK(r.as<fuse_init_out>().major == 7);
      CHECK((r.as<fuse_init_out>().flags & FUSE_ASYNC_READ) != 0);
    }
    for (const bool acl : {false, true}) {
      Options o;
      o.acl = acl;
      Wire w(v.fs(), o);
      CHECK(((w.init().flags & FUSE_POSIX_ACL) != 0) == acl);
    }
    {  // Before INIT nothing is served.
      Wire w(v.fs());
      CHECK(w.call(FUSE_GETATTR, FUSE_ROOT_ID, Body().add(fuse_getattr_in{})).error == EIO);
    }
    v.check_clean();
  }

  TEST_CASE("ops: LOOKUP, negative entries, GETATTR, FORGET") {
    TestVolume v;
    std::uint64_t ino = 0;
    {
      const Ref file = v.create(v.root(), "file", "12345");
      ino = file->node->key.ino;
    }
    {
      Wire w(v.fs());
      w.init();
      const Reply none = w.lookup(FUSE_ROOT_ID, "none");
      CHECK(none.answered);
      CHECK(none.error == 0);
      CHECK(none.data.size() == sizeof(fuse_entry_out));
      CHECK(none.as<fuse_entry_out>().nodeid == 0);
      CHECK(none.as<fuse_entry_out>().entry_valid == kDay);
      CHECK(v.fs().nodes().size() == 1);
      CHECK(w.lookup(FUSE_ROOT_ID, std::string(256, 'x')).error == ENAMETOOLONG);

      const auto found = w.lookup(FUSE_ROOT_ID, "file").as<fuse_entry_out>();
      CHECK(found.nodeid > FUSE_ROOT_ID);
      CHECK(found.entry_valid == kDay);
      CHECK(found.attr_valid == kDay);
      CHECK(found.attr.ino == ino);
      CHECK(found.attr.size == 5);
      CHECK(found.attr.mode == (S_IFREG | 0644));
      CHECK(found.attr.nlink == 1);
      CHECK(found.attr.uid == ::geteuid());
      CHECK(found.attr.blksize > 0);
      CHECK(w.lookup(FUSE_ROOT_ID, "file").as<fuse_entry_out>().nodeid == found.nodeid);
      const auto attr = w.getattr(found.nodeid);
      CHECK(attr.ino == ino);
      CHECK(attr.size == 5);
      CHECK(w.getattr(FUSE_ROOT_ID).ino == v.fs().nodes().root()->key.ino);
      CHECK(v.fs().nodes().size() == 2);
      w.forget(found.nodeid);
      CHECK(v.fs().nodes().size() == 2);  // looked up twice
      w.forget(found.nodeid);
      CHECK(v.fs().nodes().size() == 1);
      w.forget(FUSE_ROOT_ID, 1000);
      CHECK(w.getattr(FUSE_ROOT_ID).nlink >= 2);

      std::vector<fuse_forget_one> many;
      for (int i = 0; i < 3; ++i) many.push_back({w.mknod(FUSE_ROOT_ID, "f" + std::to_string(i)), 1});
      many.push_back({FUSE_ROOT_ID, 7});
      Body batch;
      batch.add(fuse_batch_forget_in{static_cast<std::uint32_t>(many.size()), 0});
      for (const auto& f : many) batch.add(f);
      CHECK(v.fs().nodes().size() == 4);
      CHECK(!w.call(FUSE_BATCH_FORGET, 0, batch).answered);
      CHECK(v.fs().nodes().size() == 1);
    }
    v.check_clean();
    {
      Options o;
      o.timeout = 1.5;
      Wire w(v.fs(), o);
      w.init();
      const auto e = w.lookup(FUSE_ROOT_ID, "none").as<fuse_entry_out>();
      CHECK(e.entry_valid == 1);
      CHECK(e.entry_valid_nsec == 500000000);
    }
  }

  TEST_CASE("ops: making, removing, renaming and linking") {
    TestVolume v;
    {
      Wire w(v.fs());
      w.init();
      const std::string long_name(255, 'n');
      const auto dir = w.mkdir(FUSE_ROOT_ID, "dir");
      const auto file = w.mknod(FUSE_ROOT_ID, "file"), fifo = w.mknod(dir, "fifo", S_IFIFO | 0666);
      CHECK(w.getattr(fifo).mode == (S_IFIFO | 0644));  // the umask of the request
      fuse_mknod_in again{};
      again.mode = S_IFREG | 0644;
      CHECK(w.call(FUSE_MKNOD, FUSE_ROOT_ID, Body().add(again).name("file")).error == EEXIST);
      CHECK(w.call(FUSE_MKDIR, FUSE_ROOT_ID, Body().add(fuse_mkdir_in{0755, 022}).name("file")).error == EEXIST);

      const auto symlink = w.call(FUSE_SYMLINK, dir, Body().name("link").name("the target"));
      CHECK(symlink.error == 0);
      CHECK(symlink.as<fuse_entry_out>().attr.mode == (S_IFLNK | 0777));
      CHECK(symlink.as<fuse_entry_out>().attr.size == 10);
      const auto link = symlink.as<fuse_entry_out>().nodeid;
      CHECK(w.call(FUSE_READLINK, link).text() == "the target");
      CHECK(w.call(FUSE_READLINK, file).error != 0);

      const auto linked = w.call(FUSE_LINK, dir, Body().add(fuse_link_in{file}).name(long_name));
      CHECK(linked.as<fuse_entry_out>().nodeid == file);
      CHECK(linked.as<fuse_entry_out>().attr.nlink == 2);
      CHECK(w.call(FUSE_LINK, dir, Body().add(fuse_link_in{file}).name(long_name)).error == EEXIST);

      CHECK(w.call(FUSE_RENAME, FUSE_ROOT_ID, Body().add(fuse_rename_in{dir}).name("file").name("moved")).error == 0);
      CHECK(w.lookup(FUSE_ROOT_ID, "file").as<fuse_entry_out>().nodeid == 0);
      CHECK(w.call(FUSE_RENAME, FUSE_ROOT_ID, Body().add(fuse_rename_in{dir}).name("file").name("moved")).error == ENOENT);
      CHECK(w.call(FUSE_RENAME2, dir, Body().add(fuse_rename2_in{dir, RENAME_NOREPLACE, 0}).name("moved").name("fifo")).error == EEXIST);
      CHECK(w.call(FUSE_RENAME2, dir, Body().add(fuse_rename2_in{dir, RENAME_EXCHANGE, 0}).name("moved").name("fifo")).error == 0);
      CHECK(w.call(FUSE_RENAME2, dir, Body().add(fuse_rename2_in{dir, RENAME_WHITEOUT | RENAME_EXCHANGE, 0}).name("moved").name("fifo")).error == EINVAL);
      const auto exchanged = w.lookup(dir, "fifo").as<fuse_entry_out>();
      CHECK(exchanged.nodeid == file);

      CHECK(w.call(FUSE_RMDIR, FUSE_ROOT_ID, Body().name("dir")).error == ENOTEMPTY);
      CHECK(w.call(FUSE_UNLINK, FUSE_ROOT_ID, Body().name("dir")).error == EISDIR);
      CHECK(w.call(FUSE_RMDIR, dir, Body().name("fifo")).error == ENOTDIR);
      CHECK(w.call(FUSE_UNLINK, dir, Body().name("none")).error == ENOENT);
      for (const auto id : {file, link}) Wire::hold_open(id);
      for (const std::string& name : {std::string("fifo"), std::string("moved"), std::string("link"), long_name})
        CHECK(w.call(FUSE_UNLINK, dir, Body().name(name)).error == 0);
      CHECK(w.call(FUSE_RMDIR, FUSE_ROOT_ID, Body().name("dir")).error == 0);
      CHECK(w.getattr(file).nlink == 0);
      CHECK(w.getattr(dir).nlink == 0);
      CHECK(w.call(FUSE_READLINK, link).text() == "the target");

      w.forget(file, 3);  // made, linked, looked up
      for (const auto id : {fifo, link, dir}) w.forget(id);
      CHECK(v.fs().nodes().size() == 1);
    }
    v.check_clean();
  }

  TEST_CASE("ops: contents") {
    TestVolume v;
    {
      Wire w(v.fs());
      w.init();
      const auto file = w.mknod(FUSE_ROOT_ID, "file", S_IFREG | 06755);
      CHECK(w.read(file, 100).data.empty());
      const std::string big(100000, 'b');
      const Reply written = w.write(file, big, 10);
      CHECK(written.error == 0);
      CHECK(written.data.size() == sizeof(fuse_write_out));
      CHECK(written.as<fuse_write_out>().size == big.size());
      CHECK(w.getattr(file).size == 100010);
      CHECK(w.read(file, 20, 0).text() == std::string(10, '\0') + "bbbbbbbbbb");
      CHECK(w.read(file, 65536, 10).text() == big.substr(0, 65536));
      CHECK(w.read(file, 4096, 100000).text() == big.substr(0, 10));
      CHECK(w.read(file, 4096, 100010).data.empty());
      CHECK(w.read(FUSE_ROOT_ID, 10).error == EISDIR);
      CHECK(w.write(FUSE_ROOT_ID, "x").error == EISDIR);

      fuse_lseek_in seek{};
      seek.whence = SEEK_DATA;
      CHECK(w.call(FUSE_LSEEK, file, Body().add(seek)).as<fuse_lseek_out>().offset == 0);
      seek.whence = SEEK_HOLE;
      CHECK(w.call(FUSE_LSEEK, file, Body().add(seek)).as<fuse_lseek_out>().offset == 100010);
      seek.offset = 100010;
      CHECK(w.call(FUSE_LSEEK, file, Body().add(seek)).error == ENXIO);

      fuse_fallocate_in allocate{};
      allocate.length = 120000;
      CHECK(w.call(FUSE_FALLOCATE, file, Body().add(allocate)).error == 0);
      CHECK(w.getattr(file).size == 120000);
      allocate.mode = FALLOC_FL_COLLAPSE_RANGE;
      CHECK(w.call(FUSE_FALLOCATE, file, Body().add(allocate)).error == EOPNOTSUPP);
      allocate.mode = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
      CHECK(w.call(FUSE_FALLOCATE, file, Body().add(allocate)).error == 0);
      CHECK(w.read(file, 64, 5000).text() == std::string(64, '\0'));
      CHECK(w.getattr(file).size == 120000);

      fuse_fsync_in sync{};
      CHECK(w.call(FUSE_FSYNC, file, Body().add(sync)).error == 0);
      sync.fsync_flags = FUSE_FSYNC_FDATASYNC;
      CHECK(w.call(FUSE_FSYNC, file, Body().add(sync)).error == 0);
      CHECK(w.call(FUSE_FSYNCDIR, FUSE_ROOT_ID, Body().add(sync)).error == 0);
      {
        const LowerHook hook([](const Call& c) -> Verdict { return {.error = c.op == Op::fsync ? EIO : 0}; });
        CHECK(w.call(FUSE_FSYNC, file, Body().add(sync)).error == EIO);
        CHECK(w.call(FUSE_FSYNCDIR, FUSE_ROOT_ID, Body().add(sync)).error == EIO);
      }
      {
        const LowerHook hook([](const Call& c) -> Verdict { return {.error = c.op == Op::pwrite ? EDQUOT : 0}; });
        CHECK(w.write(file, "x").error == EDQUOT);
      }
      w.forget(file);
    }
    v.check_clean();
  }

  TEST_CASE("ops: OPEN, CREATE and appending where others write too") {
    if (!as_shared()) return;
    TestVolume v;
    auto second = v.try_open();
    REQUIRE(second);
    {
      const Options options{.timeout = 1, .beneath = true};
      Wire a(v.fs(), options), b(**second, options);
      a.init();
      b.init();
      const Reply made = a.create(FUSE_ROOT_ID, "f", O_RDWR | O_EXCL);
      REQUIRE(made.error == 0);
      REQUIRE(made.data.size() == sizeof(fuse_entry_out) + sizeof(fuse_open_out));
      const auto in_a = made.as<fuse_entry_out>().nodeid;
      CHECK(made.as<fuse_open_out>(sizeof(fuse_entry_out)).open_flags == 0);
      // There already: for O_EXCL that is the answer, else the kernel is to look again.
      CHECK(b.create(FUSE_ROOT_ID, "f", O_RDWR | O_EXCL).error == EEXIST);
      CHECK(b.create(FUSE_ROOT_ID, "f", O_RDWR).error == ESTALE);
      const auto in_b = b.lookup(FUSE_ROOT_ID, "f").as<fuse_entry_out>().nodeid;

      // Nothing is kept across openings, and appending goes past the cache.
      CHECK(b.open(in_b, O_RDWR).as<fuse_open_out>().open_flags == 0);
      CHECK(b.open(in_b, O_WRONLY | O_APPEND).as<fuse_open_out>().open_flags == FOPEN_DIRECT_IO);
      CHECK(a.open(in_a, O_RDWR | O_APPEND).as<fuse_open_out>().open_flags == FOPEN_DIRECT_IO);
      const Reply appending = a.create(FUSE_ROOT_ID, "log", O_WRONLY | O_APPEND);
      CHECK(appending.as<fuse_open_out>(sizeof(fuse_entry_out)).open_flags == FOPEN_DIRECT_IO);
      const auto log = appending.as<fuse_entry_out>().nodeid;

      // Each with the end that its kernel knows of.
      const std::string big(5000, 'B');
      CHECK(a.write_opened(in_a, "one ", 0, O_RDWR | O_APPEND).error == 0);
      CHECK(b.write_opened(in_b, "two ", 0, O_WRONLY | O_APPEND).error == 0);
      CHECK(b.write_opened(in_b, big, 4, O_WRONLY | O_APPEND).error == 0);
      CHECK(a.write_opened(in_a, "three", 4, O_RDWR | O_APPEND).error == 0);
      CHECK(a.read(in_a, 8192).text() == "one two " + big + "three");
      CHECK(b.getattr(in_b).size == 8 + big.size() + 5);
      // Not opened for appending; and what is written back from a mapping of what was.
      CHECK(b.write_opened(in_b, "ONE", 0, O_RDWR).error == 0);
      CHECK(a.write_opened(in_a, "TWO", 4, O_RDWR | O_APPEND, FUSE_WRITE_CACHE).error == 0);
      CHECK(b.read(in_b, 8192).text() == "ONE TWO " + big + "three");

      // What the other has removed, or put another in the place of, is not opened any more.
      CHECK(b.release(in_b).error == 0);
      CHECK(b.release(in_b).error == 0);
      CHECK(b.call(FUSE_UNLINK, FUSE_ROOT_ID, Body().name("f")).error == 0);
      CHECK(a.open(in_a, O_RDWR).error == ESTALE);
      const auto again = b.mknod(FUSE_ROOT_ID, "f");
      CHECK(a.open(in_a, O_RDWR).error == ESTALE);
      // What a program has open still reads.
      CHECK(a.read(in_a, 3).text() == "ONE");
      CHECK(a.release(in_a).error == 0);
      CHECK(a.release(in_a).error == 0);
      CHECK(a.release(log).error == 0);
      a.forget(in_a);
      a.forget(log);
      b.forget(in_b);
      b.forget(again);
    }
    second->reset();
    v.check_clean();
  }

  TEST_CASE("ops: SETATTR, and set-id bits as killpriv_v2 promises") {
    TestVolume v;
    {
      Wire w(v.fs());
      w.init();
      const auto file = w.mknod(FUSE_ROOT_ID, "file");
      REQUIRE(w.write(file, "0123456789").error == 0);
      const auto set = [&](std::uint32_t valid, const std::function<void(fuse_setattr_in&)>& fill) {
        fuse_setattr_in in{};
        in.valid = valid;
        fill(in);
        const Reply r = w.call(FUSE_SETATTR, file, Body().add(in));
        CHECK(r.error == 0);
        CHECK(r.data.size() == sizeof(fuse_attr_out));
        CHECK(r.as<fuse_attr_out>().attr_valid == kDay);
        return r.as<fuse_attr_out>().attr;
      };
      const auto chmod = [&](std::uint32_t mode) { return set(FATTR_MODE, [&](auto& in) { in.mode = mode; }).mode & 07777; };
      CHECK(chmod(06755) == 06755);
      CHECK(set(FATTR_SIZE, [](auto& in) { in.size = 5; }).size == 5);
      CHECK(w.read(file, 100).text() == "01234");
      if (as_root()) CHECK((w.getattr(file).mode & 07777) == 06755);  // the caller may keep them; the lower kernel lets root's alone
      CHECK((set(FATTR_SIZE | kSetattrKillSuidgid, [](auto& in) { in.size = 4; }).mode & 07777) == 0755);
      chmod(06755);
      REQUIRE(w.write(file, "x", 0, FUSE_WRITE_KILL_SUIDGID).error == 0);
      CHECK((w.getattr(file).mode & 07777) == 0755);
      chmod(06755);
      REQUIRE(w.write(file, "x").error == 0);
      if (as_root()) CHECK((w.getattr(file).mode & 07777) == 06755);
      fuse_fallocate_in allocate{};
      allocate.length = 100;
      if (as_root()) {
        CHECK(w.call(FUSE_FALLOCATE, file, Body().add(allocate)).error == 0);
        CHECK((w.getattr(file).mode & 07777) == 06755);
      }
      w.caller(4711, 4711, 0);  // whose capabilities cannot be seen has none
      CHECK(w.call(FUSE_FALLOCATE, file, Body().add(allocate)).error == 0);
      CHECK((w.getattr(file).mode & 07777) == 0755);
      w.caller(::geteuid(), ::getegid());
      chmod(06755);
      set(FATTR_CTIME, [](auto& in) { in.ctime = 5; });  // chown(path, -1, -1)
      CHECK((w.getattr(file).mode & 07777) == 0755);

      auto attr = set(FATTR_ATIME | FATTR_MTIME, [](auto& in) {
        in.atime = 1000, in.atimensec = 11;
        in.mtime = 2000, in.mtimensec = 22;
      });
      CHECK(attr.atime == 1000);
      CHECK(attr.atimensec == 11);
      CHECK(attr.mtime == 2000);
      CHECK(attr.mtimensec == 22);
      attr = set(FATTR_MTIME | FATTR_MTIME_NOW, [](auto&) {});
      CHECK(attr.mtime > 1000000000);
      CHECK(attr.atime == 1000);
      attr = set(FATTR_CTIME, [](auto& in) { in.ctime = 5; });  // the lower filesystem's to keep
      CHECK(attr.ctime > 1000000000);
      if (as_root()) {
        attr = set(FATTR_UID | FATTR_GID, [](auto& in) { in.uid = 12, in.gid = 34; });
        CHECK(attr.uid == 12);
        CHECK(attr.gid == 34);
      }
      // Also of a file that has lost its name.
      Wire::hold_open(file);
      REQUIRE(w.call(FUSE_UNLINK, FUSE_ROOT_ID, Body().name("file")).error == 0);
      CHECK(set(FATTR_CTIME, [](auto& in) { in.ctime = 5; }).nlink == 0);
      CHECK(set(FATTR_SIZE, [](auto& in) { in.size = 0; }).size == 0);
      w.forget(file);
    }
    v.check_clean();
  }

  TEST_CASE("ops: what is refused once for all, and what is not known") {
    TestVolume v;
    {
      Wire w(v.fs());
      w.init();
      const auto file = w.mknod(FUSE_ROOT_ID, "file");
      CHECK(w.call(FUSE_OPEN, file, Body().add(fuse_open_in{})).error == ENOSYS);
      CHECK(w.call(FUSE_OPENDIR, FUSE_ROOT_ID, Body().add(fuse_open_in{})).error == ENOSYS);
      CHECK(w.call(FUSE_CREATE, FUSE_ROOT_ID, Body().add(fuse_create_in{}).name("x")).error == ENOSYS);
      CHECK(w.call(FUSE_FLUSH, file, Body().add(fuse_flush_in{})).error == ENOSYS);
      fuse_ioctl_in ioctl{};
      ioctl.cmd = 0x80086601;  // FS_IOC_GETFLAGS
      ioctl.out_size = 8;
      CHECK(w.call(FUSE_IOCTL, file, Body().add(ioctl)).error == ENOTTY);
      for (const std::uint32_t opcode : {std::uint32_t{FUSE_ACCESS}, std::uint32_t{FUSE_GETLK}, std::uint32_t{FUSE_SETLK}, std::uint32_t{FUSE_BMAP},
                                         std::uint32_t{FUSE_POLL}, std::uint32_t{FUSE_COPY_FILE_RANGE}, std::uint32_t{FUSE_SYNCFS}, 7u, 19u, 53u, 62u,
                                         63u, 64u, 1000u, 5000u, 0xffffffffu}) {
        CAPTURE(opcode);
        const Reply r = w.call(opcode, file, Bytes(128));
        CHECK(r.answered);
        CHECK(r.error == ENOSYS);
      }
      // Not there with no-open, and harmless.
      CHECK(w.call(FUSE_RELEASE, file, Body().add(fuse_release_in{})).error == 0);
      CHECK(w.call(FUSE_RELEASEDIR, FUSE_ROOT_ID, Body().add(fuse_release_in{})).error == 0);
      // Of a request that has been answered: with the next message libfuse says EAGAIN once, and the kernel knows better.
      CHECK(!w.call(FUSE_INTERRUPT, 0, Body().add(fuse_interrupt_in{12345})).answered);
      Bytes next = w.header(FUSE_STATFS, FUSE_ROOT_ID, 0, 54321);
      w.send(next);
      w.serve();
      CHECK(w.receive(w.last_unique()).error == EAGAIN);
      CHECK(w.receive(54321).data.size() == sizeof(fuse_statfs_out));
      CHECK(w.getattr(file).nlink == 1);

      const Reply statfs = w.call(FUSE_STATFS, FUSE_ROOT_ID);
      CHECK(statfs.data.size() == sizeof(fuse_statfs_out));
      CHECK(statfs.as<fuse_statfs_out>().st.namelen == 255);
      CHECK(statfs.as<fuse_statfs_out>().st.blocks > 0);
      w.forget(file);
      CHECK(w.call(FUSE_DESTROY, 0).error == 0);
    }
    v.check_clean();
  }

  TEST_CASE("ops: damage is EIO, never EPERM") {
    TestVolume v;
    {
      const Ref root = v.root();
      v.create(root, "block", std::string(10000, 'x'));
      v.create(root, "header", "x");
      v.symlink(root, "link", "target");
      v.create(v.mkdir(root, "dir"), "file", "x");
    }
    const auto overwrite = [](const std::string& path, off_t at) {
      const UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
      REQUIRE(fd);
      REQUIRE(::pwrite(fd.get(), "damaged!", 8, at) == 8);
    };
    overwrite(v.lower("/block"), 4096 + 100);
    overwrite(v.lower("/header"), 20);
    const std::string link = v.lower("/link"), dir = v.lower("/dir");
    std::filesystem::remove(link);
    std::filesystem::create_symlink(std::string(70, 'A'), link);
    std::filesystem::remove(dir + "/ecfs.dir");
    ::removexattr(dir.c_str(), kDirXattr);
    v.open();
    {
      Wire w(v.fs());
      w.init();
      std::map<std::string, std::uint64_t> ids;
      for (const char* name : {"block", "header", "link", "dir"}) {
        ids[name] = w.lookup(FUSE_ROOT_ID, name).as<fuse_entry_out>().nodeid;
        REQUIRE(ids[name] != 0);
      }
      CHECK(w.read(ids["block"], 100).text() == std::string(100, 'x'));
      CHECK(w.read(ids["block"], 100, 5000).error == EIO);
      CHECK(w.read(ids["block"], 10000).error == EIO);
      CHECK(w.read(ids["header"], 100).error == EIO);
      CHECK(w.write(ids["header"], "x").error == EIO);
      CHECK(w.call(FUSE_READLINK, ids["link"]).error == EIO);
      CHECK(w.lookup(ids["dir"], "file").error == EIO);
      CHECK(w.read(ids["dir"], 4096, 0, FUSE_READDIRPLUS).error == EIO);
      CHECK(w.call(FUSE_UNLINK, ids["dir"], Body().name("file")).error == EIO);
      CHECK(v.fs().damage().blocks == 2);
      for (const auto& [_, id] : ids) w.forget(id);
    }
    CHECK(v.fs().nodes().size() == 1);
  }

  TEST_CASE("ops: listings in every size, and READDIRPLUS's lookups") {
    TestVolume v;
    std::set<std::string> expected{".", ".."};
    for (int i = 0; i < 60; ++i) {
      const std::string name = std::string(static_cast<std::size_t>(1 + i * 4), static_cast<char>('a' + i % 26)) + std::to_string(i);
      v.create(v.root(), name, std::string(static_cast<std::size_t>(i), 'x'));
      expected.insert(name);
    }
    v.check_clean();
    Wire w(v.fs());
    w.init();
    for (const bool plus : {false, true})
      for (const std::uint32_t size : {420u, 512u, 4096u, 131072u}) {
        CAPTURE(plus);
        CAPTURE(size);
        std::set<std::string> seen;
        std::vector<std::uint64_t> looked_up;
        std::uint64_t off = 0;
        for (;;) {
          const auto part = entries(w.read(FUSE_ROOT_ID, size, off, plus ? FUSE_READDIRPLUS : FUSE_READDIR), plus, size);
          if (part.empty()) break;
          for (const auto& [name, e] : part) {
            CHECK(seen.insert(name).second);
            off = e.off;
            const bool dots = name == "." || name == "..";
            CHECK(e.type == (dots ? 4u : 8u));  // DT_DIR, DT_REG
            CHECK(e.ino != 0);
            if (plus) CHECK((e.nodeid == 0) == dots);
            if (e.nodeid) {
              looked_up.push_back(e.nodeid);
              CHECK(e.attr.ino == e.ino);
              CHECK(e.attr.mode == (S_IFREG | 0644));
            }
          }
        }
        CHECK(seen == expected);
        CHECK(looked_up.size() == (plus ? 60 : 0));
        CHECK(v.fs().nodes().size() == 1 + looked_up.size());
        for (const auto id : looked_up) w.forget(id);
        CHECK(v.fs().nodes().size() == 1);
      }
    // Too little for any entry: an empty answer, and nothing remembered.
    CHECK(w.read(FUSE_ROOT_ID, 10, 0, FUSE_READDIRPLUS).data.empty());
    CHECK(w.read(FUSE_ROOT_ID, 0, 0, FUSE_READDIR).data.empty());
    CHECK(v.fs().nodes().size() == 1);
    // An error before any entry is told; after some it waits for the next request.
    {
      const LowerHook hook([](const Call& c) -> Verdict { return {.error = c.op == Op::getdents ? EIO : 0}; });
      CHECK(w.read(FUSE_ROOT_ID, 4096, 0, FUSE_READDIR).error == EIO);
    }
  }

  TEST_CASE("ops: extended attributes in two steps") {
    TestVolume v;
    if (!have_user_xattrs(v.path())) {
      MESSAGE("the temporary directory's filesystem has no user xattrs");
      return;
    }
    {
      Wire w(v.fs());
      w.init();
      const auto file = w.mknod(FUSE_ROOT_ID, "file");
      const auto set = [&](const std::string& name, const std::string& value, std::uint32_t flags = 0) {
        const std::uint32_t in[2] = {static_cast<std::uint32_t>(value.size()), flags};  // FUSE_COMPAT_SETXATTR_IN_SIZE
        return w.call(FUSE_SETXATTR, file, Body().add(in).name(name).raw(value)).error;
      };
      const auto get = [&](std::uint32_t opcode, std::uint32_t size, const std::string& name = {}) {
        Body b;
        b.add(fuse_getxattr_in{size, 0});
        if (!name.empty()) b.name(name);
        return w.call(opcode, file, b);
      };
      CHECK(get(FUSE_GETXATTR, 0, "security.capability").error == ENODATA);
      CHECK(get(FUSE_LISTXATTR, 0).as<fuse_getxattr_out>().size == 0);
      CHECK(set("user.a", "value") == 0);
      CHECK(set("user.a", "value", XATTR_CREATE) == EEXIST);
      CHECK(set("user.b", "value", XATTR_REPLACE) == ENODATA);
      CHECK(get(FUSE_GETXATTR, 0, "user.a").data.size() == sizeof(fuse_getxattr_out));
      CHECK(get(FUSE_GETXATTR, 0, "user.a").as<fuse_getxattr_out>().size == 5);
      CHECK(get(FUSE_GETXATTR, 4, "user.a").error == ERANGE);
      CHECK(get(FUSE_GETXATTR, 5, "user.a").text() == "value");
      CHECK(get(FUSE_GETXATTR, 65536, "user.a").text() == "value");
      CHECK(get(FUSE_GETXATTR, 0, "user.none").error == ENODATA);
      CHECK(get(FUSE_LISTXATTR, 0).as<fuse_getxattr_out>().size == 7);
      CHECK(get(FUSE_LISTXATTR, 6).error == ERANGE);
      CHECK(get(FUSE_LISTXATTR, 7).text() == std::string("user.a\0", 7));
      CHECK(w.call(FUSE_REMOVEXATTR, file, Body().name("user.a")).error == 0);
      CHECK(w.call(FUSE_REMOVEXATTR, file, Body().name("user.a")).error == ENODATA);
      w.forget(file);
    }
    {
      Options o;
      o.noxattr = true;
      Wire w(v.fs(), o);
      w.init();
      const std::uint32_t in[2] = {1, 0};
      CHECK(w.call(FUSE_GETXATTR, FUSE_ROOT_ID, Body().add(in).name("user.a")).error == ENOSYS);
      CHECK(w.call(FUSE_SETXATTR, FUSE_ROOT_ID, Body().add(in).name("user.a").raw("x")).error == ENOSYS);
      CHECK(w.call(FUSE_LISTXATTR, FUSE_ROOT_ID, Body().add(in)).error == ENOSYS);
      CHECK(w.call(FUSE_REMOVEXATTR, FUSE_ROOT_ID, Body().name("user.a")).error == ENOSYS);
    }
    v.check_clean();
  }

  TEST_CASE("ops: STATX, which this libfuse does not know") {
    TestVolume v;
    {
      Wire w(v.fs());
      w.init();
      const auto file = w.mknod(FUSE_ROOT_ID, "file"), dir = w.mkdir(FUSE_ROOT_ID, "dir");
      REQUIRE(w.write(file, "content").error == 0);
      struct In {
        std::uint32_t flags = 0, reserved = 0;
        std::uint64_t handle = 0;
        std::uint32_t sx_flags = 0, sx_mask = STATX_BASIC_STATS | STATX_BTIME;
      };
      for (const std::uint64_t id : {std::uint64_t{FUSE_ROOT_ID}, file, dir}) {
        const Reply r = w.call(kStatx, id, Body().add(In{}));
        REQUIRE(r.error == 0);
        REQUIRE(r.data.size() == 288);
        const auto attr = w.getattr(id);
        const auto number = [&]<class T>(T value, std::size_t at) {
          std::memcpy(&value, r.data.data() + at, sizeof value);
          return value;
        };
        // Offsets as in struct fuse_statx_out, whose statx begins at 32.
        const auto mask = number(std::uint32_t{}, 32);
        CHECK((mask & STATX_BASIC_STATS) == STATX_BASIC_STATS);
        CHECK(number(std::uint32_t{}, 36) == attr.blksize);
        CHECK(number(std::uint32_t{}, 48) == attr.nlink);
        CHECK(number(std::uint16_t{}, 60) == attr.mode);
        CHECK(number(std::uint64_t{}, 64) == attr.ino);
        CHECK(number(std::uint64_t{}, 72) == attr.size);
        CHECK(number(std::uint64_t{}, 80) == attr.blocks);
        CHECK(number(std::int64_t{}, 144) == static_cast<std::int64_t>(attr.mtime));
        CHECK(number(std::uint32_t{}, 152) == attr.mtimensec);
        // No file is born after its last change, and none of these long before.
        if (mask & STATX_BTIME) {
          const auto born = number(std::int64_t{}, 112);
          CHECK(born <= static_cast<std::int64_t>(attr.ctime));
          CHECK(born >= static_cast<std::int64_t>(attr.ctime) - 3600);
        }
      }
      CHECK(w.call(kStatx, file).error == EINVAL);
      CHECK(w.call(kStatx, file, Bytes(23)).error == EINVAL);
      CHECK(w.call(kStatx, 0, Body().add(In{})).error == EINVAL);
      {
        const LowerHook hook([](const Call& c) -> Verdict { return {.error = c.op == Op::stat ? EIO : 0}; });
        CHECK(w.call(kStatx, dir, Body().add(In{})).error == EIO);
      }
      w.forget(file);
      w.forget(dir);
    }
    v.check_clean();
  }

  TEST_CASE("ops: TMPFILE, which this libfuse does not know") {
    TestVolume v;
    {
      Wire w(v.fs());
      w.init();
      fuse_create_in in{};
      in.mode = S_IFREG | 0666;
      in.umask = 027;
      in.flags = O_RDWR;
      const auto dir = w.mkdir(FUSE_ROOT_ID, "dir");
      for (const std::uint64_t parent : {std::uint64_t{FUSE_ROOT_ID}, dir}) {
        const Reply r = w.call(kTmpfile, parent, Body().add(in).name("/"));
        REQUIRE(r.answered);
        if (r.error == EOPNOTSUPP) {
          MESSAGE("the temporary directory's filesystem has no O_TMPFILE");
          return;
        }
        REQUIRE(r.error == 0);
        CHECK(r.data.size() == sizeof(fuse_entry_out) + sizeof(fuse_open_out));
        const auto e = r.as<fuse_entry_out>();
        CHECK(e.attr.mode == (S_IFREG | 0640));
        CHECK(e.attr.nlink == 0);
        CHECK(e.attr.size == 0);
        CHECK(w.write(e.nodeid, "hidden").error == 0);
        CHECK(w.read(e.nodeid, 100).text() == "hidden");
        CHECK(w.getattr(e.nodeid).size == 6);
        const auto linked = w.call(FUSE_LINK, dir, Body().add(fuse_link_in{e.nodeid}).name("named")).as<fuse_entry_out>();
        CHECK(linked.nodeid == e.nodeid);
        CHECK(linked.attr.nlink == 1);
        CHECK(w.call(FUSE_UNLINK, dir, Body().name("named")).error == 0);
        w.forget(e.nodeid, 2);
      }
      CHECK(v.fs().nodes().pinned() == 0);
      // Cut short; and a lower filesystem that has none.
      CHECK(w.call(kTmpfile, FUSE_ROOT_ID).error == EINVAL);
      CHECK(w.call(kTmpfile, FUSE_ROOT_ID, Bytes(15)).error == EINVAL);
      {
        const LowerHook hook([](const Call& c) -> Verdict { return {.error = c.op == Op::open ? EOPNOTSUPP : 0}; });
        CHECK(w.call(kTmpfile, FUSE_ROOT_ID, Body().add(in).name("/")).error == EOPNOTSUPP);
      }
      {
        const LowerHook hook([](const Call& c) -> Verdict {
          if (c.op == Op::stat) throw std::bad_alloc();
          return {};
        });
        CHECK(w.call(kTmpfile, FUSE_ROOT_ID, Body().add(in).name("/")).error == ENOMEM);
      }
      w.forget(dir);
      CHECK(v.fs().nodes().size() == 1);
      // Nobody is there any more to be answered.
      const auto old = ::signal(SIGPIPE, SIG_IGN);
      Bytes message = w.header(kTmpfile, FUSE_ROOT_ID, sizeof in + 2, 9999);
      const Bytes body = Body().add(in).name("/").bytes();
      message.insert(message.end(), body.begin(), body.end());
      w.send(message);
      w.hang_up();
      {
        const QuietLibfuse quiet;
        w.serve();
      }
      ::signal(SIGPIPE, old);
      CHECK(v.fs().nodes().size() == 1);
      CHECK(v.fs().nodes().pinned() == 0);
    }
    v.check_clean();
  }

  TEST_CASE("ops: a reply that finds nobody gives its lookup back") {
    TestVolume v;
    {
      Wire w(v.fs());
      w.init();
      const auto dir = w.mkdir(FUSE_ROOT_ID, "dir");
      const auto file = w.mknod(dir, "file");
      REQUIRE(v.fs().nodes().size() == 3);
      fuse_mknod_in mknod{};
      mknod.mode = S_IFREG | 0644;
      const std::vector<std::tuple<std::uint32_t, std::uint64_t, Body>> calls = {
          {FUSE_LOOKUP, dir, Body().name("file")},
          {FUSE_MKNOD, dir, Body().add(mknod).name("new")},
          {FUSE_MKDIR, dir, Body().add(fuse_mkdir_in{0755, 0}).name("new dir")},
          {FUSE_SYMLINK, dir, Body().name("new link").name("target")},
          {FUSE_LINK, dir, Body().add(fuse_link_in{file}).name("second")}};
      for (const auto& [opcode, id, body] : calls) {
        CAPTURE(opcode);
        w.interrupt_next();
        CHECK(!w.call(opcode, id, body).answered);
        CHECK(v.fs().nodes().size() == 3);
      }
      w.forget(file);
      CHECK(v.fs().nodes().size() == 2);  // none of them had counted one more for it
      w.interrupt_next();
      CHECK(!w.read(dir, 8192, 0, FUSE_READDIRPLUS).answered);
      CHECK(v.fs().nodes().size() == 2);
      CHECK(w.getattr(dir).nlink == 3);
      w.forget(dir);
    }
    v.check_clean();
  }

  TEST_CASE("ops: what is made gets the label that comes with its message, or is not made") {
    TestVolume v;
    {
      Wire w(v.fs());
      w.messages().ask_for_labels();
      CHECK((w.init().flags2 & kSecurityCtx2) == kSecurityCtx2);
      const std::string value("system_u:object_r:home_t:s0", 28);  // with its NUL
      const auto labelled = [&](std::string_view xattr, std::uint32_t said, std::size_t cut = 0) {
        fuse_secctx_header header{};
        header.nr_secctx = 1;
        fuse_secctx context{};
        context.size = said;
        Body b;
        b.add(header).add(context).name(xattr).raw(value).raw(std::string(4, '\0'));
        Bytes out = b.bytes();
        out.resize(out.size() - cut);
        return std::string(out.begin(), out.end());
      };
      const auto label_of = [&](std::uint64_t node) {
        const Reply r = w.call(FUSE_GETXATTR, node, Body().add(fuse_getxattr_in{100, 0}).name("security.selinux"));
        return r.error ? std::string() : std::string(r.data.begin(), r.data.end());
      };
      fuse_mkdir_in dir{};
      dir.mode = 0755;
      fuse_mknod_in file{};
      file.mode = S_IFREG | 0444;
      const auto size = static_cast<std::uint32_t>(value.size());
      const std::string whole = labelled("security.selinux", size);
      // Root may, and, where no module that guards labels runs, some kernels let anybody.
      const bool may = ::setxattr(v.path().c_str(), "security.selinux", "x", 1, 0) == 0;
      int n = 0;
      const auto each = [&](const std::string& after, const std::string& expected) {
        const std::string name = std::to_string(++n), far(200, 'n');
        const Reply made[] = {w.call(FUSE_MKDIR, FUSE_ROOT_ID, Body().add(dir).name(name + "d").raw(after)),
                              w.call(FUSE_MKNOD, FUSE_ROOT_ID, Body().add(file).name(name + far).raw(after)),
                              w.call(FUSE_SYMLINK, FUSE_ROOT_ID, Body().name(name + "l").name("target").raw(after))};
        for (const Reply& r : made) {
          if (!expected.empty() && !may) {
            CHECK(r.error == EPERM);
            continue;
          }
          REQUIRE(r.error == 0);
          CHECK(label_of(r.as<fuse_entry_out>().nodeid) == expected);
          w.forget(r.as<fuse_entry_out>().nodeid);
        }
        if (!expected.empty() && !may) CHECK(w.lookup(FUSE_ROOT_ID, name + "d").as<fuse_entry_out>().nodeid == 0);
      };
      each(whole, "");  // not kept here
      w.messages().keep_labels(true);
      each(whole, value);
      each("", "");
      each(labelled("security.other", size), "");
      each(labelled("security.selinux", size + 100), "");  // longer than the message
      each(labelled("security.selinux", ~0u), "");
      for (std::size_t cut = 4; cut <= whole.size(); cut += 3) each(labelled("security.selinux", size, cut), cut == 4 ? value : "");
    }
    v.check_clean();
  }

  TEST_CASE("ops: messages are counted and timed") {
    TestVolume v;
    Wire w(v.fs());
    w.init();
    for (int i = 0; i < 3; ++i) w.getattr(FUSE_ROOT_ID);
    w.lookup(FUSE_ROOT_ID, "none");
    w.call(FUSE_OPEN, FUSE_ROOT_ID, Body().add(fuse_open_in{}));
    w.call(kTmpfile, FUSE_ROOT_ID, Body().add(fuse_create_in{}).name("/"));
    w.call(60, FUSE_ROOT_ID);
    w.call(70, FUSE_ROOT_ID);
    w.forget(FUSE_ROOT_ID);
    std::map<std::string, std::uint64_t> counts;
    for (const auto& c : w.messages().counts()) {
      counts[c.name] = c.count;
      CHECK(c.max_ns <= c.total_ns);
      if (c.name != "FORGET") CHECK(c.total_ns > 0);
    }
    CHECK(counts == std::map<std::string, std::uint64_t>{{"INIT", 1}, {"GETATTR", 3}, {"LOOKUP", 1}, {"OPEN", 1}, {"TMPFILE", 1}, {"OPCODE_60", 1}, {"FORGET", 1}});
  }

  TEST_CASE("ops: memory that runs out is ENOMEM, and the daemon goes on") {
    TestVolume v;
    {
      const Ref root = v.root();
      v.create(root, "file", "content");
      v.symlink(root, "link", "target");
    }
    v.open();
    {
      Wire w(v.fs());
      w.init();
      const auto file = w.lookup(FUSE_ROOT_ID, "file").as<fuse_entry_out>().nodeid, link = w.lookup(FUSE_ROOT_ID, "link").as<fuse_entry_out>().nodeid;
      fuse_mknod_in mknod{};
      mknod.mode = S_IFIFO | 0644;
      fuse_setattr_in chmod{};
      chmod.valid = FATTR_MODE;
      chmod.mode = 0600;
      const std::uint32_t xattr[2] = {1, 0};
      fuse_read_in read{};
      read.size = 4096;
      fuse_lseek_in seek{};
      seek.whence = SEEK_DATA;
      fuse_write_in write{};
      write.size = 1;
      fuse_fallocate_in allocate{};
      allocate.length = 10;
      const std::vector<std::tuple<std::uint32_t, std::uint64_t, Body>> calls = {
          {FUSE_LOOKUP, FUSE_ROOT_ID, Body().name("file")},
          {FUSE_GETATTR, file, Body().add(fuse_getattr_in{})},
          {FUSE_SETATTR, file, Body().add(chmod)},
          {FUSE_READLINK, link, Body()},
          {FUSE_SYMLINK, FUSE_ROOT_ID, Body().name("new link").name("t")},
          {FUSE_MKNOD, FUSE_ROOT_ID, Body().add(mknod).name("new fifo")},
          {FUSE_MKDIR, FUSE_ROOT_ID, Body().add(fuse_mkdir_in{0755, 0}).name("new dir")},
          {FUSE_LINK, FUSE_ROOT_ID, Body().add(fuse_link_in{file}).name("second")},
          {FUSE_RENAME, FUSE_ROOT_ID, Body().add(fuse_rename_in{FUSE_ROOT_ID}).name("new fifo").name("other fifo")},
          {FUSE_RENAME2, FUSE_ROOT_ID, Body().add(fuse_rename2_in{FUSE_ROOT_ID, 0, 0}).name("other fifo").name("new fifo")},
          {FUSE_UNLINK, FUSE_ROOT_ID, Body().name("new fifo")},
          {FUSE_RMDIR, FUSE_ROOT_ID, Body().name("new dir")},
          {FUSE_READ, file, Body().add(read)},
          {FUSE_WRITE, file, Body().add(write).raw("C")},
          {FUSE_FALLOCATE, file, Body().add(allocate)},
          {FUSE_LSEEK, file, Body().add(seek)},
          {FUSE_FSYNC, file, Body().add(fuse_fsync_in{})},
          {FUSE_FSYNCDIR, FUSE_ROOT_ID, Body().add(fuse_fsync_in{})},
          {FUSE_STATFS, FUSE_ROOT_ID, Body()},
          {FUSE_READDIR, FUSE_ROOT_ID, Body().add(read)},
          {FUSE_READDIRPLUS, FUSE_ROOT_ID, Body().add(read)},
          {FUSE_SETXATTR, file, Body().add(xattr).name("user.a").raw("v")},
          {FUSE_GETXATTR, file, Body().add(xattr).name("user.a")},
          {FUSE_LISTXATTR, file, Body().add(xattr)},
          {FUSE_REMOVEXATTR, file, Body().add(xattr).name("user.a")}};
      std::map<std::uint64_t, std::uint64_t> lookups{{file, 1}, {link, 1}};
      const auto note = [&](std::uint32_t opcode, const Reply& r) {
        if (r.error != 0) return;
        if (opcode == FUSE_LOOKUP || opcode == FUSE_MKNOD || opcode == FUSE_MKDIR || opcode == FUSE_SYMLINK || opcode == FUSE_LINK)
          ++lookups[r.as<fuse_entry_out>().nodeid];
        if (opcode == FUSE_READDIRPLUS)
          for (const auto& [_, e] : entries(r, true, read.size))
            if (e.nodeid) ++lookups[e.nodeid];
      };
      for (const auto& [opcode, id, body] : calls)
        for (int n = 1;; ++n) {
          CAPTURE(opcode);
          CAPTURE(n);
          v.fs().nodes().files.drop(*reinterpret_cast<Node*>(file));  // so that each has to open it
          int seen = 0;
          Reply r;
          {
            const LowerHook hook([&](const Call&) -> Verdict {
              if (++seen == n) throw std::bad_alloc();
              return {};
            });
            r = w.call(opcode, id, body);
          }
          CHECK(r.answered);
          note(opcode, r);
          if (seen < n) {
            CHECK(n > 1);
            break;
          }
          CHECK(r.error == ENOMEM);
          CHECK(w.getattr(FUSE_ROOT_ID).nlink >= 2);
        }
      CHECK(w.read(file, 100).text() == std::string("Content\0\0\0", 10));
      for (const auto& [id, count] : lookups) w.forget(id, count);
      CHECK(v.fs().nodes().size() == 1);
      CHECK(v.fs().nodes().pinned() == 0);
    }
    v.check_clean();
  }

  TEST_CASE("ops: messages that no kernel sends do no harm") {
    TestVolume v;
    v.create(v.root(), "file", "content");
    {
      Wire w(v.fs());
      w.init();
      const auto file = w.lookup(FUSE_ROOT_ID, "file").as<fuse_entry_out>().nodeid;
      // Cut after any number of bytes, for any operation; what lies behind in the buffer is zeros.
      for (std::uint32_t opcode = 0; opcode < 70; ++opcode) {
        if (opcode == FUSE_INIT || opcode == FUSE_DESTROY) continue;
        for (const std::uint64_t id : {std::uint64_t{FUSE_ROOT_ID}, file})
          for (std::size_t n = 0; n <= 64; n += n < 20 ? 1 : 4) {
            INFO("opcode ", opcode, ", ", n, " bytes");
            const bool silent = opcode == FUSE_FORGET || opcode == FUSE_BATCH_FORGET || opcode == FUSE_INTERRUPT || opcode == FUSE_NOTIFY_REPLY;
            // These would mean what they say; and libfuse keeps a NOTIFY_REPLY that it never asked for.
            if (opcode == FUSE_NOTIFY_REPLY && n >= sizeof(fuse_notify_retrieve_in)) continue;
            if ((opcode == FUSE_FORGET && id == file) || (opcode == FUSE_INTERRUPT && n >= sizeof(fuse_interrupt_in))) continue;
            const Reply r = w.call(opcode, id, Bytes(n));
            CHECK(r.answered == !silent);
          }
      }
      CHECK(w.read(file, 100).text() == "content");
      // A header alone that is cut.
      {
        const QuietLibfuse quiet;
        w.send(Bytes(10));
        w.serve();
        CHECK(QuietLibfuse::said == 1);
      }
      CHECK(w.getattr(file).size == 7);

      // What is no directory has nothing in it.
      CHECK(w.lookup(file, "x").error == ENOTDIR);
      CHECK(w.call(FUSE_MKDIR, file, Body().add(fuse_mkdir_in{0755, 0}).name("x")).error == ENOTDIR);
      CHECK(w.call(FUSE_UNLINK, file, Body().name("x")).error == ENOTDIR);
      CHECK(w.call(FUSE_RENAME, FUSE_ROOT_ID, Body().add(fuse_rename_in{file}).name("file").name("x")).error == ENOTDIR);
      CHECK(w.read(file, 4096, 0, FUSE_READDIR).error == ENOTDIR);
      CHECK(w.call(FUSE_FSYNCDIR, file, Body().add(fuse_fsync_in{})).error == ENOTDIR);

      // Sizes that are not in the message, or that nobody has memory for.
      fuse_write_in write{};
      write.size = 0x7fffffff;
      CHECK(w.call(FUSE_WRITE, file, Body().add(write).raw("x")).error != 0);
      write.size = 5;
      CHECK(w.call(FUSE_WRITE, file, Body().add(write).raw("abc")).error != 0);
      const std::uint32_t xattr[2] = {0xffffffff, 0};
      CHECK(w.call(FUSE_SETXATTR, file, Body().add(xattr).name("user.a").raw("x")).error != 0);
      CHECK(w.read(file, 0xffffffff).answered);
      CHECK(w.read(FUSE_ROOT_ID, 0xffffffff, 0, FUSE_READDIR).answered);
      CHECK(w.read(file, 100, ~std::uint64_t{0}).answered);
      CHECK(w.read(FUSE_ROOT_ID, 4096, ~std::uint64_t{0}, FUSE_READDIR).answered);
      CHECK(!w.call(FUSE_BATCH_FORGET, 0, Body().add(fuse_batch_forget_in{0xffffffff, 0})).answered);
      CHECK(w.call(FUSE_LOOKUP, FUSE_ROOT_ID, Body().raw("file")).answered);  // no NUL
      CHECK(w.call(FUSE_LINK, FUSE_ROOT_ID, Body().add(fuse_link_in{0}).name("x")).answered);
      CHECK(w.call(FUSE_RENAME, FUSE_ROOT_ID, Body().add(fuse_rename_in{0}).name("file").name("x")).answered);
      CHECK(w.read(file, 100).text() == "content");
      CHECK(w.getattr(file).nlink == 1);
    }
  }

  TEST_CASE("ops: objects are the caller's") {
    if (!as_root()) return;
    TestVolume v;
    REQUIRE(::chmod(v.path().c_str(), 0777) == 0);
    Wire w(v.fs());
    w.init();
    w.caller(12345, 54321);
    const auto file = w.mknod(FUSE_ROOT_ID, "file"), dir = w.mkdir(FUSE_ROOT_ID, "dir");
    for (const auto id : {file, dir}) {
      CHECK(w.getattr(id).uid == 12345);
      CHECK(w.getattr(id).gid == 54321);
    }
    w.caller(0, 0);
    CHECK(w.getattr(w.mknod(FUSE_ROOT_ID, "roots")).uid == 0);
  }
}
