// SPDX-License-Identifier: GPL-3.0-or-later
// The test vectors of docs/FORMAT.md, read from the document itself: document and program cannot drift apart. tests/vectors/reference.py
// computes the same ones without any code of ours.
#include <algorithm>
#include <map>
#include <set>
#include <sstream>

#include "ecfs/encrypted_file.hpp"
#include "ecfs/keyslot.hpp"
#include "ecfs/name_cipher.hpp"
#include "ecfs/volume.hpp"
#include "file_model.hpp"

namespace {

using namespace ecfs;
using namespace ecfs::test;

class Vectors {
 public:
  Vectors() {
    std::istringstream in(read_file(source_dir() + "/docs/FORMAT.md"));
    bool inside = false;
    for (std::string line; std::getline(in, line);) {
      if (line.starts_with("```")) {
        inside = line == "```vectors";
        continue;
      }
      const auto at = line.find(" = ");
      if (inside && at != std::string::npos) CHECK(values_.emplace(line.substr(0, at), line.substr(at + 3)).second);
    }
  }
  const std::string& text(const std::string& name) {
    REQUIRE_MESSAGE(values_.contains(name), "docs/FORMAT.md has no vector ", name);
    used_.insert(name);
    return values_[name];
  }
  Bytes bytes(const std::string& name) { return unhex(text(name)); }
  std::uint64_t number(const std::string& name) { return std::stoull(text(name)); }
  template <std::size_t N>
  std::array<std::uint8_t, N> array(const std::string& name) {
    std::array<std::uint8_t, N> out{};
    const Bytes b = bytes(name);
    REQUIRE(b.size() == N);
    std::ranges::copy(b, out.begin());
    return out;
  }
  std::size_t size() const { return values_.size(); }
  std::size_t used() const { return used_.size(); }

 private:
  std::map<std::string, std::string> values_;
  std::set<std::string> used_;
};

EpochMaster master_of(Vectors& v) {
  EpochMaster m;
  m.epoch = static_cast<Epoch>(v.number("epoch"));
  std::ranges::copy(v.bytes("master_key"), m.key.bytes().begin());
  return m;
}

// Nonces are drawn at random inside, so that sealed values are checked by opening them.
void check_names(Vectors& v, const KeyRing& ring, const EpochKeys& keys) {
  const DirId dir = v.array<16>("dir_id");
  CHECK(encode_name(keys, dir, v.text("name_plain"), 255).value().name == v.text("name_lower"));
  CHECK(decode_name(keys, dir, v.text("name_lower")).value() == v.text("name_plain"));
  const LowerName long_name = encode_name(keys, dir, std::string(255, 'n'), 255).value();
  CHECK(long_name.encoded == v.text("long_name_encoded"));
  CHECK(long_name.name == v.text("long_name_lower"));
  CHECK(open_target(ring, v.text("target_lower")).value() == v.text("target_plain"));
  CHECK(from_base64url(v.text("target_lower"))->substr(4, 24) == text_of(v.bytes("target_nonce")));
  const LowerXattr attr = encode_xattr_name(keys, v.text("xattr_plain")).value();
  CHECK(attr.name == v.text("xattr_lower"));
  CHECK(open_xattr_value(ring, attr, v.text("xattr_plain"), text_of(v.bytes("xattr_sealed"))).value() == text_of(v.bytes("xattr_value")));
  const std::string name(200, 'a');
  const LowerXattr long_attr = encode_xattr_name(keys, name).value();
  CHECK(long_attr.name == v.text("long_xattr_lower"));
  CHECK(open_xattr_value(ring, long_attr, name, text_of(v.bytes("long_xattr_sealed"))).value() == text_of(v.bytes("xattr_value")));
}

void check_blocks(Vectors& v, const FileKey& key) {
  const Bytes plain = v.bytes("block_plain");
  const auto nonce = v.array<kNonceSize>("block_nonce");
  const std::pair<Suite, std::string> suites[] = {{Suite::aes_256_gcm, "aes"}, {Suite::chacha20_poly1305, "chacha"}};
  for (const auto& [suite, name] : suites)
    for (const std::uint64_t block : {0u, 1u}) {
      Bytes page(kBlockHeaderSize + payload(block), 0xee);
      REQUIRE(BlockSealer(suite, key).seal(block, plain, nonce, page));
      CHECK(hex(std::span(page).first(kBlockHeaderSize + plain.size())) == v.text("block" + std::to_string(block) + "_" + name));
    }
}

void check_volume(Vectors& v, const EpochMaster& master) {
  const std::string text = v.text("passphrase");
  Volume volume;
  volume.uuid = "00010203-0405-4607-8809-0a0b0c0d0e0f";
  volume.created = "2026-01-02T03:04:05Z";
  volume.epochs = {1};
  Keyslot slot;
  slot.label = "sample";
  slot.created = volume.created;
  slot.argon2_ops = 1;
  slot.argon2_mem = 65536;
  std::ranges::copy(counting(16, 0x80), slot.salt.begin());
  std::ranges::copy(counting(24, 0x90), slot.nonce.begin());
  slot.wrapped = *from_base64url(v.text("slot_wrapped"));
  const auto kek = argon2id(SecretBuffer(text), slot.salt, slot.argon2_ops, slot.argon2_mem);
  REQUIRE(kek);
  CHECK(hex(kek->bytes()) == v.text("kek"));
  volume.slots.push_back(slot);
  const auto unlocked = open_slot(volume, slot, SecretBuffer(text));
  REQUIRE(unlocked);
  CHECK(hex((*unlocked)[0].key.bytes()) == hex(master.key.bytes()));
  const KeyRing ring = std::move(*make_key_ring(*unlocked));
  const std::string rendered = render_volume(volume, ring);
  CHECK(rendered.find("\"mac\": \"" + v.text("volume_mac") + "\"") != std::string::npos);
  CHECK(rendered.find("\"checksum\": \"" + v.text("volume_checksum") + "\"") != std::string::npos);
  CHECK_MESSAGE(read_file(source_dir() + "/docs/FORMAT.md").find(rendered) != std::string::npos,
                "the sample volume file of docs/FORMAT.md is not what render_volume makes");
}

}  // namespace

TEST_SUITE("format document") {
  TEST_CASE("docs/FORMAT.md: every vector is what the program makes or opens") {
    Vectors v;
    const EpochMaster master = master_of(v);
    KeyRing ring;
    ring.add(std::move(*EpochKeys::derive(master.epoch, master.key)));
    const EpochKeys& keys = ring.newest();
    CHECK(hex(keys.wrap.bytes()) == v.text("k_wrap"));
    CHECK(hex(keys.link.bytes()) == v.text("k_link"));
    CHECK(hex(keys.xattr.bytes()) == v.text("k_xattr"));
    CHECK(hex(keys.conf.bytes()) == v.text("k_conf"));
    // The two name keys exist only as ciphers: another cipher made from the document's key must agree.
    for (const auto& [cipher, name] : {std::pair{&keys.names, "k_name"}, std::pair{&keys.xattr_names, "k_xattr_name"}})
      CHECK(SivCipher::create(key_of<SivKey>(v.bytes(name))).value().seal({}, "x").value() == cipher->seal({}, "x").value());

    const FileKey key = key_of<FileKey>(v.bytes("file_key"));
    for (const char* name : {"header_aes", "header_chacha"}) {
      const auto header = FileHeader::decode(v.array<kHeaderSize>(name));
      REQUIRE(header);
      CHECK(hex(header->file_id) == v.text("file_id"));
      CHECK(hex(header->wrap_nonce) == v.text("wrap_nonce"));
      CHECK(hex(unwrap_file_key(keys, *header).value().bytes()) == v.text("file_key"));
    }
    check_blocks(v, key);

    // A whole file: put together by the parts, then read as any other.
    Bytes plain(static_cast<std::size_t>(v.number("file_plain_size")));
    for (std::size_t i = 0; i < plain.size(); ++i) plain[i] = static_cast<std::uint8_t>(i % 251);
    Bytes raw = v.bytes("header_aes");
    raw.resize(static_cast<std::size_t>(v.number("file_lower_size")));
    const auto nonce = v.array<kNonceSize>("block_nonce");
    BlockSealer sealer(Suite::aes_256_gcm, key);
    REQUIRE(sealer.seal(0, std::span(plain).first(kPayload0), nonce, std::span(raw).subspan(kHeaderSize, kPage - kHeaderSize)));
    REQUIRE(sealer.seal(1, std::span(plain).subspan(kPayload0), nonce, std::span(raw).subspan(kPage, kPage)));
    CHECK(hex(hash256(raw)) == v.text("file_lower_blake2b"));
    CHECK(lower_size(plain.size()) == raw.size());
    const UniqueFd fd = memory_file();
    REQUIRE(::pwrite(fd.get(), raw.data(), raw.size(), 0) == static_cast<ssize_t>(raw.size()));
    CHECK(read_all(open_again(fd.get(), ring).value()) == plain);

    DirRecord record;
    record.id = v.array<16>("dir_id");
    record.epoch = master.epoch;
    CHECK(hex(*seal_dir_record(ring, record)) == v.text("dir_record"));
    check_names(v, ring, keys);
    check_volume(v, master);
    CHECK(v.used() == v.size());  // none is only decoration
  }
}
