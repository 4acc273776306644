"""Commands of Redis's: replies as rows, values that stay values, keys that nobody else reaches, and what is refused at the start."""

import concurrent.futures
import json
import re
import subprocess
import threading
import unittest
import urllib.parse

import pytest

from client import Connection, until
from database_servers import Redis as RedisServer
from databases import AtRedis, DataServer
from harness import TOP
from test_statements import INJECTIONS

#: What would be a command, a reply or the end of a word, where words have no lengths.
FRAGMENTS = [
    "\r\n", "\r\nFLUSHALL\r\n", "\r\n*1\r\n$8\r\nFLUSHALL\r\n", "$-1\r\n", "*-1\r\n", "+OK\r\n", "-ERR x\r\n", ":1\r\n", "a b", "a\nDEL secret:1",
    '" "', "x EX 1", "{a}", "{:page}", ":page", "*", "?", "[a-z]", "\\x00", "\u0000",
]
#: Each body, and what is said of it.
REFUSED = [
    ("GETT a", "the server knows no command `GETT`"),
    ("GET", "`GET` has 2 words, and here are 1"),
    ("GET a b", "`GET` has 2 words, and here are 3"),
    ("SET a", "`SET` has at least 3 words, and here are 2"),
    ("GET :key", "`:key` begins a key, so that a service could reach all keys: begin it with text, such as `a:{:key}`"),
    ("GET {:key}:x", "`:key` begins a key"),
    ("MSET a:{:key} 1 :key 2", "`:key` begins a key"),
    ("DEL a b c {:key}", "`:key` begins a key"),
    (":key a", "the name of the command is a parameter"),
    ("OBJECT :key a", "`OBJECT` has several commands: write behind it which one"),
    ("OBJECT NOTHING a:{:key}", "the server knows no command `OBJECT NOTHING`"),
    ("CONFIG SET a:{:key} b", "`CONFIG SET` is not for a statement: it is for administrators"),
    ("CONFIG GET {:key}", "`CONFIG GET` is not for a statement: it is for administrators"),
    ("SHUTDOWN :key", "it is for administrators"),
    ("DEBUG :key", "it is for administrators"),
    ("REPLICAOF :key 1", "it is for administrators"),
    ("ACL SETUSER :key", "it is for administrators"),
    ("FLUSHALL :key", "it may stop the server, or shows or changes what is not a service's"),
    ("FLUSHDB :key", "it may stop the server"),
    ("KEYS :key", "it may stop the server"),
    ("SORT a:{:key}", "it may stop the server"),
    ("BLPOP a:{:key} 0", "it waits, and keeps a connection from all others"),
    ("SUBSCRIBE :key", "it changes what the connection is for"),
    ("PUBLISH a:{:key} x", "it changes what the connection is for"),
    ("SELECT :key", "it holds for the connection, which all services share"),
    ("AUTH :key", "it holds for the connection, which all services share"),
    ("HELLO :key", "it holds for the connection, which all services share"),
    ("CLIENT KILL :key", "is not for a statement"),
    ("MULTI", "`MULTI` is not for a statement: it is said by the data proxy"),
    ("WATCH a:{:key}", "it is said by the data proxy"),
    ("EVAL :key 0", "it runs a program, which reaches any key"),
    ("FCALL :key 0", "it runs a program, which reaches any key"),
    ("SCAN :key", "`SCAN` is not for a statement: it names no key"),
    ("RANDOMKEY", "it names no key"),
    ("ZUNION :key a", "it reaches keys that depend on its other words"),
    ("COPY a:{:key} b DB 1", "it reaches another database"),
    ("MOVE a:{:key} 1", "it reaches another database"),
    ('GET ""', "a key is empty"),
]


def statement(body, name="a", params="key text"):
    used = f"-- params: {params}\n" if ":" + params.split()[0] in body else ""
    return f"-- name: {name} :one\n-- services: asker\n{used}{body}\n"


@unittest.skipUnless(AtRedis.installed(), "there is no Redis")
class Redis(unittest.TestCase):
    def test_replies_are_rows(self):
        with DataServer(AtRedis) as server:
            self.assertEqual(server.ask("one", "user_by_id", 2), (200, {"id": "2", "name": "bob", "balance": "50"}))
            self.assertEqual(server.ask("one", "user_by_id", 9), (200, None))
            self.assertEqual(server.ask("many", "users"), (200, [{"value": "ann"}, {"value": "bob"}]))
            self.assertEqual([server.ask("one", "visit", "/", count) for count in (1, 41)], [(200, {"value": 1}), (200, {"value": 42})])
            self.assertEqual(server.ask("one", "visits", "/"), (200, {"value": "42"}))
            self.assertEqual(server.ask("one", "visits", "/none"), (200, None))
            self.assertEqual(server.ask("one", "score", "ann", 1.5), (200, {"value": 1.5}))
            self.assertEqual(server.ask("many", "scores", of="other"), (200, [{"field": "ann", "value": 1.5}]))
            self.assertEqual(server.ask("exec", "open_session", "x", ["ann"], 60), (200, 1))
            self.assertEqual(server.ask("one", "session", "x"), (200, {"value": '["ann"]'}))
            self.assertEqual(server.engine.at.ask("TTL session:x"), "60\n")
            status, results = server.ask("transaction", "two_notes", ["a"], ["b"])
            self.assertEqual((status, [result["changed"] for result in results]), (200, [1, 2]))

    def test_nobody_calls_what_was_not_granted(self):
        with DataServer(AtRedis) as server:
            said = {server.ask("many", name, of=of) for of, name in
                    [("asker", "secret"), ("other", "user_by_id"), ("other", "two_notes"), ("asker", "nothing"), ("asker", "GET"), ("asker", "")]}
            self.assertEqual(said, {(502, "Refused: there is no such statement for this service")})
            self.assertEqual(server.ask("one", "secret", of="other"), (200, {"value": "nobody knows"}))

    def test_values_are_values_whatever_they_say(self):
        with DataServer(AtRedis) as server:
            texts = list(dict.fromkeys([*INJECTIONS, *FRAGMENTS]))
            for text in texts:
                with self.subTest(text=text):
                    # In a key, as a text, and as bytes.
                    self.assertEqual(server.ask("one", "visit", text, 7), (200, {"value": 7}))
                    self.assertEqual(server.ask("one", "visits", text), (200, {"value": "7"}))
                    self.assertEqual(server.ask("exec", "note", text)[0], 200)
                    self.assertEqual(server.ask("exec", "open_session", text, [text], 60), (200, 1))
                    self.assertEqual(server.ask("one", "session", text), (200, {"value": json.dumps([text], ensure_ascii=False, separators=(",", ":"))}))
            keys = server.engine.at.ask("DBSIZE").strip()
            self.assertEqual(int(keys), 4 + 2 * len(texts) + 1)
            self.assertEqual(server.engine.at.ask("LLEN notes").strip(), str(len(texts)))
            for values in [("/",), ("/", "1"), ("/", 1.5), ("/", None), (None, 1), (["a"], 1), ("/", 1, 2)]:
                with self.subTest(values=values):
                    status, said = server.ask("one", "visit", *values)
                    self.assertEqual((status, said.split(":")[0]), (502, "Parameters"))
            self.assertEqual(server.ask("one", "secret", of="other"), (200, {"value": "nobody knows"}))

    def test_what_the_server_refuses_is_said(self):
        with DataServer(AtRedis) as server:
            self.assertEqual(server.ask("one", "visit", "/", 2**63 - 1)[0], 200)
            self.assertEqual(server.ask("one", "visit", "/", 1), (502, "Parameters: ERR increment or decrement would overflow"))
            server.engine.at.ask("RPUSH visits:list x")
            status, said = server.ask("one", "visit", "list", 1)
            self.assertEqual((status, said.split(":")[0], "WRONGTYPE" in said), (502, "Constraint", True))
            self.assertEqual(server.ask("exec", "open_session", "x", ["a"], -1)[1].split(":")[0], "Parameters")
            # Nothing of it was a reason to connect anew, or to fail the next one.
            self.assertEqual(server.ask("one", "visit", "/2", 1), (200, {"value": 1}))

    def test_a_transaction_that_fails_says_what_holds(self):
        with DataServer(AtRedis) as server:
            # The first has counted, and the second cannot hold: nothing is undone, and nobody is told otherwise.
            status, said = server.ask("transaction", "visit_and_push", ["/", 1], ["/"])
            why = "`push_to_visits` has failed, and Redis does not undo the others: WRONGTYPE"
            self.assertEqual((status, f"lost while the call was under way: {why}" in said), (503, True), said)
            self.assertEqual(server.ask("one", "visits", "/"), (200, {"value": "1"}))
            self.assertTrue(until(lambda: why in server.log(), 10), server.log())
            # Neither has held.
            server.engine.at.ask("HSET visits:h a b")
            self.assertEqual(server.ask("transaction", "visit_and_push", ["h", 1], ["h"])[1].split(":")[0], "Constraint")
            # What is refused before it is carried out has changed nothing.
            server.engine.at.ask("ACL SETUSER shop -rpush")
            status, said = server.ask("transaction", "visit_and_push", ["/3", 1], ["/3"])
            server.engine.at.ask("ACL SETUSER shop +rpush")
            self.assertEqual((status, said.split(":")[0], "NOPERM" in said or "permissions" in said), (502, "Database", True), said)
            self.assertEqual(server.ask("one", "visits", "/3"), (200, None))
            self.assertEqual(server.ask("one", "visit", "/3", 1), (200, {"value": 1}))

    def test_keys_that_overlap_are_said(self):
        odd = "-- name: ann :one\n-- services: other\nGET visits:ann\n"
        with DataServer(AtRedis, lambda text: f"{text}\n{odd}") as server:
            line = 1 + server.statements.splitlines().index("-- name: ann :one")
            first = 1 + server.statements.splitlines().index("-- name: visit :one")
            said = f"`visit` in line {first} and `ann` in line {line} can reach the same key: a value can make one of `visits:{{:page}}` and `visits:ann`"
            self.assertTrue(until(lambda: f"warning [dataproxy main/catalog] the statements: line {first}: {said}" in server.log(), 10), server.log())
            checked = server.command("check", server.config)
            self.assertEqual(checked.returncode, 0, checked.stderr)
            self.assertIn(said, checked.stderr)
            self.assertIn("declare the parameter an `int`", checked.stderr)
            self.assertEqual((checked.stderr + server.log()).count("can reach the same key"), 2)

    def test_what_is_known_of_commands_without_a_server_is_what_it_says(self):
        text = (TOP / "crates/statements/src/usual.rs").read_text()
        known = set(re.findall(r'"([^"]+)"', text.partition("READS:")[2].partition("];")[0]))
        with RedisServer() as at:
            told = json.loads(subprocess.run([*at.client(None), "--json", "COMMAND"], capture_output=True, text=True, check=True).stdout)
        commands = {}
        for one in told:
            commands |= {about[0]: about for about in (one, *(one[9] or []))}
        flags = {name: set(about[2]) | set(about[6]) for name, about in commands.items()}
        self.assertEqual([name for name in known if "readonly" not in flags.get(name, {"readonly"})], [])
        places = {name: (1, 1, 1) for name in known}
        for *numbers, names in re.findall(r"\(\s*\((-?\d+), (-?\d+), (-?\d+)\),\s*&\[([^]]*)\]", text):
            places |= {name: tuple(map(int, numbers)) for name in re.findall(r'"([^"]+)"', names)}
        self.assertIn("bitop", places)
        single = {name: keys for name, keys in places.items() if name in commands and "|" not in name and not commands[name][9]}
        self.assertEqual({name: keys for name, keys in single.items() if tuple(commands[name][3:6]) != keys}, {})

    def test_limits_hold(self):
        with DataServer(AtRedis) as server:
            for number in range(5):
                server.ask("exec", "note", f"n{number}")
            self.assertEqual(len(server.ask("many", "all_notes", 2)[1]), 3)
            self.assertEqual(server.ask("many", "all_notes", 3), (502, "TooLarge: it has more than 3 rows"))
            # What was taken is taken, and nobody is told that it was not.
            status, said = server.ask("many", "take_notes")
            why = "it has been carried out, but it has more than 3 rows"
            self.assertEqual((status, f"lost while the call was under way: {why}" in said), (503, True), said)
            self.assertTrue(until(lambda: why in server.log(), 10), server.log())
            server.engine.at.ask(f"RPUSH notes {'x' * 100_000}")
            for _ in range(3):
                self.assertEqual(server.ask("many", "all_notes", 0), (502, "TooLarge: it has more than 1024 bytes"))
            self.assertEqual(server.ask("one", "user_by_id", 1)[0], 200)

    def test_each_mistake_is_said_with_its_line(self):
        with DataServer(AtRedis) as server:
            for body, said in REFUSED:
                with self.subTest(body=body):
                    server.write("catalog.sql", server.statements + statement(body))
                    checked = server.command("data", "check")
                    self.assertEqual(checked.returncode, 2, checked.stdout)
                    line = len((server.statements + statement(body)).splitlines())
                    self.assertIn(f"line {line}: `a`: ", checked.stdout)
                    self.assertIn(said, checked.stdout)
            server.write("catalog.sql", server.statements + statement("GET a:{:key}", params="key text?"))
            self.assertIn("`:key` may be NULL, which Redis does not have: write `key text`", server.command("data", "check").stdout)
            server.write("catalog.sql", server.statements)
            checked = server.command("data", "check")
            self.assertEqual((checked.returncode, f"main/catalog: ok, with database 0 at unix:{server.engine.at.socket}" in checked.stdout), (0, True), checked)

    def test_a_mistake_keeps_the_proxy_from_starting(self):
        with DataServer(AtRedis, lambda text: text + statement("FLUSHALL"), answers=200) as server:
            self.assertTrue(until(lambda: "`a`: `FLUSHALL` is not for a statement" in server.log(), 10), server.log())
            self.assertEqual(server.status("/", "fine.test"), 200)

    def test_a_wrong_password_is_said_and_not_shown(self):
        with DataServer(AtRedis) as server:
            server.write("password", "other-secret\n")
            checked = server.command("data", "check")
            self.assertIn("the server refuses the login: WRONGPASS", checked.stdout)
            self.assertNotIn("other-secret", checked.stdout + checked.stderr)

    def test_code_for_services(self):
        with DataServer(AtRedis) as server:
            made = server.command("data", "gen", "main/catalog", "--service", "asker")
            self.assertEqual((made.returncode, made.stderr), (0, ""))
            self.assertIn("pub async fn visit(&self, page: &str, count: i64) -> Result<Option<Vec<AnyValue>>, DataError>", made.stdout)
            self.assertEqual(re.search("secret", made.stdout), None)


@unittest.skipUnless(AtRedis.installed(), "there is no Redis")
@pytest.mark.slow
class Counter(unittest.TestCase):
    def test_no_acknowledged_count_is_lost_or_counted_twice(self):
        with DataServer(AtRedis) as server:
            counted, unknown, stopped = [], [], threading.Event()
            words = urllib.parse.urlencode({"statement": "visit", "values": '["/",1]'})

            def count():
                while not stopped.is_set():
                    try:
                        answer = Connection(server.port).get(f"/asker/one?{words}", "main.test")
                    except OSError:
                        unknown.append(None)
                        continue
                    if answer.status == 200:
                        counted.append(json.loads(answer.text)["value"])
                    elif "lost while the call was under way" in answer.text:
                        unknown.append(answer.text)

            with concurrent.futures.ThreadPoolExecutor(4) as pool:
                clients = [pool.submit(count) for _ in range(4)]
                try:
                    for _ in range(3):
                        before = len(counted)
                        self.assertTrue(until(lambda: len(counted) > before + 20, 15))
                        server.engine.at.kill()
                        server.engine.at.start()
                    before = len(counted)
                    self.assertTrue(until(lambda: len(counted) > before + 20, 15))
                finally:
                    stopped.set()
                for client in clients:
                    client.result(20)
            self.assertEqual(len(counted), len(set(counted)), "a count was given twice")
            there = int(server.engine.at.ask("GET visits:/"))
            self.assertGreaterEqual(there, max(counted))
            self.assertLessEqual(len(counted), there)
            self.assertLessEqual(there, len(counted) + len(unknown))


if __name__ == "__main__":
    unittest.main()
