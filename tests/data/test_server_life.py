"""Data proxies of database servers, and their connectors, come and go with the services that have their source."""

import unittest

from client import Load, until
from database_servers import Postgresql
from databases import ANY_SCHEMA, ANY_STATEMENTS, AtPostgresql, DataServer, Sqlite, asks, data_site
from harness import rootless_too, site
from reloading import Reloading

ASK = "/asker/many?statement=users"


class AtServer(Reloading):
    """A server whose source `catalog` is at a PostgreSQL; `sites` has another configuration of it."""

    def __init__(self, **more):
        self.engine = AtPostgresql()
        files = self.engine.files(ANY_SCHEMA.format(**AtPostgresql.words)) | {"catalog.sql": ANY_STATEMENTS.format(**AtPostgresql.words)}
        super().__init__(self.other(**more), programs=("asker",), files=files)

    def other(self, source=None, **more):
        source = self.engine.settings() | (source or {})
        return [data_site("main", [asks("asker"), asks("other")], source=source, **more), site("fine")]

    def ask(self):
        return self.get(ASK, "main.test").status

    def titles(self):
        return sorted(process.title for process in self.processes("connector") + self.processes("dataproxy"))


class AsksForPasswords(Postgresql):
    """A PostgreSQL that wants to see the password itself, as whoever sat in its place could."""

    def install(self):
        super().install()
        rules = self.folder / "data" / "pg_hba.conf"
        rules.write_text(rules.read_text().replace("local all all scram-sha-256", "local all all password"))


@unittest.skipUnless(AtPostgresql.installed(), "there is no PostgreSQL")
@rootless_too
class ServerLife(unittest.TestCase):
    def test_a_connector_starts_with_a_service_and_goes_with_the_last(self):
        with AtServer(start="on-demand", idle_stop="1s") as server:
            self.assertEqual(server.titles(), [])
            for _ in range(2):
                self.assertEqual(server.ask(), 200)
                self.assertEqual(server.titles(), ["connector main/catalog:data", "dataproxy main/catalog"])
                self.assertTrue(until(lambda: not server.titles(), 20), server.titles())

    def test_sources_and_connectors_change_under_load(self):
        with AtServer() as server:
            steady = Load(server.port, ASK, "main.test", seconds=4, connections=4)
            proxy = server.process("dataproxy main/catalog")
            self.assertIsNone(server.reload(server.other({"connections": 2})))
            self.assertTrue(until(lambda: not proxy.alive, 10))
            for name in ("main/catalog:data:connector", "main/catalog:data"):
                server.relaunch(name)
            # Nothing needs a connector whose connections are made.
            connector = server.process("connector main/catalog:data")
            connector.kill()
            self.assertTrue(until(lambda: server.titles() == ["connector main/catalog:data", "dataproxy main/catalog"], 10))
            # A password that is wrong is found before the proxy that has the right one goes.
            server.write("password", "wrong")
            self.assertIn("dataproxy main/catalog: it ended", server.reload(server.other({"connections": 3})))
            self.assertIn('password authentication failed for user "shop"', server.log())
            steady.end().assert_clean(self)

    def test_a_server_is_not_told_the_password_as_it_is(self):
        with AsksForPasswords() as at, DataServer(AtPostgresql(at), answers=False) as server:
            self.assertTrue(until(lambda: "it asks for the password as it is" in server.log(), 20), server.log())

    def test_a_source_that_moves_into_a_file_needs_no_connector(self):
        with AtServer() as server:
            self.assertEqual(server.ask(), 200)
            for name, text in (("schema.sql", ANY_SCHEMA), ("catalog.sql", ANY_STATEMENTS)):
                server.write(name, text.format(**Sqlite.words))
            self.assertIsNone(server.reload([data_site("main", [asks("asker"), asks("other")]), site("fine")]))
            self.assertEqual(server.ask(), 200)
            self.assertTrue(until(lambda: server.titles() == ["dataproxy main/catalog"], 10), server.titles())


if __name__ == "__main__":
    unittest.main()
