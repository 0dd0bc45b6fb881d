// SPDX-License-Identifier: GPL-3.0-or-later
// The session marker: what a session that was cut leaves behind, what the next one makes of it, and which files it then doubts.
#include <functional>
#include <thread>

#include "daemon_support.hpp"
#include "ecfs/layout.hpp"

namespace {

using namespace ecfs;
using namespace ecfs::test;
using daemon::SessionMarker;
using Kind = daemon::SessionMarker::Kind;
using lower::Call;
using lower::Op;
using lower::Verdict;

struct Root {
  TempDir dir;
  UniqueFd fd;
  Root() {
    auto opened = lower::open_path(dir.path(), O_RDONLY | O_DIRECTORY);
    REQUIRE(opened);
    fd = std::move(*opened);
  }
  SessionMarker begin(bool read_only = false) {
    auto m = SessionMarker::begin(fd.get(), read_only ? Kind::reader : Kind::exclusive);
    REQUIRE_MESSAGE(m, m.error().message());
    return std::move(*m);
  }
  std::string marker() const { return dir / "ecfs.session"; }
  bool there() const { return std::filesystem::exists(marker()); }
  void leave(std::string_view text) {
    std::ofstream out(marker(), std::ios::binary | std::ios::trunc);
    out << text;
  }
  // The ctime of a file that is changed now, on the lower filesystem's clock, a tick or more from what was before and comes after.
  timespec touch() {
    std::this_thread::sleep_for(std::chrono::milliseconds(25));
    const std::string file = dir / "touched";
    std::ofstream(file) << "x";
    struct stat st {};
    REQUIRE(::stat(file.c_str(), &st) == 0);
    std::filesystem::remove(file);
    std::this_thread::sleep_for(std::chrono::milliseconds(25));
    return st.st_ctim;
  }
};

constexpr timespec kFarPast{1, 0}, kFarFuture{1L << 40, 0};

}  // namespace

TEST_SUITE("filesystem") {
  TEST_CASE("session marker: a session that ends leaves nothing") {
    Root r;
    SessionMarker m = r.begin();
    CHECK(r.there());
    CHECK(!m.any_cut());
    CHECK(!m.in_cut(kFarPast));
    const std::string holder = SessionMarker::holder(r.fd.get());
    CHECK(holder.starts_with("pid " + std::to_string(::getpid()) + " on "));
    CHECK(m.end(r.fd.get()));
    CHECK(!r.there());
    CHECK(TestVolume::lower_names(r.dir.path()).empty());
    CHECK(m.end(r.fd.get()));  // once more is nothing
    CHECK(SessionMarker::holder(r.fd.get()).empty());
    CHECK(!r.begin().any_cut());
  }

  TEST_CASE("session marker: what a cut session may have changed is doubted, and stays so") {
    Root r;
    const timespec before = r.touch();
    (void)r.begin();  // cut: no end
    const timespec inside = r.touch();
    SessionMarker second = r.begin();
    const timespec between = r.touch();
    CHECK(second.any_cut());
    CHECK(!second.in_cut(before));
    CHECK(second.in_cut(inside));
    CHECK(!second.in_cut(between));
    CHECK(!second.in_cut(kFarFuture));
    CHECK(second.end(r.fd.get()));
    CHECK(r.there());  // what was not verified is still to be
    const timespec after_end = r.touch();
    timespec in_third{};
    {
      const SessionMarker third = r.begin();  // and is cut too
      CHECK(third.in_cut(inside));
      CHECK(!third.in_cut(between));
      CHECK(!third.in_cut(after_end));
      in_third = r.touch();
    }
    SessionMarker fourth = r.begin();
    CHECK(fourth.in_cut(inside));
    CHECK(fourth.in_cut(in_third));
    CHECK(!fourth.in_cut(between));
    CHECK(!fourth.in_cut(after_end));
    CHECK(fourth.end(r.fd.get()));
    // Who only reads, reads the same and changes nothing.
    const std::string text = read_file(r.marker());
    SessionMarker reader = r.begin(true);
    CHECK(reader.in_cut(inside));
    CHECK(!reader.in_cut(after_end));
    CHECK(reader.end(r.fd.get()));
    CHECK(read_file(r.marker()) == text);
    CHECK(TestVolume::lower_names(r.dir.path()) == std::set<std::string>{"ecfs.session"});
  }

  TEST_CASE("session marker: everything is on the disk before it goes") {
    for (const Kind kind : {Kind::exclusive, Kind::shared}) {
      Root r;
      auto m = SessionMarker::begin(r.fd.get(), kind);
      REQUIRE(m);
      std::vector<Op> calls;
      {
        const LowerHook hook([&](const Call& c) -> Verdict {
          if (c.op == Op::syncfs || c.op == Op::unlink) calls.push_back(c.op);
          return {};
        });
        CHECK(m->end(r.fd.get()));
      }
      CHECK(calls == std::vector<Op>{Op::syncfs, Op::unlink});
      auto again = SessionMarker::begin(r.fd.get(), kind);
      REQUIRE(again);
      {
        const LowerHook hook([](const Call& c) -> Verdict { return {.error = c.op == Op::syncfs ? EIO : 0}; });
        CHECK(is_errno(again->end(r.fd.get()).error(), EIO));
      }
      // What may be lost is in doubt.
      CHECK(SessionMarker::begin(r.fd.get(), kind).value().any_cut());
    }
  }

  TEST_CASE("session marker: a reader beside a running writer doubts all since the writer's start") {
    Root r;
    const timespec before = r.touch();
    SessionMarker writer = r.begin();
    const timespec inside = r.touch();
    SessionMarker reader = r.begin(true);
    CHECK(!reader.in_cut(before));
    CHECK(reader.in_cut(inside));
    CHECK(reader.in_cut(kFarFuture));
    CHECK(reader.end(r.fd.get()));
    CHECK(r.there());
    CHECK(writer.end(r.fd.get()));
    CHECK(!r.there());
  }

  TEST_CASE("session marker: a damaged marker makes every file doubted") {
    const std::vector<std::string> damaged = {
        "", "garbage", "[]", "7", "null", "{}", std::string(5000, '\0'), "{\"running\": true}", "{\"cut\": []}",
        R"({"cut": 5, "running": true, "start": [1, 2]})", R"({"cut": [], "running": true})", R"({"cut": [], "running": true, "start": "x"})",
        R"({"cut": [], "running": true, "start": [1]})", R"({"cut": [], "running": true, "start": [1.5, 2]})",
        R"({"cut": [], "running": "yes", "start": [1, 2]})", R"({"cut": [7], "running": false, "start": [1, 2]})",
        R"({"cut": [[[1, 2]]], "running": false, "start": [1, 2]})", R"({"cut": [], "running": true, "start": [1, 2])",
        std::string(30000, '[') + std::string(30000, ']'), std::string(70000, ' ') + "{}"};
    for (const auto& text : damaged)
      for (const bool read_only : {false, true}) {
        CAPTURE(text.substr(0, 70));
        CAPTURE(read_only);
        Root r;
        r.leave(text);
        (void)SessionMarker::holder(r.fd.get());
        SessionMarker m = r.begin(read_only);
        CHECK(m.any_cut());
        CHECK(m.in_cut(kFarPast));
        CHECK(m.in_cut(r.touch()) == read_only);
        CHECK(m.end(r.fd.get()));
        CHECK(r.begin(true).in_cut(kFarPast));
      }
    Root fine;
    fine.leave(R"({"cut": [[[10, 0], [20, 0]]], "host": "h", "pid": 12, "running": false, "start": [30, 0]})");
    CHECK(SessionMarker::holder(fine.fd.get()) == "pid 12 on h");
    const SessionMarker m = fine.begin(true);
    CHECK(!m.in_cut({9, 999999999}));
    CHECK(m.in_cut({10, 0}));
    CHECK(m.in_cut({20, 0}));
    CHECK(!m.in_cut({20, 1}));
    CHECK(!m.in_cut({30, 0}));
  }

  TEST_CASE("session marker: a full disk can be mounted, to make room on it") {
    for (const int error : {ENOSPC, EDQUOT}) {
      CAPTURE(error);
      Root r;
      {
        const LowerHook hook([&](const Call& c) -> Verdict { return {.error = c.op == Op::pwrite ? error : 0}; });
        CHECK(!r.begin().any_cut());
      }
      CHECK(r.there());
      CHECK(std::filesystem::file_size(r.marker()) == 0);
      // Cut, since when is not known.
      CHECK(r.begin().in_cut(kFarPast));
    }
  }

  TEST_CASE("session marker: whatever lower call fails, a cut is never forgotten") {
    for (const Kind kind : {Kind::exclusive, Kind::shared})
      for (const int error : {EIO, ENOSPC})
        for (int n = 1;; ++n) {
          CAPTURE(static_cast<int>(kind));
          CAPTURE(error);
          CAPTURE(n);
          Root r;
          (void)r.begin();
          const timespec inside = r.touch();
          bool hit = false;
          int calls = 0;
          const auto nth = [&](const Call&) -> Verdict { return {.error = ++calls == n ? ((hit = true), error) : 0}; };
          {
            Result<SessionMarker> m = errno_code(EINVAL);
            {
              const LowerHook hook(nth);
              m = SessionMarker::begin(r.fd.get(), kind);
              if (m) {
                const auto ended = m->end(r.fd.get());
                if (!hit) CHECK(ended);
              }
            }
            if (m) CHECK(m->in_cut(inside));
            if (!hit) CHECK(m);
          }
          const SessionMarker next = r.begin();
          CHECK(next.any_cut());
          CHECK(next.in_cut(inside));
          // What a shared session could not give its name is passed over by all others.
          auto left = TestVolume::lower_names(r.dir.path());
          if (kind == Kind::shared) std::erase_if(left, [](const auto& name) { return name.starts_with("ecfs.session.") && name.ends_with(".new"); });
          CHECK(left == std::set<std::string>{"ecfs.session"});
          if (!hit) break;
        }
  }

  TEST_CASE("session marker: sizes of doubted files are verified, others are believed") {
    for (const bool cut : {true, false}) {
      CAPTURE(cut);
      TestVolume v;
      std::uint64_t lower_size = 0;
      {
        v.create(v.root(), "file", std::string(5000, 'x'));
        struct stat st {};
        REQUIRE(::stat(v.lower("/file").c_str(), &st) == 0);
        lower_size = static_cast<std::uint64_t>(st.st_size);
        v.create(v.root(), "empty page", "y");
      }
      const std::string lower = v.lower("/file"), lost = v.lower("/empty page");
      v.close();
      auto root = lower::open_path(v.path(), O_RDONLY | O_DIRECTORY);
      REQUIRE(root);
      if (cut) (void)SessionMarker::begin(root->get(), Kind::exclusive).value();
      std::this_thread::sleep_for(std::chrono::milliseconds(25));
      // The size led its data: a hint of 100 bytes more, and a first write whose page never came.
      REQUIRE(::truncate(lower.c_str(), static_cast<off_t>(lower_size + 100)) == 0);
      REQUIRE(::truncate(lost.c_str(), 0) == 0);
      REQUIRE(::truncate(lost.c_str(), 4096 + 77) == 0);
      std::this_thread::sleep_for(std::chrono::milliseconds(25));
      auto marker = SessionMarker::begin(root->get(), Kind::exclusive);
      REQUIRE(marker);
      v.open(std::move(*marker));
      {
        const Ref file = v.walk("file");
        CHECK(file->attr.st_size == (cut ? 5000 : 5100));
        // Outside a cut the hint was told to the kernel, which would make zeros up behind the true end.
        if (cut)
          CHECK(v.read(file) == std::string(5000, 'x'));
        else
          CHECK(v.try_read(file->node).error() == Errc::damaged_block);
        if (!as_shared()) CHECK(v.stat(file).st_size == 5000);  // it was opened since
        if (as_shared()) v.write(file, "x");                      // only who keeps the others out mends
        const Ref empty = v.walk("empty page");
        if (cut) {
          CHECK(empty->attr.st_size == 0);
          CHECK(v.read(empty).empty());
          v.write(empty, "again");
          CHECK(v.read(empty) == "again");
        } else {
          CHECK(empty->attr.st_size == 77);
          CHECK(v.try_read(empty->node).error() == Errc::damaged_header);
          CHECK(v.fs().damage().headers >= 1);
          // Damage does not keep it from being synced, emptied or removed.
          CHECK(v.fs().sync(empty->node, false));
          CHECK(is_errno(v.fs().write(empty->node, 0, as_bytes("x"), false).error(), EIO) == false);
          daemon::AttrChange c;
          c.size = 1;
          CHECK(v.fs().change_attributes(empty->node, c).error() == Errc::damaged_header);
          c.size = 0;
          CHECK(v.fs().change_attributes(empty->node, c).value().st_size == 0);
          v.write(empty, "again");
          CHECK(v.read(empty) == "again");
        }
        struct stat st {};
        REQUIRE(::stat(lower.c_str(), &st) == 0);
        CHECK(st.st_size == static_cast<off_t>(lower_size));  // set right
      }
      CHECK(v.fs().marker().end(root->get()));
      root->reset();
      v.check_clean();
    }
  }
}
