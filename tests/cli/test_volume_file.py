#!/usr/bin/python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""A volume file that is missing, cut, changed or of a later version: refused with its own exit code before a passphrase is
asked for, and left as it is."""

import base64
import hashlib
import json
import os

from common import World, check, ecfs, entries, fails, main


def forge(volume):
    """The text with a right checksum, as somebody makes it who knows the format but no key."""
    volume = {k: v for k, v in volume.items() if k != "checksum"}
    compact = json.dumps(volume, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    volume["checksum"] = base64.urlsafe_b64encode(hashlib.blake2b(compact, digest_size=32).digest()).decode().rstrip("=")
    return json.dumps(volume, sort_keys=True, indent=2, ensure_ascii=False) + "\n"


def refused(w, lower, passfile, data, code, *words):
    path = lower + "/ecfs.volume"
    with open(path, "wb") as f:
        f.write(data if isinstance(data, bytes) else data.encode())
    before = open(path, "rb").read()
    fails(ecfs("mount", "--passfile", passfile, lower, w.path("mnt")), code, lower, *words)
    assert open(path, "rb").read() == before
    assert entries(lower) == ["ecfs.dir", "ecfs.volume"]
    assert not os.path.exists(w.path("mnt"))


def test_every_byte_and_every_cut():
    with World() as w:
        lower, _ = w.volume()
        path = lower + "/ecfs.volume"
        good = open(path, "rb").read()
        for i in range(len(good)):
            # Every cut is the unit tests' work; of processes, every 16th is enough.
            cut = [good[:i]] if i % 16 == 0 else []
            for bad in [good[:i] + bytes([good[i] ^ (1 << i % 8)]) + good[i + 1 :], *cut]:
                with open(path, "wb") as f:
                    f.write(bad)
                ran = ecfs("info", lower)
                if ran.code not in (7, 9):
                    raise AssertionError(f"byte {i}: {ran}")
        with open(path, "wb") as f:
            f.write(good)
        check(ecfs("info", lower), 0)


def test_kinds():
    with World() as w:
        lower, passfile = w.volume()
        good = open(lower + "/ecfs.volume").read()
        j = json.loads(good)
        assert forge(j) == good
        refused(w, lower, passfile, "", 7, "empty", "backup")
        refused(w, lower, passfile, good[: len(good) // 2], 7, "cut short", "backup")
        refused(w, lower, passfile, "not JSON\n", 7, "not JSON", "backup")
        refused(w, lower, passfile, b"\0" * 4096, 7, "backup")
        refused(w, lower, passfile, "[" * 100000, 7, "backup")
        refused(w, lower, passfile, good.replace(j["uuid"][:8], "00000000"), 7, "checksum", "backup")
        refused(w, lower, passfile, good.replace('"names": "encrypted"', '"names": "encrypteD"'), 7, "names", "backup")
        refused(w, lower, passfile, good.replace('"format": 1', '"format": 2'), 9, "format: 2", "later version")
        refused(w, lower, passfile, forge({**j, "compression": "zstd"}), 9, '"compression"')
        refused(w, lower, passfile, forge({**j, "suite": "aegis-256"}), 9, "suite", '"aegis-256"')
        slot = {**j["keyslots"][0], "argon2_mem": 5 << 30}
        refused(w, lower, passfile, forge({**j, "keyslots": [slot]}), 7, "argon2_mem", "limit")
        slot = {**j["keyslots"][0], "argon2_ops": 101}
        refused(w, lower, passfile, forge({**j, "keyslots": [slot]}), 7, "argon2_ops", "limit")
        # With a right checksum only the master key tells.
        refused(w, lower, passfile, forge({**j, "created": "2001-01-01T00:00:00Z"}), 7, "MAC")
        with open(lower + "/ecfs.volume", "w") as f:
            f.write(good)
        check(ecfs("info", lower), 0)


def test_no_volume():
    with World() as w:
        _, passfile = w.volume()
        empty, full = w.path("empty"), w.path("full")
        os.mkdir(empty)
        os.mkdir(full)
        w.write("full/file", b"x")
        fails(ecfs("mount", "--passfile", passfile, empty, w.path("mnt")), 5, empty, f"ecfs init {empty}")
        fails(ecfs("info", empty), 5, empty)
        fails(ecfs("key", "passwd", "--passfile", passfile, empty), 5, empty)
        # Even when asked to make one: not over files that are there.
        fails(ecfs("mount", "--init", "--passfile", passfile, full, w.path("mnt")), 13, full, "holds file")
        assert entries(empty) == [] and entries(full) == ["file"] and not os.path.exists(w.path("mnt"))
        os.mkdir(w.path("odd"))
        os.mkfifo(w.path("odd/ecfs.volume"))
        fails(ecfs("info", w.path("odd")), 7, "not a regular file")


if __name__ == "__main__":
    main(globals())
