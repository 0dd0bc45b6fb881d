// SPDX-License-Identifier: GPL-3.0-or-later
// Published measurements of encrypted storage (published.json).
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace ecfs::bench {

struct PublishedRow {
  std::string title;  // where and when
  std::vector<std::pair<std::string, double>> ratios;  // system and encrypted : plain, oriented: under 1 is slower
  std::string remark;
};

// Every set's row for a figure.
std::vector<PublishedRow> published_for(const std::string& figure);

}  // namespace ecfs::bench
