// SPDX-License-Identifier: GPL-3.0-or-later
#include "history.hpp"

#include <algorithm>

#include "ecfs/layout.hpp"

namespace ecfs::crash {
namespace {

// Calls each(value) with the value as of operation `floor` and those that came until `last`. False where none is accepted.
template <class T, class F>
bool any_of(const std::vector<std::pair<int, T>>& timeline, int floor, int last, F accept) {
  for (std::size_t i = 0; i < timeline.size(); ++i) {
    if (timeline[i].first > last) break;
    const bool superseded = i + 1 < timeline.size() && timeline[i + 1].first <= floor;
    if (!superseded && accept(timeline[i].second)) return true;
  }
  return false;
}

std::string shown(const std::string& name) { return name.size() > 40 ? name.substr(0, 40) + "..." : name; }

}  // namespace

History::History() {
  make(S_IFDIR | 0755);
  bind(kRootThing, kRoot);
}

void History::inserted(std::size_t position) {
  for (Op& op : ops_) {
    if (op.begin > position) ++op.begin;
    if (op.end > position) ++op.end;
  }
}

Thing History::make(mode_t mode, std::string target) {
  ThingState& t = things_.emplace_back();
  t.type = mode & S_IFMT;
  t.target = std::move(target);
  t.modes.emplace_back(now_op(), mode & 07777);
  if (t.type == S_IFREG) t.contents.emplace_back(now_op(), std::make_shared<const std::string>());
  return static_cast<Thing>(things_.size() - 1);
}

void History::entry(Thing dir, const std::string& name, Thing thing) {
  auto& occupants = places_[{dir, name}].occupants;
  if (occupants.empty()) occupants.emplace_back(-2, kNoThing);
  occupants.emplace_back(now_op(), thing);
}

Thing History::occupant(Thing dir, const std::string& name) const {
  const auto place = places_.find({dir, name});
  return place == places_.end() ? kNoThing : place->second.occupants.back().second;
}

void History::content(Thing file, std::string bytes) {
  things_[file].contents.emplace_back(now_op(), std::make_shared<const std::string>(std::move(bytes)));
}

void History::mode(Thing thing, mode_t mode) { things_[thing].modes.emplace_back(now_op(), mode & 07777); }

void History::xattr(Thing thing, const std::string& name, std::optional<std::string> value) {
  auto& timeline = things_[thing].xattrs[name];
  if (timeline.empty()) timeline.emplace_back(-2, std::nullopt);
  timeline.emplace_back(now_op(), std::move(value));
}

void History::synced(Thing thing, bool data_only) {
  things_[thing].data_syncs.push_back(now_op());
  if (data_only) return;
  things_[thing].syncs.push_back(now_op());
  for (auto& [place, state] : places_) {
    const bool own = std::any_of(state.occupants.begin(), state.occupants.end(), [&](const auto& o) { return o.second == thing; });
    if (place.first == thing || (own && state.occupants.back().second == thing)) state.syncs.push_back(now_op());
  }
}

void History::synced_all() {
  for (auto& t : things_) {
    t.data_syncs.push_back(now_op());
    t.syncs.push_back(now_op());
  }
  for (auto& [place, state] : places_) state.syncs.push_back(now_op());
}

void History::renamed_over(Thing file) { things_[file].renames_over.push_back(now_op()); }

void History::passphrase(std::string text) { passphrases_.emplace_back(now_op(), std::move(text)); }

void History::promise(int number) { promises_.emplace_back(now_op(), number); }

int History::promised(const Plan& plan) const {
  int last = 0;
  for (const auto& [op, number] : promises_)
    if (op <= last_done(plan.cut)) last = number;
  return last;
}

int History::last_done(std::size_t position) const {
  int last = -1;
  for (std::size_t i = 0; i < ops_.size() && ops_[i].end <= position; ++i) last = static_cast<int>(i);
  return last;
}

int History::last_begun(std::size_t position) const {
  int last = last_done(position);
  for (std::size_t i = 0; i < ops_.size() && ops_[i].begin < position; ++i) last = std::max(last, static_cast<int>(i));
  return last;
}

int History::floor(int least, const std::vector<int>& syncs, std::size_t cut) const {
  for (const int op : syncs)
    if (op < 0 || ops_[static_cast<std::size_t>(op)].end <= cut) least = std::max(least, op);
  return least;
}

// btrfs logs single objects after the commit; elsewhere names and attributes are as of one moment.
History::Window History::names_window(const Plan& plan) const {
  return {last_done(plan.names), last_begun(plan.kind == Kind::btrfs ? plan.cut : plan.names)};
}

std::vector<std::string> History::passphrases(const Plan& plan) const {
  const Window w = names_window(plan);
  // Changing it ends with everything on the disk.
  const int floor = std::max(w.floor, last_done(plan.cut));
  std::vector<std::string> out;
  any_of(passphrases_, floor, std::max(w.last, last_begun(plan.cut)), [&](const std::string& p) {
    out.push_back(p);
    return false;
  });
  return out;
}

void History::check_content(const Plan& plan, Thing file, const SeenEntry& seen,
                            const std::function<void(const std::string&)>& complain) const {
  const ThingState& t = things_[file];
  int least = floor(-1, t.data_syncs, plan.cut);
  if (plan.kind == Kind::ext4)
    for (const int op : t.renames_over)
      if (op >= 0 && ops_[static_cast<std::size_t>(op)].end <= plan.names) least = std::max(least, op);
  const int last = last_begun(plan.cut);
  std::uint64_t smallest = ~std::uint64_t{0}, largest = 0;
  any_of(t.contents, least, last, [&](const auto& version) {
    smallest = std::min<std::uint64_t>(smallest, version->size());
    largest = std::max<std::uint64_t>(largest, version->size());
    return false;
  });
  const std::string& got = seen.content;
  if (got.size() < smallest || got.size() > largest) {
    complain("its size is " + std::to_string(got.size()) + ", not " + std::to_string(smallest) + " to " + std::to_string(largest));
    return;
  }
  for (std::uint64_t b = 0; b < block_count(got.size()); ++b) {
    const std::size_t from = static_cast<std::size_t>(block_start(b));
    const std::string_view block = std::string_view(got).substr(from, payload(b));
    const bool zeros = block.find_first_not_of('\0') == block.npos;
    const bool good = any_of(t.contents, least, last, [&](const auto& version) {
      if (version->size() <= from) return zeros;  // a size that leads
      const std::string_view then = std::string_view(*version).substr(from, payload(b));
      const std::size_t n = std::min(then.size(), block.size());
      return block.substr(0, n) == then.substr(0, n) && block.substr(n).find_first_not_of('\0') == block.npos;
    });
    if (!good) complain("block " + std::to_string(b) + (zeros ? " is lost" : " is none that was written"));
  }
}

void History::check_names(const Plan& plan, const std::map<Thing, std::map<std::string, Thing>>& dirs,
                          const std::function<void(const std::string&)>& complain) const {
  const Window w = names_window(plan);
  int old = 0, fresh = 0;  // names that the call in flight changes, as before and after it
  for (const auto& [place, state] : places_) {
    const auto dir = dirs.find(place.first);
    if (dir == dirs.end()) continue;
    const auto there = dir->second.find(place.second);
    const Thing occupant = there == dir->second.end() ? kNoThing : there->second;
    if (!any_of(state.occupants, floor(w.floor, state.syncs, plan.cut), w.last, [&](Thing t) { return t == occupant; }))
      complain("the name '" + shown(place.second) + "' in directory " + std::to_string(place.first) +
               (occupant == kNoThing ? " is missing" : " is of object " + std::to_string(occupant)));
    if (plan.kind != Kind::btrfs && w.last > w.floor && state.occupants.back().first >= w.last)
      for (std::size_t i = 1; i < state.occupants.size(); ++i)
        if (state.occupants[i].first == w.last && state.occupants[i].second != state.occupants[i - 1].second)
          (occupant == state.occupants[i].second ? fresh : old) += 1;
  }
  if (old > 0 && fresh > 0) complain("a call that changes several names is done by half");
  for (const auto& [dir, entries] : dirs)
    for (const auto& [name, thing] : entries)
      if (!places_.contains({dir, name})) complain("the name '" + shown(name) + "' was never made");
}

std::vector<std::string> History::check(const Plan& plan, const Seen& seen, const std::map<ino_t, Id>& ids) const {
  std::vector<std::string> out = seen.problems;
  const Window w = names_window(plan);
  std::map<std::string, Thing> things;  // by path
  std::map<Thing, std::map<std::string, Thing>> dirs;
  for (const auto& [path, entry] : seen.entries) {
    const auto complain = [&, &where = path](const std::string& what) { out.push_back("'" + shown(where) + "': " + what); };
    const auto id = ids.find(entry.ino);
    const auto known = id == ids.end() ? by_lower_.end() : by_lower_.find(id->second);
    if (known == by_lower_.end()) {
      complain("an object that was never made");
      continue;
    }
    const Thing thing = known->second;
    const ThingState& t = things_[thing];
    things[path] = thing;
    if (t.type == S_IFDIR) dirs[thing];
    if (!path.empty()) {
      const auto slash = path.rfind('/');
      dirs[things[slash == path.npos ? "" : path.substr(0, slash)]][path.substr(slash == path.npos ? 0 : slash + 1)] = thing;
    }
    if ((entry.mode & S_IFMT) != t.type) {
      complain("of another type");
      continue;
    }
    if (t.type == S_IFREG) check_content(plan, thing, entry, complain);
    if (t.type == S_IFLNK && entry.content != t.target) complain("the link's target is another");
    const int least = floor(w.floor, t.syncs, plan.cut);
    // In a directory that is being made its maker's own bits are lent to it.
    if (t.type != S_IFLNK && !any_of(t.modes, least, w.last, [&](mode_t m) {
          return m == (entry.mode & 07777) || (t.type == S_IFDIR && least < t.modes.front().first && ((entry.mode ^ m) & 077) == 0);
        }))
      complain("its mode is none that it was given");
    for (const auto& [name, timeline] : t.xattrs) {
      const auto x = entry.xattrs.find(name);
      const auto value = x == entry.xattrs.end() ? std::nullopt : std::optional(x->second);
      if (!any_of(timeline, least, w.last, [&](const auto& v) { return v == value; }))
        complain("the attribute '" + shown(name) + "' has a value that it never was given, or has lost it");
    }
    for (const auto& [name, value] : entry.xattrs)
      if (!t.xattrs.contains(name)) complain("the attribute '" + shown(name) + "' was never set");
  }
  check_names(plan, dirs, [&](const std::string& what) { out.push_back(what); });
  return out;
}

}  // namespace ecfs::crash
