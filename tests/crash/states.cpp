// SPDX-License-Identifier: GPL-3.0-or-later
#include "states.hpp"

#include <algorithm>
#include <cstring>
#include <set>

namespace ecfs::crash {
namespace {

// What may stand in one page.
struct Versions {
  std::vector<PageId> all;   // the first is what is surely there, the last the newest
  bool allocated = false;    // it has a place on the disk at `names`, and so may be written in place after that
  bool closed = false;       // taken away since `names`: what is written now goes elsewhere
};

// A size that follows its data: it is there when that version of the page is.
struct Following {
  std::uint64_t page;
  std::size_t version;  // index into Versions::all
  std::uint64_t size;
};

struct File {
  std::map<std::uint64_t, Versions> pages;
  std::vector<Following> following;
};

class Builder {
 public:
  Builder(const Journal& journal, const Plan& plan, Random& rng) : journal_(journal), plan_(plan), rng_(rng) {
    if (plan_.kind == Kind::btrfs) move_commit();
    state_.plan = plan_;
    state_.tree = journal.base;
    if (plan.kind == Kind::btrfs) live_ = journal.base;
  }

  State build() {
    for (std::size_t i = 0; i < plan_.cut; ++i) {
      const Event& e = journal_.events[i];
      if (i < plan_.names)
        recorded(e);
      else if (plan_.kind == Kind::btrfs)
        logged(e);
      else
        in_place(e);
      if (plan_.kind == Kind::btrfs) apply(e, live_, *journal_.pool, true);
    }
    choose();
    return std::move(state_);
  }

 private:
  // To the last sync that is a whole commit, and out of the making of a directory.
  void move_commit() {
    const auto& events = journal_.events;
    bool whole = false;
    for (std::size_t i = plan_.names; i < plan_.cut; ++i) {
      const Change c = events[i].change;
      whole = whole || c == Change::rename || c == Change::unlink;
      if (whole && (c == Change::sync || c == Change::data_sync)) {
        plan_.names = i;
        whole = false;
      }
    }
    std::set<Id> without_id;
    const auto next = [&](std::size_t i) {
      const Event& e = events[i];
      if (e.change == Change::make && S_ISDIR(e.mode)) without_id.insert(e.object);
      if (e.change == Change::set_xattr && e.name == "user.ecfs.dir") without_id.erase(e.object);
    };
    if (std::none_of(events.begin(), events.end(), [](const Event& e) { return e.change == Change::set_xattr && e.name == "user.ecfs.dir"; })) return;
    for (std::size_t i = 0; i < plan_.names; ++i) next(i);
    for (; !without_id.empty() && plan_.names < plan_.cut; ++plan_.names) next(plan_.names);
  }

  Versions& versions(Id id, std::uint64_t number) {
    auto& file = files_[id];
    const auto [it, fresh] = file.pages.try_emplace(number);
    if (fresh) {
      const auto& pages = state_.tree.at(id).pages;
      const auto there = pages.find(number);
      it->second.all.push_back(there == pages.end() ? 0 : there->second);
      it->second.allocated = there != pages.end();
    }
    return it->second;
  }

  void recorded(const Event& e) {
    Tree& tree = state_.tree;
    switch (e.change) {
      case Change::write: {
        Object& object = tree.at(e.object);
        object.touched = true;
        for (const auto& [number, page] : e.pages) {
          Versions& v = versions(e.object, number);
          v.all.push_back(page);
          v.allocated = true;
        }
        const std::uint64_t end = e.offset + e.size;
        if (end > object.size && !e.pages.empty()) {
          const std::uint64_t last = e.pages.back().first;
          files_[e.object].following.push_back({last, versions(e.object, last).all.size() - 1, end});
        }
        return;
      }
      case Change::resize:
        settle_if_set(e);
        take(e.object, e.size, ~std::uint64_t{0});
        break;
      case Change::punch: take(e.object, e.offset, e.offset + e.size); break;
      case Change::sync:
      case Change::data_sync: settle(e.object); return;
      case Change::sync_all:
        for (auto& [id, object] : tree.objects) settle(id);
        return;
      case Change::rename:
        if (plan_.kind == Kind::ext4 && !e.exchange && tree.at(e.dir2).entries.contains(e.name2)) allocate(e.object);
        break;
      default: break;
    }
    apply(e, tree, *journal_.pool, false);
  }

  // After `names`: only what is written to pages that are where they were.
  void in_place(const Event& e) {
    switch (e.change) {
      case Change::write:
        if (!state_.tree.objects.contains(e.object)) return;
        for (const auto& [number, page] : e.pages) {
          Versions& v = versions(e.object, number);
          if (v.allocated && !v.closed) v.all.push_back(page);
        }
        return;
      case Change::resize: close(e.object, e.size, ~std::uint64_t{0}); return;
      case Change::punch: close(e.object, e.offset, e.offset + e.size); return;
      case Change::sync:
      case Change::data_sync:
        if (state_.tree.objects.contains(e.object)) settle(e.object);
        return;
      default: return;
    }
  }

  void close(Id id, std::uint64_t from, std::uint64_t to) {
    if (!state_.tree.objects.contains(id)) return;
    // Those that are there but were not written since must be known to be closed as well.
    for (const auto& [number, page] : state_.tree.at(id).pages) (void)versions(id, number);
    for (auto& [number, v] : files_[id].pages)
      if (number * kPageSize < to && (number + 1) * kPageSize > from) v.closed = true;
  }

  // A size that was still to follow its data is overtaken by one that is set.
  void settle_if_set(const Event& e) { files_[e.object].following.clear(); }

  // Bytes that a resize or a punch takes away: no older content of whole pages is left, and zeros in parts of pages.
  void take(Id id, std::uint64_t from, std::uint64_t to) {
    auto& pages = files_[id].pages;
    for (auto it = pages.begin(); it != pages.end();) {
      const std::uint64_t start = it->first * kPageSize;
      if (start >= from && (to == ~std::uint64_t{0} || start + kPageSize <= to)) {
        it = pages.erase(it);
        continue;
      }
      const std::uint64_t cut_from = std::max(start, from), cut_to = std::min(start + kPageSize, to);
      // What is cut in the middle of a page is zeroed before the journal says so, whichever version that is in.
      if (cut_from < cut_to)
        for (PageId& id_of_page : it->second.all) {
          Page page = (*journal_.pool)[id_of_page];
          std::memset(page.data() + (cut_from - start), 0, cut_to - cut_from);
          id_of_page = journal_.pool->add(page);
        }
      ++it;
    }
  }

  // Everything written to it is there.
  void settle(Id id) {
    const auto file = files_.find(id);
    if (file == files_.end()) return;
    Object& object = state_.tree.at(id);
    for (const auto& f : file->second.following) object.size = std::max(object.size, f.size);
    file->second.following.clear();
    for (auto& [number, v] : file->second.pages) {
      object.pages[number] = v.all.back();
      v.all = {v.all.back()};
    }
  }

  // ext4's allocation on rename: pages that have no place yet are written before the rename is recorded.
  void allocate(Id id) {
    const auto file = files_.find(id);
    if (file == files_.end()) return;
    bool fresh = false;
    for (auto& [number, v] : file->second.pages)
      if (v.all.front() == 0 && v.all.size() > 1) {
        v.all = {v.all.back()};
        state_.tree.at(id).pages[number] = v.all.back();
        fresh = true;
      }
    if (!fresh) return;
    for (const auto& f : file->second.following) state_.tree.at(id).size = std::max(state_.tree.at(id).size, f.size);
    file->second.following.clear();
  }

  // btrfs's log of one object, on top of the last commit.
  void logged(const Event& e) {
    if (e.change != Change::sync && e.change != Change::data_sync) return;
    if (!live_.objects.contains(e.object)) return;
    const Object& object = live_.at(e.object);
    bool reached = false;  // removed, and only still open: nothing to log
    live_.walk([&](const std::string&, Id id) { reached = reached || id == e.object; });
    if (!reached) return;
    put_above(e.object);
    put(e.object, true);
    if (!S_ISDIR(object.mode)) return;
    auto& entries = state_.tree.at(e.object).entries;
    for (const auto& [name, id] : object.entries) {
      const auto there = entries.find(name);
      if (there == entries.end() || there->second != id) put_above(id);  // its other names go along
    }
    std::erase_if(entries, [&](const auto& entry) { return !object.entries.contains(entry.first); });
  }

  void remove_names(Id id) {
    for (auto& [dir, object] : state_.tree.objects) std::erase_if(object.entries, [&](const auto& entry) { return entry.second == id; });
  }

  // The object's own attributes and contents.
  void put(Id id, bool contents) {
    const Object& from = live_.at(id);
    const bool there = state_.tree.objects.contains(id);
    Object& to = state_.tree.objects[id];
    const auto entries = std::move(to.entries);
    const auto pages = std::move(to.pages);
    const auto size = to.size;
    to = from;
    to.touched = true;
    to.entries = entries;
    if (!contents) {
      to.pages = there ? pages : std::map<std::uint64_t, PageId>();
      to.size = there ? size : 0;
    } else {
      files_.erase(id);
    }
  }

  // Its names, and the directories that they are in.
  void put_above(Id id) {
    if (id == kRoot) return;
    remove_names(id);
    for (const auto& [dir, object] : live_.objects)
      for (const auto& [name, child] : object.entries) {
        if (child != id) continue;
        if (!state_.tree.objects.contains(dir) || !reachable(dir)) {
          put_above(dir);
          if (!state_.tree.objects.contains(dir)) put(dir, false);
        }
        if (!state_.tree.objects.contains(id)) put(id, false);
        state_.tree.at(dir).entries[name] = id;
      }
  }

  bool reachable(Id id) const {
    bool found = false;
    state_.tree.walk([&](const std::string&, Id at) { found = found || at == id; });
    return found;
  }

  // Which version of each page is on the disk.
  void choose() {
    std::vector<std::pair<Id, std::uint64_t>> open;
    for (auto& [id, file] : files_)
      for (auto& [number, v] : file.pages)
        if (v.all.size() > 1) open.emplace_back(id, number);
    const auto special = open.empty() ? std::pair<Id, std::uint64_t>(kNone, 0) : open[rng_() % open.size()];
    for (auto& [id, file] : files_) {
      if (!state_.tree.objects.contains(id)) continue;
      Object& object = state_.tree.at(id);
      std::map<std::uint64_t, std::size_t> chosen;
      for (auto& [number, v] : file.pages) {
        const bool is_special = special == std::pair(id, number);
        std::size_t n = 0;
        switch (plan_.pages) {
          case Pages::newest: n = v.all.size() - 1; break;
          case Pages::oldest: break;
          case Pages::any: n = rng_() % 3 == 0 ? rng_() % v.all.size() : rng_() % 2 ? v.all.size() - 1 : 0; break;
          case Pages::one_new: n = is_special ? v.all.size() - 1 : 0; break;
          case Pages::one_old: n = is_special ? 0 : v.all.size() - 1; break;
        }
        chosen[number] = n;
        if (v.all[n])
          object.pages[number] = v.all[n];
        else
          object.pages.erase(number);
      }
      for (const auto& f : file.following)
        if (chosen[f.page] >= f.version) object.size = std::max(object.size, f.size);
    }
  }

  const Journal& journal_;
  Plan plan_;
  Random& rng_;
  State state_;
  Tree live_;  // btrfs: as the programs see it
  std::map<Id, File> files_;
};

}  // namespace

States::States(const Journal& journal) : journal_(journal) {
  std::size_t least = 0, commit = 0;
  least_.push_back(0);
  commits_.push_back(0);
  for (std::size_t i = 0; i < journal.events.size(); ++i) {
    const Event& e = journal.events[i];
    if (e.change == Change::sync || e.change == Change::data_sync || e.change == Change::sync_all) {
      least = std::max(least, e.barrier);
      if (e.change == Change::sync_all) commit = i;
      barriers_.push_back(i + 1);
    }
    least_.push_back(least);
    commits_.push_back(commit);
  }
  barriers_.push_back(journal.events.size());
}

std::size_t States::least(std::size_t cut, Kind kind) const { return kind == Kind::btrfs ? commits_[cut] : least_[cut]; }

Plan States::fixed(std::size_t n) const {
  Plan plan;
  plan.cut = barriers_[n / 12];
  plan.kind = static_cast<Kind>(n % 3);
  plan.pages = n / 3 % 2 ? Pages::oldest : Pages::newest;
  plan.names = n / 6 % 2 ? plan.cut : least(plan.cut, plan.kind);
  return plan;
}

Plan States::random(Random& rng) const {
  Plan plan;
  plan.kind = static_cast<Kind>(rng() % 3);
  plan.cut = rng() % (journal_.events.size() + 1);
  const std::size_t from = least(plan.cut, plan.kind);
  switch (rng() % 4) {
    case 0: plan.names = plan.cut; break;
    case 1: plan.names = from; break;
    default: plan.names = from + rng() % (plan.cut - from + 1);
  }
  plan.pages = rng() % 2 ? Pages::any : static_cast<Pages>(rng() % 5);
  return plan;
}

State States::make(const Plan& plan, Random& rng) const { return Builder(journal_, plan, rng).build(); }

std::string describe(const Plan& plan) {
  static constexpr const char* kKinds[] = {"ext4", "xfs", "btrfs"};
  static constexpr const char* kPages[] = {"newest", "oldest", "any", "one new", "one old"};
  return std::string(kKinds[static_cast<std::size_t>(plan.kind)]) + ", cut after " + std::to_string(plan.cut) + " calls, names of " +
         std::to_string(plan.names) + ", pages " + kPages[static_cast<std::size_t>(plan.pages)];
}

}  // namespace ecfs::crash
