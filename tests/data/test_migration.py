"""Tables, types, roles and search paths change while services call statements that were prepared before: at each kind of server, behind a
pooler that gives sessions or transactions another connection, in a SQLite database, and through the door of another machine.

Debian has no pooler for MariaDB (neither ProxySQL nor MaxScale), so that there is none between."""

import contextlib
import shutil
import signal
import sqlite3
import tempfile
import unittest
import urllib.parse
from pathlib import Path

from client import Load, until
from database_servers import DATABASE, PASSWORD, USER
from databases import AtMariaDb, AtPostgresql, DataServer, Sqlite
from machines import Holder, Machines, Web

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
#: The same of types. An enum, a composite type and a domain are what `TYPES` has of them.
OF_TYPES = [
    "ALTER TYPE mood ADD VALUE 'angry'",
    "ALTER TYPE mood RENAME VALUE 'glad' TO 'happy'",
    "BEGIN; ALTER TYPE mood RENAME TO mood_before; CREATE TYPE mood AS ENUM ('calm', 'happy', 'angry'); "
    "ALTER TABLE moods ALTER mood TYPE mood USING mood::text::mood; DROP TYPE mood_before; ALTER TYPE mood OWNER TO shop; COMMIT",
    "ALTER TYPE pair ADD ATTRIBUTE c integer CASCADE",
    "ALTER TYPE pair ALTER ATTRIBUTE a TYPE bigint CASCADE",
    "ALTER TYPE pair DROP ATTRIBUTE c CASCADE",
    "ALTER DOMAIN amount ADD CHECK (VALUE < 1000)",
    "BEGIN; ALTER DOMAIN amount RENAME TO amount_before; CREATE DOMAIN amount AS numeric; ALTER TABLE moods ALTER much TYPE amount; "
    "DROP DOMAIN amount_before; ALTER DOMAIN amount OWNER TO shop; COMMIT",
]
OF_ROLES = [
    f"ALTER ROLE {USER} SET statement_timeout = '50s'",
    f"ALTER ROLE {USER} CONNECTION LIMIT 40",
    f"GRANT pg_read_all_data TO {USER}",
    f"BEGIN; REVOKE pg_read_all_data FROM {USER}; ALTER ROLE {USER} RESET statement_timeout; ALTER ROLE {USER} CONNECTION LIMIT -1; COMMIT",
]
#: A session has the search path of its login; those that a pooler has are replaced by the pooler.
OF_PATHS = [
    f"BEGIN; CREATE SCHEMA next AUTHORIZATION {USER}; ALTER ROLE {USER} SET search_path = next, public; ALTER TABLE users SET SCHEMA next; COMMIT",
    f"BEGIN; CREATE SCHEMA \"the last\" AUTHORIZATION {USER}; ALTER ROLE {USER} IN DATABASE {DATABASE} SET search_path = \"the last\", public; "
    "ALTER TABLE next.users SET SCHEMA \"the last\"; COMMIT",
    f"BEGIN; ALTER TABLE \"the last\".users SET SCHEMA public; ALTER ROLE {USER} RESET search_path; COMMIT",
]
TYPES = """
CREATE TYPE mood AS ENUM ('calm', 'glad');
CREATE TYPE pair AS (a integer, b integer);
CREATE DOMAIN amount AS bigint;
CREATE TABLE spots OF pair;
CREATE TABLE moods (id bigint, mood mood, much amount);
INSERT INTO spots VALUES (1, 2);
INSERT INTO moods VALUES (1, 'calm', 5);
"""
OF_TYPES_STATEMENTS = """
-- name: moods :many
-- services: asker
-- params: mood text
SELECT id, mood::text AS mood, much::bigint AS much FROM moods WHERE mood = :mood;

-- name: feel :execrows
-- services: asker
-- params: mood text
UPDATE moods SET mood = :mood WHERE id = 1;

-- name: spots :many
-- services: asker
SELECT a::bigint AS a, b::bigint AS b FROM spots;
"""
MOODS = "/asker/many?" + urllib.parse.urlencode({"statement": "moods", "values": '["calm"]'})
AT_MARIADB = [
    "ALTER TABLE users MODIFY balance int NOT NULL DEFAULT 0",
    "ALTER TABLE users MODIFY name varchar(90) NOT NULL",
    "ALTER TABLE users ADD more text, ENGINE = InnoDB",
    "ALTER TABLE users DROP more",
    "CREATE TABLE users_new LIKE users; INSERT INTO users_new SELECT * FROM users; RENAME TABLE users TO users_old, users_new TO users; "
    "DROP TABLE users_old",
    "RENAME TABLE users TO kept; CREATE VIEW users AS SELECT id, name, balance FROM kept",
    "FLUSH TABLES; FLUSH PRIVILEGES",
    "DROP VIEW users; RENAME TABLE kept TO users",
    "ALTER TABLE users ADD kind enum('a', 'b') NOT NULL DEFAULT 'a'",
    "ALTER TABLE users MODIFY kind enum('a', 'b', 'c') NOT NULL DEFAULT 'c'",
    "ALTER TABLE users CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci",
    "ALTER TABLE users DROP kind",
    f"ALTER USER {USER}@localhost WITH MAX_USER_CONNECTIONS 40",
    f"ALTER USER {USER}@localhost WITH MAX_USER_CONNECTIONS 0",
]


class Pooler:
    """A PgBouncer that gives each session, transaction or statement whatever connection is free: two in all, or what sessions need."""

    def __init__(self, at, mode):
        self.at = at
        self.folder = Path(tempfile.mkdtemp(prefix="bulkhead-pooler-", dir="/tmp"))
        self.folder.chmod(0o777)
        word = PASSWORD.replace('"', '""')
        (self.folder / "users").write_text(f'"{USER}" "{word}"\n')
        (self.folder / "pooler.ini").write_text(
            f"[databases]\n{DATABASE} = host={at.folder} port=5432\n[pgbouncer]\npool_mode = {mode}\nauth_type = scram-sha-256\n"
            f"auth_file = {self.folder}/users\nlisten_addr =\nlisten_port = 6432\nunix_socket_dir = {self.folder}\n"
            f"default_pool_size = {20 if mode == 'session' else 2}\nmax_client_conn = 50\nserver_round_robin = 1\n"
        )
        for name in ("users", "pooler.ini"):
            (self.folder / name).chmod(0o644)
        self.process = at.run([shutil.which("pgbouncer", path="/usr/sbin:/usr/bin"), self.folder / "pooler.ini"])
        assert until((self.folder / ".s.PGSQL.6432").exists, 20)

    def close(self):
        self.process.send_signal(signal.SIGINT)
        self.process.wait(20)
        shutil.rmtree(self.folder)


class WithTypes(AtPostgresql):
    any_schema = AtPostgresql.any_schema + TYPES
    any_statements = AtPostgresql.any_statements + OF_TYPES_STATEMENTS


class Pooled(WithTypes):
    """A source behind a pooler."""

    mode = "transaction"
    # The library asks the server of a parameter's type by a statement of its own, which it keeps by name: not for
    # connections that others have.
    any_statements = WithTypes.any_statements.replace("= :mood", "= (:mood::text)::mood")

    def settings(self):
        self.pooler = Pooler(self.at, self.mode)
        return super().settings() | {"server": f"unix:{self.pooler.folder}/.s.PGSQL.6432"}


class PooledSessions(Pooled):
    mode = "session"


class PooledStatements(Pooled):
    mode = "statement"


class Migration:
    """What holds for each server."""

    engine, changes = None, ()
    #: What is asked under load.
    asked = (ASK,)
    #: What ends all connections of the data proxy at the server.
    ends = None

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
            steady = [Load(server.port, target, "main.test", seconds=3, connections=2) for target in self.asked]
            for sql in [sql for sql in self.changes if sql.startswith("BEGIN") or "RENAME" not in sql]:
                self.change(server, sql)
            for load in steady:
                load.end().assert_clean(self)
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

    def test_what_is_gone_keeps_new_connections_from_nothing_else(self):
        with self.server() as server:
            self.check(server, "the start")
            self.change(server, "ALTER TABLE notes RENAME TO gone")
            self.change(server, self.ends)
            self.assertTrue(until(lambda: all(server.ask("many", "users")[0] == 200 for _ in range(8)), 20), server.log())
            self.check(server, "all connections are new")
            status, said = server.ask("exec", "note", "x")
            self.assertNotEqual(status, 200)
            self.assertIn("notes", said)
            self.change(server, "ALTER TABLE gone RENAME TO notes")
            self.assertEqual(server.ask("exec", "note", "x")[0], 200)


class OfPostgresql(Migration):
    """With types, and what is set for the role, which goes on after a test."""

    changes, asked = AT_POSTGRESQL + OF_TYPES + OF_ROLES, (ASK, MOODS)
    ends = f"SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE usename = '{USER}'"

    def tearDown(self):
        for of in ("", f"IN DATABASE {DATABASE} "):
            self.engine.shared.ask(f"ALTER ROLE {USER} {of}RESET ALL")

    def check(self, server, after):
        super().check(server, after)
        for _ in range(2):
            self.assertEqual(server.ask("many", "moods", "calm"), (200, [{"id": 1, "mood": "calm", "much": 5}]), after)
            self.assertEqual(server.ask("many", "spots"), (200, [{"a": 1, "b": 2}]), after)
            self.assertEqual(server.ask("exec", "feel", "calm")[0], 200, after)


@unittest.skipUnless(AtPostgresql.installed(), "there is no PostgreSQL")
class AtPostgres(OfPostgresql, unittest.TestCase):
    engine, changes = WithTypes, OfPostgresql.changes + OF_PATHS


POOLER = AtPostgresql.installed() and shutil.which("pgbouncer", path="/usr/sbin:/usr/bin")


@unittest.skipUnless(POOLER, "there is no PgBouncer")
class BehindSessions(OfPostgresql, unittest.TestCase):
    engine = PooledSessions


@unittest.skipUnless(POOLER, "there is no PgBouncer")
class BehindStatements(unittest.TestCase):
    def test_it_is_refused_with_the_reason(self):
        """A pooler that gives each statement another connection lets nobody have a transaction."""
        engine = PooledStatements()
        server = DataServer(engine, answers=False)
        self.addCleanup(engine.pooler.close)
        with server:
            self.assertTrue(until(lambda: "transaction blocks not allowed in statement pooling mode" in server.log(), 20), server.log())


@unittest.skipUnless(POOLER, "there is no PgBouncer")
class BehindPooler(OfPostgresql, unittest.TestCase):
    engine = Pooled

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
    ends = f"KILL USER {USER}@localhost"


#: Each is a transaction of its own, so that statements find all or nothing of it.
AT_SQLITE = [
    "ALTER TABLE users ADD more",
    "CREATE INDEX by_balance ON users (balance)",
    "ALTER TABLE users RENAME more TO others",
    "ALTER TABLE users DROP others",
    "BEGIN IMMEDIATE; CREATE TABLE users_new (id INTEGER PRIMARY KEY, balance INTEGER NOT NULL DEFAULT 0, name TEXT NOT NULL UNIQUE); "
    "INSERT INTO users_new (id, name, balance) SELECT id, name, balance FROM users; DROP TABLE users; ALTER TABLE users_new RENAME TO users; COMMIT",
    "BEGIN IMMEDIATE; ALTER TABLE users RENAME TO kept; CREATE VIEW users AS SELECT id, name, balance FROM kept; COMMIT",
    "BEGIN IMMEDIATE; DROP VIEW users; ALTER TABLE kept RENAME TO users; COMMIT",
    "ANALYZE; REINDEX",
    "VACUUM",
]


def change_sqlite(path, sql):
    """As an operator does, who waits for calls that write."""
    with contextlib.closing(sqlite3.connect(path, timeout=20, isolation_level=None)) as database:
        database.executescript(sql)


class AtSqlite(Migration, unittest.TestCase):
    engine, changes = Sqlite, AT_SQLITE
    # Its connections are of threads that do not end.
    test_what_is_gone_keeps_new_connections_from_nothing_else = None

    def change(self, server, sql):
        change_sqlite(server.database(), sql)

    def test_whatever_changes_under_load(self):
        with self.server() as server:
            steady = Load(server.port, ASK, "main.test", seconds=3, connections=4)
            for sql in self.changes:
                self.change(server, sql)
            steady.end().assert_clean(self)
            self.check(server, "the load")

    def check(self, server, after):
        # A view is read, and not written.
        status, rows = server.ask("many", "users")
        self.assertEqual((status, rows[0] if status == 200 else rows), (200, ANN), after)
        if "CREATE VIEW" not in after:
            super().check(server, after)

    def test_rows_have_the_columns_that_there_are(self):
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



class ThroughADoor(Machines):
    """What has changed is at another machine, whose data proxy prepares its statements anew for services of this one."""

    def check(self, web, after):
        for _ in range(2):
            status, rows = web.ask("many", "users")
            self.assertEqual((status, rows[0] if status == 200 else rows), (200, ANN), after)
            self.assertEqual(web.ask("one", "user_by_id", 1)[0], 200, after)

    def migrate(self, engine, changes, change):
        with Holder(self.papers, engine=engine) as holder, Web(self.papers, holder.tls) as web:
            self.check(web, "the start")
            for sql in changes:
                change(holder, sql)
                self.check(web, sql)
            steady = Load(web.port, ASK, "main.test", seconds=2, connections=4)
            for sql in [sql for sql in changes if sql.startswith("BEGIN") or "RENAME" not in sql]:
                change(holder, sql)
            steady.end().assert_clean(self)
            self.check(web, "the load")

    def test_sqlite(self):
        self.migrate(Sqlite, [sql for sql in AT_SQLITE if "INDEX" not in sql and "more" not in sql and "others" not in sql],
                     lambda holder, sql: change_sqlite(holder.engine.file(), sql))

    @unittest.skipUnless(AtPostgresql.installed(), "there is no PostgreSQL")
    def test_postgresql(self):
        self.migrate(AtPostgresql, AT_POSTGRESQL, lambda holder, sql: holder.engine.at.ask(sql, DATABASE))
        AtPostgresql.shared.ask(f"ALTER ROLE {USER} RESET ALL")


if __name__ == "__main__":
    unittest.main()
