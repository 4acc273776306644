"""What retires goes on with what has taken the place of all that it used: services, gates, connectors and other sites.

A worker that retires holds what has come of an upload, and passes it on when the rest is there. By then the service may have
been replaced any number of times.
"""

import json
import socket
import unittest

import backend
import client
from client import until
from harness import Server, rootless_too, service, site
from reloading import Reloading
from steady import Changing, Upload, WebSocket, connect
from tls_server import Tls

#: How often everything is replaced. What a worker knew when it was asked to retire is gone after the first time.
TIMES = 3
#: Whoever waits for a change sends and takes nothing.
PATIENT = {"body_min_rate": "0B/s", "response_min_rate": "0B/s"}
#: LIMIT: bytes that are more than all sockets between a file and its client hold.
LARGE = 32 << 20


class Download:
    """A large answer of a service, of which the client has taken the beginning."""

    def __init__(self, connection):
        self.stream = connection
        self.stream.sendall(client.request(f"/probe/long?kib={LARGE >> 10}", "steady.test", ["Connection: close"]))
        self.begun = self.stream.recv(1000)

    def finish(self):
        """Takes the rest. Raises unless the answer is whole."""
        answer = b"".join([self.begun, *iter(lambda: self.stream.recv(1 << 20), b"")])
        head, _, body = answer.partition(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200") or len(body) != LARGE:
            raise ConnectionError(f"{len(body)} bytes after {head!r}")


class Talk(WebSocket):
    """A WebSocket on which nothing has been said yet."""

    def finish(self):
        """Says something. Raises unless it is heard."""
        self.exchange(b"still there")
        self.stream.close()


def pids(server, name):
    """The processes of this name, by what the launcher says of them."""
    return {line["pid"] for line in server.order(command="status")["processes"] if line["name"] == name}


def replace(server, name, ends=True):
    """Relaunches a name again and again, each time when the processes before have gone, if nothing holds them."""
    for _ in range(TIMES):
        before = pids(server, name)
        server.relaunch(name)
        if ends and not until(lambda before=before: not before & pids(server, name), 20):
            raise AssertionError(f"{name} does not end: {before}")


class Replaced:
    """Something is under way by a worker of the site `steady`, which is replaced, and so are then its services."""

    def finish_after_changes(self, held, name):
        """Whether the worker and the service that hold something end when it is over."""
        worker = self.server.process("site steady")
        self.server.relaunch("steady")
        replace(self.server, f"steady/{name}", self.ends)
        self.assertTrue(worker.alive or not self.by_worker, "the worker was to have something yet")
        held.finish()
        self.assertTrue(until(lambda: not worker.alive, 20))

    def test_an_upload(self):
        for tls in self.over:
            with self.subTest(tls=tls):
                upload = Upload(connect(self.server, tls), 4)
                self.addCleanup(upload.stream.close)
                upload.push()
                self.finish_after_changes(upload, "probe")

    def test_a_download(self):
        self.ends = False
        for tls in self.over:
            with self.subTest(tls=tls):
                download = Download(connect(self.server, tls))
                self.addCleanup(download.stream.close)
                self.finish_after_changes(download, "probe")

    def test_a_websocket(self):
        self.ends = False
        for tls in self.over:
            with self.subTest(tls=tls):
                self.finish_after_changes(Talk(connect(self.server, tls)), "socket")


@rootless_too
class ByTheWorker(Replaced, unittest.TestCase):
    over, by_worker, ends = (False, True), True, True

    def setUp(self):
        self.server = self.enterContext(Changing(drain="2m"))


@rootless_too
class ByTheService(Replaced, unittest.TestCase):
    """A service with `takes_connections` has what its clients send, and ends when it has answered."""

    over, by_worker, ends = (False,), False, False

    def setUp(self):
        services = [service("probe", takes=True), service("socket", "/socket", takes=True)]
        self.server = self.enterContext(
            Server([site("steady", services)], ("probe", "socket"), conditioning=PATIENT, limits={"drain_timeout": "2m"}))


def begin_upload(peer, path, host="main.test"):
    """Begins an upload on a connection that the worker has already, so that the worker has it as well."""
    if peer.get("/", host).status != 200:
        raise AssertionError("the site does not answer")
    peer.send(f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 6\r\n\r\nabc".encode())


@rootless_too
class Others(unittest.TestCase):
    """What a worker uses beside services."""

    def finish(self, peer):
        """Sends the rest of the upload; the answer's body."""
        peer.send(b"def")
        answer = peer.response("POST")
        self.assertEqual(answer.status, 200, answer)
        return answer.body

    def test_connectors(self):
        with backend.Raw(answer=lambda request: backend.response(request.body)) as behind:
            main = site("main") | {"route": [{"path": "/behind", "upstream": [behind.at]}]}
            with Server([main], (), conditioning=PATIENT) as server, server.connect() as peer:
                begin_upload(peer, "/behind")
                worker = server.process("site main")
                server.relaunch("main")
                replace(server, "main:connector")
                self.assertTrue(worker.alive)
                self.assertEqual(self.finish(peer), b"abcdef")

    def test_gates(self):
        """A connection that a worker has had from a gate which is gone is handed back to one that came later."""
        with Server([site("main")], (), files={"main/large": b"x" * LARGE}, conditioning=PATIENT) as server:
            with server.connect(timeout=30) as kept:
                kept.send(client.request("/large"))
                self.assertTrue(kept.socket.recv(1, socket.MSG_PEEK), "the answer has begun")
                worker = server.process("site main")
                server.relaunch("main")
                replace(server, "gate")
                self.assertTrue(worker.alive)
                self.assertEqual(len(kept.response().body), LARGE)
                self.assertEqual(kept.get("/").text, "<h1>main</h1>\n")
                self.assertTrue(until(lambda: not worker.alive, 20))

    def test_a_service_that_rests(self):
        """The worker has it started, after a relaunch of the site as well as after a reload that has changed the site."""
        main = site("main", [service()]) | {"start": "on-demand", "idle_stop": "10s"}
        changed = main | {"index": ["index.html", "other.html"]}
        settings = {"conditioning": PATIENT}
        changes = {"relaunch": lambda server: server.relaunch("main"),
                   "reload": lambda server: self.assertIsNone(server.reload([changed], **settings))}
        for name, change in changes.items():
            with self.subTest(change=name), Reloading([main], **settings) as server, server.connect(timeout=30) as peer:
                begin_upload(peer, "/probe/echo")
                worker = server.process("site main")
                change(server)
                self.assertTrue(worker.alive)
                self.assertEqual(server.processes("bin/probe"), [])
                self.assertEqual(json.loads(self.finish(peer))["body_length"], 6)
                peer.close()
                self.assertTrue(until(lambda: not worker.alive, 20))

    def test_a_service_that_is_killed(self):
        """That of a site which has changed, or is gone, comes back for the worker that goes; and ends with it."""
        main, settings = site("main", [service()]), {"conditioning": PATIENT}
        changes = {"changed": [main | {"index": ["index.html", "other.html"]}], "gone": [site("other")]}
        for name, sites in changes.items():
            with self.subTest(change=name), Reloading([main], **settings) as server, server.connect(timeout=30) as peer:
                begin_upload(peer, "/probe/echo")
                worker, killed = server.process("site main"), server.process("bin/probe")
                self.assertIsNone(server.reload(sites, **settings))
                self.assertTrue(worker.alive)
                self.assertTrue(killed.alive)
                after = [process for process in server.processes("bin/probe") if process != killed]
                killed.kill()
                again = until(lambda: set(server.processes("bin/probe")) - {killed, *after}, 20)
                self.assertTrue(again, "it comes back")
                self.assertEqual(json.loads(self.finish(peer))["body_length"], 6)
                peer.close()
                self.assertTrue(until(lambda: not worker.alive, 20))
                self.assertTrue(until(lambda: not any(process.alive for process in again), 20))


BELOW = """
[[site]]
name = "below"
host = ["a.test"]
path = "/probe/"

  [[site.service]]
  name = "probe"
  path = "/probe/"
  command = ["bin/probe"]
"""


@rootless_too
class BelowAHost(unittest.TestCase):
    def test_a_site_to_which_another_relays(self):
        server = Tls(more=BELOW, conditioning="standard")
        server.copy_program("probe")
        with server, server.connect_tls() as peer:
            peer.sendall(b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n")
            self.assertIn(b" 200 OK", peer.recv(65536))
            peer.sendall(b"POST /probe/echo HTTP/1.1\r\nHost: a.test\r\nContent-Length: 6\r\nConnection: close\r\n\r\nabc")
            worker = server.process("site a")
            server.relaunch("a")
            replace(server, "below")
            replace(server, "below/probe")
            self.assertTrue(worker.alive)
            peer.sendall(b"def")
            answer = b"".join(iter(lambda: peer.recv(65536), b""))
            self.assertIn(b"HTTP/1.1 200", answer)
            self.assertIn(b'"body_length":6,', answer)
            self.assertTrue(until(lambda: not worker.alive, 20))


if __name__ == "__main__":
    unittest.main()
