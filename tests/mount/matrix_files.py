#!/usr/bin/python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every way to open a file, on files of every mode and length, with every call on what is in them, as root and as a user, compared with a
plain directory (cells.py)."""
import mmap
import os

import common
import kernel
from cells import ALL, LONG, SHORT, compare, value
from common import FIRST, PAYLOAD, get, put

FLAGS = {'r': os.O_RDONLY, 'w': os.O_WRONLY, 'rw': os.O_RDWR, 'w trunc': os.O_WRONLY | os.O_TRUNC, 'rw append': os.O_RDWR | os.O_APPEND,
         'w append sync': os.O_WRONLY | os.O_APPEND | os.O_SYNC}
MODES = [0o644, 0o444, 0o400, 0o200, 0o222, 0, 0o6755, 0o2644]
SIZES = [0, 1, FIRST, FIRST + 1, FIRST + PAYLOAD + 100]


def content(n):
    return (b'0123456789' * (n // 10 + 1))[:n]


def facts(fd, p):
    st = os.fstat(fd)
    return [st.st_size, oct(st.st_mode), st.st_nlink]


def mapped(fd, n, write):
    if n == 0:
        return None
    with mmap.mmap(fd, n, access=mmap.ACCESS_WRITE if write else mmap.ACCESS_READ) as m:
        if write:
            m[n // 2:n // 2 + 1] = b'M'
            m.flush()
        return m[:5], m[n - 1:n]


# On a descriptor of a file of n bytes.
CALLS = {
    'read': lambda fd, n: (os.pread(fd, n + 10, 0), os.pread(fd, 10, n - 1 if n else 0), os.pread(fd, 10, n + 1)),
    'write within a block': lambda fd, n: os.pwrite(fd, b'WW', n // 2),
    'write at the end': lambda fd, n: os.pwrite(fd, b'E' * 5000, n),
    'write far behind': lambda fd, n: os.pwrite(fd, b'far', n + 20000),
    'write nothing': lambda fd, n: os.pwrite(fd, b'', n + 5),
    'append': lambda fd, n: (os.lseek(fd, 0, os.SEEK_END), os.write(fd, b'append')),
    'cut to nothing': lambda fd, n: os.ftruncate(fd, 0),
    'cut and grow': lambda fd, n: (os.ftruncate(fd, n // 2), os.ftruncate(fd, n + 3000)),
    'grow and cut': lambda fd, n: (os.ftruncate(fd, n + 9000), os.ftruncate(fd, n)),
    'allocate': lambda fd, n: os.posix_fallocate(fd, n // 2, 7000),
    'allocate, size kept': lambda fd, n: kernel.fallocate(fd, kernel.FALLOC_KEEP_SIZE, n, 9000),
    'punch': lambda fd, n: kernel.fallocate(fd, kernel.FALLOC_KEEP_SIZE | kernel.FALLOC_PUNCH_HOLE, n // 3, n // 2 + 1),
    'punch without keeping the size': lambda fd, n: kernel.fallocate(fd, kernel.FALLOC_PUNCH_HOLE, 0, 10),
    'sync': lambda fd, n: (os.fsync(fd), os.fdatasync(fd)),
    'map': lambda fd, n: mapped(fd, n, False),
    'map and write': lambda fd, n: mapped(fd, n, True),
    'truncated through the name': lambda fd, n: (os.truncate('/proc/self/fd/%d' % fd, n // 2), os.pread(fd, n + 5, 0)),
    'unlinked': lambda fd, n: (os.unlink(os.readlink('/proc/self/fd/%d' % fd)), os.fstat(fd).st_nlink, value(os.pwrite, fd, b'gone', 1), value(os.fchmod, fd, 0o640),
                               value(os.ftruncate, fd, 3), os.fstat(fd).st_size),
}


def cell(name, flags, mode, n, call):
    def act(d):
        p = d + '/' + name
        put(p, content(n))
        os.chmod(p, mode)
        fd = os.open(p, flags)
        try:
            return value(call, fd, n), facts(fd, p)
        finally:
            os.close(fd)
    return {}, act


def made(name, flags, mode, n, call):
    """Created with the mode, and written through the descriptor that made it."""
    def act(d):
        fd = os.open(d + '/' + name, flags | os.O_CREAT | os.O_EXCL, mode)
        try:
            return value(os.write, fd, content(n)), value(call, fd, n), facts(fd, name), value(get, d + '/' + name)
        finally:
            os.close(fd)
    return {}, act


def table():
    cells = {}
    for length, name in (('short', SHORT), ('long', LONG)):
        for opened, flags in FLAGS.items():
            for call, f in CALLS.items():
                # Each size with the usual mode, each mode with one size.
                for mode, n in {*((0o644, n) for n in SIZES), *((mode, FIRST + 100) for mode in MODES)}:
                    if length == 'long' and n not in (1, FIRST + 100):
                        continue
                    if not ALL and n == FIRST + 100 and mode not in ((0o200, 0o444) if length == 'long' else (0o644, 0o400, 0o200, 0o6755)):
                        continue
                    label = '%s, %s, %s, %o, %d' % (length, opened, call, mode, n)
                    cells[label] = cell(name, flags, mode, n, f)
                    if 'trunc' not in opened and n in (1, FIRST + 100) and (ALL or length == 'short'):
                        cells[label + ', made'] = made(name, flags, mode, n, f)
    return cells


def as_root(env):
    common.need_root()
    compare(env, table(), options='suid')


def as_user(env):
    # A store through a mapping keeps set-id bits. Written back by an ordinary user's daemon it does not: the lower filesystem takes them from
    # every write of an ordinary user's, and giving them back would be worse.
    compare(env, {name: cell for name, cell in table().items() if not ('map and write' in name and '6755' in name)}, user=env.user())


if __name__ == '__main__':
    common.main([as_root, as_user], limit=3600 if ALL else 600)
