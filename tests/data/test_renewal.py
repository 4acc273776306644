"""What a data proxy of a database server reads again while it serves: the password of its login."""

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
            steady.finish().assert_clean(self)
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


@unittest.skipUnless(AtPostgresql.installed(), "there is no PostgreSQL")
class PasswordsOfPostgresql(Passwords, unittest.TestCase):
    engine = AtPostgresql


@unittest.skipUnless(AtMariaDb.installed(), "there is no MariaDB")
class PasswordsOfMariaDb(Passwords, unittest.TestCase):
    engine = AtMariaDb


@unittest.skipUnless(AtRedis.installed(), "there is no Redis")
class PasswordsOfRedis(Passwords, unittest.TestCase):
    engine = AtRedis


if __name__ == "__main__":
    unittest.main()
