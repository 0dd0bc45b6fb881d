// SPDX-License-Identifier: GPL-3.0-or-later
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "ecfs/control.hpp"

namespace ecfs {

std::string control_directory(uid_t uid) {
  if (uid == 0) return "/run/ecfs";
  const std::string runtime = "/run/user/" + std::to_string(uid);
  struct stat st;
  if (::stat(runtime.c_str(), &st) == 0 && S_ISDIR(st.st_mode) && st.st_uid == uid) return runtime + "/ecfs";
  return "/tmp/ecfs-" + std::to_string(uid);
}

std::string control_socket(uid_t uid, dev_t device) {
  return control_directory(uid) + "/" + std::to_string(major(device)) + "-" + std::to_string(minor(device));
}

}  // namespace ecfs
