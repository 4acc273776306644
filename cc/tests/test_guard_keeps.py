"""Real servers that keep connections between two requests, as the gate allows it."""

import os
import signal
import time
import unittest

from guard_commands import ApacheCommand, NginxCommand
from guard_questions import Served, children


class Keeps(Served):
    """What each server is asked whose processes may keep 256 connections each."""

    def setUp(self):
        if type(self) is Keeps:  # pylint: disable=unidiomatic-typecheck
            self.skipTest("not a server by itself")
        super().setUp()

    def begin(self):
        """A server all of whose processes that accept may keep connections, and its gate."""
        gate = self.start(keep=256).gate
        end = time.monotonic() + 10
        while time.monotonic() < end:
            with self.client() as client:
                for _ in range(3):
                    self.hello(client)
            if len(gate.keepers) >= self.keepers:
                break
        self.assertGreaterEqual(len(gate.keepers), self.keepers)
        self.server.wait_for(lambda: gate.held() == 0, "the server to let go of all connections")
        return gate

    def kept(self, gate):
        """A client whose connection was kept at least once, and is now."""
        client = self.client()
        for _ in range(100):
            came_back = len(gate.back)
            self.hello(client)
            # By what the gate has sent: what a process has to say of a connection may be late.
            travelled = gate.travelled()
            self.hello(client)
            time.sleep(0.02)
            if gate.travelled() == travelled and len(gate.back) == came_back:
                return client
        raise AssertionError("no connection was kept")

    def test_next_requests_do_not_travel(self):
        gate = self.begin()
        with self.kept(gate) as client:
            before = gate.travelled()
            for _ in range(100):
                self.hello(client)
            self.server.wait_for(lambda: gate.held() == 1, "the gate to be told of the one connection")
            self.assertEqual(gate.travelled(), before)
            # What rests is the gate's.
            self.server.wait_for(lambda: gate.held() == 0, "the connection to come back")
            self.hello(client)
            self.server.wait_for(lambda: gate.served >= 90, "the requests to be counted")
        self.all_quiet()

    def test_all_requests_are_counted(self):
        gate = self.begin()
        with self.kept(gate) as client:
            for _ in range(20):
                self.hello(client)
            self.server.wait_for(lambda: gate.held() == 0, "the connection to come back")
        self.all_quiet()
        asked = self.log().count("GET /index.html")
        self.server.signal(signal.SIGTERM)
        self.server.wait_for(lambda: not gate.processes, "the end of the server")
        self.assertEqual(gate.served + len(gate.took), asked)

    def test_what_ends_is_said_with_others(self):
        """By whatever thread of the server it is closed."""
        gate = self.begin()
        # A client has its answer before the gate is told: what is gathered is said some milliseconds later.
        all_told = lambda: self.server.wait_for(gate.all_ended, "the gate to be told of all connections")
        all_told()

        def ask_at_once():
            before = gate.told, len(gate.done)
            clients = [self.client() for _ in range(20)]
            for client in clients:
                client.send(b"GET /index.html HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            for client in clients:
                self.assertEqual(client.answer()[0], 200)
                client.close()
            all_told()
            self.all_quiet()
            return gate.told - before[0] < len(gate.done) - before[1] == 20

        self.server.wait_for(ask_at_once, "fewer messages than connections")

    def test_the_gate_asks_for_them(self):
        gate = self.begin()
        clients = [self.kept(gate) for _ in range(10)]
        gate.let_keep(0)
        self.server.wait_for(lambda: gate.held() == 0, "all to come back", 0.7)
        for client in clients:
            self.hello(client)
        self.server.wait_for(lambda: gate.held() == 0, "all to come back at once", 0.7)
        gate.let_keep(256)
        for client in clients:
            client.close()
        with self.kept(gate):
            pass
        self.all_quiet()

    def test_what_is_unfinished_goes_to_the_gate(self):
        gate = self.begin()
        with self.kept(gate) as client:
            before = gate.leftover
            client.send(b"GET /ind")
            self.server.wait_for(lambda: gate.held() == 0, "the connection to come back", 0.7)
            self.assertEqual(gate.leftover - before, 8)
            client.send(b"ex.html HTTP/1.1\r\nHost: x\r\n\r\n")
            self.assertEqual(client.answer()[0::2], (200, b"<p>hello</p>\n"))
        self.all_quiet()

    def test_what_is_unusual_goes_to_the_gate(self):
        gate = self.begin()
        for head in ("GET /x/../index.html HTTP/1.1\r\nHost: x\r\n", "GET /index.html HTTP/1.0\r\nHost: x\r\n",
                     "GET /index.html HTTP/1.1\r\nHost: x\r\nX_Y: 1\r\n"):
            with self.kept(gate) as client:
                before = gate.leftover
                whole = head.encode() + b"\r\n"
                client.send(whole)
                self.assertIn(client.answer()[0], (200, 400), head)
                self.assertEqual(gate.leftover - before, len(whole))
        self.all_quiet()

    def test_pipelined(self):
        gate = self.begin()
        with self.kept(gate) as client:
            for count in (2, 5):
                client.send(b"GET /index.html HTTP/1.1\r\nHost: x\r\n\r\n" * count)
                for _ in range(count):
                    self.assertEqual(client.answer()[0::2], (200, b"<p>hello</p>\n"))
            self.hello(client)
        self.all_quiet()

    def test_long_heads_bodies_and_large_answers(self):
        gate = self.begin()
        with self.kept(gate) as client:
            before = gate.travelled()
            self.hello(client, "Cookie: " + "a" * 6000 + "\r\n")
            status, _, body = client.get("/post.cgi", method="POST", body=b"x" * 300_000)
            self.assertEqual((status, body.split()[1]), (200, b"300000"))
            status, fields, body = client.get("/large.bin")
            self.assertEqual((status, len(body)), (200, int(fields["content-length"])))
            self.hello(client)
            self.assertEqual(gate.travelled(), before)
            client.send(b"POST /post.cgi HTTP/1.1\r\nHost: x\r\nContent-Length: 6\r\n\r\nabc")
            time.sleep(0.05)
            client.send(b"def")
            status, _, body = client.answer()
            self.assertEqual((status, body.split()[1]), (200, b"6"))
        self.all_quiet()

    def test_client_that_leaves(self):
        gate = self.begin()
        for _ in range(5):
            self.kept(gate).close()
        self.all_quiet()

    def test_reload_and_recycling_end_no_connection(self):
        self.extra += self.recycling
        gate = self.begin()
        clients = [self.kept(gate) for _ in range(8)]
        for _ in range(2):
            self.server.signal(self.reload)
            end = time.monotonic() + 1
            while time.monotonic() < end:
                for number, client in enumerate(clients):
                    # A process that ends says so in its last answers.
                    if self.hello(client).get("connection") == "close":
                        client.close()
                        clients[number] = self.client()
        for client in clients:
            client.close()
        self.all_quiet_but_killed()

    def test_process_that_is_killed_ends_its_own_alone(self):
        gate = self.begin()
        other, came_back = self.client(), len(gate.back)
        self.hello(other)
        self.server.wait_for(lambda: len(gate.back) > came_back, "the connection to come back")
        ended, holders = gate.ended_processes, []
        while not holders:
            ours = self.kept(gate)
            holders = [child for child in children(self.server.process.pid) if self.holders(child, ours)]
        os.kill(holders[0], signal.SIGKILL)
        self.server.wait_for(lambda: gate.ended_processes > ended, "the end of a process")
        ours.close()
        self.hello(other)
        other.close()
        with self.kept(gate):
            pass
        self.server.wait_for(lambda: gate.held() == 0, "all to be let go of")

    @staticmethod
    def holders(child, client):
        """The descriptors by which a process holds the other end of a client's connection."""
        port = client.socket.getsockname()[1]
        try:
            with open(f"/proc/{child}/net/tcp", encoding="ascii") as table:
                lines = [line.split() for line in table]
        except FileNotFoundError:
            return []
        inodes = {line[9] for line in lines[1:] if int(line[2].split(":")[1], 16) == port}
        found = []
        for fd in os.listdir(f"/proc/{child}/fd") if os.path.exists(f"/proc/{child}/fd") else []:
            try:
                if os.readlink(f"/proc/{child}/fd/{fd}") in {f"socket:[{inode}]" for inode in inodes}:
                    found.append(fd)
            except OSError:
                pass
        return found

    def test_gate_that_ends(self):
        """What is kept goes to the next gate, if there is one; if there is none, it ends."""
        gate = self.begin()
        with self.kept(gate) as client:
            for channel in list(gate.processes):
                channel.shutdown(2)
            self.server.wait_for(lambda: gate.held() == 0 or len(gate.back), "the connection to come back")
            self.hello(client)


class NginxKeeps(NginxCommand, Keeps, unittest.TestCase):
    """Edge-triggered epoll, and one thread."""

    processes, keepers, recycling = 2, 1, ""


class ApacheEventKeeps(ApacheCommand, Keeps, unittest.TestCase):
    """One thread waits, others serve."""

    mpm, keepers, recycling = "event", 1, "MaxConnectionsPerChild 40\n"
    extra = "StartServers 2\nThreadsPerChild 25\nScriptSock {folder}/cgid.sock\n"
