"""Services with `network` grants: their connections are made by a connector, at the word of a broker, and by grant alone.

The service `caller` connects to where it is told to; the servers are this process's own.
"""

import contextlib
import os
import re
import socket
import socketserver
import struct
import threading
import unittest
from pathlib import Path

from client import until
from harness import ROOTLESS, Server, rootless_too, service, site


class Echo(socketserver.BaseRequestHandler):
    """Gives back what comes; a page, if an HTTP client asks for one."""

    def handle(self):
        while data := self.request.recv(1024):
            if data.startswith(b"GET"):
                self.request.sendall(b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\npage\n")
                return
            self.request.sendall(data)


class Streams(socketserver.ThreadingTCPServer):
    daemon_threads, allow_reuse_address, request_queue_size = True, True, 128


class Streams6(Streams):
    address_family = socket.AF_INET6


@contextlib.contextmanager
def serving(server):
    with server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()


def on_two_hosts():
    """A server, and one on the same port of another address, where somebody else may have it."""
    for _ in range(100):
        first = Streams(("127.0.0.1", 0), Echo)
        try:
            return first, Streams(("127.0.0.2", first.server_address[1]), Echo)
        except OSError:
            first.server_close()
    raise AssertionError("no port is free on both")


class Datagrams(socketserver.BaseRequestHandler):
    def handle(self):
        data, sock = self.request
        sock.sendto(data, self.client_address)


class Names(socketserver.BaseRequestHandler):
    """Says of each name that its address is 192.0.2.7, and of IPv6 that it has none."""

    def handle(self):
        query, sock = self.request
        end = query.index(b"\0", 12) + 5
        kind = struct.unpack("!H", query[end - 4:end - 2])[0]
        answer = b"\xc0\x0c" + struct.pack("!HHIH", 1, 1, 60, 4) + socket.inet_aton("192.0.2.7") if kind == 1 else b""
        head = query[:2] + struct.pack("!HHHHH", 0x8180, 1, bool(answer), 0, 0)
        sock.sendto(head + query[12:end] + answer, self.client_address)


def caller(*network, arguments=(), **more):
    return service("caller", "/caller", command=["bin/caller", *arguments], network=list(network), **more)


def server(*network, **more):
    return Server([site(services=[caller(*network, **more)])], programs=["caller"])


class Grants(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        enter = cls.enterClassContext
        cls.granted, cls.elsewhere = (enter(serving(streams)) for streams in on_two_hosts())
        cls.closed = enter(serving(Streams(("127.0.0.1", 0), Echo)))
        cls.six = enter(serving(Streams6(("::1", 0), Echo)))
        cls.datagrams = enter(serving(socketserver.ThreadingUDPServer(("127.0.0.1", 0), Datagrams)))
        cls.server = enter(server(f"tcp:127.0.0.1:{cls.granted}", f"tcp:[::1]:{cls.six}", "udp"))

    def ask(self, what, to="", server=None):
        answer = (server or self.server).get(f"/caller/{what}?to={to}")
        return answer.status, answer.body.decode().strip()

    def works(self, what, to, server=None):
        self.assertEqual(self.ask(what, to, server), (200, "x"))

    def refused(self, what, to, server=None, why="Permission denied"):
        status, text = self.ask(what, to, server)
        self.assertEqual(status, 502, text)
        self.assertIn(why, text)


@rootless_too
class Reached(Grants):
    def test_what_is_granted_is_reached(self):
        here = f"127.0.0.1:{self.granted}"
        self.works("tcp", here)
        self.assertIn("page", self.ask("tokio", here)[1])
        self.works("tcp", f"[::1]:{self.six}")
        self.works("tcp", f"[::ffff:127.0.0.1]:{self.granted}")
        self.works("udp", f"127.0.0.1:{self.datagrams}")
        self.assertEqual(self.ask("many", here), (200, "50"))

    def test_nothing_else_is(self):
        for to in (f"127.0.0.2:{self.granted}", f"127.0.0.1:{self.closed}", f"[::1]:{self.granted}"):
            for what in ("tcp", "tokio"):
                self.refused(what, to)
        remedy = rf'\[connector main/caller\] .*refused; add "tcp:127\.0\.0\.1:{self.closed}" to `network`'
        self.assertTrue(until(lambda: re.search(remedy, self.server.log()), 5), self.server.log())
        self.assertEqual(len(re.findall(remedy, self.server.log())), 1, "it is told once a minute")

    def test_who_runs_as_whom(self):
        names = ("bin/caller", "broker main/caller", "connector main/caller")
        service_, broker, connector = (self.server.process(name) for name in names)
        if not ROOTLESS:
            self.assertEqual(broker.uid, service_.uid)
            self.assertNotIn(connector.uid, (0, service_.uid))
        network = lambda process: os.readlink(process.folder / "ns/net")
        if not ROOTLESS:
            own = {network(service_), network(broker), os.readlink("/proc/self/ns/net")}
            self.assertEqual(len(own), 3, "the service and its broker have no network")
            self.assertEqual(network(connector), os.readlink("/proc/self/ns/net"))


@rootless_too
class Replaced(Grants):
    """Each process that takes part is killed, or relaunched, in turn."""

    def replaced(self, title):
        old = self.server.process(title)
        old.kill()
        self.assertTrue(until(lambda: (found := self.server.processes(title)) and old not in found, 10))

    def test_later_connections_work_and_earlier_ones_go_on(self):
        here = f"127.0.0.1:{self.granted}"
        self.assertEqual(self.ask("hold", here)[0], 200)
        for title in ("broker main/caller", "connector main/caller"):
            with self.subTest(title):
                self.replaced(title)
                self.works("tcp", here)
                self.works("held", "")
                self.refused("tcp", f"127.0.0.1:{self.closed}")

    def test_a_service_that_is_relaunched_or_dies_connects_as_before(self):
        here = f"127.0.0.1:{self.granted}"
        self.server.relaunch("main/caller")
        self.works("tcp", here)
        self.replaced("bin/caller")
        self.assertTrue(until(lambda: self.ask("tcp", here) == (200, "x"), 10))
        self.refused("tcp", f"127.0.0.1:{self.closed}")


@rootless_too
class Waiting(Grants):
    def test_a_call_under_way_outlives_broker_and_connector(self):
        """A server's full queue makes a connection wait, until there is room in it."""
        with socket.socket() as full:
            full.bind(("127.0.0.1", 0))
            full.listen(0)
            at = full.getsockname()
            with server(f"tcp:127.0.0.1:{at[1]}") as own, contextlib.ExitStack() as held:
                while True:
                    one = socket.socket()
                    one.settimeout(0.3)
                    if one.connect_ex(at):
                        one.close()
                        break
                    held.enter_context(one)
                for title in ("broker main/caller", "connector main/caller"):
                    outcome = []
                    asking = threading.Thread(target=lambda: outcome.append(self.ask("hold", f"{at[0]}:{at[1]}", own)))
                    asking.start()
                    self.assertTrue(until(lambda: connecting(at), 10), "the call waits for its answer")
                    own.process(title).kill()
                    full.accept()[0].close()
                    asking.join(20)
                    self.assertEqual(outcome, [(200, "held")], title)
                    # Full again: what has been connected is in the queue.

    def test_it_may_connect_before_it_serves(self):
        with server(f"tcp:127.0.0.1:{self.granted}", arguments=[f"127.0.0.1:{self.granted}"]) as own:
            self.works("tcp", f"127.0.0.1:{self.granted}", own)


def connecting(address):
    """Whether a connection to `address` has begun that is not accepted yet (SYN_SENT)."""
    host, port = address
    wanted = f"{struct.unpack('=I', socket.inet_aton(host))[0]:08X}:{port:04X}"
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    return any(fields[2] == wanted and fields[3] == "02" for fields in map(str.split, lines))


@unittest.skipIf(ROOTLESS or os.geteuid(), "a resolv.conf of its own needs root")
class Resolver(Grants):
    def test_names_are_resolved(self):
        """By the C library, at a resolver on this machine, by way of the `resolv.conf` that the service sees."""
        with contextlib.ExitStack() as held:
            for last in range(2, 250):
                with contextlib.suppress(OSError):
                    resolver = socketserver.ThreadingUDPServer((f"127.53.0.{last}", 53), Names)
                    held.enter_context(serving(resolver))
                    break
            own = server("udp")
            conf = own.write("resolv.conf", f"nameserver 127.53.0.{last}\n")
            script = f'mount --bind {conf} "$(readlink -f /etc/resolv.conf)" && exec "$@"'
            own.prefix = ["unshare", "--mount", "sh", "-c", script, "-"]
            with own:
                self.assertEqual(self.ask("name", "host.example", own), (200, "192.0.2.7"))


if __name__ == "__main__":
    unittest.main()
