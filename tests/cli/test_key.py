#!/usr/bin/python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""ecfs key passwd."""

import contextlib
import json
import os
import subprocess
import time

from common import ECFS, PASS, QUICK, World, check, ecfs, entries, fails, main


def opens(lower, passphrase):
    """Whether a passphrase opens the volume: changing it to itself says so, and makes nothing else."""
    ran = ecfs("key", "passwd", *QUICK, "--stdin", lower, stdin=f"{passphrase}\n{passphrase}\n")
    assert ran.code in (0, 3), ran
    return ran.code == 0


def recovery_key(w, name):
    ran = check(ecfs("init", *QUICK, "--stdin", w.path(name), stdin=PASS), 0)
    return ran.out.splitlines()[2].strip()


def test_change():
    with World() as w:
        lower, passfile = w.volume("lower", PASS, "--label", "mine")
        new = w.write("new", "battery staple\n")
        check(ecfs("key", "passwd", *QUICK, "--passfile", passfile, "--new-passfile", new, lower), 0, "", "")
        assert entries(lower) == ["ecfs.dir", "ecfs.volume"]
        assert opens(lower, "battery staple") and not opens(lower, PASS)
        info = json.loads(ecfs("info", "--json", lower).out)
        assert [(s["type"], s["label"]) for s in info["keyslots"]] == [("passphrase", "mine"), ("recovery", "")]
        check(ecfs("key", "passwd", *QUICK, "--stdin", lower, stdin="battery staple\nthird\n"), 0, "", "")
        assert opens(lower, "third")
        asker = w.write("asker", '#!/bin/sh\ncase "$1" in New*) echo fourth;; *) echo third;; esac\n', 0o755)
        check(ecfs("key", "passwd", *QUICK, "--askpass", asker, lower), 0, "", "")
        assert opens(lower, "fourth")


def test_by_recovery_key():
    with World() as w:
        key = recovery_key(w, "lower")
        lower = w.path("lower")
        ran = check(ecfs("key", "passwd", *QUICK, "--stdin", lower, stdin=f"{key.upper().replace('-', ' ')}\nnew one\n"), 0, "")
        assert ran.err == "ecfs: note: opened by the recovery key: the new passphrase replaces the old one; the recovery key stays\n", ran
        assert opens(lower, "new one") and not opens(lower, PASS)
        check(ecfs("key", "passwd", *QUICK, "--stdin", lower, stdin=f"{key}\nanother\n"), 0)
        wrong = key[:3] + ("1" if key[3] == "0" else "0") + key[4:]
        fails(ecfs("key", "passwd", *QUICK, "--stdin", lower, stdin=f"{wrong}\nx\n"), 3, "group 1 has a typing error")


def test_refusals_change_nothing():
    with World() as w:
        lower, passfile = w.volume()
        before = open(lower + "/ecfs.volume").read()
        for stdin, words in [
            ("wrong\nnew\n", ["wrong passphrase"]),
            (f"{PASS}\n", ["ended before"]),
            (f"{PASS}\n\n", ["empty"]),
            (f"{PASS}\nnew\nthird\n", ["more lines"]),
            ("", ["no passphrase"]),
        ]:
            fails(ecfs("key", "passwd", *QUICK, "--stdin", lower, stdin=stdin), 3, *words)
        fails(ecfs("key", "passwd", *QUICK, "--passfile", passfile, lower), 3, "no terminal")
        fails(ecfs("key", "passwd", *QUICK, "--passfile", passfile, "--new-passfile", w.path("none"), lower), 3, "No such file")
        fails(ecfs("key", "passwd", *QUICK, "--stdin", w.path("missing"), stdin="a\nb\n"), 13, "No such file")
        assert open(lower + "/ecfs.volume").read() == before
        assert opens(lower, PASS)


def test_killed_anywhere():
    """One of the two passphrases always opens."""
    with World() as w:
        lower, _ = w.volume()
        now = 0
        phrase = lambda n: PASS if n == 0 else f"passphrase {n}"
        for i in range(40):
            p = w.start([ECFS, "key", "passwd", *QUICK, "--stdin", lower], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)
            p.stdin.write(f"{phrase(now)}\n{phrase(now + 1)}\n".encode())
            p.stdin.close()
            time.sleep(i * 0.0007)
            p.kill()
            p.wait()
            if opens(lower, phrase(now + 1)):
                now += 1
            else:
                assert opens(lower, phrase(now)), i
        # A cut one may leave its new file, which the next takes away.
        assert entries(lower) == ["ecfs.dir", "ecfs.volume"]


def test_two_at_once():
    with World() as w:
        lower, _ = w.volume()
        both = [w.start([ECFS, "key", "passwd", *QUICK, "--stdin", lower], stdin=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(3)]
        for i, p in enumerate(both):
            # Who finds another at work is refused at once, and may be gone before it is written to.
            with contextlib.suppress(BrokenPipeError):
                p.stdin.write(f"{PASS}\nnumber {i}\n".encode())
            with contextlib.suppress(BrokenPipeError):
                p.stdin.close()
        codes = [p.wait() for p in both]
        assert codes.count(0) == 1, codes
        assert opens(lower, f"number {codes.index(0)}")


def test_lower_that_cannot_be_written():
    if os.geteuid() != 0:
        return
    with World() as w:
        lower, _ = w.volume()
        before = open(lower + "/ecfs.volume").read()
        if subprocess.run(["chattr", "+i", lower]).returncode != 0:
            return  # not on this filesystem
        try:
            fails(ecfs("key", "passwd", *QUICK, "--stdin", lower, stdin=f"{PASS}\nnew\n"), 13, "not permitted")
        finally:
            subprocess.run(["chattr", "-i", lower], check=True)
        assert open(lower + "/ecfs.volume").read() == before


if __name__ == "__main__":
    main(globals())
