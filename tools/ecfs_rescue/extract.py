# SPDX-License-Identifier: GPL-3.0-or-later
"""extract: writes the tree into an empty directory.

Whatever the volume says, nothing is written outside that directory: every object is made by its name alone in a directory that was opened step
by step without following links, and names with a slash are no names (names.is_safe). Directories get their modes and times at
the end, the innermost first: until then they are the extractor's own, and making something in one would change its time."""

import errno
import os
import stat

from . import errors
from .errors import Failure, why
from .report import counted, shown_path

# What stops everything, rather than be told of each of the files that follow.
FATAL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO)


class OutError(Exception):
    """An OSError in OUT, apart from those in the lower directory."""

    def __init__(self, error):
        super().__init__(str(error))
        self.error = error


def is_inside(fd, root_fd):
    """Whether the directory is the root or below it."""
    root, at = os.fstat(root_fd), os.dup(fd)
    try:
        while True:
            here = os.fstat(at)
            if os.path.samestat(here, root):
                return True
            up = os.open("..", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=at)
            os.close(at)
            at = up
            if os.path.samestat(os.fstat(at), here):
                return False
    finally:
        os.close(at)


def prepare(out, root_fd):
    """The open, empty directory OUT."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    try:
        existing = os.path.isdir(out)
        # Looked at before anything is made: LOWER is never written to.
        fd = os.open(out if existing else os.path.dirname(os.path.abspath(out)), flags)
        try:
            if is_inside(fd, root_fd):
                raise Failure(errors.USAGE, out, "is in the lower directory")
            if existing and os.listdir(fd):
                raise Failure(errors.USAGE, out, "is not empty")
        finally:
            os.close(fd)
        if not existing:
            os.mkdir(out, 0o700)
        return os.open(out, flags)
    except OSError as e:
        raise Failure(errors.DAMAGE, out, why(e)) from None


class Extraction:
    def __init__(self, walker, out_fd, findings, progress):
        self._walker, self._root, self._findings, self._progress = walker, out_fd, findings, progress
        self._stack = []  # (name, fd) of the directories of the path that was opened last
        self._links = {}  # inode: the first of its paths
        self._directories = []  # (entry, xattrs), to be finished at the end
        self._as_root = os.geteuid() == 0

    def run(self):
        self._walker.walk(self._visit)
        while self._directories:
            entry, xattrs = self._directories.pop()
            try:
                self._attributes(entry, xattrs, fd=self._open(entry.path))
            except OSError as e:
                self._failed(entry, "not restored", e)
        self._progress.clear()
        print(f"{counted(self._progress.files, 'object')}, {counted(self._progress.bytes, 'byte')} of contents extracted, "
              + (f"{self._findings.count} not as they should be" if self._findings.count else "no damage"))

    def _visit(self, entry):
        self._progress.add(files=1)
        try:
            if not entry.path:
                self._directories.append((entry, entry.xattrs()))
            elif not (entry.inode() in self._links and self._link(entry)):
                self._make(entry, self._open(entry.path[:-1]), entry.path[-1])
        except OutError as e:
            self._failed(entry, "not extracted", e.error)
        except OSError as e:
            self._failed(entry, "not extracted", e)

    def _failed(self, entry, kind, error, what=""):
        if error.errno in FATAL:
            self._progress.clear()
            raise Failure(errors.DAMAGE, shown_path(entry.path), why(error))
        entry.report(kind, what + why(error))

    def _open(self, path):
        """The directory's descriptor, which stays this object's."""
        common = 0
        while common < min(len(self._stack), len(path)) and self._stack[common][0] == path[common]:
            common += 1
        while len(self._stack) > common:
            os.close(self._stack.pop()[1])
        for name in path[common:]:
            parent = self._stack[-1][1] if self._stack else self._root
            if self._walker.is_lost(path):
                try:
                    os.mkdir(name, 0o700, dir_fd=parent)
                except FileExistsError:
                    pass
            self._stack.append((name, os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)))
        return self._stack[-1][1] if self._stack else self._root

    def _link(self, entry):
        """True when it is there as another name of what was extracted already."""
        path = self._links[entry.inode()]
        source = os.dup(self._open(path[:-1]))
        try:
            os.link(path[-1], entry.path[-1], src_dir_fd=source, dst_dir_fd=self._open(entry.path[:-1]), follow_symlinks=False)
            return True
        except OSError as e:
            self._failed(entry, "not restored", e, "hard link, made a file of its own: ")
            return False
        finally:
            os.close(source)

    def _make(self, entry, dir_fd, name):
        kind = stat.S_IFMT(entry.st.st_mode)
        if kind == stat.S_IFDIR:
            os.mkdir(name, 0o700, dir_fd=dir_fd)
            self._directories.append((entry, entry.xattrs()))
            return
        if kind == stat.S_IFREG:
            self._file(entry, dir_fd, name)
        elif kind == stat.S_IFLNK:
            target = entry.target()
            if target is None:  # told already, and there is no link to nothing
                return
            os.symlink(target, name, dir_fd=dir_fd)
            self._attributes(entry, entry.xattrs(), dir_fd=dir_fd, name=name)
        else:
            os.mknod(name, kind | 0o600, entry.st.st_rdev, dir_fd=dir_fd)
            self._attributes(entry, entry.xattrs(), dir_fd=dir_fd, name=name)
        if entry.inode():
            self._links.setdefault(entry.inode(), entry.path)

    def _file(self, entry, dir_fd, name):
        fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=dir_fd)

        def write(offset, data):
            self._progress.add(data=len(data))
            try:
                while data:
                    done = os.pwrite(fd, data, offset)
                    data, offset = data[done:], offset + done
            except OSError as e:
                raise OutError(e) from None
        try:
            # What is a hole in the volume, or cannot be read, becomes a hole.
            size = entry.read(write)
            try:
                os.ftruncate(fd, size)
            except OSError as e:
                self._failed(entry, "not restored", e, f"size {size}: ")
            self._attributes(entry, entry.xattrs(), fd=fd)
        finally:
            os.close(fd)

    def _attributes(self, entry, xattrs, fd=None, dir_fd=None, name=None):
        """Of an open object, or of a name in a directory. In this order: what is done to one undoes others."""
        st, mode = entry.st, stat.S_IMODE(entry.st.st_mode)
        where, at, followed = (fd, {}, {}) if fd is not None else (name, {"dir_fd": dir_fd, "follow_symlinks": False}, {"dir_fd": dir_fd})
        xattr_path = fd if fd is not None else b"/proc/self/fd/%d/%s" % (dir_fd, name)

        def attempt(what, call, *args, **more):
            try:
                call(*args, **more)
            except OSError as e:
                self._failed(entry, "not restored", e, what + ": ")

        def set_xattrs(wanted):
            for key in sorted(xattrs):
                if wanted(key):
                    attempt(f"xattr {os.fsdecode(key)}", os.setxattr, xattr_path, key, xattrs[key], follow_symlinks=fd is not None)
        set_xattrs(lambda key: key.startswith(b"user."))
        if self._as_root:
            attempt("owner", os.chown, where, st.st_uid, st.st_gid, **at)
        elif st.st_uid != os.geteuid() or st.st_gid != os.getegid():
            mode &= ~(stat.S_ISUID | stat.S_ISGID)  # it would be of another owner
        if not entry.is_link():
            attempt("mode", os.chmod, where, mode, **followed)
        set_xattrs(lambda key: not key.startswith(b"user."))
        attempt("times", os.utime, where, ns=(st.st_atime_ns, st.st_mtime_ns), **at)
