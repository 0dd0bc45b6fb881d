// SPDX-License-Identifier: GPL-3.0-or-later
// What a workload did, in plaintext: which values everything may have after a power cut, and which it must not have lost.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "readers.hpp"
#include "states.hpp"

namespace ecfs::crash {

using Thing = std::uint32_t;  // a plaintext object
inline constexpr Thing kNoThing = ~Thing{0};
inline constexpr Thing kRootThing = 0;

class History {
 public:
  History();

  // Operations follow one another. Positions are the recorder's.
  void begin(std::size_t position) { ops_.push_back({position, position}); }
  void end(std::size_t position) { ops_.back().end = position; }

  // An event was put in before that position of the journal.
  void inserted(std::size_t position);

  Thing make(mode_t mode, std::string target = {});
  void bind(Thing thing, Id lower) { by_lower_[lower] = thing; }
  void entry(Thing dir, const std::string& name, Thing thing);  // kNoThing: gone
  void content(Thing file, std::string bytes);
  void mode(Thing thing, mode_t mode);
  void xattr(Thing thing, const std::string& name, std::optional<std::string> value);
  // What the call that now ends promises.
  void synced(Thing thing, bool data_only);
  void synced_all();
  void renamed_over(Thing file);
  void passphrase(std::string text);  // the one that opens the volume from now on

  Thing occupant(Thing dir, const std::string& name) const;  // now
  void promise(int number);
  int promised(const Plan& plan) const;  // the last that was given before the cut; 0 where there is none
  const std::string& now(Thing file) const { return *things_[file].contents.back().second; }
  std::vector<std::string> passphrases(const Plan& plan) const;

  // Complaints about what was seen in a state.
  std::vector<std::string> check(const Plan& plan, const Seen& seen, const std::map<ino_t, Id>& ids) const;
  std::size_t ops() const { return ops_.size(); }

 private:
  struct Op {
    std::size_t begin, end;
  };
  template <class T>
  using Timeline = std::vector<std::pair<int, T>>;  // since which operation; ascending
  struct ThingState {
    mode_t type = 0;
    std::string target;
    Timeline<std::shared_ptr<const std::string>> contents;
    Timeline<mode_t> modes;
    std::map<std::string, Timeline<std::optional<std::string>>> xattrs;
    std::vector<int> data_syncs, syncs, renames_over;
  };
  struct Place {
    Timeline<Thing> occupants;
    std::vector<int> syncs;
  };
  struct Window {
    int floor, last;
  };

  int now_op() const { return static_cast<int>(ops_.size()) - 1; }
  int last_done(std::size_t position) const;
  int last_begun(std::size_t position) const;
  int floor(int least, const std::vector<int>& syncs, std::size_t cut) const;
  Window names_window(const Plan& plan) const;
  void check_content(const Plan& plan, Thing file, const SeenEntry& seen, const std::function<void(const std::string&)>& complain) const;
  void check_names(const Plan& plan, const std::map<Thing, std::map<std::string, Thing>>& dirs,
                   const std::function<void(const std::string&)>& complain) const;

  std::vector<Op> ops_;
  std::vector<ThingState> things_;
  std::map<std::pair<Thing, std::string>, Place> places_;
  std::map<Id, Thing> by_lower_;
  Timeline<std::string> passphrases_;
  Timeline<int> promises_;
};

}  // namespace ecfs::crash
