// SPDX-License-Identifier: GPL-3.0-or-later
// The plain directory that every other target is held against.
#include <unistd.h>

#include "targets/common.hpp"

namespace ecfs::bench {
namespace {

class Plain : public Target {
 public:
  Plain() : Target("plain") {}
  std::string about() const override { return "a directory of the lower filesystem, nothing between"; }
  std::string unavailable() const override { return {}; }
  void create(const Place& place) override { root_ = place.directory; }
  void mount() override {}
  std::string root() const override { return root_; }
  Probe probe() const override {
    Probe probe;
    probe.lower_bytes = [] { return bytes_written_by(::getpid()); };
    probe.settle = [root = root_] { sync_all({root}); };
    return probe;
  }
  void unmount() override { sync_all({root_}); }
  void destroy() noexcept override {}

 private:
  std::string root_;
};

}  // namespace

std::unique_ptr<Target> make_plain() { return std::make_unique<Plain>(); }

}  // namespace ecfs::bench
