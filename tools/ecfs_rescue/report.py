# SPDX-License-Identifier: GPL-3.0-or-later
"""list and verify, and how damage and progress are told."""

import json
import os
import stat
import sys
import time

KINDS = {stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFLNK: "link", stat.S_IFIFO: "fifo", stat.S_IFSOCK: "socket",
         stat.S_IFCHR: "character device", stat.S_IFBLK: "block device"}


def shown(data):
    """Bytes of a name as printable text: a name can hold anything, and must not speak to the terminal."""
    text = os.fsdecode(data) if isinstance(data, bytes) else data
    out = []
    for c in text:
        if c == "\\":
            out.append("\\\\")
        elif c == "\n":
            out.append("\\n")
        elif c.isprintable():
            out.append(c)
        else:
            out += ["\\x%02x" % byte for byte in c.encode("utf-8", "surrogateescape")]
    return "".join(out)


def shown_path(path):
    return shown(b"/".join(path)) or "."


class Progress:
    """One line on a terminal, a few times a second."""

    def __init__(self):
        self._on, self._last, self.files, self.bytes = sys.stderr.isatty(), time.monotonic(), 0, 0

    def add(self, files=0, data=0):
        self.files += files
        self.bytes += data
        now = time.monotonic() if self._on else 0
        if now - self._last > 0.3 and self._on:
            self._last = now
            sys.stderr.write(f"\r\033[K{self.files} objects, {self.bytes / 1e6:.1f} MB")
            sys.stderr.flush()

    def clear(self):
        if self._on:
            sys.stderr.write("\r\033[K")
            sys.stderr.flush()


class Findings:
    """Each damage, told when it is met."""

    def __init__(self, progress, out, as_json=False):
        self.count, self._progress, self._out, self._json = 0, progress, out, as_json

    def add(self, path, lower_path, kind, detail, offset=None, length=None):
        self.count += 1
        self._progress.clear()
        if self._json:
            fields = {"damage": kind, "path": shown_path(path), "lower": shown_path(lower_path), "detail": shown(detail)}
            if offset is not None:
                fields.update(offset=offset, length=length)
            print(json.dumps(fields, ensure_ascii=False), file=self._out)
            return
        where = "" if offset is None else f"offset {offset}, length {length}: "
        print(f"{shown_path(path)}: {kind}: {where}{shown(detail)} (lower: {shown_path(lower_path)})", file=self._out)


def counted(number, what):
    return f"{number} {what}{'' if number == 1 else 's'}"


def list_tree(walker, as_json):
    def visit(entry):
        st = entry.st
        size, target, device = st.st_size, None, None
        if entry.is_file():
            size = entry.size()
        elif entry.is_link():
            target = entry.target()
            size = len(target or b"")
        elif stat.S_ISCHR(st.st_mode) or stat.S_ISBLK(st.st_mode):
            device = f"{os.major(st.st_rdev)},{os.minor(st.st_rdev)}"
        if as_json:
            fields = {"path": shown_path(entry.path), "type": KINDS.get(stat.S_IFMT(st.st_mode), "unknown"), "mode": f"{stat.S_IMODE(st.st_mode):04o}",
                      "uid": st.st_uid, "gid": st.st_gid, "size": size, "mtime_ns": st.st_mtime_ns, "lower": shown_path(entry.lower_path)}
            if target is not None:
                fields["target"] = shown(target)
            if device is not None:
                fields["device"] = device
            print(json.dumps(fields, ensure_ascii=False))
            return
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(st.st_mtime))
        name = shown_path(entry.path) + ("" if target is None else " -> " + shown(target))
        print(f"{stat.filemode(st.st_mode)} {st.st_uid}/{st.st_gid} {device or size:>10} {when} {name}")

    walker.walk(visit)


def verify_tree(walker, progress, findings, as_json):
    seen = set()  # files with more than one name are read once

    def visit(entry):
        progress.add(files=1)
        if entry.inode():
            if entry.inode() in seen:
                return
            seen.add(entry.inode())
        entry.xattrs()
        if entry.is_file():
            entry.read(lambda offset, data: progress.add(data=len(data)))
        elif entry.is_link():
            entry.target()

    walker.walk(visit)
    progress.clear()
    if as_json:
        print(json.dumps({"objects": progress.files, "bytes": progress.bytes, "damages": findings.count}))
    else:
        print(f"{counted(progress.files, 'object')}, {counted(progress.bytes, 'byte')} of contents read, "
              + (counted(findings.count, "damage") if findings.count else "no damage"))
