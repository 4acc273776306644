"""What a service sends piece by piece, what it does in the background, and what becomes of both when it retires."""

import re
import unittest
import zlib

from client import until
from harness import Server, rootless_too, service, site

JSON = "Content-Type: application/json"


class Stream:
    """A connection on which events come."""

    def __init__(self, server, target="/tools/events", host="main.test", headers=()):
        self.connection = server.connect()
        lines = [f"GET {target} HTTP/1.1", f"Host: {host}", *headers, "", ""]
        self.connection.send("\r\n".join(lines).encode())
        self.raw = b""

    @property
    def text(self):
        """What has arrived, decompressed if it was compressed."""
        head, _, rest = self.raw.partition(b"\r\n\r\n")
        if b"content-encoding: gzip" not in head.lower():
            return self.raw.decode()
        body = zlib.decompressobj(31)
        text, at = "", 0
        while chunk := re.compile(rb"([0-9a-f]+)\r\n").match(rest, at):
            end = chunk.end() + int(chunk[1], 16)
            text += body.decompress(rest[chunk.end():end]).decode()
            at = end + 2
        return text

    def until(self, text, seconds=5):
        """Reads until `text` is there; whether it is."""
        self.connection.socket.settimeout(seconds)
        while text not in self.text:
            data = self.connection.socket.recv(65536)
            if not data:
                return False
            self.raw += data
        return True

    def close(self):
        self.connection.close()


@rootless_too
class Streams(unittest.TestCase):
    def setUp(self):
        relayed = service("tools", "/tools", command=["bin/tools"])
        direct = service("direct", "/tools", takes=True, command=["bin/direct"])
        self.server = Server([site("main", [relayed]), site("direct", [direct])], ("tools",),
                             limits={"drain_timeout": "5s", "idle_timeout": "2s"})
        self.server.copy_program("tools", "direct")
        self.enterContext(self.server)

    def stream(self, **more):
        stream = Stream(self.server, **more)
        self.addCleanup(stream.close)
        return stream

    def count(self, text):
        return self.server.log().count(text)

    def test_events_come_as_they_are_sent_and_go_on_where_a_client_was(self):
        for host in ("main.test", "direct.test"):
            with self.subTest(host):
                stream = self.stream(host=host)
                self.assertTrue(stream.until("id: 2\ndata: event 2\n\n"))
                head = stream.text.partition("\r\n\r\n")[0].lower()
                self.assertIn("content-type: text/event-stream", head)
                self.assertIn("cache-control: no-store", head)
                again = self.stream(host=host, headers=["Last-Event-ID: 2", "Accept-Encoding: gzip"])
                self.assertTrue(again.until("data: event 3\n"))
                self.assertNotIn("data: event 2\n", again.text)

    def test_a_client_that_has_gone_is_missed(self):
        for host in ("main.test", "direct.test"):
            with self.subTest(host):
                before = self.count("nobody listens any more")
                stream = self.stream(target="/tools/events?ms=3600000", host=host)
                self.assertTrue(stream.until("event 0"))
                # A quiet stream shows a sign of life, and outlasts `idle_timeout`.
                self.assertTrue(stream.until("\n:\n\n") and stream.text.count(":\n\n") >= 1)
                stream.close()
                self.assertTrue(until(lambda: self.count("nobody listens any more") > before, 8))

    def test_head_sends_no_events(self):
        with self.server.connect() as connection:
            answer = connection.get("/tools/events", method="HEAD")
            self.assertEqual((answer.status, answer.headers["content-type"]), (200, "text/event-stream"))
            self.assertEqual(connection.get("/tools/stream?lines=2").text, "line 0\nline 1\n")
        self.assertEqual(self.count("nobody listens any more"), 0, "nothing was begun for it")

    def test_events_end_with_the_worker_and_tasks_before_it(self):
        self.assertEqual(self.server.get("/tools/later?ms=300").text, "it will be done\n")
        stream = self.stream(target="/tools/events?ms=50")
        self.assertTrue(stream.until("event 1"))
        old = self.server.process("bin/tools")
        self.server.relaunch("main/tools")
        self.assertFalse(stream.until("the stream has no such text"))
        self.assertIn("0\r\n\r\n", stream.text, "its end is told")
        self.assertTrue(until(lambda: not old.alive, 5))
        self.assertEqual(self.count("this was done later"), 1)
        self.assertTrue(self.stream().until("event 1"), "the next worker has taken over")

    def test_a_body_that_fails_breaks_off(self):
        for host in ("main.test", "direct.test"):
            with self.subTest(host), self.server.connect() as connection:
                try:
                    answer = connection.get("/tools/stream?lines=13", host)
                except ConnectionError:
                    continue
                # Nothing of it had been passed on by then.
                self.assertEqual((host, answer.status), ("main.test", 502))
        whole = self.server.get("/tools/stream?lines=100000").text
        self.assertEqual((whole.count("\n"), whole[-11:]), (100000, "line 99999\n"))

    def test_json(self):
        ask = lambda body, *headers: self.server.get("/tools/json", headers=headers, method="POST", body=body)
        answer = ask(b"[1, 2, 39]", JSON)
        self.assertEqual((answer.text, answer.headers["content-type"]), ("42", "application/json"))
        self.assertEqual([ask(b"[1").status, ask(b"[1", JSON).status], [415, 400])
        self.assertEqual(ask(b"[" + b"1," * (1 << 19) + b"1]", JSON).status, 413)

    def test_work_has_a_limit(self):
        self.assertEqual(self.server.get("/tools/within?limit=5000&work=1").text, "in time\n")
        answer = self.server.get("/tools/within?limit=20&work=60000")
        self.assertEqual((answer.status, answer.headers["retry-after"]), (503, "5"))
