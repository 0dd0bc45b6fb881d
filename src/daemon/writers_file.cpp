// SPDX-License-Identifier: GPL-3.0-or-later
#include "daemon/writers_file.hpp"

#include <fcntl.h>
#include <linux/posix_acl.h>
#include <linux/posix_acl_xattr.h>
#include <unistd.h>

#include <cstring>
#include <functional>
#include <string>

#include "daemon/identity.hpp"
#include "ecfs/lower.hpp"

namespace ecfs::daemon {
namespace {

constexpr const char* kAcl = "system.posix_acl_access";
constexpr mode_t kWrite = S_IWUSR | S_IWGRP | S_IWOTH;

// The same classes that may write, with the right to read.
constexpr mode_t with_read(mode_t mode) { return (mode & kWrite) | (mode & kWrite) << 1; }

// Calls change(tag, permissions as far as the mask lets them through) for each entry of an ACL, and sets what it answers. False for what is no ACL.
bool change_acl(std::string& acl, const std::function<unsigned(unsigned, unsigned)>& change) {
  using Entry = posix_acl_xattr_entry;
  constexpr std::size_t kHead = sizeof(posix_acl_xattr_header);
  if (acl.size() < kHead || (acl.size() - kHead) % sizeof(Entry) != 0) return false;
  unsigned mask = ACL_READ | ACL_WRITE | ACL_EXECUTE;
  const auto each = [&](const std::function<void(Entry&)>& work) {
    for (std::size_t at = kHead; at < acl.size(); at += sizeof(Entry)) {
      Entry e;
      std::memcpy(&e, acl.data() + at, sizeof e);
      work(e);
      std::memcpy(acl.data() + at, &e, sizeof e);
    }
  };
  // Little-endian, as every number of the supported machines is.
  each([&](Entry& e) {
    if (e.e_tag == ACL_MASK) mask = e.e_perm;
  });
  each([&](Entry& e) {
    const bool masked = e.e_tag == ACL_USER || e.e_tag == ACL_GROUP_OBJ || e.e_tag == ACL_GROUP;
    e.e_perm = static_cast<decltype(e.e_perm)>(change(e.e_tag, masked ? e.e_perm & mask : e.e_perm));
  });
  return true;
}

bool has_none(const std::error_code& e) { return is_errno(e, ENODATA) || is_errno(e, EOPNOTSUPP); }

// A new file, which nobody but its owner may open so far, becomes what the directory says.
Result<void> let_writers_in(int file, int dir, const struct stat& at) {
  const auto made = lower::stat_fd(file);
  if (!made) return made.error();
  mode_t mode = with_read(at.st_mode);
  // The group that may write to the directory is the directory's; whoever is not in it can't give the file to it.
  bool same_group = made->st_gid == at.st_gid;
  if (!same_group && (mode & S_IWGRP)) same_group = lower::chown_fd(file, kUnknown, at.st_gid).has_value();
  auto acl = lower::getxattr(dir, nullptr, kAcl);
  if (acl && !change_acl(*acl, [&](unsigned tag, unsigned may) -> unsigned {
        if (tag == ACL_GROUP_OBJ && !same_group) return 0;
        return tag == ACL_USER_OBJ || (may & ACL_WRITE) ? ACL_READ | ACL_WRITE : 0;
      }))
    return errno_code(EIO);
  if (acl) return lower::setxattr(file, nullptr, kAcl, *acl, 0);
  if (!has_none(acl.error())) return acl.error();
  // What a default ACL gave it would let others in than the directory does.
  if (const auto r = lower::removexattr(file, nullptr, kAcl); !r && !has_none(r.error())) return r;
  if (!same_group) mode &= ~static_cast<mode_t>(S_IRWXG);
  mode |= S_IRUSR | S_IWUSR;
  return (made->st_mode & 07777) == mode ? Result<void>() : lower::chmod_fd(file, mode);
}

// Made with other rights, by an older version or by hand. Only its owner can change that; the lock is as good as it was where that fails.
void shut_readers_out(int file) {
  const auto st = lower::stat_fd(file);
  if (!st) return;
  bool changed = false;
  auto acl = lower::getxattr(file, nullptr, kAcl);
  if (acl && change_acl(*acl, [&](unsigned tag, unsigned may) -> unsigned {
        if (tag == ACL_USER_OBJ || tag == ACL_MASK || (may & ACL_WRITE) || !(may & ACL_READ)) return may;
        changed = true;
        return 0;
      })) {
    if (changed) (void)lower::setxattr(file, nullptr, kAcl, *acl, 0);
    return;
  }
  const mode_t mode = st->st_mode & 07777;
  const mode_t tight = mode & ~(((~mode & kWrite) << 1) & static_cast<mode_t>(S_IRGRP | S_IROTH));
  if (tight != mode) (void)lower::chmod_fd(file, tight);
}

}  // namespace

Result<UniqueFd> open_for_writers(int dir, const char* name) {
  const auto at = lower::stat_fd(dir);
  if (!at) return at.error();
  constexpr int kFlags = O_RDWR | O_NONBLOCK;
  for (int tries = 0;; ++tries) {
    auto fd = lower::open_at(dir, name, kFlags);
    if (fd) {
      shut_readers_out(fd->get());
      return fd;
    }
    if (!is_errno(fd.error(), ENOENT)) return fd;
    fd = as_caller({at->st_uid, at->st_gid, 0, 0}, [&] { return lower::open_at(dir, name, kFlags | O_CREAT | O_EXCL, S_IRUSR | S_IWUSR); });
    if (!fd && is_errno(fd.error(), EEXIST) && tries < 10) continue;  // another was quicker
    if (!fd) return fd;
    if (const auto r = let_writers_in(fd->get(), dir, *at); !r) {
      (void)lower::unlink_at(dir, name, false);
      return r.error();
    }
    return fd;
  }
}

}  // namespace ecfs::daemon
