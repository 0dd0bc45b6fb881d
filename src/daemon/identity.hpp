// SPDX-License-Identifier: GPL-3.0-or-later
// Who a lower call is made as. A daemon of root makes objects as its caller, so that owner, group, set-gid directories, quotas
// and reserved space come out as on the lower filesystem itself. Whether the caller may is the kernel's to decide, and is decided:
// root's rights over files stay in force, and only those of the caller's rights that change what comes of a call are taken over.
#pragma once

#include <linux/capability.h>
#include <sys/types.h>

#include <cerrno>
#include <string_view>
#include <utility>

#include "ecfs/error.hpp"

namespace ecfs::daemon {

constexpr uid_t kUnknown = static_cast<uid_t>(-1);  // an owner that the kernel does not name (of an idmapped mount)

struct Caller {
  uid_t uid = 0;
  gid_t gid = 0;
  pid_t pid = 0;
  mode_t umask = 0;
  std::string_view label{};  // SELinux's, for what is made; empty: none
};

// Root lays aside what would let it write where its callers may not: quotas and reserved space (CAP_SYS_RESOURCE). It is taken up
// again for a caller that has it. Call once, before threads start and after the limits are raised.
void drop_excess_capabilities() noexcept;

// Does the caller have this capability (CAP_... of <linux/capability.h>) where the daemon is? Not, if it is gone or in a user
// namespace of its own; nor where its process works with the rights of somebody else, of whom only the owner is known: the kernel's NFS
// server, io_uring with a personality(7), a mount shown with other owners.
bool has_capability(const Caller& caller, int capability);

enum class Rules {
  root,    // set-gid bits stay: the kernel has taken away what the caller may not set
  caller,  // the lower kernel judges them by the caller's groups and capabilities, too. Costs a look into /proc
  owner,   // and so whether the caller may change the mode of a file that is not its own (CAP_FOWNER)
};

// While it lives, this thread's umask is the caller's (only the lower kernel knows when a default ACL overrides it), and, in
// root's daemon, its fsuid, fsgid and what of its capabilities matters, too. Not to be nested.
class AsCaller {
 public:
  // reserved: with the right to what is kept back for root, and to exceed quotas.
  explicit AsCaller(const Caller& caller, Rules rules = Rules::root, bool reserved = false);
  ~AsCaller();
  AsCaller(const AsCaller&) = delete;
  AsCaller& operator=(const AsCaller&) = delete;

 private:
  bool switched_ = false;
  bool groups_ = false;
};

// call() as the caller; where there is no room for it and the caller has CAP_SYS_RESOURCE, once more with that.
template <class Call>
auto as_caller(const Caller& caller, Rules rules, Call call) -> decltype(call()) {
  {
    const AsCaller as(caller, rules);
    auto result = call();
    if (result || (!is_errno(result.error(), ENOSPC) && !is_errno(result.error(), EDQUOT))) return result;
    if (!has_capability(caller, CAP_SYS_RESOURCE)) return result;
  }
  const AsCaller as(caller, rules, true);
  return call();
}
template <class Call>
auto as_caller(const Caller& caller, Call call) -> decltype(call()) {
  return as_caller(caller, Rules::root, std::move(call));
}

// Is that thread in a system call that does not write to the file with that inode number? So are read(2), lseek(2) and their kind, and what
// copies from one descriptor to another, unless the other is the file. False where it cannot be known: of io_uring and io_submit(2), and
// where the thread is another user's. proc_pid_syscall(5), proc_pid_fdinfo(5).
bool only_reads(pid_t thread, ino_t file);
// Likewise: in chown(2) or one of its kind?
bool changes_owner(pid_t thread);
// The RWF_... flags of the pwritev2(2) that it is in; 0 in every other call, and where it cannot be known.
unsigned long write_flags(pid_t thread);

}  // namespace ecfs::daemon
