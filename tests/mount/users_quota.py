#!/usr/bin/python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""Quotas of users and groups, and what ext4 keeps back for root: whose limit is reached is told so, and nobody else; root's daemon lends
nobody its own rights. Quotas in a kernel that has them (user-mode Linux), since the machine's may not."""
import contextlib
import ctypes
import os
import struct

import common
import uml
from common import equal, gives, run, true
from identities import ALL, Actor, available
from users_compare import create, lchown, mkdir

KB = 1024
LONG = 'L' * 230
libc = ctypes.CDLL(None, use_errno=True)


def fill(path, size, step=64 * KB):
    """Writes so many bytes, or until there is no more room, and knows that they are stored."""
    fd = os.open(path, os.O_CREAT | os.O_WRONLY, 0o644)
    try:
        for at in range(0, size, step):
            os.pwrite(fd, b'q' * min(step, size - at), at)
            os.fsync(fd)
    except OSError:
        # The kernel says EIO for the same failure once more, on close.
        with contextlib.suppress(OSError):
            os.close(fd)
        raise
    os.close(fd)


def put_xattr(path, size):
    os.setxattr(path, 'user.big', b'x' * size)


# quotactl(2), <linux/quota.h>
GET, SET, USER, GROUP, BLOCK_LIMITS, FILE_LIMITS = 0x800007, 0x800008, 0, 1, 1, 4
QUOTA = struct.Struct('=8QI4x')  # block limits in KiB (hard, soft), bytes, file limits (hard, soft), files, two times, what is valid


def quotactl(command, kind, base, who, data):
    device = [source for target, _, source in common.mounts() if target == base][-1]
    buffer = ctypes.create_string_buffer(data, QUOTA.size)
    if libc.quotactl(command << 8 | kind, device.encode(), who, buffer) != 0:
        raise OSError(ctypes.get_errno(), 'quotactl')
    return buffer.raw


def used(base, who, kind=USER):
    """(KiB, files) that are counted against a user or group."""
    fields = QUOTA.unpack(quotactl(GET, kind, base, who, b''))
    return fields[2] // KB, fields[5]


def limit(base, who, blocks, files, kind=USER):
    quotactl(SET, kind, base, who, QUOTA.pack(blocks, 0, 0, files, 0, 0, 0, 0, BLOCK_LIMITS | FILE_LIMITS))


class Quotas:
    def __init__(self, env, mb=48):
        self.base = env.filesystem('ext4', mb, 'usrquota,grpquota', ['-b', '4096', '-O', 'quota', '-E', 'quotatype=usrquota:grpquota'])
        self.mount = env.mount(lower=env.lower(on=self.base), options='allow_other,acl')
        self.plain = os.path.join(self.base, 'plain')
        os.mkdir(self.plain)
        first = common.unused_uid()
        self.one, self.two, self.group = first, first + 1, first + 2
        self.actors = {'one': Actor('one', self.one, self.one, [self.group]), 'two': Actor('two', self.two, self.two, [self.group]),
                       'root': Actor('root', 0, 0, [0], ALL),
                       'resource': Actor('SYS_RESOURCE', self.one, self.one, [], ['SYS_RESOURCE'])}
        for top in (self.plain, self.mount.path):
            os.chmod(top, 0o1777)


def blocks(env):
    """Bytes: writing, a directory, a long target, an attribute."""
    q = Quotas(env)
    one, two, root = q.actors['one'], q.actors['two'], q.actors['root']
    m = q.mount
    one.call(fill, m / 'a', 300 * KB)
    kb = used(q.base, q.one)[0]
    true('what is written is counted: %d KiB' % kb, 300 <= kb <= 340)
    limit(q.base, q.one, kb + 64, 0)
    gives('beyond the limit', 'EDQUOT', one.call, fill, m / 'a', 2000 * KB)
    at_limit = used(q.base, q.one)[0]
    common.at_most('what is counted', at_limit, kb + 64)
    true('all of the limit is used: %d of %d' % (at_limit, kb + 64), at_limit >= kb + 56)
    with open(m / 'a', 'rb') as f:
        equal('what was stored before', f.read(300 * KB), b'q' * 300 * KB)
    limit(q.base, q.one, used(q.base, q.one)[0], 0)
    gives('a directory', 'EDQUOT', one.call, mkdir, m / 'dir', 0o755, 0)
    gives('a name of which a file is kept', 'EDQUOT', one.call, create, m / LONG, 0o644, 0)
    gives('a target of which a file is kept', 'EDQUOT', one.call, os.symlink, 't' * 3500, m / 'link')
    gives('an attribute', 'EDQUOT', one.call, put_xattr, m / 'a', 3000)
    gives('a file that is given to it', 'OK', root.call, fill, m / 'given', 100 * KB)
    gives('by root, who has CAP_SYS_RESOURCE', 'OK', root.call, lchown, m / 'given', q.one, q.one)
    true('it is counted then', used(q.base, q.one)[0] >= at_limit + 96)
    limit(q.base, q.one, at_limit, 0)
    gives('the other user has room', 'OK', two.call, fill, m / 'b', 500 * KB)
    gives('and for a long name', 'OK', two.call, create, m / LONG, 0o644, 0)
    equal('nothing of what failed is there', sorted(os.listdir(m.path)), sorted(['a', 'b', 'given', LONG]))
    left = [n for n in os.listdir(m.lower) if n.startswith(('ecfs.name.', 'ecfs.target.'))]
    equal('nor beneath: ' + str(left), len(left), 1)
    # Whoever has CAP_SYS_RESOURCE exceeds, as on the plain directory.
    gives('with CAP_SYS_RESOURCE', 'OK', q.actors['resource'].call, mkdir, m / 'more', 0o755, 0)
    gives('and without', 'EDQUOT', one.call, mkdir, m / 'yet more', 0o755, 0)
    equal('nothing is damaged', m.status()['damage']['blocks'], 0)


def files(env):
    """Numbers of files; groups; what is chowned is counted anew, with what is beside it."""
    q = Quotas(env)
    one, two, root = q.actors['one'], q.actors['two'], q.actors['root']
    m = q.mount
    for top in (q.plain, m.path):
        one.call(create, top + '/' + 'f', 0o644, 0)
    equal('a file', used(q.base, q.one)[1], 2)
    os.unlink(q.plain + '/f')
    os.unlink(m / 'f')
    one.call(mkdir, m / 'd', 0o755, 0)  # with its id
    one.call(create, m / LONG, 0o644, 0)  # with its name
    one.call(os.symlink, 't' * 3500, m / 'l')  # with its target
    equal('what is beside them is counted, too', used(q.base, q.one)[1], 6)
    for n in ('d', LONG, 'l'):
        root.call(lchown, m / n, q.two, q.two)
    equal('chown takes all away', used(q.base, q.one)[1], 0)
    equal('to the new owner', used(q.base, q.two)[1], 6)
    equal('and its group', used(q.base, q.two, GROUP)[1], 6)
    limit(q.base, q.one, 0, 3)
    for i in range(3):
        one.call(create, m / ('x%d' % i), 0o644, 0)
    gives('a fourth file', 'EDQUOT', one.call, create, m / 'x3', 0o644, 0)
    gives('a fifo', 'EDQUOT', one.call, os.mkfifo, m / 'p')
    gives('a link', 'EDQUOT', one.call, os.symlink, 't', m / 's')
    os.unlink(m / 'x0')
    gives('a directory and its id are two', 'EDQUOT', one.call, mkdir, m / 'e', 0o755, 0)
    equal('nothing of it stays', (os.path.exists(m / 'e'), used(q.base, q.one)[1]), (False, 2))
    gives('a file', 'OK', one.call, create, m / 'x0', 0o644, 0)
    gives('the other user', 'OK', two.call, create, m / 'y', 0o644, 0)
    # A group's limit, in a set-gid directory.
    os.mkdir(m / 'shared')
    os.chown(m / 'shared', 0, q.group)
    os.chmod(m / 'shared', 0o2777)
    limit(q.base, q.group, 0, used(q.base, q.group, GROUP)[1] + 2, GROUP)
    gives('in the group', 'OK', two.call, create, m / 'shared/a', 0o644, 0)
    gives('again', 'OK', two.call, create, m / 'shared/b', 0o644, 0)
    gives('beyond the group\'s limit', 'EDQUOT', two.call, create, m / 'shared/c', 0o644, 0)
    gives('outside it', 'OK', two.call, create, m / 'c', 0o644, 0)


def reserved(env):
    """What ext4 keeps back for root stays root's, though root's daemon does the writing."""
    base = env.filesystem('ext4', 32, mkfs=['-b', '4096', '-m', '20'])
    m = env.mount(lower=env.lower(on=base), options='allow_other')
    os.chmod(m.path, 0o777)
    uid = common.unused_uid()
    user, root = Actor('user', uid, uid), Actor('root', 0, 0, [0], ALL)
    user.call(create, m / 'early', 0o644, 0)
    kept = os.statvfs(base)
    kept = (kept.f_bfree - kept.f_bavail) * kept.f_frsize
    true('something is kept back', kept > 4 << 20)
    gives('a user writes', 'ENOSPC', user.call, fill, m / 'f', 1 << 30, 512 * KB)
    gives('the rest, too', 'ENOSPC', user.call, fill, m / 'g', 1 << 30, 4 * KB)
    run(['sync', '-f', base])
    st = os.statvfs(base)
    true('with what is kept back untouched: %d of %d are free' % (st.f_bfree * st.f_frsize, kept), st.f_bfree * st.f_frsize >= kept - 64 * KB)
    true('and only that: %d' % (st.f_bfree * st.f_frsize), st.f_bfree * st.f_frsize <= kept + 64 * KB)
    gives('a long name', 'ENOSPC', user.call, create, m / LONG, 0o644, 0)
    gives('a directory', 'ENOSPC', user.call, mkdir, m / 'd', 0o755, 0)
    gives('root writes on', 'OK', root.call, fill, m / 'r', 1 << 20, 512 * KB)
    gives('and makes directories', 'OK', root.call, mkdir, m / 'rd', 0o755, 0)
    if available('SYS_RESOURCE'):
        resource = Actor('SYS_RESOURCE', uid, uid, [], ['SYS_RESOURCE'])
        gives('a user with CAP_SYS_RESOURCE does', 'OK', resource.call, mkdir, m / 'cd', 0o755, 0)
    gives('a user does not', 'ENOSPC', user.call, fill, m / 'early', 1 << 20, 512 * KB)


if __name__ == '__main__':
    uml.main([reserved], [blocks, files])
