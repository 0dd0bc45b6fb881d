# SPDX-License-Identifier: GPL-3.0-or-later
"""Harness of the mounted tests.

A script is a list of cases, functions that take an Env, and ends with `common.main(cases)`. The script's process forks: the
child runs the cases, the parent waits and then cleans up by what is really there - mounts below the temporary directory, daemons
that serve them, loop devices over files in it, the users that were made - so that a case that fails, hangs in a dead mount or is
killed leaves nothing behind. SIGTERM and SIGINT to the parent end the child and clean up just so.

ECFS_BUILD is the build directory, ECFS_SRC the source's. Arguments choose cases by name; --keep leaves the directory's files.
Exit 0: passed, 1: failed, 77: every case was skipped, each with its reason.
"""
import atexit
import contextlib
import ctypes
import errno
import fcntl
import json
import os
import pickle
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback

SRC = os.environ.get('ECFS_SRC') or os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get('ECFS_BUILD') or os.path.join(SRC, 'build')


def reachable_build(build):
    """The build directory, or, where other users cannot get at it (a clone below /root), a copy of the programs that they can."""
    at = os.path.abspath(build)
    while os.stat(at).st_mode & 0o001 and at != '/':
        at = os.path.dirname(at)
    if at == '/' or os.geteuid() != 0:
        return build
    copy = tempfile.mkdtemp(prefix='ecfs-build-')
    atexit.register(shutil.rmtree, copy, True)  # children leave by os._exit, and do not come by here
    os.chmod(copy, 0o755)
    for program in ('ecfsd', 'tools/ecfs/ecfs', 'tests/compare-trees'):
        os.makedirs(os.path.join(copy, os.path.dirname(program)), exist_ok=True)
        with contextlib.suppress(FileNotFoundError):  # main() says what is missing
            shutil.copy2(os.path.join(build, program), os.path.join(copy, program))
    return copy


BUILD = reachable_build(BUILD)
ECFS = os.path.join(BUILD, 'tools', 'ecfs', 'ecfs')
ECFSD = os.path.join(BUILD, 'ecfsd')
PASSPHRASE = b'correct horse battery staple\n'
PAGE, FIRST, PAYLOAD = 4096, 3936, 4064  # a lower page; what block 0 and the others hold (docs/FORMAT.md)
TIMEOUT = 300  # of anything that can hang: generous, since it decides nothing but when to give up


class Failed(Exception):
    pass


class Skip(Exception):
    pass


# ---- checks: functions, since python -O drops assert ------------------------------------------------------------------------

def short(x):
    text = repr(x)
    return text if len(text) < 600 else text[:400] + ' ... ' + text[-150:] + ' (%d characters)' % len(text)


def equal(what, got, want):
    if got != want:
        raise Failed('%s: expected %s, got %s' % (what, short(want), short(got)))


def true(what, got):
    if not got:
        raise Failed('%s: expected it to hold, got %s' % (what, short(got)))


def at_most(what, got, limit):
    if not got <= limit:
        raise Failed('%s: expected at most %s, got %s' % (what, limit, got))


def same_bytes(what, got, want):
    if got == want:
        return
    n = next((i for i, (a, b) in enumerate(zip(got, want)) if a != b), min(len(got), len(want)))
    raise Failed('%s: expected %d bytes, got %d; first difference at %d: expected %s, got %s'
                 % (what, len(want), len(got), n, short(bytes(want[n:n + 16])), short(bytes(got[n:n + 16]))))


def errno_name(e):
    return 'EOPNOTSUPP' if e.errno == errno.EOPNOTSUPP else errno.errorcode.get(e.errno, str(e.errno))


def outcome(f, *args, **kw):
    """'OK', or the name of the errno that it failed with."""
    try:
        f(*args, **kw)
    except OSError as e:
        return errno_name(e)
    return 'OK'


def gives(what, want, f, *args, **kw):
    equal(what, outcome(f, *args, **kw), want)


def put(path, data=b''):
    with open(path, 'wb') as f:
        f.write(data)


def get(path):
    with open(path, 'rb') as f:
        return f.read()


def data_of(n, salt=1):
    """n bytes that depend on n and salt alone."""
    return random.Random(n * 31 + salt).randbytes(n)


def wait_until(what, condition, timeout=60):
    """Polls. Only a state that never comes fails."""
    end = time.monotonic() + timeout
    pause = 0.002
    while True:
        got = condition()
        if got:
            return got
        if time.monotonic() > end:
            raise Failed('%s: expected within %d s, did not come about' % (what, timeout))
        time.sleep(pause)
        pause = min(pause * 1.5, 0.2)


# ---- processes --------------------------------------------------------------------------------------------------------------

def run(argv, ok=(0,), user=None, timeout=TIMEOUT, **kw):
    """Runs to the end; its CompletedProcess, with text. `ok`: expected exit codes, None for any."""
    kw.setdefault('stdin', subprocess.DEVNULL)
    kw.setdefault('stdout', subprocess.PIPE)
    kw.setdefault('stderr', subprocess.STDOUT)
    if 'input' in kw:
        kw.pop('stdin')
    if user:
        cwd = kw.pop('cwd', None) or '/'

        def become():
            user.become()
            os.chdir(cwd)  # only now: root may not enter a user's mount
        kw['preexec_fn'] = become
        kw['env'] = dict(kw.get('env') or os.environ, HOME='/nonexistent', USER=user.name, LOGNAME=user.name)
    try:
        p = subprocess.run([os.fspath(a) for a in argv], timeout=timeout, errors='surrogateescape', **kw)
    except subprocess.TimeoutExpired as e:
        raise Failed('%s: expected to end within %d s, still running; output: %s' % (argv, timeout, short(e.output)))
    if ok is not None and p.returncode not in ok:
        raise Failed('%s: expected exit %s, got %d with output:\n%s' % (argv, ok, p.returncode, (p.stdout or '')[-4000:]))
    return p


def need_program(*names):
    for n in names:
        if not shutil.which(n):
            raise Skip('%s is not installed' % n)


def need_root():
    if os.geteuid() != 0:
        raise Skip('needs root')


def in_child(f, *args, before=lambda: None):
    """f(*args) in a forked process; its value, or its exception raised here."""
    r, w = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.close(r)
            try:
                before()
                answer = (True, f(*args))
            except BaseException as e:
                answer = (False, e if isinstance(e, (OSError, Failed, Skip)) else Failed(traceback.format_exc()))
            with os.fdopen(w, 'wb') as out:
                pickle.dump(answer, out)
            code = 0
        finally:
            os._exit(code)
    os.close(w)
    with os.fdopen(r, 'rb') as f_in:
        data = f_in.read()
    _, status = os.waitpid(pid, 0)
    if not data:
        raise Failed('a child process died with status %#x' % status)
    good, value = pickle.loads(data)
    if not good:
        raise value
    return value


def alive(pid):
    try:
        with open('/proc/%d/stat' % pid) as f:
            return f.read().rsplit(')', 1)[1].split()[0] not in 'ZX'
    except (FileNotFoundError, ProcessLookupError):
        return False


# A lock that all scripts share: drop_caches is the whole machine's, and would disturb another script's message counts.
_caches_lock = None


def hold_caches():
    global _caches_lock
    if _caches_lock is None:
        # The tests' own directory: a lock that leaves no file behind.
        _caches_lock = os.open(os.path.dirname(os.path.abspath(__file__)), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    fcntl.flock(_caches_lock, fcntl.LOCK_EX)


def drop_caches(what=3):
    need_root()
    held = _caches_lock is not None
    if not held:
        hold_caches()
    try:
        with open('/proc/sys/vm/drop_caches', 'w') as f:
            f.write('%d\n' % what)
    finally:
        if not held:
            release_caches()


def release_caches():
    global _caches_lock
    if _caches_lock is not None:
        os.close(_caches_lock)
        _caches_lock = None


# ---- what the machine has now -----------------------------------------------------------------------------------------------

def mounts():
    """(target, type, source) in the order of mounting."""
    out = []
    with open('/proc/self/mountinfo', encoding='utf-8', errors='surrogateescape') as f:
        for line in f:
            head, tail = line.rstrip('\n').split(' - ', 1)
            unescape = lambda s: re.sub(r'\\([0-7]{3})', lambda m: chr(int(m.group(1), 8)), s)
            fields = tail.split(' ')
            out.append((unescape(head.split(' ')[4]), fields[0], unescape(fields[1])))
    return out


def mounted(path):
    return any(target == str(path) for target, _, _ in mounts())


def processes_naming(path):
    """Pids of processes that name something below `path` in their arguments."""
    out = []
    needle = os.fsencode(path)
    for p in os.listdir('/proc'):
        if not p.isdigit() or int(p) == os.getpid():
            continue
        try:
            with open('/proc/%s/cmdline' % p, 'rb') as f:
                if needle in f.read():
                    out.append(int(p))
        except OSError:
            pass
    return out


# ---- the environment of one case --------------------------------------------------------------------------------------------

class User:
    def __init__(self, name):
        import pwd
        entry = pwd.getpwnam(name)
        self.name, self.uid, self.gid = name, entry.pw_uid, entry.pw_gid

    def become(self, groups=()):
        os.setgroups([self.gid, *groups])
        os.setresgid(self.gid, self.gid, self.gid)
        os.setresuid(self.uid, self.uid, self.uid)

    def call(self, f, *args, groups=()):
        """f(*args) as this user."""
        return in_child(f, *args, before=lambda: self.become(groups))


class Mount:
    def __init__(self, env, lower, path, options, user, nofile, extra):
        self.env, self.lower, self.path = env, lower, path
        self.options, self.user, self.nofile, self.extra = options, user, nofile, extra
        self.pid = None

    def __truediv__(self, name):
        return os.path.join(self.path, name)

    def mount(self, ok=(0,)):
        argv = ['prlimit', '--nofile=%d:%d' % (self.nofile, self.nofile)] if self.nofile else []
        argv += [ECFS, 'mount', '--passfile', self.env.passfile, '--log', self.log]
        if self.options:
            argv += ['-o', self.options]
        p = run(argv + list(self.extra) + [self.lower, self.path], ok=ok, user=self.user)
        self.output = p.stdout
        if p.returncode == 0:
            self.pid = self.status()['pid']
        return p

    @property
    def log(self):
        return self.path + '.log'

    def log_text(self):
        try:
            with open(self.log, errors='replace') as f:
                return f.read()
        except FileNotFoundError:
            return ''

    def status(self):
        return json.loads(run([ECFS, 'status', '--json', self.path], user=self.user).stdout)

    def messages(self):
        """Counts by message. Forgets come when the kernel likes, and are left out."""
        return {k: v['count'] for k, v in self.status()['messages'].items() if k not in ('FORGET', 'BATCH_FORGET', 'INIT')}

    def counted(self, f, *args, **kw):
        """f(), and the messages that it caused."""
        before = self.messages()
        value = f(*args, **kw)
        after = self.messages()
        return value, {k: n - before.get(k, 0) for k, n in after.items() if n != before.get(k, 0)}

    def umount(self):
        run([ECFS, 'umount', self.path], user=self.user)
        pid, self.pid = self.pid, None
        wait_until('the daemon is gone after umount', lambda: not alive(pid))

    def remount(self, **changes):
        if self.pid:
            self.umount()
        for k, v in changes.items():
            setattr(self, k, v)
        self.mount()
        return self

    def kill(self):
        """The daemon dies; the dead mount is cleared."""
        os.kill(self.pid, signal.SIGKILL)
        wait_until('the killed daemon is gone', lambda: not alive(self.pid))
        self.pid = None
        run([ECFS, 'umount', self.path], user=self.user)

    def lower_path(self, path):
        """The lower path of a path in the mount, as the daemon tells it."""
        out = run([ECFS, 'name', self.path, path if os.path.isabs(path) else self / path], user=self.user).stdout
        return os.path.join(self.lower, out.rstrip('\n'))

    def rss(self):
        """Bytes."""
        with open('/proc/%d/status' % self.pid) as f:
            return int(re.search(r'VmRSS:\s+(\d+) kB', f.read()).group(1)) * 1024


def processes_of(uid):
    """Pids of the processes that run as `uid`."""
    out = []
    for p in filter(str.isdigit, os.listdir('/proc')):
        with contextlib.suppress(OSError):
            if os.stat('/proc/' + p).st_uid == uid:
                out.append(int(p))
    return out


def unused_uid():
    """From the part of the range that systemd leaves free (UIDS-GIDS): above the containers', below 2^31."""
    import pwd
    while True:
        uid = random.SystemRandom().randrange(1_900_000_000, 2_100_000_000)
        try:
            pwd.getpwuid(uid)
        except KeyError:
            if not processes_of(uid):
                return uid


class Env:
    def __init__(self, top, name):
        self.top = os.path.join(top, name)
        os.mkdir(self.top, 0o755)
        self.users_file = os.path.join(top, 'users')
        self.passfile = os.path.join(top, 'passfile')
        self.number = 0
        self.all = []

    def path(self, name):
        return os.path.join(self.top, name)

    def fresh(self, prefix):
        self.number += 1
        return self.path('%s%d' % (prefix, self.number))

    def user(self):
        """A throwaway user, who may use /dev/fuse."""
        need_root()
        need_program('useradd', 'userdel', 'fusermount3')
        with open(self.users_file, 'a+') as f:
            f.seek(0)
            name = 'ecfst%d%s' % (os.getpid(), 'abcdefghijkl'[len(f.read().split())])
            f.write(name + '\n')
        # A number that nobody has, here or in a container beside us: cleaning up kills by it. -l: lastlog would grow to it.
        run(['useradd', '-M', '-N', '-l', '-u', str(unused_uid()), '-d', '/nonexistent', '-s', '/bin/sh', '-K', 'MAIL_DIR=/nonexistent', name])
        if os.stat('/dev/fuse').st_mode & 0o006 != 0o006:
            os.chmod('/dev/fuse', 0o666)  # as udev does it; not undone, other scripts may be running
        return User(name)

    def directory(self, name=None, owner=None, mode=0o755):
        path = self.path(name) if name else self.fresh('dir')
        os.mkdir(path)
        os.chmod(path, mode)
        if owner:
            os.chown(path, owner.uid, owner.gid)
        return path

    def filesystem(self, kind, mb, options=None, mkfs=()):
        """The path of a new filesystem on a loop device; its image is at path + '.img'."""
        need_root()
        path = self.directory()
        if kind == 'tmpfs':
            self.mount_it('tmpfs', path, 'tmpfs', 'size=%dm' % mb)
            return path
        need_program('losetup', 'mkfs.' + kind)
        image = path + '.img'
        with open(image, 'wb') as f:
            f.truncate(mb << 20)
        quiet = {'ext4': ['-q', '-F'], 'xfs': ['-q', '-f'], 'btrfs': ['-q', '-f']}[kind]
        run(['mkfs.' + kind, *quiet, *mkfs, image])
        self.mount_image(image, path, kind, options)
        return path

    def mount_image(self, image, path, kind, options=None):
        p = run(['losetup', '-f', '--show', *(['-r'] if options and 'ro' in options.split(',') else []), image], ok=None)
        if p.returncode:
            raise Skip('no loop device: ' + p.stdout.strip())
        self.mount_it(p.stdout.strip(), path, kind, options)

    def mount_it(self, source, path, kind, options):
        p = run(['mount', '-t', kind, *(['-o', options] if options else []), source, path], ok=None)
        if p.returncode:
            if source.startswith('/dev/loop'):
                run(['losetup', '-d', source], ok=None)
            if re.search('unknown filesystem|not supported', p.stdout):
                raise Skip('no %s here: %s' % (kind, p.stdout.strip()))
            raise Failed('mount %s: %s' % (kind, p.stdout))

    def release(self, path):
        """Unmounts a filesystem() and gives its loop device back."""
        source = [s for t, _, s in mounts() if t == path][-1]
        run(['umount', path])
        if source.startswith('/dev/loop'):
            run(['losetup', '-d', source])

    def lower(self, on=None, owner=None, **init):
        """A new volume: names='plain', cipher=..."""
        lower = os.path.join(on, 'lower') if on else self.fresh('lower')
        os.mkdir(lower, 0o755)
        if owner:
            os.chown(lower, owner.uid, owner.gid)
        run([ECFS, 'init', '--kdf-time', '1', '--no-recovery', '--passfile', self.passfile,
             *('--%s=%s' % kv for kv in init.items()), lower], user=owner)
        return lower

    def mount(self, lower=None, options='', user=None, nofile=None, on=None, extra=(), ok=(0,), path=None, **init):
        """A volume, made when none is given, mounted."""
        if not os.path.exists('/dev/fuse'):
            raise Skip('there is no /dev/fuse')
        if lower is None:
            lower = self.lower(on, user, **init)
        if path is None:
            # In a directory of its own, where a user may write the log.
            base = self.directory(owner=user)
            path = os.path.join(base, 'mnt')
            os.mkdir(path)
            if user:
                os.chown(path, user.uid, user.gid)
        m = Mount(self, lower, path, options, user, nofile, extra)
        self.all.append(m)
        m.mount(ok=ok)
        return m


# ---- sanitizers -------------------------------------------------------------------------------------------------------------

SANITIZERS = {b'__asan_init': 'ASAN_OPTIONS', b'__ubsan_handle': 'UBSAN_OPTIONS', b'__tsan_init': 'TSAN_OPTIONS'}


def catch_reports(top):
    """A daemon in the background has nobody to tell: what a sanitizer in it finds goes to files, which reports() reads after each case."""
    with open(ECFSD, 'rb') as f:
        program = f.read()
    directory = os.path.join(top, 'reports')
    os.mkdir(directory)
    os.chmod(directory, 0o1777)
    for symbol, variable in SANITIZERS.items():
        if symbol in program:
            os.environ[variable] = ':'.join(filter(None, [os.environ.get(variable), 'log_path=' + os.path.join(directory, 'report')]))


def reports(top):
    """What the sanitizers have found since the last time."""
    directory, text = os.path.join(top, 'reports'), ''
    for name in sorted(os.listdir(directory)):
        path = os.path.join(directory, name)
        with open(path, errors='replace') as f:
            text += f.read()
        os.unlink(path)
    return text


# ---- running ----------------------------------------------------------------------------------------------------------------

MNT_FORCE, MNT_DETACH = 1, 2


def umount(target, flags, timeout=10):
    """True when it is unmounted. In a process of its own: with a hanging daemon it hangs. No program umount(8), which would look at
    what is mounted first, and hang there."""
    pid = os.fork()
    if pid == 0:
        os._exit(0 if ctypes.CDLL(None).umount2(os.fsencode(target), flags) == 0 else 1)
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            if status == 0 or os.geteuid() == 0:
                return status == 0
            return subprocess.run(['fusermount3', '-u', *(['-z'] if flags & MNT_DETACH else []), target], timeout=60,
                                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0
        time.sleep(0.005)
    os.kill(pid, signal.SIGKILL)
    return False


def loop_devices():
    """((name, what tells its file from every other), path of the file) of each."""
    if os.geteuid() != 0 or not shutil.which('losetup'):
        return []
    listing = subprocess.run(['losetup', '-l', '-n', '--raw', '-O', 'NAME,BACK-INO,BACK-MAJ:MIN,BACK-FILE'], capture_output=True, text=True).stdout
    fields = [line.split(' ', 3) for line in listing.splitlines()]
    return [(tuple(f[:3]), f[3].strip()) for f in fields if len(f) == 4]


def clean_up(top, keep=False):
    """By what is there, not by what was meant to be."""
    complaints = []

    prefix = top + '/'

    def ours():
        return [m for m in mounts() if m[0].startswith(prefix)]

    # Before anything is unmounted: a device over a file on a filesystem that is gone does not tell where its file was.
    loops = [(device, file) for device, file in loop_devices() if file.startswith(prefix)]
    users = []
    with contextlib.suppress(OSError):
        with open(os.path.join(top, 'users')) as f:
            users = f.read().split()
    # A daemon that still serves is asked first, so that it ends as it should. Then by force, which aborts the connection: even the
    # killing of a daemon does not, where one of its own threads waits for it.
    for target, kind, _ in reversed(ours()):
        if kind.startswith('fuse'):
            umount(target, 0) or umount(target, MNT_FORCE) or umount(target, MNT_DETACH)
    end = time.monotonic() + 5
    while processes_naming(prefix) and time.monotonic() < end:
        time.sleep(0.02)
    for pid in processes_naming(prefix):
        with contextlib.suppress(ProcessLookupError):
            # With those of its group: the threads of user-mode-linux are processes that name nothing.
            (os.killpg if os.getpgid(pid) == pid else os.kill)(pid, signal.SIGKILL)
    for attempt_number in range(50):
        left = ours()
        if not left:
            break
        for target, _, _ in reversed(left):
            umount(target, MNT_DETACH if attempt_number > 20 else 0)
        if ours():
            time.sleep(0.1)
    if ours():
        complaints.append('still mounted: %s' % ours())
    now = {device for device, _ in loop_devices()}
    for device, _ in loops:
        if device in now:
            subprocess.run(['losetup', '-d', device[0]])
    import pwd
    for name in users:
        try:
            uid = pwd.getpwnam(name).pw_uid
        except KeyError:
            continue
        for pid in processes_of(uid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for _ in range(50):
            if subprocess.run(['userdel', name], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0:
                break
            time.sleep(0.1)
        else:
            complaints.append('cannot remove the user ' + name)
        shutil.rmtree('/tmp/ecfs-%d' % uid, ignore_errors=True)
    if not keep and not ours():
        if os.geteuid() != 0:
            subprocess.run(['chmod', '-R', 'u+rwX', '--', top])
        subprocess.run(['rm', '-rf', '--one-file-system', '--', top])
        if os.path.exists(top):
            complaints.append('cannot remove ' + top)
    for c in complaints:
        print('cleaning up: ' + c, flush=True)
    return not complaints


def run_cases(top, cases):
    bad = skipped = 0
    for case in cases:
        start = time.monotonic()
        env = None
        try:
            env = Env(top, case.__name__)
            case(env)
            for m in env.all:
                if m.pid and not alive(m.pid):
                    raise Failed('expected the daemon of %s to live, it is gone; its log:\n%s' % (m.path, m.log_text()[-2000:]))
                if m.pid:
                    m.umount()
            verdict = 'ok'
        except Skip as e:
            verdict, skipped = 'SKIP: %s' % e, skipped + 1
        except Exception as e:
            bad += 1
            where = traceback.extract_tb(e.__traceback__)
            here = [f for f in where if os.path.basename(f.filename) != 'common.py'][-1:] or where[-1:]
            verdict = 'FAILED at %s:%d: %s' % (os.path.basename(here[0].filename), here[0].lineno,
                                               e if isinstance(e, Failed) else ''.join(traceback.format_exception(e)))
            for m in env.all if env else []:
                if m.log_text():
                    verdict += '\n  log of %s:\n%s' % (m.path, m.log_text()[-1500:])
        found = reports(top)
        if found:
            bad += 0 if verdict.startswith('FAILED') else 1
            verdict = 'FAILED: a sanitizer has found:\n%s\n%s' % (found[:6000], verdict)
        print('%-32s %5.1f s  %s' % (case.__name__, time.monotonic() - start, verdict), flush=True)
    return 1 if bad else 77 if skipped == len(cases) else 0


def main(cases, limit=600):
    """limit: seconds until the script is taken to hang."""
    wanted = [a for a in sys.argv[1:] if not a.startswith('-')]
    if wanted:
        cases = [c for c in cases if c.__name__ in wanted]
    keep = '--keep' in sys.argv
    for program in (ECFS, ECFSD):
        if not os.access(program, os.X_OK):
            print('%s is not there: set ECFS_BUILD to the build directory' % program)
            sys.exit(1)
    if not os.path.exists('/dev/fuse'):
        print('SKIP: there is no /dev/fuse')
        sys.exit(77)
    top = os.path.realpath(tempfile.mkdtemp(prefix='ecfs-mount-'))
    os.chmod(top, 0o755)
    with open(os.path.join(top, 'passfile'), 'wb') as f:
        f.write(PASSPHRASE)
    os.chmod(os.path.join(top, 'passfile'), 0o644)
    os.umask(0o022)
    catch_reports(top)

    stopped = []
    for s in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(s, lambda number, _: stopped.append(number))
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            for s in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                signal.signal(s, signal.SIG_DFL)
            os.setpgid(0, 0)
            code = run_cases(top, cases)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(code)
    code, end = 1, time.monotonic() + limit
    try:
        while True:
            pid, status = os.waitpid(child, os.WNOHANG)
            if pid:
                code = os.waitstatus_to_exitcode(status)
                if code < 0:
                    print('the cases were ended by signal %d' % -code)
                    code = 1
                break
            if stopped or time.monotonic() > end:
                print('stopped by signal %d' % stopped[0] if stopped else 'expected to end within %d s, hangs' % limit, flush=True)
                break
            time.sleep(0.05)
    finally:
        for s in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(s, signal.SIG_IGN)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)  # it and what it started
        if not clean_up(top, keep):
            code = code or 1
        with contextlib.suppress(ChildProcessError):
            os.waitpid(child, os.WNOHANG)
    sys.exit(128 + stopped[0] if stopped else code)
