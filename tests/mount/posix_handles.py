#!/usr/bin/python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""What else hangs on the kernel's idea of an object: file handles, which are refused cleanly; positions in a directory across a remount; who a call
is made as where a process has taken on another file system user id; and what a caller who cannot be named may read of the error of a lost write."""
import ctypes
import os
import socket
import struct

import common
import kernel
from cells import value
from common import equal, get, gives, put, true
from kernel import libc

AT_HANDLE_FID = 0x200


def handle(path, size=128, flags=0):
    """The type and bytes of a handle, name_to_handle_at(2)."""
    buffer = ctypes.create_string_buffer(struct.pack('Ii', size, 0) + bytes(size))
    mount_id = ctypes.c_int()
    if libc.name_to_handle_at(kernel.AT_FDCWD, os.fsencode(path), buffer, ctypes.byref(mount_id), flags) != 0:
        raise OSError(ctypes.get_errno(), 'name_to_handle_at')
    length, kind = struct.unpack_from('Ii', buffer)
    return kind, buffer.raw[8:8 + length]


def by_handle(top, kind, data):
    buffer = ctypes.create_string_buffer(struct.pack('Ii', len(data), kind) + data)
    mount = os.open(top, os.O_RDONLY)
    try:
        fd = libc.open_by_handle_at(mount, buffer, os.O_RDONLY)
        if fd < 0:
            raise OSError(ctypes.get_errno(), 'open_by_handle_at')
        os.close(fd)
    finally:
        os.close(mount)


def file_handles(env):
    """None that could be opened again: it would be worth nothing once the kernel has forgotten the file (docs/DIFFERENCES.md, `no-such-call`)."""
    common.need_root()
    base = env.filesystem('ext4', 64)
    m = env.mount(on=base)
    for top in (base, m.path):
        put(top + '/file', b'content')
        os.mkdir(top + '/dir')
        os.symlink('file', top + '/link')
    by_handle(base, *handle(base + '/file'))  # the kernel can, and the plain directory does
    for name in ('', 'file', 'dir', 'link'):
        gives('a handle of %r' % name, 'EOPNOTSUPP', handle, m / name)
        gives('into no room', 'EOPNOTSUPP', handle, m / name, 0)
    gives('of nothing', 'ENOENT', handle, m / 'nothing')
    # What a handle from elsewhere, or one that was made up, opens: nothing. Also none that names one of the daemon's own nodes.
    kind, data = handle(base + '/file')
    guesses = [(kind, data), (0x81, struct.pack('QI', 1, 0)), (0x81, struct.pack('QI', os.stat(m / 'file').st_ino, 0)), (1, struct.pack('II', 1, 0)), (0, b'')]
    for guess in guesses:
        true('opened by a handle: %s' % value(by_handle, m.path, *guess), value(by_handle, m.path, *guess) in ('EOPNOTSUPP', 'ESTALE', 'EINVAL'))
    # What only tells objects apart (fanotify(7)) is the kernel's own doing, where it has it.
    kinds = {name: value(handle, m / name, 128, AT_HANDLE_FID) for name in ('file', 'dir')}
    if not isinstance(kinds['file'], str):
        true('those that are only compared differ: %s' % kinds, kinds['file'] != kinds['dir'])
    exported = common.run(['exportfs', '-o', 'rw,fsid=77', 'localhost:' + m.path], ok=None) if common.shutil.which('exportfs') and os.path.exists('/proc/fs/nfsd/exports') else None
    if exported is not None:
        common.run(['exportfs', '-u', 'localhost:' + m.path], ok=None)
        true('exportfs says that it cannot: ' + exported.stdout, 'does not support NFS export' in exported.stdout)
    equal('all is well', get(m / 'file'), b'content')


def positions_outlive_a_mount(env):
    """telldir's answer is a place in the directory as it is stored: a program that keeps one finds it again."""
    m = env.mount()
    os.mkdir(m / 'd')
    for i in range(300):
        put(m / ('d/%03d' % i))
    listing = kernel.Directory(m / 'd')
    order, at = [], []
    while entry := listing.read():
        order.append(entry[0])
        at.append(listing.tell())
    listing.close()
    m.remount()
    listing = kernel.Directory(m / 'd')
    for i in (0, 150, 7, 298):
        listing.seek(at[i])
        equal('behind position %d' % i, listing.read()[0], order[i + 1])
    gone = set(order[100:200]) - {b'.', b'..'}
    # Others remove while this one is in the middle.
    def remove():
        for n in gone:
            os.unlink(os.path.join(os.fsencode(m / 'd'), n))
    listing.seek(at[50])
    seen = [listing.read()[0] for _ in range(10)]
    common.in_child(remove)
    seen += [n for n, _ in listing.rest()]
    true('what stayed is listed once', [n for n in seen if n not in gone] == [n for n in order[51:] if n not in gone])
    listing.seek(at[150])
    equal('from a position whose entry is gone', [n for n, _ in listing.rest()], [n for n in order[151:] if n not in gone])
    listing.close()


def as_another(top, uid):
    """A process of root's that makes its calls as somebody else, setfsuid(2): it has lost the rights over files, and kept the others."""
    libc.setfsgid(uid)
    libc.setfsuid(uid)
    out = {}

    def changed(name, f):
        out[name] = value(f), '%o' % os.stat(top + '/' + name).st_mode
    changed('written', lambda: write(top + '/written'))
    changed('allocated', lambda: os.posix_fallocate(opened(top + '/allocated'), 0, 20000))
    changed('cut', lambda: os.truncate(top + '/cut', 1))
    changed('nobody', lambda: os.chown(top + '/nobody', -1, -1))
    put(top + '/made')
    os.mkdir(top + '/made dir')
    for name in ('made', 'made dir'):
        st = os.stat(top + '/' + name)
        out[name] = ('%o' % st.st_mode, st.st_uid, st.st_gid)
    out['given away'] = value(os.chown, top + '/made', 0, 0)
    out['device'] = value(os.mknod, top + '/device', 0o20600, os.makedev(1, 3))
    out['closed'] = value(get, top + '/closed')
    out['xattrs'] = value(os.listxattr, top + '/written')
    out['trusted'] = value(os.getxattr, top + '/written', 'trusted.t')
    return out


def opened(path):
    return os.open(path, os.O_RDWR)


def write(path):
    fd = opened(path)
    os.write(fd, b'new')
    os.fsync(fd)


def fsuid(env):
    common.need_root()
    base = env.filesystem('ext4', 64)
    m = env.mount(on=base, options='allow_other,dev,suid')
    plain = base + '/plain'
    os.mkdir(plain)
    uid, results = common.unused_uid(), []
    for top in (plain, m.path):
        os.chmod(top, 0o2777)
        for name in ('written', 'allocated', 'cut', 'nobody'):
            put(top + '/' + name, b'content')
            os.chown(top + '/' + name, uid, uid)
            os.chmod(top + '/' + name, 0o6777)
        os.setxattr(top + '/written', 'trusted.t', b'1')
        put(top + '/closed', b'secret')
        os.chmod(top + '/closed', 0o600)
        results.append(common.in_child(as_another, top, uid))
    equal('as another file system user', results[1], results[0])
    true('set-id bits went', results[0]['allocated'] == (None, '100777'))


def copies(source, target, way):
    """Copies 10 bytes from the start of one file to the start of another, by a call that names both."""
    a, b = os.open(source, os.O_RDONLY), os.open(target, os.O_WRONLY | os.O_CREAT)
    r, w = os.pipe()
    try:
        if way == 'sendfile':
            return os.sendfile(b, a, 0, 10)
        os.write(w, b'0123456789')
        return os.splice(r, b, 10)
    finally:
        for fd in (a, b, r, w):
            common.outcome(os.close, fd)


def lost_write(env):
    """The error of what could not be written back goes to a writer, not to one who reads, whichever call it reads by."""
    common.need_root()
    m = env.mount(on=env.filesystem('ext4', 24, mkfs=['-m', '0']))
    room = b'r' * (4 << 20)
    for way in ('sendfile',):
        put(m / 'room', room)
        put(m / 'source', b'abcdefghijklmnop')
        os.sync()
        fd = os.open(m / 'big', os.O_RDWR | os.O_CREAT)
        before = m.status()['damage']['unwritten']
        for i in range(22):
            if common.outcome(os.pwrite, fd, common.data_of(1 << 20, i), i << 20) != 'OK':
                break
        os.sync()
        true('write-back failed', m.status()['damage']['unwritten'] > before)
        size = os.fstat(fd).st_size

        def reads():
            other = os.open(m / 'big', os.O_RDONLY)
            r, w = os.pipe()
            ours, theirs = socket.socketpair()
            out = [value(os.sendfile, theirs.fileno(), other, size - 5, 100), value(os.splice, other, w, 100, size - 5),
                   value(os.preadv, other, [bytearray(100)], size - 5)]
            return out
        equal('who reads is not told', common.in_child(reads), [5, 5, 5])
        gives('the next write, by ' + way, 'ENOSPC', common.in_child, copies, m / 'source', m / 'big', way)
        common.outcome(os.close, fd)
        os.unlink(m / 'big')
        os.unlink(m / 'room')
        common.wait_until('there is room again', lambda: common.outcome(put, m / 'again', bytes(12 << 20)) == 'OK')
        os.unlink(m / 'again')


if __name__ == '__main__':
    common.main([file_handles, positions_outlive_a_mount, fsuid, lost_write])
