// SPDX-License-Identifier: GPL-3.0-or-later
#include "journal.hpp"

#include <algorithm>
#include <cstring>
#include <unordered_set>

namespace ecfs::crash {

PageId PagePool::add(const Page& page) {
  static constexpr Page kZeros{};
  if (page == kZeros) return 0;
  pages_.push_back(page);
  return static_cast<PageId>(pages_.size() - 1);
}

void Tree::walk(const std::function<void(const std::string&, Id)>& each) const {
  const std::function<void(const std::string&, Id)> down = [&](const std::string& path, Id id) {
    each(path, id);
    const Object& object = at(id);
    for (const auto& [name, child] : object.entries) down(path.empty() ? name : path + "/" + name, child);
  };
  down("", kRoot);
}

namespace {

// Zeros from `from` to `to` of a page that is there.
void clear(std::map<std::uint64_t, PageId>& pages, std::uint64_t number, std::size_t from, std::size_t to, PagePool& pool) {
  const auto it = pages.find(number);
  if (it == pages.end()) return;
  Page page = pool[it->second];
  std::memset(page.data() + from, 0, to - from);
  it->second = pool.add(page);
  if (it->second == 0) pages.erase(it);
}

// Bytes of [from, to) become zeros, whole pages holes.
void clear_range(Object& object, std::uint64_t from, std::uint64_t to, PagePool& pool) {
  const std::uint64_t first = (from + kPageSize - 1) / kPageSize, end = to / kPageSize;
  if (first < end) object.pages.erase(object.pages.lower_bound(first), object.pages.lower_bound(end));
  if (from / kPageSize == to / kPageSize) {
    clear(object.pages, from / kPageSize, from % kPageSize, to % kPageSize, pool);
    return;
  }
  if (from % kPageSize) clear(object.pages, from / kPageSize, from % kPageSize, kPageSize, pool);
  if (to % kPageSize) clear(object.pages, to / kPageSize, 0, to % kPageSize, pool);
}

}  // namespace

void apply(const Event& e, Tree& tree, PagePool& pool, bool data) {
  const auto touch = [&](Id id) -> Object& {
    Object& object = tree.at(id);
    object.touched = true;
    return object;
  };
  switch (e.change) {
    case Change::make: {
      Object& made = tree.objects[e.object];
      made = Object{};
      made.mode = e.mode;
      made.uid = e.uid;
      made.gid = e.gid;
      made.rdev = e.rdev;
      made.target = e.value;
      made.touched = true;
      if (e.dir != kNone) touch(e.dir).entries[e.name] = e.object;
      break;
    }
    case Change::link:
      touch(e.dir).entries[e.name] = e.object;
      touch(e.object);
      break;
    case Change::unlink:
      touch(e.dir).entries.erase(e.name);
      touch(e.object);
      break;
    case Change::rename: {
      auto& from = touch(e.dir).entries;
      auto& to = touch(e.dir2).entries;
      touch(e.object);
      if (e.exchange) {
        std::swap(from.at(e.name), to.at(e.name2));
        touch(from.at(e.name));
      } else {
        to[e.name2] = e.object;
        from.erase(e.name);
      }
      break;
    }
    case Change::resize: {
      Object& object = touch(e.object);
      if (e.size < object.size) {
        clear_range(object, e.size, (object.size + kPageSize - 1) / kPageSize * kPageSize + kPageSize, pool);
        object.pages.erase(object.pages.lower_bound((e.size + kPageSize - 1) / kPageSize), object.pages.end());
      }
      object.size = e.size;
      break;
    }
    case Change::write: {
      Object& object = touch(e.object);
      if (!data) break;
      for (const auto& [number, page] : e.pages) object.pages[number] = page;
      object.size = std::max(object.size, e.offset + e.size);
      break;
    }
    case Change::punch: {
      clear_range(touch(e.object), e.offset, e.offset + e.size, pool);
      break;
    }
    case Change::attributes: {
      Object& object = touch(e.object);
      object.mode = (object.mode & S_IFMT) | (e.mode & 07777);
      object.uid = e.uid;
      object.gid = e.gid;
      break;
    }
    case Change::set_xattr: touch(e.object).xattrs[e.name] = e.value; break;
    case Change::remove_xattr: touch(e.object).xattrs.erase(e.name); break;
    case Change::times: touch(e.object); break;
    case Change::sync:
    case Change::data_sync:
    case Change::sync_all: break;
  }
}

void find_barriers(Journal& journal) {
  struct Known {
    std::size_t changed = 0;    // events that must be on the disk for all that is known of the object
    std::size_t core = 0;       // the same for what fdatasync keeps: that it is there, and its size
    bool unallocated = false;   // written pages that have no place on the disk yet, or a size that follows them
    std::unordered_set<std::uint64_t> allocated;
  };
  std::unordered_map<Id, Known> known;
  std::unordered_map<Id, std::uint64_t> sizes;
  for (const auto& [id, object] : journal.base.objects) {
    sizes[id] = object.size;
    for (const auto& [number, page] : object.pages) known[id].allocated.insert(number);
  }
  for (std::size_t i = 0; i < journal.events.size(); ++i) {
    Event& e = journal.events[i];
    const auto changed = [&](Id id) {
      if (id != kNone) known[id].changed = i + 1;
    };
    switch (e.change) {
      case Change::make:
        known[e.object] = {i + 1, i + 1, false, {}};
        sizes[e.object] = 0;
        changed(e.dir);
        break;
      case Change::link:
      case Change::unlink:
        changed(e.object);
        changed(e.dir);
        break;
      case Change::rename:
        changed(e.object);
        changed(e.dir);
        changed(e.dir2);
        break;
      case Change::resize: {
        Known& k = known[e.object];
        k.changed = k.core = i + 1;
        if (e.size < sizes[e.object]) std::erase_if(k.allocated, [&](std::uint64_t n) { return n >= (e.size + kPageSize - 1) / kPageSize; });
        sizes[e.object] = e.size;
        break;
      }
      case Change::punch: {
        Known& k = known[e.object];
        k.changed = k.core = i + 1;
        std::erase_if(k.allocated, [&](std::uint64_t n) { return n * kPageSize >= e.offset && (n + 1) * kPageSize <= e.offset + e.size; });
        break;
      }
      case Change::write: {
        Known& k = known[e.object];
        k.changed = i + 1;
        for (const auto& [number, page] : e.pages)
          if (k.allocated.insert(number).second) k.unallocated = true;
        if (e.offset + e.size > sizes[e.object]) {
          sizes[e.object] = e.offset + e.size;
          k.unallocated = true;
        }
        break;
      }
      case Change::attributes:
      case Change::set_xattr:
      case Change::remove_xattr:
      case Change::times: changed(e.object); break;
      case Change::sync:
      case Change::data_sync: {
        Known& k = known[e.object];
        e.barrier = k.unallocated ? i : e.change == Change::sync ? k.changed : k.core;
        k.unallocated = false;
        break;
      }
      case Change::sync_all:
        e.barrier = i;
        for (auto& [id, k] : known) k.unallocated = false;
        break;
    }
  }
}

std::string describe(const Event& e) {
  static constexpr const char* kWords[] = {"make",  "link",      "unlink",       "rename", "resize", "write",    "punch",
                                           "attributes", "set xattr", "remove xattr", "times",  "fsync",  "fdatasync", "syncfs"};
  std::string text = kWords[static_cast<std::size_t>(e.change)];
  if (e.object != kNone) text += " #" + std::to_string(e.object);
  if (e.dir != kNone) text += " in #" + std::to_string(e.dir);
  if (!e.name.empty()) text += " '" + e.name + "'";
  if (e.dir2 != kNone) text += " to #" + std::to_string(e.dir2) + " '" + e.name2 + "'";
  if (e.change == Change::resize) text += " to " + std::to_string(e.size);
  if (e.change == Change::write || e.change == Change::punch) text += " " + std::to_string(e.offset) + "+" + std::to_string(e.size);
  if (e.change == Change::sync || e.change == Change::data_sync) text += " (barrier " + std::to_string(e.barrier) + ")";
  return text;
}

std::string difference(const Tree& a, const Tree& b, const PagePool& pool) {
  std::map<Id, Id> same;  // an object of a is this one of b
  const auto compare = [&](const auto& self, const std::string& path, Id ia, Id ib) -> std::string {
    const auto [known, fresh] = same.emplace(ia, ib);
    if (!fresh) return known->second == ib ? "" : path + ": another object";
    const Object &x = a.at(ia), &y = b.at(ib);
    if (x.mode != y.mode) return path + ": mode";
    if (x.uid != y.uid || x.gid != y.gid) return path + ": owner";
    if (x.size != y.size) return path + ": size " + std::to_string(x.size) + ", " + std::to_string(y.size);
    if (x.target != y.target) return path + ": target";
    if (x.rdev != y.rdev) return path + ": device";
    if (x.xattrs != y.xattrs) return path + ": extended attributes";
    for (const auto* from : {&x, &y})
      for (const auto& [number, page] : from->pages) {
        const Object& other = from == &x ? y : x;
        const auto there = other.pages.find(number);
        if (pool[page] != pool[there == other.pages.end() ? 0 : there->second]) return path + ": page " + std::to_string(number);
      }
    for (const auto& [name, child] : y.entries)
      if (!x.entries.contains(name)) return path + "/" + name + ": only in the second";
    for (const auto& [name, child] : x.entries) {
      const auto there = y.entries.find(name);
      if (there == y.entries.end()) return path + "/" + name + ": only in the first";
      if (std::string d = self(self, path + "/" + name, child, there->second); !d.empty()) return d;
    }
    return "";
  };
  return compare(compare, "", kRoot, kRoot);
}

}  // namespace ecfs::crash
