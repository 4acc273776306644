"""A body is whole before a server behind the site hears of it, and waits in a file where it is long.

Real servers behind the site (php-fpm with four children, and one that speaks HTTP), by HTTP/1.1, HTTP/2 and under TLS: who
sends a body slowly occupies none of them, and who sends much of it fills no disk.
"""

import contextlib
import hashlib
import os
import shutil
import socket
import subprocess
import unittest
from pathlib import Path

import backend
import client
from backend import Fpm, Mute, Raw, folder
from client import until
from frames import DATA, END_HEADERS, END_STREAM, HEADERS, RST_STREAM, Http2, block, frame
from harness import ROOTLESS, Server, free_port, rootless_too
from tls_server import certificate, insecure

#: LIMIT: seconds for an answer on a machine that has much else to do.
PATIENCE = 20
#: Bytes that a slow client has sent, of many more: what php-fpm's process was waited for with before.
BEGUN = 66_000
#: Bytes of the file that stay, however little is in it.
STAYS = 1 << 20

CONFIG = """
[[listen]]
address = "127.0.0.1:{port}"
h2c = true

[[listen]]
address = "127.0.0.1:{tls}"
tls = true

[server]
user_range = "51001-51999"
state_dir = "state"
run_dir = "run"
log_dir = "log"
gates = 1

[limits]
drain_timeout = "20s"

[tls]

[[site]]
name = "main"
host = ["main.test"]
root = "main"
certificates = ["main.pem"]
body_bytes = "{body}"
spool_bytes = "5MiB"
{php}

  [[site.route]]
  path = "/app/"
  upstream = "{app}"

  [[site.route]]
  path = "/one/"
  upstream = "{app}"
  requests = 1

  [[site.route]]
  path = "/streamed/"
  upstream = "{app}"
  buffer = false

  [[site.route]]
  path = "/mute/"
  upstream = "{mute}"
  requests = 4000

  [[site.route]]
  path = "/mute-fastcgi/"
  fastcgi = "{mute}"
  script = "/page.php"
  requests = 4000

  [[site.route]]
  path = "/closed/"
  upstream = "{app}"
  auth = {{ users = "users" }}
"""

PAGES = {
    "main/index.html": "the files",
    "main/page.php": "<?php echo 'a page';",
    "main/echo.php": '<?php $all = file_get_contents("php://input"); '
    'echo $_SERVER["CONTENT_LENGTH"] ?? "none", " ", strlen($all), " ", hash("sha256", $all);',
}


def seen(request):
    """What a server says of a request."""
    said = f"{request.field('content-length')} {len(request.body)} {hashlib.sha256(request.body).hexdigest()}"
    return backend.response(said.encode(), "200 OK", f"X-Coding: {request.field('transfer-encoding')}")


def lines(path, length=None):
    own = [(b":method", b"POST"), (b":scheme", b"http"), (b":authority", b"main.test"), (b":path", path.encode())]
    return own + ([(b"content-length", str(length).encode())] if length else [])


class PlainHttp2(Http2):
    def __init__(self, port):
        self.begin(socket.create_connection(("127.0.0.1", port), timeout=PATIENCE))


class Spooling(unittest.TestCase):
    php, body = True, "3MiB"

    @classmethod
    def setUpClass(cls):
        cls.place = folder()
        cls.addClassCleanup(shutil.rmtree, cls.place, True)
        cls.app = Raw(answer=seen, backlog=512)
        cls.addClassCleanup(cls.app.close)
        cls.mute = Mute(backlog=4096)
        cls.addClassCleanup(cls.mute.close)
        php = ""
        if cls.php and backend.php_fpm():
            cls.fpm = Fpm(cls.place, children=4)
            cls.addClassCleanup(cls.fpm.close)
            php = f'php = "unix:{cls.fpm.socket}"'
        cls.tls = free_port()
        text = lambda port: CONFIG.format(port=port, tls=cls.tls, php=php, body=cls.body, app=cls.app.at, mute=cls.mute.at)
        cls.server = Server(sites=[], programs=(), text=text, files=PAGES)
        cert, key = certificate(cls.server.write("keys/x", "").parent, "main", "ec", "main.test")
        cls.server.write("main.pem", cert + key).chmod(0o644 if ROOTLESS else 0o600)
        cls.server.write("users", "ann:$2y$04$pXmKKN4LVrl/pi.63jVWLuHlaQPdiA9nAsfQDJjjvLo3dW3mdoazO\n")
        cls.prepare()
        cls.enterClassContext(cls.server)

    @classmethod
    def prepare(cls):
        pass

    def spooled(self):
        """Bytes of the file of the site's worker."""
        process = self.server.process("site main")
        for number, what in process.descriptors().items():
            if "(deleted)" in what and "memfd" not in what:
                return os.stat(process.folder / "fd" / str(number)).st_size
        raise AssertionError(process.descriptors())

    def slow(self, kind, path, stack, chunked=False, source=None, begun=BEGUN, announced=2_000_000):
        """A client whose body has begun."""
        if kind.startswith("HTTP/2"):
            peer = PlainHttp2(self.server.port) if kind == "HTTP/2" else Http2(insecure(), self.tls)
            stack.callback(peer.socket.close)
            peer.send(frame(HEADERS, END_HEADERS, 1, block(lines(path, announced))))
            # As much as the window lets it send at once.
            for piece in (16_384, 16_384, 16_384, 16_383):
                peer.send(frame(DATA, 0, 1, b"z" * piece))
            return peer
        if kind == "HTTP/1.1":
            peer = client.Connection(self.server.port, source=source, timeout=PATIENCE)
        else:
            peer = client.Connection(self.tls, timeout=PATIENCE)
            peer.socket = insecure().wrap_socket(peer.socket, server_hostname="main.test")
        stack.callback(peer.close)
        framing = "Transfer-Encoding: chunked" if chunked else f"Content-Length: {announced}"
        peer.send(f"POST {path} HTTP/1.1\r\nHost: main.test\r\n{framing}\r\n\r\n".encode())
        peer.send(b"%x\r\n%s\r\n" % (begun, b"z" * begun) if chunked else b"z" * begun)
        return peer

    def curl(self, *words):
        address = f"main.test:{self.server.port}:127.0.0.1", f"main.test:{self.tls}:127.0.0.1"
        resolve = [word for one in address for word in ("--resolve", one)]
        command = ["curl", "-sk", "--max-time", "30", *resolve, *map(str, words)]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def urls(self, path):
        plain, secure = f"http://main.test:{self.server.port}{path}", f"https://main.test:{self.tls}{path}"
        return {
            "HTTP/1.1": ("--http1.1", plain), "HTTP/2": ("--http2-prior-knowledge", plain),
            "HTTP/1.1 TLS": ("--http1.1", secure), "HTTP/2 TLS": ("--http2", secure),
        }


KINDS = ("HTTP/1.1", "HTTP/2", "HTTP/1.1 TLS", "HTTP/2 TLS")


@rootless_too
class Slow(Spooling):
    @unittest.skipUnless(backend.php_fpm(), "php-fpm is not installed")
    def test_slow_bodies_keep_no_process_of_php(self):
        for kind in KINDS:
            with self.subTest(kind), contextlib.ExitStack() as stack:
                peers = [self.slow(kind, "/echo.php", stack) for _ in range(8)]
                for _ in range(20):
                    answer = self.server.get("/page.php", timeout=5)
                    self.assertEqual((answer.status, answer.body), (200, b"a page"))
                self.assertEqual(len(peers), 8)

    def test_a_chunked_body_that_drips_keeps_no_server(self):
        before = len(self.app.requests)
        with contextlib.ExitStack() as stack:
            peer = self.slow("HTTP/1.1", "/one/x", stack, chunked=True, begun=10)
            self.assertEqual(self.server.get("/one/get", timeout=5).status, 200)
            self.assertEqual([one.line for one in self.app.requests[before:]], ["GET /one/get HTTP/1.1"])
            peer.send(b"3\r\nend\r\n0\r\n\r\n")
            answer = peer.response()
            self.assertEqual(answer.headers["x-coding"], "None")
            self.assertEqual(answer.text.split()[:2], ["13", "13"])

    def test_what_is_passed_on_as_it_comes(self):
        before = len(self.app.seen) + len(self.app.requests) + self.app.connections
        with contextlib.ExitStack() as stack:
            connections = self.app.connections
            peer = self.slow("HTTP/1.1", "/streamed/x", stack)
            self.assertTrue(until(lambda: self.app.connections > connections or self.app.held, PATIENCE), before)
            peer.send(b"z" * (2_000_000 - BEGUN))
            self.assertEqual(peer.response().text.split()[:2], ["2000000", "2000000"])
            self.assertLessEqual(self.spooled(), STAYS)

    def test_a_relaunch_waits_for_a_body(self):
        with contextlib.ExitStack() as stack:
            peer = self.slow("HTTP/1.1", "/app/x", stack, begun=1_000_000)
            self.assertTrue(until(lambda: self.spooled() >= 900_000, PATIENCE))
            self.server.relaunch("main")
            peer.send(b"z" * 1_000_000)
            self.assertEqual(peer.response().text.split()[:2], ["2000000", "2000000"])


@rootless_too
class Whole(Spooling):
    def test_bodies_of_every_length(self):
        lengths = (1, 65_535, 65_536, 65_537, 131_072, 131_073, 1_500_000)
        targets = ["/app/x"] + (["/echo.php"] if backend.php_fpm() else [])
        for length in lengths:
            body = os.urandom(length)
            path = self.place / f"body-{length}"
            path.write_bytes(body)
            expected = f"{length} {length} {hashlib.sha256(body).hexdigest()}"
            for target in targets:
                for kind, (option, url) in self.urls(target).items():
                    with self.subTest(length=length, kind=kind, target=target):
                        said = self.curl(option, "-X", "POST", "-H", "Content-Type: x/y", "--data-binary", f"@{path}", url)
                        self.assertEqual(said.stdout, expected)
                with self.subTest(length=length, target=target, chunked=True):
                    url = self.urls(target)["HTTP/1.1"][1]
                    coding = "Transfer-Encoding: chunked"
                    said = self.curl("-X", "POST", "-H", coding, "-H", "Content-Type: x/y", "--data-binary", f"@{path}", url)
                    self.assertEqual(said.stdout, expected)

    def test_of_an_empty_one_its_length_is_told_as_well(self):
        with self.server.connect() as peer:
            peer.send(b"POST /app/x HTTP/1.1\r\nHost: main.test\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")
            self.assertEqual(peer.response().text.split()[:2], ["0", "0"])

    def test_who_is_refused_is_told_before_the_body(self):
        cases = [("/closed/x", "", 401), ("/app/x", "Content-Length: 4000000", 413)]
        if backend.php_fpm():
            cases.append(("/none.php", "", 404))
        for path, length, status in cases:
            with self.subTest(path), self.server.connect() as peer:
                length = length or "Content-Length: 100000"
                peer.send(f"POST {path} HTTP/1.1\r\nHost: main.test\r\n{length}\r\nExpect: 100-continue\r\n\r\n".encode())
                answer = peer.socket.recv(65536)
                self.assertTrue(answer.startswith(b"HTTP/1.1 %d " % status), answer)
            with self.subTest(path, kind="HTTP/2"), PlainHttp2(self.server.port) as peer:
                heads, take = [], peer.take
                peer.take = lambda kind, *rest: (take(kind, *rest), heads.append(peer.statuses[1]) if kind == HEADERS else 0)
                told = [*lines(path, int(length.split()[1])), (b"expect", b"100-continue")]
                peer.send(frame(HEADERS, END_HEADERS, 1, block(told)))
                self.assertEqual((peer.outcome(1, PATIENCE), heads), (status, [status]))
        with self.server.connect() as peer:
            head = "POST /app/x HTTP/1.1\r\nHost: main.test\r\nContent-Length: 70000\r\nExpect: 100-continue\r\n\r\n"
            peer.send(head.encode())
            self.assertEqual(peer.socket.recv(65536), b"HTTP/1.1 100 Continue\r\n\r\n")
            peer.send(b"z" * 70_000)
            self.assertEqual(peer.response().text.split()[0], "70000")
        with PlainHttp2(self.server.port) as peer:
            heads, take = [], peer.take
            peer.take = lambda kind, *rest: (take(kind, *rest), heads.append(peer.statuses[1]) if kind == HEADERS else 0)
            peer.send(frame(HEADERS, END_HEADERS, 1, block([*lines("/app/x", 3), (b"expect", b"100-continue")])))
            self.assertEqual(peer.outcome(1, 1), "nothing")
            self.assertEqual(heads, [100])
            peer.send(frame(DATA, END_STREAM, 1, b"end"))
            self.assertEqual((peer.outcome(1, PATIENCE), heads), (200, [100, 200]))


@rootless_too
class Bounded(Spooling):
    php = False

    def full(self, stack, source="127.0.0.1"):
        """Two bodies that leave less than 1 MiB; one of them is of 2,500,000 bytes."""
        peers = []
        for _ in range(2):
            peers.append(self.slow("HTTP/1.1", "/app/x", stack, source=source, begun=2_400_000, announced=2_500_000))
        self.assertTrue(until(lambda: self.spooled() >= 4_700_000, PATIENCE))
        return peers

    def post(self, size, source, **more):
        with contextlib.closing(client.Connection(self.server.port, source=source, timeout=PATIENCE)) as peer:
            return peer.get("/app/x", method="POST", body=b"z" * size, **more).status

    def test_the_heaviest_range_gives_way_to_others_and_files_to_none(self):
        with contextlib.ExitStack() as stack:
            first, second = self.full(stack)
            # What it already has is not taken from it for itself.
            self.assertEqual(self.post(2_000_000, "127.0.0.1"), 503)
            self.assertEqual(self.post(65_536, "127.0.0.1"), 200)
            self.assertEqual(self.post(2_000_000, "127.200.0.1"), 200)
            self.assertEqual(first.response().status, 503)
            self.assertEqual(self.server.get("/").body, b"the files")
            self.assertEqual(self.server.get("/app/get").status, 200)
            second.send(b"z" * 100_000)
            self.assertEqual(second.response().text.split()[:2], ["2500000", "2500000"])
        self.assertTrue(until(lambda: self.spooled() <= STAYS, PATIENCE))
        self.assertTrue(until(lambda: "503 for /app/x: bodies that wait take all of `spool_bytes`" in self.server.log(), PATIENCE))

    def test_a_client_that_goes_and_a_stream_that_is_reset_leave_nothing(self):
        with contextlib.ExitStack() as stack:
            self.full(stack)
        self.assertTrue(until(lambda: self.spooled() <= STAYS, PATIENCE))
        with PlainHttp2(self.server.port) as peer:
            peer.send(frame(HEADERS, END_HEADERS, 1, block(lines("/app/x", 2_500_000))))

            def goes_on():
                for _ in range(3):
                    peer.send(frame(DATA, 0, 1, b"z" * 16_384))
                # Until its window is open again.
                peer.outcome(1, 0.05)
                return self.spooled() > 1_500_000

            self.assertTrue(until(goes_on, PATIENCE))
            peer.send(frame(RST_STREAM, 0, 1, (8).to_bytes(4, "big")))
            self.assertTrue(until(lambda: self.spooled() <= STAYS, PATIENCE))
            peer.request(3, lines("/app/x"), b"z")
            self.assertEqual(peer.outcome(3, PATIENCE), 200)

    def test_a_killed_worker_leaves_nothing(self):
        with contextlib.ExitStack() as stack:
            self.full(stack)
            worker = self.server.process("site main")
            worker.kill()
            self.assertTrue(until(lambda: self.server.process("site main") != worker, PATIENCE))
            self.assertTrue(until(lambda: self.server.status("/") == 200, PATIENCE))
            self.assertEqual(self.spooled(), 0)
        self.assertEqual(os.listdir(self.server.folder / "state/spool"), [])
        self.assertEqual(self.post(2_000_000, "127.0.0.1"), 200)

    def test_its_limits_end_the_file(self):
        limits = (self.server.process("site main").folder / "limits").read_text()
        size = next(line for line in limits.splitlines() if line.startswith("Max file size"))
        self.assertEqual(size.split()[3:5], [str(5 << 20)] * 2)


class Exchanges(Spooling):
    """What the worker holds of requests that a server does not answer."""

    php = False
    COUNT = 300
    #: Bytes of an exchange, beside its body; and of a body, for each that has come.
    EXCHANGE_MAX, OF_A_BYTE_MAX = 16 << 10, 3

    def memory(self):
        lines = (self.server.process("site main").folder / "smaps_rollup").read_text().splitlines()
        return sum(1024 * int(line.split()[1]) for line in lines if line.startswith("Private"))

    def held(self, path, kind, stack, body=0):
        """Bytes of the worker for each of as many requests."""
        before, known = self.memory(), len(self.mute.held)
        peer, method = None, "POST" if body else "GET"
        for number in range(self.COUNT):
            if kind == "HTTP/1.1":
                one = stack.enter_context(self.server.connect(timeout=PATIENCE))
                one.send(client.request(path, method=method, body=b"z" * body))
                continue
            if number % 100 == 0:
                peer = stack.enter_context(PlainHttp2(self.server.port))
            stream, own = 1 + 2 * (number % 100), [(b":method", method.encode()), *lines(path)[1:]]
            peer.send(frame(HEADERS, END_HEADERS | (0 if body else END_STREAM), stream, block(own)))
            if body:
                peer.send(frame(DATA, END_STREAM, stream, b"z" * body))
                # Until the window of the connection is open again.
                peer.outcome(stream, 0.01)
        self.assertTrue(until(lambda: len(self.mute.held) >= known + self.COUNT, PATIENCE))
        return (self.memory() - before) / self.COUNT

    def test_without_a_body(self):
        for path in ("/mute/x", "/mute-fastcgi/x"):
            for kind in ("HTTP/1.1", "HTTP/2"):
                with self.subTest(path, kind=kind), contextlib.ExitStack() as stack:
                    self.assertLess(self.held(path, kind, stack), self.EXCHANGE_MAX)

    def test_with_a_body(self):
        """A hundred times what an attacker sends is what others hold of it: here it is three times at most."""
        for kind, body in (("HTTP/1.1", 60_000), ("HTTP/2", 10_000)):
            with self.subTest(kind=kind), contextlib.ExitStack() as stack:
                held = self.held("/mute/x", kind, stack, body)
                self.assertLess(held, self.EXCHANGE_MAX + self.OF_A_BYTE_MAX * body)


@unittest.skipIf(ROOTLESS or os.geteuid(), "mounts a file system")
class FullDisk(Spooling):
    php = False

    @classmethod
    def prepare(cls):
        state = cls.server.folder / "state"
        state.mkdir(mode=0o755)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m,mode=755", "bulkhead-test", state], check=True)
        cls.addClassCleanup(subprocess.run, ["umount", "-l", state], check=False)

    def test_who_has_no_room_is_told_and_the_log_as_well(self):
        Path(self.server.folder / "state/filler").write_bytes(b"z" * 4_500_000)
        for _ in range(3):
            answer = self.server.get("/app/x", method="POST", body=b"z" * 2_000_000)
            self.assertEqual((answer.status, answer.headers["retry-after"]), (503, "5"))
        self.assertEqual(self.server.get("/app/x", method="POST", body=b"z" * 65_536).status, 200)
        self.assertEqual(self.server.get("/").status, 200)
        line = "503 for /app/x: a body cannot be kept in a file: No space left on device"
        self.assertTrue(until(lambda: line in self.server.log(), PATIENCE))
        (self.server.folder / "state/filler").unlink()
        self.assertEqual(self.server.get("/app/x", method="POST", body=b"z" * 2_000_000).status, 200)


if __name__ == "__main__":
    unittest.main()
