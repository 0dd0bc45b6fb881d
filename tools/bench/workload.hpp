// SPDX-License-Identifier: GPL-3.0-or-later
// A workload: a table entry with its figures and the function that does the work, which gets a Job.
//
//   void dd(Job& job) {
//     std::vector<std::byte> block = job.random_bytes(512 << 10);
//     const std::uint64_t blocks = job.scaled(1024);
//     job.measure("dd-write", megabytes(blocks * block.size()), [&] {
//       File file = job.calls().create("file");
//       for (std::uint64_t i = 0; i < blocks; ++i) file.write(block);
//       file.sync();
//     });
//   }
//
// The function prepares what it needs outside of measure(), and may leave its files: the directory is removed after it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "calls.hpp"
#include "ecfs/unique_fd.hpp"
#include "meter.hpp"
#include "program.hpp"
#include "random.hpp"

namespace ecfs::bench {

// What a figure says something about; the report draws one conclusion for each.
enum class Group { streaming, small_files, sync_heavy, desktop };
std::string_view group_title(Group group);

// How a figure comes from what was measured.
enum class Kind {
  rate,     // the amount that measure() was given, for a second
  seconds,  // the time itself
  value,    // what measure_value()'s function returned
};

struct Figure {
  std::string name;  // as in the published tables
  std::string unit;  // "files/s", "MB/s" (millions of bytes), "K/s" (1024 bytes), "s", "TPS"
  Kind kind = Kind::rate;
  Group group = Group::streaming;
  bool higher_is_better = true;
  bool cold = false;  // reads with empty caches, so it is there only where they can be dropped
};

class Job;

struct Workload {
  std::string name;   // of one figure, or of the family ("compile")
  std::string after;  // the original and its version; empty: none
  std::string what;   // one line: what it does, and where it departs from the original
  std::vector<Figure> figures;
  double quick = 0;   // its share of the full size in the quick suite; 0: it is not in there
  bool seeds = false;  // in a published table: in the suite "seeds"
  std::function<std::uint64_t(double scale)> bytes;  // room that it needs at a scale
  std::function<void(Job&)> run;
  std::function<std::string()> unavailable = {};  // why it cannot run here (a program is missing), or ""
};

// Every workload, in the order of the reports. No two figures have one name.
const std::vector<Workload>& all_workloads();

// The whole of `full` things at this scale, at least `least`.
std::uint64_t scaled(double scale, std::uint64_t full, std::uint64_t least = 1);
constexpr double megabytes(std::uint64_t bytes) { return static_cast<double>(bytes) / 1e6; }
constexpr double kibibytes(std::uint64_t bytes) { return static_cast<double>(bytes) / 1024; }

// One figure of one run.
struct Sample {
  std::string figure;
  double value = 0;
  double amount = 0;  // what measure() was given
  Cost cost;
};

struct JobSettings {
  double scale = 1;
  std::uint64_t seed = 1;
  bool cold = true;  // whether the machine's caches may be dropped
};

class Job {
 public:
  // `directory` is empty, on the target.
  Job(const Workload& workload, std::string directory, const JobSettings& settings, Probe probe);

  Calls& calls() { return calls_; }
  double scale() const { return settings_.scale; }
  std::uint64_t scaled(std::uint64_t full, std::uint64_t least = 1) const { return bench::scaled(settings_.scale, full, least); }
  // Independent random numbers for each part of the work (a thread's number, a phase).
  Random random(std::uint64_t part = 0) const { return Random(derive_seed(settings_.seed, part)); }
  std::vector<std::byte> random_bytes(std::size_t size, std::uint64_t part = 0) const;

  // Does the work and records the figure: `amount` counts in its unit ("files/s": files) and is not used for a figure in seconds.
  void measure(std::string_view figure, double amount, const std::function<void()>& work);
  // The same where the work itself finds the value: a percentile, what another program printed.
  void measure_value(std::string_view figure, const std::function<double()>& work);
  // Several figures from one stretch of work, each with the same cost: (name, value) pairs.
  void measure_values(const std::function<std::vector<std::pair<std::string, double>>()>& work);

  // Runs `work(calls, index)` in `count` threads at once; waits for all, and throws what the first failed with. Each has its own
  // Calls, whose traces are joined in the order of the index.
  void threads(unsigned count, const std::function<void(Calls&, unsigned)>& work);

  // Empties the caches of the whole machine. False where that cannot be (it needs root) or is not wanted: leave the cold figures out then.
  bool drop_caches();

  // Runs a program in the directory (or below it) to its end. Ends it at Ctrl-C. Throws when it cannot be started or fails.
  Output run(const std::vector<std::string>& args, const std::string& below = "");
  // For such programs: the absolute path of one below the directory.
  std::string path(const std::string& below) const { return directory_ + "/" + below; }

  const std::vector<Sample>& samples() const { return samples_; }
  const Trace& trace() { return calls_.trace(); }

 private:
  const Figure& figure(std::string_view name) const;

  const Workload& workload_;
  const std::string directory_;
  const UniqueFd directory_fd_;
  const JobSettings settings_;
  Calls calls_;
  Meter meter_;
  std::vector<Sample> samples_;
};

}  // namespace ecfs::bench
