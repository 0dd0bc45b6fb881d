// SPDX-License-Identifier: GPL-3.0-or-later
// A whole lower file. Bytes 0 and 1: how many bytes are added behind it, little-endian; then its beginning.
#include "ecfs/encrypted_file.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include "ecfs/endian.hpp"
#include "fuzz.hpp"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace ecfs;
  if (size < 2) return 0;
  UniqueFd fd(::memfd_create("fuzz", MFD_CLOEXEC));
  fuzz::must(static_cast<bool>(fd), "a memory file");
  fuzz::must(::pwrite(fd.get(), data + 2, size - 2, 0) == static_cast<ssize_t>(size - 2), "it is written");
  fuzz::must(::ftruncate(fd.get(), static_cast<off_t>(size - 2 + load_le<std::uint16_t>(data))) == 0, "it is grown");
  auto file = EncryptedFile::open(std::move(fd), fuzz::keys(), {});
  if (!file) return 0;
  std::vector<std::uint8_t> out(static_cast<std::size_t>(file->size()));
  const auto n = file->read(0, out);
  if (n) fuzz::must(*n == out.size(), "all of it, or an error");
  // Whatever the rest is like, a block that is written whole can be read.
  const std::vector<std::uint8_t> block(kPayload0, 0x5a);
  if (file->write(0, block)) {
    std::vector<std::uint8_t> back(kPayload0);
    const auto r = file->read(0, back);
    fuzz::must(r && *r == back.size() && back == block, "what was written is read");
  }
  return 0;
}
