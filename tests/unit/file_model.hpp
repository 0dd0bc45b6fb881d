// SPDX-License-Identifier: GPL-3.0-or-later
// A byte vector that behaves as an EncryptedFile should, and a reader of lower files that shares with it only format and crypto.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "ecfs/encrypted_file.hpp"
#include "support.hpp"

namespace ecfs::test {

enum class Action { write, truncate, allocate, allocate_keep, punch, zero, zero_keep };
inline constexpr const char* kActionNames[] = {"write", "truncate", "allocate", "allocate keep", "punch", "zero", "zero keep"};

struct Step {
  Action action = Action::write;
  std::uint64_t off = 0;  // truncate: the size
  std::uint64_t len = 0;
  std::uint8_t fill = 0;  // write: its bytes count up from here

  std::string text() const {
    return std::string(kActionNames[static_cast<int>(action)]) + " off=" + std::to_string(off) + " len=" + std::to_string(len);
  }
};

inline Result<void> apply(EncryptedFile& file, const Step& s) {
  switch (s.action) {
    case Action::write: return file.write(s.off, counting(static_cast<std::size_t>(s.len), s.fill));
    case Action::truncate: return file.truncate(s.off);
    case Action::allocate: return file.allocate(s.off, s.len, false);
    case Action::allocate_keep: return file.allocate(s.off, s.len, true);
    case Action::punch: return file.punch(s.off, s.len);
    case Action::zero: return file.zero_range(s.off, s.len, false);
    case Action::zero_keep: return file.zero_range(s.off, s.len, true);
  }
  return Errc::crypto_failure;
}

inline void apply(Bytes& model, const Step& s) {
  const auto end = static_cast<std::size_t>(s.off + s.len);
  switch (s.action) {
    case Action::write: {
      if (s.len == 0) return;
      if (end > model.size()) model.resize(end);
      const Bytes data = counting(static_cast<std::size_t>(s.len), s.fill);
      std::ranges::copy(data, model.begin() + static_cast<std::ptrdiff_t>(s.off));
      return;
    }
    case Action::truncate: model.resize(static_cast<std::size_t>(s.off)); return;
    case Action::allocate:
      if (end > model.size()) model.resize(end);
      return;
    case Action::allocate_keep: return;
    case Action::zero:
      if (end > model.size()) model.resize(end);
      [[fallthrough]];
    case Action::punch:
    case Action::zero_keep:
      for (std::size_t i = static_cast<std::size_t>(s.off); i < std::min(end, model.size()); ++i) model[i] = 0;
      return;
  }
}

// Offsets crowd around the borders of blocks, where mistakes live.
class StepSource {
 public:
  StepSource(std::uint64_t seed, std::uint64_t max_size) : random_(seed), max_(max_size) {}

  std::uint64_t below(std::uint64_t n) { return n == 0 ? 0 : random_() % n; }

  std::uint64_t offset() {
    switch (below(4)) {
      case 0: return below(max_);
      case 1: return below(600);
      default: {
        const std::uint64_t border = block_start(below(block_of(max_) + 1));
        const std::uint64_t shifted = border + below(7);
        return std::min(shifted >= 3 ? shifted - 3 : shifted, max_ - 1);
      }
    }
  }

  Step next(std::uint64_t size) {
    Step s;
    const std::uint64_t kind = below(100);
    s.off = offset();
    const std::uint64_t far = offset();
    s.len = below(3) == 0 ? 1 + below(200) : far > s.off ? far - s.off : 1 + below(9000);
    s.len = std::max<std::uint64_t>(std::min(s.len, max_ - s.off), 1);
    s.fill = static_cast<std::uint8_t>(below(256));
    if (kind < 45) {
      s.action = Action::write;
      if (below(3) == 0 && size < max_) {  // an append
        s.off = size;
        s.len = std::max<std::uint64_t>(std::min<std::uint64_t>(1 + below(5000), max_ - size), 1);
      }
    } else if (kind < 65) {
      s.action = Action::truncate;
      const std::uint64_t how = below(10);
      if (how == 0) s.off = 0;
      if (how == 1) s.off = size;
      if (how == 2) s.off = size > 0 ? size - 1 : 0;
      s.len = 0;
    } else if (kind < 82) {
      s.action = Action::punch;
    } else if (kind < 87) {
      s.action = Action::allocate;
    } else if (kind < 91) {
      s.action = Action::allocate_keep;
    } else if (kind < 96) {
      s.action = Action::zero;
    } else {
      s.action = Action::zero_keep;
    }
    return s;
  }

 private:
  std::mt19937_64 random_;
  std::uint64_t max_;
};

inline Bytes raw_bytes(int fd) {
  struct stat st {};
  REQUIRE(::fstat(fd, &st) == 0);
  Bytes out(static_cast<std::size_t>(st.st_size));
  REQUIRE(::pread(fd, out.data(), out.size(), 0) == static_cast<ssize_t>(out.size()));
  return out;
}

struct LowerRead {
  std::string problem;  // empty: a file exactly as docs/FORMAT.md says
  Bytes plain;
};

// Reads a lower file by docs/FORMAT.md alone. Strict: the hint must be right and the last block real.
inline LowerRead read_lower(const Bytes& raw, const KeyRing& keys) {
  if (raw.empty()) return {};
  const LowerSize split = split_lower_size(raw.size());
  if (split.pages == 0 || !split.hint) return {"no hint in lower size " + std::to_string(raw.size()), {}};
  for (std::size_t i = static_cast<std::size_t>(split.pages) * kPage; i < raw.size(); ++i)
    if (raw[i] != 0) return {"the tail behind the last page is not empty", {}};
  const auto header = FileHeader::decode(std::span(raw).first<kHeaderSize>());
  if (!header) return {"header: " + header.error().message(), {}};
  const EpochKeys* epoch = keys.find(header->epoch);
  if (!epoch) return {"unknown epoch", {}};
  const auto key = unwrap_file_key(*epoch, *header);
  if (!key) return {"file key: " + key.error().message(), {}};
  LowerRead out;
  BlockOpener opener(header->suite, *key);
  for (std::uint64_t b = 0; b < split.pages; ++b) {
    const bool last = b + 1 == split.pages;
    const std::size_t skip = b == 0 ? kHeaderSize : 0;
    const auto part = std::span(raw).subspan(static_cast<std::size_t>(b) * kPage + skip, kPage - skip);
    Bytes plain(payload(b));
    std::size_t length = 0;
    if (!std::ranges::all_of(part, [](std::uint8_t c) { return c == 0; })) {
      const auto n = opener.open(b, part, plain.data());
      if (!n) return {"block " + std::to_string(b) + ": " + n.error().message(), {}};
      length = *n;
      std::fill(plain.begin() + static_cast<std::ptrdiff_t>(length), plain.end(), std::uint8_t{0});
    }
    if (last && length != *split.hint) return {"hint " + std::to_string(*split.hint) + ", last block " + std::to_string(length), {}};
    if (last) plain.resize(length);
    out.plain.insert(out.plain.end(), plain.begin(), plain.end());
  }
  return out;
}

inline Result<EncryptedFile> open_again(int fd, const KeyRing& keys, EncryptedFile::Options options = {}) {
  return EncryptedFile::open(UniqueFd(::fcntl(fd, F_DUPFD_CLOEXEC, 0)), keys, options);
}

inline Bytes read_all(const EncryptedFile& file) {
  Bytes out(static_cast<std::size_t>(file.size()));
  const auto n = file.read(0, out);
  REQUIRE_MESSAGE(n, "reading everything: ", n.error().message());
  REQUIRE(*n == out.size());
  return out;
}

// Where two byte vectors first differ, or an empty string.
inline std::string difference(const Bytes& got, const Bytes& want) {
  const auto [a, b] = std::ranges::mismatch(got, want);
  if (a == got.end() && b == want.end()) return {};
  return "sizes " + std::to_string(got.size()) + " and " + std::to_string(want.size()) + ", first difference at " +
         std::to_string(a - got.begin());
}

}  // namespace ecfs::test
