"""The preload library where something is out of the ordinary: connections that stay, a guard that has gone, children
that nobody announced, descriptors that belong to one thread."""

import os
import socket
import sys
import tempfile
import textwrap
import time
import unittest

import sessions
from cc_world import HERE, compile_program
from guard_driver import Client, preloaded
from guard_small import BEGIN, SmallServer
from harness import free_port

# Reads whole requests at each report of a change, however many have come, and answers them.
EDGES = """
    def serve_by_edges(client):
        client.setblocking(False)
        epoll, text = select.epoll(), b""
        epoll.register(client, select.EPOLLIN | select.EPOLLET)
        while True:
            assert epoll.poll(5), "nothing came"
            # As nginx does: what was not filled is taken for all that there is.
            part = client.recv(4096)
            if not part:
                return
            text += part
            count = text.count(b"\\r\\n\\r\\n")
            text = text.rpartition(b"\\r\\n\\r\\n")[2]
            say("read", count)
            client.sendall(ANSWER * count)
    """


class Edges(SmallServer):
    """Each test is one such situation."""

    def serve_edges(self, script, **more):
        return self.serve(textwrap.dedent(EDGES) + textwrap.dedent(script), **more)

    def pipeline(self, count):
        with Client(self.server) as client:
            client.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * count)
            for _ in range(count):
                self.assertEqual(client.answer()[0::2], (200, b"ok"))

    def test_connections_that_stay(self):
        """Without persistence the server keeps a connection until it ends, and reads what it likes of it."""
        script = """
            listener = listen()
            while True:
                client, _ = listener.accept()
                serve_by_edges(client)
                client.close()
            """
        for take in (False, True):
            with self.subTest(take=take):
                gate = self.serve_edges(script, take=take, environment={"BULKHEAD_GUARD_PERSIST": "0"}).gate
                self.asks(3)
                self.pipeline(3)
                self.server.wait_for(lambda gate=gate: gate.done == [1, 2], "the end of both connections")
                self.assertEqual((gate.took, gate.back, gate.unknown), ([1, 2], [], []))
                if not take:
                    self.said("read 3")
        gate = self.serve_edges(script, environment={"BULKHEAD_GUARD_PERSIST": "1"}).gate
        self.asks(3)
        self.server.wait_for(lambda: gate.back == [1, 2, 3], "all to come back")

    def test_next_request_of_one_that_has_two_descriptors(self):
        """It cannot go back, so there is no next one: a server that hears of changes only is told of the end."""
        gate = self.serve_edges("""
            listener = listen()
            client, _ = listener.accept()
            copy = os.dup(client.fileno())
            serve_by_edges(client)
            say("ended")
            """).gate
        with Client(self.server) as client:
            client.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * 3)
            self.assertEqual(client.answer()[0::2], (200, b"ok"))
            self.assertRaises((EOFError, ConnectionError), client.line)
        self.said("ended")
        self.assertEqual((self.server.output().count("read 1"), gate.back), (1, []))

    def test_child_that_nobody_announced(self):
        """_Fork(3) runs no handlers. The child has a channel of its own, and the parent's goes on."""
        gate = self.serve("""
            listener = listen()
            def one():
                client, _ = listener.accept()
                head(client)
                client.sendall(CLOSING)
                client.close()
            one()
            pid = ctypes.CDLL(None)._Fork()
            one()
            if not pid:
                one()
                os._exit(0)
            assert os.waitpid(pid, 0)[1] == 0
            one()
            """).gate
        for _ in range(5):
            self.asks(1)
        self.server.wait_for(lambda: sorted(gate.done) == [1, 2, 3, 4, 5] and gate.ended_processes == 2, "the end")
        self.assertEqual(gate.unknown, [])

    def test_a_threads_own_descriptors(self):
        """close_range(2) with CLOSE_RANGE_UNSHARE closes nothing of the other threads."""
        gate = self.serve("""
            import threading
            listener = listen()
            client, _ = listener.accept()
            head(client)
            def close_own():
                assert ctypes.CDLL(None).close_range(3, 0xffffffff, 2) == 0
            thread = threading.Thread(target=close_own)
            thread.start()
            thread.join()
            client.sendall(CLOSING)
            client.close()
            time.sleep(9)
            """).gate
        self.asks(1)
        self.server.wait_for(lambda: gate.done == [1], "the end of the connection")

    def test_wrong_flags_close_nothing(self):
        self.serve("""
            listener = listen()
            client, _ = listener.accept()
            head(client)
            assert ctypes.CDLL(None).close_range(3, 0xffffffff, 64) == -1
            client.sendall(CLOSING)
            """)
        self.asks(1)

    def test_gate_that_ends_where_descriptors_are_few(self):
        self.serve("""
            resource.setrlimit(resource.RLIMIT_NOFILE, (64, 4096))
            listener = listen()
            listener.setblocking(False)
            select.select([listener], [], [], 9)
            try:
                listener.accept()
                assert False
            except BlockingIOError:
                pass
            say("waits", select.select([listener], [], [], 0.3)[0] == [])
            """)
        for channel in self.server.gate.shared.values():
            channel.shutdown(socket.SHUT_RDWR)
        self.said("waits True")

    def test_guard_that_goes(self):
        """Connections that the server has are answered once, and end; it is said once."""
        gate = self.serve("""
            listener = listen()
            clients = [listener.accept()[0] for _ in range(3)]
            for client in clients:
                head(client)
                client.sendall(ANSWER)
            say("ended", [head(client) for client in clients])
            """).gate
        clients = [Client(self.server) for _ in range(3)]
        for client in clients:
            client.send(b"GET / HTTP/1.1\r\nHost: x\r\n")
        # One after the other, since the server serves them in the order in which it has them.
        for client, taken in zip(clients, ([1], [1, 2])):
            client.send(b"\r\n")
            self.server.wait_for(lambda taken=taken: gate.took == taken, f"connections {taken} to be taken")
        gate.lose_guard()
        clients[2].send(b"\r\n")
        for client in clients:
            self.assertEqual(client.answer()[0::2], (200, b"ok"))
            client.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        self.said("ended [b'', b'', b'']")
        self.assertEqual(self.server.output().count("the guard cannot be reached"), 1)
        for client in clients:
            client.close()

    def start_in_c(self, scenario):
        folder = self.enterContext(tempfile.TemporaryDirectory())
        program = compile_program(folder, os.path.join(HERE, "guard_server.c"))
        return self.serve_command([program, scenario]).gate

    def serve_in_c(self, scenario):
        gate = self.start_in_c(scenario)
        self.asks(2)
        self.assertEqual(self.server.process.wait(10), 0, self.server.output())
        self.server.wait_for(lambda: gate.back == [1, 2], "both to come back")
        self.assertEqual((gate.took, gate.unknown), ([1, 2], []))

    def test_child_of_vfork_has_descriptors_of_its_own(self):
        self.serve_in_c("vforking")

    def test_child_of_vfork_gives_nothing_back_that_is_kept(self):
        """It hears the gate in its parent's place, and does not try again and again."""
        gate = self.start_in_c("keeping")
        gate.keep = 256
        with Client(self.server) as client:
            came_back = -1
            while came_back < len(gate.back):
                came_back = len(gate.back)
                client.get("/")
                client.get("/")
            client.get("/last")
            gate.let_keep(0)
            self.server.wait_for(lambda: gate.held() == 0, "the parent to give it back")
            self.assertEqual(client.get("/")[0], 200)

    def test_handlers_that_interrupt_the_library(self):
        self.serve_in_c("interrupted")

    def test_gate_that_does_not_listen(self):
        """What it could not be told of does not stay in its books: the channel ends, and another begins."""
        gate = self.serve("""
            listener = listen()
            while True:
                client, _ = listener.accept()
                head(client)
                client.sendall(CLOSING)
                client.close()
            """).gate
        self.asks(1)
        self.server.wait_for(lambda: gate.done == [1], "a process channel")
        gate.deaf = True
        # More than fits into a channel, by which the server is held up once.
        for _ in range(250):
            self.asks(1)
        gate.deaf = False
        self.server.wait_for(lambda: gate.ended_processes == 1 and gate.held() == 0, "the books to be right")
        self.assertEqual(gate.unknown, [])
        self.asks(1)
        self.server.wait_for(lambda: 252 in gate.done, "the last one's end")

    def test_guard_that_was_never_there(self):
        """The server listens itself."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.close()
        port, log = free_port(), self.enterContext(tempfile.TemporaryFile())
        script = BEGIN + textwrap.dedent("""
            listener = listen()
            client, peer = listener.accept()
            assert client.getpeername() == peer and listener.getsockname() == ("127.0.0.1", port)
            for _ in range(2):
                head(client)
                client.sendall(ANSWER)
            """)
        environment = preloaded({"BULKHEAD_GUARD": str(theirs.fileno())})
        with theirs:
            server = sessions.start([sys.executable, "-c", script, str(port)], env=environment, stdout=log, stderr=log,
                                    pass_fds=[theirs.fileno()])
        try:
            self.port, end = port, time.monotonic() + 10
            while time.monotonic() < end and b"unguarded" not in os.pread(log.fileno(), 9999, 0):
                time.sleep(0.01)
            with Client(self) as client:
                for _ in range(2):
                    self.assertEqual(client.get("/")[0::2], (200, b"ok"))
            self.assertEqual(server.wait(10), 0, os.pread(log.fileno(), 9999, 0))
        finally:
            sessions.stop(server)
        self.assertIn(b"the guard cannot be reached", os.pread(log.fileno(), 9999, 0))

    def connect(self):
        return socket.create_connection(("127.0.0.1", self.port), 10)


if __name__ == "__main__":
    unittest.main()
