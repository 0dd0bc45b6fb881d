// SPDX-License-Identifier: GPL-3.0-or-later
#include "summary.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace ecfs::bench {
namespace {

// The samples of one figure on one target, by round.
std::map<unsigned, const Sample*> samples_of(const Results& results, const std::string& figure, const std::string& target) {
  std::map<unsigned, const Sample*> found;
  for (const RunRecord& run : results.runs)
    if (run.target == target)
      for (const Sample& s : run.samples)
        if (s.figure == figure) found[run.round] = &s;
  return found;
}

template <class F>
std::optional<double> median_where(const std::map<unsigned, const Sample*>& samples, F value) {
  std::vector<double> values;
  for (const auto& [round, s] : samples)
    if (const std::optional<double> v = value(*s)) values.push_back(*v);
  if (values.empty()) return std::nullopt;
  return median(values);
}

std::optional<double> as_double(std::optional<std::uint64_t> v) {
  if (!v) return std::nullopt;
  return static_cast<double>(*v);
}

TargetSummary summarize_target(const std::string& target, const Figure& figure, const std::map<unsigned, const Sample*>& samples,
                               const std::map<unsigned, const Sample*>& baseline) {
  TargetSummary t;
  t.target = target;
  std::vector<double> values;
  for (const auto& [round, s] : samples) values.push_back(s->value);
  t.spread = spread_of(values);
  if (&samples != &baseline) {
    for (const auto& [round, s] : samples)
      if (const auto base = baseline.find(round); base != baseline.end())
        t.ratios.push_back(figure.higher_is_better ? s->value / base->second->value : base->second->value / s->value);
    if (!t.ratios.empty()) t.ratio = spread_of(t.ratios);
  }
  t.cpu_percent = *median_where(samples, [](const Sample& s) { return std::optional(s.cost.cpu_percent()); });
  t.daemon_percent = *median_where(samples, [](const Sample& s) { return std::optional(s.cost.daemon_percent()); });
  t.daemon_peak_mib = *median_where(samples, [](const Sample& s) { return std::optional(static_cast<double>(s.cost.daemon_peak_kib) / 1024); });
  t.lower_bytes = median_where(samples, [](const Sample& s) { return as_double(s.cost.lower_bytes); });
  const auto plain_bytes = median_where(baseline, [](const Sample& s) { return as_double(s.cost.lower_bytes); });
  if (t.lower_bytes && plain_bytes && *plain_bytes > 0) t.amplification = *t.lower_bytes / *plain_bytes;
  t.messages = median_where(samples, [](const Sample& s) { return as_double(s.cost.messages); });
  const bool counts_things = figure.unit == "files/s" || figure.unit == "TPS" || figure.unit == "tx/s" || figure.unit == "/s";
  if (counts_things)
    t.messages_each = median_where(samples, [](const Sample& s) -> std::optional<double> {
      if (!s.cost.messages || s.amount <= 0) return std::nullopt;
      return static_cast<double>(*s.cost.messages) / s.amount;
    });
  return t;
}

}  // namespace

std::string baseline_of(const Results& results) {
  for (const auto& t : results.targets)
    if (t.name == "plain" && t.unavailable.empty()) return t.name;
  for (const auto& t : results.targets)
    if (t.unavailable.empty()) return t.name;
  return {};
}

std::vector<FigureSummary> summarize(const Results& results) {
  const std::string baseline = baseline_of(results);
  std::vector<FigureSummary> list;
  for (const WorkloadRecord& w : results.workloads)
    for (const Figure& figure : w.figures) {
      FigureSummary summary{w.name, w.scale, figure, {}};
      const auto base = samples_of(results, figure.name, baseline);
      for (const TargetRecord& t : results.targets) {
        if (t.name == baseline) {
          if (!base.empty()) summary.targets.push_back(summarize_target(t.name, figure, base, base));
        } else if (const auto samples = samples_of(results, figure.name, t.name); !samples.empty()) {
          summary.targets.push_back(summarize_target(t.name, figure, samples, base));
        }
      }
      if (!summary.targets.empty()) list.push_back(std::move(summary));
    }
  return list;
}

std::vector<GroupSummary> summarize_groups(const std::vector<FigureSummary>& figures) {
  std::vector<GroupSummary> list;
  for (const Group group : {Group::streaming, Group::small_files, Group::sync_heavy, Group::desktop}) {
    std::vector<std::string> targets;
    for (const FigureSummary& f : figures)
      for (const TargetSummary& t : f.targets)
        if (f.figure.group == group && t.ratio && std::ranges::find(targets, t.target) == targets.end()) targets.push_back(t.target);
    for (const std::string& target : targets) {
      GroupSummary g{group, target, {}, {}, {}, 0, 0};
      // By round: the mean over the figures that have that many pairs.
      std::vector<double> logs;
      std::vector<int> counts;
      for (const FigureSummary& f : figures)
        for (const TargetSummary& t : f.targets) {
          if (f.figure.group != group || t.target != target || !t.ratio) continue;
          if (logs.size() < t.ratios.size()) logs.resize(t.ratios.size()), counts.resize(t.ratios.size());
          for (std::size_t i = 0; i < t.ratios.size(); ++i) logs[i] += std::log(t.ratios[i]), ++counts[i];
          if (g.worst.empty() || t.ratio->mean < g.worst_ratio) g.worst = f.figure.name, g.worst_ratio = t.ratio->mean;
          if (g.best.empty() || t.ratio->mean > g.best_ratio) g.best = f.figure.name, g.best_ratio = t.ratio->mean;
        }
      std::vector<double> means;
      for (std::size_t i = 0; i < logs.size(); ++i) means.push_back(std::exp(logs[i] / counts[i]));
      g.ratio = spread_of(means);
      list.push_back(std::move(g));
    }
  }
  return list;
}

std::vector<std::string> conclusions(const std::vector<FigureSummary>& figures, const std::string& baseline) {
  std::vector<std::string> list;
  const auto groups = summarize_groups(figures);
  for (auto it = groups.begin(); it != groups.end();) {
    const Group group = it->group;
    std::string text(group_title(group));
    text[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(text[0])));
    text += ": ";
    const std::string of = baseline == "plain" ? "the plain directory's" : baseline + "'s";
    for (bool first = true; it != groups.end() && it->group == group; ++it, first = false) {
      text += (first ? "" : "; ") + it->target + (first ? " reaches " : " ") + percent(it->ratio.mean) + (first ? " of " + of + " speed" : "");
      if (it->ratio.n > 1) text += " (" + percent(it->ratio.interval.low) + " to " + percent(it->ratio.interval.high) + ")";
      if (first && it->worst != it->best) text += ", least in " + it->worst + " with " + percent(it->worst_ratio);
    }
    list.push_back(text + ".");
  }
  return list;
}

std::vector<std::string> notes_of(const Results& results) {
  std::vector<std::string> notes;
  std::string cold;
  for (const auto& w : results.workloads)
    for (const auto& f : w.figures)
      if (f.cold && w.unavailable.empty()) cold += (cold.empty() ? "" : ", ") + f.name;
  if (!cold.empty())
    notes.push_back(results.caches_dropped ? "All caches of the machine were dropped before " + cold + "; every other figure is with warm caches."
                                           : "Caches were not dropped (it needs root, and no --warm), so " + cold + " is left out; every figure is with warm caches.");
  for (const auto& t : results.targets)
    if (!t.unavailable.empty()) notes.push_back(t.name + " was left out: " + t.unavailable + ".");
  for (const auto& w : results.workloads)
    if (!w.unavailable.empty()) notes.push_back(w.name + " was left out: " + w.unavailable + ".");
  for (const auto& r : results.runs)
    if (!r.failure.empty()) notes.push_back(r.workload + " on " + r.target + ", round " + std::to_string(r.round) + ", failed: " + r.failure + ".");
  if (results.repeats < 3) notes.push_back("Fewer than 3 rounds: the intervals say little or nothing.");
  if (results.interrupted) notes.push_back("Interrupted: this is what was measured until then.");
  return notes;
}

std::string number(double value) {
  char text[64];
  const double size = std::abs(value);
  std::snprintf(text, sizeof text, size >= 100 ? "%.0f" : size >= 10 ? "%.1f" : size >= 1 ? "%.2f" : "%.3f", value);
  std::string s = text;
  if (size >= 1000)
    for (std::ptrdiff_t i = static_cast<std::ptrdiff_t>(s.size()) - 3; i > (value < 0 ? 1 : 0); i -= 3) s.insert(static_cast<std::size_t>(i), ",");
  return s;
}

std::string percent(double ratio) {
  if (!std::isfinite(ratio)) return "any";
  char text[32];
  std::snprintf(text, sizeof text, "%.0f %%", 100 * ratio);
  return text;
}

std::string ratio_text(const Spread& ratio) {
  char text[96];
  if (ratio.n < 2) std::snprintf(text, sizeof text, "%.2f", ratio.mean);
  else std::snprintf(text, sizeof text, "%.2f (%.2f to %.2f)", ratio.mean, ratio.interval.low, std::min(ratio.interval.high, 9999.0));
  return text;
}

}  // namespace ecfs::bench
