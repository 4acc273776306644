"""The messages of services in Python: as Rust writes them, and as nobody should; and a worker that is told them by hand."""

import copy
import dataclasses
import random
import socket
import sys
import tempfile
import time
import unittest
from pathlib import Path

from filter_program import PYTHON
from python_services import PROGRAM, SDK
from told import LIMITS, MESSAGES, OTHERS, Told, answer, assert_served_in_every_two_parts, connect, no_requests, said, two_requests

sys.path.insert(0, str(SDK))

from bulkhead_service import _messages, data  # noqa: E402
from bulkhead_service._codec import DecodeError  # noqa: E402
from bulkhead_service._head import BadHead, Head  # noqa: E402
from bulkhead_service._log import Level, batch_head, event_record  # noqa: E402


class Codec(unittest.TestCase):
    def test_messages_come_back_as_they_were(self):
        kinds = {edge: set() for edge, _ in MESSAGES}
        for edge, encoded in MESSAGES:
            message = vars(edge.decode(encoded))
            kinds[edge].add(message["kind"])
            self.assertEqual(edge.encode(message.pop("kind"), **message), encoded)
        for edge, found in kinds.items():
            self.assertEqual(found, {name for name, _ in edge._messages.values()}, edge.name)

    def test_what_is_no_message_is_refused(self):
        for edge, encoded in MESSAGES:
            wrong = [encoded[:cut] for cut in range(len(encoded))]
            wrong += [encoded + b"\0", b"\2" + encoded[1:], encoded[:1] + b"\xff" + encoded[2:]]
            for one in wrong:
                with self.assertRaises(DecodeError, msg=(edge.name, one)):
                    edge.decode(one)

    def test_what_has_no_value_or_is_too_long_is_refused(self):
        decode = _messages.LAUNCHER_TO_SERVICE.decode
        for one in (LIMITS[:-1] + b"\2", b"\1\3\2", b"\1\5\2\0\xff\xfe", b"\1\5\x40\0" + b"a" * 64):
            with self.assertRaises(DecodeError):
                decode(one)
        with self.assertRaises(DecodeError):
            _messages.TO_WORKER.decode(b"\1\2\xff\xff")
        with self.assertRaises(ValueError):
            _messages.SERVICE_TO_DATA_PROXY.encode("Call", id=1, name="a" * 64, complete=True, values=b"")

    def test_log_records(self):
        time_us, long = 1_700_000_000_000_000, "x" * 5000
        made = batch_head(9) + event_record(time_us, Level.WARNING, "odd: ü") + event_record(time_us, Level.INFO, long)
        self.assertEqual(bytes(made), OTHERS["LOG"])
        self.assertEqual(event_record(0, Level.INFO, "ü" * 1000)[-2:], "ü".encode())

    def test_rows(self):
        @dataclasses.dataclass
        class Counted:
            count: int

        row = data.Row(("count", "index", "_a"), (1, 2, 3))
        self.assertEqual((row.count, row.index, row["_a"], row[-1], list(row), len(row)), (1, 2, 3, 3, [1, 2, 3], 3))
        self.assertEqual(copy.copy(row), row)
        self.assertEqual((data._into(Counted, row), data._into(lambda *values: sum(values), row)), (Counted(1), 6))
        with self.assertRaisesRegex(AttributeError, "no column 'price', but count, index, _a"):
            row.price
        with self.assertRaises(data.Shape):
            data._into(Counted, data.Row(("a",), (1,)))

    def test_results(self):
        rows, changed = data.decode_results(OTHERS["RESULTS"])
        self.assertEqual([tuple(row) for row in rows.rows], [(None, -(1 << 63), -0.5, text, b"\0\xff") for text in ("", "ü '; --")])
        self.assertEqual((rows.rows[1].d, rows.rows[1]["b"], rows.rows[1].as_dict()["e"]), ("ü '; --", -(1 << 63), b"\0\xff"))
        self.assertEqual((changed.columns, changed.rows, changed.changed), ((), [], 7))
        for cut in range(1, len(OTHERS["RESULTS"])):
            try:
                self.assertEqual(len(data.decode_results(OTHERS["RESULTS"][:cut])), 1)
            except data.Shape:
                pass
        for wrong in (b"\xff\xff", b"\1\0\1\0", b"\0\0\2"):
            with self.assertRaises(data.Shape):
                data.decode_results(wrong)


class Heads(unittest.TestCase):
    def test_mutated_heads_are_refused_or_are_heads(self):
        """What is taken has nothing in it that another reader could take for something else."""
        text = b"POST /a?b=c HTTP/1.1\r\nhost: main.test\r\ncontent-length: 10\r\nx-own: a, b\r\ncookie: a=1; b=2"
        rng, taken = random.Random(7), 0
        for _ in range(20_000):
            mutated = bytearray(text)
            for _ in range(rng.randint(1, 3)):
                at = rng.randrange(len(mutated))
                mutated[at:at + rng.randint(0, 2)] = rng.choice((b"", b"\r", b"\n", b"\r\n", b":", b" ", b"\t", b"\0", bytes([rng.randrange(256)])))
            try:
                head = Head(bytes(mutated))
            except BadHead:
                continue
            taken += 1
            self.assertRegex(head.target, rb"\A[!-~\x80-\xff]+\Z")
            for name, value in head.fields:
                self.assertRegex(name, rb"\A[!#$%&'*+.^_`|~0-9a-z-]+\Z")
                self.assertNotRegex(value, rb"[\x00-\x08\x0a-\x1f\x7f]|\A\s|\s\Z")
            lengths = [value for name, value in head.fields if name == b"content-length"]
            self.assertEqual(head.length, int(lengths[0]) if lengths else 0)
            self.assertLessEqual(len(lengths), 1)
        self.assertGreater(taken, 1000)


class Worker(unittest.TestCase):
    def setUp(self):
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))

    def start(self, *arguments):
        (self.folder / "program.py").write_text(PROGRAM)
        environment = {"PYTHONPATH": f"{self.folder}:{SDK}", "PYTHONDONTWRITEBYTECODE": "1"}
        return self.enterContext(Told([PYTHON, "-m", "program", *arguments], environment))

    def test_credits_and_ends(self):
        worker = self.start()
        source = worker.begin()
        self.assertEqual(vars(said(source)), {"kind": "Returns", "credits": 64, "done": []})
        with connect(source, 77) as stream:
            self.assertEqual(vars(said(source)), {"kind": "Returns", "credits": 1, "done": []})
            stream.sendall(b"GET /early HTTP/1.1\r\nhost: a\r\n\r\n")
            self.assertTrue(stream.recv(1000).startswith(b"HTTP/1.1 200 OK\r\n"))
            worker.tell("Report")
            counters = worker.assert_said("Counters").counters
            self.assertEqual((counters.connections_now, counters.connections, counters.requests), (1, 1, 1))
        self.assertEqual(vars(said(source)), {"kind": "Returns", "credits": 0, "done": [77]})

    def test_a_head_in_every_two_parts(self):
        worker = self.start()
        source = worker.begin()
        text = two_requests("/echo")
        with connect(source) as stream:
            assert_served_in_every_two_parts(self, stream, text)
        with connect(source, 2, preread=text[:30]) as stream:
            stream.sendall(text[30:] + b"GET /early HTTP/1.1\r\nconnection: close\r\n\r\n")
            head, rest = answer(stream)
            self.assertTrue(rest.endswith(b"early\n"), rest)

    def test_what_is_no_request_ends_its_connection_alone(self):
        worker = self.start()
        source = worker.begin()
        bad = no_requests("/echo")
        for number, text in enumerate(bad):
            with self.subTest(text=text[:60]), connect(source, number) as stream:
                try:
                    stream.sendall(text)
                    head, _ = answer(stream)
                    self.assertIn(head[:12], (b"", b"HTTP/1.1 400"))
                except ConnectionError:
                    pass
        with connect(source, 99) as stream:
            stream.sendall(b"GET /early HTTP/1.1\r\nconnection: close\r\n\r\n")
            self.assertEqual(answer(stream)[1], b"early\n")

    def test_a_source_that_breaks_the_rules_is_cut_off_alone(self):
        worker = self.start()
        good = worker.begin(connections=8)

        def no_credits(bad):
            # There are 64 at first, and none come back beyond eight connections.
            for number in range(100):
                self.enterContext(connect(bad, number))

        for breach in (lambda bad: bad.send(b"nonsense"), lambda bad: connect(bad, descriptors=0).close(),
                       lambda bad: connect(bad, descriptors=2).close(), no_credits):
            bad = worker.attach()
            said(bad)
            with self.subTest(breach=breach):
                try:
                    breach(bad)
                    while bad.recv(20_000):
                        pass
                except ConnectionError:
                    pass
        with connect(good, 5) as stream:
            stream.sendall(b"GET /early HTTP/1.1\r\nconnection: close\r\n\r\n")
            self.assertEqual(answer(stream)[1], b"early\n")

    def test_it_drains(self):
        worker = self.start()
        source = worker.begin()
        said(source)
        with connect(source) as stream:
            said(source)
            stream.sendall(b"GET /slow?seconds=0.5 HTTP/1.1\r\n\r\n")
            worker.control.close()
            self.assertEqual(said(source).kind, "Drain")
            # What was on its way is taken, and answered.
            with connect(source, 2) as late:
                source.shutdown(socket.SHUT_WR)
                late.sendall(b"GET /early HTTP/1.1\r\n\r\n")
                self.assertIn(b"early", late.recv(1000))
            self.assertIn(b"slow", stream.recv(1000))
        self.assertEqual(worker.ended()[0], 0)

    def test_a_launcher_that_talks_nonsense_ends_it(self):
        for message in (b"\1\2", b"\1\4", b"nonsense"):
            worker = self.start()
            worker.control.send(message)
            status, text = worker.ended()
            self.assertEqual(status, 1)
            self.assertRegex(text, "^error: (from the launcher|the launcher sent)")

    def test_log_batches_have_their_numbers(self):
        worker = self.start()
        source = worker.begin()
        for number in range(3):
            with connect(source, number) as stream:
                stream.sendall(b"GET /event HTTP/1.1\r\nconnection: close\r\n\r\n")
                answer(stream)
        seen, until = b"", time.monotonic() + 10
        while seen.count(b"something is odd") < 3 and time.monotonic() < until:
            batch = worker.log.recv(70_000)
            self.assertEqual(int.from_bytes(batch[1:9], "little"), seen.count(b"something is odd"))
            seen += batch
        self.assertEqual(seen.count(b"something is odd"), 3)


if __name__ == "__main__":
    unittest.main()
