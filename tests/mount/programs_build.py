#!/usr/bin/python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""ecfs's own library built on a mount by g++ and ninja with two jobs, and built again with nothing to do."""
import os

import common
from common import SRC, equal, need_program, run, true


def build(env):
    need_program('meson', 'ninja', 'g++')
    m = env.mount()
    os.mkdir(m / 'src')
    # What the project's meson.build reads, without its tests: they are another's to change at this moment.
    run(['sh', '-c', 'cd "$0" && tar cf - meson.build meson_options.txt include src tools man | tar xf - -C "$1"', SRC, m / 'src'])
    os.mkdir(m / 'src/tests')
    open(m / 'src/tests/meson.build', 'w').close()
    run(['meson', 'setup', '-Dbuildtype=plain', '-Dwerror=false', m / 'build', m / 'src'])
    run(['ninja', '-C', m / 'build', '-j2', 'libecfs.a'])
    size = os.stat(m / 'build/libecfs.a').st_size
    true('a library of some size: %d' % size, size > 100000)
    names = run(['nm', '-C', '--defined-only', m / 'build/libecfs.a']).stdout
    true('it holds what it should', 'ecfs::EncryptedFile::write' in names)
    m.remount()
    equal('the same after a remount', run(['nm', '-C', '--defined-only', m / 'build/libecfs.a']).stdout, names)
    again = run(['ninja', '-C', m / 'build', '-j2', 'libecfs.a']).stdout
    true('nothing to do after a remount: %s' % again, 'no work to do' in again)
    run(['sh', '-c', 'echo "// changed" >> "$0"', m / 'src/src/endian.cpp' if os.path.exists(m / 'src/src/endian.cpp') else m / 'src/src/error.cpp'])
    again = run(['ninja', '-C', m / 'build', '-j2', 'libecfs.a']).stdout
    true('one thing to do after a change: %s' % again, 'no work to do' not in again)


if __name__ == '__main__':
    common.main([build])
