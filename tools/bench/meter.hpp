// SPDX-License-Identifier: GPL-3.0-or-later
// What a stretch of work costs: time, processor, memory, bytes on the lower filesystem, FUSE messages.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

namespace ecfs::bench {

// Seconds.
struct Cpu {
  double user = 0, system = 0;
  double total() const { return user + system; }
  Cpu operator-(const Cpu& o) const { return {user - o.user, system - o.system}; }
};

struct Cost {
  double wall = 0;
  Cpu workload;  // of this process with its threads and the programs that it ran to their end
  Cpu daemon;    // of the target's daemons, until everything that was written had arrived
  std::uint64_t daemon_peak_kib = 0;                // their largest resident size during the work, where the kernel lets it be reset
  std::optional<std::uint64_t> lower_bytes;         // written to the lower filesystem, until everything had arrived
  std::optional<std::uint64_t> messages;            // FUSE requests answered
  // bonnie++'s %CP: the workload's processor time for its wall time. The daemon's is beside it.
  double cpu_percent() const { return wall > 0 ? 100 * workload.total() / wall : 0; }
  double daemon_percent() const { return wall > 0 ? 100 * daemon.total() / wall : 0; }
};

// What a mounted target lets itself be asked.
struct Probe {
  std::vector<pid_t> daemons;
  std::function<std::optional<std::uint64_t>()> lower_bytes;  // counts up; empty: it cannot be known
  std::function<std::optional<std::uint64_t>()> messages;     // counts up; empty: there are none, or nobody counts
  std::function<void()> settle;                               // until what was written is on the lower filesystem's disk
};

// Processor time of this process with what it waited for; of another, which may be gone (then nothing).
Cpu own_cpu();
std::optional<Cpu> cpu_of(pid_t process);
// /proc/PID/io's write_bytes: what the process made dirty in files of a filesystem on a disk. Not readable for every process.
std::optional<std::uint64_t> bytes_written_by(pid_t process);

// start(), the work, stop(): reads everything that does not belong to the work outside of the time that it takes.
class Meter {
 public:
  explicit Meter(Probe probe) : probe_(std::move(probe)) {}
  void start();
  Cost stop();

 private:
  Cpu daemon_cpu() const;

  Probe probe_;
  std::chrono::steady_clock::time_point began_;
  Cpu own_, daemon_;
  std::optional<std::uint64_t> lower_bytes_, messages_;
};

}  // namespace ecfs::bench
