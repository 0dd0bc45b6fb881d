// SPDX-License-Identifier: GPL-3.0-or-later
// ecfs status: what a mount is and what its daemon has done.
#include <cstdio>
#include <nlohmann/json.hpp>

#include "commands.hpp"
#include "control_client.hpp"
#include "mountinfo.hpp"

namespace ecfs {
namespace {

using Json = nlohmann::json;

std::string padded(std::string text, std::size_t width, bool left = true) {
  if (text.size() < width) text.insert(left ? text.size() : 0, width - text.size(), ' ');
  return text;
}

std::string microseconds(double ns) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f", ns / 1000);
  return text;
}

std::string duration(std::uint64_t s) {
  char text[64];
  const unsigned long long days = s / 86400, hours = s / 3600 % 24, minutes = s / 60 % 60, rest = s % 60;
  if (days > 0)
    std::snprintf(text, sizeof text, "%llu d %llu h %llu min", days, hours, minutes);
  else if (hours > 0)
    std::snprintf(text, sizeof text, "%llu h %llu min", hours, minutes);
  else if (minutes > 0)
    std::snprintf(text, sizeof text, "%llu min %llu s", minutes, rest);
  else
    std::snprintf(text, sizeof text, "%llu s", rest);
  return text;
}

// Reads leniently: a daemon of another version may say more or less.
std::string text_of(const Json& j, const char* name) {
  const auto it = j.find(name);
  return it != j.end() && it->is_string() ? it->get<std::string>() : "?";
}
std::uint64_t number_of(const Json& j, const char* name) {
  const auto it = j.find(name);
  return it != j.end() && it->is_number() ? it->get<std::uint64_t>() : 0;
}
Json object_of(const Json& j, const char* name) {
  const auto it = j.find(name);
  return it != j.end() && it->is_object() ? *it : Json::object();
}

std::string counts(const Json& j) {
  std::string line;
  for (const auto& [name, value] : j.items())
    line += (line.empty() ? "" : ", ") + name + " " +
            (value.is_number() ? std::to_string(value.get<std::uint64_t>()) : value.dump());
  return line.empty() ? "-" : line;
}

std::string messages(const Json& all) {
  std::string text = padded("message", 16) + padded("count", 12, false) + padded("mean us", 12, false) +
                     padded("max us", 12, false) + "\n";
  for (const auto& [name, m] : all.items()) {
    if (!m.is_object()) continue;
    const std::uint64_t count = number_of(m, "count"), total = number_of(m, "total_ns");
    const double mean = count == 0 ? 0 : static_cast<double>(total) / static_cast<double>(count);
    text += padded(name, 16) + padded(std::to_string(count), 12, false) +
            padded(microseconds(mean), 12, false) +
            padded(microseconds(static_cast<double>(number_of(m, "max_ns"))), 12, false) + "\n";
  }
  return text;
}

std::string as_text(const Json& j) {
  const Json descriptors = object_of(j, "descriptors");
  const auto read_only = j.find("read_only");
  std::string text;
  const auto line = [&text](const char* name, const std::string& value) {
    text += padded(name, 12) + value + "\n";
  };
  line("volume", text_of(object_of(j, "volume"), "uuid"));
  line("lower", shell_word(text_of(j, "lower")));
  line("mount", shell_word(text_of(j, "mount")));
  line("cipher", text_of(j, "cipher"));
  line("names", text_of(j, "names"));
  line("mode", text_of(j, "mode") + (read_only != j.end() && *read_only == true ? ", read-only" : ""));
  line("daemon",
       "pid " + std::to_string(number_of(j, "pid")) + ", up " + duration(number_of(j, "uptime_seconds")));
  line("caches", counts(object_of(j, "caches")));
  line("descriptors", std::to_string(number_of(descriptors, "open")) + " of " +
                          std::to_string(number_of(descriptors, "limit")));
  line("damage", counts(object_of(j, "damage")));
  return text + "\n" + messages(object_of(j, "messages"));
}

}  // namespace

Outcome<void> command_status(const std::string& name, Args args) {
  std::string target;
  bool json = false;
  CommandLine app(name, "Shows what is mounted on MOUNT and what its daemon has done.", "MOUNT");
  app.add_option("MOUNT", target, "The mount point")->required();
  app.add_flag("--json", json, "As JSON");
  if (auto go = parse_arguments(app, std::move(args)); !go || !*go)
    return go ? Outcome<void>() : go.failure();

  auto mount = find_ecfs_mount(target);
  if (!mount) return mount.failure();
  auto answer = ask_or_explain(*mount, "status");
  if (!answer) return answer.failure();
  const Json j = Json::parse(*answer, nullptr, false);
  if (!j.is_object())
    return Failure{Exit::failure, shell_word(mount->target), "the daemon's answer makes no sense", ""};
  return put(json ? j.dump(2, ' ', false, Json::error_handler_t::replace) + "\n" : as_text(j));
}

}  // namespace ecfs
