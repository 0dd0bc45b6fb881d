// SPDX-License-Identifier: GPL-3.0-or-later
// A workload recorded on a volume, and the trying of states that a cut leaves of it.
#pragma once

#include <memory>
#include <string>

#include "disk.hpp"
#include "history.hpp"
#include "recorder.hpp"
#include "workloads.hpp"

namespace ecfs::crash {

struct Variant {
  Suite suite;
  NameMode names;
  bool shared;
};
std::string describe(const Variant& variant);

class Experiment {
 public:
  // Makes a volume below `tmpfs`, and the workload in it. Throws std::runtime_error with the complaint where the recorder's self-check fails.
  Experiment(const Workload& workload, const Variant& variant, const std::string& tmpfs, std::uint64_t seed);

  struct Report {
    std::string state;                  // in words
    std::vector<std::string> complaints;
  };
  // The n-th state: at barriers first, then random ones. The same for the same seed.
  Report try_state(std::size_t n, std::size_t fixed);
  std::size_t fixed() const { return states_->fixed(); }
  Journal& journal() { return recorder_->journal(); }
  History& history() { return history_; }
  // The journal was changed by hand.
  void changed();

 private:
  void prepare(const Variant& variant);

  const Workload& workload_;
  std::uint64_t seed_;
  Disk disk_;       // where states are placed
  Disk recorded_;   // where the workload ran
  OpenWith how_;
  History history_;
  std::unique_ptr<Recorder> recorder_;
  std::unique_ptr<States> states_;
};

}  // namespace ecfs::crash
