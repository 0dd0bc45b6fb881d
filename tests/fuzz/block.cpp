// SPDX-License-Identifier: GPL-3.0-or-later
// A block's page. Byte 0: bit 0 the suite, bit 1 whether it is block 0; the rest is the page from the block header on.
#include <algorithm>

#include "fuzz.hpp"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace ecfs;
  if (size == 0) return 0;
  (void)fuzz::keys();
  const Suite suite = data[0] & 1 ? Suite::chacha20_poly1305 : Suite::aes_256_gcm;
  const std::uint64_t block = data[0] & 2 ? 0 : 1;
  std::vector<std::uint8_t> page(kBlockHeaderSize + payload(block));
  std::copy_n(data + 1, std::min(size - 1, page.size()), page.begin());
  const auto header = BlockHeader::decode(block, page);
  if (header) fuzz::must(header->length >= 1 && header->length <= payload(block), "a length that fits");
  // One that is cut is refused, however it looks.
  fuzz::must(!BlockHeader::decode(block, std::span<const std::uint8_t>(data + 1, std::min(size - 1, page.size() - 1))), "whole pages only");

  std::array<std::uint8_t, 32> raw_key;
  std::iota(raw_key.begin(), raw_key.end(), std::uint8_t{0x48});
  const FileKey key(raw_key);
  std::vector<std::uint8_t> out(payload(block), 0);
  const auto n = BlockOpener(suite, key).open(block, page, out.data());
  if (!n) {
    fuzz::must(n.error() == Errc::damaged_block, "its own error");
    fuzz::must(std::all_of(out.begin(), out.end(), [](auto b) { return b == 0; }), "nothing of it is shown");
    return 0;
  }
  // What opens is exactly what sealing makes.
  std::vector<std::uint8_t> again(page.size(), 0xee);
  const auto sealed = BlockSealer(suite, key).seal(block, std::span(out).first(*n), std::span(page).first<kNonceSize>(), again);
  fuzz::must(sealed && again == page, "one page for one block");
  return 0;
}
