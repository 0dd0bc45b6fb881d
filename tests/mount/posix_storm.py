#!/usr/bin/python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""Several processes make, write, rename, link and remove in the same directories at once. Nothing fails but for what the others did, and
what is there in the end is there after a remount, to the byte.

The seed is printed; ECFS_POSIX_SEED sets it, ECFS_POSIX_OPS the operations a process (the long run: 20000)."""
import errno
import hashlib
import os
import random
import stat

import common
import kernel
from common import Failed, equal, true

SEED = int(os.environ.get('ECFS_POSIX_SEED', '0')) or random.SystemRandom().randrange(1, 1 << 31)
OPS = int(os.environ.get('ECFS_POSIX_OPS', '600'))
WORKERS = 4
# What another process may have made of a path meanwhile.
EXPECTED = {errno.ENOENT, errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.EINVAL, errno.EBUSY, errno.ENODATA, errno.EPERM,
            errno.ENXIO}


def worker(top, seed):
    r = random.Random(seed)
    names = ['f%d' % i for i in range(12)] + ['long%d' % i + 'n' * 200 for i in range(3)]

    def path():
        return os.path.join(top, *r.choice(([], ['d0'], ['d1'], ['d1', 'e'])), r.choice(names))

    def write(flags):
        fd = os.open(path(), os.O_RDWR | os.O_CREAT | os.O_NONBLOCK | flags, 0o644)
        try:
            if stat.S_ISREG(os.fstat(fd).st_mode):
                os.pwrite(fd, r.randbytes(r.choice((1, 100, 5000, 70_000))), r.choice((0, 3936, 10_000)))
                if r.random() < 0.1:
                    os.fsync(fd)
        finally:
            os.close(fd)

    def read():
        fd = os.open(path(), os.O_RDONLY | os.O_NONBLOCK)
        try:
            if stat.S_ISREG(os.fstat(fd).st_mode):
                os.read(fd, 100_000)
        finally:
            os.close(fd)

    calls = [lambda: write(0), lambda: write(os.O_TRUNC), lambda: write(os.O_APPEND), read, lambda: os.unlink(path()), lambda: os.rename(path(), path()),
             lambda: os.link(path(), path(), follow_symlinks=False), lambda: os.symlink('t' * r.choice((1, 250)), path()), lambda: os.mkdir(path()),
             lambda: os.rmdir(path()), lambda: os.truncate(path(), r.randrange(9000)), lambda: os.chmod(path(), r.choice((0o600, 0o755))),
             lambda: os.setxattr(path(), 'user.x', r.randbytes(20)), lambda: os.utime(path(), (5, r.randrange(10**9))),
             lambda: os.listdir(os.path.dirname(path())), lambda: os.mkfifo(path()), lambda: kernel.renameat2(path(), path(), kernel.RENAME_EXCHANGE)]
    done = 0
    for _ in range(OPS):
        try:
            r.choice(calls)()
            done += 1
        except OSError as e:
            if e.errno not in EXPECTED:
                raise Failed('seed %d: expected success or one of the usual errnos, got %s' % (seed, e))
    return done


def tree(top):
    out = {}
    for here, dirs, files in os.walk(top, onerror=lambda e: out.update({e.filename: str(e)})):
        equal('names that are listed twice in ' + here, len(dirs + files), len(set(dirs + files)))
        for n in dirs + files:
            p = os.path.join(here, n)
            st = os.lstat(p)
            entry = [oct(st.st_mode), st.st_nlink, st.st_uid, st.st_ino, st.st_mtime_ns]
            if stat.S_ISREG(st.st_mode):
                with open(p, 'rb') as f:
                    data = f.read()
                equal('size of ' + n, len(data), st.st_size)
                entry += [len(data), hashlib.sha256(data).hexdigest()]
            elif stat.S_ISLNK(st.st_mode):
                entry.append(os.readlink(p))
            entry.append([(x, os.getxattr(p, x, follow_symlinks=False)) for x in sorted(os.listxattr(p, follow_symlinks=False))])
            out[os.path.relpath(p, top)] = entry
    return out


def storm(env):
    print('seed %d, %d operations in each of %d processes' % (SEED, OPS, WORKERS), flush=True)
    m = env.mount()
    for d in ('d0', 'd1', 'd1/e'):
        os.mkdir(m / d)
    from concurrent.futures import ThreadPoolExecutor
    for step in range(2):
        with ThreadPoolExecutor(WORKERS) as pool:
            done = list(pool.map(lambda n: common.in_child(worker, m.path, SEED + 100 * step + n), range(WORKERS)))
        true('a good part of the calls did something: %s' % done, min(done) * 5 > OPS)
        before = tree(m.path)
        true('something is left', len(before) > 10)
        m.remount()
        after = tree(m.path)
        for p in sorted(set(before) | set(after)):
            equal('%s after the remount' % p, after.get(p), before.get(p))
    equal('damage that the daemon has seen', {k: v for k, v in m.status().get('damage', {}).items() if v}, {})


if __name__ == '__main__':
    common.main([storm], limit=3600)
