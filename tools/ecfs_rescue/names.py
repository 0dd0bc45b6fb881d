# SPDX-License-Identifier: GPL-3.0-or-later
"""FORMAT.md, "Names": directory ids, encrypted names and long ones."""

import errno

from . import keys as k
from . import lower
from .errors import Damage, why

RECORD = 48
RECORD_XATTR = b"user.ecfs.dir"
HASH = 43  # characters of an H(x)
LONG, NAME, TARGET = b"ecfs.long.", b"ecfs.name.", b"ecfs.target."
NAME_TEXT_MAX = 363  # of 255 bytes


class DirectoryId:
    def __init__(self, keys, record):
        if len(record) != RECORD:
            raise Damage(f"has {len(record)} bytes instead of {RECORD}")
        epoch, following = k.number(record[16:20]), k.number(record[20:24])
        if not k.same(k.mac(keys.of(epoch).conf, record[:32], 16), record[32:]):
            raise Damage("does not authenticate")
        if any(record[24:32]):
            raise Damage("has bytes that are not zero where zero is due")
        self.id = record[:16]
        # While names are rotated, each is under one of the two. An old copy of the volume file may not know the next one yet.
        self.ciphers = [keys.of(e).name for e in (following, epoch) if keys.has(e)]
        self.record = record


def directory_id(keys, fd):
    """(DirectoryId or None, [what is wrong with a copy]). Where both are good, that of the file counts."""
    found, wrong = [], []
    try:
        found.append(DirectoryId(keys, lower.read_small(fd, b"ecfs.dir", RECORD + 1)))
    except FileNotFoundError:
        wrong.append("ecfs.dir is missing")
    except OSError as e:
        wrong.append(f"ecfs.dir: {why(e)}")
    except Damage as e:
        wrong.append(f"ecfs.dir {e}")
    try:
        found.append(DirectoryId(keys, lower.get_xattr(fd, None, RECORD_XATTR)))
    except OSError as e:
        # A copy without xattrs is as good: the file is enough.
        if e.errno not in (errno.ENODATA, errno.EOPNOTSUPP) or not found:
            wrong.append(f"the xattr user.ecfs.dir: {why(e)}")
    except Damage as e:
        wrong.append(f"the xattr user.ecfs.dir {e}")
    if len(found) == 2 and found[0].record != found[1].record:
        wrong.append("ecfs.dir and the xattr user.ecfs.dir differ")
    return (found[0] if found else None), wrong


def is_own(name, is_root, encrypted):
    """Whether a lower name is that of a file of the format's own, which is no object of the tree."""
    if is_root and (name in (b"ecfs.volume", b"ecfs.volume.new", b"ecfs.lock", b"ecfs.session") or name.startswith(b"ecfs.session.")
                    or is_hashed(name, TARGET)):
        return True
    return encrypted and (name in (b"ecfs.dir", b"ecfs.dir.new") or is_hashed(name, NAME))


def is_hashed(name, prefix):
    return name.startswith(prefix) and len(name) == len(prefix) + HASH


def name_text(fd, lower_name):
    """The encrypted name's text: the lower name itself, or what the name file beside it says."""
    if not lower_name.startswith(b"ecfs."):
        return lower_name
    if not is_hashed(lower_name, LONG):
        raise Damage("is no name that the format knows")
    hashed = lower_name[len(LONG):]
    try:
        text = lower.read_small(fd, NAME + hashed, NAME_TEXT_MAX + 1)
    except FileNotFoundError:
        raise Damage("the file with its name is missing: " + (NAME + hashed).decode("ascii", "replace")) from None
    except OSError as e:
        raise Damage(f"the file with its name: {why(e)}") from None
    if k.blake2b_name(text) != hashed:
        raise Damage("the file with its name is damaged")
    return text


def decode_name(directory, text):
    sealed = k.decode(text)
    for cipher in directory.ciphers:
        try:
            padded = k.siv_open(cipher, sealed, [directory.id])
        except Damage:
            continue
        name = padded.rstrip(b"\0")
        if not 1 <= len(name) <= 255 or len(padded) != -(-len(name) // 16) * 16 or not is_safe(name):
            raise Damage("is no name that a file can have")
        return name
    raise Damage("does not authenticate")


def is_safe(name):
    return name not in (b"", b".", b"..") and b"/" not in name and b"\0" not in name
