// SPDX-License-Identifier: GPL-3.0-or-later
#include "daemon/session_marker.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <limits>
#include <nlohmann/json.hpp>
#include <tuple>

#include "daemon/writers_file.hpp"
#include "ecfs/crypto.hpp"
#include "ecfs/format.hpp"
#include "ecfs/lower.hpp"

namespace ecfs::daemon {
namespace {

using nlohmann::json;

const std::string kFile(kSessionFile);
constexpr std::size_t kMaxSize = 64 * 1024;
constexpr timespec kForEver{std::numeric_limits<time_t>::max(), 0};

bool before(const timespec& a, const timespec& b) { return std::tie(a.tv_sec, a.tv_nsec) < std::tie(b.tv_sec, b.tv_nsec); }

json to_json(const timespec& t) { return json::array({t.tv_sec, t.tv_nsec}); }

std::optional<timespec> to_time(const json& j) {
  if (!j.is_array() || j.size() != 2 || !j[0].is_number_integer() || !j[1].is_number_integer()) return std::nullopt;
  return timespec{j[0].get<time_t>(), j[1].get<long>()};
}

bool full(const std::error_code& e) { return is_errno(e, ENOSPC) || is_errno(e, EDQUOT); }

// A marker as it was found.
struct Found {
  std::string name;
  json text;           // discarded where it does not parse
  bool alive = false;  // its session is at work: it holds the lock
  std::vector<SessionMarker::Interval> cuts;
  std::optional<timespec> running_since;

  void take_apart() {
    bool readable = text.is_object() && text.contains("cut") && text["cut"].is_array() && text.contains("running") && text["running"].is_boolean();
    const bool running = !readable || text["running"] == true;
    if (readable) {
      for (const auto& c : text["cut"]) {
        const auto from = c.is_array() && c.size() == 2 ? to_time(c[0]) : std::nullopt;
        const auto to = c.is_array() && c.size() == 2 ? to_time(c[1]) : std::nullopt;
        if (from && to)
          cuts.push_back({*from, *to});
        else
          readable = false;
      }
      if (running) running_since = text.contains("start") ? to_time(text["start"]) : std::nullopt;
    }
    // A marker that is itself damaged says only that a session was cut: then every file is verified.
    if (!readable || (running && !running_since)) running_since = timespec{0, 0};
  }
  std::string holder() const {
    if (!text.is_object() || !text.contains("pid") || !text["pid"].is_number_integer() || !text.contains("host") || !text["host"].is_string())
      return {};
    return "pid " + std::to_string(text["pid"].get<long>()) + " on " + text["host"].get<std::string>();
  }
};

// Nothing where there is none of that name.
Result<std::optional<Found>> read_marker(int lower_root, const std::string& name, SessionMarker::Kind kind) {
  Found found{name, json(json::value_t::discarded), false, {}, {}};
  const auto fd = lower::open_at(lower_root, name.c_str(), O_RDONLY | O_NONBLOCK);
  if (!fd && is_errno(fd.error(), ENOENT)) return std::optional<Found>();
  // Markers are for who may write. A reader that may not see one takes what it stands for to be in doubt.
  const bool hidden = !fd && kind == SessionMarker::Kind::reader && is_errno(fd.error(), EACCES);
  if (!fd && !hidden && !is_errno(fd.error(), ELOOP)) return fd.error();
  if (fd) {
    const auto st = lower::stat_fd(fd->get());
    if (!st) return st.error();
    if (S_ISREG(st->st_mode)) {  // else it is nothing that we wrote
      // Who holds the marker has locked it against readers too.
      const auto free = lower::lock_file(fd->get(), lower::FileLock::shared);
      found.alive = !free && is_errno(free.error(), EAGAIN);
      std::string text(kMaxSize, '\0');
      const auto n = lower::pread(fd->get(), {reinterpret_cast<std::uint8_t*>(text.data()), text.size()}, 0);
      if (!n) return n.error();
      text.resize(*n);
      found.text = json::parse(text, nullptr, false);
    }
  }
  found.take_apart();
  return std::optional<Found>(std::move(found));
}

// All but `own`; those of shared sessions first.
Result<std::vector<Found>> read_markers(int lower_root, SessionMarker::Kind kind, const std::string& own = {}) {
  const auto listing = lower::reopen(lower_root, O_RDONLY | O_DIRECTORY);
  if (!listing) return listing.error();
  // A network's filesystem may remember an older listing.
  if (const auto st = lower::stat_now(listing->get()); !st) return st.error();
  std::vector<std::string> names;
  const auto scanned = lower::read_dir(listing->get(), 0, [&](const lower::Dirent& d) {
    if (d.name.starts_with(kFile + ".") && !d.name.ends_with(kNewSuffix)) names.emplace_back(d.name);
    return true;
  });
  if (!scanned) return scanned.error();
  names.push_back(kFile);
  std::vector<Found> out;
  for (const auto& name : names) {
    if (name == own) continue;
    auto found = read_marker(lower_root, name, kind);
    if (!found) return found.error();
    if (*found) out.push_back(std::move(**found));
  }
  return out;
}

std::string host_name() {
  char name[HOST_NAME_MAX + 1] = {};
  ::gethostname(name, sizeof name - 1);
  return name;
}

}  // namespace

Result<SessionMarker> SessionMarker::begin(int lower_root, Kind kind) {
  SessionMarker marker;
  marker.kind_ = kind;
  if (kind == Kind::reader) {
    const auto left = read_markers(lower_root, kind);
    if (!left) return left.error();
    for (const auto& m : *left) {
      marker.cuts_.insert(marker.cuts_.end(), m.cuts.begin(), m.cuts.end());
      if (m.running_since) marker.cuts_.push_back({*m.running_since, kForEver});
    }
    return marker;
  }
  marker.name_ = kFile;
  if (kind == Kind::shared) {
    std::array<std::uint8_t, 9> id;
    random_bytes(id);
    marker.name_ += "." + base64url(id);
  }
  const auto put = marker.put(lower_root);
  if (put) return marker;
  marker.held_ = nullptr;
  if (!full(put.error())) return put.error();
  // Without room for so much as a marker the volume still mounts, or nobody could make room. What was left behind stays as it is.
  const auto left = read_markers(lower_root, kind);
  if (!left) return left.error();
  marker.cuts_.clear();
  for (const auto& m : *left) {
    marker.cuts_.insert(marker.cuts_.end(), m.cuts.begin(), m.cuts.end());
    if (m.running_since && !m.alive) marker.cuts_.push_back({*m.running_since, kForEver});
  }
  return marker;
}

// The file that becomes the marker, locked before it bears the marker's name: of two sessions that start at once one gets it.
Result<UniqueFd> SessionMarker::open_new(int lower_root) const {
  const std::string name = name_ + std::string(kNewSuffix);
  for (int tries = 0; tries < 10; ++tries) {
    auto fd = open_for_writers(lower_root, name.c_str());
    if (!fd) return fd;
    const auto locked = lower::lock_file(fd->get(), lower::FileLock::exclusive);
    if (!locked && is_errno(locked.error(), EAGAIN)) return Errc::locked;
    // Alone, the lock on the directory must do; it does not reach other hosts.
    if (!locked && kind_ == Kind::shared) return locked.error().category() == ecfs_category() ? locked.error() : errno_code(ENOLCK);
    const auto ours = lower::stat_fd(fd->get()), there = lower::stat_at(lower_root, name.c_str());
    if (!ours) return ours.error();
    if (there && there->st_ino == ours->st_ino && there->st_dev == ours->st_dev) return fd;
  }
  return Errc::locked;  // others are at it
}

// The new marker's ctime is both this session's start and the end of what was cut.
Result<void> SessionMarker::put(int lower_root) {
  auto fd = open_new(lower_root);
  if (!fd) return fd.error();
  const auto undone = [&](const std::error_code& error) {
    (void)lower::unlink_at(lower_root, (name_ + std::string(kNewSuffix)).c_str(), false);
    return error;
  };
  if (const auto t = lower::ftruncate(fd->get(), 0); !t) return undone(t.error());
  const auto st = lower::stat_fd(fd->get());
  if (!st) return undone(st.error());
  start_ = st->st_ctim;
  const auto others = read_markers(lower_root, kind_, kind_ == Kind::shared ? name_ : "");
  if (!others) return undone(others.error());
  for (const auto& m : *others) {
    if (m.alive && (kind_ == Kind::exclusive || m.name == kFile)) return undone(Errc::locked);
    // Sizes that another session's predecessor left in doubt are as doubtful here.
    cuts_.insert(cuts_.end(), m.cuts.begin(), m.cuts.end());
    if (m.running_since && !m.alive) cuts_.push_back({*m.running_since, start_});
  }
  if (const auto w = write(lower_root, fd->get(), true); !w) return w;
  held_ = std::make_shared<const UniqueFd>(std::move(*fd));
  written_ = true;
  return take_over(lower_root);
}

// What others left behind is in our marker now, and theirs can go. One that came to life meanwhile, on another host, has seen us or is seen here.
Result<void> SessionMarker::take_over(int lower_root) {
  const auto others = read_markers(lower_root, kind_, name_);
  for (const auto& m : others ? *others : std::vector<Found>())
    if (m.alive && (kind_ == Kind::exclusive || m.name == kFile)) {
      written_ = false;
      if (const auto u = lower::unlink_at(lower_root, name_.c_str(), false); !u) return u;
      return Errc::locked;
    }
  // Where this fails they are found again, and taken for cut once more.
  for (const auto& m : others ? *others : std::vector<Found>())
    if (!m.alive) (void)lower::unlink_at(lower_root, m.name.c_str(), false);
  return {};
}

bool SessionMarker::in_cut(const timespec& ctime) const noexcept {
  for (const auto& c : cuts_)
    if (!before(ctime, c.from) && !before(c.to, ctime)) return true;
  return false;
}

void SessionMarker::look_for_cuts(int lower_root) {
  const auto others = read_markers(lower_root, kind_, name_);
  if (!others) return;  // asked again before long
  for (const auto& m : *others) {
    if (m.alive || !m.running_since || std::find(known_cut_.begin(), known_cut_.end(), m.name) != known_cut_.end()) continue;
    known_cut_.push_back(m.name);
    cuts_.push_back({*m.running_since, kForEver});
  }
}

Result<void> SessionMarker::write(int lower_root, int fd, bool running) {
  const std::string new_name = name_ + std::string(kNewSuffix);
  json cuts = json::array();
  for (const auto& c : cuts_) cuts.push_back(json::array({to_json(c.from), to_json(c.to)}));
  const std::string text = json{{"cut", cuts}, {"host", host_name()}, {"pid", ::getpid()}, {"running", running},
                                {"start", to_json(start_)}}
                               .dump(2, ' ', false, json::error_handler_t::replace) +
                           "\n";
  const auto w = lower::pwrite(fd, {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()}, 0);
  if (w.error) {
    // Where only the content has no room, an empty marker says "cut, since when is not known".
    if (!full(w.error) || !lower::ftruncate(fd, 0)) {
      (void)lower::unlink_at(lower_root, new_name.c_str(), false);
      return w.error;
    }
  }
  if (const auto s = lower::fsync(fd, false); !s) return s;
  if (const auto r = lower::rename_at(lower_root, new_name.c_str(), lower_root, name_.c_str(), 0); !r) return r;
  return lower::fsync(lower_root, false);
}

// The lock goes last: without it a marker that is still there is one of a session that was cut.
Result<void> SessionMarker::end(int lower_root) {
  if (!written_) return {};
  written_ = false;
  // Without the marker nothing that is still on its way to the disk would be in doubt after a power cut.
  if (const auto s = lower::syncfs(lower_root); !s) {
    held_ = nullptr;
    return s;
  }
  Result<void> done;
  if (cuts_.empty()) {
    done = lower::unlink_at(lower_root, name_.c_str(), false);
  } else {
    const auto fd = open_for_writers(lower_root, (name_ + std::string(kNewSuffix)).c_str());
    done = fd ? lower::ftruncate(fd->get(), 0) : Result<void>(fd.error());
    if (done) done = write(lower_root, fd->get(), false);
  }
  held_ = nullptr;
  return done;
}

std::string SessionMarker::holder(int lower_root) {
  const auto markers = read_markers(lower_root, Kind::reader);
  if (!markers) return {};
  std::string holder;
  for (const auto& m : *markers)
    if (std::string who = m.holder(); !who.empty() && (m.alive || holder.empty())) holder = std::move(who);
  return holder;
}

}  // namespace ecfs::daemon
