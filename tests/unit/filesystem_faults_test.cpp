// SPDX-License-Identifier: GPL-3.0-or-later
// The lower filesystem fails at the n-th call of an operation, for every n: the tree is afterwards as before or as after the operation, by
// the Filesystem at hand and by one that opens it anew; nothing is left known or open; and the operation works when it is tried again.
#include <linux/fs.h>

#include <functional>

#include "daemon_support.hpp"

namespace {

using namespace ecfs;
using namespace ecfs::test;
using daemon::AttrChange;
using lower::Call;
using lower::Op;
using lower::Verdict;

const std::string kLong(255, 'L');
const std::string kOtherLong(200, 'O');
const std::string kLongTarget(4000, 't');

// Where operations start from. What the kernel would have looked up for them is held.
struct Start {
  Ref root, dir, other, empty, file, link, long_file, long_link;
};

void plant(TestVolume& v) {
  const Ref root = v.root();
  const Ref dir = v.mkdir(root, "dir");
  v.mkdir(root, "other");
  v.mkdir(root, "empty");
  v.mkdir(root, kOtherLong);
  v.create(dir, "file", "content");
  v.create(dir, kLong, "long content");
  v.symlink(dir, "link", "target");
  v.symlink(dir, "long link", kLongTarget);
}

Start hold(TestVolume& v) {
  Start s;
  s.root = v.root();
  s.dir = v.lookup(s.root, "dir");
  s.other = v.lookup(s.root, "other");
  s.empty = v.lookup(s.root, "empty");
  s.file = v.lookup(s.dir, "file");
  s.link = v.lookup(s.dir, "link");
  s.long_file = v.lookup(s.dir, kLong);
  s.long_link = v.lookup(s.dir, "long link");
  return s;
}

struct Operation {
  const char* name;
  std::function<std::error_code(TestVolume&, const Start&)> run;
};

std::vector<Operation> operations() {
  return {
      {"mkdir", [](TestVolume& v, const Start& s) { return v.drop(v.fs().make_dir(s.other->node, "new", 0755, self())); }},
      {"mkdir 0000", [](TestVolume& v, const Start& s) { return v.drop(v.fs().make_dir(s.other->node, "new", 0, self())); }},
      {"mkdir long", [](TestVolume& v, const Start& s) { return v.drop(v.fs().make_dir(s.other->node, kLong, 0755, self())); }},
      {"create", [](TestVolume& v, const Start& s) { return v.drop(v.fs().make_node(s.dir->node, "new", S_IFREG | 0644, 0, self())); }},
      {"create long", [](TestVolume& v, const Start& s) { return v.drop(v.fs().make_node(s.dir->node, kOtherLong, S_IFREG | 0444, 0, self())); }},
      {"fifo", [](TestVolume& v, const Start& s) { return v.drop(v.fs().make_node(s.dir->node, "new", S_IFIFO | 0644, 0, self())); }},
      {"symlink", [](TestVolume& v, const Start& s) { return v.drop(v.fs().make_symlink(s.dir->node, "new", "somewhere", self())); }},
      {"symlink, long target", [](TestVolume& v, const Start& s) { return v.drop(v.fs().make_symlink(s.dir->node, "new", kLongTarget, self())); }},
      {"link long", [](TestVolume& v, const Start& s) { return v.drop(v.fs().link(s.file->node, s.other->node, kLong, self())); }},
      {"unlink", [](TestVolume& v, const Start& s) { return v.unlink(s.dir, "file"); }},
      {"unlink long", [](TestVolume& v, const Start& s) { return v.unlink(s.dir, kLong); }},
      {"unlink link with long target", [](TestVolume& v, const Start& s) { return v.unlink(s.dir, "long link"); }},
      {"rmdir", [](TestVolume& v, const Start& s) { return v.rmdir(s.root, "empty"); }},
      {"rmdir long", [](TestVolume& v, const Start& s) { return v.rmdir(s.root, kOtherLong); }},
      {"rename", [](TestVolume& v, const Start& s) { return v.rename(s.dir, "file", s.other, "new"); }},
      {"rename to long", [](TestVolume& v, const Start& s) { return v.rename(s.dir, "file", s.other, kOtherLong); }},
      {"rename long to long", [](TestVolume& v, const Start& s) { return v.rename(s.dir, kLong, s.dir, kOtherLong); }},
      {"rename long to short", [](TestVolume& v, const Start& s) { return v.rename(s.dir, kLong, s.other, "short"); }},
      {"rename over file", [](TestVolume& v, const Start& s) { return v.rename(s.dir, "file", s.dir, kLong); }},
      {"rename over link with long target", [](TestVolume& v, const Start& s) { return v.rename(s.dir, "file", s.dir, "long link"); }},
      {"rename over directory", [](TestVolume& v, const Start& s) { return v.rename(s.root, "dir", s.root, "empty"); }},
      {"rename over long directory", [](TestVolume& v, const Start& s) { return v.rename(s.root, "dir", s.root, kOtherLong); }},
      {"exchange", [](TestVolume& v, const Start& s) { return v.rename(s.dir, kLong, s.root, "empty", RENAME_EXCHANGE); }},
      {"truncate to nothing", [](TestVolume& v, const Start& s) {
         AttrChange c;
         c.size = 0;
         return v.fs().change_attributes(s.file->node, c).error();
       }},
      {"write", [](TestVolume& v, const Start& s) { return v.fs().write(s.file->node, 0, as_bytes("CONTENT"), false).error(); }},
  };
}

struct Totals {
  int faults = 0, refused = 0;
};

void try_operation(const VolumeOptions& options, const Operation& op, bool hold_all, int error, Totals& totals) {
  const std::string what = std::string(op.name) + (error == EIO ? ", EIO" : ", ENOSPC") + (hold_all ? "" : ", nothing else known");
  const Snapshot after = [&] {
    TestVolume clean(options);
    plant(clean);
    const Start s = hold(clean);
    REQUIRE(!op.run(clean, s));
    return clean.snapshot();
  }();
  for (int n = 1;; ++n) {
    INFO(what, ", ", std::string(word(options.names)), " names, caches of ", options.max_dirs, ", n=", n);
    TestVolume v(options);
    plant(v);
    const Snapshot before = v.snapshot();
    v.open();  // nothing is cached from the planting
    std::error_code outcome;
    bool hit = false;
    std::string failed;
    {
      Start s = hold(v);
      if (!hold_all) s.long_file = s.link = s.long_link = nullptr;
      {
        int calls = 0;
        const LowerHook hook([&](const Call& c) -> Verdict {
          if (++calls != n) return {};
          hit = true;
          failed = "call " + std::to_string(static_cast<int>(c.op)) + (c.name ? std::string(" of ") + c.name : std::string());
          return {.error = error};
        });
        outcome = op.run(v, s);
      }
      if (!hit) {
        CHECK(!outcome);
        CHECK(n > 1);
        break;
      }
      INFO(failed);
      ++totals.faults;
      totals.refused += outcome ? 1 : 0;
      // What the kernel holds is where it thinks it is, or gone.
      const Snapshot now = v.snapshot();
      if (outcome) {
        const bool legal = now == before || now == after;
        CHECK(legal);
      } else {
        CHECK(now == after);
      }
      // Files that are held still read, wherever they are now.
      if (now == before) CHECK(v.read(s.file) == "content");
      CHECK(v.fs().attributes(s.dir->node));
      CHECK(v.fs().attributes(s.empty->node));
      CHECK(v.fs().nodes().pinned() <= (now == before ? 0 : 1));
      // Again, and now it works.
      if (outcome && now == before) {
        const std::error_code again = op.run(v, s);
        CHECK_MESSAGE(!again, again.message());
        CHECK(v.snapshot() == after);
      }
    }
    const Snapshot last = v.snapshot();
    v.check_clean();
    CHECK(v.snapshot() == last);
    CHECK(v.fs().damage().directories == 0);
    // Every directory that is empty can be removed, everything else too.
    {
      const std::function<void(const Ref&)> clear = [&](const Ref& dir) {
        for (const auto& name : v.names(dir)) {
          const Ref entry = v.lookup(dir, name);
          if (entry->node->type == S_IFDIR) clear(entry);
          const auto e = entry->node->type == S_IFDIR ? v.rmdir(dir, name) : v.unlink(dir, name);
          CHECK_MESSAGE(!e, "removing: ", e.message());
        }
      };
      clear(v.root());
    }
    v.check_clean();
  }
}

}  // namespace

TEST_SUITE("filesystem") {
  TEST_CASE("filesystem faults: every lower call of every operation fails once") {
    Totals totals;
    VolumeOptions encrypted, small, plain;
    small.max_dirs = 1;  // every operation has to find its way down again
    small.max_files = 1;
    plain.names = NameMode::plain;
    for (const auto& op : operations()) {
      try_operation(encrypted, op, true, EIO, totals);
      try_operation(small, op, true, ENOSPC, totals);
      try_operation(small, op, false, EIO, totals);
      try_operation(plain, op, true, EIO, totals);
    }
    MESSAGE(totals.faults, " faults, ", totals.refused, " of them told");
    CHECK(totals.faults > 500);
    CHECK(totals.refused > totals.faults / 2);
  }

  TEST_CASE("filesystem faults: listing and looking up") {
    VolumeOptions o;
    o.max_dirs = 1;
    TestVolume v(o);
    plant(v);
    for (const bool with_attributes : {false, true}) {
      std::set<std::string> all;
      for (int n = 1;; ++n) {
        CAPTURE(n);
        v.open();
        bool hit = false;
        {
          const Ref dir = v.walk("dir");
          v.walk("other");  // takes the place in the cache
          std::set<std::string> seen;
          std::vector<NodePtr> held;
          int calls = 0;
          Result<void> r;
          {
            const LowerHook hook([&](const Call&) -> Verdict { return {.error = ++calls == n ? ((hit = true), EIO) : 0}; });
            r = v.fs().list(dir->node, 0, with_attributes, [&](const Listed& e) {
              seen.insert(e.name);
              if (e.entry) held.push_back(e.entry->node);
              return true;
            });
          }
          for (const auto& node : held) v.fs().nodes().forget(node, 1);
          if (!hit) {
            CHECK(r);
            CHECK(seen.size() == 6);
          }
          CHECK(v.names(dir).size() == 4);
        }
        v.check_clean();
        if (!hit) break;
      }
    }
    for (const char* path : {"file", "link", "long link", "none"})
      for (int n = 1;; ++n) {
        CAPTURE(path);
        CAPTURE(n);
        v.open();
        bool hit = false;
        {
          const Ref dir = v.walk("dir");
          int calls = 0;
          std::error_code e;
          {
            const LowerHook hook([&](const Call&) -> Verdict { return {.error = ++calls == n ? ((hit = true), EIO) : 0}; });
            e = v.lookup_error(dir, path);
          }
          const bool none = std::string(path) == "none";
          const bool right = none ? is_errno(e, ENOENT) : !e;
          CHECK((right || (hit && is_errno(e, EIO))));
          CHECK(v.exists(dir, path) == !none);
        }
        v.check_clean();
        if (!hit) break;
      }
  }

  TEST_CASE("filesystem faults: a full lower filesystem refuses what takes room, and lets room be made") {
    TestVolume v;
    plant(v);
    const Snapshot before = v.snapshot();
    {
      const Start s = hold(v);
      const LowerHook hook([](const Call& c) -> Verdict {
        const bool takes = c.op == Op::pwrite || c.op == Op::fallocate || c.op == Op::mkdir || c.op == Op::mknod || c.op == Op::symlink ||
                           c.op == Op::link || c.op == Op::setxattr;
        return {.error = takes ? ENOSPC : 0};
      });
      CHECK(is_errno(v.drop(v.fs().make_dir(s.other->node, "new", 0755, self())), ENOSPC));
      CHECK(is_errno(v.drop(v.fs().make_symlink(s.dir->node, "new", "x", self())), ENOSPC));
      CHECK(is_errno(v.drop(v.fs().make_symlink(s.dir->node, "new", kLongTarget, self())), ENOSPC));
      CHECK(is_errno(v.drop(v.fs().make_node(s.dir->node, kOtherLong, S_IFREG | 0644, 0, self())), ENOSPC));
      CHECK(is_errno(v.drop(v.fs().link(s.file->node, s.other->node, "new", self())), ENOSPC));
      CHECK(is_errno(v.rename(s.dir, "file", s.dir, kOtherLong), ENOSPC));
      CHECK(is_errno(v.fs().write(s.file->node, 0, as_bytes("x"), false).error(), ENOSPC));
      CHECK(is_errno(v.fs().set_xattr(s.file->node, "user.a", "x", 0).error(), ENOSPC));
      CHECK(v.snapshot() == before);
      CHECK(v.read(s.file) == "content");
      CHECK(!v.unlink(s.dir, "file"));
      CHECK(!v.unlink(s.dir, kLong));
      CHECK(!v.unlink(s.dir, "long link"));
      CHECK(!v.rmdir(s.root, "empty"));
      CHECK(!v.rename(s.root, "dir", s.root, kOtherLong));
    }
    v.check_clean();
    CHECK(v.snapshot() == Snapshot{{kOtherLong, "dir"}, {kOtherLong + "/link", "link target"}, {"other", "dir"}});
  }
}
