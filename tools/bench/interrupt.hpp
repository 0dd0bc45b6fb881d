// SPDX-License-Identifier: GPL-3.0-or-later
// Ctrl-C: a flag that every operation of a workload looks at.
#pragma once

#include <exception>

namespace ecfs::bench {

// The user has had enough. What was measured until then is kept.
class Interrupted : public std::exception {
 public:
  const char* what() const noexcept override { return "interrupted"; }
};

// SIGINT, SIGTERM and SIGHUP set the flag from now on, and interrupt system calls.
void catch_interrupts();
bool interrupted() noexcept;
// The signal that came, or 0.
int interrupting_signal() noexcept;
inline void check_interrupt() {
  if (interrupted()) throw Interrupted();
}

}  // namespace ecfs::bench
