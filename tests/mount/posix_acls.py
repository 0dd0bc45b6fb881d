#!/usr/bin/python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a new object gets from its directory's default ACL, from the umask, and from the mode that is asked for: every way to make one, by root, by a
user and by one whom the default ACL names, on ext4 and XFS, with ACLs and without, compared with a plain directory beside the mount. The usual run
takes few umasks and modes, ECFS_MATRIX=all the whole."""
import itertools
import os
import stat

import common
import kernel
from cells import ALL as WHOLE, value
from common import Failed, true
from identities import ALL, Actor, acl

DEFAULT, ACCESS = 'system.posix_acl_default', 'system.posix_acl_access'
UMASKS = (0o000, 0o022, 0o027, 0o077, 0o777)
MODES = (0o666, 0o777, 0o600, 0o000, 0o2775, 0o4711, 0o1777)
LONG = 'n' * 250


def opened(path, mode):
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode))


def opened_and_written(path, mode):
    fd = os.open(path, os.O_CREAT | os.O_RDWR, mode)
    try:
        os.write(fd, b'content')
    finally:
        os.close(fd)


def temporary(path, mode):
    fd = os.open(os.path.dirname(path), os.O_TMPFILE | os.O_RDWR, mode)
    try:
        kernel.linkat_fd(fd, path)
    finally:
        os.close(fd)


WAYS = {
    'open': opened, 'open and write': opened_and_written, 'mkdir': os.mkdir, 'mknod': lambda p, mode: os.mknod(p, stat.S_IFREG | mode), 'mkfifo': os.mkfifo,
    'socket': lambda p, mode: os.mknod(p, stat.S_IFSOCK | mode), 'device': lambda p, mode: os.mknod(p, stat.S_IFCHR | mode, os.makedev(1, 3)),
    'tmpfile': temporary, 'symlink': lambda p, mode: os.symlink('target', p),
}


def rows(directories, umasks, modes):
    for directory, way, umask, mode in itertools.product(directories, WAYS, umasks, modes):
        if way != 'symlink' or mode == modes[0]:
            yield directory, way, umask, mode


def make_all(top, directories, umasks, modes):
    """The outcome of each row, and what there is then to be seen of what was made."""
    out = {}
    for n, (directory, way, umask, mode) in enumerate(rows(directories, umasks, modes)):
        p = '%s/%s/%d' % (top, directory, n) if n % 16 else '%s/%s/%s%d' % (top, directory, LONG[:240], n)
        os.umask(umask)
        made = value(WAYS[way], p, mode)
        os.umask(0o022)
        out[directory, way, '%03o' % umask, '%o' % mode] = (made, value(facts, p))
    return out


def facts(p):
    st = os.lstat(p)
    lists = None
    if not stat.S_ISLNK(st.st_mode):
        lists = tuple(value(os.getxattr, p, name) for name in (ACCESS, DEFAULT)), value(lambda: sorted(n for n in os.listxattr(p) if 'posix_acl' in n))
    return '%o' % st.st_mode, st.st_uid, st.st_gid, lists


def directories_of(user, group):
    """name -> (mode, default ACL)"""
    return {
        'none': (0o777, None), 'set-gid': (0o2777, None),
        'minimal': (0o777, acl(7, 5, 0)), 'closed': (0o777, acl(6, 0, 0)),
        'named': (0o777, acl(7, 5, 4, [(user, 7)])), 'named, masked': (0o777, acl(7, 7, 7, [(user, 7)], [(group, 6)], mask=5)),
        'no mask left': (0o777, acl(7, 7, 5, [(user, 7)], mask=0)), 'set-gid, named': (0o2777, acl(7, 7, 5, [], [(group, 7)])),
        'nobody': (0o777, acl(0, 0, 0, [(user, 0)])),
    }


def on(env, kind, options, umasks, modes):
    common.need_root()
    base = env.filesystem(kind, 400 if kind == 'xfs' else 64, mkfs=['-b', '4096', '-N', '20000'] if kind == 'ext4' else ())
    os.chmod(base, 0o755)
    m = env.mount(on=base, options='allow_other,dev,suid' + options)
    plain = base + '/plain'
    os.mkdir(plain)
    first = common.unused_uid()
    user, named, group = first, first + 1, first + 2
    directories = directories_of(named, group)
    actors = [Actor('root', 0, 0, [0], ALL), Actor('a user', user, user, [group]), Actor('who is named', named, named, [])]
    count = same = 0
    for top in (plain, m.path):
        os.chmod(top, 0o755)
        for actor in actors:
            os.mkdir('%s/%d' % (top, actor.uid))
            for name, (mode, default) in directories.items():
                d = '%s/%d/%s' % (top, actor.uid, name)
                os.mkdir(d)
                os.chown(d, 0, group)
                os.chmod(d, mode)
                if default and options:
                    os.setxattr(d, DEFAULT, default)
    for actor in actors:
        want, got = (actor.call(make_all, '%s/%d' % (top, actor.uid), list(directories), umasks, modes) for top in (plain, m.path))
        if not options:
            # Nothing is known of ACLs here, and there are none: only how asking for one fails differs.
            want, got = ({k: (made, seen[:3] if made is None else seen) for k, (made, seen) in side.items()} for side in (want, got))
        bad = [k for k in want if want[k] != got[k]]
        if bad:
            raise Failed('%s on %s: %d of %d rows differ: %s' % (actor.name, kind, len(bad), len(want), '; '.join(
                '%s: plain %s, mount %s' % (k, want[k], got[k]) for k in bad[:4])))
        count += len(want)
        same += len(set(v[1][0] for v in want.values() if v[0] is None))
        actor.end()
    true('the rows come to different modes', same > 5)
    print('  %d objects on %s' % (count, kind))


def on_ext4(env):
    on(env, 'ext4', ',acl', *((UMASKS, MODES) if WHOLE else ((0o027,), (0o666, 0o2775))))


def on_xfs(env):
    on(env, 'xfs', ',acl', *((UMASKS, MODES) if WHOLE else ((0o777,), (0o666,))))


def without_acls(env):
    on(env, 'ext4', '', *((UMASKS, MODES) if WHOLE else ((0o027,), (0o4711,))))


if __name__ == '__main__':
    common.main([on_ext4, on_xfs, without_acls])
