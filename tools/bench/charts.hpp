// SPDX-License-Identifier: GPL-3.0-or-later
// SVG charts, coloured by the page's classes f0, f1, … (fills, one a target).
#pragma once

#include <string>
#include <vector>

#include "statistics.hpp"

namespace ecfs::bench {

// & < > " as entities.
std::string escaped(const std::string& text);

struct ChartBar {
  std::size_t colour = 0;
  Spread ratio;       // of the baseline itself: 1, of one value
  std::string label;  // at its end
  std::string hint;   // what a pointer over it shows
};
struct ChartGroup {
  std::string title;
  std::vector<ChartBar> bars;
};
// Horizontal bars under a title for each group, on one scale from 0, with a line at 1.
std::string bar_chart(const std::string& name, const std::vector<ChartGroup>& groups);

struct ChartPoint {
  std::size_t colour = 0;
  double x = 0, y = 0;  // positive
  std::string hint;
};
// On logarithmic axes of one scale, with the line where both are equal.
std::string scatter_chart(const std::string& name, const std::string& x_title, const std::vector<ChartPoint>& points);

}  // namespace ecfs::bench
