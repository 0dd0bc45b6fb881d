#!/usr/bin/python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""ecfs-rescue: options, passphrases, exit codes, golden volumes, epochs, and volumes that mean ill."""

import contextlib
import glob
import json
import os
import shutil
import stat
import subprocess
import sys

try:
    import nacl  # noqa: F401
    import pexpect

    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "vectors"))
    import reference as ref  # seals what no ecfs would write
except ImportError as error:
    print("SKIP:", error)
    sys.exit(77)

import rescue_program
from common import PASS, ROOT, Ran, World, check, ecfs, main, run

RESCUE = str(ROOT / "tools" / "ecfs-rescue")
GOLDEN = str(ROOT / "tests" / "vectors" / "golden")


def rescue(*args, stdin=b"", user=None):
    code, out, err = rescue_program.run(args, stdin.encode() if isinstance(stdin, str) else stdin, user)
    return Ran([RESCUE, *args], code, out.decode("utf-8", "surrogateescape"), err.decode("utf-8", "surrogateescape"))


def fails(ran, code, *words):
    """One error line that has all the words, and nothing on standard output."""
    check(ran, code, "")
    lines = ran.err.splitlines()
    assert sum(line.startswith("ecfs-rescue: error: ") for line in lines) == 1, ran
    assert all(line.startswith("ecfs-rescue: ") for line in lines), ran
    assert all(word in ran.err for word in words), ran
    return ran


def equal(got, want, what=""):
    assert got == want, f"{what}: expected {want!r}, got {got!r}"


def damages(ran):
    """{(path, kind)} of verify --json"""
    return {(line["path"], line["damage"]) for line in map(json.loads, ran.out.splitlines()) if "damage" in line}


def read(path):
    with open(path, "rb") as f:
        return f.read()


def unpacked(w, base):
    lower = w.path(os.path.basename(base))
    os.mkdir(lower)
    subprocess.run(["tar", "-C", lower, "-xpzf", base + ".tar.gz", "--xattrs", "--xattrs-include=user.*"], check=True)
    return lower


class Made(World):
    """A world with a volume whose keys are known, so that anything can be put into it."""

    def __init__(self, **fields):
        super().__init__()
        self.lower = self.path("lower")
        os.mkdir(self.lower)
        self.passfile = self.write("pass", PASS + "\n")
        self.masters = {1: bytes(range(32)), 2: bytes(range(32, 64))}
        self.keys = {epoch: ref.Keys(epoch, master) for epoch, master in self.masters.items()}
        self.fields = {"format": 1, "uuid": "00010203-0405-4607-8809-0a0b0c0d0e0f", "created": "2026-01-02T03:04:05Z", "suite": "aes-256-gcm",
                       "names": "encrypted", "long_name_max": 255, "epochs": [1, 2], "keyslots": [self.slot()], **fields}
        self.id = bytes(range(16))
        self.put_volume()
        self.put_id(self.lower, self.id, 2)

    def slot(self, **fields):
        slot = {"type": "passphrase", "label": "made", "created": "2026-01-02T03:04:05Z", "argon2_ops": 1, "argon2_mem": 65536,
                "salt": ref.b64(bytes(16)), "nonce": ref.b64(bytes(24)), **fields}
        wrapped = ref.wrap_masters({"uuid": "00010203-0405-4607-8809-0a0b0c0d0e0f"}, {**slot, "argon2_ops": 1, "argon2_mem": 65536},
                                   PASS.encode(), bytes(24), self.masters)
        return {**slot, "wrapped": ref.b64(wrapped[24:])}

    def put_volume(self, text=None):
        self.write("lower/ecfs.volume", text or ref.volume_text(self.fields, self.keys[2].conf))

    def put_id(self, directory, ident, epoch, following=0):
        with open(os.path.join(directory, "ecfs.dir"), "wb") as f:
            f.write(ref.dir_record(self.keys[epoch], ident, following))

    def name(self, plain, epoch=2, long=False, directory=None, ident=None):
        """The lower path that a name has, its name file made where it is long."""
        directory = directory or self.lower
        text = ref.encode_name(self.keys[epoch], ident or self.id, plain)
        if not long and len(text) <= 255:
            return os.path.join(directory, text)
        name = ref.long_name(text)
        with open(os.path.join(directory, name.replace("long", "name")), "w") as f:
            f.write(text)
        return os.path.join(directory, name)

    def put_file(self, lower_path, content, epoch=2, suite=1):
        """Of one block."""
        page = ref.header(self.keys[epoch], suite, bytes(16), bytes(24), bytes(32)) + ref.seal_block(suite, bytes(32), 0, bytes(12), content)
        with open(lower_path, "wb") as f:
            f.write(page + bytes(len(content)))

    def verify(self, code):
        return check(rescue("--json", "--passfile", self.passfile, "verify", self.lower), code)

    def extract(self, code, out="out"):
        check(rescue("--passfile", self.passfile, "extract", self.lower, self.path(out)), code)
        return self.path(out)


def test_usage():
    with World() as w:
        lower, passfile = w.volume()
        for args in ([], ["list"], ["look", lower], ["list", lower, "out"], ["extract", lower], ["list", "--bogus", lower],
                     ["--stdin", "--passfile", passfile, "list", lower], ["--json", "--passfile", passfile, "extract", lower, w.path("out")]):
            fails(rescue(*args), 2)
        text = check(run([RESCUE, "--help"]), 0, err="").out
        assert "list" in text and "verify" in text and "extract" in text and "--passfile" in text
        # Options stand anywhere.
        for args in (["--passfile", passfile, "list", lower], ["list", "--passfile", passfile, lower], ["list", lower, "--passfile", passfile]):
            assert check(rescue(*args), 0, err="").out.endswith(" .\n")
        assert not os.path.exists(w.path("out"))


def test_lower_and_out():
    with World() as w:
        lower, passfile = w.volume()
        options = ["--passfile", passfile]
        fails(rescue(*options, "list", w.path("none")), 13, "No such file")
        fails(rescue(*options, "list", passfile), 13, "Not a directory")
        fails(rescue(*options, "list", w.dir), 5, "no volume")
        full = w.path("full")
        os.mkdir(full)
        w.write("full/x", "")
        fails(rescue(*options, "extract", lower, full), 2, "not empty")
        for out in (os.path.join(lower, "out"), lower, w.path("lower/../lower/out")):
            fails(rescue(*options, "extract", lower, out), 2, "in the lower directory" if out != lower else "")
        assert not os.path.exists(os.path.join(lower, "out"))
        fails(rescue(*options, "extract", lower, w.path("none/out")), 1, "No such file")
        fails(rescue(*options, "extract", lower, passfile), 1, "exists")
        os.unlink(os.path.join(full, "x"))
        check(rescue(*options, "extract", lower, full), 0)
        check(rescue(*options, "extract", lower, w.path("new")), 0)
        equal(stat.S_IMODE(os.stat(w.path("new")).st_mode), stat.S_IMODE(os.stat(lower).st_mode))


def test_passphrases():
    longest = b"x" * 1024
    with World() as w:
        for made, given, good in [(b"abc", b"abc\n", True), (b"abc\r\n", b"abc\r\n", True), (b"abc", b"abc ", False), (b"abc", b"abc\n\n", False),
                                  (b"\xff\xfe", b"\xff\xfe\n", True), (longest, longest + b"\n", True)]:
            lower = w.path("lower")
            shutil.rmtree(lower, ignore_errors=True)
            check(ecfs("init", "--kdf-time", "1", "--passfile", w.write("made", made), lower), 0)
            ways = [rescue("--passfile", w.write("given", given), "verify", lower)]
            if not given.endswith(b"\n\n"):  # two lines there
                ways.append(rescue("--stdin", "verify", lower, stdin=given))
            for ran in ways:
                check(ran, 0, err="") if good else fails(ran, 3, "wrong passphrase")
        for bad in (b"", b"\n", b"a\0b", b"x" * 1025, b"x" * 5000):
            fails(rescue("--passfile", w.write("given", bad), "list", lower), 3)
            fails(rescue("--stdin", "list", lower, stdin=bad), 3)
        fails(rescue("--stdin", "list", lower, stdin=longest + b"\nmore\n"), 3, "more lines")
        fails(rescue("--passfile", w.path("none"), "list", lower), 3, "No such file")
        fails(rescue("list", lower), 3, "no terminal")


def test_terminal():
    with World() as w:
        lower, _ = w.volume()
        child = pexpect.spawn(RESCUE, ["verify", lower], timeout=20, encoding="utf-8")
        child.delaybeforesend = 0
        child.expect_exact(f"Passphrase for {lower}: ")
        child.sendline("wrong one")
        child.expect_exact("Wrong passphrase. Try again.")
        child.expect_exact(f"Passphrase for {lower}: ")
        child.sendline(PASS)
        child.expect(pexpect.EOF)
        child.close()
        assert child.exitstatus == 0 and "no damage" in child.before and PASS not in child.before, child.before
        child = pexpect.spawn(RESCUE, ["verify", lower], timeout=20, encoding="utf-8")
        child.delaybeforesend = 0
        for _ in range(3):
            child.expect_exact("Passphrase for ")
            child.sendline("wrong")
        child.expect(pexpect.EOF)
        child.close()
        assert child.exitstatus == 3 and "error: " + lower + ": wrong passphrase" in child.before, child.before


def test_golden():
    """With the passphrase and the recovery key, in the ways of writing it."""
    bases = sorted(path.removesuffix(".tar.gz") for path in glob.glob(os.path.join(GOLDEN, "*.tar.gz")))
    assert len(bases) >= 4
    with World() as w:
        try:
            os.symlink("t" * 3500, w.path("link"))
        except OSError:
            print("      left out: links in the temporary directory hold no 3500 bytes")
            return
        for base in bases:
            lower = unpacked(w, base)
            want = read(base + ".manifest").decode()
            out = w.path(os.path.basename(base) + ".out")
            check(rescue("--passfile", base + ".passphrase", "extract", lower, out), 0, err="")
            got = ref.manifest(ref.plain_walk(os.fsencode(out)))
            equal(sorted(got.splitlines()), sorted(want.splitlines()), base)
            key = read(base + ".recovery").decode().strip()
            loose = key.upper().replace("-", "  ").replace("0", "o").replace("1", "L")
            listed = [check(rescue("--stdin", "--json", "list", lower, stdin=text), 0, err="").out for text in (key, loose, key.replace("-", "") + "\n")]
            assert listed[0] == listed[1] == listed[2]
            entries = [json.loads(line) for line in listed[0].splitlines()]
            equal(len(entries), len(want.splitlines()) + 1, "entries that are listed")
            typo = key[:7] + ("1" if key[7] != "1" else "2") + key[8:]
            fails(rescue("--stdin", "list", lower, stdin=typo), 3, "group 2 has a typing error")


def test_list():
    with Made() as w:
        w.put_file(w.name(b"a\x1b[31m\nb\\"), b"x" * 100)
        os.symlink(ref.seal_target(w.keys[1], bytes(24), b"to\x07"), w.name(b"link"))
        os.mkfifo(w.name(b"fifo"))
        ran = check(rescue("--passfile", w.passfile, "list", w.lower), 0, err="")
        lines = [line.split(" ", 1)[0][0] + line.split(":", 1)[1][2:] for line in ran.out.splitlines()]
        equal(lines, ["d .", r"- a\x1b[31m\nb\\", "p fifo", r"l link -> to\x07"])
        assert " 100 " in ran.out.splitlines()[1] and " 3 " in ran.out.splitlines()[3]
        entry = json.loads(check(rescue("--json", "--passfile", w.passfile, "list", w.lower), 0).out.splitlines()[1])
        equal((entry["type"], entry["size"], entry["path"]), ("file", 100, r"a\x1b[31m\nb\\"))


def test_epochs():
    """In the middle of a rotation: everything says its epoch, names are of either."""
    with Made() as w:
        w.put_id(w.lower, w.id, 1, 2)
        for epoch in (1, 2):
            for suite in (1, 2):
                path = w.name(b"file %d %d" % (epoch, suite), epoch)
                w.put_file(path, b"epoch %d" % epoch, 3 - epoch, suite)
                for attr in (b"attr", b"n" * 240):
                    os.setxattr(path, ref.xattr_name(w.keys[epoch], attr), ref.seal_xattr(w.keys[epoch], bytes(24), attr, b"value"))
            os.symlink(ref.seal_target(w.keys[epoch], bytes(24), b"target"), w.name(b"link %d" % epoch, epoch))
            w.put_file(w.name(b"long %d " % epoch + b"n" * 240, epoch), b"long")
            directory = w.name(b"dir %d" % epoch, 3 - epoch)
            os.mkdir(directory)
            w.put_id(directory, bytes(16), epoch)
            w.put_file(w.name(b"in it", epoch, directory=directory, ident=bytes(16)), b"in it")
        # Of both epochs, the newest counts, in whatever order they are listed.
        path = w.name(b"file 1 1", 1)
        for attr in [b"attr"] + [b"both %d" % n for n in range(10)]:
            for epoch, value in ((1, b"older"), (2, b"newer")):
                os.setxattr(path, ref.xattr_name(w.keys[epoch], attr), ref.seal_xattr(w.keys[epoch], bytes(24), attr, value))
        equal(damages(w.verify(0)), set())
        out = w.extract(0)
        equal(sorted(os.listdir(out)), sorted([f"file {e} {s}" for e in (1, 2) for s in (1, 2)] + [f"{x} {e}" for x in ("link", "dir") for e in (1, 2)]
                                              + [f"long {e} " + "n" * 240 for e in (1, 2)]))
        for epoch in (1, 2):
            for suite in (1, 2):
                path = os.path.join(out, f"file {epoch} {suite}")
                equal(read(path), b"epoch %d" % epoch)
                equal(os.getxattr(path, "user." + "n" * 240), b"value")
                equal(os.getxattr(path, "user.attr"), b"newer" if (epoch, suite) == (1, 1) else b"value")
            equal(os.readlink(os.path.join(out, f"link {epoch}")), "target")
            equal(read(os.path.join(out, f"dir {epoch}", "in it")), b"in it")
        equal({os.getxattr(os.path.join(out, "file 1 1"), f"user.both {n}") for n in range(10)}, {b"newer"})
        # A volume file from before knows nothing of the next epoch; the names of this one are still read.
        older = w.name(b"dir 1", 2)
        w.put_id(older, bytes(16), 1, 7)
        equal(damages(w.verify(0)), set())
        # The same name twice is one too many; neither is dropped.
        w.put_file(w.name(b"file 1 1", 2), b"again")
        equal({kind for _, kind in damages(w.verify(1))}, {"name"})
        out = w.extract(1, "out2")
        equal(sorted(read(path) for path in [os.path.join(out, "file 1 1")] + glob.glob(out + "/lost+found/*")), [b"again", b"epoch 1"])


def test_names_that_mean_ill():
    """No name leads out of OUT, none is dropped."""
    with Made() as w:
        evil = [b"..", b".", b"/", b"a/b", b"../../escaped", b"/tmp/ecfs-escaped", b"a\0b", b"", b"\0" * 5]
        for n, name in enumerate(evil):
            if n % 2 and name:
                w.put_file(w.name(name, long=n % 4 == 1), b"evil")
            elif name:
                os.mkdir(w.name(name))
        unpadded = ref.b64(ref.AESSIV(w.keys[2].name).encrypt(b"short", [w.id]))
        w.put_file(os.path.join(w.lower, unpadded), b"evil")
        outside = w.path("outside")
        os.mkdir(outside)
        # A link, and a directory of the same name: by its long name, and under the older epoch.
        w.put_id(w.lower, w.id, 1, 2)
        os.symlink(ref.seal_target(w.keys[2], bytes(24), os.fsencode(outside)), w.name(b"trap"))
        for where in (w.name(b"trap", long=True), w.name(b"trap", 1)):
            os.mkdir(where)
            w.put_id(where, bytes(16), 2)
            w.put_file(w.name(b"file", directory=where, ident=bytes(16)), b"escaped")
        os.symlink(ref.seal_target(w.keys[2], bytes(24), os.fsencode(outside)), w.name(b"lost+found"))
        before = sorted(os.listdir(w.dir))
        count = sum(1 for name in os.listdir(w.lower) if not name.startswith(("ecfs.volume", "ecfs.dir", "ecfs.name.")))
        out = w.extract(1)
        equal(sorted(os.listdir(w.dir)), sorted(before + ["out"]))
        equal(os.listdir(outside), [])
        top = [name for name in os.listdir(out) if name != "lost+found.2"]
        equal(sorted(top), ["lost+found", "trap"])
        equal(len(top) + len(os.listdir(os.path.join(out, "lost+found.2"))), count, "objects in OUT")
        equal([read(p) for p in glob.glob(out + "/lost+found.2/*/file") + glob.glob(out + "/trap/file") if not os.path.islink(os.path.dirname(p))],
              [b"escaped"] * 2)


def test_objects_that_mean_ill():
    """Special files where files are looked for: nothing hangs, nothing is followed."""
    with Made() as w:
        secret = w.write("secret", "not of the volume")
        w.put_file(w.name(b"good"), b"good")
        for name in ("ecfs.session", "ecfs.target." + "A" * 43):
            os.mkfifo(os.path.join(w.lower, name))
        os.symlink("ecfs.target." + "A" * 43, w.name(b"link to a fifo"))
        os.symlink(secret, w.name(b"link to a path"))
        for kind in ("fifo", "link"):
            lower = w.name(kind.encode() + b"n" * 200)
            os.rename(lower.replace("ecfs.long.", "ecfs.name."), w.path("text"))
            (os.mkfifo if kind == "fifo" else lambda p: os.symlink(w.path("text"), p))(lower.replace("ecfs.long.", "ecfs.name."))
            w.put_file(lower, b"nameless")
            directory = w.name(kind.encode())
            os.mkdir(directory)
            w.put_file(os.path.join(directory, "A" * 43), b"in it")
            path = os.path.join(directory, "ecfs.dir")
            os.mkfifo(path) if kind == "fifo" else os.symlink(os.path.join(w.lower, "ecfs.dir"), path)
        kinds = sorted(kind for _, kind in damages(w.verify(1)))
        equal(kinds, ["directory id"] * 2 + ["link target"] * 2 + ["name"] * 4)
        out = w.extract(1)
        equal(read(os.path.join(out, "good")), b"good")
        equal(sorted(read(p) for p in glob.glob(out + "/lost+found/**", recursive=True) if os.path.isfile(p)), [b"in it"] * 2 + [b"nameless"] * 2)


def test_volume_file():
    with Made() as w:
        w.put_file(w.name(b"file"), b"content")
        args = ["--passfile", w.passfile, "verify", w.lower]
        check(rescue(*args), 0)
        text = read(w.path("lower/ecfs.volume")).decode()

        def with_fields(**fields):
            return ref.volume_text({**w.fields, **fields}, w.keys[2].conf)
        slot = w.fields["keyslots"][0]
        for changed, code, word in [
                (with_fields(format=2), 9, "format 2"), (with_fields(colour="red"), 9, "colour"), (with_fields(suite="rot13"), 9, "rot13"),
                (with_fields(names="none"), 9, "none"), (with_fields(keyslots=[{**slot, "type": "tpm"}]), 9, "tpm"),
                (with_fields(keyslots=[{**slot, "colour": "red"}]), 9, "colour"),
                (with_fields(keyslots=[{**slot, "argon2_ops": 101}]), 7, "costs"), (with_fields(keyslots=[{**slot, "argon2_mem": (4 << 30) + 1024}]), 7, "costs"),
                (with_fields(keyslots=[{**slot, "argon2_mem": 1 << 200}]), 7, ""), (with_fields(keyslots=[{**slot, "argon2_mem": 4096}]), 7, ""),
                (with_fields(keyslots=[{**slot, "salt": slot["salt"] + "A"}]), 7, "salt"), (with_fields(keyslots=7), 7, "keyslots"),
                (with_fields(keyslots=[]), 3, "wrong"),  # so says ecfs
                (with_fields(uuid="x"), 7, "uuid"), ("", 7, "parsed"), ("[1]", 7, "parsed"), (text[:-20], 7, "parsed"), ("[" * 100000, 7, "parsed"),
                ("\xff", 7, ""), (text.replace(slot["wrapped"], "A" * len(slot["wrapped"])), 7, "restore")]:
            if changed == "":
                open(w.path("lower/ecfs.volume"), "w").close()
            else:
                w.put_volume(changed.encode("latin-1") if changed == "\xff" else changed)
            fails(rescue(*args), code, word)
        # What does not matter for reading is told, and read on.
        for changed in (text.replace('"made"', '"made?"'), text.replace('"encrypted"', '"encryptee"'), text.replace('"encrypted"', '"plain"'),
                        text.replace('": ', '":  ', 1), text.replace("aes-256-gcm", "aes-256-gcn"), text.replace('"format": 1', '"format": 0'),
                        with_fields(epochs=[1]), with_fields(keyslots=[{**slot, "label": "x" * 256}]), ref.volume_text(w.fields, bytes(32)),
                        with_fields(keyslots=[{**slot, "argon2_ops": 101}, slot])):
            assert changed != text
            w.put_volume(changed)
            ran = w.verify(1)
            equal(damages(ran), {(".", "volume file")}, changed)
            out = w.extract(1)
            equal(read(os.path.join(out, "file")), b"content")
            shutil.rmtree(out)
        os.unlink(w.path("lower/ecfs.volume"))
        for make, code in ((lambda p: os.mkfifo(p), 13), (lambda p: os.symlink(passfile_of(w), p), 13), (lambda p: os.mkdir(p), 13)):
            path = w.path("lower/ecfs.volume")
            make(path)
            fails(rescue(*args), code, "ecfs.volume")
            os.rmdir(path) if os.path.isdir(path) else os.unlink(path)
        w.put_volume(text + " " * (2 << 20))
        fails(rescue(*args), 7, "too large")


def passfile_of(w):
    return w.passfile


def test_as_user():
    """What a user may not read is told; what only root may set is left."""
    if os.geteuid() != 0:
        print("      (as the user that runs this)")
        return
    with Made() as w:
        os.chmod(w.dir, 0o755)
        os.chmod(w.lower, 0o755)
        for name in ("pass", "lower/ecfs.volume", "lower/ecfs.dir"):
            os.chmod(w.path(name), 0o644)
        w.put_file(w.name(b"mine"), b"mine")
        os.chown(w.name(b"mine"), 65534, 65534)
        os.chmod(w.name(b"mine"), 0o4755)
        w.put_file(w.name(b"root's"), b"root's")
        os.chmod(w.name(b"root's"), 0o6755)
        w.put_file(w.name(b"closed"), b"closed")
        os.chmod(w.name(b"closed"), 0o600)
        os.mkdir(w.name(b"search"), 0o755)
        w.put_id(w.name(b"search"), bytes(16), 2)
        w.put_file(w.name(b"x", directory=w.name(b"search"), ident=bytes(16)), b"x")
        os.link(w.name(b"x", directory=w.name(b"search"), ident=bytes(16)), w.name(b"z"))
        os.chmod(w.name(b"search"), 0o555)
        os.mkdir(w.path("home"))
        os.chown(w.path("home"), 65534, 65534)
        ran = rescue("--passfile", w.passfile, "extract", w.lower, w.path("home/out"), user=65534)
        check(ran, 1)
        assert "closed: contents: offset 0, length 6: cannot be opened: Permission denied" in ran.out, ran
        out = w.path("home/out")
        equal([(n, read(os.path.join(out, n)), stat.S_IMODE(os.stat(os.path.join(out, n)).st_mode)) for n in sorted(os.listdir(out)) if n != "search"],
              [("closed", bytes(6), 0o600), ("mine", b"mine", 0o4755), ("root's", b"root's", 0o755), ("z", b"x", 0o644)])
        equal(os.stat(os.path.join(out, "z")).st_ino, os.stat(os.path.join(out, "search", "x")).st_ino)
        equal(stat.S_IMODE(os.stat(os.path.join(out, "search")).st_mode), 0o555)


def test_full():
    """Room that runs out ends it with one error."""
    if os.geteuid() != 0:
        return
    with Made() as w:
        for n in range(40):
            w.put_file(w.name(b"file %d" % n), b"x" * 3900)
        small = w.path("small")
        os.mkdir(small)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", small], check=True)
        try:
            ran = check(rescue("--passfile", w.passfile, "extract", w.lower, small), 1, "")
            equal(ran.err.count("error: "), 1)
            assert "No space left on device" in ran.err, ran
        finally:
            subprocess.run(["umount", small], check=True)


def test_installed():
    """From a prefix, without the source tree."""
    with World() as w:
        lower, passfile = w.volume()
        os.makedirs(w.path("usr/bin"))
        shutil.copy(RESCUE, w.path("usr/bin/ecfs-rescue"))
        shutil.copytree(os.path.join(os.path.dirname(RESCUE), "ecfs_rescue"), w.path("usr/share/ecfs/ecfs_rescue"))
        check(run([w.path("usr/bin/ecfs-rescue"), "--passfile", passfile, "verify", lower], cwd="/"), 0, err="")
        with contextlib.suppress(FileNotFoundError):
            assert "__pycache__" not in os.listdir(w.path("usr/share/ecfs/ecfs_rescue"))
        shutil.rmtree(w.path("usr/share"))
        fails(run([w.path("usr/bin/ecfs-rescue"), "list", lower], cwd="/"), 1, "ecfs_rescue")


if __name__ == "__main__":
    main(globals())
