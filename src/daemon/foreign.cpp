// SPDX-License-Identifier: GPL-3.0-or-later
// Filesystem: what is in a lower directory and not the format's own - the conflict copies that sync tools make of our files, which are
// shown, and all else, which is left out (docs/FORMAT.md, "Foreign entries").
#include <fcntl.h>
#include <linux/fs.h>

#include "daemon/filesystem.hpp"
#include "ecfs/lower.hpp"

namespace ecfs::daemon {

Result<std::string> Filesystem::copy_name(const OpenDir& dir, std::string_view lower_name) const {
  if (plain_names()) return Errc::damaged_name;
  for (const auto& reading : copy_readings(lower_name)) {
    const auto plain = plain_name(dir, reading.of);
    if (!plain && plain.error() != Errc::damaged_name) return plain.error();
    if (!plain) continue;
    if (auto shown = shown_copy(*plain, reading.mark); !shown.empty()) return shown;
  }
  return Errc::damaged_name;
}

// One pass over the directory, of which most find nothing.
Result<void> Filesystem::find_copies(const NodePtr& node, OpenDir& dir, bool soon) {
  timespec changed{};
  const auto now = std::chrono::steady_clock::now();
  if (config_.changes_beneath) {
    // Our own changes move the directory's mtime, too: looking through it after each would make filling it quadratic.
    constexpr std::chrono::milliseconds kMoment(500);
    if (soon && dir.copies && now - dir.copies->looked < kMoment) return {};
    const auto st = stat_of(dir.fd.get());
    if (!st) return st.error();
    changed = st->st_mtim;
  }
  if (dir.copies && dir.copies->changed.tv_sec == changed.tv_sec && dir.copies->changed.tv_nsec == changed.tv_nsec) return {};
  const auto fd = lending(dir.fd.get(), S_IRUSR, [&] { return reopen_quietly(dir.fd.get()); });
  if (!fd) return fd.error();
  Copies found;
  found.changed = changed;
  found.looked = now;
  std::error_code failed;
  const auto scanned = lower::read_dir(fd->get(), 0, [&](const lower::Dirent& d) {
    // Nearly always none: then there is nothing to decode.
    const auto readings = copy_readings(d.name);
    if (readings.empty()) return true;
    for (const auto& reading : readings)
      if (reading.of.starts_with(kLongPrefix)) found.of_long.insert(reading.of);
    if (plain_name(dir, d.name)) return true;
    auto shown = copy_name(dir, d.name);
    if (!shown) {
      if (shown.error() != Errc::damaged_name) failed = shown.error();
      return !failed;
    }
    // Of two that would be shown alike the first by its lower name is, however the directory is ordered.
    const auto [there, fresh] = found.by_name.try_emplace(std::move(*shown), d.name);
    if (!fresh && d.name < there->second) there->second = d.name;
    return true;
  });
  if (!scanned) return scanned;
  if (failed) return failed;
  if (!config_.changes_beneath) node->no_copies = found.by_name.empty() && found.of_long.empty();
  dir.copies = std::move(found);
  return {};
}

Result<std::string> Filesystem::copy_shown_as(const NodePtr& node, const DirPtr& dir, std::string_view shown) {
  if (plain_names() || node->no_copies || !dir->record) return std::string();
  const std::lock_guard lock(dir->copies_mutex);
  if (const auto known = find_copies(node, *dir, true); !known) {
    // A directory that can be searched and not listed shows nobody a copy.
    return is_errno(known.error(), EACCES) ? Result<std::string>(std::string()) : known.error();
  }
  const auto it = dir->copies->by_name.find(shown);
  return it == dir->copies->by_name.end() ? std::string() : it->second;
}

Result<std::string> Filesystem::shown_name(const NodePtr& node, const DirPtr& dir, std::string_view lower_name) {
  auto name = plain_name(*dir, lower_name);
  if (name || name.error() != Errc::damaged_name) return name;
  auto copy = copy_name(*dir, lower_name);
  if (!copy) return copy;
  // The object whose own name that is comes first.
  const auto own = name_in(*dir, *copy);
  if (!own) return own.error();
  if (lending(dir->fd.get(), S_IXUSR, [&] { return lower::stat_at(dir->fd.get(), own->name.c_str()); })) return Errc::damaged_name;
  const std::lock_guard lock(dir->copies_mutex);
  if (const auto known = find_copies(node, *dir); !known) return known.error();
  // One that came since it was looked for: what a listing shows, a lookup finds.
  const auto [there, fresh] = dir->copies->by_name.try_emplace(*copy, lower_name);
  if (fresh) {
    for (const auto& reading : copy_readings(lower_name))
      if (reading.of.starts_with(kLongPrefix)) dir->copies->of_long.insert(reading.of);
    node->no_copies = false;
  }
  return there->second == lower_name ? std::move(copy) : Result<std::string>(Errc::damaged_name);
}

bool Filesystem::has_copy_of(const NodePtr& node, const DirPtr& dir, const std::string& long_name) {
  if (node->no_copies) return false;
  const std::lock_guard lock(dir->copies_mutex);
  if (!find_copies(node, *dir)) return true;
  const auto of = dir->copies->of_long.find(long_name);
  if (of == dir->copies->of_long.end()) return false;
  // There was one: is there still?
  const auto fd = lending(dir->fd.get(), S_IRUSR, [&] { return reopen_quietly(dir->fd.get()); });
  if (!fd) return true;
  bool found = false;
  const auto scanned = lower::read_dir(fd->get(), 0, [&](const lower::Dirent& d) {
    for (const auto& reading : copy_readings(d.name)) found = found || reading.of == long_name;
    return !found;
  });
  if (!scanned) return true;
  if (!found) dir->copies->of_long.erase(of);
  return found;
}

bool Filesystem::turn_to_copy(const NodePtr& parent, Place& at, std::string_view name, std::error_code& error) {
  if (!is_errno(error, ENOENT)) return false;
  auto copy = copy_shown_as(parent, at.dir, name);
  if (!copy) error = copy.error();
  if (!copy || copy->empty()) return false;
  if (const auto st = lower::stat_at(at.fd(), copy->c_str()); !st) {
    // Taken away from beneath since.
    if (!is_errno(st.error(), ENOENT)) error = st.error();
    return false;
  }
  at.name = LowerName{std::move(*copy), {}};
  at.copy = true;
  return true;
}

Result<lower::Stat> Filesystem::existing(const NodePtr& parent, Place& at, std::string_view name) {
  const auto st = stat_of(at.fd(), at.c_str());
  if (st) return st;
  std::error_code error = st.error();
  return turn_to_copy(parent, at, name, error) ? stat_of(at.fd(), at.c_str()) : error;
}

Result<Entry> Filesystem::entry_called(const NodePtr& parent, Place& at, std::string_view name) {
  auto entry = entry_at(parent, at);
  if (entry) return entry;
  std::error_code error = entry.error();
  return turn_to_copy(parent, at, name, error) ? entry_at(parent, at) : error;
}

namespace {

// Gives an entry another name in its directory that is free, and stays as it is if another has taken it: tools beneath keep to no locks.
Result<void> move_to_free(int dir, const char* from, const char* to, bool directory) {
  const auto moved = lower::rename_at(dir, from, dir, to, RENAME_NOREPLACE);
  if (moved || !is_errno(moved.error(), EINVAL)) return moved;
  // A lower filesystem that does not know the flag (NFS). A directory replaces nothing but an empty directory, and one of a volume's is never
  // empty. Everything else gets a second name first, which is refused where there is one.
  if (!directory) {
    const auto linked = lower::link_at(dir, from, dir, to);
    if (linked) return lower::unlink_at(dir, from, false);
    // Without hard links, or where another's file may not be linked, looking is all that is left.
    const bool no_links = is_errno(linked.error(), EPERM) || is_errno(linked.error(), EOPNOTSUPP) || is_errno(linked.error(), ENOSYS) ||
                          is_errno(linked.error(), EMLINK);
    if (!no_links) return linked;
  }
  const auto there = lower::stat_at(dir, to);
  if (there) return errno_code(EEXIST);
  return is_errno(there.error(), ENOENT) ? lower::rename_at(dir, from, dir, to, 0) : there.error();
}

}  // namespace

Result<void> Filesystem::adopt(const NodePtr& parent, Place& copy, std::string_view name, pid_t caller) {
  auto own = name_in(*copy.dir, name);
  if (!own) return own.error();
  const auto st = stat_of(copy.fd(), copy.c_str());
  if (!st) return st.error();
  if (const auto p = prepare_long_name(*copy.dir, *own, {st->st_uid, st->st_gid, caller, 0}); !p) return p;
  if (const auto kept = keep_shared_target(parent, copy, *st); !kept) return kept;
  const Place before = copy;
  Result<void> moved;
  {
    const std::unique_lock lock(names_mutex_);
    moved = move_to_free(copy.fd(), copy.c_str(), own->name.c_str(), S_ISDIR(st->st_mode));
    if (const NodePtr node = moved ? nodes_.find(NodeKey::of(*st)) : nullptr)
      nodes_.move_name(*node, Link{parent, copy.name.name}, Link{parent, own->name});
  }
  if (!moved) {
    drop_long_name(parent, copy.dir, *own);
    return moved;
  }
  copy.name = std::move(*own);
  copy.copy = false;
  clear_up(parent, before, name);
  return {};
}

void Filesystem::clear_up(const NodePtr& parent, const Place& at, std::string_view name) {
  if (!at.copy) return drop_long_name(parent, at.dir, at.name);
  {
    const std::lock_guard lock(at.dir->copies_mutex);
    if (at.dir->copies)
      if (const auto it = at.dir->copies->by_name.find(name); it != at.dir->copies->by_name.end()) at.dir->copies->by_name.erase(it);
  }
  for (const auto& reading : copy_readings(at.name.name)) drop_long_name(parent, at.dir, LowerName{reading.of, {}});
}

}  // namespace ecfs::daemon
