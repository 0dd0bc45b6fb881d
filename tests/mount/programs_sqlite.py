#!/usr/bin/python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""SQLite on a mount: write-ahead log (a shared mapping) and rollback journals, several processes at once, the daemon killed in between."""
import os
import signal
import sqlite3

import common
from common import equal, in_child, true, wait_until


def connect(path, mode):
    db = sqlite3.connect(path, timeout=120, isolation_level=None)
    got = db.execute('pragma journal_mode=%s' % mode).fetchone()[0]
    equal('journal mode', got, mode)
    db.execute('pragma synchronous=full')
    return db


def worker(path, mode, k, rows):
    db = connect(path, mode)
    for i in range(rows):
        db.execute('begin immediate')
        db.execute('insert into t values (?, ?, ?)', (k, i, bytes([k]) * (i * 37 % 9000)))
        db.execute('update total set n = n + 1')
        if i % 10 == 9:
            db.execute('rollback')
        else:
            db.execute('commit')
        if i % 7 == 0:
            db.execute('select count(*), sum(length(data)) from t').fetchone()
    db.close()
    return rows - rows // 10


def check(path, mode, want, what):
    db = connect(path, mode)
    equal(what + ': integrity_check', db.execute('pragma integrity_check').fetchall(), [('ok',)])
    equal(what + ': rows', db.execute('select count(*) from t').fetchone()[0], want)
    equal(what + ': total', db.execute('select n from total').fetchone()[0], want)
    bad = db.execute('select count(*) from t where length(data) != i * 37 % 9000').fetchone()[0]
    equal(what + ': rows of the wrong length', bad, 0)
    db.close()


def several(env, mode, rows=60):
    from concurrent.futures import ThreadPoolExecutor
    m = env.mount()
    path = m / 'data.db'
    db = connect(path, mode)
    db.execute('create table t (k, i, data blob)')
    db.execute('create table total (n)')
    db.execute('insert into total values (0)')
    db.close()
    want = 0
    for round_ in range(2):
        with ThreadPoolExecutor(3) as pool:
            want += sum(pool.map(lambda k: in_child(worker, path, mode, k, rows), range(3)))
        check(path, mode, want, 'round %d' % round_)
        m.remount()
        check(path, mode, want, 'after remount %d' % round_)
    db = connect(path, mode)
    db.execute('delete from t where i % 2')
    db.execute('update total set n = (select count(*) from t)')
    want = db.execute('select count(*) from t').fetchone()[0]
    db.execute('vacuum')
    db.close()
    m.remount()
    check(path, mode, want, 'after vacuum')


def wal(env):
    several(env, 'wal')


def rollback(env):
    several(env, 'delete', 30)


def rollback_truncate(env):
    several(env, 'truncate', 30)


def daemon_killed(env):
    """Every transaction that was committed is there, whatever was under way when the daemon died."""
    for mode in ('wal', 'delete'):
        m = env.mount()
        path = m / 'data.db'
        db = connect(path, mode)
        db.execute('create table t (i integer primary key, data blob)')
        db.close()
        r, w = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                os.close(r)
                db = connect(path, mode)
                for i in range(100000):
                    db.execute('insert into t values (?, ?)', (i, b'x' * (i * 37 % 9000)))
                    os.write(w, b'%d\n' % i)
            finally:
                os._exit(0)
        os.close(w)
        committed = -1
        with os.fdopen(r, 'rb') as lines:
            for line in lines:
                committed = int(line)
                if committed == 40:
                    os.kill(m.pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        wait_until('the daemon is gone', lambda: not common.alive(m.pid))
        m.pid = None
        common.run([common.ECFS, 'umount', m.path])
        m.mount()
        db = connect(path, mode)
        equal(mode + ': integrity_check', db.execute('pragma integrity_check').fetchall(), [('ok',)])
        n = db.execute('select count(*) from t').fetchone()[0]
        true('%s: %d transactions were committed, %d are there' % (mode, committed + 1, n), n in (committed + 1, committed + 2))
        equal(mode + ': whole', db.execute('select count(*) from t where length(data) != i * 37 % 9000').fetchone()[0], 0)
        db.close()
        m.umount()


if __name__ == '__main__':
    common.main([wal, rollback, rollback_truncate, daemon_killed])
