#!/usr/bin/python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes the corpora of the fuzz targets: make_corpus.py DIR. Run by hand when the format grows; what it writes is checked in."""
import os
import struct
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "vectors"))
import reference as ref  # noqa: E402


def count(first, size):
    return bytes(range(first, first + size))


KEYS = ref.Keys(1, count(0, 32))
FILE_KEY = count(0x48, 32)
NONCE, LONG_NONCE = count(0xc0, 12), count(0xd0, 24)
DIR_ID = count(0x70, 16)


def header(suite=1):
    return ref.header(KEYS, suite, count(0x20, 16), count(0x30, 24), FILE_KEY)


def block(suite, index, plain):
    return ref.seal_block(suite, FILE_KEY, index, NONCE, plain)


def corpus():
    yield "header/aes", header(1)
    yield "header/chacha", header(2)
    yield "header/later-version", header()[:8] + b"\2\0" + header()[10:]
    yield "header/zeros", bytes(128)

    yield "block/aes-0", b"\2" + block(1, 0, b"Hello, ecfs!\n").rstrip(b"\0")
    yield "block/aes-1", b"\0" + block(1, 1, b"x").rstrip(b"\0")
    yield "block/chacha-1", b"\1" + block(2, 1, count(0, 200)).rstrip(b"\0")
    yield "block/length-0", b"\0" + NONCE + bytes(20)
    yield "block/length-too-long", b"\0" + NONCE + struct.pack("<HH", 4065, 0) + bytes(16)

    yield "dir_record/good", ref.dir_record(KEYS, DIR_ID)
    yield "dir_record/rotating", ref.dir_record(KEYS, DIR_ID, 2)
    yield "dir_record/short", ref.dir_record(KEYS, DIR_ID)[:47]

    volume, _ = ref.sample_volume()
    yield "volume/sample", ref.volume_text(volume, KEYS.conf).encode()
    two = dict(volume, keyslots=volume["keyslots"] + [dict(volume["keyslots"][0], type="recovery", label="ü")],
               names="plain", suite="chacha20-poly1305")
    yield "volume/two-slots", ref.volume_text(two, KEYS.conf).encode()
    yield "volume/no-slots", ref.volume_text(dict(volume, keyslots=[]), KEYS.conf).encode()
    costly = dict(volume, keyslots=[dict(volume["keyslots"][0], argon2_mem=1 << 40)])
    yield "volume/costly", ref.volume_text(costly, KEYS.conf).encode()
    yield "volume/unknown-field", ref.volume_text(dict(volume, colour="blue"), KEYS.conf).encode()
    yield "volume/later-format", b'{"format": 2}\n'
    yield "volume/deep", b"[" * 200
    yield "volume/not-utf8", b'{"format": 1, "label": "\xff"}'
    yield "volume/huge-number", b'{"format": 1e999}'

    yield "names/lower", b"\0" + ref.encode_name(KEYS, DIR_ID, b"hello.txt").encode()
    yield "names/lower-long", b"\0" + ref.encode_name(KEYS, DIR_ID, b"n" * 255).encode()
    yield "names/plain", b"\1hello.txt"
    yield "names/plain-255", b"\1" + b"n" * 255
    yield "names/plain-slash", b"\1a/b"
    yield "names/target", b"\2" + ref.seal_target(KEYS, LONG_NONCE, b"../hello.txt").encode()
    yield "names/target-empty", b"\2" + ref.seal_target(KEYS, LONG_NONCE, b"").encode()
    short, long = b"comment", b"a" * 200
    yield "names/xattr", (b"\3" + ref.xattr_name(KEYS, short).encode() + b"\0" +
                          ref.seal_xattr(KEYS, LONG_NONCE, short, b"a value"))
    yield "names/xattr-long", (b"\3" + ref.xattr_name(KEYS, long).encode() + b"\0" +
                               ref.seal_xattr(KEYS, LONG_NONCE, long, b"a value"))
    yield "names/long-content", b"\4" + struct.pack("<H", 3) + b"abcvalue"
    yield "names/long-content-cut", b"\4" + struct.pack("<H", 300) + b"abc"
    yield "names/padded", b"\5" + b"good".ljust(16, b"\0")
    yield "names/padded-dots", b"\5" + b"..".ljust(16, b"\0")
    yield "names/padded-slash", b"\5" + b"../x".ljust(16, b"\0")
    yield "names/padded-twice", b"\5" + b"a".ljust(32, b"\0")

    yield "recovery/zeros", b"00000-00007-0000e-0000n-0000w-00004-0000b-0000j"
    yield "recovery/loose", b"OOOOO 00007 0000E 0000N 0000W 00004 0000B 0000J"
    yield "recovery/typo", b"00000-00007-0000e-0000n-0000w-00004-0000b-0000k"
    yield "recovery/passphrase", b"correct horse battery staple\n"
    yield "recovery/nul", b"a\0b"

    yield "file/one-block", struct.pack("<H", 13) + header() + block(1, 0, b"Hello, ecfs!\n")
    yield "file/two-blocks", struct.pack("<H", 9) + header() + block(1, 0, b"x" * 3936) + block(1, 1, b"y" * 9)
    yield "file/hole", struct.pack("<H", 9) + header() + bytes(4096 - 128) + block(1, 1, b"y" * 9)
    yield "file/cut-growth", struct.pack("<H", 60000) + header() + block(1, 0, b"Hello, ecfs!\n")
    yield "file/no-header", struct.pack("<H", 13) + bytes(4096)
    yield "file/cut", struct.pack("<H", 0) + header()


def main(where):
    for name, data in corpus():
        path = os.path.join(where, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(data)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
