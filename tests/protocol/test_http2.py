"""nghttp, h2load and h2spec against the server's HTTP/2."""

import re
import struct
import time
import unittest

import frames
from client import until
from h2spec import conformance
from secured import TLS, ours, run, serve

MANY = {f"part-{number}.txt": f"part {number}\n" * 500 for number in range(40)}
#: LIMIT: what h2spec has at the least; a run of fewer was cut short.
SPEC_TESTS = 140
@unittest.skipUnless(TLS, "this build has no TLS")
class Http2(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = cls.enterClassContext(serve(files=MANY))

    def test_streams_of_one_connection(self):
        targets = [f"{self.server.local_url}/{name}" for name in MANY]
        done = run("nghttp", "-nv", "--no-dep", *targets, seconds=30)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIn("The negotiated protocol: h2", done.stdout)
        begun = re.findall(r"send HEADERS frame <.*stream_id=(\d+)>", done.stdout)
        ended = re.findall(r"recv \(stream_id=\d+\) :status: (\d+)", done.stdout)
        self.assertEqual((len(set(begun)), ended), (len(MANY), ["200"] * len(MANY)), done.stdout)
        # They are at work at once: all are asked for before the first has been answered.
        self.assertLess(done.stdout.rindex("send HEADERS"), done.stdout.index(":status:"))

    def test_what_the_streams_bring(self):
        target = f"{self.server.local_url}/part-7.txt"
        # It says on top that it does not know the authority.
        self.assertTrue(run("nghttp", target).stdout.endswith(MANY["part-7.txt"]))

    def test_settings(self):
        said = run("nghttp", "-nv", f"{self.server.local_url}/").stdout
        settings = said[said.index("recv SETTINGS") :]
        streams = re.search(r"SETTINGS_MAX_CONCURRENT_STREAMS\(0x03\):(\d+)", settings)
        self.assertTrue(streams, "no limit on the streams at once")
        self.assertLessEqual(int(streams.group(1)), 256)

    def load(self, *words):
        done = run("h2load", *words, f"{self.server.local_url}/part-1.txt", seconds=60)
        self.assertEqual(done.returncode, 0, done.stdout)
        return done.stdout

    def test_load(self):
        text = self.load("-n", "5000", "-c", "20", "-m", "50")
        counts = "5000 total, 5000 started, 5000 done, 5000 succeeded, 0 failed, 0 errored, 0 timeout"
        self.assertIn(f"requests: {counts}", text)
        self.assertIn("status codes: 5000 2xx, 0 3xx, 0 4xx, 0 5xx", text)
        self.assertIn("Application protocol: h2", text)

    def test_load_with_small_windows(self):
        text = self.load("-n", "500", "-c", "5", "-m", "20", "-w", "10", "-W", "12")
        self.assertIn("500 succeeded, 0 failed, 0 errored, 0 timeout", text)

    def test_load_of_http_1_1(self):
        text = self.load("-n", "2000", "-c", "20", "--npn-list=http/1.1")
        self.assertIn("2000 succeeded, 0 failed, 0 errored, 0 timeout", text)
        self.assertIn("Application protocol: http/1.1", text)

    @ours
    def test_load_of_a_service(self):
        done = run("h2load", "-n", "1000", "-c", "10", "-m", "10", f"{self.server.local_url}/probe/echo", seconds=60)
        self.assertIn("1000 succeeded, 0 failed, 0 errored, 0 timeout", done.stdout)

    @ours
    def test_who_still_sends_is_not_told_to_stop_at_once(self):
        """RFC 9113 8.1: a reset behind an answer must not cost it, but with some clients does."""
        head = [(b":method", b"POST"), (b":scheme", b"https"), (b":authority", b"main.test"), (b":path", b"/part-1.txt")]
        get = [(b":method", b"GET"), *head[1:]]
        with frames.Http2(self.server.context(), self.server.tls_port) as connection:
            connection.send(frames.frame(frames.HEADERS, frames.END_HEADERS, 1, frames.block(head)))
            self.assertEqual(connection.outcome(1, 20), 405)
            connection.send(frames.frame(frames.DATA, frames.END_STREAM, 1, b"x=1"))
            connection.request(3, get)
            self.assertEqual((connection.outcome(3, 20), connection.resets), (200, []))
            # Whoever never comes to an end is told after a while.
            connection.send(frames.frame(frames.HEADERS, frames.END_HEADERS, 5, frames.block(head)))
            self.assertEqual(connection.outcome(5, 20), 405)
            numbers = iter(range(7, 2000, 2))

            def told():
                connection.request(number := next(numbers), get)
                return connection.outcome(number, 20) == 200 and connection.resets == [(5, 0)]

            self.assertTrue(until(told, 20, 0.1), connection.resets)

    @ours
    def test_who_still_sends_is_not_cut_off(self):
        """A reset could overtake what the client has not read yet."""
        get = [(b":method", b"GET"), (b":scheme", b"https"), (b":authority", b"main.test"), (b":path", b"/part-1.txt")]
        unknown = frames.frame(0xFA, 0, 0, bytes(16384))
        for name, last in (
            ("goodbye", frames.frame(frames.GOAWAY, 0, 0, bytes(8))),
            ("goodbye with an error", frames.frame(frames.GOAWAY, 0, 0, struct.pack(">II", 0, 0xFF))),
            ("an error", frames.frame(frames.DATA, 0, 0, b"no stream")),
        ):
            with self.subTest(name), frames.Http2(self.server.context(), self.server.tls_port) as connection:
                connection.request(1, get)
                self.assertEqual(connection.outcome(1, 20), 200)
                connection.send(last + unknown * 20)
                time.sleep(0.2)
                connection.send(unknown * 20)
                while connection.socket.recv(65536):
                    pass

    def test_conformance(self):
        began = time.monotonic()
        count, failed = conformance(self.server.tls_port, self.server.folder)
        print(f"[h2spec: {count} tests, {len(failed)} failed, {time.monotonic() - began:.0f} s] ", end="", flush=True)
        self.assertGreaterEqual(count, SPEC_TESTS)
        self.assertEqual(failed, [], f"{len(failed)} of {count} tests of h2spec fail:\n  " + "\n  ".join(failed))


if __name__ == "__main__":
    unittest.main()
