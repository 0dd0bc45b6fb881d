#!/usr/bin/python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""More than one user: a mount by root for all of them, with whose files are whose; and a user's own mount, which keeps everybody else out."""
import contextlib
import os
import stat

import common
from common import ECFS, equal, get, gives, outcome, put, run, true


def at_once(env):
    """Four users create in four directories at the same time: everything belongs to its maker, above and below."""
    users = [env.user() for _ in range(4)]
    m = env.mount(options='allow_other')
    os.chmod(m.path, 0o755)
    for u in users:
        os.mkdir(m / u.name)
        os.chown(m / u.name, u.uid, u.gid)

    def work(u):
        os.chdir(m / u.name)
        for i in range(150):
            put('f%d' % i, b'%d' % i)
            os.mkdir('d%d' % i)
            put('d%d/in' % i, b'x')
            os.symlink('t', 'l%d' % i)
            os.mkfifo('p%d' % i)
            if i % 10 == 0:
                os.symlink('t' * 3500, 'long%d' % i)
                put('L' * 200 + str(i))
    from concurrent.futures import ThreadPoolExecutor
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda u: u.call(work, u), users))
    for when in range(2):
        for u in users:
            bad = run(['find', m / u.name, '!', '(', '-uid', str(u.uid), '-gid', str(u.gid), ')']).stdout
            equal('what does not belong to its maker', bad, '')
        if when == 0:
            m.remount()
    lower = {u.uid: 0 for u in users}
    for here, dirs, files in os.walk(m.lower):
        for n in dirs + files:
            uid = os.lstat(os.path.join(here, n)).st_uid
            if uid in lower:
                lower[uid] += 1
            else:
                equal('owner of what is nobody\'s: ' + n, uid, 0)
    true('below they own alike: %s' % lower, min(lower.values()) >= 150 * 5)
    # Nobody gets at another's.
    one, two = users[:2]
    os.chmod(m / one.name, 0o700)
    gives('another\'s directory', 'EACCES', two.call, os.listdir, m / one.name)
    gives('a file in it', 'EACCES', two.call, get, m / (one.name + '/f1'))
    gives('removing it', 'EACCES', two.call, os.unlink, m / (one.name + '/f1'))
    os.chmod(m / one.name, 0o755)
    equal('reading another\'s file', two.call(get, m / (one.name + '/f1')), b'1')
    gives('writing it', 'EACCES', two.call, put, m / (one.name + '/f1'), b'2')
    gives('chmod of it', 'EPERM', two.call, os.chmod, m / (one.name + '/f1'), 0o777)
    gives('chown of one\'s own to another', 'EPERM', one.call, os.chown, m / (one.name + '/f1'), two.uid, -1)
    gives('creating beside it', 'EACCES', two.call, put, m / (one.name + '/new'))


def groups(env):
    """Set-gid directories, supplementary groups, sticky directories."""
    u, v = env.user(), env.user()
    m = env.mount(options='allow_other')
    os.chmod(m.path, 0o755)
    group = 54321  # no name needed
    plain = env.directory(mode=0o755)

    def facts(d):
        out = []

        def note(label, path):
            st = os.lstat(path)
            out.append((label, st.st_uid, st.st_gid, oct(st.st_mode)))
        os.mkdir(d + '/shared')
        os.chown(d + '/shared', 0, group)
        os.chmod(d + '/shared', 0o2775)
        out.append(('a stranger', outcome(u.call, put, d + '/shared/x')))

        def member():
            os.chdir(d + '/shared')
            old = os.umask(0o002)
            put('f')
            os.mkdir('d')
            os.mkdir('d/e')
            put('d/e/f')
            os.symlink('f', 'l')
            os.symlink('f' * 3500, 'll')
            put('L' * 230)
            os.mkdir('M' * 230)
            os.mkfifo('p')
            os.close(os.open('sgid', os.O_CREAT | os.O_WRONLY, 0o2755))
            os.chmod('f', 0o2755)
            os.chown('f', -1, group)
            os.umask(old)
        u.call(member, groups=[group])
        for n in ('f', 'd', 'd/e', 'd/e/f', 'l', 'll', 'L' * 230, 'M' * 230, 'p', 'sgid'):
            note(n, d + '/shared/' + n)
        out.append(('the other member writes', outcome(lambda: v.call(put, d + '/shared/d/e/f', b'v', groups=[group]))))
        # A directory that only a supplementary group may write.
        os.mkdir(d + '/team')
        os.chown(d + '/team', 0, group)
        os.chmod(d + '/team', 0o770)
        out.append(('team', outcome(lambda: u.call(put, d + '/team/f', b'', groups=[1, 2, group])), outcome(lambda: u.call(put, d + '/team/g', b''))))
        note('of the team', d + '/team/f')
        # A file that only the group may write.
        put(d + '/gfile', b'g')
        os.chown(d + '/gfile', 0, group)
        os.chmod(d + '/gfile', 0o060)
        out.append(('group file', outcome(lambda: u.call(put, d + '/gfile', b'new', groups=[group])), outcome(lambda: u.call(put, d + '/gfile', b'new'))))
        # Sticky: each removes only what is its own.
        os.mkdir(d + '/tmp')
        os.chmod(d + '/tmp', 0o1777)
        u.call(put, d + '/tmp/u')
        v.call(put, d + '/tmp/v')
        out.append(('sticky', outcome(lambda: u.call(os.unlink, d + '/tmp/v')), outcome(lambda: u.call(os.rename, d + '/tmp/v', d + '/tmp/w')),
                    outcome(lambda: v.call(os.unlink, d + '/tmp/v'))))
        # Linking another's file (protected_hardlinks, if the machine has it).
        out.append(('link', outcome(lambda: v.call(os.link, d + '/gfile', d + '/tmp/link'))))
        # A user with root's group only: who may not search the parent may not create.
        os.chmod(d + '/team', 0o700)
        out.append(('closed', outcome(lambda: u.call(put, d + '/team/h', b'', groups=[group]))))
        return out
    equal('as on a plain directory', facts(m.path), facts(plain))


def many_groups(env):
    """More supplementary groups than fit anywhere by accident."""
    u = env.user()
    m = env.mount(options='allow_other')
    os.chmod(m.path, 0o755)
    some = list(range(30000, 30200))
    os.mkdir(m / 'd')
    os.chown(m / 'd', 0, 30199)
    os.chmod(m / 'd', 0o2770)
    u.call(put, m / 'd/f', b'x', groups=some)
    st = os.stat(m / 'd/f')
    equal('owner and group', (st.st_uid, st.st_gid), (u.uid, 30199))


def allow_other_lower_modes(env):
    """The caller's rights decide, not the daemon's; and the daemon's own files are not the caller's to fail on."""
    u = env.user()
    m = env.mount(options='allow_other')
    os.chmod(m.path, 0o755)
    os.mkdir(m / 'home')
    os.chown(m / 'home', u.uid, u.gid)

    def work():
        os.chdir(m / 'home')
        os.mkdir('ro', 0o555)
        put('w', b'a' * 5000)
        os.chmod('w', 0o200)
        with open('w', 'ab') as f:
            f.write(b'b')
        fd = os.open('r', os.O_CREAT | os.O_RDWR | os.O_EXCL, 0o444)
        os.write(fd, b'z')
        os.close(fd)
        os.rmdir('ro')
        os.chmod('r', 0o644)
        os.setxattr('r', 'user.a', b'1')
        return sorted(os.listdir('.'))
    equal('in one\'s own directory', u.call(work), ['r', 'w'])
    equal('root reads it all the same', len(get(m / 'home/w')), 5001)
    os.chmod(m / 'home', 0)
    equal('root, too, in a closed directory', sorted(os.listdir(m / 'home')), ['r', 'w'])


def own_mount(env):
    """A user mounts: neither root nor another user gets in, and the user needs nothing of root."""
    u, v = env.user(), env.user()
    m = env.mount(user=u)
    u.call(put, m / 'f', b'mine')
    equal('the owner', u.call(get, m / 'f'), b'mine')
    if outcome(os.listdir, m.path) == 'OK':
        # The kernel has an option by which a user's mount lets root in (allow_sys_admin_access).
        equal('the kernel\'s allow_sys_admin_access', get('/sys/module/fuse/parameters/allow_sys_admin_access'), b'Y\n')
    else:
        gives('root', 'EACCES', os.listdir, m.path)
        gives('root, by name', 'EACCES', os.stat, m / 'f')
    gives('another user', 'EACCES', v.call, os.listdir, m.path)
    gives('another user, by name', 'EACCES', v.call, get, m / 'f')
    status = u.call(m_status, m.path)
    true('the owner sees the status', '"mode": "exclusive"' in status[1] and status[0] == 0)
    equal('another user does not', v.call(m_status, m.path)[0] != 0, True)
    true('nor does another unmount it', v.call(m_umount, m.path) != 0 and common.mounted(m.path))
    equal('the daemon\'s memory is root\'s, since it is not dumpable', os.stat('/proc/%d/mem' % m.pid).st_uid, 0)
    gives('the user\'s other programs do not read its memory', 'EACCES', u.call, get, '/proc/%d/mem' % m.pid)
    with open('/proc/%d/status' % m.pid) as f:
        text = f.read()
    true('it runs as the user: ' + text[:300], '\nUid:\t%d\t%d\t%d\t%d\n' % ((u.uid,) * 4) in text)
    true('without capabilities', '\nCapEff:\t0000000000000000' in text)
    # Everything as a user.
    def work():
        os.chdir(m.path)
        os.mkdir('d')
        for i in range(50):
            put('d/f%d' % i + 'L' * (200 if i % 5 == 0 else 1), b'x' * i)
        os.symlink('t' * 4000, 'link')
        os.setxattr('f', 'user.a', b'1')
        fd = os.open('f', os.O_RDWR)
        os.posix_fallocate(fd, 0, 10000)
        os.fsync(fd)
        os.close(fd)
        gives('chown', 'EPERM', os.chown, 'f', 0, -1)
        gives('a device', 'EPERM', os.mknod, 'null', 0o600 | stat.S_IFCHR, os.makedev(1, 3))
        gives('trusted.*', 'EPERM', os.setxattr, 'f', 'trusted.a', b'1')
        os.chdir('/')
    u.call(work)
    m.umount()
    for here, dirs, files in os.walk(m.lower):
        for n in dirs + files:
            equal('owner below of ' + n, os.lstat(os.path.join(here, n)).st_uid, u.uid)
    m.mount()
    true('after a remount', len(u.call(os.listdir, m / 'd')) == 50 and u.call(os.stat, m / 'f').st_size == 10000)
    # allow_other needs /etc/fuse.conf's leave.
    m.umount()
    p = run([ECFS, 'mount', '-o', 'allow_other', '--passfile', env.passfile, m.lower, m.path], user=u, ok=None)
    with contextlib.suppress(OSError):
        allowed = b'\nuser_allow_other' in b'\n' + get('/etc/fuse.conf')
        equal('allow_other by a user, as fuse.conf says: ' + p.stdout, p.returncode == 0, allowed)
    if p.returncode == 0:
        run([ECFS, 'umount', m.path], user=u)
    true('nothing is left mounted', not common.mounted(m.path))


def m_status(path):
    p = run([ECFS, 'status', '--json', path], ok=None)
    return p.returncode, p.stdout


def m_umount(path):
    return run([ECFS, 'umount', path], ok=None).returncode


def user_fusermount(env):
    """Through fusermount3: unmounted by fusermount3 itself, by umount's helper, by a signal; the daemon ends each time."""
    u = env.user()
    m = env.mount(user=u)
    for how in (lambda: run(['fusermount3', '-u', m.path], user=u), lambda: os.kill(m.pid, 15), lambda: run(['umount', m.path])):
        u.call(put, m / 'f', b'dirty' * 1000)
        pid = m.pid
        how()
        common.wait_until('unmounted', lambda: not common.mounted(m.path))
        common.wait_until('the daemon has ended', lambda: not common.alive(pid))
        equal('no marker', os.path.exists(m.lower + '/ecfs.session'), False)
        m.pid = None
        m.mount()
        equal('what was written', u.call(get, m / 'f'), b'dirty' * 1000)
    # A second one of the same user, beside it.
    other = env.mount(user=u)
    u.call(put, other / 'g', b'other')
    equal('both', (u.call(get, m / 'f'), u.call(get, other / 'g')), (b'dirty' * 1000, b'other'))
    run([ECFS, 'umount', other.path], user=u)
    other.pid = None
    # Where the user may not write the lower directory, and where not read it.
    m.umount()
    os.chown(m.lower, 0, 0)
    p = m.mount(ok=None)
    true('a lower directory of another: refused, or read-only: ' + p.stdout, p.returncode != 0 or m.status()['read_only'])
    if p.returncode == 0:
        m.umount()
    os.chmod(m.lower, 0o700)
    p = m.mount(ok=None)
    true('an unreadable one is refused: ' + p.stdout, p.returncode != 0 and 'ermission denied' in p.stdout)
    true('nothing is mounted', not common.mounted(m.path))


if __name__ == '__main__':
    if os.geteuid() != 0:
        print('SKIP: needs root, to make users')
        raise SystemExit(77)
    common.main([at_once, groups, many_groups, allow_other_lower_modes, own_mount, user_fusermount])
