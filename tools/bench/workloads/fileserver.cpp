// SPDX-License-Identifier: GPL-3.0-or-later
// fio's emulation of Intel's IOMeter pattern for file servers: random reads and writes of mixed sizes with 64 of them under way at once.
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>

#include "workloads/list.hpp"

namespace ecfs::bench {
namespace {

constexpr std::uint64_t kFileSize = 4ULL << 30, kLayoutBlock = 1 << 20, kAlign = 512;
constexpr unsigned kDepth = 64, kReadPercent = 80;
constexpr std::array<unsigned, 8> kShares{10, 5, 5, 60, 2, 4, 4, 10};
constexpr std::array<std::size_t, 8> kSizes{512, 1 << 10, 2 << 10, 4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10};
constexpr std::size_t kLargest = kSizes.back();

std::uint64_t blocks_of(double scale) { return scaled(scale, kFileSize / kLayoutBlock); }

struct Free {
  void operator()(void* p) const { std::free(p); }
};
using Buffer = std::unique_ptr<std::byte, Free>;

Buffer aligned_buffer() {
  Buffer buffer(static_cast<std::byte*>(std::aligned_alloc(4096, kLargest)));
  if (!buffer) throw std::bad_alloc();
  return buffer;
}

// Past the page cache, as fio's direct=1. Some filesystems do not have that, or not for 512 bytes: the file then stays as it is.
void make_direct(const File& file, std::span<std::byte> buffer) {
  const int flags = ::fcntl(file.fd(), F_GETFL);
  if (flags < 0 || ::fcntl(file.fd(), F_SETFL, flags | O_DIRECT) != 0) return;
  if (::pread(file.fd(), buffer.data(), kAlign, kAlign) < 0) ::fcntl(file.fd(), F_SETFL, flags);
}

void run(Job& job) {
  const std::uint64_t size = blocks_of(job.scale()) * kLayoutBlock;
  {
    const auto block = job.random_bytes(kLayoutBlock);
    File file = job.calls().create("file");
    for (std::uint64_t at = 0; at < size; at += kLayoutBlock) file.write(block);
    file.sync();
    file.close();
  }
  job.measure_values([&] {
    std::array<std::uint64_t, kDepth> operations{};
    const auto began = std::chrono::steady_clock::now();
    job.threads(kDepth, [&](Calls& calls, unsigned thread) {
      Random random = job.random(1 + thread);
      const Buffer memory = aligned_buffer();
      const std::span<std::byte> buffer(memory.get(), kLargest);
      random.fill(buffer);
      File file = calls.open("file", O_RDWR);
      make_direct(file, buffer);
      for (std::uint64_t moved = 0; moved < size / kDepth; ++operations[thread]) {
        const std::size_t length = kSizes[random.pick(kShares)];
        const std::uint64_t offset = random.below((size - length) / kAlign + 1) * kAlign;
        if (random.chance(kReadPercent)) {
          file.pread(buffer.first(length), offset);
        } else {
          file.pwrite(buffer.first(length), offset);
        }
        moved += length;
      }
      file.close();
    });
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    std::uint64_t sum = 0;
    for (const auto n : operations) sum += n;
    return std::vector<std::pair<std::string, double>>{{"fileserver", seconds}, {"fileserver-iops", static_cast<double>(sum) / seconds}};
  });
}

}  // namespace

std::vector<Workload> fileserver_workloads() {
  return {{.name = "fileserver",
           .after = "fio's Intel IOMeter file-server pattern",
           .what = "as much as a file of 4 GiB holds, moved by random calls at multiples of 512 bytes: 80 % reads, 512 B 10 %, 1 K 5 %, 2 K 5 %, "
                   "4 K 60 %, 8 K 2 %, 16 K 4 %, 32 K 4 %, 64 K 10 %, direct where the target has that; 64 threads stand for the queue depth of 64, "
                   "and a place may come twice",
           .figures = {{.name = "fileserver", .unit = "s", .kind = Kind::value, .group = Group::streaming, .higher_is_better = false},
                       {.name = "fileserver-iops", .unit = "/s", .kind = Kind::value, .group = Group::streaming}},
           .quick = 0.01,
           .seeds = true,
           .bytes = [](double scale) { return blocks_of(scale) * kLayoutBlock; },
           .run = run}};
}

}  // namespace ecfs::bench
