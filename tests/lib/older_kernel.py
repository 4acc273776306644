"""Runs a program as on a kernel before 6.16: no socket option that refuses descriptors (`SO_PASSRIGHTS`).

    older_kernel.py PROGRAM ARGUMENT...

A filter of system calls, which everything that the program starts inherits, answers ENOPROTOOPT.
"""

import ctypes
import errno
import os
import struct
import sys

_SO_PASSRIGHTS, _SOL_SOCKET = 83, 1
_SETSOCKOPT, _GETSOCKOPT = {"x86_64": (54, 55), "aarch64": (208, 209)}[os.uname().machine]
_LOAD, _EQUAL, _RETURN = 0x20, 0x15, 0x06
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS, _FILTER = 22, 38, 2


def _instructions():
    number, level, option = 0, 16 + 8, 16 + 16
    return [
        (_LOAD, 0, 0, number),
        (_EQUAL, 1, 0, _SETSOCKOPT),
        (_EQUAL, 0, 5, _GETSOCKOPT),
        (_LOAD, 0, 0, level),
        (_EQUAL, 0, 3, _SOL_SOCKET),
        (_LOAD, 0, 0, option),
        (_EQUAL, 0, 1, _SO_PASSRIGHTS),
        (_RETURN, 0, 0, _ERRNO | errno.ENOPROTOOPT),
        (_RETURN, 0, 0, _ALLOW),
    ]


def pretend():
    """Has this process, and all that it starts, live on an older kernel."""
    libc = ctypes.CDLL(None, use_errno=True)
    code = b"".join(struct.pack("HBBI", *one) for one in _instructions())
    kept = ctypes.create_string_buffer(code, len(code))
    program = struct.pack("HxxxxxxP", len(code) // 8, ctypes.addressof(kept))
    if os.geteuid() != 0:
        libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if libc.prctl(_PR_SET_SECCOMP, _FILTER, program, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "no filter of system calls")


if __name__ == "__main__":
    pretend()
    os.execv(sys.argv[1], sys.argv[1:])
