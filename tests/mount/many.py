#!/usr/bin/python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""Much of everything: 100,000 files, memory a node, more open files than the daemon has descriptors, unlinked ones among them."""
import contextlib
import os
import resource

import common
from common import at_most, equal, need_root, run, true, wait_until

DIRS, FILES = 100, 1000
NODE_BYTES = 300
LONG = 'l' * 200


def make_tree(m, dirs=DIRS, files=FILES):
    """The files are empty: what is tested here is names and nodes. Two processes, for two cores."""
    def half(k):
        for d in range(k, dirs, 2):
            os.mkdir(m / 'd%03d' % d)
            fd = os.open(m / 'd%03d' % d, os.O_RDONLY)
            for f in range(files):
                os.mknod('file-%04d' % f, 0o644, dir_fd=fd)
            os.close(fd)
    from concurrent.futures import ThreadPoolExecutor
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda k: common.in_child(half, k), range(2)))


def hundred_thousand(env):
    need_root()  # for a fast lower directory, and to drop caches
    m = env.mount(on=env.filesystem('tmpfs', 2000), options='noxattr', nofile=256)
    make_tree(m)
    m.remount()
    equal('nodes of a fresh mount', m.status()['caches']['nodes'], 1)
    m.status()
    before = m.rss()
    out = run(['find', m.path, '-printf', '%y %s\n']).stdout.split('\n')
    equal('files found', out.count('f 0'), DIRS * FILES)
    nodes = wait_until('the nodes are known', lambda: m.status()['caches']['nodes'])
    after = m.rss()
    print('  %d nodes, %.0f bytes a node' % (nodes, (after - before) / nodes))
    true('nearly all are known to the daemon: %d' % nodes, nodes > 0.9 * DIRS * FILES)
    # The worker threads' own buffers come once, whatever the number of nodes.
    at_most('bytes a node', (after - before - (4 << 20)) / nodes, NODE_BYTES)
    at_most('a million such nodes, in MiB', (after - before - (4 << 20)) * (1e6 / nodes) / 2**20, 512)
    at_most('descriptors', m.status()['descriptors']['open'], 256)
    common.drop_caches(3)
    left = wait_until('forgotten nodes are let go', lambda: (lambda n: n if n < 500 else 0)(m.status()['caches']['nodes']), 120)
    common.drop_caches(2)
    wait_until('all but a few', lambda: m.status()['caches']['nodes'] <= 3, 120)
    print('  after forgetting: %d, then %d nodes, %.1f MiB more than at first'
          % (left, m.status()['caches']['nodes'], (m.rss() - before) / 2**20))
    at_most('what is kept after forgetting, of what was taken', m.rss() - before, max((after - before) * 0.5, 8 << 20))
    # And again: what was given back is used again.
    run(['find', m.path, '-ls'], stdout=open(os.devnull, 'w'))
    at_most('memory the second time', m.rss(), after + (4 << 20))
    # Removing all of it: by rm, which deletes while it lists.
    run(['rm', '-rf', *(m / n for n in os.listdir(m.path))])
    equal('nothing in the mount', os.listdir(m.path), [])
    equal('nothing in lower', sorted(os.listdir(m.lower)), ['ecfs.dir', 'ecfs.session', 'ecfs.volume'])
    common.drop_caches(2)
    wait_until('nodes of removed files are let go', lambda: m.status()['caches']['nodes'] <= 3, 120)
    equal('pinned', m.status()['caches']['pinned'], 0)


def one_big_directory(env):
    m = env.mount(on=env.filesystem('tmpfs', 1000) if os.geteuid() == 0 else None, options='noxattr')
    n = 20000
    fd = os.open(m.path, os.O_RDONLY)
    for f in range(n):
        os.mknod('file-%05d' % f, 0o644, dir_fd=fd)
    os.close(fd)
    equal('listed', len(os.listdir(m.path)), n)
    m.remount()
    equal('listed after a remount', sorted(os.listdir(m.path)), ['file-%05d' % f for f in range(n)])
    run(['find', m.path, '-mindepth', '1', '-name', '*[13579]', '-delete'])
    equal('half is left', len(os.listdir(m.path)), n // 2)
    run(['find', m.path, '-mindepth', '1', '-delete'])
    equal('nothing is left', os.listdir(m.path), [])


def open_files(env):
    """1,000 files open at once in a daemon that may have 256 descriptors, some of them unlinked, 200 directories among them."""
    m = env.mount(nofile=256)
    equal('the limit', m.status()['descriptors']['limit'], 256)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    true('this test itself may open enough: %d' % hard, hard >= 1500)
    n = 1000
    fds = []
    for i in range(n):
        if i % 5 == 0:
            os.mkdir(m / 'd%d' % i)
        fd = os.open(m / ('d%d/%s' % (i - i % 5, ('f%d' % i) + (LONG if i % 9 == 0 else ''))), os.O_RDWR | os.O_CREAT, 0o444 if i % 4 == 0 else 0o644)
        os.write(fd, b'%d' % i * 2000)
        fds.append(fd)

    def all_work(what):
        for i, fd in enumerate(fds):
            got = os.pread(fd, 100, 0)
            equal('%s: start of %d' % (what, i), got, (b'%d' % i * 2000)[:100])
        for i, fd in enumerate(fds):
            os.pwrite(fd, what.encode(), 5000 * (i % 3))
            if i % 10 == 0:
                os.fsync(fd)
            os.pwrite(fd, (b'%d' % i * 2000)[:100], 0)
        at_most('%s: descriptors' % what, m.status()['descriptors']['open'], 256)
    all_work('first')
    if os.geteuid() == 0:
        common.drop_caches()
    all_work('cold')
    for i, fd in enumerate(fds):
        equal('size of %d' % i, os.fstat(fd).st_size, max(len(b'%d' % i) * 2000, 5000 * (i % 3) + 5))
    # Directories that were evicted, renamed meanwhile.
    for i in range(0, n, 5):
        os.rename(m / 'd%d' % i, m / ('e%d' % i) + (LONG if i % 2 else ''))
    all_work('moved')
    # Unlinked ones keep a descriptor each in the daemon: as many as it has room for.
    for i in range(0, 60):
        os.unlink(os.readlink('/proc/self/fd/%d' % fds[i]))
    all_work('unlinked')
    equal('pinned', m.status()['caches']['pinned'], 60)
    for fd in fds:
        os.close(fd)
    wait_until('unlinked files are let go', lambda: m.status()['caches']['pinned'] == 0)
    m.remount()
    count = sum(len(files) for _, _, files in os.walk(m.path))
    equal('files after a remount', count, n - 60)
    run(['rm', '-rf', *(m / d for d in os.listdir(m.path))])


def many_unlinked(env):
    """More unlinked open files than the daemon has descriptors: refused or working, but never wrong, and the daemon lives."""
    m = env.mount(nofile=256)
    fds, refused = [], 0
    for i in range(400):
        fd = os.open(m / 'f%d' % i, os.O_RDWR | os.O_CREAT, 0o644)
        os.write(fd, b'%d' % i * 1000)
        fds.append(fd)
    for i in range(400):
        got = common.outcome(os.unlink, m / 'f%d' % i)
        refused += got != 'OK'
        true('unlink gives OK or says that there are no descriptors: %s' % got, got in ('OK', 'EMFILE', 'ENFILE'))
    print('  %d of 400 unlinked' % (400 - refused))
    true('a good part is unlinked', refused < 300)
    for i, fd in enumerate(fds):
        equal('content of %d' % i, os.pread(fd, 100, 0), (b'%d' % i * 1000)[:100])
        os.close(fd)
    wait_until('let go', lambda: m.status()['caches']['pinned'] == 0)
    for name in os.listdir(m.path):
        os.unlink(m / name)
    with open(m / 'after', 'w') as f:
        f.write('x')


def deep(env):
    """Deep directories under few descriptors, and a path that is longer than PATH_MAX in lower names."""
    m = env.mount(nofile=64)
    os.chdir(m.path)
    depth = 120
    for i in range(depth):
        name = 'n%03d' % i + 'x' * (200 if i % 3 == 0 else 30)
        os.mkdir(name)
        os.chdir(name)
    with open('bottom', 'w') as f:
        f.write('here')
    os.mkdir('other')
    os.rename('bottom', 'other/bottom')
    os.chdir('/')
    if os.geteuid() == 0:
        common.drop_caches()
    found = run(['find', m.path, '-name', 'bottom']).stdout
    true('found at the bottom', found.strip().endswith('other/bottom'))
    m.remount()
    os.chdir(m.path)
    for i in range(depth):
        os.chdir('n%03d' % i + 'x' * (200 if i % 3 == 0 else 30))
    with open('other/bottom') as f:
        equal('after a remount', f.read(), 'here')
    os.chdir('/')
    at_most('descriptors', m.status()['descriptors']['open'], 64)
    run(['rm', '-rf', *(m / d for d in os.listdir(m.path))])
    equal('all gone', os.listdir(m.path), [])


if __name__ == '__main__':
    common.main([hundred_thousand, one_big_directory, open_files, many_unlinked, deep])
