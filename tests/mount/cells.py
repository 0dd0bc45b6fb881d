# SPDX-License-Identifier: GPL-3.0-or-later
"""Tables of calls. A cell is one call, or a few, on objects of its own in a directory of its own. All cells of a table are run in a mount
and in a plain directory on the same lower filesystem, as root and as a user; every outcome, and everything that can be seen of the objects
afterwards, must be the same, and the same again after a remount. The usual run takes a part of the tables, ECFS_MATRIX=all the whole."""
import os
import stat

import common
import kernel
from common import Failed, get, put, short

ALL = os.environ.get('ECFS_MATRIX') == 'all'
OLD = 10**18  # a time in 2001 that cells set, in nanoseconds: no clock tells it
SHORT, LONG = 'p', 'P' * 255  # the second is stored as ecfs.long.H
OTHER = {'short': 'q', 'long': 'Q' * 255}


def make_full(p):
    os.mkdir(p)
    put(p + '/in', b'in')
    put(p + '/' + LONG, b'long')


# kind -> how it is made
KINDS = {
    'file': lambda p: put(p, b'content' * 1000),
    'empty file': put,
    'dir': os.mkdir,
    'full dir': make_full,
    'link': lambda p: os.symlink('no/where', p),
    'far link': lambda p: os.symlink('f/' * 1800, p),
    'fifo': lambda p: os.mkfifo(p, 0o644),
    'socket': lambda p: os.mknod(p, 0o644 | stat.S_IFSOCK),
    'char': lambda p: os.mknod(p, 0o644 | stat.S_IFCHR, os.makedev(1, 7)),
    'block': lambda p: os.mknod(p, 0o644 | stat.S_IFBLK, os.makedev(7, 300)),
}
ROOTS = ('char', 'block')  # which only root makes


def value(f, *args, **kw):
    """What it gives, or the name of its errno."""
    try:
        return f(*args, **kw)
    except OSError as e:
        return common.errno_name(e)
    except ValueError as e:
        return str(e)  # Python's own: before any call


def seen(p):
    """What can be seen of an object, but for what two objects never share."""
    st = os.lstat(p)
    kind = stat.S_IFMT(st.st_mode)
    out = {'mode': oct(st.st_mode), 'links': st.st_nlink, 'owner': (st.st_uid, st.st_gid), 'device': st.st_rdev}
    if kind != stat.S_IFDIR:
        out['size'] = st.st_size
    if kind == stat.S_IFLNK:
        out['target'] = value(os.readlink, p)
    elif kind == stat.S_IFREG:
        out['content'] = value(get, p)
    elif kind == stat.S_IFDIR:
        out['names'] = value(lambda: {n: seen(p + '/' + n) for n in sorted(os.listdir(p))})
    out['xattrs'] = value(lambda: sorted((n, os.getxattr(p, n, follow_symlinks=False)) for n in os.listxattr(p, follow_symlinks=False)))
    if st.st_mtime_ns == OLD:
        out['mtime'] = 'as set'
    return out


def numbers_agree(d):
    listing = kernel.Directory(d)
    try:
        return all(ino == os.lstat(os.path.join(os.fsencode(d), name)).st_ino for name, ino in listing.rest() if name != b'..')
    finally:
        listing.close()


def look(top, names):
    """What every cell's directory shows."""
    return {n: (seen(top + '/' + n)['names'], numbers_agree(top + '/' + n)) for n in names}


def run_table(top, table):
    """table: name -> (kinds of the objects to be there: {name: kind}, call). The outcomes, and what is seen."""
    outcomes = {}
    for name, (objects, call) in table.items():
        d = top + '/' + name
        os.mkdir(d)
        for n, kind in objects.items():
            KINDS[kind](d + '/' + n)
        os.utime(d, ns=(OLD, OLD))
        outcomes[name] = (value(call, d), 'entries changed' if os.stat(d).st_mtime_ns != OLD else 'no entry changed')
    return outcomes, look(top, table)


def differences(what, got, want):
    bad = [n for n in want if got.get(n) != want[n]]
    if bad:
        raise Failed('%s: %d of %d cells differ from the plain directory. %s' % (what, len(bad), len(want), '; '.join(
            '%s: expected %s, got %s' % (n, short(want[n]), short(got.get(n))) for n in bad[:4])))


def compare(env, table, user=None, options=''):
    """The table in a mount and in a plain directory, by root or by the user, whose mount it then is."""
    here = env.filesystem('tmpfs', 256) if os.geteuid() == 0 else env.directory()
    plain = here + '/plain'
    if user:
        os.chown(here, user.uid, user.gid)
    m = env.mount(on=here, user=user, options=options)
    do = user.call if user else common.in_child  # what a cell leaves open goes with the process
    do(os.mkdir, plain)
    want_outcomes, want_seen = do(run_table, plain, table)
    got_outcomes, got_seen = do(run_table, m.path, table)
    differences('outcome', got_outcomes, want_outcomes)
    differences('seen at once', got_seen, want_seen)
    m.remount()
    differences('seen after a remount', do(look, m.path, table), want_seen)
    print('  %d cells%s' % (len(table), ' of a user' if user else ''))
    do(common.run, ['chmod', '-R', 'u+rwX', *(m.path + '/' + n for n in table)])
    do(common.run, ['rm', '-rf', *(m.path + '/' + n for n in table)])
    left = [n for n in os.listdir(m.lower) if n not in ('ecfs.volume', 'ecfs.dir', 'ecfs.session')]
    if left:
        raise Failed('removing all: expected nothing in the lower directory, got %s' % short(left))
    return m
