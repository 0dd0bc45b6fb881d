// SPDX-License-Identifier: GPL-3.0-or-later
// The subcommands, one file each, and what they share about command lines.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "report.hpp"

namespace ecfs {

// `name` is what the person called: "ecfs mount", "ecfs-mount", "mount.ecfs". `args` is what came after it.
using Args = std::vector<std::string>;
using Command = Outcome<void> (*)(const std::string& name, Args args);

Outcome<void> command_check(const std::string& name, Args args);
Outcome<void> command_info(const std::string& name, Args args);
Outcome<void> command_init(const std::string& name, Args args);
Outcome<void> command_key(const std::string& name, Args args);
Outcome<void> command_mount(const std::string& name, Args args);
Outcome<void> command_mount_helper(const std::string& name, Args args);  // as mount(8) calls it
Outcome<void> command_name(const std::string& name, Args args);
Outcome<void> command_status(const std::string& name, Args args);
Outcome<void> command_umount(const std::string& name, Args args);

// A CLI::App whose help says "Usage: NAME [OPTIONS] WORDS".
class CommandLine : public CLI::App {
 public:
  CommandLine(const std::string& name, std::string description, std::string words);
};

// Parses by `app`. False when only the help was asked for, which is then printed. Errors are Exit::usage.
Outcome<bool> parse_arguments(CLI::App& app, Args args);

}  // namespace ecfs
