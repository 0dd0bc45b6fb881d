// SPDX-License-Identifier: GPL-3.0-or-later
#include "mount_options.hpp"

#include <algorithm>
#include <array>
#include <string_view>

namespace ecfs {
namespace {

using std::string_view_literals::operator""sv;

constexpr std::array kForDaemon = {
    "ro"sv,      "rw"sv,   "exec"sv,  "noexec"sv,  "suid"sv,        "nosuid"sv,     "dev"sv,     "nodev"sv,
    "noatime"sv, "sync"sv, "async"sv, "dirsync"sv, "allow_other"sv, "noxattr"sv, "acl"sv,
    "shared"sv,  "nodiratime"sv};
// For the daemon, with a value. The contexts are SELinux's, mount(8).
constexpr std::array kValuesForDaemon = {"fsname"sv, "context"sv, "fscontext"sv, "defcontext"sv, "rootcontext"sv};
// What mount(8) and systemd keep for themselves but pass on all the same, and what is always so: times follow
// the lower filesystem's rule, permissions are always the kernel's to check.
constexpr std::array kAccepted = {"defaults"sv,   "auto"sv,        "noauto"sv,   "user"sv,
                                  "nouser"sv,     "users"sv,       "owner"sv,    "group"sv,
                                  "_netdev"sv,    "nofail"sv,      "atime"sv,    "relatime"sv,
                                  "norelatime"sv, "strictatime"sv, "diratime"sv, "default_permissions"sv};
constexpr std::array kForMountPrefix = {"x-"sv, "X-"sv, "comment="sv};

template <class List>
bool among(const List& list, std::string_view name) {
  return std::find(list.begin(), list.end(), name) != list.end();
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts(1);
  bool in_quotes = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    std::string& part = parts.back();
    if (text[i] == '\\' && i + 1 < text.size())
      part += text[++i];
    else if (text[i] == '"' && in_quotes)
      in_quotes = false;
    else if (text[i] == '"' && part.ends_with('=') && text.find('"', i + 1) != text.npos)
      in_quotes = true;
    else if (text[i] == ',' && !in_quotes)
      parts.emplace_back();
    else
      part += text[i];
  }
  return parts;
}

}  // namespace

bool MountOptions::for_others() const { return among(daemon, "allow_other"); }

std::string MountOptions::joined() const {
  std::string out;
  for (const std::string& option : daemon) {
    if (!out.empty()) out += ',';
    for (const char c : option) {
      if (c == ',' || c == '\\') out += '\\';
      out += c;
    }
  }
  return out;
}

Outcome<void> add_options(MountOptions& options, const std::string& text, bool sloppy) {
  for (const std::string& option : split(text)) {
    const std::string name = option.substr(0, option.find('='));
    const bool has_value = name.size() < option.size();
    const std::string value = has_value ? option.substr(name.size() + 1) : "";
    if (option.empty()) continue;
    if (!has_value && name == "nonempty") {
      options.nonempty = true;
    } else if (!has_value && among(kForDaemon, name)) {
      options.daemon.push_back(option);
    } else if (among(kValuesForDaemon, name) && !value.empty()) {
      options.daemon.push_back(option);
    } else if (name == "passfile" && !value.empty()) {
      options.passfile = value;
    } else if (name == "askpass" && !value.empty()) {
      options.askpass = value;
    } else if (among(kValuesForDaemon, name) || name == "passfile" || name == "askpass") {
      return Failure{Exit::usage, "-o " + name, "it needs a value, " + name + "=...", ""};
    } else if (among(kAccepted, option) || std::any_of(kForMountPrefix.begin(), kForMountPrefix.end(),
                                                       [&](auto p) { return option.starts_with(p); })) {
      continue;
    } else if (option == "allow_root") {
      // Also where mount(8) would have us pass over what we do not know: whom it should keep out must not come in.
      return Failure{Exit::usage, "-o allow_root", "the kernel's caches would let everybody in", "with -o allow_other the files' modes say who may"};
    } else if (!sloppy) {
      return Failure{Exit::usage, "-o " + shell_word(option), "unknown mount option",
                     "ecfs mount --help lists them"};
    }
  }
  return {};
}

}  // namespace ecfs
