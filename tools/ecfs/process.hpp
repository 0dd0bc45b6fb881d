// SPDX-License-Identifier: GPL-3.0-or-later
// Running another program.
#pragma once

#include <sys/types.h>

#include <string>
#include <utility>
#include <vector>

#include "ecfs/error.hpp"
#include "ecfs/secret.hpp"
#include "ecfs/unique_fd.hpp"

namespace ecfs {

// Both ends close on exec.
Result<std::pair<UniqueFd, UniqueFd>> make_pipe();

struct SpawnOptions {
  std::vector<int> keep;  // descriptors that stay open in the program, under the same numbers
  int stdin_fd = -1;      // what its standard input is, when not ours
  int stdout_fd = -1;
  int stderr_fd = -1;
  std::string directory;  // where it starts, when not where we are
  bool own_group = false;  // out of the terminal's foreground group, so that signals reach it by us alone
  bool plain_messages = false;  // LC_ALL=C, for messages that we read
};
// By PATH when args[0] has no slash. Signals are at their defaults and unblocked in it.
Result<pid_t> spawn(const std::vector<std::string>& args, const SpawnOptions& options);

// waitpid without EINTR; the wait status, or -1.
int wait_for(pid_t pid);
// "exit status 2" or "killed by signal 9 (Killed)".
std::string describe_status(int status);

struct RunOptions {
  bool capture_stderr = false;  // into Run::output
  bool plain_messages = false;
};
struct Run {
  int status = 0;  // wait status
  std::string output;
};
Result<Run> run_program(const std::vector<std::string>& args, const RunOptions& options);

// Reads until the end or until `out` is full; how many bytes there were.
Result<std::size_t> read_up_to(int fd, SecretBuffer& out);

// Where `name` is found in PATH or the usual directories; empty when nowhere.
std::string find_program(const std::string& name);

}  // namespace ecfs
