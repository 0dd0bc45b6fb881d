// SPDX-License-Identifier: GPL-3.0-or-later
// PostMark 1.51: a mail server's transactions over many files that live a short time.
#include <algorithm>

#include "workloads/list.hpp"

namespace ecfs::bench {
namespace {

constexpr std::uint64_t kFiles = 500, kTransactions = 25000, kSmallest = 5 << 10, kLargest = 512 << 10;
// PostMark hands 512 bytes at a time to stdio, which makes calls of this size of them.
constexpr std::uint64_t kBuffer = 4096;

class PostMark {
 public:
  explicit PostMark(Job& job)
      : calls_(job.calls()), random_(job.random()), data_(job.random_bytes(kLargest, 1)), buffer_(kBuffer),
        sizes_(2 * std::max<std::uint64_t>(2, job.scaled(kFiles)), 0) {}

  void create_pool() {
    for (std::uint64_t i = 0; i < sizes_.size() / 2; ++i) create();
  }

  // One transaction reads or appends, and then creates or deletes, each as often as the other.
  void transaction() {
    if (used_ > 0) random_.chance(50) ? read(any_used()) : append(any_used());
    if (random_.chance(50)) {
      if (used_ < sizes_.size()) create();
    } else if (used_ > 0) {
      remove(any_used());
    }
  }

 private:
  std::string name(std::size_t slot) const { return std::to_string(names_[slot]); }

  std::size_t any_used() {
    for (;;)
      if (const std::size_t slot = random_.below(sizes_.size()); sizes_[slot] > 0) return slot;
  }

  void write(File& file, std::uint64_t size) {
    for (std::uint64_t at = 0; at < size; at += kBuffer) file.write(std::span(data_).subspan(at, std::min(kBuffer, size - at)));
    file.close();
  }

  void create() {
    std::size_t slot = random_.below(sizes_.size());
    while (sizes_[slot] > 0) slot = (slot + 1) % sizes_.size();
    names_.resize(sizes_.size());
    names_[slot] = ++created_;
    sizes_[slot] = random_.between(kSmallest, kLargest);
    ++used_;
    File file = calls_.create(name(slot));
    write(file, sizes_[slot]);
  }

  void append(std::size_t slot) {
    if (sizes_[slot] >= kLargest) return;
    const std::uint64_t more = random_.between(1, kLargest - sizes_[slot]);
    File file = calls_.open(name(slot), O_WRONLY | O_APPEND);
    write(file, more);
    sizes_[slot] += more;
  }

  void read(std::size_t slot) {
    File file = calls_.open(name(slot), O_RDONLY);
    while (file.read(buffer_) > 0) {
    }
    file.close();
  }

  void remove(std::size_t slot) {
    calls_.unlink(name(slot));
    sizes_[slot] = 0;
    --used_;
  }

  Calls& calls_;
  Random random_;
  std::vector<std::byte> data_, buffer_;
  std::vector<std::uint64_t> sizes_, names_;  // by slot; a size of 0: the slot is free
  std::uint64_t created_ = 0, used_ = 0;
};

void run(Job& job) {
  PostMark work(job);
  work.create_pool();
  const std::uint64_t transactions = job.scaled(kTransactions);
  job.measure("postmark", static_cast<double>(transactions), [&] {
    for (std::uint64_t i = 0; i < transactions; ++i) work.transaction();
  });
}

}  // namespace

std::vector<Workload> postmark_workloads() {
  return {{.name = "postmark",
           .after = "PostMark 1.51",
           .what = "25,000 mail-server transactions (read or append, then create or delete) over 500 files of 5 to 512 KiB; the figure is of the "
                   "transactions alone, and 512-byte writes reach the system as 4 KiB, as through stdio",
           .figures = {{.name = "postmark", .unit = "TPS", .group = Group::small_files}},
           .quick = 0.1,
           .seeds = true,
           // At most twice the files of the pool at once.
           .bytes = [](double scale) { return 2 * std::max<std::uint64_t>(2, scaled(scale, kFiles)) * kLargest; },
           .run = run}};
}

}  // namespace ecfs::bench
