// SPDX-License-Identifier: GPL-3.0-or-later
#include "mountinfo.hpp"

#include <libmount.h>
#include <sys/mount.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <charconv>
#include <memory>

#include "control_client.hpp"
#include "ecfs/control.hpp"
#include "ecfs/error.hpp"
#include "paths.hpp"
#include "process.hpp"

namespace ecfs {
namespace {

struct Unref {
  void operator()(libmnt_table* t) const noexcept { mnt_unref_table(t); }
  void operator()(libmnt_iter* i) const noexcept { mnt_free_iter(i); }
};

std::string text(const char* s) { return s ? s : ""; }

uid_t owner_of(libmnt_fs* fs) {
  const char* options = mnt_fs_get_fs_options(fs);
  char* value = nullptr;
  std::size_t size = 0;
  uid_t uid = 0;
  if (options && mnt_optstr_get_option(options, "user_id", &value, &size) == 0 && value)
    std::from_chars(value, value + size, uid);
  return uid;
}

}  // namespace

Outcome<std::vector<Mount>> read_mounts() {
  const std::unique_ptr<libmnt_table, Unref> table(mnt_new_table_from_file("/proc/self/mountinfo"));
  const std::unique_ptr<libmnt_iter, Unref> iter(mnt_new_iter(MNT_ITER_FORWARD));
  if (!table || !iter) return failure_of(last_errno(), "/proc/self/mountinfo");
  std::vector<Mount> mounts;
  libmnt_fs* fs = nullptr;
  while (mnt_table_next_fs(table.get(), iter.get(), &fs) == 0)
    mounts.push_back({mnt_fs_get_id(fs), mnt_fs_get_parent_id(fs), mnt_fs_get_devno(fs),
                      text(mnt_fs_get_target(fs)), text(mnt_fs_get_source(fs)), text(mnt_fs_get_fstype(fs)),
                      owner_of(fs)});
  return mounts;
}

const Mount* mount_at(const std::vector<Mount>& mounts, const std::string& target) {
  const Mount* found = nullptr;
  for (const Mount& m : mounts)
    if (m.target == target) found = &m;
  return found;
}

Outcome<Mount> find_ecfs_mount(const std::string& path) {
  auto mounts = read_mounts();
  if (!mounts) return mounts.failure();
  const Mount* found = nullptr;
  if (const auto real = real_parent(path)) found = mount_at(*mounts, *real);
  if (!found)
    if (const auto real = real_path(path)) found = mount_at(*mounts, *real);
  if (!found) return Failure{Exit::not_mounted, shell_word(path), "nothing is mounted there", ""};
  if (!found->is_ecfs())
    return Failure{Exit::not_mounted, shell_word(path),
                   "what is mounted there is not ecfs but " + found->type, ""};
  return *found;
}

bool is_dead(const Mount& mount) {
  // The socket first: a living daemon that is slow must not hold us up in statfs. One that is just dying
  // still takes the connection, but does not answer.
  if (const auto reply = ask_daemon(mount, "pid"); reply || is_errno(reply.error(), ETIMEDOUT)) return false;
  // statfs always asks the daemon; what stat says may be a day old and from the kernel's cache.
  struct statfs st;
  return ::statfs(mount.target.c_str(), &st) < 0 && (errno == ENOTCONN || errno == ECONNABORTED);
}

Outcome<void> unmount(const Mount& mount, bool lazy) {
  const auto busy = [&] { return Failure{Exit::busy, shell_word(mount.target), "the mount is in use", ""}; };
  if (::geteuid() == 0) {
    if (::umount2(mount.target.c_str(), UMOUNT_NOFOLLOW | (lazy ? MNT_DETACH : 0)) == 0) return {};
    if (errno == EBUSY) return busy();
    return failure_of(last_errno(), shell_word(mount.target));
  }
  std::vector<std::string> args = {"fusermount3", "-u"};
  if (lazy) args.push_back("-z");
  args.insert(args.end(), {"--", mount.target});
  const auto run = run_program(args, {.capture_stderr = true, .plain_messages = true});
  if (!run)
    return failure_of(run.error(), "fusermount3", Exit::fuse,
                      "install the package fuse3, or unmount as root");
  if (run->status == 0) return {};
  if (run->output.find("busy") != std::string::npos) return busy();
  std::string why = run->output.substr(0, run->output.find('\n'));
  if (why.empty()) why = "fusermount3 failed";
  return Failure{Exit::failure, shell_word(mount.target), why, ""};
}

Outcome<void> clear_dead(const Mount& mount) {
  // Nobody listens to it. Before the unmount: after it another mount may have this device number, and so this
  // name.
  ::unlink(control_socket(mount.owner, mount.device).c_str());
  return unmount(mount, true);
}

}  // namespace ecfs
