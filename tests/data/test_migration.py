"""Tables, types and roles change while services call statements that were prepared before: at each kind of server, also behind a pooler that
gives each transaction another connection, and in a SQLite database."""

import contextlib
import shutil
import signal
import sqlite3
import tempfile
import unittest
from pathlib import Path

from client import Load, until
from database_servers import DATABASE, PASSWORD, USER
from databases import AtMariaDb, AtPostgresql, DataServer, Sqlite

ASK = "/asker/many?statement=users"
ANN = {"id": 1, "name": "ann", "balance": 100}
#: What changes what statements were prepared for; after each, all of them go on.
AT_POSTGRESQL = [
    "ALTER TABLE users ALTER balance TYPE integer",
    "ALTER TABLE users ALTER name TYPE varchar(90)",
    "ALTER TABLE users ALTER balance TYPE bigint, ALTER name TYPE text",
    "ALTER TABLE users ADD more text; ALTER TABLE users DROP more",
    "BEGIN; ALTER TABLE users RENAME TO before; CREATE TABLE users (LIKE before INCLUDING ALL); "
    "INSERT INTO users OVERRIDING SYSTEM VALUE SELECT * FROM before; DROP TABLE before; "
    "ALTER TABLE users OWNER TO shop; COMMIT",
    "BEGIN; ALTER TABLE users RENAME TO kept; CREATE VIEW users AS SELECT id, name, balance FROM kept; "
    "ALTER VIEW users OWNER TO shop; COMMIT",
    "BEGIN; DROP VIEW users; ALTER TABLE kept RENAME TO users; COMMIT",
    "BEGIN; REVOKE ALL ON users FROM shop; GRANT ALL ON users TO shop; COMMIT",
    f"ALTER ROLE {USER} SET search_path = public, pg_temp",
]
AT_MARIADB = [
    "ALTER TABLE users MODIFY balance int NOT NULL DEFAULT 0",
    "ALTER TABLE users MODIFY name varchar(90) NOT NULL",
    "ALTER TABLE users ADD more text, ENGINE = InnoDB",
    "ALTER TABLE users DROP more",
    "CREATE TABLE users_new LIKE users; INSERT INTO users_new SELECT * FROM users; RENAME TABLE users TO users_old, users_new TO users; "
    "DROP TABLE users_old",
    "RENAME TABLE users TO kept; CREATE VIEW users AS SELECT id, name, balance FROM kept",
    "FLUSH TABLES; FLUSH PRIVILEGES",
]


class Pooler:
    """A PgBouncer that gives each transaction whatever connection is free, two in all."""

    def __init__(self, at):
        self.at = at
        self.folder = Path(tempfile.mkdtemp(prefix="bulkhead-pooler-", dir="/tmp"))
        self.folder.chmod(0o777)
        word = PASSWORD.replace('"', '""')
        (self.folder / "users").write_text(f'"{USER}" "{word}"\n')
        (self.folder / "pooler.ini").write_text(
            f"[databases]\n{DATABASE} = host={at.folder} port=5432\n[pgbouncer]\npool_mode = transaction\nauth_type = scram-sha-256\n"
            f"auth_file = {self.folder}/users\nlisten_addr =\nlisten_port = 6432\nunix_socket_dir = {self.folder}\n"
            "default_pool_size = 2\nmax_client_conn = 50\nserver_round_robin = 1\n"
        )
        for name in ("users", "pooler.ini"):
            (self.folder / name).chmod(0o644)
        self.process = at.run([shutil.which("pgbouncer", path="/usr/sbin:/usr/bin"), self.folder / "pooler.ini"])
        assert until((self.folder / ".s.PGSQL.6432").exists, 20)

    def close(self):
        self.process.send_signal(signal.SIGINT)
        self.process.wait(20)
        shutil.rmtree(self.folder)


class Pooled(AtPostgresql):
    """A source behind a pooler."""

    def settings(self):
        self.pooler = Pooler(self.at)
        return super().settings() | {"server": f"unix:{self.pooler.folder}/.s.PGSQL.6432"}


class Migration:
    """What holds for each server."""

    engine, changes = None, ()

    def server(self):
        engine = self.engine()
        server = DataServer(engine)
        if isinstance(engine, Pooled):
            self.addCleanup(engine.pooler.close)
        return server

    def change(self, server, sql):
        server.engine.at.ask(sql, DATABASE)

    def check(self, server, after):
        """Reads, writes, and what holds together or not at all."""
        for _ in range(4):
            status, rows = server.ask("many", "users")
            self.assertEqual((status, rows[0] if status == 200 else rows), (200, ANN), after)
        status, said = server.ask("exec", "transfer", 1, 0, 2, 0)
        self.assertEqual(status, 200, (after, said, server.log()[-2000:]))
        status, said = server.ask("one", "user_by_id", 2)
        self.assertEqual(status, 200, (after, said))

    def test_whatever_changes_statements_go_on(self):
        with self.server() as server:
            self.check(server, "the start")
            for sql in self.changes:
                self.change(server, sql)
                self.check(server, sql)

    def test_whatever_changes_under_load(self):
        with self.server() as server:
            steady = Load(server.port, ASK, "main.test", seconds=2, connections=4)
            for sql in [sql for sql in self.changes if "RENAME" not in sql]:
                self.change(server, sql)
            steady.finish().assert_clean(self)
            self.check(server, "the load")

    def test_what_is_gone_is_said_and_what_is_not_goes_on(self):
        with self.server() as server:
            self.check(server, "the start")
            self.change(server, "ALTER TABLE notes RENAME TO gone")
            status, said = server.ask("exec", "note", "x")
            self.assertNotEqual(status, 200)
            self.assertIn("notes", said)
            self.check(server, "notes are gone")
            self.change(server, "ALTER TABLE gone RENAME TO notes")
            self.assertEqual(server.ask("exec", "note", "x")[0], 200)
            self.assertEqual(server.engine.rows("SELECT mark FROM notes"), [("x",)])


@unittest.skipUnless(AtPostgresql.installed(), "there is no PostgreSQL")
class AtPostgres(Migration, unittest.TestCase):
    engine, changes = AtPostgresql, AT_POSTGRESQL


@unittest.skipUnless(AtPostgresql.installed() and shutil.which("pgbouncer", path="/usr/sbin:/usr/bin"), "there is no PgBouncer")
class BehindPooler(Migration, unittest.TestCase):
    engine, changes = Pooled, AT_POSTGRESQL

    def test_names_of_others_are_never_taken_for_ones_own(self):
        """Proxies that follow each other number their statements alike, and the pooler's connections outlive them."""
        with self.server() as server:
            self.check(server, "the start")
            for round in range(3):
                text = server.statements.replace("-- name: user_by_id", f"-- name: seven{round} :one\n-- services: asker\n"
                                                 f"SELECT {round} AS seven;\n\n-- name: user_by_id", 1)
                server.write("catalog.sql", text)
                server.relaunch("main/catalog:data")
                for _ in range(8):
                    self.assertEqual(server.ask("one", f"seven{round}"), (200, {"seven": round}))
                    self.check(server, f"round {round}")


@unittest.skipUnless(AtMariaDb.installed(), "there is no MariaDB")
class AtMaria(Migration, unittest.TestCase):
    engine, changes = AtMariaDb, AT_MARIADB


class AtSqlite(unittest.TestCase):
    def test_whatever_changes_statements_go_on(self):
        star = "\n-- name: whole :one\n-- services: asker\nSELECT * FROM secrets;\n"
        with DataServer(Sqlite, change=lambda text: text + star) as server:
            self.assertEqual(server.ask("one", "whole"), (200, {"id": 1, "text": "nobody knows"}))
            with contextlib.closing(sqlite3.connect(server.database())) as database:
                for sql, row in (
                    ("ALTER TABLE secrets ADD more", {"id": 1, "text": "nobody knows", "more": None}),
                    ("ALTER TABLE secrets RENAME text TO words", {"id": 1, "words": "nobody knows", "more": None}),
                    ("ALTER TABLE secrets DROP more", {"id": 1, "words": "nobody knows"}),
                ):
                    database.executescript(sql)
                    for _ in range(4):
                        self.assertEqual(server.ask("one", "whole"), (200, row), sql)


if __name__ == "__main__":
    unittest.main()
