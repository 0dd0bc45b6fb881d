#!/usr/bin/python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""Mounts of root's that are shown with other owners (mount_setattr(2), MOUNT_ATTR_IDMAP; FUSE from Linux 6.12)."""
import ctypes
import errno
import os
import re
import struct

import common
from common import Skip, equal, gives
from identities import ALL, Actor
from users_compare import create, facts, lchown, mkdir, write

SHIFT = 1_000_000_000  # what is N in the filesystem is N + SHIFT to be seen
SYS_OPEN_TREE, SYS_MOVE_MOUNT, SYS_MOUNT_SETATTR = 428, 429, 442
AT_FDCWD, AT_EMPTY_PATH, OPEN_TREE_CLONE, MOVE_MOUNT_F_EMPTY_PATH, MOUNT_ATTR_IDMAP, CLONE_NEWUSER = -100, 0x1000, 1, 4, 0x100000, 0x10000000
libc = ctypes.CDLL(None, use_errno=True)


def check(what, result):
    if result < 0:
        e = ctypes.get_errno()
        raise OSError(e, '%s: %s' % (what, os.strerror(e)))
    return result


class MappedNamespace:
    """A user namespace in which 0 to 65535 are SHIFT and what follows, held by a sleeping process."""
    def __enter__(self):
        ready, there = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.write(there, b'y' if libc.unshare(CLONE_NEWUSER) == 0 else b'n')
            while True:
                libc.pause()
        os.close(there)
        try:
            if os.read(ready, 1) != b'y':
                raise Skip('no user namespace here')
            for name in ('uid_map', 'gid_map'):
                with open('/proc/%d/%s' % (self.pid, name), 'w') as f:
                    f.write('0 %d 65536\n' % SHIFT)
        except OSError as e:
            self.__exit__()
            raise Skip('no user namespace here: %s' % e)
        except Skip:
            self.__exit__()
            raise
        finally:
            os.close(ready)
        self.fd = os.open('/proc/%d/ns/user' % self.pid, os.O_RDONLY)
        return self

    def __exit__(self, *_):
        os.kill(self.pid, 9)
        os.waitpid(self.pid, 0)


def shown_mapped(source, target):
    with MappedNamespace() as ns:
        tree = check('open_tree', libc.syscall(SYS_OPEN_TREE, AT_FDCWD, source.encode(), OPEN_TREE_CLONE | os.O_CLOEXEC))
        try:
            attr = struct.pack('4Q', MOUNT_ATTR_IDMAP, 0, 0, ns.fd)
            check('mount_setattr', libc.syscall(SYS_MOUNT_SETATTR, tree, b'', AT_EMPTY_PATH, attr, len(attr)))
            check('move_mount', libc.syscall(SYS_MOVE_MOUNT, tree, b'', AT_FDCWD, target.encode(), MOVE_MOUNT_F_EMPTY_PATH))
        finally:
            os.close(tree)
            os.close(ns.fd)


def mapped(env):
    m = env.mount(options='allow_other,acl,suid')
    os.chmod(m.path, 0o777)
    for n, uid in (('ours', 1000), ('others', 2000)):
        with open(m / n, 'w') as f:
            f.write('x')
        os.chown(m / n, uid, uid)
        os.chmod(m / n, 0o644)
    view = env.directory('view')
    try:
        shown_mapped(m.path, view)
    except OSError as e:
        old = tuple(map(int, re.match(r'(\d+)\.(\d+)', os.uname().release).groups())) < (6, 12)
        if e.errno in (errno.ENOSYS, errno.EPERM) or (e.errno == errno.EINVAL and old):
            raise Skip('this kernel does not map FUSE mounts: %s' % e)
        raise
    user = Actor('user', SHIFT + 1000, SHIFT + 1000)
    root = Actor('root', 0, 0, [0], ALL)
    owner = lambda path: facts(path)[1:3]
    long_name = 'L' * 230
    try:
        equal('seen mapped', (owner(view + '/ours'), owner(m / 'ours')), ((SHIFT + 1000,) * 2, (1000,) * 2))
        gives('another\'s', 'EACCES', user.call, write, view + '/others', 0, b'y')
        user.call(write, view + '/ours', 0, b'y')
        for f, n, *args in ((create, 'f', 0o644, 0), (create, long_name, 0o644, 0), (mkdir, 'd', 0o755, 0), (os.mkfifo, 'p', 0o644)):
            user.call(f, view + '/' + n, *args)
            equal('made by the user, ' + n[:5], (owner(view + '/' + n), owner(m / n)), ((SHIFT + 1000,) * 2, (1000,) * 2))
        user.call(os.symlink, 't' * 3500, view + '/l')
        equal('a link', owner(m / 'l'), (1000, 1000))
        user.call(os.rename, view + '/f', view + '/g')
        user.call(os.link, view + '/g', view + '/h')
        user.call(os.chmod, view + '/g', 0o600)
        equal('what the user did', facts(m / 'h')[0:3], ('0o100600', 1000, 1000))
        root.call(lchown, view + '/g', SHIFT + 2000, SHIFT + 2000)
        equal('chown through it', owner(m / 'g'), (2000, 2000))
        gives('to a number that is not in it', 'EOVERFLOW', root.call, lchown, view + '/g', 5, 5)
        gives('who is not in it', 'EOVERFLOW', root.call, create, view + '/roots', 0o644, 0)
        user.call(create, view + '/set', 0o4755, 0)
        user.call(write, view + '/set', 0, b'z')
        equal('set-id bits go', facts(m / 'set')[0], '0o100755')
        for here, dirs, files in os.walk(m.lower):
            for n in dirs + files:
                uid = os.lstat(os.path.join(here, n)).st_uid
                common.true('owner below of %s: %d' % (n, uid), uid in (0, 1000, 2000))
    finally:
        user.end()
        root.end()
        common.umount(view, common.MNT_DETACH)
    # The namespace's number 0 is the filesystem's.
    equal('without the mapping', owner(m / 'd'), (1000, 1000))


if __name__ == '__main__':
    if os.geteuid() != 0:
        print('SKIP: needs root')
        raise SystemExit(77)
    common.main([mapped])
