// SPDX-License-Identifier: GPL-3.0-or-later
// Running another program to its end.
#pragma once

#include <string>
#include <vector>

namespace ecfs::bench {

struct Output {
  int status = 0;    // wait status
  std::string text;  // standard output, and standard error in its place
};

struct ProgramPlace {
  std::string directory;   // where it starts; empty: here
  std::string input_file;  // its standard input; empty: none
};

// At Ctrl-C it ends the program with its process group, and throws Interrupted. Throws std::system_error when it cannot be started.
Output run_to_end(const std::vector<std::string>& args, const ProgramPlace& place);

}  // namespace ecfs::bench
