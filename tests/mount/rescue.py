#!/usr/bin/python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""ecfs-rescue beside the mount: volumes that the daemon wrote are extracted as the mount shows them, and both find the same damage."""
import errno
import hashlib
import json
import os
import random
import stat
import sys

import common
from common import BUILD, FIRST, PAGE, PAYLOAD, SRC, equal, run, true

sys.path.insert(0, os.path.join(SRC, 'tests', 'cli'))
COMPARE = os.path.join(BUILD, 'tests', 'compare-trees')
SEED = int(os.environ.get('ECFS_SEED', '1'))
CALLS = int(os.environ.get('ECFS_COMPARE_CALLS', '1500'))
ROUNDS = int(os.environ.get('ECFS_RESCUE_ROUNDS', '1'))
LONG = 'l' * 255


def need_modules():
    try:
        import cryptography  # noqa: F401
        import nacl  # noqa: F401
    except ImportError as e:
        raise common.Skip('%s (Debian: python3-cryptography, python3-nacl)' % e)


def rescue(env, *args, ok=(0,)):
    """Standard output."""
    import rescue_program
    code, out, err = rescue_program.run(['--passfile', env.passfile, *args])
    if code not in ok:
        raise common.Failed('ecfs-rescue %s: expected exit %s, got %d:\n%s' % (args, ok, code, (out + err).decode(errors='replace')[-3000:]))
    return out.decode(errors='surrogateescape')


def longest_target(env):
    """What a link can hold where the tree is extracted to; a mount keeps longer ones elsewhere."""
    try:
        os.symlink('t' * 4095, env.fresh('link'))
        return 4095
    except OSError:
        return 1023


def listing(env, lower):
    """{path: what list tells of it}"""
    lines = rescue(env, '--json', 'list', lower, ok=(0, 1)).splitlines()
    return {e['path']: e for e in map(json.loads, lines)}


def findings(env, lower):
    """What verify tells, without its last line."""
    lines = [json.loads(line) for line in rescue(env, '--json', 'verify', lower, ok=(0, 1)).splitlines()]
    equal('the count of damages', lines[-1]['damages'], len(lines) - 1)
    return lines[:-1]


# ---- a tree as it is seen ---------------------------------------------------------------------------------------------------

def xattrs_of(path):
    """{name: value, or the errno}"""
    out = {}
    for name in sorted(os.listxattr(path, follow_symlinks=False)):
        if name.startswith('system.'):  # shown by a mount with -o acl only
            continue
        try:
            out[name] = os.getxattr(path, name, follow_symlinks=False)
        except OSError as e:
            out[name] = errno.errorcode[e.errno]
    return out


def pages_of(path, size):
    """Of each page, its bytes' hash or the errno; the kernel reads nothing ahead."""
    out = []
    try:
        fd = os.open(path, os.O_RDONLY)
    except OSError as e:
        return [errno.errorcode[e.errno]] * -(-size // PAGE)
    try:
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
        for at in range(0, size, PAGE):
            try:
                out.append(hashlib.blake2b(os.pread(fd, min(PAGE, size - at), at)).hexdigest())
            except OSError as e:
                out.append(errno.errorcode[e.errno])
    finally:
        os.close(fd)
    return out


def look(top, content=True):
    """{path: what it is}, with what cannot be read as its errno. Nothing is read before every time has been taken."""
    seen, inodes = {}, {}

    def walk(path, name):
        st = os.lstat(path)
        thing = {'mode': st.st_mode, 'owner': (st.st_uid, st.st_gid), 'mtime': st.st_mtime_ns, 'rdev': st.st_rdev}
        if not stat.S_ISDIR(st.st_mode):
            thing['size'] = st.st_size
            if st.st_nlink > 1:
                thing['first name'] = inodes.setdefault(st.st_ino, name)
        seen[name] = thing
        if stat.S_ISDIR(st.st_mode):
            try:
                names = sorted(os.listdir(path))
            except OSError as e:
                thing['listing'] = errno.errorcode[e.errno]
                names = []
            for n in names:
                walk(os.path.join(path, n), name + n + '/')
    walk(top, '')
    for name, thing in seen.items():
        path = os.path.join(top, name).rstrip('/')
        thing['xattrs'] = xattrs_of(path)
        if stat.S_ISLNK(thing['mode']):
            try:
                thing['target'] = os.readlink(path)
            except OSError as e:
                thing['target'] = errno.errorcode[e.errno]
        elif stat.S_ISREG(thing['mode']) and content:
            thing['pages'] = pages_of(path, thing['size'])
    return seen


def same_trees(label, got, want):
    equal(label + ': the same names', sorted(got), sorted(want))
    for name, thing in want.items():
        for key in sorted(thing.keys() | got[name].keys()):
            equal('%s: %s: %s' % (label, name, key), got[name].get(key), thing.get(key))


def extracted(env, lower, ok=(0,)):
    out = env.fresh('out')
    return out, rescue(env, 'extract', lower, out, ok=ok)


# ---- volumes without damage -------------------------------------------------------------------------------------------------

def random_calls(env):
    """What random calls made (compare.cpp), in each cipher and mode of names."""
    need_modules()
    for n, (cipher, names) in enumerate((c, m) for c in ('aes-256-gcm', 'chacha20-poly1305') for m in ('encrypted', 'plain')):
        label = '%s, names %s' % (cipher, names)
        # Like a mount: no devices, no set-id programs.
        base = env.filesystem('ext4', 512, options='nodev,nosuid') if os.geteuid() == 0 else env.directory()
        m = env.mount(on=base, cipher=cipher, names=names)
        plain, tree = os.path.join(base, 'plain'), m / 'tree'
        os.mkdir(plain)
        os.mkdir(tree)
        run([COMPARE, '--seed', str(SEED + n), '--calls', str(CALLS), '--max-target', str(longest_target(env)), plain, tree])
        m.remount(options='ro')
        want = look(m.path)
        true(label + ': there is something in it', len(want) > 5)
        m.umount()
        out, said = extracted(env, m.lower)
        true(label + ': no damage: ' + said, said.endswith('no damage\n'))
        got = look(out)
        same_trees(label, got, want)
        true(label + ': verify', rescue(env, 'verify', m.lower).endswith('no damage\n'))
        listed = listing(env, m.lower)
        equal(label + ': as many are listed', len(listed), len(want))
        equal(label + ': what is found by list', sorted((e['size'], e['mtime_ns'], e['uid']) for e in listed.values() if e['type'] == 'file'),
              sorted((t['size'], t['mtime'], t['owner'][0]) for t in want.values() if stat.S_ISREG(t['mode'])))


def everything(env):
    """One of each thing that random calls do not make: times are exact, atimes too; devices, ACLs, security and trusted xattrs, deep trees."""
    need_modules()
    common.need_root()
    m = env.mount(options='acl')
    os.mkdir(m / 'd', 0o750)
    for name in ('file', 'd/' + LONG, 'd/sparse'):
        with open(m / name, 'wb') as f:
            f.write(b'x' * 5000)
    os.truncate(m / 'd/sparse', 10_000_000)
    os.link(m / 'file', m / 'd/again')
    os.symlink('t' * 1000, m / 'link')
    os.symlink('t' * longest_target(env), m / 'long link')
    os.link(m / 'link', m / 'd/link again', follow_symlinks=False)
    os.mknod(m / 'device', 0o640 | stat.S_IFCHR, os.makedev(1, 3))
    os.mknod(m / 'block', 0o600 | stat.S_IFBLK, os.makedev(7, 200))
    os.mknod(m / 'socket', 0o777 | stat.S_IFSOCK)
    os.mkfifo(m / 'fifo', 0o622)
    os.chown(m / 'file', 1234, 5678)
    os.chmod(m / 'file', 0o6751)
    os.lchown(m / 'link', 77, 88)
    os.setxattr(m / 'd', 'user.' + 'x' * 250, b'long')
    os.setxattr(m / 'd', 'user.empty', b'')
    os.setxattr(m / 'file', 'trusted.t', b'kept')
    os.setxattr(m / 'link', 'trusted.of a link', b'kept', follow_symlinks=False)
    run(['setfacl', '-m', 'u:1234:rw,g:88:r', m / 'file'])
    run(['setfacl', '-d', '-m', 'u:1234:rwx', m / 'd'])
    deep = m.path
    fds = [os.open(deep, os.O_RDONLY)]
    for _ in range(60):
        os.mkdir(LONG, dir_fd=fds[-1])
        fds.append(os.open(LONG, os.O_RDONLY | os.O_DIRECTORY, dir_fd=fds[-1]))
    os.close(os.open('leaf', os.O_CREAT | os.O_WRONLY, dir_fd=fds[-1]))
    for fd in fds:
        os.close(fd)
    moment = 1_234_567_890_123_456_789
    for n, name in enumerate(('file', 'link', 'fifo', 'd/sparse', 'd', 'device')):
        os.utime(m / name, ns=(moment + n, moment + 10 * n), follow_symlinks=False)
    m.umount()
    out, said = extracted(env, m.lower)
    true('no damage: ' + said, said.endswith('no damage\n'))
    for n, name in enumerate(('file', 'link', 'fifo', 'd/sparse', 'd', 'device')):
        st = os.lstat(os.path.join(out, name))
        equal('times of ' + name, (st.st_atime_ns, st.st_mtime_ns), (moment + n, moment + 10 * n))
    acls = lambda top: [run(['getfacl', '-n', '-c', os.path.join(top, n)]).stdout for n in ('file', 'd')]
    got, got_acls = look_without_depth(out), acls(out)
    true('holes stay holes', os.stat(os.path.join(out, 'd/sparse')).st_blocks < 100)
    m.remount(options='ro,acl')
    same_trees('mount', got, look_without_depth(m.path))
    equal('ACLs', got_acls, acls(m.path))
    equal('the deepest', rescue(env, 'list', m.lower).count('/leaf\n'), 1)
    at, depth = os.open(out, os.O_RDONLY), 0
    while 'leaf' not in os.listdir(at):
        below = os.open(LONG, os.O_RDONLY, dir_fd=at)
        os.close(at)
        at, depth = below, depth + 1
    os.close(at)
    equal('the deepest is extracted', depth, 60)


def look_without_depth(top):
    """look() at what a path reaches."""
    return {name + '/' + k: v for name in sorted(os.listdir(top)) if name != LONG for k, v in look(os.path.join(top, name)).items()}


def untouched(lower):
    """All that reading could leave a trace of. (Of links it does: there is no reading one without moving its atime.)"""
    out = []
    for path, dirs, files in list(os.walk(lower)):
        for name in ['.'] + sorted(dirs + files):
            st = os.lstat(os.path.join(path, name))
            out.append((path, name, st.st_mode, st.st_size, not stat.S_ISLNK(st.st_mode) and st.st_atime_ns, st.st_mtime_ns, st.st_ctime_ns))
    return out


def killed(env):
    """The daemon dies while files grow, shrink and are made. Hints that lead and lag are no damage then."""
    need_modules()
    for names in ('encrypted', 'plain'):
        m = env.mount(names=names)
        writer = os.fork()
        if writer == 0:
            try:
                r = random.Random(SEED)
                while True:
                    path = m / ('f%d' % r.randrange(8))
                    choice = r.randrange(6)
                    if choice == 0 and os.path.exists(path):
                        os.truncate(path, r.randrange(40000))
                    elif choice == 1 and os.path.exists(path):
                        os.rename(path, path + LONG[:200])
                        os.unlink(path + LONG[:200])
                    else:
                        fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
                        os.pwrite(fd, r.randbytes(r.randrange(1, 20000)), r.randrange(60000))
                        os.close(fd)
            except OSError:
                pass
            finally:
                os._exit(0)
        common.wait_until('the writer has written', lambda: m.messages().get('WRITE', 0) > 300)
        m.kill()
        os.waitpid(writer, 0)
        # As power cuts leave them beside that: sizes that lead or lag, a first write and an id that never came.
        m.mount()
        content = random.Random(2).randbytes(9000)
        sizes = {'leads': 6 * PAGE + 10, 'leads within': 3 * PAGE + 3000, 'no hint': 3 * PAGE, 'lags': 3 * PAGE + 7}
        for name in sizes:
            with open(m / name, 'wb') as f:
                f.write(content)
        os.mkdir(m / 'no id')
        paths = {name: m.lower_path(name) for name in (*sizes, 'no id')}
        m.kill()
        for name, size in sizes.items():
            os.truncate(paths[name], size)
        if names == 'encrypted':
            os.unlink(os.path.join(paths['no id'], 'ecfs.dir'))
            os.removexattr(paths['no id'], 'user.ecfs.dir')
        before = untouched(m.lower)
        out, said = extracted(env, m.lower)
        true('no damage after a kill: ' + said, said.endswith('no damage\n'))
        equal('nothing has changed in the lower directory', untouched(m.lower), before)
        got = look(out)
        for name in sizes:
            with open(os.path.join(out, name), 'rb') as f:
                common.same_bytes(name, f.read(), content)
        m.remount(options='ro')
        same_trees('names %s' % names, got, look(m.path))


# ---- damage: found where the mount finds it ---------------------------------------------------------------------------------

CONTENTS = ('contents', 'header', 'size')


def agree(env, label, m):
    """An unmounted volume: what verify finds is what the mount, read-only, cannot read; all else is extracted as the mount shows it."""
    before = untouched(m.lower)
    found = findings(env, m.lower)
    out, _ = extracted(env, m.lower, ok=(0, 1))
    listed = listing(env, m.lower)
    equal(label + ': nothing has changed in the lower directory', untouched(m.lower), before)
    got = look(out, content=False)
    m.remount(options='ro')
    seen = look(m.path)
    # By the lower object: of several hard links, one is where damage is told.
    object_of = lambda lower: os.lstat(os.path.join(m.lower, lower)).st_ino
    told = {}
    for f in found:
        told.setdefault(object_of(f['lower']), []).append(f)
    of = lambda path, *kinds: [f for f in told.get(object_of(listed[path]['lower']), []) if f['damage'] in kinds]
    lost = {k for k in got if k.startswith('lost+found/')}
    unlinked = {k for k in seen if of(k.rstrip('/') or '.', 'link target')}
    equal(label + ': the same names', sorted(got.keys() - lost), sorted(seen.keys() - unlinked))
    for key, thing in seen.items():
        path = key.rstrip('/') or '.'
        name = '%s: %s' % (label, path)
        equal(name + ': its listing', 'EIO' if of(path, 'directory id') else None, thing.get('listing'))
        if stat.S_ISLNK(thing['mode']):
            equal(name + ': its target', thing['target'] == 'EIO', key in unlinked)
        if key in unlinked:
            continue
        readable = {n: v for n, v in thing['xattrs'].items() if isinstance(v, bytes)}
        equal(name + ': its xattrs', got[key]['xattrs'], readable)
        if len(readable) < len(thing['xattrs']):
            true(name + ': an xattr that cannot be read is told: %s' % found, of(path, 'xattr'))
        for what in ('mode', 'owner', 'mtime', 'first name'):
            equal('%s: %s' % (name, what), got[key].get(what), thing.get(what))
        if stat.S_ISLNK(thing['mode']):
            equal(name + ': target', got[key]['target'], thing['target'])
        if not stat.S_ISREG(thing['mode']):
            continue
        equal(name + ': the size that is listed', listed[path]['size'], thing['size'])
        pages = pages_of(os.path.join(out, path), thing['size'])
        bad = [(f['offset'], f['offset'] + f['length']) for f in of(path, *CONTENTS)]
        for i, page in enumerate(thing['pages']):
            touched = any(a < (i + 1) * PAGE and i * PAGE < b for a, b in bad)
            equal('%s: page %d of %d bytes, told of %s' % (name, i, thing['size'], bad), page if page == 'EIO' else None, 'EIO' if touched else None)
            if not touched:
                equal('%s: bytes of page %d' % (name, i), pages[i], page)
    m.umount()
    return found


def change(path, at, data=None):
    """Flips a bit, or puts data there."""
    with open(path, 'r+b') as f:
        f.seek(at)
        byte = f.read(1)
        f.seek(at)
        f.write(bytes([byte[0] ^ 0x04]) if data is None else data)


def change_xattr(path, name, at):
    value = bytearray(os.getxattr(path, name, follow_symlinks=False))
    value[at] ^= 0x04
    os.setxattr(path, name, bytes(value), follow_symlinks=False)


def other_letter(path, at):
    """Renames an object by one letter of its name."""
    base, name = os.path.split(path)
    letter = 'A' if name[at] != 'A' else 'B'
    os.rename(path, os.path.join(base, name[:at] + letter + name[at + 1:]))
    return name[:at] + letter + name[at + 1:]


SIZE = FIRST + 3 * PAYLOAD + 1000
WHERE = {'nonce': 3, 'length': 12, 'zero': 15, 'tag': 20, 'ciphertext': 100}  # in a block


def each_structure(env):
    """One bit, one file, of each structure: exactly that is told."""
    need_modules()
    for names in ('encrypted', 'plain'):
        m = env.mount(names=names)
        content = random.Random(3).randbytes(SIZE)
        expected = set()

        def make(name, data=content):
            with open(m / name, 'wb') as f:
                f.write(data)
            return name
        make('sound')
        header = ['h %s' % k for k in ('magic', 'version', 'suite', 'zero', 'epoch', 'id', 'nonce', 'key', 'tag', 'reserved')]
        blocks = ['b %s %d' % (k, n) for k in WHERE for n in (0, 2, 4)]
        others = ['padding', 'page zeroed', 'header and holes', 'block 0 zeroed', 'single', 'single zeroed', 'cut 100', 'cut page', 'cut in page', 'hint +', 'hint -',
                  'longer', 'two damaged', 'last zeroed', 'all zeroed', 'bad then zeros', 'swapped', 'no hint', 'no hint, bad']
        for n in header + blocks + others:
            make(n)
        make('single', b'x' * 100), make('single zeroed', b'x' * 100)
        os.symlink('a target', m / 'link'), os.symlink('t' * 4000, m / 'long link'), os.symlink('t' * 4001, m / 'lost link'), os.symlink('x', m / 'good link')
        for n in ('x1', 'x2', 'x3', 'x4'):
            make(n, b'')
            os.setxattr(m / n, 'user.attr', b'value')
            os.setxattr(m / n, 'user.other', b'sound')
            os.setxattr(m / n, 'user.' + 'n' * 240, b'long')
        dirs = ['d file', 'd xattr', 'd both', 'd gone', 'd names']
        for n in dirs:
            os.mkdir(m / n)
            make(n + '/in it', b'in it'), make(n + '/' + LONG, b'long')
        make('named'), make('named ' + LONG[:200]), make('nameless ' + LONG[:200])
        low = {n: m.lower_path(n) for n in (*header, *blocks, *others, *dirs, 'link', 'long link', 'lost link', 'x1', 'x2', 'x3', 'x4', 'named',
                                            'named ' + LONG[:200], 'nameless ' + LONG[:200])}
        inside = {n: (m.lower_path(n + '/in it'), m.lower_path(n + '/' + LONG)) for n in dirs}
        m.umount()

        places = dict(zip(header, (0, 8, 10, 11, 12, 20, 40, 70, 100, 110)))
        for n, at in places.items():
            change(low[n], at)
            expected.add((n, 'header', 0, SIZE))
        start = lambda k: 0 if k == 0 else FIRST + (k - 1) * PAYLOAD
        end = lambda k: min(start(k + 1), SIZE)
        for n in blocks:
            _, what, block = n.split(' ')
            change(low[n], int(block) * PAGE + (128 if block == '0' else 0) + WHERE[what])
            expected.add((n, 'contents', start(int(block)), end(int(block)) - start(int(block))))
        zeros = bytes(PAGE)
        change(low['padding'], 5 * PAGE - 1)
        expected.add(('padding', 'contents', start(4), SIZE - start(4)))
        change(low['page zeroed'], 0, zeros)
        expected.add(('page zeroed', 'header', 0, SIZE))
        change(low['header and holes'], 128, bytes(5 * PAGE - 128))
        expected.add(('header and holes', 'size', 0, SIZE))
        change(low['block 0 zeroed'], 128, bytes(PAGE - 128))  # a hole: zeros, as any block may be made
        change(low['single'], 128, bytes(PAGE - 128))
        expected.add(('single', 'size', 0, 100))
        change(low['single zeroed'], 0, zeros)
        expected.add(('single zeroed', 'header', 0, 100))
        os.truncate(low['cut 100'], 100)
        expected.add(('cut 100', 'header', 0, 100))
        os.truncate(low['cut page'], 2 * PAGE)  # an older, shorter self, as far as anybody can tell
        os.truncate(low['cut in page'], 2 * PAGE + 700)
        expected.add(('cut in page', 'size', start(1) + 700, PAYLOAD - 700))
        os.truncate(low['hint +'], 5 * PAGE + 1200)
        expected.add(('hint +', 'size', SIZE, 200))
        os.truncate(low['hint -'], 5 * PAGE + 900)
        expected.add(('hint -', 'size', SIZE - 100, 100))
        os.truncate(low['longer'], 7 * PAGE + 30)
        expected.add(('longer', 'size', SIZE, start(6) + 30 - SIZE))
        change(low['two damaged'], PAGE + 50), change(low['two damaged'], 2 * PAGE + 50)
        expected.add(('two damaged', 'contents', start(1), 2 * PAYLOAD))
        change(low['last zeroed'], 4 * PAGE, zeros)
        expected.add(('last zeroed', 'size', start(4), 1000))
        change(low['all zeroed'], 0, bytes(5 * PAGE))
        expected.add(('all zeroed', 'header', 0, SIZE))
        change(low['bad then zeros'], 3 * PAGE + 50), change(low['bad then zeros'], 4 * PAGE, zeros)
        expected |= {('bad then zeros', 'contents', start(3), PAYLOAD), ('bad then zeros', 'size', start(4), 1000)}
        with open(low['swapped'], 'rb') as f:
            data = f.read()
        change(low['swapped'], PAGE, data[3 * PAGE:4 * PAGE]), change(low['swapped'], 3 * PAGE, data[PAGE:2 * PAGE])
        expected |= {('swapped', 'contents', start(1), PAYLOAD), ('swapped', 'contents', start(3), PAYLOAD)}
        os.truncate(low['no hint'], 5 * PAGE)
        os.truncate(low['no hint, bad'], 5 * PAGE)
        change(low['no hint, bad'], 4 * PAGE + 50)
        expected.add(('no hint, bad', 'contents', start(4), PAYLOAD))

        text = os.readlink(low['link'])
        os.unlink(low['link'])
        os.symlink(text[:50] + ('A' if text[50] != 'A' else 'B') + text[51:], low['link'])
        expected.add(('link', 'link target'))
        change(os.path.join(m.lower, os.readlink(low['long link'])), 200)
        expected.add(('long link', 'link target'))
        os.unlink(os.path.join(m.lower, os.readlink(low['lost link'])))
        expected.add(('lost link', 'link target'))
        sealed = lambda path, length, long=False: next(x for x in os.listxattr(path) if x.startswith('user.ecfs.long.') == long and
                                                       len(os.getxattr(path, x)) == 44 + length and x.startswith('user.ecfs.'))
        twins = [x for x in os.listxattr(low['x1']) if x.startswith('user.ecfs.') and not x.startswith('user.ecfs.long.')]
        change_xattr(low['x1'], twins[0], 30)
        expected.add(('x1', 'xattr'))
        change_xattr(low['x2'], sealed(low['x2'], 2 + 240 + 4, long=True), 100)
        expected.add(('x2', 'xattr'))
        value = os.getxattr(low['x3'], twins[1])
        os.removexattr(low['x3'], twins[1])
        os.setxattr(low['x3'], twins[1][:20] + ('A' if twins[1][20] != 'A' else 'B') + twins[1][21:], value)
        expected.add(('x3', 'xattr'))
        os.setxattr(low['x4'], 'user.foreign', b'of nobody')
        expected.add(('x4', 'xattr'))
        if names == 'encrypted':
            change(os.path.join(low['d file'], 'ecfs.dir'), 5)
            expected.add(('d file', 'directory id copy'))
            change_xattr(low['d xattr'], 'user.ecfs.dir', 20)
            expected.add(('d xattr', 'directory id copy'))
            for n in ('d both', 'd gone'):
                if n == 'd both':
                    change(os.path.join(low[n], 'ecfs.dir'), 40), change_xattr(low[n], 'user.ecfs.dir', 30)
                else:
                    os.unlink(os.path.join(low[n], 'ecfs.dir')), os.removexattr(low[n], 'user.ecfs.dir')
                expected.add((n, 'directory id'))
                for path in inside[n]:
                    expected.add(('lost+found/%s/%s' % (n, os.path.basename(path)), 'name'))
            name = other_letter(low['named'], 10)
            expected.add(('lost+found/' + name, 'name'))
            base, name = os.path.split(low['named ' + LONG[:200]])
            change(os.path.join(base, name.replace('ecfs.long.', 'ecfs.name.')), 30)
            expected.add(('lost+found/' + name, 'name'))
            base, name = os.path.split(low['nameless ' + LONG[:200]])
            os.unlink(os.path.join(base, name.replace('ecfs.long.', 'ecfs.name.')))
            expected.add(('lost+found/' + name, 'name'))
            os.rename(inside['d names'][0], os.path.join(low['d names'], 'foreign'))
            expected.add(('lost+found/d names/foreign', 'name'))
        with open(os.path.join(m.lower, 'ecfs.foreign'), 'wb') as f:
            f.write(b'of nobody')
        expected |= {('lost+found/ecfs.foreign', 'name'), ('lost+found/ecfs.foreign', 'header', 0, 9)}

        found = agree(env, 'names ' + names, m)
        told = {(f['path'], f['damage'], f['offset'], f['length']) if 'offset' in f else (f['path'], f['damage']) for f in found}
        # Two of one directory's copies are two lines.
        equal('names %s: told, and not expected' % names, sorted(told - expected), [])
        equal('names %s: expected, and not told' % names, sorted(expected - told), [])
        if names == 'encrypted':
            out, _ = extracted(env, m.lower, ok=(1,))
            for n in ('d both', 'd gone'):
                got = {os.path.basename(p): open(os.path.join(out, 'lost+found', n, os.path.basename(p)), 'rb').read() for p in inside[n]}
                equal(n + ': its files are there under their lower names', sorted(got.values()), [b'in it', b'long'])
            common.same_bytes('what has no name', open(os.path.join(out, 'lost+found', os.path.basename(low['nameless ' + LONG[:200]])), 'rb').read(), content)


def random_damage(env):
    """Anything anywhere, in a volume that was ended cleanly and in one that was cut."""
    need_modules()
    for n in range(ROUNDS):
        for names in ('encrypted', 'plain'):
            for cut in (False, True):
                seed = SEED * 1000 + n
                r = random.Random('%d %s %s' % (seed, names, cut))
                label = 'seed %d, names %s, %s' % (SEED + n, names, 'cut' if cut else 'ended')
                m = env.mount(names=names)
                for d in ('', 'a/', 'a/b/', 'a/' + LONG + '/', 'c/'):
                    if d:
                        os.mkdir(m / d)
                        os.setxattr(m / d, 'user.of a directory', b'v')
                    for i in range(6):
                        with open(m / (d + 'f%d' % i), 'wb') as f:
                            f.write(r.randbytes(r.choice((0, 1, 100, FIRST, FIRST + 1, 4096, 9000, 30000))))
                            if r.randrange(3) == 0:
                                f.truncate(r.randrange(60000))
                        os.setxattr(m / (d + 'f%d' % i), 'user.' + 'x' * r.choice((1, 20, 200)), r.randbytes(r.randrange(60)))
                        os.symlink('t' * min(r.choice((1, 100, 3500)), longest_target(env)), m / (d + 'l%d' % i))
                        with open(m / (d + 'n%d' % i + LONG[:180]), 'wb') as f:
                            f.write(b'long name')
                    os.link(m / (d + 'f0'), m / (d + 'again'))
                m.umount()
                done = []
                for _ in range(40):
                    done.append(damage_something(r, m.lower))
                if cut:
                    with open(os.path.join(m.lower, 'ecfs.session'), 'w') as f:
                        json.dump({'cut': [], 'running': True, 'start': [0, 0], 'host': 'x', 'pid': 1}, f)
                try:
                    agree(env, label, m)
                except common.Failed as e:
                    raise common.Failed('%s\n  damaged: %s' % (e, '\n  '.join(done)))


def damage_something(r, lower):
    """Changes one thing; what it was."""
    objects = []
    for path, dirs, files in os.walk(lower):
        for name in sorted(dirs + files):
            if name not in ('ecfs.volume', 'ecfs.session'):
                objects.append(os.path.join(path, name))
    objects.sort()
    path = r.choice(objects)
    st = os.lstat(path)
    xattrs = sorted(os.listxattr(path, follow_symlinks=False))
    if xattrs and r.randrange(4) == 0:
        name = r.choice(xattrs)
        value = bytearray(os.getxattr(path, name, follow_symlinks=False))
        if value:
            value[r.randrange(len(value))] ^= 1 << r.randrange(8)
        if r.randrange(4) == 0:
            os.removexattr(path, name)
        else:
            os.setxattr(path, name, bytes(value))
        return 'xattr %s of %s' % (name, path)
    choice = r.randrange(8)
    if stat.S_ISLNK(st.st_mode):
        text = os.readlink(path)
        at = r.randrange(len(text))
        os.unlink(path)
        os.symlink(text[:at] + r.choice('AZ_-.!') + text[at + 1:], path)
        return 'target of %s' % path
    if choice == 0 and not os.path.basename(path).startswith('ecfs.name.') and not os.path.isdir(path):
        base, name = os.path.split(path)
        at = r.randrange(len(name))
        new = name[:at] + r.choice('AZ_-.!') + name[at + 1:]
        if not os.path.lexists(os.path.join(base, new)):
            os.rename(path, os.path.join(base, new))
        return 'name of %s' % path
    if not stat.S_ISREG(st.st_mode):
        return 'nothing'
    pages = st.st_size // PAGE
    if choice == 1 and os.path.basename(path).startswith('ecfs.'):
        os.unlink(path)
        return 'removed %s' % path
    if choice == 2:
        size = r.choice((st.st_size // 2, pages * PAGE, max(0, pages - 1) * PAGE + 100, st.st_size + r.randrange(1, 9000), r.randrange(PAGE)))
        os.truncate(path, size)
        return 'size of %s from %d to %d' % (path, st.st_size, size)
    if choice in (3, 4) and pages:
        page = r.choice((0, pages - 1, r.randrange(pages)))
        skip = 128 if page == 0 and r.randrange(2) else 0
        change(path, page * PAGE + skip, bytes(PAGE - skip))
        return 'page %d of %s is zeros from byte %d on' % (page, path, skip)
    if st.st_size:
        at = r.randrange(max(1, pages * PAGE or st.st_size))
        change(path, at)
        return 'byte %d of %s' % (at, path)
    return 'nothing'


if __name__ == '__main__':
    common.main([random_calls, everything, killed, each_structure, random_damage], limit=3600)
