"""A site with a database, and services that call its statements."""

import json
import urllib.parse

from harness import Server, service, site

SCHEMA = """\
CREATE TABLE users (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, balance INTEGER NOT NULL DEFAULT 0 CHECK (balance >= 0));
CREATE TABLE secrets (id INTEGER PRIMARY KEY, text TEXT);
INSERT INTO users (id, name, balance) VALUES (1, 'ann', 100), (2, 'bob', 50);
INSERT INTO secrets VALUES (1, 'nobody knows');
"""
STATEMENTS = """\
-- name: user_by_id :one
-- services: asker
-- params: id int
SELECT id, name, balance FROM users WHERE id = :id;

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
WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT count(*) AS count FROM n;

-- name: numbers :many
-- services: asker, other
-- params: count int
-- max_rows: 1000
WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < :count) SELECT x FROM n;
"""


def asks(name, *words, **more):
    """A service that calls whatever statement of the source `catalog` a test names."""
    settings = {"command": ["bin/asker", "catalog", *words], "data": ["catalog"]}
    return service(name, f"/{name}", **settings | more)


def data_site(name, services, statements="catalog.sql", **more):
    """A site with the source `catalog`."""
    return site(name, services, data=[{"name": "catalog", "statements": statements, "schema": "schema.sql"}], **more)


class DataServer(Server):
    """A server with a site `main`, its source `catalog`, and the services `asker` and `other`."""

    def __init__(self, statements=STATEMENTS, schema=SCHEMA, more=(), asker=(), **settings):
        sites = [data_site("main", [asks("asker", *asker), asks("other"), *more]), site("fine")]
        super().__init__(sites, programs=("asker",), files={"catalog.sql": statements, "schema.sql": schema}, **settings)

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
        return self.folder / "state" / "data" / "main" / "catalog" / "catalog.db"
