#!/usr/bin/python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""The daemon is killed in the middle of work. What was synced is there after the next mount, and nothing is unreadable. A few times here;
ECFS_KILLS=100 tests/mount/kills.py is the long run."""
import os
import random
import re
import signal
import subprocess
import sys
import time

import common
import cut_work
from common import ECFS, run, true, wait_until

KILLS = int(os.environ.get('ECFS_KILLS', '6'))
SEED = int(os.environ.get('ECFS_SEED', random.SystemRandom().randrange(1 << 30)))
WORK = 'import sys; sys.path.insert(0, sys.argv[1]); import cut_work; cut_work.work(sys.argv[2], sys.argv[3], sys.argv[4:])'


def start(env, directory, seed, kinds=()):
    """The work as a process of its own; and the file that it says its lines into."""
    said = env.fresh('said')
    with open(said, 'wb') as out:
        process = subprocess.Popen([sys.executable, '-c', WORK, os.path.dirname(os.path.abspath(__file__)), directory, str(seed), *kinds], stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                                   start_new_session=True)
    wait_until('the work has begun', lambda: 'ready' in text_of(said) or process.poll() is not None, common.TIMEOUT)
    true('the work goes on: ' + text_of(said)[-2000:], process.poll() is None)
    return process, said


def text_of(path):
    with open(path, errors='replace') as f:
        return f.read()


def stop(process):
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def verify(record, directory, when):
    try:
        record.verify(directory)
    except cut_work.Wrong as e:
        raise common.Failed('%s, seed %d: %s' % (when, SEED, e))


def the_check_finds(env):
    """What a cut could do to each kind of work, done by hand."""
    d = env.filesystem('tmpfs', 300) + '/work'
    os.mkdir(d)
    process, lines = start(env, d, SEED)
    wait_until('everything has been synced', lambda: all(len(s) > 2 for s in cut_work.Record(text_of(lines)).said.values()), common.TIMEOUT)
    stop(process)
    record = cut_work.Record(text_of(lines))
    verify(record, d, 'no cut at all')

    def edit(path, offset, data):
        with open(os.path.join(d, path), 'r+b') as f:
            f.seek(offset)
            f.write(data)

    def newest_file(top):
        return max((os.path.join(p, n) for p, _, names in os.walk(os.path.join(d, top)) for n in names if cut_work.number(n) % 3), key=cut_work.number)

    synced_log = int(record.said['log'][-1][0])
    commit = record.said['git'][-1][0]
    harm = {
        'the log has': lambda: os.truncate(d + '/log/log', synced_log - 1),
        'the log is wrong at': lambda: edit('log/log', synced_log // 2, b'\0\0\0\0'),
        'block 3 has a piece of block 3': lambda: edit('fixed/fixed', cut_work.block_offset(3), cut_work.stamps(3, 10 ** 6)),
        'block 4 has a piece of block 5': lambda: edit('fixed/fixed', cut_work.block_offset(4), cut_work.stamps(5, 1)[:8]),
        'the document': lambda: os.truncate(d + '/editor/doc', 1),
        'the document is gone': lambda: os.unlink(d + '/editor/doc'),
        'has what was never written': lambda: edit(newest_file('names'), 0, b'never written'),
        'is gone': lambda: os.rename(d + '/names', d + '/moved'),
        'wal: ': lambda: edit('wal/db', 100, b'\xff' * 3000),
        'rows, ': lambda: put_database(d + '/delete/db'),
        'git': lambda: os.unlink('%s/git/.git/objects/%s/%s' % (d, commit[:2], commit[2:])),
    }
    for complaint, do in harm.items():
        saved = d + '-saved'
        run(['cp', '-a', d, saved])
        do()
        try:
            record.verify(d)
        except cut_work.Wrong as e:
            true('of "%s": %s' % (complaint, e), complaint in str(e))
        else:
            raise common.Failed('"%s": expected a complaint, got none' % complaint)
        run(['rm', '-rf', d])
        os.rename(saved, d)
    verify(record, d, 'as it was')


def put_database(path):
    import sqlite3
    with sqlite3.connect(path) as db:
        db.execute('DELETE FROM t WHERE n > 1')


def killed_at_work(env):
    """In the middle of everything that the work does."""
    rng = random.Random(SEED)
    # What the lower filesystem has is kept: it may be a fast one.
    m, said = env.mount(on=env.filesystem('tmpfs', 800)), 0
    for n in range(KILLS):
        d = m / ('round%d' % n)
        os.mkdir(d)
        process, lines = start(env, d, SEED + n)
        time.sleep(rng.uniform(0.05, 1.5))
        pid = m.pid
        os.kill(pid, signal.SIGKILL)
        record = cut_work.Record(text_of(lines))
        wait_until('the work is told', lambda: process.poll() is not None)
        true('by an errno: ' + text_of(lines)[-1000:], re.search('OSError|ConnectionAbortedError|sqlite3|CalledProcessError', text_of(lines)))
        stop(process)
        if n % 2:
            # The next mount clears the dead one away.
            shown = run([ECFS, 'status', m.path], ok=None)
            true('status names it: ' + shown.stdout, shown.returncode != 0 and 'dead' in shown.stdout)
        else:
            run([ECFS, 'umount', m.path])
        m.pid = None
        m.mount()
        verify(record, d, 'killed, round %d' % n)
        said += record.count()
    print('  %d kills, %d things said to be synced, seed %d' % (KILLS, said, SEED))
    m.umount()


if __name__ == '__main__':
    common.main([the_check_finds, killed_at_work], limit=3000)
