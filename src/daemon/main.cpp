// SPDX-License-Identifier: GPL-3.0-or-later
// ecfsd: the FUSE daemon. It never sees a passphrase: the master keys come through --key-fd.
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

#include "daemon/session.hpp"
#include "ecfs/crypto.hpp"
#include "ecfs/unique_fd.hpp"
#include "ecfs/volume.hpp"

namespace {

using ecfs::Exit;
using ecfs::daemon::Failure;
using ecfs::daemon::SessionConfig;

void print(const Failure& f) {
  std::fprintf(stderr, "ecfsd: error: %s: %s\n", f.what.c_str(), f.why.c_str());
  if (!f.hint.empty()) std::fprintf(stderr, "ecfsd: hint: %s\n", f.hint.c_str());
}

// Splits "a,b=c\,d" at commas that no backslash stands before.
std::vector<std::string> split_options(const std::string& text) {
  std::vector<std::string> out(1);
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 1 < text.size())
      out.back() += text[++i];
    else if (text[i] == ',')
      out.emplace_back();
    else
      out.back() += text[i];
  }
  std::erase(out, std::string());
  return out;
}

// Sorts the mount options into ours and libfuse's. An unknown one is an error by name.
std::optional<Failure> take_options(const std::vector<std::string>& texts, SessionConfig& config) {
  static const std::vector<std::string> pass = {"exec",  "noexec", "suid",    "nosuid",      "dev",       "nodev",
                                                "sync",  "async",  "dirsync", "allow_other"};
  static const std::vector<std::string> contexts = {"context=", "fscontext=", "defcontext=", "rootcontext="};
  // The lower filesystem keeps the times; only noatime and nodiratime are ours to do.
  static const std::vector<std::string> ignored = {"rw", "atime", "relatime", "norelatime", "default_permissions", "nonempty"};
  const auto has = [](const std::vector<std::string>& list, const std::string& o) {
    return std::find(list.begin(), list.end(), o) != list.end();
  };
  for (const auto& text : texts)
    for (const auto& o : split_options(text)) {
      if (o == "ro") config.read_only = true;
      else if (o == "rw") config.read_only = false;
      else if (o == "noatime") { config.noatime = true; config.fuse_options.push_back(o); }
      else if (o == "nodiratime") config.nodiratime = true;
      else if (o == "noxattr") config.noxattr = true;
      else if (o == "acl") config.acl = true;
      else if (o == "shared") config.shared = true;
      else if (o.rfind("fsname=", 0) == 0) config.fsname = o.substr(7);
      else if (has(contexts, o.substr(0, o.find('=') + 1))) config.contexts.push_back(o);
      else if (has(pass, o)) config.fuse_options.push_back(o);
      else if (!has(ignored, o)) return Failure{Exit::usage, "unknown mount option '" + o + "'", "ecfsd does not know it", {}};
    }
  return std::nullopt;
}

// Reports a failure where it is waited for: the status descriptor, or else the terminal.
int report(const SessionConfig& config, const std::optional<Failure>& failure) {
  if (!failure) return 0;
  if (config.status_fd >= 0) {
    const std::string line = ecfs::daemon::status_line(failure);
    // After the mount answered the descriptor is closed, and there is nobody to tell but the log.
    if (::write(config.status_fd, line.data(), line.size()) < 0 && errno != EBADF) print(*failure);
  } else {
    print(*failure);
  }
  return static_cast<int>(failure->exit);
}

// The first process waits only as long as nobody else does: with a status descriptor it is gone at once.
void go_to_background(SessionConfig& config) {
  int ends[2] = {-1, -1};
  const bool wait = config.status_fd < 0;
  if (wait && ::pipe2(ends, O_CLOEXEC) != 0) std::_Exit(1);
  const pid_t pid = ::fork();
  if (pid < 0) {
    std::perror("ecfsd: error: cannot fork");
    std::_Exit(1);
  }
  if (pid == 0) {
    ::setsid();
    if (wait) {
      ::close(ends[0]);
      config.status_fd = ends[1];
    }
    return;
  }
  if (!wait) std::_Exit(0);
  ::close(ends[1]);
  std::string line;
  char c;
  while (::read(ends[0], &c, 1) == 1 && c != '\n') line += c;
  if (line.find("\"ok\":true") != std::string::npos) std::_Exit(0);
  std::fprintf(stderr, "ecfsd: error: cannot mount: %s\n", line.empty() ? "the daemon ended" : line.c_str());
  std::_Exit(1);
}

int run(int argc, char** argv) {
  SessionConfig config;
  std::vector<std::string> options;
  int key_fd = -1;
  CLI::App app{"The ecfs FUSE daemon. ecfs mount starts it; it is not meant to be run by hand."};
  app.set_version_flag("--version", ECFS_VERSION);
  app.add_flag("--foreground", config.foreground, "stay in the foreground, log to the terminal");
  app.add_flag("--debug", config.debug, "log more");
  app.add_option("--log", config.log_file, "log to this file instead of syslog");
  app.add_option("--key-fd", key_fd, "descriptor to read the master keys from")->required();
  app.add_option("--status-fd", config.status_fd, "descriptor to report to, one line of JSON");
  app.add_option("-o", options, "mount options")->allow_extra_args(false);
  app.add_option("lower", config.lower, "lower directory")->required();
  app.add_option("mount", config.mount, "mount point")->required();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : static_cast<int>(Exit::usage);
  }

  // The keys first, and no copy of them anywhere else: no core dump, no ptrace by the same user.
  const rlimit no_core{0, 0};
  ::setrlimit(RLIMIT_CORE, &no_core);
  ::prctl(PR_SET_DUMPABLE, 0);
  if (!ecfs::crypto_init()) return report(config, Failure{Exit::failure, "cannot start", "the cryptographic libraries lack a cipher", {}});
  if (const auto failure = take_options(options, config)) return report(config, failure);
  char* const last = argv[argc - 1];
  auto bystander = ecfs::daemon::Bystander::start({argv[0], static_cast<std::size_t>(last + std::strlen(last) + 1 - argv[0])});
  if (!bystander) return report(config, Failure{Exit::failure, "cannot start", bystander.error().message(), {}});
  auto keys = ecfs::read_keys(key_fd);
  ::close(key_fd);
  if (!keys) return report(config, Failure{Exit::failure, "cannot read the keys", keys.error().message(), {}});

  for (auto* path : {&config.lower, &config.mount, &config.log_file}) {
    // Before leaving the current directory.
    if (path->empty() || path->front() == '/') continue;
    char cwd[PATH_MAX];
    if (!::getcwd(cwd, sizeof cwd)) return report(config, Failure{Exit::failure, "cannot find the current directory", std::strerror(errno), {}});
    *path = std::string(cwd) + "/" + *path;
  }
  if (!config.foreground) go_to_background(config);
  // The working directory of whoever mounts must not be kept busy.
  if (::chdir("/") != 0) return report(config, Failure{Exit::failure, "cannot leave the current directory", std::strerror(errno), {}});
  return report(config, ecfs::daemon::run_session(config, std::move(*keys), *bystander));
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::bad_alloc&) {
    std::fputs("ecfsd: error: out of memory\n", stderr);
    return 1;
  }
}
