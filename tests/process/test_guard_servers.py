"""Servers of other people behind `bulkhead guard`: unchanged, with their own configuration files."""

import contextlib
import os
import shutil
import signal
import subprocess
import time
import unittest

import guarded
import test_filters
from client import until
from harness import children, rootless_too, toml

MODULES = "/usr/lib/apache2/modules"

APACHE = """
ServerRoot {folder}
ServerName localhost
Listen 127.0.0.1:{port}
PidFile {folder}/pid
DefaultRuntimeDir {folder}
LoadModule mpm_{mpm}_module {modules}/mod_mpm_{mpm}.so
LoadModule authz_core_module {modules}/mod_authz_core.so
User nobody
Group nogroup
DocumentRoot {folder}
ErrorLog {folder}/errors
LogFormat "%a:%{{remote}}p" peer
CustomLog {folder}/peers peer
KeepAliveTimeout 60
{more}
<Directory />
  Require all granted
</Directory>
"""

NGINX = """
daemon off;
user nobody nogroup;
worker_processes 2;
pid {folder}/pid;
error_log {folder}/errors;
events {{ worker_connections 64; }}
http {{
  access_log off;
  keepalive_timeout 60;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  server {{
    listen 127.0.0.1:{port};
    location / {{ return 200 "$remote_addr:$remote_port"; }}
  }}
}}
"""

LIGHTTPD = """
server.modules = ( "mod_accesslog" )
server.document-root = "{folder}"
server.bind = "127.0.0.1"
server.port = {port}
server.max-keep-alive-idle = 60
index-file.names = ( "index.html" )
accesslog.filename = "{folder}/peers"
accesslog.format = "%h"
"""

NODE = """
const http = require("http");
function serve() {
  const server = http.createServer({ keepAliveTimeout: 60000 }, (request, response) => {
    response.end(`${request.socket.remoteAddress}:${request.socket.remotePort}`);
    // Closes its socket, and listens at the same address anew.
    if (request.url === "/again") server.close(() => setTimeout(serve, 200));
  });
  server.on("error", (error) => process.exit(9));
  server.listen(Number(process.argv[2]), "127.0.0.1");
}
serve();
"""

PYTHON = """
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        body = "%s:%d" % self.client_address
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""

GUNICORN = """
def application(environ, start_response):
    body = (environ["REMOTE_ADDR"] + ":" + str(environ["REMOTE_PORT"])).encode()
    start_response("200 OK", [("Content-Length", str(len(body)))])
    return [body]
"""


def page(_):
    return "a page\n"


def apache(mpm, more="", options=()):
    text = lambda guard: APACHE.format(folder=guard.folder, port=guard.port, mpm=mpm, modules=MODULES, more=more)
    files = {"apache.conf": text, "index.html": page}
    return guarded.Guarded(lambda _: ["sh", "-c", "exec apache2 -f $PWD/apache.conf -DFOREGROUND"], *options, files=files)


def nginx():
    text = lambda guard: NGINX.format(folder=guard.folder, port=guard.port)
    return guarded.Guarded(["sh", "-c", "exec nginx -c $PWD/nginx.conf"], files={"nginx.conf": text})


def lighttpd():
    text = lambda guard: LIGHTTPD.format(folder=guard.folder, port=guard.port)
    files = {"lighttpd.conf": text, "index.html": page}
    return guarded.Guarded(["lighttpd", "-D", "-f", "lighttpd.conf"], files=files)


def node():
    return guarded.Guarded(lambda port: ["node", "server.js", port], files={"server.js": NODE})


def python():
    return guarded.Guarded(lambda port: ["/usr/bin/python3", "server.py", port], files={"server.py": PYTHON})


def gunicorn(*more):
    command = lambda port: ["gunicorn", "-w", "2", *more, "-b", f"127.0.0.1:{port}", "application"]
    return guarded.Guarded(command, files={"application.py": GUNICORN})


def needs(name):
    """Leaves a test out where there is no such program."""
    found = shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin")
    return unittest.skipUnless(found, f"there is no {name}")


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
        server = guarded.Guarded(lambda port: [test_filters.PYTHON, "server.py", port], files={"server.py": PYTHON})
        words = server.folder / "filter.py"
        words.write_text(test_filters.FILTER)
        words.chmod(0o644)
        server.options = ["--filter", f"{test_filters.PYTHON} -I {words}", "--filter-read", str(server.folder),
                          "--filter-read", test_filters.library()]
        with server as guard:
            with guarded.Client(guard) as client:
                self.assertEqual(client.get("/"), client.address)
                with self.assertRaises((AssertionError, OSError)):
                    client.get("/babble")
            self.assertTrue(until(lambda: "filter 0 sent nonsense to the gate" in guard.output()))
            for _ in range(3):
                with guarded.Client(guard) as client:
                    self.assertEqual(client.get("/"), client.address)

    def test_a_filter_that_hangs_is_replaced(self):
        server = guarded.Guarded(lambda port: [test_filters.PYTHON, "server.py", port], files={"server.py": PYTHON})
        words = server.folder / "filter.py"
        words.write_text(test_filters.FILTER)
        words.chmod(0o644)
        read = [str(server.folder), test_filters.library()]
        filters = [{"command": [test_filters.PYTHON, "-I", str(words), deed], "read": read} for deed in ("first", "last")]
        # A filter is replaced that has not read for a second, and not before nine times this since its start.
        text = f"""
            server.user_range = "52001-52999"
            limits.start_timeout = "200ms"
            conditioning.filters = {toml(filters)}
            listen = [{{ address = "127.0.0.1:1" }}]
            site = [{{ name = "guard", host = ["*"], root = "/dev/null" }}]
        """
        server.program, server.options = "bulkheadd", ["--config-text", text, "--config-folder", str(server.folder)]
        with server as guard, guarded.Client(guard) as lost, guarded.Client(guard) as waits:
            lost.socket.sendall(b"GET /hang HTTP/1.1\r\nHost: localhost\r\n\r\n")
            self.assertTrue(until(lambda: "filter hangs" in guard.output()))
            # The filter that hangs keeps its own client; the next one is the successor's.
            self.assertEqual(waits.get("/"), waits.address)
            told = [line for line in guard.output().splitlines() if "did not read" in line]
            self.assertEqual(len(told), 1, guard.output())
            self.assertIn("filter 0 did not read what waits for it and is ended", told[0])
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
