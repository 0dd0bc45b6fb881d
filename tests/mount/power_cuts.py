#!/usr/bin/python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""Power cuts: ecfs works in a whole kernel of its own (user-mode Linux) on a disk image with ext4, and that kernel is killed; everything in its
page cache is gone, and the image holds what a disk would. What was synced is there, and nothing is unreadable, without any repair. A few times
here; ECFS_CUTS=300 tests/mount/power_cuts.py is the long run.

    power_cuts.py --work SEED ROUND     what runs inside
"""
import os
import random
import subprocess
import sys
import threading
import time

import common
import cut_work
import uml
from common import ECFS, equal, run, true
from kills import verify

CUTS = int(os.environ.get('ECFS_CUTS', '5'))
SEED = int(os.environ.get('ECFS_SEED', random.SystemRandom().randrange(1 << 30)))
# Starting that kernel is most of the time: the work is shared out over the rounds, so that each gets far.
TURNS = (('log', 'fixed', 'editor', 'hasty', 'names'), ('log', 'delete', 'names'), ('git', 'fixed'), ('wal', 'log', 'hasty', 'editor'))


def passphrase(n):
    return b'passphrase number %d\n' % n


def work(seed, number):
    """Inside. Says a line for each thing that is synced; besides, the passphrase is changed over and over."""
    os.mkdir('/mnt/disk')
    run(['mount', '-t', 'ext4', uml.DISK, '/mnt/disk'])
    os.mkdir('/mnt/ecfs')
    first = int(open('/mnt/disk/key').read())

    def passfile(n):
        cut_work.put_synced('/tmp/pass%d' % n, passphrase(n), False)
        return '/tmp/pass%d' % n

    run([ECFS, 'mount', '--passfile', passfile(first), '/mnt/disk/lower', '/mnt/ecfs'])

    def change_keys():
        for n in range(first, first + 1000):
            subprocess.run([ECFS, 'key', 'passwd', '--kdf-time', '1', '--passfile', passfile(n), '--new-passfile', passfile(n + 1), '/mnt/disk/lower'],
                           check=True, stdout=subprocess.DEVNULL)
            print('key %d' % (n + 1), flush=True)
            time.sleep(0.3)

    os.mkdir('/mnt/ecfs/%d' % number)
    threading.Thread(target=change_keys, daemon=True).start()
    cut_work.work('/mnt/ecfs/%d' % number, seed, TURNS[number % len(TURNS)])


def cut(env):
    """Each round's work is cut, and verified here by the kernel of this machine; the next one goes on with the same volume."""
    rng = random.Random(SEED)
    image = uml.make_disk(env, 400)
    disk = env.directory()
    env.mount_image(image, disk, 'ext4')
    env.lower(on=disk)
    key, said = 0, 0
    common.put(env.path('pass0'), passphrase(0))
    run([ECFS, 'key', 'passwd', '--kdf-time', '1', '--passfile', env.passfile, '--new-passfile', env.path('pass0'), disk + '/lower'])
    for number in range(CUTS):
        common.put(disk + '/key', b'%d' % key)
        env.release(disk)
        ended = uml.run(env, os.path.abspath(__file__), ['--work', SEED + number, number], disk=image, kill_after=rng.uniform(0.2, 2), ok=None)
        true('it was cut at work: ' + ended.output[-2000:], ended.killed and 'Traceback' not in ended.output)
        env.mount_image(image, disk, 'ext4')
        # The last passphrase that was said to be set opens the volume, or the one after it; the one before it does not.
        lines = ended.output.split('\n')[:-1]
        set_to = int(([l.split()[1] for l in lines if l.startswith('key ')] or [str(key)])[-1])
        for key in (set_to + 1, set_to, set_to - 1):
            common.put(env.path('pass%d' % key), passphrase(key))
        mounted = [m for m in (try_mount(env, disk, n) for n in (set_to - 1, set_to, set_to + 1)) if m]
        equal('passphrases that open it (%d was set)' % set_to, len(mounted), 1)
        key, m = mounted[0]
        true('not an older one: %d, %d was set' % (key, set_to), key >= set_to)
        record = cut_work.Record(ended.output)
        verify(record, m / str(number), 'cut %d' % number)
        m.umount()
        said += record.count()
    env.release(disk)
    print('  %d cuts, %d things said to be synced, seed %d' % (CUTS, said, SEED))


def try_mount(env, disk, n):
    if n < 0:
        return None
    path = env.directory() + '/mnt'
    os.mkdir(path)
    m = common.Mount(env, disk + '/lower', path, '', None, None, ())
    # As Mount.mount, but for the passphrase.
    p = run([ECFS, 'mount', '--passfile', env.path('pass%d' % n), '--log', m.log, m.lower, m.path], ok=(0, 3))
    if p.returncode:
        return None
    m.pid = m.status()['pid']
    env.all.append(m)
    return n, m


if __name__ == '__main__':
    if sys.argv[1:2] == ['--work']:
        work(sys.argv[2], int(sys.argv[3]))
    common.main([cut], limit=6000)
