// SPDX-License-Identifier: GPL-3.0-or-later
// Asking a mount's daemon over its control socket (ecfs/control.hpp).
#pragma once

#include <string>
#include <string_view>

#include "ecfs/error.hpp"
#include "mountinfo.hpp"

namespace ecfs {

struct Reply {
  bool good = false;
  std::string text;  // the answer, or a one-line reason
};

// The daemon's process, as the kernel knows the socket's listener: it need not answer. ENOENT or ECONNREFUSED
// when there is none.
Result<pid_t> daemon_pid(const Mount& mount);

// An errno when nobody answers: ENOENT or ECONNREFUSED (no daemon), EACCES (not ours), ETIMEDOUT.
Result<Reply> ask_daemon(const Mount& mount, std::string_view request);

// The same with the failure's words; a reply that is not good is a failure too.
Outcome<std::string> ask_or_explain(const Mount& mount, std::string_view request);

}  // namespace ecfs
