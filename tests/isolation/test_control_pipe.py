"""A child that speaks to the launcher by a pipe of packets, and does with that pipe whatever the kernel lets it.

The test does it on a copy of the child's end, so that what a policy refuses is done as well. It is one open pipe: flags and sizes are
the child's own.
"""

import contextlib
import ctypes
import fcntl
import os
import signal
import struct
import sys
import tempfile
import termios
import unittest

import older_kernel
from client import until
from harness import Process, Server, service, site
from slow_programs import STEP_MS, step_ms, step_was
from standstill import Standstill
from topology import LIBC, O_DIRECT, copied, said_by_pipe

#: Seconds that the launcher may be asleep in a call, and for how much longer a step may take than the longest before.
BAR, FACTOR = 0.05, 4
#: Where a child has its end.
SAY = 5
NONSENSE = b"\xee" * 30
PAGES = 64
BYTES = PAGES * 4096
LIBC.mmap.restype = ctypes.c_void_p


class Vector(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]


@contextlib.contextmanager
def content():
    """A file."""
    with tempfile.TemporaryFile() as file:
        file.write(os.urandom(BYTES))
        file.flush()
        yield file.fileno()


def many(write):
    """Until there is no room."""
    with contextlib.suppress(BlockingIOError):
        while True:
            write()


def bytes_alone(end):
    """No packets any more: messages that run into each other, and are cut anywhere."""
    fcntl.fcntl(end, fcntl.F_SETFL, fcntl.fcntl(end, fcntl.F_GETFL) & ~O_DIRECT)
    for length in (1, 7, 4095, 4096, 4097):
        os.write(end, (NONSENSE * length)[:length])


def other_sizes(end):
    """As small and as large as the pipe can be, filled each time."""
    for size in (4096, 1 << 20, 4096):
        with contextlib.suppress(OSError):
            # There is more in it.
            fcntl.fcntl(end, fcntl.F_SETPIPE_SZ, size)
        many(lambda: os.write(end, NONSENSE))


def spliced(end):
    """Pages of a file, and of another pipe."""
    with content() as file:
        os.splice(file, end, BYTES, offset_src=0, flags=os.SPLICE_F_NONBLOCK)
    reading, writing = os.pipe()
    os.write(writing, NONSENSE * 100)
    with contextlib.suppress(BlockingIOError):
        os.splice(reading, end, 1000, flags=os.SPLICE_F_NONBLOCK)
    os.close(reading)
    os.close(writing)


def pages_of_its_own(end):
    """Pages that change before they are read, or are unmapped."""
    for is_kept in (True, False):
        private, anonymous = 2, 0x20
        place = LIBC.mmap(None, ctypes.c_size_t(BYTES), 3, private | anonymous, -1, ctypes.c_long(0))
        ctypes.memset(place, 0xEE, BYTES)
        LIBC.vmsplice(end, ctypes.byref(Vector(place, BYTES // 4)), ctypes.c_ulong(1), ctypes.c_uint(os.SPLICE_F_NONBLOCK))
        if is_kept:
            ctypes.memset(place, 1, BYTES)
        else:
            LIBC.munmap(ctypes.c_void_p(place), ctypes.c_size_t(BYTES))


def sent_files(end):
    """What `sendfile` moves, also from what has no end."""
    with content() as file:
        os.sendfile(end, file, 0, BYTES)
    with open("/dev/zero", "rb", buffering=0) as zero:
        many(lambda: os.sendfile(end, zero.fileno(), None, 1 << 20))


TRICKS = (bytes_alone, other_sizes, spliced, pages_of_its_own, sent_files)


def waiting(end):
    return struct.unpack("i", fcntl.ioctl(end, termios.FIONREAD, bytes(4)))[0]


@unittest.skipUnless(os.geteuid() == 0, "only root may have a copy of another's descriptor")
class AChild(unittest.TestCase):
    rootless = False

    def test_it_has_a_pipe_and_no_more(self):
        server = Server([site(services=[service()]), site("other")])
        server.prefix = [sys.executable, older_kernel.__file__]
        with server:
            launcher = Process(server.launcher.pid)
            answers = lambda: server.status("/probe", timeout=2) == 200
            self.assertTrue(until(answers, 20))
            before = step_ms(server)
            for trick in TRICKS:
                with self.subTest(trick.__name__):
                    self.assertTrue(until(answers, 20), server.log()[-3000:])
                    seen, count = self.play(server, launcher, trick)
                    self.assertLess(seen.asleep, BAR, f"call {seen.call}")
                    self.assertEqual(server.status("/", "other.test"), 200)
                    # Nothing of it was taken for what it says; of whoever goes on, nothing is heard any more.
                    said = lambda: server.log().count("sent a message that it may not send") > count
                    self.assertTrue(until(said, 5), server.log()[-3000:])
            self.assertLess(step_ms(server), STEP_MS + FACTOR * before, step_was(server))
            self.assertTrue(server.order(command="status")["ok"])
            self.assertEqual(server.stop(), 0)

    @staticmethod
    def play(server, launcher, trick):
        """Has a child's pipe filled while nobody reads it, and the launcher seen from then on; and how often it had complained."""
        child = server.process("bin/probe")
        assert said_by_pipe(child)
        pidfd = os.pidfd_open(child.pid)
        end, count = copied(pidfd, SAY), server.log().count("sent a message that it may not send")
        os.close(pidfd)
        os.set_blocking(end, False)
        launcher.signal(signal.SIGSTOP)
        try:
            trick(end)
        finally:
            seen = Standstill(launcher)
            launcher.signal(signal.SIGCONT)
        until(lambda: waiting(end) == 0 or not child.alive, 5)
        until(seen.looks_idle, 5)
        os.close(end)
        with contextlib.suppress(ProcessLookupError):
            # It was not ended for all that.
            child.kill()
        until(lambda: not child.alive, 5)
        return seen.end(), count


if __name__ == "__main__":
    unittest.main()
