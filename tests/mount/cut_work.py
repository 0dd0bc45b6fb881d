# SPDX-License-Identifier: GPL-3.0-or-later
"""Work that is cut - by a power cut, a snapshot of the disk, the killing of the daemon - and the check of what it left.

`work(directory, seed, kinds)` works until it is ended, and says a line after each thing that it has had synced. `Record(text)` is what had been
said when the cut came; `record.verify(dir)` holds what is there against it: everything that was said is there, what came after it is there or
not, nothing is anything that was never written, and nothing is unreadable.

Everything that is written follows from the seed and a number, so that the check needs no copy.
"""
import contextlib
import hashlib
import os
import random
import sqlite3
import struct
import subprocess

FIRST, PAYLOAD = 3936, 4064  # what block 0 and the others hold (docs/FORMAT.md)
SIZES = (1, 100, 4064, 4096, 10000)
BLOCKS = 24
LONG = 'n' * 200
GIT = ['git', '-c', 'user.name=Test', '-c', 'user.email=test@example.org', '-c', 'core.fsync=all', '-c', 'core.fsyncMethod=fsync', '-c', 'gc.auto=0']


class Wrong(Exception):
    """What the cut left is not as it must be."""


def pattern(name, offset, length):
    """Bytes of an endless stream, one for each name."""
    first, last = offset // 4096, (offset + length) // 4096
    out = b''.join(hashlib.shake_128(b'%s %d' % (name.encode(), n)).digest(4096) for n in range(first, last + 1))
    return out[offset - first * 4096:][:length]


def stamps(block, version):
    """A block full of units of 8 bytes that say which block and version they are."""
    return struct.pack('<II', block, version) * ((FIRST if block == 0 else PAYLOAD) // 8)


def block_offset(block):
    return 0 if block == 0 else FIRST + (block - 1) * PAYLOAD


def document(version):
    return pattern('document %d' % version, 0, 1 + version * 7919 % 30000)


def sync_dir(path):
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def sync_below(d, files=True):
    """By fsync(2) of each. syncfs(2) is not passed on by FUSE."""
    for path, _, names_there in os.walk(d):
        for name in names_there if files else ():
            with open(path + '/' + name, 'rb') as f:
                os.fsync(f.fileno())
        sync_dir(path)


def put_synced(path, data, sync=True):
    with open(path, 'wb') as f:
        f.write(data)
        f.flush()
        if sync:
            os.fsync(f.fileno())


# Each kind of work: a generator that is given its own directory and a random generator, and yields what has been synced, as words of a line. Beside
# it, the check of its directory by the words of its lines.

def log(d, rng):
    """Appended to, synced at times."""
    at = 0
    with open(d + '/log', 'ab', buffering=0) as f:
        sync_dir(d)
        while True:
            n = rng.choice(SIZES)
            f.write(pattern('log', at, n))
            at += n
            if rng.random() < 0.5:
                (os.fsync if rng.random() < 0.5 else os.fdatasync)(f.fileno())
                yield at
            yield None


def check_log(d, lines):
    if not os.path.exists(d + '/log'):
        return [] if not lines else ['the log is gone']
    data, synced = read_whole(d + '/log'), int(lines[-1][0]) if lines else 0
    bad = []
    if len(data) < synced:
        bad.append('the log has %d bytes, %d were synced' % (len(data), synced))
    wanted = pattern('log', 0, len(data))
    for block in range(len(data) // PAYLOAD + 2):
        at, end = block_offset(block), min(block_offset(block + 1), len(data))
        if data[at:end] != wanted[at:end] and (at < synced or data[max(at, synced):end].strip(b'\0')):
            n = next(i for i in range(at, end) if data[i] != wanted[i])
            if n < synced or data[n:end].strip(b'\0'):
                bad.append('the log is wrong at %d of %d, %d were synced' % (n, len(data), synced))
                break
    return bad


def fixed(d, rng):
    """Blocks overwritten in place."""
    version = [0] * BLOCKS
    put_synced(d + '/fixed', b''.join(stamps(b, 0) for b in range(BLOCKS)))
    sync_dir(d)
    yield ','.join(map(str, version))
    fd = os.open(d + '/fixed', os.O_RDWR)
    try:
        while True:
            for _ in range(rng.randrange(1, 6)):
                b = rng.randrange(BLOCKS)
                version[b] += 1
                os.pwrite(fd, stamps(b, version[b]), block_offset(b))
            if rng.random() < 0.6:
                os.fdatasync(fd)
                yield ','.join(map(str, version))
            yield None
    finally:
        os.close(fd)


def check_fixed(d, lines):
    if not lines:
        if os.path.exists(d + '/fixed'):
            read_whole(d + '/fixed')
        return []
    data, synced = read_whole(d + '/fixed'), [int(v) for v in lines[-1][0].split(',')]
    if len(data) != block_offset(BLOCKS):
        return ['fixed has %d bytes, not %d' % (len(data), block_offset(BLOCKS))]
    for b in range(BLOCKS):
        for block, version in struct.iter_unpack('<II', data[block_offset(b):block_offset(b + 1)]):
            # Rounds are of some few versions at most, so what is not synced is not far ahead.
            if block != b or not synced[b] <= version <= synced[b] + 100:
                return ['block %d has a piece of block %d, version %d; %d was synced' % (b, block, version, synced[b])]
    return []


def editor(d, rng, sync=True):
    """A document replaced as editors do it."""
    version = 0
    while True:
        version += 1
        # Where there is no document yet nothing protects a new one.
        put_synced(d + '/doc.new', document(version), sync or version == 1)
        os.rename(d + '/doc.new', d + '/doc')
        if sync or rng.random() < 0.2:
            if not sync:
                with open(d + '/doc', 'rb') as f:
                    os.fsync(f.fileno())
            sync_dir(d)
            yield version
        yield None


def check_editor(d, lines):
    synced = int(lines[-1][0]) if lines else 0
    if not os.path.exists(d + '/doc'):
        return ['the document is gone; version %d was synced' % synced] if synced else []
    data = read_whole(d + '/doc')
    if not any(data == document(v) for v in range(max(synced, 1), synced + 60)):
        return ['the document (%d bytes) is no version from %d on' % (len(data), synced)]
    return []


def number(path):
    """Of a file that `names` has made."""
    return int(os.path.basename(path).rstrip('n')[1:])


def names(d, rng):
    """Directories, short and long names: made, renamed, removed (every third file alone), and all of it synced at times."""
    there, n = {}, 0
    while True:
        n += 1
        what = rng.random()
        if what < 0.25 or not there:
            sub = '%s/d%d%s' % (d, n, LONG if n % 2 else '')
            os.mkdir(sub)
            there[sub] = None
        elif what < 0.65:
            subs = [p for p, size in there.items() if size is None]
            path = '%s/f%d%s' % (rng.choice(subs), n, LONG if rng.random() < 0.5 else '')
            size = n * 977 % 9000
            put_synced(path, pattern(os.path.basename(path).rstrip('n'), 0, size), rng.random() < 0.3)
            there[path] = size
        elif what < 0.85:
            files = [p for p, size in there.items() if size is not None]
            if files:
                old = rng.choice(files)
                new = old[:-len(LONG)] if old.endswith(LONG) else old + LONG
                os.rename(old, new)
                there[new] = there.pop(old)
        else:
            files = [p for p, size in there.items() if size is not None and number(p) % 3 == 0]
            if files:
                os.unlink(files[0])
                del there[files[0]]
        if rng.random() < 0.15:
            sync_below(d)
            yield '|'.join('%s=%s' % (os.path.relpath(p, d).replace(LONG, 'LONG'), '' if s is None else s) for p, s in there.items())
        yield None


def check_names(d, lines):
    """What was synced may have been renamed since, and every third file removed."""
    bad = []
    for path, _, files in os.walk(d):
        for name in files:
            data = read_whole(path + '/' + name)
            wanted = pattern(name.rstrip('n'), 0, number(name) * 977 % 9000)
            if len(data) > len(wanted) or any(c and c != w for c, w in zip(data, wanted)):
                bad.append('%s/%s has what was never written' % (path, name[:20]))
    synced = [e.partition('=')[::2] for e in lines[-1][0].split('|')] if lines and lines[-1][0] else []
    for name, size in synced:
        path = '%s/%s' % (d, name.replace('LONG', LONG))
        if not size:
            if not os.path.isdir(path):
                bad.append('the directory %s was synced, and is gone' % name)
            continue
        other = path[:-len(LONG)] if path.endswith(LONG) else path + LONG
        found = [p for p in (path, other) if os.path.exists(p)]
        if not found and number(path) % 3:
            bad.append('%s was synced, and is gone' % name)
        for p in found:
            if len(read_whole(p)) != int(size):
                bad.append('%s was synced with %s bytes, and has %d' % (name, size, os.path.getsize(p)))
    return bad


def sqlite(d, rng, mode):
    """A row a transaction."""
    with contextlib.closing(sqlite3.connect(d + '/db', isolation_level=None)) as db:
        db.execute('PRAGMA journal_mode=' + mode)
        db.execute('PRAGMA synchronous=EXTRA')
        db.execute('CREATE TABLE t (n INTEGER PRIMARY KEY, data BLOB)')
        sync_dir(d)
        n = 0
        while True:
            n += 1
            db.execute('INSERT INTO t VALUES (?, ?)', (n, pattern('row', n, rng.choice(SIZES))))
            yield n
            yield None


def check_sqlite(d, lines):
    synced = int(lines[-1][0]) if lines else 0
    if not synced:
        return []
    with contextlib.closing(sqlite3.connect(d + '/db')) as db:
        verdict = db.execute('PRAGMA integrity_check').fetchall()
        rows = db.execute('SELECT n, data FROM t ORDER BY n').fetchall()
    if verdict != [('ok',)]:
        return ['SQLite says: %s' % verdict[:3]]
    if [n for n, _ in rows] != list(range(1, len(rows) + 1)) or len(rows) < synced:
        return ['the table has %d rows, %d were committed' % (len(rows), synced)]
    return ['row %d is wrong' % n for n, data in rows if data != pattern('row', n, len(data))]


def git(d, rng):
    """A commit a step."""
    def run(*args):
        p = subprocess.run([*GIT, '-C', d, *args], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if p.returncode:
            raise OSError('git: ' + p.stdout)
        return p.stdout.strip()
    run('init', '-q', '.')
    sync_below(d)  # git does not, of what it makes here
    n = 0
    while True:
        n += 1
        put_synced(d + '/f%d' % (n % 5), pattern('git', n, rng.choice(SIZES)), False)
        run('add', '-A')
        run('commit', '-q', '-m', str(n))
        sync_below(d, files=False)  # the names of what git has synced, too
        yield run('rev-parse', 'HEAD')
        yield None


def check_git(d, lines):
    if not lines:
        return []
    def run(*args):
        # Whoever verifies need not be who worked.
        return subprocess.run([*GIT, '-c', 'safe.directory=*', '-C', d, *args], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    fsck = run('fsck', '--full', '--strict')
    if fsck.returncode:
        return ['git fsck: ' + fsck.stdout[-500:]]
    if run('merge-base', '--is-ancestor', lines[-1][0], 'HEAD').returncode:
        return ['the commit %s was synced, and is not in HEAD' % lines[-1][0]]
    return []


KINDS = {
    'log': (log, check_log),
    'fixed': (fixed, check_fixed),
    'editor': (editor, check_editor),
    'hasty': (lambda d, rng: editor(d, rng, sync=False), check_editor),
    'names': (names, check_names),
    'delete': (lambda d, rng: sqlite(d, rng, 'DELETE'), check_sqlite),
    'wal': (lambda d, rng: sqlite(d, rng, 'WAL'), check_sqlite),
    'git': (git, check_git),
}


def read_whole(path):
    """Also: stat tells the size that reading gives."""
    with open(path, 'rb') as f:
        data, size = f.read(), os.fstat(f.fileno()).st_size
    if len(data) != size:
        raise Wrong('%s: stat says %d, reading gives %d' % (path, size, len(data)))
    return data


class Record:
    """Lines that were said whole: KIND WORD."""

    def __init__(self, text):
        lines = text.split('\n')[:-1]
        self.said = {kind: [l.split(' ')[1:] for l in lines if l.split(' ')[0] == kind] for kind in KINDS}

    def count(self):
        return sum(map(len, self.said.values()))

    def verify(self, directory):
        """Raises Wrong, with everything that is."""
        bad = []
        for path, dirs, files in os.walk(directory, onerror=lambda e: bad.append('cannot list: %s' % e)):
            for name in dirs + files:
                try:
                    if not os.path.islink(path + '/' + name) and name in files:
                        read_whole(path + '/' + name)
                except (OSError, Wrong) as e:
                    bad.append('cannot read: %s' % e)
        for kind, (_, check) in KINDS.items():
            d = '%s/%s' % (directory, kind)
            try:
                if os.path.isdir(d):
                    bad += ['%s: %s' % (kind, b) for b in check(d, self.said[kind])]
                elif self.said[kind]:
                    bad.append('%s: the directory is gone' % kind)
            except (OSError, Wrong, sqlite3.Error) as e:
                bad.append('%s: %s' % (kind, e))
        if bad:
            raise Wrong('\n'.join(bad[:20]))


def work(directory, seed, kinds=()):
    kinds = kinds or list(KINDS)
    rng = random.Random(seed)
    jobs = {}
    for kind in kinds:
        d = '%s/%s' % (directory, kind)
        os.mkdir(d)
        jobs[kind] = KINDS[kind][0](d, random.Random('%s %s' % (seed, kind)))
    sync_dir(directory)
    print('ready', flush=True)
    while True:
        kind = rng.choice(kinds)
        word = next(jobs[kind])
        if word is not None:
            print(kind, word, flush=True)
