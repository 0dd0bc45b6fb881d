#!/usr/bin/python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""rsync -aHAX and tar --xattrs --acls both ways: nothing is lost, and a second pass finds nothing to do."""
import os
import random

import common
from common import equal, need_program, run


def make_tree(env, top, user=None):
    r = random.Random(3)
    root = os.geteuid() == 0 and not user
    for i in range(30):
        d = '%s/d%d/%s' % (top, i % 5, 'sub-' + 'n' * (i * 8 % 240))
        os.makedirs(d, exist_ok=True)
        for k in range(10):
            p = '%s/f%d-%d%s' % (d, i, k, 'L' * 220 if k == 3 else '')
            with open(p, 'wb') as f:
                f.write(r.randbytes(r.choice((0, 1, 100, 3935, 3936, 3937, 8000, 8001, 50000))))
            if k == 1:
                os.link(p, top + '/hard-%d' % i)
            if k == 2:
                os.symlink('t' * (i * 130 + 1), p + '.link')
            if k == 4:
                os.setxattr(p, 'user.name', r.randbytes(50))
                os.setxattr(p, 'user.' + 'long' * 60, b'')
            if k == 5:
                os.chmod(p, r.choice((0o400, 0o444, 0o4755, 0o600, 0o2711)))
            if k == 6 and root:
                run(['setfacl', '-m', 'u:123:rw,g:45:r', p])
                os.setxattr(p, 'trusted.mine', b'1')
            if k == 7:
                with open(p, 'wb') as f:
                    f.truncate(3 << 20)
                    f.seek(1 << 20)
                    f.write(b'in the middle of holes')
            if k == 8 and root:
                os.chown(p, 1000 + i, 2000 + i)
            os.utime(p, ns=(10**18 + r.randrange(10**18), 10**18 + r.randrange(10**17)))
        if root:
            run(['setfacl', '-d', '-m', 'u:123:rwx', d])
        os.setxattr(d, 'user.dir', b'd')
    os.mkfifo(top + '/fifo')
    if root:
        os.mknod(top + '/null', 0o600 | 0o020000, os.makedev(1, 3))
        os.setxattr(top + '/null', 'trusted.dev', b'x')
    for here, dirs, _ in os.walk(top, topdown=False):
        os.utime(here, ns=(10**18, 10**18 + r.randrange(10**17)))


FLAGS = ['-aHAX', '--sparse', '--itemize-changes', '--delete']


def nothing_to_do(what, a, b, flags=(), user=None):
    equal(what + ': a second pass has nothing to do', run(['rsync', *FLAGS, *flags, a + '/', b + '/'], user=user).stdout, '')


def rsync_both_ways(env):
    need_program('rsync', 'setfacl')
    m = env.mount(options='acl,dev,suid')
    source, back = env.directory('source'), env.directory('back')
    make_tree(env, source)
    os.mkdir(m / 'copy')
    run(['rsync', *FLAGS, source + '/', m / 'copy/'])
    nothing_to_do('into the mount', source, m / 'copy')
    m.remount()
    nothing_to_do('into the mount, after a remount', source, m / 'copy')
    nothing_to_do('by checksum', source, m / 'copy', ['--checksum'])
    run(['rsync', *FLAGS, m / 'copy/', back + '/'])
    nothing_to_do('out of the mount', m / 'copy', back)
    nothing_to_do('and the copies are alike', source, back, ['--checksum'])
    # Changes, and within the mount, in place and not.
    run(['sh', '-c', 'cd "$0" && echo more >> hard-3 && rm -r d2 && mv d3 d33 && chmod 700 d1', source])
    run(['rsync', *FLAGS, '--inplace', '--no-whole-file', '--no-sparse', source + '/', m / 'copy/'])
    nothing_to_do('after changes, in place', source, m / 'copy', ['--checksum'])
    os.mkdir(m / 'again')
    run(['rsync', *FLAGS, m / 'copy/', m / 'again/'])
    nothing_to_do('within the mount', m / 'copy', m / 'again', ['--checksum'])
    run(['rm', '-rf', m / 'copy', m / 'again'])
    equal('all gone', os.listdir(m.path), [])
    equal('lower', sorted(set(os.listdir(m.lower)) - {'ecfs.session'}), ['ecfs.dir', 'ecfs.volume'])


def rsync_as_user(env):
    need_program('rsync')
    user = env.user()
    m = env.mount(user=user)
    source, back = env.directory('source', user), env.directory('back', user)
    user.call(make_tree, env, source, user)
    flags = ['-aHX', '--itemize-changes']
    run(['rsync', *flags, source + '/', m / 'copy/'], user=user)
    equal('second pass', run(['rsync', *flags, source + '/', m / 'copy/'], user=user).stdout, '')
    m.remount()
    equal('after a remount', run(['rsync', *flags, '--checksum', source + '/', m / 'copy/'], user=user).stdout, '')
    run(['rsync', *flags, m / 'copy/', back + '/'], user=user)
    equal('and back', run(['rsync', *flags, '--checksum', source + '/', back + '/'], user=user).stdout, '')


def tar_round_trip(env):
    need_program('tar', 'rsync', 'setfacl')
    m = env.mount(options='acl,dev,suid')
    source, back = env.directory('source'), env.directory('back')
    make_tree(env, source)
    flags = ['--xattrs', '--xattrs-include=*', '--acls', '--numeric-owner', '--sparse']
    os.mkdir(m / 'in')
    run(['tar', 'cf', m / 'a.tar', *flags, '-C', source, '.'])
    run(['tar', 'xpf', m / 'a.tar', *flags, '-C', m / 'in'])
    m.remount()
    run(['tar', 'df', m / 'a.tar', *flags, '-C', m / 'in'])  # says what differs
    run(['tar', 'cf', m / 'b.tar', *flags, '-C', m / 'in', '.'])
    run(['tar', 'xpf', m / 'b.tar', *flags, '-C', back])
    # GNU tar has whole nanoseconds only in its own pax headers; the default format keeps seconds.
    nothing_to_do('through tar into and out of the mount', source, back, ['--modify-window=1', '--checksum'])


if __name__ == '__main__':
    common.main([rsync_both_ways, rsync_as_user, tar_round_trip])
