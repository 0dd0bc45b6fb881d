#!/usr/bin/python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""ecfs init and ecfs info: what they make, print and refuse."""

import json
import os
import re
import subprocess

from common import PASS, QUICK, World, check, ecfs, entries, fails, main, need_root, run, ECFS

KEY = r"(?:[0-9a-f]{4}[0-9a-hjkmnp-tv-y]-){7}[0-9a-f]{4}[0-9a-hjkmnp-tv-y]"


def test_output_and_files():
    with World() as w:
        lower = w.path("lower")
        ran = check(ecfs("init", *QUICK, "--stdin", lower, stdin=PASS), 0, err="")
        assert re.fullmatch(
            f"Recovery key of {lower}:\n\n    {KEY}\n\n"
            "It opens the volume when the passphrase is lost. Write it down and keep it away from\n"
            "this computer: it is shown only now. Without the passphrase and without this key\n"
            f"nobody can read the volume.\nThe volume is in {lower}.\n",
            ran.out,
        ), ran
        assert entries(lower) == ["ecfs.dir", "ecfs.volume"]
        assert os.stat(lower).st_mode & 0o777 == 0o700
        assert os.stat(lower + "/ecfs.volume").st_mode & 0o777 == 0o600
        record = open(lower + "/ecfs.dir", "rb").read()
        assert len(record) == 48
        try:
            assert os.getxattr(lower, "user.ecfs.dir") == record
        except OSError as e:
            assert e.errno == 95, e
        volume = json.load(open(lower + "/ecfs.volume"))
        assert [s["type"] for s in volume["keyslots"]] == ["passphrase", "recovery"]


def test_options():
    with World() as w:
        lower = w.path("lower")
        ran = check(
            ecfs("init", *QUICK, "--stdin", "--no-recovery", "--names=plain", "--cipher=chacha20-poly1305", "--label", "caf\u00e9", lower, stdin=PASS), 0, err="")
        assert ran.out == f"There is no recovery key: with the passphrase forgotten, nobody can read {lower}.\nThe volume is in {lower}.\n", ran
        assert entries(lower) == ["ecfs.volume"]
        info = json.loads(check(ecfs("info", "--json", lower), 0, err="").out)
        assert (info["cipher"], info["names"], info["epochs"], info["lower"]) == ("chacha20-poly1305", "plain", [1], lower)
        assert [(s["type"], s["label"]) for s in info["keyslots"]] == [("passphrase", "caf\u00e9")]
        text = check(ecfs("info", lower), 0, err="").out
        assert f"volume   {info['uuid']}\nlower    {lower}\nformat   1\n" in text, text
        assert 'slot 0   passphrase "caf\u00e9", made ' in text, text


def test_where_it_may_be_made():
    with World() as w:
        lower = w.path("lower")
        os.makedirs(lower + "/lost+found")
        # What an init that was cut leaves.
        w.write("lower/ecfs.dir", b"half")
        w.write("lower/ecfs.volume.new", b"{")
        check(ecfs("init", *QUICK, "--stdin", lower, stdin=PASS), 0)
        assert entries(lower) == ["ecfs.dir", "ecfs.volume", "lost+found"]
        before = open(lower + "/ecfs.volume").read()
        fails(ecfs("init", *QUICK, "--stdin", lower, stdin=PASS), 6, lower, "already")
        assert open(lower + "/ecfs.volume").read() == before

        os.mkdir(w.path("full"))
        w.write("full/file", b"x")
        fails(ecfs("init", *QUICK, "--stdin", w.path("full"), stdin=PASS), 13, "empty", "holds file")
        assert entries(w.path("full")) == ["file"]
        # An old volume that lost its volume file is not made anew.
        os.remove(lower + "/ecfs.volume")
        w.write("lower/ecfs.long.x", b"x")
        fails(ecfs("init", *QUICK, "--stdin", lower, stdin=PASS), 13, "ecfs.long.x", "backup")

        w.write("plain file", b"")
        fails(ecfs("init", *QUICK, "--stdin", w.path("plain file"), stdin=PASS), 13, "Not a directory")
        fails(ecfs("init", *QUICK, "--stdin", w.path("no/such"), stdin=PASS), 13, "No such file")
        assert not os.path.exists(w.path("no"))
        fails(ecfs("init", *QUICK, "--stdin", "", stdin=PASS), 13, "No such file")


def test_strange_names():
    with World() as w:
        for name in ["with space", "comma,colon:", "back\\slash", "new\nline", "[brackets]", "-dash", "\u00fcml\u00e4ut", "quote'\""]:
            lower = w.path(name)
            check(ecfs("init", *QUICK, "--stdin", "--", lower, stdin=PASS), 0, err="")
            assert json.loads(check(ecfs("info", "--json", lower), 0).out)["lower"] == lower
            ran = check(ecfs("init", "--stdin", lower, stdin=PASS), 6)
            # Two lines, whatever is in the name.
            assert len(ran.err.splitlines()) == 2, ran
        check(ecfs("init", *QUICK, "--stdin", "--", "-relative", cwd=w.dir, stdin=PASS), 0)
        assert os.path.exists(w.path("-relative/ecfs.volume"))


def test_usage():
    for args, words in [
        (["init"], ["LOWER"]),
        (["init", "--names=x", "/nonexistent"], ["--names", "encrypted"]),
        (["init", "--cipher=rot13", "/nonexistent"], ["--cipher", "aes-256-gcm"]),
        (["init", "--kdf-time=0", "/nonexistent"], ["--kdf-time"]),
        (["init", "--label", "a\nb", "/nonexistent"], ["--label"]),
        (["init", "--passfile", "/x", "--stdin", "/nonexistent"], ["--passfile", "--stdin"]),
        (["init", "/a", "/b"], ["/b"]),
        (["init", "--bogus", "/a"], ["--bogus"]),
        (["info"], ["LOWER"]),
        (["frobnicate"], ["frobnicate"]),
        ([], ["no command"]),
        (["key"], ["no command"]),
        (["key", "frob"], ["frob"]),
    ]:
        fails(ecfs(*args), 2, *words)
    for args in [["--help"], ["--version"], ["init", "--help"], ["mount", "-h"], ["key", "--help"], ["key", "passwd", "--help"]]:
        assert check(ecfs(*args), 0, err="").out


def test_output_that_cannot_be_written():
    """A recovery key that could not be shown must not become one that counts."""
    with World() as w:
        with open("/dev/full", "wb") as full:
            done = subprocess.run([ECFS, "init", *QUICK, "--stdin", w.path("lower")], input=PASS.encode(), stdout=full, stderr=subprocess.PIPE)
        assert done.returncode == 1 and b"standard output" in done.stderr, done
        assert not os.path.exists(w.path("lower"))


def test_no_space():
    need_root()
    with World() as w:
        os.mkdir(w.path("small"))
        check(run(["mount", "-t", "tmpfs", "-o", "size=64k,nr_inodes=3", "none", w.path("small")]), 0)
        # One inode for the root, one for the lower directory, one file: the second does not fit.
        ran = ecfs("init", *QUICK, "--stdin", w.path("small/lower"), stdin=PASS)
        check(ran, 13)
        assert "No space left" in ran.err and "opens nothing" in ran.err, ran
        assert entries(w.path("small")) == []


def test_two_at_once():
    with World() as w:
        lower = w.path("lower")
        both = [w.start([ECFS, "init", *QUICK, "--stdin", lower], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(4)]
        for p in both:
            p.communicate(PASS.encode())
        codes = sorted(p.returncode for p in both)
        assert codes[0] == 0 and all(c in (6, 12) for c in codes[1:]), codes
        assert entries(lower) == ["ecfs.dir", "ecfs.volume"]


if __name__ == "__main__":
    main(globals())
