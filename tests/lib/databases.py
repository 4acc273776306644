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


class DataServer(Server):
    """A server with a site `main`, its source `catalog`, and the services `asker` and `other`; `third` has no source."""

    def __init__(self, statements=STATEMENTS, schema=SCHEMA, more=(), asker=(), **settings):
        asks = lambda name, *words: service(name, f"/{name}", command=["bin/asker", "catalog", *words], data=["catalog"])
        data = [{"name": "catalog", "statements": "catalog.sql", "schema": "schema.sql"}]
        third = service("third", "/third", command=["bin/asker", "catalog"])
        self.services = [asks("asker", *asker), asks("other"), *more, *([third] if settings.pop("third", False) else [])]
        files = {"catalog.sql": statements, "schema.sql": schema} | settings.pop("files", {})
        super().__init__([site("main", self.services, data=data), site("fine")], programs=("asker",), files=files, **settings)

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
