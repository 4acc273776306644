"""Data proxies come and go with the services that have their source."""

import json
import unittest

from client import Load, until
from databases import SCHEMA, STATEMENTS, DataServer, asks, data_site
from harness import ROOTLESS, rootless_too, site
from reloading import Reloading

DEMAND = {"start": "on-demand", "idle_stop": "1s"}
ASK = "/asker/many?statement=users"


def main_site(name="main", services=("asker", "other"), statements="catalog.sql", **more):
    """A site with a database, and these services that may have it."""
    return data_site(name, [asks(one) for one in services], statements, **more)


class ReloadedData(Reloading):
    """A server with files of statements, whose configuration is written again."""

    def __init__(self, sites, **more):
        files = {"catalog.sql": STATEMENTS, "alone.sql": STATEMENTS.replace("asker, other", "asker").replace("services: other", "services: asker"),
                 "wrong.sql": STATEMENTS.replace("FROM users", "FROM usres"), "schema.sql": SCHEMA}
        super().__init__(sites, programs=("asker",), files=files, **more)

    def proxies(self):
        return sorted(process.title for process in self.processes("dataproxy"))

    def ask(self, host="main.test", path=ASK):
        answer = self.get(path, host)
        return answer.status, answer.text


@rootless_too
class Reload(unittest.TestCase):
    def test_sources_are_added_changed_and_removed_under_load(self):
        with ReloadedData([main_site(), site("fine")]) as server:
            steady = Load(server.port, ASK, "main.test", seconds=6, connections=4)
            proxy = server.process("dataproxy main/catalog")
            self.assertIsNone(server.reload([main_site(), site("fine"), main_site("second", ["asker"], "alone.sql")]))
            self.assertEqual(server.ask("second.test")[0], 200)
            self.assertEqual(server.proxies(), ["dataproxy main/catalog", "dataproxy second/catalog"])
            # Each has a database of its own, though the names are the same.
            self.assertEqual(server.ask("second.test", "/asker/exec?statement=add_user&values=[%22eve%22]"), (200, "1\n"))
            self.assertNotIn("eve", server.ask()[1])
            self.assertEqual(server.process("dataproxy main/catalog"), proxy)
            # A changed site has another proxy; what was under way is answered, and the rows stay.
            self.assertIsNone(server.reload([main_site(), site("fine"), main_site("second", ["asker"], "alone.sql", index=["other.html"])]))
            self.assertIn("eve", server.ask("second.test")[1])
            self.assertIsNone(server.reload([main_site(), site("fine")]))
            self.assertTrue(until(lambda: server.proxies() == ["dataproxy main/catalog"], 15), server.proxies())
            steady.end().assert_clean(self)

    def test_a_file_with_a_mistake_changes_nothing(self):
        with ReloadedData([main_site(), site("fine")]) as server:
            before = server.pids("dataproxy", "bin/asker", "site")
            said = server.reload([main_site(), site("fine"), main_site("second", ["asker"], "wrong.sql")])
            self.assertIn("dataproxy second/catalog", said)
            # The processes of the site that is not to be are on their way out.
            until(lambda: server.pids("dataproxy", "bin/asker", "site") == before, 10)
            self.assertEqual(server.pids("dataproxy", "bin/asker", "site"), before)
            self.assertEqual((server.ask()[0], server.status("/", "second.test")), (200, 404))


@rootless_too
class OnDemand(unittest.TestCase):
    def test_a_proxy_starts_with_a_service_and_goes_with_the_last(self):
        with ReloadedData([main_site() | DEMAND, site("fine")]) as server:
            self.assertEqual(server.proxies(), [])
            self.assertEqual(server.status("/"), 200)
            self.assertEqual(server.proxies(), [])
            for _ in range(2):
                self.assertEqual(server.ask()[0], 200)
                self.assertEqual(server.proxies(), ["dataproxy main/catalog"])
                proxy = server.process("dataproxy")
                self.assertEqual(server.ask(path="/other/many?statement=users")[0], 200)
                self.assertEqual(server.process("dataproxy"), proxy)
                self.assertTrue(until(lambda: not server.processes("bin/asker") and not server.proxies(), 15), server.processes())


@rootless_too
class Pairs(unittest.TestCase):
    """With what else a service can have."""

    def serve(self, *services, **more):
        return self.enterContext(ReloadedData([data_site("main", [*services, asks("other")], **more), site("fine")]))

    def test_workers_that_come_and_go(self):
        server = self.serve(asks("asker", workers=3, max_requests=100))
        loads = [Load(server.port, ASK, "main.test", seconds=5, connections=4, close=close) for close in (False, True)]
        for load in loads:
            load.finish().assert_clean(self, 300)

    def test_who_takes_connections(self):
        server = self.serve(asks("asker", takes_connections=True, workers={"min": 1, "max": 2}))
        load = Load(server.port, ASK, "main.test", seconds=4, connections=6, close=True)
        for name in ("main/asker", "main/catalog:data", "main/asker"):
            server.relaunch(name)
        load.end().assert_clean(self, 200)

    def test_on_demand_with_workers(self):
        server = self.serve(asks("asker", workers=2), start="on-demand", idle_stop="1s")
        for _ in range(3):
            self.assertEqual(server.status(ASK), 200)
            self.assertTrue(until(lambda: not server.processes("dataproxy") and not server.processes("bin/asker"), 15), server.processes())


@rootless_too
class Words(unittest.TestCase):
    def test_a_proxy_is_named(self):
        with DataServer() as server:
            status = server.command("status", "--run-dir", "run").stdout
            self.assertRegex(status, r"dataproxy +main/catalog:data ")
            answer = server.command("relaunch", "--run-dir", "run", "main/catalog:dat")
            self.assertIn("main/catalog:data", answer.stderr)
            text = server.command("explain", "--config", server.config, "main/catalog:data").stdout
            self.assertIn("carries out the named statements of catalog for services of main", text)
            self.assertRegex(text, r"all +data +main/catalog")
            self.assertRegex(text, r"\nIS CALLED BY .*\nasker +\d+ +\d+ ")
            text = server.command("explain", "--config", server.config, "main/asker").stdout
            self.assertRegex(text, r"\nusers +catalog +reads +users +-\n")
            # With one uid for all, everything falls, whatever the statements say.
            if not ROOTLESS:
                self.assertRegex(text, r"part +table +main/catalog.users +it calls statements that change it: ")
            self.assertNotIn("it is not known what services may ask", text)
            server.write("catalog.sql", "SELECT 1;")
            text = server.command("explain", "--config", server.config, "main/asker").stdout
            self.assertRegex(text, r"note: it is not known what services may ask a database: .*catalog.sql: ")

    def test_check_says_what_is_wrong_with_statements(self):
        wrong = "-- name: a :one\n-- services: asker, stranger\nSELECT 1;\n-- name: b :on\n-- services: asker\nSELECT :x;\n"
        with ReloadedData([site("fine")]) as server:
            path = server.write("catalog.sql", wrong)
            server.write_config([main_site(services=["asker"]), site("fine")])
            said = server.command("check", server.config)
            self.assertEqual((said.returncode, server.command("check", "--strict", server.config).returncode), (0, 2))
            self.assertIn(f"`statements` {path} has a mistake in line 4, so its data proxy will not start: behind the name stands what the statement gives back", said.stderr)
            path.write_text(wrong.replace(":on\n", ":one\n").replace(":x", "1"))
            said = server.command("check", server.config).stderr
            self.assertIn("grants something in line 1 to `stranger`, which is no service with this source", said)

    def test_data_check_asks_the_database_or_the_schema(self):
        with ReloadedData([site("fine")]) as server:
            server.write_config([main_site(), main_site("second", statements="wrong.sql"), site("fine")])
            said = server.command("data", "check", "--config", server.config)
            self.assertEqual(said.returncode, 2)
            self.assertRegex(said.stdout, r"main/catalog: ok, with \S+/schema.sql\n")
            self.assertIn("line 11: `users`: no such table: usres", said.stdout)
            self.assertEqual(server.command("data", "check", "--config", server.config, "main/catalog").returncode, 0)
            said = server.command("data", "check", "--config", server.config, "main/catalogue")
            self.assertEqual((said.returncode, said.stdout), (2, ""))
            self.assertIn("the configuration has main/catalog, second/catalog", said.stderr)
        with DataServer() as server:
            # The database counts, once there is one.
            server.write("schema.sql", "CREATE TABLE nothing (id);")
            checked = json.loads(server.command("data", "check", "--config", server.config, "--json").stdout)
            self.assertEqual(checked, [{"source": "main/catalog", "statements": str(server.folder / "catalog.sql"),
                                        "with": str(server.database()), "mistakes": []}])

    def test_a_source_that_nobody_has_is_told(self):
        with ReloadedData([site("fine")]) as server:
            server.write_config([main_site(services=()), site("fine")])
            answer = server.command("check", server.config)
            self.assertEqual(answer.returncode, 0, answer.stderr)
            self.assertIn("nobody can call its statements", answer.stderr)


if __name__ == "__main__":
    unittest.main()
