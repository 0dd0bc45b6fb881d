#!/usr/bin/python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""embed.py NAME=FILE...: a C++ header with the contents of files as constants."""
import sys

print('// Made by embed.py.\n#pragma once\n\n#include <string_view>\n\nnamespace ecfs::bench {\n')
for argument in sys.argv[1:]:
    name, path = argument.split('=', 1)
    with open(path, 'rb') as file:
        data = file.read()
    # Adjacent short literals: compilers limit one literal, and octal escapes end where they should.
    lines = [data[i:i + 64] for i in range(0, len(data), 64)]
    print('inline constexpr char %sData[] =' % name)
    for line in lines:
        print('  "%s"' % ''.join('\\%03o' % c if c < 32 or c > 126 or c in b'"\\?' else chr(c) for c in line))
    print('  ;\ninline constexpr std::string_view %s(%sData, %d);\n' % (name, name, len(data)))
print('}  // namespace ecfs::bench')
