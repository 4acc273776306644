"""Files of tenants' on a file system that does not answer any more: the launcher waits for none of them, and others see nothing."""

import os
import re
import subprocess
import tempfile
import unittest
from pathlib import Path

from client import until
from fuse_tree import Tree
from harness import Server, configuration, free_port, program, service, site
from slow_programs import STEP_MS, step_ms
from tls_server import certificate

#: A user of a file of users, with this password.
USER = "a:$2y$04$CCCCCCCCCCCCCCCCCCCCCu6Ry1Yy8D0LpHlAr5zQ3LVvY3YF8XPqS\n"
NOT_STARTED = r"{} is not started: files that it needs are on a file system"


class FarServer(Server):
    """A server whose site `far` has everything on a file system of a tenant's: `far`, which shows `real`."""

    def __init__(self, **settings):
        with tempfile.TemporaryDirectory() as folder:
            pem = b"".join(certificate(Path(folder), "far", "ec", "far.test")).decode()
        sites = [
            site("main", [service()]),
            site("far", [
                service(command=["far/bin/probe"], read=["far/data"], data=["catalog"]),
                service("pages", "/pages", command=["bin/pages"], templates=True),
            ],
                root="far/www", certificates=["far/far.pem"], templates={"folder": "far/templates"},
                data=[{"name": "catalog", "statements": "far/catalog.sql", "schema": "far/schema.sql"}],
                route=[{"path": "/closed/", "auth": {"users": "far/users", "realm": "x"}},
                       {"path": "/alias/", "alias": "far/alias"},
                       {"path": "/behind/", "upstream": "unix:far/run/socket"}]),
        ]
        files = {
            "real/far.pem": pem, "real/templates/page.html": "page\n", "real/www/index.html": "far\n", "real/www/closed/x": "closed\n",
            "real/alias/x": "alias\n", "real/data/x": "data\n", "real/run/x": "", "real/users": USER,
            "real/schema.sql": "CREATE TABLE IF NOT EXISTS t (a INTEGER) STRICT;\n",
            "real/catalog.sql": "-- name: one :one\n-- services: probe\nSELECT 1;\n",
        }
        self.tls_port = free_port()
        tls = f'\n[[listen]]\naddress = "127.0.0.1:{self.tls_port}"\ntls = true\n'
        text = lambda port: configuration(port, sites, {"tls": {"reread": "1s"}} | settings) + tls
        super().__init__([], ("probe", "pages"), files=files, text=text)
        self.write("main/index.html", "main\n")
        self.put_program("probe")
        for folder in ("far", "real"):
            (self.folder / folder).mkdir(exist_ok=True)
        for path in [self.folder / "real", *(self.folder / "real").rglob("*")]:
            os.chown(path, 1001, 1001)
        self.tree = None

    def put_program(self, name):
        self.write("real/bin/probe", Path(program(name)).read_bytes()).chmod(0o755)

    def mount(self):
        self.tree = Tree(self.folder / "real", self.folder / "far").__enter__()

    def start(self):
        if self.tree is None:
            self.mount()
        super().start()

    def _end(self, failed):
        try:
            if self.launcher is not None and self.launcher.poll() is None:
                self.stop()
        finally:
            if self.tree is not None:
                self.tree.__exit__()
            super()._end(failed)


class SilentFiles(unittest.TestCase):
    def assert_others_served(self, server):
        self.assertEqual(server.status("/", timeout=2), 200)
        self.assertEqual(server.status("/probe", timeout=2), 200)

    def assert_far_served(self, server):
        for target, status in (("/", 200), ("/probe", 200), ("/pages", 200), ("/closed/x", 401), ("/alias/x", 200)):
            found = until(lambda: server.status(target, "far.test", timeout=2) == status, 10)
            self.assertTrue(found, (target, server.status(target, "far.test"), server.log()))

    def assert_tls_served(self, server):
        shown = until(lambda: b"-----BEGIN" in self.hello(server), 10)
        self.assertTrue(shown, server.log())

    def assert_not_asked_by_the_launcher(self, server):
        self.assertNotIn(server.launcher.pid, server.tree.askers)

    @staticmethod
    def hello(server):
        words = ["openssl", "s_client", "-connect", f"127.0.0.1:{server.tls_port}", "-servername", "far.test"]
        return subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, timeout=10, check=False).stdout

    def assert_quick(self, server):
        self.assertLess(step_ms(server), STEP_MS, server.log())

    def test_they_are_used_and_read_again(self):
        with FarServer() as server:
            self.assert_far_served(server)
            server.write("real/users", USER.replace("a:", "b:"))
            changed = lambda: re.search(r"users.*far/users", server.log())
            self.assertTrue(until(changed, 10), server.log())
            server.relaunch("far")
            self.assert_far_served(server)
            text = server.config.read_text()
            for there, missing in (("far/www", "far/none"), ("far/users", "far/none"), ("far/far.pem", "far/none"), ("far/bin", "far/none")):
                server.config.write_text(text.replace(f'"{there}', f'"{missing}'))
                answer = server.command("reload", "--run-dir", "run")
                self.assertNotEqual(answer.returncode, 0, missing)
                self.assertIn("does not exist", answer.stderr)
            server.write("real/users", "nonsense\n")
            server.config.write_text(text.replace('"realm" = "x"', '"realm" = "y"'))
            answer = server.command("reload", "--run-dir", "run")
            self.assertIn("far/users", answer.stderr)
            server.write("real/users", USER)
            answer = server.command("reload", "--run-dir", "run")
            self.assertEqual(answer.returncode, 0, answer.stderr)
            self.assert_tls_served(server)
            server.relaunch("signer")
            self.assert_tls_served(server)
            answer = server.command("upgrade", "--run-dir", "run", timeout=40)
            self.assertEqual(answer.returncode, 0, answer.stderr)
            self.assert_far_served(server)
            self.assert_tls_served(server)
            self.assert_quick(server)
            self.assert_not_asked_by_the_launcher(server)

    def test_whoever_needs_them_waits_and_nobody_else(self):
        with FarServer() as server:
            self.assert_far_served(server)
            server.tree.frozen = True
            for title in ("site far", "bin/probe", "bin/pages", "publisher far", "dataproxy far/catalog", "signer", "connector far"):
                found = server.processes(title)
                for process in found:
                    process.kill()
                self.assert_others_served(server)
            # Whoever answers for these files does not keep the changes of others waiting.
            server.config.write_text(server.config.read_text().replace('name = "main"', 'name = "main"\nbody_bytes = "2MiB"', 1))
            for _ in range(2):
                answer = server.command("reload", "--run-dir", "run", timeout=30)
                self.assertEqual(answer.returncode, 0, answer.stderr)
            self.assertIn("are not examined, as one of these has not answered in time", server.log())
            self.assertTrue(until(lambda: re.search(NOT_STARTED.format("site far"), server.log()), 20), server.log())
            self.assert_others_served(server)
            self.assertTrue(until(lambda: server.processes("signer"), 5))
            answer = server.command("relaunch", "--run-dir", "run", "far", timeout=30)
            self.assertNotEqual(answer.returncode, 0)
            self.assertIn("has not answered", answer.stderr)
            # A copy that waits is not waited for, and the signer that has the certificate stays.
            server.command("upgrade", "--run-dir", "run", timeout=60)
            self.assertTrue(until(lambda: "the process of before goes on" in server.log(), 20), server.log())
            self.assert_others_served(server)
            self.assert_quick(server)
            server.tree.frozen = False
            answer = server.command("relaunch", "--run-dir", "run", "far", timeout=30)
            self.assertEqual(answer.returncode, 0, answer.stderr)
            self.assert_far_served(server)
            self.assert_tls_served(server)
            self.assert_quick(server)
            self.assert_not_asked_by_the_launcher(server)

    def test_a_server_starts_without_them(self):
        server = FarServer()
        server.answers = 200
        server.mount()
        server.tree.frozen = True
        with server:
            self.assert_others_served(server)
            self.assertTrue(until(lambda: "serving on" in server.log(), 20), server.log())
            self.assert_quick(server)
            server.tree.frozen = False
            answer = server.command("relaunch", "--run-dir", "run", "far", timeout=30)
            self.assertEqual(answer.returncode, 0, answer.stderr)
            self.assert_far_served(server)
            self.assert_tls_served(server)


if __name__ == "__main__":
    unittest.main()
