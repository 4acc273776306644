"""Services in Python call named statements of a database; proxies come and go, and nothing happens twice."""

import threading
import time
import unittest

from client import until
from harness import rootless_too
from python_services import PythonDataServer
from writing import Writers, look_into_sqlite

MORE = """
-- name: types :one
-- services: asker
-- params: a int?, b bool, c int, d real, e text, f blob, g text
SELECT :a AS a, :b AS b, :c AS c, :d AS d, :e AS e, :f AS f, :g AS g;
"""


@rootless_too
class Statements(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = cls.enterClassContext(PythonDataServer(MORE))

    def test_calls_and_their_answers(self):
        ask = self.server.ask
        self.assertEqual(ask("one", "user_by_id", 2), (200, {"id": 2, "name": "bob", "balance": 50}))
        self.assertEqual(ask("one", "user_by_id", 9), (200, None))
        for way in ("many", "sync"):
            self.assertEqual([user["name"] for user in ask(way, "users")[1]][:2], ["ann", "bob"])
        self.assertEqual(ask("exec", "note", "'; DROP TABLE users; --"), (200, 1))
        self.assertEqual(ask("types", "types"), (200, True))
        # More than may be under way at once.
        self.assertEqual(ask("at-once", "user_by_id", 500), (200, [None, 1, 2] + [None] * 497))

    def test_why_a_call_has_failed(self):
        ask = self.server.ask
        for of, name in (("asker", "secrets"), ("asker", "withdraw"), ("other", "user_by_id"), ("asker", "nothing"), ("asker", "")):
            self.assertEqual(ask("many", name, of=of), (502, "Refused: there is no such statement for this service"))
        for values in (("1",), (1.5,), (None,), (["a"],), (), (1, 2)):
            self.assertEqual((ask("one", "user_by_id", *values)[0], ask("one", "user_by_id", *values)[1].split(":")[0]), (502, "Parameters"))
        self.assertEqual(ask("one", "slow")[1].split(":")[0], "Late")
        self.assertEqual(ask("many", "numbers", 1001), (502, "TooLarge: it has more than 1000 rows"))
        self.assertEqual(len(ask("many", "numbers", 1000)[1]), 1000)
        self.assertEqual(ask("exec", "add_user", "ann")[1].split(":")[0], "Constraint")
        # What stands in a row twice, or is too much, is no fault of the proxy's: it is an exception like any other.
        self.assertEqual(ask("one", "user_by_id", 1 << 64)[0], 500)
        self.assertEqual(ask("one", "users"), (503, "`users` gives 2 rows; call `many`"))

    def test_a_transaction_holds_whole_or_not_at_all(self):
        self.assertEqual(self.server.ask("transaction", "transfer", [1, 30], [2, 30]), (200, [1, 1]))
        self.assertEqual(self.server.ask("transaction", "transfer", [2, 30], [1, 30]), (200, [1, 1]))
        self.assertEqual(self.server.ask("transaction", "transfer", [1, 30], [2, -51])[1].split(":")[0], "Constraint")
        self.assertEqual([user["balance"] for user in self.server.ask("many", "users")[1]][:2], [100, 50])

    def test_who_gives_up_keeps_no_place(self):
        threads = [threading.Thread(target=lambda: [self.server.ask("give-up", "slow") for _ in range(20)]) for _ in range(10)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(self.server.ask("one", "user_by_id", 1)[0], 200)


class Writing(Writers):
    """They write a note, or two halves of one in a transaction."""

    def __init__(self, server):
        self.server = server
        super().__init__(count=3)

    def run(self, at):
        for number, mark in self.marks(at):
            how, statement, values = ("exec", "note", [mark]) if number % 2 else ("transaction", "two_notes", [[f"{mark}-a"], [f"{mark}-b"]])
            status, said = self.server.ask(how, statement, *values)
            self.note(mark, None if status == 200 else said)


@rootless_too
class Loss(unittest.TestCase):
    def test_a_proxy_that_is_relaunched_loses_nothing(self):
        with PythonDataServer(MORE) as server:
            writing = Writing(server)
            for name in ("main/catalog:data", "main/catalog:data", "main/asker", "main/catalog:data"):
                before = len(writing.written)
                server.relaunch(name)
                self.assertTrue(until(lambda: len(writing.written) > before + 20, 10), writing.failed)
            writing.finish()
            self.assertEqual(writing.failed, {})
            look_into_sqlite(self, server, writing)

    def test_a_killed_proxy(self):
        with PythonDataServer(MORE) as server:
            writing = Writing(server)
            for _ in range(3):
                before, proxy = len(writing.written), server.proxy()
                self.assertTrue(until(lambda: len(writing.written) > before + 5, 10), writing.failed)
                proxy.kill()
                self.assertTrue(until(lambda: not proxy.alive and server.proxy().alive, 10))
            before = len(writing.written)
            self.assertTrue(until(lambda: len(writing.written) > before + 5, 15), writing.failed)
            writing.finish()
            look_into_sqlite(self, server, writing)

    def test_without_a_proxy_a_call_is_not_made(self):
        with PythonDataServer(MORE) as server:
            server.write("catalog.sql", "nonsense\n")
            # It cannot start any more.
            proxy = server.proxy()
            proxy.kill()
            self.assertTrue(until(lambda: not proxy.alive))
            # The worker may not have seen yet that it is gone, and have the call lost.
            self.assertTrue(until(lambda: "was lost" not in server.ask("one", "user_by_id", 1)[1], 20))
            began = time.monotonic()
            self.assertEqual(server.ask("one", "user_by_id", 1), (503, "the data source is not there"))
            self.assertGreater(time.monotonic() - began, 4)

    def test_an_init_that_waits_for_rows(self):
        with PythonDataServer(words=["users"]) as server:
            self.assertEqual(server.ask("one", "user_by_id", 1)[0], 200)


if __name__ == "__main__":
    unittest.main()
