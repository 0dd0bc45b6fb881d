// SPDX-License-Identifier: GPL-3.0-or-later
// The namespace on a temporary directory, without libfuse: every operation, what is remembered of it, and that nothing is left open.
#include <linux/falloc.h>
#include <linux/fs.h>

#include <atomic>
#include <functional>
#include <random>
#include <thread>

#include "daemon_support.hpp"

namespace {

using namespace ecfs;
using namespace ecfs::test;
using daemon::AttrChange;
using lower::Call;
using lower::Op;
using lower::Verdict;

// Each way to keep names: as they are, encrypted, and with every name of more than 33 bytes a long one.
std::vector<VolumeOptions> name_modes() {
  VolumeOptions plain, encrypted, all_long;
  plain.names = NameMode::plain;
  all_long.long_name_max = 64;
  return {encrypted, all_long, plain};
}
std::string mode_text(const VolumeOptions& o) {
  return std::string(word(o.names)) + " names, long over " + std::to_string(o.long_name_max);
}

const std::string kLongName(255, 'n');
const std::string kMiddleName(60, 'm');  // long where long_name_max is 64

bool is(const std::error_code& e, int want) { return is_errno(e, want); }

// How many of the format's own files lie in a lower directory.
std::size_t own_files(const std::string& lower_dir, std::string_view prefix) {
  const auto names = TestVolume::lower_names(lower_dir);
  return static_cast<std::size_t>(std::count_if(names.begin(), names.end(), [&](const auto& n) { return n.starts_with(prefix); }));
}

std::string raw_xattr(const std::string& path, const char* name) {
  std::string value(65536, '\0');
  const ssize_t n = ::lgetxattr(path.c_str(), name, value.data(), value.size());
  if (n < 0) return {};
  value.resize(static_cast<std::size_t>(n));
  return value;
}

void write_raw(const std::string& path, std::string_view content) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out << content;
  REQUIRE_MESSAGE(out.good(), "cannot write ", path);
}

}  // namespace

TEST_SUITE("filesystem") {
  TEST_CASE("filesystem: what is made is found, listed and read again, in every name mode") {
    for (const auto& mode : name_modes()) {
      CAPTURE(mode_text(mode));
      TestVolume v(mode);
      Snapshot expected{{"dir", "dir"},
                        {"dir/link", "link ../somewhere/else"},
                        {"dir/pipe", "fifo"},
                        {"dir/d" + kMiddleName, "dir"},
                        {"dir/d" + kMiddleName + "/inner", "dir"},
                        {"dir/d" + kMiddleName + "/inner/leaf", "file x"}};
      {
        const Ref root = v.root();
        const Ref dir = v.mkdir(root, "dir");
        for (const std::string& name : {std::string("a"), std::string("with space"), std::string("\xff\x01"), std::string("ends."), kMiddleName, kLongName}) {
          const Ref file = v.create(dir, name, "content of " + name);
          CHECK(S_ISREG(file->attr.st_mode));
          CHECK((file->attr.st_mode & 07777) == 0644);
          CHECK(v.stat(file).st_size == static_cast<off_t>(11 + name.size()));
          expected["dir/" + name] = "file content of " + name;
        }
        const Ref deep = v.mkdir(v.mkdir(dir, "d" + kMiddleName), "inner");
        v.create(deep, "leaf", "x");
        v.symlink(dir, "link", "../somewhere/else");
        v.drop(v.fs().make_node(dir->node, "pipe", S_IFIFO | 0600, 0, self()));
        CHECK(v.snapshot() == expected);
        CHECK(v.stat(dir).st_nlink == 3);
        CHECK(v.stat(root).st_nlink == 3);

        CHECK(is(v.lookup_error(dir, "none"), ENOENT));
        CHECK(is(v.lookup_error(dir, std::string(256, 'x')), ENAMETOOLONG));
        CHECK(is(v.drop(v.fs().make_node(dir->node, "a", S_IFREG | 0644, 0, self())), EEXIST));
        CHECK(is(v.drop(v.fs().make_node(dir->node, kLongName, S_IFREG | 0644, 0, self())), EEXIST));
        CHECK(is(v.drop(v.fs().make_dir(dir->node, "link", 0755, self())), EEXIST));
        CHECK(is(v.drop(v.fs().make_symlink(dir->node, kMiddleName, "x", self())), EEXIST));
        CHECK(is(v.drop(v.fs().make_node(dir->node, std::string(256, 'x'), S_IFREG | 0644, 0, self())), ENAMETOOLONG));
        CHECK(is(v.unlink(dir, "none"), ENOENT));
        CHECK(is(v.unlink(root, "dir"), EISDIR));
        CHECK(is(v.rmdir(dir, "a"), ENOTDIR));
        CHECK(is(v.rmdir(root, "dir"), ENOTEMPTY));
        // What was refused left nothing behind, and took nothing away.
        CHECK(v.snapshot() == expected);
        // No plaintext name is a lower name, but where names are plain.
        const auto lower_names = TestVolume::lower_names(v.lower("/dir"));
        CHECK(lower_names.contains("link") == (mode.names == NameMode::plain));
        CHECK(lower_names.contains("ecfs.dir") == (mode.names == NameMode::encrypted));
      }
      v.check_clean();
      CHECK(v.snapshot() == expected);
      v.check_clean();
    }
  }

  TEST_CASE("filesystem: plain names reserve the format's own in the root alone") {
    VolumeOptions o;
    o.names = NameMode::plain;
    TestVolume v(o);
    {
      const Ref root = v.root();
      CHECK(is(v.lookup_error(root, "ecfs.volume"), ENOENT));
      CHECK(is(v.drop(v.fs().make_node(root->node, "ecfs.volume", S_IFREG | 0600, 0, self())), EPERM));
      CHECK(is(v.drop(v.fs().make_dir(root->node, "ecfs.x", 0700, self())), EPERM));
      write_raw(v.path() + "/ecfs.volume", "hidden");
      const Ref dir = v.mkdir(root, "dir");
      v.create(dir, "ecfs.volume", "not special here");
      CHECK(v.names(dir) == std::set<std::string>{"ecfs.volume"});
      CHECK(v.names(root) == std::set<std::string>{"dir"});
      CHECK(is(v.rename(dir, "ecfs.volume", root, "ecfs.volume"), EPERM));
      CHECK(read_file(v.path() + "/ecfs.volume") == "hidden");
    }
    v.check_clean();
  }

  TEST_CASE("filesystem: reading, writing and sizes through nodes") {
    for (const Suite suite : {Suite::aes_256_gcm, Suite::chacha20_poly1305}) {
      VolumeOptions o;
      o.suite = suite;
      TestVolume v(o);
      std::string expected;
      {
        const Ref root = v.root();
        const Ref file = v.create(root, "file");
        std::string model;
        std::mt19937 random(1);
        for (int i = 0; i < 40; ++i) {
          const std::size_t off = random() % 20000, n = 1 + random() % 6000;
          const std::string part(n, static_cast<char>('a' + i % 26));
          if (model.size() < off + n) model.resize(off + n, '\0');
          model.replace(off, n, part);
          v.write(file, part, off);
          CHECK(v.stat(file).st_size == static_cast<off_t>(model.size()));
        }
        CHECK(v.read(file) == model);
        AttrChange cut;
        cut.size = 5000;
        CHECK(v.fs().change_attributes(file->node, cut).value().st_size == 5000);
        model.resize(5000);
        cut.size = 9000;
        CHECK(v.fs().change_attributes(file->node, cut).value().st_size == 9000);
        model.resize(9000, '\0');
        CHECK(v.fs().allocate(file->node, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 100, 200));
        model.replace(100, 200, 200, '\0');
        CHECK(v.fs().allocate(file->node, 0, 9000, 1000));
        model.resize(10000, '\0');
        CHECK(is(v.fs().allocate(file->node, FALLOC_FL_COLLAPSE_RANGE, 0, 4096).error(), EOPNOTSUPP));
        CHECK(is(v.fs().allocate(file->node, FALLOC_FL_PUNCH_HOLE, 0, 4096).error(), EOPNOTSUPP));
        CHECK(v.read(file) == model);
        CHECK(is(v.fs().seek(file->node, 10000, SEEK_DATA).error(), ENXIO));
        CHECK(v.fs().seek(file->node, 0, SEEK_DATA).value() == 0);
        CHECK(is(v.fs().seek(file->node, 0, SEEK_CUR).error(), EINVAL));
        CHECK(v.fs().sync(file->node, false));
        CHECK(v.fs().sync(file->node, true));
        CHECK(v.fs().sync_dir(root->node, false));
        CHECK(is(v.try_read(root->node).error(), EISDIR));
        expected = model;
      }
      v.check_clean();
      CHECK(v.read(v.walk("file")) == expected);
    }
  }

  TEST_CASE("filesystem: symlinks of every length") {
    for (const auto& mode : name_modes()) {
      CAPTURE(mode_text(mode));
      TestVolume v(mode);
      {
        const Ref dir = v.mkdir(v.root(), "dir");
        for (const std::size_t n : {1u, 2u, 3u, 100u, 3000u, 3026u, 3027u, 3028u, 4000u, 4095u}) {
          CAPTURE(n);
          const std::string target(n, 't');
          const std::string name = "l" + std::to_string(n);
          const Ref link = v.symlink(dir, name, target);
          CHECK(S_ISLNK(link->attr.st_mode));
          CHECK(link->attr.st_size == static_cast<off_t>(n));
          CHECK(v.fs().read_link(link->node).value() == target);
          CHECK(v.lookup(dir, name)->attr.st_size == static_cast<off_t>(n));
        }
        CHECK(own_files(v.path(), kTargetPrefix) >= 2);
        CHECK(own_files(v.lower("/dir"), kTargetPrefix) == 0);
        CHECK(is(v.drop(v.fs().make_symlink(dir->node, "l", "", self())), ENOENT));
        CHECK(is(v.drop(v.fs().make_symlink(dir->node, "l", std::string(4096, 't'), self())), ENAMETOOLONG));
        // A long target stays with the link, wherever it is moved and whatever other names it gets, and goes with the last of them.
        const std::string target(4095, 't');
        CHECK(!v.rename(dir, "l4095", v.root(), kLongName));
        const Ref moved = v.lookup(v.root(), kLongName);
        v.drop(v.fs().link(moved->node, dir->node, "other", self()));
        CHECK(!v.unlink(v.root(), kLongName));
        CHECK(v.fs().read_link(v.lookup(dir, "other")->node).value() == target);
        const std::size_t before = own_files(v.path(), kTargetPrefix);
        v.create(dir, "over", "x");
        CHECK(!v.rename(dir, "over", dir, "other"));
        CHECK(own_files(v.path(), kTargetPrefix) == before - 1);
        for (const auto& name : v.names(dir)) CHECK(!v.unlink(dir, name));
        CHECK(own_files(v.path(), kTargetPrefix) == 0);
      }
      v.check_clean();
    }
  }

  TEST_CASE("filesystem: a lower filesystem with short links gets the target beside the link") {
    TestVolume v;
    {
      const Ref root = v.root();
      // XFS takes 1024 bytes.
      const LowerHook hook([](const Call&) { return Verdict{}; });
      std::set<std::string> refused;
      lower::set_hook([&](const Call& c) -> Verdict {
        if (c.op != Op::symlink || c.name == nullptr) return {};
        return refused.insert(c.name).second ? Verdict{.error = ENAMETOOLONG} : Verdict{};
      });
      const Ref link = v.symlink(root, "link", std::string(900, 'a'));
      CHECK(refused.size() == 1);
      CHECK(link->attr.st_size == 900);
      CHECK(v.fs().read_link(link->node).value() == std::string(900, 'a'));
      CHECK(own_files(v.path(), kTargetPrefix) == 1);
      // Even that is too long: then nothing is left of it.
      lower::set_hook([](const Call& c) -> Verdict { return {.error = c.op == Op::symlink ? ENAMETOOLONG : 0}; });
      CHECK(is(v.drop(v.fs().make_symlink(root->node, "no", "target", self())), ENAMETOOLONG));
      lower::set_hook(nullptr);
      CHECK(own_files(v.path(), kTargetPrefix) == 1);
      CHECK(v.names(root) == std::set<std::string>{"link"});
      CHECK(!v.unlink(root, "link"));
      CHECK(own_files(v.path(), kTargetPrefix) == 0);
    }
    v.check_clean();
  }

  TEST_CASE("filesystem: a damaged link target is told and harms nothing else") {
    TestVolume v;
    {
      const Ref root = v.root();
      v.symlink(root, "long", std::string(4000, 'x'));
      v.symlink(root, "short", "target");
      for (const auto& n : TestVolume::lower_names(v.path()))
        if (n.starts_with(kTargetPrefix)) {
          std::filesystem::permissions(v.path() + "/" + n, std::filesystem::perms::owner_all);
          write_raw(v.path() + "/" + n, "not what it was");
        }
      const std::string lower = v.lower("/short");
      std::filesystem::remove(lower);
      std::filesystem::create_symlink(std::string(68, 'A'), lower);
      CHECK(v.fs().read_link(v.lookup(root, "long")->node).error() == Errc::damaged_name);
      CHECK(v.fs().read_link(v.lookup(root, "short")->node).error() == Errc::damaged_name);
      CHECK(v.fs().damage().names == 2);
      CHECK(v.names(root) == std::set<std::string>{"long", "short"});
      CHECK(!v.unlink(root, "long"));
      CHECK(!v.unlink(root, "short"));
    }
    v.check_clean();
  }

  TEST_CASE("filesystem: renaming over files, directories, long names and short ones") {
    for (const auto& mode : name_modes()) {
      CAPTURE(mode_text(mode));
      TestVolume v(mode);
      const std::vector<std::string> all{"short", kMiddleName, kLongName};
      {
        const Ref root = v.root();
        const Ref a = v.mkdir(root, "a"), b = v.mkdir(root, "b");
        for (const auto& from : all)
          for (const auto& to : all)
            for (const Ref& target_dir : {a, b})
              for (const bool over : {false, true}) {
                CAPTURE(from.size());
                CAPTURE(to.size());
                CAPTURE(over);
                if (target_dir == a && from == to) continue;
                {
                  const Ref file = v.create(a, from, "moved");
                  Ref victim;
                  if (over) victim = v.create(target_dir, to, "replaced");
                  REQUIRE(!v.rename(a, from, target_dir, to));
                  CHECK(is(v.lookup_error(a, from), ENOENT));
                  const Ref found = v.lookup(target_dir, to);
                  CHECK(found->node == file->node);
                  CHECK(v.read(found) == "moved");
                  v.write(file, "still mine");
                  CHECK(v.read(found) == "still mine");
                  // Whoever had the replaced one open still has it.
                  if (victim) {
                    CHECK(v.read(victim) == "replaced");
                    CHECK(v.stat(victim).st_nlink == 0);
                    CHECK(v.fs().nodes().pinned() == 1);
                  }
                }
                CHECK(v.fs().nodes().pinned() == 0);
                CHECK(v.names(target_dir) == std::set<std::string>{to});
                REQUIRE(!v.unlink(target_dir, to));
                CHECK(own_files(v.lower("/a"), kLongNamePrefix) == 0);
                CHECK(own_files(v.lower("/b"), kLongNamePrefix) == 0);
              }
      }
      v.check_clean();
    }
  }

  TEST_CASE("filesystem: renaming directories") {
    for (const auto& mode : name_modes()) {
      CAPTURE(mode_text(mode));
      TestVolume v(mode);
      {
        const Ref root = v.root();
        const Ref a = v.mkdir(root, "a"), b = v.mkdir(root, "b");
        v.create(a, "file", "in a");
        v.create(a, kLongName, "long in a");
        CHECK(is(v.rename(b, "none", root, "c"), ENOENT));
        CHECK(is(v.rename(root, "b", root, "a"), ENOTEMPTY));
        v.create(root, "plain file", "x");
        CHECK(is(v.rename(root, "plain file", root, "b"), EISDIR));
        CHECK(is(v.rename(root, "b", root, "plain file"), ENOTDIR));
        CHECK(is(v.rename(root, "a", a, "inside"), EINVAL));
        // The replaced one is empty, but for what is ours; who has it open still has it. Children stay where their directory is.
        const Ref file = v.lookup(a, "file");
        CHECK(!v.rename(root, "a", root, "b"));
        CHECK(v.stat(b).st_nlink == 0);
        CHECK(is(v.drop(v.fs().make_node(b->node, "in nowhere", S_IFREG | 0644, 0, self())), ENOENT));
        CHECK(v.fs().nodes().pinned() == 1);
        CHECK(v.read(file) == "in a");
        CHECK(v.snapshot() == Snapshot{{"b", "dir"}, {"b/file", "file in a"}, {"b/" + kLongName, "file long in a"}, {"plain file", "file x"}});
        // Back and forth between long and short names, under its children's feet.
        for (const auto& [from, to] : {std::pair{std::string("b"), kLongName}, std::pair{kLongName, kMiddleName}, std::pair{kMiddleName, std::string("a")}}) {
          CHECK(!v.rename(root, from, root, to));
          CHECK(v.read(file) == "in a");
          v.write(file, "in a");
          CHECK(v.names(a) == std::set<std::string>{"file", kLongName});
        }
        CHECK(own_files(v.path(), kLongNamePrefix) == 0);
      }
      v.check_clean();
    }
  }

  TEST_CASE("filesystem: a refused rename over an empty directory leaves it whole") {
    TestVolume v;
    {
      const Ref root = v.root();
      const Ref a = v.mkdir(root, "a"), inner = v.mkdir(a, "inner");
      const std::string record = read_file(v.lower("/a/inner") + "/ecfs.dir");
      CHECK(is(v.rename(root, "a", a, "inner"), EINVAL));
      CHECK(read_file(v.lower("/a/inner") + "/ecfs.dir") == record);
      v.create(inner, "file", "works");
      CHECK(v.names(inner) == std::set<std::string>{"file"});
      CHECK(v.fs().nodes().pinned() == 0);
    }
    v.check_clean();
    CHECK(v.snapshot().at("a/inner/file") == "file works");
  }

  TEST_CASE("filesystem: EXCHANGE and NOREPLACE") {
    for (const auto& mode : name_modes()) {
      CAPTURE(mode_text(mode));
      TestVolume v(mode);
      {
        const Ref root = v.root();
        const Ref dir = v.mkdir(root, "dir");
        const Ref file = v.create(root, kLongName, "a file");
        const Ref inside = v.create(dir, "inside", "in the directory");
        CHECK(is(v.rename(root, kLongName, root, "dir", RENAME_NOREPLACE), EEXIST));
        CHECK(is(v.rename(root, kLongName, root, "none", RENAME_EXCHANGE), ENOENT));
        CHECK(is(v.rename(root, "none", root, "dir", RENAME_EXCHANGE), ENOENT));
        CHECK(is(v.rename(root, kLongName, root, "dir", RENAME_WHITEOUT | RENAME_EXCHANGE), EINVAL));
        CHECK(!v.rename(root, kLongName, root, "dir", RENAME_EXCHANGE));
        CHECK(v.lookup(root, "dir")->node == file->node);
        CHECK(v.lookup(root, kLongName)->node == dir->node);
        CHECK(v.read(file) == "a file");
        CHECK(v.read(inside) == "in the directory");
        v.create(dir, "new", "after");
        CHECK(v.snapshot() == Snapshot{{"dir", "file a file"}, {kLongName, "dir"}, {kLongName + "/inside", "file in the directory"}, {kLongName + "/new", "file after"}});
        // Two names of one file.
        v.drop(v.fs().link(file->node, root->node, "second", self()));
        CHECK(!v.rename(root, "dir", root, "second", RENAME_EXCHANGE));
        CHECK(!v.rename(root, "dir", root, "second"));
        CHECK(is(v.rename(root, "dir", root, "second", RENAME_NOREPLACE), EEXIST));
        CHECK(v.stat(file).st_nlink == 2);
        CHECK(!v.unlink(root, "second"));
        CHECK(!v.rename(root, "dir", root, "only", RENAME_NOREPLACE));
        CHECK(!v.rename(root, "only", root, "only"));
        CHECK(v.read(file) == "a file");
        CHECK(v.names(root) == std::set<std::string>{"only", kLongName});
        // What overlayfs asks for: a device 0:0 stays in the old place.
        CHECK(!v.rename(root, "only", root, "moved", RENAME_WHITEOUT));
        CHECK(v.read(file) == "a file");
        const auto left = v.lookup(root, "only");
        CHECK((S_ISCHR(left->attr.st_mode) && left->attr.st_rdev == 0));
        CHECK(!v.rename(root, "moved", root, "only"));
      }
      v.check_clean();
    }
  }

  TEST_CASE("filesystem: hard links, their names removed one by one") {
    for (const auto& mode : name_modes()) {
      CAPTURE(mode_text(mode));
      TestVolume v(mode);
      {
        const Ref root = v.root();
        const Ref dir = v.mkdir(root, "dir");
        const std::vector<std::pair<Ref, std::string>> links{{root, "one"}, {dir, "two"}, {dir, kLongName}, {root, kMiddleName}};
        // In either order; a name that the kernel never looked up is among them.
        for (const bool backwards : {false, true}) {
          CAPTURE(backwards);
          {
            Ref file = v.create(root, "one", "shared");
            for (std::size_t i = 1; i < links.size(); ++i) {
              const Ref link = v.keep(v.fs().link(file->node, links[i].first->node, links[i].second, self()), links[i].first);
              CHECK(link->node == file->node);
              CHECK(link->attr.st_nlink == i + 1);
            }
            auto order = links;
            if (backwards) std::reverse(order.begin(), order.end());
            for (std::size_t i = 0; i < order.size(); ++i) {
              REQUIRE(!v.unlink(order[i].first, order[i].second));
              CHECK(v.stat(file).st_nlink == order.size() - 1 - i);
              CHECK(v.read(file) == "shared");
              v.write(file, "shared");
              CHECK(v.fs().nodes().pinned() == (i + 1 == order.size() ? 1 : 0));
              for (std::size_t j = i + 1; j < order.size(); ++j) CHECK(v.lookup(order[j].first, order[j].second)->node == file->node);
            }
            CHECK(is(v.drop(v.fs().link(file->node, root->node, "again", self())), ENOENT));
          }
          CHECK(v.fs().nodes().pinned() == 0);
        }
        CHECK(v.snapshot() == Snapshot{{"dir", "dir"}});
        CHECK(own_files(v.path(), kLongNamePrefix) == 0);
        CHECK(own_files(v.lower("/dir"), kLongNamePrefix) == 0);

        // A name that was made by another session: the kernel knows one of two.
        v.create(root, "known", "x");
        v.drop(v.fs().link(v.lookup(root, "known")->node, root->node, "unknown", self()));
      }
      v.check_clean();
      {
        const Ref root = v.root();
        const Ref file = v.lookup(root, "known");
        CHECK(!v.unlink(root, "known"));
        CHECK(v.stat(file).st_nlink == 1);
        CHECK(v.read(file) == "x");
        const Ref other = v.lookup(root, "unknown");
        CHECK(other->node == file->node);
        CHECK(v.fs().nodes().pinned() == 0);
        CHECK(!v.rename(root, "unknown", root, "third"));
        CHECK(v.read(file) == "x");
        CHECK(is(v.drop(v.fs().link(v.root()->node, root->node, "dir link", self())), EPERM));
      }
      v.check_clean();
    }
  }

  TEST_CASE("filesystem: what is unlinked or replaced while it is open stays usable") {
    TestVolume v;
    {
      const Ref root = v.root();
      const Ref file = v.create(root, "file", "before");
      const Ref dir = v.mkdir(root, "dir"), link = v.symlink(root, "link", "target");
      const Ref pipe = v.keep(v.fs().make_node(root->node, "pipe", S_IFIFO | 0644, 0, self()), root);
      for (const char* name : {"file", "link", "pipe"}) REQUIRE(!v.unlink(root, name));
      REQUIRE(!v.rmdir(root, "dir"));
      CHECK(v.fs().nodes().pinned() == 4);
      CHECK(v.names(root).empty());
      CHECK(v.stat(file).st_nlink == 0);
      CHECK(v.stat(dir).st_nlink == 0);
      CHECK(v.stat(link).st_size == 6);
      CHECK(v.fs().read_link(link->node).value() == "target");
      CHECK(S_ISFIFO(v.stat(pipe).st_mode));

      v.write(file, std::string(10000, 'z'), 3);
      CHECK(v.read(file) == "bef" + std::string(10000, 'z'));
      v.fs().nodes().files.drop(*file->node);  // as the cache does when others need the descriptors
      CHECK(v.read(file) == "bef" + std::string(10000, 'z'));
      AttrChange c;
      c.mode = 0600;
      c.size = 2;
      c.mtime = timespec{1000, 5};
      const auto changed = v.fs().change_attributes(file->node, c);
      REQUIRE(changed);
      CHECK((changed->st_mode & 07777) == 0600);
      CHECK(changed->st_size == 2);
      CHECK(changed->st_mtim.tv_sec == 1000);
      CHECK(v.read(file) == "be");
      CHECK(v.fs().set_xattr(file->node, "user.a", "value", 0));
      CHECK(v.fs().get_xattr(file->node, "user.a").value() == "value");
      CHECK(v.fs().list_xattrs(file->node).value() == std::vector<std::string>{"user.a"});
      CHECK(v.fs().remove_xattr(file->node, "user.a"));
      c = {};
      c.mtime = timespec{2000, 0};
      CHECK(v.fs().change_attributes(link->node, c).value().st_mtim.tv_sec == 2000);

      CHECK(is(v.lookup_error(dir, "x"), ENOENT));
      CHECK(is(v.drop(v.fs().make_dir(dir->node, "x", 0755, self())), ENOENT));
      // The same names again are other objects.
      const Ref again = v.create(root, "file", "another");
      CHECK(again->node != file->node);
      CHECK(v.read(file) == "be");
      CHECK(v.read(again) == "another");
    }
    CHECK(v.fs().nodes().pinned() == 0);
    v.check_clean();
    CHECK(v.snapshot() == Snapshot{{"file", "file another"}});
  }

  TEST_CASE("filesystem: a directory forgotten before what is in it") {
    // The kernel keeps a file that has cached pages while its directory goes.
    TestVolume v;
    auto& nodes = v.fs().nodes();
    for (const bool directory_moved : {false, true})
      for (const std::string change : {"unlink", "rename", "replace", "nothing"}) {
        CAPTURE(change);
        CAPTURE(directory_moved);
        const Ref root = v.root();
        NodePtr file;
        {
          const Ref top = v.mkdir(root, "top");
          const Ref dir = v.mkdir(top, "dir");
          file = v.fs().make_node(dir->node, "file", S_IFREG | 0644, 0, self()).value().node;
          REQUIRE(v.fs().write(file, 0, as_bytes("content"), false));
        }
        CHECK(v.try_read(file).value() == "content");
        std::string top_name = "top";
        if (directory_moved) {
          CHECK(!v.rename(root, "top", root, "elsewhere"));
          top_name = "elsewhere";
        }
        nodes.files.drop(*file);
        CHECK(v.try_read(file).value() == "content");
        {
          const Ref dir = v.walk(top_name + "/dir");
          const Ref again = v.lookup(dir, "file");
          CHECK(again->node == file);
          ++file->opens;  // whoever holds the file has it open
          if (change == "unlink") CHECK(!v.unlink(dir, "file"));
          if (change == "rename") CHECK(!v.rename(dir, "file", root, "file"));
          if (change == "replace") {
            v.create(root, "other", "other");
            CHECK(!v.rename(root, "other", dir, "file"));
          }
          nodes.files.drop(*file);
          CHECK(v.try_read(file).value() == "content");
          CHECK(v.fs().attributes(file));
          if (change == "nothing" || change == "replace") CHECK(!v.unlink(dir, "file"));
        }
        CHECK(v.try_read(file).value() == "content");
        if (change == "rename") CHECK(!v.unlink(root, "file"));
        CHECK(nodes.pinned() == 1);
        CHECK(!v.rmdir(v.walk(top_name), "dir"));
        CHECK(!v.rmdir(root, top_name));
        nodes.forget(file, 1);
        CHECK(nodes.size() == 1);
      }
    v.check_clean();
  }

  TEST_CASE("filesystem: files without a name, and naming them") {
    TestVolume v;
    {
      const Ref root = v.root();
      const Ref dir = v.mkdir(root, "dir");
      auto made = v.fs().make_tmpfile(dir->node, S_IFREG | 0640, self());
      if (!made && is(made.error(), EOPNOTSUPP)) {
        MESSAGE("the temporary directory's filesystem has no O_TMPFILE");
        return;
      }
      const Ref file = v.keep(std::move(made), dir);
      CHECK(file->attr.st_nlink == 0);
      CHECK((file->attr.st_mode & 07777) == 0640);
      v.write(file, "nameless");
      CHECK(v.names(dir).empty());
      CHECK(v.fs().nodes().pinned() == 1);
      v.fs().nodes().files.drop(*file->node);
      CHECK(v.read(file) == "nameless");
      for (const auto& name : {std::string("named"), kLongName}) {
        const Ref link = v.keep(v.fs().link(file->node, dir->node, name, self()), dir);
        CHECK(link->node == file->node);
      }
      CHECK(v.fs().nodes().pinned() == 0);
      CHECK(v.stat(file).st_nlink == 2);
      CHECK(!v.unlink(dir, "named"));
      CHECK(v.read(file) == "nameless");
      CHECK(v.snapshot() == Snapshot{{"dir", "dir"}, {"dir/" + kLongName, "file nameless"}});
      CHECK(!v.unlink(dir, kLongName));
      CHECK(v.read(file) == "nameless");
      CHECK(v.fs().nodes().pinned() == 1);
      v.keep(v.fs().make_tmpfile(dir->node, S_IFREG | 0600, self()), dir);  // never named
    }
    v.check_clean();
  }

  TEST_CASE("filesystem: listing from any position; entries that did not fit keep no lookup") {
    for (const auto& mode : name_modes()) {
      CAPTURE(mode_text(mode));
      TestVolume v(mode);
      std::set<std::string> expected{".", ".."};
      {
        const Ref dir = v.mkdir(v.root(), "dir");
        for (int i = 0; i < 300; ++i) {
          const std::string name = "entry " + std::to_string(i) + std::string(i % 3 == 0 ? 100 : 0, '-');
          v.create(dir, name);
          expected.insert(name);
        }
      }
      v.check_clean();
      {
        const Ref dir = v.walk("dir");
        std::vector<std::pair<std::string, std::uint64_t>> all;
        REQUIRE(v.fs().list(dir->node, 0, false, [&](const Listed& e) {
          CHECK(!e.entry);
          all.emplace_back(e.name, e.next);
          return true;
        }));
        std::set<std::string> seen;
        for (const auto& [name, next] : all) CHECK(seen.insert(name).second);
        CHECK(seen == expected);
        CHECK(v.fs().nodes().size() == 2);

        // In pieces of seven: the eighth is shown, refused, and shown again first in the next piece.
        std::vector<std::string> pieces;
        std::uint64_t off = 0;
        for (bool more = true; more;) {
          more = false;
          std::size_t n = 0;
          std::vector<NodePtr> held;
          REQUIRE(v.fs().list(dir->node, off, true, [&](const Listed& e) {
            if (n == 7) return !(more = true);
            ++n;
            pieces.push_back(e.name);
            off = e.next;
            if (e.entry) held.push_back(e.entry->node);
            CHECK(e.entry.has_value() == (e.name != "." && e.name != ".."));
            return true;
          }));
          CHECK(v.fs().nodes().size() == 2 + held.size());
          for (const auto& node : held) v.fs().nodes().forget(node, 1);
          CHECK(v.fs().nodes().size() == 2);
        }
        REQUIRE(pieces.size() == all.size());
        for (std::size_t i = 0; i < all.size(); ++i) CHECK(pieces[i] == all[i].first);

        // A position stays good while other entries come and go.
        std::uint64_t middle = 0;
        std::set<std::string> before, after;
        for (std::size_t i = 0; i < all.size(); ++i) {
          (i <= 150 ? before : after).insert(all[i].first);
          if (i == 150) middle = all[i].second;
        }
        for (const auto& name : before)
          if (name != "." && name != "..") CHECK(!v.unlink(dir, name));
        std::set<std::string> rest;
        REQUIRE(v.fs().list(dir->node, middle, false, [&](const Listed& e) {
          rest.insert(e.name);
          return true;
        }));
        CHECK(rest == after);
      }
      v.check_clean();
    }
  }

  TEST_CASE("filesystem: the root's parent is not shown") {
    TestVolume v;
    std::map<std::string, std::uint64_t> inodes;
    REQUIRE(v.fs().list(v.fs().nodes().root(), 0, true, [&](const Listed& e) {
      inodes[e.name] = e.ino;
      return true;
    }));
    const auto own = v.fs().nodes().root()->key.ino;
    CHECK(inodes == std::map<std::string, std::uint64_t>{{".", own}, {"..", own}});
  }

  TEST_CASE("filesystem: names that are nobody's are left out, counted, and keep their directory from being removed") {
    TestVolume v;
    {
      const Ref root = v.root();
      const Ref dir = v.mkdir(root, "dir");
      const std::string lower = v.lower("/dir");
      write_raw(lower + "/not-of-ecfs", "foreign");
      write_raw(lower + "/ecfs.unknown", "of a later version");
      write_raw(lower + "/" + std::string(kLongPrefix) + std::string(43, 'A'), "a long name that lost its name file");
      CHECK(v.names(dir).empty());
      CHECK(v.fs().damage().foreign == 3);
      CHECK(v.names(dir).empty());
      CHECK(v.fs().damage().foreign == 3);  // counted and said once
      CHECK(v.log().size() == 3);
      CHECK(is(v.rmdir(root, "dir"), ENOTEMPTY));
      CHECK(std::filesystem::exists(lower + "/not-of-ecfs"));
      CHECK(std::filesystem::exists(lower + "/ecfs.dir"));
      v.create(dir, "file", "x");
      for (const char* name : {"not-of-ecfs", "ecfs.unknown"}) std::filesystem::remove(lower + "/" + name);
      std::filesystem::remove(lower + "/" + std::string(kLongPrefix) + std::string(43, 'A'));
      CHECK(is(v.rmdir(root, "dir"), ENOTEMPTY));
      CHECK(!v.unlink(dir, "file"));
      CHECK(!v.rmdir(root, "dir"));
    }
    v.check_clean();
  }

  TEST_CASE("filesystem: conflict copies are shown and used, and the name file of a long one stays for them") {
    for (const std::size_t dirs : {64, 2}) {
      VolumeOptions options;
      options.max_dirs = dirs;
      TestVolume v(options);
      {
        const Ref root = v.root();
        const Ref dir = v.mkdir(root, "dir");
        v.create(dir, "short", "s");
        v.create(dir, kLongName, "l");
        CHECK(dir->node->no_copies == !as_shared());  // made just now
        const std::string below = v.lower("/dir"), one = v.lower("/dir/short"), two = v.lower("/dir/" + std::string(kLongName));
        std::filesystem::copy_file(one, one + "~");
        std::filesystem::copy_file(two, two + "~");
        // An open volume learns of what comes from beneath when it lists; one that is shared at once.
        CHECK(v.exists(dir, "short~") == as_shared());
        std::set<std::string> expected{"short", "short~", std::string(kLongName), shown_copy(kLongName, "~")};
        CHECK(v.names(dir) == expected);
        CHECK(v.read(v.lookup(dir, "short~")) == "s");
        CHECK(v.read(v.lookup(dir, shown_copy(kLongName, "~"))) == "l");
        CHECK(!v.exists(dir, "short~~"));
        CHECK(!v.unlink(dir, kLongName));
        CHECK(v.read(v.lookup(dir, shown_copy(kLongName, "~"))) == "l");
        CHECK(!v.rename(dir, "short", dir, shown_copy(kLongName, "~")));
        CHECK(v.read(v.lookup(dir, shown_copy(kLongName, "~"))) == "s");
        CHECK(!v.unlink(dir, "short~"));
        CHECK(v.names(dir) == std::set<std::string>{shown_copy(kLongName, "~")});
        CHECK(!v.unlink(dir, shown_copy(kLongName, "~")));
        CHECK(TestVolume::lower_names(below) == std::set<std::string>{"ecfs.dir"});
        CHECK(v.fs().damage().foreign == 0);
        CHECK(!v.rmdir(root, "dir"));
      }
      v.check_clean();
    }
  }

  TEST_CASE("filesystem: what stands in a name file's place hides one entry, not the directory") {
    for (const char* what : {"link", "directory", "fifo", "socket"}) {
      CAPTURE(what);
      TestVolume v;
      {
        const Ref root = v.root();
        v.create(root, "short", "s");
        v.create(root, kLongName, "l");
        std::string file;
        for (const auto& n : TestVolume::lower_names(v.path()))
          if (n.starts_with(kLongNamePrefix)) file = v.path() + "/" + n;
        std::filesystem::rename(file, v.path() + "/ecfs.aside");
        const std::string_view kind(what);
        if (kind == "link")
          std::filesystem::create_symlink("ecfs.aside", file);
        else if (kind == "directory")
          std::filesystem::create_directory(file);
        else
          REQUIRE(::mknod(file.c_str(), 0644 | (kind == "fifo" ? S_IFIFO : S_IFSOCK), 0) == 0);
        CHECK(v.names(root) == std::set<std::string>{"short"});
        CHECK(v.fs().damage().foreign > 0);
        std::filesystem::remove(file);
        std::filesystem::rename(v.path() + "/ecfs.aside", file);
        CHECK(v.names(root) == std::set<std::string>{"short", std::string(kLongName)});
      }
      v.check_clean();
    }
  }

  TEST_CASE("filesystem: a directory that grows is not looked through for conflict copies at each new name") {
    TestVolume v;
    {
      const Ref dir = v.mkdir(v.root(), "dir");
      constexpr int kNames = 200;
      int looks = 0;
      lower::set_hook([&](const lower::Call& c) -> lower::Verdict {
        looks += c.op == lower::Op::getdents ? 1 : 0;
        return {};
      });
      for (int i = 0; i < kNames; ++i) {
        const std::string name = "f" + std::to_string(i);
        CHECK(!v.exists(dir, name));
        v.create(dir, name, "x");
      }
      lower::set_hook(nullptr);
      CHECK(looks < kNames / 2);  // one look is two calls at least
      // What others left is found all the same, by a listing at once and by a lookup in a moment.
      const std::string one = v.lower("/dir/f0");
      std::filesystem::copy_file(one, one + "~");
      CHECK(v.names(dir).contains("f0~"));
      CHECK(v.read(v.lookup(dir, "f0~")) == "x");
    }
    v.check_clean();
  }

  TEST_CASE("filesystem: removed directories need no descriptors") {
    TestVolume v;
    {
      const Ref root = v.root();
      std::vector<Ref> open;
      for (int i = 0; i < 300; ++i) {
        open.push_back(v.mkdir(root, "d" + std::to_string(i)));
        CHECK(!v.rmdir(root, "d" + std::to_string(i)));
      }
      CHECK(v.fs().nodes().pinned() <= 64);  // half of what there may be
      for (const auto& dir : open) {
        CHECK((v.stat(dir).st_nlink == 0 && S_ISDIR(v.stat(dir).st_mode) && v.stat(dir).st_ino == dir->attr.st_ino));
        CHECK(is(v.lookup_error(dir, "x"), ENOENT));
        CHECK(!v.fs().sync_dir(dir->node, false).error());
      }
      // Files have the other half, and are refused when nothing is left.
      int refused = 0;
      std::vector<Ref> files;
      for (int i = 0; i < 100; ++i) {
        files.push_back(v.create(root, "f" + std::to_string(i), "x"));
        const auto error = v.unlink(root, "f" + std::to_string(i));
        if (error) CHECK(is(error, EMFILE));
        refused += error ? 1 : 0;
      }
      CHECK(refused == 100 - 64);
      files.clear();
      for (int i = 0; i < 100; ++i)
        if (v.exists(root, "f" + std::to_string(i))) CHECK(!v.unlink(root, "f" + std::to_string(i)));
    }
    v.check_clean();
  }

  TEST_CASE("filesystem: an orphaned name file goes with its directory and disturbs no new entry") {
    TestVolume v;
    {
      const Ref root = v.root();
      const Ref dir = v.mkdir(root, "dir");
      v.create(dir, kLongName, "x");
      const std::string lower = v.lower("/dir");
      std::string name_file;
      for (const auto& n : TestVolume::lower_names(lower))
        if (n.starts_with(kLongNamePrefix)) name_file = n;
      REQUIRE(!name_file.empty());
      const std::string content = read_file(lower + "/" + name_file);
      CHECK(!v.unlink(dir, kLongName));
      CHECK(!std::filesystem::exists(lower + "/" + name_file));
      // Of an operation that was cut: whole, empty, or another's.
      for (const std::string& orphan : {content, std::string(), std::string("nonsense"), std::string(5000, 'x')}) {
        write_raw(lower + "/" + name_file, orphan);
        CHECK(v.names(dir).empty());
        v.create(dir, kLongName, "new");
        CHECK(read_file(lower + "/" + name_file) == content);
        CHECK(v.names(dir) == std::set<std::string>{kLongName});
        CHECK(!v.unlink(dir, kLongName));
        CHECK(!std::filesystem::exists(lower + "/" + name_file));
      }
      write_raw(lower + "/" + name_file, content);
      CHECK(!v.rmdir(root, "dir"));
      CHECK(own_files(v.path(), "") == own_files(v.path(), "ecfs."));
      v.mkdir(root, "a");
      write_raw(v.lower("/a") + "/" + name_file, content);
      v.mkdir(root, "b");
      CHECK(!v.rename(root, "b", root, "a"));
    }
    v.check_clean();
    CHECK(v.snapshot() == Snapshot{{"a", "dir"}});
  }

  TEST_CASE("filesystem: a directory's id that is lost in one copy is mended from the other") {
    for (const bool root_too : {false, true})
      for (const std::string damage : {"no file", "empty file", "short file", "flipped file", "long file", "no xattr", "flipped xattr"}) {
        CAPTURE(damage);
        CAPTURE(root_too);
        TestVolume v;
        if (!have_user_xattrs(v.path())) {
          MESSAGE("the temporary directory's filesystem has no user xattrs");
          return;
        }
        v.create(v.mkdir(v.root(), "dir"), "file", "content");
        const std::string lower = root_too ? v.path() : v.lower("/dir");
        const std::string file = lower + "/ecfs.dir";
        const std::string record = read_file(file);
        REQUIRE(record.size() == DirRecord::kSize);
        CHECK(raw_xattr(lower, kDirXattr) == record);
        v.close();
        std::string flipped = record;
        flipped[3] = static_cast<char>(flipped[3] ^ 1);
        if (damage.ends_with("file")) std::filesystem::remove(file);
        if (damage == "empty file") write_raw(file, "");
        if (damage == "short file") write_raw(file, record.substr(0, 47));
        if (damage == "flipped file") write_raw(file, flipped);
        if (damage == "long file") write_raw(file, record + "x");
        if (damage.ends_with("xattr")) REQUIRE(::removexattr(lower.c_str(), kDirXattr) == 0);
        if (damage == "flipped xattr") REQUIRE(::setxattr(lower.c_str(), kDirXattr, flipped.data(), flipped.size(), 0) == 0);
        v.open();
        CHECK(v.snapshot() == Snapshot{{"dir", "dir"}, {"dir/file", "file content"}});
        if (as_shared()) {
          // With others at work only who keeps them out mends.
          v.create(v.walk("dir"), "another");
          CHECK(!v.unlink(v.walk("dir"), "another"));
          std::filesystem::remove(v.path() + "/ecfs.lock");
        }
        CHECK(read_file(file) == record);
        CHECK(raw_xattr(lower, kDirXattr) == record);
        CHECK(TestVolume::lower_names(lower).size() == 2);  // nothing of the mending is left
        CHECK(v.fs().damage().directories == 0);
        v.check_clean();
      }
  }

  TEST_CASE("filesystem: a read-only mount reads a directory with one good copy and mends nothing") {
    TestVolume v;
    if (!have_user_xattrs(v.path())) return;
    v.create(v.mkdir(v.root(), "dir"), "file", "content");
    const std::string lower = v.lower("/dir");
    v.close();
    std::filesystem::remove(lower + "/ecfs.dir");
    VolumeOptions o;
    o.read_only = true;
    v.reopen(o);
    CHECK(v.snapshot() == Snapshot{{"dir", "dir"}, {"dir/file", "file content"}});
    CHECK(!std::filesystem::exists(lower + "/ecfs.dir"));
    {
      const Ref file = v.walk("dir/file");
      CHECK(is(v.fs().write(file->node, 0, as_bytes("x"), false).error(), EROFS));
      CHECK(is(v.fs().set_xattr(file->node, "user.a", "x", 0).error(), EROFS));
      AttrChange c;
      c.mode = 0600;
      CHECK(is(v.fs().change_attributes(file->node, c).error(), EROFS));
    }
    v.check_clean();
  }

  TEST_CASE("filesystem: a directory whose id is damaged in both copies tells so and harms no other") {
    TestVolume v;
    {
      const Ref root = v.root();
      v.create(v.mkdir(root, "dir"), "file", "content");
      v.create(root, "beside", "fine");
    }
    const std::string lower = v.lower("/dir");
    v.close();
    std::filesystem::remove(lower + "/ecfs.dir");
    write_raw(lower + "/ecfs.dir", std::string(48, 'x'));
    ::setxattr(lower.c_str(), kDirXattr, "damaged", 7, 0);
    v.open();
    {
      const Ref root = v.root();
      const Ref dir = v.lookup(root, "dir");
      CHECK(S_ISDIR(v.stat(dir).st_mode));
      CHECK(v.lookup_error(dir, "file") == Errc::damaged_directory);
      CHECK(v.drop(v.fs().make_node(dir->node, "new", S_IFREG | 0644, 0, self())) == Errc::damaged_directory);
      CHECK(v.fs().list(dir->node, 0, true, [](const Listed&) { return true; }).error() == Errc::damaged_directory);
      CHECK(v.fs().damage().directories >= 2);
      CHECK(is(v.rmdir(root, "dir"), ENOTEMPTY));
      CHECK(v.read(v.lookup(root, "beside")) == "fine");
      CHECK(v.names(root) == std::set<std::string>{"beside", "dir"});
      // It can be put aside whole.
      CHECK(!v.rename(root, "dir", root, "damaged"));
    }
    v.check_clean();
    v.close();
    std::filesystem::remove(v.path() + "/ecfs.dir");
    ::removexattr(v.path().c_str(), kDirXattr);
    const auto refused = v.try_open();
    CHECK(refused.error() == Errc::damaged_directory);
    CHECK(!std::filesystem::exists(v.path() + "/ecfs.dir"));  // never a new id where there are entries
  }

  TEST_CASE("filesystem: a directory that holds nothing and has no id is given one") {
    for (const std::string left : {"nothing", "empty file", "unfinished mending", "xattr without epoch"}) {
      CAPTURE(left);
      TestVolume v;
      v.mkdir(v.root(), "dir");
      const std::string lower = v.lower("/dir");
      v.close();
      std::filesystem::remove(lower + "/ecfs.dir");
      ::removexattr(lower.c_str(), kDirXattr);
      if (left == "empty file") write_raw(lower + "/ecfs.dir", "");
      if (left == "unfinished mending") write_raw(lower + "/ecfs.dir.new", "half");
      if (left == "xattr without epoch") ::setxattr(lower.c_str(), kDirXattr, std::string(48, '\0').data(), 48, 0);
      v.open();
      v.create(v.walk("dir"), "file", "works");
      CHECK(read_file(lower + "/ecfs.dir").size() == DirRecord::kSize);
      v.open();
      CHECK(v.snapshot() == Snapshot{{"dir", "dir"}, {"dir/file", "file works"}});
      CHECK(!v.unlink(v.walk("dir"), "file"));
      CHECK(!v.rmdir(v.root(), "dir"));
      v.check_clean();
    }
  }

  TEST_CASE("filesystem: without user xattrs the id reaches the disk before the directory's first entry") {
    TestVolume v;
    std::vector<std::string> calls;
    const LowerHook hook([&](const Call& c) -> Verdict {
      if (c.op == Op::setxattr || c.op == Op::getxattr) return {.error = EOPNOTSUPP};
      if (c.op == Op::open && c.name && std::string(c.name) == "ecfs.dir") calls.push_back("open ecfs.dir");
      if (c.op == Op::fsync) calls.push_back("fsync");
      if (c.op == Op::pwrite && c.length == DirRecord::kSize) calls.push_back("write");
      return {};
    });
    const Ref dir = v.mkdir(v.root(), "dir");
    const auto written = std::find(calls.begin(), calls.end(), "write");
    REQUIRE(written != calls.end());
    CHECK(std::count(written, calls.end(), "fsync") == 2);  // the file, and the directory that it is in
    v.create(dir, "file", "x");
    CHECK(v.names(dir) == std::set<std::string>{"file"});
  }

  TEST_CASE("filesystem: with few descriptors everything stays reachable") {
    for (const bool process_limit : {false, true}) {
      CAPTURE(process_limit);
      VolumeOptions o;
      o.max_dirs = 2;
      o.max_files = 3;
      o.long_name_max = 64;
      TestVolume v(o);
      struct Limit {
        rlimit old{};
        explicit Limit(bool on) {
          REQUIRE(::getrlimit(RLIMIT_NOFILE, &old) == 0);
          rlimit low = old;
          if (on) low.rlim_cur = 64;
          REQUIRE(::setrlimit(RLIMIT_NOFILE, &low) == 0);
        }
        ~Limit() { ::setrlimit(RLIMIT_NOFILE, &old); }
      } limit(process_limit);
      {
        std::vector<Ref> files;
        std::vector<std::string> contents;
        std::vector<Ref> dirs{v.root()};
        // 20 levels, 50 files in each: the way down to the last passes directories that are long closed.
        for (int level = 0; level < 20; ++level) {
          dirs.push_back(v.mkdir(dirs.back(), level % 2 ? "level " + std::to_string(level) : std::string(60, static_cast<char>('a' + level))));
          for (int i = 0; i < 50; ++i) {
            contents.push_back("file " + std::to_string(i) + " at level " + std::to_string(level));
            files.push_back(v.create(dirs.back(), "f" + std::to_string(i), contents.back()));
          }
        }
        CHECK(v.fs().nodes().dirs.size() <= 2);
        CHECK(v.fs().nodes().files.size() <= 3);
        CHECK(v.fs().nodes().size() == 1021);
        std::mt19937 random(7);
        for (int i = 0; i < 2000; ++i) {
          const std::size_t k = random() % files.size();
          if (i % 4 == 0) {
            contents[k] += "+" + std::to_string(i);
            v.write(files[k], contents[k]);
          }
          REQUIRE(v.read(files[k]) == contents[k]);
          REQUIRE(v.stat(files[k]).st_size == static_cast<off_t>(contents[k].size()));
        }
        for (std::size_t level = 1; level < dirs.size(); ++level) CHECK(v.names(dirs[level]).size() == (level + 1 < dirs.size() ? 51 : 50));
        // Moved high up, everything below is found along the new way.
        CHECK(!v.rename(dirs[4], std::string(60, 'e'), dirs[0], "moved"));
        for (std::size_t k = 0; k < files.size(); k += 7) REQUIRE(v.read(files[k]) == contents[k]);
        for (const std::size_t k : {200u, 555u, 999u}) {
          REQUIRE(!v.unlink(files[k]->parent, "f" + std::to_string(k % 50)));
          REQUIRE(v.read(files[k]) == contents[k]);
        }
        CHECK(v.fs().nodes().pinned() == 3);
      }
      v.check_clean();
    }
  }

  TEST_CASE("filesystem: a file made without permission bits is written and read, also when it was closed between") {
    TestVolume v;
    {
      const Ref root = v.root();
      for (const mode_t mode : {0444u, 0200u, 0000u}) {
        CAPTURE(mode);
        const std::string name = "m" + std::to_string(mode);
        const Ref file = v.create(root, name, "first", mode);
        v.fs().nodes().files.drop(*file->node);
        v.write(file, "second");
        CHECK(v.read(file) == "second");
        CHECK((v.stat(file).st_mode & 07777) == mode);
      }
      // A directory that its owner may not even enter can be made, and removed.
      for (const mode_t mode : {0000u, 0400u, 0755u, 01755u}) {
        CAPTURE(mode);
        const Ref dir = v.mkdir(root, "dir", mode);
        CHECK((v.stat(dir).st_mode & 07777) == mode);
        CHECK(!v.rmdir(root, "dir"));
      }
    }
    v.check_clean();
  }

  TEST_CASE("filesystem: the caller's umask and identity make the object, and only that") {
    TestVolume v;
    {
      const Ref root = v.root();
      const Ref file = v.keep(v.fs().make_node(root->node, "file", S_IFREG | 0777, 0, self(027)), root);
      CHECK((file->attr.st_mode & 07777) == 0750);
      const Ref dir = v.keep(v.fs().make_dir(root->node, "dir", 0777, self(0777)), root);
      CHECK((v.stat(dir).st_mode & 07777) == 0);
      if (as_root()) {
        struct stat st {};
        REQUIRE(::stat((v.lower("/dir") + "/ecfs.dir").c_str(), &st) == 0);
        CHECK((st.st_mode & 0777) == 0444);
        REQUIRE(::chmod(v.path().c_str(), 0777) == 0);
        const Caller other{12345, 54321, ::getpid(), 022};
        for (const Ref& made : {v.keep(v.fs().make_node(root->node, "f", S_IFREG | 0644, 0, other), root),
                                v.keep(v.fs().make_node(root->node, "p", S_IFIFO | 0644, 0, other), root),
                                v.keep(v.fs().make_dir(root->node, "d", 0755, other), root),
                                v.keep(v.fs().make_symlink(root->node, "l", "target", other), root),
                                v.keep(v.fs().make_symlink(root->node, "long", std::string(4000, 't'), other), root)}) {
          CHECK(made->attr.st_uid == 12345);
          CHECK(made->attr.st_gid == 54321);
        }
        // Each thread for itself, while others work as somebody else.
        std::atomic<int> wrong{0};
        std::vector<std::thread> threads;
        for (unsigned t = 0; t < 4; ++t)
          threads.emplace_back([&, t] {
            for (int i = 0; i < 50; ++i) {
              const auto made = v.fs().make_node(root->node, "t" + std::to_string(t) + "-" + std::to_string(i), S_IFREG | 0644, 0, {1000 + t, 2000 + t, ::getpid(), 022});
              if (!made || made->attr.st_uid != 1000 + t || made->attr.st_gid != 2000 + t) ++wrong;
              v.drop(made);
            }
          });
        for (auto& t : threads) t.join();
        CHECK(wrong == 0);
        const Ref own = v.create(root, "own again");
        CHECK(own->attr.st_uid == 0);
        CHECK(own->attr.st_gid == 0);
        AttrChange c;
        c.uid = 7;
        CHECK(v.fs().change_attributes(own->node, c).value().st_uid == 7);
        CHECK(v.stat(own).st_gid == 0);
      }
    }
    v.check_clean();
  }

  TEST_CASE("filesystem: set-id bits go when who may not keep them writes, cuts or allocates") {
    TestVolume v;
    {
      const Ref file = v.create(v.root(), "file", "x");
      const auto bits_after = [&](mode_t mode, const std::function<void()>& change) {
        AttrChange c;
        c.mode = mode;
        REQUIRE(v.fs().change_attributes(file->node, c));
        change();
        return v.stat(file).st_mode & 07777;
      };
      const auto write = [&](bool kill) { return [&, kill] { CHECK(v.fs().write(file->node, 0, as_bytes("y"), kill)); }; };
      CHECK(bits_after(06755, write(true)) == 0755);
      if (as_root()) CHECK(bits_after(06755, write(false)) == 06755);
      CHECK(bits_after(02644, write(true)) == 02644);  // no group execution: mandatory locking's mark
      CHECK(bits_after(04644, write(true)) == 0644);
      CHECK(bits_after(06711, [&] { CHECK(v.fs().allocate(file->node, 0, 0, 100)); }) == 0711);
      CHECK(bits_after(06711, [&] {
              AttrChange c;
              c.size = 1;
              c.kill_suidgid = true;
              CHECK(v.fs().change_attributes(file->node, c));
            }) == 0711);
    }
    v.check_clean();
  }

  TEST_CASE("filesystem: times, and none moved by our own looking") {
    TestVolume v;
    {
      const Ref root = v.root();
      const Ref dir = v.mkdir(root, "dir"), link = v.symlink(dir, "link", "target");
      const Ref file = v.create(dir, kLongName, "x");
      AttrChange c;
      c.atime = timespec{-5, 7};
      c.mtime = timespec{4000000000, 999999999};
      for (const Ref& ref : {file, dir, link}) {
        const auto st = v.fs().change_attributes(ref->node, c);
        REQUIRE(st);
        CHECK(st->st_atim.tv_sec == -5);
        CHECK(st->st_atim.tv_nsec == 7);
        CHECK(st->st_mtim.tv_sec == 4000000000);
        CHECK(st->st_mtim.tv_nsec == 999999999);
      }
      AttrChange now;
      now.mtime = timespec{0, UTIME_NOW};
      const auto st = v.fs().change_attributes(file->node, now);
      CHECK(std::abs(st.value().st_mtim.tv_sec - ::time(nullptr)) < 60);
      CHECK(st.value().st_atim.tv_sec == -5);
      // The directory's and the link's have not moved since: looking up, stat and finding a long name read them.
      v.fs().nodes().dirs.drop(*dir->node);
      CHECK(v.lookup(dir, "link")->attr.st_atim.tv_sec == -5);
      CHECK(v.stat(dir).st_atim.tv_sec == -5);
    }
    v.check_clean();
  }

  TEST_CASE("filesystem: extended attributes both ways") {
    VolumeOptions o;
    TestVolume v(o);
    if (!have_user_xattrs(v.path())) {
      MESSAGE("the temporary directory's filesystem has no user xattrs");
      return;
    }
    {
      const Ref root = v.root();
      const Ref dir = v.mkdir(root, "dir"), file = v.create(root, "file", "x"), link = v.symlink(root, "link", "t");
      const std::string long_name = "user." + std::string(250, 'x');
      for (const Ref& ref : {dir, file}) {
        CHECK(v.fs().list_xattrs(ref->node).value().empty());  // the directory's own is not shown
        CHECK(is(v.fs().get_xattr(ref->node, "user.none").error(), ENODATA));
        for (const std::string& name : {std::string("user.a"), std::string("user.ecfs.dir"), std::string("user.with.dots and spaces"), long_name})
          for (const std::string& value : {std::string(), std::string("value"), std::string(1500, 'v'), std::string("\0binary\0", 8)}) {
            CAPTURE(name);
            CAPTURE(value.size());
            REQUIRE(v.fs().set_xattr(ref->node, name.c_str(), value, 0));
            CHECK(v.fs().get_xattr(ref->node, name.c_str()).value() == value);
            CHECK(is(v.fs().set_xattr(ref->node, name.c_str(), "other", XATTR_CREATE).error(), EEXIST));
            CHECK(v.fs().set_xattr(ref->node, name.c_str(), value, XATTR_REPLACE));
            CHECK(v.fs().list_xattrs(ref->node).value() == std::vector<std::string>{name});
            if (value == "value") {
              REQUIRE(v.fs().remove_xattr(ref->node, name.c_str()));
              CHECK(is(v.fs().get_xattr(ref->node, name.c_str()).error(), ENODATA));
              CHECK(is(v.fs().remove_xattr(ref->node, name.c_str()).error(), ENODATA));
              CHECK(is(v.fs().set_xattr(ref->node, name.c_str(), value, XATTR_REPLACE).error(), ENODATA));
            }
            if (value.size() == 8) REQUIRE(v.fs().remove_xattr(ref->node, name.c_str()));
          }
        CHECK(is(v.fs().set_xattr(ref->node, "user.", "x", 0).error(), EINVAL));
        CHECK(is(v.fs().get_xattr(ref->node, "user.").error(), EINVAL));
        CHECK(is(v.fs().remove_xattr(ref->node, "user.").error(), EINVAL));
      }
      // The directory still has its id in both copies.
      CHECK(raw_xattr(v.lower("/dir"), kDirXattr) == read_file(v.lower("/dir") + "/ecfs.dir"));

      // Neither name nor value lies open below, and a value is of use nowhere but where it was put.
      REQUIRE(v.fs().set_xattr(file->node, "user.secretname", "secretvalue", 0));
      REQUIRE(v.fs().set_xattr(file->node, "user.b", "other value", 0));
      const std::string lower = v.lower("/file");
      std::string list(4096, '\0');
      const ssize_t n = ::llistxattr(lower.c_str(), list.data(), list.size());
      REQUIRE(n > 0);
      list.resize(static_cast<std::size_t>(n));
      CHECK(list.find("secret") == std::string::npos);
      std::vector<std::string> lower_names;
      for (std::size_t at = 0; at < list.size(); at += lower_names.back().size() + 1) lower_names.emplace_back(list.c_str() + at);
      REQUIRE(lower_names.size() == 2);
      const std::string first = raw_xattr(lower, lower_names[0].c_str());
      CHECK(first.find("value") == std::string::npos);
      REQUIRE(::setxattr(lower.c_str(), lower_names[1].c_str(), first.data(), first.size(), 0) == 0);
      int damaged = 0;
      for (const char* name : {"user.secretname", "user.b"}) damaged += v.fs().get_xattr(file->node, name).error() == Errc::damaged_name;
      CHECK(damaged == 1);
      REQUIRE(::setxattr(lower.c_str(), "user.foreign", "x", 1, 0) == 0);
      CHECK(v.fs().list_xattrs(file->node).value().size() == 2);
      CHECK(is(v.fs().get_xattr(file->node, "user.foreign").error(), ENODATA));

      // ACLs are not offered unless asked for; other namespaces pass through.
      CHECK(is(v.fs().get_xattr(file->node, "system.posix_acl_access").error(), EOPNOTSUPP));
      CHECK(is(v.fs().set_xattr(file->node, "system.posix_acl_access", "x", 0).error(), EOPNOTSUPP));
      CHECK(is(v.fs().remove_xattr(file->node, "system.posix_acl_access").error(), EOPNOTSUPP));
      CHECK(is(v.fs().get_xattr(file->node, "security.capability").error(), ENODATA));
      if (as_root()) {
        for (const Ref& ref : {file, link, dir}) {
          CHECK(v.fs().set_xattr(ref->node, "trusted.t", "passed", 0));
          CHECK(v.fs().get_xattr(ref->node, "trusted.t").value() == "passed");
        }
        CHECK(raw_xattr(lower, "trusted.t") == "passed");
        CHECK(v.fs().remove_xattr(link->node, "trusted.t"));
      }
      CHECK(!v.fs().set_xattr(link->node, "user.a", "x", 0));  // xattr(7): not on links
    }
    v.check_clean();
  }

  TEST_CASE("filesystem: lower paths and plain paths, both ways") {
    for (const auto& mode : name_modes()) {
      CAPTURE(mode_text(mode));
      TestVolume v(mode);
      {
        const Ref dir = v.mkdir(v.mkdir(v.root(), "dir"), kLongName);
        v.create(dir, kMiddleName, "x");
      }
      for (const std::string& plain : {std::string("/"), std::string("/dir"), "/dir/" + kLongName, "/dir/" + kLongName + "/" + kMiddleName}) {
        const auto lower = v.fs().lower_path(plain);
        REQUIRE(lower);
        CHECK(std::filesystem::exists(v.path() + "/" + *lower));
        CHECK(v.fs().plain_path(*lower).value() == plain);
      }
      CHECK(v.fs().lower_path("dir//./" + kLongName + "/").value() == v.fs().lower_path("/dir/" + kLongName).value());
      // What does not exist gets the name that it will have.
      const auto future = v.fs().lower_path("/dir/future");
      REQUIRE(future);
      CHECK(!std::filesystem::exists(v.path() + "/" + *future));
      v.create(v.walk("dir"), "future", "x");
      CHECK(std::filesystem::exists(v.path() + "/" + *future));
      CHECK(is(v.fs().lower_path("/none/x").error(), ENOENT));
      CHECK(is(v.fs().lower_path("/dir/future/x").error(), ENOTDIR));
      CHECK(is(v.fs().lower_path("/dir/" + std::string(256, 'x')).error(), ENAMETOOLONG));
      // Never above the root.
      CHECK(is(v.fs().lower_path("/..").error(), EINVAL));
      CHECK(is(v.fs().lower_path("/dir/../..").error(), EINVAL));
      CHECK(is(v.fs().plain_path("..").error(), EINVAL));
      CHECK(!v.fs().plain_path("ecfs.dir/x"));
      CHECK(!v.fs().plain_path(mode.names == NameMode::plain ? "none/x" : "none"));
      v.check_clean();
    }
  }

  TEST_CASE("filesystem: directories whose names are being rotated") {
    for (const std::size_t long_name_max : {255u, 64u}) {
      CAPTURE(long_name_max);
      VolumeOptions o;
      o.long_name_max = long_name_max;
      TestVolume v(o);
      {
        const Ref root = v.root();
        const Ref dir = v.mkdir(root, "dir");
        for (const auto& name : {std::string("older"), kLongName, std::string("to replace"), std::string("to remove")}) v.create(dir, name, "old " + name);
        v.symlink(dir, "link", "old target");
        v.symlink(dir, "long link", std::string(4000, 'o'));
        v.mkdir(dir, "sub");
        if (have_user_xattrs(v.path())) {
          REQUIRE(v.fs().set_xattr(v.lookup(dir, "older")->node, "user.a", "old value", 0));
          REQUIRE(v.fs().set_xattr(v.lookup(dir, "older")->node, ("user." + std::string(250, 'l')).c_str(), "old long", 0));
        }
      }
      const std::string lower = v.lower("/dir");
      v.close();
      // A second epoch; this directory has begun its change to it.
      const KeyRing ring = ring_of(2);
      const std::string raw = read_file(lower + "/ecfs.dir");
      auto record = open_dir_record(ring, as_bytes(raw));
      REQUIRE(record);
      CHECK(record->epoch == 1);
      record->next_epoch = 2;
      const auto sealed = *seal_dir_record(ring, *record);
      std::filesystem::remove(lower + "/ecfs.dir");
      write_raw(lower + "/ecfs.dir", std::string(sealed.begin(), sealed.end()));
      if (have_user_xattrs(v.path())) REQUIRE(::setxattr(lower.c_str(), kDirXattr, sealed.data(), sealed.size(), 0) == 0);
      // An old copy of the volume file, put back, has no key of the next epoch: the names of this one are there all the same.
      v.reopen(o);
      {
        const Ref dir = v.lookup(v.root(), "dir");
        CHECK(v.names(dir).contains("older"));
        CHECK(v.read(v.lookup(dir, "older")) == "old older");
        CHECK(v.read(v.lookup(dir, kLongName)) == "old " + kLongName);
        CHECK(is(v.lookup_error(dir, "none"), ENOENT));
      }
      o.epochs = 2;
      v.reopen(o);
      const auto epoch_of = [&](const std::string& name) -> Epoch {
        const auto names = TestVolume::lower_names(lower);
        for (const auto& keys : ring.epochs())
          if (names.contains(encode_name(keys, record->id, name, long_name_max).value().name)) return keys.epoch;
        return 0;
      };
      {
        const Ref root = v.root();
        const Ref dir = v.lookup(root, "dir");
        CHECK(v.read(v.lookup(dir, kLongName)) == "old " + kLongName);
        CHECK(v.fs().read_link(v.lookup(dir, "link")->node).value() == "old target");
        CHECK(v.fs().read_link(v.lookup(dir, "long link")->node).value() == std::string(4000, 'o'));
        CHECK(is(v.drop(v.fs().make_node(dir->node, "older", S_IFREG | 0644, 0, self())), EEXIST));
        CHECK(is(v.drop(v.fs().make_dir(dir->node, kLongName, 0755, self())), EEXIST));
        v.create(dir, "newer", "new");
        CHECK(epoch_of("older") == 1);
        CHECK(epoch_of("newer") == 2);
        CHECK(!v.rename(dir, "newer", dir, "to replace"));
        CHECK(v.read(v.lookup(dir, "to replace")) == "new");
        CHECK(!v.unlink(dir, "to remove"));
        CHECK(is(v.lookup_error(dir, "to remove"), ENOENT));
        CHECK(!v.rename(dir, kLongName, dir, "m" + kLongName.substr(1)));
        CHECK(epoch_of("m" + kLongName.substr(1)) == 2);
        CHECK(!v.rename(dir, "m" + kLongName.substr(1), dir, kLongName));
        CHECK(epoch_of(kLongName) == 2);
        CHECK(own_files(lower, kLongNamePrefix) == 1u);
        CHECK(v.names(dir) == std::set<std::string>{"older", kLongName, "to replace", "link", "long link", "sub"});
        CHECK(v.read(v.lookup(dir, "older")) == "old older");
        v.create(v.mkdir(root, "new dir"), "x", "y");
        const auto fresh = open_dir_record(ring, as_bytes(read_file(v.lower("/new dir") + "/ecfs.dir")));
        CHECK(fresh.value().epoch == 2);
        CHECK(fresh.value().next_epoch == 0);

        if (have_user_xattrs(v.path())) {
          const Ref file = v.lookup(dir, "older");
          const std::string long_xattr = "user." + std::string(250, 'l');
          CHECK(v.fs().get_xattr(file->node, "user.a").value() == "old value");
          CHECK(v.fs().get_xattr(file->node, long_xattr.c_str()).value() == "old long");
          CHECK(v.fs().list_xattrs(file->node).value().size() == 2);
          CHECK(is(v.fs().set_xattr(file->node, "user.a", "x", XATTR_CREATE).error(), EEXIST));
          CHECK(is(v.fs().set_xattr(file->node, "user.none", "x", XATTR_REPLACE).error(), ENODATA));
          CHECK(v.fs().set_xattr(file->node, "user.a", "new value", XATTR_REPLACE));
          CHECK(v.fs().set_xattr(file->node, long_xattr.c_str(), "new long", 0));
          CHECK(v.fs().get_xattr(file->node, "user.a").value() == "new value");
          CHECK(v.fs().get_xattr(file->node, long_xattr.c_str()).value() == "new long");
          CHECK(v.fs().list_xattrs(file->node).value().size() == 2);
          for (const std::string& name : {std::string("user.a"), long_xattr}) {
            CHECK(v.fs().remove_xattr(file->node, name.c_str()));
            CHECK(is(v.fs().get_xattr(file->node, name.c_str()).error(), ENODATA));
          }
          CHECK(v.fs().list_xattrs(file->node).value().empty());
        }
      }
      v.check_clean();
    }
  }

  TEST_CASE("filesystem: an xattr whose older copy could not be removed is shown once, and does not come back") {
    VolumeOptions o;
    TestVolume v(o);
    if (!have_user_xattrs(v.path())) return;
    REQUIRE(v.fs().set_xattr(v.create(v.root(), "file")->node, "user.a", "old", 0));
    o.epochs = 2;
    v.reopen(o);
    {
      const Ref file = v.walk("file");
      {
        const LowerHook hook([](const Call& c) -> Verdict { return {.error = c.op == Op::removexattr ? EIO : 0}; });
        (void)v.fs().set_xattr(file->node, "user.a", "new", 0);
      }
      CHECK(v.fs().get_xattr(file->node, "user.a").value() == "new");
      CHECK(v.fs().list_xattrs(file->node).value() == std::vector<std::string>{"user.a"});
      CHECK(v.fs().remove_xattr(file->node, "user.a"));
      CHECK(is(v.fs().get_xattr(file->node, "user.a").error(), ENODATA));
      CHECK(v.fs().list_xattrs(file->node).value().empty());
    }
    v.check_clean();
  }

  TEST_CASE("filesystem: a lower object that was exchanged beneath is never taken for another") {
    VolumeOptions o;
    TestVolume v(o);
    {
      const Ref root = v.root();
      const Ref file = v.create(root, "file", "mine"), dir = v.mkdir(root, "dir");
      const Ref inside = v.create(dir, "inside", "x");
      v.fs().nodes().files.drop(*file->node);
      v.fs().nodes().files.drop(*inside->node);
      v.fs().nodes().dirs.drop(*dir->node);
      const std::string lower = v.lower("/file"), lower_dir = v.lower("/dir");
      v.fs().nodes().dirs.drop(*dir->node);
      std::filesystem::rename(lower, lower + "x");
      write_raw(lower, "");
      std::filesystem::rename(lower_dir, lower_dir + "x");
      REQUIRE(::mkdir(lower_dir.c_str(), 0755) == 0);
      CHECK(is(v.try_read(file->node).error(), ESTALE));
      CHECK(is(v.fs().attributes(file->node).error(), ESTALE));
      CHECK(is(v.fs().write(file->node, 0, as_bytes("x"), false).error(), ESTALE));
      CHECK(is(v.try_read(inside->node).error(), ESTALE));
      CHECK(is(v.lookup_error(dir, "inside"), ESTALE));
      CHECK(v.lookup(root, "file")->node != file->node);
    }
    v.check_clean();
  }

  TEST_CASE("filesystem: a number that another type took keeps the old node alive until it is forgotten") {
    TestVolume v;
    auto& nodes = v.fs().nodes();
    const daemon::NodeKey key{123456, 42};
    const daemon::Link link{nodes.root(), "name"};
    std::weak_ptr<Node> old = nodes.look_up(key, S_IFREG, link);
    const NodePtr taken = nodes.look_up(key, S_IFDIR, link);
    // The kernel has both ids, and will name both.
    const NodePtr still = old.lock();
    REQUIRE(still);
    CHECK(taken != still);
    CHECK(nodes.find(key) == taken);
    nodes.forget(still, 1);
    CHECK(nodes.find(key) == taken);
    nodes.forget(taken, 1);
    CHECK(!nodes.find(key));
    CHECK(nodes.size() == 1);
    v.check_clean();
  }
}
