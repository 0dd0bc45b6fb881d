// SPDX-License-Identifier: GPL-3.0-or-later
// Mends what check::scan has found. Nothing that decrypts is ever removed; each step leaves a volume that a cut finds as good as before,
// and looks again at what it is about to change, so that doing it twice does no harm. The caller holds the volume: nobody mounts it meanwhile.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "ecfs/check.hpp"
#include "ecfs/encrypted_file.hpp"
#include "ecfs/name_cipher.hpp"

namespace ecfs::check {

// The findings that can be repaired, in the order in which that must be done: ids before the names under them, and what lies deeper
// before what it lies in.
std::vector<Finding> repair_order(const std::vector<Finding>& findings);

// Is a finding of that kind mended by setting the object aside in lost+found?
constexpr bool sets_aside(Kind kind) noexcept { return kind == Kind::name || kind == Kind::header || kind == Kind::target; }

class Repairer {
 public:
  struct Move {
    std::string from;   // lower paths
    std::string to;
    std::string shown;  // plaintext path where it is now
  };

  // `in_cut`: as in Options. All must outlive it.
  Repairer(int root, const Volume& volume, const KeyRing& keys, std::function<bool(const timespec&)> in_cut)
      : root_(root), volume_(volume), keys_(keys), in_cut_(std::move(in_cut)) {}

  // Before findings that are set aside are mended: makes lost+found where it is missing, and writes a report into it of what comes there.
  Result<void> plan_moves(const std::vector<Finding>& findings);
  // One finding. What was done, in words; empty where there was nothing left to do.
  Result<std::string> mend(const Finding& finding);
  const std::vector<Move>& moves() const noexcept { return moves_; }

 private:
  struct LostFound {
    UniqueFd fd;
    DirRecord record;
    std::string lower;  // its lower name
  };

  Result<std::string> mend_size(const Finding& finding);
  Result<std::string> mend_record(const Finding& finding);
  Result<std::string> remove_orphan(const Finding& finding);
  Result<std::string> set_aside(const Finding& finding);
  Result<void> open_lost_found();
  Result<LowerName> lower_name(const DirRecord& record, std::string_view name) const;
  Result<void> write_report(const std::string& text);

  int root_;
  const Volume& volume_;
  const KeyRing& keys_;
  std::function<bool(const timespec&)> in_cut_;
  std::optional<LostFound> lost_found_;
  std::vector<std::pair<std::string, std::string>> planned_;  // lower path, name in lost+found
  std::vector<Move> moves_;
};

}  // namespace ecfs::check
