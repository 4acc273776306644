"""Calls that only read are sent to a database server together: each has its own answer, whatever becomes of the others."""

import itertools
import json
import threading
import unittest
import urllib.parse

import pytest

from client import Connection, until
from databases import AtRedis, DataServer, Sqlite, at_every

pytestmark = pytest.mark.slow

#: More than a data proxy has connections for, so that calls wait.
READERS = 40
USERS = {1: {"id": 1, "name": "ann", "balance": 100}, 2: {"id": 2, "name": "bob", "balance": 50}}
#: One more row than `numbers` may give.
TOO_MANY = 1001


class Reading:
    """Clients that each read one thing after the other. `wrong` has the answers that are not what was asked for."""

    def __init__(self, server, may_be_lost=False):
        self.server, self.stopped, self.may_be_lost = server, threading.Event(), may_be_lost
        self.count, self.failed, self.wrong = itertools.count(), [], []
        self.answers = 0
        self.threads = [threading.Thread(target=self._run, args=(at,), daemon=True) for at in range(READERS)]
        for thread in self.threads:
            thread.start()

    def wanted(self, number):
        """A statement, its value, and what comes."""
        if isinstance(self.server.engine, AtRedis):
            # The values of hashes are texts.
            user = USERS.get(number % 3)
            return "one", "user_by_id", number % 3, (200, user and {name: str(value) for name, value in user.items()})
        if number % 7 == 0:
            return "many", "numbers", TOO_MANY, (502, "TooLarge: it has more than 1000 rows")
        if number % 2:
            return "one", "user_by_id", number % 3, (200, USERS.get(number % 3))
        rows = number % 990 + 1
        return "many", "numbers", rows, (200, [{"x": x + 1} for x in range(rows)])

    def _run(self, at):
        connection = None
        while not self.stopped.is_set():
            how, statement, value, wanted = self.wanted(next(self.count))
            words = urllib.parse.urlencode({"statement": statement, "values": json.dumps([value])})
            try:
                connection = connection or Connection(self.server.port)
                answer = connection.get(f"/asker/{how}?{words}", "main.test")
            except OSError as error:
                self.failed.append(repr(error))
                connection = None
                continue
            text = answer.text.strip()
            got = answer.status, json.loads(text) if answer.status == 200 else text
            if got == wanted:
                self.answers += 1
            elif answer.status == 502 and text.split(":")[0] in ("Database", "Late", "Busy"):
                self.failed.append(text)
            elif self.may_be_lost and answer.status == 503 and "does not answer" in text:
                self.failed.append(text)
            else:
                self.wrong.append((wanted, got))

    def more(self, count):
        """Waits for more right answers."""
        before = self.answers
        return until(lambda: self.answers > before + count, 30)

    def finish(self):
        self.stopped.set()
        for thread in self.threads:
            thread.join(20)
        return self


@at_every
class Together(unittest.TestCase):
    engine = Sqlite

    def test_each_call_has_its_own_answer(self):
        with DataServer(self.engine) as server:
            reading = Reading(server)
            self.assertTrue(reading.more(2000), reading.failed[-3:])
            reading.finish()
            self.assertEqual((reading.wrong[:3], reading.failed[:3]), ([], []))

    def test_those_of_a_killed_server_are_told_so(self):
        if self.engine is Sqlite:
            self.skipTest("there is no server to kill")
        with DataServer(self.engine) as server:
            reading, at = Reading(server), server.engine.at
            for _ in range(3):
                self.assertTrue(reading.more(200), reading.failed[-3:])
                at.kill()
                self.assertTrue(until(lambda: reading.failed, 10))
                at.start()
                reading.failed.clear()
            self.assertTrue(reading.more(200), reading.failed[-3:])
            self.assertEqual(reading.finish().wrong[:3], [])

    def test_those_of_a_paused_server_have_an_end(self):
        if self.engine is Sqlite:
            self.skipTest("there is no server to pause")
        short = lambda text: text.replace("-- params: ", "-- timeout: 1s\n-- params: ")
        with DataServer(self.engine, short) as server:
            # A data proxy waits for a server that it has told to stop a call; the service's own clock does not.
            reading = Reading(server, may_be_lost=True)
            self.assertTrue(reading.more(200), reading.failed[-3:])
            server.engine.at.pause()
            try:
                self.assertTrue(until(lambda: len(reading.failed) >= 2 * READERS, 30), reading.failed)
            finally:
                server.engine.at.go_on()
            self.assertTrue(reading.more(200), reading.failed[-3:])
            self.assertEqual(reading.finish().wrong[:3], [])


if __name__ == "__main__":
    unittest.main()
