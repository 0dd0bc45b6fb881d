# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs ecfs-rescue as a program of its own, without the third of a second that loading Python's libraries takes: forked from a process that
has loaded them. The tests that look at how it starts run the real one."""

import os
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PROGRAM = os.path.join(ROOT, "tools", "ecfs-rescue")
sys.path.insert(0, os.path.dirname(PROGRAM))


def run(args, stdin=b"", user=None):
    """(exit code, standard output, standard error), both as bytes. Without a controlling terminal."""
    from ecfs_rescue.main import main

    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        given.write(stdin)
        given.seek(0)
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            code = 99
            try:
                for fd, file in enumerate((given, out, err)):
                    os.dup2(file.fileno(), fd)
                os.setsid()
                if user is not None:
                    os.setgroups([])
                    os.setresgid(user, user, user)
                    os.setresuid(user, user, user)
                sys.stdin, sys.stdout, sys.stderr = (open(fd, mode, closefd=False) for fd, mode in ((0, "r"), (1, "w"), (2, "w")))
                sys.argv = [PROGRAM, *map(os.fspath, args)]
                try:
                    code = main()
                except SystemExit as e:
                    code = e.code or 0
                except BaseException:
                    sys.excepthook(*sys.exc_info())
                sys.stdout.flush()
                sys.stderr.flush()
            finally:
                os._exit(code)
        _, status = os.waitpid(pid, 0)
        out.seek(0)
        err.seek(0)
        return os.waitstatus_to_exitcode(status), out.read(), err.read()
