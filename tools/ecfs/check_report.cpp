// SPDX-License-Identifier: GPL-3.0-or-later
#include "check_report.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>

namespace ecfs {
namespace {

using Json = nlohmann::json;
using check::Finding;
using check::Severity;

std::string plural(std::uint64_t n, const char* one, const char* many) { return std::to_string(n) + " " + (n == 1 ? one : many); }

std::uint64_t count(const check::Report& report, Severity severity) {
  return static_cast<std::uint64_t>(std::count_if(report.findings.begin(), report.findings.end(), [&](const Finding& f) { return f.severity == severity; }));
}

// A detail may quote names from the disk, which must not steer a terminal.
std::string tame(std::string text) {
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  return text;
}

std::string range(const Finding& f) {
  if (f.length == 0) return "";
  return "bytes " + std::to_string(f.offset) + " to " + std::to_string(f.offset + f.length - 1) + ": ";
}

}  // namespace

std::string bytes_word(std::uint64_t n) {
  constexpr std::array<const char*, 5> kUnits = {"bytes", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(n);
  std::size_t unit = 0;
  while (value >= 1024 && unit + 1 < kUnits.size()) value /= 1024, ++unit;
  char text[48];
  std::snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.1f %s", value, kUnits[unit]);
  return text;
}

std::string finding_line(const Finding& f) {
  return std::string(check::word(f.severity)) + ": " + std::string(check::word(f.kind)) + ": " + shell_word(f.path.empty() ? "/" : f.path) + ": " + range(f) + tame(f.detail) +
         " (lower " + shell_word(f.lower.empty() ? "." : f.lower) + ")";
}

std::string summary_line(const CheckOutcome& o) {
  const check::Counts& c = o.report.counts;
  std::string text = plural(c.directories, "directory", "directories") + ", " + plural(c.files, "file", "files") + " of " + bytes_word(c.bytes) + ", " +
                     plural(c.links, "symlink", "symlinks");
  if (o.scrubbed) text += ", " + plural(c.blocks, "block", "blocks") + " and " + plural(c.xattrs, "extended attribute", "extended attributes") + " authenticated";
  if (c.skipped > 0) text += ", " + plural(c.skipped, "part", "parts") + " done before";
  if (o.report.unsettled > 0) text += ", " + plural(o.report.unsettled, "thing", "things") + " left out because the mount is at work on them";
  const std::uint64_t damage = count(o.report, Severity::damage), mends = count(o.report, Severity::mends);
  if (!o.repaired.empty()) text += "; " + plural(o.repaired.size(), "fault", "faults") + " repaired";
  if (o.report.stopped) return text + "; stopped before the end";
  if (damage + mends == 0) return text + (o.repaired.empty() ? "; clean" : "; nothing left");
  if (damage > 0) text += "; " + plural(damage, "damage", "damages");
  if (mends > 0) text += "; " + plural(mends, "fault", "faults") + " that --repair sets right";
  return text;
}

std::string as_json(const CheckOutcome& o) {
  Json findings = Json::array();
  for (const Finding& f : o.report.findings) {
    Json j{{"severity", check::word(f.severity)}, {"kind", check::word(f.kind)}, {"path", f.path}, {"lower", f.lower}, {"detail", f.detail}, {"repairable", f.repairable}};
    if (f.length > 0) j["offset"] = f.offset, j["length"] = f.length;
    findings.push_back(std::move(j));
  }
  const check::Counts& c = o.report.counts;
  const Json all{{"volume", o.volume},
                 {"lower", o.lower},
                 {"findings", std::move(findings)},
                 {"repaired", o.repaired},
                 {"mounted", o.live},
                 {"scrubbed", o.scrubbed},
                 {"stopped", o.report.stopped},
                 {"unsettled", o.report.unsettled},
                 {"counts",
                  {{"directories", c.directories},
                   {"files", c.files},
                   {"links", c.links},
                   {"others", c.others},
                   {"xattrs", c.xattrs},
                   {"bytes", c.bytes},
                   {"blocks", c.blocks},
                   {"skipped", c.skipped}}}};
  return all.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

bool ProgressBar::wanted() { return ::isatty(STDERR_FILENO) == 1; }

ProgressBar::ProgressBar(const std::atomic<std::uint64_t>& done, std::uint64_t total, std::string label)
    : done_(done), total_(std::max<std::uint64_t>(total, 1)), label_(std::move(label)) {
  if (!wanted()) return;
  thread_ = std::thread([this] {
    using Clock = std::chrono::steady_clock;
    const auto start = Clock::now();
    while (!stop_.load()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      draw(std::chrono::duration<double>(Clock::now() - start).count());
    }
  });
}

ProgressBar::~ProgressBar() {
  if (!thread_.joinable()) return;
  stop_ = true;
  thread_.join();
  std::fputs("\r\033[K", stderr);
}

void ProgressBar::draw(double seconds) const {
  constexpr std::size_t kWidth = 30;
  const double part = std::min(1.0, static_cast<double>(done_.load()) / static_cast<double>(total_));
  const auto full = static_cast<std::size_t>(part * kWidth);
  const double rate = seconds > 0 ? static_cast<double>(done_.load()) / seconds : 0;
  std::fprintf(stderr, "\r%s [%s%s] %3.0f %%  %s/s\033[K", label_.c_str(), std::string(full, '#').c_str(), std::string(kWidth - full, '.').c_str(), part * 100,
               bytes_word(static_cast<std::uint64_t>(rate)).c_str());
}

}  // namespace ecfs
