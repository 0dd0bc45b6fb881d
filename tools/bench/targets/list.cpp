// SPDX-License-Identifier: GPL-3.0-or-later
#include <functional>
#include <utility>

#include "targets/common.hpp"

namespace ecfs::bench {
namespace {

using Maker = std::function<std::unique_ptr<Target>(const TargetOptions&)>;

const std::vector<std::pair<std::string, Maker>>& makers() {
  const auto without_options = [](std::unique_ptr<Target> (*make)()) { return [make](const TargetOptions&) { return make(); }; };
  static const std::vector<std::pair<std::string, Maker>> list = {
      {"plain", without_options(make_plain)},         {"ecfs", make_ecfs},
      {"gocryptfs", without_options(make_gocryptfs)}, {"securefs", without_options(make_securefs)},
      {"encfs", without_options(make_encfs)},         {"cryfs", without_options(make_cryfs)}};
  return list;
}

}  // namespace

const std::vector<std::string>& target_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> list;
    for (const auto& [name, maker] : makers()) list.push_back(name);
    return list;
  }();
  return names;
}

std::unique_ptr<Target> make_target(const std::string& name, const TargetOptions& options) {
  for (const auto& [known, make] : makers())
    if (known == name) return make(options);
  throw std::invalid_argument("there is no target " + name);
}

}  // namespace ecfs::bench
