"""Every kind of descriptor, sent on every channel of a running server in every way: no receiver stands still.

The test sends in the place of each process, on copies of its ends, as root: what a jail keeps a process from making is sent as well,
and may be what the next kernel lets it make. The receiver is stopped meanwhile, so that it closes the last of everything; then the
sender is killed, with what it has sent unread. In another test the receiver is.
"""

import signal
import socket
import sys
import time
import unittest

import older_kernel
from c_services import CServer, c_service
from client import until
from descriptor_kinds import IN_FUSE, Made
from descriptor_sweep import BAR, CAN_SEND, CASES, FACTOR, WAYS, WHY_NOT, WORST, Sweeping, die, framed, plain
from every_role import FILTERS, every_role
from filter_program import PYTHON
from guarded import Guarded
from harness import site
from python_services import PROGRAM, python
from slow_programs import STEP_MS, step_ms, step_was
from standstill import Standstill
from topology import LAUNCHER, Topology

#: Kinds of the short form where none is taken.
FEW = 3
#: Receivers that are not swept. What they are sent comes from the gate or from the filter before, which see all that
#: they see; they are the operator's own programs, which may wait for a message for as long as they like, and whom
#: nobody waits for in a call.
OPERATORS = {"filter"}
#: So that processes that were killed come back at once.
RESTART = {"broken_after": 1000, "within": "1h", "backoff_max": "10ms"}

#: Edges of the short form on an older kernel.
EDGES = 2

SERVER = """
import socket, sys
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
while True:
    client, _ = server.accept()
    client.recv(4096)
    client.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\nConnection: close\\r\\n\\r\\nok")
    client.close()
"""


class Serving(Sweeping):
    """A server with a process of every role."""

    PREFIX = ()

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        server = every_role(cls, server={"gates": 1}, restart=RESTART)
        server.prefix = list(cls.PREFIX)
        cls.server = cls.enterClassContext(server)

    def look(self):
        return Topology.of(self.server, FILTERS)

    def ready(self):
        answers = lambda: self.server.status("/", "other.test", timeout=2) == 200
        self.assertTrue(until(answers, 20), self.server.log()[-3000:])

    def edges(self, takes):
        """Of the table, those of less trusted senders to programs of ours."""
        ours = lambda edge: edge[0] != LAUNCHER and edge[1] not in OPERATORS
        return sorted({channel.edge for channel in self.look().channels if channel.takes == takes and ours(channel.edge)})

    def worst_kinds(self):
        return [kind for kind in WORST if kind in self.kinds]

    def launcher_is_there(self, before):
        """Its longest step, beside the longest `before`."""
        self.ready()
        after = step_ms(self.server)
        words = f"{after:.0f} ms at most ({step_was(self.server)}), {before:.0f} ms when nothing is sent"
        print(f"the launcher: {words}", file=sys.stderr)
        self.assertLess(after, STEP_MS + FACTOR * before, "the launcher")


@unittest.skipUnless(CAN_SEND, WHY_NOT)
class OfAServer(Serving):
    def test_no_receiver_stands_still(self):
        quiet = {edge: self.quiet(edge) for edge in self.edges(takes=True)}
        self.ready()
        # Those who were killed were started again.
        before = step_ms(self.server)
        for edge in quiet:
            with self.subTest(edge):
                self.sweep(edge, quiet[edge])
        self.tell()
        self.launcher_is_there(before)

    def test_nobody_waits_for_receivers_that_die_with_them(self):
        """What is unread is closed by the end of a process, which waits for no bytes."""
        before = step_ms(self.server)
        for edge in self.edges(takes=True):
            with self.subTest(edge):
                self.ready()
                cases = [(kind, plain) for kind in ("TCP, lingering", *self.some(self.kinds, FEW)) if kind != IN_FUSE]
                channel = self.random.choice(self.found(edge))
                with Made() as made:
                    self.assertTrue(die(channel, cases, made))
        self.launcher_is_there(before)

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
            for kind in [*self.worst_kinds(), *self.some(self.kinds, CASES)]:
                with socket.socket(socket.AF_UNIX) as client:
                    client.connect(str(self.server.folder / "run/admin.sock"))
                    send_all = plain(made, kind)
                    admin.signal(signal.SIGSTOP)
                    try:
                        taken = send_all(client)
                    finally:
                        seen = Standstill(admin)
                        admin.signal(signal.SIGCONT)
                # Which it answers after that.
                self.assertTrue(self.server.order(seconds=5, command="status")["ok"], kind)
                self.assertLess(seen.end().asleep, BAR, f"{kind}: call {seen.call}")
                self.assertFalse(taken, f"the kernel lets {kind} pass")


@unittest.skipUnless(CAN_SEND, WHY_NOT)
class OnAnOlderKernel(Serving):
    """Before 6.16, where no socket refuses descriptors: channels take what is sent on them, and the launcher's are pipes."""

    PREFIX = (PYTHON, older_kernel.__file__)

    def batches(self, edge):
        ways = (plain, *framed(edge))
        return [[(kind, way) for kind in self.worst_kinds() for way in ways] + [(kind, plain) for kind in self.some(self.kinds, FEW)]]

    def test_the_launcher_is_sent_none(self):
        before = step_ms(self.server)
        edges = sorted({channel.edge for channel in self.look().channels if channel.edge[1] == LAUNCHER})
        self.assertTrue(edges)
        for edge in edges:
            with self.subTest(edge):
                cases = [(kind, way) for kind in self.worst_kinds() for way in WAYS]
                self.assertLess(self.one(edge, cases, takes=False, dies=False)[1].asleep, BAR)
        self.launcher_is_there(before)

    def test_no_receiver_of_packets_stands_still(self):
        """What is read from a stream is closed by its reader: docs/security/threat-model.md."""
        packets = lambda edge: all(one.receiver.kind == socket.SOCK_SEQPACKET for one in self.look().between(*edge))
        for edge in self.some([edge for edge in self.edges(takes=True) if packets(edge)], EDGES):
            with self.subTest(edge):
                self.sweep(edge, self.quiet(edge))
        self.tell()


@unittest.skipUnless(CAN_SEND, WHY_NOT)
class OfServices(Sweeping):
    """Services with the SDKs for C and for Python."""

    EDGE = "site", "service"
    #: Of a channel that they have broken off they read no more, and do not close it.
    PATIENCE = 1

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        sites = [site("main", [c_service(), python()])]
        cls.server = cls.enterClassContext(CServer(*sites, files={"code/program.py": PROGRAM}, restart=RESTART))

    def look(self):
        found = Topology.of(self.server)
        found.channels = [one for one in found.channels if one.receiver.process.title.startswith(self.whom)]
        return found

    def ready(self):
        answers = lambda: all(self.server.status(f"/{name}/pid", timeout=2) == 200 for name in ("c", "py"))
        self.assertTrue(until(answers, 20), self.server.log()[-3000:])

    def test_none_stands_still(self):
        for self.whom in ("bin/asked", PYTHON):
            with self.subTest(self.whom):
                self.sweep(self.EDGE, self.quiet(self.EDGE))
        self.tell()


@unittest.skipUnless(CAN_SEND, WHY_NOT)
class OfAGuard(Sweeping):
    #: Each process that it starts closes a copy at its exec, and each close is a `flush`. A command that has mounted a
    #: file system may have its own guard wait for that: docs/security/threat-model.md.
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
