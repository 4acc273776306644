"""Servers of other people behind `bulkhead guard`: unchanged, with their own configuration files."""

import contextlib
import os
import signal
import subprocess
import time
import unittest

import filter_program
import guarded
from client import until
from harness import children, rootless_too, toml
from guarded_servers import NGINX, PYTHON, apache, gunicorn, lighttpd, needs, nginx, node, python

class Servers(unittest.TestCase):
    """What every server is to do."""

    def serves(self, server, returns=True, peers=None):
        """Answers, sees its clients' own addresses, and holds none of those that are idle."""
        with server as guard, contextlib.ExitStack() as stack:
            clients = [stack.enter_context(guarded.Client(guard, source=f"127.0.0.{n}")) for n in range(2, 8)]
            for _ in range(3):
                for client in clients:
                    body = client.get("/index.html")
                    if peers is None:
                        self.assertEqual(body, client.address)
            if peers is not None:
                seen = lambda: guard.folder.joinpath("peers").read_text().split()
                for client in clients:
                    wanted = client.address if peers == "port" else client.address.split(":")[0]
                    guard.until(lambda wanted=wanted: seen().count(wanted) == 3, f"{wanted} is seen: {seen()}")
            if returns:
                guard.until(lambda: guard.sockets_held() == 0, "idle connections are the gate's")
            with guarded.incomplete(guard, 20):
                time.sleep(0.2)
                if returns:
                    self.assertEqual(guard.sockets_held(), 0, "incomplete ones as well")
                with guarded.Client(guard) as client:
                    client.get("/index.html")

    @needs("apache2")
    def test_apache_prefork(self):
        self.serves(apache("prefork"), peers="port")

    @needs("apache2")
    def test_apache_event(self):
        self.serves(apache("event"), peers="port")

    @needs("nginx")
    def test_nginx(self):
        self.serves(nginx())

    @needs("lighttpd")
    def test_lighttpd(self):
        self.serves(lighttpd(), peers="address")

    @rootless_too
    @needs("node")
    def test_node(self):
        self.serves(node())

    @rootless_too
    def test_python(self):
        self.serves(python())

    @needs("gunicorn")
    def test_gunicorn(self):
        # Its plain workers close every connection.
        with gunicorn() as guard:
            for _ in range(6):
                with guarded.Client(guard) as client:
                    self.assertEqual(client.get("/"), client.address)

    @needs("gunicorn")
    def test_gunicorn_with_threads(self):
        self.serves(gunicorn("--threads", "2"))


class Apache(unittest.TestCase):
    """The server whose processes are the easiest to use up."""

    @needs("apache2")
    def test_idle_connections_hold_no_process(self):
        few = "StartServers 2\nMinSpareServers 1\nMaxSpareServers 2\nServerLimit 2\nMaxRequestWorkers 2"
        with apache("prefork", few) as guard, contextlib.ExitStack() as stack:
            # Two processes, ten connections that are kept for a minute.
            for _ in range(10):
                stack.enter_context(guarded.Client(guard)).get("/index.html")

    @needs("apache2")
    def test_incomplete_requests_do_not_use_it_up(self):
        # By default it has 150 processes, and each of these would hold one.
        with apache("prefork") as guard, guarded.incomplete(guard, 200):
            began = time.monotonic()
            for _ in range(20):
                with guarded.Client(guard) as client:
                    self.assertEqual(client.get("/index.html"), "a page\n")
            self.assertLess(time.monotonic() - began, 5)
            self.assertLess(len(children(guard.command.pid)), 20)

    @needs("apache2")
    def test_a_graceful_restart(self):
        with apache("prefork") as guard, guarded.Client(guard) as kept:
            kept.get("/index.html")
            before = {child.pid for child in children(guard.command.pid)}
            guard.process.send_signal(signal.SIGUSR1)
            guard.until(lambda: before.isdisjoint({c.pid for c in children(guard.command.pid)}), "all are new")
            for _ in range(10):
                with guarded.Client(guard) as client:
                    self.assertEqual(client.get("/index.html"), "a page\n")
            self.assertEqual(kept.get("/index.html"), "a page\n")

    @needs("apache2")
    def test_a_killed_worker(self):
        with apache("prefork") as guard:
            before = children(guard.command.pid)
            [child.kill() for child in before]
            guard.until(lambda: not any(child.alive for child in before), "they are gone")
            for _ in range(10):
                with guarded.Client(guard) as client:
                    self.assertEqual(client.get("/index.html"), "a page\n")

    @needs("apache2")
    def test_it_ends_in_order(self):
        with apache("event") as guard:
            # It listens before it knows what to do with a signal.
            with guarded.Client(guard) as client:
                client.get("/index.html")
            guard.process.send_signal(signal.SIGTERM)
            self.assertEqual(guard.wait(), 0)
            self.assertTrue(guarded.refuses(guard.port))


class Guard(unittest.TestCase):
    """The guard itself."""

    @needs("nginx")
    def test_nginx_reloads(self):
        with nginx() as guard, guarded.Client(guard) as kept:
            kept.get("/")
            before = {child.pid for child in children(guard.command.pid)}
            guard.process.send_signal(signal.SIGHUP)
            guard.until(lambda: before.isdisjoint({c.pid for c in children(guard.command.pid)}), "all are new")
            for _ in range(10):
                with guarded.Client(guard) as client:
                    self.assertEqual(client.get("/"), client.address)
            self.assertEqual(kept.get("/"), kept.address)

    @needs("node")
    def test_a_server_that_listens_again(self):
        with node() as guard:
            with guarded.Client(guard) as client:
                client.get("/again")
            guard.until(lambda: guarded.refuses(guard.port), "the old socket is closed")
            guard.until(lambda: not guarded.refuses(guard.port), "there is a new one")
            with guarded.Client(guard) as client:
                self.assertEqual(client.get("/"), client.address)

    @rootless_too
    def test_a_killed_gate_is_replaced(self):
        with python() as guard:
            with guarded.Client(guard) as client:
                client.get("/")
            old = guard.gate
            old.kill()
            guard.until(lambda: any(child != old for child in [guard.gate] if child), "there is another")
            with guarded.Client(guard) as client:
                self.assertEqual(client.get("/"), client.address)
            self.assertIn("the gate ended (signal 9); it is started again", guard.output())

    @needs("nginx")
    def test_a_server_in_the_background(self):
        text = lambda guard: NGINX.format(folder=guard.folder, port=guard.port).replace("daemon off;", "")
        command = ["sh", "-c", "exec nginx -c $PWD/nginx.conf"]
        with guarded.Guarded(command, files={"nginx.conf": text}) as guard:
            guard.until(lambda: "in the background" in guard.output(), "the command has ended")
            with guarded.Client(guard) as client:
                self.assertEqual(client.get("/"), client.address)
            master = int(guard.folder.joinpath("pid").read_text())
            os.kill(master, signal.SIGTERM)
            self.assertEqual(guard.wait(), 0, "the guard ends with the last process")

    def test_the_gate_is_in_a_jail(self):
        with python() as guard:
            if os.geteuid() != 0:
                self.skipTest("not root")
            self.assertIn(guard.gate.uid, range(52001, 53000))
            self.assertEqual(guard.gate.status()["Seccomp"], "2")
            self.assertEqual(guard.command.uid, os.geteuid())

    def test_the_exit_status_is_the_commands(self):
        for script, status in [("exit 3", 3), ("kill -9 $$", 128 + 9), ("true", 0)]:
            with guarded.Guarded(["sh", "-c", script], settled=False) as guard:
                self.assertEqual(guard.wait(), status)

    def test_the_gate_listens_in_the_servers_place(self):
        front = guarded.free_port()
        server = guarded.Guarded(
            lambda port: ["/usr/bin/python3", "server.py", port], f"--listen={front}", files={"server.py": PYTHON}
        )
        with server as guard, guarded.Client(guard, front) as client:
            self.assertEqual(client.get("/"), client.address)
            self.assertTrue(guarded.refuses(guard.port))

    def test_filters_see_every_request(self):
        make = lambda *options: guarded.Guarded(
            lambda port: ["/usr/bin/python3", "server.py", port], *options, files={"server.py": PYTHON}
        )
        with make("--filter", guarded.program("pass")) as guard, guarded.Client(guard) as client:
            self.assertEqual(len(children(guard.process.pid)), 3, "the gate, the filter, the server")
            for _ in range(3):
                self.assertEqual(client.get("/"), client.address)

    def test_a_filter_that_sends_nonsense_is_replaced(self):
        server = guarded.Guarded(lambda port: [filter_program.PYTHON, "server.py", port], files={"server.py": PYTHON})
        words = server.folder / "filter.py"
        words.write_text(filter_program.FILTER)
        words.chmod(0o644)
        server.options = ["--filter", f"{filter_program.PYTHON} -I {words}", "--filter-read", str(server.folder),
                          "--filter-read", filter_program.library()]
        with server as guard:
            with guarded.Client(guard) as client:
                self.assertEqual(client.get("/"), client.address)
                with self.assertRaises((AssertionError, OSError)):
                    client.get("/babble")
            self.assertTrue(until(lambda: f"{words}` sent nonsense to the gate" in guard.output()))
            for _ in range(3):
                with guarded.Client(guard) as client:
                    self.assertEqual(client.get("/"), client.address)

    def test_a_filter_that_hangs_is_replaced(self):
        server = guarded.Guarded(lambda port: [filter_program.PYTHON, "server.py", port], files={"server.py": PYTHON})
        words = server.folder / "filter.py"
        words.write_text(filter_program.FILTER)
        words.chmod(0o644)
        read = [str(server.folder), filter_program.library()]
        command = [filter_program.PYTHON, "-I", str(words)]
        filters = [{"command": [*command, deed], "read": read} for deed in ("first", "last")]
        # A filter is replaced that has not read for a second, and not before nine times this since its start.
        text = f"""
            server.user_range = "52001-52999"
            limits.start_timeout = "200ms"
            conditioning.filters = {toml(filters)}
            listen = [{{ address = "127.0.0.1:1" }}]
            site = [{{ name = "guard", host = ["*"], root = "/dev/null" }}]
        """
        server.program, server.verb = "bulkhead-guard", ()
        server.options = ["--config-text", text, "--config-folder", str(server.folder)]
        with server as guard, guarded.Client(guard) as lost, guarded.Client(guard) as waits:
            lost.socket.sendall(b"GET /hang HTTP/1.1\r\nHost: localhost\r\n\r\n")
            self.assertTrue(until(lambda: "filter hangs" in guard.output()))
            # The filter that hangs keeps its own client; the next one is the successor's.
            self.assertEqual(waits.get("/"), waits.address)
            told = [line for line in guard.output().splitlines() if "did not read" in line]
            self.assertEqual(len(told), 1, guard.output())
            self.assertIn(f"{words} first` did not read what waits for it and is ended", told[0])
            with guarded.Client(guard) as client:
                self.assertEqual(client.get("/"), client.address)

    def test_wrong_words(self):
        def said(*words):
            command = [guarded.program("bulkhead"), "guard", *words]
            done = subprocess.run(command, capture_output=True, text=True, timeout=20)
            return done.returncode, done.stderr

        self.assertEqual(said()[0], 2)
        self.assertEqual(said("--connections", "0", "--", "true")[0], 2)
        self.assertEqual(said("--exempt", "10.0.0.0/99", "--", "true")[0], 2)
        code, text = said("--", "no-such-command-here")
        self.assertEqual(code, 1)
        self.assertIn("PATH", text)


if __name__ == "__main__":
    unittest.main()
