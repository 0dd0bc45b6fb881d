#!/usr/bin/python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""Errors that no name or permission is to blame for, compared with a plain directory: EROFS in each way that a mount can come to be read-only,
ETXTBSY, EFAULT, limits of a filesystem (EMLINK, EDQUOT) against everything else that may be wrong with a call."""
import ctypes
import fcntl
import mmap
import os
import shutil
import stat
import subprocess

import common
import kernel
from cells import value
from common import Failed, equal, get, gives, put, true
from kernel import libc

LONG, TOO_LONG = 'n' * 255, 'n' * 256


def compare(what, plain, mount):
    bad = ['%s: plain %s, mount %s' % (k, common.short(v), common.short(mount[k])) for k, v in plain.items() if mount[k] != v]
    if bad:
        raise Failed('%s: %d of %d rows differ:\n  %s' % (what, len(bad), len(plain), '\n  '.join(bad)))


# ---- EROFS ------------------------------------------------------------------------------------------------------------------

def tree(top):
    put(top + '/file', b'content' * 1000)
    os.setxattr(top + '/file', 'user.a', b'1')
    put(top + '/closed', b'closed')
    put(top + '/' + LONG, b'long')
    os.mkdir(top + '/dir')
    os.mkdir(top + '/full')
    put(top + '/full/in', b'in')
    for name, target in (('link', 'file'), ('dangling', 'nothing'), ('loop', 'loop')):
        os.symlink(target, top + '/' + name)
    os.mkfifo(top + '/fifo')
    os.chmod(top + '/fifo', 0o666)
    os.chmod(top + '/closed', 0)


def open_as(flags):
    def call(p):
        fd = os.open(p, flags | os.O_NONBLOCK, 0o644)
        os.close(fd)
    return call


def mapped(p):
    fd = os.open(p, os.O_RDONLY)
    try:
        with mmap.mmap(fd, 4096, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE) as m:
            m[0] = 1
            return bytes(m[:4])
    finally:
        os.close(fd)


def synced(p):
    fd = os.open(p, os.O_RDONLY | os.O_NONBLOCK)
    try:
        os.fsync(fd)
        fcntl.flock(fd, fcntl.LOCK_EX)
        return value(os.ftruncate, fd, 0), value(os.write, fd, b'x'), value(os.posix_fallocate, fd, 0, 10), value(os.fchmod, fd, 0o600), \
            value(os.setxattr, fd, 'user.b', b''), value(os.utime, fd)
    finally:
        os.close(fd)


NAMES = ('file', 'closed', 'dir', 'full', 'full/in', 'link', 'dangling', 'loop', 'fifo', 'missing', 'missing/x', 'file/x', 'loop/x', LONG, TOO_LONG, 'dir/', 'file/', '.', '')
# Those that the kernel decides by what the mount itself is. What is only beneath it is read-only shows first when the daemon is asked.
BY_MOUNT = {
    'open for writing': open_as(os.O_WRONLY), 'open for both': open_as(os.O_RDWR), 'open, cut': open_as(os.O_RDONLY | os.O_TRUNC),
    'create': open_as(os.O_WRONLY | os.O_CREAT), 'create to read': open_as(os.O_RDONLY | os.O_CREAT), 'create a new one': open_as(os.O_WRONLY | os.O_CREAT | os.O_EXCL),
    'tmpfile': open_as(os.O_RDWR | os.O_TMPFILE), 'may I write': lambda p: os.access(p, os.W_OK), 'rmdir': os.rmdir, 'unlink': os.unlink, 'mkdir': os.mkdir,
    'chmod': lambda p: os.chmod(p, 0o600), 'chown': lambda p: os.lchown(p, 1, 1), 'chown to nobody else': lambda p: os.lchown(p, -1, -1),
    'truncate': lambda p: os.truncate(p, 0), 'utime': os.utime, 'mknod': lambda p: os.mknod(p, 0o600), 'mkfifo': os.mkfifo,
    'symlink': lambda p: os.symlink('x', p), 'link to it': lambda p: os.link(p, 'new', follow_symlinks=False), 'link over it': lambda p: os.link('file', p),
    'rename it': lambda p: os.rename(p, 'new'), 'rename over it': lambda p: os.rename('file', p), 'rename to itself': lambda p: os.rename(p, p),
    'exchange': lambda p: kernel.renameat2(p, 'full', kernel.RENAME_EXCHANGE), 'setxattr': lambda p: os.setxattr(p, 'user.b', b''),
    'removexattr': lambda p: os.removexattr(p, 'user.a'), 'remove an xattr that is not there': lambda p: os.removexattr(p, 'user.none'),
    'through a descriptor': synced,
}
ALWAYS = {
    'open to read': open_as(os.O_RDONLY), 'stat': lambda p: stat.S_IFMT(os.stat(p).st_mode), 'list': lambda p: sorted(os.listdir(p)), 'read': lambda p: get(p)[:10] if os.path.isfile(p) else None,
    'readlink': os.readlink, 'getxattr': lambda p: os.getxattr(p, 'user.a'), 'map': lambda p: mapped(p) if os.path.isfile(p) and os.path.getsize(p) else None,
    'may I read': lambda p: os.access(p, os.R_OK),
}


def erofs_rows(top, calls):
    os.chdir(top)
    return {'%s %r' % (label, n[:20]): value(f, n) for label, f in calls.items() for n in NAMES}


def erofs(env):
    """The mount is read-only by its option, or because the filesystem beneath is."""
    common.need_root()
    user = env.user()
    base = env.filesystem('ext4', 64)
    plain = base + '/plain'
    os.mkdir(plain)
    m = env.mount(on=base, options='allow_other')
    for top in (plain, m.path):
        tree(top)
        os.chmod(top, 0o755)
    m.umount()
    calls = {**BY_MOUNT, **ALWAYS}
    by_option = {}
    m.remount(options='ro,allow_other')
    for who, do in (('root', common.in_child), ('a user', user.call)):
        by_option[who] = do(erofs_rows, m.path, calls)
    m.umount()
    common.run(['mount', '-o', 'remount,ro', base])
    m.remount(options='allow_other')
    for who, do in (('root', common.in_child), ('a user', user.call)):
        want = do(erofs_rows, plain, calls)
        true('some rows say EROFS', 'EROFS' in want.values())
        compare('by option, as ' + who, want, by_option[who])
        compare('read-only beneath, as ' + who, want, do(erofs_rows, m.path, calls))
    m.umount()
    common.run(['mount', '-o', 'remount,rw', base])


def erofs_meanwhile(env):
    """The filesystem beneath turns read-only under a mount, as ext4 does by itself when its disk fails. Writing says so when it is written back: the
    kernel asks nobody before (docs/DIFFERENCES.md, at its end)."""
    common.need_root()
    base = env.filesystem('ext4', 64, options='errors=remount-ro', mkfs=['-b', '4096'])
    m = env.mount(on=base)
    tree(m.path)
    put(m / 'written', b'old' * 5000)
    os.sync()  # what is not on the disk by then is lost, as on any filesystem
    m.remount()
    fd = os.open(m / 'written', os.O_RDWR)
    common.run(['mount', '-o', 'remount,abort', base], ok=None)
    gives('mkdir beneath', 'EROFS', os.mkdir, base + '/new')
    changing = {'mkdir': lambda: os.mkdir(m / 'new'), 'rmdir': lambda: os.rmdir(m / 'dir'), 'unlink': lambda: os.unlink(m / 'file'),
                'create': lambda: put(m / 'new'), 'chmod': lambda: os.chmod(m / 'file', 0o600), 'chown': lambda: os.chown(m / 'file', 1, 1),
                'truncate': lambda: os.truncate(m / 'file', 1), 'utime': lambda: os.utime(m / 'file', (1, 1)), 'mkfifo': lambda: os.mkfifo(m / 'new'),
                'symlink': lambda: os.symlink('x', m / 'new'), 'a long link': lambda: os.symlink('x' * 4000, m / 'new'),
                'a long name': lambda: put(m / ('N' * 255)), 'removing a long name': lambda: os.unlink(m / LONG),
                'link': lambda: os.link(m / 'file', m / 'new'), 'rename': lambda: os.rename(m / 'file', m / 'new'),
                'rename over a directory': lambda: os.rename(m / 'full', m / 'dir'),
                'exchange': lambda: kernel.renameat2(m / 'file', m / 'dir', kernel.RENAME_EXCHANGE),
                'setxattr': lambda: os.setxattr(m / 'file', 'user.b', b''), 'removexattr': lambda: os.removexattr(m / 'file', 'user.a'),
                'tmpfile': lambda: os.close(os.open(m.path, os.O_RDWR | os.O_TMPFILE))}
    for label, f in changing.items():
        gives(label, 'EROFS', f)

    def write_and_sync():
        for _ in range(3):  # the first may be taken by the kernel alone
            os.pwrite(fd, b'new', 10)
            os.fsync(fd)
    gives('writing to what was open', 'EROFS', write_and_sync)
    common.outcome(os.close, fd)  # may say so once more
    names = ['file', 'closed', LONG, 'dir', 'full', 'link', 'dangling', 'loop', 'fifo', 'written']
    seen = lambda: (sorted(os.listdir(m.path)), get(m / 'full/in'), os.readlink(m / 'link'), os.getxattr(m / 'file', 'user.a'), os.listdir(m / 'dir'))
    equal('what is there', seen(), (sorted(names), b'in', 'file', b'1', []))
    m.umount()
    image = base + '.img'
    env.release(base)
    env.mount_image(image, base, 'ext4')
    m.mount()
    equal('what is there on a filesystem that is well again', seen(), (sorted(names), b'in', 'file', b'1', []))
    equal('its contents', (get(m / 'written'), get(m / 'file')), (b'old' * 5000, b'content' * 1000))
    put(m / 'file', b'whole again')
    equal('written again', get(m / 'file'), b'whole again')


# ---- ETXTBSY ----------------------------------------------------------------------------------------------------------------

def waits_for_end(program):
    """The program started, and run: it writes nothing and waits for its input to end."""
    child = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    common.wait_until('it is run', lambda: os.readlink('/proc/%d/exe' % child.pid) == program)
    return child


def busy_rows(top):
    program, other = top + '/program', top + '/other'
    shutil.copy('/bin/cat', program)
    shutil.copy('/bin/cat', other)
    child = waits_for_end(program)
    running = {
        'write': value(open_as(os.O_WRONLY), program), 'both': value(open_as(os.O_RDWR), program), 'cut': value(open_as(os.O_WRONLY | os.O_TRUNC), program),
        'cut, to read': value(open_as(os.O_RDONLY | os.O_TRUNC), program), 'truncate': value(os.truncate, program, 5),
        'create': value(open_as(os.O_WRONLY | os.O_CREAT), program), 'create a new one': value(open_as(os.O_WRONLY | os.O_CREAT | os.O_EXCL), program),
        'append': value(open_as(os.O_WRONLY | os.O_APPEND), program), 'read': value(open_as(os.O_RDONLY), program), 'chmod': value(os.chmod, program, 0o700),
        'may I write': os.access(program, os.W_OK), 'link': value(os.link, program, program + '2'), 'write by the other name': value(open_as(os.O_WRONLY), program + '2'),
        'rename over': value(os.rename, other, program), 'then write to what is there': value(open_as(os.O_WRONLY), program),
        'and to what runs': value(open_as(os.O_WRONLY), program + '2'), 'remove what runs': value(os.unlink, program + '2'),
    }
    child.stdin.close()
    equal('the program ends as it should', child.wait(60), 0)
    fd = os.open(program, os.O_WRONLY)
    running['run while it is open for writing'] = value(subprocess.run, [program], stdin=subprocess.DEVNULL)
    os.close(fd)
    fd = os.open(program, os.O_RDONLY)
    running['run while it is open for reading'] = value(lambda: subprocess.run([program], stdin=subprocess.DEVNULL).returncode)
    os.close(fd)
    with open(program, 'r+b') as f:
        m = mmap.mmap(f.fileno(), 4096, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
    running['run while it is mapped for writing'] = value(subprocess.run, [program], stdin=subprocess.DEVNULL)
    m.close()
    running['afterwards'] = value(lambda: subprocess.run([program], stdin=subprocess.DEVNULL).returncode)
    put(top + '/script', b'#!/bin/sh\nexit 3\n')
    os.chmod(top + '/script', 0o755)
    fd = os.open(top + '/script', os.O_WRONLY)
    running['a script that is open for writing'] = value(lambda: subprocess.run([top + '/script']).returncode)
    os.close(fd)
    return running


def text_busy(env):
    base = env.filesystem('ext4', 64) if os.geteuid() == 0 else env.directory()
    plain = base + '/plain'
    os.mkdir(plain)
    m = env.mount(on=base)
    want = busy_rows(plain)
    true('some rows say ETXTBSY: %s' % want, 'ETXTBSY' in want.values())
    compare('ETXTBSY', want, busy_rows(m.path))


# ---- EFAULT -----------------------------------------------------------------------------------------------------------------

def bad_buffers(top):
    """Buffers that are nowhere, may not be written, or end in the middle."""
    put(top + '/file', bytes(range(256)) * 64)
    os.setxattr(top + '/file', 'user.name', b'value' * 20)
    os.symlink('t' * 50, top + '/link')
    os.mkdir(top + '/dir')
    for i in range(200):
        put(top + '/dir/entry%d' % i)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
    area = libc.mmap(None, 3 * 4096, 3, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
    libc.mprotect(ctypes.c_void_p(area), 4096, mmap.PROT_READ)
    libc.munmap(ctypes.c_void_p(area + 8192), 4096)
    places = {'nowhere': 16, 'read-only': area, 'ends early': area + 8192 - 64, 'good': area + 4096}
    path = lambda name: os.fsencode(top + '/' + name)
    out = {}
    fd = os.open(path('file'), os.O_RDWR)
    listing = os.open(path('dir'), os.O_RDONLY)

    def call(name, number, *args):
        r = libc.syscall(ctypes.c_long(number), *(ctypes.c_long(a) if isinstance(a, int) else a for a in args))
        return r if r >= 0 else common.errno_name(OSError(ctypes.get_errno(), ''))
    SYS = {'read': 0, 'write': 1, 'pread': 17, 'pwrite': 18, 'readv': 19, 'writev': 20, 'getdents': 217, 'readlink': 89, 'getxattr': 191, 'listxattr': 194,
           'setxattr': 188, 'stat': 4, 'fstat': 5, 'statfs': 137, 'statx': 332, 'utimensat': 280, 'getcwd': 79, 'copy_file_range': 326}
    for where, at in places.items():
        def row(name, number, *args):
            out['%s, buffer %s' % (name, where)] = call(name, SYS[number], *args)
        os.lseek(fd, 0, os.SEEK_SET)
        row('read', 'read', fd, at, 100)
        row('read behind', 'read', fd, at, 100)  # where the first has left the position
        row('read nothing', 'read', fd, at, 0)
        row('pread', 'pread', fd, at, 200, 4000)
        row('pread at the end', 'pread', fd, at, 100, 16384)
        row('pread a page', 'pread', fd, at, 4096, 0)
        os.lseek(listing, 0, os.SEEK_SET)
        row('getdents', 'getdents', listing, at, 2000)
        out['entries, buffer ' + where] = len(os.listdir(top + '/dir'))
        row('getdents into too little', 'getdents', listing, at, 8)
        row('readlink', 'readlink', path('link'), at, 100)
        row('readlink of nothing', 'readlink', path('none'), at, 100)
        row('readlink of a file', 'readlink', path('file'), at, 100)
        row('getxattr', 'getxattr', path('file'), b'user.name', at, 200)
        row('getxattr into too little', 'getxattr', path('file'), b'user.name', at, 5)
        row('getxattr of none', 'getxattr', path('file'), b'user.none', at, 200)
        row('listxattr', 'listxattr', path('file'), at, 100)
        row('listxattr into too little', 'listxattr', path('file'), at, 3)
        row('name of an xattr', 'getxattr', path('file'), at, None, 0) if where == 'nowhere' else None
        row('statfs', 'statfs', path('file'), at)
        row('statx', 'statx', kernel.AT_FDCWD, path('file'), 0, 0x7ff, at) if where != 'ends early' else None
        row('a path', 'stat', at, area + 4096) if where == 'nowhere' else None
        if where != 'good':
            ctypes.memset(area + 4096, 7, 4096)
            row('write', 'pwrite', fd, at, 100, 0) if where != 'read-only' else None
            row('write over a page\'s end', 'pwrite', fd, at, 300, 4000) if where != 'read-only' else None
        row('setxattr', 'setxattr', path('file'), b'user.other', at, 100, 0) if where in ('nowhere', 'ends early') else None
        out['size, buffer ' + where] = os.fstat(fd).st_size
        out['position, buffer ' + where] = os.lseek(fd, 0, os.SEEK_CUR)
    out['content'] = get(top + '/file')
    out['xattrs'] = os.listxattr(top + '/file')
    os.close(fd)
    os.close(listing)
    return out


def bad_addresses(env):
    if os.uname().machine != 'x86_64':
        raise common.Skip('the system calls\' numbers are those of x86-64')
    base = env.filesystem('ext4', 64) if os.geteuid() == 0 else env.directory()
    plain = base + '/plain'
    os.mkdir(plain)
    m = env.mount(on=base)
    want, got = common.in_child(bad_buffers, plain), common.in_child(bad_buffers, m.path)
    true('some rows say EFAULT', list(want.values()).count('EFAULT') > 20)
    compare('EFAULT', want, got)


# ---- limits of a filesystem, and what else may be wrong -----------------------------------------------------------------------

def fill_links(top):
    """As many names as one file may have in a directory, all of them this long."""
    os.mkdir(top + '/links')
    put(top + '/links/many')
    for i in range(2000):
        if value(os.link, top + '/links/many', top + '/links/%0100d' % i) == 'EMLINK':
            break
    else:
        raise Failed('expected EMLINK within 2,000 links')
    for i in range(41):
        os.symlink('hop%d' % (i - 1) if i else '.', top + '/links/hop%d' % i)
    os.symlink('loop', top + '/links/loop')
    for name, mode in (('closed', 0), ('readonly', 0o555)):
        os.mkdir(top + '/links/' + name)
        os.chmod(top + '/links/' + name, mode)
    put(top + '/links/taken')
    os.chmod(top + '/links', 0o777)
    os.chmod(top, 0o755)


def link_rows(top):
    os.chdir(top + '/links')
    rows = {n[:30] + ' (%d)' % len(n): value(os.link, 'many', n) for n in (
        'n' * 100, 'taken', 'loop', 'loop/x', 'missing/x', TOO_LONG, 'missing/' + TOO_LONG, 'taken/x', 'n' * 100 + '/', 'closed/x', 'readonly/x', 'x' * 4096, '')}
    for n in ('hop39', 'hop40', 'hop39/' + TOO_LONG, 'hop40/' + TOO_LONG, 'hop40/' + 'x' * 4090, 'hop39/taken', 'hop39/taken/x', 'hop39/none', 'loop/' + TOO_LONG):
        rows['stat ' + n[:12] + ' (%d)' % len(n)] = value(lambda: stat.S_IFMT(os.stat(n).st_mode))
    return rows


def most_links(env):
    """EMLINK and ELOOP against the others. Btrfs without its extended references lets a file have few names in one directory; the 65,000 of ext4 are
    in tests/mount/limits.py."""
    common.need_root()
    user = env.user()
    base = env.filesystem('btrfs', 256, mkfs=['-O', '^extref'])
    os.chmod(base, 0o755)
    plain = base + '/plain'
    os.mkdir(plain)
    m = env.mount(on=base, options='allow_other')
    for top in (plain, m.path):
        fill_links(top)
    for who, do in (('root', common.in_child), ('a user', user.call)):
        want = do(link_rows, plain)
        compare('as ' + who, want, do(link_rows, m.path))
        if who == 'root':
            equal('one more', want['n' * 30 + ' (100)'], 'EMLINK')
            true('there are loops', 'ELOOP' in want.values())


if __name__ == '__main__':
    common.main([erofs, erofs_meanwhile, text_busy, bad_addresses, most_links])
