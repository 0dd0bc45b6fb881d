// SPDX-License-Identifier: GPL-3.0-or-later
#include "ecfs/crypto.hpp"

#include <openssl/evp.h>
#include <sodium.h>

#include <algorithm>
#include <cstring>

#include "ecfs/endian.hpp"

namespace ecfs {
namespace {

struct Ciphers {
  EVP_CIPHER* gcm = EVP_CIPHER_fetch(nullptr, "AES-256-GCM", nullptr);
  EVP_CIPHER* chacha = EVP_CIPHER_fetch(nullptr, "ChaCha20-Poly1305", nullptr);
  EVP_CIPHER* siv = EVP_CIPHER_fetch(nullptr, "AES-256-SIV", nullptr);
};

// Fetched once: an implicit fetch by every init costs more than the sealing of a small block. Never freed: worker
// threads may still use them while the program ends.
const Ciphers& ciphers() {
  static const Ciphers* c = new Ciphers;
  return *c;
}

struct ThreadContexts {
  EVP_CIPHER_CTX* seal = EVP_CIPHER_CTX_new();
  EVP_CIPHER_CTX* open = EVP_CIPHER_CTX_new();
  EVP_CIPHER_CTX* name = EVP_CIPHER_CTX_new();
  ~ThreadContexts() {
    EVP_CIPHER_CTX_free(seal);
    EVP_CIPHER_CTX_free(open);
    EVP_CIPHER_CTX_free(name);
  }
};

ThreadContexts& contexts() {
  thread_local ThreadContexts c;
  return c;
}

const EVP_CIPHER* cipher_of(Suite suite) {
  return suite == Suite::aes_256_gcm ? ciphers().gcm : ciphers().chacha;
}

// Additional data of a block: index 8 | length 2 | zero 2.
std::array<std::uint8_t, 12> block_ad(std::uint64_t block, std::size_t length) {
  std::array<std::uint8_t, 12> ad{};
  store_le<std::uint64_t>(&ad[0], block);
  store_le<std::uint16_t>(&ad[8], static_cast<std::uint16_t>(length));
  return ad;
}

const std::uint8_t* u8(std::string_view s) { return reinterpret_cast<const std::uint8_t*>(s.data()); }
std::uint8_t* u8(std::string& s) { return reinterpret_cast<std::uint8_t*>(s.data()); }

template <class K>
void derive_into(K& key, std::uint64_t subkey, const MasterKey& master) {
  crypto_kdf_derive_from_key(key.data(), K::kSize, subkey, "ecfs-key", master.bytes().data());
}

}  // namespace

Result<void> crypto_init() {
  if (sodium_init() < 0) return Errc::crypto_failure;
  if (!ciphers().gcm || !ciphers().chacha || !ciphers().siv) return Errc::crypto_failure;
  return {};
}

void random_bytes(std::span<std::uint8_t> out) noexcept { randombytes_buf(out.data(), out.size()); }

std::span<const std::uint8_t> as_bytes(std::string_view text) noexcept { return {u8(text), text.size()}; }

std::array<std::uint8_t, 32> hash256(std::span<const std::uint8_t> in) noexcept {
  std::array<std::uint8_t, 32> out;
  crypto_generichash(out.data(), out.size(), in.data(), in.size(), nullptr, 0);
  return out;
}

std::string hash_name(std::string_view text) { return base64url(hash256(as_bytes(text))); }

void keyed_hash(const ConfKey& key, std::span<const std::uint8_t> in, std::span<std::uint8_t> out) noexcept {
  crypto_generichash(out.data(), out.size(), in.data(), in.size(), key.data(), ConfKey::kSize);
}

bool equal_in_constant_time(std::span<const std::uint8_t> a, std::span<const std::uint8_t> b) noexcept {
  return a.size() == b.size() && sodium_memcmp(a.data(), b.data(), a.size()) == 0;
}

BlockSealer::BlockSealer(Suite suite, const FileKey& key) noexcept : ctx_(contexts().seal) {
  if (ctx_ && EVP_EncryptInit_ex(ctx_, cipher_of(suite), nullptr, key.data(), nullptr) != 1) ctx_ = nullptr;
}

Result<void> BlockSealer::seal(std::uint64_t block, std::span<const std::uint8_t> plain,
                               std::span<const std::uint8_t, kNonceSize> nonce,
                               std::span<std::uint8_t> out) noexcept {
  const std::size_t room = payload(block);
  if (!ctx_ || plain.empty() || plain.size() > room || out.size() < kBlockHeaderSize + room) return Errc::crypto_failure;
  const auto ad = block_ad(block, plain.size());
  int n = 0;
  std::uint8_t* body = out.data() + kBlockHeaderSize;
  if (EVP_EncryptInit_ex(ctx_, nullptr, nullptr, nullptr, nonce.data()) != 1 ||
      EVP_EncryptUpdate(ctx_, nullptr, &n, ad.data(), ad.size()) != 1 ||
      EVP_EncryptUpdate(ctx_, body, &n, plain.data(), static_cast<int>(plain.size())) != 1 ||
      EVP_EncryptFinal_ex(ctx_, body + n, &n) != 1 ||
      EVP_CIPHER_CTX_ctrl(ctx_, EVP_CTRL_AEAD_GET_TAG, kTagSize, out.data() + 16) != 1)
    return Errc::crypto_failure;
  std::copy(nonce.begin(), nonce.end(), out.begin());
  std::memcpy(&out[12], &ad[8], 4);
  std::memset(body + plain.size(), 0, room - plain.size());
  return {};
}

BlockOpener::BlockOpener(Suite suite, const FileKey& key) noexcept : ctx_(contexts().open) {
  if (ctx_ && EVP_DecryptInit_ex(ctx_, cipher_of(suite), nullptr, key.data(), nullptr) != 1) ctx_ = nullptr;
}

Result<std::size_t> BlockOpener::open(std::uint64_t block, std::span<const std::uint8_t> in,
                                      std::uint8_t* out) noexcept {
  const auto header = BlockHeader::decode(block, in);
  if (!header) return header.error();
  if (!ctx_) return Errc::crypto_failure;
  const std::size_t length = header->length;
  const auto ad = block_ad(block, length);
  std::array<std::uint8_t, kTagSize> tag;
  std::copy(header->tag.begin(), header->tag.end(), tag.begin());
  int n = 0, last = 0;
  const bool good = EVP_DecryptInit_ex(ctx_, nullptr, nullptr, nullptr, header->nonce.data()) == 1 &&
                    EVP_CIPHER_CTX_ctrl(ctx_, EVP_CTRL_AEAD_SET_TAG, kTagSize, tag.data()) == 1 &&
                    EVP_DecryptUpdate(ctx_, nullptr, &n, ad.data(), ad.size()) == 1 &&
                    EVP_DecryptUpdate(ctx_, out, &n, in.data() + kBlockHeaderSize, static_cast<int>(length)) == 1 &&
                    EVP_DecryptFinal_ex(ctx_, out + n, &last) == 1;
  if (!good) {
    wipe(out, length);  // what did not authenticate is never seen
    return Errc::damaged_block;
  }
  return length;
}

void SivCipher::Free::operator()(evp_cipher_ctx_st* c) const noexcept { EVP_CIPHER_CTX_free(c); }

Result<SivCipher> SivCipher::create(const SivKey& key) {
  SivCipher c;
  c.enc_.reset(EVP_CIPHER_CTX_new());
  c.dec_.reset(EVP_CIPHER_CTX_new());
  if (!c.enc_ || !c.dec_ || EVP_EncryptInit_ex(c.enc_.get(), ciphers().siv, nullptr, key.data(), nullptr) != 1 ||
      EVP_DecryptInit_ex(c.dec_.get(), ciphers().siv, nullptr, key.data(), nullptr) != 1)
    return Errc::crypto_failure;
  return c;
}

Result<std::string> SivCipher::seal(std::span<const std::uint8_t> ad, std::string_view plain) const {
  EVP_CIPHER_CTX* ctx = contexts().name;
  std::string out(kTagSize + plain.size(), '\0');
  int n = 0;
  if (!ctx || plain.empty() || EVP_CIPHER_CTX_copy(ctx, enc_.get()) != 1 ||
      (!ad.empty() && EVP_EncryptUpdate(ctx, nullptr, &n, ad.data(), static_cast<int>(ad.size())) != 1) ||
      EVP_EncryptUpdate(ctx, u8(out) + kTagSize, &n, u8(plain), static_cast<int>(plain.size())) != 1 ||
      EVP_EncryptFinal_ex(ctx, u8(out) + kTagSize + n, &n) != 1 ||
      EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_GET_TAG, kTagSize, u8(out)) != 1)
    return Errc::crypto_failure;
  return out;
}

Result<std::string> SivCipher::open(std::span<const std::uint8_t> ad, std::string_view sealed) const {
  if (sealed.size() <= kTagSize) return Errc::damaged_name;
  EVP_CIPHER_CTX* ctx = contexts().name;
  std::string out(sealed.size() - kTagSize, '\0');
  std::array<std::uint8_t, kTagSize> tag;
  std::copy_n(u8(sealed), kTagSize, tag.begin());
  int n = 0;
  if (!ctx || EVP_CIPHER_CTX_copy(ctx, dec_.get()) != 1) return Errc::crypto_failure;
  if (EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_SET_TAG, kTagSize, tag.data()) != 1 ||
      (!ad.empty() && EVP_DecryptUpdate(ctx, nullptr, &n, ad.data(), static_cast<int>(ad.size())) != 1) ||
      EVP_DecryptUpdate(ctx, u8(out), &n, u8(sealed) + kTagSize, static_cast<int>(out.size())) != 1 ||
      EVP_DecryptFinal_ex(ctx, u8(out) + n, &n) != 1) {
    wipe(out.data(), out.size());
    return Errc::damaged_name;
  }
  return out;
}

std::string seal_value(std::span<const std::uint8_t, 32> key, std::span<const std::uint8_t> ad,
                       std::string_view plain) {
  std::string out(kXNonceSize + plain.size() + kTagSize, '\0');
  randombytes_buf(out.data(), kXNonceSize);
  unsigned long long n = 0;
  crypto_aead_xchacha20poly1305_ietf_encrypt(u8(out) + kXNonceSize, &n, u8(plain), plain.size(), ad.data(), ad.size(),
                                             nullptr, u8(out), key.data());
  return out;
}

Result<std::string> open_value(std::span<const std::uint8_t, 32> key, std::span<const std::uint8_t> ad,
                               std::string_view sealed) {
  if (sealed.size() < kSealOverhead) return Errc::damaged_name;
  std::string out(sealed.size() - kSealOverhead, '\0');
  unsigned long long n = 0;
  if (crypto_aead_xchacha20poly1305_ietf_decrypt(u8(out), &n, nullptr, u8(sealed) + kXNonceSize,
                                                 sealed.size() - kXNonceSize, ad.data(), ad.size(), u8(sealed),
                                                 key.data()) != 0)
    return Errc::damaged_name;
  return out;
}

Result<SecretBuffer> open_secret(const Kek& key, std::span<const std::uint8_t> ad,
                                 std::span<const std::uint8_t, kXNonceSize> nonce, std::string_view sealed) {
  if (sealed.size() < kTagSize) return Errc::damaged_name;
  SecretBuffer out(sealed.size() - kTagSize);
  unsigned long long n = 0;
  if (crypto_aead_xchacha20poly1305_ietf_decrypt(out.data(), &n, nullptr, u8(sealed), sealed.size(), ad.data(),
                                                 ad.size(), nonce.data(), key.data()) != 0)
    return Errc::damaged_name;
  return out;
}

Result<Kek> argon2id(const SecretBuffer& secret, std::span<const std::uint8_t, 16> salt, std::uint64_t ops,
                     std::uint64_t mem) {
  static_assert(crypto_pwhash_SALTBYTES == 16);
  Kek kek;
  if (crypto_pwhash(kek.data(), Kek::kSize, reinterpret_cast<const char*>(secret.data()), secret.size(), salt.data(), ops,
                    mem, crypto_pwhash_ALG_ARGON2ID13) != 0)
    return errno_code(ENOMEM);
  return kek;
}

Result<EpochKeys> EpochKeys::derive(Epoch epoch, const MasterKey& master) {
  EpochKeys k;
  k.epoch = epoch;
  SivKey names, xattr_names;
  derive_into(k.wrap, 1, master);
  derive_into(names, 2, master);
  derive_into(k.link, 3, master);
  derive_into(xattr_names, 4, master);
  derive_into(k.xattr, 5, master);
  derive_into(k.conf, 6, master);
  auto n = SivCipher::create(names);
  auto x = SivCipher::create(xattr_names);
  if (!n || !x) return Errc::crypto_failure;
  k.names = std::move(*n);
  k.xattr_names = std::move(*x);
  return k;
}

void KeyRing::add(EpochKeys keys) {
  const auto at = std::find_if(epochs_.begin(), epochs_.end(), [&](const auto& k) { return k.epoch > keys.epoch; });
  epochs_.insert(at, std::move(keys));
}

const EpochKeys* KeyRing::find(Epoch epoch) const noexcept {
  for (const auto& k : epochs_)
    if (k.epoch == epoch) return &k;
  return nullptr;
}

FileKey new_file_key(const EpochKeys& keys, Suite suite, FileHeader& header) noexcept {
  header = {};
  header.suite = suite;
  header.epoch = keys.epoch;
  // One draw for all three: each is a system call, and this is on the way of every file that is made.
  Key<FileKeyTag, FileKey::kSize + 16 + kXNonceSize> drawn;
  random_bytes(drawn.bytes());
  FileKey key(drawn.bytes().first<FileKey::kSize>());
  std::copy_n(drawn.data() + FileKey::kSize, 16, header.file_id.begin());
  std::copy_n(drawn.data() + FileKey::kSize + 16, kXNonceSize, header.wrap_nonce.begin());
  std::array<std::uint8_t, kHeaderSize> raw;
  header.encode(raw);
  unsigned long long n = 0;
  crypto_aead_xchacha20poly1305_ietf_encrypt(header.wrapped_key.data(), &n, key.data(), FileKey::kSize, raw.data(),
                                             FileHeader::kAdditionalData, nullptr, header.wrap_nonce.data(),
                                             keys.wrap.data());
  return key;
}

Result<FileKey> unwrap_file_key(const EpochKeys& keys, const FileHeader& header) {
  std::array<std::uint8_t, kHeaderSize> raw;
  header.encode(raw);
  FileKey key;
  unsigned long long n = 0;
  if (crypto_aead_xchacha20poly1305_ietf_decrypt(key.data(), &n, nullptr, header.wrapped_key.data(),
                                                 header.wrapped_key.size(), raw.data(), FileHeader::kAdditionalData,
                                                 header.wrap_nonce.data(), keys.wrap.data()) != 0)
    return Errc::damaged_header;
  return key;
}

Result<std::array<std::uint8_t, DirRecord::kSize>> seal_dir_record(const KeyRing& keys, const DirRecord& record) {
  const EpochKeys* k = keys.find(record.epoch);
  if (!k) return Errc::damaged_directory;
  std::array<std::uint8_t, DirRecord::kSize> raw;
  record.encode(raw);
  keyed_hash(k->conf, std::span(raw).first(DirRecord::kAuthenticated), std::span(raw).subspan(DirRecord::kAuthenticated));
  return raw;
}

Result<DirRecord> open_dir_record(const KeyRing& keys, std::span<const std::uint8_t> in) {
  auto record = DirRecord::decode(in);
  if (!record) return record.error();
  const EpochKeys* k = keys.find(record->epoch);
  if (!k) return Errc::damaged_directory;
  std::array<std::uint8_t, 16> mac;
  keyed_hash(k->conf, in.first(DirRecord::kAuthenticated), mac);
  if (!equal_in_constant_time(mac, in.subspan(DirRecord::kAuthenticated))) return Errc::damaged_directory;
  return record;
}

}  // namespace ecfs
