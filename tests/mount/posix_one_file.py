#!/usr/bin/python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""One file under random reads, writes, mappings, truncations, holes, copies, reopening and remounting, against an array of bytes.

The seed is printed; ECFS_POSIX_SEED sets it, ECFS_POSIX_OPS the number of operations (the long run: 200000)."""
import ctypes
import errno
import mmap
import os
import random

import common
from common import Failed, equal, gives, same_bytes

SEED = int(os.environ.get('ECFS_POSIX_SEED', '0')) or random.SystemRandom().randrange(1, 1 << 31)
OPS = int(os.environ.get('ECFS_POSIX_OPS', '1500'))
LIMIT = 300_000  # bytes: some seventy blocks, so that operations meet each other
KEEP, PUNCH, COLLAPSE, ZERO, INSERT = 1, 2, 8, 16, 32
LIBC = ctypes.CDLL(None, use_errno=True)


def fallocate(fd, mode, off, length):
    if LIBC.fallocate(fd, mode, ctypes.c_int64(off), ctypes.c_int64(length)) != 0:
        raise OSError(ctypes.get_errno(), 'fallocate')


class Model:
    """The file and what it must hold."""

    def __init__(self, m, path, r):
        self.m, self.path, self.r = m, path, r
        self.want = bytearray()
        self.fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)

    def span(self):
        edges = (0, 1, 3935, 3936, 4096, 8000, 8001, 65536, len(self.want), max(0, len(self.want) - 1))
        off = self.r.choice(edges) if self.r.random() < 0.3 else self.r.randrange(LIMIT)
        return min(off, LIMIT - 1), min(self.r.choice((1, 100, 4064, 5000, 40_000)), LIMIT - min(off, LIMIT - 1))

    def grow(self, size):
        if size > len(self.want):
            self.want.extend(bytes(size - len(self.want)))

    def put(self, off, data):
        self.grow(off + len(data))
        self.want[off:off + len(data)] = data

    def op_write(self):
        off, n = self.span()
        data = self.r.randbytes(n)
        equal('bytes written', os.pwrite(self.fd, data, off), n)
        self.put(off, data)

    def op_append(self):
        data = self.r.randbytes(self.r.randrange(1, 6000))
        if len(self.want) + len(data) > LIMIT:
            return
        fd = os.open(self.path, os.O_WRONLY | os.O_APPEND)
        os.pwrite(fd, data, 0)  # Linux appends, whatever the offset says
        os.close(fd)
        self.put(len(self.want), data)

    def op_read(self):
        off, n = self.span()
        same_bytes('read of %d at %d' % (n, off), os.pread(self.fd, n, off), bytes(self.want[off:off + n]))

    def op_map_read(self):
        if self.want:
            with mmap.mmap(self.fd, len(self.want), prot=mmap.PROT_READ) as p:
                off, n = self.span()
                same_bytes('mapped read of %d at %d' % (n, off), p[off:off + n], bytes(self.want[off:off + n]))

    def op_map_write(self):
        if not self.want:
            return
        off = self.r.randrange(len(self.want))
        data = self.r.randbytes(min(self.r.choice((1, 4000, 9000)), len(self.want) - off))
        with mmap.mmap(self.fd, len(self.want)) as p:
            p[off:off + len(data)] = data
            if self.r.random() < 0.5:
                p.flush()
        self.put(off, data)

    def op_truncate(self):
        size = self.span()[0]
        if self.r.random() < 0.5:
            os.ftruncate(self.fd, size)
        else:
            os.truncate(self.path, size)
        del self.want[size:]
        self.grow(size)

    def op_punch(self):
        off, n = self.span()
        fallocate(self.fd, PUNCH | KEEP, off, n)
        end = min(off + n, len(self.want))
        self.want[off:end] = bytes(max(0, end - off))

    def op_zero(self):
        off, n = self.span()
        keep = self.r.random() < 0.5
        fallocate(self.fd, ZERO | (KEEP if keep else 0), off, n)
        if not keep:
            self.grow(off + n)
        end = min(off + n, len(self.want))
        self.want[off:end] = bytes(max(0, end - off))

    def op_allocate(self):
        off, n = self.span()
        keep = self.r.random() < 0.5
        fallocate(self.fd, KEEP if keep else 0, off, n)
        if not keep:
            self.grow(off + n)

    def op_refused(self):
        """Difference: no-such-call. What cannot be done is refused, and nothing happens."""
        gives('collapse', 'EOPNOTSUPP', fallocate, self.fd, COLLAPSE, 0, 4096)
        gives('insert', 'EOPNOTSUPP', fallocate, self.fd, INSERT, 0, 4096)

    def op_copy(self):
        src, n = self.span()
        dst = self.span()[0]
        n = min(n, max(0, len(self.want) - src), LIMIT - dst)
        if n <= 0 or (src < dst + n and dst < src + n):
            return
        done = 0
        while done < n:
            got = os.copy_file_range(self.fd, self.fd, n - done, src + done, dst + done)
            if got == 0:
                raise Failed('copy_file_range: expected %d bytes, got %d' % (n, done))
            done += got
        self.put(dst, bytes(self.want[src:src + n]))

    def op_seek(self):
        """SEEK_DATA and SEEK_HOLE hide nothing that is not zeros."""
        at = 0
        while at < len(self.want):
            try:
                data = os.lseek(self.fd, at, os.SEEK_DATA)
            except OSError as e:
                equal('errno of SEEK_DATA', e.errno, errno.ENXIO)
                data = len(self.want)
            if any(self.want[at:data]):
                raise Failed('SEEK_DATA at %d: expected nothing but zeros before %d' % (at, data))
            at = os.lseek(self.fd, data, os.SEEK_HOLE) if data < len(self.want) else data

    def op_sync(self):
        os.fsync(self.fd)

    def op_reopen(self):
        os.close(self.fd)
        self.fd = os.open(self.path, os.O_RDWR)

    def op_forget_pages(self):
        os.fsync(self.fd)
        os.posix_fadvise(self.fd, 0, 0, os.POSIX_FADV_DONTNEED)

    def whole(self):
        equal('size', os.fstat(self.fd).st_size, len(self.want))
        same_bytes('the whole file', os.pread(self.fd, LIMIT + 1, 0), bytes(self.want))

    def remount(self):
        os.close(self.fd)
        self.m.remount()
        self.fd = os.open(self.path, os.O_RDWR)
        self.whole()


def random_operations(env, **init):
    print('seed %d, %d operations' % (SEED, OPS), flush=True)
    m = env.mount(**init)
    model = Model(m, m / 'file', random.Random(SEED))
    names = sorted(n for n in dir(Model) if n.startswith('op_'))
    weights = [6 if n in ('op_write', 'op_read', 'op_map_write', 'op_truncate', 'op_punch', 'op_zero') else 2 for n in names]
    last = []
    for i in range(OPS):
        name = model.r.choices(names, weights)[0]
        last = last[-30:] + [name]
        try:
            getattr(model, name)()
            if i % 25 == 0:
                model.whole()
            if i % max(OPS // 4, 1) == OPS // 8:
                model.remount()
        except (Failed, OSError) as e:
            raise Failed('seed %d, operation %d (%s): %s' % (SEED, i, ' '.join(n[3:] for n in last), e))
    model.whole()
    model.remount()
    os.close(model.fd)


def one_file(env):
    random_operations(env)


def one_file_chacha(env):
    random_operations(env, cipher='chacha20-poly1305', names='plain')


if __name__ == '__main__':
    common.main([one_file, one_file_chacha], limit=3600)
