// SPDX-License-Identifier: GPL-3.0-or-later
// bonnie++ 1.03: a large file by characters and by blocks, then many small files.
#include <algorithm>
#include <cstdio>

#include "workloads/list.hpp"

namespace ecfs::bench {
namespace {

constexpr std::uint64_t kChunk = 8 << 10, kChunks = (2ULL << 30) / kChunk, kSeeks = 8000, kFiles = 16 << 10;
constexpr unsigned kSeekers = 3;
// What stdio hands to the system at once.
constexpr std::size_t kStdio = 4096;

// putc and getc go through stdio, whose calls on the file are ours.
ssize_t stdio_write(void* file, const char* data, std::size_t size) {
  static_cast<File*>(file)->write(std::as_bytes(std::span(data, size)));
  return static_cast<ssize_t>(size);
}
ssize_t stdio_read(void* file, char* data, std::size_t size) {
  return static_cast<ssize_t>(static_cast<File*>(file)->read(std::as_writable_bytes(std::span(data, size))));
}

std::unique_ptr<FILE, int (*)(FILE*)> stream(File& file, const char* mode) {
  cookie_io_functions_t functions{};
  functions.read = stdio_read, functions.write = stdio_write;
  std::unique_ptr<FILE, int (*)(FILE*)> f(::fopencookie(&file, mode, functions), std::fclose);
  if (!f) throw std::bad_alloc();
  std::setvbuf(f.get(), nullptr, _IOFBF, kStdio);
  return f;
}

void put_characters(Calls& calls, std::uint64_t bytes) {
  File file = calls.create("file");
  {
    const auto f = stream(file, "w");
    for (std::uint64_t i = 0; i < bytes; ++i) std::putc(static_cast<int>(i & 127), f.get());
    std::fflush(f.get());
  }
  file.sync();
  file.close();
}

void get_characters(Calls& calls) {
  File file = calls.open("file", O_RDONLY);
  {
    const auto f = stream(file, "r");
    // bonnie++ counts what it read, so that no compiler leaves the reading out.
    std::uint64_t counts[256] = {};
    for (int c; (c = std::getc(f.get())) != EOF;) ++counts[c & 255];
  }
  file.close();
}

void write_blocks(Calls& calls, std::span<const std::byte> chunk, std::uint64_t chunks) {
  File file = calls.create("file");
  for (std::uint64_t i = 0; i < chunks; ++i) file.write(chunk);
  file.sync();
  file.close();
}

void rewrite_blocks(Calls& calls, std::span<std::byte> chunk, std::uint64_t chunks) {
  File file = calls.open("file", O_RDWR);
  for (std::uint64_t i = 0; i < chunks; ++i) {
    file.read(chunk);
    chunk[i % chunk.size()] ^= std::byte{1};
    file.seek(i * kChunk);
    file.write(chunk);
  }
  file.sync();
  file.close();
}

void seek_about(Job& job, std::uint64_t chunks, std::uint64_t seeks) {
  job.threads(kSeekers, [&](Calls& calls, unsigned thread) {
    Random random = job.random(1 + thread);
    std::vector<std::byte> chunk(kChunk);
    File file = calls.open("file", O_RDWR);
    for (std::uint64_t i = 0; i < seeks / kSeekers; ++i) {
      const std::uint64_t at = random.below(chunks) * kChunk;
      file.seek(at);
      file.read(chunk);
      if (i % 10 != 0) continue;  // one in ten is written back
      chunk[i % kChunk] ^= std::byte{1};
      file.seek(at);
      file.write(chunk);
    }
    file.close();
  });
}

void run_io(Job& job) {
  const std::uint64_t chunks = job.scaled(kChunks), seeks = job.scaled(kSeeks, kSeekers), bytes = chunks * kChunk;
  const double amount = kibibytes(bytes);
  Calls& calls = job.calls();
  auto chunk = job.random_bytes(kChunk);
  job.measure("bonnie-out-char", amount, [&] { put_characters(calls, bytes); });
  calls.unlink("file");
  job.measure("bonnie-out-block", amount, [&] { write_blocks(calls, chunk, chunks); });
  job.drop_caches();
  job.measure("bonnie-rewrite", amount, [&] { rewrite_blocks(calls, chunk, chunks); });
  if (!job.drop_caches()) return;
  job.measure("bonnie-in-char", amount, [&] { get_characters(calls); });
  job.drop_caches();
  job.measure("bonnie-in-block", amount, [&] {
    File file = calls.open("file", O_RDONLY);
    while (file.read(chunk) > 0) {
    }
    file.close();
  });
  job.drop_caches();
  job.measure("bonnie-seeks", static_cast<double>(seeks / kSeekers * kSeekers), [&] { seek_about(job, chunks, seeks); });
}

// The names of one pass: a number, before or after up to 12 random letters.
std::vector<std::string> file_names(Random& random, std::uint64_t count, bool in_order) {
  std::vector<std::string> names;
  for (std::uint64_t i = 0; i < count; ++i) {
    char number[24];
    std::snprintf(number, sizeof number, "%07llu", static_cast<unsigned long long>(i));
    std::string letters;
    for (std::uint64_t n = random.below(13); n > 0; --n) letters += static_cast<char>('a' + random.below(26));
    names.push_back("files/" + (in_order ? number + letters : letters + number));
  }
  return names;
}

void pass_of_files(Job& job, bool in_order) {
  Random random = job.random(in_order ? 10 : 11);
  auto names = file_names(random, job.scaled(kFiles), in_order);
  const auto amount = static_cast<double>(names.size());
  const std::string prefix = in_order ? "bonnie-seq-" : "bonnie-random-";
  Calls& calls = job.calls();
  calls.mkdir("files");
  job.measure(prefix + "create", amount, [&] {
    for (const auto& name : names) calls.open(name, O_RDWR | O_CREAT | O_EXCL, 0600).close();
  });
  if (!in_order) random.shuffle(names);
  job.measure(prefix + "read", amount, [&] {
    // In order, the program goes through the directory as it lies there; the trace wants the same order in each run.
    if (in_order) calls.list("files");
    for (const auto& name : names) calls.stat(name);
  });
  job.measure(prefix + "delete", amount, [&] {
    for (const auto& name : names) calls.unlink(name);
  });
  calls.rmdir("files");
}

void run_files(Job& job) {
  pass_of_files(job, true);
  pass_of_files(job, false);
}

std::vector<Figure> figures(std::initializer_list<const char*> names, const char* unit, Group group) {
  std::vector<Figure> list;
  for (const char* name : names) list.push_back({.name = name, .unit = unit, .group = group});
  return list;
}

}  // namespace

std::vector<Workload> bonnie_workloads() {
  auto io = figures({"bonnie-out-char", "bonnie-out-block", "bonnie-rewrite", "bonnie-in-char", "bonnie-in-block"}, "K/s", Group::streaming);
  io[3].cold = io[4].cold = true;
  io.push_back({.name = "bonnie-seeks", .unit = "/s", .group = Group::streaming, .cold = true});
  return {{.name = "bonnie",
           .after = "bonnie++ 1.03",
           .what = "a file of 2 GiB by putc, by 8 KiB, read and rewritten by 8 KiB, read by getc and by 8 KiB, then 8000 seeks by 3 seekers that "
                   "read 8 KiB and write back one in ten; empty caches before each reading stand for its rule of twice the memory, one file for "
                   "files of 1 GiB, and the seekers are threads",
           .figures = io,
           .quick = 0.03,
           .seeds = true,
           .bytes = [](double scale) { return scaled(scale, kChunks) * kChunk; },
           .run = run_io},
          {.name = "bonnie-files",
           .after = "bonnie++ 1.03",
           .what = "16 × 1024 empty files in one directory created, looked at (stat) and deleted, in the order of their names and in a random one",
           .figures = figures({"bonnie-seq-create", "bonnie-seq-read", "bonnie-seq-delete", "bonnie-random-create", "bonnie-random-read",
                               "bonnie-random-delete"},
                              "/s", Group::small_files),
           .quick = 0.1,
           .seeds = true,
           .bytes = [](double scale) { return scaled(scale, kFiles) * 8192; },
           .run = run_files}};
}

}  // namespace ecfs::bench
