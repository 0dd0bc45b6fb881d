// SPDX-License-Identifier: GPL-3.0-or-later
#include "self_test.hpp"

#include <algorithm>
#include <cstdio>
#include <set>
#include <stdexcept>

#include "experiment.hpp"

namespace ecfs::crash {
namespace {

const Event kNothing{.change = Change::times, .object = kRoot};

// Objects made under a name that begins so, or renamed to one.
std::set<Id> named(const Journal& j, std::string_view start) {
  std::set<Id> out;
  for (const Event& e : j.events)
    if ((e.change == Change::make && e.name.starts_with(start)) || (e.change == Change::rename && e.name2.starts_with(start))) out.insert(e.object);
  return out;
}

bool is_sync(const Event& e) { return e.change == Change::sync || e.change == Change::data_sync; }

// Puts nothing in the place of each event that `which` takes. How many.
template <class F>
std::size_t drop(Journal& j, F which) {
  std::size_t n = 0;
  for (Event& e : j.events)
    if (which(e)) e = kNothing, ++n;
  return n;
}

std::size_t drop_syncs_of(Experiment& x, std::string_view start) {
  const auto ids = named(x.journal(), start);
  return drop(x.journal(), [&](const Event& e) { return is_sync(e) && ids.contains(e.object); });
}

// Every sync of the root that comes after a rename to that name, up to the next change of the root.
std::size_t drop_root_sync_after(Experiment& x, std::string_view name) {
  std::size_t n = 0;
  bool after = false;
  for (Event& e : x.journal().events) {
    if (e.change == Change::rename) after = e.name2 == name;
    if (after && is_sync(e) && e.object == kRoot) e = kNothing, ++n, after = false;
  }
  return n;
}

std::size_t drop_file_syncs(Experiment& x) {
  const auto own = named(x.journal(), "ecfs.");
  return drop(x.journal(), [&](const Event& e) { return is_sync(e) && e.object != kRoot && !own.contains(e.object); });
}

std::size_t drop_dir_syncs(Experiment& x) {
  std::set<Id> dirs;
  for (const Event& e : x.journal().events)
    if (e.change == Change::make && S_ISDIR(e.mode)) dirs.insert(e.object);
  return drop(x.journal(), [&](const Event& e) { return is_sync(e) && dirs.contains(e.object); });
}

std::size_t drop_marker(Experiment& x) {
  const auto ids = named(x.journal(), "ecfs.session");
  return drop(x.journal(), [&](const Event& e) { return ids.contains(e.object); });
}

// Each page of a write is written in two halves.
std::size_t tear_writes(Experiment& x) {
  Journal& j = x.journal();
  Tree tree = j.base;
  std::size_t n = 0;
  for (std::size_t i = 0; i < j.events.size(); ++i) {
    Event half = j.events[i];
    if (half.change == Change::write && half.offset % kPageSize == 0) {
      for (auto& [number, id] : half.pages) {
        const auto& pages = tree.at(half.object).pages;
        const auto before = pages.find(number);
        Page page = (*j.pool)[before == pages.end() ? 0 : before->second];
        std::copy_n((*j.pool)[id].begin(), kPageSize / 2, page.begin());
        id = j.pool->add(page);
      }
      x.history().inserted(i);
      j.events.insert(j.events.begin() + static_cast<std::ptrdiff_t>(i++), half);
      ++n;
    }
    apply(j.events[i], tree, *j.pool, true);
  }
  return n;
}

// The entry of a long name is made first, and then the file that holds the name.
std::size_t entry_before_name_file(Experiment& x) {
  auto& events = x.journal().events;
  std::size_t n = 0;
  for (std::size_t i = 0; i < events.size(); ++i) {
    if (events[i].change != Change::make || !events[i].name.starts_with("ecfs.name.")) continue;
    for (std::size_t k = i + 1; k < std::min(events.size(), i + 5); ++k)
      if (events[k].change == Change::make && events[k].name.starts_with("ecfs.long.")) {
        std::rotate(events.begin() + static_cast<std::ptrdiff_t>(i), events.begin() + static_cast<std::ptrdiff_t>(k),
                    events.begin() + static_cast<std::ptrdiff_t>(k) + 1);
        ++n;
        i = k;
        break;
      }
  }
  return n;
}

struct Break {
  const char* what;
  const char* workload;
  std::size_t (*change)(Experiment&);  // how many places were changed
};

constexpr Break kBreaks[] = {
    {"fsync of a file does nothing", "append-100", drop_file_syncs},
    {"a page is written in two halves", "overwrite", tear_writes},
    {"the new volume file is not synced before its rename", "keys", [](Experiment& x) { return drop_syncs_of(x, "ecfs.volume.new"); }},
    {"the directory is not synced after that rename", "keys", [](Experiment& x) { return drop_root_sync_after(x, "ecfs.volume"); }},
    {"there is no session marker", "append-unsynced", drop_marker},
    {"the directory is not synced after the marker's rename", "append-unsynced", [](Experiment& x) { return drop_root_sync_after(x, "ecfs.session"); }},
    {"the marker goes before everything is on the disk", "append-unsynced",
     [](Experiment& x) { return drop(x.journal(), [](const Event& e) { return e.change == Change::sync_all; }); }},
    {"a long name's file is not synced", "long-names", [](Experiment& x) { return drop_syncs_of(x, "ecfs.name."); }},
    {"a long name's entry comes before its file", "long-names", entry_before_name_file},
    {"a long target's file is not synced", "long-targets", [](Experiment& x) { return drop_syncs_of(x, "ecfs.target."); }},
    {"a directory's id is in its file alone", "many-files",
     [](Experiment& x) { return drop(x.journal(), [](const Event& e) { return e.change == Change::set_xattr && e.name == "user.ecfs.dir"; }); }},
    {"fsync of a directory does nothing", "many-files", drop_dir_syncs},
};

}  // namespace

bool self_test(const std::string& dir, std::uint64_t seed) {
  constexpr std::size_t kStates = 400;
  bool good = true;
  const Variant variant{Suite::aes_256_gcm, NameMode::encrypted, false};
  const auto find = [](std::string_view name) -> const Workload& {
    return *std::find_if(workloads().begin(), workloads().end(), [&](const Workload& w) { return w.name == name; });
  };
  for (const Break& b : kBreaks) {
    Experiment x(find(b.workload), variant, dir, seed);
    const std::size_t places = b.change(x);
    x.changed();
    std::size_t n = 0;
    std::string complaint;
    for (; n < kStates && complaint.empty(); ++n)
      if (const auto report = x.try_state(n, std::min(x.fixed(), kStates / 2)); !report.complaints.empty()) complaint = report.complaints.front();
    good = good && places > 0 && !complaint.empty();
    std::printf("%s: %s, %zu places, %zu states: %s\n", complaint.empty() || places == 0 ? "NOT FOUND" : "found", b.what, places, n, complaint.c_str());
    std::fflush(stdout);
  }
  // A journal that something escaped is no journal.
  {
    Experiment x(find("append-100"), variant, dir, seed);
    Tree before = x.journal().base, after = x.journal().base;
    const auto& events = x.journal().events;
    const auto last = std::find_if(events.rbegin(), events.rend(), [](const Event& e) { return e.change == Change::write; });
    const bool skipped = last != events.rend();
    for (const Event& e : events) {
      apply(e, before, *x.journal().pool, true);
      if (!skipped || &e != &*last) apply(e, after, *x.journal().pool, true);
    }
    const bool told = !difference(before, after, *x.journal().pool).empty();
    std::printf("%s: a write that is not in the journal\n", told ? "found" : "NOT FOUND");
    good = good && told && skipped;
  }
  return good;
}

}  // namespace ecfs::crash
