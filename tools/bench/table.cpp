// SPDX-License-Identifier: GPL-3.0-or-later
// The table for the terminal.
#include <algorithm>
#include <cmath>

#include "published.hpp"
#include "reports.hpp"
#include "summary.hpp"

namespace ecfs::bench {
namespace {

struct Bar {
  const char *full, *low, *high;  // up to the interval, from there to the value, from there to the interval's end
};
constexpr Bar kUnicode{"█", "▓", "░"}, kAscii{"#", "=", "-"};

std::string repeat(const char* text, std::size_t n) {
  std::string out;
  for (; n > 0; --n) out += text;
  return out;
}

std::string padded(const std::string& text, std::size_t width, bool left = true) {
  const std::string fill(width - std::min(width, text.size()), ' ');
  return left ? text + fill : fill + text;
}

// As long as the value is of the largest; the 95 % interval is in its end.
std::string bar(const Spread& s, double largest, std::size_t cells, const Bar& look) {
  const auto at = [&](double v) { return static_cast<std::size_t>(std::lround(std::clamp(v / largest, 0.0, 1.0) * static_cast<double>(cells))); };
  const std::size_t value = std::max<std::size_t>(1, at(s.median));
  if (s.n < 2) return repeat(look.full, value) + std::string(cells - value, ' ');
  const std::size_t low = std::min(value, at(s.interval.low)), high = std::max(value, at(s.interval.high));
  return repeat(look.full, low) + repeat(look.low, value - low) + repeat(look.high, high - value) + std::string(cells - high, ' ');
}

std::string wrapped(const std::string& text, std::size_t width) {
  std::string out;
  std::size_t line = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find(' ', at), text.size());
    if (line > 0 && line + 1 + (end - at) > width) out += "\n  ", line = 2;
    else if (line > 0) out += ' ', ++line;
    out += text.substr(at, end - at);
    line += end - at;
    at = end + 1;
  }
  return out + "\n";
}

std::string costs(const TargetSummary& t) {
  std::string text = "cpu " + number(t.cpu_percent) + " %";
  if (t.daemon_peak_mib > 0) text += ", daemon " + number(t.daemon_percent) + " % and " + number(t.daemon_peak_mib) + " MiB";
  if (t.amplification && t.ratio) text += ", writes x " + number(*t.amplification);
  if (t.messages_each) text += ", " + number(*t.messages_each) + " messages each";
  else if (t.messages) text += ", " + number(*t.messages) + " messages";
  return text;
}

std::string published_lines(const std::string& figure, unsigned width) {
  std::string out;
  for (const PublishedRow& row : published_for(figure)) {
    std::string text = "  published:";
    for (const auto& [system, ratio] : row.ratios) text += " " + system + " " + number(ratio) + ",";
    if (row.ratios.empty()) text += " " + row.remark + ",";
    out += wrapped(text + " " + row.title, width);
  }
  return out;
}

}  // namespace

std::string table_report(const Results& results, const TableStyle& style) {
  const auto figures = summarize(results);
  const Bar& look = style.unicode ? kUnicode : kAscii;
  const std::size_t width = std::clamp(style.width, 60u, 120u);
  std::size_t name = 5;
  for (const auto& t : results.targets) name = std::max(name, t.name.size());
  const std::size_t cells = width - (2 + name + 1 + 9 + 2 + 2 + 20);

  const Machine& m = results.machine;
  std::string out = "ecfs-bench " + results.version + ", suite " + results.suite + ", " + std::to_string(results.repeats) + " rounds, seed " +
                    std::to_string(results.seed) + "\n" + m.cpu + " (AES: " + m.aes + "), " + m.memory + ", " + m.kernel + "\n" + m.system + "; " +
                    m.lower + "; disk: " + m.disk + "\n";
  for (const auto& t : results.targets)
    if (t.unavailable.empty()) out += "  " + padded(t.name, name) + " " + t.about + "\n";
  out += wrapped(std::string("Bars: the median; ") + look.low + look.high + " the 95 % interval around it (Student's t on logarithms). At their right: speed held "
                 "against the first target, pair by pair, with its interval.", width);

  for (const Group group : {Group::streaming, Group::small_files, Group::sync_heavy, Group::desktop}) {
    bool first = true;
    for (const FigureSummary& f : figures) {
      if (f.figure.group != group) continue;
      if (std::exchange(first, false)) {
        std::string title(group_title(group));
        std::ranges::transform(title, title.begin(), [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
        out += "\n" + title + "\n";
      }
      out += f.figure.name + ", " + f.figure.unit + (f.figure.higher_is_better ? "" : ", less is better") + (f.figure.cold ? ", cold" : "") +
             (f.scale == 1 ? "" : ", scale " + number(f.scale)) + "\n";
      double largest = 0;
      for (const TargetSummary& t : f.targets)
        largest = std::max({largest, t.spread.median, std::min(t.spread.n < 2 ? 0.0 : t.spread.interval.high, 1.3 * t.spread.median)});
      for (const TargetSummary& t : f.targets) {
        std::string line = "  " + padded(t.target, name) + " " + padded(number(t.spread.median), 9, false) + "  " + bar(t.spread, largest, cells, look) +
                           (t.ratio ? "  " + ratio_text(*t.ratio) : "");
        out += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
        out += "  " + std::string(name, ' ') + " " + std::string(11, ' ') + costs(t) + "\n";
      }
      if (style.published) out += published_lines(f.figure.name, static_cast<unsigned>(width));
    }
  }
  out += "\n";
  for (const auto& line : conclusions(figures, baseline_of(results))) out += wrapped(line, width);
  for (const auto& line : notes_of(results)) out += wrapped(line, width);
  return out;
}

}  // namespace ecfs::bench
