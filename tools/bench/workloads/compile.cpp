// SPDX-License-Identifier: GPL-3.0-or-later
// Compile Bench 0.6: what building kernels does to a filesystem, without a compiler.
#include <algorithm>
#include <chrono>
#include <cmath>

#include "workloads/list.hpp"
#include "workloads/tree.hpp"

namespace ecfs::bench {
namespace {

constexpr std::uint64_t kTrees = 10;
// Of a hundred files, so many differ from one kernel to the next.
constexpr unsigned kPatchedPercent = 30;

std::uint64_t trees_at(double scale) { return scaled(scale, kTrees); }
std::uint64_t files_at(double scale) {
  const double share = std::min(1.0, scale * static_cast<double>(kTrees) / static_cast<double>(trees_at(scale)));
  return std::max<std::uint64_t>(8, static_cast<std::uint64_t>(std::llround(share * static_cast<double>(kKernelFiles))));
}

class Kernels {
 public:
  explicit Kernels(Job& job)
      : job_(job), calls_(job.calls()), trees_(trees_at(job.scale())), tree_(make_source_tree(job.random(), files_at(job.scale()))),
        text_(source_text(job.random(1), 256 << 10)) {
    Random random = job.random(2);
    for (const auto& file : tree_.files)
      if (random.chance(kPatchedPercent)) patched_.push_back(file), patched_bytes_ += file.size;
    if (patched_.empty()) patched_.push_back(tree_.files[0]), patched_bytes_ = tree_.files[0].size;
  }

  void run() {
    const double trees = static_cast<double>(trees_);
    const auto size = [trees](std::uint64_t bytes) { return trees * megabytes(bytes); };
    job_.measure("compile-create", size(tree_.file_bytes), each([this](const std::string& root) { create(root); }));
    job_.measure("compile-compile", size(tree_.object_bytes), each([this](const std::string& root) { write_all(root, tree_.objects); }));
    job_.measure("compile-read-tree", size(tree_.file_bytes + tree_.object_bytes), each([this](const std::string& root) {
                   read(root, tree_.files), read(root, tree_.objects);
                 }));
    seconds_a_tree("compile-stat-tree", [this](const std::string& root) {
      for (const auto& d : tree_.directories) calls_.list(root + d);
      for (const auto* files : {&tree_.files, &tree_.objects})
        for (const auto& file : *files) calls_.lstat(root + file.path);
    });
    job_.measure("compile-clean", size(tree_.object_bytes), each([this](const std::string& root) {
                   for (const auto& object : tree_.objects) calls_.unlink(root + object.path);
                 }));
    job_.measure("compile-patch", size(patched_bytes_), each([this](const std::string& root) { patch(root); }));
    seconds_a_tree("compile-delete-tree", [this](const std::string& root) { remove(root); });
  }

 private:
  using Step = std::function<void(const std::string& root)>;

  std::function<void()> each(Step step) {
    return [this, step = std::move(step)] {
      for (std::uint64_t i = 0; i < trees_; ++i) step("kernel-" + std::to_string(i) + "/");
    };
  }

  void seconds_a_tree(const char* figure, Step step) {
    job_.measure_value(figure, [&] {
      const auto began = std::chrono::steady_clock::now();
      each(step)();
      return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count() / static_cast<double>(trees_);
    });
  }

  void create(const std::string& root) {
    calls_.mkdir(root);
    for (const auto& d : tree_.directories) calls_.mkdir(root + d);
    write_all(root, tree_.files);
  }

  void write_all(const std::string& root, const std::vector<TreeFile>& files) {
    for (const auto& file : files) write_new(calls_, root + file.path, file.size, text_);
  }

  void read(const std::string& root, const std::vector<TreeFile>& files) {
    std::vector<std::byte> buffer(256 << 10);
    for (const auto& one : files) {
      File file = calls_.open(root + one.path, O_RDONLY);
      while (file.read(buffer) > 0) {
      }
      file.close();
    }
  }

  // patch(1) writes a new file and puts it into the place of the old one.
  void patch(const std::string& root) {
    for (const auto& file : patched_) {
      const std::string path = root + file.path;
      write_new(calls_, path + ".new", file.size, text_);
      calls_.rename(path + ".new", path);
    }
  }

  void remove(const std::string& root) {
    for (const auto& file : tree_.files) calls_.unlink(root + file.path);
    for (auto d = tree_.directories.rbegin(); d != tree_.directories.rend(); ++d) calls_.rmdir(root + *d);
    calls_.rmdir(root);
  }

  Job& job_;
  Calls& calls_;
  const std::uint64_t trees_;
  const SourceTree tree_;
  const std::vector<std::byte> text_;
  std::vector<TreeFile> patched_;
  std::uint64_t patched_bytes_ = 0;
};

Figure rate(const char* name) { return {.name = name, .unit = "MB/s", .group = Group::small_files}; }
Figure seconds(const char* name) {
  return {.name = name, .unit = "s", .kind = Kind::value, .group = Group::small_files, .higher_is_better = false};
}

}  // namespace

std::vector<Workload> compile_workloads() {
  return {{.name = "compile",
           .after = "Compile Bench 0.6, --makej",
           .what = "10 trees like the kernel's sources (21,000 files) created, compiled (objects written beside the sources in no order, then one "
                   "linked file), read, statted, cleaned, patched and deleted; nothing is synced. Names and sizes come from a distribution, not from "
                   "its lists of 2.6.20, and the trees are gone through in one order, not in the filesystem's own",
           .figures = {rate("compile-create"), rate("compile-compile"), rate("compile-read-tree"), seconds("compile-stat-tree"),
                       rate("compile-clean"), rate("compile-patch"), seconds("compile-delete-tree")},
           .quick = 0.02,
           .seeds = true,
           .bytes =
               [](double scale) {
                 return trees_at(scale) * (files_at(scale) * (kKernelBytes + kKernelObjectBytes) / kKernelFiles + files_at(scale) * 8192 + (1 << 20));
               },
           .run = [](Job& job) { Kernels(job).run(); }}};
}

}  // namespace ecfs::bench
