// SPDX-License-Identifier: GPL-3.0-or-later
// A target that is a FUSE daemon over a directory: it differs from the others of its kind in the two command lines.
#pragma once

#include "targets/common.hpp"

namespace ecfs::bench {

class FuseTarget : public Target {
 public:
  using Target::Target;
  void create(const Place& place) override;
  void mount() override;
  std::string root() const override { return mount_point_; }
  Probe probe() const override;
  void unmount() override;
  void destroy() noexcept override;
  std::string obituary() override { return daemon_.obituary(); }
  std::string unavailable() const override;

 protected:
  struct Paths {
    std::string lower, mount, passphrase, state;  // state: a directory for what else the program keeps
  };
  virtual std::string program() const = 0;
  virtual bool newline_after_passphrase() const { return true; }
  // Makes the volume; empty: the first mount does.
  virtual std::vector<std::string> make_command(const Paths&) const { return {}; }
  // Stays in the foreground.
  virtual std::vector<std::string> mount_command(const Paths& paths) const = 0;
  // Whether the two read the passphrase from standard input.
  virtual bool passphrase_on_stdin() const { return false; }

  const std::string& mount_point() const { return mount_point_; }
  pid_t daemon_pid() const { return daemon_.pid(); }

 private:
  Paths paths_;
  std::string mount_point_;
  Daemon daemon_;
};

}  // namespace ecfs::bench
