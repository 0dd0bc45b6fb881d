// SPDX-License-Identifier: GPL-3.0-or-later
#include "daemon/bystander.hpp"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string_view>

namespace ecfs::daemon {

struct Bystander::Request {
  char what;  // 'd' device_of, 'w' write_back
  std::uint64_t inode;
  dev_t lower_device;
  char mount[PATH_MAX];
  char path[PATH_MAX];  // below the mount
};

struct Bystander::Reply {
  int error;
  dev_t device;
};

namespace {

// Neither way takes an inode lock, which a program that waits for the answer may hold.
int write_back_now(const std::string& mount, const std::string& path, std::uint64_t inode, dev_t lower_device) {
  struct stat st;
  const UniqueFd file(path.empty() ? -1 : ::open((mount + path).c_str(), O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC));
  if (file && ::fstat(file.get(), &st) == 0 && st.st_ino == inode && st.st_dev != lower_device) {
    const unsigned all = SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
    return ::sync_file_range(file.get(), 0, 0, all) == 0 ? 0 : errno;
  }
  // Unlinked, renamed meanwhile, or not for us to open: then everything on the mount.
  const UniqueFd root(::open(mount.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!root || ::fstat(root.get(), &st) != 0 || st.st_dev == lower_device) return EINVAL;
  return ::syncfs(root.get()) == 0 ? 0 : errno;
}

}  // namespace

Result<Bystander> Bystander::start(std::span<char> command_line) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return last_errno();
  UniqueFd ours(ends[0]), theirs(ends[1]);
  const pid_t pid = ::fork();
  if (pid < 0) return last_errno();
  if (pid > 0) return Bystander(std::move(ours));
  constexpr std::string_view kName = "ecfs-bystander";
  ::prctl(PR_SET_NAME, kName.data());
  std::fill(command_line.begin(), command_line.end(), '\0');
  std::copy_n(kName.begin(), std::min(kName.size(), command_line.empty() ? 0 : command_line.size() - 1), command_line.begin());
  // Nothing inherited stays open: not the terminal's pipes either, which somebody may be waiting for.
  ::setsid();
  for (const int s : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) ::signal(s, SIG_IGN);
  const int null = ::open("/dev/null", O_RDWR);
  for (const int fd : {0, 1, 2}) ::dup2(null, fd);
  ::dup2(theirs.get(), 3);
  ::close_range(4, ~0u, 0);
  if (::chdir("/") != 0) ::_exit(1);
  serve(3);
}

void Bystander::serve(int socket) {
  Request request;
  for (;;) {
    const ssize_t n = ::recv(socket, &request, sizeof request, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n != sizeof request) ::_exit(0);  // the daemon has ended
    Reply reply{};
    struct stat st;
    if (request.what == 'd') {
      reply.error = ::lstat(request.mount, &st) == 0 ? 0 : errno;
      reply.device = reply.error ? 0 : st.st_dev;
    } else {
      reply.error = write_back_now(request.mount, request.path, request.inode, request.lower_device);
    }
    if (::send(socket, &reply, sizeof reply, 0) != sizeof reply) ::_exit(0);
  }
}

Result<dev_t> Bystander::ask(char what, const std::string& mount, const std::string& path, std::uint64_t inode, dev_t lower_device) {
  Request request{};
  request.what = what;
  request.inode = inode;
  request.lower_device = lower_device;
  if (mount.size() >= sizeof request.mount) return errno_code(ENAMETOOLONG);
  std::memcpy(request.mount, mount.c_str(), mount.size() + 1);
  // A path that is too long to open is none.
  if (mount.size() + path.size() < sizeof request.path) std::memcpy(request.path, path.c_str(), path.size() + 1);
  const std::lock_guard lock(mutex_);
  Reply reply{};
  if (::send(socket_.get(), &request, sizeof request, MSG_NOSIGNAL) != sizeof request) return last_errno();
  ssize_t n;
  while ((n = ::recv(socket_.get(), &reply, sizeof reply, 0)) < 0 && errno == EINTR) {
  }
  if (n != sizeof reply) return errno_code(EPIPE);
  if (reply.error) return errno_code(reply.error);
  return reply.device;
}

Result<dev_t> Bystander::device_of(const std::string& path) { return ask('d', path, {}, 0, 0); }

Result<void> Bystander::write_back(const std::string& mount, const std::string& path, std::uint64_t inode, dev_t lower_device) {
  const auto r = ask('w', mount, path, inode, lower_device);
  return r ? Result<void>() : r.error();
}

}  // namespace ecfs::daemon
