# SPDX-License-Identifier: GPL-3.0-or-later
"""System calls on the lower directory, none of which writes. No link is followed, nothing but regular files and directories is opened:
a lower directory may come from elsewhere, and a name in it may be a fifo by now, or a link to a device."""

import errno
import os
import stat

_NO_ATIME = os.O_NOATIME


def _open(name, flags, dir_fd):
    try:
        return os.open(name, flags | os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | _NO_ATIME, dir_fd=dir_fd)
    except PermissionError:
        # Only the owner and root may read without leaving a trace.
        return os.open(name, flags | os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK, dir_fd=dir_fd)


def open_file(dir_fd, name):
    """(fd, its stat)"""
    fd = _open(name, os.O_NOFOLLOW, dir_fd)
    try:
        st = os.fstat(fd)
        if not stat.S_ISREG(st.st_mode):
            raise OSError(errno.EINVAL, "Not a regular file")
    except BaseException:
        os.close(fd)
        raise
    return fd, st


def open_directory(dir_fd, name):
    return _open(name, os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd)


def open_root(path):
    return _open(path, os.O_DIRECTORY, None)


def read_small(dir_fd, name, limit):
    """At most `limit` bytes of a small file."""
    if b"/" in name:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
    st = os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
    if not stat.S_ISREG(st.st_mode):  # before it is opened: opening a device can do things
        raise OSError(errno.EINVAL, "Not a regular file")
    fd, _ = open_file(dir_fd, name)
    try:
        return read_up_to(fd, limit)
    finally:
        os.close(fd)


def read_up_to(fd, limit):
    data = b""
    while len(data) < limit:
        more = os.read(fd, limit - len(data))
        if not more:
            break
        data += more
    return data


def _xattr_path(dir_fd, name):
    # The calls on xattrs take no directory's descriptor. A name in it is not followed, the descriptor itself has to be.
    return (b"/proc/self/fd/%d" % dir_fd, True) if name is None else (b"/proc/self/fd/%d/%s" % (dir_fd, name), False)


def get_xattr(dir_fd, name, xattr):
    """Of a name in an open directory, or with None of the directory itself."""
    path, follow = _xattr_path(dir_fd, name)
    return os.getxattr(path, xattr, follow_symlinks=follow)


def list_xattrs(dir_fd, name):
    path, follow = _xattr_path(dir_fd, name)
    return [os.fsencode(xattr) for xattr in os.listxattr(path, follow_symlinks=follow)]


def has_no_xattrs(error):
    return error.errno == errno.EOPNOTSUPP
