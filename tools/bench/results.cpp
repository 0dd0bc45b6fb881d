// SPDX-License-Identifier: GPL-3.0-or-later
#include "results.hpp"

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "summary.hpp"

namespace ecfs::bench {
namespace {

using nlohmann::json;

constexpr const char* kFormat = "ecfs-bench";
constexpr int kVersion = 1;

// Group and Kind by the names that the document has.
constexpr std::pair<Group, const char*> kGroups[] = {
    {Group::streaming, "streaming"}, {Group::small_files, "small-files"}, {Group::sync_heavy, "sync-heavy"}, {Group::desktop, "desktop"}};
constexpr std::pair<Kind, const char*> kKinds[] = {{Kind::rate, "rate"}, {Kind::seconds, "seconds"}, {Kind::value, "value"}};

template <class T, std::size_t N>
const char* word_for(const std::pair<T, const char*> (&table)[N], T value) {
  for (const auto& [v, word] : table)
    if (v == value) return word;
  return "";
}

template <class T, std::size_t N>
T value_for(const std::pair<T, const char*> (&table)[N], const std::string& word) {
  for (const auto& [v, known] : table)
    if (word == known) return v;
  throw std::runtime_error("unknown word \"" + word + "\"");
}

template <class T>
json optional_json(const std::optional<T>& v) {
  return v ? json(*v) : json(nullptr);
}

std::optional<std::uint64_t> optional_count(const json& j) {
  if (j.is_null()) return std::nullopt;
  return j.get<std::uint64_t>();
}

json sample_json(const Sample& s) {
  const Cost& c = s.cost;
  return {{"figure", s.figure},
          {"value", s.value},
          {"amount", s.amount},
          {"wall_seconds", c.wall},
          {"cpu", {{"user_seconds", c.workload.user}, {"system_seconds", c.workload.system}, {"percent", c.cpu_percent()}}},
          {"daemon",
           {{"user_seconds", c.daemon.user}, {"system_seconds", c.daemon.system}, {"percent", c.daemon_percent()}, {"peak_kib", c.daemon_peak_kib}}},
          {"lower_bytes_written", optional_json(c.lower_bytes)},
          {"fuse_messages", optional_json(c.messages)}};
}

Sample sample_from(const json& j) {
  Sample s;
  s.figure = j.at("figure"), s.value = j.at("value"), s.amount = j.at("amount");
  if (!(s.value > 0) || !std::isfinite(s.value)) throw std::runtime_error("a value of " + s.figure + " is not positive");
  s.cost.wall = j.at("wall_seconds");
  s.cost.workload = {j.at("cpu").at("user_seconds"), j.at("cpu").at("system_seconds")};
  const json& daemon = j.at("daemon");
  s.cost.daemon = {daemon.at("user_seconds"), daemon.at("system_seconds")};
  s.cost.daemon_peak_kib = daemon.at("peak_kib");
  s.cost.lower_bytes = optional_count(j.at("lower_bytes_written"));
  s.cost.messages = optional_count(j.at("fuse_messages"));
  return s;
}

json figure_json(const Figure& f) {
  return {{"name", f.name}, {"unit", f.unit}, {"kind", word_for(kKinds, f.kind)}, {"group", word_for(kGroups, f.group)},
          {"better", f.higher_is_better ? "higher" : "lower"}, {"cold", f.cold}};
}

Figure figure_from(const json& j) {
  return {j.at("name"), j.at("unit"), value_for(kKinds, j.at("kind")), value_for(kGroups, j.at("group")), j.at("better") == "higher", j.at("cold")};
}

json spread_json(const Spread& s) {
  json j = {{"n", s.n}, {"median", s.median}, {"min", s.min}, {"max", s.max}, {"mean", s.mean}};
  // Of one value nothing is known, and JSON has no infinity.
  j["interval"] = s.n < 2 ? json(nullptr) : json::array({s.interval.low, s.interval.high});
  return j;
}

json summary_json(const Results& results) {
  json list = json::array();
  for (const FigureSummary& f : summarize(results)) {
    json targets = json::object();
    for (const TargetSummary& t : f.targets)
      targets[t.target] = {{"values", spread_json(t.spread)},
                           {"ratio", t.ratio ? spread_json(*t.ratio) : json(nullptr)},
                           {"amplification", optional_json(t.amplification)},
                           {"messages_each", optional_json(t.messages_each)}};
    list.push_back({{"figure", f.figure.name}, {"targets", targets}});
  }
  return list;
}

json machine_json(const Machine& m) {
  return {{"cpu", m.cpu}, {"aes", m.aes}, {"memory", m.memory}, {"kernel", m.kernel}, {"system", m.system}, {"lower", m.lower}, {"disk", m.disk}};
}

Results parse(const json& j) {
  if (j.at("format") != kFormat) throw std::runtime_error("it is not of ecfs-bench");
  if (j.at("format_version") != kVersion) throw std::runtime_error("it is of another version of the format");
  Results r;
  r.version = j.at("version"), r.started = j.at("started"), r.suite = j.at("suite");
  r.repeats = j.at("repeats"), r.seed = j.at("seed");
  r.caches_dropped = j.at("caches_dropped"), r.interrupted = j.at("interrupted");
  const json& m = j.at("machine");
  r.machine = {m.at("cpu"), m.at("aes"), m.at("memory"), m.at("kernel"), m.at("system"), m.at("lower"), m.at("disk")};
  for (const json& t : j.at("targets")) r.targets.push_back({t.at("name"), t.at("about"), t.at("unavailable")});
  for (const json& w : j.at("workloads")) {
    r.workloads.push_back({w.at("name"), w.at("after"), w.at("what"), w.at("scale"), {}, w.at("unavailable")});
    for (const json& f : w.at("figures")) r.workloads.back().figures.push_back(figure_from(f));
  }
  for (const json& run : j.at("runs")) {
    r.runs.push_back({run.at("workload"), run.at("target"), run.at("round"), {}, run.at("failure"), run.at("operations"), run.at("operations_hash")});
    for (const json& s : run.at("samples")) r.runs.back().samples.push_back(sample_from(s));
  }
  return r;
}

}  // namespace

json to_json(const Results& r) {
  json targets = json::array(), workloads = json::array(), runs = json::array();
  for (const auto& t : r.targets) targets.push_back({{"name", t.name}, {"about", t.about}, {"unavailable", t.unavailable}});
  for (const auto& w : r.workloads) {
    json figures = json::array();
    for (const Figure& f : w.figures) figures.push_back(figure_json(f));
    workloads.push_back(
        {{"name", w.name}, {"after", w.after}, {"what", w.what}, {"scale", w.scale}, {"figures", figures}, {"unavailable", w.unavailable}});
  }
  for (const auto& run : r.runs) {
    json samples = json::array();
    for (const Sample& s : run.samples) samples.push_back(sample_json(s));
    runs.push_back({{"workload", run.workload}, {"target", run.target}, {"round", run.round}, {"samples", samples}, {"failure", run.failure},
                    {"operations", run.operations}, {"operations_hash", run.operations_hash}});
  }
  return {{"format", kFormat}, {"format_version", kVersion}, {"version", r.version}, {"started", r.started}, {"suite", r.suite},
          {"repeats", r.repeats}, {"seed", r.seed}, {"caches_dropped", r.caches_dropped}, {"interrupted", r.interrupted},
          {"machine", machine_json(r.machine)}, {"targets", targets}, {"workloads", workloads}, {"runs", runs}, {"baseline", baseline_of(r)},
          {"summary", summary_json(r)}};
}

Results results_from_json(const json& j) {
  try {
    return parse(j);
  } catch (const json::exception& e) {
    throw std::runtime_error(std::string("it is not a report of ecfs-bench: ") + e.what());
  }
}

Results read_results(const std::string& path) {
  std::ifstream in(path);
  if (!in) throw std::system_error(errno, std::system_category(), path);
  try {
    return results_from_json(json::parse(in));
  } catch (const std::exception& e) {
    throw std::runtime_error(path + ": " + e.what());
  }
}

}  // namespace ecfs::bench
