// SPDX-License-Identifier: GPL-3.0-or-later
// ecfs check: looks for damage in a volume without mounting it.
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <thread>
#include <tuple>

#include "check_repair.hpp"
#include "check_report.hpp"
#include "check_salvage.hpp"
#include "check_state.hpp"
#include "commands.hpp"
#include "control_client.hpp"
#include "daemon/session_marker.hpp"
#include "ecfs/lower.hpp"
#include "ecfs/name_cipher.hpp"
#include "lower_volume.hpp"
#include "mountinfo.hpp"
#include "paths.hpp"
#include "terminal.hpp"

namespace ecfs {
namespace {

using daemon::SessionMarker;
using check::Kind;
using check::Severity;

std::atomic<bool> g_stop{false};

// Ctrl-C and its like end the scan after what it is at, with the state kept; a second one ends at once.
class StopOnSignal {
 public:
  StopOnSignal() {
    struct sigaction act {};
    act.sa_handler = [](int) { g_stop.store(true); };
    act.sa_flags = SA_RESETHAND | SA_RESTART;
    for (const int s : kSignals) ::sigaction(s, &act, nullptr);
  }
  ~StopOnSignal() {
    for (const int s : kSignals) ::signal(s, SIG_DFL);
  }

 private:
  static constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP};
};

struct Plan {
  std::string target;
  bool scrub = false;
  bool json = false;
  bool repair = false;
  std::string salvage;  // a directory, or empty
  bool yes = false;
  unsigned jobs = 0;
};

// Since when a daemon is at work on the volume: a marker that is locked, and its ctime. Nothing where there is none.
Result<std::optional<timespec>> at_work_since(int root) {
  std::optional<timespec> since;
  std::error_code error;
  const auto scanned = lower::read_dir(root, 0, [&](const lower::Dirent& d) {
    if (!d.name.starts_with(kSessionFile) || d.name.ends_with(kNewSuffix) || !is_own_name(d.name, true)) return true;
    const auto fd = lower::open_at(root, std::string(d.name).c_str(), O_RDONLY | O_NONBLOCK);
    if (!fd) return true;  // SessionMarker has said what is to be said of it
    const auto st = lower::stat_fd(fd->get());
    const auto free = lower::lock_file(fd->get(), lower::FileLock::shared);
    const bool held = !free && is_errno(free.error(), EAGAIN);
    if (!st || !held) return true;
    const auto older = [&] { return std::tie(st->st_ctim.tv_sec, st->st_ctim.tv_nsec) < std::tie(since->tv_sec, since->tv_nsec); };
    if (!since || older()) since = st->st_ctim;
    return true;
  });
  if (!scanned) return scanned.error();
  return since;
}

// What to look at: a lower directory, or that of a mount.
Outcome<std::string> lower_of(const std::string& target) {
  const std::string path = real_parent(target).value_or(absolute_path(target));
  auto mounts = read_mounts();
  if (!mounts) return mounts.failure();
  const Mount* mount = mount_at(*mounts, real_path(target).value_or(path));
  if (!mount || !mount->is_ecfs()) return real_path(target).value_or(absolute_path(target));
  auto answer = ask_or_explain(*mount, "status");
  if (!answer) return answer.failure();
  const auto j = nlohmann::json::parse(*answer, nullptr, false);
  if (!j.is_object() || !j.contains("lower") || !j["lower"].is_string())
    return Failure{Exit::not_checked, shell_word(mount->target), "the daemon's answer makes no sense", ""};
  return j["lower"].get<std::string>();
}

// Directories are open while what is below them is looked at.
void allow_many_files() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) < 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

struct Opened {
  std::string path;
  UniqueFd dir;
  Volume volume;
  KeyRing keys;
};

Outcome<Opened> open_volume(const std::string& target, PassphraseSource& source) {
  auto path = lower_of(target);
  if (!path) return path.failure();
  Opened out;
  out.path = *path;
  auto dir = open_lower(out.path);
  if (!dir) return dir.failure();
  out.dir = std::move(*dir);
  auto volume = read_volume(out.dir.get(), out.path);
  if (!volume) return volume.failure();
  auto unlocked = unlock(*volume, out.path, source);
  if (!unlocked) return unlocked.failure();
  if (auto r = source.finish(); !r) return r.failure();
  out.volume = std::move(*volume);
  out.keys = std::move(unlocked->keys);
  return out;
}

// Keeps the state of a scrub, and says so where it cannot.
class Resumable {
 public:
  Resumable(const std::string& uuid, bool wanted) {
    const std::string path = wanted ? CheckState::place(uuid) : "";
    if (path.empty()) return;
    const auto opened = state_.open(path);
    on_ = opened.has_value();
    if (!on_) print_note("this check cannot be gone on with when it is stopped: " + shell_word(path) + ": " + opened.error().message());
    if (on_ && state_.resumed()) print_note("goes on where the last check was stopped (" + shell_word(path) + " knows)");
  }
  check::Memory* memory() { return on_ ? &state_ : nullptr; }
  void end(bool stopped) {
    if (!on_) return;
    if (!stopped) return state_.remove();
    if (const auto r = state_.save(); !r)
      print_note("how far it came could not be kept: " + r.error().message());
    else
      print_note("stopped; the same command goes on from here");
  }

 private:
  CheckState state_;
  bool on_ = false;
};

struct Sessions {
  SessionMarker marker;
  std::optional<timespec> at_work_since;
};

Result<check::Report> look(const Opened& volume, const Plan& plan, const SessionMarker& marker, const std::optional<timespec>& at_work, check::Memory* memory) {
  check::Options options;
  options.scrub = plan.scrub;
  options.jobs = plan.jobs > 0 ? plan.jobs : std::max(1u, std::thread::hardware_concurrency());
  options.in_cut = [&](const timespec& t) { return marker.in_cut(t); };
  options.live_since = at_work;
  options.memory = memory;
  options.stop = &g_stop;
  std::atomic<std::uint64_t> done{0};
  options.progress = &done;
  std::uint64_t total = 0;
  if (ProgressBar::wanted()) {
    const auto units = check::measure(volume.dir.get(), plan.scrub, &g_stop);
    if (!units) return units.error();
    total = *units;
  }
  const ProgressBar bar(done, total, plan.scrub ? "ecfs: scrubbing" : "ecfs: checking");
  return check::scan(volume.dir.get(), volume.volume, volume.keys, options);
}

void add_session(check::Report& report, const Sessions& sessions) {
  if (!sessions.marker.any_cut() || sessions.at_work_since) return;
  check::Finding f;
  f.kind = Kind::session;
  f.severity = Severity::mends;
  f.path = f.lower = std::string(kSessionFile);
  f.detail = "a session was cut; sizes of what it changed are verified at each lookup";
  f.repairable = true;
  report.findings.push_back(std::move(f));
}

Outcome<void> tell(const CheckOutcome& outcome, bool json) {
  if (json) return put(as_json(outcome));
  std::string text;
  for (const auto& line : outcome.repaired) text += "ecfs: repaired: " + line + "\n";
  for (const auto& f : outcome.report.findings) text += "ecfs: " + finding_line(f) + "\n";
  return put(text + "ecfs: " + summary_line(outcome) + "\n");
}

Exit exit_code(const CheckOutcome& outcome) {
  if (outcome.report.stopped) return Exit::not_checked;
  for (const auto& f : outcome.report.findings)
    if (f.severity != Severity::note) return Exit::check_left;
  return outcome.repaired.empty() ? Exit::ok : Exit::failure;
}

Outcome<void> end_with(const CheckOutcome& outcome, const Plan& plan, const Opened& opened) {
  if (auto r = tell(outcome, plan.json); !r) return r;
  if (!plan.salvage.empty() && !outcome.report.stopped) {
    auto saved = salvage(plan.salvage, opened.dir.get(), opened.keys, outcome.report.findings);
    if (!saved) return saved.failure();
    print_note("salvaged " + std::to_string(saved->files) + (saved->files == 1 ? " file, " : " files, ") + bytes_word(saved->bytes) + ", in " + shell_word(plan.salvage) +
               "; NAME.holes says what is missing");
  }
  const Exit exit = exit_code(outcome);
  return exit == Exit::ok ? Outcome<void>() : Failure{exit, "", "", ""};
}

Outcome<void> run(const Plan& plan, PassphraseSource& source) {
  allow_many_files();
  auto opened = open_volume(plan.target, source);
  if (!opened) return opened.failure();
  if (!plan.salvage.empty())
    if (auto r = prepare_salvage(plan.salvage, opened->path); !r) return r.failure();
  auto marker = SessionMarker::begin(opened->dir.get(), SessionMarker::Kind::reader);
  if (!marker) return failure_of(marker.error(), shell_word(opened->path), Exit::not_checked);
  const auto since = at_work_since(opened->dir.get());
  if (!since) return failure_of(since.error(), shell_word(opened->path), Exit::not_checked);
  const Sessions sessions{std::move(*marker), *since};
  Resumable resumable(opened->volume.uuid, plan.scrub);
  auto report = look(*opened, plan, sessions.marker, sessions.at_work_since, resumable.memory());
  if (!report) return failure_of(report.error(), shell_word(opened->path), Exit::not_checked);
  resumable.end(report->stopped);
  add_session(*report, sessions);
  const CheckOutcome outcome{opened->volume.uuid, opened->path, std::move(*report), {}, sessions.at_work_since.has_value(), plan.scrub};
  return end_with(outcome, plan, *opened);
}

Outcome<void> run_repair(const Plan& plan, PassphraseSource& source) {
  allow_many_files();
  auto opened = open_volume(plan.target, source);
  if (!opened) return opened.failure();
  if (!plan.salvage.empty())
    if (auto r = prepare_salvage(plan.salvage, opened->path); !r) return r.failure();
  auto held = HeldVolume::hold(opened->dir.get(), opened->path);
  if (!held) return held.failure();
  const auto look_now = [&](const Plan& how, check::Memory* memory) { return look(*opened, how, held->marker(), std::nullopt, memory); };
  Resumable resumable(opened->volume.uuid, plan.scrub);
  auto report = look_now(plan, resumable.memory());
  if (!report) return failure_of(report.error(), shell_word(opened->path), Exit::not_checked);
  resumable.end(report->stopped);
  CheckOutcome outcome{opened->volume.uuid, opened->path, std::move(*report), {}, false, plan.scrub};
  if (!outcome.report.stopped) {
    Plan quick = plan;
    quick.scrub = false;
    RepairTools tools{opened->dir.get(), &opened->volume, &opened->keys, plan.yes, &source, [&] { return look_now(quick, nullptr); }, &g_stop};
    auto done = repair_volume(outcome.report, *held, tools);
    if (!done) return done.failure();
    outcome.repaired = std::move(*done);
    outcome.report.stopped = outcome.report.stopped || g_stop.load();
  }
  if (const auto e = held->end(); !e) return failure_of(e.error(), shell_word(opened->path) + ": session marker", Exit::not_checked);
  return end_with(outcome, plan, *opened);
}

}  // namespace

Outcome<void> command_check(const std::string& name, Args args) {
  Plan plan;
  PassphraseOptions passphrase;
  CommandLine app(name,
                  "Looks for damage in a volume, by its lower directory or where it is mounted. Without --repair nothing changes.\n"
                  "Exit status: 0 clean, 1 all repaired, 4 damage or faults left, 8 not checked, 3 wrong passphrase.",
                  "LOWER|MOUNT");
  app.add_option("LOWER", plan.target, "The lower directory, or the mount")->required();
  app.add_flag("--scrub", plan.scrub, "Authenticate every block, extended attribute and name, not only headers and last blocks");
  app.add_flag("--repair", plan.repair, "Set right what can be; asks before each kind of change");
  app.add_flag("--yes", plan.yes, "With --repair: ask nothing");
  app.add_option("--salvage", plan.salvage, "Copy what is good of damaged files to DIR; reads every block")->option_text("DIR");
  app.add_option("--jobs", plan.jobs, "Threads; one for each core unless said")->option_text("N")->check(CLI::Range(1u, 1024u));
  app.add_flag("--json", plan.json, "As JSON");
  passphrase.add_to(app);
  if (auto go = parse_arguments(app, std::move(args)); !go || !*go)
    return go ? Outcome<void>() : go.failure();

  PassphraseSource source(passphrase);
  if (plan.yes && !plan.repair) return Failure{Exit::usage, name, "--yes is for --repair", name + " --help"};
  if (plan.repair && !plan.yes && !open_terminal())
    return Failure{Exit::usage, name, "--repair asks before it changes anything, and there is no terminal", "--yes lets it do all that it can"};
  plan.scrub = plan.scrub || !plan.salvage.empty();
  const StopOnSignal signals;
  auto done = plan.repair ? run_repair(plan, source) : run(plan, source);
  if (done) return done;
  // One number for all that keeps from checking; fsck(8) has no more.
  Failure failure = done.failure();
  const bool own = failure.exit == Exit::usage || failure.exit == Exit::passphrase || failure.why.empty();
  if (!own) failure.exit = Exit::not_checked;
  return failure;
}

}  // namespace ecfs
