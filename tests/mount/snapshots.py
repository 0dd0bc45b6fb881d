#!/usr/bin/python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""Power cuts on this machine's own filesystems: the disk below ecfs, a loop device, is snapshotted at random moments under load. Each snapshot is
mounted, its journal recovers, ecfs is mounted on it and what was synced must be there. Ten snapshots here; ECFS_CUTS=200
tests/mount/snapshots.py takes as many of each filesystem.

The disk's image is a file on XFS, and a snapshot is a clone of that file (FICLONE, ioctl_ficlone(2)), which lets no write happen meanwhile."""
import fcntl
import os
import random
import shutil
import time

import common
import cut_work
from common import need_program, run
from kills import SEED, start, stop, text_of, verify

FICLONE = 0x40049409
AT_ONCE = 10  # snapshots of one run of the work: they take room
# Renaming over without fsync is ext4's own protection. The others leave an empty file.
KINDS = {'ext4': list(cut_work.KINDS), 'xfs': [k for k in cut_work.KINDS if k != 'hasty'], 'btrfs': [k for k in cut_work.KINDS if k != 'hasty']}


def snapshots(env, kind, usual):
    cuts = int(os.environ.get('ECFS_CUTS', usual))
    need_program('mkfs.xfs', 'mkfs.' + kind)
    rng = random.Random(SEED)
    memory = env.filesystem('tmpfs', 3000)
    hold = env.directory()
    sparse(memory + '/hold', 2600)
    run(['mkfs.xfs', '-q', '-m', 'reflink=1', memory + '/hold'])
    env.mount_image(memory + '/hold', hold, 'xfs')
    said = done = 0
    while done < cuts:
        n = min(AT_ONCE, cuts - done)
        said += one_run(env, kind, hold, SEED + done, n, rng)
        done += n
    env.release(hold)
    print('  %d snapshots of %s, %d things said to be synced, seed %d' % (done, kind, said, SEED))


def sparse(path, mb):
    with open(path, 'wb') as f:
        f.truncate(mb << 20)


def one_run(env, kind, hold, seed, n, rng):
    image, disk = hold + '/disk', env.directory()
    sparse(image, 320)
    run(['mkfs.' + kind, '-q', '-F' if kind == 'ext4' else '-f', image])
    env.mount_image(image, disk, kind)
    m = env.mount(on=disk)
    process, lines = start(env, m.path, seed, KINDS[kind])
    taken = []
    for i in range(n):
        time.sleep(rng.uniform(0.1, 0.9))
        text = text_of(lines)
        with open(image, 'rb') as f, open('%s/snapshot%d' % (hold, i), 'wb') as out:
            fcntl.ioctl(out, FICLONE, f.fileno())
        taken.append((out.name, cut_work.Record(text)))
    common.true('it worked until then: ' + text_of(lines)[-1000:], process.poll() is None)
    stop(process)
    m.umount()
    env.release(disk)
    shutil.rmtree(disk)
    os.unlink(image)
    for path, record in taken:
        # One at a time: they are the same filesystem to the kernel.
        snapshot = env.directory()
        env.mount_image(path, snapshot, kind)
        again = env.mount(lower=snapshot + '/lower')
        verify(record, again.path, '%s of %s' % (os.path.basename(path), kind))
        again.umount()
        env.release(snapshot)
        os.unlink(path)
    return sum(record.count() for _, record in taken)


def ext4(env):
    snapshots(env, 'ext4', 4)


def xfs(env):
    snapshots(env, 'xfs', 3)


def btrfs(env):
    snapshots(env, 'btrfs', 3)


if __name__ == '__main__':
    common.main([ext4, xfs, btrfs], limit=6000)
