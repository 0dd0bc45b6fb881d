// SPDX-License-Identifier: GPL-3.0-or-later
// All cryptography: seal and open a block, wrap and unwrap a file key, derive, names, random. OpenSSL's EVP for block
// ciphers (AES-256-GCM, ChaCha20-Poly1305, AES-256-SIV), libsodium for everything else. docs/FORMAT.md, "Keys".
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ecfs/error.hpp"
#include "ecfs/format.hpp"
#include "ecfs/secret.hpp"

struct evp_cipher_ctx_st;

namespace ecfs {

// Must succeed once before anything else here is used: libsodium's start, the ciphers fetched.
Result<void> crypto_init();

void random_bytes(std::span<std::uint8_t> out) noexcept;

std::span<const std::uint8_t> as_bytes(std::string_view text) noexcept;

// BLAKE2b-256 (RFC 7693) without a key.
std::array<std::uint8_t, 32> hash256(std::span<const std::uint8_t> in) noexcept;
// base64url(hash256(text)): the H in `ecfs.long.H`, 43 characters.
std::string hash_name(std::string_view text);
// BLAKE2b under a 32-byte key; `out` is 16 to 64 bytes.
void keyed_hash(const ConfKey& key, std::span<const std::uint8_t> in, std::span<std::uint8_t> out) noexcept;
bool equal_in_constant_time(std::span<const std::uint8_t> a, std::span<const std::uint8_t> b) noexcept;

// Seals blocks of one file (NIST SP 800-38D or RFC 8439). Keyed once, then used for the blocks of one request. It borrows
// its thread's cipher context: at most one BlockSealer and one BlockOpener are alive in a thread.
class BlockSealer {
 public:
  BlockSealer(Suite suite, const FileKey& key) noexcept;
  // plain: 1..payload(block) bytes. out: the page from the block header on (kBlockHeaderSize + payload(block) bytes);
  // everything in it is written, zero padding included.
  Result<void> seal(std::uint64_t block, std::span<const std::uint8_t> plain,
                    std::span<const std::uint8_t, kNonceSize> nonce, std::span<std::uint8_t> out) noexcept;

 private:
  evp_cipher_ctx_st* ctx_;
};

class BlockOpener {
 public:
  BlockOpener(Suite suite, const FileKey& key) noexcept;
  // in: as BlockSealer::seal's out. Writes `length` bytes to out (which has room for payload(block)) and returns
  // the length. damaged_block when anything does not authenticate; out then holds zeros.
  Result<std::size_t> open(std::uint64_t block, std::span<const std::uint8_t> in, std::uint8_t* out) noexcept;

 private:
  evp_cipher_ctx_st* ctx_;
};

// AES-256-SIV (RFC 5297) with one additional-data component, keyed once and copied a use. Safe from many threads.
class SivCipher {
 public:
  SivCipher() = default;
  static Result<SivCipher> create(const SivKey& key);
  // V (16 bytes) followed by the ciphertext; deterministic.
  Result<std::string> seal(std::span<const std::uint8_t> ad, std::string_view plain) const;
  // damaged_name when it does not authenticate.
  Result<std::string> open(std::span<const std::uint8_t> ad, std::string_view sealed) const;

 private:
  struct Free {
    void operator()(evp_cipher_ctx_st* c) const noexcept;
  };
  std::unique_ptr<evp_cipher_ctx_st, Free> enc_, dec_;
};

// XChaCha20-Poly1305: nonce 24 | ciphertext | tag 16, under a random nonce.
inline constexpr std::size_t kSealOverhead = kXNonceSize + kTagSize;
std::string seal_value(std::span<const std::uint8_t, 32> key, std::span<const std::uint8_t> ad, std::string_view plain);
// damaged_name when it does not authenticate.
Result<std::string> open_value(std::span<const std::uint8_t, 32> key, std::span<const std::uint8_t> ad,
                               std::string_view sealed);

// As open_value, into guarded memory and for a KEK: what a keyslot wraps. `nonce` is apart from the ciphertext here.
Result<SecretBuffer> open_secret(const Kek& key, std::span<const std::uint8_t> ad,
                                 std::span<const std::uint8_t, kXNonceSize> nonce, std::string_view sealed);

// Argon2id (RFC 9106) version 1.3 with one lane: `ops` passes over `mem` bytes. ENOMEM when the memory cannot be had.
Result<Kek> argon2id(const SecretBuffer& secret, std::span<const std::uint8_t, 16> salt, std::uint64_t ops,
                     std::uint64_t mem);

// Everything that is derived from one epoch's master key (crypto_kdf, context "ecfs-key").
struct EpochKeys {
  Epoch epoch = 0;
  WrapKey wrap;         // subkey 1
  SivCipher names;      // subkey 2, 64 bytes
  LinkKey link;         // subkey 3
  SivCipher xattr_names;  // subkey 4, 64 bytes
  XattrValueKey xattr;  // subkey 5
  ConfKey conf;         // subkey 6
  static Result<EpochKeys> derive(Epoch epoch, const MasterKey& master);
};

// The living epochs of a volume, ascending. Never empty once made.
class KeyRing {
 public:
  void add(EpochKeys keys);
  const EpochKeys* find(Epoch epoch) const noexcept;
  const EpochKeys& newest() const noexcept { return epochs_.back(); }
  const std::vector<EpochKeys>& epochs() const noexcept { return epochs_; }

 private:
  std::vector<EpochKeys> epochs_;
};

// Draws a file id and a file key, wraps the key under `keys` and fills `header`.
FileKey new_file_key(const EpochKeys& keys, Suite suite, FileHeader& header) noexcept;
// damaged_header when the wrap does not authenticate.
Result<FileKey> unwrap_file_key(const EpochKeys& keys, const FileHeader& header);

// `ecfs.dir` with its MAC, and back. Sealing under an epoch that is not living, and opening under one or with a wrong MAC: damaged_directory.
Result<std::array<std::uint8_t, DirRecord::kSize>> seal_dir_record(const KeyRing& keys, const DirRecord& record);
Result<DirRecord> open_dir_record(const KeyRing& keys, std::span<const std::uint8_t> in);

}  // namespace ecfs
