// SPDX-License-Identifier: GPL-3.0-or-later
#include "check_state.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <ctime>

#include "ecfs/endian.hpp"
#include "paths.hpp"

namespace ecfs {
namespace {

constexpr std::string_view kHead = "ecfschk1";
constexpr std::size_t kRecord = 8;
constexpr std::size_t kAtOnce = 512;  // records a write: not much is lost where the machine goes down
constexpr time_t kTooOld = 7 * 24 * 3600;

// All of the directories above, for us alone.
Result<void> make_above(const std::string& path) {
  const std::string dir = parent_of(path);
  if (::mkdir(dir.c_str(), 0700) == 0 || errno == EEXIST) return {};
  if (errno != ENOENT || dir == "/") return last_errno();
  if (const auto r = make_above(dir); !r) return r;
  if (::mkdir(dir.c_str(), 0700) == 0 || errno == EEXIST) return {};
  return last_errno();
}

}  // namespace

std::string CheckState::place(const std::string& uuid) {
  const char* state = std::getenv("XDG_STATE_HOME");
  const char* home = std::getenv("HOME");
  std::string dir;
  if (state && state[0] == '/')
    dir = state;
  else if (home && home[0] == '/')
    dir = std::string(home) + "/.local/state";
  else
    return {};
  return dir + "/ecfs/check-" + uuid;
}

Result<void> CheckState::open(const std::string& path) {
  path_ = path;
  if (const auto r = make_above(path); !r) return r;
  fd_ = UniqueFd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_APPEND, 0600));
  if (!fd_) return last_errno();
  // Of two runs at once one keeps it.
  if (::flock(fd_.get(), LOCK_EX | LOCK_NB) < 0) {
    const auto why = last_errno();
    fd_ = UniqueFd();
    return why;
  }
  struct stat st {};
  if (::fstat(fd_.get(), &st) < 0) return last_errno();
  std::string text(kHead.size(), '\0');
  const bool ours = ::pread(fd_.get(), text.data(), text.size(), 0) == static_cast<ssize_t>(text.size()) && text == kHead;
  if (!ours || std::time(nullptr) - st.st_mtime > kTooOld) {
    if (::ftruncate(fd_.get(), 0) < 0 || ::write(fd_.get(), kHead.data(), kHead.size()) != static_cast<ssize_t>(kHead.size())) return last_errno();
    return {};
  }
  std::vector<std::uint8_t> chunk(kRecord * 4096);
  for (off_t at = static_cast<off_t>(kHead.size());;) {
    const ssize_t n = ::pread(fd_.get(), chunk.data(), chunk.size(), at);
    if (n < 0) return last_errno();
    // What is behind the last whole record was cut.
    const std::size_t whole = static_cast<std::size_t>(n) / kRecord * kRecord;
    for (std::size_t i = 0; i < whole; i += kRecord) known_.insert(load_le<std::uint64_t>(chunk.data() + i));
    at += static_cast<off_t>(whole);
    if (whole < chunk.size()) {
      if (::ftruncate(fd_.get(), at) < 0) return last_errno();
      break;
    }
  }
  resumed_ = !known_.empty();
  return {};
}

bool CheckState::known(std::uint64_t key) {
  const std::lock_guard lock(mutex_);
  return known_.contains(key);
}

void CheckState::remember(std::uint64_t key) {
  const std::lock_guard lock(mutex_);
  fresh_.push_back(key);
  if (fresh_.size() >= kAtOnce)
    if (const auto w = write_out(); !w && !error_) error_ = w.error();
}

Result<void> CheckState::write_out() {
  std::vector<std::uint8_t> raw(fresh_.size() * kRecord);
  for (std::size_t i = 0; i < fresh_.size(); ++i) store_le<std::uint64_t>(raw.data() + i * kRecord, fresh_[i]);
  fresh_.clear();
  if (!fd_) return {};
  const ssize_t n = ::write(fd_.get(), raw.data(), raw.size());
  if (n < 0) return last_errno();
  return n == static_cast<ssize_t>(raw.size()) ? Result<void>() : Result<void>(errno_code(ENOSPC));
}

Result<void> CheckState::save() {
  const std::lock_guard lock(mutex_);
  if (const auto w = write_out(); !w && !error_) error_ = w.error();
  return error_ ? Result<void>(error_) : Result<void>();
}

void CheckState::remove() {
  const std::lock_guard lock(mutex_);
  if (fd_) ::unlink(path_.c_str());
  fd_ = UniqueFd();
}

}  // namespace ecfs
