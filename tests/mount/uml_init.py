#!/usr/bin/python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""The first process of the kernel that uml.run starts: makes its machine ready, runs the script, switches off. In one process as
far as it can: starting a program is what takes time there."""
import ctypes
import json
import os
import subprocess
import sys
import termios

libc = ctypes.CDLL(None, use_errno=True)
MS_RDONLY, MS_BIND, RB_POWER_OFF = 1, 4096, 0x4321fedc


def mount(kind, target, source=None, data=None, flags=0):
    if libc.mount((source or kind).encode(), target.encode(), kind.encode(), flags, data.encode() if data else None) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), '%s on %s' % (kind, target))


def write(path, text):
    with open(path, 'w') as f:
        f.write(text)


def prepare(settings):
    mount('proc', '/proc')
    mount('sysfs', '/sys')
    if not os.path.ismount('/dev'):
        mount('devtmpfs', '/dev')
    for d in ('/dev/shm', '/dev/pts'):
        os.makedirs(d, exist_ok=True)
    mount('devpts', '/dev/pts', data='ptmxmode=666')
    for d, mode in (('/dev/shm', '1777'), ('/tmp', '1777'), ('/run', '755'), ('/mnt', '755')):
        mount('tmpfs', d, data='mode=' + mode)
    for source, target in (('fd', 'fd'), ('fd/0', 'stdin'), ('fd/1', 'stdout'), ('fd/2', 'stderr')):
        if not os.path.lexists('/dev/' + target):
            os.symlink('/proc/self/' + source, '/dev/' + target)
    for d in ('/mnt/share', '/mnt/place', '/run/modules/lib/modules', '/run/etc', '/run/work'):
        os.makedirs(d)
    mount('hostfs', '/mnt/place', data=settings['place'])
    # What the fresh ones have hidden.
    for d in settings['visible']:
        os.makedirs(d, exist_ok=True)
        mount('hostfs', d, data=d, flags=MS_RDONLY)
    if settings['share']:
        mount('hostfs', '/mnt/share', data=settings['share'])
    mount('hostfs', '/run/modules/lib/modules', data=settings['modules'], flags=MS_RDONLY)
    write('/run/modprobe', '#!/bin/sh\nexec /sbin/modprobe -d /run/modules "$@"\n')
    os.chmod('/run/modprobe', 0o755)
    write('/proc/sys/kernel/modprobe', '/run/modprobe')
    subprocess.run(['/sbin/modprobe', '-d', '/run/modules', '-a', 'fuse', 'loop', 'overlay'], check=True)
    if not os.path.exists('/dev/fuse'):
        os.mknod('/dev/fuse', 0o20666, os.makedev(10, 229))
    os.chmod('/dev/fuse', 0o666)
    # Written to by useradd.
    mount('overlay', '/etc', data='lowerdir=/etc,upperdir=/run/etc,workdir=/run/work')


def main():
    with open(sys.argv[0] + '.json') as f:
        settings = json.load(f)
    os.environ.clear()
    os.environ.update(settings['environment'])
    status = 125
    try:
        prepare(settings)
        with open('/dev/tty1', 'wb') as out:
            plain = termios.tcgetattr(out)
            plain[1] &= ~termios.OPOST  # a line ends as it was written
            termios.tcsetattr(out, termios.TCSANOW, plain)
            status = subprocess.run(settings['command'], stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True, cwd='/tmp').returncode
    finally:
        write('/mnt/place/status', '%d\n' % (status if status >= 0 else 128 - status))
        os.sync()
        libc.reboot(RB_POWER_OFF)


main()
