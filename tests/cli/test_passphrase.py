#!/usr/bin/python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where passphrases come from, and one rule for their bytes everywhere."""

import os
import signal
import sys
import termios
import time

import pexpect

from common import ECFS, PASS, QUICK, World, check, ecfs, entries, eventually, fails, main


def opens(w, lower, *args, stdin=b""):
    """The exit code of opening the volume by those options; the new passphrase never comes."""
    return ecfs("key", "passwd", "--new-passfile", w.path("none"), *args, lower, stdin=stdin)


def accepted(ran):
    """Opened: it got as far as the new passphrase's file, which is missing."""
    assert ran.code == 3 and "none: No such file" in ran.err, ran


def test_one_rule():
    longest = "x" * 1024
    table = [
        (b"abc", b"abc", True),
        (b"abc\n", b"abc", True),
        (b"abc\n", b"abc\n", True),
        (b"abc\r\n", b"abc\r\n", True),
        (b"abc\r\n", b"abc\n", False),
        (b"abc", b"abc ", False),
        (b"\xff\xfe", b"\xff\xfe\n", True),
        (longest.encode(), longest.encode() + b"\n", True),
    ]
    with World() as w:
        for i, (made, given, good) in enumerate(table):
            lower = w.path(f"lower{i}")
            check(ecfs("init", *QUICK, "--passfile", w.write("made", made), lower), 0)
            given_file = w.write("given", given)
            asker = w.write("asker", f"#!/bin/sh\nexec cat '{given_file}'\n", 0o755)
            for ran in (
                opens(w, lower, "--passfile", given_file),
                opens(w, lower, "--askpass", asker),
                opens(w, lower, "--stdin", stdin=given),
            ):
                if good:
                    accepted(ran)
                else:
                    fails(ran, 3, "wrong passphrase")


def test_refused_bytes():
    with World() as w:
        lower, _ = w.volume()
        for bad in (b"", b"\n", b"a\0b", b"x" * 1025, b"x" * 5000):
            given = w.write("given", bad)
            asker = w.write("asker", f"#!/bin/sh\nexec cat '{given}'\n", 0o755)
            for target in (lower, w.path("new")):
                command = ["init", *QUICK] if target != lower else ["key", "passwd", "--new-passfile", given]
                fails(ecfs(*command, "--passfile", given, target), 3, given)
                fails(ecfs(*command, "--askpass", asker, target), 3, "--askpass")
                fails(ecfs(*command, "--stdin", target, stdin=bad), 3, "standard input")
        assert not os.path.exists(w.path("new"))


def test_sources_that_fail():
    with World() as w:
        lower, passfile = w.volume()
        fails(opens(w, lower, "--passfile", w.path("missing")), 3, "passphrase file", "No such file")
        fails(opens(w, lower, "--passfile", w.dir), 3, "passphrase file", "Is a directory")
        fails(opens(w, lower, "--askpass", w.path("missing")), 3, "--askpass", "No such file")
        fails(opens(w, lower, "--askpass", w.write("a", f"#!/bin/sh\necho '{PASS}'\nexit 3\n", 0o755)), 3, "exit status 3")
        fails(opens(w, lower, "--askpass", w.write("b", f"#!/bin/sh\necho '{PASS}'\nkill -9 $$\n", 0o755)), 3, "signal 9")
        fails(opens(w, lower, "--askpass", w.write("c", "#!/bin/sh\nwhile :; do echo yyyyyyyyyyyyyyyyyyyyyyyyyyy; done\n", 0o755)), 3, "--askpass")
        shows = w.write("d", f"#!/bin/sh\nprintf %s \"$1\" >'{w.path('prompt')}'\necho '{PASS}'\n", 0o755)
        accepted(opens(w, lower, "--askpass", shows))
        assert open(w.path("prompt")).read() == f"Passphrase for {lower}: "
        fails(ecfs("init", *QUICK, "--stdin", w.path("new"), stdin="one\ntwo\n"), 3, "more lines")
        fails(ecfs("init", *QUICK, w.path("new")), 3, "no terminal", "--passfile")
        if os.geteuid() != 0:
            os.chmod(passfile, 0)
            fails(opens(w, lower, "--passfile", passfile), 3, "Permission denied")


# On a pseudo-terminal.


def on_terminal(*args, **more):
    child = pexpect.spawn(ECFS, list(args), timeout=20, encoding="utf-8", **more)
    child.delaybeforesend = 0
    return child


def echo(child):
    return bool(termios.tcgetattr(child.child_fd)[3] & termios.ECHO)


def ended(child, code):
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == code, (child.exitstatus, child.signalstatus, child.before)
    return child.before


def test_terminal_new():
    with World() as w:
        child = on_terminal("init", *QUICK, w.path("lower"))
        child.expect_exact(f"New passphrase for {w.path('lower')}: ")
        assert not echo(child)
        child.sendline("hunter2")
        child.expect_exact("Strength: weak. Longer is stronger; five or six random words are good.\r\n")
        child.expect_exact("Repeat it: ")
        child.sendline("hunter3")
        child.expect_exact("The two differ.\r\n")
        child.expect_exact("New passphrase for ")
        child.sendline("correct horse battery staple 42 !")
        child.expect_exact("Strength: good.\r\n")
        child.expect_exact("Repeat it: ")
        child.sendline("correct horse battery staple 42 !")
        rest = ended(child, 0)
        assert "hunter" not in rest and "correct" not in rest
        assert "Recovery key of " in rest
        accepted(opens(w, w.path("lower"), "--stdin", stdin="correct horse battery staple 42 !"))


def test_terminal_three_tries():
    with World() as w:
        lower, _ = w.volume()
        child = on_terminal("key", "passwd", *QUICK, lower)
        for i in range(3):
            child.expect_exact(f"Passphrase for {lower}: ")
            child.sendline("wrong")
            if i < 2:
                child.expect_exact("Wrong passphrase. Try again.\r\n")
        assert ended(child, 3).split("\r\n")[-2:] == [f"ecfs: error: {lower}: wrong passphrase", ""]
        child = on_terminal("key", "passwd", *QUICK, lower)
        child.expect_exact("Passphrase for ")
        child.sendline("wrong")
        child.expect_exact("Passphrase for ")
        child.sendline(PASS)
        child.expect_exact(f"New passphrase for {lower}: ")
        child.sendline("the new one")
        child.expect_exact("Repeat it: ")
        child.sendline("the new one")
        ended(child, 0)
        accepted(opens(w, lower, "--stdin", stdin="the new one"))


def test_terminal_bad_bytes():
    with World() as w:
        lower, _ = w.volume()
        for line, words in [("\n", "is empty"), ("x" * 1500 + "\n", "longer than 1024"), ("\x04", "none was given")]:
            child = on_terminal("key", "passwd", *QUICK, lower)
            child.expect_exact("Passphrase for ")
            child.send(line)
            assert words in ended(child, 3)


def test_signals_at_the_prompt():
    """Ctrl-C and the like: echo is back, nothing is left, and the signal is what ended it."""
    with World() as w:
        before = entries(w.dir)
        for how in ("\x03", "\x1c", signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            # A shell keeps the terminal open, so that its settings can be looked at afterwards; the same signals reach it.
            child = pexpect.spawn("/bin/sh", ["-c", f"trap : INT QUIT; '{ECFS}' init --kdf-time 1 '{w.path('lower')}'; echo ended $?; read x"], timeout=20, encoding="utf-8")
            child.delaybeforesend = 0
            child.expect_exact("New passphrase for ")
            assert not echo(child)
            if isinstance(how, str):
                child.send(how)
            else:
                # The shell's only child.
                pids = open(f"/proc/{child.pid}/task/{child.pid}/children").read().split()
                os.kill(int(pids[0]), how)
            number = {"\x03": signal.SIGINT, "\x1c": signal.SIGQUIT}.get(how, how)
            child.expect_exact(f"ended {128 + number}")
            assert echo(child), repr(how)
            child.close(force=True)
            assert entries(w.dir) == before, repr(how)


def test_stop_and_continue():
    with World() as w:
        lower, _ = w.volume()
        child = pexpect.spawn("/bin/bash", ["--norc", "--noprofile", "-i"], timeout=20, encoding="utf-8", env={**os.environ, "PS1": "ready> "})
        child.delaybeforesend = 0
        child.expect_exact("ready> ")
        child.sendline(f"'{ECFS}' key passwd --kdf-time 1 --new-passfile /nonexistent '{lower}'")
        child.expect_exact("Passphrase for ")
        child.send("\x1a")
        child.expect_exact("Stopped")
        child.expect_exact("ready> ")
        child.sendline("fg")
        child.expect_exact("Passphrase for ")
        assert eventually(lambda: not echo(child))
        child.sendline(PASS)
        child.expect_exact("/nonexistent: No such file")
        child.close(force=True)


def test_never_in_sight():
    """The passphrase is not in the arguments or the environment of anything, nor in a core file."""
    with World() as w:
        lower, _ = w.volume()
        child = on_terminal("key", "passwd", *QUICK, lower)
        child.expect_exact("Passphrase for ")
        limits = open(f"/proc/{child.pid}/limits").read()
        assert any(l.split()[:5] == ["Max", "core", "file", "size", "0"] for l in limits.splitlines()), limits
        child.close(force=True)


if __name__ == "__main__":
    main(globals())
