// SPDX-License-Identifier: GPL-3.0-or-later
#include "ecfs/encrypted_file.hpp"

#include <fcntl.h>
#include <linux/falloc.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "ecfs/lower.hpp"

namespace ecfs {
namespace {

// A thread's memory for lower pages and single plaintext blocks in flight. `last` is apart from `first` because the first and
// the last block of one write are both needed at once.
struct Scratch {
  PageBuffer lower;
  PageBuffer page;
  PageBuffer first;
  PageBuffer last;
  std::vector<std::uint8_t> nonces;
};
Scratch& scratch() {
  thread_local Scratch s;
  return s;
}

bool all_zero(std::span<const std::uint8_t> bytes) noexcept {
  return bytes.empty() || (bytes[0] == 0 && std::memcmp(bytes.data(), bytes.data() + 1, bytes.size() - 1) == 0);
}

// The part of a lower page from the block header on.
template <class Byte>
std::span<Byte> block_part(std::uint64_t block, std::span<Byte> page) noexcept {
  return block == 0 ? page.subspan(kHeaderSize) : page;
}

}  // namespace

Result<EncryptedFile> EncryptedFile::open(UniqueFd fd, const KeyRing& keys, Options options) {
  const auto st = lower::stat_fd(fd.get());
  if (!st) return st.error();
  return open(std::move(fd), keys, options, static_cast<std::uint64_t>(st->st_size));
}

Result<EncryptedFile> EncryptedFile::open(UniqueFd fd, const KeyRing& keys, Options options, std::uint64_t lower_bytes) {
  EncryptedFile file(std::move(fd), keys, options);
  if (lower_bytes == 0) return file;
  if (const auto settled = file.settle_quietly(lower_bytes); !settled) return settled.error();
  return file;
}

Result<void> EncryptedFile::refresh(std::uint64_t lower_bytes, bool mend, bool lost_header_is_empty, bool inode_may_lag) {
  options_.writable = mend;
  options_.inode_may_lag = inode_may_lag;
  options_.lost_header_is_empty = lost_header_is_empty;
  hint_differed_from_.reset();
  if (lower_bytes > 0) return settle_quietly(lower_bytes);
  size_ = 0;
  forget_key();
  return {};
}

void EncryptedFile::keep_atime(bool on) noexcept {
  if (lower::set_noatime(fd(), on)) options_.noatime = on;
}

// Looking at the header and the last block is our own purpose, not the user's reading.
Result<void> EncryptedFile::settle_quietly(std::uint64_t lower_bytes) {
  const bool quiet = lower::set_noatime(fd(), true);
  auto settled = settle(lower_bytes);
  if (quiet && !options_.noatime) lower::set_noatime(fd(), false);
  return settled;
}

Result<void> EncryptedFile::load_header(std::span<const std::uint8_t, kPage> page0) {
  const auto raw = page0.first<kHeaderSize>();
  // The same file key as before, then: no two headers are alike.
  if (key_ && std::equal(raw.begin(), raw.end(), header_.begin())) return {};
  const auto header = FileHeader::decode(raw);
  if (!header) return header.error();
  const EpochKeys* epoch = keys_->find(header->epoch);
  if (!epoch) return Errc::damaged_header;
  auto key = unwrap_file_key(*epoch, *header);
  if (!key) return key.error();
  suite_ = header->suite;
  key_ = std::move(*key);
  std::copy(raw.begin(), raw.end(), header_.begin());
  return {};
}

// Sets the lower size of a file that shrinks to `size`. Cut at the page's end first: the tail behind the last page is a hint, and must not
// keep bytes of a page that was there, which a later growth would take for a block.
Result<void> EncryptedFile::cut_lower(std::uint64_t size) const {
  if (size > 0)
    if (const auto r = lower::ftruncate(fd(), page_off(block_count(size))); !r) return r;
  return lower::ftruncate(fd(), lower_size(size));
}

// Learns header and size from a non-empty lower file: the last block that exists decides, and a hint that differs is set right.
Result<void> EncryptedFile::settle(std::uint64_t lower_bytes) {
  tail_block_ = kNoBlock;
  const LowerSize says = split_lower_size(lower_bytes);
  if (says.pages == 0) return Errc::damaged_header;  // cut inside its first page
  auto page0 = scratch().page.reserve(kPage);
  if (const auto got = read_page(0, page0); !got) return got.error();
  const auto become_empty = [&]() -> Result<void> {
    forget_key();
    size_ = 0;
    if (!options_.writable) return {};
    return lower::ftruncate(fd(), 0);
  };
  if (all_zero(page0)) return options_.lost_header_is_empty ? become_empty() : Result<void>(Errc::damaged_header);
  if (const auto loaded = load_header(page0.first<kPage>()); !loaded) return loaded;

  const auto pages = last_nonzero_page(says.pages);
  if (!pages) return pages.error();
  if (*pages == 0) {
    // A header with holes alone behind it: a first write, or a growth, that was cut; or a truncation that failed and left no hint. Else there was
    // a block, and emptying the file would hide that it is lost.
    if (options_.lost_header_is_empty || !says.hint) return become_empty();
    return Errc::damaged_block;
  }
  const std::uint64_t last = *pages - 1;
  size_ = plain_size_of(*pages, payload(last));
  const auto length = load_block(last, tail_.get());
  if (!length && length.error().category() == std::system_category()) return length.error();  // not damage: ask again later
  if (length && *length > 0) {
    tail_block_ = last;
    tail_length_ = *length;
    size_ = plain_size_of(*pages, *length);
    if (options_.inode_may_lag && *pages == says.pages && says.hint && *says.hint != *length) return keep_told_length(last, *says.hint);
  } else if (*pages == says.pages && says.hint) {
    // Damaged: its length can't be asked. The hint stands, and reads of the block fail.
    size_ = plain_size_of(*pages, *says.hint);
  }
  if (says.hint && lower_size(size_) != lower_bytes) hint_differed_from_ = std::min(size_, plain_size_of(says.pages, *says.hint));
  if (options_.writable && length && lower_size(size_) != lower_bytes) return cut_lower(size_);
  return {};
}

// The last block, which is in tail_, becomes as long as the lower size tells: what an append that was cut added goes, and what a truncation that
// was cut took away are zeros.
Result<void> EncryptedFile::keep_told_length(std::uint64_t last, std::size_t told) {
  size_ = plain_size_of(last + 1, told);
  tail_block_ = kNoBlock;
  if (!options_.writable) return {};  // reads keep to size_
  std::uint8_t* plain = scratch().first.reserve(kPage).data();
  std::memcpy(plain, tail_.get(), payload(last));  // zeros behind its length
  return store_block(last, {plain, told});
}

// Number of pages up to the last one that is not a hole. Zero pages at the end are a growth whose data never reached the disk.
Result<std::uint64_t> EncryptedFile::last_nonzero_page(std::uint64_t pages) const {
  constexpr std::uint64_t kStep = 64;  // pages looked at before asking the lower filesystem where its holes are
  std::uint64_t stepped = 0;
  auto page = scratch().page.reserve(kPage);
  while (pages > 0) {
    if (const auto got = read_page(pages - 1, page); !got) return got.error();
    if (!all_zero(block_part<std::uint8_t>(pages - 1, page))) return pages;
    --pages;
    if (++stepped % kStep != 0) continue;
    // The largest page below `pages` at or after which there is data: SEEK_DATA only looks forward, so halve.
    std::uint64_t low = 0, high = pages;
    while (low < high) {
      const std::uint64_t middle = low + (high - low) / 2;
      const auto data = lower::seek(fd(), page_off(middle), SEEK_DATA);
      if (!data && !is_errno(data.error(), ENXIO)) return data.error();
      if (data && *data < page_off(pages))
        low = middle + 1;
      else
        high = middle;
    }
    pages = low;
  }
  return pages;
}

Result<std::size_t> EncryptedFile::read_page(std::uint64_t block, std::span<std::uint8_t> page) const {
  const auto got = lower::pread(fd(), page.first(kPage), page_off(block));
  if (!got) return got.error();
  if (*got < kPage) return block == 0 ? Errc::damaged_header : Errc::damaged_block;  // cut from below
  return *got;
}

// Decrypts a block into `plain` (room for payload(block)), zeros behind its length. The length; 0 for a hole.
Result<std::size_t> EncryptedFile::load_block(std::uint64_t block, std::uint8_t* plain) const {
  auto page = scratch().page.reserve(kPage);
  if (const auto got = read_page(block, page); !got) return got.error();
  const auto part = block_part<std::uint8_t>(block, page);
  const std::size_t room = payload(block);
  std::size_t length = 0;
  if (!all_zero(part)) {
    const auto opened = BlockOpener(suite_, *key_).open(block, part, plain);
    if (!opened) return opened.error();
    length = *opened;
  }
  std::memset(plain + length, 0, room - length);
  return length;
}

// The same for a block that is about to change: from the kept tail, or from below without moving the atime; a block past the
// end is empty.
Result<std::size_t> EncryptedFile::load_for_update(std::uint64_t block, std::uint8_t* plain) {
  const std::size_t room = payload(block);
  if (block >= blocks()) {
    std::memset(plain, 0, room);
    return std::size_t{0};
  }
  if (block == tail_block_) {
    std::memcpy(plain, tail_.get(), tail_length_);
    std::memset(plain + tail_length_, 0, room - tail_length_);
    return tail_length_;
  }
  const bool quiet = !options_.noatime && lower::set_noatime(fd(), true);
  auto length = load_block(block, plain);
  if (quiet) lower::set_noatime(fd(), false);
  return length;
}

Result<std::size_t> EncryptedFile::read(std::uint64_t off, std::span<std::uint8_t> out) const {
  if (off >= size_ || out.empty()) return std::size_t{0};
  const auto want = static_cast<std::size_t>(std::min<std::uint64_t>(out.size(), size_ - off));
  const std::uint64_t first = block_of(off), last = block_of(off + want - 1);
  const std::size_t bytes = static_cast<std::size_t>(last - first + 1) * kPage;
  auto pages = scratch().lower.reserve(bytes);
  const auto got = lower::pread(fd(), pages, page_off(first));
  if (!got) return got.error();
  if (*got < bytes) return Errc::damaged_block;  // cut from below: zeros would look good, and be wrong

  BlockOpener opener(suite_, *key_);
  std::size_t done = 0;
  for (std::uint64_t b = first; b <= last; ++b) {
    const auto part = block_part<std::uint8_t>(b, pages.subspan(static_cast<std::size_t>(b - first) * kPage, kPage));
    const std::size_t from = b == first ? offset_in_block(off) : 0;
    const std::size_t n = std::min(payload(b) - from, want - done);
    std::uint8_t* to = out.data() + done;
    if (all_zero(part)) {
      std::memset(to, 0, n);
    } else if (from == 0 && want - done >= payload(b)) {
      const auto length = opener.open(b, part, to);
      if (!length) return length.error();
      std::memset(to + *length, 0, n - *length);
    } else {
      std::uint8_t* plain = scratch().first.reserve(kPage).data();
      const auto length = opener.open(b, part, plain);
      if (!length) return length.error();
      std::memset(plain + *length, 0, payload(b) - *length);
      std::memcpy(to, plain + from, n);
    }
    done += n;
  }
  return done;
}

// A file that goes from empty to non-empty gets a key of its own, so a rewritten file never shares one with what it held before.
void EncryptedFile::begin_key() {
  FileHeader header;
  key_ = new_file_key(keys_->newest(), options_.suite, header);
  suite_ = options_.suite;
  header.encode(header_);
}

void EncryptedFile::forget_key() noexcept {
  key_.reset();
  tail_block_ = kNoBlock;
  tail_.reset();
}

void EncryptedFile::keep_tail(std::uint64_t block, std::span<const std::uint8_t> plain) {
  std::memcpy(tail_.get(), plain.data(), plain.size());
  tail_block_ = block;
  tail_length_ = plain.size();
}

// Header and a hole for block 0: the first page of a file that begins behind it.
Result<void> EncryptedFile::write_empty_page0() {
  auto page = scratch().page.reserve(kPage);
  std::memset(page.data(), 0, kPage);
  std::memcpy(page.data(), header_.data(), kHeaderSize);
  const auto w = lower::pwrite(fd(), page, 0);
  return w.error;
}

// Seals one block and writes its page.
Result<void> EncryptedFile::store_block(std::uint64_t block, std::span<const std::uint8_t> plain) {
  auto page = scratch().page.reserve(kPage);
  std::array<std::uint8_t, kNonceSize> nonce;
  random_bytes(nonce);
  if (block == 0) std::memcpy(page.data(), header_.data(), kHeaderSize);
  const auto sealed = BlockSealer(suite_, *key_).seal(block, plain, nonce, block_part<std::uint8_t>(block, page));
  if (!sealed) return sealed;
  const auto w = lower::pwrite(fd(), page, page_off(block));
  if (w.error) {
    if (tail_block_ == block) tail_block_ = kNoBlock;
    mend_torn_page(block, page, w.bytes);
    return w.error;
  }
  keep_tail(block, plain);
  return {};
}

// A page write that stopped inside the page, which lower filesystems do when a page of several of their blocks fills a hole and
// they run out of space: what was a hole becomes one again. (Overwriting what has space needs none.)
void EncryptedFile::mend_torn_page(std::uint64_t block, std::span<const std::uint8_t> wanted,
                                   std::size_t written) noexcept {
  if (written % kPage == 0 || block >= blocks()) return;
  std::array<std::uint8_t, kPage> now;
  const auto got = lower::pread(fd(), now, page_off(block));
  if (!got || *got < kPage) return;
  const std::size_t at = written % kPage;
  if (!all_zero(std::span(now).subspan(at)) || all_zero(wanted.subspan(at))) return;
  const std::uint64_t keep = block == 0 ? kHeaderSize : 0;
  const std::vector<std::uint8_t> zeros(kPage - keep);
  // Punching gives the space back; a filesystem that can't takes zeros, for which the page has room up to the tear.
  if (!lower::fallocate(fd(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, page_off(block) + keep, kPage - keep))
    (void)lower::pwrite(fd(), std::span(zeros).first(at > keep ? at - keep : 0), page_off(block) + keep);
}

Result<void> EncryptedFile::write(std::uint64_t off, std::span<const std::uint8_t> in) {
  if (in.empty()) return {};
  if (off > kMaxPlainSize || in.size() > kMaxPlainSize - off) return errno_code(EFBIG);
  const std::uint64_t end = off + in.size();
  const std::uint64_t first = block_of(off), last = block_of(end - 1);
  const std::uint64_t had = blocks();
  const std::size_t count = static_cast<std::size_t>(last - first + 1);
  auto& mem = scratch();
  auto pages = mem.lower.reserve(count * kPage);
  if (had == 0) begin_key();
  const auto undo_key = [&] {
    if (had == 0) forget_key();
  };

  // Seal everything before the file is touched: a damaged block at the edge must leave it as it was.
  mem.nonces.resize(count * kNonceSize);
  random_bytes(mem.nonces);
  std::span<const std::uint8_t> plain;
  std::size_t used = 0;
  {
    BlockSealer sealer(suite_, *key_);
    for (std::uint64_t b = first; b <= last; ++b) {
      const std::size_t from = b == first ? offset_in_block(off) : 0;
      const std::size_t n = std::min(payload(b) - from, in.size() - used);
      const std::size_t stop = from + n;
      const std::size_t present = b >= had ? 0 : is_last(b) ? last_length(size_) : payload(b);
      if (from == 0 && stop >= present) {
        plain = in.subspan(used, n);
      } else {
        std::uint8_t* whole = (b == first ? mem.first : mem.last).reserve(kPage).data();
        const auto length = load_for_update(b, whole);
        if (!length) {
          undo_key();
          return length.error();
        }
        std::memcpy(whole + from, in.data() + used, n);
        plain = {whole, std::max(*length, stop)};
      }
      const std::size_t at = static_cast<std::size_t>(b - first);
      const auto nonce = std::span(mem.nonces).subspan(at * kNonceSize).first<kNonceSize>();
      const auto sealed = sealer.seal(b, plain, nonce, block_part<std::uint8_t>(b, pages.subspan(at * kPage, kPage)));
      if (!sealed) {
        undo_key();
        return sealed;
      }
      used += n;
    }
  }
  if (first == 0) std::memcpy(pages.data(), header_.data(), kHeaderSize);

  // Size first, then pages: free on XFS in this order, and a cut in between is told by the last block (docs/FORMAT.md).
  const std::uint64_t grown = std::max(size_, end);
  if (grown > size_)
    if (const auto r = lower::ftruncate(fd(), lower_size(grown)); !r) {
      undo_key();
      return r;
    }
  if (had == 0 && first > 0)
    if (const auto r = write_empty_page0(); !r) {
      undo_key();
      (void)lower::ftruncate(fd(), 0);
      return r;
    }
  const auto w = lower::pwrite(fd(), pages, page_off(first));
  if (!w.error) {
    size_ = grown;
    keep_tail(last, plain);
    return {};
  }

  // What was written in whole pages stays: each is a good new block. The size follows it, the rest is as it was.
  tail_block_ = kNoBlock;
  const std::uint64_t whole = w.bytes / kPage;
  mend_torn_page(first + whole, pages.subspan(static_cast<std::size_t>(whole) * kPage, kPage), w.bytes);
  if (whole > 0) size_ = std::max(size_, block_start(first + whole));
  if (size_ == 0) undo_key();
  // `size_` may now be that of a file without its first write; then it is empty again. Where even this fails, the last block
  // decides when the file is next opened.
  if (grown > size_) (void)cut_lower(size_);
  return w.error;
}

Result<void> EncryptedFile::truncate(std::uint64_t size) {
  if (size > kMaxPlainSize) return errno_code(EFBIG);
  hint_differed_from_.reset();  // whoever sets a size knows it
  if (size == 0) {
    if (const auto r = lower::ftruncate(fd(), 0); !r) return r;
    size_ = 0;
    forget_key();
    return {};
  }
  if (size == size_) return lower::ftruncate(fd(), lower_size(size));  // for its times
  return size > size_ ? grow(size) : shrink(size);
}

// The new last block is real, also where everything before it is a hole.
Result<void> EncryptedFile::grow(std::uint64_t size) {
  const std::uint64_t had = blocks(), last = block_count(size) - 1;
  std::uint8_t* plain = scratch().first.reserve(kPage).data();
  if (const auto length = load_for_update(last, plain); !length) return length.error();
  if (had == 0) begin_key();
  auto result = lower::ftruncate(fd(), lower_size(size));
  if (result && had == 0 && last > 0) result = write_empty_page0();
  if (result) result = store_block(last, {plain, last_length(size)});
  if (result) {
    size_ = size;
    return {};
  }
  if (had == 0) forget_key();
  tail_block_ = kNoBlock;
  (void)cut_lower(size_);  // the first error is the one to tell
  return result;
}

// Down to the block's end, the block with its new length, then the hint.
// A new last block that is a hole, or shorter than it is to be (the file grew behind it), must be on the disk first: were it lost by a cut and the
// cutting off not, the file would end before what it had. Without room for it, space is made first.
Result<void> EncryptedFile::shrink(std::uint64_t size) {
  const std::uint64_t last = block_count(size) - 1;
  const std::size_t length = last_length(size);
  std::uint8_t* plain = scratch().first.reserve(kPage).data();
  const auto present = load_for_update(last, plain);
  if (!present) return present.error();
  bool stored = *present == length;
  if (*present < length) {
    const auto r = store_block(last, {plain, length});
    if (!r && !is_errno(r.error(), ENOSPC) && !is_errno(r.error(), EDQUOT)) return r;
    stored = r.has_value();
    // Where nothing can be synced (EINVAL), nothing is lost by not waiting for it.
    if (const auto s = stored ? lower::fsync(fd(), true) : Result<void>(); !s && !is_errno(s.error(), EINVAL)) return s;
  }
  if (const auto r = lower::ftruncate(fd(), page_off(last + 1)); !r) return r;
  if (!stored) {
    if (const auto r = store_block(last, {plain, length}); !r) {
      // Everything behind the block is gone; what is left says what the size is.
      (void)settle(page_off(last + 1));
      return r;
    }
  }
  if (tail_block_ > last) tail_block_ = kNoBlock;
  size_ = size;
  return lower::ftruncate(fd(), lower_size(size));
}

Result<void> EncryptedFile::allocate(std::uint64_t off, std::uint64_t len, bool keep_size) {
  if (off > kMaxPlainSize || len > kMaxPlainSize - off) return errno_code(EFBIG);
  const std::uint64_t end = off + len;
  const std::uint64_t first = block_of(off), last = block_of(end - 1);
  // Pages that are only allocated read as zeros: holes.
  if (const auto r = lower::fallocate(fd(), FALLOC_FL_KEEP_SIZE, page_off(first), page_off(last + 1) - page_off(first)); !r)
    return r;
  if (keep_size || end <= size_) return {};
  return grow(end);
}

// Loads a block, lets `change` (plaintext, length) alter it and tell its new length, and stores it; 0 leaves it.
Result<void> EncryptedFile::change_block(std::uint64_t block,
                                         const std::function<std::size_t(std::uint8_t*, std::size_t)>& change) {
  std::uint8_t* plain = scratch().first.reserve(kPage).data();
  const auto length = load_for_update(block, plain);
  if (!length) return length.error();
  const std::size_t now = change(plain, *length);
  return now == 0 ? Result<void>() : store_block(block, {plain, now});
}

// Zeros in [off, off+len) below the end: whole blocks by `lower_mode` from below, blocks at the edges and the last one rewritten.
Result<void> EncryptedFile::clear_range(std::uint64_t off, std::uint64_t len, int lower_mode) {
  if (off >= size_) return {};
  const std::uint64_t end = std::min(size_ - off, len) + off;
  const std::uint64_t first = block_of(off), last = block_of(end - 1);
  // Blocks [whole_from, whole_to) become holes; block 0 shares its page with the header and is done apart.
  std::uint64_t whole_from = offset_in_block(off) == 0 ? first : first + 1;
  std::uint64_t whole_to = end == block_start(last) + payload(last) ? last + 1 : last;
  whole_from = std::max<std::uint64_t>(whole_from, 1);
  whole_to = std::min(whole_to, blocks() - 1);  // never the last block
  if (whole_from < whole_to) {
    // First, so that EOPNOTSUPP leaves the file untouched.
    const auto r = lower::fallocate(fd(), lower_mode, page_off(whole_from), page_off(whole_to) - page_off(whole_from));
    if (!r) return r;
    if (tail_block_ >= whole_from && tail_block_ < whole_to) tail_block_ = kNoBlock;
  }
  for (const std::uint64_t b : {first, last}) {
    if (b >= whole_from && b < whole_to) continue;
    const std::size_t from = b == first ? offset_in_block(off) : 0;
    const std::size_t stop = static_cast<std::size_t>(std::min<std::uint64_t>(end - block_start(b), payload(b)));
    const auto r = change_block(b, [&](std::uint8_t* plain, std::size_t length) {
      if (length == 0) return length;  // a hole already
      if (from < length) std::memset(plain + from, 0, std::min(stop, length) - from);
      return length;
    });
    if (!r) return r;
    if (first == last) break;
  }
  return {};
}

Result<void> EncryptedFile::punch(std::uint64_t off, std::uint64_t len) {
  return clear_range(off, len, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE);
}

Result<void> EncryptedFile::zero_range(std::uint64_t off, std::uint64_t len, bool keep_size) {
  if (off > kMaxPlainSize || len > kMaxPlainSize - off) return errno_code(EFBIG);
  if (const auto r = clear_range(off, len, FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE); !r) return r;
  if (off + len <= size_) return {};
  // Behind the end there is only space to reserve, and perhaps a size to set.
  return allocate(std::max(off, size_), off + len - std::max(off, size_), keep_size);
}

bool EncryptedFile::block_is_hole(std::uint64_t block) const {
  auto page = scratch().page.reserve(kPage);
  const auto got = read_page(block, page);
  return got && all_zero(block_part<std::uint8_t>(block, page));
}

Result<std::uint64_t> EncryptedFile::seek_data(std::uint64_t off) const {
  if (off >= size_) return errno_code(ENXIO);
  std::uint64_t b = block_of(off);
  if (b == 0) {
    if (!block_is_hole(0)) return off;
    b = 1;
  }
  const auto data = lower::seek(fd(), page_off(b), SEEK_DATA);
  if (!data) return data.error();
  b = *data / kPage;
  if (b >= blocks()) return errno_code(ENXIO);
  return std::max(off, block_start(b));
}

Result<std::uint64_t> EncryptedFile::seek_hole(std::uint64_t off) const {
  if (off >= size_) return errno_code(ENXIO);
  std::uint64_t b = block_of(off);
  if (b == 0) {
    if (block_is_hole(0)) return off;
    b = 1;
  }
  while (b < blocks()) {
    const auto hole = lower::seek(fd(), page_off(b), SEEK_HOLE);
    if (!hole) return hole.error();
    b = (*hole + kPage - 1) / kPage;
    if (b >= blocks()) break;
    // Lower blocks smaller than a page: only a page without any data is a hole of ours.
    const auto data = lower::seek(fd(), page_off(b), SEEK_DATA);
    if (!data && !is_errno(data.error(), ENXIO)) return data.error();
    if (!data || *data >= page_off(b + 1)) return std::max(off, block_start(b));
    ++b;
  }
  return size_;
}

Result<void> EncryptedFile::sync(bool data_only) const { return lower::fsync(fd(), data_only); }

}  // namespace ecfs
