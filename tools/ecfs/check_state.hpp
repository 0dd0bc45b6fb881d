// SPDX-License-Identifier: GPL-3.0-or-later
// How far a scrub came, so that the next one goes on there: which parts of which files were authenticated, as hashes under a key of the
// volume. It holds no name and no content, and nobody without the volume's key can put anything into it that counts.
#pragma once

#include <mutex>
#include <string>
#include <unordered_set>
#include <vector>

#include "ecfs/check.hpp"
#include "ecfs/unique_fd.hpp"
#include "report.hpp"

namespace ecfs {

class CheckState : public check::Memory {
 public:
  // `$XDG_STATE_HOME/ecfs/check-UUID`, or in ~/.local/state. Empty where there is no home.
  static std::string place(const std::string& uuid);
  // Reads what an earlier run left there, unless it is a week old. An errno where nothing can be kept.
  Result<void> open(const std::string& path);
  bool resumed() const noexcept { return resumed_; }

  bool known(std::uint64_t key) override;
  void remember(std::uint64_t key) override;
  // Writes what is not written yet; the error that any write had.
  Result<void> save();
  // The scrub came to its end: nothing is kept.
  void remove();

 private:
  Result<void> write_out();

  std::mutex mutex_;
  std::string path_;
  UniqueFd fd_;
  std::unordered_set<std::uint64_t> known_;
  std::vector<std::uint64_t> fresh_;
  std::error_code error_;
  bool resumed_ = false;
};

}  // namespace ecfs
