// SPDX-License-Identifier: GPL-3.0-or-later
// What differs from a plain directory by design: the one list of it. docs/DIFFERENCES.md tells users the same, with the reasons, and compare.py
// holds the two against each other. Whatever this program or the tests posix_*.py do not compare names its entry here.
#include "program.hpp"

namespace compare {

const std::vector<Difference> kDifferences = {
    {"storage", "st_blocks, st_blksize, a directory's st_size and where the holes in a file lie"},
    {"atime", "when reading moves a file's or directory's atime"},
    {"write-back-times", "how fine a file's times are, and whether calls that change nothing in it move them"},
    {"mapped-mtime", "when writing to a shared mapping moves the file's mtime"},
    {"xattr-room", "how long names and values of user xattrs may be"},
    {"set-id-write-back", "whether set-id bits survive writing back a mapping"},
    {"no-such-call", "fallocate's collapse and insert range, file handles and ioctls"},
};

}  // namespace compare
