#!/usr/bin/python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""The same random calls by many kinds of callers in a plain directory of ext4 and in a mount over the same filesystem: the same
results and errnos, and in the end the same trees - owners, groups, modes, extended attributes, contents - before and after a remount.

The seed is printed; ECFS_USERS_SEED sets it (0: any), ECFS_USERS_CALLS the number of calls (the long run: 30000)."""
import os
import random
import stat

import common
from common import Failed, equal, need_root
from identities import ALL, Actor, acl, available

SEED = int(os.environ.get('ECFS_USERS_SEED', '1')) or random.SystemRandom().randrange(1, 1 << 31)
CALLS = int(os.environ.get('ECFS_USERS_CALLS', '2500'))
LONG = 'long' + 'n' * 200


# ---- what is called: functions of a path below, run in the actor's process ---------------------------------------------------

def create(path, mode, umask):
    os.umask(umask)
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, mode))


def create_temporary(directory, path, mode, umask):
    os.umask(umask)
    fd = os.open(directory, os.O_TMPFILE | os.O_RDWR, mode)
    try:
        os.write(fd, b'temporary')
        os.link('/proc/self/fd/%d' % fd, path, src_dir_fd=fd, follow_symlinks=True)
    finally:
        os.close(fd)


def mkdir(path, mode, umask):
    os.umask(umask)
    os.mkdir(path, mode)


def mknod(path, mode, device, umask):
    os.umask(umask)
    os.mknod(path, mode, device)


def write(path, flags, data):
    fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK | flags)
    try:
        if stat.S_ISREG(os.fstat(fd).st_mode):
            os.write(fd, data)
    finally:
        os.close(fd)


def fallocate(path, size):
    fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    try:
        os.posix_fallocate(fd, 0, size)
    finally:
        os.close(fd)


def facts(path):
    st = os.lstat(path)
    return oct(st.st_mode), st.st_uid, st.st_gid, None if stat.S_ISDIR(st.st_mode) else st.st_size, st.st_nlink


def attributes(path):
    return sorted(os.listxattr(path, follow_symlinks=False))


def lchown(path, uid, gid):
    os.chown(path, uid, gid, follow_symlinks=False)


def listing(path):
    return sorted(os.listdir(path))


def readable(path):
    with open(path, 'rb', opener=lambda p, f: os.open(p, f | os.O_NONBLOCK)) as f:
        return f.read(100) if stat.S_ISREG(os.fstat(f.fileno()).st_mode) else None


def tree(top):
    """Everything that must be equal, by path."""
    out = {}
    for here, dirs, files in os.walk(top):
        for name in [*dirs, *files, '.']:
            path = os.path.join(here, name)
            st = os.lstat(path)
            entry = [*facts(path), {n: os.getxattr(path, n, follow_symlinks=False) for n in attributes(path)}]
            if stat.S_ISREG(st.st_mode):
                entry.append(readable(path))
            if stat.S_ISLNK(st.st_mode):
                entry.append(os.readlink(path))
            out[os.path.relpath(path, top)] = entry
    return out


class Calls:
    def __init__(self, rng, uids, gids):
        self.rng, self.uids, self.gids = rng, uids, gids
        self.dirs = ['.', 'shared', 'sticky', 'own', 'acl', 'shared/sub', 'own/sub', 'acl/sub']
        self.names = ['a', 'b', 'c', 'd', 'e', 'f', LONG]
        self.there = []

    def path(self):
        if self.there and self.rng.random() < 0.8:
            return self.rng.choice(self.there)
        return os.path.join(self.rng.choice(self.dirs), self.rng.choice(self.names))

    def look(self, top):
        """What is there now, to be called upon by name."""
        self.there = sorted(os.path.relpath(os.path.join(here, n), top) for here, dirs, files in os.walk(top) for n in dirs + files)

    def mode(self):
        return self.rng.choice([0o644, 0o600, 0o666, 0o777, 0o755, 0o664, 0o2755, 0o4755, 0o6755, 0o2644, 0o6644, 0o2770, 0o1777, 0o000, 0o444, 0o222])

    def acl(self):
        r = self.rng
        some = lambda ids: [(i, r.randrange(8)) for i in r.sample(ids, r.randrange(3))]
        return acl(r.randrange(8), r.randrange(8), r.randrange(8), some(self.uids), some(self.gids), r.choice([None, r.randrange(8)]))

    def next(self):
        """(function, arguments); a Below is a path that each tree has."""
        r = self.rng
        p, umask = Below(self.path()), r.choice([0, 0o022, 0o002, 0o077])
        new = Below(os.path.join(r.choice(self.dirs), r.choice(self.names)))
        new_dir = Below(r.choice([d for d in self.dirs if '/' in d] + [new]))
        acl_name = r.choice(['system.posix_acl_access', 'system.posix_acl_default'])
        choices = [
            lambda: (create, new, self.mode(), umask),
            lambda: (mkdir, new_dir, r.choice([0o755, 0o777, 0o700, 0o2775, 0o1777, 0o070]), umask),
            lambda: (os.symlink, r.choice(['target', 't' * 3500]), new),
            lambda: r.choice([(os.mkfifo, new, 0o664), (mknod, new, stat.S_IFCHR | 0o666, os.makedev(1, 3), umask)]),
            lambda: (create_temporary, Below(r.choice(self.dirs)), new, self.mode(), umask),
            lambda: (os.link, p, new),
            lambda: (os.rename, p, r.choice([new, Below(self.path())])),
            lambda: r.choice([(os.unlink, p), (os.rmdir, p)]),
            lambda: (os.chmod, p, self.mode()),
            lambda: (lchown, p, r.choice([-1, -1, *self.uids]), r.choice([-1, *self.gids])),
            lambda: (write, p, r.choice([0, os.O_APPEND, os.O_TRUNC]), b'x' * r.choice([0, 1, 10, 5000])),
            lambda: r.choice([(os.truncate, p, r.choice([0, 5, 5000])), (fallocate, p, r.choice([1, 6000]))]),
            lambda: (os.setxattr, p, r.choice(['user.a', 'trusted.a', 'security.a']), b'v%d' % r.randrange(100)),
            lambda: (os.setxattr, p, acl_name, self.acl()),
            lambda: r.choice([(os.removexattr, p, r.choice(['user.a', 'trusted.a', acl_name])),
                                  (os.getxattr, p, r.choice(['user.a', 'trusted.a', 'security.a', acl_name]))]),
            lambda: (attributes, p),
            lambda: r.choice([(readable, p), (listing, Below(r.choice(self.dirs))), (os.access, p, r.randrange(8))]),
        ]
        return r.choice(choices)()


class Below(str):
    pass


def many_callers(env):
    need_root()
    print('seed %d, %d calls' % (SEED, CALLS), flush=True)
    rng = random.Random(SEED)
    first = common.unused_uid()
    uids, gids = [first + i for i in range(8)], [first + 100 + i for i in range(4)]
    shared, other = gids[0], gids[1]
    actors = [
        Actor('root', 0, 0, [0], ALL),
        Actor('root without capabilities', 0, 0, [0], []),
        Actor('member', uids[0], gids[2], [shared, other]),
        Actor('second member', uids[1], gids[2], [*range(first + 200, first + 260), shared]),
        Actor('stranger', uids[2], gids[3]),
        Actor('owner of many groups', uids[0], shared, [*range(first + 300, first + 440)]),
    ] + [Actor(c, uids[3 + i % 5], gids[2], [other], c.split(',')) for i, c in enumerate(
        ['DAC_OVERRIDE', 'FOWNER', 'CHOWN', 'FSETID', 'MKNOD', 'SYS_ADMIN', 'SYS_RESOURCE', 'CHOWN,FSETID', 'FOWNER,FSETID,DAC_OVERRIDE']) if available(*c.split(','))]
    base = env.filesystem('ext4', 128, mkfs=['-b', '4096'])
    m = env.mount(lower=env.lower(on=base), options='allow_other,acl,suid,dev')
    tops = [os.path.join(base, 'plain'), m / 'tree']
    def tend(top):
        os.chmod(top, 0o777)
        for name, uid, gid, mode in (('shared', 0, shared, 0o2775), ('sticky', 0, 0, 0o1777), ('own', uids[0], gids[2], 0o755), ('acl', 0, other, 0o2777)):
            path = top + '/' + name
            if not os.path.lexists(path):
                os.mkdir(path)
            if stat.S_ISDIR(os.lstat(path).st_mode):
                os.chown(path, uid, gid)
                os.chmod(path, mode)
    for top in tops:
        os.mkdir(top)
        tend(top)
        os.setxattr(top + '/acl', 'system.posix_acl_default', acl(7, 5, 0, [(uids[1], 6)], [(shared, 7)], 6))
    calls = Calls(rng, uids, gids)
    seen = {}
    for n in range(CALLS):
        if n % 8 == 0:
            calls.look(tops[0])
        if n % 30 == 0:
            for top in tops:
                tend(top)
        actor = rng.choice(actors)
        f, *args = calls.next()
        got = [actor.outcome(f, *(os.path.join(top, a) if isinstance(a, Below) else a for a in args)) for top in tops]
        what = 'call %d of seed %d: %s: %s(%s)' % (n, SEED, actor.name, f.__name__, ', '.join(map(common.short, args)))
        equal(what, got[1], got[0])
        seen[got[0][0]] = seen.get(got[0][0], 0) + 1
        for path in {a for a in args if isinstance(a, Below)}:
            after = [look(os.path.join(top, path)) for top in tops]
            equal('%s, then %s' % (what, path), after[1], after[0])
    print('outcomes: %s' % seen, flush=True)
    if min(seen.get(e, 0) for e in ('OK', 'EPERM', 'EACCES', 'EEXIST', 'ENOENT')) < CALLS // 100:
        raise Failed('the calls of seed %d do not say much: %s' % (SEED, seen))
    want = tree(tops[0])
    for when in ('at once', 'after a remount'):
        got = tree(tops[1])
        for path in sorted(want.keys() | got.keys()):
            equal('%s, seed %d, %s' % (path, SEED, when), got.get(path), want.get(path))
        m.remount()
    for actor in actors:
        actor.end()


def look(path):
    """As root: what a call has left."""
    try:
        return facts(path)
    except OSError as e:
        return e.errno


if __name__ == '__main__':
    common.main([many_callers], limit=3600)
