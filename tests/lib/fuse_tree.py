"""A folder of this machine, shown once more by a file system in FUSE (`/dev/fuse`) that can be told to answer nothing any more.

It stands for a tenant's own file system (sshfs, rclone) and for a server of NFS that is gone: whoever asks it waits, whatever the flags
of the call are. What is asked while it is `frozen` is answered when it goes on; all that wait get an error when it is unmounted.
"""

import contextlib
import ctypes
import errno
import os
import stat
import struct
import threading

LIBC = ctypes.CDLL(None, use_errno=True)
_FORCE, _DETACH = 1, 2
_HEAD, _OUT = struct.Struct("=IIQQIIIHH"), struct.Struct("=IiQ")
_ATTRIBUTES = struct.Struct("=QQQQQQIIIIIIIIII")
_LOOKUP, _FORGET, _GETATTR, _READLINK, _OPEN, _READ, _STATFS, _RELEASE = 1, 2, 3, 5, 14, 15, 17, 18
_FLUSH, _INIT, _OPENDIR, _READDIR, _RELEASEDIR, _ACCESS, _DESTROY, _INTERRUPT, _BATCH_FORGET = 25, 26, 27, 28, 29, 34, 38, 36, 42
#: Nothing is to be remembered by the kernel, so that every call asks.
_NO_TIME = struct.pack("=QQII", 0, 0, 0, 0)


class Tree:
    """`folder`, mounted at `at`. Use it with `with`."""

    def __init__(self, folder, at):
        self.nodes, self.at, self.is_frozen, self.asked, self.waiting = {1: str(folder)}, str(at), False, 0, []
        #: The pids of all who have asked for something.
        self.askers = set()

    def __enter__(self):
        self.device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
        options = f"fd={self.device},rootmode=40000,user_id=0,group_id=0,allow_other,default_permissions".encode()
        if LIBC.mount(b"tree", self.at.encode(), b"fuse.tree", 0, options) < 0:
            number = ctypes.get_errno()
            os.close(self.device)
            raise OSError(number, os.strerror(number))
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *_):
        LIBC.umount2(self.at.encode(), _FORCE | _DETACH)
        self.thread.join(10)
        os.close(self.device)

    @property
    def frozen(self):
        """Whether it answers nothing. What has been asked meanwhile is answered when it goes on."""
        return self.is_frozen

    @frozen.setter
    def frozen(self, is_frozen):
        self.is_frozen = is_frozen
        while not is_frozen and self.waiting:
            self._reply(*self.waiting.pop(0))

    def _serve(self):
        while True:
            try:
                asked = os.read(self.device, 1 << 17)
            except OSError as error:
                if error.errno in (errno.EINTR, errno.ENOENT, errno.EAGAIN):
                    continue
                return
            head = _HEAD.unpack_from(asked)
            code, unique, node, body = head[1], head[2], head[3], asked[_HEAD.size :]
            if code in (_FORGET, _BATCH_FORGET, _INTERRUPT):
                continue
            self.asked += 1
            self.askers.add(head[6])
            self.waiting.append((code, unique, node, body))
            if not self.is_frozen:
                self._reply(*self.waiting.pop())

    def _reply(self, code, unique, node, body):
        try:
            answer, number = self._answer(code, node, body), 0
        except OSError as error:
            answer, number = b"", error.errno
        # Whoever has asked may be gone.
        with contextlib.suppress(OSError):
            os.write(self.device, _OUT.pack(_OUT.size + len(answer), -number, unique) + answer)

    def _attributes(self, path):
        found = os.lstat(path)
        times = [int(found.st_atime), found.st_mtime_ns // 10**9, found.st_ctime_ns // 10**9]
        rest = [found.st_atime_ns % 10**9, found.st_mtime_ns % 10**9, found.st_ctime_ns % 10**9]
        numbers = [found.st_mode, found.st_nlink, found.st_uid, found.st_gid, 0, 4096, 0]
        return _ATTRIBUTES.pack(found.st_ino, found.st_size, found.st_blocks, *times, *rest, *numbers)

    def _answer(self, code, node, body):
        path = self.nodes.get(node, "")
        if code == _INIT:
            return struct.pack("=IIIIHHIIHHI7I", 7, 31, 0, 0, 16, 12, 1 << 16, 1, 0, 0, 0, *[0] * 7)
        if code == _LOOKUP:
            below = os.path.join(path, body.split(b"\0")[0].decode())
            found = os.lstat(below)
            number = found.st_ino + 1
            self.nodes[number] = below
            return struct.pack("=QQ", number, 0) + _NO_TIME + self._attributes(below)
        if code == _GETATTR:
            return struct.pack("=QII", 0, 0, 0) + self._attributes(path)
        if code == _READLINK:
            return os.readlink(path).encode()
        if code in (_OPEN, _OPENDIR):
            return struct.pack("=QII", 0, 0, 0)
        if code == _READ:
            _, offset, size = struct.unpack_from("=QQI", body)
            with open(path, "rb") as file:
                return os.pread(file.fileno(), size, offset)
        if code == _READDIR:
            _, offset, size = struct.unpack_from("=QQI", body)
            return self._names(path, offset, size)
        if code == _STATFS:
            return struct.pack("=QQQQQIII6I", 0, 0, 0, 0, 0, 4096, 255, 0, *[0] * 6)
        if code in (_RELEASE, _RELEASEDIR, _FLUSH, _ACCESS, _DESTROY):
            return b""
        raise OSError(errno.ENOSYS, "not answered")

    def _names(self, path, offset, size):
        text = b""
        for number, name in enumerate(sorted(os.listdir(path)), 1):
            found = os.lstat(os.path.join(path, name))
            entry = struct.pack("=QQII", found.st_ino, number, len(name.encode()), stat.S_IFMT(found.st_mode) >> 12)
            entry += name.encode()
            entry += bytes(-len(entry) % 8)
            if number > offset and len(text) + len(entry) <= size:
                text += entry
        return text
