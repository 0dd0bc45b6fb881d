// SPDX-License-Identifier: GPL-3.0-or-later
// One function a file of workloads: its table entries. all_workloads() puts them together.
#pragma once

#include <vector>

#include "workload.hpp"

namespace ecfs::bench {

std::vector<Workload> fsmark_workloads();
std::vector<Workload> dd_workloads();
std::vector<Workload> postmark_workloads();

}  // namespace ecfs::bench
