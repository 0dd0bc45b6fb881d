#!/usr/bin/python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""docs/FIELD-FAULTS.md: its numbers are complete, and every test that it names exists."""
import os
import re
import sys

SRC = os.environ.get('ECFS_SRC') or os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
WITHOUT = {39}  # nothing to test yet, and said so


def main():
    bad, numbers, cases = [], [], 0
    with open(SRC + '/docs/FIELD-FAULTS.md') as f:
        rows = [line.strip().strip('|').split('|') for line in f if re.match(r'\| *\d+ *\|', line)]
    for number, _, tests in rows:
        number = int(number)
        numbers.append(number)
        if not tests.strip() and number not in WITHOUT:
            bad.append('%d: no test' % number)
        for entry in filter(None, map(str.strip, tests.split(';'))):
            script, _, names = entry.partition(':')
            path = '%s/tests/%s.py' % (SRC, script)
            if not os.path.exists(path):
                bad.append('%d: there is no %s' % (number, path))
                continue
            with open(path) as f:
                text = f.read()
            for name in filter(None, map(str.strip, names.split(','))):
                cases += 1
                if not re.search(r'^def %s\(' % re.escape(name), text, re.M):
                    bad.append('%d: there is no %s in tests/%s.py' % (number, name, script))
    if numbers != list(range(1, 40)):
        bad.append('the numbers are not 1 to 39: %s' % numbers)
    print('\n'.join(bad) or 'field faults: %d numbers, %d tests' % (len(numbers), cases))
    sys.exit(bool(bad))


main()
