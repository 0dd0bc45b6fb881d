# SPDX-License-Identifier: GPL-3.0-or-later
"""FORMAT.md, "The volume file": what a passphrase or a recovery key opens.

A damaged volume file is not given up as long as a keyslot in it still opens: what the slot wraps is authenticated, and so is everything that
its keys open. The damage is told."""

import hashlib
import json
import re
import uuid

from nacl import bindings

from . import errors
from . import keys as k
from . import lower
from . import names
from .errors import Damage, Failure, why

FILE = b"ecfs.volume"
WHAT = "ecfs.volume"
SIZE_MAX = 1 << 20
SLOTS_MAX = 256
OPS_MAX = 100
MEM_MIN, MEM_MAX = 8192, 4 << 30
FIELDS = {"format", "uuid", "created", "suite", "names", "long_name_max", "epochs", "keyslots", "mac", "checksum"}
SLOT_FIELDS = {"type", "label", "created", "argon2_ops", "argon2_mem", "salt", "nonce", "wrapped"}
SUITES = ("aes-256-gcm", "chacha20-poly1305")
MODES = ("encrypted", "plain")
TYPES = ("passphrase", "recovery", "keyfile")
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
CHECK = "0123456789abcdefghjkmnpqrstvwxy"


class Unsupported(Damage):
    """Of a later release."""


def recovery_key(text):
    """(the 16 bytes of a written recovery key or None, the first group that is mistyped or 0). (None, 0): it has not the form of one."""
    text = text.decode("ascii", "replace").lower().replace(" ", "").replace("-", "").translate(str.maketrans("oil", "011"))
    if len(text) != 40:
        return None, 0
    groups = [text[at:at + 5] for at in range(0, 40, 5)]
    bad = [g for g, group in enumerate(groups) if not is_group(g, group)]
    if not bad:
        return bytes.fromhex("".join(group[:4] for group in groups)), 0
    # Most of it right is no chance: somebody meant a recovery key.
    return None, bad[0] + 1 if len(bad) < 4 else 0


def is_group(number, group):
    if not re.fullmatch("[0-9a-f]{4}", group[:4]):
        return False
    total = sum((n + 1) * int(d, 16) for n, d in enumerate(group[:4])) + 7 * number
    return group[4] == CHECK[total % 31]


def compact(fields, without):
    kept = {name: value for name, value in fields.items() if name not in without}
    return json.dumps(kept, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass")


def need(condition, what):
    if not condition:
        raise Damage(f"{what} is not as it must be")


def is_number(value, low, high):
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def sealed_field(slot, name, length=None):
    value = slot.get(name)
    need(isinstance(value, str) and value.isascii(), name)
    data = k.decode(value.encode())
    need(length is None or len(data) == length, name)
    return data


class Slot:
    def __init__(self, fields, damage):
        """Appends to `damage` what is wrong and does not matter here."""
        need(isinstance(fields, dict), "a keyslot")
        for name in sorted(fields.keys() - SLOT_FIELDS):
            raise Unsupported(f"has the unknown field {name!r} in a keyslot")
        self.type = fields.get("type")
        need(isinstance(self.type, str), "type")
        if self.type not in TYPES:
            raise Unsupported(f"has a keyslot of the unknown type {self.type!r}")
        label, created = fields.get("label"), fields.get("created")
        if not isinstance(label, str) or len(label.encode("utf-8", "surrogatepass")) > 255 or re.search(r"[\0-\x1f\x7f]", label):
            damage.append("label is not as it must be")
        if not isinstance(created, str) or not TIME.fullmatch(created):
            damage.append("created is not as it must be")
        self.ops, self.mem = fields.get("argon2_ops"), fields.get("argon2_mem")
        if is_number(self.ops, OPS_MAX + 1, 1 << 64) or is_number(self.mem, MEM_MAX + 1, 1 << 64):
            raise Damage(f"has a keyslot with costs over the limits of {OPS_MAX} passes and {MEM_MAX >> 30} GiB")
        need(is_number(self.ops, 1, OPS_MAX), "argon2_ops")
        need(is_number(self.mem, MEM_MIN, MEM_MAX) and self.mem % 1024 == 0, "argon2_mem")
        self.salt, self.nonce = sealed_field(fields, "salt", 16), sealed_field(fields, "nonce", k.NONCE)
        self.wrapped = sealed_field(fields, "wrapped")

    def open(self, secret, volume_uuid):
        """{epoch: master key}, or None where the secret is another."""
        try:
            kek = bindings.crypto_pwhash_alg(32, secret, self.salt, self.ops, self.mem, bindings.crypto_pwhash_ALG_ARGON2ID13)
        except (RuntimeError, MemoryError):
            raise Failure(errors.DAMAGE, "passphrase", f"there is no memory for its keyslot, which needs {self.mem >> 20} MiB") from None
        try:
            plain = k.xchacha_open(kek, self.nonce, self.wrapped, f"{self.type} {volume_uuid}".encode())
        except Damage:
            return None
        each = k.EPOCH + k.MASTER_KEY
        if not plain or len(plain) % each:
            return None
        parts = [plain[at:at + each] for at in range(0, len(plain), each)]
        return {k.number(part[:k.EPOCH]): part[k.EPOCH:] for part in parts}


class VolumeFile:
    """The parsed volume file. damage: what is wrong with it, where it can be used all the same."""

    def __init__(self, root_fd):
        text = self._read(root_fd)
        self.damage = []
        self._fields = fields = self._parse(text)
        if text != (json.dumps(fields, sort_keys=True, indent=2, ensure_ascii=False) + "\n").encode("utf-8", "surrogatepass"):
            self.damage.append("is not written as it must be")
        checksum = fields.get("checksum")
        if checksum != k.encode(hashlib.blake2b(compact(fields, {"checksum"}), digest_size=32).digest()).decode():
            self.damage.append("has a wrong checksum")
        self._tolerate(self._check)
        self.slots = self._slots()

    @staticmethod
    def _read(root_fd):
        try:
            text = lower.read_small(root_fd, FILE, SIZE_MAX + 1)
        except FileNotFoundError:
            raise Failure(errors.NO_VOLUME, "LOWER", "there is no volume in it: it has no ecfs.volume") from None
        except OSError as e:
            raise Failure(errors.LOWER, WHAT, why(e)) from None
        if len(text) > SIZE_MAX:
            raise Failure(errors.DAMAGED_VOLUME, WHAT, "is too large for a volume file")
        return text

    @staticmethod
    def _parse(text):
        try:
            fields = json.loads(text.decode("utf-8"))
        except (ValueError, RecursionError):
            fields = None
        if not isinstance(fields, dict):
            raise Failure(errors.DAMAGED_VOLUME, WHAT, "is damaged: it cannot be parsed", "restore it from a backup; every backup of the volume has it")
        version = fields.get("format")
        if is_number(version, 2, 1 << 64):
            raise Failure(errors.UNSUPPORTED, WHAT, f"is of format {version}", "a later release of ecfs may read it")
        return fields

    def _tolerate(self, read, *args):
        """read(*args), or None where what it reads is damaged. Of a later release is only what is not damaged: a flipped bit makes an unknown word of a
        known one."""
        try:
            return read(*args)
        except Unsupported as e:
            if not self.damage:
                raise Failure(errors.UNSUPPORTED, WHAT, str(e), "a later release of ecfs may read it") from None
            self.damage.append(str(e))
        except Damage as e:
            self.damage.append(str(e))
        return None

    def _check(self):
        fields = self._fields
        for name in sorted(fields.keys() - FIELDS):
            raise Unsupported(f"has the unknown field {name!r}")
        for name, known in (("suite", SUITES), ("names", MODES)):
            value = fields.get(name)
            need(isinstance(value, str), name)
            if value not in known:
                raise Unsupported(f"has the unknown {name} {value!r}")
        need(fields.get("format") == 1, "format")
        need(isinstance(fields.get("created"), str) and TIME.fullmatch(fields["created"]), "created")
        need(is_number(fields.get("long_name_max"), 64, 255), "long_name_max")
        epochs = fields.get("epochs")
        need(isinstance(epochs, list) and epochs and all(is_number(e, 1, (1 << 32) - 1) for e in epochs), "epochs")
        need(all(a < b for a, b in zip(epochs, epochs[1:])), "epochs")
        sealed_field(fields, "mac", 32)

    def _slots(self):
        fields = self._fields
        try:
            need(str(uuid.UUID(fields.get("uuid", ""))) == fields["uuid"], "uuid")
            need(isinstance(fields.get("keyslots"), list) and len(fields["keyslots"]) <= SLOTS_MAX, "keyslots")
        except (Damage, ValueError, TypeError, AttributeError):
            raise Failure(errors.DAMAGED_VOLUME, WHAT, "is damaged: its uuid or its keyslots cannot be read",
                          "restore it from a backup; every backup of the volume has it") from None
        slots = [self._tolerate(Slot, slot, self.damage) for slot in fields["keyslots"]]
        return [slot for slot in slots if slot]

    def unlock(self, passphrase):
        """The Volume, or None where no keyslot opens by this passphrase or recovery key."""
        recovery, _ = recovery_key(passphrase)
        secrets = {"passphrase": passphrase, "recovery": recovery}
        order = sorted(self.slots, key=lambda slot: (slot.type == "recovery") != (recovery is not None))
        for slot in order:
            secret = secrets.get(slot.type)
            masters = slot.open(secret, self._fields["uuid"]) if secret else None
            if masters:
                return Volume(self._fields, masters, self.damage)
        if self.damage:
            raise Failure(errors.DAMAGED_VOLUME, WHAT, f"is damaged ({self.damage[0]}), and no keyslot opens",
                          "where the passphrase is right, restore ecfs.volume from a backup")
        return None


class Volume:
    """An unlocked volume: its keys and its mode of names."""

    def __init__(self, fields, masters, damage):
        self.keys = k.Keys(masters)
        self.damage = list(damage)
        value = fields.get("mac")
        good = k.mac(self.keys.newest().conf, compact(fields, {"mac", "checksum"}), 32)
        if not isinstance(value, str) or value != k.encode(good).decode():
            self.damage.append("does not authenticate: it was changed without the keys")
        if fields.get("epochs") != sorted(masters):
            self.damage.append("names other key epochs than its keyslot")
        self._mode = fields.get("names")

    def has_encrypted_names(self, root_fd):
        """A damaged volume file cannot be asked: then the root's id tells, which only volumes with encrypted names have."""
        if not self.damage:
            return self._mode == "encrypted"
        return names.directory_id(self.keys, root_fd)[0] is not None
