# SPDX-License-Identifier: GPL-3.0-or-later
"""What can go wrong, and the exit codes: those of ecfs(1)."""

OK = 0
DAMAGE = 1  # damage was found, or something failed that has no number of its own
USAGE = 2
PASSPHRASE = 3
NO_VOLUME = 5
DAMAGED_VOLUME = 7
UNSUPPORTED = 9
LOWER = 13


class Failure(Exception):
    """Nothing more can be done. Told as `error: WHAT: WHY`, and a hint where there is a next step."""

    def __init__(self, code, what, why, hint=None):
        super().__init__(f"{what}: {why}")
        self.code, self.what, self.why, self.hint = code, what, why, hint


class Damage(Exception):
    """One thing in the volume cannot be read: it does not authenticate, or is not of this format. The rest can."""


def why(error):
    """The reason of an OSError, without the path, which the message has already."""
    return error.strerror or str(error)
