// SPDX-License-Identifier: GPL-3.0-or-later
// One lower file as a reader who trusts nothing sees it: what its header, its size hint and its blocks say. Changes nothing.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ecfs/crypto.hpp"
#include "ecfs/error.hpp"
#include "ecfs/layout.hpp"

namespace ecfs::check {

struct Range {  // in plaintext
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
};

// What opens the blocks of a file whose header is good.
struct Content {
  Suite suite = Suite::aes_256_gcm;
  FileKey key;
  std::uint64_t blocks = 0;
  std::uint64_t size = 0;  // plaintext
};

struct FileState {
  enum class Header : std::uint8_t { good, empty, lost_first_write, damaged, later, strange };
  Header header = Header::empty;
  std::string detail;                 // where something is wrong: what
  std::unique_ptr<Content> content;   // with a good header
  std::optional<std::uint64_t> lower_size;  // the lower size that it should have, where it has another
  std::vector<Range> damaged;         // of what was looked at here: the last block
};

// Reads the header and the last block. `strange` is what does not even resemble a header. Errors are the lower filesystem's.
Result<FileState> inspect(int fd, std::uint64_t lower_bytes, const KeyRing& keys, bool in_cut);

// Authenticates blocks [first, first + count) and adds what does not to `damaged`, joined and in order. `tail`: the last block is known, and
// left out. Gives the number of blocks that were authenticated.
Result<std::uint64_t> scrub(int fd, const Content& content, std::uint64_t first, std::uint64_t count, std::vector<Range>& damaged);

// One block in plaintext, padded with zeros to its capacity. damaged_block where it does not authenticate.
Result<std::size_t> read_block(int fd, const Content& content, std::uint64_t block, std::uint8_t* plain);

void add_range(std::vector<Range>& ranges, Range range);

}  // namespace ecfs::check
