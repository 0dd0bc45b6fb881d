// SPDX-License-Identifier: GPL-3.0-or-later
// Who a lower call is made as. A daemon of root makes objects as its caller, so that owner, group, set-gid directories, quotas
// and reserved space come out as on the lower filesystem itself; the permission checks are the kernel's.
#pragma once

#include <sys/types.h>

namespace ecfs::daemon {

struct Caller {
  uid_t uid = 0;
  gid_t gid = 0;
  pid_t pid = 0;
  mode_t umask = 0;
};

// Root gives up what would let it write where its callers may not: quotas and reserved space (CAP_SYS_RESOURCE). Call once, before
// threads start and after the limits are raised.
void drop_excess_capabilities() noexcept;

// While it lives, this thread's umask is the caller's (only the lower kernel knows when a default ACL overrides it), and, in
// root's daemon, its fsuid, fsgid and groups too.
class AsCaller {
 public:
  explicit AsCaller(const Caller& caller);
  ~AsCaller();
  AsCaller(const AsCaller&) = delete;
  AsCaller& operator=(const AsCaller&) = delete;

 private:
  bool switched_ = false;
};

// Is that thread in a system call that only reads (read(2), lseek(2) and their kind)? False where it cannot be known. proc_pid_syscall(5).
bool only_reads(pid_t thread);

}  // namespace ecfs::daemon
