"""Data proxies and databases that fail under load: what was acknowledged is there, what failed is said, and nothing happens twice."""

import contextlib
import os
import signal
import sqlite3
import subprocess
import tempfile
import unittest
from pathlib import Path

import pytest

from client import until
from databases import AtMariaDb, AtPostgresql, AtRedis, DataServer, Sqlite, at_every
from harness import rootless_too, wait_for_time
from upgrading import UpgradingServer
from writing import WRITERS, Writing, look

pytestmark = pytest.mark.slow


class UpgradedNotes(UpgradingServer, DataServer):
    """A server whose programs can be replaced."""


@at_every
@rootless_too
class Loss(unittest.TestCase):
    engine = Sqlite

    def test_a_killed_proxy(self):
        with DataServer(self.engine) as server:
            writing = Writing(server.port)
            for _ in range(4):
                proxy = server.proxy()
                wait_for_time(0.3)
                proxy.kill()
                self.assertTrue(until(lambda: not proxy.alive and server.proxy().alive, 10))
                before = len(writing.written)
                self.assertTrue(until(lambda: len(writing.written) > before + 5, 15), list(writing.failed.items())[-3:])
            writing.finish()
            look(self, server, writing)
            self.assertTrue(writing.failed)

    def test_a_proxy_that_is_relaunched_loses_nothing(self):
        with DataServer(self.engine) as server:
            writing = Writing(server.port)
            for _ in range(4):
                proxy, before = server.proxy(), len(writing.written)
                server.relaunch("main/catalog:data")
                self.assertTrue(until(lambda: not proxy.alive, 15), "the proxy of before stays")
                self.assertTrue(until(lambda: len(writing.written) > before + 20, 10))
            server.relaunch("main/asker")
            writing.finish()
            self.assertEqual(writing.failed, {})
            look(self, server, writing)

    def test_a_relaunch_that_fails_loses_nothing(self):
        with DataServer(self.engine) as server:
            writing = Writing(server.port)
            proxy = server.proxy()
            server.write("catalog.sql", server.statements.replace(*self.engine.mistake))
            for _ in range(4):
                before = len(writing.written)
                with self.assertRaisesRegex(AssertionError, "the new process ended with exit status 1"):
                    server.relaunch("main/catalog:data")
                self.assertTrue(until(lambda: len(writing.written) > before + 20, 10))
            writing.finish()
            self.assertEqual((writing.failed, proxy.alive), ({}, True))
            look(self, server, writing)

    def test_an_upgrade_loses_nothing(self):
        with UpgradedNotes(self.engine) as server:
            writing = Writing(server.port)
            self.assertTrue(until(lambda: len(writing.written) > 20, 10))
            proxy, before = server.proxy(), len(writing.written)
            answer = server.command("upgrade", "--run-dir", "run")
            self.assertEqual(answer.returncode, 0, answer.stderr)
            self.assertTrue(until(lambda: not proxy.alive and len(writing.written) > before + 20, 15))
            writing.finish()
            self.assertEqual(writing.failed, {})
            look(self, server, writing)

    def test_a_proxy_that_is_paused_keeps_nobody_else_waiting(self):
        with DataServer(self.engine) as server:
            proxy = server.proxy()
            proxy.signal(signal.SIGSTOP)
            writing = Writing(server.port)
            wait_for_time(0.5)
            self.assertEqual((server.status("/"), server.status("/", "fine.test"), writing.written), (200, 200, []))
            proxy.signal(signal.SIGCONT)
            self.assertTrue(until(lambda: len(writing.written) > 20, 10))
            writing.finish()
            look(self, server, writing)


@rootless_too
class Locked(unittest.TestCase):
    def test_a_database_that_somebody_else_has_locked(self):
        with DataServer() as server:
            self.assertEqual(server.ask("exec", "note", "x-1")[0], 200)
            with contextlib.closing(sqlite3.connect(server.database(), isolation_level=None)) as database:
                database.execute("BEGIN IMMEDIATE")
                status, said = server.ask("exec", "note", "x-2")
                self.assertEqual((status, said.split(":")[0]), (502, "Database"), said)
                # Who reads waits for nobody.
                self.assertEqual(server.ask("many", "users")[0], 200)
                database.execute("ROLLBACK")
            self.assertEqual(server.ask("exec", "note", "x-3")[0], 200)


class AtServers:
    """What happens to a database server, under load."""

    def test_a_killed_server(self):
        with DataServer(self.engine) as server:
            writing, at = Writing(server.port), server.engine.at
            for _ in range(4):
                before = len(writing.written)
                self.assertTrue(until(lambda: len(writing.written) > before + 20, 15), list(writing.failed.items())[-3:])
                at.kill()
                # Who asks meanwhile is told so, and nobody waits.
                self.assertTrue(until(lambda: server.ask("one", "user_by_id", 1)[0] == 502, 10))
                self.assertEqual(server.status("/"), 200)
                at.start()
            before = len(writing.written)
            self.assertTrue(until(lambda: len(writing.written) > before + 20, 15), list(writing.failed.items())[-3:])
            look(self, server, writing.finish())

    def test_a_server_that_is_restarted(self):
        with DataServer(self.engine) as server:
            writing, proxy = Writing(server.port), server.proxy()
            for _ in range(3):
                before = len(writing.written)
                self.assertTrue(until(lambda: len(writing.written) > before + 20, 15), list(writing.failed.items())[-3:])
                server.engine.at.restart()
            before = len(writing.written)
            self.assertTrue(until(lambda: len(writing.written) > before + 20, 15), list(writing.failed.items())[-3:])
            look(self, server, writing.finish())
            # The proxy connects anew; it need not start anew.
            self.assertEqual(server.proxy(), proxy)

    def test_a_server_that_is_paused(self):
        with DataServer(self.engine, lambda text: text.replace("-- params: mark text", "-- params: mark text\n-- timeout: 1s")) as server:
            writing = Writing(server.port)
            self.assertTrue(until(lambda: len(writing.written) > 20, 15))
            server.engine.at.pause()
            try:
                # Each call has an end, though the server says nothing.
                self.assertTrue(until(lambda: len(writing.failed) >= 2 * WRITERS, 30), writing.failed)
                self.assertEqual((server.status("/"), server.status("/", "fine.test")), (200, 200))
            finally:
                server.engine.at.go_on()
            before = len(writing.written)
            self.assertTrue(until(lambda: len(writing.written) > before + 20, 20), list(writing.failed.items())[-3:])
            look(self, server, writing.finish())

    def test_a_proxy_starts_when_its_server_does(self):
        with DataServer(self.engine) as server:
            proxy = server.proxy()
            server.engine.at.stop()
            try:
                proxy.kill()
                self.assertTrue(until(lambda: "the server cannot be connected to: nobody listens there" in server.log(), 15))
                self.assertEqual(server.status("/"), 200)
            finally:
                server.engine.at.start()
            self.assertTrue(until(lambda: server.ask("one", "user_by_id", 1)[0] == 200, 30), server.log())


@unittest.skipUnless(AtPostgresql.installed(), "there is no PostgreSQL")
class ServerAtPostgresql(AtServers, unittest.TestCase):
    engine = AtPostgresql


@unittest.skipUnless(AtMariaDb.installed(), "there is no MariaDB")
class ServerAtMariaDb(AtServers, unittest.TestCase):
    engine = AtMariaDb


@unittest.skipUnless(AtRedis.installed(), "there is no Redis")
class ServerAtRedis(AtServers, unittest.TestCase):
    engine = AtRedis


class Full(unittest.TestCase):
    """Root's alone: the disk of the databases is full for a while."""

    def fill(self, folder, server):
        """Fills the disk while clients write; what they are told then, and afterwards, is true."""
        writing = Writing(server.port)
        self.assertTrue(until(lambda: len(writing.written) > 20, 10))
        filler = folder / "filler"
        with contextlib.suppress(OSError), open(filler, "wb") as file:
            while True:
                file.write(bytes(4096))
                file.flush()
        is_full = lambda: any("full" in why or "No space" in why for why in writing.failed.values())
        self.assertTrue(until(is_full, 60), list(writing.failed.items())[-3:])
        # What is there can be read.
        self.assertEqual(server.ask("many", "users")[0], 200)
        filler.unlink()
        before = len(writing.written)
        self.assertTrue(until(lambda: len(writing.written) > before + 20, 20), list(writing.failed.items())[-3:])
        look(self, server, writing.finish())

    def at_server(self, kind, megabytes):
        with tempfile.TemporaryDirectory(prefix="bulkhead-full-") as folder:
            os.chmod(folder, 0o755)
            subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={megabytes}m,mode=755", "bulkhead-test", folder], check=True)
            try:
                with kind.kind(Path(folder) / "server") as at, DataServer(kind(at)) as server:
                    self.fill(Path(folder), server)
            finally:
                subprocess.run(["umount", "-l", folder], check=False)

    @unittest.skipUnless(AtPostgresql.installed(), "there is no PostgreSQL")
    def test_a_full_disk_of_postgresql(self):
        self.at_server(AtPostgresql, 120)

    @unittest.skipUnless(AtMariaDb.installed(), "there is no MariaDB")
    def test_a_full_disk_of_mariadb(self):
        self.at_server(AtMariaDb, 200)

    def test_a_full_disk(self):
        server = DataServer()
        state = server.folder / "state"
        state.mkdir(mode=0o755)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m,mode=755", "bulkhead-test", state], check=True)
        try:
            with server:
                self.fill(state, server)
        finally:
            subprocess.run(["umount", "-l", state], check=False)


if __name__ == "__main__":
    unittest.main()
