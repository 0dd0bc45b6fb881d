// SPDX-License-Identifier: GPL-3.0-or-later
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "ecfs/check_file.hpp"
#include "ecfs/lower.hpp"

namespace ecfs::check {
namespace {

bool all_zero(std::span<const std::uint8_t> bytes) noexcept {
  return bytes.empty() || (bytes[0] == 0 && std::memcmp(bytes.data(), bytes.data() + 1, bytes.size() - 1) == 0);
}

// The part of a lower page from the block header on.
std::span<const std::uint8_t> block_part(std::uint64_t block, std::span<const std::uint8_t> page) noexcept {
  return block == 0 ? page.subspan(kHeaderSize) : page;
}

// A thread's pages: plaintext never reaches a core dump.
struct Pages {
  PageBuffer lower, plain;
};
Pages& pages() {
  thread_local Pages p;
  return p;
}

// A whole page, or an errno; ENODATA where the file ends inside it.
Result<std::span<const std::uint8_t>> read_page(int fd, std::uint64_t page) {
  auto buffer = pages().lower.reserve(kPage).first(kPage);
  const auto got = lower::pread(fd, buffer, page_off(page));
  if (!got) return got.error();
  if (*got < kPage) return errno_code(ENODATA);
  return std::span<const std::uint8_t>(buffer);
}

// Number of pages up to the last one that is not a hole.
Result<std::uint64_t> used_pages(int fd, std::uint64_t count) {
  while (count > 0) {
    const auto page = read_page(fd, count - 1);
    if (!page) return page.error();
    if (!all_zero(block_part(count - 1, *page))) return count;
    --count;
    if (count == 0 || count % 16 != 0) continue;
    // A long hole is passed over by halving, since SEEK_DATA looks only forward.
    std::uint64_t low = 0, high = count;
    while (low < high) {
      const std::uint64_t middle = low + (high - low) / 2;
      const auto data = lower::seek(fd, page_off(middle), SEEK_DATA);
      if (!data && !is_errno(data.error(), ENXIO)) return data.error();
      if (data && *data < page_off(count))
        low = middle + 1;
      else
        high = middle;
    }
    count = low;
  }
  return count;
}

// Does it resemble a header so little that it is somebody's file rather than a damaged one of ours?
bool resembles_none(std::span<const std::uint8_t> page0) {
  if (all_zero(page0.first(kHeaderSize))) return false;
  std::size_t alike = 0;
  for (std::size_t i = 0; i < kMagic.size(); ++i) alike += page0[i] == kMagic[i];
  return alike < kMagic.size() / 2 && !all_zero(page0.subspan(104, 24));
}

// The tail behind the last page holds nothing: a hint is only a size.
Result<bool> tail_is_clean(int fd, std::uint64_t lower_bytes) {
  const auto r = static_cast<std::size_t>(lower_bytes % kPage);
  auto buffer = pages().lower.reserve(kPage).first(r);
  const auto got = lower::pread(fd, buffer, lower_bytes - r);
  if (!got) return got.error();
  return all_zero(buffer.first(*got));
}

FileState damaged_header(std::string detail) {
  FileState state;
  state.header = FileState::Header::damaged;
  state.detail = std::move(detail);
  return state;
}

}  // namespace

void add_range(std::vector<Range>& ranges, Range range) {
  if (range.length == 0) return;
  if (!ranges.empty() && ranges.back().offset + ranges.back().length == range.offset)
    ranges.back().length += range.length;
  else
    ranges.push_back(range);
}

Result<std::size_t> read_block(int fd, const Content& content, std::uint64_t block, std::uint8_t* plain) {
  const auto page = read_page(fd, block);
  if (!page) return is_errno(page.error(), ENODATA) ? Result<std::size_t>(Errc::damaged_block) : page.error();
  const auto part = block_part(block, *page);
  std::size_t length = 0;
  if (!all_zero(part)) {
    const auto opened = BlockOpener(content.suite, content.key).open(block, part, plain);
    if (!opened) return opened;
    length = *opened;
  }
  std::memset(plain + length, 0, payload(block) - length);
  return length;
}

Result<FileState> inspect(int fd, std::uint64_t lower_bytes, const KeyRing& keys, bool in_cut) {
  FileState state;
  if (lower_bytes == 0) return state;
  const LowerSize says = split_lower_size(lower_bytes);
  if (says.pages == 0) {
    std::vector<std::uint8_t> start(std::min<std::size_t>(lower_bytes, kMagic.size()));
    const auto got = lower::pread(fd, start, 0);
    if (!got) return got.error();
    state = damaged_header("the file is cut inside its header");
    // What is cut is at least the beginning of a header; zeros are the beginning of one that never came.
    start.resize(*got);
    if (!all_zero(start) && !std::equal(start.begin(), start.end(), kMagic.begin())) state.header = FileState::Header::strange;
    return state;
  }
  const auto page0 = read_page(fd, 0);
  if (!page0) return is_errno(page0.error(), ENODATA) ? Result<FileState>(damaged_header("the file is cut inside its header")) : page0.error();
  const auto never_came = [&](std::string detail) {
    state.header = FileState::Header::lost_first_write;
    state.lower_size = 0;
    state.detail = std::move(detail);
  };
  if (all_zero(*page0)) {
    if (!in_cut) return damaged_header("the header is lost: the first page is zeros");
    never_came("the first write never reached the disk; the file is empty");
    return state;
  }
  const auto header = FileHeader::decode(page0->first<kHeaderSize>());
  if (!header) {
    state = damaged_header(header.error() == Errc::unsupported_format ? "the header is of a later version of ecfs" : "the header is damaged");
    if (header.error() == Errc::unsupported_format) state.header = FileState::Header::later;
    if (resembles_none(*page0)) state.header = FileState::Header::strange;
    return state;
  }
  const EpochKeys* epoch = keys.find(header->epoch);
  if (!epoch) return damaged_header("the header names key epoch " + std::to_string(header->epoch) + ", which the volume does not have");
  auto key = unwrap_file_key(*epoch, *header);
  if (!key) return damaged_header("the header does not authenticate");

  const auto used = used_pages(fd, says.pages);
  if (!used) return used.error();
  state.header = FileState::Header::good;
  state.content = std::make_unique<Content>(Content{header->suite, std::move(*key), *used, 0});
  Content& content = *state.content;
  if (*used == 0) {
    if (in_cut || !says.hint) {
      state.content.reset();
      never_came("a header without a block; the file is empty");
      return state;
    }
    content.size = plain_size_of(says.pages, *says.hint);
    state.detail = "there is a header and no block";
    add_range(state.damaged, {0, content.size});
    return state;
  }
  const std::uint64_t last = *used - 1;
  const auto length = read_block(fd, content, last, pages().plain.reserve(kPage).data());
  if (!length && length.error().category() == std::system_category()) return length.error();
  if (length && *length > 0) {
    content.size = plain_size_of(*used, *length);
    if (lower_size(content.size) != lower_bytes) {
      state.lower_size = lower_size(content.size);
      const auto told = plain_size_by_hint(lower_bytes);
      state.detail = (told ? "the hint says " + std::to_string(*told) + " bytes" : std::string("the hint is missing")) + ", the last block " +
                     std::to_string(content.size);
    } else if (const auto clean = tail_is_clean(fd, lower_bytes); !clean) {
      return clean.error();
    } else if (!*clean) {
      state.lower_size = lower_bytes;
      state.detail = "there are bytes behind the last page";
    }
    return state;
  }
  // Damaged, it cannot say its length: the hint about this very block stands, else it counts as full.
  content.size = *used == says.pages && says.hint ? plain_size_of(says.pages, *says.hint) : plain_size_of(*used, payload(last));
  add_range(state.damaged, {block_start(last), content.size - block_start(last)});
  state.detail = "the last block does not authenticate";
  return state;
}

Result<std::uint64_t> scrub(int fd, const Content& content, std::uint64_t first, std::uint64_t count, std::vector<Range>& damaged) {
  constexpr std::uint64_t kStep = 64;  // pages a read
  const std::uint64_t end = std::min(content.blocks, first + count);
  std::uint64_t good = 0;
  const auto bad = [&](std::uint64_t block) {
    if (const std::uint64_t from = block_start(block); from < content.size)
      add_range(damaged, {from, std::min<std::uint64_t>(payload(block), content.size - from)});
  };
  auto buffer = pages().lower.reserve(kStep * kPage).first(kStep * kPage);
  std::uint8_t* plain = pages().plain.reserve(kPage).data();
  for (std::uint64_t at = first; at < end;) {
    if (at > 0) {
      // Holes are not read.
      const auto data = lower::seek(fd, page_off(at), SEEK_DATA);
      if (!data && is_errno(data.error(), ENXIO)) break;
      if (data && *data / kPage > at) {
        at = *data / kPage;
        continue;
      }
    }
    const std::uint64_t n = std::min(kStep, end - at);
    auto got = lower::pread(fd, buffer.first(n * kPage), page_off(at));
    // A disk that cannot read one sector fails the whole request: page by page, then.
    const bool single = !got;
    for (std::uint64_t b = at; b < at + n; ++b) {
      auto page = buffer.subspan((b - at) * kPage, kPage);
      if (single) {
        const auto one = lower::pread(fd, page, page_off(b));
        if (!one && !is_errno(one.error(), EIO)) return one.error();
        if (!one || *one < kPage) {
          bad(b);
          continue;
        }
      } else if (*got < (b - at + 1) * kPage) {
        bad(b);
        continue;
      }
      const auto part = block_part(b, page);
      if (all_zero(part)) continue;
      if (BlockOpener(content.suite, content.key).open(b, part, plain))
        ++good;
      else
        bad(b);
    }
    at += n;
  }
  return good;
}

}  // namespace ecfs::check
