// SPDX-License-Identifier: GPL-3.0-or-later
// Everything that a run of ecfs-bench found out: what the reports are made of, and what --json writes (docs/BENCH-JSON.md).
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "machine.hpp"
#include "workload.hpp"

namespace ecfs::bench {

// One workload, once, on one target.
struct RunRecord {
  std::string workload, target;
  unsigned round = 0;  // runs of one round follow each other and are held against each other
  std::vector<Sample> samples;
  std::string failure;          // why it did not come to its end, or ""
  std::uint64_t operations = 0;  // traced system calls
  std::string operations_hash;   // equal for two runs that issued the same ones
};

struct TargetRecord {
  std::string name, about;
  std::string unavailable;  // why it was left out, or ""
};

struct WorkloadRecord {
  std::string name, after, what;
  double scale = 1;
  std::vector<Figure> figures;
  std::string unavailable;  // why it was left out, or ""
};

struct Results {
  std::string version, started, suite;
  unsigned repeats = 0;
  std::uint64_t seed = 0;
  bool caches_dropped = false;  // before the cold figures, which else are left out
  bool interrupted = false;
  Machine machine;
  std::vector<TargetRecord> targets;
  std::vector<WorkloadRecord> workloads;
  std::vector<RunRecord> runs;
};

nlohmann::json to_json(const Results& results);
// Throws std::runtime_error, with what is wrong, for anything but what to_json() makes.
Results results_from_json(const nlohmann::json& j);
Results read_results(const std::string& path);

}  // namespace ecfs::bench
