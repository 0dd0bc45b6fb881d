# SPDX-License-Identifier: GPL-3.0-or-later
"""The walk through a volume, object by object. Whoever walks is given each object as an Entry, and each damage that is met is reported."""

import os
import stat

from . import lower
from . import names
from . import sealed
from . import session
from .contents import Contents, hinted_size
from .errors import Damage, why

LOST = b"lost+found"
PASSED_THROUGH = (b"security.", b"trusted.", b"system.")


class Entry:
    """One object. path: where it is in the tree (components); lower_path: where it is in the lower directory."""

    def __init__(self, walker, path, lower_path, dir_fd, lower_name, st):
        self.path, self.lower_path, self.st = path, lower_path, st
        self._walker, self._dir_fd, self._lower_name = walker, dir_fd, lower_name

    def is_directory(self):
        return stat.S_ISDIR(self.st.st_mode)

    def is_file(self):
        return stat.S_ISREG(self.st.st_mode)

    def is_link(self):
        return stat.S_ISLNK(self.st.st_mode)

    def inode(self):
        """What hard links of one object have in common; None where there is one name only."""
        return (self.st.st_dev, self.st.st_ino) if self.st.st_nlink > 1 and not self.is_directory() else None

    def report(self, kind, detail, offset=None, length=None):
        self._walker.findings.add(self.path, self.lower_path, kind, detail, offset, length)

    def open_directory(self):
        return lower.open_directory(self._dir_fd, self._lower_name)

    def target(self):
        """Of a link; None where it cannot be read."""
        try:
            text = os.readlink(self._lower_name, dir_fd=self._dir_fd)
            return sealed.link_target(self._walker.keys, self._walker.root_fd, text)
        except Damage as e:
            self.report("link target", str(e))
        except OSError as e:
            self.report("link target", f"cannot be read: {why(e)}")
        return None

    def xattrs(self):
        """{name: value} of those that can be read."""
        found, sealed_ones = {}, {}
        try:
            lower_names = sorted(lower.list_xattrs(self._dir_fd, self._lower_name))
        except OSError as e:
            if not lower.has_no_xattrs(e):
                self.report("xattrs", f"cannot be listed: {why(e)}")
            return found
        for name in lower_names:
            if name == names.RECORD_XATTR:
                continue
            if not name.startswith((*PASSED_THROUGH, sealed.PREFIX)):
                self.report("xattr", f"{os.fsdecode(name)} is none that the format knows")
                continue
            try:
                (sealed_ones if name.startswith(sealed.PREFIX) else found)[name] = lower.get_xattr(self._dir_fd, self._lower_name, name)
            except OSError as e:
                self.report("xattr", f"{os.fsdecode(name)} cannot be read: {why(e)}")
        found.update(sealed.open_xattrs(self._walker.keys, sealed_ones, lambda name, e: self.report("xattr", f"{os.fsdecode(name)} {e}")))
        return found

    def read(self, consume):
        """Calls consume(offset, data) from front to end, and reports what is damaged. The size."""
        try:
            fd, st = lower.open_file(self._dir_fd, self._lower_name)
        except OSError as e:
            return self._unread(f"cannot be opened: {why(e)}")
        try:
            contents = Contents(self._walker.keys, fd, st.st_size, self._walker.after_cut(st), self._walker.before_cut(st))
            for offset, data in contents.read():
                consume(offset, data)
            for kind, offset, length, detail in contents.damage:
                self.report(kind, detail, offset, length)
            return contents.size
        except OSError as e:
            return self._unread(f"cannot be read: {why(e)}")
        finally:
            os.close(fd)

    def _unread(self, detail):
        size = hinted_size(self.st.st_size) or 0
        self.report("contents", detail, 0, size)
        return size

    def size(self):
        """Of a file, without reading more of it than is needed."""
        size = hinted_size(self.st.st_size)
        if size is not None and (size == 0 or not self._walker.after_cut(self.st)):
            return size
        try:
            fd, st = lower.open_file(self._dir_fd, self._lower_name)
        except OSError:
            return size or 0
        try:
            return Contents(self._walker.keys, fd, st.st_size, self._walker.after_cut(st), self._walker.before_cut(st)).measure()
        except OSError:
            return size or 0
        finally:
            os.close(fd)


class _Frame:
    """A directory that is being walked: what is in it and not yet visited."""

    def __init__(self, entry, fd, children):
        self.entry, self.fd, self.children = entry, fd, children


class Walker:
    """findings.add(path, lower_path, kind, detail, offset, length) is called for each damage."""

    def __init__(self, root_fd, volume, findings):
        self.root_fd, self.keys, self.findings = root_fd, volume.keys, findings
        self._encrypted = volume.has_encrypted_names(root_fd)
        self._spans = session.cut_spans(root_fd)
        self._lost = LOST  # holds what has no name any more; settled when the root's names are known
        for detail in volume.damage:
            findings.add((), (b"ecfs.volume",), "volume file", detail)

    def is_lost(self, path):
        """Whether that is a place for what has no name any more, which no directory of the volume is."""
        return path[:1] == (self._lost,)

    def after_cut(self, st):
        return any(first <= st.st_ctime_ns <= last for first, last in self._spans)

    def before_cut(self, st):
        """Some session was cut, but none since the inode last changed, as far as that reached the disk."""
        return bool(self._spans) and not self.after_cut(st)

    def walk(self, visit):
        """visit(entry) for each object, a directory before what is in it. In order of names."""
        root = Entry(self, (), (), self.root_fd, None, os.fstat(self.root_fd))
        visit(root)
        stack = [self._enter(root, os.dup(self.root_fd))]
        try:
            while stack:
                frame = stack[-1]
                if not frame.children:
                    os.close(frame.fd)
                    stack.pop()
                    continue
                entry = self._entry(frame, *frame.children.pop())
                if entry is None:
                    continue
                visit(entry)
                if entry.is_directory():
                    try:
                        fd = entry.open_directory()
                    except OSError as e:
                        entry.report("directory", f"cannot be opened: {why(e)}")
                        continue
                    stack.append(self._enter(entry, fd))
        finally:
            for frame in stack:
                os.close(frame.fd)

    def _entry(self, frame, path, lower_name, problem):
        lower_path = (*frame.entry.lower_path, lower_name)
        if problem:
            self.findings.add(path, lower_path, "name", problem)
        try:
            st = os.stat(lower_name, dir_fd=frame.fd, follow_symlinks=False)
        except OSError as e:
            self.findings.add(path, lower_path, "object", f"cannot be looked at: {why(e)}")
            return None
        return Entry(self, path, lower_path, frame.fd, lower_name, st)

    def _enter(self, entry, fd):
        try:
            lower_names = [os.fsencode(name) for name in os.listdir(fd)]
        except OSError as e:
            entry.report("directory", f"cannot be listed: {why(e)}")
            return _Frame(entry, fd, [])
        is_root = not entry.lower_path
        # One that holds nothing at all may lack its id.
        directory = self._directory_id(entry, fd, any(name not in (b"ecfs.dir", b"ecfs.dir.new") for name in lower_names))
        lower_names = [name for name in lower_names if not names.is_own(name, is_root, self._encrypted)]
        good, lost, taken = [], [], set()
        for lower_name in lower_names:
            try:
                name = self._name(fd, is_root, directory, lower_name)
                if name in taken:  # under both epochs of a rotation, or as a long and as a short name
                    raise Damage("is another's name, too")
            except Damage as e:
                lost.append((lower_name, str(e)))
                continue
            taken.add(name)
            good.append(((*entry.path, name), lower_name, None))
        if is_root:
            self._lost = self._free_name(taken)
        children = good + [(self._lost_path(entry, lower_name), lower_name, problem) for lower_name, problem in lost]
        return _Frame(entry, fd, sorted(children, reverse=True))  # taken from its end

    def _directory_id(self, entry, fd, is_needed):
        if not self._encrypted:
            return None
        directory, wrong = names.directory_id(self.keys, fd)
        if directory is None and not is_needed:
            return None
        for detail in wrong:
            entry.report("directory id copy" if directory else "directory id", detail)
        return directory

    def _name(self, fd, is_root, directory, lower_name):
        if self._encrypted:
            if directory is None:
                raise Damage("cannot be read: the id of its directory is lost")
            return names.decode_name(directory, names.name_text(fd, lower_name))
        if is_root and lower_name.startswith(b"ecfs."):
            raise Damage("is no name that the format knows")
        return lower_name

    def _lost_path(self, entry, lower_name):
        below = entry.path if self.is_lost(entry.path) else (self._lost, *entry.path)
        return (*below, lower_name)

    @staticmethod
    def _free_name(taken):
        name, n = LOST, 1
        while name in taken:
            n += 1
            name = LOST + b".%d" % n
        return name
