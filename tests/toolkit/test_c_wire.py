"""A service in C whose launcher, site and data proxy are the test, and say what they never should; with the sanitizers."""

import random
import socket
import tempfile
import time
import unittest
from pathlib import Path

from c_services import SOURCE, compile_sanitized
from told import OTHERS, Told, _messages, answer, assert_served_in_every_two_parts, chunked, connect, no_requests, said, two_requests

#: Nobody may look into the process, so leaks cannot be looked for.
ENVIRONMENT = {"ASAN_OPTIONS": "detect_leaks=0"}
EARLY = b"GET /c/early HTTP/1.1\r\n\r\n"


class ToldInC(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        cls.program = compile_sanitized(SOURCE, folder / "asked")

    def start(self, *arguments):
        return self.enterContext(Told([str(self.program), *arguments], ENVIRONMENT))

    def assert_serves(self, stream):
        stream.sendall(EARLY)
        self.assertTrue(stream.recv(1000).startswith(b"HTTP/1.1 200 OK\r\n"))


class Worker(ToldInC):
    def test_one_connection_for_one_credit(self):
        worker = self.start()
        source = worker.begin()
        self.assertEqual(vars(said(source)), {"kind": "Returns", "credits": 1, "done": []})
        with connect(source, 77) as stream:
            # The word that it has arrived.
            self.assertEqual(vars(said(source)), {"kind": "Returns", "credits": 0, "done": []})
            self.assert_serves(stream)
            worker.tell("Report")
            counters = worker.assert_said("Counters").counters
            self.assertEqual((counters.connections_now, counters.connections, counters.requests), (1, 1, 1))
        self.assertEqual(vars(said(source)), {"kind": "Returns", "credits": 1, "done": [77]})

    def test_a_connection_of_which_something_was_read_before(self):
        worker = self.start()
        source = worker.begin()
        for number in range(3):
            with connect(source, number, preread=EARLY + EARLY[:10]) as stream:
                self.assertTrue(stream.recv(1000).startswith(b"HTTP/1.1 200 OK\r\n"))
                stream.sendall(EARLY[10:])
                self.assertTrue(stream.recv(1000).startswith(b"HTTP/1.1 200 OK\r\n"))
            while said(source).done != [number]:
                pass

    def test_a_head_in_every_two_parts(self):
        worker = self.start()
        source = worker.begin()
        with connect(source) as stream:
            assert_served_in_every_two_parts(self, stream, two_requests("/c/echo"))

    def test_what_is_no_request_ends_its_connection_alone(self):
        worker = self.start()
        source = worker.begin()
        bad = no_requests("/c/echo") + [
            b"GET\x00 / HTTP/1.1\r\n\r\n", b"GET / HTTP/1.1\x00\r\n\r\n", chunked("/c/echo", b"\r\nabc"), chunked("/c/echo", b"ffffffffffffffff\r\nabc"),
            b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 200 + b"\r\n",
        ]
        for number, text in enumerate(bad):
            with self.subTest(text=text[:60]), connect(source, number) as stream:
                try:
                    stream.sendall(text)
                    stream.shutdown(socket.SHUT_WR)
                    self.assertEqual(answer(stream)[0], b"")
                except ConnectionError:
                    pass
            while said(source).done != [number]:
                pass
        with connect(source, 99) as stream:
            self.assert_serves(stream)

    def test_mutated_requests(self):
        """Whatever comes, it is answered or refused, and the sanitizers are silent."""
        worker = self.start()
        source = worker.begin()
        texts = [b"POST /c/about?q=%41&r HTTP/1.1\r\nhost: main.test\r\ncontent-length: 10\r\nx-own: a, b\r\nbulkhead-client: [::ffff:1.2.3.4]:5\r\n\r\n0123456789",
                 b"POST /c/echo HTTP/1.1\r\ntransfer-encoding: chunked\r\nconnection: x, close\r\n\r\n3\r\nabc\r\n0a\r\n0123456789\r\n0\r\nt: 1\r\n\r\n"]
        rng, answered = random.Random(7), 0
        for number in range(600):
            mutated = bytearray(rng.choice(texts))
            for _ in range(rng.randint(0, 3)):
                at = rng.randrange(len(mutated))
                mutated[at:at + rng.randint(0, 2)] = rng.choice((b"", b"\r", b"\n", b"\r\n", b":", b" ", b"\t", b"\0", b"%", bytes([rng.randrange(256)])))
            with connect(source, number) as stream:
                try:
                    stream.sendall(mutated)
                    stream.shutdown(socket.SHUT_WR)
                    answered += answer(stream)[0].startswith(b"HTTP/1.1 200")
                except ConnectionError:
                    pass
            while said(source).done != [number]:
                pass
        self.assertGreater(answered, 100)
        self.assertIsNone(worker.process.poll())

    def test_a_source_that_breaks_the_rules_is_cut_off_alone(self):
        worker = self.start()
        good = worker.begin()
        said(good)

        def no_credits(bad):
            for number in range(2):
                self.enterContext(connect(bad, number))

        for breach in (lambda bad: bad.send(b"nonsense"), lambda bad: connect(bad, descriptors=0).close(),
                       lambda bad: connect(bad, descriptors=2).close(), no_credits, lambda bad: bad.send(b"\1\2\0\0")):
            bad = worker.attach()
            said(bad)
            with self.subTest(breach=breach):
                breach(bad)
                try:
                    while bad.recv(20_000):
                        pass
                except ConnectionError:
                    pass
        with connect(good, 5) as stream:
            self.assert_serves(stream)

    def test_it_drains(self):
        worker = self.start()
        source = worker.begin()
        said(source)
        late = worker.attach()
        said(late)
        with connect(source) as stream:
            said(source)
            stream.sendall(b"GET /c/early HTTP/1.1\r\n\r\n")
            stream.recv(1000)
            worker.control.close()
            for one in (source, late):
                self.assertEqual(said(one).kind, "Drain")
            # What was on its way is taken, and answered.
            with connect(late, 2) as other:
                late.shutdown(socket.SHUT_WR)
                self.assert_serves(other)
            self.assert_serves(stream)
            source.shutdown(socket.SHUT_WR)
        self.assertEqual(worker.ended(), (0, ""))

    def test_a_launcher_that_talks_nonsense_ends_it(self):
        for message in (b"\1\2", b"\1\4", b"nonsense", b"\1\6\0\0" + bytes(20)):
            worker = self.start()
            worker.control.send(message)
            status, text = worker.ended()
            self.assertEqual(status, 1)
            self.assertRegex(text, "^error: the launcher sent")
        worker = self.start()
        worker.begin()
        worker.control.send(b"\1\3\1")
        self.assertEqual(worker.ended()[0], 1)

    def test_log_records_have_their_numbers(self):
        worker = self.start()
        source = worker.begin()
        for number in range(3):
            with connect(source, number) as stream:
                stream.sendall(b"GET /c/error HTTP/1.1\r\nconnection: close\r\n\r\n")
                answer(stream)
            while said(source).done != [number]:
                pass
        seen, end = b"", time.monotonic() + 10
        while seen.count(b"has failed with 7") < 3 and time.monotonic() < end:
            batch = worker.log.recv(70_000)
            self.assertEqual(int.from_bytes(batch[1:9], "little"), seen.count(b"xyzzy") + seen.count(b"has failed"))
            seen += batch
        self.assertEqual((seen.count(b"xyzzy"), seen.count(b"has failed with 7")), (3, 3))

    def test_a_logger_that_does_not_read_keeps_nobody_waiting_and_sees_what_is_missing(self):
        worker = self.start()
        source = worker.begin()
        with connect(source) as stream:
            said(source)
            for _ in range(3000):
                stream.sendall(b"GET /c/error HTTP/1.1\r\n\r\n")
                self.assertTrue(stream.recv(2000).startswith(b"HTTP/1.1 500"))
            records, expected, gaps = 0, 0, 0
            worker.log.settimeout(0.5)
            while True:
                try:
                    batch = worker.log.recv(70_000)
                except TimeoutError:
                    # What waits in the process goes when something happens there.
                    if expected >= 6000:
                        break
                    stream.sendall(b"GET /c/error HTTP/1.1\r\n\r\n")
                    stream.recv(2000)
                    continue
                number, count = int.from_bytes(batch[1:9], "little"), batch.count(b"xyzzy") + batch.count(b"has failed")
                gaps += number > expected
                self.assertGreaterEqual(number, expected)
                records, expected = records + count, number + count
        self.assertGreater(gaps, 0)
        self.assertLess(records, expected)


class Data(ToldInC):
    TOKEN = bytes(range(20))

    def begin(self):
        self.worker = self.start()
        self.source = self.worker.begin(data=["catalog"])
        self.stream = self.enterContext(connect(self.source))
        return self.proxy()

    def proxy(self, token=TOKEN):
        """A process of the data proxy, to which the service has logged in with the token."""
        proxy = self.worker.data_proxy("catalog", token)
        login = _messages.SERVICE_TO_DATA_PROXY.decode(proxy.recv(70_000))
        self.assertEqual(vars(login), {"kind": "Login", "token": token})
        self.asks_for_timeouts(proxy)
        self.say(proxy, "Welcome")
        return proxy

    def asks_for_timeouts(self, proxy):
        self.assertEqual(vars(_messages.SERVICE_TO_DATA_PROXY.decode(proxy.recv(70_000))), {"kind": "Timeouts"})

    @staticmethod
    def say(proxy, kind, **values):
        proxy.send(_messages.DATA_PROXY_TO_SERVICE.encode(kind, **values))

    def call(self, proxy):
        """Has the service make a call; its number."""
        self.stream.sendall(b"GET /c/call?statement=users&p0=i7 HTTP/1.1\r\n\r\n")
        call = _messages.SERVICE_TO_DATA_PROXY.decode(proxy.recv(70_000))
        self.assertEqual((call.kind, call.name, call.complete, call.values), ("Call", "users", True, b"\1\7" + bytes(7)))
        return call.id

    def said(self):
        got = b""
        while b"\r\n\r\n" not in got:
            got += self.stream.recv(70_000)
        head, _, body = got.partition(b"\r\n\r\n")
        length = next(int(line.split(b": ")[1]) for line in head.split(b"\r\n") if line.startswith(b"content-length"))
        while len(body) < length:
            body += self.stream.recv(70_000)
        return body.decode()

    def test_answers_in_parts_of_any_size(self):
        proxy, results = self.begin(), OTHERS["RESULTS"]
        for size in (1, 7, len(results)):
            number = self.call(proxy)
            for at in range(0, len(results), size):
                self.say(proxy, "Part", id=number, results=results[at:at + size])
            self.say(proxy, "Done", id=number, results=b"")
            self.assertIn("result|a|b|c|d|e\nnull|-9223372036854775808|-0.5||blob of 2\n", self.said())

    def test_answers_that_are_none(self):
        proxy, results, rng = self.begin(), OTHERS["RESULTS"], random.Random(7)
        wrong = [b"", b"\xff\xff", b"\1\0\1\0", b"\0\0\2", b"\1\0\3\1\0\0\0\xff" + bytes(9)] + [results[:cut] for cut in range(1, len(results))]
        for _ in range(300):
            mutated = bytearray(results)
            mutated[rng.randrange(len(mutated))] = rng.randrange(256)
            wrong.append(bytes(mutated))
        refused = 0
        for text in wrong:
            self.say(proxy, "Done", id=self.call(proxy), results=text)
            refused += self.said().startswith("Shape:")
        self.assertGreater(refused, len(results))
        self.assertIsNone(self.worker.process.poll())

    def test_a_proxy_that_talks_nonsense_is_left_and_the_next_is_asked(self):
        proxy = self.begin()
        for nonsense in (b"nonsense", b"\1\2\0", b"\1\4\0\0\0\0\x09\0\0", b"\1\3" + bytes(4) + b"\xff" * 4):
            self.call(proxy)
            proxy.send(nonsense)
            self.assertEqual(self.said(), "Lost: the data source was lost while the call was under way\n")
            proxy = self.proxy()
        number = self.call(proxy)
        # Of no call: it is passed over.
        self.say(proxy, "Failed", id=number + 1, fault="Late", reason="of another")
        self.say(proxy, "Failed", id=number, fault="Constraint", reason="too \u00fc")
        self.assertEqual(self.said(), "Constraint: too \u00fc\n")

    def test_a_call_goes_on_with_the_proxy_that_has_it(self):
        first = self.begin()
        number = self.call(first)
        second = self.worker.data_proxy("catalog", bytes(20))
        self.say(first, "Done", id=number, results=OTHERS["RESULTS"])
        self.assertTrue(self.said().startswith("result|a|b"))
        login = _messages.SERVICE_TO_DATA_PROXY.decode(second.recv(70_000))
        self.assertEqual(vars(login), {"kind": "Login", "token": bytes(20)})
        self.asks_for_timeouts(second)
        self.say(second, "Welcome")
        self.say(second, "Done", id=self.call(second), results=OTHERS["RESULTS"])
        self.assertTrue(self.said().startswith("result|a|b"))
        self.assertEqual(first.recv(100), b"", "nobody needs the first one any more")

    def test_a_call_ends_in_the_time_that_the_proxy_has_said_last(self):
        proxy = self.begin()
        self.say(proxy, "Timeouts", usual_ms=60_000)
        number = self.call(proxy)
        for at in range(100):
            self.say(proxy, "Timeout", name=f"other{at}", timeout_ms=60_000)
        # It is said while the call is under way; the answer comes too late, and is not that of the next call.
        self.say(proxy, "Timeout", name="users", timeout_ms=50)
        self.assertEqual(self.said(), "Lost: its data proxy does not answer\n")
        self.assertEqual(vars(_messages.SERVICE_TO_DATA_PROXY.decode(proxy.recv(70_000))), {"kind": "Cancel", "id": number})
        self.say(proxy, "Done", id=number, results=b"")
        # Nobody knows any more.
        self.say(proxy, "Timeouts", usual_ms=0)
        self.say(proxy, "Done", id=self.call(proxy), results=OTHERS["RESULTS"])
        self.assertTrue(self.said().startswith("result|a|b"))

    def test_a_report_is_answered_while_a_call_is_under_way(self):
        proxy = self.begin()
        number = self.call(proxy)
        self.worker.tell("Report")
        self.assertEqual(self.worker.assert_said("Counters").counters.connections_now, 1)
        self.say(proxy, "Done", id=number, results=OTHERS["RESULTS"])
        self.assertTrue(self.said().startswith("result|a|b"))

    def test_a_call_that_is_cancelled(self):
        proxy = self.begin()
        for how, wanted in ({"kind": "Done", "results": b""}, "Lost: it was done"), ({"kind": "Failed", "fault": "Late", "reason": "cancelled"}, "Late: cancelled"):
            self.stream.sendall(b"GET /c/call?statement=users&deadline=50 HTTP/1.1\r\n\r\n")
            number = _messages.SERVICE_TO_DATA_PROXY.decode(proxy.recv(70_000)).id
            self.assertEqual(vars(_messages.SERVICE_TO_DATA_PROXY.decode(proxy.recv(70_000))), {"kind": "Cancel", "id": number})
            self.say(proxy, id=number, **how)
            self.assertTrue(self.said().startswith(wanted))


if __name__ == "__main__":
    unittest.main()
