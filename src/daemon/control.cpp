// SPDX-License-Identifier: GPL-3.0-or-later
#include "daemon/control.hpp"

#include <dirent.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>

#include "ecfs/control.hpp"

namespace ecfs::daemon {
namespace {

using nlohmann::json;

bool fill_address(sockaddr_un& address, const std::string& path) {
  address = {};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) return false;
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  return true;
}

UniqueFd seqpacket(int flags = 0) { return UniqueFd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | flags, 0)); }

// Our own directory, or none: another user's could be swapped beneath us.
Result<void> make_directory(const std::string& path) {
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) return last_errno();
  struct stat st;
  if (::lstat(path.c_str(), &st) != 0) return last_errno();
  if (!S_ISDIR(st.st_mode) || st.st_uid != ::geteuid() || (st.st_mode & 077) != 0) return errno_code(EPERM);
  return {};
}

// A socket that refuses is of a daemon that died. Without waiting: one that hangs keeps its socket, and us not. A name of a dot and a process
// id is of a daemon that does not listen yet.
void sweep(const std::string& directory) {
  DIR* d = ::opendir(directory.c_str());
  if (!d) return;
  while (const dirent* e = ::readdir(d)) {
    const std::string path = directory + "/" + e->d_name;
    if (e->d_name[0] == '.') {
      const pid_t pid = static_cast<pid_t>(std::strtol(e->d_name + 1, nullptr, 10));
      if (pid > 0 && ::kill(pid, 0) != 0 && errno == ESRCH) ::unlink(path.c_str());
      continue;
    }
    sockaddr_un address;
    const UniqueFd fd = seqpacket(SOCK_NONBLOCK);
    if (!fd || !fill_address(address, path)) continue;
    if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 && errno == ECONNREFUSED)
      ::unlink(path.c_str());
  }
  ::closedir(d);
}

std::size_t open_descriptors() {
  std::size_t n = 0;
  if (DIR* d = ::opendir("/proc/self/fd")) {
    while (const dirent* e = ::readdir(d)) n += e->d_name[0] != '.';
    ::closedir(d);
    return n - 1;  // the one that this listing used
  }
  return 0;
}

std::string answer(const StatusContext& context, std::string_view request) {
  const std::string_view verb = request.substr(0, request.find(' '));
  const std::string_view argument = request.substr(std::min(request.size(), verb.size() + 1));
  if (verb == "status") return "+" + status_json(context);
  if (verb == "pid") return "+" + std::to_string(::getpid());
  if (verb == "encode" || verb == "decode") {
    const auto path = verb == "encode" ? context.fs.lower_path(argument) : context.fs.plain_path(argument);
    return path ? "+" + *path : "-" + path.error().message();
  }
  return "-unknown request";
}

}  // namespace

std::string status_json(const StatusContext& c) {
  json messages = json::object();
  for (const auto& m : c.messages.counts())
    messages[m.name] = {{"count", m.count}, {"total_ns", m.total_ns}, {"max_ns", m.max_ns}, {"mean_ns", m.total_ns / m.count}};
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  NodeTable& nodes = c.fs.nodes();
  const auto& d = c.fs.damage();
  const auto uptime = std::chrono::duration_cast<std::chrono::seconds>(std::chrono::steady_clock::now() - c.started).count();
  const json j = {
      {"volume", {{"uuid", c.fs.volume().uuid}}},
      {"lower", c.lower},
      {"mount", c.mount},
      {"cipher", c.fs.volume().suite == Suite::aes_256_gcm ? "aes-256-gcm" : "chacha20-poly1305"},
      {"names", c.fs.volume().names == NameMode::encrypted ? "encrypted" : "plain"},
      {"mode", c.mode},
      {"read_only", c.fs.read_only()},
      {"pid", ::getpid()},
      {"uptime_seconds", uptime},
      {"messages", messages},
      // The kernel counts in 512 bytes what this process made dirty on a filesystem with a disk. /proc/PID/io, which says the same, is closed.
      {"lower_bytes_written", static_cast<std::uint64_t>(usage.ru_oublock) * 512},
      {"caches",
       {{"nodes", nodes.size()},
        {"directories", nodes.dirs.size()},
        {"files", nodes.files.size()},
        {"pinned", nodes.pinned()}}},
      {"descriptors", {{"limit", limit.rlim_cur}, {"open", open_descriptors()}}},
      {"damage",
       {{"blocks", d.blocks.load()},
        {"headers", d.headers.load()},
        {"directories", d.directories.load()},
        {"names", d.names.load()},
        {"foreign", d.foreign.load()},
        {"unwritten", d.unwritten.load()}}}};
  return j.dump(-1, ' ', false, json::error_handler_t::replace);
}

Result<ControlServer> ControlServer::bind(dev_t device) {
  const uid_t uid = ::geteuid();
  const std::string directory = control_directory(uid);
  if (const auto made = make_directory(directory); !made) return made.error();
  sweep(directory);
  const std::string path = control_socket(uid, device);
  // Under another name until it listens: another daemon's sweep would take it for a dead one's. The rename also takes the place of a dead
  // daemon's, since device numbers are used again.
  const std::string fresh = directory + "/." + std::to_string(::getpid());
  sockaddr_un address;
  if (!fill_address(address, fresh)) return errno_code(ENAMETOOLONG);
  UniqueFd fd = seqpacket();
  if (!fd) return last_errno();
  ::unlink(fresh.c_str());
  struct stat st;
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) return last_errno();
  if (::listen(fd.get(), 8) != 0 || ::lstat(fresh.c_str(), &st) != 0 || ::rename(fresh.c_str(), path.c_str()) != 0) {
    const auto error = last_errno();
    ::unlink(fresh.c_str());
    return error;
  }
  return ControlServer(std::move(fd), path, st.st_ino);
}

ControlServer::~ControlServer() {
  // By now the device number may be another mount's, and the name its socket's.
  struct stat st;
  if (listener_ && ::lstat(path_.c_str(), &st) == 0 && st.st_ino == inode_) ::unlink(path_.c_str());
}

void ControlServer::serve_one(const StatusContext& context) noexcept {
  try {
    const UniqueFd peer(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!peer) return;
    ucred who{};
    socklen_t size = sizeof who;
    if (::getsockopt(peer.get(), SOL_SOCKET, SO_PEERCRED, &who, &size) != 0) return;
    if (who.uid != ::geteuid() && who.uid != 0) return;
    pollfd ready{peer.get(), POLLIN, 0};
    if (::poll(&ready, 1, 1000) != 1) return;
    std::string request(kControlPacket, '\0');
    const ssize_t n = ::recv(peer.get(), request.data(), request.size(), 0);
    if (n <= 0) return;
    request.resize(static_cast<std::size_t>(n));
    const std::string text = answer(context, request);
    ::send(peer.get(), text.data(), text.size(), MSG_NOSIGNAL);
  } catch (const std::exception&) {
    // Out of memory for an answer: the peer sees the connection close.
  }
}

}  // namespace ecfs::daemon
