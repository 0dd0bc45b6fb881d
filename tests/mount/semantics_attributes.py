#!/usr/bin/python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""Times, modes, owners, set-id bits, extended attributes, ACLs, statfs, ioctls, mount options."""
import contextlib
import fcntl
import os
import stat
import struct
import termios

import common
from common import equal, errno_name, get, gives, need_program, need_root, outcome, put, run, true

LONG = 'l' * 255


def mode_of(path):
    return oct(stat.S_IMODE(os.lstat(path).st_mode))


def make_kinds(d):
    """One of each kind; {label: path}."""
    out = {k: os.path.join(d, k) for k in ('file', 'dir', 'link', 'longlink', 'fifo')}
    put(out['file'], b'x' * 5000)
    os.mkdir(out['dir'])
    os.symlink('file', out['link'])
    os.symlink('t' * 3500, out['longlink'])
    os.mkfifo(out['fifo'])
    out['long'] = os.path.join(d, LONG)
    put(out['long'])
    return out


def times(env):
    m = env.mount()
    kinds = make_kinds(m.path)
    ns = {k: (1_100_000_000_123_456_789 + i, -5_000_000_000 + 987_654_321 + i) for i, k in enumerate(kinds)}
    for k, p in kinds.items():
        os.utime(p, ns=ns[k], follow_symlinks=False)
    for when in range(2):
        for k, p in kinds.items():
            st = os.lstat(p)
            if k != 'longlink':  # its length is read from the lower link, which moves that one's atime
                equal('atime of %s, round %d' % (k, when), st.st_atime_ns, ns[k][0])
            equal('mtime of %s, round %d' % (k, when), st.st_mtime_ns, ns[k][1])
            true('ctime of %s is now' % k, st.st_ctime_ns > 1_600_000_000_000_000_000)
        m.remount()
    # What reads or writes moves.
    f = kinds['file']
    with open(f, 'r+b', buffering=0) as h:
        h.write(b'new')
    st = os.stat(f)
    true('mtime follows a write', st.st_mtime_ns > ns['file'][0])
    os.utime(f, ns=ns['file'])
    os.truncate(f, 100)
    true('mtime follows truncate', os.stat(f).st_mtime_ns > ns['file'][0])
    os.utime(f, ns=ns['file'])
    with open(f, 'r+b') as h:
        os.ftruncate(h.fileno(), 100)
    true('mtime follows ftruncate to the same size', os.stat(f).st_mtime_ns > ns['file'][0])
    with open(f, 'wb', buffering=0) as h:
        h.write(b'0123456789')
        os.utime(h.fileno(), ns=ns['file'])  # after a write that may be dirty still
    equal('utimens after a write stands', os.stat(f).st_mtime_ns, ns['file'][1])
    m.remount()
    equal('and after a remount', (os.stat(f).st_mtime_ns, get(f)), (ns['file'][1], b'0123456789'))
    # A directory's mtime: entries, and nothing else.
    d = kinds['dir']
    os.utime(d, ns=(0, 0))

    def moved(label, expected, act):
        os.utime(d, ns=(0, 0))
        act()
        equal('%s moves the directory\'s mtime' % label, os.stat(d).st_mtime_ns != 0, expected)
    moved('creating', True, lambda: put(d + '/f', b'1'))
    moved('writing a file in it', False, lambda: put(d + '/f', b'22'))
    moved('chmod of a file in it', False, lambda: os.chmod(d + '/f', 0o600))
    moved('listing', False, lambda: os.listdir(d))
    moved('xattr of a file in it', False, lambda: os.setxattr(d + '/f', 'user.x', b'1'))
    moved('reading', False, lambda: get(d + '/f'))
    moved('chmod of it', False, lambda: os.chmod(d, 0o711))
    moved('renaming in it', True, lambda: os.rename(d + '/f', d + '/' + LONG))
    moved('linking', True, lambda: os.link(d + '/' + LONG, d + '/g'))
    moved('a rename that fails', False, lambda: outcome(os.rename, d + '/none', d + '/x'))
    moved('removing', True, lambda: os.unlink(d + '/g'))
    moved('mkdir', True, lambda: os.mkdir(d + '/sub'))
    moved('mkdir further down', False, lambda: os.mkdir(d + '/sub/sub'))
    moved('rmdir further down', False, lambda: os.rmdir(d + '/sub/sub'))
    # Looking at things after a remount moves no mtime, and no ctime.
    before = {k: (os.lstat(p).st_mtime_ns, os.lstat(p).st_ctime_ns) for k, p in kinds.items()}
    m.remount()
    run(['find', m.path, '-ls'])
    get(f)
    os.readlink(kinds['longlink'])
    equal('mtimes and ctimes after reading all', {k: (os.lstat(p).st_mtime_ns, os.lstat(p).st_ctime_ns) for k, p in kinds.items()}, before)


def modes_and_owners(env):
    m = env.mount(options='suid,dev')
    kinds = make_kinds(m.path)
    for k, p in kinds.items():
        if 'link' in k:
            equal('mode of ' + k, mode_of(p), '0o777')
            continue
        for mode in (0o000, 0o777, 0o4755, 0o2755, 0o1777, 0o7777, 0o640):
            os.chmod(p, mode)
            equal('mode of ' + k, mode_of(p), oct(mode))
    if os.geteuid() == 0:
        for i, (k, p) in enumerate(kinds.items()):
            os.chown(p, 1000 + i, 2000 + i, follow_symlinks=False)
        m.remount()
        for i, (k, p) in enumerate(kinds.items()):
            st = os.lstat(p)
            equal('owner of ' + k, (st.st_uid, st.st_gid), (1000 + i, 2000 + i))
        os.chmod(kinds['file'], 0o6755)
        os.chown(kinds['file'], 5, 5)
        equal('chown takes the set-id bits', mode_of(kinds['file']), '0o755')
    for mask in (0o000, 0o022, 0o027, 0o077):
        old = os.umask(mask)
        for label, make in (('file', lambda p: os.close(os.open(p, os.O_CREAT | os.O_WRONLY, 0o666))), ('dir', lambda p: os.mkdir(p, 0o777)),
                            ('fifo', lambda p: os.mkfifo(p, 0o666))):
            p = m / ('%s-%o' % (label, mask))
            make(p)
            want = (0o777 if label == 'dir' else 0o666) & ~mask
            equal('%s under umask %o' % (label, mask), mode_of(p), oct(want))
        os.umask(old)


def set_id_bits(env):
    """They go when another than root writes, whatever the way of writing."""
    user = env.user()
    m = env.mount(options='allow_other,suid')
    os.chmod(m.path, 0o777)

    def write(p):
        fd = os.open(p, os.O_WRONLY)
        os.write(fd, b'x')
        os.close(fd)

    def mapped(p):
        import mmap
        with open(p, 'r+b') as f, mmap.mmap(f.fileno(), 0) as a:
            a[0:1] = b'x'

    def allocate(p):
        fd = os.open(p, os.O_WRONLY)
        os.posix_fallocate(fd, 0, 100)
        os.close(fd)

    def direct(p):
        import mmap
        buffer = mmap.mmap(-1, 4096)
        fd = os.open(p, os.O_WRONLY | os.O_DIRECT)
        os.writev(fd, [buffer])
        os.close(fd)
    ways = {'write': write, 'truncate': lambda p: os.truncate(p, 1), 'O_TRUNC': lambda p: open(p, 'wb').close(), 'fallocate': allocate,
            'O_DIRECT': direct, 'append': lambda p: run(['sh', '-c', 'echo x >> "$0"', p])}
    # What a plain directory does is what is wanted.
    plain = env.directory(mode=0o777)
    for label, how in ways.items():
        # Without group execution set-group-id is no privilege but the mark of mandatory locking: FUSE keeps it, newer lower
        # filesystems do not for who is not in the group. So not 2767 here.
        for mode in (0o4777, 0o2777, 0o6777, 0o4666):
            for who in ('user', 'root'):
                got = {}
                for d in (plain, m.path):
                    p = d + '/' + label + who + oct(mode)
                    put(p, b'x' * 10000)
                    os.chmod(p, mode)
                    user.call(how, p) if who == 'user' else how(p)
                    got[d] = mode_of(p)
                equal('mode %o after %s by %s, as on a plain directory' % (mode, label, who), got[m.path], got[plain])
    m.remount()
    equal('after a remount', mode_of(m.path + '/write' + 'user0o4777'), '0o777')
    if os.geteuid() == 0:
        need_program('setcap')
        put(m / 'cap', b'#!')
        run(['setcap', 'cap_net_raw+ep', m / 'cap'])
        true('capability is there', 'cap_net_raw' in run(['getcap', m / 'cap']).stdout)
        with open(m / 'cap', 'ab') as f:
            f.write(b'x')
        equal('capability goes with a write', run(['getcap', m / 'cap']).stdout, '')


def xattrs(env):
    m = env.mount()
    kinds = make_kinds(m.path)
    for k in ('file', 'dir', 'long'):
        p = kinds[k]
        equal(k + ': none at first', os.listxattr(p), [])
        gives(k + ': reading none', 'ENODATA', os.getxattr, p, 'user.a')
        gives(k + ': removing none', 'ENODATA', os.removexattr, p, 'user.a')
        gives(k + ': replacing none', 'ENODATA', os.setxattr, p, 'user.a', b'', os.XATTR_REPLACE)
        os.setxattr(p, 'user.a', b'one', os.XATTR_CREATE)
        gives(k + ': creating again', 'EEXIST', os.setxattr, p, 'user.a', b'two', os.XATTR_CREATE)
        equal(k + ': not changed by that', os.getxattr(p, 'user.a'), b'one')
        os.setxattr(p, 'user.a', b'two', os.XATTR_REPLACE)
        os.setxattr(p, 'user.empty', b'')
        os.setxattr(p, 'user.\xc3\xa9 \n=,', bytes(range(256)))
        name = 'user.' + 'n' * 250  # 255 bytes
        os.setxattr(p, name, b'v' * 100)
        gives(k + ': a name of 256', 'ERANGE', os.setxattr, p, name + 'n', b'')
        for bad in ('user.', 'nonsense.x', 'x'):
            true(k + ': the name %r is refused' % bad, outcome(os.setxattr, p, bad, b'') in ('EOPNOTSUPP', 'EINVAL', 'EPERM'))
        want = {'user.a': b'two', 'user.empty': b'', 'user.\xc3\xa9 \n=,': bytes(range(256)), name: b'v' * 100}
        equal(k + ': listing', sorted(os.listxattr(p)), sorted(want))
        for when in range(2):
            equal(k + ': values', {n: os.getxattr(p, n) for n in os.listxattr(p)}, want)
            if when == 0:
                m.remount()
        os.removexattr(p, name)
        os.removexattr(p, 'user.empty')
        equal(k + ': after removal', sorted(os.listxattr(p)), ['user.a', 'user.\xc3\xa9 \n=,'])
    # Nothing of names or values is to be seen below.
    low = m.lower_path('file')
    for n in os.listxattr(low):
        true('the name is not plaintext below: ' + n, n.startswith('user.ecfs.'))
        true('the value is not plaintext below', b'two' not in os.getxattr(low, n))
    # Of a link, not of its target. user.* is not for links and fifos.
    for k in ('link', 'longlink', 'fifo'):
        gives('user.* on a ' + k, 'EPERM', os.setxattr, kinds[k], 'user.a', b'', follow_symlinks=False)
    if os.geteuid() == 0:
        for k, p in kinds.items():
            os.setxattr(p, 'trusted.t', k.encode(), follow_symlinks=False)
            os.setxattr(p, 'security.mine', k.encode(), follow_symlinks=False)
        m.remount()
        for k, p in kinds.items():
            equal('trusted.* on ' + k, os.getxattr(p, 'trusted.t', follow_symlinks=False), k.encode())
            true('listed on ' + k, {'trusted.t', 'security.mine'} <= set(os.listxattr(p, follow_symlinks=False)))
            os.removexattr(p, 'trusted.t', follow_symlinks=False)
            gives('removed from ' + k, 'ENODATA', os.getxattr, p, 'trusted.t', follow_symlinks=False)
    # The values are the lower filesystem's to limit, its errno comes back, and the old value stays.
    os.setxattr(kinds['file'], 'user.big', b'old')
    big = 1000
    while outcome(os.setxattr, kinds['file'], 'user.big', b'b' * big) == 'OK' and big < 65536:
        equal('a value of %d' % big, os.getxattr(kinds['file'], 'user.big'), b'b' * big)
        big += 500
    true('values of at least 2000 bytes, got to %d' % big, big > 2000)
    if big < 65536:
        true('what is too big is refused so', outcome(os.setxattr, kinds['file'], 'user.big', b'b' * big) in ('ENOSPC', 'E2BIG', 'ERANGE'))
        equal('the old value stays', os.getxattr(kinds['file'], 'user.big'), b'b' * (big - 500))
    # cp -a and mv keep them; a new file of the same name has none.
    run(['cp', '-a', kinds['long'], m / 'copy'])
    equal('cp -a', os.getxattr(m / 'copy', 'user.a'), b'two')
    os.unlink(kinds['long'])
    put(kinds['long'])
    equal('a new file', [n for n in os.listxattr(kinds['long']) if n.startswith('user.')], [])


def xattrs_big(env):
    """As much as XFS and btrfs take."""
    for kind, mb, most in (('xfs', 320, 65536), ('btrfs', 160, 15000)):
        try:
            m = env.mount(on=env.filesystem(kind, mb))
        except common.Skip as e:
            print('  %s: %s' % (kind, e))
            continue
        put(m / 'f')
        os.setxattr(m / 'f', 'user.v', b'1')
        for n in (0, 1, 4096, 15000, 65000, 65536):
            got = outcome(os.setxattr, m / 'f', 'user.v', bytes(n))
            if got == 'OK':
                equal('%s: value of %d' % (kind, n), os.getxattr(m / 'f', 'user.v'), bytes(n))
            else:
                true('%s: refused at %d by %s' % (kind, n, got), n > most - 100 and got in ('E2BIG', 'ENOSPC', 'ERANGE'))
        m.umount()


def xattrs_unreadable(env):
    """Of files that their owner may write but not read, and back."""
    user = env.user()
    m = env.mount(user=user)

    def there():
        put(m / 'w', b'1')
        os.chmod(m / 'w', 0o200)
        os.setxattr(m / 'w', 'user.a', b'1')
        got = outcome(os.getxattr, m / 'w', 'user.a')
        os.chmod(m / 'w', 0o400)
        return got, os.getxattr(m / 'w', 'user.a'), outcome(os.setxattr, m / 'w', 'user.a', b'2'), os.listxattr(m / 'w')
    equal('as permissions say', user.call(there), ('EACCES', b'1', 'EACCES', ['user.a']))


def no_xattr(env):
    m = env.mount(options='noxattr')
    put(m / 'f', b'x')
    gives('setting', 'EOPNOTSUPP', os.setxattr, m / 'f', 'user.a', b'1')
    gives('reading', 'EOPNOTSUPP', os.getxattr, m / 'f', 'user.a')
    equal('cp -a goes on', run(['cp', '-a', m / 'f', m / 'g']).stdout, '')


def acls(env):
    need_program('setfacl', 'getfacl')
    user, other = env.user(), env.user()
    m = env.mount(options='acl,allow_other')
    plain = env.directory(mode=0o755)
    os.mkdir(m / 'd')
    os.mkdir(plain + '/d')
    for d in (m / 'd', plain + '/d'):
        put(d + '/f', b'secret')
        os.chmod(d + '/f', 0o600)
        gives('before', 'EACCES', user.call, get, d + '/f')
        run(['setfacl', '-m', 'u:%s:r' % user.name, d + '/f'])
        equal('allowed by the ACL', user.call(get, d + '/f'), b'secret')
        gives('not for writing', 'EACCES', user.call, put, d + '/f', b'')
        gives('not for another', 'EACCES', other.call, get, d + '/f')
        os.chmod(d + '/f', 0o600)  # the mask goes
        gives('after chmod', 'EACCES', user.call, get, d + '/f')
        os.chmod(d + '/f', 0o640)
        equal('after chmod back', user.call(get, d + '/f'), b'secret')
        # Inherited, and overriding the umask.
        run(['setfacl', '-d', '-m', 'u:%s:rwx,g::rwx,o::-' % user.name, d])
        old = os.umask(0o077)
        os.mkdir(d + '/sub')
        put(d + '/sub/new')
        os.mkdir(d + '/sub/sub')
        os.close(os.open(d + '/sub/mode', os.O_CREAT | os.O_WRONLY, 0o640))
        os.mknod(d + '/sub/fifo', 0o666 | stat.S_IFIFO)
        os.umask(old)

    def facts(d):
        out = []
        for p in ('d', 'd/f', 'd/sub', 'd/sub/new', 'd/sub/sub', 'd/sub/mode', 'd/sub/fifo'):
            out.append((p, mode_of(d + '/' + p), run(['getfacl', '-c', '-p', d + '/' + p]).stdout))
        return out
    equal('modes and ACLs as on a plain directory', facts(m.path), facts(plain))
    m.remount()
    equal('after a remount', facts(m.path), facts(plain))
    # Made under a umask without a default ACL: the umask holds.
    old = os.umask(0o027)
    put(m / 'plainfile')
    os.mkdir(m / 'plaindir')
    os.umask(old)
    equal('umask', (mode_of(m / 'plainfile'), mode_of(m / 'plaindir')), ('0o640', '0o750'))
    run(['cp', '-a', m / 'd', m / 'copy'])
    equal('cp -a', run(['getfacl', '-c', '-p', m / 'copy/sub/new']).stdout, run(['getfacl', '-c', '-p', m / 'd/sub/new']).stdout)


def acl_of_new_files(env):
    """The default ACL is for what the program makes, not for the files that the format keeps beside it: those its owner's daemon must read."""
    from identities import acl
    user = env.user()
    m = env.mount(user=user, options='acl')
    long = 'n' * 250

    def make():
        os.mkdir(m / 'd')
        os.setxattr(m / 'd', 'system.posix_acl_default', acl(0, 7, 0))
        put(m / ('d/' + long))
        os.symlink('t' * 3500, m / 'd/link')
        os.mkdir(m / 'd/sub')

    def seen():
        return sorted(os.listdir(m / 'd')), len(os.readlink(m / 'd/link')), oct(os.stat(m / ('d/' + long)).st_mode & 0o777)
    user.call(make)
    want = (sorted([long, 'link', 'sub']), 3500, '0o60')
    equal('at once', user.call(seen), want)
    m.remount()
    equal('after a remount', user.call(seen), want)
    user.call(os.chmod, m / 'd/sub', 0o700)
    user.call(put, m / 'd/sub/f')
    equal('in a directory made there', user.call(os.listdir, m / 'd/sub'), ['f'])


def shared_like_alone(env):
    """What the kernel does not tell where it keeps nothing: the daemon of a shared mount finds it out."""
    no_append = 0x20  # RWF_NOAPPEND
    m = env.mount(options='shared,allow_other')
    put(m / 'f', b'0123456789')
    fd = os.open(m / 'f', os.O_WRONLY | os.O_APPEND)
    os.pwritev(fd, [b'end'], 2)
    try:
        os.pwritev(fd, [b'AB'], 2, no_append)
        equal('an append, and a write that is none', get(m / 'f'), b'01AB456789end')
    except OSError as e:
        equal('a kernel without RWF_NOAPPEND', errno_name(e), 'EOPNOTSUPP')
    os.close(fd)
    user = env.user()
    os.chown(m / 'f', user.uid, user.gid)
    os.chmod(m / 'f', 0o4755)
    user.call(os.chown, m / 'f', -1, -1)
    equal('chown of nobody by the owner', mode_of(m / 'f'), '0o755')
    os.chown(m / 'f', 0, 0)
    os.chmod(m / 'f', 0o4757)
    gives('chown of nobody by another', 'EPERM', user.call, os.chown, m / 'f', -1, -1)
    user.call(put, m / 'f', b'written')
    equal('another may write, and the bit goes', (get(m / 'f'), mode_of(m / 'f')), (b'written', '0o757'))
    # Of a descriptor that only names a file nobody tells the daemon.
    os.symlink('target', m / 'l')
    os.link(m / 'f', m / 'g')
    held = [os.open(m / name, os.O_PATH | os.O_NOFOLLOW) for name in ('f', 'l')]
    os.unlink(m / 'l')
    for name, links in (('f', 1), ('g', 0)):
        os.unlink(m / name)
        equal('without ' + name, [(st.st_nlink, st.st_size) for st in map(os.fstat, held)], [(links, 7), (0, 6)])
    for fd in held:
        os.close(fd)


def acls_off(env):
    need_program('setfacl')
    m = env.mount()
    put(m / 'f')
    true('setfacl fails where there are no ACLs', run(['setfacl', '-m', 'u:1:r', m / 'f'], ok=None).returncode != 0)
    equal('mode', mode_of(m / 'f'), '0o644')


def filesystem_numbers(env):
    base = env.filesystem('ext4', 64) if os.geteuid() == 0 else env.directory()
    m = env.mount(on=base)
    a, b = os.statvfs(m.path), os.statvfs(base)
    for field in ('f_blocks', 'f_bfree', 'f_bavail', 'f_files', 'f_ffree', 'f_frsize', 'f_bsize'):
        equal('statfs ' + field, getattr(a, field), getattr(b, field))
    equal('namemax', a.f_namemax, 255)
    put(m / 'f', b'x' * 100000)
    os.sync()
    equal('du', os.stat(m / 'f').st_blocks, os.stat(m.lower_path('f')).st_blocks)
    equal('inode number', os.stat(m / 'f').st_ino, os.stat(m.lower_path('f')).st_ino)
    used = run(['du', '-s', '--block-size=1', m / 'f']).stdout.split()[0]
    true('du says what is used: %s' % used, 100000 <= int(used) <= 120000)


def ioctls(env):
    m = env.mount()
    put(m / 'f')
    with open(m / 'f', 'rb') as f:
        gives('an unknown ioctl', 'ENOTTY', fcntl.ioctl, f.fileno(), termios.TCGETS, bytes(100))
        gives('flags', 'ENOTTY', fcntl.ioctl, f.fileno(), 0x80086601, bytes(8))  # FS_IOC_GETFLAGS
        true('not a terminal', not os.isatty(f.fileno()))
    p = run(['lsattr', '-d', m.path], ok=None)
    true('lsattr says so once: %r' % p.stdout, p.stdout.count('\n') <= 1)


def access_times(env):
    m = env.mount()
    plain = env.directory()

    def calls(d, remount):
        p = d + '/f'
        put(p, b'x')
        os.utime(p, ns=(10**18, 2 * 10**18))  # atime before mtime: relatime lets it move
        remount()
        get(p)
        return os.stat(p).st_atime_ns > 10**18
    equal('relatime moves atime as on a plain directory', calls(m.path, m.remount), calls(plain, lambda: None))
    m.remount(options='noatime')
    equal('noatime', calls(m.path, m.remount), False)
    equal('listing with noatime', [os.utime(m.path, ns=(10**18, 10**18)), os.listdir(m.path), os.stat(m.path).st_atime_ns][2], 10**18)


def read_only(env):
    m = env.mount()
    kinds = make_kinds(m.path)
    os.setxattr(kinds['file'], 'user.a', b'1')
    m.umount()
    before = run(['sh', '-c', 'cd "$0" && find . -printf "%p %y %s %m %T@ %C@\\n" | sort', m.lower]).stdout
    m.remount(options='ro')
    true('the status says so', m.status()['read_only'])
    true('the kernel says so', os.statvfs(m.path).f_flag & os.ST_RDONLY)
    for label, f in {'create': lambda: put(m / 'new'), 'open for writing': lambda: open(kinds['file'], 'r+'), 'mkdir': lambda: os.mkdir(m / 'n'),
                     'unlink': lambda: os.unlink(kinds['file']), 'rmdir': lambda: os.rmdir(kinds['dir']), 'chmod': lambda: os.chmod(kinds['file'], 0),
                     'rename': lambda: os.rename(kinds['file'], m / 'x'), 'symlink': lambda: os.symlink('a', m / 'x'),
                     'link': lambda: os.link(kinds['file'], m / 'x'), 'truncate': lambda: os.truncate(kinds['file'], 0),
                     'setxattr': lambda: os.setxattr(kinds['file'], 'user.b', b''), 'removexattr': lambda: os.removexattr(kinds['file'], 'user.a'),
                     'utime': lambda: os.utime(kinds['file'], (0, 0))}.items():
        gives(label, 'EROFS', f)
    equal('reading', (get(kinds['file']), os.readlink(kinds['longlink']), os.getxattr(kinds['file'], 'user.a')), (b'x' * 5000, 't' * 3500, b'1'))
    m.umount()
    equal('lower directory', run(['sh', '-c', 'cd "$0" && find . -printf "%p %y %s %m %T@ %C@\\n" | sort', m.lower]).stdout, before)


def options(env):
    m = env.mount(options='noexec,nodev,nosuid')
    run(['cp', '/bin/true', m / 'true'])
    gives('noexec', 'EACCES', os.execv, m / 'true', ['true'])
    m.remount(options='fsname=my\\,volume')
    equal('fsname', [s for t, _, s in common.mounts() if t == m.path], ['my,volume'])
    equal('type', [k for t, k, _ in common.mounts() if t == m.path], ['fuse.ecfs'])
    m.remount(options='sync,dirsync')
    put(m / 'f', b'1')
    with open('/proc/self/mountinfo') as f:
        line = [x for x in f if m.path in x][0]
    true('sync is set: ' + line, 'sync' in line)
    m.remount(options='')
    with open('/proc/self/mountinfo') as f:
        line = [x for x in f if m.path in x][0]
    for word in ('nosuid', 'nodev', 'default_permissions'):
        true('%s without being asked: %s' % (word, line), word in line)


if __name__ == '__main__':
    common.main([times, modes_and_owners, set_id_bits, xattrs, xattrs_big, xattrs_unreadable, no_xattr, acls, acl_of_new_files, shared_like_alone, acls_off,
                 filesystem_numbers, ioctls, access_times, read_only, options])
