"""A panic of a service ends its process at once, is told in the error log, and concerns nobody else."""

import signal
import threading
import unittest

from client import status, until
from harness import ROOTLESS, Server, rootless_too, service, site

PANIC = "/crash/panic"


@rootless_too
class Panic(unittest.TestCase):
    def setUp(self):
        direct = service("direct", "/crash", takes=True)
        sites = [site("main", [service("crash", "/crash"), service("probe")]), site("direct", [direct])]
        self.server = Server(sites, ("crash", "probe"))
        self.server.copy_program("crash", "direct")
        self.enterContext(self.server)

    def check(self, title, host, expected):
        old = self.server.process(title)
        self.assertEqual(self.server.status(PANIC, host), expected)
        self.assertTrue(until(lambda: not old.alive, 2), "a process goes on after a panic")
        self.assertTrue(until(lambda: self.server.status("/crash", host) == 200, 5))
        self.assertNotEqual(self.server.process(title), old)
        # The launcher saw how it ended; its own last words are what the hook of the runtime says.
        # An abort of the first process of a PID namespace is seen as the fault by which it ends itself at last.
        number = f"signal {int(signal.SIGABRT if ROOTLESS else signal.SIGSEGV)}"
        lines = lambda word: [line for line in self.server.log().splitlines() if word in line]
        ended = until(lambda: lines(f"(pid {old.pid}) ended with"), 3)
        self.assertTrue(ended, self.server.log())
        self.assertIn(number, ended[0])
        self.assertTrue(until(lambda: lines("a visitor asked for it"), 3), self.server.log())

    def test_relayed(self):
        self.check("bin/crash", "main.test", 502)

    def test_with_connections(self):
        # Its connection was the client's; nobody is left to answer on it.
        self.check("bin/direct", "direct.test", None)

    def test_others_go_on(self):
        answers = []
        ask = lambda: answers.append(status(self.server.port, "/probe/sleep?ms=1000"))
        under_way = threading.Thread(target=ask)
        under_way.start()
        probe = self.server.process("bin/probe")
        self.assertEqual(self.server.status(PANIC), 502)
        under_way.join(5)
        self.assertEqual(answers, [200])
        self.assertEqual(self.server.process("bin/probe"), probe)


if __name__ == "__main__":
    unittest.main()
