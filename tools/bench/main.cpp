// SPDX-License-Identifier: GPL-3.0-or-later
// ecfs-bench: what does encryption cost, here, for the work I do?
#include <langinfo.h>
#include <sys/ioctl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <clocale>
#include <cstdio>
#include <exception>
#include <fstream>
#include <nlohmann/json.hpp>

#include "external.hpp"
#include "interrupt.hpp"
#include "keeper.hpp"
#include "reports.hpp"
#include "runner.hpp"

namespace ecfs::bench {
namespace {

// In the quick suite, what is named but not in it.
constexpr double kQuickScale = 0.1;

struct Arguments {
  std::string suite = "quick", directory = ".", html, json, csv;
  std::vector<std::string> targets = {"plain", "ecfs"}, workloads, ecfs_options;
  std::optional<double> scale;
  unsigned repeats = 3;
  std::uint64_t seed = 1;
  bool list = false, warm = false, external = false;
  std::string earlier, later;  // of compare
  double threshold = 5;        // percent
};

// A mistake in the arguments; exit status 2.
class Usage : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// In the order of the reports; those of other programs at the end, and only when they are wanted.
std::vector<const Workload*> known_workloads(bool external) {
  std::vector<const Workload*> list;
  for (const Workload& w : all_workloads()) list.push_back(&w);
  if (external)
    for (const Workload& w : external_workloads()) list.push_back(&w);
  return list;
}

void print_list() {
  for (const Workload* p : known_workloads(true)) {
    const Workload& w = *p;
    std::printf("%s%s%s\n    %s\n", w.name.c_str(), w.after.empty() ? "" : ", after ", w.after.c_str(), w.what.c_str());
    for (const Figure& f : w.figures)
      std::printf("    %-22s %-8s %s%s\n", f.name.c_str(), f.unit.c_str(), std::string(group_title(f.group)).c_str(), f.cold ? ", cold" : "");
  }
  std::printf("\nTargets:");
  for (const auto& name : target_names()) {
    const std::string why = make_target(name, {})->unavailable();
    std::printf("\n    %-12s %s", name.c_str(), why.empty() ? "here" : ("not here: " + why).c_str());
  }
  std::printf("\n");
}

bool named(const Workload& w, const std::string& name) {
  return w.name == name || std::ranges::find(w.figures, name, &Figure::name) != w.figures.end();
}

std::uint64_t free_room(const std::string& directory) {
  struct statvfs st {};
  if (::statvfs(directory.c_str(), &st) != 0) throw std::system_error(errno, std::system_category(), directory);
  return static_cast<std::uint64_t>(st.f_bavail) * st.f_frsize;
}

std::string gibibytes(std::uint64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof text, bytes < (1u << 30) ? "%.0f MiB" : "%.1f GiB", static_cast<double>(bytes) / (bytes < (1u << 30) ? 1 << 20 : 1 << 30));
  return text;
}

Plan make_plan(const Arguments& a) {
  Plan plan;
  plan.suite = a.suite;
  for (const auto& name : a.targets) {
    if (std::ranges::find(target_names(), name) == target_names().end()) throw Usage("there is no target " + name + "; --list shows them");
    if (std::ranges::find(plan.targets, name) == plan.targets.end()) plan.targets.push_back(name);
  }
  plan.target_options.ecfs_options = a.ecfs_options;
  plan.repeats = a.repeats, plan.seed = a.seed, plan.cold = !a.warm;
  const auto known = known_workloads(a.external);
  for (const auto& name : a.workloads)
    if (std::ranges::none_of(known, [&](const Workload* w) { return named(*w, name); }))
      throw Usage("there is no workload " + name + "; --list shows them");
  const std::uint64_t room = free_room(a.directory);
  const auto external = [](const Workload& w) { return std::ranges::any_of(external_workloads(), [&](const Workload& e) { return &e == &w; }); };
  for (const Workload* p : known) {
    const Workload& w = *p;
    const bool chosen = !a.workloads.empty()
                            ? std::ranges::any_of(a.workloads, [&](const std::string& name) { return named(w, name); })
                            : a.suite == "all" || external(w) || (a.suite == "seeds" && w.seeds) || (a.suite == "quick" && w.quick > 0);
    if (!chosen) continue;
    double scale = a.suite == "quick" ? (w.quick > 0 ? w.quick : kQuickScale) : 1;
    if (a.scale) {
      scale *= *a.scale;
    } else if (a.suite != "quick") {
      // The published sizes where they fit.
      Plan alone = plan;
      alone.workloads = {{&w, scale}};
      while (scale > 0.01 && room_for(alone) > room) scale = alone.workloads[0].scale /= 2;
    }
    plan.workloads.push_back({&w, scale});
  }
  const std::uint64_t need = room_for(plan);
  if (need > room)
    throw std::runtime_error(a.directory + ": not enough room: " + gibibytes(need) + " are needed, " + gibibytes(room) + " are free, " +
                             gibibytes(need - room) + " are missing; --scale makes the work smaller, --dir chooses another place");
  return plan;
}

void write_file(const std::string& path, const std::string& text) {
  std::ofstream out(path, std::ios::binary);
  out << text;
  out.close();
  if (!out) throw std::system_error(errno, std::system_category(), path);
}

// So that nobody learns after an hour that the report cannot be written.
void check_writable(const std::string& path) {
  if (path.empty()) return;
  const std::ofstream out(path, std::ios::app);
  if (!out) throw std::system_error(errno, std::system_category(), path);
}

TableStyle style_of_terminal(bool published) {
  TableStyle style{.unicode = std::string_view(::nl_langinfo(CODESET)) == "UTF-8", .width = 100, .published = published};
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) style.width = size.ws_col;
  return style;
}

int report(const Results& results, const Arguments& a) {
  std::fputs(table_report(results, style_of_terminal(a.suite == "seeds")).c_str(), stdout);
  if (!a.json.empty()) write_file(a.json, to_json(results).dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
  if (!a.html.empty()) write_file(a.html, html_report(results));
  if (!a.csv.empty()) write_file(a.csv, csv_report(results));
  if (std::fflush(stdout) != 0) throw std::system_error(errno, std::system_category(), "standard output");
  if (results.interrupted) return 128 + interrupting_signal();
  return std::ranges::all_of(results.runs, [](const RunRecord& r) { return r.failure.empty(); }) ? 0 : 1;
}

int measure(const Arguments& a) {
  Plan plan = make_plan(a);
  for (const auto* path : {&a.json, &a.html, &a.csv}) check_writable(*path);
  std::size_t usable = 0;
  for (const auto& name : plan.targets) {
    const std::string why = make_target(name, plan.target_options)->unavailable();
    usable += why.empty();
    if (!why.empty()) std::fprintf(stderr, "ecfs-bench: note: %s is left out: %s\n", name.c_str(), why.c_str());
  }
  if (usable == 0) throw std::runtime_error("no target can be used here");
  return run_kept(a.directory, [&](const std::string& directory) {
    plan.directory = directory;
    return report(run_plan(plan), a);
  });
}

int compare(const Arguments& a) {
  const Comparison c = compare_results(read_results(a.earlier), read_results(a.later), a.threshold / 100);
  std::fputs(c.text.c_str(), stdout);
  return c.regression ? 1 : 0;
}

int run(int argc, char** argv) {
  Arguments a;
  CLI::App app("Measures what encryption costs, here, for the work that you do: the same work on a plain directory and on encrypted ones, in turns. "
               "Without options: a quick suite, below the current directory, in less than two minutes.",
               "ecfs-bench");
  app.set_version_flag("--version", "ecfs-bench " ECFS_VERSION, "Print the version");
  app.add_flag("--list", a.list, "Show workloads and targets, and which of them can be used here");
  app.add_option("--suite", a.suite, "quick (the default); seeds: what has been published, beside the published ratios; all")
      ->check(CLI::IsMember({"quick", "seeds", "all"}))->option_text("SUITE");
  app.add_option("--targets", a.targets, "What to run on (plain,ecfs)")->delimiter(',')->option_text("NAME,...");
  app.add_option("--workloads", a.workloads, "Only these, by their names or those of their figures")->delimiter(',')->option_text("NAME,...");
  app.add_flag("--external", a.external, "Also fio, fs_mark, dbench, postmark and bonnie++ themselves, where they are installed");
  app.add_option("--scale", a.scale, "Size factor: 0.1 is a tenth of the suite's work")->check(CLI::Range(1e-6, 1e3))->option_text("FACTOR");
  app.add_option("--repeat", a.repeats, "Rounds (3)")->check(CLI::Range(1, 1000))->option_text("N");
  app.add_option("--seed", a.seed, "Of everything that is random (1)")->option_text("N");
  app.add_option("--dir", a.directory, "Work below this directory (.)")->check(CLI::ExistingDirectory)->option_text("DIR");
  app.add_option("--ecfs-option", a.ecfs_options, "Mount options for ecfs")->option_text("OPTIONS")->expected(1)->multi_option_policy(
      CLI::MultiOptionPolicy::TakeAll);
  app.add_flag("--warm", a.warm, "Leave the caches of the machine alone, and the cold figures out");
  app.add_option("--html", a.html, "Write a page with charts")->option_text("FILE");
  app.add_option("--json", a.json, "Write everything, for programs and for compare")->option_text("FILE");
  app.add_option("--csv", a.csv, "Write bonnie++'s columns")->option_text("FILE");
  CLI::App* comparing = app.add_subcommand("compare", "What changed from one --json file to another beyond noise; exit status 1 on a regression");
  comparing->add_option("OLD", a.earlier, "The earlier file")->required()->option_text(" ");
  comparing->add_option("NEW", a.later, "The later file")->required()->option_text(" ");
  comparing->add_option("--threshold", a.threshold, "What must be lost to be a regression, in percent (5)")
      ->check(CLI::Range(0.0, 100.0))->option_text("PERCENT");
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& e) {
    return app.exit(e);
  } catch (const CLI::Error& e) {
    throw Usage(e.what());
  }
  if (comparing->parsed()) return compare(a);
  if (a.list) return print_list(), 0;
  return measure(a);
}

}  // namespace
}  // namespace ecfs::bench

int main(int argc, char** argv) {
  std::setlocale(LC_CTYPE, "");
  try {
    return ecfs::bench::run(argc, argv);
  } catch (const ecfs::bench::Usage& e) {
    std::fprintf(stderr, "ecfs-bench: error: %s\necfs-bench: hint: ecfs-bench --help\n", e.what());
    return 2;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "ecfs-bench: error: %s\n", e.what());
    return 1;
  }
}
