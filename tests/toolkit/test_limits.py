"""How often a client may do something, counted inside a service."""

import unittest

from harness import rootless_too
from tools import ToolsServer


@rootless_too
class Limits(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = cls.enterClassContext(ToolsServer())

    def ask(self, host, query="", source=None, headers=()):
        with self.server.connect(source=source) as connection:
            return connection.get("/tools/limited" + query, host, headers)

    def test_each_client_has_its_own_limit(self):
        for host in ("main.test", "direct.test"):
            with self.subTest(host):
                statuses = [self.ask(host, source="127.0.1.1").status for _ in range(3)]
                self.assertEqual(statuses, [200, 200, 429])
                lie = ["X-Forwarded-For: 203.0.113.9", "Forwarded: for=203.0.113.9"]
                answer = self.ask(host, source="127.0.1.1", headers=lie)
                self.assertEqual(answer.status, 429, "a client cannot say that it is another one")
                self.assertIn(int(answer.headers["retry-after"]), range(25, 31))
                self.assertEqual(self.ask(host, source="127.0.1.2").status, 200)

    def test_each_key_has_its_own_limit(self):
        for host in ("main.test", "direct.test"):
            with self.subTest(host):
                statuses = [self.ask(host, "?key=ann", f"127.0.2.{at + 1}").status for at in range(3)]
                self.assertEqual(statuses, [200, 200, 429])
                self.assertEqual(self.ask(host, "?key=tom", "127.0.2.1").status, 200)
