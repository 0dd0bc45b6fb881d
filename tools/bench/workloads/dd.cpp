// SPDX-License-Identifier: GPL-3.0-or-later
// dd: one file written and read from front to back.
#include "workloads/list.hpp"

namespace ecfs::bench {
namespace {

constexpr std::uint64_t kBlock = 512 << 10, kBlocks = 1024;

void run(Job& job) {
  const std::uint64_t blocks = job.scaled(kBlocks);
  const double amount = megabytes(blocks * kBlock);
  auto block = job.random_bytes(kBlock);
  job.measure("dd-write", amount, [&] {
    File file = job.calls().create("file");
    for (std::uint64_t i = 0; i < blocks; ++i) file.write(block);
    file.sync();
    file.close();
  });
  if (!job.drop_caches()) return;
  job.measure("dd-read", amount, [&] {
    File file = job.calls().open("file", O_RDONLY);
    while (file.read(block) > 0) {
    }
    file.close();
  });
}

}  // namespace

std::vector<Workload> dd_workloads() {
  return {{.name = "dd",
           .after = "dd",
           .what = "512 MiB in 512 KiB blocks written, then read with empty caches; the time to write includes an fsync, since the file fits into "
                   "the caches of today, and the bytes are random, not zero",
           .figures = {{.name = "dd-write", .unit = "MB/s", .group = Group::streaming},
                       {.name = "dd-read", .unit = "MB/s", .group = Group::streaming, .cold = true}},
           .quick = 0.25,
           .seeds = true,
           .bytes = [](double scale) { return scaled(scale, kBlocks) * kBlock; },
           .run = run}};
}

}  // namespace ecfs::bench
