# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the passphrase comes from. One rule for its bytes: exactly one trailing newline is cut, nothing else."""

import os
import sys
import termios

from . import errors
from .errors import Failure, why
from .lower import read_up_to
from .report import shown

MAX = 1024
TRIES = 3


def checked(data):
    if data.endswith(b"\n"):
        data = data[:-1]
    if not data:
        reason = "is empty"
    elif b"\0" in data:
        reason = "has a NUL byte"
    elif len(data) > MAX:
        reason = f"is longer than {MAX} bytes"
    else:
        return data
    raise Failure(errors.PASSPHRASE, "passphrase", reason)


def from_file(path):
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return checked(read_up_to(fd, MAX + 2))
        finally:
            os.close(fd)
    except OSError as e:
        raise Failure(errors.PASSPHRASE, path, why(e)) from None


def from_stdin():
    """One line; anything behind it was meant for somebody else."""
    data = read_up_to(sys.stdin.fileno(), MAX + 2)
    line, newline, rest = data.partition(b"\n")
    if rest:
        raise Failure(errors.PASSPHRASE, "standard input", "more lines than were asked for", "give one passphrase, nothing else")
    return checked(line + newline)


def _ask(fd, prompt):
    """A line from the terminal, without echo."""
    before = termios.tcgetattr(fd)
    silent = list(before)
    silent[3] &= ~termios.ECHO
    termios.tcsetattr(fd, termios.TCSAFLUSH, silent)
    try:
        os.write(fd, prompt)
        line = b""
        while not line.endswith(b"\n") and len(line) < MAX + 2:
            more = os.read(fd, 1)
            if not more:
                break
            line += more
        return line
    finally:
        termios.tcsetattr(fd, termios.TCSAFLUSH, before)
        os.write(fd, b"\n")


def tries(options, reason):
    """The passphrases to try, one after the other; reason() is why the last was not taken."""
    if options.stdin:
        yield from_stdin()
        return
    if options.passfile is not None:
        yield from_file(options.passfile)
        return
    try:
        fd = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        raise Failure(errors.PASSPHRASE, "passphrase", "there is no terminal to ask on", "give it with --passfile or --stdin") from None
    try:
        for n in range(TRIES):
            if n:
                text = reason()
                os.write(fd, f"{text[:1].upper()}{text[1:]}. Try again.\n".encode())
            line = _ask(fd, b"Passphrase for %s: " % shown(options.lower).encode())
            if not line:
                raise Failure(errors.PASSPHRASE, "passphrase", "none was given")
            yield checked(line)
    except termios.error as e:
        raise Failure(errors.PASSPHRASE, "/dev/tty", str(e)) from None
    finally:
        os.close(fd)
