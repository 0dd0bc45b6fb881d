// SPDX-License-Identifier: GPL-3.0-or-later
// bonnie++ 1.03's columns: name, size, then K/s and %CP of the sequential ones, /s and %CP of the seeks, the number of files, and /s and %CP of six
// operations on files.
#include <cstdio>

#include "reports.hpp"
#include "summary.hpp"

namespace ecfs::bench {
namespace {

constexpr const char* kColumns[] = {"bonnie-out-char", "bonnie-out-block", "bonnie-rewrite", "bonnie-in-char", "bonnie-in-block", "bonnie-seeks",
                                    nullptr,  // the number of files, in units of 1024
                                    "bonnie-seq-create", "bonnie-seq-read", "bonnie-seq-delete", "bonnie-random-create", "bonnie-random-read",
                                    "bonnie-random-delete"};

const TargetSummary* find(const std::vector<FigureSummary>& figures, const std::string& figure, const std::string& target) {
  for (const auto& f : figures)
    if (f.figure.name == figure)
      for (const auto& t : f.targets)
        if (t.target == target) return &t;
  return nullptr;
}

std::string rounded(double value, const char* format) {
  char text[48];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

}  // namespace

std::string csv_report(const Results& results) {
  const auto figures = summarize(results);
  double scale = 1;
  for (const auto& w : results.workloads)
    if (w.name == "bonnie") scale = w.scale;
  std::string out;
  for (const auto& target : results.targets) {
    if (!target.unavailable.empty()) continue;
    std::string line = target.name + "," + rounded(2048 * scale, "%.0fM");
    for (const char* column : kColumns) {
      if (!column) {
        line += "," + rounded(16 * scale, "%g");
        continue;
      }
      const TargetSummary* t = find(figures, column, target.name);
      const char* format = std::string_view(column) == "bonnie-seeks" ? "%.1f" : "%.0f";
      line += t ? "," + rounded(t->spread.median, format) + "," + rounded(t->cpu_percent, "%.0f") : ",,";
    }
    out += line + "\n";
  }
  return out;
}

}  // namespace ecfs::bench
