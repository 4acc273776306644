"""Services call named statements of a database, each those that were granted to it, and nothing else."""

import concurrent.futures
import contextlib
import os
import re
import time
import unittest
from pathlib import Path

from client import until
from databases import LARGE_STATEMENTS, AtPostgresql, DataServer, Sqlite, asks, at_each
from harness import rootless_too

#: What has been SQL, or something else, in somebody's program.
INJECTIONS = [
    "'", "''", '"', "\\", "\\'", "`", ";", "--", "/*", "*/", "%", "_", "' OR '1'='1", "'; DROP TABLE users; --", "x' UNION SELECT text FROM secrets --",
    "1; ATTACH DATABASE '/tmp/x' AS x", ":id", "?1", "$1", "@a", "{{7*7}}", "${7*7}", "<script>", "\u0000", "a\u0000b", "\ufeff", "\u202e", "\r\n", "\x1a",
    "ʼ OR 1=1", "＇; --", "0x27", "char(39)", "\U0001f4a9" * 50, "a" * 200, "NULL", "true", "1e999", "-0", "[]", "{}",
]


@at_each
@rootless_too
class Statements(unittest.TestCase):
    engine = Sqlite

    def test_a_service_calls_what_was_granted_to_it(self):
        with DataServer(self.engine) as server:
            self.assertEqual(server.ask("one", "user_by_id", 2), (200, {"id": 2, "name": "bob", "balance": 50}))
            self.assertEqual(server.ask("one", "user_by_id", 9), (200, None))
            self.assertEqual(server.ask("exec", "add_user", "cid"), (200, 1))
            status, users = server.ask("many", "users", of="other")
            self.assertEqual((status, [user["name"] for user in users]), (200, ["ann", "bob", "cid"]))
            # The database is one that other programs can open.
            self.assertEqual(server.engine.rows("SELECT id, name FROM users WHERE id = 3"), [("3", "cid")])

    def test_nobody_calls_what_was_not_granted(self):
        with DataServer(self.engine) as server:
            said = {server.ask("many", name, of=of) for of, name in
                    [("asker", "secrets"), ("asker", "withdraw"), ("other", "user_by_id"), ("other", "transfer"), ("asker", "nothing"),
                     ("asker", ""), ("asker", "USERS"), ("asker", "users "), ("asker", "SELECT 1"), ("asker", "a" * 63)]}
            # One answer for all: what there is, it does not learn.
            self.assertEqual(said, {(502, "Refused: there is no such statement for this service")})
            self.assertTrue(until(lambda: 'service asker called "secrets", which was not granted to it' in server.log()))
            self.assertIn("[dataproxy main/catalog]", server.log())
            # It goes on with what it may.
            self.assertEqual(server.ask("exec", "add_user", "cid"), (200, 1))

    def test_values_are_values_whatever_they_say(self):
        with DataServer(self.engine) as server:
            for text in INJECTIONS:
                with self.subTest(text=text):
                    refused = self.engine is AtPostgresql and "\0" in text
                    # The one thing that cannot be in a text there.
                    expected = (502, 'Parameters: invalid byte sequence for encoding "UTF8": 0x00') if refused else (200, 1)
                    self.assertEqual(server.ask("exec", "add_user", text), expected)
            kept = [text for text in INJECTIONS if self.engine is not AtPostgresql or "\0" not in text]
            self.assertEqual([user["name"] for user in server.ask("many", "users")[1]], ["ann", "bob", *kept])
            self.assertEqual(server.ask("many", "secrets", of="other"), (200, [{"text": "nobody knows"}]))
            for values in [("1",), (1.5,), (None,), (["a"],), (), (1, 2), ("1 OR 1=1",)]:
                with self.subTest(values=values):
                    status, said = server.ask("one", "user_by_id", *values)
                    self.assertEqual((status, said.split(":")[0]), (502, "Parameters"))

    def test_a_transaction_holds_whole_or_not_at_all(self):
        with DataServer(self.engine) as server:
            status, results = server.ask("transaction", "transfer", [1, 30], [2, 30])
            self.assertEqual((status, [result["changed"] for result in results]), (200, [1, 1]))
            status, said = server.ask("transaction", "transfer", [2, 30], [1, 30])
            self.assertEqual(status, 200)
            # The second statement would do; the first breaks a rule of the table.
            status, said = server.ask("transaction", "transfer", [1, 101], [2, 101])
            self.assertEqual((status, said), (502, f"Constraint: {self.engine.broken_rule}"))
            # The first would do; the second breaks the rule.
            status, said = server.ask("transaction", "transfer", [1, 30], [2, -51])
            self.assertEqual((status, said), (502, f"Constraint: {self.engine.broken_rule}"))
            self.assertEqual([user["balance"] for user in server.ask("many", "users")[1]], [100, 50])
            # The parameters of one statement are not enough.
            self.assertEqual(server.ask("transaction", "transfer", [1, 30])[1], "Parameters: it has 4 parameters, and 2 came")

    def test_a_step_may_be_for_its_transaction_alone(self):
        with DataServer(self.engine, lambda text: text.replace("withdraw :execrows\n-- services: other\n", "withdraw :execrows\n")) as server:
            self.assertEqual(server.ask("transaction", "transfer", [1, 30], [2, 30])[0], 200)
            for of in ("asker", "other"):
                said = server.ask("exec", "withdraw", 1, 30, of=of)
                self.assertEqual(said, (502, "Refused: there is no such statement for this service"))
            self.assertEqual(server.ask("exec", "deposit", 1, 30, of="other"), (200, 1))

    def test_limits_hold(self):
        with DataServer(self.engine) as server:
            began = time.monotonic()
            self.assertEqual(server.ask("one", "slow")[1].split(":")[0], "Late")
            self.assertLess(time.monotonic() - began, 5)
            self.assertEqual(len(server.ask("many", "numbers", 1000)[1]), 1000)
            self.assertEqual(server.ask("many", "numbers", 1001), (502, "TooLarge: it has more than 1000 rows"))
            # An answer that is too large has changed nothing, though its rows were there.
            self.assertEqual(server.ask("many", "three_notes", "x"), (502, "TooLarge: it has more than 2 rows"))
            # Later calls come behind what that one left to be done.
            for _ in range(8):
                self.assertEqual(server.ask("exec", "note", "y"), (200, 1))
            self.assertEqual(server.engine.rows("SELECT count(*) FROM notes"), [("8",)])
            # What nobody waits for any more keeps no thread, and no place among those that may be under way.
            with concurrent.futures.ThreadPoolExecutor(16) as pool:
                given_up = list(pool.map(lambda _: server.ask("give-up", "slow"), range(800)))
            self.assertEqual(set(given_up), {(200, "gave up")})
            self.assertEqual(server.ask("one", "user_by_id", 1)[0], 200)

    def test_many_large_answers_at_once(self):
        """Together they have many times what may wait for a service: their rows come as it reads."""
        with DataServer(self.engine, lambda text: text + LARGE_STATEMENTS.format(**self.engine.words)) as server:
            with concurrent.futures.ThreadPoolExecutor(12) as pool:
                answers = list(pool.map(lambda _: server.ask("many", "large", 5000), range(12)))
            self.assertEqual([status for status, _ in answers], [200] * 12, answers[0][1][:200])
            whole = [{"x": at, "text": "0" * 1000} for at in range(1, 5001)]
            self.assertTrue(all(rows == whole for _, rows in answers))

    def test_a_service_that_waits_for_rows_before_it_serves(self):
        with DataServer(self.engine, asker=["users"]) as server:
            self.assertEqual(server.ask("one", "user_by_id", 1)[0], 200)


@at_each
@rootless_too
class Mistakes(unittest.TestCase):
    """The operator's: each is said with its line, and nothing starts with half of a file."""

    engine = Sqlite

    def test_a_statement_that_the_database_does_not_prepare(self):
        def change(text):
            text = text.replace("FROM users ORDER BY id", "\nFROM usres\nORDER BY id")
            return text + "-- name: a :exec\n-- services: asker\nSET a = 3\n-- name: b :exec\n-- services: asker\nSELECT 1\n"

        with DataServer(self.engine, change, answers=200) as server:
            self.assertTrue(until(lambda: self.engine.no_table in server.log(), 10), server.log())
            # PostgreSQL alone says where.
            line = 14 if self.engine is AtPostgresql else 11
            self.assertIn(f"line {line}: `users`: {self.engine.no_table}", server.log())
            self.assertRegex(server.log(), r"line \d+: `a`: `SET` is not for a statement")
            self.assertRegex(server.log(), r"line \d+: `b`: it gives rows: say `:one` or `:many`")
            # Others are not concerned.
            self.assertEqual(server.status("/", "fine.test"), 200)

    def test_a_service_that_may_not_have_the_source(self):
        with DataServer(self.engine, lambda text: text.replace("services: asker, other", "services: asker, othre"), answers=200) as server:
            self.assertTrue(until(lambda: "no service `othre` of this site has the source in its `data`" in server.log(), 10), server.log())

    def test_a_file_that_is_written_again(self):
        with DataServer(self.engine, tls={"reread": "1s"}) as server:
            proxy = server.proxy()
            more = "-- name: count :one\n-- services: asker\nSELECT count(*) AS count FROM users;\n"
            server.write("catalog.sql", server.statements.replace("asker, other", "asker") + more)
            self.assertTrue(until(lambda: server.ask("one", "count") == (200, {"count": 2}), 10), server.log())
            # A right that was taken away is no right any more.
            self.assertEqual(server.ask("many", "users", of="other")[0], 502)
            self.assertEqual(server.ask("many", "users")[0], 200)
            server.write("catalog.sql", server.statements + "-- name: b :one\n-- services: asker\nSELECT nothing_such FROM users;\n")
            self.assertTrue(until(lambda: "the statements of before stay" in server.log(), 10), server.log())
            self.assertEqual(server.ask("one", "count"), (200, {"count": 2}))
            self.assertEqual(server.proxy(), proxy)

    def test_a_service_without_the_source(self):
        lone = asks("lone", data=[])
        with DataServer(self.engine, more=[lone], answers=200) as server:
            self.assertTrue(until(lambda: '`data` of this service has no "catalog" in the configuration, but none' in server.log(), 10))
            self.assertEqual(server.ask("one", "user_by_id", 1)[0], 200)


class Folder(unittest.TestCase):
    def test_the_database_belongs_to_its_proxy_alone(self):
        with DataServer() as server:
            folder = server.database().parent
            found = folder.stat()
            self.assertEqual((found.st_uid, found.st_mode & 0o777), (server.proxy().uid, 0o700))
            others = {process.uid for process in server.processes() if process != server.proxy()}
            self.assertNotIn(found.st_uid, others)
            self.assertEqual({path.stat().st_uid for path in folder.iterdir()}, {found.st_uid})

    def test_a_folder_of_somebody_else_is_said(self):
        server = DataServer(answers=200)
        folder = server.database().parent
        folder.mkdir(parents=True)
        for path in (folder.parents[2], folder.parents[1], folder.parent):
            path.chmod(0o755)
        os.chown(folder, 65534, 65534)
        with server:
            self.assertTrue(until(lambda: "belongs to uid 65534, and the process that writes there has uid" in server.log() + server.stderr(), 10))
            self.assertEqual(server.status("/", "fine.test"), 200)


#: One function works for some 10 ms, for each row, and SQLite looks at its clock after a thousand instructions.
IN_A_FUNCTION = """
-- name: in_a_function :one
-- services: asker
-- timeout: 400ms
WITH RECURSIVE again (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM again WHERE i < 1000000) SELECT max(length(hex(zeroblob(7000000 + i % 2)))) AS n
FROM again;
"""


def threads(pid):
    """Processor time that each thread of a process has used, in seconds, and how often it has slept."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError):
            slept = re.search(r"^voluntary_ctxt_switches:\s+(\d+)", (task / "status").read_text(), re.MULTILINE)
            yield int((task / "schedstat").read_text().split()[0]) / 1e9, int(slept[1])


class Texts(Sqlite):
    """A database with an index of words, which a trigger of a plain table searches as well."""

    any_schema = Sqlite.any_schema + """
        CREATE VIRTUAL TABLE texts USING fts5(text);
        CREATE TABLE bin (words);
        CREATE TRIGGER thrown AFTER INSERT ON bin BEGIN DELETE FROM texts WHERE texts = new.words; END;
        INSERT INTO texts VALUES ('one thing'), ('and another thing'), ('a third');"""


@rootless_too
class TextSearch(unittest.TestCase):
    """Nothing interrupts a search, so a statement that writes does none."""

    found = """-- name: found :many\n-- services: asker\n-- params: words text
        SELECT rowid FROM texts WHERE texts MATCH '"' || replace(substr(:words, 1, 100), '"', '""') || '"';\n"""
    forget = """-- name: forget :execrows\n-- services: asker\n-- params: rowids text
        DELETE FROM texts WHERE rowid IN (SELECT value FROM json_each(:rowids));\n"""

    def test_rows_are_found_by_one_statement_and_named_in_another(self):
        with DataServer(Texts, lambda text: text + self.found + self.forget) as server:
            self.assertEqual(server.ask("many", "found", "thing"), (200, [{"rowid": 1}, {"rowid": 2}]))
            self.assertEqual(server.ask("many", "found", 'thing" OR "third'), (200, []))
            self.assertEqual(server.ask("exec", "forget", "[1, 2, 9]"), (200, 2))
            self.assertEqual(server.ask("many", "found", "thing"), (200, []))
            server.write("catalog.sql", server.statements + "-- name: gone :exec\n-- services: asker\nDELETE FROM texts WHERE texts MATCH 'a';\n")
            rule = "`gone`: it searches the words of `texts`"
            said = server.command("data", "check", "--config", server.config)
            self.assertTrue(said.returncode == 2 and rule in said.stdout, said)
            server.command("reload")
            self.assertTrue(until(lambda: rule in server.log(), 10), server.log())
            self.assertEqual(server.ask("many", "found", "third"), (200, [{"rowid": 3}]))

    def test_nothing_starts_with_a_search_that_writes(self):
        def change(text):
            text += "-- name: a :exec\n-- services: asker\nINSERT INTO bin VALUES ('x');\n"
            return text + self.found.replace("-- services: asker\n", "") + "-- transaction: both\n-- services: asker\n-- statements: found\n"

        with DataServer(Texts, change, answers=200) as server:
            self.assertTrue(until(lambda: "`a`: it searches the words of `texts`" in server.log(), 10), server.log())
            self.assertIn("`found`: it searches the words of `texts`", server.log())
            self.assertEqual(server.status("/", "fine.test"), 200)


@rootless_too
class Pauses(unittest.TestCase):
    def test_a_long_function_leaves_the_processor_to_others(self):
        with DataServer(Sqlite, lambda text: text + IN_A_FUNCTION) as server:
            proxy = server.process("dataproxy main/catalog").pid
            while not (worked := [(used, slept) for used, slept in threads(proxy) if used > 0.3]):
                self.assertEqual(server.ask("one", "in_a_function")[1].split(":")[0], "Late")
            for used, slept in worked:
                self.assertGreater(slept, used / 0.005)
            self.assertNotIn("do not pause", server.log())


if __name__ == "__main__":
    unittest.main()
