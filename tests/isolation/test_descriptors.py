"""Descriptors whose closing takes as long as their sender wants: nobody waits for it.

What a process in a jail can send is sent by `examples/rogue` on every channel (`test_channels.py`). Here are senders outside of
one, who may set `SO_LINGER`: a guarded server, and the test itself at the helper that closes for the launcher.
"""

import array
import os
import signal
import socket
import subprocess
import sys
import time
import unittest

import older_kernel
from client import until
from guarded import Guarded
from harness import Server, program, service, site

#: Nobody waits for so long; who waits for such a socket waits for a day.
BAR = 8
#: Makes sockets that linger: connected to a port where nobody reads.
LINGERING = """
import socket, struct
def lingering(count, port):
    made = []
    for _ in range(count):
        stream = socket.create_connection(("127.0.0.1", port))
        stream.setblocking(False)
        try:
            while True:
                stream.send(bytes(65536))
        except BlockingIOError:
            pass
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 100000))
        made.append(stream)
    return made
"""
exec(LINGERING)  # The same function here.

#: A server that answers, and sends its guard on request what lingers: alone, many at once, and with bytes that are
#: none.
SERVER = LINGERING + """
import array, os, signal, socket, sys
def hostile():
    guard = socket.socket(fileno=os.dup(int(os.environ["BULKHEAD_GUARD"])))
    for count, data in ((1, b"x"), (1, bytes((1, 1)) + bytes(8)), (1, bytes((1, 2)) + bytes(8)), (40, b"x"), (1, bytes((1, 3)))):
        made = lingering(count, int(sys.argv[2]))
        rights = array.array("i", [one.fileno() for one in made])
        # The guard is to be the last who closes them.
        os.kill(os.getppid(), signal.SIGSTOP)
        guard.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
        for one in made:
            one.close()
        os.kill(os.getppid(), signal.SIGCONT)
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
while True:
    client, _ = server.accept()
    head = client.recv(4096)
    if b"/hostile" in head:
        hostile()
    client.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\nConnection: close\\r\\n\\r\\nok")
    client.close()
"""


def rights(descriptors):
    return [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))]


class Helper(unittest.TestCase):
    """`bulkheadd close`, which the launcher may end at any time."""

    def setUp(self):
        self.channel, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.enterContext(self.channel)
        self.channel.settimeout(BAR)
        self.helper = subprocess.Popen([program("bulkheadd"), "close"], stdin=its)
        its.close()
        self.addCleanup(self.helper.wait, BAR)
        self.addCleanup(self.helper.kill)

    def give(self, descriptor):
        self.channel.sendmsg([b"c"], rights([descriptor]))

    def test_it_closes_and_says_so(self):
        ours, its = os.pipe()
        self.addCleanup(os.close, ours)
        self.give(its)
        os.close(its)
        self.assertEqual(self.channel.recv(2), b"c")
        self.assertEqual(os.read(ours, 1), b"", "it is closed everywhere")

    def test_one_that_waits_can_be_ended_with_all_that_it_was_given(self):
        listener = socket.create_server(("127.0.0.1", 0))
        self.enterContext(listener)
        made = lingering(5, listener.getsockname()[1])
        # Whoever closes the last waits, and that is not to be this test.
        self.helper.send_signal(signal.SIGSTOP)
        for stream in made:
            self.give(stream.fileno())
            stream.close()
        self.helper.send_signal(signal.SIGCONT)
        self.channel.settimeout(0.5)
        self.assertRaises(TimeoutError, self.channel.recv, 2)
        begin = time.monotonic()
        self.helper.kill()
        self.helper.wait(BAR)
        self.assertLess(time.monotonic() - begin, BAR)


class AGuard(unittest.TestCase):
    def test_it_waits_for_no_socket_of_its_server(self):
        nobody = self.enterContext(socket.create_server(("127.0.0.1", 0), backlog=200))
        command = lambda port: [sys.executable, "server.py", port, nobody.getsockname()[1]]
        with Guarded(command, files={"server.py": SERVER}) as guard:
            ask = lambda target: socket.create_connection(("127.0.0.1", guard.port), BAR)
            for target in (b"/", b"/hostile", b"/hostile", b"/"):
                with ask(target) as connection:
                    connection.settimeout(BAR)
                    connection.sendall(b"GET " + target + b" HTTP/1.1\r\nHost: a.test\r\n\r\n")
                    self.assertIn(b"200 OK", connection.recv(4096), guard.output())
            self.assertTrue(until(lambda: "makes no sense" in guard.output() or "no socket or channel" in guard.output(), BAR), guard.output())
            begin = time.monotonic()
            guard.process.send_signal(signal.SIGTERM)
            guard.process.wait(BAR)
            self.assertLess(time.monotonic() - begin, BAR)


class OnOlderKernels(unittest.TestCase):
    """Where no socket refuses descriptors, children speak to the launcher by a pipe."""

    def test_every_process_speaks_by_a_pipe_and_the_launcher_takes_nothing_else(self):
        server = Server([site(services=[service()])])
        server.prefix = [sys.executable, older_kernel.__file__]
        with server:
            self.assertEqual(server.status("/probe"), 200)
            speaks = [process for process in server.processes() if process.descriptors().get(5, "").startswith("pipe:")]
            self.assertEqual({process.title for process in speaks}, {process.title for process in server.processes()})
            self.assertTrue(server.order(command="status")["ok"])
            self.assertTrue(server.order(command="relaunch", name="main/probe")["ok"])
            self.assertTrue(until(lambda: server.status("/probe") == 200, BAR))
            self.assertEqual(server.stop(), 0)


if __name__ == "__main__":
    unittest.main()
