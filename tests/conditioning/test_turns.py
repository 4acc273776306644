"""One client that sends request after request without waiting for answers does not keep the others of its worker waiting.

What is answered first is read from the access log: the worker sleeps while both ask, first the one with many requests.
"""

import contextlib
import signal
import unittest

from client import until
from frames import END_HEADERS, END_STREAM, HEADERS, block, frame
from two_ports import PATIENCE, PlainHttp2, Two, lines

#: Requests of the one: more than a read brings of either kind.
MANY = 1500
#: How many of them may be answered before the other has its turn.
BEFORE_MAX = 150


def heads(count):
    head = block(lines("/?streams-many", b"HEAD"))
    return b"".join(frame(HEADERS, END_HEADERS | END_STREAM, 2 * at + 3, head) for at in range(count))


class Turns(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.stack = contextlib.ExitStack()
        cls.addClassCleanup(cls.stack.close)
        cls.server = cls.stack.enter_context(Two("", ""))

    def before(self, other, target, send):
        """How many requests of the one, whose target is the same and more, were answered before that of `other` was."""
        self.assertEqual(other.get().status, 200)
        worker = self.server.process("site main")
        worker.signal(signal.SIGSTOP)
        try:
            until(lambda: worker.status()["State"].startswith("T"), PATIENCE)
            send()
            other.send(f"GET {target} HTTP/1.1\r\nHost: main.test\r\n\r\n".encode())
        finally:
            worker.signal(signal.SIGCONT)
        other.response()
        until(lambda: f"{target} " in self.server.log("main.access"), PATIENCE)
        return self.server.log("main.access").partition(f"{target} ")[0].count(f"{target}-many ")

    def test_requests_one_behind_the_other(self):
        with self.server.connect() as many, self.server.connect() as other:
            self.assertEqual(many.get().status, 200)
            requests = b"GET /?behind-many HTTP/1.1\r\nHost: main.test\r\n\r\n" * MANY
            self.assertLessEqual(self.before(other, "/?behind", lambda: many.send(requests)), BEFORE_MAX)

    def test_streams_one_behind_the_other(self):
        with PlainHttp2(self.server.port) as many, self.server.connect() as other:
            many.request(1, lines("/"))
            self.assertEqual(many.outcome(1), 200)
            self.assertLessEqual(self.before(other, "/?streams", lambda: many.send(heads(MANY))), BEFORE_MAX)
