// SPDX-License-Identifier: GPL-3.0-or-later
#include "program.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <system_error>

#include "../ecfs/process.hpp"
#include "interrupt.hpp"

namespace ecfs::bench {
namespace {

// Time for a program to end by itself after it was told to.
constexpr int kPatienceMs = 5000;

// Reads until every writer is gone. Ends the program's process group at Ctrl-C, but still waits for it.
std::string read_output(int fd, pid_t program) {
  std::string text;
  char buffer[4096];
  bool told = false, killed = false;
  for (;;) {
    if (interrupted() && !told) ::kill(-program, SIGTERM), told = true;
    pollfd waiting{fd, POLLIN, 0};
    const int ready = ::poll(&waiting, 1, told ? kPatienceMs : 500);
    if (ready == 0 && told && !killed) ::kill(-program, SIGKILL), killed = true;
    if (ready <= 0) continue;
    const ssize_t n = ::read(fd, buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return text;
    text.append(buffer, static_cast<std::size_t>(n));
  }
}

}  // namespace

Output run_to_end(const std::vector<std::string>& args, const ProgramPlace& place) {
  check_interrupt();
  auto pipe = make_pipe();
  if (!pipe) throw std::system_error(pipe.error(), args[0]);
  const UniqueFd input(::open(place.input_file.empty() ? "/dev/null" : place.input_file.c_str(), O_RDONLY | O_CLOEXEC));
  if (!input) throw std::system_error(errno, std::system_category(), place.input_file);
  SpawnOptions how;
  how.stdin_fd = input.get();
  how.stdout_fd = how.stderr_fd = pipe->second.get();
  how.directory = place.directory;
  how.own_group = how.plain_messages = true;
  const auto pid = spawn(args, how);
  pipe->second.reset();
  if (!pid) throw std::system_error(pid.error(), "running " + args[0]);
  Output output;
  output.text = read_output(pipe->first.get(), *pid);
  output.status = wait_for(*pid);
  check_interrupt();
  return output;
}

}  // namespace ecfs::bench
