# SPDX-License-Identifier: GPL-3.0-or-later
"""FORMAT.md, "The session marker": which files a session that was cut may have left with a wrong size or without a header."""

import json
import os

from . import lower

FILE = b"ecfs.session"
SIZE_MAX = 1 << 20
ALWAYS = (float("-inf"), float("inf"))


def _time(value):
    seconds, nanoseconds = value
    return int(seconds) * 10**9 + int(nanoseconds)


def cut_spans(root_fd):
    """[(first, last)] in nanoseconds of ctime, by the marker of a session that was alone and those of sessions that shared the volume."""
    try:
        names = sorted(os.fsencode(name) for name in os.listdir(root_fd))
    except OSError:
        return [ALWAYS]
    return [span for name in names if name == FILE or (name.startswith(FILE + b".") and not name.endswith(b".new"))
            for span in _spans(root_fd, name)]


def _spans(root_fd, name):
    try:
        text = lower.read_small(root_fd, name, SIZE_MAX)
    except FileNotFoundError:
        return []
    except OSError:
        return [ALWAYS]
    try:
        marker = json.loads(text.decode("utf-8"))
        spans = [(_time(first), _time(last)) for first, last in marker["cut"]]
        # Not ended cleanly, or not yet.
        return spans + [(_time(marker["start"]), float("inf"))] if marker["running"] else spans
    except (ValueError, TypeError, KeyError, RecursionError):
        # One that cannot be read is of a session that was cut, nobody knows when it began.
        return [ALWAYS]
