// SPDX-License-Identifier: GPL-3.0-or-later
#include "interrupt.hpp"

#include <signal.h>
#include <sys/mman.h>

#include <atomic>
#include <cerrno>
#include <new>
#include <system_error>

namespace ecfs::bench {
namespace {

std::atomic<int> alone{0};
std::atomic<int>* came = &alone;
static_assert(std::atomic<int>::is_always_lock_free);  // it is set in a signal handler

void take(int signal) { came->store(signal, std::memory_order_relaxed); }

}  // namespace

void share_interrupts() {
  void* memory = ::mmap(nullptr, sizeof alone, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::system_error(errno, std::system_category(), "shared memory");
  came = new (memory) std::atomic<int>(0);
}

void note_interrupt(int signal) noexcept { take(signal); }

void catch_interrupts() {
  struct sigaction action = {};
  action.sa_handler = take;  // without SA_RESTART: a call that waits returns
  ::sigemptyset(&action.sa_mask);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) ::sigaction(signal, &action, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
}

bool interrupted() noexcept { return came->load(std::memory_order_relaxed) != 0; }

int interrupting_signal() noexcept { return came->load(std::memory_order_relaxed); }

}  // namespace ecfs::bench
