// SPDX-License-Identifier: GPL-3.0-or-later
// check::scan: one entry of a directory.
#include <fcntl.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "check/walk.hpp"
#include "ecfs/endian.hpp"
#include "ecfs/lower.hpp"

namespace ecfs::check {
namespace {

constexpr std::size_t kMaxText = 8192;  // of name files and target files
constexpr std::uint64_t kPart = 16384;  // blocks of a file that one thread scrubs at a time: 64 MiB
constexpr int kTries = 5;               // looks at a file that a daemon writes to
constexpr auto kPause = std::chrono::milliseconds(20);

// A text that this directory could have as a name, though perhaps under another key.
bool looks_sealed(std::string_view name) {
  const auto raw = from_base64url(name);
  return raw && raw->size() >= 32 && raw->size() % 16 == 0;
}

// What an earlier run remembers of a part of a file: it is the same file, not changed since.
std::uint64_t part_key(const ConfKey& key, const struct stat& st, std::uint64_t first) {
  std::uint8_t in[48] = {}, out[16];
  store_le<std::uint64_t>(in, st.st_dev);
  store_le<std::uint64_t>(in + 8, st.st_ino);
  store_le<std::uint64_t>(in + 16, static_cast<std::uint64_t>(st.st_ctim.tv_sec));
  store_le<std::uint64_t>(in + 24, static_cast<std::uint64_t>(st.st_ctim.tv_nsec));
  store_le<std::uint64_t>(in + 32, static_cast<std::uint64_t>(st.st_size));
  store_le<std::uint64_t>(in + 40, first);
  keyed_hash(key, in, out);
  return load_le<std::uint64_t>(out);
}

bool same_state(const struct stat& a, const struct stat& b) {
  return a.st_size == b.st_size && a.st_ctim.tv_sec == b.st_ctim.tv_sec && a.st_ctim.tv_nsec == b.st_ctim.tv_nsec;
}

}  // namespace

// A file whose parts are scrubbed, perhaps by several threads.
struct Walk::Scrubbing {
  DirPtr dir;
  std::string name, plain;
  struct stat st;
  UniqueFd fd;
  std::unique_ptr<Content> content;
  std::uint64_t parts = 0;
  std::mutex mutex;
  std::uint64_t left = 0;       // parts
  std::vector<Range> damaged;
  std::error_code error;
};

Walk::Named Walk::name_of(const Dir& dir, const std::string& name) const {
  if (plain_names()) {
    if (!dir.root || !name.starts_with(kReservedPrefix)) return {Named::What::named, name, {}, false};
    return {Named::What::nobodys, name, "the name is reserved, and not one of ecfs's files", false};
  }
  const auto whole = [&](const std::string& lower, std::string& detail) -> Result<std::string> {
    std::string encoded = lower;
    if (lower.starts_with(kLongPrefix)) {
      const std::string file = LowerName{lower, {}}.name_file();
      auto text = read_small(dir.fd.get(), file.c_str(), kMaxText);
      if (!text && is_errno(text.error(), ENOENT)) detail = "its name file " + file + " is missing";
      else if (!text) detail = "its name file " + file + " cannot be read: " + text.error().message();
      else if (hash_name(*text) != lower.substr(kLongPrefix.size())) detail = "its name file " + file + " is damaged";
      if (!detail.empty()) return Errc::damaged_name;
      encoded = std::move(*text);
    }
    if (dir.lost) return Errc::damaged_name;
    return name_under(keys_, dir.record, encoded);
  };
  std::string detail;
  if (auto plain = whole(name, detail)) return {Named::What::named, std::move(*plain), {}, true};
  const bool is_long = name.starts_with(kLongPrefix) && name.size() == kLongPrefix.size() + kHashLength;
  // A conflict copy is an object like any other.
  for (const auto& reading : copy_readings(name)) {
    std::string ignored;
    const auto plain = whole(reading.of, ignored);
    if (!plain) continue;
    if (auto shown = shown_copy(*plain, reading.mark); !shown.empty()) return {Named::What::named, std::move(shown), {}, true};
  }
  if (detail.empty()) detail = dir.lost ? "the directory's id is lost" : "the name does not decode";
  return {Named::What::nobodys, name, std::move(detail), is_long || (dir.lost && looks_sealed(name))};
}

bool Walk::first_time(const struct stat& st) {
  if (st.st_nlink < 2) return true;
  const std::lock_guard lock(mutex_);
  return seen_.insert({st.st_dev, st.st_ino}).second;
}

void Walk::unreadable_name(const Dir& dir, const std::string& name, const Named& named, const struct stat& st, bool ours) {
  auto f = ours ? about(dir, name, named.plain, Kind::name, Severity::damage, named.detail)
                : about(dir, name, named.plain, Kind::foreign, Severity::note, "not made by ecfs: " + named.detail);
  f.changed = st.st_ctim;
  f.repairable = ours && !dir.set_aside;
  add(std::move(f));
}

void Walk::entry(const DirPtr& dir, const std::string& name) {
  const Named named = name_of(*dir, name);
  const auto st = lower::stat_at(dir->fd.get(), name.c_str());
  if (!st) return cannot(*dir, name, named.plain, st.error());
  done(kPage);
  const bool nobodys = named.what == Named::What::nobodys;
  switch (st->st_mode & S_IFMT) {
    case S_IFDIR: {
      if (nobodys) {
        // Somebody's directory is not entered; one of ours has an id of ours.
        auto fd = plain_names() ? Result<UniqueFd>(errno_code(ENOTDIR)) : open_quietly(dir->fd.get(), name.c_str(), O_RDONLY | O_DIRECTORY | O_NONBLOCK);
        const bool ours = fd && [&] {
          const auto c = read_dir_copies(fd->get(), keys_);
          return c.file || c.copy;
        }();
        unreadable_name(*dir, name, named, *st, ours || named.ours_by_name);
        if (!ours) {
          const std::lock_guard lock(mutex_);
          incomplete_ = true;
          return;
        }
      }
      return subdirectory(dir, name, named);
    }
    case S_IFREG:
      return file(dir, name, named, *st);
    case S_IFLNK:
      return link(dir, name, named, *st);
    default: {
      if (nobodys) unreadable_name(*dir, name, named, *st, named.ours_by_name);
      const std::lock_guard lock(mutex_);
      ++report_.counts.others;
    }
  }
}

void Walk::link(const DirPtr& dir, const std::string& name, const Named& named, const struct stat& st) {
  const auto text = lower::readlink_at(dir->fd.get(), name.c_str());
  if (!text) return cannot(*dir, name, named.plain, text.error());
  std::string detail, sealed = *text;
  if (is_target_file(*text)) {
    {
      const std::lock_guard lock(mutex_);
      named_targets_.insert(*text);
    }
    auto content = read_small(root_, text->c_str(), kMaxText);
    if (!content)
      detail = *text + " in the root, which holds the target: " + content.error().message();
    else if (target_file(*content) != *text)
      detail = *text + " in the root, which holds the target, is damaged";
    else
      sealed = std::move(*content);
  }
  const bool good = detail.empty() && open_target(keys_, sealed).has_value();
  if (named.what == Named::What::nobodys) return unreadable_name(*dir, name, named, st, good || named.ours_by_name);
  {
    const std::lock_guard lock(mutex_);
    ++report_.counts.links;
  }
  if (good) return;
  // With plain names a link that somebody else made has a name like ours.
  const bool strange = plain_names() && detail.empty() && !from_base64url(*text);
  auto f = strange ? about(*dir, name, named.plain, Kind::foreign, Severity::note, "a symlink that is not made by ecfs")
                   : about(*dir, name, named.plain, Kind::target, Severity::damage, detail.empty() ? "the target does not authenticate" : detail);
  f.changed = st.st_ctim;
  f.repairable = !strange && !dir->set_aside;
  add(std::move(f));
}

void Walk::file(const DirPtr& dir, const std::string& name, const Named& named, const struct stat& found) {
  auto fd = open_quietly(dir->fd.get(), name.c_str(), O_RDONLY | O_NONBLOCK);
  if (!fd) return cannot(*dir, name, named.plain, fd.error());
  Result<struct stat> st = found;
  Result<FileState> state = FileState{};
  // Beside a daemon that writes: what is not in flight is the same when it is looked at again.
  for (int attempt = 1;; ++attempt) {
    st = lower::stat_fd(fd->get());
    if (!st) return cannot(*dir, name, named.plain, st.error());
    state = inspect(fd->get(), static_cast<std::uint64_t>(st->st_size), keys_, in_cut(st->st_ctim));
    if (!state) return cannot(*dir, name, named.plain, state.error());
    const bool wrong = !state->detail.empty();
    if (!wrong || !in_flight(st->st_ctim)) break;
    const auto after = lower::stat_fd(fd->get());
    if (attempt == kTries && after && same_state(*st, *after)) break;
    if (attempt == kTries) {
      const std::lock_guard lock(mutex_);
      ++report_.unsettled;
      return;
    }
    std::this_thread::sleep_for(kPause);
  }
  using Header = FileState::Header;
  const bool opens = state->header == Header::good;
  if (named.what == Named::What::nobodys) {
    unreadable_name(*dir, name, named, *st, opens || named.ours_by_name);
    if (!opens) return;
  }
  if (!first_time(*st)) return;
  {
    const std::lock_guard lock(mutex_);
    ++report_.counts.files;
    if (state->content) report_.counts.bytes += state->content->size;
  }
  const auto say = [&](Kind kind, Severity severity, bool repairable) {
    auto f = about(*dir, name, named.plain, kind, severity, state->detail);
    f.changed = st->st_ctim;
    f.repairable = repairable && (severity == Severity::mends || !dir->set_aside);
    add(std::move(f));
  };
  switch (state->header) {
    case Header::strange:
      if (plain_names()) {
        say(Kind::foreign, Severity::note, false);
        return;
      }
      [[fallthrough]];
    case Header::damaged:
      return say(Kind::header, Severity::damage, true);
    case Header::later:
      return say(Kind::later, Severity::damage, false);
    case Header::lost_first_write:
      return say(Kind::first_write, Severity::mends, true);
    case Header::empty:
      if (options_.scrub) xattrs(*dir, name.c_str(), named.plain, dir->fd.get(), *st);
      return;
    case Header::good:
      break;
  }
  if (state->lower_size) say(Kind::size_hint, Severity::mends, true);
  if (options_.scrub) xattrs(*dir, name.c_str(), named.plain, dir->fd.get(), *st);
  if (options_.scrub && state->content->blocks > 0) return scrub_file(dir, name, named, *st, std::move(*fd), std::move(*state));
  if (options_.scrub) done(static_cast<std::uint64_t>(st->st_blocks) * 512);
  for (const Range& r : state->damaged) tell_range(*dir, name, named.plain, *st, r);
}

void Walk::tell_range(const Dir& dir, std::string_view name, std::string_view plain, const struct stat& st, const Range& range) {
  auto f = about(dir, name, plain, Kind::block, Severity::damage, "does not authenticate");
  f.offset = range.offset;
  f.length = range.length;
  f.changed = st.st_ctim;
  add(std::move(f));
}

void Walk::scrub_file(const DirPtr& dir, const std::string& name, const Named& named, const struct stat& st, UniqueFd fd, FileState state) {
  auto work = std::make_shared<Scrubbing>();
  work->dir = dir;
  work->name = name;
  work->plain = named.plain;
  work->st = st;
  work->fd = std::move(fd);
  work->content = std::move(state.content);
  work->parts = work->left = (work->content->blocks + kPart - 1) / kPart;
  if (work->parts == 1 || options_.jobs <= 1) {
    for (std::uint64_t i = 0; i < work->parts; ++i) scrub_part(work, i);
    return;
  }
  for (std::uint64_t i = work->parts; i-- > 0;) tasks_.push([this, work, i] { scrub_part(work, i); });
}

void Walk::scrub_part(const std::shared_ptr<Scrubbing>& work, std::uint64_t part) {
  const std::uint64_t key = options_.memory ? part_key(keys_.newest().conf, work->st, part) : 0;
  std::vector<Range> damaged;
  std::uint64_t good = 0;
  bool skipped = false;
  std::error_code error;
  if (stopped()) {
    error = errno_code(EINTR);
  } else if (options_.memory && options_.memory->known(key)) {
    skipped = true;
  } else if (auto n = scrub(work->fd.get(), *work->content, part * kPart, kPart, damaged); !n) {
    error = n.error();
  } else {
    good = *n;
    if (damaged.empty() && options_.memory) options_.memory->remember(key);
  }
  {
    const std::lock_guard lock(mutex_);
    report_.counts.blocks += good;
    report_.counts.skipped += skipped;
  }
  done(static_cast<std::uint64_t>(work->st.st_blocks) * 512 / work->parts);
  const std::lock_guard lock(work->mutex);
  work->damaged.insert(work->damaged.end(), damaged.begin(), damaged.end());
  if (error) work->error = error;
  if (--work->left == 0) finish_file(*work);
}

void Walk::finish_file(Scrubbing& work) {
  if (work.error && is_errno(work.error, EINTR)) return;
  if (work.error) return cannot(*work.dir, work.name, work.plain, work.error);
  if (work.damaged.empty()) return;
  std::sort(work.damaged.begin(), work.damaged.end(), [](const Range& a, const Range& b) { return a.offset < b.offset; });
  std::vector<Range> joined;
  for (const Range& r : work.damaged) add_range(joined, r);
  struct stat st = work.st;
  if (in_flight(st.st_ctim) || options_.live_since) {
    // A page that was read while it was written, or one behind a truncation: only what stays as it is counts.
    std::this_thread::sleep_for(kPause);
    const auto before = lower::stat_fd(work.fd.get());
    if (!before || !same_state(*before, st)) {
      const std::lock_guard lock(mutex_);
      ++report_.unsettled;
      return;
    }
    std::vector<Range> still;
    for (const Range& r : joined)
      for (std::uint64_t b = block_of(r.offset); b <= block_of(r.offset + r.length - 1); ++b) {
        std::vector<Range> one;
        if (const auto n = scrub(work.fd.get(), *work.content, b, 1, one); n && !one.empty()) add_range(still, one.front());
      }
    joined = std::move(still);
    const auto after = lower::stat_fd(work.fd.get());
    if (!after || !same_state(*before, *after)) {
      const std::lock_guard lock(mutex_);
      ++report_.unsettled;
      return;
    }
  }
  for (const Range& r : joined) tell_range(*work.dir, work.name, work.plain, st, r);
}

void Walk::xattrs(const Dir& dir, const char* name, std::string_view plain, int fd, const struct stat& st) {
  const auto names = lower::listxattr(fd, name);
  if (!names) {
    if (!is_errno(names.error(), EOPNOTSUPP)) cannot(dir, name ? name : "", plain, names.error());
    return;
  }
  for (const auto& attr : *names)
    if (attr.starts_with("user.") && attr != kDirXattr) xattr(dir, name, plain, fd, attr, st);
}

void Walk::xattr(const Dir& dir, const char* name, std::string_view plain, int fd, const std::string& attr, const struct stat& st) {
  const auto say = [&](Kind kind, Severity severity, std::string detail) {
    auto f = about(dir, name ? name : "", plain, kind, severity, std::move(detail));
    f.changed = st.st_ctim;
    f.repairable = false;
    add(std::move(f));
  };
  const auto value = lower::getxattr(fd, name, attr.c_str());
  if (!value) {
    if (!is_errno(value.error(), ENODATA)) cannot(dir, name ? name : "", plain, value.error());
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    ++report_.counts.xattrs;
  }
  if (is_long_xattr(attr)) {
    const auto known = long_xattr_name(keys_, attr, *value);
    bool fits = false;
    for (const auto& epoch : keys_.epochs())
      if (known)
        if (const auto again = encode_xattr_name(epoch, *known); again && again->name == attr) fits = true;
    if (!fits) say(Kind::xattr, Severity::damage, attr + ": neither name nor value authenticates");
    return;
  }
  if (!attr.starts_with(kXattrPrefix)) return say(Kind::foreign, Severity::note, "the extended attribute " + attr + " is not made by ecfs");
  for (const auto& epoch : keys_.epochs()) {
    const auto plain_attr = decode_xattr_name(epoch, attr);
    if (!plain_attr) continue;
    if (!open_xattr_value(keys_, {attr, false}, *plain_attr, *value)) say(Kind::xattr, Severity::damage, "user." + *plain_attr + ": the value does not authenticate");
    return;
  }
  say(Kind::xattr, Severity::damage, attr + ": the name does not authenticate");
}

}  // namespace ecfs::check
