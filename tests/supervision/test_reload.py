"""Reloads: what has changed in the configuration changes, nothing else does, and a mistake changes nothing."""

import shutil
import signal
import unittest

import client
from client import Load, until
from harness import free_port, rootless_too, service, site
from reloading import Reloading
from tls_server import Tls

LARGE = b"0123456789abcdef" * 512 * 1024
#: The site that nothing may happen to.
MAIN = site("main", [service("probe")])


def large(server):
    """A download that has begun, the rest of which does not fit into any buffer."""
    server.write("main/large", LARGE)
    connection = client.Connection(server.port)
    connection.send(client.request("/large"))
    connection._until(lambda: len(connection.unread) > 1000)
    return connection


@rootless_too
class OldNames(unittest.TestCase):
    WARNING = '`max_memory` in service "probe" is called `recycle_memory` now'

    def test_an_old_name_of_a_key_is_read_with_a_warning(self):
        old = site("main", [service(max_memory="48MiB")])
        with Reloading([old]) as server:
            self.assertIn(self.WARNING, server.log(), "the start says so")
            done = server.command("check", server.config)
            self.assertEqual((done.returncode, self.WARNING in done.stderr), (0, True), done.stderr)
            said, pids = server.log().count(self.WARNING), server.pids("bin/probe")
            self.assertIsNone(server.reload([old, site("other")]))
            self.assertTrue(until(lambda: server.log().count(self.WARNING) > said), "the reload says so")
            # The same by its new name is no change, and nothing to warn of.
            self.assertIsNone(server.reload([site("main", [service(recycle_memory="48MiB")]), site("other")]))
            self.assertEqual(server.pids("bin/probe"), pids)
            self.assertNotIn("max_memory", server.command("check", server.config).stderr)


@rootless_too
class Reload(unittest.TestCase):
    def setUp(self):
        self.server = self.enterContext(Reloading([MAIN, site("old")], server={"gates": 2}))

    def reload(self, sites, **more):
        self.assertIsNone(self.server.reload(sites, **(more or {}), server={"gates": 2}))

    def refused(self, sites, server=None, **more):
        """A reload that changes nothing; why it is refused."""
        before = self.server.pids("gate", "site", "bin/probe")
        why = self.server.reload(sites, server=server or {"gates": 2}, **more)
        self.assertIsNotNone(why)
        self.assertTrue(until(lambda: self.server.pids("gate", "site", "bin/probe") == before))
        self.assertEqual([self.server.status("/", host) for host in ("main.test", "old.test")], [200, 200])
        return why

    def test_each_line_about_mistakes_has_its_time_and_label(self):
        server = self.server
        server.write_config([MAIN, site("old", mistake=1, another=2)], server={"gates": 2})
        server.launcher.send_signal(signal.SIGHUP)
        self.assertTrue(until(lambda: "unknown key `another`" in server.log(), 10), server.log())
        for line in server.log().splitlines():
            self.assertRegex(line, r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (info|warning|error) \[[^\]]+\] ")

    def test_sites_and_listeners_come_and_go_beside_what_is_under_way(self):
        server, other = self.server, free_port()
        kept, download = client.Connection(server.port), large(server)
        self.assertEqual(kept.get("/").text, "<h1>main</h1>\n")
        before = server.pids("site main", "bin/probe", "gate")
        load = Load(server.port, "/probe", "main.test", seconds=4, connections=4)
        new = site("new", [service("fresh", "/probe", command=["bin/probe"])])
        self.reload([MAIN, site("old"), new], listeners=[other])
        for port in (server.port, other):
            for host, target in (("new.test", "/"), ("new.test", "/probe"), ("main.test", "/")):
                self.assertEqual(client.status(port, target, host), 200, (port, host, target))
        self.reload([site("new2"), MAIN])
        self.assertEqual([server.status("/", host) for host in ("new.test", "old.test", "new2.test")], [404, 404, 200])
        self.assertIsNone(client.status(other))
        self.reload([MAIN, new], listeners=[other])
        self.assertEqual(client.get(other, "/probe", "new.test").status, 200)
        load.end().assert_clean(self)
        self.assertEqual(kept.get("/").text, "<h1>main</h1>\n")
        self.assertEqual(download.response().body, LARGE)
        self.assertEqual(server.pids("site main", "bin/probe")[0], before[0])
        self.assertIn(before[1][0], server.pids("bin/probe")[0])
        self.assertEqual(server.pids("gate")[0], before[2])
        names = {line["name"] for line in server.order(command="status")["processes"]}
        self.assertIn("new/fresh", names)
        server.relaunch("new")
        self.assertIn('there is no "old"; ', server.command("relaunch", "--run-dir", "run", "old").stderr)

    def test_a_changed_site_is_replaced_without_a_failure(self):
        server = self.server
        download, kept = large(server), client.Connection(server.port)
        self.assertEqual(kept.get("/").text, "<h1>main</h1>\n")
        uid = server.process("site main").uid
        loads = [Load(server.port, path, "main.test", seconds=4, connections=4) for path in ("/", "/probe")]
        for root in ("elsewhere", "third"):
            self.reload([MAIN | {"root": root}, site("old")])
            self.assertEqual(server.get("/").text, f"<h1>{root}</h1>\n")
        self.assertEqual(server.process("site main").uid, uid)
        for load in loads:
            load.end().assert_clean(self)
        self.assertEqual(kept.get("/").text, "<h1>third</h1>\n", "an idle connection goes on with the new site")
        self.assertEqual(download.response().body, LARGE)
        self.assertIn("GET /large", until(lambda: "/large" in server.log("main.access") and server.log("main.access")))

    def test_a_host_moves_to_another_site(self):
        kept = client.Connection(self.server.port)
        self.assertEqual(kept.get("/", "old.test").text, "<h1>old</h1>\n")
        self.reload([MAIN | {"host": ["main.test", "old.test"]}])
        self.assertEqual(self.server.get("/", "old.test").text, "<h1>main</h1>\n")
        # The worker that has it may not have noticed that it is to go.
        self.assertTrue(until(lambda: kept.get("/", "old.test").text == "<h1>main</h1>\n"))

    def test_a_site_of_every_host_learns_of_others(self):
        every = site("every") | {"host": ["*"]}
        self.reload([MAIN, every])
        before = self.server.pids("site every")
        kept = client.Connection(self.server.port)
        for host, root in (("new.test", "every"), ("x.test", "every")):
            self.assertEqual(kept.get("/", host).text, f"<h1>{root}</h1>\n")
        self.reload([MAIN, site("new"), every])
        for host, root in (("x.test", "every"), ("new.test", "new")):
            self.assertEqual(kept.get("/", host).text, f"<h1>{root}</h1>\n")
        self.reload([MAIN, every])
        # A worker that has not heard yet that its site has gone goes on for a moment.
        self.assertTrue(until(lambda: kept.get("/", "new.test").text == "<h1>every</h1>\n", 20))
        self.assertEqual(self.server.pids("site every"), before)

    def test_limits_and_policies_reach_every_process(self):
        before = self.server.pids("gate", "site main")
        load = Load(self.server.port, "/", "main.test", seconds=3, connections=2, close=True)
        self.reload([MAIN, site("old")], limits={"head_bytes": "2KiB"}, conditioning={"checks": "strict"})
        self.assertEqual(self.server.get("/", headers=["X: " + "x" * 3000]).status, 431)
        load.end().assert_clean(self)
        gone = lambda: not any(set(old) & set(new) for old, new in zip(before, self.server.pids("gate", "site main")))
        self.assertTrue(until(gone, 15))

    def test_mistakes_change_nothing(self):
        self.assertIn("hosts", self.refused([MAIN, site("old"), site("new") | {"hosts": ["x"]}]))
        # All of them are said, however many.
        wrong = [site(f"new{number}") | {f"mistake{number}": 1} for number in range(20)]
        why = self.refused([MAIN, site("old"), *wrong])
        self.assertEqual([number for number in range(20) if f"mistake{number}`" not in why], [], why)
        self.assertIn("20 errors", why)
        why = self.refused([MAIN, site("old")], server={"gates": 1, "isolation": "degraded"})
        self.assertRegex(why, r"`gates` of \[server\] cannot change from 2 to 1 while the server runs: \w+")
        self.assertRegex(why, r"`isolation` of \[server\] cannot change from strict to degraded")
        self.assertIn("restart the server", why)
        taken = client.socket.create_server(("127.0.0.1", 0))
        self.assertIn("listen", self.refused([MAIN, site("old")], listeners=[taken.getsockname()[1]]))
        taken.close()

    def test_a_service_that_does_not_come_up_changes_nothing(self):
        shutil.copy("/bin/false", self.server.folder / "bin" / "false")
        wrong = site("new", [service("false", "/probe")])
        changed = MAIN | {"root": "elsewhere"}
        why = self.refused([changed, wrong, site("old")], listeners=[free_port()])
        self.assertIn("ended", why)
        self.assertEqual(self.server.status("/", "new.test"), 404)
        self.assertEqual(self.server.get("/").text, "<h1>main</h1>\n")
        # The same with what was wrong repaired.
        self.server.copy_program("probe", "false")
        self.reload([changed, wrong, site("old")])
        self.assertEqual(self.server.get("/").text, "<h1>elsewhere</h1>\n")
        self.assertEqual(self.server.status("/probe", "new.test"), 200)


@rootless_too
class Certificates(unittest.TestCase):
    def test_sites_with_certificates_come_and_go(self):
        with Tls() as server:
            text = server.config.read_text()
            kept = server.connect_tls("b.test")
            at = text.index('[[site]]\nname = "a"'), text.index('[[site]]\nname = "b"')
            for new, status in ((text[:at[0]] + text[at[1]:], 35), (text, 0)):
                server.config.write_text(new)
                answer = server.command("reload", "--run-dir", "run")
                self.assertEqual(answer.returncode, 0, answer.stderr)
                self.assertEqual(server.curl("https://a.test:{tls}/", "--http1.1")[0], status)
                self.assertEqual(server.curl("https://b.test:{tls}/", "--http1.1"), (0, "b\n"))
            kept.sendall(b"GET / HTTP/1.1\r\nHost: b.test\r\n\r\n")
            self.assertTrue(kept.recv(65536).startswith(b"HTTP/1.1 200 "))
