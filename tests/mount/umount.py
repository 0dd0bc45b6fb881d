#!/usr/bin/python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""How a mount begins and ends: unmounting, signals, work under way, a daemon killed at any step, odd paths."""
import contextlib
import json
import os
import random
import re
import signal
import subprocess

import common
from common import ECFS, ECFSD, equal, get, gives, need_program, need_root, put, run, same_bytes, true, wait_until


def sockets():
    d = '/run/ecfs' if os.geteuid() == 0 else '/run/user/%d/ecfs' % os.geteuid()
    with contextlib.suppress(FileNotFoundError):
        return {os.path.join(d, x) for x in os.listdir(d)}
    return set()


EARLIER = sockets()  # what other, killed, daemons have left there


def ended(m, pid):
    wait_until('unmounted', lambda: not common.mounted(m.path))
    wait_until('the daemon is gone', lambda: not common.alive(pid))
    gives('the session marker is gone', 'ENOENT', os.stat, m.lower + '/ecfs.session')
    equal('no dead socket is left in /run', sorted(x for x in sockets() - EARLIER if not listened(x)), [])
    m.pid = None


def listened(path):
    import socket
    s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    s.setblocking(False)
    try:
        s.connect(path)
    except (ConnectionRefusedError, FileNotFoundError):
        return not os.path.exists(path)
    except BlockingIOError:
        pass
    finally:
        s.close()
    return True


def unmounting(env):
    m = env.mount()
    for how in ('ecfs umount', 'umount'):
        true('the marker is there', b'"running": true' in get(m.lower + '/ecfs.session'))
        put(m / 'f', b'dirty' * 100000)
        fd = os.open(m / 'f', os.O_RDWR)
        os.pwrite(fd, b'DIRTY', 5)
        os.close(fd)
        pid = m.pid
        run(how.replace('ecfs ', ECFS + ' ').split() + [m.path])
        ended(m, pid)
        m.mount()
        same_bytes(how, get(m / 'f'), b'dirtyDIRTY' + b'dirty' * 99998)
    m.umount()
    p = run([ECFS, 'umount', m.path], ok=None)
    true('a second time: %s' % p.stdout, p.returncode != 0 and 'nothing is mounted' in p.stdout)


def many_times(env):
    m = env.mount()
    for i in range(25):
        put(m / ('f%d' % i), b'%d' % i * 1000)
        m.remount()
        equal('round %d' % i, len(os.listdir(m.path)), i + 1)
    for i in range(25):
        equal('file %d' % i, get(m / ('f%d' % i)), b'%d' % i * 1000)


def signals(env):
    m = env.mount()
    for s in (signal.SIGTERM, signal.SIGINT):
        # Dirty through a mapping, and through write, with the descriptors closed.
        put(m / 'f', b'0' * 3000000)
        with open(m / 'f', 'r+b') as f:
            f.seek(1234567)
            f.write(b'just before')
        pid = m.pid
        os.kill(pid, s)
        ended(m, pid)
        m.mount()
        want = bytearray(b'0' * 3000000)
        want[1234567:1234578] = b'just before'
        same_bytes('after %s' % s.name, get(m / 'f'), bytes(want))
    # SIGHUP opens the log anew.
    os.rename(m.log, m.log + '.1')
    os.kill(m.pid, signal.SIGHUP)
    wait_until('a new log', lambda: os.path.exists(m.log))
    put(m / 'g', b'after SIGHUP')
    equal('it goes on', get(m / 'g'), b'after SIGHUP')


def busy(env):
    m = env.mount()
    fd = os.open(m / 'f', os.O_RDWR | os.O_CREAT)
    os.write(fd, b'dirty' * 1000)
    p = run([ECFS, 'umount', m.path], ok=None)
    true('refused, naming who holds it: %s' % p.stdout, p.returncode != 0 and str(os.getpid()) in p.stdout)
    true('still mounted', common.mounted(m.path))
    pid = m.pid
    os.kill(pid, signal.SIGTERM)  # detached: ends with its last user
    wait_until('out of sight', lambda: not common.mounted(m.path))
    true('the daemon still serves', common.alive(pid))
    os.pwrite(fd, b'late', 4000)
    equal('reading on', os.pread(fd, 4, 4000), b'late')
    os.fsync(fd)
    os.close(fd)
    ended(m, pid)
    m.mount()
    same_bytes('what was written while it ended', get(m / 'f'), (b'dirty' * 1000)[:4000] + b'late' + (b'dirty' * 1000)[4004:])
    # --lazy, the same by command.
    fd = os.open(m / 'f', os.O_RDWR)
    pid = m.pid
    run([ECFS, 'umount', '--lazy', m.path])
    true('out of sight, daemon alive', not common.mounted(m.path) and common.alive(pid))
    os.pwrite(fd, b'LAZY', 0)
    p = m.mount(ok=None)
    true('a second mount while the first still writes is refused: %s' % p.stdout, p.returncode != 0 and str(pid) in p.stdout)
    os.close(fd)
    wait_until('the daemon has ended', lambda: not common.alive(pid))
    m.mount()
    equal('lazily written', get(m / 'f')[:4], b'LAZY')
    # --force cuts it off.
    fd = os.open(m / 'f', os.O_RDWR)
    pid = m.pid
    run([ECFS, 'umount', '--force', m.path])
    true('out of sight', not common.mounted(m.path))
    got = common.outcome(lambda: [os.pwrite(fd, b'lost', 0), os.fsync(fd)])
    true('the descriptor is dead: %s' % got, got in ('ENOTCONN', 'ECONNABORTED', 'EIO'))
    with contextlib.suppress(OSError):
        os.close(fd)
    wait_until('the daemon has ended', lambda: not common.alive(pid))
    m.pid = None
    m.mount()
    equal('afterwards', get(m / 'f')[:4], b'LAZY')


def busy_in_work(env):
    """SIGTERM in the middle of writers: what they synced is there, the daemon ends when they do."""
    m = env.mount()
    children = []
    for k in range(3):
        r, w = os.pipe()
        pid = os.fork()
        if pid == 0:
            with contextlib.suppress(OSError):
                os.chdir(m.path)
                for i in range(100000):
                    with open('w%d-%d' % (k, i), 'wb') as f:
                        f.write(b'%d' % i * 2000)
                        f.flush()
                        os.fsync(f.fileno())
                    os.write(w, b'%d\n' % i)
            os._exit(0)
        os.close(w)
        children.append((pid, os.fdopen(r, 'rb')))
    for _, pipe in children:
        for _ in range(10):
            pipe.readline()
    daemon = m.pid
    os.kill(daemon, signal.SIGTERM)
    wait_until('out of sight', lambda: not common.mounted(m.path))
    last = []
    for pid, pipe in children:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        last.append(int((pipe.read().split() or [b'9'])[-1]))
        pipe.close()
    ended(m, daemon)
    m.mount()
    for k, n in enumerate(last):
        for i in range(n + 1):
            same_bytes('writer %d file %d' % (k, i), get(m / ('w%d-%d' % (k, i))), b'%d' % i * 2000)


def second_mount(env):
    m = env.mount()
    other = env.mount(lower=m.lower, ok=None)
    true('refused with the holder\'s pid: %s' % other.output, other.pid is None and str(m.pid) in other.output)
    equal('its exit code', run([ECFS, 'mount', '--passfile', env.passfile, m.lower, other.path], ok=None).returncode, 12)
    put(m / 'f', b'1')
    # Read-only beside it is allowed, and sees what was written.
    os.sync()
    other = env.mount(lower=m.lower, options='ro')
    equal('a reader beside the writer', get(other / 'f'), b'1')
    gives('it does not write', 'EROFS', put, other / 'f')
    other.umount()
    # The same mount point again.
    p = run([ECFS, 'mount', '--passfile', env.passfile, m.lower, m.path], ok=None)
    true('mounted already: %s' % p.stdout, p.returncode != 0 and 'already' in p.stdout)
    run([ECFS, 'mount', '--if-needed', '--passfile', env.passfile, m.lower, m.path])
    equal('still the one', m.status()['pid'], m.pid)


def shapes(env):
    """The lower directory relative, as a symlink, and mounted over itself."""
    m = env.mount()
    put(m / 'f', b'1')
    m.umount()
    base = env.directory()
    os.symlink(m.lower, base + '/link')
    mnt = base + '/mnt'

    def mount(lower, at, cwd=None):
        run([ECFS, 'mount', '--passfile', env.passfile, lower, at], cwd=cwd)

    def check(at):
        equal('content', get(at + '/f'), b'1')
        run([ECFS, 'umount', at])
        true('unmounted', not common.mounted(at))
    mount('./link', 'mnt', cwd=base)
    check(mnt)
    mount(os.path.relpath(m.lower, base), '../' + os.path.basename(base) + '/mnt/', cwd=base)
    check(mnt)
    os.symlink(mnt, base + '/mountlink')
    mount(m.lower + '/', base + '/mountlink')
    check(mnt)
    mount(m.lower, m.lower)
    equal('over itself', (get(m.lower + '/f'), os.listdir(m.lower)), (b'1', ['f']))
    put(m.lower + '/g', b'2')
    check(m.lower)
    true('the lower directory is to be seen again', 'ecfs.volume' in os.listdir(m.lower))
    mount(m.lower, m.lower)
    equal('again', get(m.lower + '/g'), b'2')
    check(m.lower)
    # ecfs-mount M: dirname(M)/.basename(M); the mount point is made when it is not there.
    os.rename(m.lower, base + '/.private')
    os.symlink(ECFS, base + '/ecfs-mount')
    run([base + '/ecfs-mount', '--passfile', env.passfile, base + '/private'])
    check(base + '/private')
    for mnt, why in ((base + '/.private/x', 'inside the lower directory'), (base, 'around it'), (base + '/.private/ecfs.volume', 'a file')):
        p = run([ECFS, 'mount', '--passfile', env.passfile, base + '/.private', mnt], ok=None)
        true('%s is refused: %s' % (why, p.stdout), p.returncode != 0 and not common.mounted(mnt))


def paths(env):
    odd = ['com,ma', 'co:lon', 'sp ace', 'back\\slash', 'new\nline', 'quo"te\'s', '-dash', 'percent%s', 'ümlaut', 'tab\t', 'a=b', '\\054', '#hash', 'octal\\040']
    base = env.directory()
    for name in odd:
        top = os.path.join(base, name)
        os.mkdir(top)
        lower, mnt = os.path.join(top, 'low ' + name), os.path.join(top, name)
        run([ECFS, 'init', '--kdf-time', '1', '--no-recovery', '--passfile', env.passfile, lower])
        os.mkdir(mnt)
        run([ECFS, 'mount', '--passfile', env.passfile, lower, mnt])
        true('%r is mounted' % name, common.mounted(mnt))
        put(os.path.join(mnt, name), name.encode())
        equal('%r: content' % name, get(os.path.join(mnt, name)), name.encode())
        j = json.loads(run([ECFS, 'status', '--json', mnt]).stdout)
        equal('%r: the status' % name, (j['lower'], j['mount']), (lower, mnt))
        equal('%r: the source' % name, [s for t, _, s in common.mounts() if t == mnt], [lower])
        run([ECFS, 'umount', mnt])
        true('%r is unmounted' % name, not common.mounted(mnt))
        run([ECFS, 'mount', '--passfile', env.passfile, '--', './low ' + name, './' + name], cwd=top)
        equal('%r: relative' % name, get(os.path.join(mnt, name)), name.encode())
        run([ECFS, 'umount', './' + name], cwd=top)


def substitution(env):
    """`out=$(ecfs-mount ... </dev/null)` returns: nothing inherited stays open. And fails when it fails."""
    m = env.mount()
    m.umount()
    script = 'out=$(%s mount --passfile "$1" "$2" "$3" </dev/null 2>&1); code=$?; echo "code $code [$out]"' % ECFS
    p = run(['sh', '-c', script, 'sh', env.passfile, m.lower, m.path], timeout=120)
    equal('output', p.stdout, 'code 0 []\n')
    true('mounted', common.mounted(m.path))
    pid = m.status()['pid']
    m.pid = pid
    if os.geteuid() == 0:  # nobody else may look at it
        open_ = {os.readlink('/proc/%d/fd/%s' % (pid, fd)) for fd in os.listdir('/proc/%d/fd' % pid)}
        true('no pipe of the caller\'s is open: %s' % open_, not any(x.startswith('pipe:') for x in open_))
        equal('working directory', os.readlink('/proc/%d/cwd' % pid), '/')
    # A descriptor that the caller leaves open.
    m.umount()
    r, w = os.pipe()
    os.set_inheritable(w, True)
    run([ECFS, 'mount', '--passfile', env.passfile, m.lower, m.path], close_fds=False)
    m.pid = m.status()['pid']
    os.close(w)
    equal('the pipe has ended', os.read(r, 1), b'')
    os.close(r)
    p = run(['sh', '-c', script, 'sh', '/nonexistent', m.lower, m.path + 'x'], timeout=120)
    true('a failure: %s' % p.stdout, re.match(r'code [1-9]', p.stdout))


def dead_mount(env):
    m = env.mount()
    put(m / 'f', b'1')
    os.sync()
    os.kill(m.pid, signal.SIGKILL)
    wait_until('dead', lambda: not common.alive(m.pid))
    p = run([ECFS, 'status', m.path], ok=None)
    true('status of a dead mount fails: %s' % p.stdout, p.returncode != 0)
    run([ECFS, 'umount', m.path])
    true('cleared', not common.mounted(m.path))
    m.mount()
    equal('content', get(m / 'f'), b'1')
    os.kill(m.pid, signal.SIGKILL)
    wait_until('dead', lambda: not common.alive(m.pid))
    m.mount()  # replaced
    equal('one mount, not two', sum(t == m.path for t, _, _ in common.mounts()), 1)
    equal('content', get(m / 'f'), b'1')


def killed_at_every_step(env):
    """The daemon, and the command, killed at their n-th system call for a sample of n: nothing is mounted for ever, and the volume is whole."""
    need_root()  # fusermount3 is not set-uid under strace
    need_program('strace')
    m = env.mount()
    put(m / 'f', b'1')
    m.umount()
    trace = env.path('trace')
    argv = [ECFS, 'mount', '--passfile', env.passfile, m.lower, m.path]

    def steps():
        """(name of a system call, how often that process or thread has made it by then), of all that a mount takes."""
        p = subprocess.Popen(['strace', '-f', '-qq', '-o', trace, *argv], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_until('mounted under strace', lambda: common.mounted(m.path) and run([ECFS, 'status', m.path], ok=None).returncode == 0)
        with open(trace, errors='replace') as f:
            lines = f.read().splitlines()
        run([ECFS, 'umount', m.path])
        p.wait(60)
        seen, out = {}, {}
        for line in lines:
            if call := re.match(r'(\d+) +(\w+)\(', line):
                seen[call.groups()] = n = seen.get(call.groups(), 0) + 1
                out[call.group(2), n] = True
        return len(lines), list(out)
    if subprocess.run(['strace', '-qq', '-o', '/dev/null', 'true']).returncode:
        raise common.Skip('strace may not trace here')
    total, pairs = steps()
    r = random.Random(int(os.environ.get('ECFS_SEED', '1')))
    # What changes something outside is taken whole, of the rest a sample; all of it with ECFS_STEPS=all.
    telling = {'mount', 'fsync', 'renameat2', 'renameat', 'rename', 'unlinkat', 'flock', 'clone', 'clone3', 'vfork', 'execve', 'write', 'pwrite64', 'bind', 'writev',
               'mkdir', 'mkdirat', 'ioctl', 'setsid', 'umount2'}
    must = [x for x in pairs if x[0] in telling]
    rest = [x for x in pairs if x[0] not in telling and not x[0].startswith('exit')]
    if os.environ.get('ECFS_STEPS') != 'all':
        must, rest = r.sample(must, min(len(must), 45)), r.sample(rest, min(len(rest), 25))
    picked = must + rest
    print('  a mount makes %d system calls, which are %d kinds of step; of these %d' % (total, len(pairs), len(picked)))
    reached = 0
    for names, n in picked:
        label = 'killed at call %d of %s' % (n, names)
        p = subprocess.Popen(['strace', '-f', '-qq', '-o', trace, '-e', 'trace=' + names, '-e', 'inject=%s:signal=KILL:when=%d' % (names, n), *argv],
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL, start_new_session=True)

        def over():
            # Either something was killed and all ended, or the call never came and the mount stands.
            if p.poll() is not None:
                return True
            return common.mounted(m.path) and run([ECFS, 'status', m.path], ok=None, timeout=30).returncode == 0
        wait_until(label + ': comes to an end', over)
        with open(trace, errors='replace') as f:
            reached += 'killed by SIGKILL' in f.read()
        if common.mounted(m.path):
            # A mount that stands, or a dead one: the command clears either.
            run([ECFS, 'umount', m.path])
        true(label + ': nothing stays mounted', not common.mounted(m.path))
        wait_until(label + ': no daemon stays', lambda: p.poll() is not None and not common.processes_naming(m.lower))
        p.wait(60)
        run(argv)
        equal(label + ': the volume reads', get(m / 'f'), b'1')
        put(m / 'f', b'1')
        run([ECFS, 'umount', m.path])
        left = sorted(set(os.listdir(m.lower)) - {'ecfs.volume', 'ecfs.dir', 'ecfs.session'})
        equal(label + ': one file below, and nothing that was not there', len(left), 1)
    print('  %d of %d were killed' % (reached, len(picked)))
    true('nearly all of the samples were reached', reached * 10 > len(picked) * 8)


def stopped_while_mounting(env):
    """SIGTERM and SIGINT to the command that mounts: nothing is mounted afterwards."""
    need_root()  # fusermount3 is not set-uid under strace
    need_program('strace')
    m = env.mount()
    put(m / 'f', b'1')
    m.umount()
    argv = [ECFS, 'mount', '--passfile', env.passfile, m.lower, m.path]
    for s in ('TERM', 'INT'):
        for call, n in (('poll', 1), ('pipe2', 1), ('pipe2', 2), ('openat', 10)):
            p = subprocess.Popen(['strace', '-qq', '-o', env.path('trace'), '-e', 'trace=' + call, '-e', 'inject=%s:signal=%s:when=%d' % (call, s, n),
                                  *argv], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True)
            out, _ = p.communicate(timeout=120)
            label = 'SIG%s at %s %d' % (s, call, n)
            if p.returncode == 0:  # it came too late, or not at all
                run([ECFS, 'umount', m.path])
                continue
            wait_until('%s: nothing is mounted: %s' % (label, out), lambda: not common.mounted(m.path))
            wait_until('%s: no daemon stays' % label, lambda: not common.processes_naming(m.lower))
            gives(label + ': no marker', 'ENOENT', os.stat, m.lower + '/ecfs.session')
    m.mount()
    equal('the volume reads', get(m / 'f'), b'1')


def without_help(env):
    """ecfsd by itself: refuses what it is not given, and leaves nothing."""
    m = env.mount()
    m.umount()
    for argv in ([ECFSD], [ECFSD, m.lower, m.path], [ECFSD, '--key-fd', '99', '--', m.lower, m.path], [ECFSD, '--key-fd', '0', '--', m.lower, m.path]):
        p = run(argv, ok=None, timeout=60)
        true('%s: refused: %d %s' % (argv, p.returncode, p.stdout), p.returncode not in (0,) and p.returncode < 128)
        true('nothing is mounted', not common.mounted(m.path))
        gives('no marker', 'ENOENT', os.stat, m.lower + '/ecfs.session')


if __name__ == '__main__':
    common.main([unmounting, many_times, signals, busy, busy_in_work, second_mount, shapes, paths, substitution, dead_mount,
                 killed_at_every_step, stopped_while_mounting, without_help])
