"""Whether others of the same uid may look into this process.

Runs in: a service. Sees: nothing of others. Never: fails where `ctypes` is not there, as its libraries are not in every
jail: another process of the uid is in a PID namespace of its own and cannot name this one.
"""

from __future__ import annotations

_PR_SET_DUMPABLE = 4


def allow_dump(allow: bool) -> None:
    """Lets the kernel write core files of this process, and others of its uid trace it, or not."""
    try:
        import ctypes

        prctl = ctypes.CDLL(None).prctl
    except (ImportError, OSError, AttributeError):
        return
    prctl(_PR_SET_DUMPABLE, ctypes.c_ulong(bool(allow)), ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0))
