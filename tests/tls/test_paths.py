"""Sites with a `path` under TLS: the site with the host's certificate relays to them, by HTTP/1.1 and HTTP/2."""

import contextlib
import json
import os
import re
import ssl
import subprocess
import threading
import unittest

import websocket_client
from backend import Raw, response
from client import until
from harness import rootless_too
from tls_server import Tls, certificate, client_certificate, insecure

SITES = """
[[site]]
name = "shop"
host = ["a.test"]
path = "/shop/"
root = "shop"
headers = {{ X-Site = "shop" }}
body_bytes = 200000
{keys}

  [[site.route]]
  path = "/shop/up/"
  upstream = "{up}"
  buffer = false

[[site]]
name = "deep"
host = ["a.test"]
path = "/shop/deep/"
root = "deep"

[[site]]
name = "app"
host = ["a.test"]
path = "/probe/"

  [[site.service]]
  name = "probe"
  path = "/probe/"
  command = ["bin/probe"]
  takes_connections = true
"""


def said(text):
    """Client, target, version and status of each line of an access log that has them."""
    return re.findall(r'(?m)^(\S+) .*?"\S+ (\S+) (\S+)" (\d+)', text)


class Paths(Tls):
    """A server whose host a.test has two sites with a path, and a server behind one of them."""

    def __init__(self, up="127.0.0.1:1", keys="", **more):
        more.setdefault("settings", 'hsts = "max-age=77"')
        super().__init__(more=SITES.format(up=up, keys=keys), conditioning="standard", **more)
        self.copy_program("probe")
        for name, path in {"shop": "shop/shop", "deep": "deep/shop/deep"}.items():
            self.write(f"{path}/index.html", f"{name}\n")
            self.write(f"{path}/large", name[0].encode() * 3_000_000)
        # What the first site has at the same paths is not sent.
        self.write("a/shop/index.html", "not for anybody\n")
        self.write("a/shop/deep/index.html", "not for anybody\n")
        self.write("a/shopping/index.html", "shopping\n")

    def fetch(self, target, *words, host="a.test", scheme="https"):
        """The status, the fields by name and the body."""
        port = self.tls if scheme == "https" else self.port
        url = f"{scheme}://{host}:{port}{target}"
        command = ["curl", "-sS", "-k", "--path-as-is", "--max-time", "20", "--resolve", f"{host}:{port}:127.0.0.1"]
        done = subprocess.run(
            [*command, "-D", "/dev/stderr", *words, url], capture_output=True, timeout=30, check=True
        )
        heads = done.stderr.decode().strip().split("\r\n\r\n")
        lines = heads[-1].splitlines()
        fields = dict(line.lower().split(": ", 1) for line in lines[1:] if ": " in line)
        return int(lines[0].split()[1]), fields, done.stdout

    def ask(self, target, version="HTTP/1.1", context=None):
        """What one request on a connection of its own gets."""
        with self.connect_tls(context=context) as stream:
            stream.sendall(f"GET {target} {version}\r\nHost: a.test\r\nConnection: close\r\n\r\n".encode())
            return b"".join(iter(lambda: stream.recv(65536), b""))

    def lines(self, name, target):
        """What the access log of a site says of a target, once it says something."""
        found = lambda: [line for line in said(self.log(f"{name}.access")) if line[1] == target]
        return until(found, 5) or []


class Shared(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.backend = cls.enterClassContext(Raw(answer=cls.answer))
        cls.server = Paths(up=cls.backend.at)
        cls.enterClassContext(cls.server)

    @staticmethod
    def answer(request):
        if request.line.startswith("POST /shop/up/echo "):
            return response(request.body)
        names = ("x-forwarded-for", "x-forwarded-proto", "x-forwarded-host", "client-cert", "x-own", "bulkhead-client")
        seen = {name: request.all(name) for name in names} | {"line": request.line}
        return response(json.dumps(seen).encode(), "200 OK", "Strict-Transport-Security: max-age=1")

    def both(self, target, *words):
        """What comes by HTTP/1.1 and by HTTP/2, which is the same but for the version."""
        one, two = (self.server.fetch(target, version, *words) for version in ("--http1.1", "--http2"))
        self.assertEqual((one[0], one[2]), (two[0], two[2]), target)
        return one


@rootless_too
class Requests(Shared):
    def test_a_path_is_the_same_sites_as_without_tls(self):
        for target, site in [
            ("/", "a"), ("/shop/", "shop"), ("//shop/", "shop"), ("/%73hop/", "shop"), ("/shop/deep/", "deep"),
            ("/shop//deep/", "deep"), ("/shop/%64eep/", "deep"), ("/shopping/", "shopping"),
            ("/shop/?x=/shop/deep/", "shop"),
        ]:
            status, fields, body = self.both(target)
            self.assertEqual((status, body.decode()), (200, f"{site}\n"), target)
            self.assertEqual(fields.get("x-site"), "shop" if site == "shop" else None, target)
            self.assertEqual(fields["strict-transport-security"], "max-age=77")

    def test_a_path_that_two_could_read_differently_is_refused(self):
        for target in ["/x/../shop/", "/shop/../", "/%2e%2e/shop/", "/shop/%zz"]:
            for version in ("--http1.1", "--http2"):
                self.assertEqual(self.server.fetch(target, version)[0], 400, target)
        for target in ["/SHOP/", "/shop/nothing"]:
            self.assertEqual(self.both(target)[0], 404, target)
        # A backend could read it as a path of the other site.
        self.assertEqual(self.both("/x%2f..%2fshop%2f")[0], 400)

    def test_a_folder_without_its_slash_is_the_first_sites(self):
        status, fields, _ = self.both("/shop")
        self.assertEqual(status, 301)
        self.assertIn("/shop/", fields["location"])

    def test_plain_http_is_redirected_to_where_the_site_is(self):
        status, fields, _ = self.server.fetch("/shop/large", scheme="http")
        self.assertEqual((status, fields["location"]), (301, f"https://a.test:{self.server.tls}/shop/large"))

    def test_files_answer_in_all_ways(self):
        status, fields, body = self.both("/shop/large")
        self.assertEqual((status, body), (200, b"s" * 3_000_000))
        status, ranged, body = self.both("/shop/large", "-r", "5-9")
        self.assertEqual((status, body, ranged["content-range"]), (206, b"sssss", "bytes 5-9/3000000"))
        for version in ("--http1.1", "--http2"):
            status, head, _ = self.server.fetch("/shop/large", version, "-I", "-o", "/dev/null")
            self.assertEqual((status, head["content-length"]), (200, "3000000"))
        self.assertEqual(self.both("/shop/large", "-H", f"If-None-Match: {fields['etag']}")[0], 304)
        status, fields, _ = self.both("/shop/", "-X", "DELETE")
        self.assertEqual((status, fields["allow"]), (405, "get, head, options"))

    def test_bodies_go_through_and_the_sites_own_limit_holds(self):
        body = os.urandom(150_000)
        path = self.server.write("body", body)
        for words in [(), ("-H", "Transfer-Encoding: chunked"), ("-H", "Expect: 100-continue")]:
            status, _, echoed = self.both("/shop/up/echo", *words, "--data-binary", f"@{path}")
            self.assertEqual((status, echoed), (200, body), words)
        path.write_bytes(body * 2)
        self.assertEqual(self.both("/shop/up/", "--data-binary", f"@{path}")[0], 413)

    def test_a_service_of_the_other_site_answers(self):
        for version in ("--http1.1", "--http2"):
            status, _, body = self.server.fetch("/probe/echo", version, "--data-binary", "x" * 5000)
            self.assertEqual((status, json.loads(body)["body_length"]), (200, 5000))

    def test_who_the_client_is_comes_with_the_connection(self):
        lies = ["X-Forwarded-For: 192.0.2.1", "X-Forwarded-Proto: http", "Client-Cert: :AAAA:", "Bulkhead-Client: 192.0.2.1:7"]
        words = [word for lie in lies for word in ("-H", lie)]
        _, fields, body = self.both("/shop/up/x%20y?q=%2F", *words, "-H", "X-Own: kept")
        seen = json.loads(body)
        self.assertEqual(seen["x-forwarded-for"], ["127.0.0.1"])
        self.assertEqual(seen["x-forwarded-proto"], ["https"])
        self.assertEqual(seen["x-forwarded-host"], [f"a.test:{self.server.tls}"])
        self.assertEqual((seen["client-cert"], seen["bulkhead-client"], seen["x-own"]), ([], [], ["kept"]))
        self.assertEqual(seen["line"], "GET /shop/up/x%20y?q=%2F HTTP/1.1")
        self.assertEqual(fields["strict-transport-security"], "max-age=77")

    def test_a_request_is_logged_once_by_the_site_that_answers(self):
        for version, name in [(None, "HTTP/1.0"), ("--http1.1", "HTTP/1.1"), ("--http2", "HTTP/2.0")]:
            target = f"/shop/?{name}"
            if version:
                self.server.fetch(target, version)
            else:
                self.server.ask(target, "HTTP/1.0")
            self.assertEqual(self.server.lines("shop", target), [("127.0.0.1", target, name, "200")])
        self.server.fetch("/?last")
        self.assertEqual(len(self.server.lines("a", "/?last")), 1)
        self.assertNotIn("/shop/?", self.server.log("a.access"))

    def test_another_host_on_the_connection_is_misdirected(self):
        for version in ("--http1.1", "--http2"):
            status, _, _ = self.server.fetch("/shop/", version, "-H", "Host: b.test")
            self.assertEqual(status, 421)

    def test_pipelined_requests_of_both_sites_are_answered_in_order(self):
        with self.server.connect_tls() as stream:
            targets = ["/", "/shop/", "/shop/deep/", "/", "/shop/"]
            heads = [f"GET {target} HTTP/1.1\r\nHost: a.test\r\n\r\n" for target in targets[:-1]]
            heads.append(f"GET {targets[-1]} HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n")
            stream.sendall("".join(heads).encode())
            text = b"".join(iter(lambda: stream.recv(65536), b"")).decode()
        self.assertEqual(re.findall(r"\n\r\n(\w+)\n", text.replace("\r\n\r\n", "\n\r\n")), ["a", "shop", "deep", "a", "shop"])

    def test_many_streams_at_once_are_whole(self):
        done = subprocess.run(
            ["curl", "-sS", "-k", "--http2", "-Z", "--max-time", "40", "--resolve", f"a.test:{self.server.tls}:127.0.0.1", "-w",
             "%{http_code} %{size_download} %{num_connects}\n", "-o", "/dev/null",
             f"https://a.test:{self.server.tls}/shop/large?[1-30]"],
            capture_output=True, timeout=60, check=True, text=True,
        ).stdout.splitlines()
        self.assertEqual([line.rsplit(" ", 1)[0] for line in done], ["200 3000000"] * 30)
        self.assertLess(sum(int(line.split()[2]) for line in done), 30, "streams of few connections")

    def test_a_websocket_goes_through(self):
        try:
            from websockets.sync.server import serve
        except ImportError:
            self.skipTest("python's websockets is not installed")

        def echo(socket):
            with contextlib.suppress(Exception):
                for message in socket:
                    socket.send(message)

        library = self.enterContext(serve(echo, "127.0.0.1", 0, max_size=None))
        threading.Thread(target=library.serve_forever, daemon=True).start()
        self.addCleanup(library.shutdown)
        with Paths(up="127.0.0.1:%d" % library.socket.getsockname()[1]) as server:
            uri = f"wss://a.test:{server.tls}/shop/up/"
            with websocket_client.Client(uri, server.tls, ssl=insecure(), server_hostname="a.test") as both:
                for message in ("hello", "x" * 100_000):
                    both.send(message)
                    self.assertEqual(both.recv(), message)
                both.close(4001, "enough")
                self.assertEqual(both.closed_with, (4001, 4001))
            self.assertEqual([line[3] for line in server.lines("shop", "/shop/up/")], ["101"])
            self.assertNotIn("/shop/up/", server.log("a.access"))

    def test_a_head_as_long_as_it_may_be_is_no_longer_for_the_other_site(self):
        # 32 KiB, with what curl says.
        for length, status in [(32_470, 200), (32_800, 431)]:
            got, _, _ = self.server.fetch("/shop/", "--http1.1", "-H", f"X-Long: {'x' * length}")
            self.assertEqual(got, status, length)


@rootless_too
class Certificates(unittest.TestCase):
    def test_the_other_site_hears_of_the_certificate_that_a_client_has_shown(self):
        more = """client_ca = "clients.pem"
client_certificates = "request"

[[site]]
name = "inner"
host = ["b.test"]
path = "/inner/"

  [[site.service]]
  name = "probe"
  path = "/inner/"
  command = ["bin/probe"]

  [[site.route]]
  path = "/inner/up/"
  upstream = "{up}"
"""
        answer = lambda request: response(json.dumps(request.all("client-cert")).encode())
        with Raw(answer=answer) as up:
            server = Tls(more=more.format(up=up.at), conditioning="standard")
            server.copy_program("probe")
            authority, _ = certificate(server.keys, "clients", "ec", "clients.test")
            server.write("clients.pem", authority)
            pair = server.write("pair", client_certificate(server.keys, "me", "clients"))
            lie = ["-H", "Client-Cert: :AAAA:"]
            with server:
                for version in ("--http1.1", "--http2"):
                    url = "https://b.test:{tls}/inner/up/"
                    self.assertEqual(json.loads(server.curl(url, version, *lie)[1]), [])
                    shown = json.loads(server.curl(url, version, *lie, "-E", str(pair))[1])
                    self.assertEqual(len(shown), 1)
                    self.assertGreater(len(shown[0]), 200)


def whole(stream):
    """The next answer, of a length that it says; what there is of it if the connection ends."""
    data = b""
    while True:
        head, end, body = data.partition(b"\r\n\r\n")
        length = re.search(rb"(?i)content-length: (\d+)", head)
        if end and length and len(body) >= int(length[1]):
            return data
        more = stream.recv(65536)
        if not more:
            return data
        data += more


class Changes(unittest.TestCase):
    """What holds while sites come and go; each test has a server of its own."""

    NEW = """
[[site]]
name = "new"
host = ["a.test"]
path = "/new/"
root = "{root}"
"""

    def reload(self, server, text):
        server.config.write_text(text)
        answer = server.command("reload", "--run-dir", "run")
        self.assertEqual(answer.returncode, 0, answer.stderr)

    @staticmethod
    def ask(stream, target):
        """The status and the body of a request on a connection that stays."""
        stream.sendall(f"GET {target} HTTP/1.1\r\nHost: a.test\r\n\r\n".encode())
        data = b""
        while b"\r\n\r\n" not in data:
            data += stream.recv(65536)
        head, body = data.split(b"\r\n\r\n", 1)
        length = int(re.search(rb"(?i)content-length: (\d+)", head)[1])
        while len(body) < length:
            body += stream.recv(65536)
        return int(head.split()[1]), body

    def test_sites_come_change_and_go_while_a_connection_stays(self):
        server = Paths()
        server.write("one/new/index.html", "one\n")
        server.write("two/new/index.html", "two\n")
        with server, server.connect_tls() as stream:
            text = server.config.read_text()
            front = server.process("site a").pid
            self.assertEqual(self.ask(stream, "/new/")[0], 404)
            for root in ("one", "two"):
                self.reload(server, text + self.NEW.format(root=root))
                self.assertEqual(self.ask(stream, "/new/"), (200, f"{root}\n".encode()))
            self.assertEqual(self.ask(stream, "/shop/"), (200, b"shop\n"))
            self.reload(server, text)
            self.assertEqual(self.ask(stream, "/new/")[0], 404)
            self.assertEqual(self.ask(stream, "/shop/"), (200, b"shop\n"))
            self.assertEqual(server.process("site a").pid, front, "the first site need not change")
            until(lambda: not server.processes("site new"), 10)
            self.assertEqual(server.processes("site new"), [])

    def go_on(self, count):
        """Some more requests are answered."""
        before = count[0]
        self.assertTrue(until(lambda: count[0] >= before + 10, 10))

    def test_requests_are_answered_while_either_worker_is_replaced(self):
        """As root and as clients would: new connections and kept ones, while workers are relaunched and sites reloaded."""
        server = Paths()
        wrong, count, over = [], [0], threading.Event()

        def work(kept):
            while not over.is_set():
                try:
                    if kept:
                        with server.connect_tls() as stream:
                            for _ in range(20):
                                stream.sendall(b"GET /shop/ HTTP/1.1\r\nHost: a.test\r\n\r\n")
                                data = whole(stream)
                                if not data:
                                    # The worker that goes ends what is idle, as a client has to expect.
                                    break
                                count[0] += 1
                                wrong.extend([data] if b" 200 OK" not in data else [])
                    else:
                        data = server.ask("/shop/")
                        count[0] += 1
                        wrong.extend([data] if b" 200 OK" not in data else [])
                except (ConnectionError, ssl.SSLError) as error:
                    if not kept:
                        wrong.append(error)

        with server:
            text = server.config.read_text()
            threads = [threading.Thread(target=work, args=(kept,)) for kept in (True, False, False)]
            [thread.start() for thread in threads]
            for round in range(2):
                for name in ("shop", "a"):
                    server.relaunch(name)
                    self.go_on(count)
                # Both sites are others, and take over together.
                other = text.replace("body_bytes = 200000", f"body_bytes = {300000 + round}")
                self.reload(server, other.replace('name = "a"\n', f'name = "a"\nlisting = {str(round == 0).lower()}\n'))
                self.go_on(count)
            over.set()
            [thread.join() for thread in threads]
        self.assertEqual(wrong[:3], [])
        self.assertGreater(count[0], 50)

    def test_an_upload_goes_on_while_both_workers_are_replaced(self):
        with Raw(answer=Shared.answer) as up, Paths(up=up.at) as server, server.connect_tls() as stream:
            body = os.urandom(150_000)
            head = f"POST /shop/up/echo HTTP/1.1\r\nHost: a.test\r\nContent-Length: {len(body)}\r\n\r\n"
            stream.sendall(head.encode() + body[:100_000])
            self.assertTrue(until(lambda: up.connections, 10), "the other site has begun to pass it on")
            server.relaunch("shop")
            server.relaunch("a")
            stream.sendall(body[100_000:])
            data = b"".join(iter(lambda: stream.recv(65536), b""))
            self.assertIn(b" 200 OK", data)
            self.assertEqual(data[-len(body):], body)

    def test_a_worker_that_dies_is_waited_for_and_costs_its_own_requests_alone(self):
        hold, asked = threading.Event(), threading.Event()

        def answer(request):
            asked.set()
            hold.wait(20)
            return response(b"late")

        with Raw(answer=answer) as up, Paths(up=up.at) as server:
            with server.connect_tls() as stream:
                stream.sendall(b"GET /shop/up/ HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n")
                self.assertTrue(asked.wait(10))
                server.process("site shop").kill()
                self.assertIn(b" 502 ", b"".join(iter(lambda: stream.recv(65536), b"")))
            hold.set()
            # Nobody else can have logged it.
            self.assertEqual([line[3] for line in server.lines("a", "/shop/up/")], ["502"])
            self.assertIn(b" 200 OK", server.ask("/shop/"))
            self.assertIn(b"\na\n", server.ask("/"))

    def test_a_client_that_goes_is_heard_of_behind_the_other_site(self):
        with Raw(answer=lambda _: threading.Event().wait(30) or b"") as up, Paths(up=up.at) as server:
            with server.connect_tls() as stream:
                stream.sendall(b"GET /shop/up/ HTTP/1.1\r\nHost: a.test\r\n\r\n")
                self.assertTrue(until(lambda: up.connections, 10))
            self.assertEqual([line[3] for line in server.lines("shop", "/shop/up/")], ["499"])
            self.assertNotIn("/shop/up/", server.log("a.access"))

    def test_a_site_that_hangs_leaves_the_first_its_places(self):
        with Raw(answer=lambda _: threading.Event().wait(40) or b"") as up:
            with Paths(up=up.at, limits="connections = 64") as server:
                held = [server.connect_tls() for _ in range(40)]
                for stream in held:
                    stream.sendall(b"GET /shop/up/ HTTP/1.1\r\nHost: a.test\r\n\r\n")
                self.assertTrue(until(lambda: up.connections > 5, 10))
                self.assertIn(b" 200 OK", server.ask("/"))
                self.assertIn(b" 200 OK", server.ask("/shop/deep/"))
                self.assertLess(up.connections, 40)
                [stream.close() for stream in held]

    def test_a_rate_counts_in_the_site_that_answers(self):
        server = Paths()
        text = server.config.read_text()
        server.config.write_text(
            text.replace("[conditioning]\n", "[conditioning]\nexempt = []\nrate_max = 1\nrate_burst = 4\n", 1)
        )
        with server:
            # One connection, as that is what the gate counts for the site that does TLS.
            with server.connect_tls() as stream:
                statuses = [self.ask(stream, "/shop/")[0] for _ in range(12)]
                self.assertEqual((statuses[:4], statuses[-1]), ([200] * 4, 429))
                self.assertEqual(self.ask(stream, "/shop/deep/")[0], 200)
                self.assertEqual(self.ask(stream, "/")[0], 200)
            self.assertTrue(until(lambda: "429" in [line[3] for line in server.lines("shop", "/shop/")], 5))
            self.assertNotIn("/shop/", server.log("a.access"))
