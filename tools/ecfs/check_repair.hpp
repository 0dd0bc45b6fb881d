// SPDX-License-Identifier: GPL-3.0-or-later
// ecfs check --repair: holds the volume, asks before each kind of change, and mends what check::scan finds until nothing more can be mended.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "daemon/session_marker.hpp"
#include "ecfs/check.hpp"
#include "ecfs/repair.hpp"
#include "passphrase.hpp"
#include "report.hpp"

namespace ecfs {

// Keeps everybody else from mounting, as a mount does: what a repair that is cut leaves is then known to be of a session that was cut.
class HeldVolume {
 public:
  static Outcome<HeldVolume> hold(int root, const std::string& path);
  HeldVolume(HeldVolume&& o) noexcept : root_(o.root_), marker_(std::move(o.marker_)) { o.marker_.reset(); }
  HeldVolume& operator=(HeldVolume&&) = delete;
  ~HeldVolume() { (void)end(); }

  const daemon::SessionMarker& marker() const { return *marker_; }
  // Everything that a cut session changed is verified and right: nobody need doubt it any more.
  Result<void> forget_cuts();
  Result<void> end();

 private:
  HeldVolume(int root, daemon::SessionMarker marker) : root_(root), marker_(std::move(marker)) {}
  int root_;
  std::optional<daemon::SessionMarker> marker_;
};

struct RepairTools {
  int root = -1;
  const Volume* volume = nullptr;
  const KeyRing* keys = nullptr;
  bool yes = false;                              // ask nothing
  PassphraseSource* source = nullptr;            // whose terminal answers
  std::function<Result<check::Report>()> again;  // another quick look
  const std::atomic<bool>* stop = nullptr;
};

// Mends what `report` tells; afterwards it tells what is left. What was done, a line each.
Outcome<std::vector<std::string>> repair_volume(check::Report& report, HeldVolume& held, const RepairTools& tools);

}  // namespace ecfs
