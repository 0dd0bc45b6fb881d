// SPDX-License-Identifier: GPL-3.0-or-later
#include "workloads/tree.hpp"

#include <algorithm>
#include <array>

namespace ecfs::bench {
namespace {

constexpr std::array<std::uint64_t, 11> kSourceSizes{60, 600, 1200, 2000, 3100, 4700, 6900, 10300, 16000, 28000, 76000};
constexpr std::array<std::uint64_t, 6> kObjectSizes{1200, 6000, 14000, 28000, 55000, 120000};
constexpr std::uint64_t kSmallestRecord = 4000, kLargestRecord = 20000;
constexpr std::array<const char*, 6> kSuffixes{".c", ".h", ".S", ".txt", "", ".in"};
constexpr std::array<unsigned, 6> kSuffixShares{42, 41, 5, 5, 5, 2};
constexpr std::uint64_t kFilesInDirectory = 16;
constexpr std::size_t kBuffer = 256 << 10, kDeepest = 5;

std::string word(Random& random, std::uint64_t shortest, std::uint64_t longest) {
  std::string text;
  for (std::uint64_t n = random.between(shortest, longest); n > 0; --n) text += static_cast<char>('a' + random.below(26));
  return text;
}

}  // namespace

SourceTree make_source_tree(Random random, std::uint64_t files) {
  SourceTree tree;
  for (std::uint64_t i = 0; i < std::max<std::uint64_t>(1, files / kFilesInDirectory); ++i) {
    const std::string name = word(random, 2, 9) + std::to_string(i);
    // A few at the top, the rest below those that are there.
    const std::string& parent = i < 12 ? "" : tree.directories[random.below(tree.directories.size())];
    const bool top = parent.empty() || static_cast<std::size_t>(std::ranges::count(parent, '/')) + 1 >= kDeepest;
    tree.directories.push_back(top ? name : parent + "/" + name);
  }
  for (std::uint64_t i = 0; i < files; ++i) {
    const std::size_t suffix = random.pick(kSuffixShares);
    const std::string base = tree.directories[random.below(tree.directories.size())] + "/" + word(random, 3, 12) + std::to_string(i);
    tree.files.push_back({base + kSuffixes[suffix], random.from_quantiles(kSourceSizes)});
    tree.file_bytes += tree.files.back().size;
    if (suffix != 0) continue;
    const std::size_t slash = base.rfind('/') + 1;
    tree.objects.push_back({base + ".o", random.from_quantiles(kObjectSizes)});
    tree.objects.push_back({base.substr(0, slash) + "." + base.substr(slash) + ".o.cmd", random.between(kSmallestRecord, kLargestRecord)});
  }
  // A parallel make finishes its objects in no order, and links at the end.
  std::ranges::sort(tree.files, {}, &TreeFile::path);
  random.shuffle(tree.objects);
  for (const auto& object : tree.objects) tree.object_bytes += object.size;
  const std::uint64_t linked = tree.object_bytes / 8;
  tree.objects.push_back({"vmlinux", linked});
  tree.object_bytes += linked;
  return tree;
}

void write_new(Calls& calls, const std::string& path, std::uint64_t size, std::span<const std::byte> data) {
  File file = calls.create(path);
  for (std::uint64_t left = size; left > 0;) {
    const std::size_t n = std::min<std::uint64_t>({left, data.size(), kBuffer});
    file.write(data.first(n));
    left -= n;
  }
  file.close();
}

std::vector<std::byte> source_text(Random random, std::size_t size) {
  std::vector<std::string> words;
  for (int i = 0; i < 3000; ++i) words.push_back(word(random, 2, 11));
  std::vector<std::byte> text;
  text.reserve(size + 16);
  while (text.size() < size) {
    // The smaller of two numbers: some words come often.
    const std::string& next = words[std::min(random.below(words.size()), random.below(words.size()))];
    for (const char c : next) text.push_back(static_cast<std::byte>(c));
    text.push_back(static_cast<std::byte>(random.below(9) == 0 ? '\n' : ' '));
  }
  text.resize(size);
  return text;
}

}  // namespace ecfs::bench
