#!/usr/bin/python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""git on a mount: clone of several thousand files, fsck, commit, gc; a clean status after a remount."""
import os
import random

import common
from common import equal, need_program, run, true


def git(where, *args, **kw):
    e = dict(os.environ, GIT_CONFIG_GLOBAL='/dev/null', GIT_CONFIG_SYSTEM='/dev/null', GIT_AUTHOR_NAME='t', GIT_AUTHOR_EMAIL='t@t',
             GIT_COMMITTER_NAME='t', GIT_COMMITTER_EMAIL='t@t', LC_ALL='C')
    # Nothing in the background that would hold the mount.
    return run(['git', '-c', 'gc.auto=0', '-c', 'maintenance.auto=false', *args], cwd=where, env=e, **kw)


def origin(env, files):
    """A repository of so many files and a few commits, outside the mount."""
    top = env.directory('origin')
    r = random.Random(1)
    git(top, 'init', '-q', '-b', 'main', '.')
    git(top, 'config', 'core.fsync', 'none')
    for i in range(files):
        d = '%s/%s/sub%d' % (top, 'abcdefgh'[i % 8], i % 37)
        os.makedirs(d, exist_ok=True)
        with open('%s/file-%d%s.txt' % (d, i, '-long' * 40 if i % 100 == 0 else ''), 'wb') as f:
            f.write(b'line %d\n' % i * r.choice((0, 1, 10, 100, 491, 492, 493, 1000)) + r.randbytes(r.randrange(200)))
    os.symlink('a/sub0', top + '/link')
    os.chmod(top + '/a/sub0/file-0%s.txt' % ('-long' * 40), 0o755)
    git(top, 'add', '-A')
    git(top, 'commit', '-q', '-m', 'one')
    for i in range(0, files, 7):
        with open('%s/%s/sub%d/file-%d%s.txt' % (top, 'abcdefgh'[i % 8], i % 37, i, '-long' * 40 if i % 100 == 0 else ''), 'ab') as f:
            f.write(b'more\n')
    git(top, 'commit', '-q', '-a', '-m', 'two')
    return top


def work_on(m, source, user=None):
    work = m / 'work'

    def g(*args, where=work):
        return git(where, *args, user=user).stdout

    def sound(when):
        out = g('fsck', '--full', '--strict')
        true('%s: fsck finds nothing: %s' % (when, out), 'error' not in out and 'missing' not in out and 'corrupt' not in out)
    g('-c', 'core.fsync=pack,index', 'clone', '-q', '--no-local', source, work, where=m.path)
    equal('status after the clone', g('status', '--porcelain'), '')
    sound('after the clone')
    equal('the tree', g('rev-parse', 'HEAD^{tree}'), g('rev-parse', 'HEAD^{tree}', where=source))
    run(['sh', '-c', 'cd "$0" && for i in 1 2 3 4 5; do echo $i > new$i; done && mv a/sub0 moved && rm b/sub1/* && '
                     'for f in c/sub2/*; do echo x >> "$f"; done', work], user=user)
    g('add', '-A')
    g('commit', '-q', '-m', 'three')
    g('checkout', '-q', '-b', 'other', 'HEAD~2')
    g('checkout', '-q', 'main')
    g('gc', '-q', '--prune=now')
    head = g('rev-parse', 'HEAD')
    m.remount()
    equal('status after a remount', g('status', '--porcelain'), '')
    equal('HEAD after a remount', g('rev-parse', 'HEAD'), head)
    sound('after a remount')
    g('clone', '-q', work, m / 'again', where=m.path)  # by hard links
    equal('status of a clone by hard links', g('status', '--porcelain', where=m / 'again'), '')


def as_root(env):
    need_program('git')
    work_on(env.mount(), origin(env, 3000))


def as_user(env):
    need_program('git')
    user = env.user()
    source = origin(env, 800)
    run(['chown', '-R', user.name, source])  # else git refuses it
    work_on(env.mount(user=user), source, user)


if __name__ == '__main__':
    common.main([as_root, as_user])
