// SPDX-License-Identifier: GPL-3.0-or-later
// The adapters' own headers in one: what they share.
#pragma once

#include <optional>

#include "ecfs/unique_fd.hpp"
#include "target.hpp"

namespace ecfs::bench {

// Runs a program to its end, with standard input from a file (or none). Its output; throws TargetFailed when it cannot be started or fails.
std::string run_tool(const std::vector<std::string>& args, const std::string& input_file = "");
// The last line of a text that says something.
std::string last_line(const std::string& text);
// The number in what `program ARGUMENT` prints first, "2.3" of "gocryptfs 2.3 without_openssl".
std::string version_of(const std::string& program, const std::string& argument);
// A throw-away passphrase in a file that we alone read, so that it is in no argument and no environment.
void write_passphrase(const std::string& path, bool newline);
// Takes a mount away, by root or by fusermount3. Waits while it is busy, then takes it away lazily. False when it does not go.
bool take_away(const std::string& mount_point, bool lazily);
bool is_mounted(const std::string& path);
// syncfs on each; one that does not answer any more is left alone.
void sync_all(const std::vector<std::string>& paths);

// A daemon in the foreground, our child, in a process group of its own: a Ctrl-C at the terminal is for us.
class Daemon {
 public:
  ~Daemon() { end(); }
  void start(const std::vector<std::string>& args, const std::string& input_file, const std::string& log_file);
  // Returns when something new is mounted there and answers. Throws when the daemon ends, or nothing comes in time.
  void wait_until_mounted(const std::string& mount_point);
  // True when it has ended by itself within the time.
  bool wait_for_end(double seconds);
  // SIGTERM, then SIGKILL; waits.
  void end() noexcept;
  pid_t pid() const { return pid_; }
  // What it died of, with what it said last; "" while it lives.
  std::string obituary();

 private:
  bool reap(bool block) noexcept;

  pid_t pid_ = -1;
  std::optional<int> status_;
  std::string name_, log_file_;
};

std::unique_ptr<Target> make_plain();
std::unique_ptr<Target> make_ecfs(const TargetOptions& options);
std::unique_ptr<Target> make_gocryptfs();
std::unique_ptr<Target> make_securefs();
std::unique_ptr<Target> make_encfs();
std::unique_ptr<Target> make_cryfs();

}  // namespace ecfs::bench
