// SPDX-License-Identifier: GPL-3.0-or-later
// ecfs itself: the programs of the build directory or beside this one, else those of PATH.
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "../ecfs/control_client.hpp"
#include "../ecfs/paths.hpp"
#include "../ecfs/process.hpp"
#include "targets/fuse.hpp"

namespace ecfs::bench {
namespace {

std::string find_ecfs() {
  if (const auto self = real_path("/proc/self/exe"))
    for (const auto& place : {parent_of(parent_of(*self)) + "/ecfs/ecfs", parent_of(*self) + "/ecfs"})
      if (::access(place.c_str(), X_OK) == 0) return place;
  const std::string found = find_program("ecfs");
  return found.empty() ? "ecfs" : found;
}

// What the daemon says of itself; not an object where it does not answer.
nlohmann::json status_of(const std::string& mount_point) {
  auto mount = find_ecfs_mount(mount_point);
  if (!mount) return nullptr;
  const auto reply = ask_daemon(*mount, "status");
  return reply && reply->good ? nlohmann::json::parse(reply->text, nullptr, false) : nlohmann::json();
}

class Ecfs : public FuseTarget {
 public:
  explicit Ecfs(std::vector<std::string> options) : FuseTarget("ecfs"), program_(find_ecfs()), options_(std::move(options)) {}

  std::string about() const override {
    std::string text = "ecfs " + version_of(program_, "--version") + ", its defaults";
    for (const auto& o : options_) text += (&o == &options_[0] ? " and -o " : ",") + o;
    return text;
  }

  Probe probe() const override {
    Probe probe = FuseTarget::probe();
    probe.lower_bytes = [mount = mount_point()]() -> std::optional<std::uint64_t> {
      // /proc/PID/io is closed to ordinary users here, since nobody may trace the daemon; so it says it itself.
      const auto status = status_of(mount);
      const auto it = status.is_object() ? status.find("lower_bytes_written") : status.end();
      if (!status.is_object() || it == status.end()) return std::nullopt;
      return it->get<std::uint64_t>();
    };
    probe.messages = [mount = mount_point()]() -> std::optional<std::uint64_t> {
      const auto status = status_of(mount);
      if (!status.is_object() || !status.contains("messages")) return std::nullopt;
      std::uint64_t sum = 0;
      for (const auto& message : status["messages"]) sum += message.value("count", std::uint64_t{0});
      return sum;
    };
    return probe;
  }

 protected:
  std::string program() const override { return program_; }
  std::vector<std::string> make_command(const Paths& p) const override {
    // The passphrase is random: trying one needs not be slow.
    return {program_, "init", "--no-recovery", "--kdf-time", "10", "--passfile", p.passphrase, p.lower};
  }
  std::vector<std::string> mount_command(const Paths& p) const override {
    std::vector<std::string> command = {program_, "mount", "--foreground", "--passfile", p.passphrase};
    for (const auto& o : options_) command.insert(command.end(), {"-o", o});
    command.insert(command.end(), {p.lower, p.mount});
    return command;
  }

 private:
  const std::string program_;
  const std::vector<std::string> options_;
};

}  // namespace

std::unique_ptr<Target> make_ecfs(const TargetOptions& options) { return std::make_unique<Ecfs>(options.ecfs_options); }

}  // namespace ecfs::bench
