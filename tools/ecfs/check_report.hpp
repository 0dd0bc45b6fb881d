// SPDX-License-Identifier: GPL-3.0-or-later
// What ecfs check says: a line for each finding, a summary, the same as JSON, and how far it is.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <thread>

#include "ecfs/check.hpp"
#include "report.hpp"

namespace ecfs {

struct CheckOutcome {
  std::string volume;  // its uuid
  std::string lower;   // the lower directory's path
  check::Report report;
  std::vector<std::string> repaired;  // what was done, a line each
  bool live = false;                  // a daemon was at work
  bool scrubbed = false;
};

std::string bytes_word(std::uint64_t n);
// "damage: block: a/b: ..."
std::string finding_line(const check::Finding& finding);
std::string summary_line(const CheckOutcome& outcome);
std::string as_json(const CheckOutcome& outcome);

// A bar on standard error, where that is a terminal, until it goes.
class ProgressBar {
 public:
  ProgressBar(const std::atomic<std::uint64_t>& done, std::uint64_t total, std::string label);
  ~ProgressBar();
  static bool wanted();

 private:
  void draw(double seconds) const;
  const std::atomic<std::uint64_t>& done_;
  const std::uint64_t total_;
  const std::string label_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace ecfs
