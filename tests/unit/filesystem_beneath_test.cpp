// SPDX-License-Identifier: GPL-3.0-or-later
// Who else may be at work on the lower directory: the copies that tools make, locks that others hold, and what whoever may only read
// there can do. "unit filesystem" runs this alone on the lower directory, "unit filesystem, shared" as one of several mounts.
#include <linux/fs.h>
#include <linux/posix_acl.h>
#include <linux/posix_acl_xattr.h>
#include <sys/fsuid.h>

#include <thread>

#include "daemon/writers_file.hpp"
#include "daemon_support.hpp"

namespace {

using namespace ecfs;
using namespace ecfs::test;
using daemon::SessionMarker;
using lower::Call;
using lower::Op;
using lower::Verdict;

const std::string kLongTarget(4000, 't');

bool is(const std::error_code& e, int wanted) { return is_errno(e, wanted); }

std::size_t target_files(const TestVolume& v) {
  const auto names = TestVolume::lower_names(v.path());
  return static_cast<std::size_t>(std::count_if(names.begin(), names.end(), [](const auto& n) { return n.starts_with(kTargetPrefix); }));
}

// A volume with one link that has a target file, and a conflict copy of it.
struct Copied {
  TestVolume v;
  Ref root, dir, other;
  explicit Copied(NameMode names) : v(VolumeOptions{.names = names}) {
    root = v.root();
    dir = v.mkdir(root, "dir");
    other = v.mkdir(root, "other");
    v.symlink(dir, "link", kLongTarget);
    const std::string below = v.lower("/dir/link");
    std::filesystem::copy_symlink(below, below + "~");
    CHECK(v.names(dir) == std::set<std::string>{"link", "link~"});
    CHECK(target_files(v) == 1);
  }
  std::string target(const Ref& in, std::string_view name) {
    const auto text = v.fs().read_link(v.lookup(in, name)->node);
    return text ? *text : text.error().message();
  }
};

mode_t mode_of(const std::string& path) {
  struct stat st {};
  REQUIRE(::lstat(path.c_str(), &st) == 0);
  return st.st_mode & 07777;
}

// May that user open it for reading, and so lock it?
bool may_read(uid_t uid, int dir, const char* name) {
  ::setfsgid(uid);
  ::setfsuid(uid);
  const UniqueFd fd(::openat(dir, name, O_RDONLY | O_CLOEXEC));
  ::setfsuid(0);
  ::setfsgid(0);
  return static_cast<bool>(fd);
}

struct AclEntry {
  unsigned short tag, perm;
  unsigned id = ACL_UNDEFINED_ID;
};

// False where the filesystem has no ACLs.
bool set_acl(const std::string& path, const char* name, const std::vector<AclEntry>& entries) {
  std::string text(sizeof(posix_acl_xattr_header), '\0');
  text[0] = POSIX_ACL_XATTR_VERSION;
  for (const auto& e : entries) {
    const posix_acl_xattr_entry raw{e.tag, e.perm, e.id};
    text.append(reinterpret_cast<const char*>(&raw), sizeof raw);
  }
  return ::setxattr(path.c_str(), name, text.data(), text.size(), 0) == 0;
}

// Another's lock on a lower file (fcntl(2)), for as long as it lives.
struct Taken {
  UniqueFd fd;
  Taken(const std::string& path, lower::FileLock how) {
    auto opened = lower::open_path(path, O_RDWR);
    REQUIRE(opened);
    fd = std::move(*opened);
    REQUIRE(lower::lock_file(fd.get(), how));
  }
};

}  // namespace

TEST_SUITE("filesystem") {
  TEST_CASE("filesystem: a link with a long target and its copy share the target file, which goes with the last of them") {
    for (const auto names : {NameMode::encrypted, NameMode::plain}) {
      CAPTURE(static_cast<int>(names));
      for (const bool copy_first : {false, true}) {
        CAPTURE(copy_first);
        Copied c(names);
        CHECK(!c.v.unlink(c.dir, copy_first ? "link~" : "link"));
        CHECK(c.target(c.dir, copy_first ? "link" : "link~") == kLongTarget);
        CHECK(!c.v.unlink(c.dir, copy_first ? "link" : "link~"));
        CHECK(target_files(c.v) == 0);
      }
      {
        // Replaced by another file.
        Copied c(names);
        c.v.create(c.dir, "file", "x");
        CHECK(!c.v.rename(c.dir, "file", c.dir, "link"));
        CHECK(c.target(c.dir, "link~") == kLongTarget);
      }
      {
        // One replaces the other.
        Copied c(names);
        CHECK(!c.v.rename(c.dir, "link", c.dir, "link~"));
        CHECK(c.v.names(c.dir) == std::set<std::string>{"link~"});
        CHECK(c.target(c.dir, "link~") == kLongTarget);
      }
    }
  }

  TEST_CASE("filesystem: a link that was moved away from its copy takes the target file from nobody") {
    for (const auto names : {NameMode::encrypted, NameMode::plain}) {
      CAPTURE(static_cast<int>(names));
      for (const std::string moved : {"link", "link~"}) {
        CAPTURE(moved);
        const std::string stays = moved == "link" ? "link~" : "link";
        for (const bool away : {false, true}) {
          CAPTURE(away);
          Copied c(names);
          const Ref& to = away ? c.other : c.dir;
          CHECK(!c.v.rename(c.dir, moved, to, "new"));
          CHECK(!c.v.unlink(to, "new"));
          CHECK(c.target(c.dir, stays) == kLongTarget);
        }
        for (const bool away : {false, true}) {
          CAPTURE(away);
          Copied c(names);
          const Ref& to = away ? c.other : c.dir;
          CHECK(!c.v.rename(c.dir, moved, to, "new"));
          CHECK(!c.v.unlink(c.dir, stays));
          CHECK(c.target(to, "new") == kLongTarget);
        }
        {
          Copied c(names);
          c.v.create(c.other, "file", "x");
          CHECK(!c.v.rename(c.dir, moved, c.other, "file", RENAME_EXCHANGE));
          CHECK(!c.v.unlink(c.other, "file"));
          CHECK(c.target(c.dir, stays) == kLongTarget);
        }
        {
          // By hard links, of which the last is in another directory.
          Copied c(names);
          c.v.drop(c.v.fs().link(c.v.lookup(c.dir, moved)->node, c.other->node, "new", self()));
          CHECK(!c.v.unlink(c.dir, moved));
          CHECK(!c.v.unlink(c.other, "new"));
          CHECK(c.target(c.dir, stays) == kLongTarget);
        }
      }
    }
  }

  TEST_CASE("filesystem: the copy of a directory keeps the target files of the links in it") {
    TestVolume v;
    const Ref root = v.root();
    {
      const Ref dir = v.mkdir(root, "dir");
      v.symlink(v.mkdir(dir, "sub"), "link", kLongTarget);
      const std::string below = v.lower("/dir");
      std::filesystem::copy(below, below + "~", std::filesystem::copy_options::recursive | std::filesystem::copy_options::copy_symlinks);
    }
    CHECK(v.names(root) == std::set<std::string>{"dir", "dir~"});
    CHECK(!v.unlink(v.walk("dir/sub"), "link"));
    const auto text = v.fs().read_link(v.walk("dir~/sub/link")->node);
    REQUIRE_MESSAGE(text, text.error().message());
    CHECK(*text == kLongTarget);
  }

  TEST_CASE("filesystem: without copies target files go, and a directory of them in linear time") {
    TestVolume v;
    const Ref root = v.root(), dir = v.mkdir(root, "dir");
    for (int i = 0; i < 20; ++i) v.symlink(dir, "link " + std::to_string(i), kLongTarget);
    CHECK(target_files(v) == 20);
    CHECK(!v.rename(dir, "link 0", root, "moved"));
    CHECK(!v.rename(dir, "link 1", dir, "link 2"));
    CHECK(target_files(v) == 19);
    CHECK(!v.unlink(root, "moved"));
    std::size_t listed = 0;
    {
      const LowerHook hook([&](const Call& call) -> Verdict {
        listed += call.op == Op::getdents;
        return {};
      });
      for (int i = 2; i < 20; ++i) CHECK(!v.unlink(dir, "link " + std::to_string(i)));
    }
    if (!as_shared()) CHECK(listed < 5);
    CHECK(target_files(v) == 0);
    CHECK(v.log().empty());
  }

  TEST_CASE("filesystem: a copy that gets a name of its own overwrites nothing that came there meanwhile") {
    for (const bool knows_noreplace : {true, false})
      for (const bool directory : {false, true}) {
        CAPTURE(knows_noreplace);
        CAPTURE(directory);
        TestVolume v;
        const Ref root = v.root(), dir = v.mkdir(root, "dir");
        v.create(dir, "short~", "to learn the lower name");
        const std::string own = v.lower("/dir/short~");
        CHECK(!v.unlink(dir, "short~"));
        if (directory)
          v.mkdir(dir, "short");
        else
          v.create(dir, "short", "content");
        const std::string below = v.lower("/dir/short");
        std::filesystem::copy(below, below + "~", std::filesystem::copy_options::recursive);
        CHECK(v.names(dir).contains("short~"));
        if (directory)
          v.mkdir(dir, "other");
        else
          v.create(dir, "other", "other");
        int renames = 0;
        bool came = false;
        const auto comes = [&] {
          if (!std::exchange(came, true)) std::ofstream(own) << "precious";
        };
        {
          const LowerHook hook([&](const Call& call) -> Verdict {
            if (call.op == Op::link && !knows_noreplace) comes();
            if (call.op != Op::rename) return {};
            if (++renames == 1 && !knows_noreplace) {
              if (directory) comes();
              return {.error = EINVAL};
            }
            if (renames == 1) comes();
            return {};
          });
          CHECK(is(v.rename(dir, "other", dir, "short~", RENAME_EXCHANGE), EEXIST));
        }
        CHECK(came);
        std::ifstream in(own);
        CHECK(std::string(std::istreambuf_iterator<char>(in), {}) == "precious");
        CHECK(std::filesystem::exists(below + "~"));
        // And works where nothing is in the way.
        std::filesystem::remove(own);
        renames = 0;
        {
          const LowerHook hook([&](const Call& call) -> Verdict {
            return {.error = call.op == Op::rename && ++renames == 1 && !knows_noreplace ? EINVAL : 0};
          });
          CHECK(!v.rename(dir, "other", dir, "short~", RENAME_EXCHANGE));
        }
        CHECK(!std::filesystem::exists(below + "~"));
        CHECK(v.names(dir) == std::set<std::string>{"short", "short~", "other"});
        if (!directory) {
          CHECK(v.read(v.lookup(dir, "other")) == "content");
          CHECK(v.read(v.lookup(dir, "short~")) == "other");
        }
      }
  }

  TEST_CASE("filesystem: who may not write to the lower directory can lock nothing that mounts lock for all") {
    const struct {
      mode_t dir, lock;
    } cases[] = {{0700, 0600}, {0755, 0600}, {0775, 0660}, {0757, 0606}, {0777, 0666}, {0550, 0600}};
    for (const auto& c : cases) {
      CAPTURE(c.dir);
      TempDir dir;
      auto root = lower::open_path(dir.path(), O_RDONLY | O_DIRECTORY);
      REQUIRE(root);
      if (c.dir == 0550 && !as_root()) continue;
      REQUIRE(::chmod(dir.path().c_str(), c.dir) == 0);
      REQUIRE(daemon::open_for_writers(root->get(), "ecfs.lock"));
      CHECK(mode_of(dir / "ecfs.lock") == c.lock);
      auto marker = SessionMarker::begin(root->get(), SessionMarker::Kind::exclusive);
      REQUIRE(marker);
      CHECK(mode_of(dir / "ecfs.session") == c.lock);
      // What an older version made.
      for (const mode_t old : {0644, 0664, 0666, 0600, 0400}) {
        CAPTURE(old);
        if (old == 0400 && !as_root()) continue;
        REQUIRE(::chmod((dir / "ecfs.lock").c_str(), old) == 0);
        REQUIRE(daemon::open_for_writers(root->get(), "ecfs.lock"));
        CHECK(mode_of(dir / "ecfs.lock") == (old == 0644 ? 0600 : old == 0664 ? 0660 : old));
      }
      REQUIRE(marker->end(root->get()));
      REQUIRE(::chmod(dir.path().c_str(), 0700) == 0);
    }
    if (!as_root()) return;
    // The directory's owner's, also when root mounts it.
    TempDir dir;
    auto root = lower::open_path(dir.path(), O_RDONLY | O_DIRECTORY);
    REQUIRE(::chown(dir.path().c_str(), 1234, 1235) == 0);
    REQUIRE(daemon::open_for_writers(root->get(), "ecfs.lock"));
    struct stat st {};
    REQUIRE(::stat((dir / "ecfs.lock").c_str(), &st) == 0);
    CHECK(st.st_uid == 1234);
    CHECK(st.st_gid == 1235);
  }

  TEST_CASE("filesystem: ACLs of the lower directory say who may lock, and inherited ones do not") {
    if (!as_root()) return;
    TempDir dir;
    REQUIRE(::chmod(dir.path().c_str(), 0755) == 0);
    auto root = lower::open_path(dir.path(), O_RDONLY | O_DIRECTORY);
    REQUIRE(root);
    const int fd = root->get();
    const char *access = "system.posix_acl_access", *inherited = "system.posix_acl_default";
    const std::vector<AclEntry> readers = {{ACL_USER_OBJ, 7}, {ACL_USER, 5, 2001}, {ACL_USER, 7, 2002}, {ACL_GROUP_OBJ, 5}, {ACL_MASK, 7}, {ACL_OTHER, 5}};
    if (!set_acl(dir.path(), inherited, readers)) {
      MESSAGE("no ACLs here");
      return;
    }
    REQUIRE(daemon::open_for_writers(fd, "ecfs.lock"));
    for (const uid_t uid : {2001u, 2002u, 2003u}) CHECK(!may_read(uid, fd, "ecfs.lock"));
    ::unlink((dir / "ecfs.lock").c_str());

    REQUIRE(set_acl(dir.path(), access, readers));
    REQUIRE(daemon::open_for_writers(fd, "ecfs.lock"));
    CHECK(!may_read(2001, fd, "ecfs.lock"));
    CHECK(may_read(2002, fd, "ecfs.lock"));
    CHECK(!may_read(2003, fd, "ecfs.lock"));
    ::unlink((dir / "ecfs.lock").c_str());

    // Where the mask takes the right to write, nobody by name has it.
    auto masked = readers;
    masked[4].perm = 5;
    REQUIRE(set_acl(dir.path(), access, masked));
    REQUIRE(daemon::open_for_writers(fd, "ecfs.lock"));
    for (const uid_t uid : {2001u, 2002u, 2003u}) CHECK(!may_read(uid, fd, "ecfs.lock"));

    // One that is there with too much.
    const std::vector<AclEntry> old = {{ACL_USER_OBJ, 6}, {ACL_USER, 4, 2001}, {ACL_USER, 6, 2002}, {ACL_GROUP_OBJ, 4}, {ACL_MASK, 6}, {ACL_OTHER, 4}};
    REQUIRE(set_acl(dir / "ecfs.lock", access, old));
    CHECK(may_read(2001, fd, "ecfs.lock"));
    REQUIRE(daemon::open_for_writers(fd, "ecfs.lock"));
    CHECK(!may_read(2001, fd, "ecfs.lock"));
    CHECK(may_read(2002, fd, "ecfs.lock"));
    CHECK(!may_read(2003, fd, "ecfs.lock"));
  }

  TEST_CASE("filesystem: a reader that may not see the marker of a writer doubts all sizes") {
    if (!as_root()) return;
    TempDir dir;
    REQUIRE(::chmod(dir.path().c_str(), 0755) == 0);
    auto root = lower::open_path(dir.path(), O_RDONLY | O_DIRECTORY);
    REQUIRE(root);
    auto writer = SessionMarker::begin(root->get(), SessionMarker::Kind::exclusive);
    REQUIRE(writer);
    ::setfsuid(2001);
    const auto reader = SessionMarker::begin(root->get(), SessionMarker::Kind::reader);
    const auto other = SessionMarker::begin(root->get(), SessionMarker::Kind::shared);
    ::setfsuid(0);
    REQUIRE(reader);
    CHECK(reader->in_cut({1, 0}));
    CHECK(is(other.error(), EACCES));
    REQUIRE(writer->end(root->get()));
  }

  TEST_CASE("filesystem: another's lock that is not given back is waited for until a time, and nothing is changed") {
    if (!as_shared()) return;  // alone nothing is locked
    VolumeOptions options;
    options.lock_wait = std::chrono::milliseconds(60);
    TestVolume v(options);
    {
      const Ref root = v.root(), dir = v.mkdir(root, "dir");
      const Ref file = v.create(dir, "file", "content"), other = v.create(dir, std::string(255, 'l'), "other");
      const Snapshot before = v.snapshot();
      const auto lower_before = TestVolume::lower_names(v.lower("/dir"));
      for (const auto how : {lower::FileLock::shared, lower::FileLock::exclusive}) {
        const Taken taken(v.path() + "/ecfs.lock", how);
        CHECK(is(v.drop(v.fs().make_dir(dir->node, "new", 0755, self())), ETIMEDOUT));
        CHECK(is(v.drop(v.fs().make_node(dir->node, std::string(255, 'm'), S_IFREG | 0644, 0, self())), ETIMEDOUT));
        CHECK(is(v.drop(v.fs().make_symlink(dir->node, "new", kLongTarget, self())), ETIMEDOUT));
        CHECK(is(v.drop(v.fs().link(file->node, dir->node, "new", self())), ETIMEDOUT));
        CHECK(is(v.unlink(dir, "file"), ETIMEDOUT));
        CHECK(is(v.rmdir(root, "dir"), ETIMEDOUT));
        CHECK(is(v.rename(dir, "file", root, "file"), ETIMEDOUT));
        // A second thread waits for the first's turn, and no longer than it should either.
        std::error_code second;
        std::thread beside([&] { second = v.fs().unlink(dir->node, "file").error(); });
        const auto first = v.unlink(dir, "file");
        beside.join();
        CHECK(is(first, ETIMEDOUT));
        CHECK(is(second, ETIMEDOUT));
        CHECK(v.read(file) == "content");
        v.write(file, "content");
      }
      CHECK(v.snapshot() == before);
      CHECK(TestVolume::lower_names(v.lower("/dir")) == lower_before);
      CHECK(target_files(v) == 0);
      {
        const Taken taken(v.lower("/dir/file"), lower::FileLock::exclusive);
        CHECK(is(v.try_read(file->node).error(), ETIMEDOUT));
        CHECK(is(v.fs().write(file->node, 0, as_bytes("x"), false).error(), ETIMEDOUT));
        daemon::AttrChange change;
        change.size = 0;
        CHECK(is(v.fs().change_attributes(file->node, change).error(), ETIMEDOUT));
        CHECK(v.read(other) == "other");
        CHECK(!v.rename(dir, "file", root, "file"));
        CHECK(!v.rename(root, "file", dir, "file"));
      }
      {
        // Who reads beside us lets us read, and not write.
        const Taken taken(v.lower("/dir/file"), lower::FileLock::shared);
        CHECK(v.read(file) == "content");
        CHECK(is(v.fs().write(file->node, 0, as_bytes("x"), false).error(), ETIMEDOUT));
      }
      CHECK(v.snapshot() == before);
      v.write(file, "CON");
      CHECK(v.read(file) == "CONtent");
      const auto log = v.log();
      CHECK(log.size() == 2);  // once for each file, by its lower path
      CHECK(std::ranges::all_of(log, [](const auto& line) { return line.find("holds the lock for too long") != std::string::npos; }));
      // It goes on as soon as the lock is given back.
      std::thread gives_back;
      {
        auto taken = std::make_unique<Taken>(v.path() + "/ecfs.lock", lower::FileLock::shared);
        gives_back = std::thread([taken = std::move(taken)]() mutable {
          std::this_thread::sleep_for(std::chrono::milliseconds(5));
          taken.reset();
        });
      }
      std::error_code done = errno_code(ETIMEDOUT);
      for (int tries = 0; tries < 100 && is(done, ETIMEDOUT); ++tries) done = v.unlink(dir, "file");
      gives_back.join();
      CHECK(!done);
    }
    v.check_clean();
  }

  TEST_CASE("filesystem: with noatime a file's atime stays, by whichever way it was opened") {
    for (const bool noatime : {true, false})
      for (const std::string how : {"made", "opened", "without a name"}) {
        CAPTURE(noatime);
        CAPTURE(how);
        VolumeOptions options;
        options.noatime = noatime;
        TestVolume v(options);
        const Ref root = v.root();
        Ref file = how == "without a name" ? v.keep(v.fs().make_tmpfile(root->node, 0644, self()), root) : v.create(root, "f");
        v.write(file, std::string(50000, 'x'));
        if (how == "opened") {
          file.reset();
          v.fs().nodes().files.drop(*v.lookup(root, "f")->node);
          file = v.lookup(root, "f");
        }
        daemon::AttrChange change;
        change.atime = timespec{1000, 0};
        REQUIRE(v.fs().change_attributes(file->node, change));
        v.write(file, "y", 20000);  // which reads the rest of the block
        CHECK(v.stat(file).st_atim.tv_sec == 1000);
        CHECK(v.read(file).size() == 50000);
        const bool moved = v.stat(file).st_atim.tv_sec != 1000;
        if (noatime) CHECK(!moved);
        if (!noatime && !moved) MESSAGE("this filesystem's atimes do not move");
      }
  }
}
