#!/usr/bin/python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""ecfs umount: clean, busy, lazy, forced, dead."""

import os
import signal
import subprocess
import time

from common import ECFS, World, check, ecfs, eventually, fails, main, mounts, need_fuse


def test_clean():
    with World() as w:
        _, target, _ = w.mounted()
        for i in range(200):
            with open(f"{target}/{i}", "w") as f:
                f.write("x" * i)
        start = time.monotonic()
        check(ecfs("umount", target), 0, "", "")
        assert time.monotonic() - start < 3
        # It returns when the daemon is gone.
        assert not w.daemons() and not mounts(w.dir)


def test_not_mounted():
    with World() as w:
        fails(ecfs("umount", w.dir), 15, "nothing is mounted")
        fails(ecfs("umount", w.path("missing")), 15)
        fails(ecfs("umount", ""), 15)
        fails(ecfs("umount", "/proc"), 15, "not ecfs but proc")
        fails(ecfs("status", w.dir), 15)
        fails(ecfs("umount"), 2, "MOUNT")
        fails(ecfs("umount", "--lazy", "--force", w.dir), 2, "--lazy")


def sleeper(w, script, cwd=None):
    """A process that says when it has what the script opens."""
    p = w.start(["sh", "-c", script + "; echo ready; exec sleep 100"], stdout=subprocess.PIPE, cwd=cwd)
    assert p.stdout.readline() == b"ready\n"
    return p


def test_busy_says_who():
    with World() as w:
        _, target, _ = w.mounted()
        open(target + "/file", "w").close()
        p = sleeper(w, f"exec 5<'{target}/file'")
        ran = fails(ecfs("umount", target), 16, f"sleep (pid {p.pid}: 1 open file)", f"ecfs umount --lazy {target}")
        p.kill()
        p.wait()
        p = sleeper(w, "true", cwd=target)
        fails(ecfs("umount", target), 16, f"sleep (pid {p.pid}: working directory)")
        p.kill()
        p.wait()
        check(ecfs("umount", target), 0)


def test_lazy():
    with World() as w:
        lower, target, passfile = w.mounted()
        p = w.start(["sh", "-c", f"exec 5>'{target}/file'; echo ready; read x; echo late >&5; exec 5>&-; echo done; exec sleep 100"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert p.stdout.readline() == b"ready\n"
        ran = check(ecfs("umount", "--lazy", target), 0, "")
        assert ran.err.startswith(f"ecfs: note: programs still use {target}; its daemon (pid "), ran
        assert not mounts(w.dir) and w.daemons()
        p.stdin.write(b"\n")
        p.stdin.flush()
        assert p.stdout.readline() == b"done\n"
        assert eventually(lambda: not w.daemons())
        check(ecfs("mount", "--passfile", passfile, lower, target), 0)
        assert open(target + "/file").read() == "late\n"
        # Not busy: the same as a plain one.
        check(ecfs("umount", "--lazy", target), 0, "", "")
        assert not w.daemons()


def test_force():
    with World() as w:
        lower, target, passfile = w.mounted()
        p = sleeper(w, f"exec 5>'{target}/file'; echo early >&5")
        ran = check(ecfs("umount", "--force", target), 0, "")
        assert ran.err == f"ecfs: warning: {target}: forced; what programs have not written yet is lost to them\n", ran
        assert not mounts(w.dir) and not w.daemons()
        check(ecfs("mount", "--passfile", passfile, lower, target), 0)
        assert open(target + "/file").read() == "early\n"
        check(ecfs("umount", "--force", target), 0, "", "")


def test_hung_daemon():
    with World() as w:
        _, target, _ = w.mounted()
        pid = w.daemons()[0]
        os.kill(pid, signal.SIGSTOP)
        try:
            fails(ecfs("status", target), 1, "does not answer", "--force")
            p = w.start([ECFS, "umount", "--force", target], stderr=subprocess.PIPE)
            time.sleep(0.1)
            # Not busy, so it comes off, and then waits for the daemon.
            assert eventually(lambda: not mounts(w.dir), 20)
        finally:
            os.kill(pid, signal.SIGCONT)
        assert p.wait(timeout=40) == 0
        assert eventually(lambda: not w.daemons())


def test_hung_and_busy():
    with World() as w:
        _, target, _ = w.mounted()
        p = sleeper(w, f"exec 5>'{target}/file'")
        os.kill(w.daemons()[0], signal.SIGSTOP)
        ran = check(ecfs("umount", target), 16, "")
        assert str(p.pid) in ran.err, ran
        check(ecfs("umount", "--force", target), 0, "")
        assert not mounts(w.dir) and eventually(lambda: not w.daemons())


def test_dead():
    with World() as w:
        lower, target, passfile = w.mounted()
        device = mounts(target)[0][2]
        os.kill(w.daemons()[0], signal.SIGKILL)
        assert eventually(lambda: not w.daemons())
        check(ecfs("umount", target), 0, "", f"ecfs: note: the daemon of {target} was dead; its mount is cleared\n")
        assert not mounts(w.dir)
        if os.geteuid() == 0:
            assert not os.path.exists(f"/run/ecfs/{device.replace(':', '-')}")
        check(ecfs("mount", "--passfile", passfile, lower, target), 0)
        check(ecfs("umount", target), 0)


if __name__ == "__main__":
    need_fuse()
    main(globals())
