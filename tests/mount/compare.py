#!/usr/bin/python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""The same random calls in a plain directory and in a mount over the same filesystem (compare/*.cpp), before and after remounts.

The seed is printed; ECFS_COMPARE_SEED sets the first, ECFS_COMPARE_CALLS the calls a run (the long run: 100000)."""
import os
import re
import subprocess
import sys

import common
from common import BUILD, SRC, Failed, equal, run

COMPARE = os.path.join(BUILD, 'tests', 'compare-trees')
SEED = int(os.environ.get('ECFS_COMPARE_SEED', '1'))
CALLS = int(os.environ.get('ECFS_COMPARE_CALLS', '1200'))


def compare(m, *args):
    """Runs the program to its end, remounting when it asks for that."""
    user = m.user
    p = subprocess.Popen([COMPARE, *args], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors='replace',
                         cwd='/', **(dict(user=user.uid, group=user.gid, extra_groups=[]) if user else {}))
    said = []
    for line in p.stdout:
        if line == 'remount\n':
            m.remount()
            p.stdin.write('done\n')
            p.stdin.flush()
        else:
            said.append(line)
            print(line, end='', flush=True)
    p.stdin.close()
    if p.wait():
        raise Failed('compare %s: expected no difference, got exit %d:\n%s' % (' '.join(args), p.returncode, ''.join(said)[-3000:]))


def both(env, kind, user=None, users=(), options='', runs=1, args=(), **init):
    # Like a mount: no devices, no set-id programs.
    base = env.filesystem(kind, 512, options='nodev,nosuid')
    os.chmod(base, 0o777)
    m = env.mount(lower=env.lower(on=base, owner=user, **init), user=user, options=options)
    args = list(args)
    # XFS keeps at most 1023 bytes in a link; a mount keeps longer targets elsewhere.
    if kind == 'xfs':
        args += ['--max-target', '1023']
    if 'acl' in options.split(','):
        args.append('--acl')
    for u, groups in users:
        args += ['--user', '%d:%s' % (u.uid, ','.join(map(str, [u.gid, *groups])))]
    for n in range(runs):
        plain, tree = os.path.join(base, 'plain%d' % n), m / ('tree%d' % n)
        for d in (plain, tree):
            run(['mkdir', d], user=user)
        seed = SEED + n + sum((kind + options).encode()) * 10
        compare(m, '--seed', str(seed), '--calls', str(CALLS), '--remount-every', str(min(CALLS // 2, 10000)), *args, plain, tree)


def on_ext4(env):
    both(env, 'ext4')


def on_xfs(env):
    both(env, 'xfs')


def on_btrfs(env):
    both(env, 'btrfs')


def plain_names(env):
    both(env, 'ext4', names='plain')


def plain_names_on_xfs(env):
    both(env, 'xfs', names='plain')


def plain_names_on_btrfs(env):
    both(env, 'btrfs', names='plain')


def short_names(env):
    both(env, 'ext4', args=['--short-names'])


def chacha(env):
    both(env, 'xfs', cipher='chacha20-poly1305')


def shared(env):
    both(env, 'ext4', options='shared')


def shared_on_xfs(env):
    both(env, 'xfs', options='shared')


def shared_on_btrfs(env):
    both(env, 'btrfs', options='shared')


def shared_as_user(env):
    both(env, 'xfs', user=env.user(), options='shared')


def as_user(env):
    both(env, 'ext4', user=env.user())


def as_user_on_xfs(env):
    both(env, 'xfs', user=env.user())


def as_user_on_btrfs(env):
    both(env, 'btrfs', user=env.user())


def as_user_with_acl(env):
    both(env, 'ext4', user=env.user(), options='acl')


def with_acl(env):
    both(env, 'ext4', options='acl')


def several(env, kind, options):
    """Root and two users with a group in common."""
    group = common.unused_uid()
    both(env, kind, users=[(env.user(), [group]), (env.user(), [group])], options='allow_other' + options)


def two_users(env):
    several(env, 'ext4', '')


def two_users_with_acl(env):
    several(env, 'xfs', ',acl')


def differences_are_told(env):
    """What the program leaves out by design is what docs/DIFFERENCES.md tells users, each with its reason, and little."""
    listed = [line.split('\t')[0] for line in run([COMPARE, '--differences']).stdout.splitlines()]
    with open(os.path.join(SRC, 'docs', 'DIFFERENCES.md')) as f:
        told = re.findall(r'^\| `([a-z-]+)` \| [^|]{20,} \| [^|]{20,} \|$', f.read(), re.M)
    equal('differences in docs/DIFFERENCES.md', told, listed)
    common.at_most('differences', len(listed), 9)


# What the usual run leaves out: each differs from one of its cases by the filesystem alone, or by two of its cases' options at once.
LONG = [plain_names_on_xfs, plain_names_on_btrfs, shared_on_xfs, shared_on_btrfs, shared_as_user, as_user_on_xfs, as_user_with_acl]

if __name__ == '__main__':
    common.main([on_ext4, on_xfs, on_btrfs, plain_names, short_names, chacha, shared, as_user, as_user_on_btrfs, with_acl, two_users,
                 two_users_with_acl, *(LONG if CALLS >= 10000 or sys.argv[1:] else []), differences_are_told], limit=7200 * 4)
