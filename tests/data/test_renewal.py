"""What a data proxy of a database server reads again while it serves: the password of its login, and statements while the server is down."""

import unittest

from client import Load, until
from database_servers import PASSWORD
from databases import AtMariaDb, AtPostgresql, AtRedis
from renewing import HOLDS, STAYS, Renewing

ASK = "/asker/many?statement=users"


class Passwords:
    engine = None

    def server(self):
        engine = self.engine()
        self.addCleanup(engine.at.change_password, PASSWORD)
        return Renewing(engine)

    def test_a_password_that_has_changed(self):
        with self.server() as server:
            proxy, steady = server.proxy(), Load(server.port, ASK, "main.test", seconds=4, connections=4)
            server.engine.at.change_password("another")
            server.renew("password", "another\n", f"`password`: {HOLDS}")
            steady.end().assert_clean(self)
            self.assertTrue(server.answers_anew(), server.log())
            self.assertEqual(server.proxy(), proxy)

    def test_a_password_that_the_server_learns_later(self):
        with self.server() as server:
            server.renew("password", "another\n", f"`password`: {STAYS}")
            self.assertEqual(server.ask("many", "users")[0], 200)
            server.engine.at.change_password("another")
            self.assertTrue(server.answers_anew(), server.log())
            self.assertTrue(until(lambda: f"`password`: {HOLDS}" in server.log(), 10), server.log())

    def test_a_wrong_password(self):
        with self.server() as server:
            server.renew("password", "wrong\n", f"`password`: {STAYS}")
            # The one before still opens.
            self.assertTrue(server.answers_anew(), server.log())
            server.renew("password", PASSWORD + "\n", f"`password`: {HOLDS}")
            server.renew("password", b"\xff\n", "the password: it is not UTF-8; what was there before stays")
            self.assertTrue(server.answers_anew(), server.log())


class Down:
    """The server is down while the operator writes the file of statements."""

    def rewritten_while_down(self, server, text):
        at = server.engine.at
        at.kill()
        self.addCleanup(lambda: at.process.poll() is None or at.start())
        server.renew("catalog.sql", text, "the statements of before stay until the database has prepared the new ones")
        at.start()

    def test_statements_hold_when_the_server_is_back(self):
        with Renewing(self.engine()) as server:
            command = "GET more" if self.engine is AtRedis else "SELECT 7 AS seven;"
            self.rewritten_while_down(server, f"{server.statements}\n-- name: more :one\n-- services: asker\n{command}\n")
            self.assertTrue(until(lambda: server.ask("one", "more")[0] == 200, 20), server.log())
            self.assertTrue(until(lambda: "statements were read again" in server.log(), 10), server.log())

    def test_a_mistake_is_said_when_the_server_is_back(self):
        with Renewing(self.engine()) as server:
            self.rewritten_while_down(server, server.statements.replace(*self.engine.mistake))
            self.assertTrue(until(lambda: "the statements of before stay: the statements: line " in server.log(), 20), server.log())
            self.assertTrue(until(lambda: server.ask("many", "users")[0] == 200, 20), server.log())


@unittest.skipUnless(AtPostgresql.installed(), "there is no PostgreSQL")
class PasswordsOfPostgresql(Passwords, unittest.TestCase):
    engine = AtPostgresql


@unittest.skipUnless(AtMariaDb.installed(), "there is no MariaDB")
class PasswordsOfMariaDb(Passwords, unittest.TestCase):
    engine = AtMariaDb


@unittest.skipUnless(AtRedis.installed(), "there is no Redis")
class PasswordsOfRedis(Passwords, unittest.TestCase):
    engine = AtRedis


@unittest.skipUnless(AtPostgresql.installed(), "there is no PostgreSQL")
class DownPostgresql(Down, unittest.TestCase):
    engine = AtPostgresql


@unittest.skipUnless(AtMariaDb.installed(), "there is no MariaDB")
class DownMariaDb(Down, unittest.TestCase):
    engine = AtMariaDb


@unittest.skipUnless(AtRedis.installed(), "there is no Redis")
class DownRedis(Down, unittest.TestCase):
    engine = AtRedis


if __name__ == "__main__":
    unittest.main()
