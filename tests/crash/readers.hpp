// SPDX-License-Identifier: GPL-3.0-or-later
// Two readers of a lower directory: the daemon's own code, and one that shares nothing with it but the structures and the cryptography.
#pragma once

#include <sys/stat.h>

#include <map>
#include <string>
#include <vector>

#include "ecfs/crypto.hpp"
#include "ecfs/volume.hpp"

namespace ecfs::crash {

struct SeenEntry {
  ino_t ino = 0;
  mode_t mode = 0;
  std::uint64_t size = 0;  // as stat tells it
  std::string content;     // of a file; the target of a link
  std::map<std::string, std::string> xattrs;  // of users
  bool operator==(const SeenEntry&) const = default;
};

struct Seen {
  std::map<std::string, SeenEntry> entries;  // by plaintext path; "" is the root
  std::vector<std::string> problems;
  std::string passphrase;  // the one that opened the volume
};

struct OpenWith {
  std::vector<std::string> passphrases;  // any of which may open it
  bool shared = false;
};

// Mounts with the real code, takes the session's marker, looks at everything, and unmounts. `mark`, if not empty: also makes, changes and removes
// something in each directory and at the end of each file, and looks again.
Seen read_really(const std::string& lower, const OpenWith& how, bool change);
// Only looks: nothing in the directory is changed.
Seen read_independently(const std::string& lower, const OpenWith& how);

// The first difference in words, empty where there is none.
std::string difference(const Seen& a, const Seen& b);

}  // namespace ecfs::crash
