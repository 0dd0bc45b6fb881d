// SPDX-License-Identifier: GPL-3.0-or-later
// The figures of a run as people compare them: one value a target with its spread, and its ratio to the plain directory.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "results.hpp"
#include "statistics.hpp"

namespace ecfs::bench {

struct TargetSummary {
  std::string target;
  Spread spread;                      // of the figure
  std::vector<double> ratios;         // pair by pair, oriented: under 1 is slower than the baseline
  std::optional<Spread> ratio;        // where there are pairs; nothing for the baseline
  double cpu_percent = 0, daemon_percent = 0;  // medians, as all below
  double daemon_peak_mib = 0;
  std::optional<double> lower_bytes, amplification;  // the latter: for each byte that the baseline writes
  std::optional<double> messages, messages_each;     // the latter: for each file or transaction
};

struct FigureSummary {
  std::string workload;
  double scale = 1;
  Figure figure;
  std::vector<TargetSummary> targets;  // those that have it
};

// What one group of figures says of one target: the geometric mean of its ratios round by round.
struct GroupSummary {
  Group group = Group::streaming;
  std::string target;
  Spread ratio;
  std::string worst, best;  // figures
  double worst_ratio = 0, best_ratio = 0;
};

// The target that the others are held against: plain where it ran, else the first.
std::string baseline_of(const Results& results);
std::vector<FigureSummary> summarize(const Results& results);
std::vector<GroupSummary> summarize_groups(const std::vector<FigureSummary>& figures);
// One sentence for each group.
std::vector<std::string> conclusions(const std::vector<FigureSummary>& figures, const std::string& baseline);
// What was left out or failed, and which caches were dropped; in words.
std::vector<std::string> notes_of(const Results& results);

// "0.742", "12.3", "5,120": three digits that matter.
std::string number(double value);
// "74 %"
std::string percent(double ratio);
// "0.74 (0.70 to 0.78)"
std::string ratio_text(const Spread& ratio);

}  // namespace ecfs::bench
