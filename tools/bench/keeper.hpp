// SPDX-License-Identifier: GPL-3.0-or-later
// Leaves nothing behind, whatever happens: a process that does no more than wait for the one that works, and cleans up after it.
#pragma once

#include <functional>
#include <string>

namespace ecfs::bench {

// Takes away every mount below the directory, ends every process that descends from us, and removes the directory. Says on standard error what it
// could not.
void clean_up(const std::string& directory) noexcept;

// Makes a directory "ecfs-bench-…" in `parent`, runs `work` with it in a child, and cleans up when the child has ended, however. Signals that end
// us go to the child, which looks at them in its own time. When we are killed outright, the child cleans up. Returns what `work` returned.
int run_kept(const std::string& parent, const std::function<int(const std::string& directory)>& work);

}  // namespace ecfs::bench
