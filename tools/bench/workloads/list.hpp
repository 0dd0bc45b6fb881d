// SPDX-License-Identifier: GPL-3.0-or-later
// One function a file of workloads: its table entries. all_workloads() puts them together.
#pragma once

#include <vector>

#include "workload.hpp"

namespace ecfs::bench {

std::vector<Workload> bonnie_workloads();
std::vector<Workload> compile_workloads();
std::vector<Workload> dbench_workloads();
std::vector<Workload> dd_workloads();
std::vector<Workload> desktop_workloads();
std::vector<Workload> development_workloads();
std::vector<Workload> fileserver_workloads();
std::vector<Workload> fsmark_workloads();
std::vector<Workload> hdparm_workloads();
std::vector<Workload> iozone_workloads();
std::vector<Workload> postmark_workloads();

}  // namespace ecfs::bench
