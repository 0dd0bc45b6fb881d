#!/usr/bin/python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""A second reader of the format, written from docs/FORMAT.md and sharing no code with ecfs.

  reference.py vectors                    the test vectors of docs/FORMAT.md
  reference.py manifest LOWER PASSFILE    the tree in a lower directory, one line an object
  reference.py manifest --plain DIR       the same of a plain (or mounted) directory

It reads a whole volume into memory and holds secrets in ordinary strings: for tests, not for use.
"""
import base64
import hashlib
import json
import os
import stat
import struct
import sys

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, AESSIV, ChaCha20Poly1305
from nacl import pwhash
from nacl.bindings import (crypto_aead_xchacha20poly1305_ietf_decrypt,
                           crypto_aead_xchacha20poly1305_ietf_encrypt)

PAGE, HEADER, BLOCK_HEADER = 4096, 128, 32
MAGIC = bytes.fromhex("89656366730d0a1a")
SUITES = {1: AESGCM, 2: ChaCha20Poly1305}
SUITE_NAMES = {"aes-256-gcm": 1, "chacha20-poly1305": 2}


class Damaged(Exception):
    pass


def b64(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def unb64(text):
    data = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    if b64(data) != text:
        raise Damaged("not the one base64url text of its bytes")
    return data


def blake(data, key=b"", size=32):
    return hashlib.blake2b(data, digest_size=size, key=key).digest()


def xseal(key, nonce, ad, plain):
    return nonce + crypto_aead_xchacha20poly1305_ietf_encrypt(plain, ad, nonce, key)


def xopen(key, ad, sealed):
    try:
        return crypto_aead_xchacha20poly1305_ietf_decrypt(sealed[24:], ad, sealed[:24], key)
    except Exception as error:
        raise Damaged("sealed value") from error


class Keys:
    """Everything that is derived from one epoch's master key: libsodium's crypto_kdf is BLAKE2b with salt and person."""

    def __init__(self, epoch, master):
        def sub(number, size=32):
            return hashlib.blake2b(digest_size=size, key=master, salt=struct.pack("<Q8x", number),
                                   person=b"ecfs-key" + bytes(8)).digest()
        self.epoch = epoch
        self.wrap, self.name, self.link = sub(1), sub(2, 64), sub(3)
        self.xattr_name, self.xattr, self.conf = sub(4, 64), sub(5), sub(6)


def payload(block):
    return PAGE - BLOCK_HEADER - (HEADER if block == 0 else 0)


def header(keys, suite, file_id, wrap_nonce, file_key):
    first = MAGIC + struct.pack("<HBBI", 1, suite, 0, keys.epoch) + file_id
    return first + xseal(keys.wrap, wrap_nonce, first, file_key) + bytes(24)


def open_header(keyring, raw):
    version, suite, zero, epoch = struct.unpack_from("<HBBI", raw, 8)
    if raw[:8] != MAGIC or version != 1 or zero or suite not in SUITES or any(raw[104:128]):
        raise Damaged("header")
    return suite, xopen(keyring[epoch].wrap, raw[:32], raw[32:104])


def seal_block(suite, key, index, nonce, plain):
    length = struct.pack("<HH", len(plain), 0)
    sealed = SUITES[suite](key).encrypt(nonce, plain, struct.pack("<Q", index) + length)
    body, tag = sealed[:-16], sealed[-16:]
    return (nonce + length + tag + body).ljust(BLOCK_HEADER + payload(index), b"\0")


def open_block(suite, key, index, raw):
    length, zero = struct.unpack_from("<HH", raw, 12)
    body = raw[BLOCK_HEADER:]
    if not 1 <= length <= payload(index) or zero or any(body[length:]):
        raise Damaged("block %d" % index)
    try:
        return SUITES[suite](key).decrypt(raw[:12], body[:length] + raw[16:32],
                                          struct.pack("<QHH", index, length, 0))
    except InvalidTag as error:
        raise Damaged("block %d" % index) from error


def open_file(keyring, raw):
    if not raw:
        return b""
    pages, hint = divmod(len(raw), PAGE)
    if pages == 0 or any(raw[pages * PAGE:]):
        raise Damaged("size")
    suite, key = open_header(keyring, raw[:HEADER])
    out = b""
    length = 0
    for index in range(pages):
        start = index * PAGE + (HEADER if index == 0 else 0)
        block = raw[start:(index + 1) * PAGE]
        plain = open_block(suite, key, index, block) if any(block) else b""
        length = len(plain)
        out += plain.ljust(payload(index), b"\0")
    if length == 0 or length != hint:
        raise Damaged("hint")
    return out[:len(out) - payload(pages - 1) + length]


def dir_record(keys, dir_id, next_epoch=0):
    first = dir_id + struct.pack("<II8x", keys.epoch, next_epoch)
    return first + blake(first, keys.conf, 16)


def open_dir_record(keyring, raw):
    if len(raw) != 48 or any(raw[24:32]):
        raise Damaged("ecfs.dir")
    epoch, following = struct.unpack_from("<II", raw, 16)
    if epoch not in keyring or blake(raw[:32], keyring[epoch].conf, 16) != raw[32:]:
        raise Damaged("ecfs.dir")
    return raw[:16], epoch, following


def encode_name(keys, dir_id, name):
    return b64(AESSIV(keys.name).encrypt(name + bytes(-len(name) % 16), [dir_id]))


def decode_name(keys, dir_id, text):
    try:
        return AESSIV(keys.name).decrypt(unb64(text), [dir_id]).rstrip(b"\0")
    except (InvalidTag, ValueError) as error:
        raise Damaged("name " + text) from error


def long_name(text):
    return "ecfs.long." + b64(blake(text.encode()))


def seal_target(keys, nonce, target):
    epoch = struct.pack("<I", keys.epoch)
    return b64(epoch + xseal(keys.link, nonce, epoch, target))


def open_target(keyring, text):
    raw = unb64(text)
    return xopen(keyring[struct.unpack_from("<I", raw)[0]].link, raw[:4], raw[4:])


def xattr_name(keys, name):
    sealed = AESSIV(keys.xattr_name).encrypt(name, None)
    short = "user.ecfs." + b64(sealed)
    return short if len(short) <= 255 else "user.ecfs.long." + b64(blake(sealed))


def seal_xattr(keys, nonce, name, value):
    lower = xattr_name(keys, name)
    epoch = struct.pack("<I", keys.epoch)
    if lower.startswith("user.ecfs.long."):
        return epoch + xseal(keys.xattr, nonce, epoch + lower.encode(), struct.pack("<H", len(name)) + name + value)
    return epoch + xseal(keys.xattr, nonce, epoch + name, value)


def open_xattr(keyring, lower, sealed):
    """Name and value."""
    keys = keyring[struct.unpack_from("<I", sealed)[0]]
    if lower.startswith("user.ecfs.long."):
        content = xopen(keys.xattr, sealed[:4] + lower.encode(), sealed[4:])
        size = struct.unpack_from("<H", content)[0]
        return content[2:2 + size], content[2 + size:]
    try:
        name = AESSIV(keys.xattr_name).decrypt(unb64(lower[len("user.ecfs."):]), None)
    except (InvalidTag, ValueError) as error:
        raise Damaged("xattr name") from error
    return name, xopen(keys.xattr, sealed[:4] + name, sealed[4:])


def volume_text(volume, conf):
    """The text of a volume file of these fields (without mac and checksum)."""
    compact = dict(sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    full = dict(volume)
    full["mac"] = b64(blake(json.dumps(volume, **compact).encode(), conf))
    full["checksum"] = b64(blake(json.dumps(full, **compact).encode()))
    return json.dumps(full, sort_keys=True, indent=2, ensure_ascii=False) + "\n"


def kek_of(slot, secret):
    return pwhash.argon2id.kdf(32, secret, unb64(slot["salt"]), opslimit=slot["argon2_ops"],
                               memlimit=slot["argon2_mem"])


def wrap_masters(volume, slot, secret, nonce, masters):
    plain = b"".join(struct.pack("<I", epoch) + key for epoch, key in sorted(masters.items()))
    ad = (slot["type"] + " " + volume["uuid"]).encode()
    return xseal(kek_of(slot, secret), nonce, ad, plain)


def unlock(text, secret):
    """The volume's fields and its key ring, from the volume file's text and a passphrase."""
    full = json.loads(text)
    volume = {k: v for k, v in full.items() if k not in ("mac", "checksum")}
    if volume["format"] != 1:
        raise Damaged("format")
    for slot in volume["keyslots"]:
        ad = (slot["type"] + " " + volume["uuid"]).encode()
        try:
            plain = xopen(kek_of(slot, secret), ad, unb64(slot["nonce"]) + unb64(slot["wrapped"]))
        except Damaged:
            continue
        ring = {}
        for at in range(0, len(plain), 36):
            epoch = struct.unpack_from("<I", plain, at)[0]
            ring[epoch] = Keys(epoch, plain[at + 4:at + 36])
        if volume_text(volume, ring[max(ring)].conf) != text:
            raise Damaged("volume file")
        return volume, ring
    raise Damaged("no slot opens")


class Lower:
    """A lower directory, read as its plaintext tree: yields (path, kind, content, xattrs)."""

    def __init__(self, root, secret):
        self.root = root
        with open(os.path.join(root, "ecfs.volume"), encoding="utf-8", newline="") as file:
            self.volume, self.ring = unlock(file.read(), secret)
        self.encrypted = self.volume["names"] == "encrypted"

    def read(self, *parts):
        with open(os.path.join(self.root, *parts), "rb") as file:
            return file.read()

    def names(self, lower):
        """(lower name, plaintext name) of each entry."""
        entries = sorted(os.listdir(os.path.join(self.root, lower)))
        if not self.encrypted:
            return [(e, os.fsencode(e)) for e in entries if lower or not e.startswith("ecfs.")]
        dir_id, epoch, following = open_dir_record(self.ring, self.read(lower, "ecfs.dir"))
        if following:
            raise Damaged("a rotation is under way")
        out = []
        for entry in entries:
            text = entry
            if entry.startswith("ecfs.long."):
                text = self.read(lower, "ecfs.name." + entry[len("ecfs.long."):]).decode()
                if long_name(text) != entry:
                    raise Damaged("long name")
            elif entry.startswith("ecfs."):
                continue
            name = decode_name(self.ring[epoch], dir_id, text)
            if encode_name(self.ring[epoch], dir_id, name) != text:
                raise Damaged("padding of a name")
            out.append((entry, name))
        return out

    def walk(self, lower="", plain=b""):
        for entry, name in self.names(lower):
            path = os.path.join(lower, entry)
            full = os.path.join(self.root, path)
            mode = os.lstat(full).st_mode
            shown = os.path.join(plain, name)
            xattrs = {}
            for attr in os.listxattr(full, follow_symlinks=False) if not stat.S_ISLNK(mode) else []:
                if attr.startswith("user.ecfs.") and attr != "user.ecfs.dir":
                    key, value = open_xattr(self.ring, attr, os.getxattr(full, attr))
                    xattrs[b"user." + key] = value
            if stat.S_ISLNK(mode):
                text = os.readlink(full)
                if text.startswith("ecfs.target."):
                    content = self.read(text).decode()
                    if "ecfs.target." + b64(blake(content.encode())) != text:
                        raise Damaged("link target")
                    text = content
                yield shown, mode, open_target(self.ring, text), xattrs
            elif stat.S_ISREG(mode):
                yield shown, mode, open_file(self.ring, self.read(path)), xattrs
            else:
                yield shown, mode, b"", xattrs
            if stat.S_ISDIR(mode):
                yield from self.walk(path, shown)


def plain_walk(root, below=b""):
    for name in sorted(os.listdir(os.path.join(root, below))):
        path = os.path.join(below, name)
        full = os.path.join(root, path)
        mode = os.lstat(full).st_mode
        content, xattrs = b"", {}
        if stat.S_ISLNK(mode):
            content = os.readlink(full)
        else:
            xattrs = {os.fsencode(a): os.getxattr(full, a) for a in os.listxattr(full) if a.startswith("user.")}
        if stat.S_ISREG(mode):
            with open(full, "rb") as file:
                content = file.read()
        yield path, mode, content, xattrs
        if stat.S_ISDIR(mode):
            yield from plain_walk(root, path)


def manifest(walk):
    """One line an object, sorted by path: mode, size, hash, path and xattrs; names as JSON strings of their bytes."""
    def text(raw):
        return json.dumps(raw.decode("latin-1"))
    lines = []
    for path, mode, content, xattrs in walk:
        attrs = "".join(" %s=%s" % (text(k), blake(v, size=16).hex()) for k, v in sorted(xattrs.items()))
        permissions = "-----" if stat.S_ISLNK(mode) else "%05o" % (mode & 0o7777)
        kind = {stat.S_IFREG: "file", stat.S_IFDIR: "dir", stat.S_IFLNK: "link", stat.S_IFIFO: "fifo"}[stat.S_IFMT(mode)]
        lines.append((path, "%s %s %d %s %s%s\n" % (kind, permissions, len(content), blake(content, size=16).hex(),
                                                    text(path), attrs)))
    return "".join(line for _, line in sorted(lines))


def vectors():
    """Name and value of each test vector, from keys and nonces that count up."""
    def count(first, size):
        return bytes(range(first, first + size))
    master, file_id, wrap_nonce, file_key = count(0, 32), count(0x20, 16), count(0x30, 24), count(0x48, 32)
    nonce, dir_id, long_nonce = count(0xc0, 12), count(0x70, 16), count(0xd0, 24)
    keys = Keys(1, master)
    yield "master_key", master.hex()
    yield "epoch", "1"
    for name in ("wrap", "name", "link", "xattr_name", "xattr", "conf"):
        yield "k_" + name, getattr(keys, name).hex()
    yield "file_id", file_id.hex()
    yield "wrap_nonce", wrap_nonce.hex()
    yield "file_key", file_key.hex()
    yield "header_aes", header(keys, 1, file_id, wrap_nonce, file_key).hex()
    yield "header_chacha", header(keys, 2, file_id, wrap_nonce, file_key).hex()
    plain = b"Hello, ecfs!\n"
    yield "block_nonce", nonce.hex()
    yield "block_plain", plain.hex()
    for suite, name in ((1, "aes"), (2, "chacha")):
        for index in (0, 1):
            block = seal_block(suite, file_key, index, nonce, plain)
            yield "block%d_%s" % (index, name), block[:BLOCK_HEADER + len(plain)].hex()
    whole = bytes(i % 251 for i in range(5000))
    file = (header(keys, 1, file_id, wrap_nonce, file_key) + seal_block(1, file_key, 0, nonce, whole[:3936]) +
            seal_block(1, file_key, 1, nonce, whole[3936:]) + bytes(5000 - 3936))
    yield "file_plain_size", str(len(whole))
    yield "file_lower_size", str(len(file))
    yield "file_lower_blake2b", blake(file).hex()
    yield "dir_id", dir_id.hex()
    yield "dir_record", dir_record(keys, dir_id).hex()
    yield "name_plain", "hello.txt"
    yield "name_lower", encode_name(keys, dir_id, b"hello.txt")
    long = encode_name(keys, dir_id, b"n" * 255)
    yield "long_name_encoded", long
    yield "long_name_lower", long_name(long)
    yield "target_plain", "../hello.txt"
    yield "target_nonce", long_nonce.hex()
    yield "target_lower", seal_target(keys, long_nonce, b"../hello.txt")
    yield "xattr_plain", "comment"
    yield "xattr_value", b"a value".hex()
    yield "xattr_lower", xattr_name(keys, b"comment")
    yield "xattr_sealed", seal_xattr(keys, long_nonce, b"comment", b"a value").hex()
    long_attr = b"a" * 200
    yield "long_xattr_lower", xattr_name(keys, long_attr)
    yield "long_xattr_sealed", seal_xattr(keys, long_nonce, long_attr, b"a value").hex()
    volume, slot = sample_volume()
    yield "passphrase", "correct horse battery staple"
    yield "kek", kek_of(slot, b"correct horse battery staple").hex()
    yield "slot_wrapped", slot["wrapped"]
    yield "volume_mac", json.loads(volume_text(volume, keys.conf))["mac"]
    yield "volume_checksum", json.loads(volume_text(volume, keys.conf))["checksum"]


def sample_volume():
    """The volume file of the test vectors: one passphrase slot with costs that are only good for tests."""
    slot = {"type": "passphrase", "label": "sample", "created": "2026-01-02T03:04:05Z", "argon2_ops": 1,
            "argon2_mem": 65536, "salt": b64(bytes(range(0x80, 0x90))), "nonce": b64(bytes(range(0x90, 0xa8)))}
    volume = {"format": 1, "uuid": "00010203-0405-4607-8809-0a0b0c0d0e0f", "created": "2026-01-02T03:04:05Z",
              "suite": "aes-256-gcm", "names": "encrypted", "long_name_max": 255, "epochs": [1], "keyslots": [slot]}
    sealed = wrap_masters(volume, slot, b"correct horse battery staple", unb64(slot["nonce"]), {1: bytes(range(32))})
    slot["wrapped"] = b64(sealed[24:])
    return volume, slot


def main(args):
    if args == ["vectors"]:
        for name, value in vectors():
            print(name, "=", value)
        return 0
    if len(args) == 3 and args[0] == "manifest" and args[1] == "--plain":
        sys.stdout.write(manifest(plain_walk(os.fsencode(args[2]))))
        return 0
    if len(args) == 3 and args[0] == "manifest":
        with open(args[2], "rb") as file:
            secret = file.read().removesuffix(b"\n")
        sys.stdout.write(manifest(Lower(args[1], secret).walk()))
        return 0
    sys.stderr.write(__doc__)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
