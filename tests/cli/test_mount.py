#!/usr/bin/python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""ecfs mount, ecfs-mount and mount.ecfs: what works, what is refused, and that nothing is left over."""

import os
import signal
import subprocess
import time

import pexpect

from common import (BIN, BUILD, ECFS, PASS, QUICK, World, check, ecfs, entries, eventually, fails, main, mounts, need_fuse,
                    need_root, pids_of, run)


def quiet(w):
    """Nothing mounted, no daemon."""
    assert mounts(w.dir) == [], mounts(w.dir)
    assert eventually(lambda: not w.daemons()), w.daemons()


def test_round_trip():
    with World() as w:
        lower, target, passfile = w.mounted()
        assert os.stat(target).st_mode & 0o777 == 0o700
        assert [t for _, t, _ in mounts(target)] == ["fuse.ecfs"]
        with open(target + "/file", "w") as f:
            f.write("content")
        check(ecfs("umount", target), 0, "", "")
        quiet(w)
        assert entries(target) == []
        assert len(entries(lower)) == 3, entries(lower)
        check(run([str(BIN / "ecfs-mount"), "--passfile", passfile, lower, target]), 0, "", "")
        assert open(target + "/file").read() == "content"
        check(run([str(BIN / "ecfs-umount"), target]), 0, "", "")
        quiet(w)


def test_lower_from_mount_point():
    with World() as w:
        _, passfile = w.volume(".Private")
        check(run([str(BIN / "ecfs-mount"), "--passfile", passfile, w.path("Private")]), 0, "", "")
        assert mounts(w.path("Private"))
        check(ecfs("umount", w.path("Private")), 0)
        # Relative, with a slash at the end, as "." inside it, by a link.
        check(ecfs("mount", "--passfile", passfile, "Private/", cwd=w.dir), 0)
        check(ecfs("umount", "./Private", cwd=w.dir), 0)
        check(ecfs("mount", "--passfile", passfile, ".", cwd=w.path("Private")), 0)
        check(ecfs("umount", w.path("Private")), 0)
        os.symlink(".Private", w.path("link"))
        check(ecfs("mount", "--passfile", passfile, "link", "Private", cwd=w.dir), 0)
        check(ecfs("umount", "Private", cwd=w.dir), 0)
        os.symlink("Private", w.path("point"))
        check(ecfs("mount", "--passfile", passfile, ".Private", "point", cwd=w.dir), 0)
        assert mounts(w.path("Private"))
        check(ecfs("umount", "point", cwd=w.dir), 0)
        fails(ecfs("mount", "--passfile", passfile, "/"), 2, "LOWER")
        quiet(w)


def test_over_the_lower_directory():
    with World() as w:
        lower, passfile = w.volume()
        check(ecfs("mount", "--passfile", passfile, lower, lower), 0, "", "")
        assert entries(lower) == []
        open(lower + "/a", "w").close()
        fails(ecfs("mount", "--passfile", passfile, lower, lower), 11, "already")
        check(ecfs("umount", lower), 0)
        assert entries(lower)[0] != "a"
        quiet(w)


def test_returns_when_mounted():
    """Nothing inherited stays open: $(...) ends, an inherited descriptor is not held."""
    with World() as w:
        lower, passfile = w.volume()
        script = f"out=$('{BIN}/ecfs-mount' --passfile '{passfile}' '{lower}' '{w.path('mnt')}' </dev/null 2>&1 5>'{w.path('held')}' 6<'{w.dir}'); echo $?"
        check(run(["sh", "-c", script], timeout=20), 0, "0\n", "")
        for pid in w.daemons():
            links = [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")]
            assert w.path("held") not in links and w.dir not in links and not any(l.startswith("pipe:") for l in links), links
            assert os.readlink(f"/proc/{pid}/cwd") == "/"
        check(ecfs("umount", w.path("mnt")), 0)
        script = f"out=$('{BIN}/ecfs-mount' --stdin '{lower}' '{w.path('mnt')}' </dev/null 2>/dev/null); echo $?"
        check(run(["sh", "-c", script], timeout=20), 0, "3\n", "")
        quiet(w)


def test_mounted_already():
    with World() as w:
        lower, target, passfile = w.mounted()
        fails(ecfs("mount", "--passfile", passfile, lower, target), 11, f"{lower} is mounted on {target} already", "--if-needed")
        check(ecfs("mount", "--if-needed", "--passfile", passfile, lower, target), 0, "", "")
        # Before the passphrase is looked at.
        check(ecfs("mount", "--if-needed", lower, target), 0, "", "")
        other, passfile2 = w.volume("other")
        fails(ecfs("mount", "--if-needed", "--passfile", passfile2, other, target), 11, lower)
        # The same lower directory a second time: the holder's pid.
        pid = w.daemons()[0]
        fails(ecfs("mount", "--passfile", passfile, lower, w.path("second")), 12, str(pid))
        assert not os.path.exists(w.path("second"))
        check(ecfs("umount", target), 0)
        quiet(w)


def test_bad_passphrase():
    with World() as w:
        lower, passfile = w.volume()
        wrong = w.write("wrong", "nope\n")
        fails(ecfs("mount", "--passfile", wrong, lower, w.path("mnt")), 3, f"{lower}: wrong passphrase")
        fails(ecfs("mount", "--passfile", w.write("empty", ""), lower, w.path("mnt")), 3, "empty")
        fails(ecfs("mount", "--passfile", w.path("missing"), lower, w.path("mnt")), 3, "No such file")
        fails(ecfs("mount", "--stdin", lower, w.path("mnt"), stdin=PASS + "\nmore\n"), 3, "more lines")
        fails(ecfs("mount", lower, w.path("mnt")), 3, "no terminal")
        assert not os.path.exists(w.path("mnt"))
        quiet(w)


def test_recovery_key_mounts():
    with World() as w:
        lower = w.path("lower")
        key = check(ecfs("init", *QUICK, "--stdin", lower, stdin=PASS), 0).out.splitlines()[2].strip()
        check(ecfs("mount", "--stdin", lower, w.path("mnt"), stdin=key + "\n"), 0, "", "")
        check(ecfs("umount", w.path("mnt")), 0)
        wrong = key[:-1] + ("0" if key[-1] != "0" else "1")
        fails(ecfs("mount", "--stdin", lower, w.path("mnt"), stdin=wrong), 3, "group 8 has a typing error")
        quiet(w)


def test_bad_lower():
    with World() as w:
        _, passfile = w.volume()
        fails(ecfs("mount", "--passfile", passfile, w.path("missing"), w.path("mnt")), 13, w.path("missing"), "No such file", "ecfs init")
        fails(ecfs("mount", "--passfile", passfile, passfile, w.path("mnt")), 13, "Not a directory")
        fails(ecfs("mount", "--passfile", passfile, w.path("no/such/dir"), w.path("mnt")), 13, "No such file")
        assert not os.path.exists(w.path("mnt"))
        quiet(w)


def test_bad_mount_points():
    with World() as w:
        lower, passfile = w.volume()
        before = entries(lower)

        def refused(target, *words):
            fails(ecfs("mount", "--passfile", passfile, lower, target), 10, "mount point", *words)

        refused(passfile, "not a directory")
        refused(w.path("no/such"), "No such file")
        refused(passfile + "/sub")
        os.symlink("nowhere", w.path("dangling"))
        refused(w.path("dangling"), "leads nowhere")
        refused(lower + "/inside", "inside the lower directory")
        os.mkdir(lower + "/there")
        refused(lower + "/there", "inside the lower directory")
        os.rmdir(lower + "/there")
        refused(w.dir, "lower directory", "is inside it")
        os.mkdir(w.path("full"))
        w.write("full/file", b"")
        refused(w.path("full"), "not empty", "--nonempty")
        assert entries(lower) == before
        quiet(w)
        for how in (["--nonempty"], ["-o", "nonempty"]):
            check(ecfs("mount", *how, "--passfile", passfile, lower, w.path("full")), 0, "", "")
            assert entries(w.path("full")) == []
            check(ecfs("umount", w.path("full")), 0)
        assert entries(w.path("full")) == ["file"]
        if os.geteuid() == 0:
            os.mkdir(w.path("bound"))
            check(run(["mount", "--bind", lower, w.path("bound")]), 0)
            os.mkdir(lower + "/there")
            refused(w.path("bound/there"), "inside the lower directory")
            os.rmdir(lower + "/there")
            check(run(["umount", w.path("bound")]), 0)
        quiet(w)


def test_options():
    with World() as w:
        lower, passfile = w.volume()

        def flags(*options):
            check(ecfs("mount", "--passfile", passfile, *options, lower, w.path("mnt")), 0, "", "")
            line = [l for l in open("/proc/self/mountinfo") if f" {w.path('mnt')} " in l][0].split()
            dash = line.index("-")
            check(ecfs("umount", w.path("mnt")), 0)
            return set(line[5].split(",")), line[dash + 2], set(line[dash + 3].split(","))

        for options, there in [
            ([], {"rw", "nosuid", "nodev"}),
            (["-o", "ro"], {"ro"}),
            (["-o", "noexec,noatime"], {"noexec", "noatime"}),
            (["-o", "noexec", "-o", "exec,rw"], {"rw"}),
            (["-o", "defaults,noauto,user,_netdev,nofail,x-systemd.automount,comment=hello,relatime,noxattr,acl"], {"rw"}),
        ]:
            got = flags(*options)[0]
            assert there <= got, (options, got)
        assert "noexec" not in flags("-o", "noexec", "-o", "exec")[0]
        assert flags("-o", "allow_other")[2] >= {"allow_other"}
        assert flags("-o", "fsname=my\\,name")[1] == "my,name"
        assert "acl" not in flags("--acl")[0]
        if os.geteuid() == 0:
            assert not flags("-o", "suid,dev")[0] & {"nosuid", "nodev"}
        for bad in ("frobnicate", "ro,frobnicate", "ro=1", "uid=0", "FSNAME=x"):
            fails(ecfs("mount", "--passfile", passfile, "-o", bad, lower, w.path("mnt")), 2, bad.split(",")[-1].split("=")[0], "unknown mount option")
        fails(ecfs("mount", "--passfile", passfile, "-o", "allow_root", lower, w.path("mnt")), 2, "allow_root", "let everybody in")
        for bad in ("fsname", "fsname=", "passfile"):
            fails(ecfs("mount", "-o", bad, lower, w.path("mnt")), 2, "needs a value")
        quiet(w)


def test_mount_helper():
    with World() as w:
        lower, passfile = w.volume()
        target = w.path("mnt")
        os.mkdir(target)
        for program in ("mount.ecfs", "mount.fuse.ecfs"):
            for args in (
                [lower, target, "-o", f"rw,passfile={passfile}"],
                [lower, target, "-v", "-n", "-t", "fuse.ecfs", "-o", f"noexec,passfile={passfile}"],
                ["-s", lower, target, "-o", f"frobnicate,passfile=\"{passfile}\""],
            ):
                check(run([str(BIN / program), *args]), 0, "", "")
                assert mounts(target), args
                check(ecfs("umount", target), 0)
        check(run([str(BIN / "mount.ecfs"), lower, target, "-f"]), 0, "", "")
        fails(run([str(BIN / "mount.ecfs"), lower, target, "-o", "frobnicate"]), 2, "frobnicate")
        fails(run([str(BIN / "mount.ecfs"), lower, target, "-s", "-o", "allow_root"]), 2, "allow_root")
        fails(run([str(BIN / "mount.ecfs"), target]), 2, "MOUNT")
        fails(run([str(BIN / "mount.ecfs"), lower, target]), 3, "no terminal")
        quiet(w)


def test_through_mount_8():
    """A line of fstab, by the real mount and umount."""
    need_root()
    with World() as w:
        lower, passfile = w.volume("lo,wer")
        target = w.path("m nt")
        os.mkdir(target)
        helper = "/sbin/mount.ecfs"
        if os.path.lexists(helper):
            return  # an installed one is not ours to replace
        os.symlink(BIN / "mount.ecfs", helper)
        try:
            fstab = w.write("fstab", f"{lower} {target.replace(' ', chr(92) + '040')} ecfs passfile=\"{passfile}\",allow_other,noexec 0 0\n")
            check(run(["mount", "-T", fstab, target]), 0, "", "")
            assert mounts(target)
            check(run(["umount", target]), 0, "", "")
            assert eventually(lambda: not w.daemons())
            check(run(["mount", "-t", "ecfs", "-o", f'ro,passfile="{passfile}"', lower, target]), 0, "", "")
            check(run(["umount", target]), 0)
        finally:
            os.unlink(helper)
        quiet(w)


def test_strange_paths():
    with World() as w:
        for name in ["with space", "comma,colon:", "back\\slash", "new\nline", "[brackets]", "\u00fcml\u00e4ut", "quote'\"", "-dash", "tr\\ail\\"]:
            lower, passfile = w.volume("lower " + name)
            target = w.path(name)
            check(ecfs("mount", "--passfile", passfile, "--", lower, target), 0, "", "")
            assert [t for t, _, _ in mounts(target)] == [target], mounts(w.dir)
            open(target + "/x", "w").close()
            assert check(ecfs("name", "--", target, target + "/x"), 0, err="").out.startswith(lower + "/")
            check(ecfs("umount", "--", target), 0, "", "")
        # Relative, where the command line's own syntax could come between.
        for name in ["[a,b]", "-dash", "a=b", "--"]:
            w.volume("." + name)
            check(ecfs("mount", "--passfile", passfile, "--", name, cwd=w.dir), 0, "", "")
            assert mounts(w.path(name)), mounts(w.dir)
            check(ecfs("umount", "--", name, cwd=w.dir), 0, "", "")
        fails(ecfs("mount", "a", "b", "c"), 2, "c")
        fails(ecfs("mount", "--passfile", passfile, ""), 2)
        quiet(w)


def test_init_on_the_way():
    with World() as w:
        passfile = w.write("pass", PASS)
        ran = check(ecfs("mount", "--init", *QUICK, "--passfile", passfile, w.path("M")), 0, err="")
        assert ran.out.startswith(f"Recovery key of {w.path('.M')}:\n"), ran
        assert mounts(w.path("M"))
        check(ecfs("umount", w.path("M")), 0)
        check(ecfs("mount", "--init", *QUICK, "--passfile", passfile, w.path("M")), 0, "", "")
        check(ecfs("umount", w.path("M")), 0)
        # On a terminal it is offered.
        child = pexpect.spawn(ECFS, ["mount", *QUICK, w.path("N")], timeout=20, encoding="utf-8")
        child.expect_exact(f"There is no ecfs volume in {w.path('.N')}. Make one? [y/N] ")
        child.sendline("n")
        child.expect_exact("No such file")
        child.expect(pexpect.EOF)
        child.close()
        assert child.exitstatus == 13 and not os.path.exists(w.path(".N"))
        child = pexpect.spawn(ECFS, ["mount", *QUICK, w.path("N")], timeout=20, encoding="utf-8")
        child.expect_exact("[y/N] ")
        child.sendline("y")
        for prompt in ("New passphrase for ", "Repeat it: "):
            child.expect_exact(prompt)
            child.sendline(PASS)
        child.expect_exact("Recovery key")
        child.expect(pexpect.EOF)
        child.close()
        assert child.exitstatus == 0, child.exitstatus
        assert mounts(w.path("N"))
        check(ecfs("umount", w.path("N")), 0)
        quiet(w)


def test_ctrl_c_at_the_prompt():
    with World() as w:
        lower, _ = w.volume()
        before = entries(lower)
        child = pexpect.spawn(ECFS, ["mount", lower, w.path("mnt")], timeout=20, encoding="utf-8")
        child.expect_exact("Passphrase for ")
        child.send("\x03")
        child.expect(pexpect.EOF)
        child.close()
        assert child.signalstatus == signal.SIGINT, (child.exitstatus, child.signalstatus)
        assert entries(lower) == before and not os.path.exists(w.path("mnt"))
        quiet(w)


def test_killed_while_mounting():
    """ecfs stopped, or the daemon killed, at any moment of mounting: afterwards all is mounted or nothing is, and it mounts again."""
    with World() as w:
        lower, passfile = w.volume()
        target = w.path("mnt")
        for i in range(24):
            p = w.start([ECFS, "mount", "--passfile", passfile, lower, target], stderr=subprocess.DEVNULL, start_new_session=True)
            time.sleep(i * 0.0015)
            if i % 2 == 0:
                p.send_signal(signal.SIGINT)
            else:
                for pid in w.daemons():
                    os.kill(pid, signal.SIGKILL)
            code = p.wait(timeout=40)
            if i % 2 == 0 and code != 0:
                assert mounts(w.dir) == [], (i, code, mounts(w.dir))
                assert eventually(lambda: not w.daemons()), (i, code)
            elif code == 0 and w.daemons():
                check(ecfs("umount", target), 0)
            # Else the daemon was killed after it had mounted: the next mount takes the dead one away.
            again = ecfs("mount", "--passfile", passfile, lower, target)
            assert again.code == 0, (i, code, str(again))
            check(ecfs("umount", target), 0)
            assert eventually(lambda: not w.daemons())


def test_dead_mount_is_replaced():
    with World() as w:
        lower, target, passfile = w.mounted()
        pid = w.daemons()[0]
        os.kill(pid, signal.SIGKILL)
        assert eventually(lambda: not w.daemons())
        for command in (["status", target], ["name", target, "x"]):
            fails(ecfs(*command), 15, "dead", f"ecfs umount {target} clears it")
        ran = check(ecfs("mount", "--passfile", passfile, lower, target), 0, "")
        assert ran.err == f"ecfs: note: took away the mount of a daemon that is dead: {target}\n", ran
        assert len(mounts(target)) == 1
        check(ecfs("umount", target), 0)
        quiet(w)


def test_foreground():
    with World() as w:
        lower, passfile = w.volume()
        target = w.path("mnt")
        for stop in (signal.SIGTERM, signal.SIGINT):
            p = w.start([ECFS, "mount", "--foreground", "--passfile", passfile, lower, target], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            assert eventually(lambda: mounts(target)), p.poll()
            p.send_signal(stop)
            assert p.wait(timeout=20) == 0
            quiet(w)
        p = w.start([ECFS, "mount", "-f", "--passfile", w.write("wrong", "x"), lower, target], stderr=subprocess.DEVNULL)
        assert p.wait(timeout=20) == 3


def test_log_file():
    with World() as w:
        lower, passfile = w.volume()
        check(ecfs("mount", "--log", "the.log", "--passfile", passfile, lower, w.path("mnt"), cwd=w.dir), 0, "", "")
        check(ecfs("umount", w.path("mnt")), 0)
        text = open(w.path("the.log")).read()
        assert w.path("mnt") in text and PASS not in text, text


def test_without_fuse():
    """/dev/fuse hidden from us, in a mount namespace of our own."""
    need_root()
    with World() as w:
        lower, passfile = w.volume()
        hide = f"mount -t tmpfs none /dev && exec '{ECFS}' mount --passfile '{passfile}' '{lower}' '{w.path('mnt')}'"
        fails(run(["unshare", "-m", "sh", "-c", hide]), 14, "/dev/fuse", "modprobe fuse")
        assert not os.path.exists(w.path("mnt"))
        # The daemon's program missing: a copy of ecfs that stands alone.
        alone = w.path("alone")
        os.mkdir(alone)
        run(["cp", ECFS, alone + "/ecfs"])
        if not os.path.exists("/usr/local/bin/ecfsd"):
            fails(run([alone + "/ecfs", "mount", "--passfile", passfile, lower, w.path("mnt")]), 1, "ecfsd")
        quiet(w)


def test_as_mount_fuse_calls_it():
    """mount -t fuse.ecfs, where mount(8) finds no helper of ours: mount.fuse(8) starts `ecfs LOWER MOUNT -o OPTIONS`."""
    with World() as w:
        lower, passfile = w.volume()
        os.mkdir(w.path("mnt"))
        check(ecfs(lower, w.path("mnt"), "-o", f"rw,passfile={passfile}"), 0, "", "")
        assert len(mounts(w.path("mnt"))) == 1
        ran = fails(ecfs(lower, w.path("mnt"), "-o", f"passfile={passfile}"), 11, "is mounted on")
        assert "--if-needed" not in ran.err, ran  # which it does not have


def test_version():
    for name in ("ecfs", "ecfs-mount", "ecfs-umount", "mount.ecfs"):
        check(run([str(BIN / name), "--version"]), 0, check(ecfs("--version"), 0).out, "")


if __name__ == "__main__":
    need_fuse()
    main(globals())
