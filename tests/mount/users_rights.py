#!/usr/bin/python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""Set-id bits, capabilities, ACLs, and whose the format's own files are: each case does the same in a plain directory of the same
filesystem, and says what it must come to, so that a kernel that agrees with a mistake is found, too."""
import ctypes
import os
import stat

import common
from common import equal, gives, true
from identities import ALL, Actor, acl, available
from users_compare import attributes, create, facts, fallocate, lchown, listing, mkdir, mknod, write

LONG, LONG2 = 'L' * 230, 'M' * 230
libc = ctypes.CDLL(None)


def mode_of(path):
    return oct(stat.S_IMODE(os.lstat(path).st_mode))


class Two:
    """A plain directory and a mount over the same ext4; two users, a group that only `member` is in."""
    def __init__(self, env):
        self.base = env.filesystem('ext4', 64, mkfs=['-b', '4096'])
        self.mount = env.mount(lower=env.lower(on=self.base), options='allow_other,acl,suid,dev')
        self.plain = os.path.join(self.base, 'plain')
        os.mkdir(self.plain)
        for top in self:
            os.chmod(top, 0o777)
        first = common.unused_uid()
        self.group = first + 10
        self.one, self.two = first, first + 1
        self.actors = []
        self.member = self.actor('member', self.one, self.one, [self.group])
        self.stranger = self.actor('stranger', self.two, self.two)
        self.root = self.actor('root', 0, 0, [0], ALL)

    def actor(self, *args):
        self.actors.append(Actor(*args))
        return self.actors[-1]

    def __iter__(self):
        return iter((self.plain, self.mount.path))

    def file(self, path, mode, uid=None, gid=None):
        with open(path, 'wb') as f:
            f.write(b'content')
        os.chown(path, self.one if uid is None else uid, self.group if gid is None else gid)
        os.chmod(path, mode)


def set_id_bits(env):
    two = Two(env)
    own_group_only = two.actor('owner, not in the group', two.one, two.one)
    fsetid = two.actor('FSETID', two.two, two.two, [], ['FSETID'])
    bare_root = two.actor('root without capabilities', 0, 0, [], [])
    do_write, do_truncate, do_fallocate = (write, 0, b'new'), (os.truncate, 3), (fallocate, 9000)
    for top in two:
        def after(who, mode, f, *args, gid=None):
            path = os.path.join(top, 'f')
            two.file(path, mode, gid=gid)
            who.call(f, path, *args)
            return mode_of(path)
        for f, *args in (do_write, do_truncate, do_fallocate):
            what = '%s in %s' % (f.__name__, top)
            equal('a stranger: ' + what, after(two.stranger, 0o6777, f, *args), '0o777')
            equal('the owner, too: ' + what, after(two.member, 0o6755, f, *args), '0o755')
            equal('root keeps them: ' + what, after(two.root, 0o6755, f, *args), '0o6755')
            equal('root without capabilities does not: ' + what, after(bare_root, 0o6777, f, *args), '0o777')
            equal('who has CAP_FSETID does: ' + what, after(fsetid, 0o6777, f, *args), '0o6777')
            equal('set-gid without execution, in the group: ' + what, after(two.member, 0o2666, f, *args), '0o2666')
            equal('not in the group: ' + what, after(two.stranger, 0o2666, f, *args), '0o666')
        what = ' in ' + top
        equal('chown by root' + what, after(two.root, 0o6755, lchown, two.two, -1), '0o755')
        equal('chgrp by the owner' + what, after(two.member, 0o6755, lchown, -1, two.one), '0o755')
        equal('chown that changes nobody' + what, after(two.member, 0o6755, lchown, -1, -1), '0o755')
        for kind, make, want in (('fifo', os.mkfifo, '0o755'), ('directory', os.mkdir, '0o6755')):
            make(top + '/' + kind)
            os.chown(top + '/' + kind, two.one, two.group)
            os.chmod(top + '/' + kind, 0o6755)
            two.member.call(lchown, top + '/' + kind, -1, -1)
            equal('of a %s%s' % (kind, what), mode_of(top + '/' + kind), want)
        equal('the same, no bits' + what, after(two.stranger, 0o755, lchown, -1, -1), '0o755')
        equal('the same of set-gid without execution, in the group' + what, after(two.member, 0o2644, lchown, -1, -1), '0o2644')
        equal('not in the group' + what, after(own_group_only, 0o2644, lchown, -1, -1), '0o644')
        gives('by who does not own it' + what, 'EPERM', after, two.stranger, 0o4755, lchown, -1, -1)
        equal('chmod by the owner in the group' + what, after(two.member, 0o644, os.chmod, 0o2755), '0o2755')
        equal('not in the group' + what, after(own_group_only, 0o644, os.chmod, 0o2755), '0o755')
        value = acl(6, 4, 4, [(two.two, 6)], mask=6)
        equal('an ACL by the owner in the group' + what, after(two.member, 0o2755, os.setxattr, 'system.posix_acl_access', value), '0o2664')
        equal('not in the group' + what, after(own_group_only, 0o2755, os.setxattr, 'system.posix_acl_access', value), '0o664')
        # Creating in a set-gid directory.
        os.mkdir(top + '/shared')
        os.chown(top + '/shared', 0, two.group)
        os.chmod(top + '/shared', 0o2777)
        for who, name, want in ((two.member, 'm', 0o2755), (two.stranger, 's', 0o755), (fsetid, 'c', 0o2755)):
            who.call(create, top + '/shared/' + name, 0o2755, 0)
            who.call(mkdir, top + '/shared/d' + name, 0o755, 0)
            equal('created by %s%s' % (who.name, what), facts(top + '/shared/' + name)[:3], (oct(stat.S_IFREG | want), who.uid, two.group))
            equal('mkdir by %s%s' % (who.name, what), facts(top + '/shared/d' + name)[:3], (oct(stat.S_IFDIR | 0o2755), who.uid, two.group))


def capabilities(env):
    two = Two(env)
    cap = {c: two.actor(c, two.two, two.two, [], [c]) for c in ('DAC_OVERRIDE', 'FOWNER', 'CHOWN', 'MKNOD', 'SYS_ADMIN')}
    bare_root = two.actor('root without capabilities', 0, 0, [], [])
    for top in two:
        os.mkdir(top + '/own')
        os.chown(top + '/own', two.one, two.one)
        os.chmod(top + '/own', 0o700)
        path = top + '/own/f'
        gives('a stranger', 'EACCES', two.stranger.call, create, path, 0o644, 0)
        gives('root without', 'EACCES', bare_root.call, create, path, 0o644, 0)
        gives('and listing', 'EACCES', bare_root.call, listing, top + '/own')
        for name in ('f', LONG):
            cap['DAC_OVERRIDE'].call(create, top + '/own/' + name, 0o644, 0)
            equal('created', facts(top + '/own/' + name)[:3], (oct(stat.S_IFREG | 0o644), two.two, two.two))
        cap['DAC_OVERRIDE'].call(mkdir, top + '/own/d', 0o755, 0)
        cap['DAC_OVERRIDE'].call(os.symlink, 't' * 3500, top + '/own/l')
        equal('all of them', cap['DAC_OVERRIDE'].call(listing, top + '/own'), sorted(['f', LONG, 'd', 'l']))
        os.chmod(top + '/own', 0o755)
        two.file(path, 0o644)
        gives('chmod of another\'s', 'EPERM', two.stranger.call, os.chmod, path, 0o600)
        cap['FOWNER'].call(os.chmod, path, 0o600)
        equal('chmod with CAP_FOWNER', mode_of(path), '0o600')
        gives('chown', 'EPERM', cap['FOWNER'].call, lchown, path, two.two, two.two)
        cap['CHOWN'].call(lchown, path, two.two, two.group)
        equal('chown with CAP_CHOWN', facts(path)[1:3], (two.two, two.group))
        two.file(path, 0o4755)
        gives('with it, a set-id file, whose mode would change', 'EPERM', cap['CHOWN'].call, lchown, path, two.two, two.two)
        two.file(path, 0o644)
        gives('a device', 'EPERM', two.stranger.call, mknod, top + '/null', stat.S_IFCHR | 0o666, os.makedev(1, 3), 0)
        cap['MKNOD'].call(mknod, top + '/null', stat.S_IFCHR | 0o666, os.makedev(1, 3), 0)
        equal('a device with CAP_MKNOD', (os.lstat(top + '/null').st_rdev, os.lstat(top + '/null').st_uid), (os.makedev(1, 3), two.two))
        os.setxattr(path, 'trusted.secret', b'1')
        os.setxattr(path, 'user.public', b'2')
        os.chmod(path, 0o644)
        seen = lambda who: [n for n in who.call(attributes, path) if not n.startswith('security.selinux')]
        equal('what a stranger sees', seen(two.stranger), ['user.public'])
        equal('root without capabilities', seen(bare_root), ['user.public'])
        equal('CAP_SYS_ADMIN', seen(cap['SYS_ADMIN']), ['trusted.secret', 'user.public'])
        equal('root', seen(two.root), ['trusted.secret', 'user.public'])
        gives('trusted.* by name', 'ENODATA', two.stranger.call, os.getxattr, path, 'trusted.secret')


def acls(env):
    two = Two(env)
    for top in two:
        os.mkdir(top + '/d')
        os.chown(top + '/d', two.one, two.one)
        default = acl(7, 5, 0, [(two.two, 7)], [(two.group, 6)], 7)
        two.member.call(os.setxattr, top + '/d', 'system.posix_acl_default', default)
        two.member.call(os.setxattr, top + '/d', 'system.posix_acl_access', acl(7, 5, 5, [(two.two, 7)]))
        # The umask is overridden, the group bits are the mask's.
        two.stranger.call(create, top + '/d/f', 0o666, 0o077)
        equal('a file under a default ACL', facts(top + '/d/f')[:3], (oct(stat.S_IFREG | 0o660), two.two, two.two))
        equal('its ACL', os.getxattr(top + '/d/f', 'system.posix_acl_access'), acl(6, 5, 0, [(two.two, 7)], [(two.group, 6)], 6))
        two.stranger.call(mkdir, top + '/d/sub', 0o777, 0o077)
        equal('a directory', mode_of(top + '/d/sub'), '0o770')
        equal('inherits it', os.getxattr(top + '/d/sub', 'system.posix_acl_default'), default)
        two.stranger.call(os.mkfifo, top + '/d/sub/p', 0o666)
        equal('a fifo', mode_of(top + '/d/sub/p'), '0o660')
        two.stranger.call(create, top + '/d/' + LONG, 0o600, 0)
        equal('less was asked for', mode_of(top + '/d/' + LONG), '0o600')
        # chmod changes the mask; the named user is held to it.
        two.file(top + '/g', 0o600, gid=two.one)
        gives('before the ACL', 'EACCES', two.stranger.call, write, top + '/g', 0, b'x')
        two.member.call(os.setxattr, top + '/g', 'system.posix_acl_access', acl(6, 0, 0, [(two.two, 6)], [], 6))
        equal('mode with an ACL', mode_of(top + '/g'), '0o660')
        two.stranger.call(write, top + '/g', 0, b'x')
        two.member.call(os.chmod, top + '/g', 0o640)
        gives('the mask', 'EACCES', two.stranger.call, write, top + '/g', 0, b'x')
        equal('in the ACL', os.getxattr(top + '/g', 'system.posix_acl_access'), acl(6, 0, 0, [(two.two, 6)], [], 4))
        gives('another\'s ACL', 'EPERM', two.stranger.call, os.setxattr, top + '/g', 'system.posix_acl_access', acl(6, 6, 6))
        two.member.call(os.removexattr, top + '/g', 'system.posix_acl_access')
        equal('taken away', mode_of(top + '/g'), '0o640')
        # Without a default ACL the umask counts.
        two.member.call(create, top + '/u', 0o666, 0o027)
        equal('umask', mode_of(top + '/u'), '0o640')


def owners_beneath(env):
    """The files of long names, of long targets and of directories' ids belong to whom they are for."""
    two = Two(env)
    m, lower = two.mount, two.mount.lower
    top = m / 'top'
    os.mkdir(top)
    os.chmod(top, 0o777)
    os.mkdir(m / 'group')
    os.chown(m / 'group', 0, two.group)
    os.chmod(m / 'group', 0o2777)

    def own(what, owner, group, *names):
        """Whose the lower object is, and the files beside it."""
        for n in names:
            below = m.lower_path(n)
            beside = [below]
            base = os.path.basename(below)
            if base.startswith('ecfs.long.'):
                beside.append(os.path.join(os.path.dirname(below), 'ecfs.name.' + base[len('ecfs.long.'):]))
            if os.path.isdir(below):
                beside.append(below + '/ecfs.dir')
            if os.path.islink(below) and os.readlink(below).startswith('ecfs.target.'):
                beside.append(os.path.join(lower, os.readlink(below)))
            for path in beside:
                st = os.lstat(path)
                equal('%s: owner of %s of %s' % (what, os.path.basename(path)[:20], n[:20]), (st.st_uid, st.st_gid), (owner, group))
        return len(beside)

    def make(d):
        two.member.call(create, d + '/' + LONG, 0o644, 0)
        two.member.call(mkdir, d + '/' + LONG2, 0o700, 0)
        two.member.call(os.symlink, 't' * 3500, d + '/link')
        two.member.call(os.symlink, 't' * 3500, d + '/' + 'N' * 230)
    names = [LONG, LONG2, 'link', 'N' * 230]
    make(top)
    make(m / 'group')
    equal('a long directory has three', own('new', two.one, two.one, *('top/' + n for n in names[:2])), 3)
    own('new', two.one, two.one, *('top/' + n for n in names))
    own('in a set-gid directory', two.one, two.group, *('group/' + n for n in names))
    for n in names:
        two.root.call(lchown, top + '/' + n, two.two, two.group)
    own('chown', two.two, two.group, *('top/' + n for n in names))
    # Other names: of its own, by another's link, over another's, and exchanged.
    two.file(top + '/short', 0o666, uid=two.two, gid=two.two)
    two.root.call(os.rename, top + '/short', top + '/' + 'R' * 230)
    own('renamed by root', two.two, two.two, 'top/' + 'R' * 230)
    two.root.call(os.link, top + '/' + 'R' * 230, m / 'group' + '/' + 'S' * 230)
    own('linked by root into a set-gid directory', two.two, two.two, 'group/' + 'S' * 230)
    two.file(top + '/mine', 0o666, uid=two.one, gid=two.one)
    two.root.call(os.rename, top + '/mine', top + '/' + 'R' * 230)
    own('renamed over another\'s', two.one, two.one, 'top/' + 'R' * 230)
    two.root.call(lchown, m / 'group' + '/' + 'S' * 230, two.one, two.one)
    two.root.call(lchown, top + '/' + LONG, two.two, two.two)
    common.true('renameat2', rename_exchange(top + '/' + 'R' * 230, top + '/' + LONG) == 0)
    own('exchanged', two.two, two.two, 'top/' + 'R' * 230)
    own('exchanged', two.one, two.one, 'top/' + LONG)
    # A directory that could not be removed gets its id back, its owner's.
    os.mkdir(top + '/full')
    os.chown(top + '/full', two.two, two.two)
    own('before', two.two, two.two, 'top/full')
    with open(os.path.join(m.lower_path('top/full'), 'foreign'), 'w'):
        pass
    gives('rmdir', 'ENOTEMPTY', os.rmdir, top + '/full')
    own('after a failed rmdir', two.two, two.two, 'top/full')
    # Another's file in such a place does not change hands.
    os.mkdir(top + '/trap')
    os.chown(top + '/trap', two.two, two.two)
    below = m.lower_path('top/trap')
    with open(two.base + '/victim', 'w') as f:
        f.write('of root')
    os.unlink(below + '/ecfs.dir')
    os.link(two.base + '/victim', below + '/ecfs.dir')
    os.chown(top + '/trap', two.one, two.one)
    equal('the owner of what was put in the id\'s place', os.stat(two.base + '/victim').st_uid, 0)
    os.unlink(below + '/ecfs.dir')
    m.remount()
    equal('the id comes back from its copy', os.listdir(top + '/trap'), [])
    own('mended', two.one, two.one, 'top/trap')


def own_namespace():
    """This process becomes root of a user namespace, in which it is root still, and has every capability over nothing else."""
    if libc.unshare(0x10000000) != 0:
        raise common.Skip('no user namespace here')
    for name, text in (('uid_map', '0 0 1'), ('setgroups', 'deny'), ('gid_map', '0 0 1')):
        try:
            with open('/proc/self/' + name, 'w') as f:
                f.write(text)
        except OSError as e:
            raise common.Skip('no user namespace here: %s' % e)


def namespace(env):
    """Capabilities in a user namespace are not the machine's, though the caller's number is 0."""
    two = Two(env)
    for top in two:
        def inside(f, *args):
            return common.in_child(f, *args, before=own_namespace)
        os.mkdir(top + '/d')
        os.chmod(top + '/d', 0o500)
        path = top + '/d/f'
        what = ' in ' + top
        inside(create, path, 0o644, 0)
        equal('what is made' + what, facts(path)[:3], (oct(stat.S_IFREG | 0o644), 0, 0))
        inside(mkdir, top + '/d/' + LONG, 0o755, 0)
        os.setxattr(path, 'trusted.secret', b'1')
        os.setxattr(path, 'user.public', b'2')
        equal('attributes' + what, [n for n in inside(attributes, path) if n != 'security.selinux'], ['user.public'])
        for f, *args in ((write, 0, b'x'), (os.truncate, 1), (fallocate, 9000)):
            two.file(path, 0o6777, uid=0, gid=0)
            inside(f, path, *args)
            equal('set-id bits after %s%s' % (f.__name__, what), mode_of(path), '0o777')
        two.file(path, 0o6755, uid=0, gid=0)
        inside(lchown, path, -1, -1)
        equal('after chown that changes nobody' + what, mode_of(path), '0o755')


def rename_exchange(one, two):
    return libc.renameat2(-100, os.fsencode(one), -100, os.fsencode(two), 2)


if __name__ == '__main__':
    if os.geteuid() != 0:
        print('SKIP: needs root, to be anybody else')
        raise SystemExit(77)
    common.main([set_id_bits, capabilities, acls, owners_beneath, namespace])
