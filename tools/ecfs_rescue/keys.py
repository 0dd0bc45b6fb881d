# SPDX-License-Identifier: GPL-3.0-or-later
"""FORMAT.md, "Keys": the subkeys of each key epoch, and the ciphers that they are for."""

import base64
import binascii
import hashlib
import hmac

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, AESSIV, ChaCha20Poly1305
from nacl import bindings, exceptions

from .errors import Damage

MASTER_KEY = 32
NONCE = 24  # of XChaCha20-Poly1305
TAG = 16
EPOCH = 4
SUITES = {1: AESGCM, 2: ChaCha20Poly1305}


def subkey(master, number, length):
    return hashlib.blake2b(b"", digest_size=length, key=master, salt=number.to_bytes(8, "little") + bytes(8),
                           person=b"ecfs-key" + bytes(8)).digest()


class EpochKeys:
    """The subkeys of one epoch's master key."""

    def __init__(self, master):
        self.wrap = subkey(master, 1, 32)
        self.name = AESSIV(subkey(master, 2, 64))
        self.link = subkey(master, 3, 32)
        self.xattr_name = AESSIV(subkey(master, 4, 64))
        self.xattr = subkey(master, 5, 32)
        self.conf = subkey(master, 6, 32)


class Keys:
    """The keys of all living epochs."""

    def __init__(self, masters):
        self._epochs = {epoch: EpochKeys(master) for epoch, master in masters.items()}

    def has(self, epoch):
        return epoch in self._epochs

    def of(self, epoch):
        if epoch not in self._epochs:
            raise Damage(f"says key epoch {epoch}, which the volume does not have")
        return self._epochs[epoch]

    def newest_first(self):
        return [self._epochs[epoch] for epoch in sorted(self._epochs, reverse=True)]

    def newest(self):
        return self.newest_first()[0]


def number(data):
    return int.from_bytes(data, "little")


def encode(data):
    """base64url without padding."""
    return base64.urlsafe_b64encode(data).rstrip(b"=")


def decode(text):
    """The one value of a text. Strict: what does not come out the same when it is encoded again is refused."""
    try:
        data = base64.urlsafe_b64decode(text + b"=" * (-len(text) % 4))
    except (binascii.Error, ValueError):
        raise Damage("is no base64url") from None
    if encode(data) != text:
        raise Damage("is no base64url")
    return data


def blake2b_name(data):
    """H(x) of FORMAT.md."""
    return encode(hashlib.blake2b(data, digest_size=32).digest())


def mac(key, data, length):
    return hashlib.blake2b(data, digest_size=length, key=key).digest()


def same(a, b):
    return hmac.compare_digest(a, b)


def siv_open(cipher, data, additional):
    """AES-256-SIV. Nothing that is encrypted so is empty."""
    if len(data) <= TAG:
        raise Damage("is too short")
    try:
        return cipher.decrypt(data, additional)
    except InvalidTag:
        raise Damage("does not authenticate") from None


def xchacha_open(key, nonce, data, additional):
    if len(data) < TAG:
        raise Damage("is too short")
    try:
        return bindings.crypto_aead_xchacha20poly1305_ietf_decrypt(data, additional, nonce, key)
    except exceptions.CryptoError:
        raise Damage("does not authenticate") from None


def block_open(cipher, nonce, ciphertext, tag, additional):
    """One block's plaintext, or None."""
    try:
        return cipher.decrypt(nonce, ciphertext + tag, additional)
    except InvalidTag:
        return None
