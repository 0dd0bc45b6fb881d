// SPDX-License-Identifier: GPL-3.0-or-later
// Several threads in the same directories, against a model of the tree. They hold the locks that the kernel holds around the same
// messages: a directory's, shared for looking up and listing and exclusive for changing it; the inode's for removing, linking and replacing;
// and one for moving directories. Nothing else keeps them apart. ECFS_SEED chooses other steps, ECFS_THREAD_STEPS how many.
#include <linux/fs.h>

#include <atomic>
#include <mutex>
#include <random>
#include <shared_mutex>
#include <thread>

#include "daemon_support.hpp"

namespace {

using namespace ecfs;
using namespace ecfs::test;

struct File {
  std::mutex inode;
  std::uint64_t serial;
  unsigned links = 1;  // guarded by `inode`
};

struct Dir {
  Ref ref;
  std::shared_mutex lock;
  std::map<std::string, std::shared_ptr<File>> entries;  // no File: an empty directory
};

constexpr std::size_t kDirs = 4;

struct World {
  TestVolume& v;
  Dir dirs[kDirs];
  Dir moving;  // a directory that wanders between the others, and is renamed
  std::string moving_name = "moving";  // guarded by the lock of the directory that it is in
  std::atomic<Dir*> moving_in{&dirs[0]};
  std::mutex directory_moves;
  std::atomic<std::uint64_t> serials{1};
  std::mutex faults_mutex;
  std::vector<std::string> faults;

  explicit World(TestVolume& volume) : v(volume) {}
  void expect(bool right, const std::string& what, const std::error_code& e = {}) {
    if (right) return;
    const std::lock_guard lock(faults_mutex);
    faults.push_back(what + ": " + e.message());
  }
};

// The same word over and over, so that any mixture of two files shows.
std::string content_of(std::uint64_t serial, std::size_t words) {
  std::string out;
  for (std::size_t i = 0; i < words; ++i) out.append(reinterpret_cast<const char*>(&serial), sizeof serial);
  return out;
}
bool is_content(std::string_view text, std::uint64_t serial) { return text == content_of(serial, text.size() / sizeof serial); }

struct Worker {
  World& w;
  std::mt19937 random;
  Filesystem& fs;

  Worker(World& world, std::uint64_t seed) : w(world), random(static_cast<std::mt19937::result_type>(seed)), fs(world.v.fs()) {}

  std::size_t below(std::size_t n) { return random() % n; }
  std::string any_name() {
    const std::size_t k = below(12);
    return k % 4 == 0 ? std::string(100 + k, static_cast<char>('a' + k)) : "n" + std::to_string(k);
  }
  Dir& any_dir() {
    const std::size_t k = below(kDirs + 1);
    return k == kDirs ? w.moving : w.dirs[k];
  }
  // The kernel's lookup before an operation.
  std::optional<Entry> look(Dir& d, const std::string& name, bool there, const char* what) {
    auto e = fs.lookup(d.ref->node, name);
    w.expect(e.has_value() == there && (e || is_errno(e.error(), ENOENT)), std::string(what) + ": lookup", e.error());
    if (e) ++e->node->opens;  // so that it is still to be read when another thread removes it
    return e ? std::optional<Entry>(std::move(*e)) : std::nullopt;
  }
  void forget(const std::optional<Entry>& e) {
    if (!e) return;
    fs.closed(e->node);
    fs.nodes().forget(e->node, 1);
  }
  std::shared_ptr<File> file_at(const Dir& d, const std::string& name) {
    const auto it = d.entries.find(name);
    return it == d.entries.end() ? nullptr : it->second;
  }

  void create() {
    Dir& d = any_dir();
    const std::string name = any_name();
    const auto file = std::make_shared<File>();
    file->serial = w.serials++;
    std::optional<Entry> made;
    {
      const std::unique_lock lock(d.lock);
      const bool there = d.entries.contains(name);
      auto e = fs.make_node(d.ref->node, name, S_IFREG | 0644, 0, self());
      w.expect(there ? is_errno(e.error(), EEXIST) : e.has_value(), "create", e.error());
      if (!e) return;
      d.entries[name] = file;
      made = *e;
      ++made->node->opens;
    }
    // Others see it already, and may have removed it by now.
    const auto written = fs.write(made->node, 0, as_bytes(content_of(file->serial, 1 + below(1500))), false);
    w.expect(written.has_value(), "write after create", written.error());
    forget(made);
  }

  void make_dir() {
    Dir& d = w.dirs[below(kDirs)];
    const std::string name = any_name();
    const std::unique_lock lock(d.lock);
    const bool there = d.entries.contains(name);
    const auto e = fs.make_dir(d.ref->node, name, 0755, self());
    w.expect(there ? is_errno(e.error(), EEXIST) : e.has_value(), "mkdir", e.error());
    if (!e) return;
    d.entries[name] = nullptr;
    fs.nodes().forget(e->node, 1);
  }

  void read() {
    Dir& d = any_dir();
    const std::string name = any_name();
    std::optional<Entry> e;
    std::shared_ptr<File> file;
    {
      const std::shared_lock lock(d.lock);
      e = look(d, name, d.entries.contains(name), "read");
      file = file_at(d, name);
    }
    if (e && file) {
      const auto text = w.v.try_read(e->node);
      w.expect(text && is_content(*text, file->serial), "reading", text.error());
      const auto st = fs.attributes(e->node);
      w.expect(st && st->st_size % 8 == 0, "attributes", st.error());
      if (below(3) == 0) {
        // Never past the end: a hole would be no words.
        const std::uint64_t at = text ? below(text->size() / 8 + 1) : 0;
        const auto r = fs.write(e->node, 8 * at, as_bytes(content_of(file->serial, 1 + below(3000))), false);
        w.expect(r.has_value(), "overwriting", r.error());
      }
    }
    forget(e);
  }

  void list() {
    Dir& d = any_dir();
    const std::shared_lock lock(d.lock);
    std::set<std::string> seen, expected{".", ".."};
    for (const auto& [name, _] : d.entries) expected.insert(name);
    if (&d == w.moving_in) expected.insert(w.moving_name);
    const auto r = fs.list(d.ref->node, 0, true, [&](const Listed& e) {
      seen.insert(e.name);
      if (e.entry) fs.nodes().forget(e.entry->node, 1);
      return true;
    });
    w.expect(r && seen == expected, "listing", r.error());
  }

  void remove() {
    Dir& d = any_dir();
    const std::string name = any_name();
    std::optional<Entry> e;
    std::shared_ptr<File> file;
    {
      const std::unique_lock lock(d.lock);
      const bool there = d.entries.contains(name);
      e = look(d, name, there, "remove");
      if (!there) return;
      file = file_at(d, name);
      if (file) {
        const std::lock_guard inode(file->inode);
        const auto r = fs.unlink(d.ref->node, name);
        w.expect(r.has_value(), "unlink", r.error());
        --file->links;
      } else {
        const auto r = fs.remove_dir(d.ref->node, name);
        w.expect(r.has_value(), "rmdir", r.error());
      }
      d.entries.erase(name);
    }
    // Still open.
    if (e && file) {
      const auto text = w.v.try_read(e->node);
      w.expect(text && is_content(*text, file->serial), "reading what was removed", text.error());
    }
    forget(e);
  }

  void link() {
    Dir& from = w.dirs[below(kDirs)];
    Dir& to = w.dirs[below(kDirs)];
    const std::string name = any_name(), new_name = any_name();
    std::unique_lock first(from.lock, std::defer_lock), second(to.lock, std::defer_lock);
    lock_both(from, to, first, second);
    const auto file = file_at(from, name);
    if (!file) return;
    const auto e = look(from, name, true, "link");
    if (!e) return;
    const std::lock_guard inode(file->inode);
    const bool there = to.entries.contains(new_name);
    const auto made = fs.link(e->node, to.ref->node, new_name, self());
    w.expect(there ? is_errno(made.error(), EEXIST) : made.has_value() && made->node == e->node && made->attr.st_nlink == file->links + 1, "link",
             made.error());
    if (made) {
      ++file->links;
      to.entries[new_name] = file;
      fs.nodes().forget(made->node, 1);
    }
    forget(e);
  }

  static void lock_both(Dir& a, Dir& b, std::unique_lock<std::shared_mutex>& first, std::unique_lock<std::shared_mutex>& second) {
    if (&a == &b) {
      first.lock();
    } else if (&a < &b) {
      first.lock();
      second.lock();
    } else {
      second.lock();
      first.lock();
    }
  }

  void rename() {
    Dir& from = any_dir();
    Dir& to = any_dir();
    if ((&from == &w.moving) != (&to == &w.moving)) return;  // the kernel's order for these is that of the tree; not modelled
    const std::string name = any_name(), new_name = any_name();
    const unsigned flags = std::array{0u, 0u, 0u, static_cast<unsigned>(RENAME_NOREPLACE), static_cast<unsigned>(RENAME_EXCHANGE)}[below(5)];
    const std::lock_guard moves(w.directory_moves);
    std::unique_lock first(from.lock, std::defer_lock), second(to.lock, std::defer_lock);
    lock_both(from, to, first, second);
    const bool there = from.entries.contains(name), over = to.entries.contains(new_name);
    const auto e = look(from, name, there, "rename");
    const auto victim = look(to, new_name, over, "rename over");
    const auto file = file_at(from, name), replaced = file_at(to, new_name);
    std::unique_lock<std::mutex> inode, other_inode;
    if (file) inode = std::unique_lock(file->inode, std::defer_lock);
    if (replaced && replaced != file) other_inode = std::unique_lock(replaced->inode, std::defer_lock);
    if (inode.mutex() && other_inode.mutex())
      std::lock(inode, other_inode);
    else if (inode.mutex())
      inode.lock();
    else if (other_inode.mutex())
      other_inode.lock();

    const auto r = fs.rename(from.ref->node, name, to.ref->node, new_name, flags);
    int want = 0;
    if (!there)
      want = ENOENT;
    else if (flags == RENAME_EXCHANGE)
      want = over ? 0 : ENOENT;
    else if (over && flags == RENAME_NOREPLACE)
      want = EEXIST;
    else if (over && file && !replaced)
      want = EISDIR;
    else if (over && !file && replaced)
      want = ENOTDIR;
    w.expect(want == 0 ? r.has_value() : is_errno(r.error(), want), "rename, want " + std::to_string(want), r.error());
    if (r && want == 0 && !(&from == &to && name == new_name) && !(file && file == replaced && flags == 0)) {
      if (flags == RENAME_EXCHANGE) {
        from.entries[name] = replaced;
        to.entries[new_name] = file;
      } else {
        if (replaced) --replaced->links;
        from.entries.erase(name);
        to.entries[new_name] = file;
      }
      if (victim && replaced) {
        const auto text = w.v.try_read(victim->node);
        w.expect(text && is_content(*text, replaced->serial), "reading what was replaced", text.error());
      }
    }
    forget(e);
    forget(victim);
  }

  void move_directory() {
    const std::lock_guard moves(w.directory_moves);
    Dir& from = *w.moving_in;
    Dir& to = w.dirs[below(kDirs)];
    std::unique_lock first(from.lock, std::defer_lock), second(to.lock, std::defer_lock);
    lock_both(from, to, first, second);
    const std::string name = "moving" + std::string(below(2) * 200, '-') + std::to_string(below(5));
    const auto r = fs.rename(from.ref->node, w.moving_name, to.ref->node, name, 0);
    w.expect(r.has_value(), "moving the directory", r.error());
    if (!r) return;
    w.moving_in = &to;
    w.moving_name = name;
  }

  void step() {
    switch (below(16)) {
      case 0: case 1: case 2: return create();
      case 3: return make_dir();
      case 4: case 5: case 6: return read();
      case 7: case 8: return list();
      case 9: case 10: return remove();
      case 11: return link();
      case 12: case 13: return rename();
      default: return move_directory();
    }
  }
};

}  // namespace

TEST_SUITE("filesystem") {
  TEST_CASE("filesystem threads: several at once leave the tree that they should") {
    const std::uint64_t seed = env_number("ECFS_SEED", 1);
    const std::uint64_t steps = env_number("ECFS_THREAD_STEPS", 1500);
    for (const std::size_t caches : {2u, 64u}) {
      CAPTURE(caches);
      CAPTURE(seed);
      VolumeOptions o;
      o.max_dirs = caches;
      o.max_files = caches;
      TestVolume v(o);
      {
        World w(v);
        for (std::size_t i = 0; i < kDirs; ++i) {
          // Not all at one level, so that a way down passes a directory that moves.
          w.dirs[i].ref = v.mkdir(i == 3 ? w.dirs[2].ref : v.root(), i == 3 ? "inside" : "dir " + std::to_string(i));
        }
        w.dirs[2].entries["inside"] = nullptr;
        w.moving.ref = v.mkdir(w.dirs[0].ref, w.moving_name);
        std::vector<std::thread> threads;
        for (std::uint64_t t = 0; t < 4; ++t)
          threads.emplace_back([&w, t, seed, steps] {
            Worker worker(w, seed * 100 + t);
            for (std::uint64_t i = 0; i < steps; ++i) worker.step();
          });
        for (auto& t : threads) t.join();
        for (const auto& f : w.faults) FAIL_CHECK(f);

        w.moving_in.load()->entries[w.moving_name] = nullptr;
        for (Dir* d : {&w.dirs[0], &w.dirs[1], &w.dirs[2], &w.dirs[3], &w.moving}) {
          std::set<std::string> expected;
          for (const auto& [name, file] : d->entries) {
            expected.insert(name);
            const Ref found = v.lookup(d->ref, name);
            CHECK((found->node->type == S_IFREG) == (file != nullptr));
            if (!file) continue;
            CHECK(is_content(v.read(found), file->serial));
            CHECK(v.stat(found).st_nlink == file->links);
          }
          CHECK(v.names(d->ref) == expected);
        }
        CHECK(v.fs().nodes().pinned() == 0);
        CHECK(v.fs().nodes().dirs.size() <= caches + 4);
        CHECK(v.fs().nodes().files.size() <= caches + 4);
        // Nothing of the format's own is left of names that are gone.
        for (const auto& d : w.dirs) {
          const auto names = TestVolume::lower_names(v.path() + "/" + v.fs().lower_path_of(d.ref->node));
          const auto with = [&](std::string_view prefix) { return std::count_if(names.begin(), names.end(), [&](const auto& n) { return n.starts_with(prefix); }); };
          CHECK(with(kLongPrefix) == with(kLongNamePrefix));
        }
      }
      const Snapshot before = v.snapshot();
      v.check_clean();
      CHECK(v.snapshot() == before);
      CHECK(v.fs().damage().blocks + v.fs().damage().headers + v.fs().damage().directories + v.fs().damage().foreign == 0);
    }
  }
}
