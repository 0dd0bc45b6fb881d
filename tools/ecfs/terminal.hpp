// SPDX-License-Identifier: GPL-3.0-or-later
// The controlling terminal, /dev/tty: what standard input and output are redirected to does not matter.
#pragma once

#include <string>

#include "ecfs/secret.hpp"
#include "ecfs/unique_fd.hpp"
#include "report.hpp"

namespace ecfs {

// Invalid when there is none.
UniqueFd open_terminal();

// One line without echo, its newline cut off. Echo is restored whatever happens: on SIGINT, SIGTERM, SIGHUP
// and SIGQUIT before the signal then does its work, on SIGTSTP before stopping, after which the prompt comes
// again.
Outcome<SecretBuffer> read_hidden(int tty, const std::string& prompt);

// One line with echo, for yes or no. Empty at the end of input.
std::string read_shown(int tty, const std::string& prompt);

}  // namespace ecfs
