// SPDX-License-Identifier: GPL-3.0-or-later
#include "daemon/session_marker.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <climits>
#include <limits>
#include <nlohmann/json.hpp>
#include <tuple>

#include "ecfs/format.hpp"
#include "ecfs/lower.hpp"

namespace ecfs::daemon {
namespace {

using nlohmann::json;

const std::string kFile(kSessionFile);
const std::string kNewFile = kFile + std::string(kNewSuffix);
constexpr std::size_t kMaxSize = 64 * 1024;

bool before(const timespec& a, const timespec& b) { return std::tie(a.tv_sec, a.tv_nsec) < std::tie(b.tv_sec, b.tv_nsec); }

json to_json(const timespec& t) { return json::array({t.tv_sec, t.tv_nsec}); }

std::optional<timespec> to_time(const json& j) {
  if (!j.is_array() || j.size() != 2 || !j[0].is_number_integer() || !j[1].is_number_integer()) return std::nullopt;
  return timespec{j[0].get<time_t>(), j[1].get<long>()};
}

// The marker's text as JSON; discarded where it does not parse; nothing where there is no marker.
Result<std::optional<json>> read_marker(int lower_root) {
  const json damaged(json::value_t::discarded);
  const auto fd = lower::open_at(lower_root, kFile.c_str(), O_RDONLY | O_NONBLOCK);
  if (!fd) {
    if (is_errno(fd.error(), ENOENT)) return std::optional<json>();
    if (is_errno(fd.error(), ELOOP)) return std::optional<json>(damaged);
    return fd.error();
  }
  const auto st = lower::stat_fd(fd->get());
  if (!st) return st.error();
  if (!S_ISREG(st->st_mode)) return std::optional<json>(damaged);  // nothing that we wrote
  std::string text(kMaxSize, '\0');
  const auto n = lower::pread(fd->get(), {reinterpret_cast<std::uint8_t*>(text.data()), text.size()}, 0);
  if (!n) return n.error();
  text.resize(*n);
  return std::optional<json>(json::parse(text, nullptr, false));
}

bool full(const std::error_code& e) { return is_errno(e, ENOSPC) || is_errno(e, EDQUOT); }

std::string host_name() {
  char name[HOST_NAME_MAX + 1] = {};
  ::gethostname(name, sizeof name - 1);
  return name;
}

}  // namespace

Result<SessionMarker> SessionMarker::begin(int lower_root, bool read_only) {
  auto left = read_marker(lower_root);
  if (!left) return left.error();
  SessionMarker marker;
  std::optional<timespec> cut_from;
  if (*left) {
    const json& j = **left;
    bool readable = j.is_object() && j.contains("cut") && j["cut"].is_array() && j.contains("running") && j["running"].is_boolean();
    if (readable) {
      for (const auto& c : j["cut"]) {
        const auto from = c.is_array() && c.size() == 2 ? to_time(c[0]) : std::nullopt;
        const auto to = c.is_array() && c.size() == 2 ? to_time(c[1]) : std::nullopt;
        if (from && to)
          marker.cuts_.push_back({*from, *to});
        else
          readable = false;
      }
      if (j["running"] == true) cut_from = j.contains("start") ? to_time(j["start"]) : std::nullopt;
    }
    // A marker that is itself damaged says only that a session was cut: then every file is verified.
    if (!readable || (j["running"] == true && !cut_from)) cut_from = timespec{0, 0};
  }
  if (read_only) {
    if (cut_from) marker.cuts_.push_back({*cut_from, {std::numeric_limits<time_t>::max(), 0}});
    return marker;
  }
  const auto start = marker.put(lower_root, cut_from);
  if (!start && !full(start.error())) return start.error();
  marker.written_ = start.has_value();
  // Without room for so much as a marker the volume still mounts, or nobody could make room. What was left behind stays as it is.
  if (!start && cut_from) marker.cuts_.push_back({*cut_from, {std::numeric_limits<time_t>::max(), 0}});
  return marker;
}

// The new marker's ctime is both this session's start and the end of what was cut.
Result<void> SessionMarker::put(int lower_root, const std::optional<timespec>& cut_from) {
  const auto fd = lower::open_at(lower_root, kNewFile.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  if (!fd) return fd.error();
  const auto st = lower::stat_fd(fd->get());
  if (!st) return st.error();
  start_ = st->st_ctim;
  const auto before = cuts_;
  if (cut_from) cuts_.push_back({*cut_from, st->st_ctim});
  auto written = write(lower_root, true);
  if (!written) cuts_ = before;
  return written;
}

bool SessionMarker::in_cut(const timespec& ctime) const noexcept {
  for (const auto& c : cuts_)
    if (!before(ctime, c.from) && !before(c.to, ctime)) return true;
  return false;
}

Result<void> SessionMarker::write(int lower_root, bool running) {
  json cuts = json::array();
  for (const auto& c : cuts_) cuts.push_back(json::array({to_json(c.from), to_json(c.to)}));
  const std::string text = json{{"cut", cuts}, {"host", host_name()}, {"pid", ::getpid()}, {"running", running},
                                {"start", to_json(start_)}}
                               .dump(2, ' ', false, json::error_handler_t::replace) +
                           "\n";
  const auto fd = lower::open_at(lower_root, kNewFile.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  if (!fd) return fd.error();
  const auto w = lower::pwrite(fd->get(), {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()}, 0);
  if (w.error) {
    // Where only the content has no room, an empty marker says "cut, since when is not known".
    if (!full(w.error) || !lower::ftruncate(fd->get(), 0)) {
      (void)lower::unlink_at(lower_root, kNewFile.c_str(), false);
      return w.error;
    }
  }
  if (const auto s = lower::fsync(fd->get(), false); !s) return s;
  if (const auto r = lower::rename_at(lower_root, kNewFile.c_str(), lower_root, kFile.c_str(), 0); !r) return r;
  return lower::fsync(lower_root, false);
}

Result<void> SessionMarker::end(int lower_root) {
  if (!written_) return {};
  written_ = false;
  if (!cuts_.empty()) return write(lower_root, false);
  return lower::unlink_at(lower_root, kFile.c_str(), false);
}

std::string SessionMarker::holder(int lower_root) {
  const auto left = read_marker(lower_root);
  if (!left || !*left || !(**left).is_object()) return {};
  const json& j = **left;
  if (!j.contains("pid") || !j["pid"].is_number_integer() || !j.contains("host") || !j["host"].is_string()) return {};
  return "pid " + std::to_string(j["pid"].get<long>()) + " on " + j["host"].get<std::string>();
}

}  // namespace ecfs::daemon
