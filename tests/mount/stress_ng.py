#!/usr/bin/python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""The stressors of stress-ng's filesystem class that work on files, with --verify, on a mount and on a plain directory of the same ext4: what ends
well on the one ends well on the other. Each makes a bounded number of operations.

A selection; with ECFS_STRESS=all every stressor, and more of each."""
import os
import subprocess

import common
from common import Failed, equal

ALL = os.environ.get('ECFS_STRESS') == 'all'
# Stressor -> operations, and in the long run.
STRESSORS = {
    'access': (20, 500), 'chattr': (20, 500), 'chdir': (200, 5000), 'chmod': (100, 3000), 'chown': (100, 3000), 'copy-file': (4, 50), 'dentry': (300, 5000),
    'dir': (300, 5000), 'dirdeep': (200, 2000), 'dirmany': (500, 5000), 'dnotify': (20, 300), 'dup': (200, 2000), 'fallocate': (30, 500),
    'fanotify': (20, 200), 'fcntl': (100, 2000), 'fiemap': (20, 500), 'file-ioctl': (100, 2000), 'filename': (200, 3000), 'flock': (300, 10000),
    'fpunch': (20, 300), 'fsize': (20, 500), 'fstat': (500, 20000), 'getdent': (300, 5000), 'handle': (100, 2000), 'hdd': (200, 5000),
    'inode-flags': (20, 300), 'inotify': (20, 200), 'io': (3, 50), 'iomix': (200, 3000), 'ioprio': (10, 200), 'lease': (100, 2000), 'link': (200, 3000),
    'locka': (200, 5000), 'lockf': (200, 5000), 'lockofd': (200, 5000), 'mknod': (200, 3000), 'open': (500, 10000), 'rename': (300, 10000),
    'symlink': (200, 3000), 'sync-file': (10, 100), 'touch': (300, 5000), 'utime': (300, 10000), 'verity': (10, 100), 'xattr': (10, 300),
}
USUAL = ('chmod', 'dir', 'fcntl', 'filename', 'getdent', 'hdd', 'lease', 'rename', 'utime', 'xattr')
# Small files: it is calls that are tried here, not the disk.
SIZES = ['--hdd-bytes', '4m', '--iomix-bytes', '8m', '--fallocate-bytes', '8m', '--copy-file-bytes', '128m', '--sync-file-bytes', '8m',
         '--dirdeep-inodes', '200']
PASSED, NOT_HERE = 0, (3, 4)  # of stress-ng(1)'s exit codes: no resources, and not implemented


def stress(name, directory, operations, user):
    p = common.run(['stress-ng', '--' + name, '1', '--%s-ops' % name, str(operations), '--verify', '--temp-path', directory, '--timeout', '%ds' % (60 if ALL else 10), *SIZES],
                   ok=None, user=user, timeout=200)
    return p.returncode, p.stdout


def compared(env, user):
    common.need_root()
    common.need_program('stress-ng')
    known = subprocess.run(['stress-ng', '--class', 'filesystem?'], capture_output=True, text=True).stdout.split()
    base = env.filesystem('ext4', 600, mkfs=['-b', '4096', '-N', '50000'])
    os.chmod(base, 0o755)
    m = env.mount(on=base, options='allow_other,acl,dev,suid')
    tops = {'plain': base + '/plain', 'mount': m / 'tree'}
    for top in tops.values():
        os.mkdir(top)
        os.chmod(top, 0o777)
    bad, well, skipped = [], 0, []
    for name in STRESSORS if ALL else USUAL:
        if name not in known:
            continue
        operations = STRESSORS[name][1 if ALL else 0]
        got = {side: stress(name, top, operations, user) for side, top in tops.items()}
        codes = {side: code for side, (code, _) in got.items()}
        if codes['plain'] == PASSED and codes['mount'] == PASSED:
            well += 1
        elif codes['plain'] == codes['mount'] or codes['plain'] in NOT_HERE:
            skipped.append('%s (%s)' % (name, codes))
        else:
            bad.append('%s: %s\n%s' % (name, codes, got['mount'][1][-1500:]))
        for side, top in tops.items():
            equal('left by %s on the %s' % (name, side), os.listdir(top), [])
    print('  %d stressors end well on both; not on the plain directory either: %s' % (well, ', '.join(skipped) or 'none'))
    if bad:
        raise Failed('%d stressors end well on the plain directory alone:\n%s' % (len(bad), '\n'.join(bad)))
    if well < 7:
        raise Failed('expected most stressors to end well, %d did' % well)


def as_root(env):
    compared(env, None)


def as_user(env):
    compared(env, env.user())


if __name__ == '__main__':
    common.main([as_root, as_user] if ALL else [as_root], limit=3000 if ALL else 600)
