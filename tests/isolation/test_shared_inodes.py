"""What services learn through files and counters that they share, and what code of others they can run: the documents say it (residual risks
13 to 15 of the threat model, the limits of Python), and this is whether it is so, from inside."""

import errno
import json
import os
import unittest
import urllib.parse
from pathlib import Path

from filter_program import library
from harness import TOP
from python_services import PythonServer, python, python_site

PROGRAM = '''
import ctypes
import fcntl
import os
import select
import struct

from bulkhead_service import Response, Service, main

SHARED = "code/shared.txt"
IN_OPEN = 0x20
LIBC = ctypes.CDLL(None, use_errno=True)
kept = {}


def checked(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def watch(path):
    watcher = checked(LIBC.inotify_init1(os.O_NONBLOCK))
    checked(LIBC.inotify_add_watch(watcher, path.encode(), IN_OPEN))
    kept["watcher"] = watcher
    return "watched"


def events(_):
    """What came: the masks, and the names."""
    if not select.select([kept["watcher"]], [], [], 0)[0]:
        return []
    data, found = os.read(kept["watcher"], 4096), []
    while data:
        _, mask, _, length = struct.unpack_from("iIII", data)
        found.append([mask, data[16:16 + length].rstrip(b"\\\\0").decode()])
        data = data[16 + length:]
    return found


def read(path):
    with open(path) as file:
        return file.read()


def lock(path):
    file = open(path)
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    kept["locked"] = file
    return "locked"


def unlock(_):
    kept.pop("locked").close()
    return "unlocked"


def sysinfo(_):
    """The machine's load, as the kernel counts it, and its memory."""
    words = (ctypes.c_ulong * 14)()
    checked(LIBC.sysinfo(words))
    return {"load": words[1] / 65536, "memory": words[4] * max(1, words[13] & 0xffffffff)}


def statfs(path):
    found = os.statvfs(path)
    return {"blocks": found.f_blocks, "free": found.f_bfree}


def uid(_):
    return os.getuid()


def callback(_):
    """A function of Python's that a library calls."""
    kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_int), ctypes.POINTER(ctypes.c_int))
    numbers = (ctypes.c_int * 3)(3, 1, 2)
    LIBC.qsort(numbers, 3, ctypes.sizeof(ctypes.c_int), kind(lambda one, other: one[0] - other[0]))
    return list(numbers)


def execute(words):
    """Executes a program; its status, and what it says."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.dup2(writing, 1)
        os.dup2(writing, 2)
        try:
            os.execv(words.split()[0], words.split())
        except OSError as error:
            os._exit(error.errno)
    os.close(writing)
    said = b""
    while part := os.read(reading, 4096):
        said += part
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), said.decode()]


class Program(Service):
    async def init(self, cx):
        pass

    async def process(self, request):
        deed = globals()[request.path.rpartition("/")[2]]
        try:
            return Response.json(deed(request.raw_param("of") or ""))
        except Exception as error:
            return Response.json(f"{type(error).__name__}: {error}")


main(Program)
'''
IN_OPEN = 0x20
LOADER = "/lib64/ld-linux-x86-64.so.2"


def ffi():
    """The folders of what `ctypes` needs besides the interpreter's own."""
    return sorted({str(path.parent) for path in Path("/usr/lib").glob("*/libffi.so.*")})


class SharedInodes(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        native = {"libraries": [library(), *ffi(), "programs"]}
        one = python("py", **native)
        makes_code = python("code", **native | {"jit": True})
        sites = [python_site(one, makes_code), python_site(python("py", **native), name="second")]
        files = {"code/shared.txt": "x", "code/copy.txt": "x", "programs/id": Path("/usr/bin/id").read_bytes(),
                 "code/id": Path("/usr/bin/id").read_bytes()}
        cls.server = PythonServer(*sites, program=PROGRAM, files=files)
        for name in ("programs/id", "code/id"):
            (cls.server.folder / name).chmod(0o755)
        cls.enterClassContext(cls.server)

    def ask(self, deed, of="", host="main.test", service="py"):
        answer = self.server.get(f"/{service}/{deed}?{urllib.parse.urlencode({'of': of})}", host)
        self.assertEqual(answer.status, 200, self.server.log()[-2000:])
        return json.loads(answer.text)

    def test_a_loader_runs_a_program_of_libraries_as_the_service_that_it_is(self):
        """And nothing else: what can only be read is not mapped as code, and what can be mapped is not executed by itself."""
        for host, service in (("main.test", "py"), ("second.test", "py"), ("main.test", "code")):
            status, said = self.ask("execute", f"{LOADER} programs/id -u", host, service)
            self.assertEqual((status, int(said)), (0, self.ask("uid", "", host, service)), service)
            status, said = self.ask("execute", f"{LOADER} code/id -u", host, service)
            self.assertEqual(status, 127, said)
            self.assertIn("failed to map segment", said)
            self.assertEqual(self.ask("execute", "programs/id -u", host, service), [errno.EACCES, ""])

    def test_whoever_has_a_file_is_told_that_another_opens_it_and_no_more(self):
        self.assertEqual(self.ask("watch", "code/shared.txt"), "watched")
        self.assertEqual(self.ask("events"), [])
        self.assertEqual(self.ask("read", "code/copy.txt", "second.test"), "x")
        self.assertEqual(self.ask("events"), [], "it has another inode")
        self.assertEqual(self.ask("read", "code/shared.txt", "second.test"), "x")
        self.assertEqual(self.ask("events"), [[IN_OPEN, ""]])

    def test_locks_are_seen_by_whoever_has_the_file(self):
        self.assertEqual(self.ask("lock", "code/shared.txt"), "locked")
        self.assertIn("BlockingIOError", self.ask("lock", "code/shared.txt", "second.test"))
        self.assertEqual(self.ask("lock", "code/copy.txt", "second.test"), "locked")
        self.assertEqual(self.ask("unlock"), "unlocked")
        self.assertEqual(self.ask("lock", "code/shared.txt", "second.test"), "locked")

    def test_the_machines_load_and_the_room_on_its_disks_are_told(self):
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        for host in ("main.test", "second.test"):
            found = self.ask("sysinfo", "", host)
            self.assertEqual(found["memory"], memory)
            self.assertAlmostEqual(found["load"], os.getloadavg()[0], delta=max(1, os.getloadavg()[0] / 4))
            self.assertEqual(self.ask("statfs", "code", host)["blocks"], os.statvfs(self.server.folder).f_blocks)

    def test_a_library_calls_a_function_of_python_with_jit_alone(self):
        self.assertIn("MemoryError", self.ask("callback"))
        self.assertEqual(self.ask("callback", service="code"), [1, 2, 3])

    def test_the_documents_say_so(self):
        said = " ".join((TOP / "docs/security/threat-model.md").read_text().split())
        for words in ("have its dynamic loader map a program of `libraries`", "`inotify` tells that another program is started", "put locks on it",
                      "`sysinfo` and `statfs` tell a service"):
            self.assertIn(words, said)
        self.assertIn("(`CFUNCTYPE`): libffi writes code for it, which needs `jit = true`", " ".join((TOP / "docs/guide/python.md").read_text().split()))


if __name__ == "__main__":
    unittest.main()
