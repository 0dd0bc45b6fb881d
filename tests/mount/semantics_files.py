#!/usr/bin/python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""Contents: open and unlinked files, temporary files, allocation, holes, truncation, appending, direct and mapped I/O, locks."""
import contextlib
import errno
import fcntl
import mmap
import os
import random
import stat
import struct
import time

import common
import kernel
from common import FIRST, PAGE, PAYLOAD, data_of, equal, get, gives, need_root, outcome, put, run, same_bytes, true

SEED = int(os.environ.get('ECFS_SEED', '0')) or random.randrange(1 << 32)
LONG = 'l' * 255
# Around the ends of blocks, pages, and requests.
EDGES = sorted({0, 1, 15, PAGE - 1, PAGE, PAGE + 1, 8192, 65536, 131072, 1 << 20, (1 << 20) + 1,
                *(FIRST + k * PAYLOAD + d for k in (0, 1, 2, 31, 255) for d in (-1, 0, 1))})


@contextlib.contextmanager
def opened(path, flags, mode=0o644):
    fd = os.open(path, flags, mode)
    try:
        yield fd
    finally:
        os.close(fd)


def sizes(env):
    m = env.mount()
    for n in EDGES:
        put(m / ('f%d' % n), data_of(n))
    for when in ('at once', 'after a remount', 'cold'):
        for n in EDGES:
            p = m / ('f%d' % n)
            equal('%s: size' % when, os.stat(p).st_size, n)
            same_bytes('%s: %d bytes' % (when, n), get(p), data_of(n))
        if when == 'at once':
            m.remount()
        elif os.geteuid() == 0:
            common.drop_caches()


def unlinked(env):
    m = env.mount()
    for name in ('f', LONG):
        d = m / ('d-' + name[:100])
        os.mkdir(d)
        p = d + '/' + name
        put(p, b'before')
        with opened(p, os.O_RDWR) as fd, opened(p, os.O_WRONLY | os.O_SYNC) as sync, opened(p, os.O_RDONLY) as ro:
            os.unlink(p)
            equal('listing', os.listdir(d), [])
            os.rmdir(d)  # no hidden name is in the way
            equal('nothing but what is the format\'s in lower', set(os.listdir(m.lower)), {'ecfs.volume', 'ecfs.dir', 'ecfs.session'})
            equal('links', os.fstat(fd).st_nlink, 0)
            os.pwrite(sync, b'written' * 3000, 3)
            os.fchmod(fd, 0o641)
            os.utime(fd, ns=(1_000_000_001, 2_000_000_002))
            if os.geteuid() == 0:
                os.fchown(fd, 12, 34)
            os.setxattr(fd, 'user.x', b'value')
            equal('xattr', (os.getxattr(ro, 'user.x'), os.listxattr(fd)), (b'value', ['user.x']))
            os.removexattr(fd, 'user.x')
            st = os.fstat(ro)
            equal('mode', oct(st.st_mode & 0o7777), '0o641')
            equal('times', (st.st_atime_ns, st.st_mtime_ns), (1_000_000_001, 2_000_000_002))
            equal('size', st.st_size, 21003)
            if os.geteuid() == 0:
                equal('owner', (st.st_uid, st.st_gid), (12, 34))
            os.ftruncate(fd, 10)
            equal('truncated', os.pread(ro, 100, 0), b'befwritten')
            os.ftruncate(fd, 50000)
            os.fsync(fd)
            same_bytes('grown', os.pread(ro, 60000, 0), b'befwritten' + bytes(49990))
            if os.geteuid() == 0:
                common.drop_caches()
            same_bytes('grown, cold', os.pread(ro, 60000, 0), b'befwritten' + bytes(49990))
            kernel.fallocate(fd, kernel.FALLOC_PUNCH_HOLE | kernel.FALLOC_KEEP_SIZE, 0, 10)
            equal('punched', os.pread(fd, 10, 0), bytes(10))
            equal('opened again through /proc', get('/proc/self/fd/%d' % ro)[:5], bytes(5))
            put('/proc/self/fd/%d' % fd, b'new')
            equal('truncated and written through /proc', os.pread(ro, 10, 0), b'new')
            gives('a link to it', 'ENOENT', kernel.linkat_fd, fd, m / 'again')
        # Replaced by rename while open.
        put(m / 'a', b'old')
        put(m / 'b', b'new')
        with opened(m / 'a', os.O_RDWR) as fd:
            os.rename(m / 'b', m / 'a')
            os.pwrite(fd, b'OLD+', 0)
            equal('the replaced one', (os.pread(fd, 10, 0), os.fstat(fd).st_nlink), (b'OLD+', 0))
            equal('the new one', get(m / 'a'), b'new')
        os.unlink(m / 'a')
    with opened(m / 'last', os.O_RDWR | os.O_CREAT) as fd:
        os.link(m / 'last', m / 'other')
        os.unlink(m / 'last')
        equal('links of one with another name', os.fstat(fd).st_nlink, 1)
        os.write(fd, b'x')
        os.unlink(m / 'other')
        equal('links', os.fstat(fd).st_nlink, 0)
    common.wait_until('the daemon lets go of unlinked files', lambda: m.status()['caches']['pinned'] == 0)
    equal('lower directory', set(os.listdir(m.lower)), {'ecfs.volume', 'ecfs.dir', 'ecfs.session'})


def tmpfile(env):
    m = env.mount()
    os.mkdir(m / 'd')
    with opened(m / 'd', os.O_TMPFILE | os.O_RDWR, 0o640) as fd:
        os.write(fd, b'temporary' * 1000)
        st = os.fstat(fd)
        equal('links, size, mode', (st.st_nlink, st.st_size, oct(st.st_mode & 0o777)), (0, 9000, '0o640'))
        equal('no name', os.listdir(m / 'd'), [])
        kernel.linkat_fd(fd, m / 'd/named')
        equal('links', os.fstat(fd).st_nlink, 1)
        os.pwrite(fd, b'T', 0)
        kernel.linkat_fd(fd, m / LONG)
    same_bytes('content', get(m / 'd/named'), b'T' + (b'temporary' * 1000)[1:])
    with opened(m / 'd', os.O_TMPFILE | os.O_RDWR | os.O_EXCL, 0o600) as fd:
        os.write(fd, b'x')
        gives('a link where O_EXCL forbids it', 'ENOENT', kernel.linkat_fd, fd, m / 'never')
    with opened(m / 'd', os.O_TMPFILE | os.O_WRONLY, 0o000) as fd:
        os.write(fd, b'x' * 5000)
        os.fsync(fd)
    m.remount()
    same_bytes('content after a remount', get(m / LONG), b'T' + (b'temporary' * 1000)[1:])
    equal('links after a remount', os.stat(m / LONG).st_nlink, 2)
    equal('names', sorted(os.listdir(m.path)), sorted(['d', LONG]))


def allocation(env):
    m = env.mount()
    keep, punch, zero = kernel.FALLOC_KEEP_SIZE, kernel.FALLOC_PUNCH_HOLE, kernel.FALLOC_ZERO
    ranges = [(0, 1), (0, FIRST), (5, 3000), (FIRST - 1, 2), (FIRST, PAYLOAD), (4000, 20000), (0, 50000), (30000, 70000), (60000, 10), (49999, 1), (49999, 2)]
    for i, (off, n) in enumerate(ranges):
        for mode in (0, keep, keep | punch, zero, zero | keep):
            p = m / ('f%d-%d' % (i, mode))
            content = data_of(50000)
            put(p, content)
            with opened(p, os.O_RDWR) as fd:
                kernel.fallocate(fd, mode, off, n)
            want = bytearray(content)
            end = off + n
            if mode in (0, zero) and end > len(want):
                want.extend(bytes(end - len(want)))
            if mode & (punch | zero):
                stop = min(end, len(want))
                if off < stop:
                    want[off:stop] = bytes(stop - off)
            label = 'fallocate mode %d at %d for %d' % (mode, off, n)
            same_bytes(label, get(p), bytes(want))
            equal(label + ': size', os.stat(p).st_size, len(want))
    m.remount()
    for i, (off, n) in enumerate(ranges):
        equal('size after a remount', os.stat(m / ('f%d-0' % i)).st_size, max(50000, off + n))
    for mode in (kernel.FALLOC_COLLAPSE, kernel.FALLOC_INSERT, kernel.FALLOC_COLLAPSE | keep, punch):
        with opened(m / 'f0-0', os.O_RDWR) as fd:
            gives('fallocate mode %d' % mode, 'EOPNOTSUPP', kernel.fallocate, fd, mode, 4096, 4096)
    same_bytes('untouched by what is not supported', get(m / 'f0-0'), data_of(50000))
    with opened(m / 'w', os.O_WRONLY | os.O_CREAT) as fd:
        os.posix_fallocate(fd, 0, 100000)
        os.pwrite(fd, b'end', 99997)
        gives('a negative length', 'EINVAL', kernel.fallocate, fd, 0, 0, -1)
    same_bytes('posix_fallocate write-only', get(m / 'w'), bytes(99997) + b'end')
    with opened(m / 'w', os.O_RDONLY) as fd:
        gives('read-only descriptor', 'EBADF', kernel.fallocate, fd, 0, 0, 1)


def seek_map(fd):
    """[(start, end)] of what SEEK_DATA and SEEK_HOLE call data."""
    out, at = [], 0
    size = os.fstat(fd).st_size
    while at < size:
        try:
            start = os.lseek(fd, at, os.SEEK_DATA)
        except OSError as e:
            equal('errno after the last data', e.errno, errno.ENXIO)
            break
        end = os.lseek(fd, start, os.SEEK_HOLE)
        true('SEEK_HOLE at %d is behind SEEK_DATA at %d' % (end, start), end > start)
        out.append((start, end))
        at = end
    return out


def holes(env):
    m = env.mount()

    def data_is_covered(label, fd, written, size):
        """Every written byte lies in what is called data, and nothing lies behind the end."""
        found = seek_map(fd)
        for a, b in written:
            true('%s: the bytes %d to %d lie in data, %s' % (label, a, b, found), any(s <= a and b <= e for s, e in found))
        true('%s: ends at the size: %s' % (label, found), not found or found[-1][1] <= size)
        gives(label + ': SEEK_DATA at the end', 'ENXIO', os.lseek, fd, size, os.SEEK_DATA)
        gives(label + ': SEEK_HOLE at the end', 'ENXIO', os.lseek, fd, size, os.SEEK_HOLE)
        return found
    mib = 1 << 20
    # At once: the pages are dirty in the kernel, and the daemon has not seen them.
    for label, how in (('dirty', lambda fd: None), ('synced', os.fsync)):
        with opened(m / label, os.O_RDWR | os.O_CREAT) as fd:
            os.ftruncate(fd, 10 * mib)
            os.pwrite(fd, b'x' * 5000, 2 * mib)
            os.pwrite(fd, b'y', 5 * mib)
            how(fd)
            found = data_is_covered(label, fd, [(2 * mib, 2 * mib + 5000), (5 * mib, 5 * mib + 1)], 10 * mib)
            true(label + ': there are holes: %s' % found, sum(e - s for s, e in found) < mib)
            os.pwrite(fd, b'z', 7 * mib)
            equal(label + ': just written', os.lseek(fd, 7 * mib, os.SEEK_DATA), 7 * mib)
            os.pwrite(fd, b'z', 20 * mib)  # grows it
            equal(label + ': just grown', os.lseek(fd, 20 * mib, os.SEEK_DATA), 20 * mib)
            equal(label + ': its end', os.lseek(fd, 20 * mib, os.SEEK_HOLE), 20 * mib + 1)
    # The writer has written through another descriptor, or a mapping, and the file may be unreadable to who seeks: all dirty.
    with opened(m / 'other', os.O_WRONLY | os.O_CREAT, 0o200) as w, opened(m / 'other', os.O_WRONLY) as s:
        os.ftruncate(w, 4 * mib)
        os.pwrite(w, b'1', mib)
        equal('written by another descriptor', os.lseek(s, mib, os.SEEK_DATA), mib)
    with opened(m / 'mapped', os.O_RDWR | os.O_CREAT) as fd:
        os.ftruncate(fd, 4 * mib)
        with mmap.mmap(fd, 4 * mib) as mapped:
            mapped[mib:mib + 3] = b'map'
            true('written by a mapping', os.lseek(fd, 0, os.SEEK_DATA) <= mib)
            true('written by a mapping, hole behind it', os.lseek(fd, mib, os.SEEK_HOLE) > mib)
    with opened(m / 'gone', os.O_RDWR | os.O_CREAT) as fd:
        os.unlink(m / 'gone')
        os.ftruncate(fd, 4 * mib)
        os.pwrite(fd, b'1', mib)
        equal('unlinked, dirty', os.lseek(fd, mib, os.SEEK_DATA), mib)
        true('unlinked: the page cache agrees', os.pread(fd, 1, mib) == b'1')
    with opened(m / 'empty', os.O_RDWR | os.O_CREAT) as fd:
        gives('SEEK_DATA of an empty file', 'ENXIO', os.lseek, fd, 0, os.SEEK_DATA)
        gives('SEEK_HOLE of an empty file', 'ENXIO', os.lseek, fd, 0, os.SEEK_HOLE)
        gives('a negative offset', 'ENXIO', os.lseek, fd, -1, os.SEEK_DATA)
    # cp keeps contents, and sparse files sparse; so does cp of a file that is still dirty.
    with opened(m / 'dirty', os.O_RDWR) as fd:
        os.pwrite(fd, b'unsynced', 12 * mib)
        for how in ('always', 'auto', 'never'):
            run(['cp', '--sparse=' + how, m / 'dirty', m / ('copy-' + how)])
            same_bytes('cp --sparse=' + how, get(m / ('copy-' + how)), get(m / 'dirty'))
    os.sync()
    m.remount()
    true('the sparse copy is sparse', os.stat(m / 'copy-always').st_blocks * 512 < mib)
    with opened(m / 'dirty', os.O_RDONLY) as fd:
        data_is_covered('after a remount', fd, [(2 * mib, 2 * mib + 5000), (5 * mib, 5 * mib + 1), (12 * mib, 12 * mib + 8)], 20 * mib + 1)
        equal('a punched hole', kernel_punch(m / 'dirty', 2 * mib, 5000), None)
        true('punched: no data before 5 MiB, less than a block', os.lseek(fd, 0, os.SEEK_DATA) > 5 * mib - 2 * PAGE or
             os.lseek(fd, 2 * mib + 2 * PAGE + 5000, os.SEEK_DATA) > 5 * mib - 2 * PAGE)


def kernel_punch(path, off, n):
    with opened(path, os.O_RDWR) as fd:
        kernel.fallocate(fd, kernel.FALLOC_KEEP_SIZE | kernel.FALLOC_PUNCH_HOLE, off, n)


def truncation(env):
    """Random writes, truncations, reads against a byte array."""
    print('  seed %d (ECFS_SEED)' % SEED)
    m = env.mount()
    r = random.Random(SEED)
    p = m / 'f'
    put(p)
    want = bytearray()
    for round_ in range(3):
        with opened(p, os.O_RDWR) as fd, opened(p, os.O_RDONLY) as ro:
            for step in range(300):
                what = 'seed %d round %d step %d' % (SEED, round_, step)
                action = r.randrange(9)
                at = min(r.choice(EDGES) if r.random() < 0.6 else r.randrange(200000), 300000)
                n = min(r.choice(EDGES) if r.random() < 0.5 else r.randrange(9000), 70000)
                if action < 3:
                    data = r.randbytes(n)
                    os.pwrite(fd, data, at)
                    if at > len(want) and n:
                        want.extend(bytes(at - len(want)))
                    want[at:at + n] = data
                elif action < 6:
                    if action == 5:
                        os.truncate(p, at)  # by name, while only readers might be open
                    else:
                        os.ftruncate(fd, at)
                    del want[at:]
                    want.extend(bytes(at - len(want)))
                elif action == 6:
                    os.fsync(fd)
                elif action == 7 and at < len(want):
                    stop = min(at + n + 1, len(want))
                    kernel.fallocate(fd, kernel.FALLOC_KEEP_SIZE | kernel.FALLOC_PUNCH_HOLE, at, stop - at)
                    want[at:stop] = bytes(stop - at)
                else:
                    same_bytes(what + ': read', os.pread(ro, n, at), bytes(want[at:at + n]))
                if step % 25 == 0:
                    equal(what + ': size', os.fstat(ro).st_size, len(want))
                    same_bytes(what, os.pread(ro, len(want) + 1, 0), bytes(want))
        if os.geteuid() == 0 and round_ == 0:
            common.drop_caches()
        else:
            m.remount()
        equal('seed %d: size after round %d' % (SEED, round_), os.stat(p).st_size, len(want))
        same_bytes('seed %d after round %d' % (SEED, round_), get(p), bytes(want))


def truncation_read_only(env):
    m = env.mount()
    put(m / 'f', b'x' * 10000)
    with opened(m / 'f', os.O_RDONLY) as fd:
        os.pread(fd, 10000, 0)
        os.truncate(m / 'f', 5000)
        equal('read after shrinking', len(os.pread(fd, 10000, 0)), 5000)
        os.truncate(m / 'f', 9000)
        same_bytes('read after growing', os.pread(fd, 10000, 0), b'x' * 5000 + bytes(4000))
        with open(m / 'f', 'wb'):
            pass
        equal('read after O_TRUNC', os.pread(fd, 100, 0), b'')
        gives('ftruncate of it', 'EINVAL', os.ftruncate, fd, 0)
        os.fsync(fd)
        os.fdatasync(fd)
    with opened(m.path, os.O_RDONLY | os.O_DIRECTORY) as fd:
        os.fsync(fd)
        os.fdatasync(fd)


def big_sizes(env):
    m = env.mount()
    plain = env.directory()
    for d in (m.path, plain):
        put(d + '/f')
    for n in (1 << 32, (1 << 32) + 1, 1 << 40):
        os.truncate(m / 'f', n)
        equal('size', os.stat(m / 'f').st_size, n)
        with opened(m / 'f', os.O_RDWR) as fd:
            equal('last byte', os.pread(fd, 10, n - 1), b'\0')
            os.pwrite(fd, b'here', n // 2)
            os.fsync(fd)
            equal('written far out', os.pread(fd, 4, n // 2), b'here')
    m.remount()
    equal('size after a remount', os.stat(m / 'f').st_size, 1 << 40)
    with opened(m / 'f', os.O_RDONLY) as fd:
        equal('far out', os.pread(fd, 4, 1 << 39), b'here')
    true('it takes little space', os.stat(m / 'f').st_blocks < 1000)
    # More than the lower filesystem takes: its own errno, and nothing changed.
    for n in ((1 << 63) - 1, (1 << 63) - PAGE):
        equal('truncate to %d as on the plain directory' % n, outcome(os.truncate, m / 'f', n), outcome(os.truncate, plain + '/f', n))
    equal('size', os.stat(m / 'f').st_size, (1 << 63) - PAGE if outcome(os.truncate, plain + '/f', (1 << 63) - PAGE) == 'OK' else 1 << 40)


def appending(env):
    m = env.mount()
    put(m / 'log')

    def work(k):
        with opened(m / 'log', os.O_WRONLY | os.O_APPEND) as fd:
            for i in range(500):
                os.write(fd, b'%d %04d %s\n' % (k, i, b'.' * (i % 100)))
    pids = []
    for k in range(3):
        pid = os.fork()
        if pid == 0:
            code = 1
            with contextlib.suppress(BaseException):
                work(k)
                code = 0
            os._exit(code)
        pids.append(pid)
    for pid in pids:
        equal('a writer ends well', os.waitpid(pid, 0)[1], 0)
    for _ in range(2):
        lines = get(m / 'log').split(b'\n')
        equal('last', lines.pop(), b'')
        for k in range(3):
            mine = [x for x in lines if x.startswith(b'%d ' % k)]
            equal('lines of writer %d, whole and in order' % k, mine, [b'%d %04d %s' % (k, i, b'.' * (i % 100)) for i in range(500)])
        equal('lines', len(lines), 1500)
        m.remount()


def direct(env):
    """O_DIRECT, aligned and not, among cached readers."""
    m = env.mount()
    size = 3 << 20
    want = bytearray(data_of(size))
    put(m / 'f', bytes(want))
    buffer = mmap.mmap(-1, 1 << 20)
    with opened(m / 'f', os.O_RDWR | os.O_DIRECT) as fd, opened(m / 'f', os.O_RDWR) as cached:
        for off, n in ((0, 4096), (4096, 1 << 20), (FIRST, 4096), (1 << 20, 65536), (512, 512), (8192, 12288)):
            got = os.preadv(fd, [memoryview(buffer)[:n]], off)
            equal('direct read length', got, n)
            same_bytes('direct read at %d' % off, buffer[:n], bytes(want[off:off + n]))
            buffer[:n] = data_of(n, off)
            equal('direct write length', os.pwritev(fd, [memoryview(buffer)[:n]], off), n)
            want[off:off + n] = data_of(n, off)
            same_bytes('cached read of it', os.pread(cached, n + 100, off), bytes(want[off:off + n + 100]))
            os.pwrite(cached, b'cached', off + 7)  # dirty, and then read past the cache
            want[off + 7:off + 13] = b'cached'
            os.preadv(fd, [memoryview(buffer)[:n]], off)
            same_bytes('direct read of what is dirty', buffer[:n], bytes(want[off:off + n]))
        at = size - size % 4096
        n = os.preadv(fd, [memoryview(buffer)[:8192]], size - 4096)
        equal('direct read over the end', n, 4096)
        buffer[:4096] = b'e' * 4096
        os.pwritev(fd, [memoryview(buffer)[:4096]], at)  # grows
        want[at:at + 4096] = b'e' * 4096
    m.remount()
    same_bytes('after a remount', get(m / 'f'), bytes(want))


def mapped(env):
    m = env.mount()
    size = 300000
    put(m / 'f', bytes(size))
    os.utime(m / 'f', ns=(0, 0))
    with opened(m / 'f', os.O_RDWR) as fd:
        shared = mmap.mmap(fd, size)
        pid = os.fork()
        if pid == 0:
            code = 1
            with contextlib.suppress(BaseException):
                with opened(m / 'f', os.O_RDWR) as fd2, mmap.mmap(fd2, size) as other:
                    other[size - 10:size] = b'from child'
                    other[FIRST - 2:FIRST + 2] = b'edge'
                code = 0
            os._exit(code)
        equal('child', os.waitpid(pid, 0)[1], 0)
        equal('seen in the other mapping', shared[size - 10:size], b'from child')
        shared[0:5] = b'front'
        equal('seen by read', os.pread(fd, 5, 0), b'front')
        os.pwrite(fd, b'WRITE', 100)
        equal('a write seen in the mapping', shared[100:105], b'WRITE')
        shared.flush()
        shared.close()
    true('mtime follows a mapped write', os.stat(m / 'f').st_mtime_ns > 10**18)
    want = bytearray(size)
    want[:5], want[100:105], want[FIRST - 2:FIRST + 2], want[-10:] = b'front', b'WRITE', b'edge', b'from child'
    m.remount()
    same_bytes('after a remount', get(m / 'f'), bytes(want))
    # Left dirty, with the descriptor closed first, and read only after a remount.
    with opened(m / 'f', os.O_RDWR) as fd:
        private = mmap.mmap(fd, size, flags=mmap.MAP_PRIVATE)
        late = mmap.mmap(fd, size)
    private[:3] = b'no!'
    late[200:204] = b'late'
    late.close()
    private.close()
    want[200:204] = b'late'
    m.remount()
    same_bytes('late and private', get(m / 'f'), bytes(want))
    run(['cp', '/bin/true', m / 'true'])
    m.remount()
    run([m / 'true'])  # executed: mapped private
    with opened(m / 'f', os.O_RDONLY) as fd:
        gives('a writable mapping of a read-only descriptor', 'EACCES', lambda: mmap.mmap(fd, 10, prot=mmap.PROT_WRITE | mmap.PROT_READ))


def locks(env):
    m = env.mount()
    put(m / 'f', b'x' * 100)
    F_OFD_SETLK = 37
    kinds = {
        'flock': (lambda fd: fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB), 'EAGAIN'),
        'fcntl': (lambda fd: fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 10, 5), 'EAGAIN'),
        'ofd': (lambda fd: fcntl.fcntl(fd, F_OFD_SETLK, struct.pack('hhqqi4x', fcntl.F_WRLCK, 0, 5, 10, 0)), 'EAGAIN'),
    }
    for name, (lock, refused) in kinds.items():
        with opened(m / 'f', os.O_RDWR) as fd:
            lock(fd)

            def other():
                with opened(m / 'f', os.O_RDWR) as fd2:
                    return outcome(lock, fd2)
            equal(name + ': the second', common.in_child(other), refused)
        equal(name + ': afterwards', common.in_child(other), 'OK')
    with opened(m / 'f', os.O_RDWR) as fd:
        fcntl.lockf(fd, fcntl.LOCK_EX, 10, 0)

        def beside():
            with opened(m / 'f', os.O_RDWR) as fd2:
                return outcome(fcntl.lockf, fd2, fcntl.LOCK_EX | fcntl.LOCK_NB, 10, 50)
        equal('another range', common.in_child(beside), 'OK')


def owners_modes(env):
    """A user's files that the user may write but not read, and the like (the lower file is opened for both)."""
    user = env.user()
    m = env.mount(user=user)

    def there():
        os.chdir(m.path)
        out = {}
        with opened('w', os.O_WRONLY | os.O_CREAT, 0o200) as fd:
            os.write(fd, b'a' * 5000)
        with opened('w', os.O_WRONLY | os.O_APPEND) as fd:
            os.write(fd, b'b' * 100)
        with opened('w', os.O_WRONLY) as fd:
            os.pwrite(fd, b'C', 10)  # within a block
            os.pwrite(fd, b'C', 4500)
        out['0200 is not read'] = outcome(os.open, 'w', os.O_RDONLY) == 'EACCES'
        out['0200 mode kept'] = stat.S_IMODE(os.stat('w').st_mode) == 0o200
        os.chmod('w', 0o600)
        out['0200 content'] = get('w') == b'a' * 10 + b'C' + b'a' * 4489 + b'C' + b'a' * 499 + b'b' * 100
        os.chmod('w', 0o200)
        fd = os.open('r', os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o444)  # as git makes its objects
        os.write(fd, b'object' * 1000)
        os.fsync(fd)
        os.pwrite(fd, b'OBJECT', 0)
        os.close(fd)
        out['0444 content'] = get('r') == b'OBJECT' + b'object' * 999
        out['0444 is not written'] = outcome(os.open, 'r', os.O_WRONLY) == 'EACCES'
        out['0444 is not truncated'] = outcome(os.truncate, 'r', 0) == 'EACCES'
        fd = os.open('zero', os.O_RDWR | os.O_CREAT | os.O_EXCL, 0)
        os.write(fd, b'z' * 9000)
        os.fchmod(fd, 0o000)
        out['0000 through its descriptor'] = os.pread(fd, 3, 8000) == b'zzz'
        os.close(fd)
        out['0000 is not opened'] = outcome(os.open, 'zero', os.O_RDONLY) == 'EACCES'
        os.chmod('r', 0o400)
        out['0400 is not written'] = outcome(os.open, 'r', os.O_WRONLY) == 'EACCES'
        with opened('f', os.O_RDWR | os.O_CREAT) as fd:
            os.write(fd, b'q' * 5000)
            os.fchmod(fd, 0)  # after it was opened
            os.pwrite(fd, b'Q', 4000)
            os.unlink('f')
            out['unlinked with mode 0'] = os.pread(fd, 1, 4000) == b'Q'
        return out
    for k, v in user.call(there).items():
        true(k, v)
    # The same when the daemon has lost what it had open.
    m.umount()
    m.mount()

    def cold():
        os.chdir(m.path)
        with opened('w', os.O_WRONLY | os.O_APPEND) as fd:
            os.write(fd, b'd')
        out = {'0200 after a remount: mode kept': stat.S_IMODE(os.stat('w').st_mode) == 0o200}
        out['0200 size'] = os.stat('w').st_size == 5101
        os.chmod('zero', 0o600)
        out['0000 content'] = get('zero') == b'z' * 9000
        out['times of a file whose mode was widened for opening'] = True
        return out
    for k, v in user.call(cold).items():
        true(k, v)


def directories_of_modes(env):
    user = env.user()
    m = env.mount(user=user)

    def there():
        os.chdir(m.path)
        os.mkdir('src')
        os.mkdir('src/ro')
        put('src/ro/f', b'1')
        os.chmod('src/ro', 0o555)
        os.chmod('src', 0o555)
        run(['cp', '-r', 'src', 'dst'], cwd=m.path)
        run(['cp', '-a', 'src', 'dst-a'], cwd=m.path)
        equal('cp -r of a 0555 directory', (get('dst/ro/f'), oct(os.stat('dst/ro').st_mode & 0o777), oct(os.stat('dst-a').st_mode & 0o777)),
              (b'1', '0o555', '0o555'))
        gives('creating in it', 'EACCES', put, 'dst/ro/new')
        os.mkdir('bare', 0o555)
        equal('mkdir 0555', oct(os.stat('bare').st_mode & 0o777), '0o555')
        gives('creating in that', 'EACCES', put, 'bare/new')
        for mode in (0o000, 0o555, 0o300, 0o400, 0o100, 0o700):
            for long in (False, True):
                name = 'm%o' % mode + ('L' * 200 if long else '')
                os.mkdir(name)
                os.chmod(name, mode)
                equal('mode of %s' % name, oct(os.stat(name).st_mode & 0o777), oct(mode))
                os.rmdir(name)
        # Removal that fails leaves the mode as it was, and all that is in it.
        os.mkdir('full')
        put('full/in', b'x')
        os.chmod('full', 0)
        gives('rmdir of a full 0000 directory', 'ENOTEMPTY', os.rmdir, 'full')
        equal('its mode', oct(os.stat('full').st_mode & 0o777), '0o0')
        gives('listing it', 'EACCES', os.listdir, 'full')
        os.chmod('full', 0o700)
        equal('what is in it', get('full/in'), b'x')
        # rename over an empty one that nobody may touch
        os.mkdir('over', 0o000)
        os.rename('full', 'over')
        equal('renamed over a 0000 directory', get('over/in'), b'x')
        old = os.umask(0o777)
        os.mkdir('masked')
        put('maskedfile', b'')
        os.umask(old)
        equal('made under umask 0777', (oct(os.stat('masked').st_mode & 0o777), oct(os.stat('maskedfile').st_mode & 0o777)), ('0o0', '0o0'))
        os.chmod('masked', 0o700)
        put('masked/in', b'in')
        return get('masked/in')
    equal('in the directory made under umask 0777', user.call(there), b'in')
    m.umount()
    m.mount()
    equal('after a remount', user.call(lambda: get(m / 'masked/in')), b'in')


def other_cipher(env):
    m = env.mount(cipher='chacha20-poly1305')
    equal('cipher', m.status()['cipher'], 'chacha20-poly1305')
    for n in EDGES:
        put(m / ('f%d' % n), data_of(n))
    m.remount()
    for n in EDGES:
        same_bytes('%d bytes' % n, get(m / ('f%d' % n)), data_of(n))


def editors(env):
    """How programs save: in place, by rename, by sed -i, with fsync of file and directory."""
    m = env.mount()
    put(m / 'f', b'one\ntwo\n' * 1000)
    run(['sed', '-i', 's/one/three/', m / 'f'])
    equal('sed -i', get(m / 'f'), b'three\ntwo\n' * 1000)
    run(['dd', 'if=/dev/zero', 'of=' + m / 'z', 'bs=10000', 'count=7', 'conv=fsync'])
    run(['dd', 'if=/dev/urandom', 'of=' + m / 'z', 'bs=1000', 'seek=3', 'count=2', 'conv=notrunc,fdatasync'])
    equal('dd conv=notrunc', os.stat(m / 'z').st_size, 70000)
    put(m / 'f.new', b'new')
    with opened(m / 'f.new', os.O_RDONLY) as fd:
        os.fsync(fd)
    os.rename(m / 'f.new', m / 'f')
    with opened(m.path, os.O_RDONLY) as fd:
        os.fsync(fd)
    equal('saved by rename', get(m / 'f'), b'new')
    with opened(m / 'src', os.O_RDWR | os.O_CREAT) as a, opened(m / 'dst', os.O_RDWR | os.O_CREAT) as b:
        os.write(a, data_of(200000))
        n = os.copy_file_range(a, b, 100000, 5, 7)
        true('copy_file_range copies', 0 < n <= 100000)
        same_bytes('copy_file_range', os.pread(b, n + 7, 0), bytes(7) + data_of(200000)[5:5 + n])
        n = os.sendfile(b, a, 1000, 50000)
        true('sendfile', n == 50000)


if __name__ == '__main__':
    common.main([sizes, unlinked, tmpfile, allocation, holes, truncation, truncation_read_only, big_sizes, appending, direct, mapped, locks,
                 owners_modes, directories_of_modes, other_cipher, editors])
