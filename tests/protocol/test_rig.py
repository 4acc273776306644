"""The instruments themselves: each finds what it has to find in a server that has the fault."""

import signal
import threading
import unittest

from h2spec import conformance, judged
from probing import Answers, judge
from secured import Nginx, ours, serve
from testssl import WHOLE, above_low, findings

REPORT = """<testsuites><testsuite package="a"><testcase package="http2/4.1" classname="Sends a frame"></testcase>
<testcase package="http2/4.2" classname="Sends a large one"><failure>GOAWAY Frame
Actual: DATA Frame</failure></testcase></testsuite></testsuites>"""


class Rig(unittest.TestCase):
    def test_testssl_sees_faults(self):
        # Weak ciphers take it half a minute to find; that no header is there, a few seconds.
        parts = ("-p", "-s", "-h") if WHOLE else ("-h",)
        with Nginx(protocols="TLSv1 TLSv1.2", ciphers='"ALL:@SECLEVEL=0"', headers="") as server:
            found = findings(server.tls_port, server.folder, *parts)
        above = above_low(found)
        self.assertEqual([one["severity"] for one in found if one["id"] == "TLS1"], ["LOW"] * WHOLE)
        self.assertTrue(any("security_headers" in one for one in above), above)
        self.assertEqual(any("cipherlist" in one for one in above), WHOLE, above)

    def test_curl_sees_an_old_version(self):
        with Nginx(protocols="TLSv1", ciphers='"ALL:@SECLEVEL=0"') as server:
            told = server.curl("--tlsv1.0", "--tls-max", "1.0", "--ciphers", "ALL:@SECLEVEL=0")
        self.assertIn("<h1>main</h1>", told.stdout)

    def test_a_failure_of_h2spec_counts(self):
        count, failed = judged(REPORT, "2 tests, 1 passed, 0 skipped, 1 failed")
        self.assertEqual((count, len(failed)), (2, 1))
        with self.assertRaises(AssertionError):
            judged(REPORT, "2 tests, 0 passed, 0 skipped, 2 failed")

    @ours
    def test_a_pause_does_not_cost_h2spec_its_result(self):
        """A machine under load may leave a server without the processor for some seconds."""
        with serve() as server:
            self.assertEqual(server.get("/").status, 200)
            worker = server.process("site main")
            worker.signal(signal.SIGSTOP)
            threading.Timer(4, worker.signal, (signal.SIGCONT,)).start()
            count, failed = conformance(server.tls_port, server.folder, "generic/1")
        self.assertEqual((count > 0, failed), (True, []))

    def test_smuggling_is_seen(self):
        from smuggling import CANARY, GET, Probe

        class Server:
            """One that answers whatever comes."""

            def __init__(self, *statuses, closes=True):
                self.waiting = [b"HTTP/1.1 %d Is\r\nContent-Length: 2\r\n\r\nab" % status for status in statuses]
                self.closes = closes

            def settimeout(self, _):
                pass

            def sendall(self, _):
                pass

            def recv(self, _):
                if not self.waiting and not self.closes:
                    raise TimeoutError
                return self.waiting.pop(0) if self.waiting else b""

        must_refuse, may_read = Probe("a", GET), Probe("b", GET + CANARY, (200,))
        told = lambda probe, *statuses, **more: judge(probe, Answers(Server(*statuses, **more), b""))
        self.assertIsNone(told(must_refuse, 400))
        self.assertIsNone(told(may_read, 200, 404))
        self.assertIsNone(told(may_read, 200))
        for wrong in ((200,), (400, 404), (200, 404)):
            self.assertIsNotNone(told(must_refuse, *wrong), wrong)
        self.assertIsNotNone(told(must_refuse, 400, closes=False))
        for wrong in ((400,), (200, 404, 404), (200, 200, 404)):
            self.assertIsNotNone(told(may_read, *wrong), wrong)


if __name__ == "__main__":
    unittest.main()
