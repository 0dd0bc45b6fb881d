# SPDX-License-Identifier: GPL-3.0-or-later
"""System calls that Python's os has not. Paths are str or bytes; failures are OSErrors."""
import ctypes
import os

libc = ctypes.CDLL(None, use_errno=True)

AT_FDCWD = -100
AT_SYMLINK_FOLLOW = 0x400
AT_EMPTY_PATH = 0x1000
RENAME_NOREPLACE, RENAME_EXCHANGE, RENAME_WHITEOUT = 1, 2, 4
FALLOC_KEEP_SIZE, FALLOC_PUNCH_HOLE, FALLOC_COLLAPSE, FALLOC_ZERO, FALLOC_INSERT, FALLOC_UNSHARE = 1, 2, 8, 16, 32, 64


def _checked(name, r):
    if r < 0:
        e = ctypes.get_errno()
        raise OSError(e, '%s: %s' % (name, os.strerror(e)))
    return r


def renameat2(old, new, flags):
    _checked('renameat2', libc.renameat2(AT_FDCWD, os.fsencode(old), AT_FDCWD, os.fsencode(new), ctypes.c_uint(flags)))


def fallocate(fd, mode, offset, length):
    libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    _checked('fallocate', libc.fallocate(fd, mode, offset, length))


def linkat_fd(fd, new):
    """Gives an O_TMPFILE a name."""
    _checked('linkat', libc.linkat(AT_FDCWD, b'/proc/self/fd/%d' % fd, AT_FDCWD, os.fsencode(new), AT_SYMLINK_FOLLOW))


class _Dirent(ctypes.Structure):
    _fields_ = [('ino', ctypes.c_uint64), ('off', ctypes.c_int64), ('reclen', ctypes.c_uint16), ('type', ctypes.c_uint8),
                ('name', ctypes.c_char * 256)]


class Directory:
    """opendir, readdir, telldir, seekdir."""

    def __init__(self, path):
        libc.opendir.restype = ctypes.c_void_p
        libc.readdir.restype = ctypes.POINTER(_Dirent)
        libc.readdir.argtypes = libc.closedir.argtypes = libc.telldir.argtypes = libc.rewinddir.argtypes = [ctypes.c_void_p]
        libc.telldir.restype = ctypes.c_long
        libc.seekdir.argtypes = [ctypes.c_void_p, ctypes.c_long]
        self.dir = libc.opendir(os.fsencode(path))
        if not self.dir:
            raise OSError(ctypes.get_errno(), 'opendir')

    def read(self):
        """(name, inode number), or None at the end."""
        entry = libc.readdir(self.dir)
        return (entry.contents.name, entry.contents.ino) if entry else None

    def rest(self):
        out = []
        while entry := self.read():
            out.append(entry)
        return out

    def tell(self):
        return libc.telldir(self.dir)

    def seek(self, position):
        libc.seekdir(self.dir, position)

    def rewind(self):
        libc.rewinddir(self.dir)

    def close(self):
        libc.closedir(self.dir)
