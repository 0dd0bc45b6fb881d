// SPDX-License-Identifier: GPL-3.0-or-later
#include "control_client.hpp"

#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

#include "ecfs/control.hpp"
#include "ecfs/unique_fd.hpp"

namespace ecfs {

namespace {

struct Connection {
  UniqueFd fd;
  pid_t pid = 0;
};

Result<Connection> connect_to(const Mount& mount) {
  const std::string path = control_socket(mount.owner, mount.device);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) return errno_code(ENAMETOOLONG);
  path.copy(address.sun_path, path.size());
  UniqueFd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!fd) return last_errno();
  const timeval patience{5, 0};
  ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  ::setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) < 0)
    return errno == EAGAIN ? errno_code(ETIMEDOUT) : last_errno();
  // Under /tmp somebody else could have made the directory: only the mount's own user and root are believed.
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0) return last_errno();
  if (peer.uid != mount.owner && peer.uid != 0) return errno_code(EACCES);
  return Connection{std::move(fd), peer.pid};
}

}  // namespace

Result<pid_t> daemon_pid(const Mount& mount) {
  const auto connection = connect_to(mount);
  if (!connection) return connection.error();
  return connection->pid;
}

Result<Reply> ask_daemon(const Mount& mount, std::string_view request) {
  const auto connection = connect_to(mount);
  if (!connection) return connection.error();
  const UniqueFd& fd = connection->fd;
  if (::send(fd.get(), request.data(), request.size(), MSG_NOSIGNAL) < 0)
    return errno == EAGAIN ? errno_code(ETIMEDOUT) : last_errno();
  std::string answer(kControlPacket, '\0');
  const ssize_t n = ::recv(fd.get(), answer.data(), answer.size(), 0);
  if (n < 0) return errno == EAGAIN ? errno_code(ETIMEDOUT) : last_errno();
  if (n == 0) return errno_code(ECONNRESET);
  return Reply{answer[0] == '+', answer.substr(1, static_cast<std::size_t>(n) - 1)};
}

Outcome<std::string> ask_or_explain(const Mount& mount, std::string_view request) {
  const std::string name = shell_word(mount.target);
  auto reply = ask_daemon(mount, request);
  if (reply && reply->good) return std::move(reply->text);
  if (reply) return Failure{Exit::failure, name, reply->text, ""};
  if (is_errno(reply.error(), ETIMEDOUT))
    return Failure{Exit::failure, name, "its daemon does not answer",
                   "ecfs umount --force " + name + " gives it up"};
  if (is_errno(reply.error(), EACCES) || is_errno(reply.error(), EPERM))
    return Failure{Exit::failure, name, "only the user who mounted it and root may ask", ""};
  if (is_dead(mount))
    return Failure{Exit::not_mounted, name, "its daemon is dead; the mount is left over",
                   "ecfs umount " + name + " clears it"};
  return failure_of(reply.error(),
                    name + ": control socket " + shell_word(control_socket(mount.owner, mount.device)));
}

}  // namespace ecfs
