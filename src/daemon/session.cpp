// SPDX-License-Identifier: GPL-3.0-or-later
#include "daemon/session.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/sinks/syslog_sink.h>
#include <spdlog/spdlog.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "daemon/bystander.hpp"
#include "daemon/control.hpp"
#include "daemon/messages.hpp"
#include "daemon/ops.hpp"
#include "daemon/session_mount.hpp"
#include "ecfs/lower.hpp"

namespace ecfs::daemon {
namespace {

constexpr double kDay = 86400, kSecond = 1;

void open_log(const SessionConfig& c) {
  std::shared_ptr<spdlog::logger> log;
  if (!c.log_file.empty())
    log = std::make_shared<spdlog::logger>("ecfsd", std::make_shared<spdlog::sinks::basic_file_sink_mt>(c.log_file));
  else if (c.foreground)
    log = std::make_shared<spdlog::logger>("ecfsd", std::make_shared<spdlog::sinks::stderr_sink_mt>());
  else
    log = std::make_shared<spdlog::logger>("ecfsd", std::make_shared<spdlog::sinks::syslog_sink_mt>("ecfsd", LOG_PID, LOG_DAEMON, false));
  log->set_level(c.debug ? spdlog::level::debug : spdlog::level::info);
  log->flush_on(spdlog::level::info);
  spdlog::set_default_logger(std::move(log));
}

// A lower name may hold anything: here it shall not begin a line of its own.
std::string one_line(const std::string& path) {
  std::string out;
  for (const char c : path) {
    const auto byte = static_cast<unsigned char>(c);
    out += byte < 0x20 || byte == 0x7f ? fmt::format("\\x{:02x}", byte) : std::string(1, c);
  }
  return out;
}

// libfuse splits its options at commas.
std::string escaped(const std::string& value) {
  std::string out;
  for (const char c : value) {
    if (c == ',' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

// The descriptors that the caches may use, of what the process may have. The rest is for requests in flight, pinned files, the
// worker threads' clones of /dev/fuse and the libraries.
struct FdBudget {
  std::size_t dirs, files, pinned;
};
FdBudget raise_limits() {
  rlimit limit{};
  // Limits of the shell that mounts are not for a daemon that serves every program.
  for (const auto what : {RLIMIT_FSIZE, RLIMIT_CPU, RLIMIT_AS, RLIMIT_DATA, RLIMIT_NPROC}) {
    if (::getrlimit(what, &limit) != 0) continue;
    if (::geteuid() == 0) limit.rlim_max = RLIM_INFINITY;
    limit.rlim_cur = limit.rlim_max;
    ::setrlimit(what, &limit);
  }
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) ::getrlimit(RLIMIT_NOFILE, &limit);
  const auto n = static_cast<std::size_t>(std::min<rlim_t>(limit.rlim_cur, 1 << 20));
  constexpr std::size_t kOther = 48;  // some twenty when idle, and a few for each request in flight
  const std::size_t dirs = std::clamp<std::size_t>(n / 8, 4, 4096), files = std::clamp<std::size_t>(n / 4, 8, 4096);
  return {dirs, files, std::max<std::size_t>(n, dirs + files + kOther + 4) - dirs - files - kOther};
}

Failure volume_failure(const std::string& lower, const std::error_code& code, const std::string& part) {
  const std::string what = "cannot open the volume in '" + lower + "'";
  const std::string why = part.empty() ? code.message() : code.message() + ": " + part;
  if (code == Errc::not_a_volume) return {Exit::no_volume, what, why, "ecfs init makes a volume"};
  if (code == Errc::unsupported_format) return {Exit::unsupported, what, why, "it was made by a later version of ecfs"};
  if (code.category() == ecfs_category()) return {Exit::damaged_volume, what, why, "the file is left as it is; restore it from a backup"};
  return {Exit::lower, what, why, {}};
}

bool kernel_has_selinux() {
  std::ifstream file("/proc/filesystems");
  for (std::string word; file >> word;)
    if (word == "selinuxfs") return true;
  return false;
}

// What stays in one place while the session runs; libfuse's callbacks get a pointer to it.
struct Running {
  OpsContext context;  // first: the operations see the user data as this
  Messages messages;
};

ssize_t on_raw_read(int fd, void* buffer, std::size_t size, void* userdata) {
  return static_cast<Running*>(userdata)->messages.read(fd, buffer, size);
}
ssize_t on_raw_writev(int fd, struct iovec* iov, int count, void* userdata) {
  return static_cast<Running*>(userdata)->messages.writev(fd, iov, count);
}

// Without it reads arrive in pieces of at most 128 KiB, whatever max_readahead says. Only root may.
void raise_readahead(dev_t device) {
  std::ofstream file("/sys/class/bdi/" + std::to_string(major(device)) + ":" + std::to_string(minor(device)) + "/read_ahead_kb");
  file << "1024\n";
}

// Beside the workers: waits until the mount answers and says so, then serves signals and the control socket.
class Attendant {
 public:
  Attendant(const SessionConfig& config, const StatusContext& status, fuse_session* session, SessionMount& mount, Messages& messages,
            Bystander& bystander)
      : config_(config), status_(status), session_(session), mount_(mount), messages_(messages), bystander_(bystander), main_(::pthread_self()), stop_(::eventfd(0, EFD_CLOEXEC)) {
    sigset_t set;
    sigemptyset(&set);
    for (const int s : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&set, s);
    signals_ = UniqueFd(::signalfd(-1, &set, SFD_CLOEXEC));
    thread_ = std::thread([this] { run(); });
  }
  ~Attendant() {
    const std::uint64_t one = 1;
    if (::write(stop_.get(), &one, sizeof one) < 0) spdlog::error("cannot stop the attendant: {}", std::strerror(errno));
    thread_.join();
  }
  bool ready() const noexcept { return ready_; }

 private:
  void run() {
    // A umask of this thread's own, for a log that is reopened.
    ::unshare(CLONE_FS);
    ::umask(077);
    const auto mounted = mount_.wait();
    const auto device = mounted ? bystander_.device_of(config_.mount) : mounted.error();
    Result<ControlServer> control = device ? ControlServer::bind(*device) : Result<ControlServer>(device.error());
    if (device) {
      device_ = *device;
      raise_readahead(device_);
      messages_.keep_labels(has_labels(device_));
      if (!control) spdlog::error("no control socket: {}; ecfs status and ecfs name will not work", control.error().message());
      say_ready();
    } else {
      // No answer, or nobody left to ask: a mount that may not work is worse than none.
      fuse_session_exit(session_);
      ::pthread_kill(main_, SIGUSR1);
    }
    for (;;) {
      pollfd waits[] = {{stop_.get(), POLLIN, 0}, {signals_.get(), POLLIN, 0}, {control ? control->fd() : -1, POLLIN, 0}};
      if (::poll(waits, 3, -1) < 0 && errno != EINTR) return;
      if (waits[0].revents) return;
      if (waits[1].revents) on_signal();
      if (waits[2].revents) control->serve_one(status_);
    }
  }

  void say_ready() {
    ready_ = true;
    spdlog::info("mounted '{}' on '{}'{}", config_.lower, config_.mount, status_.fs.read_only() ? ", read-only" : status_.mode == "shared" ? ", shared" : "");
    if (config_.status_fd >= 0) {
      const bool by_itself = status_.fs.read_only() && !config_.read_only;
      const std::string line =
          status_line(std::nullopt, by_itself ? "the lower directory is on a read-only filesystem, so the mount is read-only too" : "");
      if (::write(config_.status_fd, line.data(), line.size()) < 0) spdlog::warn("nobody waits for the mount");
      ::close(config_.status_fd);
    }
    if (!config_.foreground) {
      const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
      for (const int fd : {0, 1, 2}) ::dup2(null, fd);
      if (null > 2) ::close(null);
    }
  }

  void on_signal() {
    signalfd_siginfo info;
    if (::read(signals_.get(), &info, sizeof info) != sizeof info) return;
    if (info.ssi_signo == SIGHUP) {
      spdlog::info("reopening the log");
      open_log(config_);
      return;
    }
    if (std::exchange(ending_, true)) {
      // A second time: whoever still works here loses what has not been written.
      spdlog::warn("ending at once; what programs have not written yet is lost");
      status_.fs.stop_waiting();
      fuse_session_exit(session_);
      ::pthread_kill(main_, SIGUSR1);
      return;
    }
    const std::string mount = mount_path(device_, bystander_);
    if (mount.empty()) {
      spdlog::error("cannot unmount '{}': it is covered by another mount, or moved out of sight", config_.mount);
      ending_ = false;
      return;
    }
    // The kernel writes its dirty pages back before it lets go; the workers serve that.
    if (unmount(mount, false)) return;
    spdlog::warn("'{}' is in use: detached; it ends when its last user does", mount);
    if (!unmount(mount, true)) {
      spdlog::error("cannot unmount '{}': {}", mount, std::strerror(errno));
      ending_ = false;
    }
  }

  const SessionConfig& config_;
  const StatusContext& status_;
  fuse_session* session_;
  SessionMount& mount_;
  Messages& messages_;
  Bystander& bystander_;
  pthread_t main_;
  UniqueFd stop_, signals_;
  std::thread thread_;
  std::atomic<bool> ready_{false};
  dev_t device_ = 0;
  bool ending_ = false;
};

// Before any thread starts, so that every thread has it: signals are the attendant's, and SIGUSR1 only wakes.
void prepare_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int s : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&set, s);
  ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
  struct sigaction wake {};
  wake.sa_handler = [](int) {};
  ::sigaction(SIGUSR1, &wake, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGXFSZ, SIG_IGN);  // a write past a limit is EFBIG
}

struct Opened {
  UniqueFd root;
  Volume volume;
  KeyRing keys;
  SessionMarker marker;
  bool read_only = false;
  bool shared = false;
  bool beside_writer = false;
};

// The lower directory: locked, its volume verified, the session marked.
std::optional<Failure> open_lower(const SessionConfig& config, const std::vector<EpochMaster>& masters, Opened& out) {
  const std::string what = "cannot use the lower directory '" + config.lower + "'";
  auto root = lower::open_path(config.lower, O_RDONLY | O_DIRECTORY);
  if (!root) return Failure{Exit::lower, what, root.error().message(), {}};
  out.root = std::move(*root);

  VolumeError error;
  auto volume = load_volume(out.root.get(), error);
  if (!volume) return volume_failure(config.lower, error.code, error.part);
  auto keys = make_key_ring(masters);
  if (!keys) return Failure{Exit::failure, "cannot derive the keys", keys.error().message(), {}};
  if (const auto v = verify_volume(*volume, *keys); !v) return volume_failure(config.lower, v.error(), "mac");
  out.volume = std::move(*volume);
  out.keys = std::move(*keys);

  const auto st = lower::statvfs(out.root.get());
  if (!st) return Failure{Exit::lower, what, st.error().message(), {}};
  const bool lower_read_only = (st->f_flag & ST_RDONLY) != 0;
  out.read_only = config.read_only || lower_read_only;
  const auto in_use = [&] {
    const std::string holder = SessionMarker::holder(out.root.get());
    return Failure{Exit::lower_in_use, what, "it is mounted already" + (holder.empty() ? "" : " by " + holder),
                   config.shared ? "unmount it there first, or mount it there with --shared too"
                                 : "unmount it there first, or mount with -o ro; to write from several mounts, all need --shared"};
  };
  if (!out.read_only) {
    if (const auto locked = lower::lock(out.root.get(), !config.shared); !locked)
      return is_errno(locked.error(), EWOULDBLOCK) ? in_use() : Failure{Exit::lower, what, locked.error().message(), {}};
    out.shared = config.shared;
  } else if (!lower_read_only || config.shared) {
    // A reader takes no lock, so as not to keep a writer out, and therefore may have one beside it.
    out.beside_writer = true;
  }
  using Kind = SessionMarker::Kind;
  auto marker = SessionMarker::begin(out.root.get(), out.read_only ? Kind::reader : out.shared ? Kind::shared : Kind::exclusive);
  if (!marker && marker.error() == Errc::locked) return in_use();
  if (!marker && is_errno(marker.error(), ENOLCK))
    return Failure{Exit::lower, what, "its filesystem has no file locks", "without them only one mount can write: mount without --shared"};
  if (!marker)
    return Failure{Exit::lower, what, "cannot mark the session: " + marker.error().message(),
                   is_errno(marker.error(), EACCES) ? "you need write permission there, or mount with -o ro" : ""};
  out.marker = std::move(*marker);
  if (!out.read_only && !out.marker.written()) spdlog::warn("'{}' has no room for a session marker; a cut of this session will go unnoticed", config.lower);
  if (out.marker.any_cut()) spdlog::warn("an earlier session on '{}' was cut; sizes of what it changed are verified", config.lower);
  return std::nullopt;
}

}  // namespace

std::string status_line(const std::optional<Failure>& failure, const std::string& note) {
  nlohmann::json j;
  if (!failure) {
    j = {{"ok", true}, {"pid", ::getpid()}};
    if (!note.empty()) j["note"] = note;
  } else {
    j = {{"ok", false}, {"exit", static_cast<int>(failure->exit)}, {"what", failure->what}, {"why", failure->why}};
    if (!failure->hint.empty()) j["hint"] = failure->hint;
  }
  return j.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

std::optional<Failure> run_session(SessionConfig config, std::vector<EpochMaster> masters, Bystander& bystander) {
  try {
    open_log(config);
  } catch (const spdlog::spdlog_ex& e) {
    return Failure{Exit::failure, "cannot open the log '" + config.log_file + "'", e.what(), {}};
  }
  prepare_signals();
  ::umask(0);  // callers' umasks are applied a call; our own files say their modes
  const FdBudget budget = raise_limits();
  drop_excess_capabilities();

  Opened opened;
  if (auto failure = open_lower(config, masters, opened)) return failure;
  masters.clear();
  const int root = opened.root.get();
  const bool own = !opened.read_only;  // a marker of ours is there

  Filesystem::Config fc;
  fc.lower_root = std::move(opened.root);
  fc.volume = std::move(opened.volume);
  fc.keys = std::move(opened.keys);
  fc.marker = std::move(opened.marker);
  fc.read_only = opened.read_only;
  fc.noatime = config.noatime;
  fc.nodiratime = config.nodiratime;
  fc.acl = config.acl;
  fc.max_dirs = budget.dirs;
  fc.max_files = budget.files;
  fc.max_pinned = budget.pinned;
  const bool changes_beneath = opened.shared || opened.beside_writer;
  fc.changes_beneath = changes_beneath;
  fc.shared = opened.shared;
  fc.log = [](const std::string& what, const std::string& path) { spdlog::error("{}: lower path '{}'", what, one_line(path)); };
  SessionMarker spare = fc.marker;
  auto made = Filesystem::create(std::move(fc));
  if (!made) {
    if (own)
      if (const auto fd = lower::open_path(config.lower, O_RDONLY | O_DIRECTORY)) (void)spare.end(fd->get());
    return Failure{Exit::damaged_volume, "cannot read the root of the volume in '" + config.lower + "'", made.error().message(), {}};
  }
  Filesystem& fs = **made;
  const auto end_marker = [&] {
    if (const auto r = fs.marker().end(root); !r) spdlog::error("cannot take the session marker away: {}", r.error().message());
  };

  const double timeout = changes_beneath ? kSecond : kDay;
  Running running{{fs, timeout, config.noxattr, config.acl, changes_beneath}, {fs, timeout}};
  const bool selinux = kernel_has_selinux();
  if (!config.noxattr && selinux) running.messages.ask_for_labels();
  const StatusContext status{fs, running.messages, config.lower, config.mount,
                             opened.shared ? "shared" : opened.beside_writer ? "read-only beside a writer" : "exclusive"};

  const std::string fsname = config.fsname.empty() ? config.lower : config.fsname;
  std::vector<std::string> mount_options{"default_permissions"};
  if (opened.read_only) mount_options.push_back("ro");
  mount_options.insert(mount_options.end(), config.fuse_options.begin(), config.fuse_options.end());
  if (!selinux && !config.contexts.empty()) spdlog::warn("SELinux is off: its contexts among the mount options are passed over, as mount(8) does");
  // The kernel ends a context at a comma, unless it is in double quotes.
  if (selinux)
    for (const auto& o : config.contexts) mount_options.push_back(o.substr(0, o.find('=') + 1) + '"' + o.substr(o.find('=') + 1) + '"');
  // What libfuse mounts by, where it does.
  std::string options = "subtype=ecfs,fsname=" + escaped(fsname);
  for (const auto& o : mount_options) options += "," + escaped(o);
  const char* argv[] = {"ecfsd", "-o", options.c_str(), nullptr};
  fuse_args args = FUSE_ARGS_INIT(3, const_cast<char**>(argv));
  fuse_session* session = fuse_session_new(&args, &ops_table(), sizeof(fuse_lowlevel_ops), &running);
  fuse_opt_free_args(&args);
  if (!session) {
    end_marker();
    return Failure{Exit::fuse, "cannot start FUSE", "libfuse refused the options '" + options + "'", {}};
  }
  const auto cannot_mount = [&](const std::error_code& why) {
    return Failure{Exit::mount_point, "cannot mount on '" + config.mount + "'", why.message(), {}};
  };
  SessionMount mount(config.mount);
  if (const auto begun = mount.begin(session, fsname, mount_options); !begun) {
    fuse_session_destroy(session);
    end_marker();
    return cannot_mount(begun.error());
  }
  fuse_custom_io io{};
  io.read = on_raw_read;
  io.writev = on_raw_writev;
  if (fuse_session_custom_io(session, &io, fuse_session_fd(session)) != 0) {
    mount.end(session);
    fuse_session_destroy(session);
    end_marker();
    return Failure{Exit::fuse, "cannot start FUSE", "libfuse refused its messages to be seen", {}};
  }

  std::optional<Failure> failure;
  {
    WriteBack write_back(fs, config.mount, bystander);
    running.context.write_back = &write_back;
    running.context.session = session;
    Attendant attendant(config, status, session, mount, running.messages, bystander);
    fuse_loop_config* loop = fuse_loop_cfg_create();
    // Where a worker may wait for another mount's lock, more of them.
    const unsigned threads = std::max(opened.shared ? 16u : 4u, std::thread::hardware_concurrency());
    fuse_loop_cfg_set_clone_fd(loop, 1);
    fuse_loop_cfg_set_max_threads(loop, threads);
    fuse_loop_cfg_set_idle_threads(loop, threads);
    const int ended = fuse_session_loop_mt(session, loop);
    fuse_loop_cfg_destroy(loop);
    mount.end(session);
    if (const auto mounted = mount.wait(); !mounted) failure = cannot_mount(mounted.error());
    else if (ended < 0) failure = Failure{Exit::failure, "serving '" + config.mount + "' failed", std::strerror(-ended), {}};
    if (!failure && !attendant.ready()) failure = Failure{Exit::fuse, "the mount on '" + config.mount + "' does not answer", "it was unmounted at once", {}};
  }
  fuse_session_destroy(session);
  end_marker();
  spdlog::info("unmounted '{}'", config.mount);
  return failure;
}

}  // namespace ecfs::daemon
