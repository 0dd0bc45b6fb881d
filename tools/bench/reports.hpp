// SPDX-License-Identifier: GPL-3.0-or-later
// The forms that results take for people and for other programs.
#pragma once

#include <string>

#include "results.hpp"

namespace ecfs::bench {

struct TableStyle {
  bool unicode = true;
  unsigned width = 80;
  bool published = false;  // the published ratios beside ours
};

// For the terminal: bars, ratios, a sentence for each group.
std::string table_report(const Results& results, const TableStyle& style);
// One line a target, in the columns of bonnie++ 1.03; a column is empty where the figure is not there.
std::string csv_report(const Results& results);
// One page that needs nothing else: charts, tables, the machine.
std::string html_report(const Results& results);

struct Comparison {
  std::string text;
  bool regression = false;
};
// What changed from one run to another beyond noise; a regression is a figure that certainly fell by more than `threshold` (0.05: 5 %).
Comparison compare_results(const Results& earlier, const Results& later, double threshold);

}  // namespace ecfs::bench
