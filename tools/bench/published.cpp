// SPDX-License-Identifier: GPL-3.0-or-later
#include "published.hpp"

#include <nlohmann/json.hpp>

#include "embedded.hpp"

namespace ecfs::bench {
namespace {

using nlohmann::json;

PublishedRow row_of(const json& set, const json& row) {
  PublishedRow r{set.at("title"), {}, row.value("remark", "")};
  for (const auto& [system, what] : set.at("systems").items()) {
    if (system.starts_with("plain")) continue;
    if (row.contains("ratio")) {
      if (row["ratio"].contains(system)) r.ratios.emplace_back(system, row["ratio"][system]);
    } else if (row.contains(system)) {
      // With SELinux it is held against the plain one with SELinux.
      const std::string suffix = system.ends_with("-selinux") ? "-selinux" : "";
      const double plain = row.at("plain" + suffix), value = row.at(system);
      r.ratios.emplace_back(system, row.at("better") == "higher" ? value / plain : plain / value);
    }
  }
  return r;
}

}  // namespace

std::vector<PublishedRow> published_for(const std::string& figure) {
  static const json data = json::parse(kPublishedJson);
  std::vector<PublishedRow> rows;
  for (const json& set : data.at("sets"))
    for (const json& row : set.at("rows"))
      if (row.at("workload") == figure) rows.push_back(row_of(set, row));
  return rows;
}

}  // namespace ecfs::bench
