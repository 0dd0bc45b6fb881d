// SPDX-License-Identifier: GPL-3.0-or-later
#include "workloads.hpp"

#include <iterator>

#include "ecfs/layout.hpp"
#include "sqlite_work.hpp"

namespace ecfs::crash {
namespace {

const std::string kLong(255, 'L'), kLonger = std::string(200, 'M'), kThird = std::string(180, 'N');

void nothing(Driver&) {}

void one_file(Driver& d, std::size_t size) { d.append(d.create(kRootThing, "file"), d.stamp(size)); }
void short_file(Driver& d) { one_file(d, 100); }
void long_file(Driver& d) { one_file(d, 30000); }
constexpr Thing kFile = 1;  // the first thing that is made

// A log that is appended to, and synced after every `each`-th line, or never.
void append_log(Driver& d, Random& rng, std::size_t size, int lines, std::uint64_t each) {
  const Thing fresh = d.create(kRootThing, "log of " + std::to_string(size));
  for (int i = 0; i < lines; ++i) {
    for (const Thing log : {fresh, kFile}) {
      d.append(log, d.stamp(size));
      if (each && rng() % each == 0) d.fsync(log, rng() % 2 == 0);
    }
  }
  if (each) d.fsync(kRootThing);
}
void append_1(Driver& d, Random& rng) {
  append_log(d, rng, 1, 12, 3);
  append_log(d, rng, 3900, 1, 2);
  append_log(d, rng, 2, 8, 2);
}
void append_100(Driver& d, Random& rng) { append_log(d, rng, 100, 50, 4); }
void append_4064(Driver& d, Random& rng) { append_log(d, rng, kPayload, 8, 3); }
void append_4096(Driver& d, Random& rng) { append_log(d, rng, 4096, 8, 3); }
void append_10000(Driver& d, Random& rng) { append_log(d, rng, 10000, 6, 3); }
void append_unsynced(Driver& d, Random& rng) {
  for (const std::size_t size : {1, 100, 4064, 4096, 10000}) append_log(d, rng, size, 2, 0);
}

void overwrite(Driver& d, Random& rng) {
  for (int i = 0; i < 40; ++i) {
    const std::size_t off = rng() % 30000, n = 1 + rng() % (i % 4 ? 500 : 9000);
    d.write(kFile, off, d.stamp(n));
    if (rng() % 5 == 0) d.fsync(kFile, rng() % 2 == 0);
  }
}

void truncate_down_up(Driver& d, Random& rng) {
  const std::size_t sizes[] = {0, 1, kPayload0 - 1, kPayload0, kPayload0 + 1, 8000, 8001, 20000, 29000, 3000};
  const Thing other = d.create(kRootThing, "other");
  for (int i = 0; i < 30; ++i) {
    const Thing file = rng() % 2 ? kFile : other;
    d.truncate(file, sizes[rng() % std::size(sizes)]);
    if (rng() % 2) d.write(file, rng() % 20000, d.stamp(1 + rng() % 6000));
    if (rng() % 4 == 0) d.fsync(file, rng() % 2 == 0);
  }
}

// A file of before is made shorter and longer inside its last block.
void truncate_inside(Driver& d, Random& rng) {
  for (int i = 0; i < 20; ++i) {
    d.truncate(kFile, 1 + rng() % 3900);
    if (rng() % 2) d.append(kFile, d.stamp(1 + rng() % 50));
    if (rng() % 5 == 0) d.fsync(kFile);
  }
}

void punch(Driver& d, Random& rng) {
  for (int i = 0; i < 24; ++i) {
    const std::size_t off = rng() % 32000, n = 1 + rng() % 12000;
    switch (rng() % 4) {
      case 0: d.zero(kFile, off, n); break;
      case 1: d.allocate(kFile, off, n); break;
      case 2: d.write(kFile, off, d.stamp(n)); break;
      default: d.punch(kFile, off, n);
    }
    if (rng() % 4 == 0) d.fsync(kFile, rng() % 2 == 0);
  }
}

void rename_over(Driver& d, Random& rng, bool synced) {
  for (int i = 0; i < 10; ++i) {
    const Thing fresh = d.create(kRootThing, i % 3 ? "file.new" : kLong);
    d.write(fresh, 0, d.stamp(50 + rng() % 9000));
    if (synced) d.fsync(fresh);
    d.rename(kRootThing, i % 3 ? "file.new" : kLong, kRootThing, "file");
    if (synced && rng() % 2) d.fsync(kRootThing);
  }
}
void save_synced(Driver& d, Random& rng) { rename_over(d, rng, true); }
void save_unsynced(Driver& d, Random& rng) { rename_over(d, rng, false); }

void many_files(Driver& d, Random& rng) {
  for (int i = 0; i < 5; ++i) {
    const Thing dir = d.mkdir(kRootThing, "dir" + std::to_string(i));
    const Thing below = d.mkdir(dir, "below", i % 2 ? 0700 : 0755);
    for (int k = 0; k < 6; ++k) {
      const Thing file = d.create(k % 2 ? dir : below, "file" + std::to_string(k), k % 3 ? 0644 : 0444);
      if (k != 4) d.write(file, 0, d.stamp(1 + rng() % 6000));
      if (rng() % 4 == 0) d.fsync(file);
    }
    if (i % 2) d.fsync(dir);
    if (i % 3 == 0) d.fsync(below);
  }
}

void make_and_remove(Driver& d, Random& rng) {
  for (int i = 0; i < 6; ++i) {
    const std::string name = i % 2 ? "dir" : kLong;
    const Thing dir = d.mkdir(kRootThing, name);
    d.write(d.create(dir, "a"), 0, d.stamp(200));
    d.create(dir, kLonger);
    if (rng() % 2) d.fsync(dir);
    d.unlink(dir, "a");
    d.rename(dir, kLonger, kRootThing, "kept" + std::to_string(i));
    if (rng() % 2) d.fsync(kRootThing);
    if (i % 3 == 1) {
      d.mkdir(kRootThing, "over");
      d.rename(kRootThing, name, kRootThing, "over");
      d.rmdir(kRootThing, "over");
    } else {
      d.rmdir(kRootThing, name);
    }
  }
}

void long_names(Driver& d, Random& rng) {
  const Thing dir = d.mkdir(kRootThing, kThird);
  for (int i = 0; i < 8; ++i) {
    const Thing file = d.create(kRootThing, kLong);
    d.write(file, 0, d.stamp(100));
    if (rng() % 2) d.fsync(file);
    d.rename(kRootThing, kLong, i % 2 ? dir : kRootThing, kLonger);
    if (rng() % 2) d.fsync(i % 2 ? dir : kRootThing);
    d.create(kRootThing, kLong);
    d.exchange(kRootThing, kLong, i % 2 ? dir : kRootThing, kLonger);
    d.unlink(kRootThing, kLong);
    if (rng() % 3) d.rename(i % 2 ? dir : kRootThing, kLonger, kRootThing, "short" + std::to_string(i));
    else d.unlink(i % 2 ? dir : kRootThing, kLonger);
    if (rng() % 3 == 0) d.fsync(kRootThing);
  }
}

void long_targets(Driver& d, Random& rng) {
  const Thing dir = d.mkdir(kRootThing, "dir");
  for (int i = 0; i < 6; ++i) {
    const std::string name = "link" + std::to_string(i);
    d.symlink(dir, name, d.stamp(i % 2 ? 4000 : 20));
    if (rng() % 2) d.fsync(dir);
    d.rename(dir, name, kRootThing, "moved");
    if (rng() % 2) d.symlink(dir, kLong, d.stamp(3500)), d.unlink(dir, kLong);
    if (rng() % 2) d.fsync(kRootThing);
  }
}

void links_and_attributes(Driver& d, Random& rng) {
  const Thing dir = d.mkdir(kRootThing, "dir");
  for (int i = 0; i < 8; ++i) {
    const Thing file = d.create(dir, "a" + std::to_string(i));
    d.set_xattr(file, "user.comment", d.stamp(30));
    d.write(file, 0, d.stamp(300));
    d.link(file, kRootThing, i % 2 ? kLong : "second");
    d.link(kFile, dir, "of before" + std::to_string(i));
    d.chmod(file, 0600);
    if (rng() % 2) d.fsync(file);
    d.append(file, d.stamp(5000));
    d.set_xattr(kFile, "user.n", d.stamp(8));
    d.unlink(dir, "a" + std::to_string(i));
    if (rng() % 2) d.fsync(dir);
    d.unlink(kRootThing, i % 2 ? kLong : "second");
    if (rng() % 2) d.remove_xattr(kFile, "user.n");
    d.chmod(kFile, i % 2 ? 0444 : 0640);
  }
}

void keys(Driver& d, Random& rng) {
  std::string now = kPassphrase;
  for (int i = 0; i < 5; ++i) {
    d.append(kFile, d.stamp(500));
    const std::string next = "words " + std::to_string(i);
    d.change_passphrase(now, next);
    now = next;
    if (rng() % 2) d.fsync(kFile);
  }
}

void everything(Driver& d, Random& rng) {
  append_log(d, rng, 700, 6, 3);
  overwrite(d, rng);
  make_and_remove(d, rng);
  truncate_inside(d, rng);
  rename_over(d, rng, true);
}

}  // namespace

const std::vector<Workload>& workloads() {
  static const std::vector<Workload> all = {
      {"append-1", short_file, append_1},
      {"append-100", short_file, append_100},
      {"append-4064", short_file, append_4064},
      {"append-4096", short_file, append_4096},
      {"append-10000", long_file, append_10000},
      {"append-unsynced", short_file, append_unsynced},
      {"overwrite", long_file, overwrite},
      {"truncate", long_file, truncate_down_up},
      {"truncate-inside", short_file, truncate_inside},
      {"punch", long_file, punch},
      {"save-synced", short_file, save_synced},
      {"save-unsynced", short_file, save_unsynced},
      {"many-files", nothing, many_files},
      {"make-and-remove", nothing, make_and_remove},
      {"long-names", nothing, long_names},
      {"long-targets", nothing, long_targets},
      {"links-and-attributes", short_file, links_and_attributes},
      {"keys", short_file, keys},
      {"sqlite-delete", nothing, sqlite_delete, check_sqlite},
      {"sqlite-wal", nothing, sqlite_wal, check_sqlite},
      {"everything", long_file, everything},
  };
  return all;
}

}  // namespace ecfs::crash
