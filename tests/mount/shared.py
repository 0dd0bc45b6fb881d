#!/usr/bin/python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""Several mounts of one volume, all with --shared, and tools at work beneath them: what one changes the others see, and nothing is lost.

ECFS_SEED sets the random cases' seed, ECFS_SHARED_OPS how many operations they try.
"""
import contextlib
import ctypes
import errno
import fcntl
import mmap
import os
import random
import re
import shutil
import signal
import sqlite3
import struct
import subprocess
import threading
import time

import common
from common import FIRST, PAYLOAD, Failed, equal, get, gives, in_child, need_program, outcome, put, run, same_bytes, true, wait_until

SEED = int(os.environ.get('ECFS_SEED') or random.SystemRandom().randrange(2**32))
OPS = int(os.environ.get('ECFS_SHARED_OPS') or 800)
IN_USE = 12  # exit status: the lower directory is mounted already
LONG = 'long ' + 'n' * 240
XATTRS = True  # both mounts' lower filesystems have them


def settle():
    """What the kernel keeps of names and attributes is good for a second; after it everything must be seen."""
    time.sleep(1.05)


def two(env, **kw):
    a = env.mount(options='shared', **kw)
    return a, env.mount(lower=a.lower, options='shared')


def at_once(*calls):
    """Each (function, arguments...) in a process of its own, begun together; their values."""
    values, errors = [None] * len(calls), []
    gate = threading.Barrier(len(calls))

    def work(i, f, *args):
        try:
            gate.wait()
            values[i] = in_child(f, *args)
        except BaseException as e:
            errors.append(e)
    threads = [threading.Thread(target=work, args=(i, *c)) for i, c in enumerate(calls)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if errors:
        raise errors[0]
    return values


def ours(lower):
    return sorted(n for n in os.listdir(lower) if n.startswith('ecfs.'))


# ---- who may mount ----------------------------------------------------------------------------------------------------------

def modes(env):
    a, b = two(env)
    equal('mode', (a.status()['mode'], b.status()['mode']), ('shared', 'shared'))
    equal('markers', len([n for n in ours(a.lower) if n.startswith('ecfs.session.')]), 2)
    refused = env.mount(lower=a.lower, ok=(IN_USE,))
    true('exclusive beside shared is refused, and by whom: ' + refused.output,
         re.search(r'mounted already by pid (%d|%d) on ' % (a.pid, b.pid), refused.output) and '--shared' in refused.output)
    put(a / 'f', b'one')
    ro = env.mount(lower=a.lower, options='ro')
    equal('read-only beside shared', get(ro / 'f'), b'one')
    put(b / 'f', b'second')
    equal('and sees what is written', get(ro / 'f'), b'second')
    gives('but does not write', 'EROFS', put, ro / 'f', b'')
    for m in (ro, a, b):
        m.umount()
    equal('what is left', ours(a.lower), ['ecfs.dir', 'ecfs.lock', 'ecfs.volume'])
    alone = env.mount(lower=a.lower)
    refused = env.mount(lower=a.lower, options='shared', ok=(IN_USE,))
    true('shared beside exclusive is refused, and by whom: ' + refused.output, 'by pid %d on ' % alone.pid in refused.output)
    equal('contents', get(alone / 'f'), b'second')
    # By the option's own name too.
    alone.umount()
    c = env.mount(lower=a.lower, extra=['--shared'])
    equal('mode by --shared', c.status()['mode'], 'shared')


def not_by_lock(env):
    """Where the lock on the directory does not reach (another host), that on the marker does."""
    a = env.mount(options='shared')
    true('the marker is locked', locked(os.path.join(a.lower, next(n for n in ours(a.lower) if n.startswith('ecfs.session.')))))
    a.umount()
    b = env.mount(lower=a.lower)
    true('the exclusive one too', locked(b.lower + '/ecfs.session'))
    b.umount()
    # A marker that another holds, but no lock on the directory.
    put(a.lower + '/ecfs.session', b'{"cut": [], "host": "elsewhere", "pid": 7, "running": true, "start": [1, 0]}')
    with lock(a.lower + '/ecfs.session'):
        for options in ('', 'shared'):
            m = env.mount(lower=a.lower, options=options, ok=(IN_USE,))
            true('refused: ' + m.output, 'mounted already by pid 7 on elsewhere' in m.output)
    os.rename(a.lower + '/ecfs.session', a.lower + '/ecfs.session.AnotherOne12')
    with lock(a.lower + '/ecfs.session.AnotherOne12'):
        m = env.mount(lower=a.lower, ok=(IN_USE,))
        true('refused: ' + m.output, 'mounted already by pid 7 on elsewhere' in m.output)
        m = env.mount(lower=a.lower, options='shared')
        m.umount()
        true('a living session\'s marker stays', 'ecfs.session.AnotherOne12' in ours(a.lower))
    m = env.mount(lower=a.lower)
    equal('a dead one is taken over', [n for n in ours(a.lower) if n.startswith('ecfs.session')], ['ecfs.session'])
    true('and said', 'was cut' in m.log_text())


# ---- locks on lower files (F_OFD_SETLK, fcntl(2)) ---------------------------------------------------------------------------

OFD_GETLK, OFD_SETLK = 36, 37


def flock64(kind):
    return struct.pack('hhqqi4x', kind, os.SEEK_SET, 0, 0, 0)


@contextlib.contextmanager
def lock(path, kind=fcntl.F_WRLCK):
    fd = os.open(path, os.O_RDWR)
    try:
        fcntl.fcntl(fd, OFD_SETLK, flock64(kind))
        yield fd
    finally:
        os.close(fd)


def locked(path):
    fd = os.open(path, os.O_RDWR)
    try:
        return struct.unpack('hhqqi4x', fcntl.fcntl(fd, OFD_GETLK, flock64(fcntl.F_WRLCK)))[0] != fcntl.F_UNLCK
    finally:
        os.close(fd)


# ---- seeing each other ------------------------------------------------------------------------------------------------------

def visibility(env, **kw):
    a, b = two(env, **kw)
    os.mkdir(a / 'dir')
    os.mkdir(a / 'empty')
    for n in ('removed', 'renamed', 'replaced', 'grown', 'shrunk', 'mode', 'xattr', 'linked', 'emptied', 'dir/inner', LONG + '1', LONG + '2'):
        put(a / n, b'old ' * 1000)
    os.symlink('old target', a / 'link')
    os.symlink('old target', a / 'relink')
    os.setxattr(a / 'xattr', 'user.one', b'1')

    def look():
        """Everything that b can see, which its kernel then remembers."""
        out = {}
        for top, dirs, files in os.walk(b.path):
            for n in dirs + files:
                p = os.path.join(top, n)
                st = os.lstat(p)
                what = os.readlink(p) if os.path.islink(p) else sorted(os.listdir(p)) if os.path.isdir(p) else (get(p), st.st_size, st.st_nlink)
                out[os.path.relpath(p, b.path)] = (st.st_mode, what, {x: os.getxattr(p, x, follow_symlinks=False) for x in os.listxattr(p, follow_symlinks=False)
                                                                        if x.startswith('user.')})
        return out
    equal('at first', len(look()), 16)
    for n in ('new', 'new dir', 'new link', 'renamed to', LONG + 'new'):
        gives('not yet', 'ENOENT', os.lstat, b / n)
    kept = os.open(b / 'grown', os.O_RDONLY)
    equal('through a descriptor', len(os.pread(kept, 1 << 16, 0)), 4000)

    os.unlink(a / 'removed')
    os.rename(a / 'renamed', a / 'renamed to')
    put(a / 'temporary', b'a new file')
    os.rename(a / 'temporary', a / 'replaced')
    put(a / 'grown', b'NEW ' * 5000)
    os.truncate(a / 'shrunk', 7)
    os.truncate(a / 'emptied', 0)
    os.chmod(a / 'mode', 0o600)
    os.setxattr(a / 'xattr', 'user.one', b'another')
    os.setxattr(a / 'xattr', 'user.two', b'2')
    os.link(a / 'linked', a / 'dir/second')
    os.unlink(a / 'dir/inner')
    os.mkdir(a / 'new dir')
    put(a / 'new dir/leaf', b'leaf')
    os.rmdir(a / 'empty')
    os.unlink(a / 'link')
    os.mkdir(a / 'link')
    os.symlink('new target', a / 'temporary')
    os.rename(a / 'temporary', a / 'relink')
    os.symlink('x', a / 'new link')
    put(a / 'new', b'new')
    os.unlink(a / (LONG + '1'))
    os.rename(a / (LONG + '2'), a / (LONG + 'new'))

    # What is opened is read as it is now; what was replaced or removed is not the old one any more.
    for n, want in (('grown', b'NEW ' * 5000), ('shrunk', b'old old'), ('emptied', b''), ('replaced', b'a new file')):
        same_bytes(n + ', opened at once', get(b / n), want)
    gives('opening what was removed', 'ENOENT', get, b / 'removed')
    put(b / 'new', b'new')  # not O_EXCL: it is there, though the kernel thinks otherwise
    gives('made by the other already', 'EEXIST', os.mkdir, b / 'new dir')
    gives('removed by the other already', 'ENOENT', os.unlink, b / 'removed')
    settle()
    same_bytes('through the old descriptor', os.pread(kept, 1 << 16, 0), b'NEW ' * 5000)
    os.close(kept)
    seen = look()
    want = {'dir': ['second'], 'link': [], 'new dir': ['leaf'], 'relink': 'new target', 'new link': 'x', 'dir/second': (b'old ' * 1000, 4000, 2),
            'renamed to': (b'old ' * 1000, 4000, 1), 'replaced': (b'a new file', 10, 1), 'grown': (b'NEW ' * 5000, 20000, 1),
            'shrunk': (b'old old', 7, 1), 'emptied': (b'', 0, 1), 'mode': (b'old ' * 1000, 4000, 1), 'xattr': (b'old ' * 1000, 4000, 1),
            'linked': (b'old ' * 1000, 4000, 2), 'new dir/leaf': (b'leaf', 4, 1), 'new': (b'new', 3, 1), LONG + 'new': (b'old ' * 1000, 4000, 1)}
    equal('after a second', {k: v[1] for k, v in seen.items()}, want)
    equal('mode', seen['mode'][0] & 0o7777, 0o600)
    if XATTRS:
        equal('xattrs', seen['xattr'][2], {'user.one': b'another', 'user.two': b'2'})
    equal('no damage seen', [m.status()['damage'] for m in (a, b)], [{k: 0 for k in a.status()['damage']}] * 2)


def visibility_plain_names(env):
    visibility(env, names='plain')


def directories(env):
    """A directory that another mount moves or replaces, with the first one in it."""
    a, b = two(env)
    os.makedirs(a / 'top/dir')
    put(a / 'top/dir/f', b'1')
    equal('seen', get(b / 'top/dir/f'), b'1')
    inside = os.open(b / 'top/dir', os.O_RDONLY | os.O_DIRECTORY)
    os.rename(a / 'top', a / 'moved')
    os.mkdir(a / 'moved/other')
    settle()
    equal('listing of a moved one', sorted(os.listdir(inside)), ['f'])
    fd = os.open('g', os.O_CREAT | os.O_WRONLY, dir_fd=inside)
    os.write(fd, b'2')
    os.close(fd)
    equal('made in it', get(a / 'moved/dir/g'), b'2')
    shutil.rmtree(a / 'moved')
    got = outcome(os.open, 'h', os.O_CREAT | os.O_WRONLY, dir_fd=inside)
    true('making in a removed one: ' + got, got in ('ENOENT', 'ESTALE'))
    os.close(inside)
    # Another under the same name: its own id, so its names are others below.
    for i in range(3):
        os.mkdir(a / 'again')
        put(a / 'again/f', b'%d' % i)
        settle()
        equal('round %d' % i, get(b / 'again/f'), b'%d' % i)
        shutil.rmtree(a / 'again')


# ---- writing at once --------------------------------------------------------------------------------------------------------

def write_mine(path, mine, rounds, seed):
    """Writes the ranges that are mine, again and again, each time with other bytes; what they hold at last."""
    r = random.Random(seed)
    fd = os.open(path, os.O_RDWR)
    last = {}
    for _ in range(rounds):
        off, n = r.choice(mine)
        last[off] = bytes([r.randrange(1, 256)]) * n
        if os.pwrite(fd, last[off], off) != n:
            raise Failed('a short write')
        if r.randrange(20) == 0:
            os.fsync(fd)
    os.close(fd)
    return last


def neighbours(env):
    a, b = two(env)
    put(a / 'f', b'')
    r = random.Random(SEED)
    ranges, at = [], 0
    # Ranges of 1 to 100 bytes, close together at the beginning, around the blocks' borders and at the end.
    for place in (0, FIRST - 300, FIRST + PAYLOAD - 300, FIRST + 3 * PAYLOAD - 200):
        at = place
        while at < place + 600:
            n = r.randrange(1, 101)
            ranges.append((at, n))
            at += n
    for rounds in (400, 400):
        got = {}
        for last in at_once((write_mine, a / 'f', ranges[0::2], rounds, SEED), (write_mine, b / 'f', ranges[1::2], rounds, SEED + 1)):
            got.update(last)
        for m in (a, b):
            data = get(m / 'f')
            for off, want in got.items():
                same_bytes('at %d (ECFS_SEED=%d)' % (off, SEED), data[off:off + len(want)], want)


def kernel_version():
    return tuple(int(n) for n in os.uname().release.split('-')[0].split('.')[:2])


def append_lines(path, who, count):
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    for i in range(count):
        line = b'%s %d ' % (who, i)
        line += who * (i * 97 % 5000) + b'\n'
        if os.write(fd, line) != len(line):
            raise Failed('a short write')
    os.close(fd)


def appending(env):
    a, b = two(env)
    count = 150
    at_once((append_lines, a / 'log', b'a', count), (append_lines, b / 'log', b'b', count), (append_lines, b / 'log', b'c', count))
    for m in (a, b):
        lines = get(m / 'log').splitlines()
        equal('lines', len(lines), 3 * count)
        for who in (b'a', b'b', b'c'):
            mine = [x for x in lines if x.startswith(who + b' ')]
            equal('in order, whole', mine, [b'%s %d ' % (who, i) + who * (i * 97 % 5000) for i in range(count)])
    # What is opened so can be read and mapped as well.
    with open(a / 'log', 'a+b') as f:
        f.write(b'end\n')
        f.flush()
        f.seek(0)
        true('read back', f.read().endswith(b'end\n'))
        if outcome(mmap.mmap, f.fileno(), 0, prot=mmap.PROT_READ) != 'ENODEV' or kernel_version() >= (6, 6):
            with mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ) as m:
                true('mapped', m[-4:] == b'end\n')


RWF_APPEND, RWF_NOAPPEND = 0x10, 0x20


def pwritev2(fd, data, off, flags):
    class Iovec(ctypes.Structure):
        _fields_ = [('base', ctypes.c_char_p), ('length', ctypes.c_size_t)]
    vector = Iovec(data, len(data))
    n = ctypes.CDLL(None, use_errno=True).pwritev2(fd, ctypes.byref(vector), 1, ctypes.c_long(off), flags)
    if n < 0:
        raise OSError(ctypes.get_errno(), 'pwritev2')
    equal('pwritev2', n, len(data))


def append_one_by_one(path, who, count):
    fd = os.open(path, os.O_WRONLY)
    for i in range(count):
        pwritev2(fd, b'%s %d\n' % (who, i), 0, RWF_APPEND)
    os.close(fd)


def append_flags(env):
    """What pwritev2(2) says of one call, whatever the descriptor was opened for."""
    a, b = two(env)
    put(a / 'f', b'0123456789')
    plain, appending_ = os.open(a / 'f', os.O_RDWR), os.open(a / 'f', os.O_RDWR | os.O_APPEND)
    with open(b / 'f', 'ab') as f:
        f.write(b'other')
    pwritev2(plain, b'end', 0, RWF_APPEND)
    same_bytes('at the end as it is', get(b / 'f'), b'0123456789otherend')
    os.pwrite(plain, b'AB', 0)
    same_bytes('without the flag at its place', get(b / 'f'), b'AB23456789otherend')
    want = b'AB23456789otherend'
    if outcome(pwritev2, appending_, b'CD', 2, RWF_NOAPPEND) != 'EOPNOTSUPP':  # since Linux 6.9
        want = b'ABCD456789otherend'
        same_bytes('not at the end', get(b / 'f'), want)
    os.write(appending_, b'!')
    same_bytes('at the end again', get(b / 'f'), want + b'!')
    os.close(plain)
    os.close(appending_)
    put(a / 'log')
    at_once((append_one_by_one, a / 'log', b'a', 200), (append_one_by_one, b / 'log', b'b', 200))
    lines = get(a / 'log').split(b'\n')
    for who in (b'a', b'b'):
        equal('nothing is lost', [x for x in lines if x.startswith(who)], [b'%s %d' % (who, i) for i in range(200)])
    same_bytes('by both', get(b / 'log'), get(a / 'log'))


def race(path, rounds, k):
    """How often each kind of making was won."""
    won = {'file': 0, 'mkdir': 0, 'link': 0, 'rename': 0, 'symlink': 0}
    put(os.path.join(path, 'own %d' % k), b'x')

    def exclusive(p):
        os.close(os.open(p, os.O_CREAT | os.O_EXCL | os.O_WRONLY))

    for i in range(rounds):
        tries = {'file': (exclusive,), 'mkdir': (os.mkdir,), 'symlink': (os.symlink, 'target'), 'link': (os.link, os.path.join(path, 'own %d' % k))}
        for name, (f, *args) in tries.items():
            got = outcome(f, *args, os.path.join(path, '%s %d' % (name, i)))
            if got == 'OK':
                won[name] += 1
            elif got != 'EEXIST':
                raise Failed('%s %d: expected OK or EEXIST, got %s' % (name, i, got))
        with open(os.path.join(path, 'common %d' % i), 'ab') as f:  # without O_EXCL it never fails
            f.write(b'%d' % k)
        got = outcome(os.rename, os.path.join(path, 'source %d' % i), os.path.join(path, 'moved %d %d' % (i, k)))
        if got == 'OK':
            won['rename'] += 1
        elif got != 'ENOENT':
            raise Failed('rename %d: expected OK or ENOENT, got %s' % (i, got))
    return won


def names_at_once(env):
    a, b = two(env)
    rounds = 40
    os.mkdir(a / LONG)
    for i in range(rounds):
        put(os.path.join(a / LONG, 'source %d' % i), b'')
    settle()
    results = at_once((race, a / LONG, rounds, 1), (race, b / LONG, rounds, 2), (race, b / LONG, rounds, 3))
    for kind in results[0]:
        equal('%s: each was won once' % kind, sum(r[kind] for r in results), rounds)
    for m in (a, b):
        names = os.listdir(m / LONG)
        equal('names', len(names), 6 * rounds + 3)
        for i in range(rounds):
            equal('who wrote common %d' % i, sorted(get(os.path.join(m / LONG, 'common %d' % i))), sorted(b'123'))
    shutil.rmtree(a / LONG)
    settle()
    equal('gone', os.listdir(b.path), [])
    equal('nothing of ours is left', ours(a.lower)[0:2], ['ecfs.dir', 'ecfs.lock'])


def churn(path, k, rounds):
    """Makes and removes in directories that others make and remove too."""
    r = random.Random(SEED + k)
    allowed = {'OK', 'EEXIST', 'ENOENT', 'ENOTEMPTY', 'ESTALE'}
    for _ in range(rounds):
        d = os.path.join(path, 'd%d' % r.randrange(3) + ('x' * 200 if r.randrange(2) else ''))
        f = os.path.join(d, 'f%d' % r.randrange(3) + ('y' * 200 if r.randrange(2) else ''))
        got = r.choice([lambda: outcome(os.mkdir, d), lambda: outcome(os.rmdir, d), lambda: outcome(put, f, b'content'), lambda: outcome(os.unlink, f),
                        lambda: outcome(os.rename, f, f + '2'), lambda: outcome(os.unlink, f + '2')])()
        if got not in allowed:
            raise Failed('expected one of %s, got %s' % (sorted(allowed), got))


def churning(env):
    a, b = two(env)
    at_once((churn, a.path, 1, 300), (churn, b.path, 2, 300), (churn, a.path, 3, 300))
    settle()
    trees = []
    for m in (a, b):
        tree = {}
        for top, _, files in os.walk(m.path):
            tree[os.path.relpath(top, m.path)] = sorted(files)
            for n in files:
                data = get(os.path.join(top, n))
                true('%s is whole' % n, data in (b'content', b''))
        trees.append(tree)
    equal('both see the same', trees[0], trees[1])
    shutil.rmtree(a.path, ignore_errors=True)
    settle()
    equal('all could be removed', os.listdir(b.path), [])
    equal('no damage seen', [m.status()['damage'] for m in (a, b)], [{k: 0 for k in a.status()['damage']}] * 2)
    a.umount()
    b.umount()
    equal('nothing of ours is left', ours(a.lower), ['ecfs.dir', 'ecfs.lock', 'ecfs.volume'])


def one_at_a_time(env):
    """Operations on one file, each through another mount, against the bytes that it must hold."""
    a, b = two(env)
    r = random.Random(SEED)
    model = bytearray()
    put(a / 'f', b'')
    fds = [os.open(m / 'f', os.O_RDWR) for m in (a, b)]
    paths = [a / 'f', b / 'f']
    history = []
    borders = [0, 1, FIRST, FIRST + PAYLOAD, FIRST + 2 * PAYLOAD, 4096, 8192]

    def position():
        return max(0, r.choice(borders) + r.randrange(-70, 70)) if r.randrange(3) else r.randrange(len(model) + 200)
    start = time.monotonic()
    for i in range(OPS):
        m = r.randrange(2)
        op = r.choice(['write'] * 4 + ['read'] * 5 + ['append', 'truncate', 'punch', 'empty', 'stat', 'reopen'])
        off, n = position(), r.choice([1, 10, 100, 1000, 5000])
        history.append((i, 'ab'[m], op, off, n))
        what = 'ECFS_SEED=%d, after %s' % (SEED, history[-6:])
        if op == 'write':
            data = r.randbytes(n)
            os.pwrite(fds[m], data, off)
            if len(model) < off:
                model.extend(bytes(off - len(model)))
            model[off:off + n] = data
        elif op == 'append':
            data = r.randbytes(n)
            with open(paths[m], 'ab', 0) as f:
                f.write(data)
            model += data
        elif op in ('truncate', 'empty'):
            size = 0 if op == 'empty' else off
            os.ftruncate(fds[m], size)
            del model[size:]
            model.extend(bytes(size - len(model)))
        elif op == 'punch':
            run(['fallocate', '-p', '-o', str(off), '-l', str(n), paths[m]])
            model[off:off + n] = bytes(len(model[off:off + n]))
        elif op == 'reopen':
            os.close(fds[m])
            fds[m] = os.open(paths[m], os.O_RDWR)
            same_bytes('all of it; ' + what, os.pread(fds[m], 1 << 20, 0), bytes(model))
        else:
            # Opened anew, or past the kernel's cache: a descriptor that stays open may be a second behind.
            fd = os.open(paths[m], os.O_RDONLY)
            if op == 'stat':
                equal('size; ' + what, os.fstat(fd).st_size, len(model))
            else:
                same_bytes(what, os.pread(fd, n, off), bytes(model[off:off + n]))
            os.close(fd)
    for p in paths:
        same_bytes('at last', get(p), bytes(model))
    for fd in fds:
        os.close(fd)


# ---- others beneath ---------------------------------------------------------------------------------------------------------

def sync_beneath(env):
    """rsync brings another state of the lower directory: with temporary files and renames, and in place."""
    need_program('rsync')
    source = env.mount()
    big = random.Random(SEED).randbytes(3_000_000)
    os.mkdir(source / 'dir')
    put(source / 'big', big)
    put(source / 'small', b'first')
    put(source / 'dir/leaf', b'first leaf')
    source.umount()
    copy = env.path('copy')
    rsync = ['rsync', '-aX', '--delete', '--checksum', '--exclude=/ecfs.session*', '--exclude=/ecfs.lock', source.lower + '/', copy + '/']
    run(rsync)
    m = env.mount(lower=copy, options='shared')
    same_bytes('the copy', get(m / 'big'), big)
    equal('and', (get(m / 'small'), sorted(os.listdir(m / 'dir'))), (b'first', ['leaf']))
    stale = os.open(m / 'big', os.O_RDONLY)
    os.pread(stale, 100, 0)

    source.mount()
    other = bytes(reversed(big))
    put(source / 'temporary', other)
    os.rename(source / 'temporary', source / 'big')
    put(source / 'small', b'second and longer')
    shutil.rmtree(source / 'dir')
    os.mkdir(source / 'dir')
    put(source / 'dir/flower', b'another')
    put(source / ('dir/' + LONG), b'long')
    source.umount()
    run(rsync)
    settle()
    same_bytes('replaced', get(m / 'big'), other)
    equal('rewritten', get(m / 'small'), b'second and longer')
    equal('a directory with another id', {n: get(m / ('dir/' + n)) for n in os.listdir(m / 'dir')}, {'flower': b'another', LONG: b'long'})
    got = b''
    try:
        got = os.pread(stale, 100, 2_000_000)
    except OSError as e:
        equal('the old descriptor', e.errno, errno.ESTALE)
    true('the old descriptor reads the old file', got in (b'', big[2_000_000:2_000_100]))
    os.close(stale)

    # In place, while a reader looks: each byte is of one of the two, or there is an error.
    source.mount()
    with open(source / 'big', 'r+b') as f:
        f.write(big)
    source.umount()
    child = subprocess.Popen(rsync[:2] + ['--inplace', '--no-whole-file'] + rsync[2:])
    fd = os.open(m / 'big', os.O_RDONLY | os.O_DIRECT)
    buffer = mmap.mmap(-1, 8192)
    r = random.Random(SEED)
    try:
        while child.poll() is None:
            off = r.randrange(0, 2_900_000) // 4096 * 4096
            with contextlib.suppress(OSError):
                n = os.preadv(fd, [buffer], off)
                for k in range(0, n - 16, 16):
                    true('old or new', buffer[k:k + 16] in (big[off + k:off + k + 16], other[off + k:off + k + 16]) or block_border(off + k))
    finally:
        child.wait()
        os.close(fd)
    equal('rsync', child.returncode, 0)
    settle()
    same_bytes('at last', get(m / 'big'), big)


def block_border(off):
    """Does a block of the format end within these 16 bytes?"""
    return off < FIRST < off + 16 or (off + 16 - FIRST) % PAYLOAD < 16


def stale_handles(env):
    a, b = two(env)
    for how in ('replaced', 'removed', 'rewritten'):
        put(a / 'f', b'the old one ' * 1000)
        settle()
        fd = os.open(b / 'f', os.O_RDWR)
        equal('read', os.pread(fd, 11, 0), b'the old one')
        if how == 'replaced':
            put(a / 'new', b'THE NEW ONE ' * 1000)
            os.rename(a / 'new', a / 'f')
        elif how == 'removed':
            os.unlink(a / 'f')
        else:
            os.truncate(a / 'f', 0)
            put(a / 'f', b'THE NEW ONE ' * 1000)
        settle()
        for off in (0, 4096, 11_000):
            try:
                got = os.pread(fd, 500, off)
                whole = [(text * 1000)[off:off + 500] for text in (b'the old one ', b'THE NEW ONE ')]
                true('%s: all old or all new, got %s' % (how, got[:30]), got in whole)
                if how == 'rewritten':
                    equal('rewritten', got, whole[1])
            except OSError as e:
                equal(how, e.errno, errno.ESTALE)
                true('only what is gone is stale', how != 'rewritten')
        os.close(fd)
        true('by its name', outcome(get, b / 'f') == ('ENOENT' if how == 'removed' else 'OK'))
    equal('and new', get(b / 'f'), b'THE NEW ONE ' * 1000)


def mapped(env):
    a, b = two(env)
    put(a / 'f', b'1' * 10000)
    with open(b / 'f', 'rb') as f, mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ) as m:
        equal('mapped', m[5000:5003], b'111')
        with open(a / 'f', 'r+b') as g:
            g.write(b'2' * 10000)
        settle()
        os.stat(b / 'f')  # the kernel asks, and forgets what it had
        equal('mapped still', (m[0:3], m[5000:5003], m[9997:]), (b'222', b'222', b'222'))
    # Written through a mapping: out at the latest when it is closed.
    with open(b / 'f', 'r+b') as f, mmap.mmap(f.fileno(), 0) as m:
        m[100:103] = b'abc'
        m.flush()
        equal('the other reads it', get(a / 'f')[99:104], b'2abc2')


def sqlite(env):
    """Programs' locks do not reach other mounts: one program at a time, through changing mounts."""
    a, b = two(env)
    for i in range(12):
        db = sqlite3.connect((a, b)[i % 2] / 'db', isolation_level=None)
        db.execute('pragma journal_mode=delete')
        db.execute('create table if not exists t (i, data blob)')
        db.execute('begin')
        for k in range(20):
            db.execute('insert into t values (?, ?)', (i, bytes([i]) * (k * 211 % 3000)))
        db.execute('commit')
        equal('rows', db.execute('select count(*) from t').fetchone()[0], 20 * (i + 1))
        equal('integrity', db.execute('pragma integrity_check').fetchall(), [('ok',)])
        db.close()


# ---- ends -------------------------------------------------------------------------------------------------------------------

def killed(env):
    a, b = two(env)
    put(a / 'f', b'x' * 20000)
    r = random.Random(SEED)
    for round_ in range(4):
        child = os.fork()
        if child == 0:
            with contextlib.suppress(OSError):
                fd = os.open(a / 'f', os.O_RDWR)
                while True:
                    os.pwrite(fd, b'y' * r.randrange(1, 9000), r.randrange(60000))
                    if r.randrange(8) == 0:
                        os.ftruncate(fd, r.randrange(60000))
            os._exit(0)
        wait_until('it writes', lambda: b'y' in get(b / 'f'))
        time.sleep(r.random() * 0.05)
        a.kill()
        os.waitpid(child, 0)
        # The one that lives goes on: reads all of it, writes, and the next finds no damage.
        data = get(b / 'f')
        true('only what was written', set(data) <= set(b'xyz\0'))
        with open(b / 'f', 'r+b') as f:
            f.write(b'z' * 100)
        equal('written', get(b / 'f')[:100], b'z' * 100)
        put(b / 'new', b'made beside a dead one')
        a.mount()
        true('the cut is found', 'was cut' in a.log_text())
        same_bytes('by both', get(a / 'f'), get(b / 'f'))
        equal('no damage', [m.status()['damage']['blocks'] + m.status()['damage']['headers'] for m in (a, b)], [0, 0])


def waiting(env):
    """Somebody holds a lower file's lock: who wants the file waits, the others do not, and the daemon ends when it is told to."""
    a = env.mount(options='shared')
    put(a / 'f', b'content')
    put(a / 'other', b'other')
    lower = a.lower_path('f')
    pid = a.pid

    def reader():
        child = subprocess.Popen(['cat', a / 'f'], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        return child
    with lock(lower):
        child = reader()
        wait_until('it waits', lambda: common.alive(child.pid))
        time.sleep(0.2)
        equal('it waits', child.poll(), None)
        equal('another file', get(a / 'other'), b'other')
    out, _ = child.communicate()
    equal('then it reads', out, b'content')
    with lock(a.lower + '/ecfs.lock'):
        child = subprocess.Popen(['mkdir', a / 'dir'])
        time.sleep(0.2)
        equal('a change of names waits', child.poll(), None)
        equal('reading does not', get(a / 'f'), b'content')
    equal('then it is made', child.wait(), 0)
    with lock(lower):
        child = reader()
        time.sleep(0.2)
        os.kill(pid, signal.SIGTERM)
        wait_until('it is detached', lambda: not common.mounted(a.path))
        os.kill(pid, signal.SIGTERM)
        wait_until('the daemon is gone', lambda: not common.alive(pid), 20)
        child.communicate()
        true('the reader failed', child.returncode != 0)
    a.pid = None
    equal('no marker', [n for n in ours(a.lower) if 'session' in n], [])


if __name__ == '__main__':
    common.main([modes, not_by_lock, visibility, visibility_plain_names, directories, neighbours, appending, append_flags, names_at_once, churning, one_at_a_time,
                 sync_beneath, stale_handles, mapped, sqlite, killed, waiting])
