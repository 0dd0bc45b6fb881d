// SPDX-License-Identifier: GPL-3.0-or-later
// The table of operations for libfuse: decode, call the Filesystem, reply. The one place where an error becomes an errno.
#pragma once

#define FUSE_USE_VERSION 312
#include <fuse_lowlevel.h>

#include "daemon/filesystem.hpp"
#include "daemon/write_back.hpp"

namespace ecfs::daemon {

// The session's user data.
struct OpsContext {
  Filesystem& fs;
  double timeout = 86400;  // seconds that names and attributes stay valid: only we change the lower directory
  bool noxattr = false;
  bool acl = false;
  bool changes_beneath = false;  // others change the lower directory: cached contents are good only as long as size and mtime stay
  WriteBack* write_back = nullptr;  // none where there is no kernel on the other side
  fuse_session* session = nullptr;  // for what the kernel is told unasked; none likewise
};

const fuse_lowlevel_ops& ops_table();

}  // namespace ecfs::daemon
