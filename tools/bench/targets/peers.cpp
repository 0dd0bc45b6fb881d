// SPDX-License-Identifier: GPL-3.0-or-later
// The other FUSE filesystems that encrypt, with their own defaults; only what trying a passphrase costs is made cheap where it can be.
#include "targets/fuse.hpp"

namespace ecfs::bench {
namespace {

class Gocryptfs : public FuseTarget {
 public:
  Gocryptfs() : FuseTarget("gocryptfs") {}
  std::string about() const override { return "gocryptfs " + version_of("gocryptfs", "--version") + ", its defaults (AES-256-GCM)"; }

 protected:
  std::string program() const override { return "gocryptfs"; }
  std::vector<std::string> make_command(const Paths& p) const override {
    return {"gocryptfs", "-q", "-init", "-scryptn", "10", "-passfile", p.passphrase, p.lower};
  }
  std::vector<std::string> mount_command(const Paths& p) const override {
    return {"gocryptfs", "-q", "-fg", "-passfile", p.passphrase, p.lower, p.mount};
  }
};

class Securefs : public FuseTarget {
 public:
  Securefs() : FuseTarget("securefs") {}
  std::string about() const override { return "securefs " + version_of("securefs", "version") + ", its defaults (format 4, lite; AES-256-GCM)"; }

 protected:
  std::string program() const override { return "securefs"; }
  std::vector<std::string> make_command(const Paths& p) const override {
    return {"securefs", "create", "--keyfile", p.passphrase, "--rounds", "1", p.lower};
  }
  std::vector<std::string> mount_command(const Paths& p) const override {
    return {"securefs", "mount", "--keyfile", p.passphrase, p.lower, p.mount};
  }
};

class Encfs : public FuseTarget {
 public:
  Encfs() : FuseTarget("encfs") {}
  std::string about() const override { return "encfs " + version_of("encfs", "--version") + ", --standard (AES-192, no authentication)"; }

 protected:
  std::string program() const override { return "encfs"; }
  bool passphrase_on_stdin() const override { return true; }
  std::vector<std::string> mount_command(const Paths& p) const override {
    return {"encfs", "-f", "--standard", "--stdinpass", p.lower, p.mount};
  }
};

class Cryfs : public FuseTarget {
 public:
  Cryfs() : FuseTarget("cryfs") {}
  std::string about() const override { return "cryfs " + version_of("cryfs", "--version") + ", its defaults (XChaCha20-Poly1305, blocks of 16 KiB)"; }

 protected:
  std::string program() const override { return "cryfs"; }
  bool passphrase_on_stdin() const override { return true; }
  std::vector<std::string> mount_command(const Paths& p) const override {
    // It keeps what it has seen of volumes in the home directory unless told otherwise.
    return {"env", "CRYFS_FRONTEND=noninteractive", "CRYFS_NO_UPDATE_CHECK=true", "CRYFS_LOCAL_STATE_DIR=" + p.state,
            "cryfs", "-f", "--config", p.state + "/config", p.lower, p.mount};
  }
};

}  // namespace

std::unique_ptr<Target> make_gocryptfs() { return std::make_unique<Gocryptfs>(); }
std::unique_ptr<Target> make_securefs() { return std::make_unique<Securefs>(); }
std::unique_ptr<Target> make_encfs() { return std::make_unique<Encfs>(); }
std::unique_ptr<Target> make_cryfs() { return std::make_unique<Cryfs>(); }

}  // namespace ecfs::bench
