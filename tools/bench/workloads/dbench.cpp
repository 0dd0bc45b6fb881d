// SPDX-License-Identifier: GPL-3.0-or-later
// Dbench 4.0 with one client: what a file server does on its disk for one desktop that runs NetBench's office programs.
#include <sys/statvfs.h>

#include <algorithm>
#include <array>
#include <chrono>

#include "workloads/list.hpp"

namespace ecfs::bench {
namespace {

// A load file of dbench goes 129 times through the same programs.
constexpr std::uint64_t kRounds = 129;
// How often in one of these rounds. Its locks (2) are left out.
enum Operation { read_some, write_some, stat_there, stat_missing, find, open_there, create, close_one, unlink_one, space, file_info, times, flush, rename_one };
constexpr std::array<unsigned, 14> kCounts{963, 249, 418, 352, 215, 298, 124, 422, 124, 102, 98, 50, 43, 26};
// The directories of the programs, by how many of the opened files are in each.
constexpr std::array<const char*, 10> kDirectories{"PARADOX", "PM", "PWRPNT", "WORDPRO", "COREL", "EXCEL", "WORD", "SEED", "ACCESS", "TEMP"};
constexpr std::array<unsigned, 10> kDirectoryShares{262, 166, 88, 62, 59, 52, 45, 27, 19, 10};
constexpr std::array<std::size_t, 6> kReadSizes{4096, 61440, 2048, 8192, 16384, 512};
constexpr std::array<unsigned, 6> kReadShares{832, 166, 46, 46, 19, 12};
constexpr std::array<std::size_t, 6> kWriteSizes{65536, 4096, 2048, 8192, 510, 1500};
constexpr std::array<unsigned, 6> kWriteShares{127, 99, 17, 12, 4, 62};
// 57 more are of one byte: a client makes room in a new file by writing its last one.
constexpr unsigned kRoomPercent = 46;
constexpr std::uint64_t kRoom = 65535;
constexpr std::size_t kLargest = 65536, kFillers = 20, kPool = 60, kMostOpen = 14;
constexpr std::uint64_t kFillerSize = 1 << 20, kLargestFile = 1 << 20, kFirstSize = 128 << 10;

class Client {
 public:
  explicit Client(Job& job) : job_(job), calls_(job.calls()), random_(job.random()), buffer_(job.random_bytes(kLargest, 1)) {}

  // The files that are there when the programs begin.
  void prepare() {
    for (const char* d : kDirectories) calls_.mkdir(d);
    for (std::size_t i = 0; i < kFillers; ++i) fill("filler." + std::to_string(i), kFillerSize);
    for (std::size_t i = 0; i < kPool; ++i) {
      names_.push_back(new_name());
      fill(names_.back(), kFirstSize);
    }
  }

  void round() {
    std::vector<Operation> order;
    for (std::size_t i = 0; i < kCounts.size(); ++i) order.insert(order.end(), kCounts[i], static_cast<Operation>(i));
    random_.shuffle(order);
    for (const Operation operation : order) perform(operation);
  }

  void finish() { open_.clear(); }
  std::uint64_t moved() const { return moved_; }

 private:
  struct Open {
    File file;
    std::string name;
    std::uint64_t size, at = 0;
  };

  std::string any_directory() { return kDirectories[random_.pick(kDirectoryShares)]; }
  std::string new_name() { return any_directory() + "/__" + std::to_string(++made_) + ".DAT"; }
  std::string any_name() { return names_[random_.below(names_.size())]; }
  Open& any_open() {
    if (open_.empty()) open(any_name(), O_RDWR);
    return open_[random_.below(open_.size())];
  }

  void fill(const std::string& name, std::uint64_t size) {
    File file = calls_.create(name);
    for (std::uint64_t at = 0; at < size; at += kLargest) file.write(buffer_);
    file.close();
  }

  void open(const std::string& name, int flags) {
    if (open_.size() == kMostOpen) close();
    open_.push_back({calls_.open(name, flags, 0600), name, 0});
    open_.back().size = static_cast<std::uint64_t>(open_.back().file.stat().st_size);
  }

  void close() {
    if (open_.empty()) return;
    const auto which = open_.begin() + static_cast<std::ptrdiff_t>(random_.below(open_.size()));
    which->file.close();
    open_.erase(which);
  }

  void unlink() {
    if (names_.size() < kPool / 2) return;
    const auto which = names_.begin() + static_cast<std::ptrdiff_t>(random_.below(names_.size()));
    // The programs close what they delete.
    std::erase_if(open_, [&](Open& o) { return o.name == *which && (o.file.close(), true); });
    calls_.stat(*which);
    calls_.unlink(*which);
    names_.erase(which);
  }

  // A missing name makes the server look for one that differs in upper and lower case.
  void look_for_missing() {
    const std::string directory = any_directory();
    calls_.exists(directory + "/MISSING" + std::to_string(random_.below(1000)) + ".XLS");
    calls_.list(directory);
  }

  // Search results come with each file's attributes.
  void search() {
    const std::string directory = any_directory();
    auto found = calls_.list(directory);
    std::ranges::sort(found);
    if (random_.chance(50)) return;  // nothing matches
    for (std::size_t i = 0; i < std::min<std::size_t>(11, found.size()); ++i) calls_.stat(directory + "/" + found[i]);
  }

  // From where the file was left, or from its beginning; most files have what is asked for.
  void read() {
    const std::size_t n = kReadSizes[random_.pick(kReadShares)];
    Open* o = &any_open();
    for (int tries = 0; tries < 8 && o->size < n; ++tries) o = &any_open();
    if (o->at + n > o->size) o->at = 0;
    moved_ += o->file.pread(std::span(buffer_).first(n), o->at);
    o->at += n;
  }

  void write() {
    Open& o = any_open();
    const std::size_t n = kWriteSizes[random_.pick(kWriteShares)];
    if (o.at + n > kLargestFile) o.at = 0;
    write_at(o, n, o.at);
    o.at += n;
  }

  void write_at(Open& o, std::size_t n, std::uint64_t at) {
    o.file.pwrite(std::span(buffer_).first(n), at);
    o.size = std::max(o.size, at + n);
    moved_ += n;
  }

  void rename() {
    const std::size_t which = random_.below(names_.size());
    const std::string old = names_[which];
    names_[which] = new_name();
    calls_.stat(old);
    calls_.rename(old, names_[which]);
    for (Open& o : open_)
      if (o.name == old) o.name = names_[which];
  }

  void ask_for_space() {
    calls_.trace().add("statvfs");
    struct statvfs st;
    if (::statvfs(job_.path("").c_str(), &st) != 0) throw CallFailed("statvfs", ".", errno);
  }

  void perform(Operation operation) {
    switch (operation) {
      case read_some: return read();
      case write_some: return write();
      case stat_there: return void(calls_.stat(any_name()));
      case stat_missing: return look_for_missing();
      case find: return search();
      case open_there: {
        const std::string name = any_name();
        calls_.stat(name);
        return open(name, O_RDWR);
      }
      case create:
        names_.push_back(new_name());
        calls_.exists(names_.back());
        open(names_.back(), O_RDWR | O_CREAT);
        if (random_.chance(kRoomPercent)) write_at(open_.back(), 1, kRoom - 1);
        return;
      case close_one: return close();
      case unlink_one: return unlink();
      case space: return ask_for_space();
      case file_info: return void(any_open().file.stat());
      case times: {
        const timespec when[2] = {{1000000000, 0}, {1000000000, 0}};
        return calls_.set_times(any_open().name, when);
      }
      case flush: return any_open().file.sync();
      case rename_one: return rename();
    }
  }

  Job& job_;
  Calls& calls_;
  Random random_;
  std::vector<std::byte> buffer_;
  std::vector<std::string> names_;
  std::vector<Open> open_;
  std::uint64_t made_ = 0, moved_ = 0;
};

void run(Job& job) {
  Client client(job);
  client.prepare();
  job.measure_value("dbench-1", [&] {
    const auto began = std::chrono::steady_clock::now();
    for (std::uint64_t i = job.scaled(kRounds); i > 0; --i) client.round();
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    return megabytes(client.moved()) / seconds;
  });
  client.finish();
}

}  // namespace

std::vector<Workload> dbench_workloads() {
  return {{.name = "dbench-1",
           .after = "Dbench 4.0, one client",
           .what = "what a file server does for a desktop with office programs: 129 rounds of 963 reads, 306 writes, 298 opened and 124 created files, "
                   "770 stats, 215 searches, 124 deletions, 43 fsyncs, 26 renames; MB/s read and written. The counts and sizes are those of its load "
                   "file, the order is random and locks are left out",
           .figures = {{.name = "dbench-1", .unit = "MB/s", .kind = Kind::value, .group = Group::sync_heavy}},
           .quick = 0.03,
           .seeds = true,
           // The pool cannot grow by more than the created files of a few rounds: as many are deleted.
           .bytes = [](double) { return kFillers * kFillerSize + 4 * kPool * kLargestFile; },
           .run = run}};
}

}  // namespace ecfs::bench
