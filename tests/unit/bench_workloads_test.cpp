// SPDX-License-Identifier: GPL-3.0-or-later
// Every workload, tiny: it reports what it promises, needs no more room than it says, and leaves nothing but files in its directory.
#include <doctest/doctest.h>
#include <sys/wait.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "workload.hpp"
#include "workloads/tree.hpp"

using namespace ecfs::bench;
namespace fs = std::filesystem;

namespace {

constexpr double kTiny = 0.001;

struct Directory {
  Directory() : path((fs::temp_directory_path() / "ecfs-bench-test-XXXXXX").string()) { REQUIRE(::mkdtemp(path.data())); }
  ~Directory() { fs::remove_all(path); }
  std::string path;
};

std::size_t open_descriptors() {
  return static_cast<std::size_t>(std::distance(fs::directory_iterator("/proc/self/fd"), fs::directory_iterator()));
}

std::uint64_t bytes_below(const fs::path& path) {
  std::uint64_t sum = 0;
  for (const auto& entry : fs::recursive_directory_iterator(path))
    if (entry.is_regular_file()) sum += entry.file_size();
  return sum;
}

}  // namespace

TEST_SUITE("bench workloads") {
  TEST_CASE("each reports its figures and leaves nothing else behind") {
    for (const Workload& w : all_workloads()) {
      if (w.unavailable && !w.unavailable().empty()) {
        MESSAGE("SKIP " << w.name << ": " << w.unavailable());
        continue;
      }
      INFO(w.name);
      const Directory parent;
      const std::string directory = parent.path + "/job";
      fs::create_directory(directory);
      const auto descriptors = open_descriptors();
      {
        Job job(w, directory, {kTiny, 1, false}, {});
        w.run(job);
        std::map<std::string, int> seen;
        for (const Sample& s : job.samples()) {
          ++seen[s.figure];
          CHECK(s.value > 0);
        }
        for (const Figure& f : w.figures) {
          INFO(f.name);
          // Nobody may drop the caches here.
          CHECK(seen[f.name] == (f.cold ? 0 : 1));
        }
      }
      CHECK(bytes_below(directory) <= w.bytes(kTiny));
      CHECK(open_descriptors() == descriptors);
      CHECK(::waitpid(-1, nullptr, WNOHANG) == -1);
      // Only its own directory, and in it nothing that stops its removal.
      CHECK(std::distance(fs::directory_iterator(parent.path), fs::directory_iterator()) == 1);
      std::error_code error;
      fs::remove_all(directory, error);
      CHECK(!error);
    }
  }

  TEST_CASE("a source tree like the kernel's") {
    const auto tree = make_source_tree(Random(1), kKernelFiles);
    CHECK(tree.files.size() == kKernelFiles);
    CHECK(tree.file_bytes > 200'000'000);
    CHECK(tree.file_bytes < kKernelBytes);
    CHECK(tree.object_bytes < kKernelObjectBytes);
    CHECK(std::ranges::all_of(tree.files, [](const auto& f) { return f.path.size() <= 100; }));
    CHECK(std::ranges::adjacent_find(tree.files, {}, &TreeFile::path) == tree.files.end());
    // Each directory comes after the one that it is in.
    for (std::size_t i = 0; i < tree.directories.size(); ++i) {
      const auto slash = tree.directories[i].rfind('/');
      if (slash == std::string::npos) continue;
      const auto parent = std::ranges::find(tree.directories, tree.directories[i].substr(0, slash));
      CHECK(parent - tree.directories.begin() < static_cast<std::ptrdiff_t>(i));
    }
    CHECK(make_source_tree(Random(1), 100).files[50].path == make_source_tree(Random(1), 100).files[50].path);
  }
}
