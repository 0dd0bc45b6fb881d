// SPDX-License-Identifier: GPL-3.0-or-later
// hdparm -T and -t, on a file in place of a disk.
#include "workloads/list.hpp"

namespace ecfs::bench {
namespace {

constexpr std::uint64_t kBlock = 2 << 20, kBlocks = 256, kCachedReads = 2048;

void run(Job& job) {
  const std::uint64_t blocks = job.scaled(kBlocks), cached = job.scaled(kCachedReads);
  auto block = job.random_bytes(kBlock);
  {
    File file = job.calls().create("file");
    for (std::uint64_t i = 0; i < blocks; ++i) file.write(block);
    file.sync();
    file.close();
  }
  {
    File file = job.calls().open("file", O_RDONLY);
    file.pread(block, 0);
    job.measure("cached-read", megabytes(cached * kBlock), [&] {
      for (std::uint64_t i = 0; i < cached; ++i) file.pread(block, 0);
    });
    file.close();
  }
  if (!job.drop_caches()) return;
  job.measure("buffered-read", megabytes(blocks * kBlock), [&] {
    File file = job.calls().open("file", O_RDONLY);
    while (file.read(block) > 0) {
    }
    file.close();
  });
}

}  // namespace

std::vector<Workload> hdparm_workloads() {
  return {{.name = "hdparm",
           .after = "hdparm -tT",
           .what = "the first 2 MiB of a file read 2048 times from the cache, then its 512 MiB from front to back in 2 MiB with empty caches; a file "
                   "in place of the disk, and a fixed amount in place of 2 and 3 seconds",
           .figures = {{.name = "cached-read", .unit = "MB/s", .group = Group::streaming},
                       {.name = "buffered-read", .unit = "MB/s", .group = Group::streaming, .cold = true}},
           .quick = 0.1,
           .seeds = true,
           .bytes = [](double scale) { return scaled(scale, kBlocks) * kBlock; },
           .run = run}};
}

}  // namespace ecfs::bench
