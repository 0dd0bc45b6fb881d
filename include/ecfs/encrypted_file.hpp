// SPDX-License-Identifier: GPL-3.0-or-later
// One lower file seen as plaintext (docs/FORMAT.md, "Regular file").
//
// Invariant between calls: the lower size is lower_size(size()), every block below block_count(size()) is a page that
// authenticates or a hole, and the last one is a page that holds last_length(size()) bytes.
//
// Not locked: the caller holds a reader-writer lock, shared for the const members, exclusive for the others.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>

#include "ecfs/crypto.hpp"
#include "ecfs/error.hpp"
#include "ecfs/layout.hpp"
#include "ecfs/secret.hpp"
#include "ecfs/unique_fd.hpp"

namespace ecfs {

class EncryptedFile {
 public:
  struct Options {
    Suite suite = Suite::aes_256_gcm;  // for new file keys
    bool writable = true;              // the descriptor is, and hints may be set right
    // The file may have been written by a session that was cut: a page 0 of zeros then means that its first write never
    // reached the disk, and that it is empty. Otherwise such a file is damaged.
    bool lost_header_is_empty = false;
    // A session was cut, and the file's inode is from before it: the last block may be newer than the size, whose change never reached the
    // disk while the page, written in place, did. What the lower size tells is then what the file has, as stat has told already.
    bool inode_may_lag = false;
    bool noatime = false;  // reads never move the lower file's atime
  };

  // `fd`: a regular file open for reading (and writing). Reads the header and the last block and sets a wrong size hint right.
  // Errors: damaged_header, unsupported_format, errnos. `keys` must outlive the file.
  static Result<EncryptedFile> open(UniqueFd fd, const KeyRing& keys, Options options);
  // The same where the caller has just asked for the lower size.
  static Result<EncryptedFile> open(UniqueFd fd, const KeyRing& keys, Options options, std::uint64_t lower_bytes);

  // A file that others may change between two uses of it: nothing is read yet, and before each use there is a refresh.
  static EncryptedFile unread(UniqueFd fd, const KeyRing& keys, Options options) { return EncryptedFile(std::move(fd), keys, options); }
  // Forgets what is known of the file and learns it anew, while a lock keeps the others out. `mend`: a wrong size hint is set right, for which
  // the lock must be exclusive. The others: as in Options.
  Result<void> refresh(std::uint64_t lower_bytes, bool mend, bool lost_header_is_empty, bool inode_may_lag);

  std::uint64_t size() const noexcept { return size_; }
  // Whether reading leaves the lower file's atime as it is, from here on. It goes on moving where only the file's owner may ask for that.
  void keep_atime(bool on) noexcept;
  // Where opening found that the size hint and the last block disagreed: the plaintext offset from which on what the hint told differs from
  // what there is. Whoever was told the hint's size takes the rest for zeros, or does not ask for it.
  std::optional<std::uint64_t> hint_differed_from() const noexcept { return hint_differed_from_; }
  int fd() const noexcept { return fd_.get(); }

  // Reads up to out.size() bytes at `off`; fewer only at the end of the file. damaged_block when a block in the range does not
  // authenticate: never part of the bytes, since the kernel would take a short answer for zeros.
  Result<std::size_t> read(std::uint64_t off, std::span<std::uint8_t> out) const;
  // All of `in`, or an error. On an error the file holds each touched block in its old or its new content.
  Result<void> write(std::uint64_t off, std::span<const std::uint8_t> in);
  Result<void> truncate(std::uint64_t size);
  // fallocate(2), modes 0 and KEEP_SIZE, PUNCH_HOLE | KEEP_SIZE, ZERO_RANGE with and without KEEP_SIZE; len > 0.
  Result<void> allocate(std::uint64_t off, std::uint64_t len, bool keep_size);
  Result<void> punch(std::uint64_t off, std::uint64_t len);
  Result<void> zero_range(std::uint64_t off, std::uint64_t len, bool keep_size);
  // lseek(2) SEEK_DATA and SEEK_HOLE, in plaintext offsets; ENXIO at or past the end.
  Result<std::uint64_t> seek_data(std::uint64_t off) const;
  Result<std::uint64_t> seek_hole(std::uint64_t off) const;
  Result<void> sync(bool data_only) const;

 private:
  EncryptedFile(UniqueFd fd, const KeyRing& keys, Options options)
      : fd_(std::move(fd)), keys_(&keys), options_(options) {}

  std::uint64_t blocks() const noexcept { return block_count(size_); }
  bool is_last(std::uint64_t block) const noexcept { return block + 1 == blocks(); }

  Result<void> load_header(std::span<const std::uint8_t, kPage> page0);
  Result<void> cut_lower(std::uint64_t size) const;
  Result<void> settle(std::uint64_t lower_bytes);
  Result<void> settle_quietly(std::uint64_t lower_bytes);
  Result<void> keep_told_length(std::uint64_t last, std::size_t told);
  Result<std::uint64_t> last_nonzero_page(std::uint64_t pages) const;
  bool block_is_hole(std::uint64_t block) const;

  Result<std::size_t> read_page(std::uint64_t block, std::span<std::uint8_t> page) const;
  Result<std::size_t> load_block(std::uint64_t block, std::uint8_t* plain) const;
  Result<std::size_t> load_for_update(std::uint64_t block, std::uint8_t* plain);
  Result<void> store_block(std::uint64_t block, std::span<const std::uint8_t> plain);
  Result<void> change_block(std::uint64_t block, const std::function<std::size_t(std::uint8_t*, std::size_t)>& change);
  Result<void> clear_range(std::uint64_t off, std::uint64_t len, int lower_mode);
  void begin_key();
  Result<void> write_empty_page0();
  void forget_key() noexcept;
  void mend_torn_page(std::uint64_t block, std::span<const std::uint8_t> wanted, std::size_t written) noexcept;
  void keep_tail(std::uint64_t block, std::span<const std::uint8_t> plain);
  Result<void> grow(std::uint64_t size);
  Result<void> shrink(std::uint64_t size);

  UniqueFd fd_;
  const KeyRing* keys_;
  Options options_;
  std::uint64_t size_ = 0;
  std::optional<std::uint64_t> hint_differed_from_;
  Suite suite_ = Suite::aes_256_gcm;
  std::optional<FileKey> key_;  // none while the file is empty
  std::array<std::uint8_t, kHeaderSize> header_{};
  // The block written last, decrypted, so that a sequential writer never reads. Coherent with the lower file.
  PlainPage tail_;
  std::uint64_t tail_block_ = kNoBlock;
  std::size_t tail_length_ = 0;
  static constexpr std::uint64_t kNoBlock = ~std::uint64_t{0};
};

}  // namespace ecfs
