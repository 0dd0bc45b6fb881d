// SPDX-License-Identifier: GPL-3.0-or-later
#include "meter.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <fstream>
#include <sstream>
#include <string>

namespace ecfs::bench {
namespace {

std::string proc(pid_t process, const char* file) { return "/proc/" + std::to_string(process) + "/" + file; }

double seconds(const timeval& t) { return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) / 1e6; }

// The number behind `name:` in a file of /proc.
std::optional<std::uint64_t> field(const std::string& path, const std::string& name) {
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);)
    if (line.starts_with(name + ":")) return std::stoull(line.substr(name.size() + 1));
  return std::nullopt;
}

std::optional<std::uint64_t> ask(const std::function<std::optional<std::uint64_t>()>& f) { return f ? f() : std::nullopt; }

std::optional<std::uint64_t> difference(std::optional<std::uint64_t> later, std::optional<std::uint64_t> earlier) {
  if (!later || !earlier || *later < *earlier) return std::nullopt;
  return *later - *earlier;
}

}  // namespace

Cpu own_cpu() {
  Cpu sum;
  for (const int who : {RUSAGE_SELF, RUSAGE_CHILDREN}) {
    rusage usage{};
    ::getrusage(who, &usage);
    sum.user += seconds(usage.ru_utime), sum.system += seconds(usage.ru_stime);
  }
  return sum;
}

std::optional<Cpu> cpu_of(pid_t process) {
  std::ifstream in(proc(process, "stat"));
  std::string text;
  if (!std::getline(in, text)) return std::nullopt;
  // The name in parentheses may hold anything; utime and stime are the 14th and 15th fields, the name is the second.
  std::istringstream fields(text.substr(text.rfind(')') + 1));
  std::string skipped;
  for (int i = 3; i < 14; ++i) fields >> skipped;
  double user = 0, system = 0;
  if (!(fields >> user >> system)) return std::nullopt;
  const auto ticks = static_cast<double>(::sysconf(_SC_CLK_TCK));
  return Cpu{user / ticks, system / ticks};
}

std::optional<std::uint64_t> bytes_written_by(pid_t process) { return field(proc(process, "io"), "write_bytes"); }

Cpu Meter::daemon_cpu() const {
  Cpu sum;
  for (const pid_t daemon : probe_.daemons) {
    const Cpu one = cpu_of(daemon).value_or(Cpu{});
    sum.user += one.user, sum.system += one.system;
  }
  return sum;
}

void Meter::start() {
  lower_bytes_ = ask(probe_.lower_bytes), messages_ = ask(probe_.messages);
  // 5: the largest resident size starts anew. Not allowed for every daemon; the peak is then of its whole life.
  for (const pid_t daemon : probe_.daemons) std::ofstream(proc(daemon, "clear_refs")) << "5\n";
  daemon_ = daemon_cpu(), own_ = own_cpu();
  began_ = std::chrono::steady_clock::now();
}

Cost Meter::stop() {
  Cost cost;
  cost.wall = std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count();
  cost.workload = own_cpu() - own_;
  // What waits in caches belongs to the work that wrote it, and must not disturb what comes next.
  if (probe_.settle) probe_.settle();
  cost.daemon = daemon_cpu() - daemon_;
  for (const pid_t daemon : probe_.daemons)
    cost.daemon_peak_kib += field(proc(daemon, "status"), "VmHWM").value_or(0);
  cost.lower_bytes = difference(ask(probe_.lower_bytes), lower_bytes_);
  cost.messages = difference(ask(probe_.messages), messages_);
  return cost;
}

}  // namespace ecfs::bench
