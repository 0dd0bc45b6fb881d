#!/usr/bin/python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every call on every kind of object and path, as root, as the owner and as somebody else, on the mount and on a plain directory beside it:
the same result or errno, and the same tree afterwards with the same mtimes moved. The errnos' precedence is what comes of paths with more
than one fault.

One call in sixteen; all with ECFS_POSIX_SHARE=1. A fixture is made before each call that may change it. Its mtimes lie in the past, so that what moves shows."""
import errno
import os
import stat
import zlib

import common
import kernel
from common import Failed

PAST = 1_000_000_000
SHARE = int(os.environ.get('ECFS_POSIX_SHARE', '16'))
LONG, TOO_LONG = 'n' * 255, 'n' * 256
# Paths below the fixture; several have more than one fault.
PATHS = [
    '', '.', '..', 'file', 'file/', 'file/.', 'file/x', 'dir', 'dir/', 'dir/.', 'dir/..', 'full', 'full/in', 'missing', 'missing/', 'missing/x', 'to_file',
    'to_file/', 'to_file/x', 'to_dir', 'to_dir/', 'to_dir/in', 'to_nothing', 'to_nothing/', 'loop', 'loop/', 'loop/x', 'fifo', 'socket', 'null',
    LONG, TOO_LONG, 'dir/' + TOO_LONG, 'file/' + TOO_LONG, 'missing/' + TOO_LONG, 'loop/' + TOO_LONG, 'closed', 'closed/in', 'closed/missing',
    'closed/' + TOO_LONG, 'readonly', 'readonly/in', 'readonly/missing', 'sticky/roots', 'sticky/own', 'sticky/missing', 'setgid', 'setgid/new', 'suid', 'hard',
    'dir/../file', 'dir//../file', 'x' * 4096, 'dir/' + './' * 2050 + 'x',
]
# Where two paths are named: fewer, since they are all paired.
PAIRED = ['file', 'file/', 'dir', 'dir/', 'dir/.', 'full', 'full/in', 'full/sub', 'missing', 'missing/', 'missing/x', 'to_file', 'to_dir', 'loop/x', LONG, TOO_LONG,
          'closed/in', 'readonly/in', 'sticky/roots', 'hard', 'fifo', '..', '']


def opened(flags, mode=0o640):
    def call(p):
        fd = os.open(p, flags | os.O_NONBLOCK, mode)
        try:
            return stat.S_IFMT(os.fstat(fd).st_mode)
        finally:
            os.close(fd)
    return call


def truncated(p):
    os.truncate(p, 5)


ONE = {
    'stat': lambda p: stat.S_IFMT(os.stat(p).st_mode), 'lstat': lambda p: stat.S_IFMT(os.lstat(p).st_mode),
    'access r': lambda p: os.access(p, os.R_OK), 'access w': lambda p: os.access(p, os.W_OK), 'access x': lambda p: os.access(p, os.X_OK),
    'readlink': os.readlink, 'listdir': lambda p: sorted(os.listdir(p)), 'chdir': lambda p: os.close(os.open(p, os.O_PATH | os.O_DIRECTORY)),
    'open r': opened(os.O_RDONLY), 'open w': opened(os.O_WRONLY), 'open rw trunc': opened(os.O_RDWR | os.O_TRUNC),
    'open creat': opened(os.O_WRONLY | os.O_CREAT), 'open creat excl': opened(os.O_WRONLY | os.O_CREAT | os.O_EXCL),
    'open creat trunc': opened(os.O_RDWR | os.O_CREAT | os.O_TRUNC), 'open nofollow': opened(os.O_RDONLY | os.O_NOFOLLOW),
    'open creat nofollow': opened(os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW), 'open directory': opened(os.O_RDONLY | os.O_DIRECTORY),
    'open directory nofollow': opened(os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW), 'open directory creat': opened(os.O_RDONLY | os.O_DIRECTORY | os.O_CREAT),
    'open path': opened(os.O_PATH), 'open path nofollow': opened(os.O_PATH | os.O_NOFOLLOW), 'open tmpfile': opened(os.O_TMPFILE | os.O_RDWR),
    'open tmpfile r': opened(os.O_TMPFILE | os.O_RDONLY), 'open append': opened(os.O_WRONLY | os.O_APPEND), 'open noatime': opened(os.O_RDONLY | os.O_NOATIME),
    'mkdir': os.mkdir, 'rmdir': os.rmdir, 'unlink': os.unlink, 'symlink': lambda p: os.symlink('target', p), 'empty symlink': lambda p: os.symlink('', p),
    'mkfifo': os.mkfifo, 'mknod reg': lambda p: os.mknod(p, stat.S_IFREG | 0o600), 'mknod chr': lambda p: os.mknod(p, stat.S_IFCHR | 0o600, os.makedev(1, 3)),
    'mknod sock': lambda p: os.mknod(p, stat.S_IFSOCK | 0o600), 'mknod dir': lambda p: os.mknod(p, stat.S_IFDIR | 0o700),
    'truncate': truncated, 'truncate negative': lambda p: os.truncate(p, -1), 'chmod': lambda p: os.chmod(p, 0o6775), 'chmod 0': lambda p: os.chmod(p, 0),
    'chown to root': lambda p: os.chown(p, 0, -1), 'lchown group 0': lambda p: os.lchown(p, -1, 0),
    'utime now': lambda p: os.utime(p), 'utime set': lambda p: os.utime(p, (5, 6)), 'lutime': lambda p: os.utime(p, (7, 8), follow_symlinks=False),
    'setxattr': lambda p: os.setxattr(p, 'user.x', b'v'), 'lsetxattr': lambda p: os.setxattr(p, 'user.x', b'v', follow_symlinks=False),
    'setxattr replace': lambda p: os.setxattr(p, 'user.x', b'v', os.XATTR_REPLACE), 'setxattr trusted': lambda p: os.setxattr(p, 'trusted.x', b'v'),
    'setxattr unknown': lambda p: os.setxattr(p, 'nothing.x', b'v'), 'setxattr long': lambda p: os.setxattr(p, 'user.' + 'x' * 251, b'v'),
    'getxattr': lambda p: os.getxattr(p, 'user.none'), 'removexattr': lambda p: os.removexattr(p, 'user.none'),
}
TWO = {
    'rename': os.rename, 'link': lambda a, b: os.link(a, b, follow_symlinks=False), 'exchange': lambda a, b: kernel.renameat2(a, b, kernel.RENAME_EXCHANGE),
    'noreplace': lambda a, b: kernel.renameat2(a, b, kernel.RENAME_NOREPLACE), 'bad flags': lambda a, b: kernel.renameat2(a, b, 8),
}
ONLY_READS = {'stat', 'lstat', 'access r', 'access w', 'access x', 'readlink', 'listdir', 'chdir', 'getxattr', 'open r', 'open w', 'open nofollow', 'open directory',
              'open path', 'open directory nofollow', 'open path nofollow'}


def remove(top):
    for here, dirs, files in os.walk(top, topdown=False):
        for n in files:
            os.unlink(os.path.join(here, n))
        for n in dirs:
            p = os.path.join(here, n)
            os.unlink(p) if os.path.islink(p) else os.rmdir(p)


def fixture(top, owner, group):
    """Everything belongs to `owner`, but for what is called after root."""
    os.chmod(top, 0o755)
    remove(top)

    def put(name, mode=0o644, data=b'data'):
        fd = os.open(os.path.join(top, name), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        os.write(fd, data)
        os.close(fd)
        os.chown(os.path.join(top, name), owner, group)
        os.chmod(os.path.join(top, name), mode)
    for d in ('dir', 'full', 'full/sub', 'closed', 'readonly', 'sticky', 'setgid'):
        os.mkdir(os.path.join(top, d))
        os.chown(os.path.join(top, d), owner, group)
    for name in ('file', 'full/in', 'closed/in', 'readonly/in', 'sticky/own', 'sticky/roots', 'hard'):
        put(name)
    put('suid', 0o6755)
    put(LONG)
    os.link(os.path.join(top, 'hard'), os.path.join(top, 'hard2'))
    for name, target in (('to_file', 'file'), ('to_dir', 'full'), ('to_nothing', 'nothing'), ('loop', 'loop')):
        os.symlink(target, os.path.join(top, name))
    os.mkfifo(os.path.join(top, 'fifo'))
    os.mknod(os.path.join(top, 'socket'), stat.S_IFSOCK | 0o644)
    os.mknod(os.path.join(top, 'null'), stat.S_IFCHR | 0o666, os.makedev(1, 3))
    os.chown(os.path.join(top, 'sticky/roots'), 0, 0)
    for name, mode in (('closed', 0), ('readonly', 0o555), ('sticky', 0o1777), ('setgid', 0o2777)):
        os.chmod(os.path.join(top, name), mode)
    os.chown(os.path.join(top, 'sticky'), 0, 0)
    os.chown(os.path.join(top, 'setgid'), owner, group)
    os.chmod(os.path.join(top, 'setgid'), 0o2777)
    os.chown(top, owner, group)
    for here, dirs, files in os.walk(top):
        for n in dirs + files + ['.']:
            os.utime(os.path.join(here, n), (PAST, PAST), follow_symlinks=False)


def tree(top):
    out = {}
    for here, dirs, files in os.walk(top):
        for n in dirs + files + ['.']:
            p = os.path.join(here, n)
            st = os.lstat(p)
            size = 0 if stat.S_ISDIR(st.st_mode) else st.st_size
            mtime = st.st_mtime_ns if st.st_mtime < PAST + 1000 else 'moved'
            out[os.path.relpath(p, top)] = (oct(st.st_mode), st.st_nlink, st.st_uid, st.st_gid, size, mtime, os.listxattr(p, follow_symlinks=False))
    return out


def result(call, *paths):
    try:
        return True, call(*paths)
    except OSError as e:
        return False, errno.errorcode.get(e.errno, e.errno)


def walk_through(plain, mount, owner, group, become, rows):
    """Both sides step by step, each call in a process of its own kind, told by a pipe: one child an actor, not one a call."""
    import pickle
    to_child, child_in = os.pipe()
    child_out, from_child = os.pipe()
    ask = os.fdopen(child_in, 'wb')
    pid = os.fork()
    if pid == 0:
        try:
            ask.close()
            become()
            with os.fdopen(to_child, 'rb') as questions, os.fdopen(from_child, 'wb') as answers:
                while True:
                    kind, name, top, paths = pickle.load(questions)
                    os.chdir(top)
                    os.umask(0o027)
                    pickle.dump(result((ONE if kind == 1 else TWO)[name], *paths), answers)
                    answers.flush()
        except EOFError:
            os._exit(0)
        finally:
            os._exit(1)
    os.close(to_child)
    os.close(from_child)
    bad = []
    with os.fdopen(child_out, 'rb') as answers, ask:
        for top in (plain, mount):
            fixture(top, owner, group)
        for kind, name, paths in rows:
            got = []
            for top in (plain, mount):
                pickle.dump((kind, name, top, paths), ask)
                ask.flush()
                got.append(pickle.load(answers))
            what = '%s %s' % (name, ' '.join(repr(p if len(p) < 40 else p[:12] + '...(%d)' % len(p)) for p in paths))
            if got[0] != got[1]:
                bad.append('%s: plain %s, mount %s' % (what, got[0], got[1]))
            if name in ONLY_READS or not (got[0][0] or got[1][0]):
                continue
            trees = [tree(top) for top in (plain, mount)]
            if trees[0] != trees[1]:
                at = next(p for p in sorted(set(trees[0]) | set(trees[1])) if trees[0].get(p) != trees[1].get(p))
                bad.append('%s: then %r is plain %s, mount %s' % (what, at, trees[0].get(at), trees[1].get(at)))
            for top in (plain, mount):
                fixture(top, owner, group)
    os.waitpid(pid, 0)
    if bad:
        raise Failed('%d of %d calls differ:\n  %s' % (len(bad), len(rows), '\n  '.join(bad[:25])))


def rows_of():
    rows = [(1, name, (p,)) for name in ONE for p in PATHS]
    # What is left out would work on, or list, what is above the fixture.
    rows = [r for r in rows if not (r[2][0] == '..' and (r[1] not in ONLY_READS or r[1] == 'listdir'))]
    rows += [(2, name, (a, b)) for name in TWO for a in PAIRED for b in PAIRED]
    # Always the same part of them.
    return [r for r in rows if zlib.crc32(repr(r).encode()) % SHARE == 0]


def both(env, actor):
    common.need_root()
    owner, other = env.user(), env.user()
    base = env.filesystem('ext4', 256, options='nodev,nosuid')
    os.chmod(base, 0o755)
    m = env.mount(on=base, options='allow_other')
    os.chmod(m.path, 0o755)
    plain, mount = os.path.join(base, 'plain'), m / 'tree'
    for d in (plain, mount):
        os.mkdir(d, 0o755)
    become = {'root': lambda: None, 'owner': owner.become, 'other': other.become}[actor]
    walk_through(plain, mount, owner.uid, owner.gid, become, rows_of())


def as_root(env):
    both(env, 'root')


def as_owner(env):
    both(env, 'owner')


def as_somebody_else(env):
    both(env, 'other')


if __name__ == '__main__':
    common.main([as_root, as_owner, as_somebody_else])
