"""Changes of what runs: filters, logs, signals, what a dry run says, and failures in the middle."""

import json
import os
import shutil
import signal
import subprocess
import unittest

import backend
import client
from client import Load, until
from filter_program import FILTER, PYTHON, library
from harness import NOBODY, ROOTLESS, free_port, rootless_too, service, site
from reloading import Reloading
from stream_client import Streams
from tls_server import Tls

MAIN = site("main", [service("probe")])


def filters(*chain):
    """The `[conditioning]` of a chain: a filter for each of these lists of words."""
    read = [library(), "filters"]
    return {"filters": [{"command": [PYTHON, "-I", "filters/filter.py", *words], "read": read} for words in chain]}


class Changing(Reloading):
    """A server with the site `main`, whose filters can be changed."""

    def __init__(self, *chain, sites=(MAIN,), **settings):
        files = {"filters/filter.py": FILTER, "main/two": "two\n"}
        super().__init__(list(sites), files=files, conditioning=filters(*chain), **settings)

    def filter_pids(self):
        return {process.pid for process in self.processes(PYTHON)}


@rootless_too
class Filters(unittest.TestCase):
    def test_they_come_change_and_go_under_load(self):
        with Changing() as server:
            loads = [Load(server.port, path, "main.test", seconds=6, connections=4) for path in ("/", "/probe")]
            self.assertEqual(server.status("/zero"), 404)
            before = set()
            for chain in ([["zero=two"]], [["zero=one"], ["one=two"]], [["zero=two"], ["x"]], [["zero=two"]]):
                self.assertIsNone(server.reload([MAIN], conditioning=filters(*chain)))
                self.assertEqual(server.get("/zero").text, "two\n", chain)
                now = server.filter_pids() - before
                self.assertEqual(len(now), len(chain))
                self.assertTrue(until(lambda: not before & server.filter_pids(), 15), "the old ones have ended")
                before = now
            # Nothing happens to filters that are as they were.
            self.assertIsNone(server.reload([MAIN, site("other")], conditioning=filters(["zero=two"])))
            self.assertEqual(server.filter_pids(), before)
            self.assertIsNone(server.reload([MAIN], conditioning=filters()))
            self.assertEqual(server.status("/zero"), 404)
            self.assertTrue(until(lambda: not server.filter_pids(), 15))
            for load in loads:
                load.end().assert_clean(self)

    def test_gates_go_under_load_without_a_loss(self):
        """A gate that goes leaves what comes from the filters to the others."""
        with Changing(["zero=two"]) as server:
            load = Load(server.port, "/probe", "main.test", seconds=4, connections=4)
            for size in ("4KiB", "5KiB", "6KiB"):
                self.assertIsNone(server.reload([MAIN], conditioning=filters(["zero=two"]), limits={"head_bytes": size}))
                server.relaunch("gate")
            load.end().assert_clean(self)

    def test_what_is_in_the_old_chain_finishes_there(self):
        for chain in ([["zero=other"]], []):
            with self.subTest(chain=chain), Changing(["zero=two"]) as server, server.connect() as held:
                old = server.filter_pids()
                held.send(client.request("/hold"))
                self.assertTrue(until(lambda: "filter holds" in server.log()))
                self.assertIsNone(server.reload([MAIN], conditioning=filters(*chain)))
                self.assertEqual(server.status("/zero"), 404)
                self.assertLessEqual(old, server.filter_pids())
                server.write("filters/go", "")
                self.assertEqual(held.response().status, 404)
                self.assertTrue(until(lambda: not old & server.filter_pids()))

    def test_one_that_exits_at_its_start_changes_nothing(self):
        with Changing(["zero=two"]) as server:
            pids = server.filter_pids()
            for chain in ([["fail"]], [["x"], ["fail"]]):
                load = Load(server.port, "/two", "main.test", seconds=2, connections=2)
                why = server.reload([MAIN, site("new")], conditioning=filters(*chain))
                self.assertIn("ended with exit status 1", why or "")
                self.assertEqual(server.get("/zero").text, "two\n")
                self.assertEqual(server.status("/", "new.test"), 404)
                load.end().assert_clean(self)
                self.assertTrue(until(lambda: server.filter_pids() == pids))
            self.assertIsNone(server.reload([MAIN, site("new")], conditioning=filters(["zero=one"], ["one=two"])))
            self.assertEqual(server.get("/zero").text, "two\n")

    def test_a_relaunch_of_one_that_exits_at_its_start_changes_nothing(self):
        with Changing(["zero=two"]) as server:
            pids = server.filter_pids()
            # One that answers has read its own program.
            self.assertEqual(server.get("/zero").text, "two\n")
            server.write("filters/filter.py", "raise SystemExit(3)")
            answer = server.command("relaunch", "--run-dir", "run", "filter")
            self.assertIn("ended with exit status 3", answer.stderr)
            self.assertEqual(server.get("/zero").text, "two\n")
            self.assertTrue(until(lambda: server.filter_pids() == pids))


@rootless_too
class Logs(unittest.TestCase):
    def setUp(self):
        self.server = self.enterContext(Reloading([MAIN]))

    def reload(self, **more):
        self.assertIsNone(self.server.reload([MAIN], **more))

    def lines(self):
        return self.server.log("main.access").splitlines()

    def test_a_format_changes_between_two_lines(self):
        server, before = self.server, self.server.pids("gate", "site", "logger")
        load = Load(server.port, "/", "main.test", seconds=3, connections=2)
        self.assertTrue(until(self.lines))
        self.reload(log={"access_format": "json"})
        self.assertEqual(server.status("/marked"), 404)
        marked = until(lambda: [line for line in self.lines() if "/marked" in line])
        self.reload(log={"access_format": "common"})
        load.end().assert_clean(self)
        self.assertEqual(json.loads(marked[0])["target"], "/marked")
        is_json = [line.startswith("{") for line in self.lines()]
        changes = [place for place in range(1, len(is_json)) if is_json[place] != is_json[place - 1]]
        self.assertEqual((is_json[0], len(changes), is_json[-1]), (False, 2, False))
        self.assertTrue(until(lambda: len(self.lines()) > load.requests), "no line is lost")
        self.assertEqual(server.pids("gate", "site", "logger"), before)

    def test_files_move(self):
        server = self.server
        self.reload(server={"log_dir": "other"})
        self.assertEqual(server.status("/marked"), 404)
        self.assertTrue(until(lambda: "/marked" in (server.folder / "other/main.access.log").read_text()))
        self.assertNotIn("/marked", server.log("main.access"))
        self.assertTrue(until(lambda: "reloaded in" in (server.folder / "other/error.log").read_text()))
        self.reload(log={"daily": True})
        self.assertEqual(server.status("/again"), 404)
        of_day = lambda: [path for path in (server.folder / "log").glob("main.access.log.2*") if "/again" in path.read_text()]
        self.assertTrue(until(of_day))

    def test_how_long_lines_wait_is_known_to_every_process(self):
        before = self.server.pids("gate", "site main")
        load = Load(self.server.port, "/", "main.test", seconds=3, connections=2)
        self.reload(log={"flush": "50ms"})
        load.end().assert_clean(self)
        gone = lambda: not any(set(old) & set(new) for old, new in zip(before, self.server.pids("gate", "site main")))
        self.assertTrue(until(gone, 15))

    def test_a_folder_that_others_can_write_changes_nothing(self):
        folder = self.server.folder / "open"
        folder.mkdir()
        folder.chmod(0o777)
        why = self.server.reload([MAIN, site("new")], server={"log_dir": "open"})
        self.assertIn("`log_dir`", why or "")
        self.assertEqual([self.server.status("/"), self.server.status("/", "new.test")], [200, 404])
        self.assertTrue(until(lambda: "nothing has changed" in self.server.log()))


@rootless_too
class Signal(unittest.TestCase):
    def test_it_reloads_and_the_log_has_the_result(self):
        with Reloading([MAIN]) as server:
            load = Load(server.port, "/", "main.test", seconds=3, connections=2)
            server.write_config([MAIN, site("new")])
            server.launcher.send_signal(signal.SIGHUP)
            self.assertTrue(until(lambda: server.status("/", "new.test") == 200))
            self.assertTrue(until(lambda: "reload: site new added" in server.log() and "reloaded in" in server.log()))
            server.config.write_text("nonsense = 1\n" + server.config.read_text())
            server.launcher.send_signal(signal.SIGHUP)
            self.assertTrue(until(lambda: "unknown key `nonsense`" in server.log()))
            self.assertIn("nothing has changed", server.log())
            self.assertEqual(server.status("/", "new.test"), 200)
            load.end().assert_clean(self)

    def test_one_that_comes_during_a_reload_is_followed(self):
        with Reloading([MAIN]) as server:
            sites = [MAIN]
            for number in range(5):
                sites = [*sites, site(f"new{number}")]
                server.write_config(sites)
                server.launcher.send_signal(signal.SIGHUP)
            self.assertTrue(until(lambda: server.status("/", "new4.test") == 200))


@rootless_too
class DryRun(unittest.TestCase):
    def test_it_says_what_would_be_and_does_nothing(self):
        with Reloading([MAIN, site("old")]) as server:
            before, port = server.pids("gate", "site", "bin/probe", "logger"), free_port()
            self.assertEqual(server.plan("--dry-run"), {"dry_run": True, "changes": [], "processes": [], "left_out": []})
            changed = site("main", [service("probe", requests=5), service("second", "/second", command=["bin/probe"])], listing=True)
            server.write_config([changed, site("new")], listeners=[port], log={"access_format": "json"})
            plan = server.plan("--dry-run")
            changes = {(one["what"], one["change"], *one["keys"]) for one in plan["changes"]}
            self.assertEqual(changes, {
                ("site main", "changed", "listing"), ("service main/probe", "changed", "requests"),
                ("service main/second", "added"), ("site old", "removed"), ("site new", "added"),
                (f"listener 127.0.0.1:{port}", "added"), ("[log]", "changed", "access_format"),
            })
            processes = {(one["process"], one["action"]) for one in plan["processes"]}
            self.assertEqual(processes, {
                ("site main", "replace"), ("service main/probe", "replace"), ("service main/second", "start"),
                ("site old", "stop"), ("site new", "start"), ("gate 0", "update"), ("gate 1", "update"), ("logger", "update"),
            })
            why = {one["process"]: one["why"] for one in plan["processes"]}
            self.assertIn("site main: listing", why["site main"])
            text = server.command("reload", "--run-dir", "run", "--dry-run").stdout
            self.assertIn("site main: changed (listing)\n", text)
            self.assertRegex(text, r"stop +site old +site old removed\n")
            self.assertEqual(server.pids("gate", "site", "bin/probe", "logger"), before)
            self.assertEqual([server.status("/", host) for host in ("old.test", "new.test")], [200, 404])
            self.assertIsNone(client.status(port))
            # The reload says the same, and does it.
            done = server.plan()
            self.assertEqual((done["changes"], done["processes"]), (plan["changes"], plan["processes"]))
            self.assertEqual([server.status("/", host) for host in ("old.test", "new.test")], [404, 200])
            self.assertEqual(server.plan("--dry-run")["changes"], [])

    def test_what_is_refused_is_refused_here_too(self):
        with Reloading([MAIN]) as server:
            server.write_config([MAIN], server={"gates": 5})
            answer = server.command("reload", "--run-dir", "run", "--dry-run")
            self.assertEqual(answer.returncode, 1)
            self.assertIn("`gates` of [server] cannot change from 2 to 5", answer.stderr)


@rootless_too
class Failures(unittest.TestCase):
    """Each is injected into a reload that changes much else, and leaves everything as it was."""

    def setUp(self):
        self.server = self.enterContext(Changing(["zero=two"], sites=(MAIN, site("old"))))

    def pids(self):
        return self.server.pids("gate", "site", "bin/", "logger", "admin", "signer", PYTHON)

    def broken(self, *more, listeners=(), **settings):
        """A reload that fails; why."""
        server, before = self.server, self.pids()
        status = sorted((line["name"], line["pid"]) for line in server.order(command="status")["processes"])
        load = Load(server.port, "/probe", "main.test", seconds=2, connections=2)
        kept = server.connect()
        self.assertEqual(kept.get("/two").text, "two\n")
        sites = [MAIN | {"root": "elsewhere"}, site("new"), *more]
        settings = {"conditioning": filters(["zero=one"], ["one=two"]), "log": {"access_format": "json"}} | settings
        why = server.reload(sites, listeners=listeners, **settings)
        self.assertIsNotNone(why)
        self.assertTrue(until(lambda: self.pids() == before, 15), (self.pids(), before))
        self.assertEqual(kept.get("/zero").text, "two\n")
        self.assertEqual([server.status("/", f"{name}.test") for name in ("main", "old", "new")], [200, 200, 404])
        self.assertEqual(server.get("/").text, "<h1>main</h1>\n")
        self.assertNotEqual(server.get("/", headers=["X: " + "x" * 6000]).status, 431)
        load.end().assert_clean(self)
        after = sorted((line["name"], line["pid"]) for line in server.order(command="status")["processes"])
        self.assertEqual(after, status)
        self.assertTrue(until(lambda: "/probe" in server.log("main.access")))
        self.assertFalse(server.log("main.access").splitlines()[-1].startswith("{"))
        return why

    def test_a_service_that_exits(self):
        shutil.copy("/bin/false", self.server.folder / "bin/false")
        self.assertIn("service other/false", self.broken(site("other", [service("false", "/x")])))

    def test_a_program_that_is_missing(self):
        self.assertIn("bin/none", self.broken(site("other", [service("none", "/x")])))

    def test_a_program_that_cannot_be_executed(self):
        self.server.write("bin/text", "no program")
        self.assertIn("bin/text", self.broken(site("other", [service("text", "/x")])))

    def test_a_port_in_use(self):
        with client.socket.create_server(("127.0.0.1", 0)) as taken:
            why = self.broken(listeners=[free_port(), taken.getsockname()[1]])
        self.assertIn("cannot listen on", why)

    def test_a_filter_that_exits(self):
        self.assertIn("filter", self.broken(conditioning=filters(["zero=two"], ["fail"])))

    def test_one_beside_changed_limits(self):
        """Gates that were started for it have served for a while, as those that stay."""
        shutil.copy("/bin/false", self.server.folder / "bin/false")
        self.broken(site("other", [service("false", "/x")]), limits={"head_bytes": "4KiB"})

    def test_all_of_it_works_when_nothing_is_wrong(self):
        server = self.server
        settings = {"conditioning": filters(["zero=one"], ["one=two"]), "limits": {"head_bytes": "4KiB"},
                    "log": {"access_format": "json"}}
        self.assertIsNone(server.reload([MAIN, site("new")], listeners=[free_port()], **settings))
        self.assertEqual(server.get("/zero").text, "two\n")
        self.assertEqual([server.status("/", f"{name}.test") for name in ("main", "old", "new")], [200, 404, 200])
        self.assertEqual(server.get("/", headers=["X: " + "x" * 6000]).status, 431)


@rootless_too
class Keys(unittest.TestCase):
    def test_a_broken_key_changes_nothing(self):
        with Tls() as server:
            text, signer = server.config.read_text(), server.process("signer")
            server.write("broken.pem", "-----BEGIN PRIVATE KEY-----\nnothing\n-----END PRIVATE KEY-----\n")
            if ROOTLESS and os.geteuid() == 0:
                shutil.chown(server.folder / "broken.pem", NOBODY, NOBODY)
            server.config.write_text(text + '\n[[site]]\nname = "new"\nhost = ["new.test"]\nroot = "a"\ncertificates = ["broken.pem"]\n')
            answer = server.command("reload", "--run-dir", "run")
            self.assertEqual(answer.returncode, 1, answer.stdout)
            self.assertIn("broken.pem has a key that is broken", answer.stderr)
            self.assertTrue(until(lambda: server.processes("signer") == [signer]))
            names = lambda: {line["name"] for line in server.order(command="status")["processes"]}
            self.assertTrue(until(lambda: "new" not in names()))
            # Handshakes need the signer that has stayed.
            for name in ("a", "b"):
                self.assertEqual(server.curl(f"https://{name}.test:{{tls}}/", "--http1.1"), (0, f"{name}\n"))
            shutil.copy(server.folder / "b.pem", server.folder / "broken.pem")
            self.assertEqual(server.command("reload", "--run-dir", "run").returncode, 0)


@rootless_too
class Twice(unittest.TestCase):
    def test_two_at_once(self):
        with Reloading([MAIN]) as server:
            load = Load(server.port, "/", "main.test", seconds=4, connections=2)
            for number in range(5):
                sites = [MAIN | {"root": f"root{number}"}, site(f"new{number}")]
                server.write_config(sites)
                command = [str(server.own("bulkhead", server.folder)), "reload", "--run-dir", "run"]
                both = [subprocess.Popen(command, cwd=server.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                         **server._user()) for _ in range(2)]
                said = [process.communicate(timeout=30) for process in both]
                self.assertIn(0, [process.returncode for process in both])
                for process, (_, why) in zip(both, said):
                    self.assertTrue(process.returncode == 0 or "try again" in why, why)
                self.assertEqual(server.get("/").text, f"<h1>root{number}</h1>\n")
                self.assertEqual(server.status("/", f"new{number}.test"), 200)
            load.end().assert_clean(self)

    def test_a_relaunch_during_a_reload_waits_or_is_refused(self):
        with Reloading([MAIN]) as server:
            for number in range(5):
                server.write_config([MAIN | {"root": f"root{number}"}])
                commands = [["reload", "--run-dir", "run"], ["relaunch", "--run-dir", "run", "main"]]
                program = str(server.own("bulkhead", server.folder))
                both = [subprocess.Popen([program, *words], cwd=server.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                         text=True, **server._user()) for words in commands]
                for process in both:
                    _, why = process.communicate(timeout=30)
                    self.assertTrue(process.returncode == 0 or "reload" in why or "try again" in why, why)
            self.assertIsNone(server.reload([MAIN]))
            self.assertEqual(server.get("/").text, "<h1>main</h1>\n")


@rootless_too
class Drain(unittest.TestCase):
    """What has begun on a site finishes in its old worker when one of its routes changes."""

    def setUp(self):
        self.behind = backend.Raw(answer=lambda request: backend.response(b"%d" % len(request.body)))
        self.addCleanup(self.behind.close)
        self.route = (f'[[site.route]]\npath = "/whole"\nupstream = ["{self.behind.at}"]\n'
                      f'[[site.route]]\npath = "/behind"\nupstream = ["{self.behind.at}"]\nbuffer = false\n')
        self.server = self.enterContext(Tls(more=self.route))
        self.text = self.server.config.read_text()

    def change_rule(self):
        """Another rule for the site; its old worker."""
        old = self.server.process("site b")
        self.server.config.write_text(self.text.replace(self.route, self.route + 'headers = { X-New = "yes" }\n'))
        answer = self.server.command("reload", "--run-dir", "run")
        self.assertEqual(answer.returncode, 0, answer.stderr)
        self.assertIn("route /behind of site b: changed (headers)", answer.stdout)
        self.assertIn("x-new: yes", self.server.curl("https://b.test:{tls}/behind", "-i", "--http1.1")[1].lower())
        self.assertTrue(old.alive)
        return old

    def ended(self, old):
        self.assertTrue(until(lambda: not old.alive, 10), "the old worker has ended when all is done")

    def test_a_long_upload(self):
        self.upload("/behind", lambda: self.behind.connections)

    def test_a_long_upload_that_its_server_has_not_heard_of(self):
        """A worker that retires keeps what waits in its file."""
        has = lambda line: line["name"] == "b" and line["connections_now"]
        self.upload("/whole", lambda: any(map(has, self.server.order(command="status")["processes"])))

    def upload(self, target, is_begun):
        with self.server.connect_tls("b.test") as peer:
            peer.sendall(f"POST {target} HTTP/1.1\r\nHost: b.test\r\nContent-Length: 300000\r\n\r\n".encode() + b"x" * 100_000)
            self.assertTrue(until(is_begun))
            old = self.change_rule()
            peer.sendall(b"x" * 200_000)
            answer = b""
            while not answer.endswith(b"300000"):
                more = peer.recv(65536)
                self.assertTrue(more, answer)
                answer += more
            self.assertNotIn(b"x-new", answer.lower(), "the rules of the old worker")
        self.ended(old)

    def test_an_upload_that_its_service_has_not_seen(self):
        """A worker holds the beginning of a body back; the old service is still there when it comes."""
        main = site("main", [service("probe")])
        with Reloading([main]) as server, server.connect() as peer:
            peer.send(b"POST /probe/echo HTTP/1.1\r\nHost: main.test\r\nContent-Length: 200000\r\n\r\n" + b"x" * 1000)
            old = server.process("site main"), server.process("bin/probe")
            self.assertTrue(until(lambda: any(line["name"] == "main" and line["connections_now"]
                                              for line in server.order(command="status")["processes"])))
            self.assertIsNone(server.reload([main | {"headers": {"X-New": "yes"}}]))
            self.assertEqual(server.get("/").headers.get("x-new"), "yes")
            self.assertTrue(old[1].alive)
            peer.send(b"x" * 199_000)
            self.assertEqual(peer.response("POST").status, 200)
            peer.close()
            self.assertTrue(until(lambda: not old[0].alive and not old[1].alive, 10))

    def test_streams_of_http2(self):
        try:
            streams = self.enterContext(Streams(self.server.tls, greedy=False))
        except ImportError:
            self.skipTest("python's h2 is not installed")
        stream = streams.ask("/large", method="GET", protocol=None, end=True)
        # The worker has yet to begin to pass it on.
        upload = streams.ask("/behind", ("content-length", "200000"), method="POST", protocol=None)
        streams.send(upload, b"x" * 50_000)
        self.assertEqual(streams.status(stream), "200")
        old = self.change_rule()
        streams.send(upload, b"x" * 150_000)
        streams.end(upload)
        self.assertEqual(streams.read(upload, 6), b"200000")
        streams.greedy = True
        streams.http.acknowledge_received_data(len(streams.data[stream]), stream)
        streams.flush()
        self.assertEqual(len(streams.read(stream, 3_000_000)), 3_000_000)
        self.ended(old)

    def test_a_websocket(self):
        try:
            from websocket_client import Client
            from websockets.sync.server import serve
        except ImportError:
            self.skipTest("python's websockets is not installed")
        import threading

        def echo(socket):
            for message in socket:
                socket.send(message)

        library = self.enterContext(serve(echo, "127.0.0.1", 0))
        threading.Thread(target=library.serve_forever, daemon=True).start()
        self.addCleanup(library.shutdown)
        at = "127.0.0.1:%d" % library.socket.getsockname()[1]
        socket_route = f'[[site.route]]\npath = "/socket"\nupstream = ["{at}"]\n'
        self.text = self.text.replace(self.route, socket_route + self.route)
        self.server.config.write_text(self.text)
        self.assertEqual(self.server.command("reload", "--run-dir", "run").returncode, 0)
        from tls_server import insecure

        more = {"ssl": insecure(), "server_hostname": "b.test"}
        with Client(f"wss://b.test:{self.server.tls}/socket", self.server.tls, **more) as both:
            both.send("before")
            self.assertEqual(both.recv(), "before")
            old = self.change_rule()
            for _ in range(20):
                both.send("after")
                self.assertEqual(both.recv(), "after")
            both.close()
        self.ended(old)


if __name__ == "__main__":
    unittest.main()
