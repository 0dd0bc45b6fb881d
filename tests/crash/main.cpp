// SPDX-License-Identifier: GPL-3.0-or-later
// The crash tester: crash [--only WORKLOAD] [--variant N] [--state N] [--verbose] | --self-test
// ECFS_CRASH_STATES says how many states are tried (2000), ECFS_SEED which; ECFS_CRASH_JOBS how many processes try them, ECFS_CRASH_DIR where
// (/dev/shm, which should be a tmpfs).
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <stdexcept>

#include "experiment.hpp"
#include "self_test.hpp"

namespace {

using namespace ecfs;
using namespace ecfs::crash;

constexpr Variant kVariants[] = {
    {Suite::aes_256_gcm, NameMode::encrypted, false},
    {Suite::chacha20_poly1305, NameMode::encrypted, false},
    {Suite::aes_256_gcm, NameMode::plain, false},
    {Suite::chacha20_poly1305, NameMode::encrypted, true},
};

struct Options {
  std::string only;
  int variant = -1;
  long state = -1;
  bool verbose = false;
  bool self_test = false;
  std::uint64_t seed = 0;
  std::size_t states = 2000;
  std::size_t jobs = 1;
  std::string dir = "/dev/shm";
};

std::uint64_t number(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text && *text ? std::strtoull(text, nullptr, 0) : otherwise;
}

struct Count {
  std::size_t states = 0, failed = 0;
};

constexpr std::size_t kTold = 5;  // failures of one recording that are told

void try_recording(const Options& o, std::size_t index, std::size_t states, Count& count) {
  const Workload& workload = workloads()[index / std::size(kVariants)];
  const std::size_t variant = index % std::size(kVariants);
  const std::string what = std::string(workload.name) + " (" + describe(kVariants[variant]) + ")";
  try {
    Experiment experiment(workload, kVariants[variant], o.dir, o.seed + index);
    const std::size_t fixed = std::min(experiment.fixed(), states / 2);
    if (o.verbose) std::printf("%s: %zu calls recorded, %zu states at barriers\n", what.c_str(), experiment.journal().events.size(), experiment.fixed());
    if (o.verbose && o.state >= 0)
      for (std::size_t i = 0; i < experiment.journal().events.size(); ++i) std::printf("%5zu %s\n", i, describe(experiment.journal().events[i]).c_str());
    std::size_t failed = 0;
    for (std::size_t n = o.state < 0 ? 0 : static_cast<std::size_t>(o.state); n < states; ++n) {
      const auto report = experiment.try_state(n, fixed);
      ++count.states;
      if (!report.complaints.empty() && ++failed <= kTold) {
        std::printf("FAILED %s, state %zu: %s\n", what.c_str(), n, report.state.c_str());
        std::size_t told = 0;
        for (const auto& c : report.complaints)
          if (++told <= 6) std::printf("    %s\n", c.c_str());
      }
      if (o.state >= 0) break;
    }
    count.failed += failed;
  } catch (const std::exception& e) {
    std::printf("FAILED %s: %s\n", what.c_str(), e.what());
    ++count.failed;
  }
  std::fflush(stdout);
}

Count run(const Options& o, std::size_t job) {
  Count count;
  const std::size_t recordings = workloads().size() * std::size(kVariants);
  std::size_t chosen = 0;
  const auto wanted = [&](std::size_t i) {
    return (o.only.empty() || o.only == workloads()[i / std::size(kVariants)].name) && (o.variant < 0 || static_cast<std::size_t>(o.variant) == i % std::size(kVariants));
  };
  for (std::size_t i = 0; i < recordings; ++i) chosen += wanted(i);
  if (chosen == 0) {
    std::printf("no such workload\n");
    ++count.failed;
    return count;
  }
  for (std::size_t i = 0, nth = 0; i < recordings; ++i) {
    if (!wanted(i)) continue;
    const std::size_t states = o.states / chosen + (nth < o.states % chosen ? 1 : 0);
    if (nth++ % o.jobs == job) try_recording(o, i, states, count);
  }
  return count;
}

bool take_arguments(int argc, char** argv, Options& o) {
  o.seed = number("ECFS_SEED", std::random_device()());
  o.states = number("ECFS_CRASH_STATES", o.states);
  o.jobs = std::max<std::uint64_t>(1, number("ECFS_CRASH_JOBS", 1));
  if (const char* dir = std::getenv("ECFS_CRASH_DIR")) o.dir = dir;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    if (arg == "--verbose" || arg == "--self-test") {
      (arg == "--verbose" ? o.verbose : o.self_test) = true;
      continue;
    }
    if (i + 1 == argc) return false;
    const char* value = argv[++i];
    if (arg == "--only") o.only = value;
    else if (arg == "--variant") o.variant = std::atoi(value);
    else if (arg == "--state") o.state = std::atol(value);
    else return false;
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  Options o;
  if (!take_arguments(argc, argv, o)) {
    std::fprintf(stderr, "usage: crash [--only WORKLOAD] [--variant N] [--state N] [--verbose] | --self-test\n");
    return 2;
  }
  if (!crypto_init()) return 2;
  if (o.self_test) return self_test(o.dir, o.seed) ? 0 : 1;
  std::printf("ECFS_SEED=%llu ECFS_CRASH_STATES=%zu\n", static_cast<unsigned long long>(o.seed), o.states);
  std::fflush(stdout);
  Count all;
  std::vector<std::pair<pid_t, int>> children;
  for (std::size_t job = 1; job < o.jobs; ++job) {
    int ends[2];
    if (::pipe(ends) != 0) return 2;
    const pid_t pid = ::fork();
    if (pid < 0) return 2;
    if (pid == 0) {
      ::close(ends[0]);
      const Count count = run(o, job);
      const bool told = ::write(ends[1], &count, sizeof count) == static_cast<ssize_t>(sizeof count);
      std::fflush(stdout);
      ::_exit(told ? 0 : 1);
    }
    ::close(ends[1]);
    children.emplace_back(pid, ends[0]);
  }
  all = run(o, 0);
  for (const auto& [pid, end] : children) {
    Count count;
    int status = 0;
    const bool told = ::read(end, &count, sizeof count) == static_cast<ssize_t>(sizeof count);
    ::waitpid(pid, &status, 0);
    if (!told || status != 0) {
      std::printf("FAILED: a process that tried states ended with status %d\n", status);
      ++all.failed;
    }
    if (told) all.states += count.states, all.failed += count.failed;
  }
  std::printf("%zu states, %zu failed\n", all.states, all.failed);
  return all.failed == 0 && all.states > 0 ? 0 : 1;
}
