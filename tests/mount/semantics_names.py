#!/usr/bin/python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""Names and links: every length, names of our own kind, symbolic and hard links, renames of every sort, listings."""
import contextlib
import os
import random
import socket
import stat

import common
import kernel
from common import equal, get, gives, need_root, put, true
from kernel import RENAME_EXCHANGE, RENAME_NOREPLACE, renameat2

LONG = 'l' * 255
LONGEST_SHORT = 160  # with its tag and in base64url 235 bytes; the next padding makes 256, which is stored as a long name
LONG2 = 'm' * 255


def tree(path):
    """What a listing shows: relative path -> (type, size, links, what is in it)."""
    out = {}
    top = os.fsencode(path)
    for here, dirs, files in os.walk(top):
        for name in dirs + files:
            p = os.path.join(here, name)
            st = os.lstat(p)
            kind = stat.S_IFMT(st.st_mode)
            content = get(p) if kind == stat.S_IFREG else os.readlink(p) if kind == stat.S_IFLNK else None
            size = None if kind == stat.S_IFDIR else st.st_size
            out[os.path.relpath(p, top)] = (oct(kind), size, None if kind == stat.S_IFDIR else st.st_nlink, content)
    return out


def own_files(lower, prefix):
    """The format's files of one kind, anywhere in the lower directory."""
    return sorted(os.path.join(here, f) for here, _, files in os.walk(lower) for f in files if f.startswith(prefix))


def nothing_left(m):
    """The mount is empty, and so is the lower directory but for the format's own files of a root."""
    equal('mount is empty', os.listdir(m.path), [])
    left = sorted(set(os.listdir(m.lower)) - {'ecfs.volume', 'ecfs.dir', 'ecfs.session'})
    equal('lower directory is empty', left, [])


def name_of(n, salt=0):
    """A name of n bytes, with what is awkward in names."""
    r = random.Random(n * 1000 + salt)
    awkward = b'\n\\ ,:*?"\'\xff\xc3\xa9.-~#%$&'
    name = bytes(r.choice(awkward) if r.random() < 0.3 else r.choice(b'abcdefghij0123456789') for _ in range(n))
    return b'x' * n if name in (b'.', b'..') else name


def lengths_at(env, m, step):
    top = os.fsencode(m.path)
    sets = {}
    for kind in (b'file', b'dir', b'link', b'fifo'):
        os.mkdir(os.path.join(top, kind))
        sets[kind] = set()
    lengths = sorted({*range(1, 256, step), LONGEST_SHORT, LONGEST_SHORT + 1, 255})
    for n in lengths:
        name = name_of(n)
        put(os.path.join(top, b'file', name), b'%d' % n)
        os.mkdir(os.path.join(top, b'dir', name))
        os.symlink(b'to-%d' % n, os.path.join(top, b'link', name))
        os.mkfifo(os.path.join(top, b'fifo', name))
    for when in ('at once', 'after a remount'):
        for kind, test in ((b'file', stat.S_ISREG), (b'dir', stat.S_ISDIR), (b'link', stat.S_ISLNK), (b'fifo', stat.S_ISFIFO)):
            equal('%s: names of kind %s' % (when, kind), set(os.listdir(os.path.join(top, kind))), {name_of(n) for n in lengths})
            for n in lengths:
                true('%s: kind of %s %d' % (when, kind, n), test(os.lstat(os.path.join(top, kind, name_of(n))).st_mode))
        for n in lengths:
            equal('%s: content %d' % (when, n), get(os.path.join(top, b'file', name_of(n))), b'%d' % n)
            equal('%s: target %d' % (when, n), os.readlink(os.path.join(top, b'link', name_of(n))), b'to-%d' % n)
        if when == 'at once':
            m.remount()
    for n in lengths:  # rename to the other end of the range, and link there
        for kind in (b'file', b'dir', b'link', b'fifo'):
            os.rename(os.path.join(top, kind, name_of(n)), os.path.join(top, kind, name_of(256 - n, 1)))
        os.link(os.path.join(top, b'file', name_of(256 - n, 1)), os.path.join(top, b'file', name_of(n, 2)))
    m.remount()
    for n in lengths:
        st = os.lstat(os.path.join(top, b'file', name_of(n, 2)))
        equal('links of %d' % n, st.st_nlink, 2)
        equal('content of the link %d' % n, get(os.path.join(top, b'file', name_of(n, 2))), b'%d' % n)
        equal('target, renamed', os.readlink(os.path.join(top, b'link', name_of(256 - n, 1))), b'to-%d' % n)
    long = lambda n: sum(1 for x in n if x > LONGEST_SHORT)
    count = len(own_files(m.lower, 'ecfs.name.'))
    equal('name files, one an entry with a long name', count, 4 * long([256 - n for n in lengths]) + long(lengths))
    for n in lengths:
        os.unlink(os.path.join(top, b'file', name_of(n, 2)))
        for kind, remove in ((b'file', os.unlink), (b'dir', os.rmdir), (b'link', os.unlink), (b'fifo', os.unlink)):
            remove(os.path.join(top, kind, name_of(256 - n, 1)))
    equal('name files when all is gone', own_files(m.lower, 'ecfs.name.'), [])
    for kind in sets:
        os.rmdir(os.path.join(top, kind))
    nothing_left(m)


def name_lengths(env):
    # Every long name is synced: on tmpfs, where that costs nothing.
    lengths_at(env, env.mount(on=env.filesystem('tmpfs', 64) if os.geteuid() == 0 else None), 1)


def name_lengths_user(env):
    user = env.user()
    m = env.mount(user=user)

    def there():
        os.chdir(m.path)
        for n in (1, LONGEST_SHORT, LONGEST_SHORT + 1, 255):
            put(name_of(n), b'x')
            os.mkdir(name_of(n, 1))
            os.symlink('t', name_of(n, 2))
            os.mkfifo(name_of(n, 3))
            os.rename(name_of(n), name_of(n, 4))
            os.link(name_of(n, 4), name_of(n, 5))
        names = set(os.listdir('.'))
        return {os.fsdecode(name_of(n, k)) for n in (1, LONGEST_SHORT, LONGEST_SHORT + 1, 255) for k in (1, 2, 3, 4, 5)} == names
    true('all names listed', user.call(there))
    m.umount()
    m.mount()
    true('names after a remount', user.call(lambda: len(os.listdir(m.path))) > 15)


def too_long(env):
    m = env.mount()
    put(m / 'f')
    for n in (256, 300, 4000):
        bad = m / ('x' * n)
        for what, f in (('create', lambda: put(bad)), ('mkdir', lambda: os.mkdir(bad)), ('symlink', lambda: os.symlink('t', bad)),
                        ('mkfifo', lambda: os.mkfifo(bad)), ('rename', lambda: os.rename(m / 'f', bad)),
                        ('link', lambda: os.link(m / 'f', bad)), ('stat', lambda: os.stat(bad)), ('unlink', lambda: os.unlink(bad))):
            gives('%s with a name of %d' % (what, n), 'ENAMETOOLONG', f)
    equal('statfs namemax', os.statvfs(m.path).f_namemax, 255)
    equal('names', os.listdir(m.path), ['f'])


OURS = ['ecfs.volume', 'ecfs.dir', 'ecfs.session', 'ecfs.long.x', 'ecfs.name.x', 'ecfs.target.x', 'ecfs.dir.new', 'ecfs.']


def names_like_ours(env):
    m = env.mount()
    os.mkdir(m / 'sub')
    for d in (m.path, m / 'sub'):
        for name in OURS:
            put(os.path.join(d, name), name.encode())
            os.rename(os.path.join(d, name), os.path.join(d, 'tmp'))
            os.rename(os.path.join(d, 'tmp'), os.path.join(d, name))
    m.remount()
    for d in (m.path, m / 'sub'):
        equal('names in ' + d, sorted(set(os.listdir(d)) - {'sub'}), sorted(OURS))
        for name in OURS:
            equal(name, get(os.path.join(d, name)), name.encode())
            os.unlink(os.path.join(d, name))
            os.mkdir(os.path.join(d, name))
            os.rmdir(os.path.join(d, name))
            os.symlink(name, os.path.join(d, name))
            os.unlink(os.path.join(d, name))
    os.rmdir(m / 'sub')
    nothing_left(m)


def plain_names(env):
    m = env.mount(names='plain')
    before = sorted(os.listdir(m.lower))
    put(m / 'f', b'f')
    os.mkdir(m / 'sub')
    for name in OURS:
        bad = m / name
        for what, f in (('create', lambda: put(bad)), ('mkdir', lambda: os.mkdir(bad)), ('symlink', lambda: os.symlink('t', bad)),
                        ('rename', lambda: os.rename(m / 'f', bad)), ('link', lambda: os.link(m / 'f', bad))):
            gives('%s of %s in the root' % (what, name), 'EPERM', f)
        gives('stat of ' + name, 'ENOENT', os.stat, bad)
        put(m / 'sub' + '/' + name, name.encode())
    put(m / 'ecfs', b'not reserved')
    put(m / 'ecfsx', b'not reserved')
    put(m / LONG, b'long')
    equal('root', sorted(os.listdir(m.path)), sorted(['f', 'sub', 'ecfs', 'ecfsx', LONG]))
    equal('lower root', sorted(os.listdir(m.lower)), sorted(before + ['f', 'sub', 'ecfs', 'ecfsx', LONG]))
    m.remount()
    equal('names in sub', sorted(os.listdir(m / 'sub')), sorted(OURS))
    for name in OURS:
        equal(name, get(m / 'sub/' + name), name.encode())
    equal('lower sub', sorted(os.listdir(m.lower + '/sub')), sorted(OURS))


def links_on(env, m, other_lengths=()):
    lengths = sorted({1, 2, 59, 60, 100, 600, 700, 1023, 1024, 2000, 2999, 3000, 3001, 3030, 3040, 3050, 4000, 4094, 4095, *other_lengths})
    target = lambda n: ('/t' * n)[:n]
    os.mkdir(m / 'a')
    os.mkdir(m / 'b')
    for n in lengths:
        os.symlink(target(n), m / 'a/%d' % n)
        equal('lstat size of a target of %d' % n, os.lstat(m / 'a/%d' % n).st_size, n)
    gives('a target of 4096', 'ENAMETOOLONG', os.symlink, target(4096), m / 'a/4096')
    gives('an empty target', 'ENOENT', os.symlink, '', m / 'a/0')
    for n in lengths:
        os.link(m / 'a/%d' % n, m / 'b/hard-%d' % n, follow_symlinks=False)
        os.rename(m / 'a/%d' % n, m / 'b/moved-%d' % n)
    m.remount()
    for n in lengths:
        for name in ('hard', 'moved'):
            p = m / 'b/%s-%d' % (name, n)
            equal('target of %s, %d' % (name, n), os.readlink(p), target(n))
            st = os.lstat(p)
            equal('size and links of %s, %d' % (name, n), (st.st_size, st.st_nlink), (n, 2))
    for n in lengths:
        os.unlink(m / 'b/moved-%d' % n)
        equal('the other name', os.readlink(m / 'b/hard-%d' % n), target(n))
    # Replacing one, and changing places with a short one.
    os.symlink('short', m / 'b/short')
    renameat2(m / 'b/short', m / 'b/hard-4095', RENAME_EXCHANGE)
    equal('exchanged', (os.readlink(m / 'b/short'), os.readlink(m / 'b/hard-4095')), (target(4095), 'short'))
    os.rename(m / 'b/hard-4000', m / 'b/hard-4094')
    equal('renamed over', os.readlink(m / 'b/hard-4094'), target(4000))
    put(m / 'b/file')
    os.rename(m / 'b/file', m / 'b/hard-4094')
    for name in os.listdir(m / 'b'):
        os.unlink(m / 'b/' + name)
    equal('files of long targets when all is gone', own_files(m.lower, 'ecfs.target.'), [])
    os.rmdir(m / 'a')
    os.rmdir(m / 'b')
    nothing_left(m)


def symlinks(env):
    links_on(env, env.mount())


def symlinks_plain_names(env):
    links_on(env, env.mount(names='plain'))


def symlinks_on_xfs(env):
    links_on(env, env.mount(on=env.filesystem('xfs', 320)), range(690, 720))


def special_links(env):
    """Links as root and user see them, into and out of the mount, and in loops."""
    m = env.mount()
    put(m / 'f', b'content')
    os.symlink('f', m / 'rel')
    os.symlink(m / 'f', m / 'abs')
    os.symlink('loop', m / 'loop')
    equal('relative', get(m / 'rel'), b'content')
    equal('absolute', get(m / 'abs'), b'content')
    gives('a loop', 'ELOOP', os.stat, m / 'loop')
    os.symlink('nowhere', m / 'dangling')
    gives('dangling', 'ENOENT', os.stat, m / 'dangling')
    put(m / 'dangling', b'made')
    equal('made through the link', get(m / 'nowhere'), b'made')


KINDS = {
    'file': (lambda p: put(p, os.path.basename(p)[:3].encode()), get),
    'dir': (lambda p: (os.mkdir(p), put(p + '/in', os.path.basename(p)[:3].encode())), lambda p: get(p + '/in')),
    'link': (lambda p: os.symlink(os.path.basename(p)[:3], p), lambda p: os.readlink(p).encode()),
}


def renameat2_flags(env):
    m = env.mount()
    names = {'short': ('aaa', 'bbb'), 'long': ('aaa' + 'A' * 250, 'bbb' + 'B' * 250), 'first long': ('aaa' + 'A' * 250, 'bbb'),
             'second long': ('aaa', 'bbb' + 'B' * 250)}
    for label, (a, b) in names.items():
        for ka in KINDS:
            for kb in KINDS:
                for other in (False, True):  # in another directory
                    what = '%s %s/%s%s' % (label, ka, kb, ' other dir' if other else '')
                    os.mkdir(m / 'd')
                    os.mkdir(m / 'e')
                    pa, pb = m / 'd/' + a, m / ('e/' if other else 'd/') + b
                    KINDS[ka][0](pa)
                    gives(what + ': exchange with nothing', 'ENOENT', renameat2, pa, pb, RENAME_EXCHANGE)
                    renameat2(pa, pb, RENAME_NOREPLACE)
                    renameat2(pb, pa, RENAME_NOREPLACE)
                    KINDS[kb][0](pb)
                    gives(what + ': noreplace', 'EEXIST', renameat2, pa, pb, RENAME_NOREPLACE)
                    equal(what + ': unchanged', (KINDS[ka][1](pa), KINDS[kb][1](pb)), (b'aaa', b'bbb'))
                    renameat2(pa, pb, RENAME_EXCHANGE)
                    equal(what + ': exchanged', (KINDS[ka][1](pb), KINDS[kb][1](pa)), (b'aaa', b'bbb'))
                    if (label, other) in (('long', False), ('first long', True)):
                        m.remount()
                        equal(what + ': exchanged, after a remount', (KINDS[ka][1](pb), KINDS[kb][1](pa)), (b'aaa', b'bbb'))
                    equal(what + ': names', sorted(os.listdir(m / 'd') + os.listdir(m / 'e')), sorted([a, b]))
                    common.run(['rm', '-rf', m / 'd', m / 'e'])
    gives('flags that nobody knows', 'EINVAL', renameat2, m / 'x', m / 'y', 64)
    nothing_left(m)


def rename_over(env):
    m = env.mount()
    for label, (a, b) in {'short': ('a', 'b'), 'long': (LONG, LONG2), 'to long': ('a', LONG2), 'from long': (LONG, 'b')}.items():
        pa, pb = m / a, m / b
        # file over file, link over file, file over link
        for over in ('file', 'link'):
            for by in ('file', 'link'):
                KINDS[by][0](pa)
                want = KINDS[by][1](pa)
                KINDS[over][0](pb)
                os.rename(pa, pb)
                equal('%s: %s over %s' % (label, by, over), KINDS[by][1](pb), want)
                gives('%s: old name' % label, 'ENOENT', os.lstat, pa)
                os.unlink(pb)
        # directories
        os.mkdir(pa)
        put(pa + '/in', b'a')
        os.mkdir(pb)
        os.rename(pa, pb)
        equal(label + ': over an empty directory', get(pb + '/in'), b'a')
        os.mkdir(pa)
        put(pa + '/' + LONG, b'A')
        for attempt in range(2):
            gives(label + ': over a directory with content', 'ENOTEMPTY', os.rename, pa, pb)
            gives(label + ': the other way', 'ENOTEMPTY', os.rename, pb, pa)
            gives(label + ': rmdir of it', 'ENOTEMPTY', os.rmdir, pb)
            equal(label + ': both intact', (get(pa + '/' + LONG), get(pb + '/in'), os.listdir(pa), os.listdir(pb)),
                  (b'A', b'a', [LONG], ['in']))
            put(pb + '/new%d' % attempt)
            os.unlink(pb + '/new%d' % attempt)
            m.remount()
        put(m / 'file', b'f')
        gives(label + ': file over directory', 'EISDIR', os.rename, m / 'file', pb)
        gives(label + ': directory over file', 'ENOTDIR', os.rename, pb, m / 'file')
        os.mkdir(m / 'empty')
        gives(label + ': file over an empty directory', 'EISDIR', os.rename, m / 'file', m / 'empty')
        put(m / 'empty/x')
        os.unlink(m / 'empty/x')
        os.rmdir(m / 'empty')
        gives(label + ': directory into itself', 'EINVAL', os.rename, pb, pb + '/sub')
        equal(label + ': all there', (get(m / 'file'), get(pb + '/in')), (b'f', b'a'))
        common.run(['rm', '-rf', pa, pb, m / 'file'])
    # Two names of one file: nothing happens.
    put(m / 'one', b'1')
    os.link(m / 'one', m / LONG)
    os.rename(m / 'one', m / LONG)
    equal('both names stay', sorted(os.listdir(m.path)), sorted(['one', LONG]))


def open_and_renamed(env):
    m = env.mount()
    os.makedirs(m / 'a/b')
    put(m / 'a/b/f', b'one')
    os.mkdir(m / 'held')
    with open(m / 'a/b/f', 'r+b', buffering=0) as f:
        held = os.open(m / 'held', os.O_RDONLY | os.O_DIRECTORY)
        os.rename(m / 'a/b/f', m / 'a/b/' + LONG)
        os.rename(m / 'a', m / LONG2)
        equal('read', f.read(), b'one')
        f.write(b' two')
        os.fsync(f.fileno())
        f.seek(0)
        equal('read what was written', f.read(), b'one two')
        os.unlink(m / LONG2 + '/b/' + LONG)
        os.rmdir(m / LONG2 + '/b')
        os.rename(m / LONG2, m / 'held')  # replaced while open
        st = os.fstat(held)
        true('an open directory that was replaced still answers', stat.S_ISDIR(st.st_mode))
        equal('its links', st.st_nlink, 0)
        equal('its listing', [e for e in os.listdir(held) if e not in ('.', '..')], [])
        gives('creating in it', 'ENOENT', os.open, 'x', os.O_CREAT | os.O_WRONLY, dir_fd=held)
        os.close(held)
        f.seek(0)
        equal('read after its directory is gone', f.read(), b'one two')
    # A working directory that moves.
    os.makedirs(m / 'w/x')
    old = os.getcwd()
    os.chdir(m / 'w/x')
    os.rename(m / 'w', m / 'v')
    put('here', b'!')
    os.chdir(old)
    equal('made from a moved working directory', get(m / 'v/x/here'), b'!')


def numbers(env):
    """d_ino equals st_ino; a number used again shows nothing of the old."""
    m = env.mount()
    os.mkdir(m / 'd')
    for name in ('f', LONG):
        put(m / 'd/' + name)
        os.mkdir(m / 'd/dir' + name[:200])
        os.symlink('t' * 3500, m / 'd/ln' + name[:200])
    for when in range(2):
        d = kernel.Directory(m / 'd')
        for name, ino in d.rest():
            if name != b'..':
                equal('d_ino of %r' % name, ino, os.lstat(os.path.join(os.fsencode(m / 'd'), name)).st_ino)
            else:
                equal('d_ino of ..', ino, os.stat(m.path).st_ino)
        d.close()
        m.remount()
    for i in range(300):
        p = m / 'again'
        if i % 3 == 0:
            put(p, b'secret' * 1000)
            os.setxattr(p, 'user.old', b'1')
        elif i % 3 == 1:
            put(p)
            equal('a new file is empty', (os.stat(p).st_size, get(p), os.listxattr(p)), (0, b'', []))
        else:
            os.mkdir(p)
            equal('a new directory is empty', os.listdir(p), [])
        (os.rmdir if i % 3 == 2 else os.unlink)(p)


def positions(env):
    m = env.mount()
    os.mkdir(m / 'd')
    names = {b'%04d' % i for i in range(1500)}
    for n in names:
        put(os.path.join(os.fsencode(m / 'd'), n))
    d = kernel.Directory(m / 'd')
    order, at = [], []
    while entry := d.read():
        order.append(entry[0])
        at.append(d.tell())
    equal('all are listed once', sorted(order), sorted(names | {b'.', b'..'}))
    r = random.Random(7)
    for i in (0, 700, 3, 1400, 1000, *r.sample(range(len(order) - 1), 20)):
        d.seek(at[i])
        equal('after seekdir to %d' % i, d.read()[0], order[i + 1])
    # Entries come and go: a position stays where it is.
    middle = 750
    gone = set(order[10:700]) - {b'.', b'..'}
    for n in gone:
        os.unlink(os.path.join(os.fsencode(m / 'd'), n))
    for i in range(100):
        put(m / 'd/new%d' % i)
    d.seek(at[middle])
    rest = [n for n, _ in d.rest()]
    true('what was behind the position is still listed behind it', set(order[middle + 1:]) <= set(rest))
    true('nothing twice', len(rest) == len(set(rest)))
    true('nothing of what is gone', not set(rest) & gone)
    d.rewind()
    equal('from the start', {n for n, _ in d.rest()} - {b'.', b'..'}, (names - gone) | {b'new%d' % i for i in range(100)})
    # Deleting what has just been read, to the end: misses nothing.
    d.rewind()
    while entry := d.read():
        if entry[0] not in (b'.', b'..'):
            os.unlink(os.path.join(os.fsencode(m / 'd'), entry[0]))
    d.close()
    os.rmdir(m / 'd')


def hard_links(env):
    m = env.mount()
    os.mkdir(m / 'd')
    paths = [m / 'one', m / 'd/two', m / LONG, m / 'd/' + LONG2]
    put(paths[0], b'x' * 5000)
    for p in paths[1:]:
        os.link(paths[0], p)

    def alike(what, size, links):
        stats = [os.lstat(p) for p in paths]
        equal(what + ': size and links by every name', {(s.st_size, s.st_nlink) for s in stats}, {(size, links)})
        equal(what + ': one inode, one mtime, one ctime', len({(s.st_ino, s.st_mtime_ns, s.st_ctime_ns) for s in stats}), 1)
    alike('linked', 5000, 4)
    with open(paths[2], 'ab') as f:
        f.write(b'y' * 9000)
    alike('appended by one name', 14000, 4)
    os.truncate(paths[3], 100)
    alike('truncated by another', 100, 4)
    os.chmod(paths[1], 0o600)
    equal('modes', {oct(os.stat(p).st_mode & 0o7777) for p in paths}, {'0o600'})
    m.remount()
    alike('after a remount', 100, 4)
    os.unlink(paths.pop(2))
    alike('one gone', 100, 3)
    os.rename(paths[0], m / 'd/renamed')
    paths[0] = m / 'd/renamed'
    alike('one renamed', 100, 3)
    equal('content', {get(p) for p in paths}, {b'x' * 100})
    gives('a link to a directory', 'EPERM', os.link, m / 'd', m / 'e')
    # A lock file made by link(2): two links while both are there, then one.
    put(m / 'lock.tmp')
    os.link(m / 'lock.tmp', m / 'lock')
    equal('a lock by link', os.stat(m / 'lock.tmp').st_nlink, 2)
    gives('a second lock', 'EEXIST', os.link, m / 'lock.tmp', m / 'lock')
    os.unlink(m / 'lock.tmp')
    equal('after', os.stat(m / 'lock').st_nlink, 1)
    # Links of directories: 2 and one a subdirectory.
    os.makedirs(m / 'n/a')
    os.mkdir(m / 'n/b')
    plain = env.directory()
    os.makedirs(plain + '/n/a')
    os.mkdir(plain + '/n/b')
    equal('links of a directory, as the lower filesystem counts them', os.stat(m / 'n').st_nlink, os.stat(plain + '/n').st_nlink)


def special_files(env):
    m = env.mount(options='dev')
    os.mkfifo(m / 'fifo', 0o640)
    pid = os.fork()
    if pid == 0:
        put(m / 'fifo', b'through the fifo')
        os._exit(0)
    equal('fifo', get(m / 'fifo'), b'through the fifo')
    os.waitpid(pid, 0)
    s = socket.socket(socket.AF_UNIX)
    os.chdir(m.path)
    s.bind('socket')
    s.listen()
    c = socket.socket(socket.AF_UNIX)
    c.connect('socket')
    c.send(b'hello')
    equal('socket', s.accept()[0].recv(100), b'hello')
    true('kind', stat.S_ISSOCK(os.stat('socket').st_mode))
    os.chdir('/')
    s.close(), c.close()
    equal('mode of the fifo', oct(os.stat(m / 'fifo').st_mode), oct(stat.S_IFIFO | 0o640))
    if os.geteuid() == 0:
        os.mknod(m / 'null', 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        os.mknod(m / 'block', 0o600 | stat.S_IFBLK, os.makedev(7, 250))
        put(m / 'null', b'away')
        equal('null', get(m / 'null'), b'')
    m.remount(options='')
    if os.geteuid() == 0:
        st = os.stat(m / 'null')
        equal('device number after a remount', (os.major(st.st_rdev), os.minor(st.st_rdev), stat.S_ISCHR(st.st_mode)), (1, 3, True))
        st = os.stat(m / 'block')
        equal('block device', (os.major(st.st_rdev), os.minor(st.st_rdev), stat.S_ISBLK(st.st_mode)), (7, 250, True))
        gives('a device where nodev is the rule', 'EACCES', get, m / 'null')
    for name in os.listdir(m.path):
        os.unlink(m / name)
    nothing_left(m)


def compared(env):
    """The same calls on a plain directory beside the lower one: every outcome is the same."""
    m = env.mount()
    plain = env.directory()

    def calls(d):
        out = []

        def do(label, f, *args):
            value = []
            out.append((label, common.outcome(lambda: value.append(f(*args)))))
            if f is os.open and value:
                os.close(value[0])
        put(d + '/f')
        os.mkdir(d + '/d')
        os.symlink('f', d + '/s')
        os.symlink('d', d + '/sd')
        do('open a directory for writing', os.open, d + '/d', os.O_WRONLY)
        do('O_EXCL on a file', os.open, d + '/f', os.O_CREAT | os.O_EXCL)
        do('O_EXCL on a link', os.open, d + '/s', os.O_CREAT | os.O_EXCL)
        do('O_NOFOLLOW', os.open, d + '/s', os.O_NOFOLLOW)
        do('O_DIRECTORY on a file', os.open, d + '/f', os.O_DIRECTORY)
        do('O_CREAT on a directory', os.open, d + '/d', os.O_CREAT | os.O_RDWR)
        do('file as directory', os.stat, d + '/f/x')
        do('file with a slash', os.stat, d + '/f/')
        do('mkdir again', os.mkdir, d + '/d')
        do('mkdir over a file', os.mkdir, d + '/f')
        do('mkdir with a slash', os.mkdir, d + '/new/')
        do('rmdir a file', os.rmdir, d + '/f')
        do('rmdir a link to a directory', os.rmdir, d + '/sd')
        do('rmdir .', os.rmdir, d + '/d/.')
        do('rmdir ..', os.rmdir, d + '/d/..')
        do('unlink a directory', os.unlink, d + '/d')
        do('unlink nothing', os.unlink, d + '/none')
        do('rmdir nothing', os.rmdir, d + '/none')
        do('rename nothing', os.rename, d + '/none', d + '/x')
        do('rename into nothing', os.rename, d + '/f', d + '/none/x')
        do('rename .', os.rename, d + '/d/.', d + '/x')
        do('rename onto ..', os.rename, d + '/f', d + '/d/..')
        do('readlink of a file', os.readlink, d + '/f')
        do('link over', os.link, d + '/f', d + '/s')
        do('link of nothing', os.link, d + '/none', d + '/x')
        do('symlink over', os.symlink, 'x', d + '/f')
        do('mkfifo over', os.mkfifo, d + '/f')
        do('truncate a directory', os.truncate, d + '/d', 0)
        do('chdir a file', os.chdir, d + '/f')
        do('empty name', os.stat, '')
        fd = os.open(d + '/d', os.O_RDONLY)
        do('read of a directory', os.read, fd, 10)
        os.close(fd)
        return out, sorted(os.listdir(d))
    equal('outcomes as on a plain directory', calls(m.path), calls(plain))


def storm(env):
    """Create, rename, link, remove from 8 processes at once: no errno that should not be, and the tree as it should be."""
    storm_in(env.mount())


def storm_in(m):
    for i in range(4):
        os.mkdir(m / 'd%d' % i)

    def work(k):
        r = random.Random(k)
        mine, odd = {}, []
        for step in range(250):
            name = 'p%d-%d' % (k, step) + ('L' * 200 if step % 7 == 0 else '')
            d = 'd%d' % r.randrange(4)
            try:
                action = r.randrange(6)
                if action <= 2 or not mine:
                    put(m / '%s/%s' % (d, name), name.encode())
                    mine['%s/%s' % (d, name)] = name.encode()
                elif action == 3:
                    old = r.choice(sorted(mine))
                    os.rename(m / old, m / '%s/%s' % (d, name))
                    mine['%s/%s' % (d, name)] = mine.pop(old)
                elif action == 4:
                    old = r.choice(sorted(mine))
                    os.link(m / old, m / '%s/%s' % (d, name))
                    mine['%s/%s' % (d, name)] = mine[old]
                else:
                    old = r.choice(sorted(mine))
                    os.unlink(m / old)
                    del mine[old]
                # And all fight over one name.
                with contextlib.suppress(FileNotFoundError):
                    if step % 3 == 0:
                        put(m / 'shared-tmp%d' % k, b'%d' % k)
                        os.rename(m / 'shared-tmp%d' % k, m / 'shared')
                    elif step % 3 == 1:
                        os.unlink(m / 'shared')
                    else:
                        os.stat(m / 'shared')
            except OSError as e:
                odd.append('%d: %s' % (step, e))
        return mine, odd
    import concurrent.futures
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda k: common.in_child(work, k), range(8)))
    want = {}
    for mine, odd in results:
        equal('no wrong errno', odd, [])
        want.update(mine)
    for when in ('at once', 'after a remount'):
        got = {os.path.relpath(os.path.join(here, f), m.path): get(os.path.join(here, f))
               for here, _, files in os.walk(m.path) for f in files}
        got.pop('shared', None)
        equal('the tree ' + when, got, want)
        m.remount()
    common.run(['find', m.path, '-mindepth', '1', '-delete'])
    nothing_left(m)


if __name__ == '__main__':
    common.main([name_lengths, name_lengths_user, too_long, names_like_ours, plain_names, symlinks, symlinks_plain_names, symlinks_on_xfs,
                 special_links, renameat2_flags, rename_over, open_and_renamed, numbers, positions, hard_links, special_files,
                 compared, storm])
