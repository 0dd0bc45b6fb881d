// SPDX-License-Identifier: GPL-3.0-or-later
// The originals of some workloads, where they are installed, run on the same targets: what they print goes into the same report.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "workload.hpp"

namespace ecfs::bench {

// (figure, value) pairs. Each throws std::runtime_error when the text is not what the program prints.
using Values = std::vector<std::pair<std::string, double>>;
Values parse_fio(std::string_view terse);      // --output-format=terse --terse-version=3
Values parse_fs_mark(std::string_view text);
Values parse_dbench(std::string_view text);
Values parse_postmark(std::string_view text);
Values parse_bonnie(std::string_view csv);     // of 1.9x and 2.0x; what went too fast for bonnie++ to tell is not there

// Not in all_workloads(): only --external brings them in.
const std::vector<Workload>& external_workloads();

}  // namespace ecfs::bench
