// SPDX-License-Identifier: GPL-3.0-or-later
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <exception>
#include <stdexcept>
#include <thread>

#include "../ecfs/process.hpp"
#include "interrupt.hpp"
#include "workload.hpp"

namespace ecfs::bench {
namespace {

int open_directory(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) throw CallFailed("opening", path, errno);
  return fd;
}

}  // namespace

std::string_view group_title(Group group) {
  switch (group) {
    case Group::streaming: return "streaming";
    case Group::small_files: return "small files";
    case Group::sync_heavy: return "sync-heavy";
    case Group::desktop: return "desktop work";
  }
  return {};
}

std::uint64_t scaled(double scale, std::uint64_t full, std::uint64_t least) {
  return std::max(least, static_cast<std::uint64_t>(std::llround(static_cast<double>(full) * scale)));
}

Job::Job(const Workload& workload, std::string directory, const JobSettings& settings, Probe probe)
    : workload_(workload), directory_(std::move(directory)), directory_fd_(open_directory(directory_)), settings_(settings),
      calls_(directory_fd_.get()), meter_(std::move(probe)) {}

const Figure& Job::figure(std::string_view name) const {
  const auto it = std::ranges::find(workload_.figures, name, &Figure::name);
  if (it == workload_.figures.end()) throw std::logic_error(workload_.name + " has no figure " + std::string(name));
  return *it;
}

std::vector<std::byte> Job::random_bytes(std::size_t size, std::uint64_t part) const {
  std::vector<std::byte> bytes(size);
  random(part).fill(bytes);
  return bytes;
}

void Job::measure(std::string_view name, double amount, const std::function<void()>& work) {
  const Figure& f = figure(name);
  meter_.start();
  work();
  Sample sample{f.name, 0, amount, meter_.stop()};
  sample.value = f.kind == Kind::seconds ? sample.cost.wall : amount / sample.cost.wall;
  samples_.push_back(std::move(sample));
}

void Job::measure_value(std::string_view name, const std::function<double()>& work) {
  measure_values([&] { return std::vector{std::pair{std::string(name), work()}}; });
}

void Job::measure_values(const std::function<std::vector<std::pair<std::string, double>>()>& work) {
  meter_.start();
  const auto values = work();
  const Cost cost = meter_.stop();
  for (const auto& [name, value] : values) samples_.push_back({figure(name).name, value, 0, cost});
}

void Job::threads(unsigned count, const std::function<void(Calls&, unsigned)>& work) {
  std::deque<Calls> calls;
  std::vector<std::exception_ptr> failures(count);
  {
    std::vector<std::jthread> threads;
    for (unsigned i = 0; i < count; ++i) {
      Calls& own = calls.emplace_back(directory_fd_.get());
      threads.emplace_back([&work, &own, &failure = failures[i], i] {
        try {
          work(own, i);
        } catch (...) {
          failure = std::current_exception();
        }
      });
    }
  }
  for (Calls& own : calls) calls_.trace().join(own.trace());
  for (const auto& failure : failures)
    if (failure) std::rethrow_exception(failure);
}

bool Job::drop_caches() {
  if (!settings_.cold) return false;
  // The caches of clean pages alone are dropped: what is dirty is written first.
  ::sync();
  const UniqueFd fd(::open("/proc/sys/vm/drop_caches", O_WRONLY | O_CLOEXEC));
  return fd && ::write(fd.get(), "3\n", 2) == 2;
}

Output Job::run(const std::vector<std::string>& args, const std::string& below) {
  check_interrupt();
  for (std::string arg : args) {
    // Where the directory is differs from run to run.
    if (const auto at = arg.find(directory_); at != arg.npos) arg.erase(at, directory_.size());
    calls_.trace().add(arg);
  }
  Output output = run_to_end(args, {.directory = path(below), .input_file = {}});
  if (output.status != 0)
    throw std::runtime_error(args[0] + ": " + describe_status(output.status) + ": " +
                             output.text.substr(output.text.size() - std::min<std::size_t>(output.text.size(), 500)));
  return output;
}

}  // namespace ecfs::bench
