// SPDX-License-Identifier: GPL-3.0-or-later
// A file header: decodes to what encodes back to the same bytes, or is refused.
#include <algorithm>

#include "fuzz.hpp"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace ecfs;
  std::array<std::uint8_t, kHeaderSize> raw{};
  std::copy_n(data, std::min(size, raw.size()), raw.begin());
  const auto header = FileHeader::decode(raw);
  if (!header) {
    fuzz::must(header.error() == Errc::damaged_header || header.error() == Errc::unsupported_format, "its own error");
    return 0;
  }
  std::array<std::uint8_t, kHeaderSize> again;
  header->encode(again);
  fuzz::must(again == raw, "one text for one header");
  if (const EpochKeys* keys = fuzz::keys().find(header->epoch)) (void)unwrap_file_key(*keys, *header).has_value();
  return 0;
}
