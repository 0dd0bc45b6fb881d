// SPDX-License-Identifier: GPL-3.0-or-later
// The benchmark's jobs: traced calls, measurements, threads, and that one seed gives the same operations.
#include <doctest/doctest.h>
#include <sys/wait.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <thread>

#include "workload.hpp"

using namespace ecfs::bench;

namespace {

struct Directory {
  Directory() : path((std::filesystem::temp_directory_path() / "ecfs-bench-test-XXXXXX").string()) { REQUIRE(::mkdtemp(path.data())); }
  ~Directory() { std::filesystem::remove_all(path); }
  std::string path;
};

std::uint64_t hash_of(const Workload& w, double scale, std::uint64_t seed) {
  const Directory directory;
  Job job(w, directory.path, {scale, seed, false}, {});
  w.run(job);
  CHECK(job.trace().calls() > 0);
  for (const Sample& s : job.samples()) CHECK(s.value > 0);
  return job.trace().hash();
}

const Workload kNothing{.name = "nothing",
                        .after = "",
                        .what = "",
                        .figures = {{.name = "rate", .unit = "x/s"}, {.name = "time", .unit = "s", .kind = Kind::seconds},
                                    {.name = "value", .unit = "x", .kind = Kind::value}},
                        .bytes = [](double) { return 0; },
                        .run = [](Job&) {}};

}  // namespace

TEST_SUITE("bench") {
  TEST_CASE("the table of workloads") {
    std::set<std::string> names, figures;
    for (const Workload& w : all_workloads()) {
      INFO(w.name);
      CHECK(names.insert(w.name).second);
      CHECK(!w.what.empty());
      CHECK(!w.figures.empty());
      CHECK(w.bytes(1) >= w.bytes(0.01));
      for (const Figure& f : w.figures) {
        CHECK(figures.insert(f.name).second);
        CHECK(!f.unit.empty());
      }
    }
  }

  TEST_CASE("one seed, one sequence of operations; another seed, another") {
    for (const Workload& w : all_workloads()) {
      if (w.unavailable && !w.unavailable().empty()) continue;
      INFO(w.name);
      const auto first = hash_of(w, 0.002, 1);
      CHECK(first == hash_of(w, 0.002, 1));
    }
    const auto postmark = std::ranges::find(all_workloads(), "postmark", &Workload::name);
    CHECK(hash_of(*postmark, 0.002, 1) != hash_of(*postmark, 0.002, 2));
  }

  TEST_CASE("calls do what they say, and go into the trace") {
    const Directory directory;
    Job job(kNothing, directory.path, {}, {});
    Calls& calls = job.calls();
    std::vector<std::byte> data = job.random_bytes(1000), back(2000);
    auto before = job.trace().hash();
    const auto changes = [&] { return std::exchange(before, job.trace().hash()) != job.trace().hash(); };
    calls.mkdir("d");
    CHECK(changes());
    File file = calls.open("d/f", O_CREAT | O_RDWR);
    file.write(data);
    CHECK(file.pread(back, 0) == 1000);
    CHECK(std::ranges::equal(data, std::span(back).first(1000)));
    file.pwrite(std::span(data).first(10), 2000);
    CHECK(file.stat().st_size == 2010);
    file.seek(1990);
    CHECK(file.read(back) == 20);
    file.truncate(5);
    file.sync();
    file.sync_data();
    file.close();
    CHECK(changes());
    calls.rename("d/f", "d/g");
    calls.link("d/g", "d/h");
    calls.symlink("h", "d/l");
    CHECK(calls.stat("d/l").st_nlink == 2);
    CHECK(S_ISLNK(calls.lstat("d/l").st_mode));
    auto names = calls.list("d");
    std::ranges::sort(names);
    CHECK(names == std::vector<std::string>{"g", "h", "l"});
    CHECK(calls.exists("d/g"));
    CHECK_FALSE(calls.exists("d/f"));
    calls.truncate("d/g", 3);
    CHECK(calls.stat("d/g").st_size == 3);
    changes();
    for (const auto& name : names) calls.unlink("d/" + name);
    calls.sync_directory("d");
    calls.sync_filesystem();
    calls.rmdir("d");
    CHECK(changes());
    CHECK(std::filesystem::is_empty(directory.path));
  }

  TEST_CASE("a call that fails says which, on what, and why") {
    const Directory directory;
    Job job(kNothing, directory.path, {}, {});
    CHECK_THROWS_WITH_AS(job.calls().unlink("no/such"), "unlink of no/such: No such file or directory", CallFailed);
    CHECK_THROWS_AS(job.calls().open("x", O_RDONLY), CallFailed);
    CHECK_THROWS_AS(job.threads(3, [](Calls& calls, unsigned i) { if (i == 1) calls.rmdir("x"); }), CallFailed);
  }

  TEST_CASE("what is measured") {
    const Directory directory;
    Probe probe;
    std::uint64_t messages = 100;
    bool settled = false;
    probe.messages = [&] { return messages; };
    probe.settle = [&] { settled = true; };
    Job job(kNothing, directory.path, {}, probe);
    const auto nap = [&] { std::this_thread::sleep_for(std::chrono::milliseconds(20)), messages += 7; };
    job.measure("rate", 100, nap);
    job.measure("time", 0, nap);
    job.measure_value("value", [] { return 5.0; });
    REQUIRE(job.samples().size() == 3);
    const Sample &rate = job.samples()[0], &time = job.samples()[1], &value = job.samples()[2];
    CHECK(rate.cost.wall >= 0.02);
    CHECK(rate.value == doctest::Approx(100 / rate.cost.wall));
    CHECK(rate.cost.messages == 7);
    CHECK_FALSE(rate.cost.lower_bytes.has_value());
    CHECK(settled);
    CHECK(time.value == time.cost.wall);
    CHECK(value.value == 5);
    CHECK(value.cost.messages == 0);
    CHECK_THROWS_AS(job.measure("other", 1, [] {}), std::logic_error);
  }

  TEST_CASE("processor time is counted for threads and for programs") {
    const Directory directory;
    Job job(kNothing, directory.path, {}, {});
    const auto before = own_cpu();
    CHECK(job.run({"sh", "-c", "echo $PWD; i=0; while [ $i -lt 60000 ]; do i=$((i+1)); done"}).text ==
          std::filesystem::canonical(directory.path).string() + "\n");
    CHECK((own_cpu() - before).total() > 0);
    CHECK_THROWS_AS(job.run({"sh", "-c", "echo why; exit 3"}), std::runtime_error);
    CHECK_THROWS_AS(job.run({"/no/such/program"}), std::system_error);
    CHECK(cpu_of(::getpid()).has_value());
    CHECK_FALSE(cpu_of(0).has_value());
  }
}
