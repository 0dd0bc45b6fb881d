# SPDX-License-Identifier: GPL-3.0-or-later
"""An independent reader of ecfs volumes, written from docs/FORMAT.md and in its order: keys, regular files, names, symlinks, extended
attributes, volume file, session marker. It shares no code with libecfs and never writes into a lower directory.

    errors      what can go wrong, and the exit codes
    keys        subkeys of each epoch, the ciphers
    contents    regular files: header, blocks, sizes
    names       directory ids, names, long names
    sealed      symlink targets and extended attributes
    volume      the volume file and its keyslots
    session     the session marker
    lower       system calls on the lower directory, none of which writes
    tree        the walk through a volume, object by object
    passphrase  where the passphrase comes from
    report      list and verify
    extract     the tree, written out
    main        the command line
"""
