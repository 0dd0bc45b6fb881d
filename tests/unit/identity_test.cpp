// SPDX-License-Identifier: GPL-3.0-or-later
// Whose rights a caller has, and whether it reads or writes: of real threads, by /proc.
#include "daemon/identity.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <functional>
#include <string>
#include <thread>

#include "support.hpp"

using namespace ecfs;
using namespace ecfs::daemon;

namespace {

pid_t this_thread() { return static_cast<pid_t>(::syscall(SYS_gettid)); }

// A child that is in that system call, and stays there.
class Blocked {
 public:
  Blocked(long number, const std::function<void()>& call) : pid_(::fork()) {
    if (pid_ == 0) {
      call();
      ::_exit(0);
    }
    for (int tries = 0; tries < 6000; ++tries) {
      long now = -1;
      std::ifstream("/proc/" + std::to_string(pid_) + "/syscall") >> now;
      if (now == number) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    FAIL("the child does not come to system call ", number);
  }
  Blocked(const Blocked&) = delete;
  Blocked& operator=(const Blocked&) = delete;
  ~Blocked() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_;
};

struct Pipe {
  UniqueFd out, in;
  Pipe() {
    int ends[2];
    REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
    out = UniqueFd(ends[0]), in = UniqueFd(ends[1]);
  }
  void fill() {
    REQUIRE(::fcntl(in.get(), F_SETFL, O_NONBLOCK) == 0);
    const std::string block(4096, 'x');
    while (::write(in.get(), block.data(), block.size()) > 0) {
    }
    REQUIRE(::fcntl(in.get(), F_SETFL, 0) == 0);
  }
};

}  // namespace

TEST_SUITE("identity") {
  TEST_CASE("identity: a capability is the caller's own, not that of the process that works for it") {
    if (::geteuid() != 0) {
      MESSAGE("only root has capabilities");
      return;
    }
    CHECK(has_capability({0, 0, this_thread()}, CAP_FSETID));
    CHECK(has_capability({kUnknown, kUnknown, this_thread()}, CAP_FSETID));  // the kernel does not name the caller
    CHECK_FALSE(has_capability({0, 0, 0}, CAP_FSETID));
    // The kernel's NFS server is root's, and makes its calls with a client's rights.
    CHECK_FALSE(has_capability({12345, 12345, this_thread()}, CAP_FSETID));
    // One that changes only the owner of what it makes: the kernel takes the rights over files from it, and leaves the others.
    std::thread([] {
      const bool had = has_capability({0, 0, this_thread()}, CAP_SYS_ADMIN);  // in a container it may not
      ::syscall(SYS_setfsuid, 12345);
      const Caller caller{12345, 0, this_thread()};
      CHECK_FALSE(has_capability(caller, CAP_FSETID));
      CHECK(has_capability(caller, CAP_SYS_ADMIN) == had);
      CHECK_FALSE(has_capability({0, 0, this_thread()}, CAP_SYS_ADMIN));
    }).join();
  }

  TEST_CASE("identity: who reads a file, and who writes to it") {
    char name[] = "/tmp/ecfs-identity-XXXXXX";
    const UniqueFd file(::mkstemp(name));
    REQUIRE(file);
    ::unlink(name);
    REQUIRE(::ftruncate(file.get(), 1 << 20) == 0);
    struct stat st;
    REQUIRE(::fstat(file.get(), &st) == 0);
    const ino_t ours = st.st_ino, other = ours + 1;
    Pipe empty, full;
    full.fill();
    char byte = 0;
    iovec one{&byte, 1};
    {
      const Blocked reader(SYS_read, [&] { (void)!::read(empty.out.get(), &byte, 1); });
      CHECK(only_reads(reader.pid(), ours));
    }
    {
      const Blocked reader(SYS_preadv2, [&] { (void)!::preadv2(empty.out.get(), &one, 1, -1, 0); });
      CHECK(only_reads(reader.pid(), ours));
    }
    {
      const Blocked writer(SYS_write, [&] { (void)!::write(full.in.get(), &byte, 1); });
      CHECK_FALSE(only_reads(writer.pid(), ours));
    }
    {
      const Blocked sender(SYS_sendfile, [&] { (void)!::sendfile(full.in.get(), file.get(), nullptr, 1); });
      CHECK(only_reads(sender.pid(), ours));
      REQUIRE(::fstat(full.in.get(), &st) == 0);
      CHECK_FALSE(only_reads(sender.pid(), st.st_ino));
    }
    {
      const Blocked writer(SYS_splice, [&] { (void)!::splice(empty.out.get(), nullptr, file.get(), nullptr, 1, 0); });
      CHECK_FALSE(only_reads(writer.pid(), ours));
      CHECK(only_reads(writer.pid(), other));
    }
    {
      const Blocked waiting(SYS_pause, [] { ::pause(); });
      CHECK_FALSE(only_reads(waiting.pid(), ours));
    }
    CHECK_FALSE(only_reads(0, ours));
  }
}
