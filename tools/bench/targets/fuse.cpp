// SPDX-License-Identifier: GPL-3.0-or-later
#include "targets/fuse.hpp"

#include <unistd.h>

#include <filesystem>

#include "../ecfs/process.hpp"
#include "interrupt.hpp"

namespace ecfs::bench {

std::string FuseTarget::unavailable() const {
  if (find_program(program()).empty() && ::access(program().c_str(), X_OK) != 0) return program() + " is not installed";
  if (::access("/dev/fuse", R_OK | W_OK) != 0) return "/dev/fuse: " + errno_code(errno).message();
  if (::geteuid() != 0 && find_program("fusermount3").empty()) return "fusermount3 is not installed, and only root mounts without it";
  return {};
}

void FuseTarget::create(const Place& place) {
  paths_ = {place.directory + "/lower", place.directory + "/mount", place.directory + "/passphrase", place.directory + "/state"};
  // As the kernel's list of mounts will name it.
  mount_point_ = paths_.mount = std::filesystem::canonical(place.directory).string() + "/mount";
  for (const auto& directory : {paths_.lower, paths_.mount, paths_.state}) std::filesystem::create_directory(directory);
  write_passphrase(paths_.passphrase, newline_after_passphrase());
  if (const auto command = make_command(paths_); !command.empty()) run_tool(command, passphrase_on_stdin() ? paths_.passphrase : "");
}

void FuseTarget::mount() {
  check_interrupt();
  daemon_.start(mount_command(paths_), passphrase_on_stdin() ? paths_.passphrase : "", paths_.state + "/log");
  daemon_.wait_until_mounted(mount_point_);
}

Probe FuseTarget::probe() const {
  Probe probe;
  probe.daemons = {daemon_.pid()};
  probe.lower_bytes = [pid = daemon_.pid()] { return bytes_written_by(pid); };
  probe.settle = [mount = mount_point_, lower = paths_.lower] { sync_all({mount, lower}); };
  return probe;
}

void FuseTarget::unmount() {
  if (!take_away(mount_point_, false)) throw TargetFailed(mount_point_ + " cannot be unmounted");
  // It writes what it holds before it ends.
  if (!daemon_.wait_for_end(60)) throw TargetFailed(program() + " does not end after it was unmounted");
}

void FuseTarget::destroy() noexcept {
  try {
    if (is_mounted(mount_point_)) take_away(mount_point_, true);
  } catch (const std::exception&) {
    // The daemon's end takes the mount down, too, or leaves a dead one that the keeper takes away.
  }
  daemon_.end();
}

}  // namespace ecfs::bench
