"""A file system in FUSE (`/dev/fuse`) with one file, whose server answers everything but `flush`, as one that hangs.

It is mounted in a namespace of mounts of two threads' own, so that nothing of it is left, however the test ends.
"""

import contextlib
import ctypes
import os
import struct
import tempfile
import threading

LIBC = ctypes.CDLL(None, use_errno=True)
_NEWNS, _PRIVATE, _RECURSIVE, _FORCE, _DETACH = 0x20000, 1 << 18, 1 << 14, 1, 2
_HEAD, _OUT = struct.Struct("=IIQQIIIHH"), struct.Struct("=IiQ")
_LOOKUP, _GETATTR, _OPEN, _RELEASE, _FLUSH, _INIT, _FORGET = 1, 3, 14, 18, 25, 26, 2
_ATTRIBUTES = struct.Struct("=QQQQQQIIIIIIIIII")
_FILE, _TOP = 2, 1


def _checked(result):
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _attributes(node):
    mode = 0o100666 if node == _FILE else 0o040777
    return _ATTRIBUTES.pack(node, 0, 0, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)


class Silent:
    """The file system; `file()` opens its file. Use it with `with`."""

    def __enter__(self):
        self.device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
        self.ready, self.over, self.found = threading.Event(), threading.Event(), None
        self.thread = threading.Thread(target=self._live, daemon=True)
        self.thread.start()
        self.ready.wait()
        if not isinstance(self.found, int):
            self.__exit__()
            raise self.found
        return self

    def file(self):
        """A descriptor of the file, which the caller closes: that waits until this is over."""
        found, self.found = self.found, None
        return found

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()
        os.close(self.device)

    def _live(self):
        try:
            _checked(LIBC.unshare(_NEWNS))
            _checked(LIBC.mount(None, b"/", None, _PRIVATE | _RECURSIVE, None))
            with tempfile.TemporaryDirectory() as folder:
                options = f"fd={self.device},rootmode=40000,user_id=0,group_id=0".encode()
                _checked(LIBC.mount(b"sent", folder.encode(), b"fuse", 0, options))
                serving = threading.Thread(target=self._serve, daemon=True)
                serving.start()
                try:
                    self.found = os.open(f"{folder}/file", os.O_RDWR | os.O_CLOEXEC)
                    self.ready.set()
                    self.over.wait()
                finally:
                    # What was asked and not answered fails.
                    LIBC.umount2(folder.encode(), _FORCE | _DETACH)
                    serving.join()
        except OSError as error:
            self.found = error
        finally:
            self.ready.set()

    def _serve(self):
        with contextlib.suppress(OSError):
            while True:
                self._answer(os.read(self.device, 1 << 17))

    def _answer(self, asked):
        _, code, unique, node, *_ = _HEAD.unpack_from(asked)
        entry = struct.pack("=QQQQII", _FILE, 0, 60, 60, 0, 0) + _attributes(_FILE)
        bodies = {
            _INIT: struct.pack("=IIIIHHIIHHI7I", 7, 31, 0, 0, 16, 12, 1 << 16, 1, 0, 0, 0, *[0] * 7),
            _LOOKUP: entry,
            _GETATTR: struct.pack("=QII", 60, 0, 0) + _attributes(node),
            _OPEN: struct.pack("=QII", 1, 0, 0),
            _RELEASE: b"",
        }
        if code in (_FLUSH, _FORGET):
            return
        body = bodies.get(code)
        error = 0 if body is not None else -38
        body = body or b""
        os.write(self.device, _OUT.pack(_OUT.size + len(body), error, unique) + body)
