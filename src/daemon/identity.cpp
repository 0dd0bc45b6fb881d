// SPDX-License-Identifier: GPL-3.0-or-later
#include "daemon/identity.hpp"

#include <sched.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
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

struct Identity {
  uid_t fsuid = 0;
  gid_t fsgid = 0;
  std::vector<gid_t> groups;
};

// Of a thread (proc(5), /proc/PID/status). None when it is gone already, or not to be seen from here.
std::optional<Identity> identity_of(pid_t pid) {
  if (pid <= 0) return std::nullopt;
  Identity out;
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(status, line);) {
    std::istringstream fields(line);
    std::string key;
    std::uint32_t real = 0, effective = 0, saved = 0;
    fields >> key;
    if (key == "Uid:") {
      fields >> real >> effective >> saved >> out.fsuid;
    } else if (key == "Gid:") {
      fields >> real >> effective >> saved >> out.fsgid;
    } else if (key == "Groups:") {
      for (gid_t g; fields >> g;) out.groups.push_back(g);
      return out;
    }
  }
  return std::nullopt;
}

struct Capabilities {
  __user_cap_data_struct words[2]{};
  bool get(pid_t pid) noexcept {
    __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, pid};
    return ::syscall(SYS_capget, &header, words) == 0;
  }
  bool set() const noexcept {
    __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
    return ::syscall(SYS_capset, &header, words) == 0;
  }
  bool has(int capability) const noexcept { return words[capability / 32].effective & (1u << capability % 32); }
  void put(int capability, bool on) noexcept {
    auto& word = words[capability / 32];
    const std::uint32_t bit = 1u << capability % 32;
    word.effective = on ? word.effective | (word.permitted & bit) : word.effective & ~bit;
  }
};

// What every thread has between two callers.
const Capabilities& own_capabilities() {
  static const Capabilities own = [] {
    Capabilities c;
    static_cast<void>(c.get(0));
    return c;
  }();
  return own;
}

// A capability in another user namespace is none over this machine.
bool same_user_namespace(pid_t pid) noexcept {
  static const std::optional<struct stat> ours = [] {
    struct stat st;
    return ::stat("/proc/self/ns/user", &st) == 0 ? std::optional(st) : std::nullopt;
  }();
  char path[48];
  std::snprintf(path, sizeof path, "/proc/%d/ns/user", pid);
  struct stat st;
  return ours && ::stat(path, &st) == 0 && st.st_ino == ours->st_ino && st.st_dev == ours->st_dev;
}

// Anybody but root, for whom nothing is reserved: for a call whose caller the kernel does not name.
constexpr uid_t kNobody = 65534;

}  // namespace

void drop_excess_capabilities() noexcept {
  Capabilities c;
  if (!kRoot || !c.get(0)) return;
  c.put(CAP_SYS_RESOURCE, false);
  c.set();
}

bool has_capability(const Caller& caller, int capability) {
  Capabilities c;
  if (caller.pid <= 0 || !c.get(caller.pid) || !c.has(capability) || !same_user_namespace(caller.pid)) return false;
  if (caller.uid == kUnknown) return true;
  const auto process = identity_of(caller.pid);
  return process && process->fsuid == caller.uid;
}

AsCaller::AsCaller(const Caller& caller, Rules rules, bool reserved) {
  // A umask is a process's until its thread has a filesystem context of its own.
  // unshare(2) of this cannot fail but for lack of memory, and then the umask is everybody's for as long as the call takes.
  thread_local const bool own_context = ::unshare(CLONE_FS) == 0;
  static_cast<void>(own_context);
  ::umask(caller.umask);
  if (!kRoot || (caller.uid == 0 && caller.gid == 0 && rules == Rules::root && !reserved)) return;
  Capabilities mine = own_capabilities();
  Identity who{caller.uid, caller.gid, {}};
  if (rules != Rules::root) {
    auto seen = identity_of(caller.pid);
    // Another number than the kernel's: the caller is gone and its process number another's, or it is behind an idmapped mount. It then is
    // in no group but its own.
    if (seen && (caller.uid == kUnknown || caller.uid == seen->fsuid)) who = std::move(*seen);
    own_groups();
    set_thread_groups(who.groups);
    groups_ = true;
    mine.put(CAP_FSETID, has_capability(caller, CAP_FSETID));
    if (rules == Rules::owner) mine.put(CAP_FOWNER, has_capability(caller, CAP_FOWNER));
  }
  if (reserved) mine.put(CAP_SYS_RESOURCE, true);
  ::syscall(SYS_setfsgid, who.fsgid == kUnknown ? kNobody : who.fsgid);
  ::syscall(SYS_setfsuid, who.fsuid == kUnknown ? kNobody : who.fsuid);
  // After the fsuid, with which the kernel takes the rights over files away.
  mine.set();
  switched_ = true;
}

AsCaller::~AsCaller() {
  ::umask(0);  // the format's own files get the modes that they are made with
  if (!switched_) return;
  ::syscall(SYS_setfsuid, 0);
  ::syscall(SYS_setfsgid, 0);
  if (groups_) set_thread_groups(own_groups());
  own_capabilities().set();
}

namespace {

// The number of the system call that a thread waits in, and its arguments behind it; -1 where that is not known. proc_pid_syscall(5).
struct SystemCall {
  long number = -1;
  std::ifstream arguments;
};
SystemCall system_call(pid_t thread) {
  SystemCall out;
  // Who has asked may not have gone to sleep over it yet: then its system call is not to be seen ("running").
  for (int tries = 0; tries < 20; ++tries) {
    out.arguments = std::ifstream("/proc/" + std::to_string(thread) + "/syscall");
    std::string word;
    if (!(out.arguments >> word)) break;
    if (word != "running") {
      out.number = std::strtol(word.c_str(), nullptr, 10);
      break;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return out;
}

template <std::size_t N>
bool is_one_of(long number, const long (&calls)[N]) {
  return std::find(std::begin(calls), std::end(calls), number) != std::end(calls);
}

}  // namespace

bool only_reads(pid_t thread, ino_t file) {
  static constexpr long kReading[] = {SYS_read, SYS_pread64, SYS_readv, SYS_preadv, SYS_preadv2, SYS_lseek};
  SystemCall call = system_call(thread);
  if (is_one_of(call.number, kReading)) return true;
  // Which argument is the descriptor that is written to.
  const int target = call.number == SYS_sendfile ? 0 : call.number == SYS_splice || call.number == SYS_copy_file_range ? 2 : -1;
  if (target < 0) return false;
  std::string argument;
  for (int i = 0; i <= target; ++i) call.arguments >> argument;
  const auto fd = static_cast<int>(std::strtoul(argument.c_str(), nullptr, 16));
  // What the kernel knows of the descriptor; a stat(2) of it might ask us, who are about to answer.
  std::ifstream info("/proc/" + std::to_string(thread) + "/fdinfo/" + std::to_string(fd));
  for (std::string key; info >> key;) {
    if (ino_t number_of_it = 0; key == "ino:" && info >> number_of_it) return number_of_it != file;
  }
  return false;
}

bool changes_owner(pid_t thread) {
  static constexpr long kChanging[] = {
#ifdef SYS_chown
      SYS_chown, SYS_lchown,
#endif
      SYS_fchown, SYS_fchownat};
  return is_one_of(system_call(thread).number, kChanging);
}

unsigned long write_flags(pid_t thread) {
  SystemCall call = system_call(thread);
  if (call.number != SYS_pwritev2) return 0;
  unsigned long arguments[6] = {};  // the last is the flags
  call.arguments >> std::hex;
  for (auto& a : arguments) call.arguments >> a;
  return call.arguments ? arguments[5] : 0;
}

}  // namespace ecfs::daemon
