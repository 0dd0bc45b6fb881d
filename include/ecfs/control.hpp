// SPDX-License-Identifier: GPL-3.0-or-later
// The daemon's control socket: where it is and how one asks. A SOCK_SEQPACKET socket in a directory that only the owner can
// enter; one packet asks, one answers, and the daemon closes. It also refuses peers other than its own user and root.
#pragma once

#include <sys/types.h>

#include <string>

namespace ecfs {

inline constexpr std::size_t kControlPacket = 128 * 1024;

// The directory that holds the sockets of the daemons of `uid`: /run/ecfs for root, /run/user/UID/ecfs where /run/user/UID exists,
// else /tmp/ecfs-UID. Always mode 0700 and owned by uid, which the user of the path must check.
std::string control_directory(uid_t uid);

// The socket of the mount whose device number (stat's st_dev, mountinfo's third field) is `device`.
std::string control_socket(uid_t uid, dev_t device);

// Requests: a verb, or a verb, a space and an argument, which may hold any byte:
//   status         answers JSON
//   encode PATH    plaintext path from the mount's root ("/a/b") -> lower path from the lower root, without a leading slash
//   decode PATH    the way back
//   pid            the daemon's process id
// Answers: "+" and the text, or "-" and a one-line reason.

}  // namespace ecfs
