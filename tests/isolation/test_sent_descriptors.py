"""Every kind of descriptor, sent on every channel of a running server in every way: no receiver stands still.

The test sends in the place of each process, on copies of its ends, as root: what a jail keeps a process from making is sent as well,
and may be what the next kernel lets it make. The receiver is stopped meanwhile, so that it closes the last of everything; then the
sender is killed, with what it has sent unread.

A run takes cases by a seed that it prints (`BULKHEAD_SEED` repeats it); with `BULKHEAD_SWEEP=whole` it takes each.
"""

import contextlib
import fcntl
import os
import random
import signal
import socket
import struct
import sys
import termios
import time
import unittest

from client import until
from descriptor_kinds import IN_FUSE, Made, creatable, many
from every_role import FILTERS, every_role
from filter_program import PYTHON
from guarded import Guarded
from slow_programs import step_ms, step_was
from standstill import Standstill
from topology import LAUNCHER, Topology, carriers, peers, send, table

WHOLE = os.environ.get("BULKHEAD_SWEEP") == "whole"
SEED = int(os.environ.get("BULKHEAD_SEED", random.randrange(1 << 32)))
#: Cases of the short form on each edge that takes descriptors, with nonsense and well framed; and of one batch, after which its sender is another.
CASES, FRAMED, BATCH = 38, 20, 20
#: What is sent in any case.
WORST = ("TCP, lingering", IN_FUSE)
#: Kinds of the short form where none is taken.
FEW = 3
#: How often it is seen for how long a receiver is away when nothing is sent.
QUIET = 2
#: Seconds that a receiver may be asleep in a call, and away beyond that for each second that it is away when nothing is sent: on a
#: machine with two processors and as many tests, one that would be there is not always seen there.
BAR, FACTOR = 0.05, 4
#: How often a batch is tried whose receiver stood still: what a sender can do, it can do again.
TRIES = 3
DESCRIPTORS_MAX = 253
#: More than any message of ours.
LONG = 70_000
#: Receivers that are not swept. What they are sent comes from the gate or from the filter before, which see all that they see; they are
#: the operator's own programs, which may wait for a message for as long as they like, and whom nobody waits for in a call.
OPERATORS = {"filter"}
#: So that senders that were killed come back at once.
RESTART = {"broken_after": 1000, "within": "1h", "backoff_max": "10ms"}

SERVER = """
import socket, sys
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
while True:
    client, _ = server.accept()
    client.recv(4096)
    client.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\nConnection: close\\r\\n\\r\\nok")
    client.close()
"""


def plain(end, made, kind):
    """A message with one."""
    return send_all(end, made, kind, 1)


def again(end, made, kind):
    """Messages of which some are still there when the receiver has had enough and closes the channel."""
    return send_all(end, made, kind, 1, times=8)


def crowded(end, made, kind):
    """As many as a message can carry; no receiver has use for more than 64."""
    return send_all(end, made, kind, 40 if kind.startswith("inotify") else 2, copies=127)


def long(end, made, kind):
    """A message that is longer than what anybody reads of it."""
    return send_all(end, made, kind, 1, data=b"\xee" * LONG)


WAYS = (plain, again, crowded, long)


#: Who is sent well-framed messages as well. What a gate or a worker sends to workers and services is not: they make streams of it.
FRAMED_TO = {"broker", "connector", "gate", LAUNCHER}


def framed(edge):
    """A way for each message of an edge that is about descriptors: the receiver takes it for what it says."""
    if edge[0] != "connector" and edge[1] not in FRAMED_TO:
        return []

    def way(name, count, data):
        send_one = lambda end, made, kind: send_all(end, made, kind, count, data=data)
        send_one.__name__ = f"{name} {data.hex()}"
        return send_one
    return [way(*carrier) for carrier in carriers().get(edge, ())]


def send_all(end, made, kind, count, copies=1, times=1, data=b"\xee" * 30):
    """Sends messages, and closes the descriptors: from then on they are the receiver's. How many the kernel has taken."""
    descriptors = many(made, kind, count)
    taken = sum(send(end, data, (descriptors * copies)[:DESCRIPTORS_MAX]) for _ in range(times))
    for descriptor in descriptors:
        made.let_go(descriptor, kind, taken)
    return taken


def is_read(end):
    """Whether nothing waits at this end."""
    return struct.unpack("i", fcntl.ioctl(end, termios.FIONREAD, bytes(4)))[0] == 0


def is_over(channel):
    """Whether its receiver has read what was sent, or has closed its end."""
    try:
        with contextlib.closing(channel.receiver.copy()) as end:
            return is_read(end)
    except OSError:
        return True


def sent_to(channel, cases, made, dies=True):
    """Sends while the receiver is stopped, and has it seen from then on until all is read. How many messages were taken."""
    taken = 0
    receiver = channel.receiver.process
    with contextlib.closing(channel.sender.copy()) as end:
        receiver.signal(signal.SIGSTOP)
        try:
            for kind, way in cases:
                count = way(end, made, kind)
                if count and not channel.takes:
                    raise AssertionError(f"{channel} takes {kind}")
                taken += count
            if dies:
                channel.sender.process.kill()
        finally:
            seen = Standstill(receiver)
            receiver.signal(signal.SIGCONT)
    until(lambda: is_over(channel), 5)
    # What the last message has brought is let go of after that.
    until(lambda: seen.looks_idle() or not receiver.alive, 5)
    return taken, seen.end()


class Sweeping(unittest.TestCase):
    """What is the same for a server and for a guard."""

    LEFT_OUT = ()
    #: Short, it is the same twice.
    rootless = WHOLE

    @classmethod
    def setUpClass(cls):
        cls.kinds, missing = creatable()
        cls.kinds = [kind for kind in cls.kinds if kind not in cls.LEFT_OUT]
        print(f"seed {SEED}; {len(cls.kinds)} kinds, and there is no {', '.join(missing) or 'other'}", file=sys.stderr)
        cls.random = random.Random(SEED)
        cls.worst, cls.count = {}, 0

    def some(self, every, count):
        """So many of all, by the seed; or all of them."""
        return list(every) if WHOLE else self.random.sample(every, min(count, len(every)))

    def batches(self, edge):
        """Lists of cases."""
        ways = framed(edge)
        worst = [kind for kind in WORST if kind in self.kinds]
        cases = [(kind, way) for kind in worst for way in (plain, *ways)]
        cases += self.some([(kind, way) for kind in self.kinds for way in WAYS], CASES)
        cases += self.some([(kind, way) for kind in self.kinds for way in ways], FRAMED)
        return [cases[at:at + BATCH] for at in range(0, len(cases), BATCH)]

    def one(self, edge, cases, takes=True, dies=True):
        """What came of one batch on a channel of this edge that takes descriptors, or takes none."""
        fits = lambda: [channel for channel in self.look().between(*edge) if channel.takes == takes]
        found = until(fits, 20)
        self.assertTrue(found, f"no channel {edge} any more")
        channel = self.random.choice(found)
        with Made() as made:
            taken, seen = sent_to(channel, cases, made, dies)
        self.assertTrue(taken or not cases or not channel.takes, f"{channel}: nothing was sent")
        return channel, seen

    def quiet(self, edge):
        """For how many seconds a receiver is away when nothing is sent, and the sender ends."""
        self.ready()
        return max(self.one(edge, [])[1].away for _ in range(QUIET))

    def sweep(self, edge, quiet):
        """Sends on an edge whose receiver is to stand still for no longer than it does otherwise, and a bit."""
        for cases in self.batches(edge):
            for _ in range(TRIES):
                self.ready()
                channel, seen = self.one(edge, cases)
                stood = seen.asleep >= BAR or seen.away >= BAR + FACTOR * quiet
                if not stood:
                    break
            words = [(kind, way.__name__) for kind, way in cases]
            self.assertFalse(stood, f"{channel}: asleep {seen.asleep:.3f} s in call {seen.call}, away {seen.away:.3f} s: {words}")
            self.assertTrue(channel.receiver.process.alive, f"{channel}: {words}")
            asleep, away = self.worst.get(edge, ((0, None), 0))
            self.worst[edge] = max(asleep, (seen.asleep, seen.call)), max(away, seen.away)
            type(self).count += len(cases)

    def tell(self):
        """How it was, for whoever looks."""
        for (sender, receiver), ((asleep, call), away) in sorted(self.worst.items()):
            words = f"asleep {asleep * 1000:.0f} ms (system call {call}), away {away * 1000:.0f} ms"
            print(f"{sender} to {receiver}: {words}", file=sys.stderr)
        print(f"{self.count} cases", file=sys.stderr)


@unittest.skipUnless(os.geteuid() == 0 and peers(), "only root may send in others' places, and only where the kernel has unix_diag")
class OfAServer(Sweeping):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.server = cls.enterClassContext(every_role(cls, server={"gates": 1}, restart=RESTART))

    def look(self):
        return Topology.of(self.server, FILTERS)

    def ready(self):
        answers = lambda: self.server.status("/", "other.test", timeout=2) == 200
        self.assertTrue(until(answers, 20), self.server.log()[-3000:])

    def test_no_receiver_stands_still(self):
        quiet = {edge: self.quiet(edge) for edge in self.edges(takes=True)}
        self.ready()
        # Those who were killed were started again.
        before = step_ms(self.server)
        for edge in quiet:
            with self.subTest(edge):
                self.sweep(edge, quiet[edge])
        self.tell()
        self.ready()
        after = step_ms(self.server)
        words = f"{after:.0f} ms at most ({step_was(self.server)}), {before:.0f} ms when nothing is sent"
        print(f"the launcher: {words}", file=sys.stderr)
        self.assertLess(after, BAR * 1000 + FACTOR * before, "the launcher")

    def test_who_takes_none_is_sent_none(self):
        """The kernel refuses each, so that there is nothing to close."""
        for edge in self.edges(takes=False):
            cases = [(kind, plain) for kind in self.some(self.kinds, FEW)] + [(self.kinds[0], way) for way in WAYS]
            with self.subTest(edge):
                self.assertLess(self.one(edge, cases, takes=False, dies=False)[1].asleep, BAR)
        self.ready()

    def test_a_client_of_the_administration_socket(self):
        admin = self.server.process("admin")
        with Made() as made:
            for kind in self.some(self.kinds, CASES):
                with socket.socket(socket.AF_UNIX) as client:
                    client.connect(str(self.server.folder / "run/admin.sock"))
                    admin.signal(signal.SIGSTOP)
                    try:
                        plain(client, made, kind)
                    finally:
                        seen = Standstill(admin)
                        admin.signal(signal.SIGCONT)
                self.assertTrue(self.server.order(command="status")["ok"])
                self.assertLess(seen.end().asleep, BAR, f"{kind}: call {seen.call}")

    def edges(self, takes):
        """Of the table, those of less trusted senders to programs of ours."""
        ours = lambda edge: edge[0] != LAUNCHER and edge[1] not in OPERATORS
        return sorted({channel.edge for channel in self.look().channels if channel.takes == takes and ours(channel.edge)})


@unittest.skipUnless(os.geteuid() == 0 and peers(), "only root may send in others' places, and only where the kernel has unix_diag")
class OfAGuard(Sweeping):
    #: Each process that it starts closes a copy at its exec, and each close is a `flush`. A command that has mounted a file system may
    #: have its own guard wait for that: docs/security/threat-model.md.
    LEFT_OUT = (IN_FUSE,)

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        command = lambda port: [PYTHON, "server.py", port]
        cls.guard = cls.enterClassContext(Guarded(command, files={"server.py": SERVER}))

    def look(self):
        return Topology.of_guard(self.guard)

    def ready(self):
        """Until it answers; who has sent nonsense is guarded no more, and answers itself."""
        with socket.create_connection(("127.0.0.1", self.guard.port), 5) as connection:
            connection.settimeout(5)
            connection.sendall(b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n")
            self.assertIn(b"200 OK", connection.recv(4096), self.guard.output())

    def one(self, edge, cases, takes=True, dies=False):
        return super().one(edge, cases, takes, dies=False)

    def test_no_guard_stands_still(self):
        edge = "command", LAUNCHER
        self.sweep(edge, self.quiet(edge))
        self.tell()
        begin = time.monotonic()
        self.guard.process.send_signal(signal.SIGTERM)
        self.guard.wait()
        self.assertLess(time.monotonic() - begin, 8)


if __name__ == "__main__":
    unittest.main()
