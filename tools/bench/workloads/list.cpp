// SPDX-License-Identifier: GPL-3.0-or-later
#include "workloads/list.hpp"

#include <iterator>

namespace ecfs::bench {

const std::vector<Workload>& all_workloads() {
  static const std::vector<Workload> all = [] {
    std::vector<Workload> list;
    for (const auto part : {fsmark_workloads, fileserver_workloads, dbench_workloads, iozone_workloads, compile_workloads, postmark_workloads,
                            bonnie_workloads, dd_workloads, hdparm_workloads, desktop_workloads, development_workloads}) {
      auto some = part();
      std::move(some.begin(), some.end(), std::back_inserter(list));
    }
    return list;
  }();
  return all;
}

}  // namespace ecfs::bench
