"""Which files of a folder are opened, by whomever: what the kernel says of it (inotify)."""

import ctypes
import os
import struct

IN_OPEN = 0x20
LIBC = ctypes.CDLL(None, use_errno=True)


class Opens:
    """From its beginning on. Of two opens of one file without another between them, the kernel may say one."""

    def __init__(self, folder):
        self.queue = LIBC.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self.queue < 0 or LIBC.inotify_add_watch(self.queue, os.fsencode(folder), IN_OPEN) < 0:
            raise OSError(ctypes.get_errno(), "inotify")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.close(self.queue)

    def names(self):
        """The names of the files, in that order, once."""
        found = []
        while True:
            try:
                data = os.read(self.queue, 65536)
            except BlockingIOError:
                return found
            while data:
                length = struct.unpack_from("iIII", data)[3]
                found.append(data[16 : 16 + length].rstrip(b"\0").decode())
                data = data[16 + length :]
