#!/usr/bin/python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whatever asks for data to be on the disk reaches the lower filesystem, by the right call: counted on the daemon, by strace."""
import ctypes
import mmap
import os
import re
import subprocess

import common
from common import equal, need_program, true, wait_until

CALLS = ('fsync', 'fdatasync', 'syncfs', 'sync_file_range', 'msync', 'sync')
libc = ctypes.CDLL(None, use_errno=True)


class Traced:
    """with Traced(env, mount) as t: ...; then t.calls is [(call, path of what it was made on)]."""

    def __init__(self, env, m):
        self.m, self.path, self.calls = m, env.path('trace'), []

    def __enter__(self):
        self.tracer = subprocess.Popen(['strace', '-f', '-y', '-e', 'trace=' + ','.join(CALLS), '-o', self.path, '-p', str(self.m.pid)],
                                       stderr=subprocess.DEVNULL)
        tasks = '/proc/%d/task' % self.m.pid
        wait_until('strace traces all threads, or may not', lambda: self.tracer.poll() is not None or all(
            'TracerPid:\t%d\n' % self.tracer.pid in open('%s/%s/status' % (tasks, t)).read() for t in os.listdir(tasks)))
        if self.tracer.poll() is not None:
            raise common.Skip('strace may not trace here')
        return self

    def __exit__(self, *_):
        self.tracer.terminate()
        self.tracer.wait()
        text = open(self.path).read()
        for line in text.splitlines():
            found = re.match(r'\d+ +(\w+)\(\d+<([^>]*)>', line)
            if found:
                self.calls.append((found.group(1), found.group(2)))
        os.unlink(self.path)


def traced(env, m, f):
    with Traced(env, m) as t:
        f()
    return t.calls


def each_call(env):
    need_program('strace')
    m = env.mount()
    path = m / 'file'
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    lower = m.lower_path('file')
    os.mkdir(m / 'dir')
    lower_dir = m.lower_path('dir')

    def write(n):
        os.pwrite(fd, b'x' * 100, 100 * n)

    equal('lower calls of a write alone', traced(env, m, lambda: write(0)), [])

    def fsync():
        write(1)
        os.fsync(fd)
    equal('lower calls of fsync', traced(env, m, fsync), [('fsync', lower)])

    def fdatasync():
        write(2)
        os.fdatasync(fd)
    equal('lower calls of fdatasync', traced(env, m, fdatasync), [('fdatasync', lower)])

    for flag, call in ((os.O_SYNC, 'fsync'), (os.O_DSYNC, 'fdatasync')):
        synced = os.open(path, os.O_WRONLY | flag)
        equal('lower calls of a write with O_%s' % ('SYNC' if call == 'fsync' else 'DSYNC'), traced(env, m, lambda: os.pwrite(synced, b'y', 5000)),
              [(call, lower)])
        equal('lower calls of an append with it', traced(env, m, lambda: os.pwrite(synced, b'y' * 5000, 9000)), [(call, lower)])
        os.close(synced)

    for flag, call in ((getattr(os, 'RWF_SYNC', 4), 'fsync'), (getattr(os, 'RWF_DSYNC', 2), 'fdatasync')):
        equal('lower calls of pwritev2 with %d' % flag, traced(env, m, lambda: os.pwritev(fd, [b'z'], 3, flag)), [(call, lower)])

    memory = mmap.mmap(fd, 4096)

    def msync():
        memory[10:20] = b'0123456789'
        memory.flush()
    # Linux makes an fdatasync of it, on every filesystem.
    equal('lower calls of msync', traced(env, m, msync), [('fdatasync', lower)])
    memory.close()

    d = os.open(m / 'dir', os.O_RDONLY)
    equal('lower calls of fsync on a directory', traced(env, m, lambda: os.fsync(d)), [('fsync', lower_dir)])
    equal('lower calls of fdatasync on a directory', traced(env, m, lambda: os.fdatasync(d)), [('fdatasync', lower_dir)])
    os.close(d)
    os.close(fd)


def written_before_it_is_synced(env):
    """What a program wrote and synced is in the lower file by then."""
    m = env.mount()
    with open(m / 'file', 'wb') as f:
        f.write(common.data_of(100_000))
        f.flush()
        os.fsync(f.fileno())
        size = os.stat(m.lower_path('file')).st_size
        true('the lower file has it all', size > 100_000)


def syncfs(env):
    """Linux tells a FUSE filesystem that is no virtiofs and no block device nothing of syncfs(2) and sync(2); it only writes its cache back."""
    need_program('strace')
    m = env.mount()
    fd = os.open(m / 'file', os.O_RDWR | os.O_CREAT, 0o644)
    os.write(fd, b'x' * 10_000)
    calls = traced(env, m, lambda: equal('syncfs', libc.syncfs(fd), 0))
    size = os.fstat(os.open(m.lower_path('file'), os.O_RDONLY)).st_size
    true('what was written is with the lower filesystem', size > 10_000)
    equal('lower calls of syncfs', calls, [])
    os.close(fd)


def clean_end(env):
    """Unmounting puts everything on the disk before the session's marker goes."""
    need_program('strace')
    m = env.mount()
    common.put(m / 'file', b'x' * 10_000)
    with Traced(env, m) as t:
        m.umount()  # which waits for the daemon
    equal('lower calls of an end', [c for c in t.calls if c[0] == 'syncfs'], [('syncfs', m.lower)])


if __name__ == '__main__':
    common.main([each_call, written_before_it_is_synced, syncfs, clean_end])
