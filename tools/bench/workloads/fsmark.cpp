// SPDX-License-Identifier: GPL-3.0-or-later
// FS-Mark 3.3: files of 1 MiB in writes of 16 KiB, each fsynced before it is closed (-S 1).
#include "workloads/list.hpp"

namespace ecfs::bench {
namespace {

constexpr std::uint64_t kFileSize = 1 << 20, kWrite = 16 << 10;

struct Shape {
  const char* name;
  std::uint64_t files;
  unsigned threads, directories;
};

// A file's name has 40 characters, as fs_mark's have: zeros, then random ones that keep two files apart.
std::string file_name(Random& random, std::uint64_t number) {
  static constexpr char digits[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ~-";
  std::string tail = std::to_string(number) + "-";
  while (tail.size() < 16) tail += digits[random.below(62)];
  return std::string(40 - tail.size(), '0') + tail;
}

void run(Job& job, const Shape& shape) {
  const std::uint64_t each = std::max<std::uint64_t>(1, job.scaled(shape.files) / shape.threads);
  const auto block = job.random_bytes(kWrite);
  const auto directory = [&](unsigned thread, std::uint64_t n) { return "thread" + std::to_string(thread) + "/" + std::to_string(n); };
  for (unsigned t = 0; t < shape.threads; ++t) {
    job.calls().mkdir("thread" + std::to_string(t));
    for (unsigned d = 0; d < shape.directories; ++d) job.calls().mkdir(directory(t, d));
  }
  job.measure(shape.name, static_cast<double>(each * shape.threads), [&] {
    job.threads(shape.threads, [&](Calls& calls, unsigned thread) {
      Random random = job.random(1 + thread);
      for (std::uint64_t i = 0; i < each; ++i) {
        // One directory after the other is filled, as fs_mark does without its round-robin.
        const std::uint64_t at = i * shape.directories / each;
        File file = calls.create(directory(thread, at) + "/" + file_name(random, i));
        for (std::uint64_t written = 0; written < kFileSize; written += kWrite) file.write(block);
        file.sync();
        file.close();
      }
    });
  });
}

Workload entry(const Shape& shape, const char* what, double quick) {
  return {.name = shape.name,
          .after = "FS-Mark 3.3",
          .what = what,
          .figures = {{.name = shape.name, .unit = "files/s", .group = Group::sync_heavy}},
          .quick = quick,
          .seeds = true,
          .bytes = [shape](double scale) { return (scaled(scale, shape.files) + shape.threads) * kFileSize; },
          .run = [shape](Job& job) { run(job, shape); }};
}

}  // namespace

std::vector<Workload> fsmark_workloads() {
  return {entry({"fsmark-1000", 1000, 1, 1}, "1000 files of 1 MiB in 16 KiB writes, fsync before close", 0.1),
          entry({"fsmark-4threads", 5000, 4, 1}, "5000 files of 1 MiB by 4 threads, each in its own directory, fsync before close", 0),
          entry({"fsmark-subdirs", 4000, 1, 32}, "4000 files of 1 MiB over 32 subdirectories, fsync before close", 0)};
}

}  // namespace ecfs::bench
