"""No request passes a filter by, however the one before it on its connection is framed: before guarded servers of every
kind, and before our own partitions of every kind, on listeners of every kind."""

import errno
import shutil
import socket
import ssl
import unittest
from pathlib import Path

import backend
import client
import filter_matrix
import framings
import guarded
import guarded_servers as servers
from filter_program import PYTHON, library
from harness import NOBODY, ROOTLESS, Server, free_port, rootless_too
from tls_server import openssl

SDK = Path(__file__).parents[2] / "python/bulkhead_filter.py"
FILES = {"filter.py": filter_matrix.FILTER, "bulkhead_filter.py": SDK.read_text()}
PAGES = {"index.html": "a page\n", "secret.html": framings.SECRET.decode()}

NGINX = servers.NGINX.replace("keepalive_timeout 60", "keepalive_timeout 3").replace(
    'location / {{ return 200 "$remote_addr:$remote_port"; }}', "root {folder};")
NODE = """
const http = require("http"), fs = require("fs");
const server = http.createServer({ keepAliveTimeout: 3000, insecureHTTPParser: process.argv[3] === "lax" },
  (request, response) => {
    request.on("data", () => {});
    request.on("error", () => {});
    const path = "." + request.url.replace(/^http:..[^/]*/, "");
    request.on("end", () => response.end(fs.existsSync(path) ? fs.readFileSync(path) : "nothing"));
  });
server.listen(Number(process.argv[2]), "127.0.0.1");
"""
PYTHON_SERVER = servers.PYTHON.replace('body = "%s:%d" % self.client_address', 'body = open("." + self.path).read()').replace(
    "ThreadingHTTPServer((", """
    def do_POST(self):
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.do_GET()

    timeout = 3

ThreadingHTTPServer((""", 1).replace("\n\n    def do_POST", "\n    def do_POST")
GUNICORN = """
def application(environ, start_response):
    environ["wsgi.input"].read()
    body = open("." + environ["PATH_INFO"], "rb").read()
    start_response("200 OK", [("Content-Length", str(len(body)))])
    return [body]
"""


def filtered(command, files, *options):
    """A guarded server with the filter, which may read its code and that of its interpreter."""
    server = guarded.Guarded(command, files=files | FILES | PAGES)
    options = ["--filter", f"{PYTHON} -I -B {server.folder}/run.py", *options]
    server.options = [*options, "--filter-read", library(), "--filter-read", str(server.folder)]
    server.folder.joinpath("run.py").write_text(f"import sys; sys.path.insert(0, {str(server.folder)!r}); import filter")
    server.folder.joinpath("run.py").chmod(0o644)
    return server


def apache(mpm):
    text = lambda guard: servers.APACHE.format(
        folder=guard.folder, port=guard.port, mpm=mpm, modules=servers.MODULES, more="").replace(
            "KeepAliveTimeout 60", "KeepAliveTimeout 3")
    return filtered(["sh", "-c", "exec apache2 -f $PWD/apache.conf -DFOREGROUND"], {"apache.conf": text})


class Guarded(unittest.TestCase):
    """Before servers that are not ours."""

    def asks(self, server, least=20):
        with server as guard:
            seen = filter_matrix.judge(self, guard.port, "localhost")
            # The others were closed, as the server or its answer asked for it.
            self.assertGreater(seen, least)
            self.assertNotIn("ended", guard.output())

    @servers.needs("nginx")
    def test_nginx(self):
        text = lambda guard: NGINX.format(folder=guard.folder, port=guard.port)
        self.asks(filtered(["sh", "-c", "exec nginx -c $PWD/nginx.conf"], {"nginx.conf": text}))

    @servers.needs("apache2")
    def test_apache_prefork(self):
        self.asks(apache("prefork"))

    @servers.needs("apache2")
    def test_apache_event(self):
        self.asks(apache("event"))

    @servers.needs("lighttpd")
    def test_lighttpd(self):
        text = lambda guard: servers.LIGHTTPD.format(folder=guard.folder, port=guard.port).replace("idle = 60", "idle = 3")
        self.asks(filtered(["lighttpd", "-D", "-f", "lighttpd.conf"], {"lighttpd.conf": text}))

    @servers.needs("node")
    def test_node(self):
        self.asks(filtered(lambda port: ["node", "server.js", port], {"server.js": NODE}))

    @servers.needs("node")
    def test_node_that_takes_anything(self):
        self.asks(filtered(lambda port: ["node", "server.js", port, "lax"], {"server.js": NODE}))

    def test_python(self):
        # It knows no chunks: it takes them for its next request, if it may.
        self.asks(filtered(lambda port: ["/usr/bin/python3", "server.py", port], {"server.py": PYTHON_SERVER}), 10)

    @servers.needs("gunicorn")
    def test_gunicorn(self):
        command = lambda port: ["gunicorn", "-w", "2", "--threads", "8", "--keep-alive", "3", "-b", f"127.0.0.1:{port}",
                                "application"]
        self.asks(filtered(command, {"application.py": GUNICORN}))


    @servers.needs("openssl")
    def test_tls(self):
        """Filters would not see what comes so: it is refused, or passes them by where that is wanted."""
        def make(*options):
            text = lambda guard: NGINX.format(folder=guard.folder, port=guard.port).replace(
                f"127.0.0.1:{guard.port}", f"127.0.0.1:{guard.port} ssl").replace(
                    "root ", "ssl_certificate {0}/cert; ssl_certificate_key {0}/key; root ".format(guard.folder))
            server = filtered(["sh", "-c", "exec nginx -c $PWD/nginx.conf"], {"nginx.conf": text}, *options)
            openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=x", "-keyout",
                    server.folder / "key", "-out", server.folder / "cert")
            return server

        def ask(guard):
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            with socket.create_connection(("127.0.0.1", guard.port), 20) as plain, context.wrap_socket(plain) as peer:
                peer.sendall(framings.second("localhost"))
                said = b""
                while more := peer.recv(65536):
                    said += more
                return said

        with make() as guard:
            with self.assertRaisesRegex(ssl.SSLError, "INTERNAL_ERROR"):
                ask(guard)
        with make("--unfiltered") as guard:
            self.assertIn(framings.SECRET, ask(guard))

    def test_connections_that_stay_with_the_server(self):
        server = filtered(["true"], {}, "--policy", "flt_prior")
        server.settled = False
        with server as guard:
            self.assertEqual(guard.wait(), 2)
            self.assertIn("flt_persist", guard.output())

    def test_there_is_no_way_round_the_library(self):
        """What is read by io_uring would pass it by."""
        script = "import ctypes; c = ctypes.CDLL(None, use_errno=True); c.syscall(425, 1, 0); print('errno', ctypes.get_errno())"
        server = filtered([PYTHON, "-c", script], {})
        server.settled = False
        with server as guard:
            guard.wait()
            self.assertIn(f"errno {errno.ENOSYS}\n", guard.output())


TEXT = """
[[listen]]
address = "127.0.0.1:{port}"

[[listen]]
address = "127.0.0.1:{proxied}"
proxy_protocol = true
trusted = ["127.0.0.1/32"]

[[listen]]
address = "127.0.0.1:{h2c}"
h2c = true
unfiltered = true

[[listen]]
address = "127.0.0.1:{tls}"
tls = true
unfiltered = true

[server]
gates = 2

[log]
flush = "50ms"

[limits]
idle_timeout = "3s"

[conditioning]
filters = [{{ command = ["{python}", "-I", "-B", "{folder}/run.py"], read = ["{library}", "{folder}"] }}]

[[site]]
name = "main"
host = ["main.test"]
root = "main"
certificates = ["main.pem"]

  [[site.service]]
  name = "relayed"
  path = "/probe"
  command = ["bin/probe"]

  [[site.route]]
  path = "/upstream"
  upstream = "{upstream}"

[[site]]
name = "other"
host = ["other.test"]
root = "other"

[[site]]
name = "taking"
host = ["taking.test"]

  [[site.service]]
  name = "taking"
  path = "/probe"
  command = ["bin/probe"]
  takes_connections = true

[[site]]
name = "whole"
host = ["whole.test"]

  [[site.service]]
  name = "whole"
  path = "/"
  command = ["bin/probe"]
"""


@rootless_too
class Ours(unittest.TestCase):
    """Before partitions of ours, on every kind of listener."""

    @classmethod
    def setUpClass(cls):
        cls.ports = {name: free_port() for name in ("proxied", "h2c", "tls")}
        cls.upstream = backend.Raw(answer=lambda _: backend.response(b"from behind"))
        write = lambda port: TEXT.format(port=port, **cls.ports, upstream=cls.upstream.at, python=PYTHON, library=library(),
                                         folder="FOLDER")
        files = FILES | {f"{name}/{page}": text for name in ("main", "other") for page, text in PAGES.items()}
        cls.server = Server(text=write, files=files, programs=("probe",))
        folder = str(cls.server.folder)
        cls.server.write("run.py", f"import sys; sys.path.insert(0, {folder!r}); import filter")
        text = cls.server.config.read_text()
        cls.server.config.write_text(text.replace("FOLDER", folder))
        openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=main.test", "-addext",
                "subjectAltName=DNS:main.test", "-keyout", "key", "-out", "cert", cwd=cls.server.folder)
        pem = cls.server.write("main.pem", "".join((cls.server.folder / name).read_text() for name in ("cert", "key")))
        pem.chmod(0o640)
        if ROOTLESS:
            shutil.chown(pem, NOBODY, NOBODY)
        cls.enterClassContext(cls.server)

    def asks(self, port=None, host="main.test", path="/index.html", least=30, **more):
        seen = filter_matrix.judge(self, port or self.server.port, host, path, **more)
        self.assertGreater(seen, least)

    def test_files(self):
        self.asks()

    def test_a_relayed_service(self):
        self.asks(path="/probe/echo", secret="/probe/echo?secret")

    def test_a_service_that_takes_connections(self):
        # It closes after one request.
        self.asks(host="taking.test", path="/probe/echo", secret="/probe/echo?secret", least=-1)

    def test_a_service_that_has_a_whole_site(self):
        # Nobody else answers there, so it could keep its connections, but for the filters.
        self.asks(host="whole.test", path="/probe/echo", secret="/probe/echo?secret", least=-1)

    def test_a_server_behind(self):
        self.asks(path="/upstream/x", secret="/upstream/secret")

    def test_another_site(self):
        self.asks(host="other.test")

    def test_files_with_the_proxy_protocol(self):
        self.asks(self.ports["proxied"], path="/index.html?proxied", before=b"PROXY TCP4 192.0.2.7 127.0.0.1 4711 80\r\n")
        lines = lambda: [line for line in self.server.log("main.access").splitlines() if "proxied" in line]
        self.assertTrue(client.until(lambda: len(lines()) > 100))
        self.assertEqual({line.split()[0] for line in lines()}, {"192.0.2.7"}, "the client is whom the proxy names")

    def test_files_where_http2_may_come(self):
        self.asks(self.ports["h2c"])


if __name__ == "__main__":
    unittest.main()
