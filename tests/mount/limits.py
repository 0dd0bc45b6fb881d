#!/usr/bin/python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""How far things go: sizes, paths, names, links, xattrs, entries of a directory, depth, and few descriptors. The usual run does it in small;
ECFS_LIMITS=all to the numbers of docs/FIELD-FAULTS.md."""
import contextlib
import errno
import os
import resource

import common
import semantics_names
from common import Failed, at_most, equal, get, gives, outcome, put, run, true, wait_until

ALL = os.environ.get('ECFS_LIMITS') == 'all'


def of(usual, full):
    return full if ALL else usual


def fast(env, mb=200):
    return env.filesystem('tmpfs', mb) if os.geteuid() == 0 else None


def most_that_works(works, low, high):
    """The largest number that works, between one that does and one that does not."""
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if works(middle) else (low, middle)
    return low


def lower_size(plain):
    """docs/FORMAT.md, Sizes."""
    if plain <= common.FIRST:
        return common.PAGE + plain if plain else 0
    blocks = 2 + (plain - common.FIRST - 1) // common.PAYLOAD
    return common.PAGE * blocks + plain - common.FIRST - (blocks - 2) * common.PAYLOAD


def sizes_on(env, kind, mb):
    lower = env.filesystem(kind, mb)
    with open(lower + '/probe', 'wb') as f:
        largest = most_that_works(lambda n: outcome(os.ftruncate, f.fileno(), n) == 'OK', 0, 1 << 63)
    os.unlink(lower + '/probe')
    m = env.mount(on=lower)
    # The plaintext of a lower file of that size, and no byte more.
    most = most_that_works(lambda n: lower_size(n) <= largest, 0, 1 << 63)
    print('  %s: %d bytes in a lower file, %d in ours' % (kind, largest, most))
    fd = os.open(m / 'f', os.O_RDWR | os.O_CREAT, 0o644)
    os.write(fd, b'start')
    gives(kind + ': one byte more', 'EFBIG', os.ftruncate, fd, most + 1)
    equal(kind + ': nothing changed', (os.fstat(fd).st_size, os.pread(fd, 10, 0)), (5, b'start'))
    os.ftruncate(fd, most)
    os.pwrite(fd, b'end', most - 3)
    os.fsync(fd)

    def beyond():
        os.pwrite(fd, b'x', most)
        os.fsync(fd)
    gives(kind + ': a write behind it', 'EFBIG', beyond)
    os.close(fd)
    m.remount()
    with open(m / 'f', 'rb') as f:
        equal(kind + ': size', os.fstat(f.fileno()).st_size, most)
        equal(kind + ': start, middle, end', (os.pread(f.fileno(), 6, 0), os.pread(f.fileno(), 2, most // 2), os.pread(f.fileno(), 10, most - 4)),
              (b'start\0', b'\0\0', b'\0end'))
    os.truncate(m / 'f', 3)
    equal(kind + ': cut', get(m / 'f'), b'sta')


def sizes_xfs(env):
    sizes_on(env, 'xfs', 320)


def sizes_ext4(env):
    sizes_on(env, 'ext4', 64)


def sizes_btrfs(env):
    sizes_on(env, 'btrfs', 128)


def subdirectories(env):
    n = of(1000, 64000)
    m = env.mount(on=fast(env, 1500))
    os.mkdir(m / 'd')
    fd = os.open(m / 'd', os.O_RDONLY)
    for i in range(n):
        os.mkdir('%05d' % i, dir_fd=fd)
    os.close(fd)
    for when in range(2):
        equal('links of the directory', os.stat(m / 'd').st_nlink, n + 2)
        equal('names', sorted(os.listdir(m / 'd')), ['%05d' % i for i in range(n)])
        m.remount()
    run(['rm', '-rf', m / 'd'])
    equal('gone', os.listdir(m.path), [])


def entries(env):
    n = of(5000, 200000)
    m = env.mount(on=fast(env, 1500))
    os.mkdir(m / 'd')
    fd = os.open(m / 'd', os.O_RDONLY)
    for i in range(n):
        os.mknod('%06d' % i, 0o644, dir_fd=fd)
    os.close(fd)
    m.remount()
    for command in (['ls', '-f', m / 'd'], ['ls', '-l', m / 'd'], ['find', m / 'd', '-type', 'f', '-size', '0']):
        equal(' '.join(command[:2]), sum(line[-6:].isdigit() for line in run(command).stdout.split('\n')), n)
    run(['rm', '-rf', m / 'd'])
    equal('gone', (os.listdir(m.path), sorted(os.listdir(m.lower))), ([], ['ecfs.dir', 'ecfs.session', 'ecfs.volume']))


def long_paths(env):
    """A path of 4,095 bytes is the longest there is; the lower one is longer, which is nobody's business."""
    m = env.mount(on=fast(env))
    prefix = m.path
    while 4095 - len(prefix) - 1 > 255:
        prefix += '/' + 'n' * 200
        os.mkdir(prefix)
    path = prefix + '/' + 'f' * (4095 - len(prefix) - 1)
    equal('length', len(path), 4095)
    put(path, b'far')
    gives('one byte more', 'ENAMETOOLONG', put, path + 'f')
    os.symlink('t' * 4095, path[:-1])
    m.remount()
    equal('content', (get(path), len(os.readlink(path[:-1]))), (b'far', 4095))
    equal('found', run(['find', m.path, '-name', 'fff*', '-type', 'f', '-printf', '%s']).stdout, '3')
    os.rename(path, m / 'near')
    equal('moved', get(m / 'near'), b'far')
    os.unlink(path[:-1])
    # In the lower directory, too deep for its absolute path to be said.
    run(['rm', '-rf', *(m / n for n in os.listdir(m.path))])
    equal('gone', sorted(os.listdir(m.lower)), ['ecfs.dir', 'ecfs.session', 'ecfs.volume'])


def names_of_every_script(env):
    m = env.mount(on=fast(env))
    top = os.fsencode(m.path)
    control = bytes(b for b in range(1, 256) if b != 0x2f)  # every byte that a name may hold
    names = {b'a' * 255, 'é'.encode() * 127 + b'e', '語'.encode() * 85, '😀'.encode() * 63 + b'abc', b'\xff' * 255, b'\xc3' * 255, b'\n' * 255, b'\r\n\t' * 85,
             b'\x01' * 255, b'\x7f' * 255, b' ' * 255, b'.' * 255, b'...', b' ', b'\n', b'-' * 255, b'~' * 255, b'\\' * 255, b"'\"`$(;)" * 31, control, control[::-1],
             'ﷺ'.encode() * 85, 'e\u0301'.encode() * 85, 'É'.encode(), 'E\u0301'.encode(), b'A', b'a'}
    for kind, make in (('file', lambda p: put(p, os.path.basename(p))), ('dir', os.mkdir), ('link', lambda p: os.symlink(os.path.basename(p), p)), ('fifo', os.mkfifo)):
        here = top + b'/' + kind.encode()
        os.mkdir(here)
        for n in names:
            make(here + b'/' + n)
    m.remount()
    for kind in (b'file', b'dir', b'link', b'fifo'):
        equal('names', set(os.listdir(top + b'/' + kind)), names)
    for n in names:
        equal('content', (get(top + b'/file/' + n), os.readlink(top + b'/link/' + n)), (n, n))
        os.setxattr(top + b'/file/' + n, b'user.' + n[:250], n)
        equal('xattr', os.listxattr(top + b'/file/' + n), [os.fsdecode(b'user.' + n[:250])])
        equal('its value', os.getxattr(top + b'/file/' + n, b'user.' + n[:250]), n)
    run(['find', m.path, '-mindepth', '1', '-delete'])
    equal('gone', sorted(os.listdir(m.lower)), ['ecfs.dir', 'ecfs.session', 'ecfs.volume'])


def hard_links(env):
    n = of(3000, 65000)
    m = env.mount(on=fast(env))
    put(m / 'first', b'one file')
    os.mkdir(m / 'd')
    fd = os.open(m / 'd', os.O_RDONLY)
    for i in range(n):
        os.link(m / 'first', '%05d' % i, dst_dir_fd=fd)
    equal('links', os.stat(m / 'first').st_nlink, n + 1)
    os.unlink(m / 'first')
    for i in range(0, n, 7):
        os.rename('%05d' % i, 'r%05d' % i, src_dir_fd=fd, dst_dir_fd=fd)
    equal('links by another', os.stat(m / 'd/00001').st_nlink, n)
    with open(m / 'd/00001', 'ab') as f:
        f.write(b' written')
    # All names at once are known to the daemon here: removing them asks it for each.
    for i in range(0, n, 2):
        os.unlink(('r' if i % 7 == 0 else '') + '%05d' % i, dir_fd=fd)
    equal('half of them', (os.stat(m / 'd/00001').st_nlink, get(m / ('d/r%05d' % 7))), (n // 2, b'one file written'))
    os.close(fd)
    m.remount()
    equal('after a remount', (len(os.listdir(m / 'd')), os.stat(m / 'd/00001').st_nlink), (n // 2, n // 2))
    run(['rm', '-rf', m / 'd'])


def many_xattrs(env):
    """1,000 xattrs on one file, on XFS, which has room for them."""
    m = env.mount(on=env.filesystem('xfs', 320))
    put(m / 'f', b'f')
    names = ['user.%04d' % i for i in range(1000)]
    for name in names:
        os.setxattr(m / 'f', name, name.encode() * 10)
    for when in range(2):
        equal('listed', sorted(os.listxattr(m / 'f')), names)
        equal('values', [os.getxattr(m / 'f', n) for n in names[::7]], [n.encode() * 10 for n in names[::7]])
        m.remount()
    for name in names[::2]:
        os.removexattr(m / 'f', name)
    equal('half are left', sorted(os.listxattr(m / 'f')), names[1::2])
    equal('and the content', get(m / 'f'), b'f')


def nested(env):
    """Deeper than the daemon has descriptors. rm holds none of the directories that it has left, and the kernel forgets them by and by."""
    m = env.mount(on=fast(env), nofile=64)
    os.chdir(m.path)
    depth = of(300, 1100)
    for i in range(depth):
        os.mkdir('d')
        os.chdir('d')
    put('bottom', b'bottom')
    os.chdir('/')
    m.remount()
    equal('found', run(['find', m.path, '-type', 'f', '-printf', '%d']).stdout, str(depth + 1))
    run(['rm', '-rf', m / 'd'])
    equal('gone', os.listdir(m.path), [])
    at_most('descriptors', m.status()['descriptors']['open'], 64)


def held_directories(env):
    """Removed directories that are still open cost the daemon no descriptors, and answer."""
    m = env.mount(nofile=64)
    fds = []
    for i in range(100):
        os.mkdir(m / ('d%d' % i), 0o750)
        fds.append(os.open(m / ('d%d' % i), os.O_RDONLY | os.O_DIRECTORY))
    for i in range(100):
        os.rmdir(m / ('d%d' % i))
    if os.geteuid() == 0:
        common.drop_caches(2)
    for fd in fds:
        st = os.fstat(fd)
        equal('an open directory that was removed', (st.st_nlink, oct(st.st_mode), os.listdir(fd)), (0, '0o40750', []))
        gives('making something in it', 'ENOENT', os.mkdir, 'x', dir_fd=fd)
        os.fsync(fd)
    put(m / 'f', b'works')
    os.unlink(m / 'f')
    for fd in fds:
        os.close(fd)
    wait_until('let go', lambda: m.status()['caches'] == {'directories': 0, 'files': 0, 'nodes': 1, 'pinned': 0})


def few_descriptors(env):
    """Eight processes make and remove under 64 descriptors, while many files are open: nobody is refused for what the kernel forgets in a moment."""
    m = env.mount(on=fast(env), nofile=64)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    os.mkdir(m / 'open')
    fds = []
    for i in range(of(300, 1000)):
        fds.append(os.open(m / ('open/%d' % i), os.O_RDWR | os.O_CREAT, 0o644))
        os.write(fds[-1], b'%d' % i)

    def work(k):
        odd = []
        for i in range(of(60, 500)):
            p = m / ('%d-%d' % (k, i))
            for f, args in ((os.mkdir, (p,)), (put, (p + '/f', b'x')), (os.link, (p + '/f', p + '/g')), (os.rename, (p + '/f', p + '/h')), (os.unlink, (p + '/g',)),
                            (os.unlink, (p + '/h',)), (os.rmdir, (p,))):
                got = outcome(f, *args)
                if got != 'OK':
                    odd.append((f.__name__, args, got))
        return odd
    import concurrent.futures
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        equal('what went wrong', sum(pool.map(lambda k: common.in_child(work, k), range(8)), []), [])
    for i, fd in enumerate(fds):
        equal('an open file', os.pread(fd, 10, 0), b'%d' % i)
        os.close(fd)
    equal('left', os.listdir(m.path), ['open'])
    run(['rm', '-rf', m / 'open'])
    at_most('descriptors', m.status()['descriptors']['open'], 64)


def storm(env):
    """As in semantics_names, in a daemon with 256 descriptors."""
    semantics_names.storm_in(env.mount(on=fast(env), nofile=256))


if __name__ == '__main__':
    common.main([sizes_xfs, sizes_ext4, sizes_btrfs, subdirectories, entries, long_paths, names_of_every_script, hard_links, many_xattrs, nested, held_directories,
                 few_descriptors, storm], limit=of(600, 3600))
