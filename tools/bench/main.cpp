// SPDX-License-Identifier: GPL-3.0-or-later
// ecfs-bench: what does encryption cost, here, for the work I do?
#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <filesystem>

#include "external.hpp"
#include "interrupt.hpp"
#include "workload.hpp"

namespace ecfs::bench {
namespace {

// In the order of the reports; those of other programs at the end, and only when they are wanted.
std::vector<Workload> choose_workloads(bool external) {
  auto list = all_workloads();
  if (external) list.insert(list.end(), external_workloads().begin(), external_workloads().end());
  return list;
}

void list_workloads(const std::vector<Workload>& workloads) {
  for (const Workload& w : workloads) {
    std::printf("%s%s%s\n", w.name.c_str(), w.after.empty() ? "" : ", after ", w.after.c_str());
    std::printf("    %s\n", w.what.c_str());
    for (const Figure& f : w.figures)
      std::printf("    %-20s %-8s %s%s\n", f.name.c_str(), f.unit.c_str(), std::string(group_title(f.group)).c_str(),
                  f.cold ? ", cold" : "");
  }
}

// The workload in the working directory, as often as asked for.
void run_here(const Workload& w, double scale, std::uint64_t seed, unsigned repeats) {
  for (unsigned i = 0; i < repeats; ++i) {
    std::string directory = std::filesystem::current_path().string() + "/ecfs-bench-XXXXXX";
    if (!::mkdtemp(directory.data())) throw std::system_error(errno, std::system_category(), directory);
    struct Remover {
      std::string path;
      ~Remover() {
        std::error_code ignored;
        std::filesystem::remove_all(path, ignored);
      }
    } const remover{directory};
    Probe probe;
    probe.lower_bytes = [] { return bytes_written_by(::getpid()); };
    Job job(w, directory, {scale, seed}, std::move(probe));
    w.run(job);
    for (const Sample& s : job.samples())
      std::printf("%-20s %12.1f  %.3f s, cpu %.0f %%, written %.1f MB\n", s.figure.c_str(), s.value, s.cost.wall, s.cost.cpu_percent(),
                  megabytes(s.cost.lower_bytes.value_or(0)));
  }
}

int run(int argc, char** argv) {
  CLI::App app("Measures what encryption costs, here, for the work that you do.", "ecfs-bench");
  bool list = false, external = false;
  double scale = 0.1;
  std::uint64_t seed = 1;
  unsigned repeats = 3;
  std::vector<std::string> names;
  app.set_version_flag("--version", "ecfs-bench " ECFS_VERSION);
  app.add_flag("--list", list, "List the workloads");
  app.add_flag("--external", external, "Also fio, fs_mark, dbench, postmark and bonnie++ themselves, where they are installed");
  app.add_option("--workloads", names, "Only these")->delimiter(',');
  app.add_option("--scale", scale, "Size factor")->check(CLI::PositiveNumber);
  app.add_option("--seed", seed, "Seed of everything random");
  app.add_option("--repeat", repeats, "How often each workload runs")->check(CLI::PositiveNumber);
  CLI11_PARSE(app, argc, argv);
  if (list) {
    list_workloads(choose_workloads(external));
    return 0;
  }
  catch_interrupts();
  for (const Workload& w : choose_workloads(external)) {
    if (!names.empty() && std::ranges::find(names, w.name) == names.end()) continue;
    if (const std::string why = w.unavailable ? w.unavailable() : ""; !why.empty()) {
      std::printf("%s is left out: %s\n", w.name.c_str(), why.c_str());
      continue;
    }
    run_here(w, scale, seed, repeats);
  }
  return 0;
}

}  // namespace
}  // namespace ecfs::bench

int main(int argc, char** argv) {
  try {
    return ecfs::bench::run(argc, argv);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "ecfs-bench: error: %s\n", e.what());
    return 1;
  }
}
