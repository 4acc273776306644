"""Real servers, unmodified, under the preload library.

Each gets the same questions (guard_questions.py); what one cannot do is said in its class. A server that is not
installed is skipped.
"""

import shutil
import signal
import ssl
import subprocess
import sys
import unittest

from guard_commands import ApacheCommand, NginxCommand
from guard_questions import Questions


class Apache(ApacheCommand, Questions):
    """Apache; a subclass names the way it runs its processes."""

    def setUp(self):
        if type(self) is Apache:  # pylint: disable=unidiomatic-typecheck
            self.skipTest("not a server by itself")
        super().setUp()


class ApachePrefork(Apache, unittest.TestCase):
    """One process a connection."""

    extra = "StartServers 3\n"


class ApacheEvent(Apache, unittest.TestCase):
    """Threads, and epoll for the kept-alive."""

    mpm, extra = "event", "StartServers 2\nThreadsPerChild 25\nScriptSock {folder}/cgid.sock\n"


class ApacheWorker(Apache, unittest.TestCase):
    """Threads."""

    mpm, extra = "worker", "StartServers 2\nThreadsPerChild 25\nScriptSock {folder}/cgid.sock\n"


class Nginx(NginxCommand, Questions, unittest.TestCase):
    """Edge-triggered epoll."""


class NginxWithoutSendfile(Nginx):
    """It reads and writes, and each worker has a socket of its own."""

    extra, listen = "sendfile off; tcp_nodelay on;", "reuseport"


class NginxWithTls(Nginx):
    """What is encrypted cannot be followed: a connection stays until the server closes it."""

    def setUp(self):
        super().setUp()
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=x",
                        "-keyout", self.folder + "/key", "-out", self.folder + "/cert"], check=True, capture_output=True)
        self.extra = f"ssl_certificate {self.folder}/cert; ssl_certificate_key {self.folder}/key;"

    listen = "ssl"

    def client(self, source="127.0.0.1"):
        client = super().client(source)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        client.socket = context.wrap_socket(client.socket)
        return client

    def test_connection_comes_back_after_each_answer(self):
        gate = self.start().gate
        with self.client() as client:
            for _ in range(5):
                self.hello(client)
            # The server tells the gate on a channel of its own, which may be later than its answers.
            self.server.wait_for(lambda: gate.took, "the connection to be taken")
            self.assertEqual((gate.took, gate.done, gate.back), ([1], [], []))
        self.all_quiet()

    def test_head_304_and_chunked(self):
        self.skipTest("counts what comes back")

    test_post = test_large = test_client_that_leaves = test_request_and_a_byte = test_head_304_and_chunked


class Lighttpd(Questions, unittest.TestCase):
    """One process with epoll."""

    program, reload = "lighttpd", signal.SIGUSR1

    def command(self):
        path = self.put("lighttpd.conf", f"""
            server.bind = "127.0.0.1"
            server.port = {self.port}
            server.document-root = "{self.folder}/root"
            server.modules = ("mod_cgi", "mod_accesslog")
            server.username = "www-data"
            server.groupname = "www-data"
            server.max-keep-alive-requests = 100000
            server.stream-response-body = 1
            accesslog.filename = "{self.folder}/access.log"
            server.errorlog = "{self.folder}/error.log"
            cgi.assign = (".cgi" => "")
            mimetype.assign = (".html" => "text/html")
            """)
        for name in ("access.log", "error.log"):
            shutil.chown(self.put(name, ""), "www-data")
        return ["lighttpd", "-D", "-f", path]


class PythonServer(Questions):
    """CPython's http.server."""

    program, base, reads_chunks = "python3", "http.server.ThreadingHTTPServer", False

    def command(self):
        path = self.put("server.py", f"""
            import http.server, socketserver, subprocess, sys
            class Forking(socketserver.ForkingMixIn, http.server.HTTPServer): pass
            class Handler(http.server.SimpleHTTPRequestHandler):
                protocol_version = "HTTP/1.1"
                def do_GET(self):
                    if self.path != "/post.cgi":
                        return super().do_GET()
                    text = subprocess.run(["echo", "a child's words"], capture_output=True).stdout
                    self.send_response(200)
                    self.send_header("Transfer-Encoding", "chunked")
                    self.end_headers()
                    for part in (text, text, b""):
                        self.wfile.write(b"%x\\r\\n%s\\r\\n" % (len(part), part))
                def do_POST(self):
                    size = len(self.rfile.read(int(self.headers["Content-Length"])))
                    self.send_response(200)
                    self.send_header("Content-Length", str(len(str(size)) + 4))
                    self.end_headers()
                    self.wfile.write(b"got %d" % size)
            class Server({self.base}):
                request_queue_size = 64
            Server(("127.0.0.1", {self.port}), lambda *a: Handler(*a, directory="root")).serve_forever()
            """)
        return [sys.executable, path]


class PythonThreads(PythonServer, unittest.TestCase):
    """A thread for each connection."""


class PythonForks(PythonServer, unittest.TestCase):
    """A process for each connection: the parent closes what the child goes on with."""

    base = "Forking"

    def all_quiet(self):
        # The parent's "done" and the child's "took" name the same connection, in either order.
        self.all_quiet_but_killed()


class PythonPlain(PythonServer, unittest.TestCase):
    """`python3 -m http.server`: HTTP/1.0, no connection kept."""

    keeps, posts = False, False

    def command(self):
        return [sys.executable, "-m", "http.server", str(self.port), "--bind", "127.0.0.1", "-d", "root"]


class Node(Questions, unittest.TestCase):
    """libuv."""

    program = "node"

    def command(self):
        path = self.put("server.js", f"""
            const http = require('http'), fs = require('fs');
            http.createServer((request, answer) => {{
              console.log(request.socket.remoteAddress, request.url);
              if (request.url === '/post.cgi' && request.method === 'POST') {{
                let size = 0;
                request.on('data', part => size += part.length);
                request.on('end', () => answer.end('got ' + size));
              }} else if (request.url === '/post.cgi') {{
                answer.write('one');
                setTimeout(() => answer.end('two'), 10);
              }} else {{
                const path = 'root' + request.url;
                answer.setHeader('Content-Length', fs.statSync(path).size);
                if (request.method === 'HEAD') answer.end(); else fs.createReadStream(path).pipe(answer);
              }}
            }}).listen({self.port}, '127.0.0.1');
            """)
        return ["node", path]

    def test_a_byte_during_a_slow_answer(self):
        """The server would read it while it answers; it is told that nothing is there, and does not ask in a circle."""
        gate = self.start().gate
        with self.client() as client:
            for number in (1, 2):
                client.send(b"GET /post.cgi HTTP/1.1\r\nHost: x\r\n\r\nG" if number == 1 else b"ET /post.cgi HTTP/1.1\r\n"
                            b"Host: x\r\n\r\n")
                self.assertEqual(client.answer()[0::2], (200, b"onetwo"))
                self.server.wait_for(lambda n=number: len(gate.back) == n, "the connection to come back")
        self.all_quiet()


class NodeCluster(Node):
    """Node's own processes: each accepts. When the last one ends, so does the listening."""

    workers, killed = True, 1

    def start(self, take=False):
        server = super().start(take)
        server.wait_for(lambda: server.output().count("ready") >= 3, "all workers to listen")
        return server

    def command(self):
        program, path = super().command()
        with open(path, encoding="utf-8") as file:
            single = file.read()
        with open(path, "w", encoding="utf-8") as file:
            file.write("const cluster = require('cluster');\n"
                       "if (cluster.isPrimary) {\n  cluster.on('listening', () => console.log('ready'));\n  cluster.on('exit', () => cluster.fork());\n"
                       "  for (let i = 0; i < 3; i++) cluster.fork();\n} else {\n" + single + "}\n")
        return [program, path]


class GunicornSync(Questions, unittest.TestCase):
    """One request a process; no connection kept."""

    program, keeps, workers, reload, kind = "gunicorn", False, True, signal.SIGHUP, ["-k", "sync", "-w", "3"]

    def command(self):
        self.put("app.py", """
            def application(environ, start_response):
                if environ["PATH_INFO"] == "/post.cgi":
                    text = b"got %d" % len(environ["wsgi.input"].read())
                    if environ["REQUEST_METHOD"] == "POST":
                        start_response("200 OK", [("Content-Length", str(len(text)))])
                        return [text]
                    start_response("200 OK", [])
                    return [b"one", b"two"]
                file = open("root" + environ["PATH_INFO"], "rb")
                size = str(file.seek(0, 2))
                file.seek(0)
                start_response("200 OK", [("Content-Length", size)])
                if environ["REQUEST_METHOD"] == "HEAD":
                    return []
                return environ["wsgi.file_wrapper"](file)
            """)
        return ["gunicorn", *self.kind, "-b", f"127.0.0.1:{self.port}", "--access-logfile", "-", "--keep-alive", "20",
                "app:application"]


class GunicornThreads(GunicornSync):
    """A pool of threads; connections are kept."""

    keeps, kind = True, ["-k", "gthread", "-w", "2", "--threads", "4"]


if __name__ == "__main__":
    unittest.main()
