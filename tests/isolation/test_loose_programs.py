"""Programs for which the kernel maps memory that is writable and executable as it starts them: no policy of system calls sees that. They are
refused, whatever they are for, unless they may make code (`jit`)."""

import os
import shutil
import struct
import tempfile
import unittest
from pathlib import Path

from client import until
from harness import NOBODY, ROOTLESS, Server, program, rootless_too, service, site

LOAD, STACK, NULL = 1, 0x6474E551, 0
EXECUTE, WRITE = 1, 2


def headers(data):
    """Where each program header stands, its kind, and its flags."""
    (at,), (size, count) = struct.unpack_from("<Q", data, 32), struct.unpack_from("<HH", data, 54)
    return [(at + size * number, *struct.unpack_from("<II", data, at + size * number)) for number in range(count)]


def loose(name, how):
    """A program of ours with other headers."""
    data = bytearray(Path(program(name)).read_bytes())
    for place, kind, flags in headers(data):
        if how == "stack" and kind == STACK:
            struct.pack_into("<II", data, place, kind, flags | EXECUTE)
        if how == "unsaid" and kind == STACK:
            struct.pack_into("<II", data, place, NULL, flags)
        if how == "code" and kind == LOAD and flags & EXECUTE:
            struct.pack_into("<II", data, place, kind, flags | WRITE)
        if how == "data" and kind == LOAD and flags & WRITE:
            struct.pack_into("<II", data, place, kind, flags | EXECUTE)
    return bytes(data)


#: What is done to a program, and what is said of it.
HOW = {
    "stack": "asks for a stack that can be executed",
    "unsaid": "does not say that its stack is data",
    "code": "has a segment that is writable and executable",
    "data": "has a segment that is writable and executable",
}


@rootless_too
class LoosePrograms(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="bulkhead-loose-", dir="/tmp"))
        self.addCleanup(shutil.rmtree, self.folder)

    def server(self, sites, of="probe", **more):
        """A server whose programs are `of` and, for each way, one like that."""
        server = Server(sites, programs=("probe", of), **more)
        for how in HOW:
            made = self.folder / how
            made.write_bytes(loose(of, how))
            made.chmod(0o755)
            if ROOTLESS and os.geteuid() == 0:
                os.chown(made, NOBODY, NOBODY)
            server.copy_program(str(made), how)
        return server

    def assert_said(self, server, how, count=1):
        self.assertTrue(until(lambda: server.log().count(HOW[how]) + server.stderr().count(HOW[how]) >= count, 20), server.log())

    def test_services_are_refused_without_jit(self):
        own = [service(f"{how}-{kind}", f"/{how}-{kind}", command=[f"bin/{how}"], takes=kind == "taking")
               for how in HOW for kind in ("plain", "taking")]
        may = [service(f"jit-{how}", f"/jit-{how}", command=[f"bin/{how}"], jit=True) for how in HOW]
        with self.server([site("main", [service(), *own, *may])], answers=False) as server:
            for how in HOW:
                self.assert_said(server, how, 2)
                # The one that may make code runs, and it alone.
                running = lambda how=how: [process.title for process in server.processes(f"bin/{how}")]
                self.assertTrue(until(lambda: len(running()) == 1, 20), (how, server.processes(), server.log()))

    def test_workers_are_refused(self):
        """There is no `jit` for them."""
        sites = [site(), site("whole", worker=["bin/hook"]), *(site(how, worker=[f"bin/{how}"]) for how in HOW)]
        with self.server(sites, of="hook", answers=False, limits={"start_timeout": "2s"}) as server:
            for how in HOW:
                self.assert_said(server, how)
                self.assertEqual(server.processes(f"site {how}"), [])
            self.assertIn(server.status("/", "code.test", timeout=20), (500, 503))
            for name in ("main", "whole"):
                self.assertEqual(server.status("/", f"{name}.test"), 200)

    def test_filters_are_refused_without_jit(self):
        """And no request passes them by."""
        for how in HOW:
            with self.subTest(how):
                filters = [{"command": [f"bin/{how}"]}]
                server = self.server([site()], of="pass", answers=503, conditioning={"filters": filters}, limits={"start_timeout": "100ms"})
                with server:
                    self.assert_said(server, how)
                    self.assertEqual(server.processes(f"bin/{how}"), [])

    def test_filters_that_may_make_code_run(self):
        filters = [{"command": [f"bin/{how}"], "jit": True} for how in HOW]
        with self.server([site()], of="pass", conditioning={"filters": filters}) as server:
            self.assertEqual(server.status("/"), 200)
            self.assertEqual([len(server.processes(f"bin/{how}")) for how in HOW], [1] * len(HOW))


if __name__ == "__main__":
    unittest.main()
