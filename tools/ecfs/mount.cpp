// SPDX-License-Identifier: GPL-3.0-or-later
// ecfs mount, ecfs-mount, and mount.ecfs as mount(8) calls it.
#include <sys/stat.h>
#include <unistd.h>

#include "commands.hpp"
#include "launch.hpp"
#include "lower_volume.hpp"
#include "mount_options.hpp"
#include "mount_point.hpp"
#include "paths.hpp"

namespace ecfs {
namespace {

struct Request {
  std::string lower;
  std::string mount;
  MountOptions options;
  PassphraseOptions passphrase;
  VolumePlan plan;  // for a volume that is to be made first
  std::string log;
  bool make = false;      // make one without asking
  bool helper = false;    // for mount(8): never offers to make one
  bool if_needed = false;
  bool foreground = false;
  bool debug = false;
};

// The master keys of the volume in `lower`, which is made first where there is none and that is wanted.
Outcome<std::vector<EpochMaster>> keys_of(const Request& request, PassphraseSource& source) {
  struct stat st;
  std::optional<Failure> missing;
  if (::stat(request.lower.c_str(), &st) < 0 && errno == ENOENT) {
    missing = failure_of(last_errno(), "lower directory " + shell_word(request.lower), Exit::lower,
                         "ecfs init " + shell_word(request.lower) + " makes a volume there");
  } else {
    auto dir = open_lower(request.lower);
    if (!dir) return dir.failure();
    auto volume = read_volume(dir->get(), request.lower);
    if (volume) {
      auto unlocked = unlock(*volume, request.lower, source);
      if (!unlocked) return unlocked.failure();
      if (auto r = source.finish(); !r) return r.failure();
      return std::move(unlocked->masters);
    }
    missing = volume.failure();
    if (missing->exit != Exit::no_volume) return *missing;
  }
  const bool offer = !request.make && !request.helper && source.on_terminal();
  if (!request.make && !offer) return *missing;
  // Nothing is offered over what may be an old volume that lost its file.
  if (auto r = check_room_for_volume(request.lower); !r) return r.failure();
  if (offer && !source.yes("There is no ecfs volume in " + shell_word(request.lower) + ". Make one?"))
    return *missing;
  return make_volume(request.lower, request.plan, source);
}

// Everything that can fail without a passphrase is tried before one is asked for. True when all is done:
// mounted already.
Outcome<bool> check_before_asking(const Request& request, const std::string& real_lower) {
  auto already = mounted_already(request.mount, request.lower, request.if_needed);
  if (!already) {
    Failure failure = already.failure();
    // mount(8)'s helper has no such option.
    if (failure.exit == Exit::mounted && !request.if_needed && !request.helper) failure.hint = "with --if-needed that is no error";
    return failure;
  }
  if (*already) return true;
  struct stat st;
  if (::stat(real_lower.c_str(), &st) == 0)
    if (auto dir = open_lower(real_lower); !dir) return dir.failure();
  if (auto point = examine_mount_point(request.mount, real_lower, request.options.nonempty); !point)
    return point.failure();
  if (auto r = check_fuse(request.options.for_others()); !r) return r.failure();
  return false;
}

Outcome<void> mount_volume(Request request) {
  request.mount = absolute_path(request.mount);
  request.lower = absolute_path(request.lower);
  if (!request.options.passfile.empty()) request.passphrase.passfile = request.options.passfile;
  if (!request.options.askpass.empty()) request.passphrase.askpass = request.options.askpass;
  if (!request.log.empty()) request.log = absolute_path(request.log);  // the daemon changes its directory
  // A lower directory that is yet to be made has its name in its parent.
  auto real_lower = real_path(request.lower);
  if (!real_lower) real_lower = real_parent(request.lower);
  if (!real_lower)
    return failure_of(real_lower.error(), "lower directory " + shell_word(request.lower), Exit::lower);
  auto done = check_before_asking(request, *real_lower);
  if (!done) return done.failure();
  if (*done) return {};

  PassphraseSource source(request.passphrase);
  auto masters = keys_of(request, source);
  if (!masters) return masters.failure();

  // Looked at again: the person may have taken an hour over the passphrase.
  auto point = examine_mount_point(request.mount, *real_lower, request.options.nonempty);
  if (!point) return point.failure();
  if (point->missing && ::mkdir(point->path.c_str(), 0700) < 0)
    return failure_of(last_errno(), "mount point " + shell_word(request.mount), Exit::mount_point);
  const auto lower = real_path(request.lower);
  if (!lower) return failure_of(lower.error(), "lower directory " + shell_word(request.lower), Exit::lower);
  auto r =
      launch({*lower, point->path, request.options.joined(), request.log, request.foreground, request.debug},
             std::move(*masters));
  if (!r && point->missing) ::rmdir(point->path.c_str());
  return r;
}

constexpr const char* kOptionsHelp =
    "\nMount options (-o), comma-separated, a comma in a value after a backslash:\n"
    "  ro rw exec noexec suid nosuid dev nodev atime noatime relatime norelatime\n"
    "  strictatime diratime nodiratime sync async dirsync\n"
    "  allow_other default_permissions fsname=NAME\n"
    "  noxattr     no extended attributes; creating files is then a quarter faster\n"
    "  acl         POSIX access control lists\n"
    "  shared      several mounts may write the volume at once, all with this option\n"
    "  context=LABEL fscontext=LABEL defcontext=LABEL rootcontext=LABEL   SELinux's\n"
    "  nonempty    mount over a directory that is not empty\n"
    "  passfile=FILE  askpass=PROGRAM   as the options of those names\n";

}  // namespace

Outcome<void> command_mount(const std::string& name, Args args) {
  Request request;
  std::vector<std::string> options;
  std::string first, second;
  bool nonempty = false, acl = false, shared = false;
  CommandLine app(
      name,
      "Mounts the volume in LOWER on MOUNT. Without LOWER it is dirname(MOUNT)/.basename(MOUNT).\n"
      "MOUNT is made when it does not exist. Where the passphrase is asked for, the recovery key will do.",
      "[LOWER] MOUNT");
  app.footer(kOptionsHelp);
  // Not one option with two values: CLI11 would take a path like "[a,b]" for a list.
  app.add_option("MOUNT", first, "The mount point; before it, the lower directory")->required();
  auto* both = app.add_option("second", second)->group("");
  app.add_option("-o", options, "Mount options, see below")
      ->option_text("OPTIONS")
      ->allow_extra_args(false)
      ->expected(1)
      ->take_all();
  app.add_flag("--nonempty", nonempty, "Mount over a directory that is not empty");
  app.add_flag("--if-needed", request.if_needed, "No error when it is mounted already");
  app.add_flag("-f,--foreground", request.foreground, "Stay in the foreground");
  app.add_flag("-d,--debug", request.debug, "Log every message");
  app.add_option("--log", request.log, "Log to FILE")->option_text("FILE");
  app.add_flag("--acl", acl, "POSIX access control lists");
  app.add_flag("--shared", shared, "Several mounts may write the volume at once, all with this option");
  app.add_flag("--init", request.make, "Make a volume first where there is none");
  add_kdf_option(app, request.plan.kdf_ms);
  request.passphrase.add_to(app);
  if (auto go = parse_arguments(app, std::move(args)); !go || !*go)
    return go ? Outcome<void>() : go.failure();

  for (const std::string& o : options)
    if (auto r = add_options(request.options, o, false); !r) return r;
  if (nonempty) request.options.nonempty = true;
  if (acl) request.options.daemon.push_back("acl");
  if (shared) request.options.daemon.push_back("shared");
  request.mount = both->count() > 0 ? second : first;
  if (both->count() > 0) {
    request.lower = first;
  } else {
    if (first.empty()) return Failure{Exit::usage, name, "the mount point is empty", ""};
    // "." and ".." have a name only as what they really are.
    std::string full = absolute_path(request.mount);
    const std::string given = leaf_of(request.mount);
    if (given == "." || given == ".." || leaf_of(full) == "..") full = real_path(full).value_or(full);
    if (full == "/")
      return Failure{Exit::usage, name, "/ has no lower directory of its own", "give LOWER and MOUNT"};
    request.lower = (parent_of(full) == "/" ? "" : parent_of(full)) + "/." + leaf_of(full);
  }
  return mount_volume(std::move(request));
}

Outcome<void> command_mount_helper(const std::string& name, Args args) {
  Request request;
  std::vector<std::string> options;
  std::string type;
  bool sloppy = false, fake = false, no_mtab = false, verbose = false;
  CommandLine app(name, "Mounts the volume in LOWER on MOUNT, as mount(8) asks for it.", "LOWER MOUNT");
  app.footer(kOptionsHelp);
  app.add_option("LOWER", request.lower, "The lower directory")->required();
  app.add_option("MOUNT", request.mount, "The mount point")->required();
  app.add_option("-o", options, "Mount options, see below")
      ->option_text("OPTIONS")
      ->allow_extra_args(false)
      ->expected(1)
      ->take_all();
  app.add_option("-t", type, "The filesystem's type, ecfs or fuse.ecfs")->option_text("TYPE");
  app.add_flag("-s", sloppy, "Pass over unknown mount options");
  app.add_flag("-f", fake, "Check the command line only");
  app.add_flag("-n", no_mtab, "Accepted: there is no mtab to write");
  app.add_flag("-v", verbose, "Accepted");
  if (auto go = parse_arguments(app, std::move(args)); !go || !*go)
    return go ? Outcome<void>() : go.failure();

  if (!type.empty() && type != "ecfs" && type != "fuse.ecfs" && type != "fuse")
    return Failure{Exit::usage, "-t " + shell_word(type), "not a type of ours", "ecfs or fuse.ecfs"};
  for (const std::string& o : options)
    if (auto r = add_options(request.options, o, sloppy); !r) return r;
  request.helper = true;
  if (fake) return {};
  return mount_volume(std::move(request));
}

}  // namespace ecfs
