// SPDX-License-Identifier: GPL-3.0-or-later
// Runs what was planned: each workload on each target, in turns A B A B …, and records what came out.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "results.hpp"
#include "target.hpp"

namespace ecfs::bench {

struct PlannedWorkload {
  const Workload* workload;
  double scale;
};

struct Plan {
  std::string directory;  // of ours, on the lower filesystem
  std::string suite;
  std::vector<std::string> targets;
  std::vector<PlannedWorkload> workloads;
  TargetOptions target_options;
  unsigned repeats = 3;
  std::uint64_t seed = 1;
  bool cold = true;  // whether the caches may be dropped
};

// A line on a terminal that says what runs and how long it all will take.
class Progress {
 public:
  explicit Progress(bool shown, std::size_t runs) : shown_(shown), left_(runs) {}
  ~Progress() { clear(); }
  void begin(const std::string& what);
  void end();                    // of what began
  void skip(std::size_t runs);   // will not come
  void say(const std::string& line);  // stays

 private:
  void clear();

  const bool shown_;
  std::size_t left_, done_ = 0;
  double seconds_ = 0;  // of those that are done
  std::chrono::steady_clock::time_point began_;
  bool dirty_ = false;
};

// The room that the plan needs at one time, on the lower filesystem.
std::uint64_t room_for(const Plan& plan);

// Does not throw for what fails on a target: that is recorded. At Ctrl-C it returns what there is.
Results run_plan(const Plan& plan);

}  // namespace ecfs::bench
