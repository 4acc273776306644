"""HTTP/2 requests that would be two requests, or another one, if they were passed on to a service as HTTP/1.1."""

import json
import time
import unittest

from downgrade import CANARY, READ, REFUSALS, REFUSED
from frames import Http2
from secured import TLS, ours, serve

@unittest.skipUnless(TLS, "this build has no TLS")
@ours
class Downgrade(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = cls.enterClassContext(serve())

    def connect(self):
        return Http2(self.server.context(), self.server.tls_port)

    def test_refused(self):
        problems = []
        pids = [process.pid for process in self.server.processes()]
        for name, head, *bodies in REFUSED:
            with self.connect() as connection:
                connection.request(1, head, *bodies)
                outcome = connection.outcome(1)
                if outcome not in REFUSALS:
                    problems.append(f"{name}: {outcome} {connection.bodies.get(1, b'')[:300]}")
            # The service's connection, if it is used again, is as it should be.
            with self.connect() as connection:
                connection.request(1, CANARY)
                self.assertEqual(connection.outcome(1), 200, name)
                self.assertEqual(json.loads(connection.bodies[1])["query"], "canary", name)
        self.assertEqual(problems, [], "\n  ".join([f"{len(problems)} of {len(REFUSED)}:", *problems]))
        self.assertEqual([process.pid for process in self.server.processes()], pids, "a process ended")
        self.check_log()

    def test_read_in_one_way(self):
        with self.connect() as connection:
            for number, (name, head, bodies, length) in enumerate(READ):
                with self.subTest(name):
                    stream = 1 + 2 * number
                    connection.request(stream, head, *bodies)
                    self.assertEqual(connection.outcome(stream), 200)
                    report = json.loads(connection.bodies[stream])
                    self.assertEqual(report["body_length"], length)
                    self.assertEqual(report["path"], "/probe/echo")
                    names = [header for header, _ in report["headers"]]
                    self.assertEqual([one for one, count in count_all(names).items() if count > 1], [], "a line twice")
        self.check_log()

    def check_log(self):
        time.sleep(0.3)
        self.assertNotIn("GET /hidden", self.server.log("main.access"))
        self.assertIn("/probe/echo", self.server.log("main.access"), "the log does not tell")


def count_all(names):
    return {name: names.count(name) for name in names}


if __name__ == "__main__":
    unittest.main()
