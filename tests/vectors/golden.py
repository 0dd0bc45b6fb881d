#!/usr/bin/python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""Volumes that earlier releases wrote are read as they were written.

  golden.py reference   by reference.py
  golden.py mount       by this build, mounted read-only and then for writing; the recovery key opens them, too
"""
import glob
import os
import subprocess
import sys
import tempfile

try:
    import reference as ref
except ImportError as error:
    print("skipped:", error, "(Debian: python3-cryptography, python3-nacl)")
    sys.exit(77)

HERE = os.path.dirname(os.path.abspath(__file__))


def read(path):
    with open(path, "rb") as file:
        return file.read()


def unpacked(base, temp):
    lower = os.path.join(temp, "lower")
    os.mkdir(lower)
    subprocess.run(["tar", "-C", lower, "-xpzf", base + ".tar.gz", "--xattrs", "--xattrs-include=user.*"], check=True)
    return lower


def compare(name, how, got, want):
    if got == want:
        print("ok: %s: %s" % (name, how))
        return 0
    print("FAILED: %s: %s" % (name, how))
    got, want = set(got.splitlines()), set(want.splitlines())
    for line in sorted(want - got):
        print("  missing: " + line)
    for line in sorted(got - want):
        print("  instead: " + line)
    return 1


def snapshot(lower):
    """Everything in a lower directory that a read-only mount must leave alone."""
    out = []
    for path, dirs, files in os.walk(lower):
        for entry in sorted(dirs + files) + ["."]:
            full = os.path.join(path, entry)
            st = os.lstat(full)
            content = read(full) if entry in files and not os.path.islink(full) and os.path.isfile(full) else b""
            out.append((full, st.st_mode, st.st_size, st.st_mtime_ns, st.st_ctime_ns, content))
    return sorted(out)


def by_mount(base, lower, temp):
    ecfs = os.path.join(os.environ["ECFS_BUILD"], "tools", "ecfs", "ecfs")
    mount = os.path.join(temp, "mount")
    name, want, wrong = os.path.basename(base), read(base + ".manifest").decode(), 0
    before = snapshot(lower)
    for how, options in (("read-only", ["-o", "ro", "--passfile", base + ".passphrase"]),
                         ("for writing", ["--passfile", base + ".passphrase"]),
                         ("by the recovery key", ["--passfile", base + ".recovery"])):
        subprocess.run([ecfs, "mount", *options, lower, mount], check=True)
        try:
            got = ref.manifest(ref.plain_walk(os.fsencode(mount)))
        finally:
            subprocess.run([ecfs, "umount", mount], check=True)
        wrong += compare(name, "mounted " + how, got, want)
        if how == "read-only" and snapshot(lower) != before:
            print("FAILED: %s: mounting read-only changed the lower directory" % name)
            wrong += 1
    wrong += compare(name, "by the reference, after it was mounted for writing",
                     ref.manifest(ref.Lower(lower, read(base + ".passphrase").removesuffix(b"\n")).walk()), want)
    return wrong


def main(how):
    volumes = sorted(path.removesuffix(".tar.gz") for path in glob.glob(os.path.join(HERE, "golden", "*.tar.gz")))
    if not volumes:
        print("FAILED: no golden volumes")
        return 1
    if how == "mount" and not os.access("/dev/fuse", os.R_OK | os.W_OK):
        print("skipped: /dev/fuse cannot be used here")
        return 77
    with tempfile.TemporaryDirectory() as temp:
        try:
            os.setxattr(temp, "user.test", b"")
        except OSError as error:
            print("skipped: no user xattrs in the temporary directory:", error)
            return 77
    wrong = 0
    for base in volumes:
        with tempfile.TemporaryDirectory() as temp:
            lower = unpacked(base, temp)
            if how == "mount":
                wrong += by_mount(base, lower, temp)
            else:
                secret = read(base + ".passphrase").removesuffix(b"\n")
                wrong += compare(os.path.basename(base), "by the reference", ref.manifest(ref.Lower(lower, secret).walk()),
                                 read(base + ".manifest").decode())
    return 1 if wrong else 0


if __name__ == "__main__":
    if sys.argv[1:] not in (["reference"], ["mount"]):
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1]))
