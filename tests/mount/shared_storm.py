#!/usr/bin/python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""Two mounts of one volume, with two processes each that do at random what can be done, on the same few names: no call hangs or gives an
error that a plain directory with others at work would not give, both see the same tree afterwards, nothing appended is lost, and the lower
directory is whole by ecfs-rescue.

ECFS_SEED sets the seed, ECFS_STORM_OPS how many calls each process makes.
"""
import os
import random
import stat

import common
import shared
from common import Failed, equal, get, outcome, same_bytes, true
from rescue import rescue

SEED = int(os.environ.get('ECFS_SEED') or random.SystemRandom().randrange(2**32))
OPS = int(os.environ.get('ECFS_STORM_OPS') or 130)
# What names that others change meanwhile make of a call: gone, there already, another type, a link to itself or to a directory, a hard link to
# a directory, a directory into itself, a link on the way whose target is no name. ESTALE is said where the kernel has looked twice in vain.
ALLOWED = {'OK', 'ENOENT', 'EEXIST', 'ENOTEMPTY', 'ENOTDIR', 'EISDIR', 'ELOOP', 'EPERM', 'EINVAL', 'ESTALE', 'ENAMETOOLONG'}
RECORD = 64
DIRS = ('d', 'e', 'f' * 200)


def names():
    """The pool: short names and ones that need a name file, in the root and in directories that come and go."""
    return ['a', 'b', 'c', *DIRS] + [os.path.join(d, n) for d in DIRS for n in ('x', 'y', 'z' * 220)]


def do_write(path, r):
    fd = os.open(path, os.O_RDWR | os.O_CREAT | r.choice([0, 0, os.O_EXCL]), 0o644)
    try:
        for _ in range(r.randrange(1, 4)):
            data = bytes([r.randrange(1, 256)]) * r.choice([1, 100, 4064, 9000])
            if os.pwrite(fd, data, r.choice([0, 10, 3936, 8000, 20000])) != len(data):
                raise Failed('a short write')
            os.pread(fd, 5000, r.randrange(20000))
        if r.randrange(8) == 0:
            os.fsync(fd)
    finally:
        os.close(fd)


def do_append(path, r):
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(fd, bytes([r.randrange(1, 256)]) * r.choice([1, 100, 5000]))
    finally:
        os.close(fd)


def work(mount, who, seed, ops):
    """How often each kind of call came to what."""
    r = random.Random(seed)
    pool = [os.path.join(mount, n) for n in names()]
    fd = os.open(os.path.join(mount, 'log'), os.O_WRONLY | os.O_APPEND)
    counts = {}
    appended = 0
    for _ in range(ops):
        p, q, d = r.choice(pool), r.choice(pool), os.path.join(mount, r.choice(DIRS))
        kind, call, *args = r.choice([
            ('write', do_write, p, r), ('write', do_write, q, r), ('write', do_write, p, r), ('append', do_append, q, r), ('append', do_append, p, r), ('truncate', os.truncate, p, r.randrange(12000)),
            ('empty', os.truncate, p, 0), ('read', get, p), ('unlink', os.unlink, p), ('unlink', os.unlink, q), ('rename', os.rename, p, q),
            ('rename', os.rename, p, q), ('link', os.link, p, q), ('mkdir', os.mkdir, p), ('mkdir', os.mkdir, d), ('mkdir', os.mkdir, d),
            ('rmdir', os.rmdir, d), ('list', os.listdir, d),
            ('symlink', os.symlink, r.choice(['a', 'target ' + 'l' * 900, 'L' * 4000]), p), ('chmod', os.chmod, p, r.choice([0o600, 0o644, 0o755])),
            ('stat', os.lstat, p), ('log', None)])
        if kind == 'log':
            record = b'%s %d ' % (who, appended)
            if os.write(fd, record.ljust(RECORD - 1, b'.') + b'\n') != RECORD:
                raise Failed('a short write')
            appended += 1
            continue
        got = outcome(call, *args)
        if got not in ALLOWED:
            raise Failed('%s %s: %s (ECFS_SEED=%d)' % (kind, [a[-20:] if isinstance(a, str) else a for a in args], got, SEED))
        counts[kind, got] = counts.get((kind, got), 0) + 1
    os.close(fd)
    return counts, appended


def tree(mount):
    """Everything in it; files by contents, and by which names they have."""
    out = {}
    by_inode = {}
    for top, dirs, files in os.walk(mount):
        for n in dirs + files:
            p = os.path.join(top, n)
            path = os.path.relpath(p, mount)
            st = os.lstat(p)
            if stat.S_ISLNK(st.st_mode):
                out[path] = ('link', os.readlink(p), st.st_size)
            elif stat.S_ISDIR(st.st_mode):
                out[path] = ('directory', sorted(os.listdir(p)))
            else:
                data = get(p)
                equal('the size of ' + path, st.st_size, len(data))
                out[path] = ('file', stat.S_IMODE(st.st_mode), data)
            if not stat.S_ISDIR(st.st_mode):
                by_inode.setdefault(st.st_ino, []).append((path, st.st_nlink))
    links = sorted(sorted(paths) for paths in by_inode.values())
    for paths in links:
        equal('names of %s' % paths[0][0], [n for _, n in paths], [len(paths)] * len(paths))
    return out, links


def storm(env, **kw):
    a, b = shared.two(env, **kw)
    common.put(a / 'log')
    shared.settle()
    who = [(a, b'a1'), (b, b'b1'), (a, b'a2'), (b, b'b2')]
    results = shared.at_once(*((work, m.path, name, SEED + i, OPS) for i, (m, name) in enumerate(who)))
    done = {}
    for counts, _ in results:
        for (kind, got), n in counts.items():
            if got == 'OK':
                done[kind] = done.get(kind, 0) + n
    true('a tenth of all calls and more did something, and of every common kind one (ECFS_SEED=%d): %s' % (SEED, done),
         sum(done.values()) * 10 >= 4 * OPS and set(done) >= {'write', 'append', 'rename', 'unlink', 'mkdir', 'list', 'stat'})
    shared.settle()
    log = get(a / 'log')
    same_bytes('the log by both', get(b / 'log'), log)
    for (_, name), (_, appended) in zip(who, results):
        mine = [line for line in log.split(b'\n') if line.startswith(name + b' ')]
        equal('what %s appended (ECFS_SEED=%d)' % (name.decode(), SEED), mine,
              [(b'%s %d ' % (name, i)).ljust(RECORD - 1, b'.') for i in range(appended)])
    seen = tree(a.path)
    equal('both see the same tree (ECFS_SEED=%d)' % SEED, tree(b.path) == seen, True)
    equal('no damage seen', [m.status()['damage'] for m in (a, b)], [{k: 0 for k in a.status()['damage']}] * 2)
    a.umount()
    b.umount()
    text = rescue(env, 'verify', a.lower)
    true('verify: ' + text[-300:], text.endswith('no damage\n'))
    # Alone again: the same tree; and with it goes all that was kept beside it.
    alone = env.mount(lower=a.lower)
    equal('the same tree by a mount of its own (ECFS_SEED=%d)' % SEED, tree(alone.path) == seen, True)
    long_targets = {p for p, what in seen[0].items() if what[0] == 'link' and len(what[1]) == 4000}
    names_of = {p: i for i, paths in enumerate(seen[1]) for p, _ in paths}
    equal('target files', len([n for n in os.listdir(a.lower) if n.startswith('ecfs.target.')]), len({names_of[p] for p in long_targets}))
    common.run(['find', alone.path, '-mindepth', '1', '-delete'])
    alone.umount()
    equal('nothing of ours is left', [n for n in shared.ours(a.lower) if n != 'ecfs.dir'], ['ecfs.lock', 'ecfs.volume'])


def storm_plain_names(env):
    storm(env, names='plain')


if __name__ == '__main__':
    common.main([storm, storm_plain_names], limit=3600)
