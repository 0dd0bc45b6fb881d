// SPDX-License-Identifier: GPL-3.0-or-later
// Runs a fuzz target without a fuzzer: every file of the directories that are named, then each of them cut at every length (up to a
// limit) and with every byte changed in two ways. So the corpora are tests under any compiler.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "fuzz.hpp"

namespace {

std::size_t runs = 0;

void run(const std::string& input) {
  // A copy of exactly its size on the heap: a sanitizer then sees each byte that is read past the end.
  const std::vector<std::uint8_t> copy(input.begin(), input.end());
  LLVMFuzzerTestOneInput(copy.data(), copy.size());
  ++runs;
}

void run_changed(const std::string& input) {
  const std::size_t step = std::max<std::size_t>(1, input.size() / 2000);
  for (std::size_t n = 0; n < input.size(); n += step) run(input.substr(0, n));
  for (std::size_t i = 0; i < input.size(); i += step)
    for (const int change : {0x01, 0x80}) {
      std::string changed = input;
      changed[i] = static_cast<char>(static_cast<unsigned char>(changed[i]) ^ change);
      run(changed);
    }
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::filesystem::path> files;
  for (int i = 1; i < argc; ++i)
    for (const auto& entry : std::filesystem::directory_iterator(argv[i]))
      if (entry.is_regular_file()) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  if (files.empty()) {
    std::fputs("run_corpus: no inputs\n", stderr);
    return 1;
  }
  run({});
  for (const auto& path : files) {
    std::ifstream in(path, std::ios::binary);
    const std::string input(std::istreambuf_iterator<char>(in), {});
    run(input);
    run_changed(input);
  }
  std::printf("%zu inputs, %zu runs\n", files.size(), runs);
  return 0;
}
