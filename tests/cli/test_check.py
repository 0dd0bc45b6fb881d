#!/usr/bin/python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""ecfs check: every kind of damage in every kind of structure is found, and what can be repaired is; the rest stays readable."""

import contextlib
import json
import os
import shutil
import subprocess

import common
from common import World, check, ecfs, fails

BLOCK0, BLOCK = 3936, 4064
LONG = "n" * 250
TREE = {
    "small.txt": b"hello\n",
    "empty": b"",
    "big": bytes(i * 7 % 251 for i in range(4 * 4096)),
    "docs/a.txt": b"a" * 5000,
    "docs/b.txt": b"b" * 100,
    "docs/deep/c": b"c" * 9000,
    LONG: b"long name",
}


class Base:
    """A volume with one of everything, made once; each case works on a copy."""

    def __init__(self, world, *options):
        self.world = world
        self.lower, self.passfile = world.volume("base", common.PASS, *options)
        mount = world.path("mnt")
        check(ecfs("mount", "--passfile", self.passfile, self.lower, mount), 0)
        for path, data in TREE.items():
            os.makedirs(os.path.dirname(os.path.join(mount, path)), exist_ok=True)
            with open(os.path.join(mount, path), "wb") as f:
                f.write(data)
        os.mkdir(mount + "/void")
        os.symlink("target", mount + "/link")
        os.symlink("t" * 3900, mount + "/longlink")
        os.setxattr(mount + "/small.txt", "user.comment", b"value")
        os.link(mount + "/docs/b.txt", mount + "/hard")
        os.mkfifo(mount + "/fifo")
        self.at = {}
        for path in [*TREE, "docs", "docs/deep", "void", "link", "longlink"]:
            ran = check(ecfs("name", mount, mount + "/" + path), 0)
            self.at[path] = ran.out.rstrip("\n")[len(self.lower) + 1 :] if ran.out.startswith("/") else ran.out.rstrip("\n")
        check(ecfs("umount", mount), 0)
        self.number = 0

    @contextlib.contextmanager
    def copy(self):
        self.number += 1
        where = self.world.path(f"case{self.number}")
        subprocess.run(["cp", "-a", self.lower, where], check=True)
        yield Case(self, where)
        shutil.rmtree(where)


class Case:
    def __init__(self, base, lower):
        self.base, self.lower = base, lower

    def path(self, plain, *more):
        return os.path.join(self.lower, self.base.at[plain] if plain else "", *more)

    def bytes(self, path):
        with open(path, "rb") as f:
            return f.read()

    def write(self, path, data):
        os.chmod(path, 0o644)
        with open(path, "wb") as f:
            f.write(data)

    def flip(self, path, offset):
        raw = bytearray(self.bytes(path))
        raw[offset] ^= 0x55
        size = os.stat(path).st_size
        os.chmod(path, 0o644)
        with open(path, "r+b") as f:
            f.seek(offset)
            f.write(bytes([raw[offset]]))
        assert os.stat(path).st_size == size

    def zero(self, path, offset, length):
        with open(path, "r+b") as f:
            f.seek(offset)
            f.write(bytes(length))

    def name_file(self):
        return os.path.join(self.lower, self.base.at[LONG].replace("ecfs.long.", "ecfs.name."))

    def target_file(self):
        return os.path.join(self.lower, next(n for n in os.listdir(self.lower) if n.startswith("ecfs.target.")))

    def run(self, *options):
        return ecfs("check", "--json", "--passfile", self.base.passfile, *options, self.lower)

    def findings(self, code, *options):
        ran = check(self.run(*options), code, err="")
        return json.loads(ran.out)

    def kinds(self, code, *options):
        return sorted(f["kind"] for f in self.findings(code, *options)["findings"] if f["severity"] != "note")

    @contextlib.contextmanager
    def mounted(self):
        mount = self.base.world.path("look")
        check(ecfs("mount", "--passfile", self.base.passfile, self.lower, mount), 0)
        try:
            yield mount
        finally:
            check(ecfs("umount", mount), 0)


HEADER = {"magic": 0, "version": 8, "suite": 10, "zero byte": 11, "epoch": 12, "file id": 20, "wrap nonce": 40, "wrapped key": 60, "key tag": 100, "padding": 110}
BLOCKS = {"nonce": 3, "length": 12, "zero": 14, "tag": 20, "body": 100}


def remove(path):
    os.unlink(path)


def cases():
    """name, damage(case), findings, what is left after --repair, what cannot be read any more."""
    for what, at in HEADER.items():
        yield f"header {what}", lambda c, at=at: c.flip(c.path("docs/a.txt"), at), ["header" if what not in ("version", "suite") else "later version"], None, ["docs/a.txt"]
    yield "header zeroed", lambda c: c.zero(c.path("docs/a.txt"), 0, 128), ["header"], ["header"], ["docs/a.txt"]
    yield "first page zeroed", lambda c: c.zero(c.path("docs/a.txt"), 0, 4096), ["header"], ["header"], ["docs/a.txt"]
    yield "cut in the header", lambda c: os.truncate(c.path("docs/a.txt"), 100), ["header"], ["header"], ["docs/a.txt"]
    yield "header of another", lambda c: graft(c, c.path("docs/a.txt"), c.path("big"), 0, 128), ["block"], ["block"], ["docs/a.txt"]
    for what, at in BLOCKS.items():
        yield f"block {what}", lambda c, at=at: c.flip(c.path("big"), 4096 + at), ["block"], ["block"], ["big"]
        yield f"last block {what}", lambda c, at=at: c.flip(c.path("docs/b.txt"), 128 + at), ["block"], ["block"], ["docs/b.txt", "hard"]
    yield "block padding", lambda c: c.flip(c.path("docs/b.txt"), 4000), ["block"], ["block"], ["docs/b.txt", "hard"]
    yield "blocks swapped", lambda c: swap_pages(c.path("big"), 1, 2), ["block"], ["block"], ["big"]
    yield "block of another file", lambda c: graft(c, c.path("big"), c.path("docs/deep/c"), 4096, 4096), ["block"], ["block"], ["big"]
    yield "block cut away", lambda c: os.truncate(c.path("docs/deep/c"), 2 * 4096 + 100), ["size hint"], [], ["docs/deep/c"]
    yield "hint larger", lambda c: os.truncate(c.path("docs/a.txt"), os.stat(c.path("docs/a.txt")).st_size + 5), ["size hint"], [], []
    yield "hint smaller", lambda c: os.truncate(c.path("docs/b.txt"), 4096 + 3), ["size hint"], [], []
    yield "hint missing", lambda c: os.truncate(c.path("docs/b.txt"), 4096), ["size hint"], [], []
    yield "zero page behind", lambda c: os.truncate(c.path("docs/b.txt"), 2 * 4096 + 7), ["size hint"], [], []
    yield "bytes in the tail", lambda c: graft(c, c.path("docs/b.txt"), c.path("big"), 4096, 50), ["size hint"], [], []
    yield "ecfs.dir flipped", lambda c: c.flip(c.path("docs", "ecfs.dir"), 3), ["directory id"], [], []
    yield "ecfs.dir MAC flipped", lambda c: c.flip(c.path("docs", "ecfs.dir"), 40), ["directory id"], [], []
    yield "ecfs.dir cut", lambda c: os.truncate(c.path("docs", "ecfs.dir"), 20), ["directory id"], [], []
    yield "ecfs.dir missing", lambda c: remove(c.path("docs", "ecfs.dir")), ["directory id"], [], []
    yield "ecfs.dir missing in the root", lambda c: remove(c.path("", "ecfs.dir")), ["directory id"], [], []
    yield "ecfs.dir of another directory", lambda c: c.write(c.path("docs", "ecfs.dir"), c.bytes(c.path("docs/deep", "ecfs.dir"))), ["directory id"], [], []
    yield "xattr missing", lambda c: os.removexattr(c.path("docs"), "user.ecfs.dir"), ["directory id copy"], [], []
    yield "xattr damaged", lambda c: os.setxattr(c.path("docs"), "user.ecfs.dir", b"x" * 48), ["directory id copy"], [], []
    yield "xattr of another directory", lambda c: os.setxattr(c.path("docs"), "user.ecfs.dir", c.bytes(c.path("docs/deep", "ecfs.dir"))), ["directory id copy"], [], []
    yield "both ids lost", lose_id("docs"), ["lost directory id", "name", "name", "name"], [], ["docs/a.txt", "docs/b.txt", "docs/deep/c"]
    yield "both ids of the root lost", lose_id(""), None, [], None
    yield "an empty directory without an id", lose_id("void"), ["directory without id"], [], []
    yield "name damaged", lambda c: os.rename(c.path("small.txt"), c.path("small.txt")[:-1] + ("A" if c.path("small.txt")[-1] != "A" else "E")), ["name"], [], ["small.txt"]
    yield "name of another directory", lambda c: os.rename(c.path("docs/a.txt"), c.path("", os.path.basename(c.path("docs/a.txt")))), ["name"], [], ["docs/a.txt"]
    yield "name file missing", lambda c: remove(c.name_file()), ["name"], [], [LONG]
    yield "name file flipped", lambda c: c.flip(c.name_file(), 9), ["name"], [], [LONG]
    yield "name file cut", lambda c: os.truncate(c.name_file(), 100), ["name"], [], [LONG]
    yield "name file without its object", lambda c: remove(c.path(LONG)), ["orphan"], [], [LONG]
    yield "link target flipped", lambda c: relink(c.path("link"), lambda t: t[:-3] + ("A" if t[-3] != "A" else "B") + t[-2:]), ["link target"], ["link target"], ["link"]
    yield "link target cut", lambda c: relink(c.path("link"), lambda t: t[:40]), ["link target"], ["link target"], ["link"]
    yield "target file flipped", lambda c: c.flip(c.target_file(), 70), ["link target"], ["link target"], ["longlink"]
    yield "target file missing", lambda c: remove(c.target_file()), ["link target"], ["link target"], ["longlink"]
    yield "target file without its link", lambda c: remove(c.path("longlink")), ["orphan"], [], ["longlink"]
    yield "xattr value flipped", spoil_xattr(lambda v: v[:-1] + bytes([v[-1] ^ 1])), ["extended attribute"], ["extended attribute"], []
    yield "xattr value cut", spoil_xattr(lambda v: v[:20]), ["extended attribute"], ["extended attribute"], []
    yield "leavings", leavings, ["orphan"] * 3, [], []
    yield "marker of a cut session", lambda c: session(c, b'{"cut": [], "running": true, "start": [1, 0]}'), ["cut session"], [], []
    yield "marker that is damaged", lambda c: session(c, b"{"), ["cut session"], [], []
    yield "a lost first write", lambda c: (session(c, b""), c.zero(c.path("docs/a.txt"), 0, 4096)), ["cut session", "lost first write"], [], ["docs/a.txt"]


def graft(case, to, source, offset, length):
    data = case.bytes(source)[offset : offset + length]
    with open(to, "r+b") as f:
        f.seek(offset)
        f.write(data)


def swap_pages(path, a, b):
    with open(path, "r+b") as f:
        pages = [os.pread(f.fileno(), 4096, n * 4096) for n in (a, b)]
        os.pwrite(f.fileno(), pages[1], a * 4096)
        os.pwrite(f.fileno(), pages[0], b * 4096)


def lose_id(directory):
    def damage(case):
        os.unlink(case.path(directory, "ecfs.dir"))
        os.removexattr(case.path(directory) if directory else case.lower, "user.ecfs.dir")

    return damage


def relink(path, change):
    text = change(os.readlink(path))
    os.unlink(path)
    os.symlink(text, path)


def spoil_xattr(change):
    def damage(case):
        path = case.path("small.txt")
        name = next(n for n in os.listxattr(path) if n.startswith("user.ecfs."))
        os.setxattr(path, name, change(os.getxattr(path, name)))

    return damage


def leavings(case):
    for path in (case.path("", "ecfs.volume.new"), case.path("", "ecfs.session.new"), case.path("docs", "ecfs.dir.new")):
        with open(path, "wb") as f:
            f.write(b"{")


def session(case, text):
    with open(case.path("", "ecfs.session"), "wb") as f:
        f.write(text)


def readable(mount, lost):
    """Everything that the damage has not taken is there, with its bytes."""
    for path, data in TREE.items():
        if lost is not None and path not in lost:
            with open(os.path.join(mount, path), "rb") as f:
                if f.read() != data:
                    raise AssertionError(f"{path} has other bytes")
    if lost is not None and "link" not in lost:
        assert os.readlink(mount + "/link") == "target"
    if lost is not None and "longlink" not in lost:
        assert os.readlink(mount + "/longlink") == "t" * 3900


def test_corpus():
    common.need_fuse()
    with World() as world:
        base = Base(world)
        with base.copy() as case:
            assert case.kinds(0, "--scrub") == [], "the volume is not clean to begin with"
        failed = 0
        for name, damage, expected, left, lost in cases():
            with base.copy() as case:
                try:
                    damage(case)
                    found = case.kinds(4, "--scrub")
                    if expected is not None and found != sorted(expected):
                        raise AssertionError(f"found {found}, expected {expected}")
                    left = [k for k in found if k != "block"] if left is None else left
                    rest = case.findings(4 if left else 1, "--scrub", "--repair", "--yes")
                    again = case.kinds(4 if left else 0, "--scrub")
                    if again != sorted(left):
                        raise AssertionError(f"after the repair {again}, expected {left}; {rest['repaired']}")
                    # Where something was done: nothing more is the second time, and all the rest is there.
                    if rest["repaired"]:
                        assert case.findings(4 if left else 0, "--repair", "--yes")["repaired"] == []
                        with case.mounted() as mount:
                            readable(mount, lost)
                except Exception as e:
                    failed += 1
                    print(f"  {name}: {e}")
        assert failed == 0, f"{failed} cases failed"


def test_ranges():
    """Damage in the middle is told with its plaintext offset and length."""
    common.need_fuse()
    with World() as world:
        base = Base(world)
        with base.copy() as case:
            for page in (1, 2):
                case.flip(case.path("big"), page * 4096 + 500)
            (found,) = case.findings(4, "--scrub")["findings"]
            assert (found["path"], found["offset"], found["length"]) == ("big", BLOCK0, 2 * BLOCK), found
            assert case.kinds(0) == [], "a look without --scrub reads the last block alone"


def test_salvage():
    """What is good of a damaged file is copied, and a map says what is missing."""
    common.need_fuse()
    with World() as world:
        base = Base(world)
        with base.copy() as case:
            case.flip(case.path("big"), 4096 + 500)
            case.flip(case.path("docs/a.txt"), 4096 + 5)
            out = world.path("saved")
            check(case.run("--salvage", out), 4)
            for path, lost in (("big", (BLOCK0, BLOCK)), ("docs/a.txt", (BLOCK0, 5000 - BLOCK0))):
                want = bytearray(TREE[path])
                want[lost[0] : lost[0] + lost[1]] = bytes(lost[1])
                assert case.bytes(os.path.join(out, path)) == want, path
                assert case.bytes(os.path.join(out, path + ".holes")) == b"%d %d\n" % lost
            fails(ecfs("check", "--salvage", out, "--passfile", base.passfile, case.lower), 2, "not empty")
            fails(ecfs("check", "--salvage", case.path("", "in"), "--passfile", base.passfile, case.lower), 2, "lower directory")


def test_repair_needs_the_volume():
    common.need_fuse()
    with World() as world:
        lower, mount, passfile = world.mounted()
        with open(mount + "/f", "w") as f:
            f.write("x")
        fails(ecfs("check", "--repair", "--yes", "--passfile", passfile, lower), 8, "it is mounted")
        # A look is possible, by either name.
        for where in (lower, mount):
            check(ecfs("check", "--scrub", "--passfile", passfile, where), 0)
        check(ecfs("umount", mount), 0)


def test_exit_codes():
    with World() as world:
        lower, passfile = world.volume()
        check(ecfs("check", "--passfile", passfile, lower), 0)
        fails(ecfs("check", "--stdin", lower, stdin="wrong\n"), 3, "passphrase")
        fails(ecfs("check", "--passfile", passfile, world.path("none")), 8)
        fails(ecfs("check", "--yes", "--passfile", passfile, lower), 2)
        fails(ecfs("check", "--repair", "--passfile", passfile, lower), 2, "--yes")
        os.mkdir(world.path("plain"))
        fails(ecfs("check", "--passfile", passfile, world.path("plain")), 8, "no ecfs volume")


def test_foreign_is_left_alone():
    common.need_fuse()
    with World() as world:
        base = Base(world)
        with base.copy() as case:
            junk = {"README": b"not ours", ".nfs0001": b"", "ecfs.dir.sync-conflict": b"x"}
            for name, data in junk.items():
                with open(case.path("docs", name), "wb") as f:
                    f.write(data)
            os.mkdir(case.path("docs", "elsewhere"))
            copy = case.path("docs/a.txt") + ".sync-conflict-1"
            shutil.copy(case.path("docs/a.txt"), copy)
            found = case.findings(0, "--scrub")["findings"]
            assert sorted(f["path"] for f in found) == sorted("docs/" + n for n in [*junk, "elsewhere"]), found
            case.findings(0, "--scrub", "--repair", "--yes")
            for name, data in junk.items():
                assert case.bytes(case.path("docs", name)) == data
            assert os.path.exists(copy)


if __name__ == "__main__":
    common.main(globals())
