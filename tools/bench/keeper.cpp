// SPDX-License-Identifier: GPL-3.0-or-later
#include "keeper.hpp"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <thread>
#include <vector>

#include "../ecfs/mountinfo.hpp"
#include "../ecfs/process.hpp"
#include "interrupt.hpp"
#include "targets/common.hpp"

namespace ecfs::bench {
namespace {

namespace fs = std::filesystem;

std::atomic<pid_t> worker{0};

void pass_on(int signal) {
  note_interrupt(signal);
  if (const pid_t pid = worker.load(); pid > 0) ::kill(pid, signal);
}

std::vector<pid_t> children() {
  std::ifstream in("/proc/self/task/" + std::to_string(::gettid()) + "/children");
  std::vector<pid_t> pids;
  for (pid_t pid; in >> pid;) pids.push_back(pid);
  return pids;
}

// True when no child is left.
bool reap_all() {
  pid_t got = 0;
  while ((got = ::waitpid(-1, nullptr, WNOHANG)) > 0) continue;
  return got < 0 && errno == ECHILD;
}

void end_children() {
  for (const int signal : {SIGTERM, SIGKILL}) {
    for (int waited = 0; waited < 50; ++waited) {
      if (reap_all()) return;
      // Again each time: what a child leaves behind becomes ours.
      for (const pid_t pid : children()) ::kill(pid, signal), ::kill(pid, SIGCONT);
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
  }
}

// Those below the directory; the last mounted first.
std::vector<Mount> mounts_below(const std::string& directory) {
  std::vector<Mount> found;
  if (auto mounts = read_mounts())
    for (const Mount& m : *mounts)
      if (m.target.starts_with(directory + "/")) found.insert(found.begin(), m);
  return found;
}

// Images of ours that a loop device still holds.
void detach_loops(const std::string& directory) {
  std::error_code none;
  for (const auto& entry : fs::directory_iterator("/sys/block", none)) {
    std::ifstream in(entry.path() / "loop/backing_file");
    std::string file;
    if (std::getline(in, file) && file.starts_with(directory + "/")) {
      try {
        run_tool({"losetup", "--detach", "/dev/" + entry.path().filename().string()});
      } catch (const TargetFailed& e) {
        std::fprintf(stderr, "ecfs-bench: warning: %s\n", e.what());
      }
    }
  }
}

int worker_main(const std::string& directory, const std::function<int(const std::string&)>& work) {
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  catch_interrupts();
  int code = 1;
  try {
    code = work(directory);
  } catch (const Interrupted&) {
    code = 128 + interrupting_signal();
  } catch (const std::exception& e) {
    std::fprintf(stderr, "ecfs-bench: error: %s\n", e.what());
  }
  std::fflush(stdout);
  // Whoever waited for us may be gone.
  clean_up(directory);
  return code;
}

}  // namespace

void clean_up(const std::string& directory) noexcept {
  try {
    for (const Mount& m : mounts_below(directory)) (void)ecfs::unmount(m, true);
    end_children();
    // What a daemon mounted while it was told to end.
    for (const Mount& m : mounts_below(directory)) (void)ecfs::unmount(m, true);
    if (const auto left = mounts_below(directory); !left.empty()) {
      std::fprintf(stderr, "ecfs-bench: warning: %s cannot be unmounted; it is left, with %s\n", left[0].target.c_str(), directory.c_str());
      return;
    }
    detach_loops(directory);
    fs::remove_all(directory);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "ecfs-bench: warning: %s is left: %s\n", directory.c_str(), e.what());
  }
}

int run_kept(const std::string& parent, const std::function<int(const std::string&)>& work) {
  // As the kernel's list of mounts names it.
  std::string directory = fs::canonical(parent).string() + "/ecfs-bench-XXXXXX";
  if (!::mkdtemp(directory.data())) throw std::system_error(errno, std::system_category(), "a directory in " + parent);

  share_interrupts();
  // Daemons whose parent dies become our children, by which we find them.
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  struct sigaction action = {};
  action.sa_handler = pass_on;
  ::sigemptyset(&action.sa_mask);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) ::sigaddset(&action.sa_mask, signal);
  // A signal between the fork and the handlers would be lost.
  sigset_t old;
  ::sigprocmask(SIG_BLOCK, &action.sa_mask, &old);
  const pid_t parent_pid = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) {
    const int error = errno;
    ::sigprocmask(SIG_SETMASK, &old, nullptr);
    fs::remove(directory);
    throw std::system_error(error, std::system_category(), "fork");
  }
  if (pid == 0) {
    ::prctl(PR_SET_CHILD_SUBREAPER, 1);
    catch_interrupts();
    ::sigprocmask(SIG_SETMASK, &old, nullptr);
    const int code = ::getppid() == parent_pid ? worker_main(directory, work) : 1;
    std::fflush(nullptr);
    ::_exit(code);
  }
  worker = pid;
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) ::sigaction(signal, &action, nullptr);
  ::sigprocmask(SIG_SETMASK, &old, nullptr);
  const int status = wait_for(pid);
  worker = 0;
  std::error_code none;
  if (fs::exists(directory, none)) clean_up(directory);
  else end_children();
  if (WIFEXITED(status)) return WEXITSTATUS(status);
  std::fprintf(stderr, "ecfs-bench: error: %s\n", describe_status(status).c_str());
  return 1;
}

}  // namespace ecfs::bench
