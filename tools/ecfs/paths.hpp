// SPDX-License-Identifier: GPL-3.0-or-later
// Paths as people give them, made absolute and real.
#pragma once

#include <string>

#include "ecfs/error.hpp"

namespace ecfs {

// Absolute, without "." components, doubled and trailing slashes; no link is followed and ".." stays. An
// empty one stays empty, and exists nowhere.
std::string absolute_path(const std::string& path);

// Every link followed; the path must exist.
Result<std::string> real_path(const std::string& path);

// As real_path, but the last component is not looked at: it may be missing, or a mount whose daemon is dead.
Result<std::string> real_parent(const std::string& path);

std::string parent_of(const std::string& path);
std::string leaf_of(const std::string& path);

// `path` below `root` as "a/b", or "" for root itself. False when it is not there. Both absolute.
bool below(const std::string& path, const std::string& root, std::string& rest);

// "." and ".." resolved by text alone.
std::string flat(const std::string& path);

}  // namespace ecfs
