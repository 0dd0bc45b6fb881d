// SPDX-License-Identifier: GPL-3.0-or-later
#include "ecfs/format.hpp"

#include <algorithm>
#include <random>

#include "support.hpp"

namespace {

using namespace ecfs;
using namespace ecfs::test;

FileHeader sample_header() {
  FileHeader h;
  h.suite = Suite::chacha20_poly1305;
  h.epoch = 0x01020304;
  std::ranges::copy(counting(16, 0x20), h.file_id.begin());
  std::ranges::copy(counting(24, 0x40), h.wrap_nonce.begin());
  std::ranges::copy(counting(48, 0x80), h.wrapped_key.begin());
  return h;
}

using RawHeader = std::array<std::uint8_t, kHeaderSize>;

RawHeader encoded(const FileHeader& h) {
  RawHeader raw;
  raw.fill(0xee);  // encode must write every byte
  h.encode(raw);
  return raw;
}

std::error_code decode_error(const RawHeader& raw) { return FileHeader::decode(raw).error(); }

// A page of block 1 with `length` bytes of ciphertext that are all 0xaa.
Bytes block_page(std::uint64_t block, std::size_t length) {
  Bytes page(kBlockHeaderSize + payload(block));
  std::ranges::fill(std::span(page).first(kNonceSize), std::uint8_t{0x11});
  page[12] = static_cast<std::uint8_t>(length);
  page[13] = static_cast<std::uint8_t>(length >> 8);
  std::ranges::fill(std::span(page).subspan(16, kTagSize), std::uint8_t{0x22});
  std::ranges::fill(std::span(page).subspan(32, std::min(length, payload(block))), std::uint8_t{0xaa});
  return page;
}

}  // namespace

TEST_SUITE("pure") {
  TEST_CASE("file header: every byte where docs/FORMAT.md says") {
    const RawHeader raw = encoded(sample_header());
    CHECK(hex(raw) ==
          "89656366730d0a1a"                                  // magic
          "0100" "02" "00"                                    // version, suite, zero
          "04030201"                                          // epoch
          "202122232425262728292a2b2c2d2e2f"                  // file id
          "404142434445464748494a4b4c4d4e4f5051525354555657"  // wrap nonce
          "808182838485868788898a8b8c8d8e8f909192939495969798999a9b9c9d9e9fa0a1a2a3a4a5a6a7a8a9aaabacadaeaf"
          "000000000000000000000000000000000000000000000000");
  }

  TEST_CASE("file header: decode gives back what encode took") {
    const FileHeader h = sample_header();
    const auto back = FileHeader::decode(encoded(h));
    REQUIRE(back);
    CHECK(back->suite == h.suite);
    CHECK(back->epoch == h.epoch);
    CHECK(back->file_id == h.file_id);
    CHECK(back->wrap_nonce == h.wrap_nonce);
    CHECK(back->wrapped_key == h.wrapped_key);
  }

  TEST_CASE("file header: each refusal by its own error") {
    const RawHeader good = encoded(sample_header());
    for (std::size_t i = 0; i < 8; ++i) {
      RawHeader raw = good;
      raw[i] ^= 1;
      CHECK(decode_error(raw) == Errc::damaged_header);
    }
    RawHeader raw = good;
    raw[8] = 0;
    CHECK(decode_error(raw) == Errc::damaged_header);  // there never was a version 0
    raw[8] = 2;
    CHECK(decode_error(raw) == Errc::unsupported_format);
    raw[8] = 1;
    raw[9] = 1;
    CHECK(decode_error(raw) == Errc::unsupported_format);
    raw = good;
    raw[10] = 0;
    CHECK(decode_error(raw) == Errc::damaged_header);
    raw[10] = 3;
    CHECK(decode_error(raw) == Errc::unsupported_format);
    raw = good;
    raw[11] = 1;
    CHECK(decode_error(raw) == Errc::damaged_header);
    for (std::size_t i = 104; i < kHeaderSize; ++i) {
      raw = good;
      raw[i] = 0x80;
      CHECK(decode_error(raw) == Errc::damaged_header);
    }
    CHECK(decode_error(RawHeader{}) == Errc::damaged_header);
  }

  TEST_CASE("block header: fields and limits") {
    for (const std::uint64_t block : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{1} << 50}) {
      for (const std::size_t length : {std::size_t{1}, std::size_t{2}, payload(block) - 1, payload(block)}) {
        CAPTURE(block);
        CAPTURE(length);
        const Bytes page = block_page(block, length);
        const auto h = BlockHeader::decode(block, page);
        REQUIRE(h);
        CHECK(h->length == length);
        CHECK(hex(h->nonce) == "111111111111111111111111");
        CHECK(hex(h->tag) == "22222222222222222222222222222222");
      }
      CHECK(BlockHeader::decode(block, block_page(block, 0)).error() == Errc::damaged_block);
      CHECK(BlockHeader::decode(block, block_page(block, payload(block) + 1)).error() == Errc::damaged_block);
      CHECK(BlockHeader::decode(block, block_page(block, 65535)).error() == Errc::damaged_block);
      // Cut short by a byte, and to nothing.
      const Bytes page = block_page(block, 1);
      CHECK(BlockHeader::decode(block, std::span(page).first(page.size() - 1)).error() == Errc::damaged_block);
      CHECK(BlockHeader::decode(block, std::span<const std::uint8_t>{}).error() == Errc::damaged_block);
    }
  }

  TEST_CASE("block header: reserved bytes and padding are zero") {
    for (const std::size_t at : {std::size_t{14}, std::size_t{15}, std::size_t{32 + 100}, std::size_t{4095}}) {
      Bytes page = block_page(1, 100);
      page[at] = 1;
      CAPTURE(at);
      CHECK(BlockHeader::decode(1, page).error() == Errc::damaged_block);
    }
    Bytes page = block_page(1, 100);
    page[32 + 99] ^= 1;  // ciphertext: the tag's business
    CHECK(BlockHeader::decode(1, page));
  }

  TEST_CASE("directory record") {
    DirRecord r;
    std::ranges::copy(counting(16, 0x30), r.id.begin());
    r.epoch = 7;
    r.next_epoch = 0x0a0b0c0d;
    std::array<std::uint8_t, DirRecord::kSize> raw;
    raw.fill(0xee);
    r.encode(raw);
    CHECK(hex(raw) == "303132333435363738393a3b3c3d3e3f" "07000000" "0d0c0b0a" "0000000000000000"
                      "00000000000000000000000000000000");
    const auto back = DirRecord::decode(raw);
    REQUIRE(back);
    CHECK(back->id == r.id);
    CHECK(back->epoch == 7);
    CHECK(back->next_epoch == 0x0a0b0c0d);
    for (std::size_t i = 24; i < 32; ++i) {
      auto bad = raw;
      bad[i] = 1;
      CHECK(DirRecord::decode(bad).error() == Errc::damaged_directory);
    }
    CHECK(DirRecord::decode(std::span(raw).first(47)).error() == Errc::damaged_directory);
    CHECK(DirRecord::decode(std::span<const std::uint8_t>{}).error() == Errc::damaged_directory);
    const Bytes longer(49);
    CHECK(DirRecord::decode(longer).error() == Errc::damaged_directory);
  }

  TEST_CASE("base64url: RFC 4648's own examples, without padding") {
    const std::pair<const char*, const char*> examples[] = {{"", ""},         {"f", "Zg"},         {"fo", "Zm8"},
                                                            {"foo", "Zm9v"},  {"foob", "Zm9vYg"},  {"fooba", "Zm9vYmE"},
                                                            {"foobar", "Zm9vYmFy"}};
    for (const auto& [plain, text] : examples) {
      CHECK(base64url(as_bytes(plain)) == text);
      CHECK(from_base64url(text) == std::string(plain));
    }
    CHECK(base64url(unhex("fbff")) == "-_8");
    CHECK(from_base64url("-_8") == text_of(unhex("fbff")));
  }

  TEST_CASE("base64url: one text for one value") {
    for (const char* bad : {"A", "AAAAA", "Zh", "Zm9", "Zg==", "Zm8=", "+/8", "Zm 9v", "Zm9v\n", "Zm.v", "ecfs.dir", "\xc3\xa4\xc3\xa4"}) {
      CAPTURE(bad);
      CHECK(!from_base64url(bad));
    }
    std::mt19937 random(1);
    int refused = 0;
    for (int i = 0; i < 20000; ++i) {
      std::string text(random() % 24, '\0');
      constexpr std::string_view letters = "ABCXYZabcxyz019-_";
      for (char& c : text) c = letters[random() % letters.size()];
      const auto plain = from_base64url(text);
      if (plain)
        CHECK(base64url(as_bytes(*plain)) == text);
      else
        ++refused;
    }
    CHECK(refused > 1000);
  }

  TEST_CASE("base64url: all lengths up to 300") {
    for (std::size_t n = 0; n <= 300; ++n) {
      const Bytes b = counting(n, static_cast<std::uint8_t>(n * 7));
      const std::string text = base64url(b);
      CHECK(text.size() == (n * 4 + 2) / 3);
      CHECK(from_base64url(text) == text_of(b));
    }
  }
}
