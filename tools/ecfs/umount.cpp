// SPDX-License-Identifier: GPL-3.0-or-later
// ecfs umount, ecfs-umount.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "busy.hpp"
#include "commands.hpp"
#include "control_client.hpp"
#include "ecfs/unique_fd.hpp"
#include "mountinfo.hpp"

namespace ecfs {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;

// The daemon behind a mount. Held by a pidfd: the number alone may be somebody else's by the time the daemon
// is gone.
struct Daemon {
  pid_t pid = 0;
  UniqueFd fd;

  // True when it ended in time, or was never there.
  bool wait(milliseconds patience) const {
    if (!fd) return true;
    pollfd p{fd.get(), POLLIN, 0};
    const auto end = steady_clock::now() + patience;
    for (;;) {
      const auto left = std::chrono::duration_cast<milliseconds>(end - steady_clock::now()).count();
      if (::poll(&p, 1, static_cast<int>(std::max<long>(left, 0))) > 0) return true;
      if (left <= 0) return false;
    }
  }
};

Daemon daemon_of(const Mount& mount) {
  Daemon d;
  const auto pid = daemon_pid(mount);
  if (!pid) return d;
  d.pid = *pid;
  if (d.pid > 0) d.fd = UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, d.pid, 0)));
  return d;
}

// Whatever can still be written is, in a child: syncfs hangs where the daemon does.
void try_sync(const Mount& mount) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    const int fd = ::open(mount.target.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    ::_exit(fd >= 0 && ::syncfs(fd) == 0 ? 0 : 1);
  }
  if (pid < 0) return;
  const UniqueFd fd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  pollfd p{fd.get(), POLLIN, 0};
  // One that hangs stays behind until the connection is aborted, which ends it.
  if (::poll(&p, 1, 5000) <= 0) ::kill(pid, SIGKILL);
}

// Aborts the FUSE connection: every call in the mount fails at once. Without fusectl the daemon is killed,
// which does the same.
Outcome<void> abort_connection(const Mount& mount, const Daemon& daemon) {
  const std::string file = "/sys/fs/fuse/connections/" + std::to_string(minor(mount.device)) + "/abort";
  const UniqueFd fd(::open(file.c_str(), O_WRONLY | O_CLOEXEC));
  if (fd && ::write(fd.get(), "1", 1) == 1) return {};
  if (daemon.fd && ::syscall(SYS_pidfd_send_signal, daemon.fd.get(), SIGKILL, nullptr, 0) == 0) return {};
  return Failure{Exit::failure, shell_word(mount.target),
                 "it can't be cut off: no " + file + ", and the daemon's process is not known",
                 "mount -t fusectl none /sys/fs/fuse/connections, and try again"};
}

Failure busy_failure(const Mount& mount) {
  const auto who = holders(mount);
  std::string list;
  // A shell and an editor are told by name; of a hundred, the first will do.
  for (std::size_t i = 0; i < who.size() && i < 10; ++i) list += (i == 0 ? "" : "; ") + who[i];
  if (who.size() > 10) list += "; and " + std::to_string(who.size() - 10) + " more";
  if (who.empty())
    list = ::geteuid() == 0 ? "no process of this namespace holds it: perhaps a loop device, swap, NFS "
                              "export or another container"
                            : "perhaps a process of another user, which only root can see";
  const std::string name = shell_word(mount.target);
  return {Exit::busy, name, "busy: " + list,
          "end what uses it, or let it go when they are done: ecfs umount --lazy " + name};
}

Outcome<void> normal_unmount(const Mount& mount, bool lazy) {
  Outcome<void> r;
  // Indexers and the like come and go in the moment after the last change.
  for (int i = 0; i < 4; ++i) {
    if (i > 0) std::this_thread::sleep_for(milliseconds(50));
    r = unmount(mount, lazy);
    if (r || r.failure().exit != Exit::busy) return r;
  }
  return r;
}

Outcome<void> forced_unmount(const Mount& mount, const Daemon& daemon) {
  const std::string name = shell_word(mount.target);
  print_warning(name + ": forced; what programs have not written yet is lost to them");
  try_sync(mount);
  if (auto r = abort_connection(mount, daemon); !r) return r;
  return clear_dead(mount);
}

}  // namespace

Outcome<void> command_umount(const std::string& name, Args args) {
  std::string target;
  bool lazy = false, force = false;
  CommandLine app(name, "Unmounts MOUNT and waits until its daemon has written everything and is gone.",
                  "MOUNT");
  app.add_option("MOUNT", target, "The mount point")->required();
  auto* l = app.add_flag("-l,--lazy", lazy,
                         "Take it out of sight now, and away when the last program is done with it");
  app.add_flag("-f,--force", force, "When it is busy or hangs: cut it off; data not written yet is lost")
      ->excludes(l);
  if (auto go = parse_arguments(app, std::move(args)); !go || !*go)
    return go ? Outcome<void>() : go.failure();

  auto mount = find_ecfs_mount(target);
  if (!mount) return mount.failure();
  if (is_dead(*mount)) {
    if (auto r = clear_dead(*mount); !r) return r;
    print_note("the daemon of " + shell_word(mount->target) + " was dead; its mount is cleared");
    return {};
  }
  const Daemon daemon = daemon_of(*mount);
  auto r = normal_unmount(*mount, lazy);
  if (!r && force) r = forced_unmount(*mount, daemon);
  if (!r) return r.failure().exit == Exit::busy ? busy_failure(*mount) : r;
  if (daemon.wait(lazy ? seconds(1) : seconds(30))) return {};
  if (lazy) {
    print_note("programs still use " + shell_word(mount->target) + "; its daemon (pid " +
               std::to_string(daemon.pid) + ") ends with the last of them");
    return {};
  }
  return Failure{
      Exit::failure, shell_word(mount->target),
      "unmounted, but its daemon (pid " + std::to_string(daemon.pid) + ") has not ended within 30 seconds",
      "it may still be writing; its log says what it does"};
}

}  // namespace ecfs
