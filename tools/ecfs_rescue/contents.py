# SPDX-License-Identifier: GPL-3.0-or-later
"""FORMAT.md, "Regular files" and "Sizes": a file is read once from its front to its end, a few pages at a time."""

import errno
import os

from . import keys as k
from .errors import Damage, why

PAGE = 4096
HEADER = 128
BLOCK_HEADER = 32
MAGIC = bytes.fromhex("89656366730d0a1a")
AT_ONCE = 64  # pages a read


def capacity(block):
    return PAGE - BLOCK_HEADER - (HEADER if block == 0 else 0)


def block_start(block):
    return 0 if block == 0 else capacity(0) + (block - 1) * capacity(1)


def hinted_size(lower_size):
    """The plaintext size that a lower size tells, or None where the hint is missing."""
    if lower_size == 0:
        return 0
    pages, rest = divmod(lower_size, PAGE)
    if pages == 0 or not 1 <= rest <= capacity(pages - 1):
        return None
    return block_start(pages - 1) + rest


def open_header(keys, page):
    """The cipher of a file's blocks."""
    if page[:8] != MAGIC:
        raise Damage("the header's magic is wrong")
    version, suite = k.number(page[8:10]), page[10]
    if version == 0 or suite == 0:
        raise Damage("the header is damaged")
    if version > 1:
        raise Damage(f"is of format version {version}, which a later release of ecfs writes")
    if suite not in k.SUITES:
        raise Damage(f"is of cipher suite {suite}, which a later release of ecfs writes")
    if page[11] or any(page[104:HEADER]):
        raise Damage("the header is damaged")
    try:
        file_key = k.xchacha_open(keys.of(k.number(page[12:16])).wrap, page[32:56], page[56:104], page[:32])
    except Damage as e:
        raise Damage(f"the header {e}") from None
    return k.SUITES[suite](file_key)


def open_block(cipher, index, block):
    """The plaintext of a block (a page, in page 0 what is behind the header), or None where it is damaged."""
    length = k.number(block[12:14])
    end = BLOCK_HEADER + length
    if not 1 <= length <= capacity(index) or block[14:16] != b"\0\0" or block[end:].count(0) != len(block) - end:
        return None
    return k.block_open(cipher, block[:12], block[BLOCK_HEADER:end], block[16:BLOCK_HEADER], index.to_bytes(8, "little") + block[12:16])


def is_zero(data):
    return data.count(0) == len(data)


def data_pages(fd, pages):
    """[first, end) of each run of pages that the lower filesystem has data for; what it knows as a hole is one."""
    at, end = 0, pages * PAGE
    while at < end:
        try:
            data = os.lseek(fd, at, os.SEEK_DATA)
            hole = os.lseek(fd, data, os.SEEK_HOLE)
        except OSError as e:
            if e.errno == errno.ENXIO:  # no data from here on
                return
            if e.errno != errno.EINVAL:
                raise
            data, hole = at, end  # the filesystem cannot tell
        first, last = max(data, at) // PAGE, min(-(-hole // PAGE), pages)
        if first < last:
            yield first, last
        at = max(last, first + 1) * PAGE


def read_pages(fd, first, count):
    """(index, page, None) of each, or (index, None, reason) where the disk does not give it."""
    try:
        data = os.pread(fd, count * PAGE, first * PAGE)
    except OSError as e:
        if count == 1:
            yield first, None, why(e)
            return
        for index in range(first, first + count):
            yield from read_pages(fd, index, 1)
        return
    for n in range(count):
        yield first + n, data[n * PAGE:(n + 1) * PAGE].ljust(PAGE, b"\0"), None


class Contents:
    """The contents of one file. read() gives what can be read; afterwards size and damage are known.

    damage: (kind, offset, length, reason), offset and length in the plaintext."""

    def __init__(self, keys, fd, lower_size, after_cut, before_cut):
        self._keys, self._fd, self._lower_size, self._after_cut, self._before_cut = keys, fd, lower_size, after_cut, before_cut
        self._pages = lower_size // PAGE
        self._hint = hinted_size(lower_size)
        self._last = None  # (index, length) of the last block so far, length None where it is damaged
        self._run = None  # [first, last, reason] of damaged blocks that follow each other
        self.size = 0
        self.damage = []

    def read(self):
        """(offset, bytes) from front to end; what is between them are zeros, or damage."""
        if self._lower_size == 0:
            return
        if self._pages == 0:
            self._all_lost("the file is cut inside its header", self._lower_size)
            return
        (_, page, reason), = read_pages(self._fd, 0, 1)
        if page is None:
            self._all_lost(reason)
            return
        if is_zero(page):
            if not self._after_cut:
                self._all_lost("the header is lost: the first page is zeros")
            elif self._last_page() is not None:
                # Part of a first write that was cut. No range is lost that anybody had been told was there.
                self._all_lost("the header never reached the disk in a session that was cut; what is behind it has no key", 0)
            return
        try:
            cipher = open_header(self._keys, page)
        except Damage as e:
            self._all_lost(str(e))
            return
        yield from self._blocks(cipher)
        self._decide_size()

    def measure(self):
        """The size alone, by the last block only."""
        if self._lower_size < PAGE:
            return self._lower_size  # empty, or cut inside its header
        (_, page, _), = read_pages(self._fd, 0, 1)
        if page is not None and is_zero(page):
            return 0 if self._after_cut else self._size_without_last_block()
        try:
            if page is None:
                raise Damage("cannot be read")
            cipher = open_header(self._keys, page)
        except Damage:
            return self._size_without_last_block()
        last = self._last_page()
        if last is None:
            return 0
        index, block = last
        data = None if block is None else open_block(cipher, index, block)
        return self._size_of_damaged(index) if data is None else block_start(index) + len(data)

    def _last_page(self):
        """(index, block) of the last page that is not a hole, the block None where it cannot be read; None where there is no such page."""
        for first, end in reversed(list(data_pages(self._fd, self._pages))):
            for at in range(end - 1, first - 1, -1):
                (_, page, _), = read_pages(self._fd, at, 1)
                block = page if at or page is None else page[HEADER:]
                if block is None or not is_zero(block):
                    return at, block
        return None

    def _blocks(self, cipher):
        for first, end in data_pages(self._fd, self._pages):
            for at in range(first, end, AT_ONCE):
                for index, page, reason in read_pages(self._fd, at, min(AT_ONCE, end - at)):
                    block = page if index or page is None else page[HEADER:]
                    if block is not None and is_zero(block):
                        continue
                    data = None if block is None else self._as_told(index, open_block(cipher, index, block))
                    self._last = index, None if data is None else len(data)
                    if data is None:
                        self._bad_block(index, reason or "does not authenticate")
                    else:
                        yield block_start(index), data

    def _as_told(self, index, data):
        """Of a file that is older than a session that was cut, a last block newer than its inode is as long as the hint says."""
        if data is None or not self._before_cut or self._hint is None or index != self._pages - 1:
            return data
        length = self._hint - block_start(index)
        return data[:length].ljust(length, b"\0")

    def _bad_block(self, index, reason):
        if self._run and self._run[1] == index - 1 and self._run[2] == reason:
            self._run[1] = index
            return
        self._end_run()
        self._run = [index, index, reason]

    def _end_run(self, size=None):
        if self._run:
            first, last, reason = self._run
            begin, end = block_start(first), block_start(last + 1)
            if size is not None:
                end = max(begin, min(end, size))
            self.damage.append(("contents", begin, end - begin, reason))
            self._run = None

    def _all_lost(self, reason, size=None):
        if size is None:
            size = self._size_without_last_block()
        self.size = size
        self.damage.append(("header", 0, size, reason))

    def _size_without_last_block(self):
        """Where no block can say it: the hint, or where that is missing, all that the pages can hold."""
        return block_start(self._pages) if self._hint is None else self._hint

    def _size_of_damaged(self, last):
        """Where the last block cannot say its length: the hint, where it is about that block, else all that the block can hold."""
        if self._hint is not None and last == self._pages - 1:
            return self._hint
        return block_start(last + 1)

    def _decide_size(self):
        """The authenticated length of the last block decides; the hint can only contradict it."""
        if self._last is None:
            self.size = 0
        elif self._last[1] is None:
            self.size = self._size_of_damaged(self._last[0])
            self._end_run(self.size)
        else:
            self.size = block_start(self._last[0]) + self._last[1]
        self._end_run()
        if self._hint is not None and self._hint != self.size and not self._after_cut:
            low, high = sorted((self._hint, self.size))
            self.damage.append(("size", low, high - low, f"the lower size says {self._hint} bytes, the blocks {self.size}"))
            self.size = high
