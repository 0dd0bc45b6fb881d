// SPDX-License-Identifier: GPL-3.0-or-later
// The lower directory and its volume as the subcommands need them: opened, read, unlocked, made.
#pragma once

#include <string>
#include <vector>

#include "ecfs/keyslot.hpp"
#include "ecfs/unique_fd.hpp"
#include "ecfs/volume.hpp"
#include "passphrase.hpp"
#include "report.hpp"

namespace ecfs {

// Exit::lower when it is missing, no directory or unreadable.
Outcome<UniqueFd> open_lower(const std::string& path);

// The volume file with its failures explained. `path` is for the words only.
Outcome<Volume> read_volume(int lower_dir, const std::string& path);

// Asks for a passphrase (or recovery key) until the volume opens: three times on a terminal, once elsewhere.
Outcome<Unlocked> unlock(const Volume& volume, const std::string& path, PassphraseSource& source);

struct VolumePlan {
  NameMode names = NameMode::encrypted;
  Suite suite = Suite::aes_256_gcm;
  bool recovery = true;
  int kdf_ms = 1000;
  std::string label;
};

// Whether a volume can be made at `path`: missing in a writable directory, or empty (lost+found and what a
// cut init left do not count). volume_exists or Exit::lower otherwise.
Outcome<void> check_room_for_volume(const std::string& path);

// Asks for the new passphrase, prints the recovery key and makes the volume; nothing is left behind on
// failure.
Outcome<std::vector<EpochMaster>> make_volume(const std::string& path, const VolumePlan& plan,
                                              PassphraseSource& source);

// Adds --kdf-time to a command.
void add_kdf_option(CLI::App& app, int& milliseconds);

}  // namespace ecfs
