// SPDX-License-Identifier: GPL-3.0-or-later
// What several unit tests share: hexadecimal, temporary files, keys that are the same in every run, vectors of docs/FORMAT.md.
#pragma once

#include <doctest/doctest.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "ecfs/crypto.hpp"
#include "ecfs/unique_fd.hpp"

namespace ecfs::test {

using Bytes = std::vector<std::uint8_t>;

inline Bytes unhex(std::string_view text) {
  Bytes out;
  int high = -1;
  for (const char c : text) {
    if (c == ' ' || c == '\n') continue;
    const int v = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
    REQUIRE_MESSAGE(v >= 0, "not hexadecimal: ", std::string(text));
    if (high < 0) {
      high = v;
    } else {
      out.push_back(static_cast<std::uint8_t>(high << 4 | v));
      high = -1;
    }
  }
  REQUIRE_MESSAGE(high < 0, "odd number of digits: ", std::string(text));
  return out;
}

template <class Range>
std::string hex(const Range& bytes) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string out;
  for (const auto c : bytes) {
    const auto b = static_cast<std::uint8_t>(c);
    out += digits[b >> 4];
    out += digits[b & 15];
  }
  return out;
}

inline std::string text_of(const Bytes& b) { return {b.begin(), b.end()}; }

// n bytes counting up from `first`.
inline Bytes counting(std::size_t n, std::uint8_t first = 0) {
  Bytes out(n);
  std::iota(out.begin(), out.end(), first);
  return out;
}

template <class K>
K key_of(const Bytes& b) {
  REQUIRE(b.size() == K::kSize);
  return K(std::span<const std::uint8_t, K::kSize>(b.data(), K::kSize));
}

// The master key counting up from `first`, so that every run has the same keys.
inline EpochKeys epoch_keys(Epoch epoch = 1, std::uint8_t first = 0) {
  MasterKey master;
  std::iota(master.bytes().begin(), master.bytes().end(), first);
  auto keys = EpochKeys::derive(epoch, master);
  REQUIRE(keys);
  return std::move(*keys);
}

inline KeyRing key_ring() {
  KeyRing ring;
  ring.add(epoch_keys());
  return ring;
}

inline UniqueFd memory_file() {
  UniqueFd fd(::memfd_create("ecfs-unit", MFD_CLOEXEC));
  REQUIRE(fd);
  return fd;
}

// A directory that goes with everything in it. TMPDIR decides where.
class TempDir {
 public:
  TempDir() : path_((std::filesystem::temp_directory_path() / "ecfs-unit-XXXXXX").string()) {
    REQUIRE(::mkdtemp(path_.data()) != nullptr);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }
  std::string operator/(std::string_view name) const { return path_ + "/" + std::string(name); }

 private:
  std::string path_;
};

// The source tree, as meson says.
inline std::string source_dir() {
  const char* dir = std::getenv("ECFS_SRC");
  return dir ? dir : ".";
}

inline std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  REQUIRE_MESSAGE(in.good(), "cannot read ", path);
  return {std::istreambuf_iterator<char>(in), {}};
}

// A number from the environment, for seeds and counts.
inline std::uint64_t env_number(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text && *text ? std::strtoull(text, nullptr, 0) : otherwise;
}

}  // namespace ecfs::test
