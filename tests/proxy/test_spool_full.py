"""Many clients whose bodies are as long as they may be: they fill no disk, and nobody else waits for them."""

import collections
import contextlib
import os

import client
from client import until
from harness import rootless_too
from test_spool import PATIENCE, STAYS, Spooling

COUNT, LENGTH, SPOOL = 1000, 160 << 10, 5 << 20
#: Blocks of 64 KiB that a body takes.
BLOCKS = 3


@rootless_too
class Crowd(Spooling):
    php, body = False, "160KiB"

    def file(self):
        """How long the file is, and what it has of the disk."""
        process = self.server.process("site main")
        found = [number for number, what in process.descriptors().items() if "(deleted)" in what and "memfd" not in what]
        about = os.stat(process.folder / "fd" / str(found[0]))
        return max(about.st_size, 512 * about.st_blocks)

    def begin(self, number, stack):
        """One that has sent all but the last byte, as far as the server lets it."""
        source = f"127.{66 + number % 40}.0.{1 + number // 40}"
        peer = stack.enter_context(client.Connection(self.server.port, source=source, timeout=PATIENCE))
        head = f"POST /app/x HTTP/1.1\r\nHost: main.test\r\nContent-Length: {LENGTH}\r\n\r\n"
        with contextlib.suppress(OSError):
            peer.send(head.encode() + b"z" * (LENGTH - 1))
        return peer

    def outcome(self, peer):
        with contextlib.suppress(OSError):
            peer.send(b"z")
        try:
            return peer.response().status
        except OSError:
            # Told while it still sent.
            return "cut off"

    def test_a_thousand_clients_fill_no_disk(self):
        with contextlib.ExitStack() as stack:
            peers = []
            for number in range(COUNT):
                peers.append(self.begin(number, stack))
                if number % 50 == 0:
                    self.assertLessEqual(self.file(), SPOOL)
                    for target in ("/", "/app/get"):
                        self.assertEqual(self.server.get(target, timeout=PATIENCE).status, 200)
            # All that it can hold is held, and no more.
            self.assertTrue(until(lambda: self.file() > SPOOL - (BLOCKS << 16), PATIENCE))
            self.assertLessEqual(self.file(), SPOOL)
            outcomes = collections.Counter(self.outcome(peer) for peer in peers)
        self.assertEqual(set(outcomes) - {200, 503, "cut off"}, set())
        self.assertGreaterEqual(outcomes[200], SPOOL // (BLOCKS << 16) // 2, outcomes)
        self.assertEqual(outcomes.total(), COUNT)
        self.assertTrue(until(lambda: self.file() <= STAYS, PATIENCE))
