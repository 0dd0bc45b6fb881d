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

// The flag is this process's and its future children's together: one thread may be in a call that no signal interrupts, and the kernel then gives
// the signal to nobody else. To be called first.
void share_interrupts();
// SIGINT, SIGTERM and SIGHUP set the flag from now on, and interrupt system calls.
void catch_interrupts();
// As if the signal had come.
void note_interrupt(int signal) noexcept;
bool interrupted() noexcept;
// The signal that came, or 0.
int interrupting_signal() noexcept;
inline void check_interrupt() {
  if (interrupted()) throw Interrupted();
}

}  // namespace ecfs::bench
