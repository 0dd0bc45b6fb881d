// SPDX-License-Identifier: GPL-3.0-or-later
// Published answers, so that a changed library or a swapped argument cannot pass unseen; then everything that must be refused.
#include "ecfs/crypto.hpp"

#include <openssl/evp.h>
#include <sodium.h>

#include <algorithm>
#include <set>

#include "support.hpp"

namespace {

using namespace ecfs;
using namespace ecfs::test;

std::span<const std::uint8_t, kNonceSize> nonce_of(const Bytes& b) {
  REQUIRE(b.size() == kNonceSize);
  return std::span<const std::uint8_t, kNonceSize>(b.data(), kNonceSize);
}

// AEAD by the same library and cipher name as src/crypto.cpp, with free additional data.
std::string evp_seal(const char* cipher, const Bytes& key, const Bytes& nonce, const Bytes& ad, const Bytes& plain) {
  const std::unique_ptr<EVP_CIPHER, void (*)(EVP_CIPHER*)> c(EVP_CIPHER_fetch(nullptr, cipher, nullptr), EVP_CIPHER_free);
  const std::unique_ptr<EVP_CIPHER_CTX, void (*)(EVP_CIPHER_CTX*)> ctx(EVP_CIPHER_CTX_new(), EVP_CIPHER_CTX_free);
  REQUIRE(c);
  REQUIRE(ctx);
  Bytes out(plain.size() + kTagSize);
  int n = 0;
  REQUIRE(EVP_EncryptInit_ex2(ctx.get(), c.get(), key.data(), nonce.data(), nullptr) == 1);
  REQUIRE(EVP_EncryptUpdate(ctx.get(), nullptr, &n, ad.data(), static_cast<int>(ad.size())) == 1);
  REQUIRE(EVP_EncryptUpdate(ctx.get(), out.data(), &n, plain.data(), static_cast<int>(plain.size())) == 1);
  REQUIRE(EVP_EncryptFinal_ex(ctx.get(), out.data() + n, &n) == 1);
  REQUIRE(EVP_CIPHER_CTX_ctrl(ctx.get(), EVP_CTRL_AEAD_GET_TAG, kTagSize, out.data() + plain.size()) == 1);
  return hex(out);
}

struct SealedBlock {
  FileKey key;
  Bytes page;
  Bytes plain;
};

SealedBlock seal_sample(Suite suite, std::uint64_t block, std::size_t length) {
  SealedBlock s{key_of<FileKey>(counting(32, 0x48)), Bytes(kBlockHeaderSize + payload(block), 0xee), counting(length, 9)};
  BlockSealer sealer(suite, s.key);
  REQUIRE(sealer.seal(block, s.plain, nonce_of(counting(12, 0xc0)), s.page));
  return s;
}

std::error_code open_error(Suite suite, const FileKey& key, std::uint64_t block, const Bytes& page) {
  BlockOpener opener(suite, key);
  Bytes out(kPayload, 0x77);
  return opener.open(block, page, out.data()).error();
}

constexpr Suite kSuites[] = {Suite::aes_256_gcm, Suite::chacha20_poly1305};

}  // namespace

TEST_SUITE("crypto") {
  TEST_CASE("AES-256-GCM: test case 16 of the GCM specification") {
    CHECK(evp_seal("AES-256-GCM", unhex("feffe9928665731c6d6a8f9467308308feffe9928665731c6d6a8f9467308308"),
                   unhex("cafebabefacedbaddecaf888"), unhex("feedfacedeadbeeffeedfacedeadbeefabaddad2"),
                   unhex("d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72"
                         "1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b39")) ==
          "522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa"
          "8cb08e48590dbb3da7b08b1056828838c5f61e6393ba7a0abcc9f662"
          "76fc6ece0f4e1768cddf8853bb2d551b");
  }

  TEST_CASE("ChaCha20-Poly1305: RFC 8439, 2.8.2") {
    const std::string text =
        "Ladies and Gentlemen of the class of '99: If I could offer you only one tip for the future, sunscreen would be it.";
    CHECK(evp_seal("ChaCha20-Poly1305", counting(32, 0x80), unhex("070000004041424344454647"),
                   unhex("50515253c0c1c2c3c4c5c6c7"), Bytes(text.begin(), text.end())) ==
          "d31a8d34648e60db7b86afbc53ef7ec2a4aded51296e08fea9e2b5a736ee62d6"
          "3dbea45e8ca9671282fafb69da92728b1a71de0a9e060b2905d6a5b67ecd3b36"
          "92ddbd7f2d778b8c9803aee328091b58fab324e4fad675945585808b4831d7bc"
          "3ff4def08e4b7a9de576d26586cec64b6116"
          "1ae10b594f09e26a7e902ecbd0600691");
  }

  TEST_CASE("XChaCha20-Poly1305: draft-irtf-cfrg-xchacha-03, A.3.1") {
    const Bytes key = counting(32, 0x80);
    const Bytes sealed = unhex(
        "404142434445464748494a4b4c4d4e4f5051525354555657"
        "bd6d179d3e83d43b9576579493c0e939572a1700252bfaccbed2902c21396cbb"
        "731c7f1b0b4aa6440bf3a82f4eda7e39ae64c6708c54c216cb96b72e1213b452"
        "2f8c9ba40db5d945b11b69b982c1bb9e3f3fac2bc369488f76b2383565d3fff9"
        "21f9664c97637da9768812f615c68b13b52e"
        "c0875924c1c7987947deafd8780acf49");
    const auto plain = open_value(std::span<const std::uint8_t, 32>(key.data(), 32), unhex("50515253c0c1c2c3c4c5c6c7"),
                                  text_of(sealed));
    REQUIRE(plain);
    CHECK(*plain ==
          "Ladies and Gentlemen of the class of '99: If I could offer you only one tip for the future, sunscreen would be it.");
  }

  TEST_CASE("AES-256-SIV: Project Wycheproof, aes_siv_cmac") {
    struct Vector {
      int id;
      const char *key, *ad, *plain, *sealed;
    };
    const char* counted =
        "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
        "202122232425262728292a2b2c2d2e2f303132333435363738393a3b3c3d3e3f";
    const Vector vectors[] = {
        {304,
         "97bfd0f3e9bb8167bbb55f4cdc14529d8307c0ec2c3fe8bc88522d05c1261ba4"
         "60c9cb4116f630edd74d413ec417324c6e29b566fb2dd3df18e07b53b1f9f83b",
         "1cda342c166ea208df5c56bcf995a59b",
         "48ef10ccb1978b53ae73167abe1cc538fa80da3f5df93e3d5c4e9a9ad1f213504f22a694b98a35ad67620af9d8a29fc7",
         "d55c5d0af0260dc1123adb5d7869201f8ccee46deb66dd695c593cde1d7645c7"
         "2796e42a1733b6705753631b9b626991ddbd28473ce75cfdc4c14d20e66f212d"},
        {305,
         "e2c5662bb18fbb411d0304e4241db073fe60a4704fee290073513038a22b4cd5"
         "42580b2b4edbc37e3de01c0cb61abcad46986cdc491ce9e5ae5af223ff58b953",
         "fab912dec29a34aabfaef176", "0d", "1c6969ecb15741a9959b7a8492250e391a"},
        {324,
         "72a76714e0171e8213de624f00e273bc900050e69d25c454cc42b61e8b3fbc92"
         "d4942e1ae14421e164046c1479a7b9c9f4b50b382cb62dfeaa210b98dec7d937",
         "6a8aaf2c84003e0e6f409658",
         "92d8f4dc7d41e8b180d66e8994022db79249cdc76fd7f3ea12d9925b51925250cd75a15fcfd78ea85c57fe6196f8d754"
         "5086f99ea796a0ea69170db9944200435d9d3d551943892400ce787f703c1105",
         "69f720f36b0da86ec8cc0f46d62835dcb35ac23f5b891152d861c4e0f0018f19d272ee8b12d83300bfd46aeec0124d5d"
         "23b3cb849c1cab1fdf64b70947ebf79f5442e209076dfa9a3f36ab0a6d3cf4a75ddfcdc21837743b20885db4c803ac27"},
        // A synthetic IV of all ones: the counter's two cleared bits and its carry.
        {326, counted, "000102030405060708090a0b0c0d0e0f", "bfa1733d07afa03cb3f2eeb81bbde037",
         "000000000000000000000000000000004ce637d6ca9cdf1c2feb0d140865cddb"},
        {328, counted, "000102030405060708090a0b0c0d0e0f", "404aa73280eb830afde284ba6b18d48a",
         "ffffffffffffffffffffffffffffffff0fae016c086fc20546b374c24f3ebad0"},
    };
    for (const Vector& v : vectors) {
      CAPTURE(v.id);
      const auto siv = SivCipher::create(key_of<SivKey>(unhex(v.key)));
      REQUIRE(siv);
      const auto sealed = siv->seal(unhex(v.ad), text_of(unhex(v.plain)));
      REQUIRE(sealed);
      CHECK(hex(*sealed) == v.sealed);
      const auto plain = siv->open(unhex(v.ad), text_of(unhex(v.sealed)));
      REQUIRE(plain);
      CHECK(hex(*plain) == v.plain);
    }
  }

  TEST_CASE("BLAKE2b: RFC 7693, appendix A, and the 32-byte form") {
    // RFC 7693, appendix A, is the 64-byte form; hash256 and keyed_hash call the same function with another length.
    Bytes full(64);
    crypto_generichash(full.data(), full.size(), as_bytes("abc").data(), 3, nullptr, 0);
    CHECK(hex(full) ==
          "ba80a53f981c4d0d6a2797b69f12f6e94c212f14685ac4b74b12bb6fdbffa2d1"
          "7d87c5392aab792dc252d5de4533cc9518d38aa8dbf1925ab92386edd4009923");
    // BLAKE2b-256 of nothing and of "abc".
    CHECK(hex(hash256({})) == "0e5751c026e543b2e8ab2eb06099daa1d1e5df47778f7787faab45cdf12fe3a8");
    CHECK(hex(hash256(as_bytes("abc"))) == "bddd813c634239723171ef3fee98579b94964e3bb1cb3e427262c8c068d52319");
    CHECK(hash_name("abc") == base64url(unhex("bddd813c634239723171ef3fee98579b94964e3bb1cb3e427262c8c068d52319")));
    CHECK(hash_name("").size() == kHashLength);
  }

  TEST_CASE("Argon2id: the reference implementation's answer") {
    // phc-winner-argon2, test.c: version 1.3, t = 2, m = 64 MiB, p = 1, "password", "somesalt".
    const char* answer = "$argon2id$v=19$m=65536,t=2,p=1$c29tZXNhbHQ$CTFhFdXPJO1aFaMaO6Mm5c8y7cJHAph8ArZWb2GRPPc";
    CHECK(crypto_pwhash_str_verify(answer, "password", 8) == 0);
    CHECK(crypto_pwhash_str_verify(answer, "passwore", 8) == -1);
  }

  TEST_CASE("block: opens to what was sealed, at every kind of length") {
    for (const Suite suite : kSuites)
      for (const std::uint64_t block : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{1} << 51})
        for (const std::size_t length : {std::size_t{1}, std::size_t{15}, std::size_t{16}, std::size_t{17}, std::size_t{1000},
                                         payload(block) - 1, payload(block)}) {
          CAPTURE(block);
          CAPTURE(length);
          const SealedBlock s = seal_sample(suite, block, length);
          CHECK(hex(std::span(s.page).first(12)) == "c0c1c2c3c4c5c6c7c8c9cacb");
          CHECK((s.page[12] | s.page[13] << 8) == static_cast<int>(length));
          BlockOpener opener(suite, s.key);
          Bytes out(payload(block), 0x77);
          const auto n = opener.open(block, s.page, out.data());
          REQUIRE(n);
          CHECK(*n == length);
          out.resize(length);
          CHECK(out == s.plain);
        }
  }

  TEST_CASE("block: the two suites differ, and each wants its own") {
    const SealedBlock a = seal_sample(Suite::aes_256_gcm, 1, 100), c = seal_sample(Suite::chacha20_poly1305, 1, 100);
    CHECK(a.page != c.page);
    CHECK(open_error(Suite::chacha20_poly1305, a.key, 1, a.page) == Errc::damaged_block);
    CHECK(open_error(Suite::aes_256_gcm, c.key, 1, c.page) == Errc::damaged_block);
  }

  TEST_CASE("block: every flipped bit is refused and nothing of it is shown") {
    for (const Suite suite : kSuites)
      for (const std::size_t length : {std::size_t{40}, kPayload0}) {
        const SealedBlock s = seal_sample(suite, 0, length);
        BlockOpener opener(suite, s.key);
        Bytes page = s.page;
        std::size_t accepted = 0, shown = 0;
        for (std::size_t bit = 0; bit < page.size() * 8; ++bit) {
          page[bit / 8] ^= static_cast<std::uint8_t>(1 << bit % 8);
          Bytes out(payload(0), 0);
          const auto r = opener.open(0, page, out.data());
          if (r)
            ++accepted;
          else if (r.error() != Errc::damaged_block || std::ranges::count(out, 0) != static_cast<std::ptrdiff_t>(out.size()))
            ++shown;
          page[bit / 8] ^= static_cast<std::uint8_t>(1 << bit % 8);
        }
        CHECK(accepted == 0);
        CHECK(shown == 0);
        Bytes out(payload(0));
        CHECK(opener.open(0, page, out.data()));  // and the untouched page still opens with the same opener
      }
  }

  TEST_CASE("block: another place, another file, another length are refused") {
    for (const Suite suite : kSuites) {
      const SealedBlock s = seal_sample(suite, 5, 500);
      CHECK(!open_error(suite, s.key, 5, s.page));
      for (const std::uint64_t other : {1ull, 4ull, 6ull, 5ull + (1ull << 32), 5ull << 8})
        CHECK(open_error(suite, s.key, other, s.page) == Errc::damaged_block);
      // A block from another file: another key.
      CHECK(open_error(suite, key_of<FileKey>(counting(32, 0x49)), 5, s.page) == Errc::damaged_block);
      Bytes page = s.page;
      page[12] = static_cast<std::uint8_t>(499 & 255);
      page[13] = 499 >> 8;
      page[32 + 499] = 0;  // the padding would be right
      CHECK(open_error(suite, s.key, 5, page) == Errc::damaged_block);
      CHECK(open_error(suite, s.key, 5, Bytes(kPage)) == Errc::damaged_block);  // zeros are the caller's holes, not a block
    }
  }

  TEST_CASE("block: what cannot be sealed is refused") {
    const FileKey key = key_of<FileKey>(counting(32));
    const Bytes nonce = counting(12);
    BlockSealer sealer(Suite::aes_256_gcm, key);
    Bytes page(kPage), plain(kPage);
    CHECK(!sealer.seal(1, {}, nonce_of(nonce), page));
    CHECK(!sealer.seal(1, std::span(plain).first(kPayload + 1), nonce_of(nonce), page));
    CHECK(!sealer.seal(0, std::span(plain).first(kPayload0 + 1), nonce_of(nonce), page));
    CHECK(!sealer.seal(1, std::span(plain).first(10), nonce_of(nonce), std::span(page).first(kPage - 1)));
    CHECK(sealer.seal(1, std::span(plain).first(kPayload), nonce_of(nonce), page));
  }

  TEST_CASE("SIV: every flipped bit, other directory, other key, cut") {
    const auto siv = SivCipher::create(key_of<SivKey>(counting(64)));
    const auto other = SivCipher::create(key_of<SivKey>(counting(64, 1)));
    REQUIRE(siv);
    REQUIRE(other);
    const Bytes ad = counting(16, 0x70);
    const std::string sealed = siv->seal(ad, "a name").value();
    CHECK(sealed == siv->seal(ad, "a name").value());
    CHECK(sealed != siv->seal(counting(16, 0x71), "a name").value());
    CHECK(siv->open(ad, sealed).value() == "a name");
    for (std::size_t bit = 0; bit < sealed.size() * 8; ++bit) {
      std::string bad = sealed;
      bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ 1 << bit % 8);
      CHECK(siv->open(ad, bad).error() == Errc::damaged_name);
    }
    CHECK(siv->open(counting(16, 0x71), sealed).error() == Errc::damaged_name);
    CHECK(siv->open({}, sealed).error() == Errc::damaged_name);
    CHECK(other->open(ad, sealed).error() == Errc::damaged_name);
    for (std::size_t n = 0; n < sealed.size(); ++n) CHECK(siv->open(ad, sealed.substr(0, n)).error() == Errc::damaged_name);
    CHECK(!siv->seal(ad, ""));
  }

  TEST_CASE("sealed values: fresh nonce, every flipped bit, other data, cut") {
    const Bytes key = counting(32, 5);
    const auto k = std::span<const std::uint8_t, 32>(key.data(), 32);
    const Bytes ad = counting(4);
    const std::string sealed = seal_value(k, ad, "value");
    CHECK(sealed.size() == 5 + kSealOverhead);
    CHECK(sealed != seal_value(k, ad, "value"));
    CHECK(open_value(k, ad, sealed).value() == "value");
    CHECK(open_value(k, ad, seal_value(k, ad, "")).value().empty());
    for (std::size_t bit = 0; bit < sealed.size() * 8; ++bit) {
      std::string bad = sealed;
      bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ 1 << bit % 8);
      CHECK(open_value(k, ad, bad).error() == Errc::damaged_name);
    }
    for (std::size_t n = 0; n < sealed.size(); ++n) CHECK(open_value(k, ad, sealed.substr(0, n)).error() == Errc::damaged_name);
    CHECK(open_value(k, counting(4, 1), sealed).error() == Errc::damaged_name);
    const Bytes wrong = counting(32, 6);
    CHECK(open_value(std::span<const std::uint8_t, 32>(wrong.data(), 32), ad, sealed).error() == Errc::damaged_name);
  }

  TEST_CASE("file key: wrap and unwrap, every flipped bit of the header, another epoch") {
    const EpochKeys keys = epoch_keys();
    FileHeader header;
    const FileKey key = new_file_key(keys, Suite::chacha20_poly1305, header);
    CHECK(header.suite == Suite::chacha20_poly1305);
    CHECK(header.epoch == keys.epoch);
    const auto back = unwrap_file_key(keys, header);
    REQUIRE(back);
    CHECK(hex(back->bytes()) == hex(key.bytes()));
    CHECK(hex(key.bytes()) != std::string(64, '0'));

    std::array<std::uint8_t, kHeaderSize> raw;
    header.encode(raw);
    for (std::size_t bit = 0; bit < kHeaderSize * 8; ++bit) {
      auto bad = raw;
      bad[bit / 8] ^= static_cast<std::uint8_t>(1 << bit % 8);
      const auto decoded = FileHeader::decode(bad);
      CAPTURE(bit);
      if (!decoded) continue;  // format_test says which error
      CHECK(unwrap_file_key(keys, *decoded).error() == Errc::damaged_header);
    }
    // Same number, other master key; and the header of one epoch under the keys of another.
    CHECK(unwrap_file_key(epoch_keys(1, 1), header).error() == Errc::damaged_header);
    CHECK(unwrap_file_key(epoch_keys(2, 1), header).error() == Errc::damaged_header);
    header.epoch = 2;
    CHECK(unwrap_file_key(keys, header).error() == Errc::damaged_header);
  }

  TEST_CASE("file key: never the same twice") {
    const EpochKeys keys = epoch_keys();
    std::set<std::string> seen;
    for (int i = 0; i < 200; ++i) {
      FileHeader h;
      const FileKey key = new_file_key(keys, Suite::aes_256_gcm, h);
      seen.insert(hex(key.bytes()));
      seen.insert(hex(h.file_id));
      seen.insert(hex(h.wrap_nonce));
    }
    CHECK(seen.size() == 600);
  }

  TEST_CASE("directory record: MAC under its epoch, every flipped bit") {
    KeyRing ring = key_ring();
    ring.add(epoch_keys(3, 0x55));
    DirRecord r;
    std::ranges::copy(counting(16, 0x70), r.id.begin());
    for (const Epoch epoch : {Epoch{1}, Epoch{3}}) {
      r.epoch = epoch;
      r.next_epoch = epoch == 1 ? 3 : 0;
      const auto raw = *seal_dir_record(ring, r);
      const auto back = open_dir_record(ring, raw);
      REQUIRE(back);
      CHECK(back->id == r.id);
      CHECK(back->epoch == epoch);
      CHECK(back->next_epoch == r.next_epoch);
      for (std::size_t bit = 0; bit < raw.size() * 8; ++bit) {
        auto bad = raw;
        bad[bit / 8] ^= static_cast<std::uint8_t>(1 << bit % 8);
        CHECK(open_dir_record(ring, bad).error() == Errc::damaged_directory);
      }
      CHECK(open_dir_record(ring, std::span(raw).first(47)).error() == Errc::damaged_directory);
    }
    KeyRing only_new;
    only_new.add(epoch_keys(3, 0x55));
    r.epoch = 1;
    CHECK(open_dir_record(only_new, *seal_dir_record(ring, r)).error() == Errc::damaged_directory);
  }

  TEST_CASE("key ring: sorted, found by number, newest last") {
    KeyRing ring;
    for (const Epoch e : {Epoch{5}, Epoch{2}, Epoch{9}}) ring.add(epoch_keys(e, static_cast<std::uint8_t>(e)));
    REQUIRE(ring.epochs().size() == 3);
    CHECK(ring.epochs()[0].epoch == 2);
    CHECK(ring.newest().epoch == 9);
    REQUIRE(ring.find(5));
    CHECK(ring.find(5)->epoch == 5);
    CHECK(ring.find(4) == nullptr);
    CHECK(hex(ring.find(2)->wrap.bytes()) != hex(ring.find(5)->wrap.bytes()));
  }

  TEST_CASE("keys wipe themselves when they are moved from") {
    FileKey a = key_of<FileKey>(counting(32));
    const FileKey b = std::move(a);
    CHECK(hex(a.bytes()) == std::string(64, '0'));
    CHECK(hex(b.bytes()) == hex(counting(32)));
    FileKey c;
    FileKey d = key_of<FileKey>(counting(32, 1));
    c = std::move(d);
    CHECK(hex(d.bytes()) == std::string(64, '0'));
    CHECK(hex(c.bytes()) == hex(counting(32, 1)));
  }

  TEST_CASE("constant-time comparison compares") {
    CHECK(equal_in_constant_time(counting(16), counting(16)));
    CHECK(!equal_in_constant_time(counting(16), counting(16, 1)));
    CHECK(!equal_in_constant_time(counting(16), counting(15)));
  }
}
