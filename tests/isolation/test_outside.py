"""The probe outside of any jail: what it finds refused inside can be got.

`cargo test -p probe` (crates/probe/tests/outside.rs) shows that of nearly every attempt, and that of every state which
can be inherited. Here is what needs a terminal, an object of System V, or a higher limit.
"""

import ctypes
import json
import os
import pty
import resource
import subprocess
import unittest

from jail_probe import by_id, program

LIBC = ctypes.CDLL(None, use_errno=True)
PRIVATE, CREATE, REMOVE = 0, 0o1600, 0


def command(*ids, **hints):
    return [str(program("bulkhead-probe")), "attempts", json.dumps(hints | {"only": ids})]


def results(text):
    return {id: attempt["result"] for id, attempt in by_id(json.loads(text)).items()}


def run(*ids, **more):
    done = subprocess.run(command(*ids), capture_output=True, text=True, check=True, timeout=30, **more)
    return results(done.stdout)


class Outside(unittest.TestCase):
    rootless = True

    def test_terminal(self):
        words = command("terminal", "tiocsetd", fds=[0, 1, 2])
        pid, terminal = pty.fork()
        if pid == 0:
            os.execv(words[0], words)
        text = b""
        try:
            while part := os.read(terminal, 65536):
                text += part
        except OSError:
            # What a terminal says after its last process has closed it.
            pass
        os.close(terminal)
        self.assertEqual(os.waitpid(pid, 0)[1], 0)
        self.assertEqual(results(text), {"terminal": "succeeded", "tiocsetd": "succeeded"})

    def test_objects_of_system_v(self):
        memory = LIBC.shmget(PRIVATE, 4096, CREATE)
        self.assertGreaterEqual(memory, 0)
        try:
            self.assertEqual(run("sysv-seen"), {"sysv-seen": "succeeded"})
        finally:
            LIBC.shmctl(memory, REMOVE, None)

    def test_a_limit_that_is_no_limit(self):
        many = 100_000
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]

        def raised():
            resource.setrlimit(resource.RLIMIT_NOFILE, (many, max(many, hard)))

        try:
            found = run("rlimit-descriptors", preexec_fn=raised)
        except subprocess.SubprocessError:
            self.skipTest(f"nobody here may have {many} descriptors")
        self.assertEqual(found, {"rlimit-descriptors": "succeeded"})


if __name__ == "__main__":
    unittest.main()
