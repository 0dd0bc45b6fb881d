#!/usr/bin/python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""A full disk: nothing stored is damaged, what is made room for works again, and whoever writes is told."""
import errno
import os

import common
from common import Failed, data_of, equal, get, gives, in_child, outcome, put, run, same_bytes, true

LONG = 'l' * 255
MANY = 4 << 30  # far beyond the small filesystems here, and beyond what a kernel keeps in its write-back cache


class opened:
    def __init__(self, path, flags, mode=0o644):
        self.args = path, flags, mode

    def __enter__(self):
        self.fd = os.open(*self.args)
        return self.fd

    def __exit__(self, *error):
        try:
            os.close(self.fd)
        except OSError:
            pass  # close tells what write-back found; here it is known already


def disk_full(env):
    m = env.mount(on=env.filesystem('ext4', 24, mkfs=['-m', '0']))
    for i in range(5):
        put(m / ('safe%d' % i), data_of(20000, i))
    put(m / 'over', data_of(100000, 9))
    os.sync()
    # Filled to the last: every write that was accepted and synced is there afterwards.
    accepted = 0
    with opened(m / 'big', os.O_WRONLY | os.O_CREAT) as fd:
        full = None
        for i in range(2000):
            try:
                os.pwrite(fd, data_of(65536, i), i * 65536)
                os.fsync(fd)
                accepted = i + 1
            except OSError as e:
                full = errno.errorcode[e.errno]
                break
        equal('what a full disk says', full, 'ENOSPC')
    true('a good part was accepted: %d' % accepted, accepted > 100)
    for name in range(200):  # and small files until nothing goes
        try:
            with opened(m / ('small%d' % name), os.O_WRONLY | os.O_CREAT) as fd:
                os.write(fd, data_of(3000, name))
                os.fsync(fd)
        except OSError as e:
            equal('a small file on a full disk', errno.errorcode[e.errno], 'ENOSPC')
            break
    gives('a long name on a full disk', 'ENOSPC', lambda: [os.mkdir(m / (('%03d' % i) + LONG[3:])) for i in range(2000)])
    run(['mountpoint', '-q', m.path])

    def intact(when):
        for i in range(5):
            same_bytes('%s: file that was there, %d' % (when, i), get(m / ('safe%d' % i)), data_of(20000, i))
        with opened(m / 'big', os.O_RDONLY) as fd:
            for i in range(accepted):
                same_bytes('%s: what was accepted, %d' % (when, i), os.pread(fd, 65536, i * 65536), data_of(65536, i))
    intact('full')
    # Overwriting needs no more space: it works, or leaves what was.
    with opened(m / 'over', os.O_RDWR) as fd:
        new, old = data_of(8000, 77), data_of(100000, 9)
        try:
            os.pwrite(fd, new, 50000)
            os.fsync(fd)
            want = old[:50000] + new + old[58000:]
        except OSError as e:
            equal('overwriting', errno.errorcode[e.errno], 'ENOSPC')
            want = old
    m.remount()  # also on a full disk
    same_bytes('overwritten, or left', get(m / 'over'), want)
    intact('after a remount')
    for name in os.listdir(m.path):
        if name.startswith(('small', 'big')):
            os.unlink(m / name)
        elif len(name) == 255:
            os.rmdir(m / name)
    # The space of a removed file comes back when the kernel has forgotten it, which may be a moment later.
    common.wait_until('there is room again', lambda: outcome(put, m / 'again', data_of(1 << 20)) == 'OK')
    m.remount()
    same_bytes('written after making room', get(m / 'again'), data_of(1 << 20))
    for i in range(5):
        same_bytes('at the end, %d' % i, get(m / ('safe%d' % i)), data_of(20000, i))


def write_without_looking(path):
    """Writes on and on; how much write(2) took before it said ENOSPC. Neither fsync nor close is asked."""
    block = bytes(1 << 20)
    with opened(path, os.O_WRONLY | os.O_CREAT) as fd:
        for n in range(MANY >> 20):
            try:
                os.write(fd, block)
            except OSError as e:
                equal('what write says', errno.errorcode[e.errno], 'ENOSPC')
                return n << 20
    raise Failed('%s: expected write to say that there is no room, it took %d bytes' % (path, MANY))


def write_tells(env):
    """dd without a count ends."""
    m = env.mount(on=env.filesystem('ext4', 24, mkfs=['-m', '0']))
    put(m / 'safe', data_of(20000))
    write_without_looking(m / 'big')
    p = run(['dd', 'if=/dev/zero', 'of=' + m / 'more', 'bs=64k', 'count=%d' % (MANY >> 16)], ok=(1,))
    true('dd says why: ' + p.stdout, 'No space left on device' in p.stdout)
    gives('a program that makes many small files', 'ENOSPC', lambda: [put(m / ('small%d' % i), data_of(3000, i)) for i in range(20000)])
    same_bytes('what was there', get(m / 'safe'), data_of(20000))
    true('it is counted', m.status()['damage']['unwritten'] > 0)
    equal('it is logged once a file', m.log_text().count('could not be stored'), len(set(
        line for line in m.log_text().splitlines() if 'could not be stored' in line)))
    m.remount()
    same_bytes('what was there, after a remount', get(m / 'safe'), data_of(20000))


def user_is_told(env):
    user = env.user()
    fs = env.filesystem('ext4', 24)
    os.chown(fs, user.uid, user.gid)
    m = env.mount(on=fs, user=user)
    user.call(write_without_looking, m / 'big')


def only_writers_are_told(env):
    m = env.mount(on=env.filesystem('ext4', 24, mkfs=['-m', '0']))
    put(m / 'room', data_of(4 << 20))
    os.sync()
    fd = os.open(m / 'big', os.O_RDWR | os.O_CREAT)
    try:
        for i in range(20):  # little enough that the kernel's cache may take all of it
            if outcome(os.pwrite, fd, data_of(1 << 20, i), i << 20) != 'OK':
                break
        os.sync()  # has it written back, and says nothing
        true('write-back failed', m.status()['damage']['unwritten'] > 0)

        def read_on():
            with opened(m / 'big', os.O_RDONLY) as other:
                size = os.lseek(other, 0, os.SEEK_END)
                os.lseek(other, size - 10, os.SEEK_SET)
                return [len(os.read(other, 100)), len(os.read(other, 100)), len(os.pread(other, 100, size)), os.stat(m / 'big').st_size == size]
        for _ in range(3):
            equal('a reader at the end of the file', in_child(read_on), [10, 0, 0, True])
        gives('the next write', 'ENOSPC', os.pwrite, fd, b'x', 0)
        gives('the one after that, which is a try of its own', 'OK', os.pwrite, fd, b'x', 0)
        os.unlink(m / 'room')
        common.wait_until('fsync has no more to complain of', lambda: outcome(os.fsync, fd) == 'OK')
        common.wait_until('there is room again', lambda: outcome(put, m / 'again', data_of(1 << 20)) == 'OK')
        same_bytes('written afterwards', get(m / 'again'), data_of(1 << 20))
    finally:
        os.close(fd)


if __name__ == '__main__':
    common.main([disk_full, write_tells, user_is_told, only_writers_are_told])
