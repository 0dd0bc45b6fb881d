#!/usr/bin/python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the tests of the command share: a temporary world that is cleaned up whatever happens, and a small runner."""

import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("ECFS_BUILD", ROOT / "build")).resolve()
BIN = BUILD / "tools" / "ecfs"
ECFS = str(BIN / "ecfs")
QUICK = ["--kdf-time", "1"]
PASS = "correct horse"


def skip(reason):
    print("SKIP:", reason)
    sys.exit(77)


def unescape(text):
    """A path as /proc/self/mountinfo writes it."""
    out, i = bytearray(), 0
    raw = text.encode("utf-8", "surrogateescape")
    while i < len(raw):
        if raw[i : i + 1] == b"\\":
            out.append(int(raw[i + 1 : i + 4], 8))
            i += 4
        else:
            out.append(raw[i])
            i += 1
    return out.decode("utf-8", "surrogateescape")


def mounts(below=None):
    """[(target, type, major:minor)], the newest last."""
    found = []
    for line in open("/proc/self/mountinfo", errors="surrogateescape"):
        left, right = line.rstrip("\n").split(" - ", 1)
        fields = left.split(" ")
        target = unescape(fields[4])
        if below is None or target == below or target.startswith(below + "/"):
            found.append((target, right.split(" ")[0], fields[2]))
    return found


def pids_of(text):
    """Processes with `text` in their command line, zombies left out."""
    found = []
    for entry in os.listdir("/proc"):
        with contextlib.suppress(OSError):
            if entry.isdigit() and int(entry) != os.getpid():
                line = open(f"/proc/{entry}/cmdline", "rb").read()
                if text.encode("utf-8", "surrogateescape") in line:
                    found.append(int(entry))
    return found


def eventually(check, seconds=5.0):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if check():
            return True
        time.sleep(0.02)
    return bool(check())


class World:
    """A temporary directory with volumes and mounts in it. Leaving it unmounts, ends and removes everything."""

    def __init__(self):
        self.dir = os.path.realpath(tempfile.mkdtemp(prefix="ecfs-cli-"))
        self.processes = []

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait()
        for target, kind, _ in reversed(mounts(self.dir)):
            subprocess.run(["umount", "-l", target], stderr=subprocess.DEVNULL)
        # A daemon ends with its mount; one that does not is ended by its pid.
        eventually(lambda: not self.daemons(), 3)
        for pid in self.daemons():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if os.geteuid() == 0:
            subprocess.run(["chattr", "-R", "-i", self.dir], stderr=subprocess.DEVNULL)
        for base, dirs, _ in os.walk(self.dir):
            for d in dirs:
                with contextlib.suppress(OSError):
                    os.chmod(os.path.join(base, d), 0o700)
        shutil.rmtree(self.dir, ignore_errors=True)

    def path(self, name):
        return os.path.join(self.dir, name)

    def daemons(self):
        return [p for p in pids_of(self.dir) if b"ecfsd" in open(f"/proc/{p}/cmdline", "rb").read()] if os.path.isdir(self.dir) else []

    def write(self, name, data, mode=0o600):
        with open(self.path(name), "wb") as f:
            f.write(data if isinstance(data, bytes) else data.encode())
        os.chmod(self.path(name), mode)
        return self.path(name)

    def start(self, args, **more):
        process = subprocess.Popen(args, **more)
        self.processes.append(process)
        return process

    def volume(self, name="lower", passphrase=PASS, *options):
        """Makes a volume; returns its path and its passphrase file."""
        passfile = self.write(name.replace("/", "_") + ".pass", passphrase + "\n")
        lower = self.path(name)
        check(ecfs("init", *QUICK, "--passfile", passfile, *options, lower), 0)
        return lower, passfile

    def mounted(self, name="lower", mount="mnt", *options):
        lower, passfile = self.volume(name)
        target = self.path(mount)
        check(ecfs("mount", "--passfile", passfile, *options, lower, target), 0, "", "")
        return lower, target, passfile


class Ran:
    def __init__(self, args, code, out, err):
        self.args, self.code, self.out, self.err = args, code, out, err

    def __str__(self):
        return f"{self.args}\n  exit {self.code}\n  out {self.out!r}\n  err {self.err!r}"


def run(args, stdin=b"", cwd=None, env=None, timeout=60, user=None):
    """Without a controlling terminal, so that nothing can prompt."""
    if isinstance(stdin, str):
        stdin = stdin.encode()
    done = subprocess.run(args, input=stdin, capture_output=True, cwd=cwd, env=env, timeout=timeout, start_new_session=True, user=user,
                          group=user, extra_groups=[] if user else None)
    text = lambda b: b.decode("utf-8", "surrogateescape")
    return Ran(args, done.returncode, text(done.stdout), text(done.stderr))


def ecfs(*args, **more):
    return run([ECFS, *args], **more)


def check(ran, code, out=None, err=None):
    """Exit code, and the whole of the outputs where they are given."""
    if ran.code != code:
        raise AssertionError(f"expected exit {code}: {ran}")
    if out is not None and ran.out != out:
        raise AssertionError(f"expected output {out!r}: {ran}")
    if err is not None and ran.err != err:
        raise AssertionError(f"expected errors {err!r}: {ran}")
    return ran


def fails(ran, code, *words):
    """Fails with that code, one error line that has all the words, and nothing on standard output."""
    check(ran, code, "")
    lines = ran.err.splitlines()
    errors = [l for l in lines if l.startswith("ecfs: error: ")]
    if len(errors) != 1 or any(not l.startswith("ecfs: ") for l in lines):
        raise AssertionError(f"expected one error line: {ran}")
    for w in words:
        if w not in ran.err:
            raise AssertionError(f"expected {w!r} in the error: {ran}")
    return ran


def entries(path):
    return sorted(os.listdir(path))


def need_fuse():
    try:
        os.close(os.open("/dev/fuse", os.O_RDWR))
    except OSError as e:
        skip(f"/dev/fuse: {e.strerror}")


def need_root():
    if os.geteuid() != 0:
        skip("needs root")


def main(names):
    """Runs every test_* of a module, or those named on the command line."""
    if not os.access(ECFS, os.X_OK):
        print(f"no {ECFS}: set ECFS_BUILD to the build directory")
        sys.exit(1)
    wanted = sys.argv[1:]
    failed = []
    for name, function in list(names.items()):
        if not name.startswith("test_") or (wanted and name not in wanted):
            continue
        start = time.monotonic()
        try:
            function()
            print(f"ok    {name} ({time.monotonic() - start:.1f} s)", flush=True)
        except Exception:  # one test's failure must not hide the others'
            traceback.print_exc()
            print(f"FAIL  {name}", flush=True)
            failed.append(name)
    sys.exit(1 if failed else 0)
