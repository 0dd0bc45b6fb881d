#!/usr/bin/python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes the golden volumes of a release: make_golden.py BUILD VERSION DIR.

Run once a format version, with the programs of the release that first writes it. What it wrote is checked in and never edited: every later
release must read it. Needs /dev/fuse, and a temporary directory with user xattrs.
"""
import os
import subprocess
import sys
import tempfile

import reference as ref

PASSPHRASE = b"golden: \xc3\xbcber 42 "


def write(path, data, at=None):
    fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
    try:
        if at is None:
            os.write(fd, data)
        else:
            os.pwrite(fd, data, at)
    finally:
        os.close(fd)


def pattern(size, first):
    return bytes((first + i * 7 + i // 256) % 256 for i in range(size))


def fill(root):
    """A small tree with one of each thing that the format has."""
    os.umask(0o022)
    join = os.path.join
    for size in (0, 1, 100, 3935, 3936, 3937, 4096, 8000, 8001, 20000):
        write(join(root, "size-%d" % size), pattern(size, size % 251))
    write(join(root, "sparse"), b"end", 50000)
    write(join(root, "hole-first"), b"x", 3936 + 4064)
    write(join(root, "short-block"), b"short")
    os.truncate(join(root, "short-block"), 9000)
    write(join(root, "cut"), pattern(12000, 5))
    os.truncate(join(root, "cut"), 5000)
    write(join(root, "punched"), pattern(30000, 9))
    subprocess.run(["fallocate", "-p", "-o", "5000", "-l", "15000", join(root, "punched")], check=True)
    write(join(root, "rewritten"), b"before")
    os.truncate(join(root, "rewritten"), 0)
    write(join(root, "rewritten"), b"after")
    os.makedirs(join(root, "dir", "empty"))
    os.makedirs(join(root, "dir", "deeper", "and deeper"))
    write(join(root, "dir", "size-100"), b"the same name in another directory\n")
    write(join(root, "dir", "deeper", "and deeper", "leaf"), b"leaf\n")
    os.chmod(join(root, "dir", "empty"), 0o700)
    os.chmod(join(root, "size-1"), 0o600)
    os.chmod(join(root, "size-100"), 0o444)
    os.link(join(root, "dir", "size-100"), join(root, "hard link"))
    for name in (b"n" * 160, b"n" * 161, b"n" * 255, b"exactly 16 bytes", b"17 bytes of a nam", b"\xff\xfe not UTF-8", b" ",
                 "Übergröße ñ 日本".encode(), b"new\nline", b"-dash", b"ecfs", b".hidden"):
        write(join(os.fsencode(root), name), name)
    os.mkdir(join(root, "d" * 200))
    write(join(root, "d" * 200, "inside"), b"inside\n")
    os.symlink("size-1", join(root, "link"))
    os.symlink("/nowhere/at all", join(root, "dangling"))
    os.symlink("t" * 3500, join(root, "dir", "long target"))
    os.symlink("x", join(root, "l" * 255))
    os.mkfifo(join(root, "fifo"), 0o640)
    os.setxattr(join(root, "size-100"), "user.comment", b"a value")
    os.setxattr(join(root, "size-1"), "user.comment", b"the same name")
    os.setxattr(join(root, "size-1"), "user.empty", b"")
    os.setxattr(join(root, "size-1"), "user." + "a" * 240, b"long name")
    os.setxattr(join(root, "dir"), "user.on a directory", pattern(300, 1))


def make(build, where, name, options):
    ecfs = os.path.join(build, "tools", "ecfs", "ecfs")
    with tempfile.TemporaryDirectory() as temp:
        lower, mount, passfile = (os.path.join(temp, n) for n in ("lower", "mount", "pass"))
        with open(passfile, "wb") as file:
            file.write(PASSPHRASE + b"\n")
        made = subprocess.run([ecfs, "init", "--kdf-time", "1", "--label", "golden", "--passfile", passfile, *options, lower],
                              check=True, stdout=subprocess.PIPE, text=True)
        recovery = next(w for w in made.stdout.split() if w.count("-") == 7 and len(w) == 47)
        subprocess.run([ecfs, "mount", "--passfile", passfile, lower, mount], check=True)
        try:
            fill(mount)
            text = ref.manifest(ref.plain_walk(os.fsencode(mount)))
        finally:
            subprocess.run([ecfs, "umount", mount], check=True)
        assert ref.manifest(ref.Lower(lower, PASSPHRASE).walk()) == text, "the reference reads something else"
        base = os.path.join(where, name)
        subprocess.run(["tar", "-C", lower, "-czf", base + ".tar.gz", "--sparse", "--xattrs", "--xattrs-include=user.*", "--sort=name",
                        "--owner=0", "--group=0", "--numeric-owner", "."], check=True)
        for suffix, content in ((".manifest", text.encode()), (".passphrase", PASSPHRASE + b"\n"), (".recovery", recovery.encode() + b"\n")):
            with open(base + suffix, "wb") as file:
                file.write(content)


def main(build, version, where):
    os.makedirs(where, exist_ok=True)
    for cipher in ("aes-256-gcm", "chacha20-poly1305"):
        for names in ("encrypted", "plain"):
            make(os.path.abspath(build), where, "%s-%s-%s" % (version, cipher.split("-")[0], names), ["--cipher=" + cipher, "--names=" + names])


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])
