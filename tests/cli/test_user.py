#!/usr/bin/python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""An ordinary user, who needs nothing of root: through fusermount3."""

import os
import shutil
import stat

from common import BUILD, PASS, QUICK, World, check, eventually, fails, main, mounts, need_fuse, need_root, run, skip

NOBODY = 65534


class Home:
    """A world whose directory is the user's, with copies of the programs where the user can run them."""

    def __init__(self, w):
        self.w = w
        os.chmod(w.dir, 0o755)
        os.mkdir(w.path("bin"), 0o755)
        for source in (BUILD / "tools" / "ecfs" / "ecfs", BUILD / "ecfsd"):
            shutil.copy(source, w.path("bin"))
        os.mkdir(w.path("home"), 0o700)
        os.chown(w.path("home"), NOBODY, NOBODY)
        self.home = w.path("home")
        self.passfile = w.write("home/pass", PASS)
        os.chown(self.passfile, NOBODY, NOBODY)

    def ecfs(self, *args, **more):
        return run([self.w.path("bin/ecfs"), *args], user=NOBODY, cwd=self.home, **more)

    def path(self, name):
        return os.path.join(self.home, name)


def test_user():
    with World() as w:
        h = Home(w)
        check(h.ecfs("init", *QUICK, "--passfile", h.passfile, ".Private"), 0)
        check(h.ecfs("mount", "--passfile", h.passfile, "Private"), 0, "", "")
        assert len(mounts(h.path("Private"))) == 1
        check(run(["sh", "-c", "echo mine >Private/file && cat Private/file"], user=NOBODY, cwd=h.home), 0, "mine\n", "")
        # Not even root gets in; root can still ask and unmount.
        assert run(["cat", h.path("Private/file")]).code != 0
        check(h.ecfs("status", "Private"), 0)
        check(run([w.path("bin/ecfs"), "status", h.path("Private")]), 0)
        # Root changes the passphrase; the file stays the user's.
        check(run([w.path("bin/ecfs"), "key", "passwd", *QUICK, "--stdin", h.path(".Private")], stdin=f"{PASS}\nnew\n"), 0)
        assert os.stat(h.path(".Private/ecfs.volume")).st_uid == NOBODY
        check(h.ecfs("umount", "Private"), 0, "", "")
        assert not w.daemons()
        check(h.ecfs("mount", "--stdin", "Private", stdin="new"), 0, "", "")
        check(run([w.path("bin/ecfs"), "umount", h.path("Private")]), 0, "", "")
        assert not mounts(w.dir) and eventually(lambda: not w.daemons())


def test_user_may_not_let_others_in():
    """Said before the passphrase is asked for."""
    if any(line.strip() == "user_allow_other" for line in open("/etc/fuse.conf")):
        return  # root permits it here
    with World() as w:
        h = Home(w)
        check(h.ecfs("init", *QUICK, "--passfile", h.passfile, ".Private"), 0)
        ran = fails(h.ecfs("mount", "-o", "allow_other", "Private"), 14, "an ordinary user may not let others in", "user_allow_other")
        assert "assphrase" not in ran.err, ran


def test_user_busy_and_lazy():
    with World() as w:
        h = Home(w)
        check(h.ecfs("init", *QUICK, "--passfile", h.passfile, ".Private"), 0)
        check(h.ecfs("mount", "--passfile", h.passfile, "Private"), 0)
        p = w.start(["setpriv", "--reuid", str(NOBODY), "--regid", str(NOBODY), "--clear-groups", "sh", "-c", "cd Private; exec sleep 100"], cwd=h.home)
        assert eventually(lambda: os.readlink(f"/proc/{p.pid}/cwd") == h.path("Private"))
        fails(h.ecfs("umount", "Private"), 16, f"sleep (pid {p.pid}: working directory)")
        check(h.ecfs("umount", "--lazy", "Private"), 0, "")
        p.kill()
        p.wait()
        assert not mounts(w.dir) and eventually(lambda: not w.daemons())


def test_user_dead_mount():
    with World() as w:
        h = Home(w)
        check(h.ecfs("init", *QUICK, "--passfile", h.passfile, ".Private"), 0)
        check(h.ecfs("mount", "--passfile", h.passfile, "Private"), 0)
        os.kill(w.daemons()[0], 9)
        assert eventually(lambda: not w.daemons())
        ran = check(h.ecfs("mount", "--passfile", h.passfile, "Private"), 0, "")
        assert "took away" in ran.err, ran
        check(h.ecfs("umount", "Private"), 0)


def test_not_the_users():
    with World() as w:
        h = Home(w)
        os.mkdir(w.path("roots"), 0o700)
        fails(h.ecfs("init", *QUICK, "--passfile", h.passfile, w.path("roots")), 13, "Permission denied")
        fails(h.ecfs("info", w.path("roots")), 13, "Permission denied")
        secret = w.write("secret", PASS, 0o600)
        check(h.ecfs("init", *QUICK, "--passfile", h.passfile, ".Private"), 0)
        fails(h.ecfs("mount", "--passfile", secret, "Private"), 3, "Permission denied")
        fails(h.ecfs("mount", "--passfile", h.passfile, h.path(".Private"), w.path("elsewhere")), 10, "cannot be made")
        os.mkdir(w.path("theirs"), 0o755)
        fails(h.ecfs("mount", "--passfile", h.passfile, h.path(".Private"), w.path("theirs")), 10, "Permission denied")
        lower = w.path("home/unreadable")
        os.mkdir(lower, 0)
        os.chown(lower, NOBODY, NOBODY)
        fails(h.ecfs("mount", "--passfile", h.passfile, lower, h.path("mnt")), 13, "Permission denied")
        assert not mounts(w.dir)


def test_no_fusermount():
    with World() as w:
        h = Home(w)
        check(h.ecfs("init", *QUICK, "--passfile", h.passfile, ".Private"), 0)
        inner = f"setpriv --reuid {NOBODY} --regid {NOBODY} --clear-groups '{w.path('bin/ecfs')}' mount --passfile '{h.passfile}' '{h.path('Private')}'"
        # An empty file over it, in a mount namespace of our own, cannot be run.
        empty = w.write("empty", b"", 0o644)
        hide = "for f in /usr/bin/fusermount3 /bin/fusermount3 /usr/local/bin/fusermount3; do [ -e $f ] && mount --bind '%s' $f; done; exec %s" % (empty, inner)
        fails(run(["unshare", "-m", "sh", "-c", hide]), 14, "fusermount3", "install the package fuse3")
        assert not mounts(w.dir) and not os.path.exists(h.path("Private"))


if __name__ == "__main__":
    need_fuse()
    need_root()
    if shutil.which("fusermount3") is None or not os.stat(shutil.which("fusermount3")).st_mode & stat.S_ISUID:
        skip("fusermount3 is not set-uid root")
    main(globals())
