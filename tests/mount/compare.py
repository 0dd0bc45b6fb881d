#!/usr/bin/python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""The same random calls in a plain directory and in a mount over the same filesystem (compare.cpp), before and after a remount.

The seed is printed; ECFS_COMPARE_SEED sets the first, ECFS_COMPARE_CALLS the calls a run (the long run: 100000)."""
import os
import subprocess

import common
from common import BUILD, Failed, run

COMPARE = os.path.join(BUILD, 'tests', 'compare-trees')
SEED = int(os.environ.get('ECFS_COMPARE_SEED', '1'))
CALLS = int(os.environ.get('ECFS_COMPARE_CALLS', '2500'))


def compare(user, *args):
    p = subprocess.run([COMPARE, *args], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors='replace',
                       **(dict(user=user.uid, group=user.gid, extra_groups=[]) if user else {}))
    print(p.stdout, end='')
    if p.returncode:
        raise Failed('compare %s: expected no difference, got exit %d:\n%s' % (' '.join(args), p.returncode, p.stdout[-3000:]))


def both(env, kind, user=None, options='', runs=2, **init):
    base = env.filesystem(kind, 512) if kind != 'here' else env.directory(mode=0o777)
    os.chmod(base, 0o777)
    m = env.mount(lower=env.lower(on=base, owner=user, **init), user=user, options=options)
    for n in range(runs):
        plain, tree = os.path.join(base, 'plain%d' % n), m / ('tree%d' % n)
        for d in (plain, tree):
            run(['mkdir', d], user=user)
        seed = SEED + n + sum(kind.encode()) * 10
        # XFS keeps at most 1023 bytes in a link; a mount keeps longer targets elsewhere, by design.
        limit = ['--max-target', '1023'] if kind == 'xfs' else []
        compare(user, '--seed', str(seed), '--calls', str(CALLS), *limit, plain, tree)
        m.remount()
        compare(user, '--verify', plain, tree)


def on_ext4(env):
    both(env, 'ext4')


def on_xfs(env):
    both(env, 'xfs')


def on_btrfs(env):
    both(env, 'btrfs')


def plain_names(env):
    both(env, 'ext4', runs=1, names='plain')


def chacha(env):
    both(env, 'ext4', runs=1, cipher='chacha20-poly1305')


def as_user(env):
    both(env, 'ext4', user=env.user())


def with_acl(env):
    both(env, 'ext4', options='acl', runs=1)


if __name__ == '__main__':
    common.main([on_ext4, on_xfs, on_btrfs, plain_names, chacha, as_user, with_acl], limit=3600)
