// SPDX-License-Identifier: GPL-3.0-or-later
// The page: report.html, with what is in double braces filled in.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <stdexcept>

#include "charts.hpp"
#include "embedded.hpp"
#include "published.hpp"
#include "reports.hpp"
#include "summary.hpp"

namespace ecfs::bench {
namespace {

constexpr std::size_t kColours = 9;  // as many as the page has

std::string fill(std::string_view page, const std::map<std::string, std::string>& values) {
  std::string out;
  for (;;) {
    const auto start = page.find("{{");
    out += page.substr(0, start);
    if (start == page.npos) return out;
    const auto end = page.find("}}", start);
    out += values.at(std::string(page.substr(start + 2, end - start - 2)));
    page.remove_prefix(end + 2);
  }
}

class Page {
 public:
  explicit Page(const Results& results) : results_(results), figures_(summarize(results)), baseline_(baseline_of(results)) {
    for (const auto& t : results.targets)
      if (t.unavailable.empty()) colours_.emplace(t.name, colours_.size() % kColours);
  }

  std::string text() const {
    return fill(kReportHtml, {{"started", escaped(results_.started)},
                              {"version", escaped(results_.version)},
                              {"suite", escaped(results_.suite)},
                              {"repeats", std::to_string(results_.repeats)},
                              {"seed", std::to_string(results_.seed)},
                              {"baseline", baseline_ == "plain" ? "the plain directory" : escaped(baseline_)},
                              {"colors", colours()},
                              {"conclusions", items(conclusions(figures_, baseline_))},
                              {"legend", legend()},
                              {"charts", charts()},
                              {"rows", rows()},
                              {"published", published()},
                              {"workloads", workloads()},
                              {"machine", machine()},
                              {"notes", items(notes_of(results_))}});
  }

 private:
  static std::string items(const std::vector<std::string>& texts) {
    std::string out;
    for (const auto& t : texts) out += "<li>" + escaped(t) + "</li>\n";
    return out;
  }

  static std::string entry(const std::string& term, const std::string& text) {
    return "<dt>" + escaped(term) + "</dt><dd>" + escaped(text) + "</dd>\n";
  }

  static std::string colours() {
    std::string out;
    for (std::size_t i = 0; i < kColours; ++i) {
      const std::string k = std::to_string(i);
      out += ".f" + k + " { fill: var(--c" + k + "); background: var(--c" + k + "); }\n";
    }
    return out;
  }

  std::string legend() const {
    std::string out;
    for (const auto& t : results_.targets)
      if (t.unavailable.empty()) out += "<li><i class=\"f" + std::to_string(colours_.at(t.name)) + "\"></i>" + escaped(t.name) + "</li>\n";
    return out;
  }

  // A card for each workload.
  std::string charts() const {
    std::string out;
    for (const WorkloadRecord& w : results_.workloads) {
      std::vector<ChartGroup> groups;
      std::vector<ChartPoint> points;
      for (const FigureSummary& f : figures_) {
        if (f.workload != w.name) continue;
        ChartGroup group{f.figure.name + ", " + f.figure.unit + (f.figure.higher_is_better ? "" : ", less is better") + (f.figure.cold ? ", cold" : ""), {}};
        for (const TargetSummary& t : f.targets) {
          const Spread ratio = t.ratio.value_or(spread_of(std::vector{1.0}));
          group.bars.push_back({colours_.at(t.target), ratio, number(t.spread.median), t.target + ": " + number(t.spread.median) + " " + f.figure.unit +
                                                                    (t.ratio ? ", ratio " + ratio_text(*t.ratio) : "")});
        }
        groups.push_back(std::move(group));
        add_points(f, points);
      }
      if (groups.empty()) continue;
      out += "<figure data-workload=\"" + escaped(w.name) + "\"><h3>" + escaped(w.name) + "</h3>\n<figcaption>" +
             escaped(w.what + (w.scale == 1 ? "" : "; scale " + number(w.scale))) + "</figcaption>\n" + bar_chart(w.name + ", ratios", groups);
      if (!points.empty()) out += scatter_chart(w.name + ", pairs", baseline_, points);
      out += "</figure>\n";
    }
    return out;
  }

  // The pairs of each round, oriented so that more is better, in medians of the baseline.
  void add_points(const FigureSummary& f, std::vector<ChartPoint>& points) const {
    std::map<unsigned, double> base;
    const auto value = [&](const Sample& s) { return f.figure.higher_is_better ? s.value : 1 / s.value; };
    const auto each = [&](const std::string& target, const auto& use) {
      for (const RunRecord& run : results_.runs)
        if (run.target == target)
          for (const Sample& s : run.samples)
            if (s.figure == f.figure.name) use(run.round, value(s));
    };
    each(baseline_, [&](unsigned round, double v) { base[round] = v; });
    if (base.empty()) return;
    std::vector<double> values;
    for (const auto& [round, v] : base) values.push_back(v);
    const double unit = median(values);
    for (const TargetSummary& t : f.targets)
      if (t.target != baseline_)
        each(t.target, [&](unsigned round, double v) {
          if (const auto it = base.find(round); it != base.end())
            points.push_back({colours_.at(t.target), it->second / unit, v / unit, f.figure.name + ", " + t.target + ", round " + std::to_string(round)});
        });
  }

  static std::string cell(const std::optional<double>& v) {
    char sortable[48] = "";
    if (v) std::snprintf(sortable, sizeof sortable, "%.9g", *v);
    return std::string("<td data-v=\"") + sortable + "\">" + (v ? number(*v) : "") + "</td>";
  }

  std::string rows() const {
    std::string out;
    for (const FigureSummary& f : figures_)
      for (const TargetSummary& t : f.targets) {
        std::optional<double> ratio, low, high;
        if (t.ratio) ratio = t.ratio->mean;
        if (t.ratio && t.ratio->n > 1) low = t.ratio->interval.low, high = t.ratio->interval.high;
        out += "<tr><td>" + escaped(f.figure.name) + "</td><td>" + escaped(f.figure.unit) + "</td><td>" + escaped(t.target) + "</td>" + cell(t.spread.median) +
               cell(t.spread.min) + cell(t.spread.max) + cell(ratio) + cell(low) + cell(high) + cell(t.cpu_percent) + cell(t.daemon_percent) +
               cell(t.daemon_peak_mib) + cell(t.amplification) + cell(t.messages_each) + "</tr>\n";
      }
    return out;
  }

  // Beside the published figures what was measured here.
  std::string published() const {
    std::string rows;
    for (const FigureSummary& f : figures_)
      for (const PublishedRow& row : published_for(f.figure.name)) {
        std::string theirs, ours;
        for (const auto& [system, ratio] : row.ratios) theirs += (theirs.empty() ? "" : ", ") + system + " " + number(ratio);
        for (const TargetSummary& t : f.targets)
          if (t.ratio) ours += (ours.empty() ? "" : ", ") + t.target + " " + ratio_text(*t.ratio);
        rows += "<tr><td>" + escaped(f.figure.name) + "</td><td>" + escaped(theirs.empty() ? row.remark : theirs) + "</td><td>" + escaped(ours) + "</td><td>" +
                escaped(row.title) + "</td></tr>\n";
      }
    if (rows.empty()) return {};
    return "<h2>Published ratios</h2>\n<div class=\"scroll\"><table><thead><tr><th>Figure</th><th>Published</th><th>Here</th><th>Where and when</th></tr></thead>\n<tbody>\n" +
           rows + "</tbody></table></div>\n";
  }

  std::string workloads() const {
    std::string out;
    for (const WorkloadRecord& w : results_.workloads)
      if (w.unavailable.empty()) out += entry(w.name, (w.after.empty() ? "" : "after " + w.after + ": ") + w.what + "; scale " + number(w.scale));
    return out;
  }

  std::string machine() const {
    const Machine& m = results_.machine;
    std::string out = entry("processor", m.cpu) + entry("AES", m.aes) + entry("memory", m.memory) + entry("kernel", m.kernel) + entry("system", m.system) +
                      entry("lower filesystem", m.lower) + entry("disk", m.disk);
    for (const auto& t : results_.targets)
      if (t.unavailable.empty()) out += entry(t.name, t.about);
    return out;
  }

  const Results& results_;
  const std::vector<FigureSummary> figures_;
  const std::string baseline_;
  std::map<std::string, std::size_t> colours_;
};

}  // namespace

std::string html_report(const Results& results) { return Page(results).text(); }

}  // namespace ecfs::bench
