#!/usr/bin/python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""The test vectors in docs/FORMAT.md are those that reference.py computes."""
import os
import sys

SOURCE = os.environ.get("ECFS_SRC", os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
try:
    import reference as ref
except ImportError as error:
    print("skipped:", error, "(Debian: python3-cryptography, python3-nacl)")
    sys.exit(77)


def documented(text):
    values, inside = {}, False
    for line in text.splitlines():
        if line.startswith("```"):
            inside = line == "```vectors"
        elif inside and " = " in line:
            name, value = line.split(" = ", 1)
            assert name not in values, "%s is there twice" % name
            values[name] = value
    return values


def main():
    with open(os.path.join(SOURCE, "docs", "FORMAT.md"), encoding="utf-8") as file:
        text = file.read()
    have, want = documented(text), dict(ref.vectors())
    wrong = [name for name in want if have.get(name) != want[name]] + [name for name in have if name not in want]
    for name in wrong:
        print("%s\n  document:  %s\n  reference: %s" % (name, have.get(name), want.get(name)))
    volume, _ = ref.sample_volume()
    if ref.volume_text(volume, ref.Keys(1, bytes(range(32))).conf) not in text:
        print("the sample volume file is another")
        wrong.append("volume")
    print("%d vectors, %d wrong" % (len(want), len(wrong)))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
