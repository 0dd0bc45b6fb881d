#!/usr/bin/python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which times a call moves. Access times under each rule that a filesystem may be mounted with, the time of birth, and statx(2) as a whole: in a
mount and in a plain directory on the same filesystem, which must agree.

What is in the kernel's cache is read without asking the daemon (docs/DIFFERENCES.md, `atime`): each row of the table therefore reads for the
first time since the mount, and that difference has a case of its own."""
import ctypes
import mmap
import os
import shutil
import stat
import struct
import subprocess
import time

import common
from common import Failed, equal, gives, put, true
from kernel import AT_EMPTY_PATH, AT_FDCWD, libc

HOUR = 3600 * 10**9
RULES = ('relatime', 'strictatime', 'noatime', 'nodiratime', 'lazytime', 'strictatime,nodiratime', 'strictatime,lazytime')


def opened(path, use, flags=os.O_RDONLY):
    fd = os.open(path, flags)
    try:
        use(fd)
    finally:
        os.close(fd)


def mapped(fd):
    with mmap.mmap(fd, 0, mmap.MAP_SHARED, mmap.PROT_READ) as m:
        m[5000]


def sent(fd):
    r, w = os.pipe()
    os.sendfile(w, fd, 0, 100)
    os.close(r)
    os.close(w)


def spliced(fd):
    r, w = os.pipe()
    os.splice(fd, w, 100)
    os.close(r)
    os.close(w)


def copied(path, fd):
    opened(path + '.copy', lambda out: os.copy_file_range(fd, out, 100), os.O_WRONLY | os.O_CREAT)


def written_in_part(fd):
    os.pwrite(fd, b'x', 5000)
    os.fsync(fd)


# What is done to an object of the kind: file, program, dir, link.
ROWS = {
    'read': ('file', lambda p: opened(p, lambda fd: os.read(fd, 100))),
    'read of nothing': ('file', lambda p: opened(p, lambda fd: os.read(fd, 0))),
    'read with O_NOATIME': ('file', lambda p: opened(p, lambda fd: os.read(fd, 100), os.O_RDONLY | os.O_NOATIME)),
    'mapped': ('file', lambda p: opened(p, mapped)),
    'sendfile': ('file', lambda p: opened(p, sent)),
    'splice': ('file', lambda p: opened(p, spliced)),
    'copy_file_range': ('file', lambda p: opened(p, lambda fd: copied(p, fd))),
    'listed with O_NOATIME': ('dir', lambda p: opened(p, os.listdir, os.O_RDONLY | os.O_NOATIME)),
    'written in the middle of a block': ('file', lambda p: opened(p, written_in_part, os.O_WRONLY)),
    'cut in the middle of a block': ('file', lambda p: os.truncate(p, 5000)),
    'opened': ('file', lambda p: opened(p, lambda fd: None)),
    'run': ('program', lambda p: subprocess.run([p], check=True)),
    'listed': ('dir', os.listdir),
    'opened as a directory': ('dir', lambda p: opened(p, lambda fd: None)),
    'looked up in': ('dir', lambda p: os.stat(p + '/in')),
    'created in': ('dir', lambda p: put(p + '/new')),
    'removed from': ('dir', lambda p: os.unlink(p + '/in')),
    'link read': ('link', os.readlink),
    'link followed': ('link', os.stat),
    'link asked about': ('link', os.lstat),
    'file asked about': ('file', lambda p: (os.stat(p), os.listxattr(p), os.access(p, os.R_OK))),
    'renamed': ('file', lambda p: (os.rename(p, p + '2'), os.rename(p + '2', p))),
}
# Before and behind the ctime that setting it gives: relatime moves the first.
ATIMES = {'past': -2 * HOUR, 'future': HOUR}


def make(kind, p):
    if kind == 'dir':
        os.mkdir(p)
        put(p + '/in')
    elif kind == 'link':
        os.symlink('beside', p)
    elif kind == 'program':
        shutil.copy('/bin/true', p)
    else:
        put(p, b'content ' * 2500)


def prepare(top):
    put(top + '/beside')
    for name, (kind, _) in ROWS.items():
        for age in ATIMES:
            make(kind, '%s/%s, %s' % (top, name, age))


def set_times(top, now):
    for name in ROWS:
        for age, offset in ATIMES.items():
            os.utime('%s/%s, %s' % (top, name, age), ns=(now + offset, now - HOUR), follow_symlinks=False)


def observe(top, now):
    out = {}
    for name, (_, act) in ROWS.items():
        for age, offset in ATIMES.items():
            p = '%s/%s, %s' % (top, name, age)
            before = os.lstat(p).st_atime_ns
            if before != now + offset:
                raise Failed('%s: expected the atime to be as it was set, it is %+d s off' % (p, (before - now - offset) / 10**9))
            act(p)
            out[name, age] = 'moves' if os.lstat(p).st_atime_ns != before else 'stays'
    return out


def table(env, user, rules):
    base = env.filesystem('ext4', 64)
    # Programs are run below it.
    os.chmod(base, 0o755)
    plain = base + '/plain'
    os.mkdir(plain)
    if user:
        os.chown(base, user.uid, user.gid)
        os.chown(plain, user.uid, user.gid)
    m = env.mount(on=base, user=user)
    do = user.call if user else lambda f, *args: f(*args)
    do(prepare, plain)
    do(prepare, m.path)
    m.umount()
    moved = {}
    for i, rule in enumerate(rules):
        common.run(['mount', '-o', 'remount,' + ('relatime,diratime,nolazytime,' if 'nodiratime' not in rule else 'nolazytime,') + rule, base])
        m.mount()
        sides = []
        for top in (plain, m.path):
            if i:  # what the calls before have changed
                do(lambda: (common.run(['find', top, '-mindepth', '1', '-delete']), prepare(top)))
            now = time.time_ns() // 10**9 * 10**9
            do(set_times, top, now)
            if top == m.path:
                m.remount()
            sides.append(do(observe, top, now))
        bad = ['%s: %s on the plain directory, %s on the mount' % (' '.join(k), v, sides[1][k]) for k, v in sides[0].items() if sides[1][k] != v]
        if bad:
            raise Failed('%s: %s' % (rule, '; '.join(bad)))
        moved[rule] = sum(v == 'moves' for v in sides[0].values())
        m.umount()
    true('the rules differ: %s' % moved, moved['relatime'] < moved['strictatime'])
    if 'noatime' in moved:
        true('so do those for less: %s' % moved, moved['noatime'] < moved['relatime'] and moved['strictatime,nodiratime'] < moved['strictatime'])


def access_times(env):
    common.need_root()
    table(env, None, RULES)


def access_times_of_a_user(env):
    common.need_root()
    table(env, env.user(), ('relatime', 'strictatime'))


def own_options(env):
    """noatime and nodiratime as options of the mount itself, over a filesystem where each reading moves the atime."""
    common.need_root()
    base = env.filesystem('ext4', 64, options='strictatime')
    m = env.mount(on=base)
    make('file', m / 'f')
    make('dir', m / 'd')
    make('link', m / 'l')
    for option, want in (('', ['moves'] * 3), ('nodiratime', ['moves', 'stays', 'moves']), ('noatime', ['stays', 'stays'])):
        got = []
        for p, act in ((m / 'f', common.get), (m / 'd', os.listdir), (m / 'l', os.readlink))[:len(want)]:
            os.utime(p, ns=(10**18, 10**18), follow_symlinks=False)
            m.remount(options=option)
            act(p)
            got.append('stays' if os.lstat(p).st_atime_ns == 10**18 else 'moves')
        equal('with -o %r' % option, got, want)


def from_the_cache(env):
    """The one difference: what the kernel has already is read without a word to the daemon."""
    m = env.mount()
    put(m / 'f', b'content')
    read = lambda: opened(m / 'f', lambda fd: (os.read(fd, 100), os.read(fd, 100)))
    m.remount()
    read()
    os.utime(m / 'f', ns=(10**18, 10**18))
    _, messages = m.counted(read)
    equal('messages of a warm read', messages, {})
    equal('the atime that was set', os.stat(m / 'f').st_atime_ns, 10**18)
    m.remount()
    equal('and after a remount', os.stat(m / 'f').st_atime_ns, 10**18)


# ---- statx ------------------------------------------------------------------------------------------------------------------

STATX_BASIC, STATX_BTIME, AT_SYMLINK_NOFOLLOW = 0x7ff, 0x800, 0x100
AT_FORCE_SYNC, AT_DONT_SYNC = 0x2000, 0x4000


def statx(path, mask=STATX_BASIC | STATX_BTIME, flags=0, fd=None):
    buffer = ctypes.create_string_buffer(256)
    flags |= AT_SYMLINK_NOFOLLOW if fd is None else AT_EMPTY_PATH
    if libc.statx(AT_FDCWD if fd is None else fd, os.fsencode(path), flags, ctypes.c_uint(mask), buffer) != 0:
        raise OSError(ctypes.get_errno(), 'statx')
    f = struct.unpack_from('=IIQIIIH2xQQQQ', buffer)
    times = [struct.unpack_from('=qI', buffer, 64 + 16 * i) for i in range(4)]
    # The filesystem's own word, without the mount's root.
    return dict(zip(('mask', 'blksize', 'attributes', 'nlink', 'uid', 'gid', 'mode', 'ino', 'size', 'blocks', 'attributes_mask'), f),
                atime=times[0], btime=times[1], ctime=times[2], mtime=times[3], rdev=struct.unpack_from('=II', buffer, 128))


def answers_statx(m):
    """Linux 6.6 and later ask for the time of birth."""
    return tuple(int(x) for x in os.uname().release.split('-')[0].split('.')[:2]) >= (6, 6)


KINDS = {
    'file': lambda p: put(p, b'x' * 10000), 'empty': put, 'dir': os.mkdir, 'link': lambda p: os.symlink('target', p),
    'long link': lambda p: os.symlink('t' * 900, p), 'fifo': os.mkfifo, 'socket': lambda p: os.mknod(p, stat.S_IFSOCK | 0o600),
    'char': lambda p: os.mknod(p, stat.S_IFCHR | 0o620, os.makedev(200, 70000)), 'L' * 250: lambda p: put(p, b'long name'),
}


def births(env):
    common.need_root()
    for kind in ('ext4', 'xfs', 'tmpfs'):
        base = env.filesystem(kind, 400 if kind == 'xfs' else 64, mkfs=['-b', '4096'] if kind == 'ext4' else ())
        plain = base + '/plain'
        os.mkdir(plain)
        m = env.mount(on=base, options='dev')
        if not answers_statx(m):
            raise common.Skip('this kernel does not ask FUSE filesystems for the time of birth')
        start = time.time_ns() - 10**9
        for top in (plain, m.path):
            for name, make_it in KINDS.items():
                make_it(os.path.join(top, name))
        for round_number in range(3):
            for name in KINDS:
                what = '%s on %s, round %d' % (name, kind, round_number)
                here, there, beneath = statx(m / name), statx(plain + '/' + name), statx(m.lower_path(name))
                equal('the birth of ' + what, here['btime'], beneath['btime'])
                equal('is it known: ' + what, here['mask'], there['mask'])
                seconds, below = here['btime']
                true('it is when it was made: ' + what, start <= seconds * 10**9 + below <= time.time_ns())
                for field in ('nlink', 'uid', 'gid', 'mode', 'rdev'):
                    equal('%s of %s' % (field, what), here[field], there[field])
                if name != 'dir':
                    equal('size of ' + what, here['size'], there['size'])
                st = os.lstat(m / name)
                equal('statx and lstat of ' + what, (here['ino'], here['size'], here['blocks'], here['mode'], here['blksize']),
                      (st.st_ino, st.st_size, st.st_blocks, st.st_mode, st.st_blksize))
                for field in 'amc':
                    seconds, below = here[field + 'time']
                    equal('%stime of %s' % (field, what), seconds * 10**9 + below, getattr(st, 'st_%stime_ns' % field))
            if round_number == 0:
                # Nothing moves a birth but another birth.
                for name in KINDS:
                    for top in (plain, m.path):
                        p = os.path.join(top, name)
                        os.utime(p, ns=(10**18, 10**18), follow_symlinks=False)
                        os.rename(p, p + '2' if len(p) < 250 else p[:-1])
                        os.rename(p + '2' if len(p) < 250 else p[:-1], p)
                        os.lchown(p, 1, 1)
                with open(m / 'file', 'ab') as f:
                    f.write(b'more')
                with open(plain + '/file', 'ab') as f:
                    f.write(b'more')
            elif round_number == 1 and kind != 'tmpfs':
                m.remount()
        first = statx(m / 'file')['btime']
        put(m / 'other')
        os.rename(m / 'other', m / 'file')
        true('another file under the name has a later birth', statx(m / 'file')['btime'] > first)
        equal('an open file without a name', unlinked(m / 'gone'), unlinked(plain + '/gone'))
        equal('what stat(1) says', common.run(['stat', '-c', '%w', m / 'file']).stdout, common.run(['stat', '-c', '%w', m.lower_path('file')]).stdout)
        gives('of nothing', 'ENOENT', statx, m / 'nothing')
        m.umount()
        m.pid = None


def unlinked(path):
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    try:
        os.unlink(path)
        got = statx(b'', fd=fd)
        return got['mask'], got['nlink'], got['btime'][0] > 0
    finally:
        os.close(fd)


def birth_costs_one_message(env):
    m = env.mount()
    if not answers_statx(m):
        raise common.Skip('this kernel does not ask FUSE filesystems for the time of birth')
    put(m / 'f', b'content')
    os.stat(m / 'f')
    _, messages = m.counted(statx, m / 'f', STATX_BASIC)
    equal('who does not ask for it', messages, {})
    _, messages = m.counted(statx, m / 'f')
    equal('who asks first', messages, {'STATX': 1})
    equal('what is answered', statx(m / 'f')['btime'], statx(m.lower_path('f'))['btime'])
    _, messages = m.counted(lambda: [statx(m / 'f') for _ in range(10)])
    equal('and again', messages, {})
    with open(m / 'f', 'ab') as f:
        f.write(b'more')
    os.stat(m / 'f')
    _, messages = m.counted(statx, m / 'f')
    equal('after a change', messages, {})
    equal('a birth that is not asked for now', statx(m / 'f', flags=AT_DONT_SYNC)['btime'], statx(m / 'f', flags=AT_FORCE_SYNC)['btime'])


if __name__ == '__main__':
    common.main([access_times, access_times_of_a_user, own_options, from_the_cache, births, birth_costs_one_message])
