// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <cstdint>
#include <string>

namespace ecfs::crash {

// Changes recorded journals to what broken code would have done, and sees that each is found fault with. Says what was not.
bool self_test(const std::string& dir, std::uint64_t seed);

}  // namespace ecfs::crash
