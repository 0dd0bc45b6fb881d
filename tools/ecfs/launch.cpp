// SPDX-License-Identifier: GPL-3.0-or-later
#include "launch.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "mountinfo.hpp"
#include "paths.hpp"
#include "process.hpp"

namespace ecfs {
namespace {

using Json = nlohmann::json;
using std::chrono::milliseconds;

constexpr std::size_t kMaxStatus = 64 * 1024;

// Beside this program, where the build tree has it, where it is installed.
Outcome<std::string> find_daemon() {
  const auto self = real_path("/proc/self/exe");
  std::vector<std::string> places;
  if (self) places = {parent_of(*self) + "/ecfsd", parent_of(parent_of(parent_of(*self))) + "/ecfsd"};
  places.push_back(ECFS_BINDIR "/ecfsd");
  for (const std::string& p : places)
    if (::access(p.c_str(), X_OK) == 0) return p;
  return Failure{Exit::failure, "ecfsd", "the daemon's program was not found",
                 "it belongs into " ECFS_BINDIR};
}

std::vector<std::string> arguments(const Launch& what, const std::string& program, int key_fd,
                                   int status_fd) {
  std::vector<std::string> args = {program, "--key-fd", std::to_string(key_fd)};
  if (status_fd >= 0) args.insert(args.end(), {"--status-fd", std::to_string(status_fd)});
  if (what.foreground) args.push_back("--foreground");
  if (what.debug) args.push_back("--debug");
  if (!what.log.empty()) args.insert(args.end(), {"--log", what.log});
  if (!what.options.empty()) args.insert(args.end(), {"-o", what.options});
  args.insert(args.end(), {"--", what.lower, what.mount});
  return args;
}

// Signals that ask us to stop, as readable events while it lives.
class StopSignals {
 public:
  StopSignals() {
    sigset_t set;
    ::sigemptyset(&set);
    for (const int s : kAll) ::sigaddset(&set, s);
    ::sigprocmask(SIG_BLOCK, &set, &old_);
    fd_ = UniqueFd(::signalfd(-1, &set, SFD_CLOEXEC));
  }
  ~StopSignals() { ::sigprocmask(SIG_SETMASK, &old_, nullptr); }
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
  // From now on they come too late: what was asked for is done, and the exit code shall say so.
  static void ignore() {
    for (const int s : kAll) ::signal(s, SIG_IGN);
  }
  int fd() const { return fd_.get(); }
  int take() const {
    signalfd_siginfo info{};
    return ::read(fd_.get(), &info, sizeof info) == sizeof info ? static_cast<int>(info.ssi_signo) : SIGTERM;
  }

 private:
  static constexpr int kAll[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
  UniqueFd fd_;
  sigset_t old_{};
};

// The daemon's one line, an empty text when it ended without one, or the signal that came first.
struct Answer {
  std::string line;
  int signal = 0;
};
Answer wait_for_line(int status_fd, const StopSignals& signals) {
  Answer answer;
  for (;;) {
    pollfd p[2] = {{status_fd, POLLIN, 0}, {signals.fd(), POLLIN, 0}};
    if (::poll(p, 2, -1) < 0) continue;
    if (p[1].revents != 0) {
      answer.signal = signals.take();
      return answer;
    }
    char buffer[4096];
    const ssize_t n = ::read(status_fd, buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0 || answer.line.size() > kMaxStatus) return answer;
    answer.line.append(buffer, static_cast<std::size_t>(n));
    if (const auto end = answer.line.find('\n'); end != answer.line.npos)
      return answer.line.resize(end), answer;
  }
}

std::vector<pid_t> children() {
  std::ifstream in("/proc/self/task/" + std::to_string(::getpid()) + "/children");
  std::vector<pid_t> pids;
  for (pid_t pid = 0; in >> pid;) pids.push_back(pid);
  return pids;
}

// Ends whatever was started. As its subreaper we are also the parent of a daemon that has already forked
// itself away.
void end_children() {
  for (int i = 0; i < 100; ++i) {
    for (const pid_t pid : children()) ::kill(pid, i < 60 ? SIGTERM : SIGKILL);
    for (;;) {
      const pid_t gone = ::waitpid(-1, nullptr, WNOHANG);
      if (gone < 0) return;
      if (gone == 0) break;
    }
    std::this_thread::sleep_for(milliseconds(50));
  }
}

// A mount that a daemon left when it was killed in between.
void remove_leftover_mount(const std::string& target) {
  auto mounts = read_mounts();
  if (!mounts) return;
  const Mount* m = mount_at(*mounts, target);
  if (m && m->is_ecfs() && is_dead(*m)) (void)clear_dead(*m);
}

Failure failure_in(const std::string& line, const Launch& what) {
  const Json j = Json::parse(line, nullptr, false);
  const auto text = [&](const char* name) {
    return j.is_object() && j.contains(name) && j[name].is_string() ? j[name].get<std::string>()
                                                                    : std::string();
  };
  if (!j.is_object() || !j.contains("exit") || !j["exit"].is_number_integer())
    return {Exit::failure, shell_word(what.mount), "the daemon's answer makes no sense", ""};
  const int code = j["exit"].get<int>();
  return {static_cast<Exit>(code >= 1 && code < 126 ? code : 1), text("what"), text("why"), text("hint")};
}

Outcome<void> run_in_background(const Launch& what, const std::string& program,
                                std::pair<UniqueFd, UniqueFd> keys, std::vector<EpochMaster> masters) {
  auto status = make_pipe();
  if (!status) return failure_of(status.error(), "pipe");
  const StopSignals signals;
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  SpawnOptions how;
  how.keep = {keys.first.get(), status->second.get()};
  how.own_group = true;
  const auto pid = spawn(arguments(what, program, keys.first.get(), status->second.get()), how);
  if (!pid) return failure_of(pid.error(), shell_word(program));
  keys.first.reset();
  status->second.reset();
  const auto written = write_keys(keys.second.get(), masters);
  keys.second.reset();
  masters.clear();  // wiped: from here on only the daemon has them
  // A daemon that did not read its keys has a reason, which its line tells better than EPIPE.
  const Answer answer = wait_for_line(status->first.get(), signals);
  status->first.reset();
  if (answer.signal != 0) {
    end_children();
    remove_leftover_mount(what.mount);
    return Failure{Exit::failure, shell_word(what.mount),
                   "stopped by signal " + std::to_string(answer.signal) + "; nothing is mounted", ""};
  }
  const Json line = Json::parse(answer.line, nullptr, false);
  if (line.is_object() && line.contains("ok") && line["ok"] == true) {
    StopSignals::ignore();
    if (line.contains("note") && line["note"].is_string()) print_note(line["note"].get<std::string>());
    return {};
  }
  std::optional<Failure> failure;
  if (!answer.line.empty()) failure = failure_in(answer.line, what);
  int ended = 0;
  const bool gone = ::waitpid(*pid, &ended, answer.line.empty() ? 0 : WNOHANG) == *pid;
  end_children();
  remove_leftover_mount(what.mount);
  if (failure) return *failure;
  if (!written) return failure_of(written.error(), "ecfsd");
  return Failure{
      Exit::failure, shell_word(what.mount),
      "the daemon ended before the mount was there" + (gone ? " (" + describe_status(ended) + ")" : ""),
      "--foreground --debug shows what it does"};
}

Outcome<void> run_in_foreground(const Launch& what, const std::string& program,
                                std::pair<UniqueFd, UniqueFd> keys, std::vector<EpochMaster> masters) {
  // The pipe holds all the keys there can be, so that they can be written before anybody reads.
  if (const auto r = write_keys(keys.second.get(), masters); !r) return failure_of(r.error(), "pipe");
  masters.clear();
  keys.second.reset();
  ::fcntl(keys.first.get(), F_SETFD, 0);
  const auto args = arguments(what, program, keys.first.get(), -1);
  std::vector<char*> argv;
  for (const auto& a : args) argv.push_back(const_cast<char*>(a.c_str()));
  argv.push_back(nullptr);
  ::signal(SIGPIPE, SIG_DFL);
  ::execv(argv[0], argv.data());
  return failure_of(last_errno(), shell_word(program));
}

}  // namespace

Outcome<void> launch(const Launch& what, std::vector<EpochMaster> masters) {
  auto program = find_daemon();
  if (!program) return program.failure();
  auto keys = make_pipe();
  if (!keys) return failure_of(keys.error(), "pipe");
  return what.foreground ? run_in_foreground(what, *program, std::move(*keys), std::move(masters))
                         : run_in_background(what, *program, std::move(*keys), std::move(masters));
}

}  // namespace ecfs
