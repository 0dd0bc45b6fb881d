#!/usr/bin/python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""The message budget: what each kind of work costs in FUSE messages, by the daemon's own counters. Nothing is timed."""
import ctypes
import os
import platform

import common
from common import equal, true

N = 50
SYS_GETDENTS64 = {'x86_64': 217}.get(platform.machine(), 61)


# With the write-back cache a file's mtime is the kernel's. Where a tick of its clock falls between the creation and the write, it sends the
# mtime at close. The kernel's own, and a matter of chance.
TICK = (0, N)


def write_file(path, data):
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    os.write(fd, data)
    os.close(fd)


def create(path, n=N, size=5000):
    for i in range(n):
        write_file('%s/f%04d' % (path, i), b'x' * size)


def budget(what, got, want):
    """want: message -> count, or (least, most)."""
    for name in sorted(set(got) | set(want)):
        low, high = want[name] if isinstance(want.get(name), tuple) else (want.get(name, 0),) * 2
        n = got.get(name, 0)
        true('%s: %s, expected %s to %s, got %d (all: %s)' % (what, name, low, high, n, got), low <= n <= high)


def prime(m):
    """Lets the kernel learn what a new mount answers with ENOSYS, each once: CREATE, FLUSH, OPEN, OPENDIR."""
    fd = os.open(m / 'prime', os.O_RDWR | os.O_CREAT, 0o644)
    os.write(fd, b'x')
    os.close(fd)
    os.listdir(m.path)
    return m


def fresh_dir(m, name='d'):
    prime(m)
    os.mkdir(m / name)
    os.stat(m / name)
    return m / name


def getdents(path, size):
    """Reads a directory with buffers of `size`; the number of entries, without . and .."""
    libc = ctypes.CDLL(None, use_errno=True)
    buffer = ctypes.create_string_buffer(size)
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    entries = 0
    try:
        while True:
            n = libc.syscall(SYS_GETDENTS64, fd, buffer, size)
            if n < 0:
                raise OSError(ctypes.get_errno(), 'getdents64')
            if n == 0:
                return entries
            at = 0
            while at < n:
                entries += not buffer.raw[at + 19:at + 22].startswith((b'.\0', b'..\0'))
                at += int.from_bytes(buffer.raw[at + 16:at + 18], 'little')
    finally:
        os.close(fd)


def status_itself(env):
    m = env.mount()
    _, got = m.counted(lambda: None)
    budget('asking for the status', got, {})


def creating(env):
    m = env.mount()
    d = fresh_dir(m)
    write_file(d + '/first', b'1')
    for size in (1, 5000, 1 << 20):
        _, got = m.counted(lambda: [write_file('%s/%d-%d' % (d, size, i), b'x' * size) for i in range(N)])
        budget('creating %d files of %d bytes' % (N, size), got,
               {'LOOKUP': N, 'MKNOD': N, 'GETXATTR': N, 'GETATTR': (N - 1, N), 'WRITE': N, 'SETATTR': TICK})


def creating_noxattr(env):
    m = env.mount(options='noxattr')
    d = fresh_dir(m)
    write_file(d + '/first', b'1')
    _, got = m.counted(create, d)
    budget('creating %d files with noxattr' % N, got, 
           {'LOOKUP': N, 'MKNOD': N, 'GETATTR': (N - 1, N), 'WRITE': N, 'SETATTR': TICK})


def warm(env):
    m = env.mount()
    d = fresh_dir(m)
    create(d)
    names = ['%s/f%04d' % (d, i) for i in range(N)]

    def stats():
        for p in names:
            equal('size', os.stat(p).st_size, 5000)

    def reads():
        for p in names:
            fd = os.open(p, os.O_RDONLY)
            equal('length', len(os.read(fd, 10000)), 5000)
            os.close(fd)

    def lists():
        equal('entries', len(os.listdir(d)), N)

    for kind in (stats, reads, lists):
        kind()
        kind()  # the kernel asks once more for attributes after a write, a cold read and a first listing
        for i in range(3):
            _, got = m.counted(kind)
            budget('%s, warm, round %d' % (kind.__name__, i), got, {})
    # On every close the kernel forgets how many blocks a file has (fuse_flush, since its write-back cache does not count them), and a
    # stat that follows asks again: one cheap GETATTR, and nothing but that.
    stats()
    for i in range(3):
        _, got = m.counted(lambda: [kind() for kind in (stats, stats, lists, reads, reads)])
        budget('all of it, warm, round %d' % i, got, {'GETATTR': (0, N)})
    # Names that are known not to be there.
    absent = lambda: [os.path.exists(d + '/none%d' % i) for i in range(N)]
    absent()
    _, got = m.counted(absent)
    budget('names that do not exist, warm', got, {})


def cold_read(env):
    m = env.mount()
    d = fresh_dir(m)
    create(d)

    def read_all(n=N, size=5000):
        for i in range(n):
            with open('%s/f%04d' % (d, i), 'rb', buffering=0) as f:
                equal('length', len(f.read(size)), size)
    prime(m.remount())
    os.stat(d)
    _, got = m.counted(read_all)
    budget('reading %d cold files' % N, got, {'LOOKUP': N, 'READ': N})
    prime(m.remount())
    os.stat(d)
    with os.scandir(d) as listing:
        for e in listing:
            e.stat()
    _, got = m.counted(read_all)
    budget('reading %d cold files after a listing' % N, got, {'READ': N})
    if os.geteuid() != 0:
        return
    # Evicted, not remounted.
    common.drop_caches(3)
    os.stat(d)
    _, got = m.counted(read_all)
    budget('reading %d files after drop_caches' % N, got, {'LOOKUP': N, 'READ': N})


def cold_big_read(env):
    m = env.mount()
    size = 64 << 20
    write = os.open(m / 'big', os.O_WRONLY | os.O_CREAT, 0o644)
    for _ in range(size >> 20):
        os.write(write, b'y' * (1 << 20))
    os.close(write)
    prime(m.remount())

    def read():
        with open(m / 'big', 'rb', buffering=0) as f:
            n = 0
            while block := f.read(1 << 20):
                n += len(block)
            equal('length', n, size)
    _, got = m.counted(read)
    # One READ a request: 1 MiB each once reading ahead is at its full size, smaller ones while it grows to that. Only root may raise
    # the kernel's 128 KiB.
    requests = size // ((1 << 20) if os.geteuid() == 0 else 128 << 10)
    budget('reading 64 MiB cold', got, {'READ': (requests, requests + 8)})
    _, got = m.counted(read)
    budget('reading 64 MiB again', got, {'GETATTR': (0, 1)})


def listing(env):
    m = env.mount()
    n = 2000
    d = fresh_dir(m)
    for i in range(n):
        write_file('%s/a-name-of-some-length-%05d' % (d, i), b'')
    prime(m.remount())
    os.stat(d)

    # A name of 27 bytes takes 152 + 27 bytes, rounded up to 8; the last request finds the end. The kernel asks for as much as
    # getdents' caller has room for.
    each, room = 184, 128 << 10
    requests = -(-(n + 2) // (room // each)) + 1
    count, got = m.counted(getdents, d, room)
    equal('entries', count, n)
    print('  %d entries, getdents with 128 KiB: %s' % (n, got))
    budget('listing with attributes, cold', got, {'READDIRPLUS': (2, requests)})

    def walk():
        with os.scandir(d) as it:
            equal('entries', sum(e.stat(follow_symlinks=False).st_size == 0 for e in it), n)
    walk()
    _, got = m.counted(walk)
    budget('listing and all attributes again', got, {})
    prime(m.remount())
    os.stat(d)
    # glibc makes room for as much as the directory's st_blksize.
    equal('st_blksize of a directory', os.stat(d).st_blksize, room)
    _, got = m.counted(walk)
    budget('listing with attributes by glibc, cold', got, {'READDIRPLUS': (2, requests)})


def appending(env):
    m = env.mount()
    d = fresh_dir(m)

    def append():
        fd = os.open(d + '/log', os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        for _ in range(1000):
            os.write(fd, b'z' * 100)
        os.close(fd)
    _, got = m.counted(append)
    budget('append 1000 x 100 bytes', got, {'LOOKUP': 1, 'MKNOD': 1, 'GETXATTR': 1, 'WRITE': 1, 'SETATTR': (0, 1)})


def unlinking(env):
    m = env.mount()
    d = fresh_dir(m)
    create(d)
    os.listdir(d)
    _, got = m.counted(lambda: [os.unlink('%s/f%04d' % (d, i)) for i in range(N)])
    budget('unlinking %d files' % N, got, {'GETATTR': (N - 1, N), 'UNLINK': N, 'SETATTR': (0, N)})


def renaming(env):
    m = env.mount()
    a, b = fresh_dir(m, 'a'), fresh_dir(m, 'b')
    create(a)
    os.listdir(a)

    def there():
        for i in range(N):
            os.rename('%s/f%04d' % (a, i), '%s/g%04d' % (b, i))
    _, got = m.counted(there)
    budget('renaming %d files to another directory' % N, got,
           {'LOOKUP': N, 'RENAME': N, 'SETATTR': (0, N), 'GETATTR': (2 * (N - 1), 2 * N)})
    _, got = m.counted(lambda: [os.rename('%s/g%04d' % (b, i), '%s/f%04d' % (a, i)) for i in range(N)])
    budget('renaming %d files back' % N, got, {'LOOKUP': N, 'RENAME': N, 'SETATTR': (0, N), 'GETATTR': (2 * (N - 1), 2 * N)})


if __name__ == '__main__':
    common.hold_caches()
    common.main([status_itself, creating, creating_noxattr, warm, cold_read, cold_big_read, listing, appending, unlinking, renaming])
