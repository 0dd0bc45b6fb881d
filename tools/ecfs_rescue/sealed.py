# SPDX-License-Identifier: GPL-3.0-or-later
"""FORMAT.md, "Symlinks" and "Extended attributes"."""

from . import keys as k
from . import lower
from . import names
from .errors import Damage, why

TARGET_MAX = 4095
TARGET_TEXT_MAX = 5519  # of 4095 bytes
OVERHEAD = k.EPOCH + k.NONCE + k.TAG
PREFIX, LONG_PREFIX = b"user.ecfs.", b"user.ecfs.long."


def open_sealed(keys, purpose, data, extra=b""):
    """epoch │ nonce │ XChaCha20-Poly1305, with the epoch and `extra` as additional data."""
    if len(data) < OVERHEAD:
        raise Damage("is too short")
    epoch, nonce = data[:k.EPOCH], data[k.EPOCH:k.EPOCH + k.NONCE]
    return k.xchacha_open(getattr(keys.of(k.number(epoch)), purpose), nonce, data[k.EPOCH + k.NONCE:], epoch + extra)


def link_target(keys, root_fd, text):
    """The plaintext target of a lower link's target."""
    if names.is_hashed(text, names.TARGET):
        name = text
        try:
            text = lower.read_small(root_fd, name, TARGET_TEXT_MAX + 1)
        except FileNotFoundError:
            raise Damage("the file with its target is missing: " + name.decode("ascii", "replace")) from None
        except OSError as e:
            raise Damage(f"the file with its target: {why(e)}") from None
        if names.TARGET + k.blake2b_name(text) != name:
            raise Damage("the file with its target is damaged")
    target = open_sealed(keys, "link", k.decode(text))
    if not 1 <= len(target) <= TARGET_MAX or b"\0" in target:
        raise Damage("is no target that a link can have")
    return target


def xattr_name(keys, lower_name):
    """(what stands behind `user.`, how many epochs are newer), of a lower name that is not a long one."""
    sealed = k.decode(lower_name[len(PREFIX):])
    for age, epoch in enumerate(keys.newest_first()):
        try:
            name = k.siv_open(epoch.xattr_name, sealed, None)
        except Damage:
            continue
        if b"\0" in name:
            raise Damage("is no name that an xattr can have")
        return name, age
    raise Damage("does not authenticate")


def long_xattr(keys, lower_name, value):
    """(name, age, value) of an xattr whose name is in its value."""
    plain = open_sealed(keys, "xattr", value, lower_name)
    length = k.number(plain[:2])
    name = plain[2:2 + length]
    if len(plain) < 2 or not name or len(name) != length or b"\0" in name:
        raise Damage("is no name that an xattr can have")
    for age, epoch in enumerate(keys.newest_first()):
        if LONG_PREFIX + k.blake2b_name(epoch.xattr_name.encrypt(name, None)) == lower_name:
            return name, age, plain[2 + length:]
    raise Damage("has a name that is not its own")


def open_xattrs(keys, sealed_xattrs, wrong):
    """{name with `user.`: value} of {lower name: lower value}; wrong(lower name, Damage) is called for those that cannot be read.

    A name is looked up under the newest epoch first: what an older one left behind does not count, be the newer one damaged, too."""
    found = {}  # name: (age, value or None)
    for lower_name, value in sealed_xattrs.items():
        plain = None
        try:
            if lower_name.startswith(LONG_PREFIX):
                name, age, plain = long_xattr(keys, lower_name, value)
            else:
                name, age = xattr_name(keys, lower_name)
                try:
                    plain = open_sealed(keys, "xattr", value, name)
                except Damage as e:
                    wrong(lower_name, e)
        except Damage as e:
            wrong(lower_name, e)
            continue
        if name not in found or age < found[name][0]:
            found[name] = age, plain
    return {b"user." + name: plain for name, (_, plain) in found.items() if plain is not None}
