// SPDX-License-Identifier: GPL-3.0-or-later
// What a workload can run on: a plain directory, an ecfs mount, the mounts of its peers. Each is a small adapter.
#pragma once

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "meter.hpp"

namespace ecfs::bench {

// A target cannot be made or mounted; the text says why.
class TargetFailed : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Where a target lives: an empty directory of ours on the lower filesystem, and the room that the work will need.
struct Place {
  std::string directory;
  std::uint64_t bytes = 0;
};

// create, mount, (work below root()), unmount, destroy, in this order. After a failure of any of them destroy() alone is called, and leaves
// neither mount nor process nor device; the files go with the directory.
class Target {
 public:
  explicit Target(std::string name) : name_(std::move(name)) {}
  virtual ~Target() = default;
  Target(const Target&) = delete;
  Target& operator=(const Target&) = delete;

  const std::string& name() const { return name_; }
  // Its version and how it is used here, for the report.
  virtual std::string about() const = 0;
  // Why it cannot be used on this machine, or "".
  virtual std::string unavailable() const = 0;
  // Room that it takes for itself and does not give back while it is there.
  virtual std::uint64_t own_room(std::uint64_t) const { return 0; }

  virtual void create(const Place& place) = 0;
  virtual void mount() = 0;
  virtual std::string root() const = 0;
  virtual Probe probe() const = 0;
  virtual void unmount() = 0;
  virtual void destroy() noexcept = 0;
  // What became of the daemon, or "" when it lives (or there is none).
  virtual std::string obituary() { return {}; }

 private:
  const std::string name_;
};

struct TargetOptions {
  std::vector<std::string> ecfs_options;  // each a list of mount options
};

// The names, in the order of the reports; "plain" is the first.
const std::vector<std::string>& target_names();
// Throws std::invalid_argument for another name.
std::unique_ptr<Target> make_target(const std::string& name, const TargetOptions& options);

// A target that is mounted while this lives.
class Mounted {
 public:
  Mounted(Target& target, const Place& place);
  ~Mounted();
  Mounted(const Mounted&) = delete;
  Mounted& operator=(const Mounted&) = delete;
  // Says what fails, which the destructor keeps to itself.
  void unmount();

 private:
  Target& target_;
  bool mounted_ = false;
};

}  // namespace ecfs::bench
