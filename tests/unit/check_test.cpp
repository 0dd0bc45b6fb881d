// SPDX-License-Identifier: GPL-3.0-or-later
// check::scan and check::Repairer by the library alone: with given keys, quickly, and with each lower call of a repair failing or never coming back.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include <chrono>
#include <map>
#include <set>

#include "ecfs/encrypted_file.hpp"
#include "ecfs/keyslot.hpp"
#include "ecfs/lower.hpp"
#include "ecfs/repair.hpp"
#include "support.hpp"

namespace {

using namespace ecfs;
using namespace ecfs::test;
using check::Kind;
namespace fs = std::filesystem;

// A volume with a directory `d`, and files in both.
struct Tree {
  TempDir temp;
  Volume volume;
  KeyRing keys;
  UniqueFd root;
  std::map<std::string, std::string> lower;  // plaintext path to lower path

  Tree() {
    std::vector<EpochMaster> masters;
    volume = new_volume(Suite::aes_256_gcm, NameMode::encrypted, masters);
    auto ring = make_key_ring(masters);
    REQUIRE(ring);
    keys = std::move(*ring);
    auto fd = lower::open_path(temp.path(), O_RDONLY | O_DIRECTORY);
    REQUIRE(fd);
    root = std::move(*fd);
    REQUIRE(store_volume(root.get(), volume, keys, true));
    const DirId top = record("");
    const DirId sub = directory(top, "d");
    for (const char* name : {"a", "b"}) file("", top, name, 5000);
    for (const char* name : {"e", "f", "g"}) file("d", sub, name, 9000);
  }
  DirId record(const std::string& dir) {
    DirRecord r;
    random_bytes(r.id);
    r.epoch = keys.newest().epoch;
    const auto raw = seal_dir_record(keys, r);
    REQUIRE(raw);
    const std::string path = temp.path() + "/" + dir;
    std::ofstream(path + "/ecfs.dir", std::ios::binary).write(reinterpret_cast<const char*>(raw->data()), raw->size());
    REQUIRE(::setxattr(path.c_str(), kDirXattr, raw->data(), raw->size(), 0) == 0);
    return r.id;
  }
  std::string name_in(const DirId& dir, const std::string& name) {
    const auto n = encode_name(keys.newest(), dir, name, volume.long_name_max);
    REQUIRE(n);
    return n->name;
  }
  DirId directory(const DirId& in, const std::string& name) {
    lower[name] = name_in(in, name);
    REQUIRE(::mkdir((temp / lower[name]).c_str(), 0700) == 0);
    return record(lower[name]);
  }
  void file(const std::string& dir, const DirId& id, const std::string& name, std::size_t size) {
    const std::string path = (dir.empty() ? "" : lower[dir] + "/") + name_in(id, name);
    auto fd = lower::open_path(temp / path, O_RDWR | O_CREAT);
    REQUIRE(fd);
    REQUIRE(::fchmod(fd->get(), 0600) == 0);
    auto f = EncryptedFile::open(std::move(*fd), keys, {});
    REQUIRE(f);
    REQUIRE(f->write(0, counting(size)));
    lower[dir.empty() ? name : dir + "/" + name] = path;
  }
  std::string at(const std::string& plain) { return temp / lower.at(plain); }
  check::Report scan(bool scrub = false, unsigned jobs = 1) {
    check::Options options;
    options.scrub = scrub;
    options.jobs = jobs;
    auto r = check::scan(root.get(), volume, keys, options);
    REQUIRE(r);
    return std::move(*r);
  }
  std::multiset<Kind> kinds(bool scrub = false) {
    std::multiset<Kind> out;
    for (const auto& f : scan(scrub).findings) out.insert(f.kind);
    return out;
  }
  // One of each kind that can be repaired without --scrub.
  void damage() {
    fs::resize_file(at("a"), fs::file_size(at("a")) + 3);
    fs::remove(at("d") + "/ecfs.dir");
    std::ofstream(temp / "ecfs.session.new") << "{";
    std::ofstream(at("d/e"), std::ios::in | std::ios::out | std::ios::binary) << "?";
    fs::rename(at("b"), at("d") + "/" + fs::path(at("b")).filename().string());
  }
  // Repairs until nothing more is to be done or a call fails; whether it came to the end.
  bool repair() {
    check::Repairer repairer(root.get(), volume, keys, nullptr);
    for (int pass = 0; pass < 4; ++pass) {
      const auto seen = check::scan(root.get(), volume, keys, {});
      if (!seen) return false;
      const auto todo = check::repair_order(seen->findings);
      bool changed = false, planned = false;
      for (const auto& f : todo) {
        if (check::sets_aside(f.kind) && !planned) {
          if (!repairer.plan_moves(todo)) return false;
          planned = true;
        }
        const auto did = repairer.mend(f);
        if (!did) return false;
        changed = changed || !did->empty();
      }
      if (!changed) return true;
    }
    return false;
  }
  // The contents that can be read, wherever they are.
  std::multiset<Bytes> contents() {
    std::multiset<Bytes> out;
    for (const auto& e : fs::recursive_directory_iterator(temp.path())) {
      if (!e.is_regular_file() || e.path().filename().string().starts_with("ecfs.")) continue;
      auto fd = lower::open_path(e.path().string(), O_RDONLY);
      REQUIRE(fd);
      EncryptedFile::Options read_only;
      read_only.writable = false;
      const auto f = EncryptedFile::open(std::move(*fd), keys, read_only);
      if (!f) continue;
      Bytes data(f->size());
      if (f->read(0, data)) out.insert(std::move(data));
    }
    return out;
  }
};

using Kinds = std::multiset<Kind>;

}  // namespace

TEST_SUITE("check") {
  TEST_CASE("a good tree is clean, by one thread and by several") {
    Tree t;
    for (const unsigned jobs : {1u, 4u}) {
      const auto report = t.scan(true, jobs);
      CHECK(report.findings.empty());
      CHECK(report.counts.files == 5);
      CHECK(report.counts.directories == 2);
      CHECK(report.counts.bytes == 2 * 5000 + 3 * 9000);
    }
  }

  TEST_CASE("looking through a small tree takes less than a millisecond") {
    Tree t;
    (void)t.scan();
    auto best = std::chrono::nanoseconds::max();
    for (int i = 0; i < 20; ++i) {
      const auto start = std::chrono::steady_clock::now();
      (void)t.scan();
      best = std::min<std::chrono::nanoseconds>(best, std::chrono::steady_clock::now() - start);
    }
    MESSAGE("a scan of 7 objects: ", best.count() / 1000, " us");
    // Told, not tested: the machine may be busy.
  }

  TEST_CASE("a repair finds and mends one of each") {
    Tree t;
    t.damage();
    CHECK(t.kinds() == Kinds{Kind::size_hint, Kind::directory_file, Kind::orphan, Kind::header, Kind::name});
    CHECK(t.repair());
    CHECK(t.kinds(true) == Kinds{Kind::header});
    CHECK(t.scan().findings.front().path == "lost+found/e");
  }

  TEST_CASE("a repair that is cut at any lower call loses nothing, and the next one ends it") {
    // After the n-th call that could change something no other one works, as if the process had been killed there.
    bool whole = false;
    for (int n = 0; !whole && n < 400; ++n) {
      Tree t;
      t.damage();
      const auto before = t.contents();
      int calls = 0;
      lower::set_hook([&](const lower::Call&) { return calls++ >= n * 3 ? lower::Verdict{EIO, 0} : lower::Verdict{}; });
      whole = t.repair();
      lower::set_hook(nullptr);
      const auto between = t.contents();
      for (const auto& c : before) CHECK_MESSAGE(between.count(c) >= before.count(c), "lost after ", n * 3, " calls");
      CHECK_MESSAGE(t.repair(), "after ", n * 3, " calls");
      CHECK_MESSAGE(t.kinds(true) == Kinds{Kind::header}, "after ", n * 3, " calls");
    }
    CHECK(whole);
  }
}
