// SPDX-License-Identifier: GPL-3.0-or-later
#include "targets/common.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <functional>
#include <fstream>
#include <iterator>
#include <thread>

#include "../ecfs/mountinfo.hpp"
#include "../ecfs/process.hpp"
#include "calls.hpp"
#include "interrupt.hpp"
#include "program.hpp"
#include "random.hpp"

namespace ecfs::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kMountSeconds = 60;   // a mount that has not come by then does not come
constexpr double kBusySeconds = 5;     // somebody (an indexer) may look at a new mount
constexpr double kPatienceSeconds = 30;  // for a daemon that has to write what it holds

bool within(double seconds, const std::function<bool()>& condition) {
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  auto pause = std::chrono::milliseconds(1);
  while (!condition()) {
    if (Clock::now() > end) return false;
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, std::chrono::milliseconds(50));
  }
  return true;
}

UniqueFd open_or_null(const std::string& path) { return UniqueFd(::open(path.empty() ? "/dev/null" : path.c_str(), O_RDONLY | O_CLOEXEC)); }

std::string content(const std::string& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace

std::string last_line(const std::string& text) {
  const auto end = text.find_last_not_of(" \n\r\t");
  if (end == text.npos) return "it says nothing";
  const auto start = text.find_last_of('\n', end);
  return text.substr(start == text.npos ? 0 : start + 1, end - (start == text.npos ? 0 : start + 1) + 1);
}

std::string run_tool(const std::vector<std::string>& args, const std::string& input_file) {
  Output output;
  try {
    output = run_to_end(args, {.directory = {}, .input_file = input_file});
  } catch (const std::system_error& e) {
    throw TargetFailed(e.what());
  }
  if (output.status != 0) throw TargetFailed(args[0] + ": " + describe_status(output.status) + ": " + last_line(output.text));
  return output.text;
}

std::string version_of(const std::string& program, const std::string& argument) {
  std::string text;
  try {
    text = run_tool({program, argument});
  } catch (const TargetFailed&) {
    return "of unknown version";
  }
  // Further lines are of libraries.
  text.resize(std::min(text.size(), text.find('\n')));
  const auto start = text.find_first_of("0123456789");
  return start == text.npos ? "of unknown version" : text.substr(start, text.find_first_not_of("0123456789.", start) - start);
}

void write_passphrase(const std::string& path, bool newline) {
  std::array<unsigned char, 24> secret;
  if (::getentropy(secret.data(), secret.size()) != 0) throw TargetFailed("no random bytes: " + errno_code(errno).message());
  std::string text;
  for (const unsigned char c : secret) text += "0123456789abcdef"[c >> 4], text += "0123456789abcdef"[c & 15];
  if (newline) text += '\n';
  const UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!fd || ::write(fd.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    throw TargetFailed(path + ": " + errno_code(errno).message());
}

bool is_mounted(const std::string& path) {
  auto mounts = read_mounts();
  return mounts && mount_at(*mounts, path) != nullptr;
}

bool take_away(const std::string& mount_point, bool lazily) {
  const auto try_once = [&](bool lazy) {
    auto mounts = read_mounts();
    if (!mounts) return false;
    const Mount* mount = mount_at(*mounts, mount_point);
    return !mount || static_cast<bool>(ecfs::unmount(*mount, lazy));
  };
  if (!lazily && within(kBusySeconds, [&] { return try_once(false); })) return true;
  return try_once(true);
}

void sync_all(const std::vector<std::string>& paths) {
  for (const auto& path : paths)
    if (const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)); fd) ::syncfs(fd.get());
}

void Daemon::start(const std::vector<std::string>& args, const std::string& input_file, const std::string& log_file) {
  const UniqueFd input = open_or_null(input_file);
  const UniqueFd log(::open(log_file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  if (!log) throw TargetFailed(log_file + ": " + errno_code(errno).message());
  SpawnOptions how;
  how.stdin_fd = input.get();
  how.stdout_fd = how.stderr_fd = log.get();
  how.own_group = how.plain_messages = true;
  const auto pid = spawn(args, how);
  if (!pid) throw TargetFailed(args[0] + ": " + pid.error().message());
  pid_ = *pid;
  status_.reset();
  name_ = args[0].substr(args[0].rfind('/') + 1);
  log_file_ = log_file;
}

bool Daemon::reap(bool block) noexcept {
  if (pid_ < 0 || status_) return true;
  int status = 0;
  const pid_t got = ::waitpid(pid_, &status, block ? 0 : WNOHANG);
  if (got == pid_) status_ = status;
  return status_.has_value();
}

void Daemon::wait_until_mounted(const std::string& mount_point) {
  const bool ended = within(kMountSeconds, [&] {
    check_interrupt();
    return reap(false) || is_mounted(mount_point);
  });
  if (reap(false)) throw TargetFailed(obituary());
  if (!ended) throw TargetFailed(name_ + " has not mounted within " + std::to_string(static_cast<int>(kMountSeconds)) + " s");
  // Mounted is not yet answering.
  struct stat st;
  if (::stat(mount_point.c_str(), &st) != 0) throw TargetFailed(name_ + ": the mount does not answer: " + errno_code(errno).message());
}

bool Daemon::wait_for_end(double seconds) {
  return within(seconds, [&] { return reap(false); });
}

void Daemon::end() noexcept {
  if (pid_ < 0) return;
  for (const int signal : {SIGTERM, SIGKILL}) {
    if (reap(false)) break;
    // SIGCONT: one that is stopped would not take the first.
    ::kill(pid_, signal), ::kill(pid_, SIGCONT);
    if (wait_for_end(kBusySeconds)) break;
  }
  pid_ = -1;
}

std::string Daemon::obituary() {
  // A mount fails a moment before its daemon's end can be seen.
  if (pid_ < 0 || !wait_for_end(1)) return {};
  const std::string said = content(log_file_);
  return name_ + " ended: " + describe_status(*status_) + (said.empty() ? "" : ": " + last_line(said));
}

Mounted::Mounted(Target& target, const Place& place) : target_(target) {
  try {
    target_.create(place);
    target_.mount();
    mounted_ = true;
  } catch (...) {
    target_.destroy();
    throw;
  }
}

Mounted::~Mounted() { target_.destroy(); }

void Mounted::unmount() {
  if (std::exchange(mounted_, false)) target_.unmount();
}

}  // namespace ecfs::bench
