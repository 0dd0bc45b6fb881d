#!/usr/bin/python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""SELinux: the context options of a mount, and labels of each file, in a kernel that has it (user-mode Linux), with policies that know a
handful of types and forbid nothing."""
import os

import common
import uml
from common import ECFS, Failed, Skip, equal, gives, need_program, run, true

# The kernel's initial labels, in its order, which is what gives them their numbers.
SIDS = '''kernel security unlabeled fs file file_labels init any_socket port netif netmsg node igmp_packet icmp_socket tcp_socket sysctl_modprobe
sysctl sysctl_fs sysctl_kernel sysctl_net sysctl_net_unix sysctl_vm sysctl_dev kmod policy scmp_packet devnull'''.split()
TYPES = ['base_t', 'fuse_t', 'home_t', 'disk_t']


def label(kind, level='s0'):
    return 'user_u:object_r:%s:%s' % (kind, level)


def policy(fuse):
    """fuse: how the labels of a FUSE filesystem come about."""
    classes = {'process': 'transition dyntransition', 'file': 'read', 'dir': 'read', 'filesystem': 'mount',
               **{c: 'read' for c in ('lnk_file', 'chr_file', 'blk_file', 'sock_file', 'fifo_file')}}
    return '\n'.join([
        *('class %s' % c for c in classes), *('sid ' + s for s in SIDS), *('class %s { %s }' % c for c in classes.items()),
        'sensitivity s0;', 'dominance { s0 }', *('category c%d;' % i for i in range(16)), 'level s0:c0.c15;',
        'mlsconstrain dir { read } ( h1 dom h2 or h1 domby h2 or h1 incomp h2 );',
        *('type %s;' % t for t in TYPES), 'role base_r;', 'role base_r types base_t;', 'allow base_t base_t:process { transition };',
        'user user_u roles { base_r } level s0 range s0 - s0:c0.c15;',
        *('sid %s user_u:base_r:base_t:s0' % s for s in SIDS),
        'fs_use_xattr ext4 %s;' % label('disk_t'),
        fuse, 'genfscon proc / %s' % label('base_t'), ''])


def load_policy(env, fuse):
    need_program('checkpolicy')
    if not os.path.exists('/sys/fs/selinux/load'):
        run(['mount', '-t', 'selinuxfs', 'selinuxfs', '/sys/fs/selinux'])
    source, binary = env.path('policy.conf'), env.path('policy')
    with open(source, 'w') as f:
        f.write(policy(fuse))
    # -U allow: what the policy does not speak of is let through.
    run(['checkpolicy', '-M', '-U', 'allow', '-c', '31', '-o', binary, source])
    with open(binary, 'rb') as f, open('/sys/fs/selinux/load', 'wb', buffering=0) as out:
        try:
            out.write(f.read())
        except OSError as e:
            raise Failed('the kernel takes the policy: %s; it says:\n%s' % (e, run(['dmesg'], ok=None).stdout[-1500:]))


def label_of(path):
    return os.getxattr(path, 'security.selinux', follow_symlinks=False).rstrip(b'\0').decode()


def contexts(env):
    load_policy(env, 'genfscon fuse / ' + label('fuse_t'))
    m = env.mount()
    os.mkdir(m / 'd')
    equal('the policy\'s label of any fuse', (label_of(m.path), label_of(m / 'd')), (label('fuse_t'),) * 2)
    home = label('home_t', 's0:c1,c3')
    m.remount(options='context="%s"' % home)
    equal('context=, with a comma', (label_of(m.path), label_of(m / 'd')), (home,) * 2)
    os.mkdir(m / 'new')
    equal('of what is new', label_of(m / 'new'), home)
    gives('a label of its own then', 'EOPNOTSUPP', os.setxattr, m / 'd', 'security.selinux', label('base_t').encode())
    true('it is in the list of mounts', home in open('/proc/mounts').read())
    # Here the comma after a backslash.
    m.remount(options='rootcontext=%s,fscontext=%s' % (home.replace(',', '\\,'), label('disk_t')))
    equal('rootcontext= is the root\'s alone, fscontext= the others\'', (label_of(m.path), label_of(m / 'd')), (home, label('disk_t')))
    m.umount()
    p = run([ECFS, 'mount', '--passfile', env.passfile, '-o', 'context=user_u:object_r:no_such_t:s0', m.lower, m.path], ok=None)
    true('an unknown label is refused: ' + p.stdout, p.returncode != 0 and not common.mounted(m.path))


def make_each(prefix):
    os.mkdir(prefix + 'dir')
    os.mkfifo(prefix + 'fifo')
    os.symlink('t', prefix + 'link')
    os.symlink('t' * 4000, prefix + 'long link')
    for name in ('file', 'n' * 240):
        with open(prefix + name, 'w') as f:
            f.write('x')


def kept(env):
    """A policy by which FUSE keeps a label for each file: as on ext4, what is made gets its directory's, and keeps it."""
    load_policy(env, 'fs_use_xattr fuse %s;' % label('fuse_t'))
    base = env.filesystem('ext4', 32, mkfs=['-b', '4096'])
    m = env.mount(on=base)
    true('the kernel keeps them: ', 'seclabel' in next(line for line in open('/proc/mounts') if m.path in line))
    made = {}
    for where in ('plain', 'ecfs'):
        d = os.path.join(base if where == 'plain' else m.path, 'd')
        os.mkdir(d)
        os.setxattr(d, 'security.selinux', label('home_t').encode())
        make_each(d + '/')
        os.mkdir(d + '/other')
        os.setxattr(d + '/other', 'security.selinux', label('base_t', 's0:c1').encode())
        os.rename(d + '/file', d + '/other/moved')
        with open(d + '/other/new', 'w') as f:
            f.write('x')
        # What the maker wants it to be, as `mkdir -Z` does it, which the lower filesystem cannot know by itself.
        wanted = label('disk_t', 's0:c2,c4')
        with open('/proc/thread-self/attr/fscreate', 'w') as f:
            f.write(wanted)
        make_each(d + '/wanted ')
        with open('/proc/thread-self/attr/fscreate', 'w') as f:
            f.write('\n')
        made[where] = labels_below(d)
    true('there are these: %s' % made['plain'], set(made['plain'].values()) == {label('home_t'), label('base_t', 's0:c1'), label('base_t'), wanted})
    equal('as on ext4', made['ecfs'], made['plain'])
    m.remount()
    equal('after a remount', labels_below(m / 'd'), made['plain'])


def labels_below(top):
    return {os.path.relpath(os.path.join(place, name), top): label_of(os.path.join(place, name))
            for place, dirs, files in os.walk(top) for name in dirs + files}


def passed_over(env):
    """Where SELinux is off, as mount(8) does it."""
    with open('/proc/filesystems') as f:
        if 'selinuxfs' in f.read():
            raise Skip('SELinux is on here')
    m = env.mount(options='context="user_u:object_r:home_t:s0:c1,c3"')
    true('mounted, and the log says so: ' + m.log_text(), 'SELinux is off' in m.log_text())


if __name__ == '__main__':
    uml.main([passed_over], [contexts, kept], boot=['security=selinux', 'enforcing=0'])
