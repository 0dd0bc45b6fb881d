#!/usr/bin/python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""A volume on NFS, mounted by two hosts at once: the cases of shared.py whose matter is what one host sees of another and how their writes
mix. The server and both hosts are one kernel of its own."""
import os

import shared
import uml
from common import need_program, run, true

STATE = '/var/lib/nfs'


def serve(env):
    """An exported directory on an ext4, once for all cases."""
    need_program('exportfs', 'rpc.nfsd', 'rpc.mountd', 'mount.nfs', 'ip')
    place = '/run/export'
    if os.path.ismount(place):
        return place
    run(['ip', 'link', 'set', 'lo', 'up'])
    env.mount_it('tmpfs', STATE, 'tmpfs', None)
    for d in ('rpc_pipefs', 'v4recovery', 'sm'):
        os.makedirs(os.path.join(STATE, d))
    for f in ('etab', 'rmtab'):
        open(os.path.join(STATE, f), 'w').close()
    run(['modprobe', '-d', '/run/modules', '-a', 'nfsd', 'nfs', 'nfsv4'])
    env.mount_it('nfsd', '/proc/fs/nfsd', 'nfsd', None)
    env.mount_it('sunrpc', os.path.join(STATE, 'rpc_pipefs'), 'rpc_pipefs', None)
    os.mkdir(place)
    image = '/run/export.img'
    with open(image, 'wb') as f:
        f.truncate(128 << 20)
    run(['mkfs.ext4', '-q', '-F', image])
    env.mount_image(image, place, 'ext4')
    run(['exportfs', '-i', '-o', 'rw,no_root_squash,insecure,no_subtree_check,fsid=0', '127.0.0.1:' + place])
    run(['rpc.mountd', '--no-nfs-version', '3'])
    # No time of grace, in which a server that was started waits for clients of before: there are none.
    for name in ('nfsv4leasetime', 'nfsv4gracetime'):
        with open('/proc/fs/nfsd/' + name, 'w') as f:
            f.write('10\n')
    run(['rpc.nfsd', '--no-udp', '--no-nfs-version', '3', '4'])
    with open('/proc/fs/nfsd/v4_end_grace', 'w') as f:
        f.write('Y\n')
    return place


def two(env, **kw):
    place = serve(env)
    number = len(os.listdir(place))
    os.mkdir(os.path.join(place, str(number)))
    one, other = env.directory(), env.directory()
    # The server tells clients apart by their names, in which the kernel's has the protocol's version: so one kernel is two hosts.
    for d, version in ((one, '4.2'), (other, '4.1')):
        env.mount_it('127.0.0.1:/%d' % number, d, 'nfs4', 'vers=%s,nosharecache,soft,timeo=600' % version)
    lower = env.lower(on=one, **kw)
    a = env.mount(lower=lower, options='shared')
    b = env.mount(lower=os.path.join(other, 'lower'), options='shared')
    return a, b


def who_may(env):
    """The lock on the directory does not reach the other host; those on the markers do."""
    a, b = two(env)
    refused = env.mount(lower=b.lower, ok=(shared.IN_USE,))
    true('exclusive beside shared: ' + refused.output, 'mounted already by pid' in refused.output)
    a.umount()
    refused = env.mount(lower=a.lower, ok=(shared.IN_USE,))
    true('exclusive beside one on the other host: ' + refused.output, 'mounted already by pid %d' % b.pid in refused.output)
    b.umount()
    alone = env.mount(lower=a.lower)
    for options in ('', 'shared'):
        refused = env.mount(lower=b.lower, options=options, ok=(shared.IN_USE,))
        true('beside an exclusive one on the other host: ' + refused.output, 'mounted already by pid %d' % alone.pid in refused.output)


CASES = [who_may, shared.visibility, shared.neighbours, shared.appending, shared.names_at_once, shared.stale_handles]

if __name__ == '__main__':
    shared.two = two
    shared.XATTRS = False  # NFS has them since 4.2
    uml.main([], CASES, memory='768M')
