// SPDX-License-Identifier: GPL-3.0-or-later
#include "daemon/identity.hpp"

#include <linux/capability.h>
#include <sched.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

namespace ecfs::daemon {
namespace {

const bool kRoot = ::geteuid() == 0;

// glibc's set*id wrappers change every thread of the process: two callers at once would make files with each other's owners. The
// bare system calls change only this one.
void set_thread_groups(const std::vector<gid_t>& groups) { ::syscall(SYS_setgroups, groups.size(), groups.data()); }

const std::vector<gid_t>& own_groups() {
  static const std::vector<gid_t> groups = [] {
    std::vector<gid_t> g(static_cast<std::size_t>(std::max(0, ::getgroups(0, nullptr))));
    const int n = ::getgroups(static_cast<int>(g.size()), g.data());
    g.resize(n < 0 ? 0 : static_cast<std::size_t>(n));
    return g;
  }();
  return groups;
}

// Supplementary groups of the calling thread (proc(5), /proc/PID/status). Empty when it is gone already.
std::vector<gid_t> groups_of(pid_t pid) {
  std::vector<gid_t> groups;
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("Groups:", 0) != 0) continue;
    std::istringstream numbers(line.substr(7));
    for (gid_t g; numbers >> g;) groups.push_back(g);
    break;
  }
  return groups;
}

}  // namespace

void drop_excess_capabilities() noexcept {
  if (!kRoot) return;
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2];
  if (::syscall(SYS_capget, &header, data) != 0) return;
  data[0].effective &= ~(1u << CAP_SYS_RESOURCE);
  data[0].permitted &= ~(1u << CAP_SYS_RESOURCE);
  ::syscall(SYS_capset, &header, data);
}

AsCaller::AsCaller(const Caller& caller) {
  // A umask is a process's until its thread has a filesystem context of its own.
  // unshare(2) of this cannot fail but for lack of memory, and then the umask is everybody's for as long as the call takes.
  thread_local const bool own_context = ::unshare(CLONE_FS) == 0;
  static_cast<void>(own_context);
  ::umask(caller.umask);
  if (!kRoot || (caller.uid == 0 && caller.gid == 0)) return;
  own_groups();
  set_thread_groups(groups_of(caller.pid));
  ::syscall(SYS_setfsgid, caller.gid);
  ::syscall(SYS_setfsuid, caller.uid);
  switched_ = true;
}

AsCaller::~AsCaller() {
  ::umask(0);  // the format's own files get the modes that they are made with
  if (!switched_) return;
  ::syscall(SYS_setfsuid, 0);
  ::syscall(SYS_setfsgid, 0);
  set_thread_groups(own_groups());
}

bool only_reads(pid_t thread) {
  static constexpr long kReading[] = {SYS_read, SYS_pread64, SYS_readv, SYS_preadv, SYS_preadv2, SYS_lseek};
  std::ifstream file("/proc/" + std::to_string(thread) + "/syscall");
  long number = -1;
  return file >> number && std::find(std::begin(kReading), std::end(kReading), number) != std::end(kReading);
}

}  // namespace ecfs::daemon
