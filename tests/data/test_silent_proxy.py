"""A data proxy that is stopped answers nothing: calls of every SDK end by the SDK's own clock."""

import signal
import time
import unittest

import pytest

from c_services import CDataServer
from client import until
from databases import STATEMENTS, DataServer
from harness import rootless_too
from lateness import Lateness
from python_services import PythonDataServer

pytestmark = pytest.mark.alone

#: A statement that is fast, and may take no longer.
QUICK = "\n-- name: quick :one\n-- services: asker\n-- timeout: 300ms\nSELECT 1 AS one;\n"
#: When a call has to have ended, in seconds: its timeout, and a tenth of a second; and how long a request and its
#: answer take here.
TIMEOUT, WORD, WAY = 0.3, 0.1, 0.25


class Silent:
    """What holds for each SDK; `ask` calls `quick`, and says whether there was an answer, and what came."""

    def test_calls_end_in_their_time(self):
        with self.server() as server:
            self.assertTrue(self.ask(server)[0], "the proxy is there")
            proxy = server.proxy()
            proxy.signal(signal.SIGSTOP)
            for _ in range(3):
                with Lateness() as lateness:
                    begun = time.monotonic()
                    is_answered, why = self.ask(server)
                    took = time.monotonic() - begun
                self.assertFalse(is_answered, why)
                self.assertIn("its data proxy does not answer", why)
                self.assertTrue(TIMEOUT <= took < TIMEOUT + WORD + WAY + lateness.of_a_request, (took, lateness.worst))
            proxy.signal(signal.SIGCONT)
            self.assertTrue(until(lambda: self.ask(server)[0], 10))
            self.assertTrue(proxy.alive)


@rootless_too
class InRust(Silent, unittest.TestCase):
    server = staticmethod(lambda: DataServer(change=lambda text: text + QUICK))

    @staticmethod
    def ask(server):
        status, said = server.ask("one", "quick")
        return status == 200, said


class InC(Silent, unittest.TestCase):
    server = staticmethod(lambda: CDataServer(statements=STATEMENTS + QUICK))

    @staticmethod
    def ask(server):
        status, said = server.call("quick")
        return status == 200, said


class InPython(Silent, unittest.TestCase):
    server = staticmethod(lambda: PythonDataServer(statements=QUICK))

    @staticmethod
    def ask(server):
        status, said = server.ask("one", "quick")
        return status == 200, said


if __name__ == "__main__":
    unittest.main()
