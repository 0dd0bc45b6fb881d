// SPDX-License-Identifier: GPL-3.0-or-later
#include "process.hpp"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

namespace ecfs {

Result<std::pair<UniqueFd, UniqueFd>> make_pipe() {
  int fds[2];
  if (::pipe2(fds, O_CLOEXEC) < 0) return last_errno();
  return std::pair(UniqueFd(fds[0]), UniqueFd(fds[1]));
}

Result<pid_t> spawn(const std::vector<std::string>& args, const SpawnOptions& options) {
  std::vector<char*> argv;
  for (const auto& a : args) argv.push_back(const_cast<char*>(a.c_str()));
  argv.push_back(nullptr);
  std::vector<char*> env;
  char plain[] = "LC_ALL=C";
  for (char** e = environ; *e; ++e)
    if (!options.plain_messages || ::strncmp(*e, "LC_ALL=", 7) != 0) env.push_back(*e);
  if (options.plain_messages) env.push_back(plain);
  env.push_back(nullptr);

  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawnattr_init(&attributes);
  if (!options.directory.empty()) ::posix_spawn_file_actions_addchdir_np(&actions, options.directory.c_str());
  if (options.stdin_fd >= 0) ::posix_spawn_file_actions_adddup2(&actions, options.stdin_fd, STDIN_FILENO);
  if (options.stdout_fd >= 0) ::posix_spawn_file_actions_adddup2(&actions, options.stdout_fd, STDOUT_FILENO);
  if (options.stderr_fd >= 0) ::posix_spawn_file_actions_adddup2(&actions, options.stderr_fd, STDERR_FILENO);
  // A descriptor "duplicated" onto itself loses its close-on-exec flag.
  for (const int fd : options.keep) ::posix_spawn_file_actions_adddup2(&actions, fd, fd);
  sigset_t none, defaults;
  ::sigemptyset(&none);
  ::sigemptyset(&defaults);
  ::sigaddset(&defaults, SIGPIPE);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  ::posix_spawnattr_setsigdefault(&attributes, &defaults);
  short flags = POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF;
  if (options.own_group) flags = static_cast<short>(flags | POSIX_SPAWN_SETPGROUP);
  ::posix_spawnattr_setflags(&attributes, flags);

  pid_t pid = -1;
  const int e = ::posix_spawnp(&pid, argv[0], &actions, &attributes, argv.data(), env.data());
  ::posix_spawn_file_actions_destroy(&actions);
  ::posix_spawnattr_destroy(&attributes);
  if (e != 0) return errno_code(e);
  return pid;
}

int wait_for(pid_t pid) {
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0)
    if (errno != EINTR) return -1;
  return status;
}

std::string describe_status(int status) {
  if (WIFSIGNALED(status))
    return "killed by signal " + std::to_string(WTERMSIG(status)) + " (" + ::strsignal(WTERMSIG(status)) +
           ")";
  return "exit status " + std::to_string(WIFEXITED(status) ? WEXITSTATUS(status) : status);
}

Result<Run> run_program(const std::vector<std::string>& args, const RunOptions& options) {
  auto pipe = make_pipe();
  if (!pipe) return pipe.error();
  SpawnOptions how;
  how.plain_messages = options.plain_messages;
  if (options.capture_stderr) how.stderr_fd = pipe->second.get();
  const auto pid = spawn(args, how);
  pipe->second.reset();
  if (!pid) return pid.error();
  Run run;
  char buffer[1024];
  for (;;) {
    const ssize_t n = ::read(pipe->first.get(), buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    run.output.append(buffer, static_cast<std::size_t>(n));
  }
  run.status = wait_for(*pid);
  return run;
}

Result<std::size_t> read_up_to(int fd, SecretBuffer& out) {
  std::size_t size = 0;
  while (size < out.size()) {
    const ssize_t n = ::read(fd, out.data() + size, out.size() - size);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return last_errno();
    if (n == 0) break;
    size += static_cast<std::size_t>(n);
  }
  return size;
}

std::string find_program(const std::string& name) {
  const char* path = std::getenv("PATH");
  // The usual places last: mount(8) and services may call us with next to no environment.
  std::string dirs = std::string(path ? path : "") + ":/usr/local/bin:/usr/bin:/bin";
  for (std::size_t at = 0; at <= dirs.size();) {
    const std::size_t end = std::min(dirs.find(':', at), dirs.size());
    const std::string file = dirs.substr(at, end - at) + "/" + name;
    if (file[0] == '/' && file.size() > name.size() + 1 && ::access(file.c_str(), X_OK) == 0) return file;
    at = end + 1;
  }
  return {};
}

}  // namespace ecfs
