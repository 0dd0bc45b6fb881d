# SPDX-License-Identifier: GPL-3.0-or-later
"""Callers of every kind: a number, a group, supplementary groups, capabilities. An Actor is a process that has taken one on and calls what
it is told to."""
import ctypes
import os
import pickle
import re
import signal
import socket
import struct
import traceback

import common
from common import Failed

CAPS = {'CHOWN': 0, 'DAC_OVERRIDE': 1, 'DAC_READ_SEARCH': 2, 'FOWNER': 3, 'FSETID': 4, 'SETFCAP': 31, 'SYS_ADMIN': 21, 'SYS_RESOURCE': 24,
        'MKNOD': 27}
ALL = None  # what root has
SYS_CAPSET, PR_SET_KEEPCAPS, VERSION_3 = 126, 8, 0x20080522
libc = ctypes.CDLL(None, use_errno=True)


def available(*names):
    """Has root these here? In a container it may not."""
    with open('/proc/self/status') as f:
        permitted = int(re.search(r'CapPrm:\s*([0-9a-f]+)', f.read()).group(1), 16)
    return all(permitted >> CAPS[n] & 1 for n in names)


def keep_capabilities(names):
    mask = sum(1 << CAPS[n] for n in names)
    low, high = mask & 0xffffffff, mask >> 32
    header = struct.pack('Ii', VERSION_3, 0)
    data = struct.pack('6I', low, low, 0, high, high, 0)
    if libc.syscall(SYS_CAPSET, header, data) != 0:
        raise OSError(ctypes.get_errno(), 'capset')


def become(uid, gid, groups=(), caps=()):
    """caps: names, or ALL (for uid 0)."""
    os.setgroups(list(groups))
    os.setresgid(gid, gid, gid)
    if uid:
        libc.prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0)
        os.setresuid(uid, uid, uid)
    if caps is not ALL:
        keep_capabilities(caps)


class Actor:
    def __init__(self, name, uid, gid, groups=(), caps=()):
        self.name, self.uid, self.gid, self.groups, self.caps = name, uid, gid, groups, caps
        self.ours, theirs = socket.socketpair()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                self.ours.close()
                become(uid, gid, groups, caps)
                self.serve(theirs.makefile('rwb'))
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(0)
        theirs.close()
        self.pipe = self.ours.makefile('rwb')

    @staticmethod
    def serve(pipe):
        while True:
            try:
                f, args = pickle.load(pipe)
            except EOFError:
                return
            try:
                answer = (True, f(*args))
            except OSError as e:
                answer = (False, e)
            except BaseException as e:  # not to be taken for an answer of the filesystem
                answer = (False, Failed('%s%r: %r' % (f.__name__, args, e)))
            pickle.dump(answer, pipe)
            pipe.flush()

    def call(self, f, *args):
        """f(*args) as this one; f is a function of a module."""
        try:
            pickle.dump((f, args), self.pipe)
            self.pipe.flush()
            good, value = pickle.load(self.pipe)
        except (BrokenPipeError, EOFError):
            raise Failed('%s has died' % self.name)
        if not good:
            raise value
        return value

    def outcome(self, f, *args):
        """('OK', value), or the errno's name."""
        value = []
        name = common.outcome(lambda: value.append(self.call(f, *args)))
        return (name, value[0]) if value else (name, None)

    def end(self):
        os.kill(self.pid, signal.SIGKILL)  # the end of its pipe would not tell it: those made after it hold that, too
        os.waitpid(self.pid, 0)


# ---- POSIX ACLs as the kernel takes them (acl(5), <linux/posix_acl_xattr.h>) -------------------------------------------------

USER_OBJ, USER, GROUP_OBJ, GROUP, MASK, OTHER = 1, 2, 4, 8, 16, 32
NONE = 0xffffffff


def acl(owner, group, other, users=(), groups=(), mask=None):
    """The value of system.posix_acl_access or _default. users, groups: (id, rights)."""
    entries = [(USER_OBJ, owner, NONE), *((USER, p, i) for i, p in sorted(users)), (GROUP_OBJ, group, NONE),
               *((GROUP, p, i) for i, p in sorted(groups))]
    if mask is not None or users or groups:
        entries.append((MASK, 7 if mask is None else mask, NONE))
    entries.append((OTHER, other, NONE))
    return struct.pack('<I', 2) + b''.join(struct.pack('<HHI', *e) for e in entries)
