"""A site with a database, and services that call its statements: of SQLite, PostgreSQL and MariaDB, which are to do the same, and of Redis."""

import atexit
import contextlib
import json
import sqlite3
import sys
import unittest
import urllib.parse
from pathlib import Path

from database_servers import MARIADB, PASSWORD, REDIS, MariaDb, Postgresql, Redis, postgresql_programs
from harness import Server, service, site

#: What holds for all; `{...}` are an engine's own words.
ANY_SCHEMA = """\
CREATE TABLE users (id {serial}, name {text} NOT NULL UNIQUE, balance {int} NOT NULL DEFAULT 0, CONSTRAINT not_in_debt CHECK (balance >= 0));
CREATE TABLE secrets (id {int} PRIMARY KEY, text {text});
CREATE TABLE notes (id {serial}, mark {text} NOT NULL);
INSERT INTO users (id, name, balance) VALUES (1, 'ann', 100), (2, 'bob', 50);
INSERT INTO secrets VALUES (1, 'nobody knows');
"""
ANY_STATEMENTS = """\
-- name: user_by_id :one
-- services: asker
-- params: id int
SELECT id, name, balance FROM users WHERE id = :id;

-- name: user_by_name :many
-- services: asker
-- params: name text
SELECT id, balance FROM users WHERE name = :name;

-- name: users :many
-- services: asker, other
SELECT id, name, balance FROM users ORDER BY id;

-- name: add_user :execrows
-- services: asker
-- params: name text
INSERT INTO users (name) VALUES (:name);

-- name: withdraw :execrows
-- services: other
-- params: id int, amount int
UPDATE users SET balance = balance - :amount WHERE id = :id;

-- name: deposit :execrows
-- services: other
-- params: id int, amount int
UPDATE users SET balance = balance + :amount WHERE id = :id;

-- transaction: transfer
-- services: asker
-- statements: withdraw, deposit

-- name: secrets :many
-- services: other
SELECT text FROM secrets;

-- name: slow :one
-- services: asker
-- timeout: 400ms
{slow};

-- name: numbers :many
-- services: asker, other
-- params: count int
-- max_rows: 1000
{numbers};

-- name: note :execrows
-- services: asker
-- params: mark text
INSERT INTO notes (mark) VALUES (:mark);

-- name: note_with_count :many
-- services: asker
-- params: mark text
INSERT INTO notes (mark) VALUES (:mark) RETURNING id;

-- name: three_notes :many
-- services: asker
-- params: mark text
-- max_rows: 2
INSERT INTO notes (mark) VALUES (:mark), (:mark), (:mark) RETURNING id;

-- transaction: two_notes
-- services: asker
-- statements: note, note
"""
#: Rows of a kilobyte.
LARGE_STATEMENTS = f"""
-- name: large :many
-- services: asker
-- params: count int
-- max_rows: 20000
-- max_bytes: 16MiB
-- timeout: 30s
SELECT n.x, '{"0" * 1000}' AS text FROM ({{numbers}}) AS n;
"""
#: Users, notes and counters without tables.
REDIS_KEYS = """\
HSET user:1 id 1 name ann balance 100
HSET user:2 id 2 name bob balance 50
RPUSH users ann bob
SET secret:1 "nobody knows"
"""
REDIS_STATEMENTS = """\
-- name: user_by_id :one
-- services: asker
-- params: id int
HGETALL user:{:id}

-- name: users :many
-- services: asker, other
LRANGE users 0 -1

-- name: note :execrows
-- services: asker
-- params: mark text
RPUSH notes :mark

-- name: note_with_count :many
-- services: asker
-- params: mark text
RPUSH notes :mark

-- transaction: two_notes
-- services: asker
-- statements: note, note

-- name: visit :one
-- services: asker
-- params: page text, count int
INCRBY visits:{:page} :count

-- name: visits :one
-- services: asker
-- params: page text
GET visits:{:page}

-- name: open_session :exec
-- services: asker
-- params: id text, data blob, seconds int
SET session:{:id} :data EX :seconds

-- name: session :one
-- services: asker
-- params: id text
GET session:{:id}

-- name: secret :one
-- services: other
GET secret:1

-- name: take_notes :many
-- services: asker
-- max_rows: 3
LPOP notes 100

-- name: all_notes :many
-- services: asker
-- params: last int
-- max_rows: 3
-- max_bytes: 1KiB
LRANGE notes 0 :last

-- name: score :one
-- services: asker
-- params: who text, points real
ZINCRBY scores :points :who

-- name: scores :many
-- services: other
ZRANGE scores 0 -1 WITHSCORES

-- name: push_to_visits :exec
-- services: asker
-- params: page text
RPUSH visits:{:page} x

-- transaction: visit_and_push
-- services: asker
-- statements: visit, push_to_visits
"""


class Sqlite:
    """The default, in a file of the data proxy's own."""

    any_schema, any_statements = ANY_SCHEMA, ANY_STATEMENTS
    #: What the statement of each test has, and what makes it wrong.
    mistake = ("FROM users", "FROM usres")

    words = {
        "serial": "INTEGER PRIMARY KEY", "int": "INTEGER", "text": "TEXT",
        "slow": "WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT count(*) AS count FROM n",
        "numbers": "WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < :count) SELECT x FROM n",
    }
    #: What it says of a rule of the tables that is broken, and of a table that there is not.
    broken_rule, no_table = "CHECK constraint failed: not_in_debt", "no such table: usres"

    def __init__(self):
        self.server = None

    @staticmethod
    def installed():
        return True

    def settings(self):
        return {"schema": "schema.sql"}

    def files(self, schema):
        return {"schema.sql": schema}

    def attach(self, server):
        self.server = server

    def file(self):
        return self.server.folder / "state" / "data" / "main" / "catalog" / "catalog.db"

    def rows(self, sql):
        """All rows of a query, by another program, as texts."""
        with contextlib.closing(sqlite3.connect(f"file:{self.file()}?mode=ro", uri=True)) as database:
            return [tuple(map(str, row)) for row in database.execute(sql)]

    def check(self):
        """Whether the database itself is whole."""
        assert self.rows("PRAGMA integrity_check") == [("ok",)]


class AtServer:
    """A throw-away server: one for all tests, with another database for each."""

    kind, shared = None, None
    any_schema, any_statements, mistake = Sqlite.any_schema, Sqlite.any_statements, Sqlite.mistake

    def __init__(self, at=None):
        cls = type(self)
        if at is None and cls.shared is None:
            cls.shared = self.kind()
            atexit.register(cls.shared.close)
        self.at = at or cls.shared

    def settings(self):
        return self.at.settings()

    def files(self, schema):
        self.at.reset()
        self.at.load(schema)
        return {"password": PASSWORD + "\n"}

    def attach(self, server):
        pass

    def rows(self, sql):
        return self.at.rows(sql)

    def check(self):
        pass


class AtPostgresql(AtServer):
    kind = Postgresql
    words = {
        "serial": "bigint GENERATED BY DEFAULT AS IDENTITY (START WITH 3) PRIMARY KEY", "int": "bigint", "text": "text",
        "slow": "SELECT pg_sleep(60)::text AS count",
        "numbers": "SELECT x FROM generate_series(1, :count) AS x",
    }
    broken_rule = 'new row for relation "users" violates check constraint "not_in_debt"'
    no_table = 'relation "usres" does not exist'

    @staticmethod
    def installed():
        return postgresql_programs() is not None


class AtMariaDb(AtServer):
    kind = MariaDb
    words = {
        "serial": "bigint AUTO_INCREMENT PRIMARY KEY", "int": "bigint", "text": "varchar(255) COLLATE utf8mb4_nopad_bin",
        "slow": "SELECT SLEEP(60) AS count",
        "numbers": "SELECT seq AS x FROM seq_1_to_20000 WHERE seq <= :count",
    }
    broken_rule = "CONSTRAINT `not_in_debt` failed for `shop`.`users`"
    no_table = "Table 'shop.usres' doesn't exist"

    @staticmethod
    def installed():
        return Path(MARIADB).exists()


class AtRedis(AtServer):
    kind = Redis
    words = None
    any_schema, any_statements, mistake = REDIS_KEYS, REDIS_STATEMENTS, ("HGETALL", "HGETAL")

    @staticmethod
    def installed():
        return Path(REDIS).exists()

    def rows(self, sql):
        """The one table that tests of every engine look at."""
        assert sql == "SELECT mark FROM notes", sql
        return [(mark,) for mark in self.at.ask("LRANGE notes 0 -1").split()]


def at_every(case):
    """The same as `at_each`, and for Redis."""
    return at_each(case, (AtPostgresql, AtMariaDb, AtRedis))


def at_each(case, engines=(AtPostgresql, AtMariaDb)):
    """A test case for each server as well, in the module of the case; `case` itself is SQLite's. What a server does is the same for
    whatever uid a data proxy has: rootless, `test_server_life` has the way to one."""
    for engine in engines:
        name = case.__name__ + engine.__name__
        there = unittest.skipUnless(engine.installed(), f"there is no {engine.kind.__name__}")
        variant = there(type(name, (case,), {"engine": engine, "rootless": False, "__module__": case.__module__}))
        setattr(sys.modules[case.__module__], name, variant)
    return case


def asks(name, *words, **more):
    """A service that calls whatever statement of the source `catalog` a test names."""
    settings = {"command": ["bin/asker", "catalog", *words], "data": ["catalog"]}
    return service(name, f"/{name}", **settings | more)


#: Those of the default.
SCHEMA, STATEMENTS = (text.format(**Sqlite.words) for text in (ANY_SCHEMA, ANY_STATEMENTS))


def data_site(name, services, statements="catalog.sql", source=None, **more):
    """A site with the source `catalog`."""
    source = source or {"schema": "schema.sql"}
    return site(name, services, data=[{"name": "catalog", "statements": statements} | source], **more)


class DataServer(Server):
    """A server with a site `main`, its source `catalog`, and the services `asker` and `other`. `change` makes another file of
    statements of the usual one."""

    def __init__(self, engine=Sqlite, change=str, more=(), asker=(), **settings):
        # A kind of database, or one that the test has made.
        self.engine = engine() if isinstance(engine, type) else engine
        # Commands of Redis's have braces of their own.
        own = lambda text: text.format(**engine.words) if engine.words else text
        self.statements = change(own(engine.any_statements))
        files = self.engine.files(own(engine.any_schema)) | {"catalog.sql": self.statements}
        services = [asks("asker", *asker), asks("other"), *more]
        sites = [data_site("main", services, source=self.engine.settings()), site("fine")]
        super().__init__(sites, programs=("asker",), files=files, **settings)
        self.engine.attach(self)

    def ask(self, how, statement, *values, of="asker"):
        """The status of a call, and what came."""
        # The program is one for all services; its paths begin with that of the first.
        words = urllib.parse.urlencode({"statement": statement, "values": json.dumps(list(values))})
        answer = self.get(f"/{of}/{how}?{words}")
        text = answer.body.decode().strip()
        return answer.status, json.loads(text) if answer.status == 200 else text

    def proxy(self):
        return self.process("dataproxy main/catalog")

    def database(self):
        """The file of a SQLite database."""
        return self.engine.file()
