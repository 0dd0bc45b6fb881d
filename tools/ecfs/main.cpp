// SPDX-License-Identifier: GPL-3.0-or-later
// ecfs: the command. Called by another name (ecfs-mount, mount.ecfs, ...) it is that subcommand.
#include <fcntl.h>
#include <linux/close_range.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "commands.hpp"
#include "ecfs/crypto.hpp"
#include "paths.hpp"

namespace ecfs {
namespace {

struct Entry {
  const char* name;
  Command function;
  const char* help;
};
constexpr Entry kCommands[] = {
    {"init", command_init, "make a volume in an empty directory"},
    {"mount", command_mount, "mount a volume (also as ecfs-mount)"},
    {"umount", command_umount, "unmount (also as ecfs-umount)"},
    {"status", command_status, "what a mount is and what its daemon has done"},
    {"info", command_info, "what a volume is; needs no passphrase"},
    {"check", command_check, "look for damage in a volume"},
    {"key", command_key, "change the passphrase: key passwd"},
    {"name", command_name, "the lower path of a path in a mount, and back"},
};

// Other names under which this program is installed.
constexpr Entry kNames[] = {
    {"ecfs-mount", command_mount, nullptr},
    {"ecfs-umount", command_umount, nullptr},
    {"mount.ecfs", command_mount_helper, nullptr},
    {"mount.fuse.ecfs", command_mount_helper, nullptr},
};

std::string usage() {
  std::string text = "Usage: ecfs COMMAND [OPTIONS] ...\n\nEncrypted directories. Commands:\n";
  for (const Entry& c : kCommands)
    text += "  " + std::string(c.name) + std::string(9 - std::strlen(c.name), ' ') + c.help + "\n";
  return text + "\necfs COMMAND --help says more; ecfs(1) is the manual.\n";
}

// What every descriptor and secret of this process needs before anything else happens.
void harden() {
  // A missing 0, 1 or 2 would become a pipe or a key's file.
  for (int fd = ::open("/dev/null", O_RDWR); fd >= 0 && fd <= 2;) fd = ::open("/dev/null", O_RDWR);
  // Nothing that we inherited may stay open in the daemon.
  ::syscall(SYS_close_range, 3u, ~0u, CLOSE_RANGE_CLOEXEC);
  // No passphrase in a core file, and no other process of the user reads our memory.
  const rlimit none{0, 0};
  ::setrlimit(RLIMIT_CORE, &none);
  ::prctl(PR_SET_DUMPABLE, 0);
  ::signal(SIGPIPE, SIG_IGN);
}

Outcome<void> run(Args args) {
  if (!crypto_init()) return Failure{Exit::failure, "", "the cryptographic libraries do not start", ""};
  const std::string called = args.empty() ? "ecfs" : leaf_of(args[0]);
  if (!args.empty()) args.erase(args.begin());
  for (const Entry& c : kNames)
    if (called == c.name) return c.function(called, std::move(args));
  if (args.empty()) return Failure{Exit::usage, "", "no command given", "ecfs --help lists them"};
  const std::string word = args[0];
  // mount.fuse(8), for "mount -t fuse.ecfs" where no helper of ours is in /sbin: ecfs LOWER MOUNT -o OPTIONS.
  if (word.find('/') != word.npos) return command_mount_helper("ecfs", std::move(args));
  if (word == "--help" || word == "-h" || word == "help") return put(usage());
  if (word == "--version") return put("ecfs " ECFS_VERSION "\n");
  args.erase(args.begin());
  for (const Entry& c : kCommands)
    if (word == c.name) return c.function("ecfs " + word, std::move(args));
  return Failure{Exit::usage, shell_word(word), "no such command", "ecfs --help lists them"};
}

}  // namespace

namespace {

// CLI11's own, without its asides (TEXT, REQUIRED, Excludes: ...): the descriptions say what needs saying.
class Help : public CLI::Formatter {
 public:
  explicit Help(std::string words) : words_(std::move(words)) { column_width(22); }
  std::string make_usage(const CLI::App*, std::string name) const override {
    return "\nUsage: " + name + " [OPTIONS] " + words_ + "\n";
  }
  std::string make_option_opts(const CLI::Option* o) const override {
    return o->get_option_text().empty() ? "" : " " + o->get_option_text();
  }

 private:
  std::string words_;
};

}  // namespace

CommandLine::CommandLine(const std::string& name, std::string description, std::string words)
    : CLI::App(std::move(description), name) {
  formatter(std::make_shared<Help>(std::move(words)));
  set_version_flag("--version", "ecfs " ECFS_VERSION, "Print the version");
}

Outcome<bool> parse_arguments(CLI::App& app, Args args) {
  std::reverse(args.begin(), args.end());  // as CLI11 wants it
  try {
    app.parse(args);
  } catch (const CLI::CallForHelp&) {
    if (auto r = put(app.help()); !r) return r.failure();
    return false;
  } catch (const CLI::CallForVersion& version) {
    if (auto r = put(std::string(version.what()) + "\n"); !r) return r.failure();
    return false;
  } catch (const CLI::Error& e) {
    return Failure{Exit::usage, app.get_name(), e.what(), app.get_name() + " --help"};
  }
  return true;
}

}  // namespace ecfs

int main(int argc, char** argv) {
  ecfs::harden();
  ecfs::Outcome<void> outcome;
  try {
    outcome = ecfs::run(ecfs::Args(argv, argv + argc));
  } catch (const std::bad_alloc&) {
    outcome = ecfs::Failure{ecfs::Exit::failure, "", "out of memory", ""};
  }
  if (outcome) return 0;
  // Without a reason it was told already.
  if (!outcome.failure().why.empty()) ecfs::print_failure(outcome.failure());
  return static_cast<int>(outcome.failure().exit);
}
