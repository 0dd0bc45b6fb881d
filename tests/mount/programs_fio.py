#!/usr/bin/python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""fio with verification: random mixed reads and writes of mixed sizes, by system calls, mappings, and asynchronously with O_DIRECT."""
import os

import common
from common import need_program, run, true


def verified(env, name, *args, size='48m', bs='512-256k'):
    need_program('fio')
    m = env.mount()
    base = ['fio', '--aux-path=' + env.top, '--directory=' + m.path, '--size=' + size, '--verify=crc32c', '--verify_fatal=1',
            '--verify_dump=0', '--randrepeat=0', '--allrandrepeat=0', '--group_reporting', '--bsrange=' + bs,
            '--randseed=%d' % (int(os.environ.get('ECFS_SEED', '0')) or 4711), *args]
    out = run([*base, '--name=' + name, '--rw=randrw', '--rwmixread=30', '--do_verify=1']).stdout
    true('fio did something', 'WRITE:' in out)
    # All that was written is verified again from what the lower directory holds.
    if os.geteuid() == 0:
        common.drop_caches()
    run([*base, '--name=seq', '--rw=write', '--do_verify=1'])
    m.remount()
    out = run([*base, '--name=seq', '--rw=read', '--do_verify=1']).stdout
    true('read back: ' + out[-300:], 'READ:' in out)
    m.umount()


def psync(env):
    verified(env, 'psync', '--ioengine=psync', '--numjobs=2')


def psync_syncing(env):
    verified(env, 'synced', '--ioengine=psync', '--fsync=64', size='16m', bs='512-64k')


def mapped(env):
    verified(env, 'mmap', '--ioengine=mmap', '--numjobs=2', bs='4k-64k')


def libaio_direct(env):
    verified(env, 'libaio', '--ioengine=libaio', '--direct=1', '--iodepth=16', bs='4k-256k')


def libaio_direct_unaligned(env):
    verified(env, 'libaio', '--ioengine=libaio', '--direct=1', '--iodepth=8', size='16m', bs='512-20k')


def both_at_once(env):
    """Two jobs on one file's halves, one direct and one cached."""
    need_program('fio')
    m = env.mount()
    run(['fio', '--aux-path=' + env.top, '--filename=' + m / 'shared', '--size=16m', '--verify=crc32c', '--verify_fatal=1', '--bs=4k', '--randrepeat=0',
         '--name=cached', '--rw=randwrite', '--ioengine=psync', '--offset=0',
         '--name=direct', '--rw=randwrite', '--ioengine=libaio', '--iodepth=8', '--direct=1', '--offset=16m'])


if __name__ == '__main__':
    common.main([psync, psync_syncing, mapped, libaio_direct, libaio_direct_unaligned, both_at_once])
