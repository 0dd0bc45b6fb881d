// SPDX-License-Identifier: GPL-3.0-or-later
// IOzone's first two tests: a file written, written again, read, and read again, in records.
#include "workloads/list.hpp"

namespace ecfs::bench {
namespace {

constexpr std::uint64_t kRecord = 64 << 10, kRecords = (8ULL << 30) / kRecord;

void run(Job& job) {
  const std::uint64_t records = job.scaled(kRecords);
  const double amount = megabytes(records * kRecord);
  auto record = job.random_bytes(kRecord);
  const auto write = [&](File file) {
    for (std::uint64_t i = 0; i < records; ++i) file.write(record);
    file.sync();
    file.close();
  };
  const auto read = [&] {
    File file = job.calls().open("file", O_RDONLY);
    for (std::uint64_t i = 0; i < records; ++i) file.read(record);
    file.close();
  };
  job.measure("iozone-write", amount, [&] { write(job.calls().create("file")); });
  job.measure("iozone-rewrite", amount, [&] { write(job.calls().open("file", O_WRONLY)); });
  if (job.drop_caches()) job.measure("iozone-read", amount, read);
  job.measure("iozone-reread", amount, read);
}

}  // namespace

std::vector<Workload> iozone_workloads() {
  return {{.name = "iozone",
           .after = "IOzone 3.405",
           .what = "a file of 8 GiB in 64 KiB records: written, written again, read, and read again; the times to write include an fsync, as with "
                   "its option -e, and the first reading begins with empty caches",
           .figures = {{.name = "iozone-write", .unit = "MB/s", .group = Group::streaming},
                       {.name = "iozone-rewrite", .unit = "MB/s", .group = Group::streaming},
                       {.name = "iozone-read", .unit = "MB/s", .group = Group::streaming, .cold = true},
                       {.name = "iozone-reread", .unit = "MB/s", .group = Group::streaming}},
           .seeds = true,
           .bytes = [](double scale) { return scaled(scale, kRecords) * kRecord; },
           .run = run}};
}

}  // namespace ecfs::bench
