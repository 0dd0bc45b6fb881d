// SPDX-License-Identifier: GPL-3.0-or-later
#include "charts.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "summary.hpp"

namespace ecfs::bench {
namespace {

// In units of the drawing, of which 400 are its width: on a telephone nearly one a pixel.
constexpr double kWidth = 400, kBar = 14, kTitle = 20, kGap = 3, kLabels = 46;

std::string n(double v) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f", v);
  return text;
}

std::string text_at(double x, double y, const std::string& text, const std::string& attributes = "") {
  return "<text x=\"" + n(x) + "\" y=\"" + n(y) + "\"" + (attributes.empty() ? "" : " " + attributes) + ">" + escaped(text) + "</text>\n";
}

std::string line(double x1, double y1, double x2, double y2, const char* kind) {
  return std::string("<path class=\"") + kind + "\" d=\"M" + n(x1) + " " + n(y1) + "L" + n(x2) + " " + n(y2) + "\"/>\n";
}

std::string drawing(const std::string& name, double height, const std::string& content) {
  return "<svg role=\"img\" aria-label=\"" + escaped(name) + "\" viewBox=\"0 0 " + n(kWidth) + " " + n(height) + "\">\n" + content + "</svg>\n";
}

}  // namespace

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      default: out += c;
    }
  return out;
}

std::string bar_chart(const std::string& name, const std::vector<ChartGroup>& groups) {
  double largest = 1;
  for (const auto& g : groups)
    for (const auto& b : g.bars) {
      largest = std::max(largest, b.ratio.mean);
      // An interval that says next to nothing would squeeze everything else.
      if (b.ratio.n > 1) largest = std::max(largest, std::min(b.ratio.interval.high, 1.5 * b.ratio.mean));
    }
  const auto x = [&](double v) { return std::min(v / largest, 1.0) * (kWidth - kLabels); };
  std::string out;
  double y = 0;
  for (const auto& g : groups) {
    out += text_at(0, y + 14, g.title);
    y += kTitle;
    for (const auto& b : g.bars) {
      out += "<rect class=\"f" + std::to_string(b.colour) + "\" x=\"0\" y=\"" + n(y) + "\" width=\"" + n(std::max(1.0, x(b.ratio.mean))) + "\" height=\"" + n(kBar) +
             "\" rx=\"2\"><title>" + escaped(b.hint) + "</title></rect>\n";
      double end = x(b.ratio.mean);
      if (b.ratio.n > 1) {
        const double low = x(b.ratio.interval.low), high = x(b.ratio.interval.high), middle = y + kBar / 2;
        out += line(low, middle, high, middle, "whisker") + line(low, middle - 4, low, middle + 4, "whisker");
        if (b.ratio.interval.high <= largest) out += line(high, middle - 4, high, middle + 4, "whisker");
        end = std::max(end, high);
      }
      out += text_at(end + 5, y + 11, b.label, "class=\"soft\"");
      y += kBar + kGap;
    }
    y += 6;
  }
  return drawing(name, y, line(x(1), kTitle, x(1), y - 6, "axis") + out);
}

std::string scatter_chart(const std::string& name, const std::string& x_title, const std::vector<ChartPoint>& points) {
  constexpr double kSide = 200, kLeft = 40;
  double low = 0.8, high = 1.25;
  for (const auto& p : points) low = std::min({low, p.x / 1.1, p.y / 1.1}), high = std::max({high, p.x * 1.1, p.y * 1.1});
  const auto along = [&](double v) { return std::log(v / low) / std::log(high / low) * kSide; };
  std::string out = "<rect class=\"axis\" x=\"" + n(kLeft) + "\" y=\"0\" width=\"" + n(kSide) + "\" height=\"" + n(kSide) + "\"/>\n";
  out += line(kLeft, kSide, kLeft + kSide, 0, "axis");
  for (const double tick : {0.01, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 100.0}) {
    if (tick <= low || tick >= high) continue;
    const double at = along(tick);
    out += line(kLeft - 4, kSide - at, kLeft, kSide - at, "axis") + line(kLeft + at, kSide, kLeft + at, kSide + 4, "axis");
    char text[16];
    std::snprintf(text, sizeof text, "%g", tick);
    out += text_at(kLeft - 7, kSide - at + 4, text, "class=\"soft\" text-anchor=\"end\"") + text_at(kLeft + at, kSide + 16, text, "class=\"soft\" text-anchor=\"middle\"");
  }
  for (const auto& p : points)
    out += "<circle class=\"f" + std::to_string(p.colour) + "\" cx=\"" + n(kLeft + along(p.x)) + "\" cy=\"" + n(kSide - along(p.y)) + "\" r=\"4\"><title>" +
           escaped(p.hint) + "</title></circle>\n";
  out += text_at(kLeft + kSide + 8, kSide, x_title, "class=\"soft\"") + text_at(kLeft + kSide + 8, 12, "the others", "class=\"soft\"");
  return drawing(name, kSide + 22, out);
}

}  // namespace ecfs::bench
