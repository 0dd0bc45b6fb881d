// SPDX-License-Identifier: GPL-3.0-or-later
// What people do now: git, databases, and unpacking sources.
#include <sqlite3.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <stdexcept>

#include "interrupt.hpp"
#include "workloads/list.hpp"
#include "workloads/tree.hpp"

namespace ecfs::bench {
namespace {

void write_tree(Calls& calls, const std::string& root, const SourceTree& tree, std::span<const std::byte> text) {
  calls.mkdir(root);
  for (const auto& d : tree.directories) calls.mkdir(root + "/" + d);
  // Each file begins elsewhere in the text, so that git does not find one content twice.
  std::size_t at = 0;
  for (const auto& file : tree.files) {
    at = (at + 4099) % (text.size() / 2);
    write_new(calls, root + "/" + file.path, file.size, text.subspan(at, text.size() / 2));
  }
}

// git

constexpr std::uint64_t kGitFiles = 5000;

// Git as it is for everybody: nothing of the user's or the machine's settings, and the same commits in each run.
Output git(Job& job, std::vector<std::string> args, const std::string& below = "") {
  std::vector<std::string> all{"env",  "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null", "GIT_AUTHOR_DATE=1700000000 +0000",
                               "GIT_COMMITTER_DATE=1700000000 +0000", "git", "-c", "user.name=ecfs-bench", "-c", "user.email=bench@localhost",
                               "-c", "init.defaultBranch=main", "-c", "gc.auto=0"};
  std::ranges::move(args, std::back_inserter(all));
  return job.run(all, below);
}

void use_git(Job& job) {
  const auto tree = make_source_tree(job.random(), job.scaled(kGitFiles, 8));
  const auto text = source_text(job.random(1), 1 << 20);
  write_tree(job.calls(), "upstream", tree, text);
  git(job, {"init", "-q"}, "upstream");
  git(job, {"add", "-A"}, "upstream");
  git(job, {"commit", "-q", "-m", "first"}, "upstream");
  git(job, {"checkout", "-q", "-b", "next"}, "upstream");
  Random random = job.random(2);
  const std::uint64_t changed = std::max<std::size_t>(1, tree.files.size() / 4);
  for (std::uint64_t i = 0; i < changed; ++i) {
    const auto& file = tree.files[random.below(tree.files.size())];
    write_new(job.calls(), "upstream/" + file.path, file.size + 7, std::span(text).subspan(random.below(text.size() / 2), text.size() / 2));
  }
  git(job, {"commit", "-q", "-a", "-m", "second"}, "upstream");
  // Packs, as a server's repository has them.
  git(job, {"repack", "-q", "-a", "-d"}, "upstream");
  job.measure("git-clone", 0, [&] { git(job, {"clone", "-q", "--no-hardlinks", "upstream", "clone"}); });
  job.measure("git-status", 0, [&] { git(job, {"status", "--porcelain"}, "clone"); });
  job.measure("git-checkout", 0, [&] { git(job, {"checkout", "-q", "HEAD~1"}, "clone"); });
}

std::string no_git() {
  // git itself would ask for its settings.
  return ::access("/usr/bin/git", X_OK) == 0 || ::access("/usr/local/bin/git", X_OK) == 0 ? "" : "git is not installed";
}

// sqlite

constexpr std::uint64_t kTransactions = 10000;

class Database {
 public:
  Database(Job& job, const std::string& name) : job_(job) {
    const int result = ::sqlite3_open(job.path(name).c_str(), &handle_);
    if (result == SQLITE_OK) return;
    const std::string why = handle_ ? ::sqlite3_errmsg(handle_) : ::sqlite3_errstr(result);
    ::sqlite3_close(handle_);
    throw std::runtime_error("opening " + name + ": " + why);
  }
  ~Database() { ::sqlite3_close(handle_); }
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;

  // Its calls are SQLite's, not ours: what it was told is in the trace.
  void run(const std::string& statement) {
    job_.calls().trace().count(statement.size());
    job_.calls().trace().add(statement);
    if (::sqlite3_exec(handle_, statement.c_str(), nullptr, nullptr, nullptr) != SQLITE_OK)
      throw std::runtime_error(std::string("SQLite: ") + ::sqlite3_errmsg(handle_));
  }

 private:
  Job& job_;
  sqlite3* handle_ = nullptr;
};

void transactions(Job& job, const char* figure, const char* mode, const std::string& name) {
  Database database(job, name);
  database.run(std::string("PRAGMA journal_mode = ") + mode);
  database.run("PRAGMA synchronous = FULL");
  database.run("CREATE TABLE message (id INTEGER PRIMARY KEY, sender INTEGER, text TEXT)");
  database.run("CREATE INDEX by_sender ON message (sender)");
  Random random = job.random(1);
  const std::uint64_t count = job.scaled(kTransactions);
  job.measure(figure, static_cast<double>(count), [&] {
    for (std::uint64_t i = 0; i < count; ++i) {
      check_interrupt();
      database.run("INSERT INTO message (sender, text) VALUES (" + std::to_string(random.below(1000)) + ", '" +
                   std::string(random.between(20, 200), static_cast<char>('a' + random.below(26))) + "')");
    }
  });
}

void use_sqlite(Job& job) {
  transactions(job, "sqlite-wal", "WAL", "wal.db");
  transactions(job, "sqlite-journal", "DELETE", "journal.db");
}

// untar

constexpr std::size_t kTarBlock = 512, kTarRecord = 20 * kTarBlock;

struct TarHeader {
  char name[100], mode[8], uid[8], gid[8], size[12], mtime[12], checksum[8], type, link[100], magic[8], user[32], group[32], major[8], minor[8],
      prefix[155], filler[12];
};
static_assert(sizeof(TarHeader) == kTarBlock);

TarHeader tar_header(const std::string& path, std::uint64_t size, char type) {
  TarHeader h{};
  if (path.size() > sizeof h.name) throw std::logic_error("a name is too long for tar: " + path);
  std::memcpy(h.name, path.data(), path.size());
  std::snprintf(h.mode, sizeof h.mode, "%07o", type == '5' ? 0755u : 0644u);
  std::snprintf(h.uid, sizeof h.uid, "%07o", 0u);
  std::snprintf(h.gid, sizeof h.gid, "%07o", 0u);
  std::snprintf(h.size, sizeof h.size, "%011lo", static_cast<unsigned long>(size));
  std::snprintf(h.mtime, sizeof h.mtime, "%011lo", 1170000000ul);
  std::memcpy(h.magic, "ustar\00000", 8);
  h.type = type;
  std::memset(h.checksum, ' ', sizeof h.checksum);
  unsigned sum = 0;
  for (const auto byte : std::as_bytes(std::span(&h, 1))) sum += static_cast<unsigned>(byte);
  std::snprintf(h.checksum, sizeof h.checksum, "%06o", sum & 0777777u);
  return h;
}

// Writes in records, as tar does.
class Archive {
 public:
  explicit Archive(File file) : file_(std::move(file)) {}
  void put(std::span<const std::byte> bytes) {
    buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
    buffer_.resize((buffer_.size() + kTarBlock - 1) / kTarBlock * kTarBlock);
    std::size_t done = 0;
    for (; buffer_.size() - done >= kTarRecord; done += kTarRecord) file_.write(std::span(buffer_).subspan(done, kTarRecord));
    buffer_.erase(buffer_.begin(), buffer_.begin() + static_cast<std::ptrdiff_t>(done));
  }
  void finish() {
    put(std::vector<std::byte>(2 * kTarBlock));
    buffer_.resize((buffer_.size() + kTarRecord - 1) / kTarRecord * kTarRecord);
    file_.write(buffer_);
    file_.sync();
    file_.close();
  }

 private:
  File file_;
  std::vector<std::byte> buffer_;
};

void pack(Job& job, const SourceTree& tree) {
  const auto text = source_text(job.random(1), 256 << 10);
  Archive archive(job.calls().create("source.tar"));
  const auto header = [&](const std::string& path, std::uint64_t size, char type) {
    const TarHeader h = tar_header(path, size, type);
    archive.put(std::as_bytes(std::span(&h, 1)));
  };
  for (const auto& d : tree.directories) header(d + "/", 0, '5');
  for (const auto& file : tree.files) {
    header(file.path, file.size, '0');
    archive.put(std::span(text).first(file.size));
  }
  archive.finish();
}

// Reads an archive record by record, and hands out blocks.
class Unpacker {
 public:
  Unpacker(Calls& calls, File archive) : calls_(calls), archive_(std::move(archive)), record_(kTarRecord) {}

  void run() {
    const timespec times[2] = {{1170000000, 0}, {1170000000, 0}};
    std::vector<std::string> directories;
    for (TarHeader h = header(); h.name[0] != 0; h = header()) {
      const std::string path = "source/" + std::string(h.name, ::strnlen(h.name, sizeof h.name));
      if (h.type == '5') {
        calls_.mkdir(path.substr(0, path.size() - 1));
        directories.push_back(path);
        continue;
      }
      File file = calls_.open(path, O_WRONLY | O_CREAT | O_EXCL);
      for (std::uint64_t left = std::stoull(h.size, nullptr, 8); left > 0;) {
        const auto some = blocks(left);
        file.write(some);
        left -= some.size();
      }
      file.close();
      calls_.set_times(path, times);
    }
    // At the end, since their files have changed them.
    for (auto d = directories.rbegin(); d != directories.rend(); ++d) calls_.set_times(*d, times);
    archive_.close();
  }

 private:
  // At most `most` bytes, as many as lie in the record.
  std::span<const std::byte> blocks(std::uint64_t most) {
    if (at_ == end_) {
      end_ = archive_.read(record_), at_ = 0;
      if (end_ == 0 || end_ % kTarBlock != 0) throw std::runtime_error("source.tar: it ends too early");
    }
    const std::size_t n = std::min<std::uint64_t>(most, end_ - at_);
    const auto some = std::span(record_).subspan(at_, n);
    at_ += (n + kTarBlock - 1) / kTarBlock * kTarBlock;
    return some;
  }

  TarHeader header() {
    TarHeader h;
    std::memcpy(&h, blocks(kTarBlock).data(), sizeof h);
    return h;
  }

  Calls& calls_;
  File archive_;
  std::vector<std::byte> record_;
  std::size_t at_ = 0, end_ = 0;
};

void untar(Job& job) {
  pack(job, make_source_tree(job.random(), job.scaled(kKernelFiles, 8)));
  job.calls().mkdir("source");
  job.measure("untar", 0, [&] { Unpacker(job.calls(), job.calls().open("source.tar", O_RDONLY)).run(); });
}

Figure seconds(const char* name) {
  return {.name = name, .unit = "s", .kind = Kind::seconds, .group = Group::desktop, .higher_is_better = false};
}

}  // namespace

std::vector<Workload> development_workloads() {
  return {{.name = "git",
           .after = "git, as installed",
           .what = "a repository of 5000 files: clone (with copied packs), status, checkout of the commit before, where a quarter of the files differs; "
                   "git is another program, whose calls are not traced",
           .figures = {seconds("git-clone"), seconds("git-status"), seconds("git-checkout")},
           .quick = 0.1,
           .bytes = [](double scale) { return scaled(scale, kGitFiles, 8) * 60000 + (4 << 20); },
           .run = use_git,
           .unavailable = no_git},
          {.name = "sqlite",
           .after = "SQLite, as linked",
           .what = "10,000 transactions, each one row of 20 to 200 bytes with an index, synchronous = FULL: with a write-ahead log, and with a journal "
                   "that is deleted; SQLite's own calls are not traced",
           .figures = {{.name = "sqlite-wal", .unit = "tx/s", .group = Group::sync_heavy},
                       {.name = "sqlite-journal", .unit = "tx/s", .group = Group::sync_heavy}},
           .quick = 0.02,
           .bytes = [](double scale) { return scaled(scale, kTransactions) * 1000 + (16 << 20); },
           .run = use_sqlite},
          {.name = "untar",
           .after = "tar -x",
           .what = "an archive like the kernel's sources (21,000 files, not compressed) unpacked in records of 10 KiB, with the times of its files",
           .figures = {seconds("untar")},
           .quick = 0.05,
           .bytes = [](double scale) { return scaled(scale, kKernelFiles, 8) * 32000 + (1 << 20); },
           .run = untar}};
}

}  // namespace ecfs::bench
