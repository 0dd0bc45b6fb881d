// SPDX-License-Identifier: GPL-3.0-or-later
#include "check_salvage.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <tuple>

#include "ecfs/check_file.hpp"
#include "ecfs/lower.hpp"
#include "paths.hpp"

namespace ecfs {
namespace {

using check::Range;

std::pair<std::string, std::string> split(const std::string& path) {
  const auto slash = path.find('/');
  return slash == path.npos ? std::pair(path, std::string()) : std::pair(path.substr(0, slash), path.substr(slash + 1));
}

// The last directory of `path` below `top`, made on the way where that is wanted, and the name in it. No link is followed.
struct Spot {
  UniqueFd dir;
  std::string name;
};
Result<Spot> walk_to(int top, const std::string& path, bool make) {
  auto dir = lower::reopen(top, O_RDONLY | O_DIRECTORY);
  if (!dir) return dir.error();
  auto [step, rest] = split(path);
  while (!rest.empty()) {
    if (make)
      if (const auto m = lower::mkdir_at(dir->get(), step.c_str(), 0700); !m && !is_errno(m.error(), EEXIST)) return m.error();
    auto next = lower::open_at(dir->get(), step.c_str(), O_RDONLY | O_DIRECTORY | O_NONBLOCK);
    if (!next) return next.error();
    dir = std::move(next);
    std::tie(step, rest) = split(std::string(rest));
  }
  return Spot{std::move(*dir), step};
}

Result<UniqueFd> make_file(const Spot& at, const std::string& name) {
  return lower::open_at(at.dir.get(), name.c_str(), O_WRONLY | O_CREAT | O_EXCL, 0600);
}

// Copies the good blocks; the ranges that are not good.
Result<std::vector<Range>> copy_good(int from, int to, const check::Content& content, std::uint64_t& bytes) {
  std::vector<Range> holes;
  PageBuffer buffer;
  std::uint8_t* const plain = buffer.reserve(kPage).data();
  for (std::uint64_t b = 0; b < content.blocks; ++b) {
    const std::uint64_t at = block_start(b);
    if (at >= content.size) break;
    const auto n = static_cast<std::size_t>(std::min<std::uint64_t>(payload(b), content.size - at));
    if (!check::read_block(from, content, b, plain)) {
      add_range(holes, {at, n});
      continue;
    }
    bytes += n;
    // Zeros are left out: the file is as sparse as it was, or more.
    if (std::all_of(plain, plain + n, [](std::uint8_t byte) { return byte == 0; })) continue;
    if (const auto w = lower::pwrite(to, std::span<const std::uint8_t>(plain, n), at); w.error) return w.error;
  }
  // Behind the blocks that are there, where the size says that there were more.
  const std::uint64_t end = content.blocks == 0 ? 0 : std::min(content.size, block_start(content.blocks - 1) + payload(content.blocks - 1));
  add_range(holes, {end, content.size - end});
  if (const auto t = lower::ftruncate(to, content.size); !t) return t.error();
  return holes;
}

Result<void> salvage_one(int out, int root, const KeyRing& keys, const check::Finding& f, Salvaged& done) {
  const auto from = walk_to(root, f.lower, false);
  if (!from) return from.error();
  const auto fd = lower::open_at(from->dir.get(), from->name.c_str(), O_RDONLY | O_NONBLOCK);
  if (!fd) return fd.error();
  const auto st = lower::stat_fd(fd->get());
  if (!st) return st.error();
  const auto state = check::inspect(fd->get(), static_cast<std::uint64_t>(st->st_size), keys, false);
  if (!state) return state.error();
  if (!state->content) return Errc::damaged_header;
  const auto spot = walk_to(out, f.path, true);
  if (!spot) return spot.error();
  const auto to = make_file(*spot, spot->name);
  if (!to) return to.error();
  const auto holes = copy_good(fd->get(), to->get(), *state->content, done.bytes);
  if (!holes) return holes.error();
  std::string map;
  for (const Range& r : *holes) map += std::to_string(r.offset) + " " + std::to_string(r.length) + "\n";
  const auto beside = make_file(*spot, spot->name + ".holes");
  if (!beside) return beside.error();
  if (const auto w = lower::pwrite(beside->get(), as_bytes(map), 0); w.error) return w.error;
  ++done.files;
  return {};
}

}  // namespace

Outcome<void> prepare_salvage(const std::string& dir, const std::string& lower_path) {
  // Where it is, or will be.
  const std::string place = real_path(dir).value_or(real_parent(dir).value_or(absolute_path(dir)));
  std::string rest;
  if (below(place, lower_path, rest))
    return Failure{Exit::usage, shell_word(dir), "it is in the lower directory", "what is salvaged is not encrypted: choose a place outside"};
  if (::mkdir(dir.c_str(), 0700) < 0 && errno != EEXIST) return failure_of(last_errno(), shell_word(dir), Exit::not_checked);
  const auto fd = lower::open_path(dir, O_RDONLY | O_DIRECTORY);
  if (!fd) return failure_of(fd.error(), shell_word(dir), Exit::not_checked);
  bool empty = true;
  const auto scanned = lower::read_dir(fd->get(), 0, [&](const lower::Dirent& d) {
    empty = d.name == "." || d.name == "..";
    return empty;
  });
  if (!scanned) return failure_of(scanned.error(), shell_word(dir), Exit::not_checked);
  if (!empty) return Failure{Exit::usage, shell_word(dir), "it is not empty", "give another directory to --salvage"};
  return {};
}

Outcome<Salvaged> salvage(const std::string& dir, int root, const KeyRing& keys, const std::vector<check::Finding>& findings) {
  const auto out = lower::open_path(dir, O_RDONLY | O_DIRECTORY);
  if (!out) return failure_of(out.error(), shell_word(dir), Exit::not_checked);
  Salvaged done;
  std::string last;
  for (const auto& f : findings) {
    if (f.kind != check::Kind::block || f.lower == last) continue;
    last = f.lower;  // they are in order: one file's come together
    if (const auto r = salvage_one(out->get(), root, keys, f, done); !r) {
      if (is_errno(r.error(), ENOSPC) || is_errno(r.error(), EDQUOT)) return failure_of(r.error(), shell_word(dir), Exit::not_checked);
      print_warning("not salvaged: " + shell_word(f.path) + ": " + r.error().message());
    }
  }
  return done;
}

}  // namespace ecfs
