// SPDX-License-Identifier: GPL-3.0-or-later
// ecfs-bench compare.
#include <algorithm>
#include <cstdio>
#include <map>

#include "reports.hpp"
#include "summary.hpp"

namespace ecfs::bench {
namespace {

using Key = std::pair<std::string, std::string>;  // figure, target

// What is compared: a target's ratio to the plain directory of the same run, in which the machine's mood cancels; and of the plain directory itself,
// or where there is none, the figure, oriented so that more is better.
struct Series {
  std::vector<double> values;
  bool ratio = false;
  double scale = 1;
};

std::map<Key, Series> series_of(const Results& results) {
  std::map<Key, Series> all;
  for (const FigureSummary& f : summarize(results))
    for (const TargetSummary& t : f.targets) {
      Series& s = all[{f.figure.name, t.target}];
      s.scale = f.scale;
      s.ratio = t.ratio && baseline_of(results) == "plain";
      if (s.ratio) {
        s.values = t.ratios;
        continue;
      }
      for (const RunRecord& run : results.runs)
        if (run.target == t.target)
          for (const Sample& sample : run.samples)
            if (sample.figure == f.figure.name) s.values.push_back(f.figure.higher_is_better ? sample.value : 1 / sample.value);
    }
  return all;
}

std::string line_of(const Key& key, const Series& s, const Change& c, const char* verdict) {
  char text[256];
  std::snprintf(text, sizeof text, "%-22s %-10s %-14s %5.2f (%.2f to %.2f)  %s\n", key.first.c_str(), key.second.c_str(),
                s.ratio ? "against plain" : "by itself", c.factor, c.interval.low, std::min(c.interval.high, 9999.0), verdict);
  return text;
}

}  // namespace

Comparison compare_results(const Results& earlier, const Results& later, double threshold) {
  Comparison result;
  const auto before = series_of(earlier), after = series_of(later);
  std::size_t compared = 0, unchanged = 0;
  std::string left_out;
  for (const auto& [key, now] : after) {
    const auto it = before.find(key);
    if (it == before.end()) {
      left_out += "only in the later one: " + key.first + " on " + key.second + "\n";
      continue;
    }
    const Series& then = it->second;
    if (then.ratio != now.ratio || then.scale != now.scale) {
      left_out += "not comparable (another scale or baseline): " + key.first + " on " + key.second + "\n";
      continue;
    }
    ++compared;
    const Change c = change_between(then.values, now.values);
    // The plain directory tells of the machine, and is no fault of anybody's.
    const bool judged = key.second != "plain";
    if (c.interval.contains(1)) ++unchanged;
    else if (c.factor > 1) result.text += line_of(key, now, c, "faster");
    else if (c.factor >= 1 - threshold) result.text += line_of(key, now, c, "slower, within the threshold");
    else if (!judged) result.text += line_of(key, now, c, "slower: the machine");
    else result.text += line_of(key, now, c, "REGRESSION"), result.regression = true;
  }
  for (const auto& [key, then] : before)
    if (!after.contains(key)) left_out += "only in the earlier one: " + key.first + " on " + key.second + "\n";
  result.text += left_out;
  if (earlier.machine.cpu != later.machine.cpu || earlier.machine.lower != later.machine.lower)
    result.text += "The two are of different machines or filesystems: " + earlier.machine.cpu + "; " + earlier.machine.lower + " and " + later.machine.cpu + "; " +
                   later.machine.lower + "\n";
  result.text += std::to_string(compared) + " figures compared, " + std::to_string(unchanged) + " without a change beyond noise\n";
  if (compared == 0) result.text += "There is nothing in common.\n";
  return result;
}

}  // namespace ecfs::bench
