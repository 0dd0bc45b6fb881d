#!/usr/bin/python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every call on names and attributes with every kind of object, under short and long names, as root and as a user, compared with a plain
directory (cells.py)."""
import fcntl
import os
import stat

import common
import kernel
from cells import ALL, KINDS, LONG, OLD, OTHER, ROOTS, SHORT, compare, seen, value
from common import put
from kernel import RENAME_EXCHANGE, RENAME_NOREPLACE, RENAME_WHITEOUT, renameat2

NAMES = {'short': SHORT, 'long': LONG}


def held(p, flags=os.O_RDONLY):
    """A descriptor of whatever it is."""
    kind = stat.S_IFMT(os.lstat(p).st_mode)
    return os.open(p, flags if kind in (stat.S_IFREG, stat.S_IFDIR) else os.O_PATH | os.O_NOFOLLOW)


def remove(p):
    (os.rmdir if stat.S_ISDIR(os.lstat(p).st_mode) else os.unlink)(p)


def through_descriptor(d, p):
    """Removed while it is open: everything through the descriptor goes on working, and nothing is left in the directory."""
    fd = held(p, os.O_RDONLY if os.path.isdir(p) and not os.path.islink(p) else os.O_RDWR)
    try:
        out = [value(remove, p), os.fstat(fd).st_nlink if not stat.S_ISDIR(os.fstat(fd).st_mode) else os.fstat(fd).st_nlink in (0, 2), os.listdir(d)]
        out += [value(os.fchmod, fd, 0o600), value(os.fchown, fd, os.geteuid(), os.getegid()), value(os.setxattr, fd, 'user.x', b'1'),
                value(os.getxattr, fd, 'user.x'), value(os.utime, fd, ns=(OLD, OLD)), value(os.fsync, fd)]
        if stat.S_ISREG(os.fstat(fd).st_mode):
            out += [value(os.pwrite, fd, b'more', 5000), value(os.ftruncate, fd, 6000), value(os.pread, fd, 7000, 0), value(os.fdatasync, fd)]
        st = os.fstat(fd)
        return out + [oct(st.st_mode), st.st_size if not stat.S_ISDIR(st.st_mode) else None, st.st_mtime_ns == OLD, value(os.rmdir, d + '/none')]
    finally:
        os.close(fd)


def moved_while_open(p, q):
    fd = held(p)
    try:
        os.rename(p, q)
        return os.fstat(fd).st_ino == os.lstat(q).st_ino, value(os.fsync, fd), value(os.listdir, fd) if stat.S_ISDIR(os.fstat(fd).st_mode) else None
    finally:
        os.close(fd)


def linked(p, q):
    os.link(p, q, follow_symlinks=False)
    facts = [seen(p), seen(q), os.lstat(p).st_ino == os.lstat(q).st_ino]
    os.rename(p, q)  # two names of one object: nothing happens
    facts.append((seen(p)['links'], seen(q)['links']))
    os.unlink(p)
    return facts, seen(q)


def xattrs(p):
    out = []
    for prefix in ('user.', 'trusted.', 'security.'):
        n = prefix + 'n'
        for f, args in ((os.getxattr, (n,)), (os.setxattr, (n, b'1', os.XATTR_REPLACE)), (os.setxattr, (n, b'1', os.XATTR_CREATE)),
                        (os.setxattr, (n, b'2', os.XATTR_CREATE)), (os.setxattr, (n, b'3' * 100, os.XATTR_REPLACE)), (os.getxattr, (n,)),
                        (os.setxattr, (prefix + 'empty', b'')), (os.listxattr, ()), (os.removexattr, (n,)), (os.removexattr, (n,))):
            got = value(f, p, *args, follow_symlinks=False)
            out.append(sorted(got) if isinstance(got, list) else got)
    return out


def link_xattr_is_not_its_targets(d, p):
    """An xattr that follows the link meets nothing, or the target's."""
    put(d + '/target')
    os.setxattr(d + '/target', 'user.t', b't')
    os.unlink(p)
    os.symlink('target', p)
    return os.getxattr(p, 'user.t'), value(os.getxattr, p, 'user.t', follow_symlinks=False), os.listxattr(p, follow_symlinks=False)


def locked(p):
    fd = os.open(p, os.O_RDWR | os.O_NONBLOCK)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)

        def other():
            second = os.open(p, os.O_RDWR)
            return value(fcntl.flock, second, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return common.in_child(other)
    finally:
        os.close(fd)


# On one object p, with q a free name beside it.
ONE = {
    'stat': lambda d, p, q: seen(p),
    'lookup of nothing': lambda d, p, q: os.lstat(q),
    'slash behind': lambda d, p, q: value(lambda: stat.S_IFMT(os.stat(p + '/').st_mode)),
    'rename': lambda d, p, q: (os.rename(p, q), value(os.lstat, p), seen(q)),
    'rename into itself': lambda d, p, q: os.rename(p, p + '/x'),
    'rename to itself': lambda d, p, q: (os.rename(p, p), seen(p)),
    'rename while open': lambda d, p, q: moved_while_open(p, q),
    'noreplace to nothing': lambda d, p, q: (renameat2(p, q, RENAME_NOREPLACE), seen(q)),
    'whiteout to nothing': lambda d, p, q: (renameat2(p, q, RENAME_WHITEOUT), seen(p), seen(q)),
    'exchange with nothing': lambda d, p, q: renameat2(p, q, RENAME_EXCHANGE),
    'exchange with itself': lambda d, p, q: (renameat2(p, p, RENAME_EXCHANGE), seen(p)),
    'into another directory and back': lambda d, p, q: (os.mkdir(q), os.rename(p, q + '/x'), seen(q), os.rename(q + '/x', p), os.rmdir(q)) and seen(p),
    'link': lambda d, p, q: linked(p, q),
    'unlink': lambda d, p, q: os.unlink(p),
    'rmdir': lambda d, p, q: os.rmdir(p),
    'remove and make again': lambda d, p, q: (remove(p), put(p, b'new'), seen(p)),
    'remove while open': lambda d, p, q: through_descriptor(d, p),
    'remove, then its directory': lambda d, p, q: (os.mkdir(q), os.rename(p, q + '/x'), value(remove, q + '/x'), value(os.rmdir, q)),
    'create over': lambda d, p, q: os.close(os.open(p, os.O_CREAT | os.O_EXCL | os.O_WRONLY)),
    'mkdir over': lambda d, p, q: os.mkdir(p),
    'symlink over': lambda d, p, q: os.symlink('x', p),
    'mkfifo over': lambda d, p, q: os.mkfifo(p),
    'link over': lambda d, p, q: (put(q), os.link(q, p)),
    'readlink': lambda d, p, q: os.readlink(p),
    'listdir': lambda d, p, q: sorted(os.listdir(p)),
    'as a directory': lambda d, p, q: os.lstat(p + '/x'),
    'create in it': lambda d, p, q: put(p + '/x'),
    'open for writing': lambda d, p, q: os.close(os.open(p, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW)),
    'open as a directory': lambda d, p, q: os.close(os.open(p, os.O_DIRECTORY | os.O_NOFOLLOW)),
    'open O_PATH': lambda d, p, q: os.close(os.open(p, os.O_PATH | os.O_NOFOLLOW)),
    'truncate': lambda d, p, q: (os.truncate(p, 5) if not stat.S_ISFIFO(os.lstat(p).st_mode) else None, seen(p)),
    'chmod': lambda d, p, q: [(value(os.chmod, p, mode), seen(p)['mode']) for mode in (0o600, 0, 0o4755, 0o2711, 0o1777, 0o644)],
    'chmod 0': lambda d, p, q: os.chmod(p, 0o000 if not os.path.isdir(p) else 0o500),
    'chown to nobody': lambda d, p, q: (value(os.lchown, p, 65534, 65534), value(os.lchown, p, -1, os.getegid())),
    'chown clears set-id': lambda d, p, q: (value(os.chmod, p, 0o6755), value(os.lchown, p, os.geteuid(), -1), seen(p)['mode']),
    'utimens': lambda d, p, q: (os.utime(p, ns=(OLD, OLD), follow_symlinks=False), seen(p)),
    'utimens of one': lambda d, p, q: (os.utime(p, ns=(OLD + 1, OLD), follow_symlinks=False), os.lstat(p).st_atime_ns - OLD),
    'xattrs': lambda d, p, q: xattrs(p),
    'xattrs stay': lambda d, p, q: (os.setxattr(p, 'user.' + 'long' * 50, b'v' * 2000, follow_symlinks=False), os.rename(p, q)),
    'xattr of a link': lambda d, p, q: link_xattr_is_not_its_targets(d, p) if os.path.islink(p) else None,
    'fsync': lambda d, p, q: [(os.fsync(fd), os.fdatasync(fd), os.close(fd)) for fd in [held(p)]],
    'lock': lambda d, p, q: locked(p) if os.path.isfile(p) else None,
    'tmpfile': lambda d, p, q: [(os.write(fd, b'tmp'), kernel.linkat_fd(fd, q), os.close(fd)) for fd in [os.open(d, os.O_TMPFILE | os.O_RDWR)]],
}

# On p and q, both there.
TWO = {
    'rename over': lambda d, p, q: (os.rename(p, q), value(os.lstat, p), seen(q)),
    'noreplace': lambda d, p, q: renameat2(p, q, RENAME_NOREPLACE),
    'exchange': lambda d, p, q: (renameat2(p, q, RENAME_EXCHANGE), seen(p), seen(q)),
    'a flag that nobody knows': lambda d, p, q: renameat2(p, q, 64),
    'whiteout': lambda d, p, q: (renameat2(p, q, RENAME_WHITEOUT), seen(q)),
}


def table(kinds):
    cells = {}
    if not ALL:
        kinds = [k for k in kinds if k not in ('empty file', 'block', 'socket')]
    for length, p in NAMES.items():
        for other, q in OTHER.items():
            if not ALL and length == other:
                continue
            at = lambda f, p=p, q=q: lambda d: f(d, d + '/' + p, d + '/' + q)
            for kind in kinds:
                for label, f in ONE.items():
                    cells['%s, %s %s, %s' % (label, length, kind, other)] = ({p: kind}, at(f))
                for second in kinds:
                    for label, f in TWO.items():
                        cells['%s, %s %s, %s %s' % (label, length, kind, other, second)] = ({p: kind, q: second}, at(f))
    return cells


def as_root(env):
    common.need_root()
    compare(env, table(KINDS), options='dev,suid')


def as_user(env):
    compare(env, table([k for k in KINDS if k not in ROOTS]), user=env.user())


if __name__ == '__main__':
    common.main([as_root, as_user], limit=3600 if ALL else 600)
