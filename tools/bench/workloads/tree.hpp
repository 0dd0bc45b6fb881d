// SPDX-License-Identifier: GPL-3.0-or-later
// The shape of a tree of sources like the Linux kernel's: directories up to five deep, names, sizes, and what a compiler leaves beside them.
#pragma once

#include <string>
#include <vector>

#include "calls.hpp"
#include "random.hpp"

namespace ecfs::bench {

struct TreeFile {
  std::string path;
  std::uint64_t size;
};

struct SourceTree {
  std::vector<std::string> directories;  // each after the one that it is in
  std::vector<TreeFile> files;
  std::vector<TreeFile> objects;  // of a build: an object and the record of its command for each C file, and what is linked of them last
  std::uint64_t file_bytes = 0, object_bytes = 0;
};

// The kernel 2.6.20 has about this many files; their mean size is 11 KiB.
constexpr std::uint64_t kKernelFiles = 21000;
constexpr std::uint64_t kKernelBytes = 260'000'000, kKernelObjectBytes = 500'000'000;  // upper bounds of what comes out

SourceTree make_source_tree(Random random, std::uint64_t files);

// Writes `size` bytes into a new file, 256 KiB at a time.
void write_new(Calls& calls, const std::string& path, std::uint64_t size, std::span<const std::byte> data);
// Text that compresses about as well as program sources do.
std::vector<std::byte> source_text(Random random, std::size_t size);

}  // namespace ecfs::bench
