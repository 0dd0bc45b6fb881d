// SPDX-License-Identifier: GPL-3.0-or-later
#include "runner.hpp"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cinttypes>
#include <condition_variable>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <mutex>
#include <thread>

#include "interrupt.hpp"

namespace ecfs::bench {
namespace {

namespace fs = std::filesystem;

std::string time_now() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  ::gmtime_r(&now, &utc);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text;
}

std::string duration(double seconds) {
  const int s = static_cast<int>(seconds + 0.5);
  return s < 90 ? std::to_string(s) + " s" : std::to_string((s + 30) / 60) + " min";
}

// A workload that waits for a daemon which does not answer cannot see Ctrl-C. When it has not ended some seconds after it, the
// daemons are killed; every call on their mount then fails.
class Guard {
 public:
  explicit Guard(std::vector<pid_t> daemons) : daemons_(std::move(daemons)) {}

 private:
  void watch(const std::stop_token& stop) {
    constexpr auto kPatience = std::chrono::seconds(3);
    std::mutex mutex;
    std::unique_lock lock(mutex);
    std::condition_variable_any never;
    std::optional<std::chrono::steady_clock::time_point> since;
    while (!stop.stop_requested()) {
      never.wait_for(lock, stop, std::chrono::milliseconds(500), [] { return false; });
      if (!interrupted() || stop.stop_requested()) continue;
      const auto now = std::chrono::steady_clock::now();
      if (!since) since = now;
      if (now - *since < kPatience) continue;
      for (const pid_t daemon : daemons_) ::kill(daemon, SIGKILL);
      return;
    }
  }

  const std::vector<pid_t> daemons_;
  std::jthread thread_{[this](const std::stop_token& stop) { watch(stop); }};
};

class Runner {
 public:
  explicit Runner(const Plan& plan)
      : plan_(plan), progress_(::isatty(STDERR_FILENO) == 1, plan.workloads.size() * plan.targets.size() * plan.repeats) {}

  Results run() {
    results_.version = ECFS_VERSION;
    results_.started = time_now();
    results_.suite = plan_.suite;
    results_.repeats = plan_.repeats, results_.seed = plan_.seed;
    results_.machine = describe_machine(plan_.directory);
    results_.caches_dropped = plan_.cold && ::access("/proc/sys/vm/drop_caches", W_OK) == 0;
    for (const auto& name : plan_.targets) {
      auto target = make_target(name, plan_.target_options);
      const std::string why = target->unavailable();
      results_.targets.push_back({name, why.empty() ? target->about() : "", why});
      if (why.empty()) targets_.push_back(std::move(target));
      else progress_.skip(plan_.workloads.size() * plan_.repeats);
    }
    try {
      for (const auto& planned : plan_.workloads) run_workload(planned);
    } catch (const Interrupted&) {
      results_.interrupted = true;
    }
    return std::move(results_);
  }

 private:
  // A target while one workload runs on it.
  struct Active {
    Target* target;
    std::unique_ptr<Mounted> mounted;
  };

  void run_workload(const PlannedWorkload& planned) {
    const Workload& w = *planned.workload;
    const std::string why = w.unavailable ? w.unavailable() : "";
    results_.workloads.push_back({w.name, w.after, w.what, planned.scale, w.figures, why});
    if (!why.empty()) {
      progress_.skip(targets_.size() * plan_.repeats);
      return;
    }
    std::vector<Active> active;
    for (const auto& target : targets_) {
      const std::string directory = plan_.directory + "/" + target->name();
      fs::remove_all(directory);
      fs::create_directory(directory);
      try {
        active.push_back({target.get(), std::make_unique<Mounted>(*target, Place{directory, w.bytes(planned.scale)})});
      } catch (const Interrupted&) {
        throw;
      } catch (const std::exception& e) {
        record_failure(w, *target, 1, e.what());
        progress_.skip(plan_.repeats);
      }
    }
    for (unsigned round = 1; round <= plan_.repeats; ++round)
      std::erase_if(active, [&](Active& a) {
        if (run_once(planned, *a.target, round)) return false;
        progress_.skip(plan_.repeats - round);
        return true;
      });
    for (const Active& a : active) {
      try {
        a.mounted->unmount();
      } catch (const TargetFailed& e) {
        record_failure(w, *a.target, plan_.repeats, e.what());
      }
    }
    active.clear();
    for (const auto& target : targets_) fs::remove_all(plan_.directory + "/" + target->name());
  }

  // False when the target is of no more use for this workload.
  bool run_once(const PlannedWorkload& planned, Target& target, unsigned round) {
    const Workload& w = *planned.workload;
    check_interrupt();
    progress_.begin(w.name + " on " + target.name() + ", round " + std::to_string(round) + " of " + std::to_string(plan_.repeats));
    RunRecord record{w.name, target.name(), round, {}, {}, 0, {}};
    const std::string directory = target.root() + "/files";
    Probe probe = target.probe();
    const Guard guard(probe.daemons);
    try {
      fs::create_directory(directory);
      {
        const auto settle = probe.settle;
        // What came before must not be written in the time of what comes.
        if (settle) settle();
        Job job(w, directory, {planned.scale, plan_.seed, plan_.cold}, std::move(probe));
        try {
          w.run(job);
        } catch (...) {
          take(record, job);
          throw;
        }
        take(record, job);
      }
      fs::remove_all(directory);
    } catch (const Interrupted&) {
      keep(std::move(record));
      throw;
    } catch (const std::exception& e) {
      if (interrupted()) {  // the guard may have killed the daemon
        keep(std::move(record));
        throw Interrupted();
      }
      const std::string obituary = target.obituary();
      record.failure = e.what() + (obituary.empty() ? "" : "; " + obituary);
    }
    progress_.end();
    const bool good = record.failure.empty();
    if (!good) progress_.say(record.workload + " on " + record.target + " failed: " + record.failure);
    std::error_code gone;  // of a failed run; with the target's directory goes the rest
    if (!good) fs::remove_all(directory, gone);
    results_.runs.push_back(std::move(record));
    return good;
  }

  static void take(RunRecord& record, Job& job) {
    char text[24];
    std::snprintf(text, sizeof text, "%016" PRIx64, job.trace().hash());
    record.samples = job.samples();
    record.operations = job.trace().calls();
    record.operations_hash = text;
  }

  void keep(RunRecord record) {
    if (!record.samples.empty()) results_.runs.push_back(std::move(record));
  }

  void record_failure(const Workload& w, const Target& target, unsigned round, const std::string& why) {
    progress_.say(w.name + " on " + target.name() + " failed: " + why);
    results_.runs.push_back({w.name, target.name(), round, {}, why, 0, {}});
  }

  const Plan& plan_;
  Results results_;
  std::vector<std::unique_ptr<Target>> targets_;
  Progress progress_;
};

}  // namespace

void Progress::clear() {
  if (std::exchange(dirty_, false)) std::fputs("\r\033[K", stderr);
}

void Progress::begin(const std::string& what) {
  began_ = std::chrono::steady_clock::now();
  if (!shown_) return;
  const double left = done_ == 0 ? 0 : seconds_ / static_cast<double>(done_) * static_cast<double>(left_);
  std::fprintf(stderr, "\r\033[K%s%s", what.c_str(), done_ == 0 ? "" : (", about " + duration(left) + " left").c_str());
  std::fflush(stderr);
  dirty_ = true;
}

void Progress::end() {
  seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count();
  ++done_;
  skip(1);
}

void Progress::skip(std::size_t runs) { left_ -= std::min(left_, runs); }

void Progress::say(const std::string& line) {
  clear();
  std::fprintf(stderr, "ecfs-bench: %s\n", line.c_str());
}

std::uint64_t room_for(const Plan& plan) {
  // What encryption and the filesystem put around the data, with some to spare.
  constexpr std::uint64_t kSpare = 64 << 20;
  std::uint64_t most = 0;
  for (const auto& [workload, scale] : plan.workloads) {
    const std::uint64_t bytes = workload->bytes(scale);
    // Each target's files are removed before the next one's are written.
    std::uint64_t sum = bytes + bytes / 8 + kSpare;
    for (const auto& name : plan.targets) sum += make_target(name, plan.target_options)->own_room(bytes);
    most = std::max(most, sum);
  }
  return most;
}

Results run_plan(const Plan& plan) { return Runner(plan).run(); }

}  // namespace ecfs::bench
