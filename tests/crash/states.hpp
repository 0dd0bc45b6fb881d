// SPDX-License-Identifier: GPL-3.0-or-later
// What a power cut leaves of a recorded stream. The model, which docs/RELIABILITY.md tells in words:
//
// - Names, sizes, attributes and extended attributes go to the disk through the lower filesystem's journal, in the order of the stream: some
//   prefix of it is there (ext4, XFS: one log; a commit or a forced log takes everything before it along). A sync of an object
//   that was changed puts everything up to that object's last change there; fdatasync only counts changes of size and the making of the file.
// - btrfs commits everything at once now and then; in between, a sync puts the one object there, with its names (those that it lost, too) and
//   the directories above it, and nothing else. A sync of a directory puts its entries there, and the objects that are new in it without
//   what was written to them. After a rename or a removal the next sync commits everything: btrfs does so where it cannot tell what else
//   would have to be logged. A commit between the making of a directory and the setting of its id is left out (docs/RELIABILITY.md).
// - The contents of a page are any that were written to it since its file was last synced, or what was there at that sync: pages are written
//   back in any order, none in two halves (4096 bytes, aligned).
//   A page that has a place on the disk already may also be newer than the names and sizes: written in place (ext4, XFS) while the inode,
//   its ctime included, is still the old one. btrfs never writes in place.
// - A size that ftruncate sets goes with the journal, and so may lead the data: pages without data read as zeros (all three; delayed allocation).
//   A size that comes from writing past the end follows the data.
// - ext4 alone: a rename over another file first gives the file its place on the disk, and its data is written before the rename is
//   (auto_da_alloc, data=ordered).
#pragma once

#include <random>

#include "journal.hpp"

namespace ecfs::crash {

enum class Kind : std::uint8_t { ext4, xfs, btrfs };
enum class Pages : std::uint8_t { newest, oldest, any, one_new, one_old };

struct Plan {
  Kind kind = Kind::ext4;
  std::size_t cut = 0;    // events that had happened when the power went
  std::size_t names = 0;  // events whose names and sizes are there (btrfs: as of the last commit)
  Pages pages = Pages::any;
};

struct State {
  Plan plan;
  Tree tree;
};

using Random = std::mt19937_64;

class States {
 public:
  explicit States(const Journal& journal);
  // States at barriers, each kind, pages newest and oldest, names as far back as they can be and as far on: how many there are, and the n-th.
  std::size_t fixed() const { return barriers_.size() * 12; }
  Plan fixed(std::size_t n) const;
  Plan random(Random& rng) const;
  // The state's plan is the one asked for, with `names` where they are on that filesystem.
  State make(const Plan& plan, Random& rng) const;
  // The least `names` for a cut.
  std::size_t least(std::size_t cut, Kind kind) const;

 private:
  const Journal& journal_;
  std::vector<std::size_t> barriers_;         // positions after each sync
  std::vector<std::size_t> least_, commits_;  // for each cut
};

std::string describe(const Plan& plan);

}  // namespace ecfs::crash
