// SPDX-License-Identifier: GPL-3.0-or-later
#include "interrupt.hpp"

#include <signal.h>

#include <atomic>

namespace ecfs::bench {
namespace {

std::atomic<int> came{0};
static_assert(std::atomic<int>::is_always_lock_free);  // it is set in a signal handler

void take(int signal) { came.store(signal, std::memory_order_relaxed); }

}  // namespace

void catch_interrupts() {
  struct sigaction action = {};
  action.sa_handler = take;  // without SA_RESTART: a call that waits returns
  ::sigemptyset(&action.sa_mask);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) ::sigaction(signal, &action, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
}

bool interrupted() noexcept { return came.load(std::memory_order_relaxed) != 0; }

int interrupting_signal() noexcept { return came.load(std::memory_order_relaxed); }

}  // namespace ecfs::bench
