// SPDX-License-Identifier: GPL-3.0-or-later
#include "ecfs/lower.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <set>

#include "support.hpp"

namespace {

using namespace ecfs;
using namespace ecfs::test;
using lower::Call;
using lower::Op;
using lower::Verdict;

// The hook goes with the scope, so that a failing test does not make the next one fail.
struct Hooked {
  explicit Hooked(lower::Hook hook) { lower::set_hook(std::move(hook)); }
  ~Hooked() { lower::set_hook(nullptr); }
};

UniqueFd open_dir(const TempDir& dir) {
  auto fd = lower::open_path(dir.path(), O_RDONLY | O_DIRECTORY);
  REQUIRE(fd);
  return std::move(*fd);
}

}  // namespace

TEST_SUITE("pure") {
  TEST_CASE("lower: pread and pwrite go on after short transfers") {
    const UniqueFd fd = memory_file();
    const Bytes data = counting(10000, 3);
    int calls = 0;
    {
      const Hooked hooked([&](const Call& c) -> Verdict {
        CHECK(c.op == Op::pwrite);
        ++calls;
        return {.error = 0, .limit = 37};
      });
      const auto w = lower::pwrite(fd.get(), data, 5);
      CHECK(!w.error);
      CHECK(w.bytes == data.size());
    }
    CHECK(calls == (10000 + 36) / 37);
    Bytes back(data.size());
    calls = 0;
    {
      const Hooked hooked([&](const Call&) -> Verdict {
        ++calls;
        return {.error = 0, .limit = 101};
      });
      const auto n = lower::pread(fd.get(), back, 5);
      REQUIRE(n);
      CHECK(*n == data.size());
    }
    CHECK(calls == (10000 + 100) / 101);
    CHECK(back == data);
  }

  TEST_CASE("lower: a short transfer to or past the end is told") {
    const UniqueFd fd = memory_file();
    REQUIRE(lower::pwrite(fd.get(), counting(100), 0).bytes == 100);
    Bytes buffer(64);
    CHECK(lower::pread(fd.get(), buffer, 90).value() == 10);
    CHECK(lower::pread(fd.get(), buffer, 100).value() == 0);
    CHECK(lower::pread(fd.get(), buffer, 5000).value() == 0);
    CHECK(lower::pread(fd.get(), {}, 0).value() == 0);
  }

  TEST_CASE("lower: EINTR is tried again") {
    const UniqueFd fd = memory_file();
    int interrupts = 0;
    const Hooked hooked([&](const Call&) -> Verdict { return interrupts++ % 3 < 2 ? Verdict{.error = EINTR} : Verdict{}; });
    const auto w = lower::pwrite(fd.get(), counting(100), 0);
    CHECK(!w.error);
    CHECK(w.bytes == 100);
    CHECK(interrupts == 3);
    Bytes back(100);
    CHECK(lower::pread(fd.get(), back, 0).value() == 100);
    CHECK(back == counting(100));
    CHECK(interrupts == 6);
  }

  TEST_CASE("lower: a write that fails half-way says how much it wrote") {
    const UniqueFd fd = memory_file();
    int calls = 0;
    const Hooked hooked([&](const Call&) -> Verdict {
      return ++calls == 3 ? Verdict{.error = ENOSPC} : Verdict{.error = 0, .limit = 10};
    });
    const auto w = lower::pwrite(fd.get(), counting(100), 0);
    CHECK(is_errno(w.error, ENOSPC));
    CHECK(w.bytes == 20);
  }

  TEST_CASE("lower: every call gives back the injected errno and does nothing") {
    const TempDir dir;
    const UniqueFd d = open_dir(dir);
    const auto made = lower::open_at(d.get(), "file", O_RDWR | O_CREAT, 0600);
    REQUIRE(made);
    const int fd = made->get();
    REQUIRE(lower::symlink_at("file", d.get(), "link"));
    const timespec now[2] = {{0, UTIME_NOW}, {0, UTIME_NOW}};

    std::set<Op> seen;
    const Hooked hooked([&](const Call& c) -> Verdict {
      seen.insert(c.op);
      return {.error = EDQUOT};
    });
    const auto refused = [](const auto& result) { return is_errno(result.error(), EDQUOT); };
    CHECK(refused(lower::open_at(d.get(), "file", O_RDONLY)));
    CHECK(refused(lower::reopen(fd, O_RDONLY)));
    Bytes buffer(4);
    CHECK(refused(lower::pread(fd, buffer, 0)));
    CHECK(is_errno(lower::pwrite(fd, buffer, 0).error, EDQUOT));
    CHECK(refused(lower::ftruncate(fd, 10)));
    CHECK(refused(lower::fallocate(fd, 0, 0, 10)));
    CHECK(refused(lower::seek(fd, 0, SEEK_DATA)));
    CHECK(refused(lower::fsync(fd, false)));
    CHECK(refused(lower::fsync(fd, true)));
    CHECK(refused(lower::stat_fd(fd)));
    CHECK(refused(lower::stat_at(d.get(), "file")));
    CHECK(refused(lower::statvfs(fd)));
    CHECK(refused(lower::mkdir_at(d.get(), "new", 0700)));
    CHECK(refused(lower::mknod_at(d.get(), "new", S_IFREG | 0600, 0)));
    CHECK(refused(lower::symlink_at("x", d.get(), "new")));
    CHECK(refused(lower::link_at(d.get(), "file", d.get(), "new")));
    CHECK(refused(lower::link_fd(fd, d.get(), "new")));
    CHECK(refused(lower::unlink_at(d.get(), "file", false)));
    CHECK(refused(lower::rename_at(d.get(), "file", d.get(), "new", 0)));
    CHECK(refused(lower::readlink_at(d.get(), "link")));
    CHECK(refused(lower::chmod_at(d.get(), "file", 0777)));
    CHECK(refused(lower::chmod_fd(fd, 0777)));
    CHECK(refused(lower::chown_at(d.get(), "file", 1, 1)));
    CHECK(refused(lower::chown_fd(fd, 1, 1)));
    CHECK(refused(lower::utimens_at(d.get(), "file", now)));
    CHECK(refused(lower::utimens_fd(fd, now)));
    CHECK(refused(lower::getxattr(fd, nullptr, "user.a")));
    CHECK(refused(lower::setxattr(fd, nullptr, "user.a", "b", 0)));
    CHECK(refused(lower::listxattr(fd, nullptr)));
    CHECK(refused(lower::removexattr(fd, nullptr, "user.a")));
    CHECK(refused(lower::read_dir(d.get(), 0, [](const auto&) { return true; })));
    CHECK(refused(lower::lock(fd, true)));
    CHECK(refused(lower::syncfs(fd)));
    CHECK(seen.size() == static_cast<std::size_t>(Op::syncfs));  // but for `lock`, no call of the list escapes the hook
    lower::set_hook(nullptr);

    const auto st = lower::stat_at(d.get(), "file");
    REQUIRE(st);
    CHECK(st->st_size == 0);
    CHECK((st->st_mode & 07777) == 0600);
    CHECK(st->st_nlink == 1);
    CHECK(is_errno(lower::stat_at(d.get(), "new").error(), ENOENT));
  }

  TEST_CASE("lower: the kernel's own errors come through") {
    const TempDir dir;
    const UniqueFd d = open_dir(dir);
    CHECK(is_errno(lower::open_at(d.get(), "none", O_RDONLY).error(), ENOENT));
    CHECK(is_errno(lower::stat_at(d.get(), "none").error(), ENOENT));
    CHECK(is_errno(lower::unlink_at(d.get(), "none", false).error(), ENOENT));
    CHECK(is_errno(lower::mkdir_at(d.get(), std::string(300, 'x').c_str(), 0700).error(), ENAMETOOLONG));
    REQUIRE(lower::mkdir_at(d.get(), "sub", 0700));
    CHECK(is_errno(lower::mkdir_at(d.get(), "sub", 0700).error(), EEXIST));
    CHECK(is_errno(lower::unlink_at(d.get(), "sub", false).error(), EISDIR));
    CHECK(is_errno(lower::fsync(-1, true).error(), EBADF));
    Bytes buffer(1);
    CHECK(is_errno(lower::pread(-1, buffer, 0).error(), EBADF));
    CHECK(is_errno(lower::pwrite(-1, buffer, 0).error, EBADF));
    const UniqueFd empty = memory_file();
    CHECK(is_errno(lower::seek(empty.get(), 0, SEEK_DATA).error(), ENXIO));
  }

  TEST_CASE("lower: a name that is a link is never followed") {
    const TempDir dir;
    const UniqueFd d = open_dir(dir);
    REQUIRE(lower::mknod_at(d.get(), "file", S_IFREG | 0600, 0));
    REQUIRE(lower::symlink_at("file", d.get(), "link"));
    CHECK(is_errno(lower::open_at(d.get(), "link", O_RDONLY).error(), ELOOP));
    CHECK(S_ISLNK(lower::stat_at(d.get(), "link").value().st_mode));
    CHECK(lower::readlink_at(d.get(), "link").value() == "file");
    const timespec times[2] = {{1000, 1}, {2000, 2}};
    REQUIRE(lower::utimens_at(d.get(), "link", times));
    CHECK(lower::stat_at(d.get(), "link").value().st_mtim.tv_sec == 2000);
    CHECK(lower::stat_at(d.get(), "file").value().st_mtim.tv_sec != 2000);
    // Linux has no mode of links: refused, and the file behind keeps its own.
    CHECK(is_errno(lower::chmod_at(d.get(), "link", 0777).error(), EOPNOTSUPP));
    CHECK((lower::stat_at(d.get(), "file").value().st_mode & 07777) == 0600);
    REQUIRE(lower::chmod_at(d.get(), "file", 0640));
    CHECK((lower::stat_at(d.get(), "file").value().st_mode & 07777) == 0640);
  }

  TEST_CASE("lower: descriptors of O_PATH serve for attributes and reopening") {
    const TempDir dir;
    const UniqueFd d = open_dir(dir);
    REQUIRE(lower::mknod_at(d.get(), "file", S_IFREG | 0600, 0));
    const auto path = lower::open_at(d.get(), "file", O_PATH);
    REQUIRE(path);
    REQUIRE(lower::chmod_fd(path->get(), 0644));
    const timespec times[2] = {{1000, 1}, {2000, 999999999}};
    REQUIRE(lower::utimens_fd(path->get(), times));
    const auto st = lower::stat_fd(path->get());
    REQUIRE(st);
    CHECK((st->st_mode & 07777) == 0644);
    CHECK(st->st_mtim.tv_sec == 2000);
    CHECK(st->st_mtim.tv_nsec == 999999999);
    const auto open = lower::reopen(path->get(), O_RDWR);
    REQUIRE(open);
    CHECK(lower::pwrite(open->get(), counting(3), 0).bytes == 3);
    CHECK(lower::stat_fd(path->get()).value().st_size == 3);
    CHECK((::fcntl(open->get(), F_GETFD) & FD_CLOEXEC) != 0);
  }

  TEST_CASE("lower: xattrs of any length, by descriptor and by name") {
    const TempDir dir;
    const UniqueFd d = open_dir(dir);
    REQUIRE(lower::mknod_at(d.get(), "file", S_IFREG | 0600, 0));
    const auto fd = lower::open_at(d.get(), "file", O_RDONLY);
    REQUIRE(fd);
    const auto first = lower::setxattr(fd->get(), nullptr, "user.empty", "", 0);
    if (!first && is_errno(first.error(), ENOTSUP)) {
      MESSAGE("the temporary directory's filesystem has no user xattrs");
      return;
    }
    REQUIRE(first);
    std::set<std::string> names = {"user.empty"};
    for (const std::size_t size : {1u, 255u, 256u, 257u, 1000u}) {
      const std::string name = "user.n" + std::to_string(size), value(size, 'v');
      REQUIRE(lower::setxattr(d.get(), "file", name.c_str(), value, 0));
      CHECK(lower::getxattr(fd->get(), nullptr, name.c_str()).value() == value);
      CHECK(lower::getxattr(d.get(), "file", name.c_str()).value() == value);
      names.insert(name);
    }
    CHECK(lower::getxattr(fd->get(), nullptr, "user.empty").value().empty());
    const auto has_all = [&](const std::vector<std::string>& list) {
      return std::ranges::all_of(names, [&](const auto& n) { return std::ranges::count(list, n) == 1; });
    };
    CHECK(has_all(lower::listxattr(fd->get(), nullptr).value()));
    CHECK(has_all(lower::listxattr(d.get(), "file").value()));
    CHECK(is_errno(lower::getxattr(fd->get(), nullptr, "user.none").error(), ENODATA));
    CHECK(is_errno(lower::setxattr(fd->get(), nullptr, "user.n1", "x", 1 /* XATTR_CREATE */).error(), EEXIST));
    REQUIRE(lower::removexattr(fd->get(), nullptr, "user.n1"));
    CHECK(is_errno(lower::getxattr(fd->get(), nullptr, "user.n1").error(), ENODATA));
  }

  TEST_CASE("lower: read_dir tells every entry once, and goes on from a position") {
    const TempDir dir;
    const UniqueFd d = open_dir(dir);
    std::set<std::string> expected = {".", ".."};
    for (int i = 0; i < 2000; ++i) {
      const std::string name = "entry-" + std::to_string(i) + std::string(static_cast<std::size_t>(i % 40), 'x');
      REQUIRE(lower::mknod_at(d.get(), name.c_str(), S_IFREG | 0600, 0));
      expected.insert(name);
    }
    std::multiset<std::string> seen;
    std::uint64_t at = 0;
    // Stops after every 7th entry and starts again from there.
    for (bool more = true; more;) {
      int n = 0;
      more = false;
      REQUIRE(lower::read_dir(d.get(), at, [&](const lower::Dirent& e) {
        if (n++ == 7) {
          more = true;
          return false;
        }
        seen.emplace(e.name);
        at = e.next;
        return true;
      }));
    }
    CHECK(std::set<std::string>(seen.begin(), seen.end()) == expected);
    CHECK(seen.size() == expected.size());
  }

  TEST_CASE("lower: the lock refuses a second holder") {
    const TempDir dir;
    const UniqueFd a = open_dir(dir), b = open_dir(dir);
    REQUIRE(lower::lock(a.get(), true));
    CHECK(is_errno(lower::lock(b.get(), true).error(), EWOULDBLOCK));
    CHECK(is_errno(lower::lock(b.get(), false).error(), EWOULDBLOCK));
    REQUIRE(lower::lock(a.get(), false));
    CHECK(lower::lock(b.get(), false));
  }

  TEST_CASE("lower: rename flags and links of open files") {
    const TempDir dir;
    const UniqueFd d = open_dir(dir);
    const auto file = lower::open_at(d.get(), ".", O_TMPFILE | O_RDWR, 0600);
    if (!file) {
      CHECK(is_errno(file.error(), EOPNOTSUPP));
      return;
    }
    REQUIRE(lower::link_fd(file->get(), d.get(), "a"));
    REQUIRE(lower::link_at(d.get(), "a", d.get(), "b"));
    CHECK(lower::stat_fd(file->get()).value().st_nlink == 2);
    REQUIRE(lower::mknod_at(d.get(), "c", S_IFREG | 0600, 0));
    CHECK(is_errno(lower::rename_at(d.get(), "a", d.get(), "c", 1 /* RENAME_NOREPLACE */).error(), EEXIST));
    const auto ino_c = lower::stat_at(d.get(), "c").value().st_ino;
    REQUIRE(lower::rename_at(d.get(), "a", d.get(), "c", 2 /* RENAME_EXCHANGE */));
    CHECK(lower::stat_at(d.get(), "a").value().st_ino == ino_c);
    REQUIRE(lower::rename_at(d.get(), "a", d.get(), "c", 0));
    CHECK(is_errno(lower::stat_at(d.get(), "a").error(), ENOENT));
  }
}
