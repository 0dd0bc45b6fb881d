// SPDX-License-Identifier: GPL-3.0-or-later
// `ecfs.dir`.
#include <algorithm>

#include "fuzz.hpp"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace ecfs;
  const std::span<const std::uint8_t> in(data, size);
  const auto record = DirRecord::decode(in);
  if (record) {
    std::array<std::uint8_t, DirRecord::kSize> again;
    record->encode(again);
    fuzz::must(std::equal(again.begin(), again.begin() + DirRecord::kAuthenticated, in.begin()), "one text for one record");
  }
  const auto opened = open_dir_record(fuzz::keys(), in);
  if (!opened) {
    fuzz::must(opened.error() == Errc::damaged_directory, "its own error");
    return 0;
  }
  const auto sealed = *seal_dir_record(fuzz::keys(), *opened);
  fuzz::must(std::equal(sealed.begin(), sealed.end(), in.begin(), in.end()), "what opens is what sealing makes");
  return 0;
}
