# SPDX-License-Identifier: GPL-3.0-or-later
"""A whole Linux kernel of its own as a process (Debian's user-mode-linux), for what this machine's kernel lacks or would not survive.

`run` runs one script in it. A test file with cases of its own for inside ends with `uml.main(cases, inside)`: all the cases of
`inside` run in one kernel, since starting it takes some seconds, through the same common.Env, and their lines come out.

Inside, root's files are the host's own, read-only, so that every program is there; /etc is a copy; /tmp, /run and /mnt are fresh;
the source and the build directory are where they are outside. Whatever is written is lost with the kernel, but for `disk`, an image
that is /dev/ubda, and `share`, a directory of the host that is /mnt/share.
"""
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading

import common
from common import BUILD, SRC, Failed, Skip

KERNEL = '/usr/bin/linux.uml'
MODULES = '/usr/lib/uml/modules'
DISK, SHARE = '/dev/ubda', '/mnt/share'
INSIDE = 'ECFS_TEST_INSIDE'  # set where a script runs in the other kernel

class Ended:
    """How a run ended. killed: by us, as was asked for; returncode is then None."""
    def __init__(self, returncode, output, killed):
        self.returncode, self.output, self.killed = returncode, output, killed


def inside():
    """Is this process in the other kernel?"""
    return bool(os.environ.get(INSIDE))


def need():
    common.need_root()
    if not os.access(KERNEL, os.X_OK) or not os.path.isdir(MODULES):
        raise Skip('user-mode-linux is not installed')


def make_disk(env, mb=256, mkfs=()):
    """The path of an image with an empty ext4, for `disk`."""
    path = env.fresh('disk')
    with open(path, 'wb') as f:
        f.truncate(mb << 20)
    common.run(['mkfs.ext4', '-q', '-F', '-b', '4096', *mkfs, path])
    return path


def run(env, script, args=(), disk=None, share=None, kill_after=None, kill_at=None, timeout=500, memory='512M', boot=(), ok=(0,)):
    """Runs the script (a program, by its first line) with args to its end; an Ended. The whole machine is killed, as by a power cut,
    kill_after so many seconds after the script said its first line, or as soon as it says the line kill_at. boot: more arguments of
    the kernel."""
    need()
    place = env.directory()
    # What is below a directory that is fresh inside is shown there again.
    visible = [d for d in dict.fromkeys((SRC, BUILD, os.path.dirname(os.path.abspath(script))))
               if d.startswith(('/tmp/', '/run/', '/mnt/', '/dev/shm/'))]
    settings = dict(place=place, share=share, modules=MODULES, visible=visible, command=[os.path.abspath(script), *map(str, args)],
                    environment={'PATH': '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin', 'HOME': '/tmp', 'LANG': 'C.UTF-8',
                                 'PYTHONDONTWRITEBYTECODE': '1', 'ECFS_SRC': SRC, 'ECFS_BUILD': BUILD, INSIDE: '1'})
    init = os.path.join(place, 'init')
    shutil.copy(os.path.join(os.path.dirname(os.path.abspath(__file__)), 'uml_init.py'), init)
    os.chmod(init, 0o755)
    with open(init + '.json', 'w') as f:
        json.dump(settings, f)
    kernel_log = os.path.join(place, 'kernel.log')
    r, w = os.pipe()
    # umid and uml_dir: else it leaves a directory in $HOME.
    argv = [KERNEL, 'mem=' + memory, 'rootfstype=hostfs', 'rootflags=/', 'ro', 'init=' + init, 'con=null',
            'con0=null,fd:1', 'con1=null,fd:%d' % w, 'quiet', 'uml_dir=' + place, 'umid=uml', *(['ubd0=' + disk] if disk else []), *boot]
    with open(kernel_log, 'wb') as log:
        # Its memory is a file without a name.
        kernel = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, pass_fds=(w,), start_new_session=True,
                                  env=dict(os.environ, TMPDIR='/dev/shm' if os.path.isdir('/dev/shm') else place))
    os.close(w)
    output, asked = [], threading.Event()

    def listen():
        with os.fdopen(r, errors='replace', newline='\n') as lines:
            for line in lines:
                output.append(line)
                if len(output) == 1 and kill_after is not None:
                    threading.Timer(kill_after, cut).start()
                if kill_at is not None and line.rstrip('\n') == kill_at:
                    cut()

    def cut():
        if kernel.poll() is None:
            asked.set()
            end()

    def end():
        with contextlib.suppress(ProcessLookupError):
            os.killpg(kernel.pid, signal.SIGKILL)

    listener = threading.Thread(target=listen, daemon=True)
    listener.start()
    try:
        try:
            kernel.wait(timeout)
        except subprocess.TimeoutExpired:
            raise Failed('%s in user-mode-linux: expected to end within %d s, still running; its output:\n%s'
                         % (script, timeout, ''.join(output)[-4000:]))
    finally:
        # Its threads are processes of the host, and are of one group.
        end()
        kernel.wait()
        listener.join(10)
    text = ''.join(output)
    if asked.is_set():
        return Ended(None, text, True)
    try:
        with open(os.path.join(place, 'status')) as f:
            code = int(f.read())
    except (FileNotFoundError, ValueError):
        with open(kernel_log, errors='replace') as f:
            raise Failed('%s in user-mode-linux: the kernel ended before the script; output:\n%s\nthe kernel:\n%s'
                         % (script, text[-3000:], f.read()[-3000:]))
    if ok is not None and code not in ok:
        raise Failed('%s in user-mode-linux: expected exit %s, got %d with output:\n%s' % (script, ok, code, text[-6000:]))
    return Ended(code, text, False)


def main(cases, inside_cases, limit=600, **options):
    """common.main for a file some of whose cases, `inside_cases`, run in one other kernel; options are run's."""
    if inside():
        common.main(inside_cases, limit=limit)
    wanted = [a for a in sys.argv[1:] if not a.startswith('-')]
    chosen = [c.__name__ for c in inside_cases if not wanted or c.__name__ in wanted]

    def in_another_kernel(env):
        ended = run(env, sys.argv[0], chosen, ok=None, **options)
        lines = ended.output.rstrip('\n')
        print('\n'.join('  inside: ' + line for line in lines.split('\n')))
        if ended.returncode == 77:
            raise Skip('all cases inside were skipped')
        if ended.returncode:
            raise Failed('inside: expected exit 0, got %s' % ended.returncode)

    if wanted:
        cases = [c for c in cases if c.__name__ in wanted]
        sys.argv = [sys.argv[0], *[a for a in sys.argv[1:] if a.startswith('-')]]
    common.main(cases + ([in_another_kernel] if chosen else []), limit=limit)
