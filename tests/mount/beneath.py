#!/usr/bin/python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lower filesystem fails as a whole: it is full, in the middle of work; it is taken away; it stops itself after an error. And there are not
enough threads. Errors, no hang, and what was synced is there. ECFS_FULL=all fills it with every kind of work."""
import errno
import os
import re

import common
import cut_work
from common import ECFS, data_of, get, need_program, outcome, put, run, same_bytes, true, wait_until
from kills import SEED, start, stop, text_of, verify

ROOM = 2  # MiB that the work is left
# 'fixed' needs no more room than it has. The others' turn is in the long run: ECFS_FULL=all.
FILLING = [k for k in cut_work.KINDS if k != 'fixed'] if os.environ.get('ECFS_FULL') == 'all' else ['log', 'editor', 'wal']


def full_at_work(env):
    """Each kind of work goes on until the disk is full. After there is room again, everything that was synced verifies."""
    for kind in FILLING:
        base = env.filesystem('ext4', 64, mkfs=['-b', '4096', '-m', '0'])
        m = env.mount(on=base)
        os.mkdir(m / 'd')
        free = os.statvfs(base)
        put(base + '/more ballast')
        with open(base + '/ballast', 'wb') as f:
            os.posix_fallocate(f.fileno(), 0, max(free.f_bavail * free.f_frsize - (ROOM << 20), 1))
        process, lines = start(env, m / 'd', SEED, [kind])
        if kind in ('editor', 'hasty', 'names'):
            # These remove what they make: the room is taken from them.
            wait_until('it works', lambda: cut_work.Record(text_of(lines)).count() > 3, common.TIMEOUT)
            with open(base + '/more ballast', 'ab', buffering=0) as f:
                wait_until('%s is told that the disk is full' % kind, lambda: fill(f) or process.poll() is not None, common.TIMEOUT)
        else:
            wait_until('%s is told that the disk is full' % kind, lambda: process.poll() is not None, common.TIMEOUT)
        said = text_of(lines)
        true('by an errno: ' + said[-1500:], re.search(r'No space left on device|disk is full|ENOSPC|disk I/O error', said))
        stop(process)
        os.unlink(base + '/ballast')
        os.unlink(base + '/more ballast')
        record = cut_work.Record(said)
        true('%s synced something' % kind, record.count() > 0)
        verify(record, m / 'd', 'full, ' + kind)
        m.remount()
        verify(record, m / 'd', 'full, remounted, ' + kind)
        put(m / 'new', data_of(100_000))
        m.umount()
        env.release(base)


def fill(f):
    size = 1 << 20
    while size >= 4096:
        try:
            f.write(b'b' * size)
            os.fsync(f.fileno())
        except OSError as e:
            if e.errno != errno.ENOSPC:
                raise
            size //= 2


def fio_until_full(env):
    """fio writes until there is no more room; what it knows to be written verifies."""
    need_program('fio')
    base = env.filesystem('ext4', 64, mkfs=['-b', '4096', '-m', '0'])
    m = env.mount(on=base)
    job = ['fio', '--name=j', '--directory=' + m.path, '--size=300m', '--bs=64k', '--rw=write', '--verify=crc32c', '--ioengine=psync', '--fsync=8',
           '--verify_state_save=1', '--aux-path=' + env.directory(), '--fallocate=none']
    p = run([*job, '--do_verify=0'], ok=None)
    true('it was told: ' + p.stdout[-600:], p.returncode != 0 and 'No space left' in p.stdout)
    written = os.path.getsize(m / 'j.0.0')
    true('it wrote: %d' % written, written > 10 << 20)
    # Each eight blocks are synced; the last eight may not have been.
    synced = (written // (64 << 10) // 8 - 1) * 8 * (64 << 10)
    os.truncate(m / 'j.0.0', synced)
    m.remount()
    run(['fio', '--name=j', '--filename=' + (m / 'j.0.0'), '--size=%d' % synced, '--bs=64k', '--rw=read', '--verify=crc32c', '--ioengine=psync'])


def taken_away(env):
    """umount -l of what is beneath: who has it open goes on, and the unmounting is clean."""
    base = env.filesystem('ext4', 32)
    m = env.mount(on=base)
    put(m / 'before', data_of(50_000))
    device = [s for t, _, s in common.mounts() if t == base][-1]
    run(['umount', '-l', base])
    run(['losetup', '-d', device])  # as soon as nobody uses it
    same_bytes('what was there', get(m / 'before'), data_of(50_000))
    put(m / 'after', data_of(30_000, 2))
    os.mkdir(m / 'd')
    same_bytes('what is new', get(m / 'after'), data_of(30_000, 2))
    m.umount()
    wait_until('the lower filesystem is let go', lambda: run(['losetup', device], ok=None).returncode != 0)


def stopped(env, kind, stop_it):
    """It stops itself, as after an error of the disk: from then on an errno a call, no hang, and a clean unmount."""
    base = env.filesystem(kind, 320 if kind == 'xfs' else 64)
    m = env.mount(on=base)
    put(m / 'file', data_of(100_000))
    os.mkdir(m / 'd')
    fd = os.open(m / 'file', os.O_RDWR)
    os.fsync(fd)
    stop_it(base)
    refused = ('EIO', 'EROFS', 'EUCLEAN')
    for name, call in (('mkdir', lambda: os.mkdir(m / 'new')), ('mknod', lambda: os.mknod(m / 'f')), ('unlink', lambda: os.unlink(m / 'file')),
                       ('rename', lambda: os.rename(m / 'file', m / 'other')), ('chmod', lambda: os.chmod(m / 'file', 0o600)),
                       ('truncate', lambda: os.truncate(m / 'file', 10)), ('setxattr', lambda: os.setxattr(m / 'file', 'user.a', b'x')),
                       ('rmdir', lambda: os.rmdir(m / 'd')), ('symlink', lambda: os.symlink('t', m / 'l')),
                       ('write and fsync', lambda: (os.pwrite(fd, b'x' * 9000, 50), os.fsync(fd)))):
        got = outcome(call)
        true('%s on a stopped %s: %s' % (name, kind, got), got in refused)
    true('closing says it, or has nothing more to say', outcome(os.close, fd) in ('OK', *refused))
    true('reading is by the kernel\'s cache, or an errno', outcome(get, m / 'file') in ('OK', *refused))
    true('listing too', outcome(os.listdir, m.path) in ('OK', *refused))
    true('the daemon lives', common.alive(m.pid))
    m.umount()
    env.release(base)


def ext4_stops(env):
    def error(base):
        source = [s for t, _, s in common.mounts() if t == base][-1]
        with open('/sys/fs/ext4/%s/trigger_fs_error' % os.path.basename(source), 'w') as f:
            f.write('an error for a test\n')
        run(['mount', '-o', 'remount,abort', base], ok=None)
    stopped(env, 'ext4', error)


def xfs_stops(env):
    need_program('xfs_io')
    stopped(env, 'xfs', lambda base: run(['xfs_io', '-x', '-c', 'shutdown', base]))


def few_threads(env):
    """A user's limit of processes: the mount works, or says what is wrong."""
    user = env.user()
    worked = []
    for n in range(1, 40):
        base = env.directory(owner=user)
        lower, path = env.lower(base, user), base + '/mnt'
        os.mkdir(path)
        os.chown(path, user.uid, user.gid)
        p = run(['prlimit', '--nproc=%d:%d' % (n, n), ECFS, 'mount', '--passfile', env.passfile, '--log', base + '/log', lower, path], ok=None, user=user)
        if p.returncode:
            true('with %d processes a message: %s' % (n, p.stdout), 'error: ' in p.stdout and p.returncode < 100)
            true('nothing is mounted then', not common.mounted(path))
            wait_until('no daemon is left', lambda: not [i for i in common.processes_of(user.uid) if b'ecfsd' in get('/proc/%d/cmdline' % i)])
        else:
            worked.append(n)
            run(['sh', '-c', 'echo x > "$0/f" && cat "$0/f"', path], user=user)
            run([ECFS, 'umount', path], user=user)
            wait_until('the daemon is gone', lambda: not common.processes_of(user.uid))
            if len(worked) > 2:
                break
    true('it works with some: %s' % worked, worked)


if __name__ == '__main__':
    common.main([full_at_work, fio_until_full, taken_away, ext4_stops, xfs_stops, few_threads])
