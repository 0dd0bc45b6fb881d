// SPDX-License-Identifier: GPL-3.0-or-later
#include "check_repair.hpp"

#include <algorithm>

#include "ecfs/lower.hpp"

namespace ecfs {
namespace {

using check::Finding;
using check::Kind;
using check::Severity;

constexpr int kPasses = 4;  // what is set aside may leave a name file, and a new id shows what has no name

std::string question(Kind kind, std::size_t n) {
  const std::string many = std::to_string(n) + " ";
  const char* const s = n == 1 ? "" : "s";
  switch (kind) {
    case Kind::size_hint:
      return "Set the size of " + many + "file" + s + " right, as the last block says?";
    case Kind::first_write:
      return "Make " + many + "file" + s + " empty, whose first write never reached the disk?";
    case Kind::directory_file:
    case Kind::directory_copy:
      return "Restore the id of " + many + (n == 1 ? "directory" : "directories") + " from its other copy?";
    case Kind::directory_new:
      return "Give an id to " + many + "empty director" + (n == 1 ? "y" : "ies") + "?";
    case Kind::directory_lost:
      return "Give a new id to " + many + "director" + (n == 1 ? "y" : "ies") + " whose names cannot be read any more? (A backup of ecfs.dir would bring the names back: put it back first.)";
    case Kind::orphan:
      return "Remove " + many + "file" + s + " that operations left behind when they were cut?";
    case Kind::name:
      return "Move " + many + "object" + s + " without a readable name to lost+found?";
    case Kind::header:
      return "Move " + many + "file" + s + " of which nothing can be read to lost+found?";
    case Kind::target:
      return "Move " + many + "symlink" + s + " without a readable target to lost+found?";
    case Kind::session:
      return "Forget the session that was cut, now that all sizes are verified?";
    default:
      return "Repair " + many + std::string(check::word(kind)) + "?";
  }
}

bool stopped(const RepairTools& tools) { return tools.stop && tools.stop->load(); }

// What only a scrub finds is not found again by the quick look after it.
bool of_scrub(const Finding& f) { return f.kind == Kind::block || f.kind == Kind::xattr; }

void follow_moves(std::vector<Finding>& findings, const std::vector<check::Repairer::Move>& moves) {
  for (auto& f : findings)
    for (const auto& m : moves)
      if (f.lower == m.from || f.lower.starts_with(m.from + "/")) {
        f.path = m.shown + (f.lower == m.from ? "" : "/" + f.lower.substr(m.from.size() + 1));
        f.lower = m.to + f.lower.substr(m.from.size());
        f.lost_and_found = true;
        break;
      }
}

}  // namespace

Outcome<HeldVolume> HeldVolume::hold(int root, const std::string& path) {
  const Failure in_use{Exit::not_checked, shell_word(path), "it is mounted, or another program holds it", "unmount it first: a volume in use cannot be repaired"};
  if (const auto locked = lower::lock(root, true); !locked)
    return is_errno(locked.error(), EWOULDBLOCK) ? in_use : failure_of(locked.error(), shell_word(path), Exit::not_checked);
  auto marker = daemon::SessionMarker::begin(root, daemon::SessionMarker::Kind::exclusive);
  if (!marker && marker.error() == Errc::locked) return in_use;
  if (!marker) return failure_of(marker.error(), shell_word(path), Exit::not_checked, "repairing needs the right to write there");
  return HeldVolume(root, std::move(*marker));
}

Result<void> HeldVolume::forget_cuts() {
  if (!marker_->any_cut() || !marker_->written()) return {};
  // The marker goes while its lock is held, as at any clean end; what it says of earlier sessions goes with it.
  const auto gone = lower::unlink_at(root_, kSessionFile.data(), false);
  if (!gone && !is_errno(gone.error(), ENOENT)) return gone;
  marker_.reset();
  return lower::fsync(root_, false);
}

Result<void> HeldVolume::end() {
  if (!marker_) return {};
  auto done = marker_->end(root_);
  marker_.reset();
  return done;
}

Outcome<std::vector<std::string>> repair_volume(check::Report& report, HeldVolume& held, const RepairTools& tools) {
  std::vector<std::string> done;
  std::map<Kind, bool> agreed;
  const auto allowed = [&](Kind kind, std::size_t n) {
    if (tools.yes) return true;
    const auto [at, fresh] = agreed.try_emplace(kind, false);
    if (fresh) at->second = tools.source->yes(question(kind, n));
    return at->second;
  };
  std::vector<Finding> scrubbed;
  for (const auto& f : report.findings)
    if (of_scrub(f)) scrubbed.push_back(f);
  check::Repairer repairer(tools.root, *tools.volume, *tools.keys, [&](const timespec& t) { return held.marker().in_cut(t); });
  std::vector<std::string> failed;
  for (int pass = 0; pass < kPasses && !stopped(tools); ++pass) {
    std::vector<Finding> todo;
    const auto order = check::repair_order(report.findings);
    for (const auto& f : order) {
      const auto n = static_cast<std::size_t>(std::count_if(order.begin(), order.end(), [&](const Finding& o) { return o.kind == f.kind; }));
      if (allowed(f.kind, n)) todo.push_back(f);
    }
    bool changed = false, planned = false;
    failed.clear();
    for (const auto& f : todo) {
      if (stopped(tools)) break;
      if (check::sets_aside(f.kind) && !planned) {
        planned = true;
        if (const auto p = repairer.plan_moves(todo); !p) {
          failed.push_back("lost+found cannot be used: " + p.error().message());
          break;
        }
      }
      const auto did = repairer.mend(f);
      const std::string where = shell_word(f.path.empty() ? "/" : f.path);
      if (!did) failed.push_back(where + ": " + did.error().message());
      if (!did || did->empty()) continue;
      changed = true;
      done.push_back(std::string(check::word(f.kind)) + ": " + where + " " + *did);
    }
    if (!changed) break;
    auto next = tools.again();
    if (!next) return failure_of(next.error(), "looking again after the repair", Exit::not_checked);
    report.findings = std::move(next->findings);
    report.stopped = report.stopped || next->stopped;
  }
  for (const auto& text : failed) print_warning("not repaired: " + text);
  follow_moves(scrubbed, repairer.moves());
  for (auto& f : scrubbed) {
    const auto same = [&](const Finding& o) { return o.lower == f.lower && o.kind == f.kind && o.offset == f.offset; };
    if (std::none_of(report.findings.begin(), report.findings.end(), same)) report.findings.push_back(std::move(f));
  }
  if (!held.marker().any_cut() || stopped(tools) || report.stopped) return done;
  // With a size that is still wrong, or something that could not be looked at, the doubt stays.
  const bool doubtful = std::any_of(report.findings.begin(), report.findings.end(), [](const Finding& f) {
    return f.kind == Kind::size_hint || f.kind == Kind::first_write || f.kind == Kind::unreadable;
  });
  if (doubtful || !allowed(Kind::session, 1)) {
    Finding f;
    f.kind = Kind::session;
    f.severity = Severity::mends;
    f.path = f.lower = std::string(kSessionFile);
    f.detail = "a session was cut; sizes of what it changed are verified at each lookup";
    report.findings.push_back(std::move(f));
    return done;
  }
  if (const auto forgotten = held.forget_cuts(); !forgotten)
    print_warning("not repaired: ecfs.session: " + forgotten.error().message());
  else
    done.push_back("cut session: ecfs.session is taken away; every size is verified");
  return done;
}

}  // namespace ecfs
