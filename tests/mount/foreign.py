#!/usr/bin/python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""What sync tools, network filesystems and people leave in the lower directory: conflict copies of our files are shown and work like any
other file, everything else is left out, counted, said once, and kept."""
import os
import shutil
import stat

import common
import kernel
from common import at_most, equal, get, gives, put, run, true
from kernel import RENAME_EXCHANGE, RENAME_NOREPLACE, renameat2

MARKS = ['.sync-conflict-20260101-120000-ABCDEFG', ' (conflicted copy 2026-01-01 120000)', '~', '-2', '_conflict']
LONG = 'L' * 200
LENGTHS = {'short': 'name.txt', 'long': LONG}


def make_dir(p):
    os.mkdir(p)
    put(p + '/in', b'in')
    put(p + '/' + LONG, b'long in')


# How an object of each kind is made, what of it must be the same in its copy, and how it is removed.
KINDS = {
    'file': (lambda p: put(p, b'content' * 2000), get, os.unlink),
    'empty': (put, get, os.unlink),
    'dir': (make_dir, lambda p: {n: get(p + '/' + n) for n in os.listdir(p)}, shutil.rmtree),
    'link': (lambda p: os.symlink('to/some/where', p), lambda p: (os.readlink(p), os.lstat(p).st_size), os.unlink),
    'far': (lambda p: os.symlink('t/' * 1900, p), lambda p: (os.readlink(p), os.lstat(p).st_size), os.unlink),
    'fifo': (os.mkfifo, lambda p: stat.S_ISFIFO(os.lstat(p).st_mode), os.unlink),
}


def lower_copies(lower_path, marks=MARKS):
    """As sync tools do it: the other version beside ours, under our name and a mark. Gives the marks that went by."""
    here, name = os.path.split(lower_path)
    for mark in marks:
        run(['cp', '-a', '--', lower_path, os.path.join(here, name + mark)])
    if name.startswith('ecfs.long.'):
        # Before what they take for an extension.
        front, back = name.rsplit('.', 1)
        run(['cp', '-a', '--', lower_path, os.path.join(here, front + '.inside.' + back)])
        return [*marks, '.inside']
    return list(marks)


def copies_in(m, do):
    """Every kind, both lengths, every mark. `do` calls a function as who shall use the mount."""
    paths = {(kind, length): m / (kind + '/' + name) for kind in KINDS for length, name in LENGTHS.items()}

    def make():
        for kind in KINDS:
            os.mkdir(m / kind)
            for name in LENGTHS.values():
                KINDS[kind][0](m / (kind + '/' + name))
        return {k: KINDS[k[0]][1](p) for k, p in paths.items()}
    want = do(make)
    below = {k: m.lower_path(p) for k, p in paths.items()}
    m.umount()
    marks = {k: lower_copies(p) for k, p in below.items()}
    m.mount()

    def cold():
        # Each by its name, before any listing.
        for k, p in paths.items():
            for mark in marks[k]:
                equal('%s: the copy %r' % (k, mark), KINDS[k[0]][1](p + mark), want[k])
            gives('%s: a copy that is not there' % (k,), 'ENOENT', os.lstat, p + '.other')
        listed()

    def listed():
        for kind in KINDS:
            equal('listed: ' + kind, sorted(os.listdir(m / kind)),
                  sorted(LENGTHS[length] + mark for length in LENGTHS for mark in ['', *marks[kind, length]]))

    def work():
        listed()
        for k, p in paths.items():
            kind, length = k
            first, second, third, *_ = marks[k]
            same = lambda what, path: equal('%s: %s' % (k, what), KINDS[kind][1](path), want[k])
            # A copy as the source of a rename, as its target, exchanged, and refused.
            os.rename(p + first, m / (kind + '/renamed' + length))
            same('renamed', m / (kind + '/renamed' + length))
            gives('%s: the name that it had' % (k,), 'ENOENT', os.lstat, p + first)
            gives('%s: noreplace' % (k,), 'EEXIST', renameat2, p, p + second, RENAME_NOREPLACE)
            renameat2(p, p + second, RENAME_EXCHANGE)
            same('exchanged', p)
            same('exchanged, the copy', p + second)
            if kind == 'dir':
                gives('%s: over a copy with content' % (k,), 'ENOTEMPTY', os.rename, p, p + third)
                shutil.rmtree(p + third)
                os.mkdir(p + third)
            os.rename(p, p + third)
            same('over a copy', p + third)
            gives('%s: the first is gone' % (k,), 'ENOENT', os.lstat, p)
            # What is left of them without it.
            for mark in marks[k][3:]:
                same('without the original, %r' % mark, p + mark)
            if kind == 'file':
                with open(p + marks[k][3], 'r+b') as f:
                    f.write(b'changed')
                os.link(p + marks[k][3], p + ' linked')
                equal('links', (os.stat(p + ' linked').st_nlink, get(p + ' linked')[:9]), (2, b'changedco'))
                os.unlink(p + ' linked')
                os.truncate(p + marks[k][3], 0)

    def clear():
        for k, p in paths.items():
            kind, length = k
            KINDS[kind][2](m / (kind + '/renamed' + length))
            for mark in marks[k][1:]:
                KINDS[kind][2](p + mark)
        for kind in KINDS:
            equal('left in ' + kind, os.listdir(m / kind), [])
            os.rmdir(m / kind)

    do(cold)
    m.remount()
    do(work)
    m.remount()
    do(clear)
    equal('left below', sorted(n for n in os.listdir(m.lower) if not n.startswith('ecfs.target.')), ['ecfs.dir', 'ecfs.session', 'ecfs.volume'])
    equal('nothing was foreign', m.status()['damage']['foreign'], 0)


def copies(env):
    copies_in(env.mount(on=env.filesystem('tmpfs', 64) if os.geteuid() == 0 else None), lambda f: f())


def copies_of_a_user(env):
    user = env.user()
    here = env.filesystem('tmpfs', 64)
    os.chown(here, user.uid, user.gid)
    copies_in(env.mount(user=user, on=here), user.call)


def names_that_meet(env):
    """A copy's name that an object has already, that two copies have, and that is too long."""
    m = env.mount()
    for name in ('a', LONG, 'é' * 127):
        put(m / name, b'original')
    put(m / 'a~', b'real')
    a, long, accents = m.lower_path('a'), m.lower_path(LONG), m.lower_path('é' * 127)
    m.umount()
    for path, marks in ((a, ['~']), (long, ['~', '-' * 60]), (accents, ['-12'])):
        lower_copies(path, marks)
    # Shown as the one with the same mark inside.
    front, back = long.rsplit('.', 1)
    put(front + '~.' + back, get(long))
    m.mount()
    equal('the real one wins', get(m / 'a~'), b'real')
    cut = LONG[:255 - 60] + '-' * 60
    shown = ['a', 'a~', LONG, LONG + '~', cut, LONG + '.inside', 'é' * 127, 'é' * 126 + '-12', 'é' * 124 + '.inside']
    for when in ('cold', 'listed'):
        for name in (LONG + '~', cut, 'é' * 126 + '-12'):
            equal('%s: %s' % (when, name), get(m / name), b'original')
        equal('%s: names' % when, sorted(os.listdir(m.path)), sorted(shown))
    equal('left out', m.status()['damage']['foreign'], 2)
    lines = [line for line in m.log_text().split('\n') if 'left out' in line]
    equal('and said once each', len(lines), 2)
    true('by the lower name', any(os.path.basename(a) + '~' in line for line in lines))
    os.unlink(m / 'a~')
    equal('the other, then', (sorted(os.listdir(m.path)), get(m / 'a~')), (sorted(shown), b'original'))
    # A name that looks like a copy's and is an object's own.
    put(m / 'plain.sync-conflict-20260101-120000-ABCDEFG', b'own')
    put(m / ('b' + LONG + '~'), b'own long')
    m.remount()
    equal('own', (get(m / 'plain.sync-conflict-20260101-120000-ABCDEFG'), get(m / ('b' + LONG + '~'))), (b'own', b'own long'))
    for name in os.listdir(m.path):
        os.unlink(m / name)
    equal('the other one of two, then', (os.listdir(m.path), get(m / (LONG + '~'))), ([LONG + '~'], b'original'))
    os.unlink(m / (LONG + '~'))
    equal('nothing left', (os.listdir(m.path), sorted(os.listdir(m.lower))), ([], ['ecfs.dir', 'ecfs.session', 'ecfs.volume']))


FOREIGN = ['.nfs0000000000a1b2c3', 'README.txt', 'A' * 43, 'A' * 255, 'ecfs.unknown', 'ecfs.long.abc', 'ecfs.name.abc', 'ecfs.dir.sync-conflict-1',
           'ecfs.sync-conflict-1.dir', 'ecfs.long.' + 'A' * 43, 'ecfs.long.' + 'A' * 43 + '~', 'ecfs.name.' + 'A' * 43 + ' (1)', '\udcff\n']


def left_out(env):
    """Not shown, counted, said once, and nothing of it is lost by removing what it is in."""
    m = env.mount()
    for d in ('full', 'empty'):
        os.mkdir(m / d)
        d = m.lower_path(d)
        for name in FOREIGN:
            put(os.path.join(d, name), b'foreign')
    put(m / 'full/f', b'ours')
    count = 2 * len(FOREIGN)
    for when in range(3):
        equal('names', (os.listdir(m / 'full'), os.listdir(m / 'empty')), (['f'], []))
        equal('content', get(m / 'full/f'), b'ours')
        for name in FOREIGN:
            gives('lookup of %r' % name, 'ENOENT', os.lstat, m / ('empty/' + name))
        equal('counted', m.status()['damage']['foreign'], count)
        equal('lines', sum('left out' in line for line in m.log_text().split('\n')), (when // 2 + 1) * count)
        if when == 1:
            m.remount()
    below = m.lower_path('empty')
    before = sorted(os.listdir(below))
    for f, want in ((lambda: os.rmdir(m / 'empty'), 'ENOTEMPTY'), (lambda: (os.mkdir(m / 'other'), os.rename(m / 'other', m / 'empty')), 'ENOTEMPTY')):
        gives('removing what only looks empty', want, f)
        equal('it is as it was', sorted(os.listdir(below)), before)
        put(m / 'empty/new', b'works')
        os.unlink(m / 'empty/new')
    true('one line for one entry', any(line.endswith('\\x0a\'') for line in m.log_text().split('\n')))
    equal('said once, with the lower path', sum('looks empty' in line and os.path.basename(below) in line for line in m.log_text().split('\n')), 1)
    for name in FOREIGN:
        os.unlink(os.path.join(below, name))
    os.rmdir(m / 'empty')
    # The same with plain names: all is shown, but what would be taken for the format's own in the root.
    p = env.mount(names='plain')
    os.mkdir(p / 'd')
    for name in FOREIGN:
        put(os.path.join(p.lower, name))
        put(os.path.join(p.lower, 'd', name))
    equal('plain names', (sorted(os.listdir(p.path)), sorted(os.listdir(p / 'd'))),
          (sorted(['d', *(n for n in FOREIGN if not n.startswith('ecfs.'))]), sorted(FOREIGN)))


def stays_linear(env):
    """Whether a directory has copies is found out once: making files in it lists it no more."""
    m = env.mount()
    os.mkdir(m / 'd')
    put(m / 'd/first')
    first = m.lower_path('d/first')
    m.umount()
    shutil.copy(first, first + '~')
    m.mount()
    # Reads of a directory are seen from outside: each is a getdents of the daemon, and moves the access time at most once. Counted instead.
    trace = env.path('trace')
    common.need_program('strace')
    tracer = common.subprocess.Popen(['strace', '-f', '-q', '-e', 'trace=getdents64', '-o', trace, '-p', str(m.pid)], stderr=common.subprocess.DEVNULL)
    common.wait_until('traced', lambda: 'TracerPid:\t%d' % tracer.pid in open('/proc/%d/status' % m.pid).read())
    for d in (m.path, m / 'd'):
        for i in range(100):
            put(os.path.join(d, 'file%03d' % i + (LONG if i % 10 == 0 else '')))
        for i in range(0, 100, 10):
            os.unlink(os.path.join(d, 'file%03d' % i + LONG))
    tracer.terminate()
    tracer.wait()
    at_most('listings of the daemon, for 200 files', get(trace).count(b'getdents64('), 10)
    equal('and the copy is there', get(m / 'd/first~'), b'')


if __name__ == '__main__':
    common.main([copies, copies_of_a_user, names_that_meet, left_out, stays_linear])
