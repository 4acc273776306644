"""A service that cannot start, as who has started the server sees it on the terminal."""

import os
import pty
import re
import subprocess
import threading
import time
import unittest

from client import until
from harness import ROOTLESS, Server, rootless_too, service, site

RULE = {"broken_after": 4, "within": "20s", "backoff_max": "100ms"}


class OnTerminal(Server):
    """A server whose standard error is a terminal, or a pipe."""

    def __init__(self, *words, is_terminal=True, **more):
        super().__init__(sites=[site(services=[service("probe", command=["bin/probe", *words])])], restart=RULE, **more)
        self.screen, self.is_terminal = b"", is_terminal

    def start(self):
        reading, writing = pty.openpty() if self.is_terminal else os.pipe()
        command = [str(self.own("bulkhead", self.folder)), "run", str(self.config)]
        self.launcher = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=writing, stderr=writing, cwd="/")
        os.close(writing)
        threading.Thread(target=self.look, args=(reading,), daemon=True).start()

    def look(self, reading):
        try:
            while more := os.read(reading, 65536):
                self.screen += more
        except OSError:
            pass
        os.close(reading)

    def lines(self):
        return self.screen.decode().replace("\r\n", "\n").split("\n")

    def stderr(self):
        return "\n".join(self.lines())


@unittest.skipIf(ROOTLESS, "the terminal is another user's in these tests")
class FailedStart(unittest.TestCase):
    def check(self, server):
        """Which service, why, and what to do; each failure in one line, and why only once."""
        self.assertTrue(until(lambda: "main/probe is broken" in server.stderr(), 20), server.stderr())
        why = "bulkhead: [service main/probe] "
        self.assertTrue(until(lambda: any(line.startswith(why) for line in server.lines()), 5), server.stderr())
        lines = server.lines()
        failures = [line for line in lines if re.search(r"service main/probe \(pid \d+\) ended with .* before it was ready", line)]
        self.assertEqual(len(failures), 4, lines)
        self.assertRegex(failures[1], r"starting it again in \d+\S+ \(unclean exit 2 of 4 within 20s\)")
        said = [line for line in lines if line.startswith(why)]
        self.assertEqual(len(said), len(set(said)), lines)
        self.assertLess(len(said), 6, lines)
        broken = next(line for line in lines if "main/probe is broken" in line)
        self.assertIn("`bulkhead relaunch main/probe`", broken)
        return said

    def test_on_a_terminal(self):
        with OnTerminal("--fail-init") as server:
            self.assertIn("--fail-init", self.check(server)[0])

    def test_in_a_container(self):
        with OnTerminal("--fail-init", is_terminal=False) as server:
            self.check(server)


@rootless_too
class Readiness(unittest.TestCase):
    """Others are served, and that is said, while a service fails or hangs again and again."""

    def ready_with(self, word, seconds, **limits):
        """The line that says that the server serves, within so many seconds."""
        bad = site("bad", [service("probe", command=["bin/probe", word])])
        began = time.monotonic()
        with Server([site("main", [service("probe")]), bad], limits=limits) as server:
            took = time.monotonic() - began
            self.assertEqual((server.status("/probe"), server.status("/", "bad.test")), (200, 200))
            self.assertNotIn("is broken", server.log())
            self.assertLess(took, seconds)
            line = next(line for line in server.stderr().splitlines() if "serving on" in line)
            self.assertTrue(line.endswith(", not up yet: bad/probe"), line)
        return took

    def test_one_that_exits_at_once(self):
        self.ready_with("--fail-init", 5)

    def test_one_that_hangs(self):
        self.assertGreaterEqual(self.ready_with("--hang-init", 8, start_timeout="2s"), 2)


if __name__ == "__main__":
    unittest.main()
