#!/usr/bin/python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""Damage below the mount: what it touches is EIO, all else is read; what is lost in one copy is mended; nothing is ever made up.
And a lower filesystem that is read-only, foreign entries, and ends without an unmount."""
import contextlib
import hashlib
import os
import random
import shutil
import signal

import common
from common import FIRST, PAGE, PAYLOAD, Failed, data_of, equal, get, gives, need_root, outcome, put, run, same_bytes, true, wait_until

HEADER, BLOCK_HEADER = 128, 32
BLOCKS = 6
SIZE = FIRST + 4 * PAYLOAD + 1000  # the last block is short, and padded
LONG = 'l' * 255


def start(block):
    return 0 if block == 0 else FIRST + (block - 1) * PAYLOAD


def end(block):
    return min(FIRST + block * PAYLOAD, SIZE)


def flip(path, at):
    with open(path, 'r+b') as f:
        f.seek(at)
        byte = f.read(1)
        true('there is a byte at %d' % at, len(byte) == 1)
        f.seek(at)
        f.write(bytes([byte[0] ^ 0x10]))


def readable(path, size):
    """Per 4 KiB page of the plaintext: its bytes, or the errno. One page a call, without reading ahead."""
    out = []
    with open(path, 'rb', buffering=0) as f:
        os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        for at in range(0, size, PAGE):
            value = []
            got = outcome(lambda: value.append(os.pread(f.fileno(), min(PAGE, size - at), at)))
            out.append(value[0] if got == 'OK' else got)
    return out


def check_pages(label, path, content, damaged):
    """Pages that touch one of the `damaged` blocks are EIO, all others are right."""
    for i, got in enumerate(readable(path, len(content))):
        a, b = i * PAGE, min((i + 1) * PAGE, len(content))
        touched = any(start(k) < b and a < end(k) for k in damaged)
        if touched:
            equal('%s: page %d, which touches a damaged block' % (label, i), got, 'EIO')
        else:
            true('%s: page %d is read, got %s' % (label, i, common.short(got)), got == content[a:b])


def lower_files(env, m, names):
    """The lower paths, with the volume unmounted."""
    paths = {n: m.lower_path(n) for n in names}
    m.umount()
    return paths


def one_byte(env):
    m = env.mount()
    content = data_of(SIZE)
    regions = {}
    for block in (0, 2, BLOCKS - 1):
        page = block * PAGE
        head = page + (HEADER if block == 0 else 0)
        length = end(block) - start(block)
        places = {'nonce': head + 3, 'length': head + 12, 'zero': head + 15, 'tag': head + 20, 'first byte': head + BLOCK_HEADER,
                  'last byte': head + BLOCK_HEADER + length - 1}
        if block == BLOCKS - 1:
            places['padding'] = head + BLOCK_HEADER + length + 5
            places['end of padding'] = page + PAGE - 1
        for label, at in places.items():
            regions['block %d, %s' % (block, label)] = (block, at)
    for i, label in enumerate(regions):
        put(m / ('f%d' % i), content)
    put(m / 'sound', content)
    paths = lower_files(env, m, ['f%d' % i for i in range(len(regions))])
    for i, (block, at) in enumerate(regions.values()):
        flip(paths['f%d' % i], at)
    m.mount()
    for i, (label, (block, _)) in enumerate(regions.items()):
        p = m / ('f%d' % i)
        if 'padding' in label and all(isinstance(x, bytes) for x in readable(p, SIZE)):
            raise Failed('%s: expected EIO for a page whose padding is not zero, it was read' % label)
        check_pages(label, p, content, [block])
        equal(label + ': size', os.stat(p).st_size, SIZE)
    same_bytes('another file', get(m / 'sound'), content)
    true('damage is counted: %s' % m.status()['damage'], m.status()['damage']['blocks'] >= len(regions))
    log = m.log_text()
    true('and logged', log.count('a block is damaged') >= 1)
    lines = [x for x in log.splitlines() if 'damaged' in x]
    true('once a file, not once a read: %d lines' % len(lines), len(lines) <= 2 * len(regions))
    # A write that needs the damaged block is refused and changes nothing; one that replaces it whole mends it.
    p = m / 'f0'
    gives('writing a part of a damaged block', 'EIO', write_synced, p, 10, b'new')
    m.remount()
    check_pages('after that', p, content, [0])
    write_synced(p, 0, content[:FIRST] + content[FIRST:2 * PAGE])
    m.remount()
    same_bytes('mended by being overwritten', get(p), content)
    for i in range(len(regions)):
        os.unlink(m / ('f%d' % i))


def write_synced(path, at, data):
    fd = os.open(path, os.O_WRONLY)
    try:
        os.pwrite(fd, data, at)
        os.fsync(fd)
    finally:
        with contextlib.suppress(OSError):
            os.close(fd)


def header(env):
    m = env.mount()
    content = data_of(SIZE)
    places = {'magic': 0, 'version': 8, 'suite': 10, 'zero': 11, 'epoch': 12, 'id': 20, 'wrap nonce': 40, 'wrapped key': 70, 'key tag': 100, 'reserved': 110}
    uses = ('read', 'truncate to 0', 'overwrite', 'unlink')
    names = ['%s-%s' % (k, u) for k in places for u in uses]
    for n in names:
        put(m / n, content)
    put(m / 'sound', content)
    paths = lower_files(env, m, names)
    for n in names:
        flip(paths[n], places[n.split('-')[0]])
    m.mount()
    for label in places:
        p = lambda use: m / ('%s-%s' % (label, use))
        equal('%s: reading' % label, set(readable(p('read'), SIZE)), {'EIO'})
        true('%s: stat works' % label, os.stat(p('read')).st_size > 0)
        gives('%s: writing a part' % label, 'EIO', write_synced, p('read'), 5000, b'x')
        gives('%s: truncating to a part' % label, 'EIO', os.truncate, p('read'), 100)
        os.truncate(p('truncate to 0'), 0)
        equal('%s: empty now' % label, get(p('truncate to 0')), b'')
        put(p('truncate to 0'), b'again')
        put(p('overwrite'), content[:5000])
        os.rename(p('read'), p('moved'))
        os.unlink(p('moved'))
        os.unlink(p('unlink'))
    m.remount()
    for label in places:
        equal('%s: written again' % label, get(m / (label + '-truncate to 0')), b'again')
        equal('%s: overwritten' % label, get(m / (label + '-overwrite')), content[:5000])
    equal('sound', get(m / 'sound'), content)


def cut(env):
    """Lower files that are shorter or longer than they were."""
    m = env.mount()
    content = data_of(SIZE)
    sizes = {'0': 0, 'in the header': 50, 'in block 0': 2000, 'page 1': PAGE, 'in page 2': PAGE + 700, 'page 3': 3 * PAGE, 'no hint': BLOCKS * PAGE,
             'longer hint': BLOCKS * PAGE + 3000, 'a page more': (BLOCKS + 1) * PAGE + 10}
    for n in sizes:
        put(m / n, content)
    paths = lower_files(env, m, sizes)
    for n, size in sizes.items():
        os.truncate(paths[n], size)
    m.mount()
    equal('a lower file of zero length is empty', (os.stat(m / '0').st_size, get(m / '0')), (0, b''))
    for n in ('in the header', 'in block 0'):
        gives(n, 'EIO', get, m / n)
    # A hint that the last block contradicts was told to the kernel, which keeps to it: nothing is hidden or made up.
    gives('in page 2', 'EIO', get, m / 'in page 2')
    # Whole blocks from the front are authentic: a file may always be an older, shorter self. No byte is made up.
    for n in ('page 1', 'page 3'):
        got = get(m / n)
        true('%s: the front of what was there, got %d bytes' % (n, len(got)), content.startswith(got))
    for n in ('no hint', 'longer hint', 'a page more'):
        # The block knows its length. Where the kernel was told another, the first reading may fail, but never makes anything up.
        got = outcome(get, m / n)
        true('%s: %s' % (n, got), got in ('OK', 'EIO'))
        if got == 'OK':
            same_bytes(n, get(m / n), content)
    m.remount()
    for n, blocks in (('page 1', 1), ('in page 2', 1), ('page 3', 3), ('no hint', BLOCKS), ('longer hint', BLOCKS), ('a page more', BLOCKS)):
        equal('%s: size, once it was opened' % n, os.stat(m / n).st_size, end(blocks - 1))
        same_bytes('%s: after a remount' % n, get(m / n), content[:end(blocks - 1)])
    for n in sizes:
        put(m / n, b'rewritten')
    m.remount()
    for n in sizes:
        equal(n + ': rewritten', get(m / n), b'rewritten')
        os.unlink(m / n)


def swapped(env):
    m = env.mount()
    a, b = data_of(SIZE, 1), data_of(SIZE, 2)
    for n, c in (('inside', a), ('a', a), ('b', b), ('header', a), ('copied', a)):
        put(m / n, c)
    paths = lower_files(env, m, ['inside', 'a', 'b', 'header', 'copied'])

    def page(n, k):
        with open(paths[n], 'rb') as f:
            f.seek(k * PAGE)
            return f.read(PAGE)

    def set_page(n, k, data):
        with open(paths[n], 'r+b') as f:
            f.seek(k * PAGE)
            f.write(data)
    one, two = page('inside', 1), page('inside', 3)
    set_page('inside', 1, two), set_page('inside', 3, one)
    one, two = page('a', 2), page('b', 2)
    set_page('a', 2, two), set_page('b', 2, one)
    set_page('header', 0, page('b', 0)[:HEADER] + page('header', 0)[HEADER:])
    set_page('copied', 4, page('copied', 3))
    m.mount()
    check_pages('swapped inside a file', m / 'inside', a, [1, 3])
    check_pages('swapped between files', m / 'a', a, [2])
    check_pages('swapped between files', m / 'b', b, [2])
    check_pages('another file\'s header', m / 'header', a, range(BLOCKS))
    check_pages('a block copied over another', m / 'copied', a, [4])


def other_names(env):
    """Lower entries renamed, or moved to another directory: nobody's names there."""
    m = env.mount()
    os.mkdir(m / 'd')
    put(m / 'f', b'f')
    put(m / 'g', b'g')
    put(m / 'd/h', b'h')
    f, g, h = m.lower_path('f'), m.lower_path('g'), m.lower_path('d/h')
    d = m.lower_path('d')
    m.umount()
    os.rename(f, os.path.join(d, os.path.basename(f)))  # moved: its name is another directory's
    os.rename(g, g[:-2] + ('A' if g[-2] != 'A' else 'B') + g[-1])  # changed
    m.mount()
    equal('the root', os.listdir(m.path), ['d'])
    equal('the directory', os.listdir(m / 'd'), ['h'])
    equal('what is left', get(m / 'd/h'), b'h')
    true('counted: %s' % m.status()['damage'], m.status()['damage']['foreign'] >= 2)
    # Only such entries left: not empty, and intact afterwards.
    os.unlink(m / 'd/h')
    gives('rmdir of what only looks empty', 'ENOTEMPTY', os.rmdir, m / 'd')
    os.mkdir(m / 'e')
    gives('rename over it', 'ENOTEMPTY', os.rename, m / 'e', m / 'd')
    put(m / 'd/new', b'still works')
    m.remount()
    equal('after a remount', get(m / 'd/new'), b'still works')
    true('the log names the lower path', os.path.basename(d) in m.log_text())


def foreign(env):
    m = env.mount()
    os.mkdir(m / 'd')
    put(m / 'd/f', b'f')
    d = m.lower_path('d')
    before = set(os.listdir(m.lower)) | {'x'}
    for where in (m.lower, d):
        put(where + '/README.txt', b'foreign')
        put(where + '/ecfs.long.abc', b'long without a name')
        put(where + '/ecfs.unknown', b'of a later version')
        put(where + '/AAAA', b'short')
        put(where + '/' + 'A' * 255, b'long')
        os.mkdir(where + '/lost+found')
        os.symlink('x', where + '/symlink')
    equal('names', (os.listdir(m.path), os.listdir(m / 'd')), (['d'], ['f']))
    m.remount()
    equal('names after a remount', (os.listdir(m.path), os.listdir(m / 'd')), (['d'], ['f']))
    equal('with attributes', run(['find', m.path, '-type', 'f', '-printf', '%P %s\n']).stdout, 'd/f 1\n')
    os.unlink(m / 'd/f')
    for _ in range(2):
        gives('rmdir', 'ENOTEMPTY', os.rmdir, m / 'd')
        put(m / 'd/g')
        os.unlink(m / 'd/g')
        m.remount()
    true('a line in the log: %r' % m.log_text()[-500:], os.path.basename(d) in m.log_text())
    for name in os.listdir(d):
        if name != 'ecfs.dir':
            p = os.path.join(d, name)
            (shutil.rmtree if os.path.isdir(p) and not os.path.islink(p) else os.unlink)(p)
    os.rmdir(m / 'd')
    true('foreign entries of the root are all there', before - {'x', os.path.basename(d)} <= set(os.listdir(m.lower)))
    # Links that are not ours.
    put(m / 'f')
    real = m.lower_path('f')
    m.umount()
    os.unlink(real)
    os.symlink('/etc/passwd', real)
    m.mount()
    true('a foreign link is there', 'f' in os.listdir(m.path))
    gives('but leads nowhere', 'EIO', os.readlink, m / 'f')
    os.unlink(m / 'f')


def directory_id(env):
    names = ['one', 'file only', 'xattr only', 'both', 'empty', 'zero', 'garbage']
    m = env.mount()
    for n in names:
        os.makedirs(m / (n + '/sub'))
        put(m / (n + '/f'), n.encode())
        put(m / (n + '/sub/g'), b'deep')
        put(m / (n + '/' + LONG), b'long')
    os.mkdir(m / 'bare')
    paths = lower_files(env, m, [*names, 'bare'])
    xattr = 'user.ecfs.dir'
    if outcome(os.getxattr, paths['one'], xattr) != 'OK':
        raise common.Skip('no user xattrs on the lower filesystem')

    def record(n):
        return os.path.join(paths[n], 'ecfs.dir')
    good = {n: get(record(n)) for n in names}
    equal('both copies are the same', {n: os.getxattr(paths[n], xattr) for n in names}, good)
    os.unlink(record('file only'))
    os.removexattr(paths['xattr only'], xattr)
    os.unlink(record('both'))
    os.removexattr(paths['both'], xattr)
    os.chmod(record('empty'), 0o600), put(record('empty'), b'')
    os.unlink(record('zero')), put(record('zero'), bytes(48))
    os.unlink(record('garbage')), put(record('garbage'), good['one'])  # another directory's: valid, but not what the names are under
    os.unlink(record('bare')), os.removexattr(paths['bare'], xattr)
    m.mount()
    for n in ('one', 'file only', 'xattr only', 'empty', 'zero'):
        equal(n + ': listing', sorted(os.listdir(m / n)), sorted(['f', 'sub', LONG]))
        equal(n + ': content', (get(m / (n + '/f')), get(m / (n + '/sub/g')), get(m / (n + '/' + LONG))), (n.encode(), b'deep', b'long'))
    gives('both lost: listing', 'EIO', os.listdir, m / 'both')
    gives('both lost: a name in it', 'EIO', os.stat, m / 'both/f')
    gives('both lost: creating in it', 'EIO', put, m / 'both/new')
    gives('both lost: rmdir', 'ENOTEMPTY', os.rmdir, m / 'both')
    true('both lost: the directory itself is there', os.path.isdir(m / 'both') and os.stat(m / 'both').st_mode)
    os.rename(m / 'both', m / 'renamed')
    os.chmod(m / 'renamed', 0o711)
    equal('an empty directory without an id is given one', os.listdir(m / 'bare'), [])
    put(m / 'bare/new', b'n')
    equal('the root', sorted(os.listdir(m.path)), sorted([x for x in names if x != 'both'] + ['renamed', 'bare']))
    m.umount()
    for n in ('file only', 'xattr only', 'empty', 'zero'):
        equal(n + ': mended in both copies', (get(record(n)), os.getxattr(paths[n], xattr)), (good[n], good[n]))
    m.mount()
    equal('after a remount', (get(m / 'bare/new'), get(m / 'zero/f')), (b'n', b'zero'))
    # Put back, it is all there again.
    m.umount()
    lower = [os.path.join(m.lower, x) for x in os.listdir(m.lower) if os.path.isdir(os.path.join(m.lower, x))]
    lost = [x for x in lower if not os.path.exists(os.path.join(x, 'ecfs.dir'))]
    equal('one directory without an id', len(lost), 1)
    put(os.path.join(lost[0], 'ecfs.dir'), good['both'])
    m.mount()
    equal('put back', get(m / 'renamed/f'), b'both')


def root_id(env):
    m = env.mount()
    put(m / 'f', b'f')
    m.umount()
    os.unlink(m.lower + '/ecfs.dir')
    m.mount()
    equal('the root\'s id from its xattr', get(m / 'f'), b'f')
    m.umount()
    true('mended', os.path.getsize(m.lower + '/ecfs.dir') == 48)
    os.unlink(m.lower + '/ecfs.dir')
    os.removexattr(m.lower, 'user.ecfs.dir')
    p = m.mount(ok=None)
    true('lost in both copies: refused, or mounted with EIO, never an empty root: %d %s' % (p.returncode, p.stdout),
         p.returncode not in (0,) or outcome(os.listdir, m.path) == 'EIO')
    if p.returncode == 0:
        m.umount()
    true('nothing is mounted after a refusal', not common.mounted(m.path))
    true('and nothing made up', not os.path.exists(m.lower + '/ecfs.dir'))


def damaged_links_and_xattrs(env):
    m = env.mount()
    os.symlink('target', m / 'short')
    os.symlink('t' * 4000, m / 'long')
    os.symlink('fine', m / 'fine')
    put(m / 'f', b'f')
    os.setxattr(m / 'f', 'user.a', b'value')
    os.setxattr(m / 'f', 'user.b', b'other')
    paths = lower_files(env, m, ['short', 'f'])
    text = os.readlink(paths['short'])
    os.unlink(paths['short'])
    os.symlink(text[:40] + ('A' if text[40] != 'A' else 'B') + text[41:], paths['short'])
    target = [x for x in os.listdir(m.lower) if x.startswith('ecfs.target.')]
    equal('one file for the long target', len(target), 1)
    os.chmod(os.path.join(m.lower, target[0]), 0o600)
    flip(os.path.join(m.lower, target[0]), 100)
    for name in os.listxattr(paths['f']):
        value = os.getxattr(paths['f'], name)
        if len(value) > 10:
            os.setxattr(paths['f'], name, value[:-1] + bytes([value[-1] ^ 1]))
            break
    m.mount()
    gives('a damaged link', 'EIO', os.readlink, m / 'short')
    gives('a damaged long link', 'EIO', os.readlink, m / 'long')
    equal('another link', os.readlink(m / 'fine'), 'fine')
    got = sorted(outcome(os.getxattr, m / 'f', 'user.' + x) for x in 'ab')
    equal('one xattr damaged, one not', got, ['EIO', 'OK'])
    equal('both are listed', sorted(os.listxattr(m / 'f')), ['user.a', 'user.b'])
    equal('and the file is read', get(m / 'f'), b'f')
    for n in ('short', 'long', 'fine', 'f'):
        os.unlink(m / n)


def read_only_filesystem(env):
    need_root()
    base = env.filesystem('ext4', 32)
    m = env.mount(on=base)
    put(m / 'f', data_of(SIZE))
    os.makedirs(m / ('d/' + LONG))
    os.symlink('x' * 4000, m / 'link')
    os.setxattr(m / 'f', 'user.a', b'1')
    # Cut, so that there are hints to be checked, and an id to be mended: all of that must wait.
    low = m.lower_path('f')
    directory = m.lower_path('d')
    m.kill()
    os.truncate(low, BLOCKS * PAGE)
    os.unlink(directory + '/ecfs.dir')
    env.release(base)
    image = base + '.img'
    env.mount_image(image, base, 'ext4', 'ro')  # replays the journal of the unclean end? the filesystem was unmounted cleanly
    digest = lambda: hashlib.sha256(get(image)).hexdigest()
    before = digest()
    m.mount()
    true('it says so: %r' % (m.output + m.log_text()[-300:]), 'read-only' in m.output + m.log_text())
    true('status says so', m.status()['read_only'])
    same_bytes('content', get(m / 'f'), data_of(SIZE))
    equal('size', os.stat(m / 'f').st_size, SIZE)
    equal('the rest', (os.listdir(m / 'd'), os.readlink(m / 'link'), os.getxattr(m / 'f', 'user.a')), ([LONG], 'x' * 4000, b'1'))
    gives('writing', 'EROFS', put, m / 'f')
    gives('making', 'EROFS', os.mkdir, m / 'new')
    gives('mending by truncation', 'EROFS', os.truncate, m / 'f', 0)
    other = env.mount(lower=m.lower)  # readers do not exclude each other
    equal('a second reader', get(other / 'f'), data_of(SIZE))
    other.umount()
    m.umount()
    env.release(base)
    equal('not a byte of the image changed', digest(), before)


def unclean_end(env):
    m = env.mount()
    names = ['f%d' % i for i in range(12)]
    for n in names:
        put(m / n, data_of(SIZE))
        fd = os.open(m / n, os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)
    os.mkdir(m / 'd')
    with open(m / 'open', 'wb') as held:
        held.write(b'not yet synced' * 1000)
        paths = {n: m.lower_path(n) for n in names}
        os.kill(m.pid, signal.SIGKILL)
        wait_until('dead', lambda: not common.alive(m.pid))
        # While the kernel takes the connection down it says ECONNABORTED.
        wait_until('the mount is dead', lambda: outcome(os.stat, m / 'f0') == 'ENOTCONN')
        with contextlib.suppress(OSError):
            held.close()
    m.pid = None
    # As a cut may leave them: a size ahead of the data, a hint that is wrong, no first write, a hole at the end.
    os.truncate(paths['f0'], BLOCKS * PAGE + 3)
    os.truncate(paths['f1'], BLOCKS * PAGE)
    os.truncate(paths['f2'], (BLOCKS + 5) * PAGE + 77)
    os.truncate(paths['f3'], (BLOCKS - 2) * PAGE + 99)  # the end of the file never came
    with open(paths['f4'], 'r+b') as f:
        f.truncate(0)
        f.truncate(PAGE + 500)  # its first write never came
    with open(paths['f5'], 'r+b') as f:
        f.seek((BLOCKS - 1) * PAGE)
        f.write(bytes(PAGE))  # the last block never came
    session = get(m.lower + '/ecfs.session')
    true('a marker is left', b'running' in session)
    p = m.mount()
    true('dead mount replaced: %r' % p.stdout, p.returncode == 0 and common.mounted(m.path))

    def right(when):
        for n in ('f0', 'f1', 'f2', *names[6:]):
            equal('%s: size of %s by stat' % (when, n), os.stat(m / n).st_size, SIZE)
            same_bytes('%s: %s' % (when, n), get(m / n), data_of(SIZE))
        equal(when + ': the size that stat says of f3', os.stat(m / 'f3').st_size, end(BLOCKS - 3))
        same_bytes(when + ': f3', get(m / 'f3'), data_of(SIZE)[:end(BLOCKS - 3)])
        equal(when + ': f4 is empty', (os.stat(m / 'f4').st_size, get(m / 'f4')), (0, b''))
        equal(when + ': size of f5', os.stat(m / 'f5').st_size, end(BLOCKS - 2))
        same_bytes(when + ': f5', get(m / 'f5'), data_of(SIZE)[:end(BLOCKS - 2)])
    for n in names:
        os.stat(m / n)  # before anything has been opened
    equal('stat of all before any is read', [os.stat(m / n).st_size for n in names],
          [SIZE, SIZE, SIZE, end(BLOCKS - 3), 0, end(BLOCKS - 2)] + [SIZE] * 6)
    right('after the cut')
    m.remount()
    right('after a clean remount')
    put(m / 'new', b'new')
    m.kill()
    m.mount()
    right('after a second cut')
    run(['rm', '-rf', *(m / n for n in os.listdir(m.path))])
    equal('everything can be removed', os.listdir(m.path), [])


def listing_after_cut(env):
    """The same through READDIRPLUS: an ls must not show what a lookup would not."""
    m = env.mount()
    put(m / 'f', data_of(SIZE))
    os.sync()
    low = m.lower_path('f')
    m.kill()
    os.truncate(low, BLOCKS * PAGE + 3)
    m.mount()
    equal('ls', run(['find', m.path, '-name', 'f', '-printf', '%s\n']).stdout, '%d\n' % SIZE)
    m.umount()


def killed_while_writing(env):
    """kill -9 during writes, several times: what was synced is intact, everything can be removed."""
    m = env.mount()
    r = random.Random(11)
    for round_ in range(6):
        pipe_r, pipe_w = os.pipe()
        pid = os.fork()
        if pid == 0:
            with contextlib.suppress(BaseException):
                i = 0
                while True:
                    p = m / ('r%d-%d%s' % (round_, i, LONG[:200] if i % 5 == 0 else ''))
                    fd = os.open(p, os.O_WRONLY | os.O_CREAT, 0o644)
                    for part in range(3):
                        os.write(fd, data_of(7000, i + part))
                        os.fsync(fd)
                    os.close(fd)
                    os.write(pipe_w, b'%d\n' % i)
                    i += 1
            os._exit(0)
        os.close(pipe_w)
        last = -1
        want = r.randrange(3, 30)
        with os.fdopen(pipe_r, 'rb') as lines:
            for line in lines:
                last = int(line)
                if last == want:
                    os.kill(m.pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        m.pid = None
        m.mount()
        for i in range(last + 1):
            p = m / ('r%d-%d%s' % (round_, i, LONG[:200] if i % 5 == 0 else ''))
            same_bytes('round %d: synced file %d' % (round_, i), get(p), b''.join(data_of(7000, i + part) for part in range(3)))
        for name in os.listdir(m.path):
            got = outcome(get, m / name)
            equal('round %d: %s is read' % (round_, name), got, 'OK')
    run(['rm', '-rf', *(m / n for n in os.listdir(m.path))])
    equal('everything can be removed', os.listdir(m.path), [])
    m.umount()
    equal('lower', sorted(set(os.listdir(m.lower)) - {'ecfs.session'}), ['ecfs.dir', 'ecfs.volume'])


if __name__ == '__main__':
    common.main([one_byte, header, cut, swapped, other_names, foreign, directory_id, root_id, damaged_links_and_xattrs, read_only_filesystem,
                 unclean_end, listing_after_cut, killed_while_writing])
