// SPDX-License-Identifier: GPL-3.0-or-later
// ecfs name: the lower path of a path in a mount, and back.
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "commands.hpp"
#include "control_client.hpp"
#include "mountinfo.hpp"
#include "paths.hpp"

namespace ecfs {
namespace {

Outcome<std::string> lower_of(const Mount& mount) {
  auto text = ask_or_explain(mount, "status");
  if (!text) return text;
  const auto j = nlohmann::json::parse(*text, nullptr, false);
  if (!j.is_object() || !j.contains("lower") || !j["lower"].is_string())
    return Failure{Exit::failure, shell_word(mount.target),
                   "the daemon does not say where its lower directory is", ""};
  return j["lower"].get<std::string>();
}

// `path` relative to `root`: absolute and under it as it stands or with its links followed; relative and
// under it from the current directory; any other relative one is meant from the root. False when it is
// absolute and elsewhere.
bool relative_to(const std::string& path, const std::string& root, std::string& rest) {
  if (below(flat(path), root, rest)) return true;
  if (const auto real = real_parent(flat(path)); real && below(*real, root, rest)) return true;
  if (path.empty() || path[0] == '/') return false;
  return below(flat(root + "/" + path), root, rest);
}

}  // namespace

Outcome<void> command_name(const std::string& name, Args args) {
  std::string target, path;
  bool decode = false, null = false;
  CommandLine app(
      name,
      "Prints the lower path of PATH in MOUNT; of a path in the lower directory, its path in the mount.\n"
      "A relative PATH is taken from the current directory when that is in the mount, else from its root.",
      "MOUNT PATH");
  app.add_option("MOUNT", target, "The mount point")->required();
  app.add_option("PATH", path, "The path, plaintext or lower")->required();
  app.add_flag("--decode", decode, "PATH is a lower path");
  app.add_flag("-0,--null", null, "End the output with a NUL instead of a newline");
  if (auto go = parse_arguments(app, std::move(args)); !go || !*go)
    return go ? Outcome<void>() : go.failure();

  auto mount = find_ecfs_mount(target);
  if (!mount) return mount.failure();
  auto lower = lower_of(*mount);
  if (!lower) return lower.failure();
  std::string rest, from = mount->target, to = *lower;
  if (!decode && !relative_to(path, mount->target, rest)) decode = true;
  if (decode) {
    std::swap(from, to);
    if (!relative_to(path, from, rest))
      return Failure{Exit::failure, shell_word(path),
                     "it is neither in " + shell_word(mount->target) + " nor in " + shell_word(*lower), ""};
  }
  auto answer = ask_or_explain(*mount, (decode ? "decode " : "encode /") + rest);
  if (!answer) {
    Failure failure = answer.failure();
    if (failure.exit == Exit::failure) failure.what = shell_word(path);
    return failure;
  }
  const auto start = answer->find_first_not_of('/');
  const std::string tail = start == answer->npos ? "" : "/" + answer->substr(start);
  return put((to == "/" ? tail : to + tail) + (null ? '\0' : '\n'));
}

}  // namespace ecfs
