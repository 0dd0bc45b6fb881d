// SPDX-License-Identifier: GPL-3.0-or-later
// The benchmark's reports, from results that are written by hand.
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "published.hpp"
#include "reports.hpp"
#include "summary.hpp"

using namespace ecfs::bench;
using doctest::Approx;

namespace {

// Plain and ecfs over three rounds; ecfs has `share` of plain's speed, with a little noise.
Results made(double share) {
  Results r;
  r.version = "1", r.started = "2026-01-02T03:04:05Z", r.suite = "seeds", r.repeats = 3, r.seed = 7;
  r.machine = {"A <processor>", "aes", "1 GiB", "Linux", "Debian", "ext4", "a disk"};
  r.targets = {{"plain", "a directory", ""}, {"ecfs", "ecfs 1", ""}, {"cryfs", "", "it is not installed"}};
  r.workloads = {{"fsmark-1000", "FS-Mark", "files", 1, {{"fsmark-1000", "files/s", Kind::rate, Group::sync_heavy, true, false}}, ""},
                 {"fileserver", "fio", "a server", 0.5, {{"fileserver", "s", Kind::seconds, Group::streaming, false, false}}, ""}};
  for (unsigned round = 1; round <= 3; ++round) {
    const double noise = 1 + 0.01 * (round - 2.0);
    for (const bool ecfs : {false, true}) {
      const double speed = (ecfs ? share * noise : 1) * (100 + round);
      Cost cost;
      cost.wall = 2, cost.workload = {0.5, 0.5}, cost.daemon = {ecfs ? 0.2 : 0, 0};
      cost.lower_bytes = ecfs ? 1100 : 1000;
      if (ecfs) cost.messages = 700;
      r.runs.push_back({"fsmark-1000", ecfs ? "ecfs" : "plain", round, {{"fsmark-1000", speed, 100, cost}}, "", 5, "00ff"});
      r.runs.push_back({"fileserver", ecfs ? "ecfs" : "plain", round, {{"fileserver", 1000 / speed, 0, cost}}, "", 5, "00ff"});
    }
  }
  return r;
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

}  // namespace

TEST_SUITE("bench") {
  TEST_CASE("ratios are oriented and go pair by pair") {
    const auto figures = summarize(made(0.5));
    REQUIRE(figures.size() == 2);
    for (const auto& f : figures) {
      REQUIRE(f.targets.size() == 2);
      CHECK_FALSE(f.targets[0].ratio.has_value());
      REQUIRE(f.targets[1].ratio.has_value());
      CHECK(f.targets[1].ratio->mean == Approx(0.5).epsilon(0.001));
      CHECK(f.targets[1].ratio->interval.low < 0.5);
      CHECK(f.targets[1].ratio->interval.low > 0.48);
    }
    const TargetSummary& t = figures[0].targets[1];
    CHECK(t.cpu_percent == Approx(50));
    CHECK(t.daemon_percent == Approx(10));
    CHECK(*t.amplification == Approx(1.1));
    CHECK(*t.messages_each == Approx(7));
    CHECK_FALSE(figures[1].targets[1].messages_each.has_value());
  }

  TEST_CASE("a sentence for each group") {
    const auto lines = conclusions(summarize(made(0.5)), "plain");
    REQUIRE(lines.size() == 2);
    CHECK(has(lines[0], "Streaming: ecfs reaches 50 % of the plain directory's speed (49 % to 51 %)"));
    CHECK(has(lines[1], "Sync-heavy: ecfs"));
  }

  TEST_CASE("the table") {
    const std::string text = table_report(made(0.5), {.unicode = true, .width = 100, .published = true});
    CHECK(has(text, "0.50 (0.49 to 0.51)"));
    CHECK(has(text, "7.00 messages each"));
    CHECK(has(text, "published: dm-crypt 0.489, ecryptfs 0.516, Ubuntu 13.10"));
    CHECK(has(text, "fileserver, s, less is better, scale 0.500"));
    CHECK(has(text, "cryfs was left out: it is not installed."));
    CHECK(has(text, "█"));
    const std::string ascii = table_report(made(0.5), {.unicode = false, .width = 60, .published = false});
    CHECK(has(ascii, "###"));
    CHECK_FALSE(has(ascii, "published"));
    for (const char c : ascii) CHECK(static_cast<unsigned char>(c) < 128);
  }

  TEST_CASE("JSON, and back") {
    Results results = made(0.5);
    results.runs[0].samples[0].cost.lower_bytes.reset();
    results.runs[1].failure = "a \"failure\"";
    const auto j = to_json(results);
    CHECK(to_json(results_from_json(j)) == j);
    auto other = j;
    other["format_version"] = 2;
    CHECK_THROWS_AS(results_from_json(other), std::runtime_error);
    CHECK_THROWS_AS(results_from_json(nlohmann::json::array()), std::runtime_error);
    other = j;
    other["runs"][0]["samples"][0]["value"] = 0;
    CHECK_THROWS_AS(results_from_json(other), std::runtime_error);
    other = j;
    other["workloads"][0]["figures"][0]["group"] = "x";
    CHECK_THROWS_AS(results_from_json(other), std::runtime_error);
  }

  TEST_CASE("compare") {
    CHECK_FALSE(compare_results(made(0.5), made(0.5), 0.05).regression);
    const auto slower = compare_results(made(0.5), made(0.4), 0.05);
    CHECK(slower.regression);
    CHECK(has(slower.text, "REGRESSION"));
    CHECK_FALSE(compare_results(made(0.5), made(0.4), 0.3).regression);
    const auto faster = compare_results(made(0.4), made(0.5), 0.05);
    CHECK_FALSE(faster.regression);
    CHECK(has(faster.text, "faster"));
    // The whole machine is half as fast: that is nobody's regression.
    Results slow = made(0.5);
    for (auto& run : slow.runs)
      for (auto& s : run.samples) s.value *= s.figure == "fileserver" ? 2 : 0.5;
    CHECK_FALSE(compare_results(made(0.5), slow, 0.05).regression);
    Results other = made(0.5);
    other.workloads[0].scale = 0.1;
    CHECK(has(compare_results(made(0.5), other, 0.05).text, "not comparable"));
  }

  TEST_CASE("bonnie++'s columns") {
    Results results = made(0.5);
    results.workloads.push_back({"bonnie", "", "", 0.5, {{"bonnie-out-block", "K/s", Kind::rate, Group::streaming, true, false}}, ""});
    for (unsigned round = 1; round <= 3; ++round) {
      Cost cost;
      cost.wall = 1, cost.workload = {0.25, 0};
      results.runs.push_back({"bonnie", "plain", round, {{"bonnie-out-block", 2000, 1, cost}}, "", 0, ""});
    }
    CHECK(csv_report(results) == "plain,1024M,,,2000,25,,,,,,,,,8,,,,,,,,,,,,\necfs,1024M,,,,,,,,,,,,,8,,,,,,,,,,,,\n");
  }

  TEST_CASE("the page") {
    const std::string page = html_report(made(0.5));
    CHECK_FALSE(has(page, "{{"));
    CHECK(has(page, "A &lt;processor&gt;"));
    CHECK_FALSE(has(page, "A <processor>"));
    for (const char* workload : {"fsmark-1000", "fileserver"}) CHECK(has(page, std::string("data-workload=\"") + workload + "\""));
    CHECK(has(page, "0.50 (0.49 to 0.51)"));
    for (const char* outside : {"http://", "https://", "src=", "@import"}) CHECK_FALSE(has(page, outside));
  }

  TEST_CASE("published ratios are oriented") {
    const auto rows = published_for("fileserver");
    REQUIRE(rows.size() == 1);
    CHECK(rows[0].ratios[0].second == Approx(65.6 / 113.11));
    CHECK(rows[0].ratios[1].second == Approx(65.6 / 62.24));
    CHECK(published_for("frames")[0].ratios[0].second == Approx(0.9));
    CHECK(published_for("no such").empty());
  }

  TEST_CASE("numbers for people") {
    CHECK(number(0.1234) == "0.123");
    CHECK(number(1.234) == "1.23");
    CHECK(number(12.34) == "12.3");
    CHECK(number(123.4) == "123");
    CHECK(number(1234) == "1,234");
    CHECK(number(1234567) == "1,234,567");
  }
}
