"""The calls that the preload library stands in for, one by one."""

import socket
import subprocess
import sys
import time
import unittest

import sessions
from guard_driver import Client, preloaded
from guard_small import SmallServer
from harness import free_port


class Calls(SmallServer):
    """Listening, accepting, closing, copying, starting others."""

    def test_names_and_options(self):
        self.serve("""
            listener = listen()
            assert listener.getsockname() == ("127.0.0.1", port)
            option = lambda item, what: item.getsockopt(socket.SOL_SOCKET, what)
            assert option(listener, socket.SO_TYPE) == socket.SOCK_STREAM
            assert option(listener, socket.SO_ACCEPTCONN) == 1
            assert option(listener, socket.SO_DOMAIN) == socket.AF_INET
            assert option(listener, socket.SO_PROTOCOL) == socket.IPPROTO_TCP
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, 1)
            try:
                listener.getpeername()
                assert False
            except OSError as error:
                assert error.errno == errno.ENOTCONN
            listener.listen(5)
            while True:
                client, peer = listener.accept()
                for _ in range(2):
                    assert client.getpeername() == peer and peer[0] == "127.0.0.9", peer
                    assert client.getsockname() == ("127.0.0.1", port)
                    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    client.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)
                    if head(client):
                        client.sendall(ANSWER)
                try:
                    client.sendall(b"more")
                    assert False
                except ConnectionResetError:
                    pass
                client.shutdown(socket.SHUT_WR)
                client.close()
                say("asked all")
            """)
        with socket.create_connection(("127.0.0.1", self.port), 5, ("127.0.0.9", 0)) as client:
            client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            self.assertTrue(client.recv(1000).endswith(b"ok"))
        self.said("asked all")

    def test_ipv6_listener_sees_mapped_address(self):
        self.serve("""
            listener = listen(socket.AF_INET6, "::")
            client, peer = listener.accept()
            say(peer[0], client.getpeername()[0], listener.getsockname()[0])
            head(client)
            client.sendall(CLOSING)
            client.close()
            """)
        self.asks(1)
        self.said("::ffff:127.0.0.1 ::ffff:127.0.0.1 ::")

    def test_closing_all_does_not_reach_the_library(self):
        self.serve("""
            try:
                os.close(900)
                assert False
            except OSError as error:
                assert error.errno == errno.EBADF
            os.closerange(3, 5000)
            ctypes.CDLL(None).closefrom(3)
            listener = listen()
            while True:
                client, _ = listener.accept()
                kept = [listener.fileno(), client.fileno()]
                for fd in range(3, 2000):
                    if fd not in kept:
                        try:
                            os.close(fd)
                        except OSError:
                            pass
                head(client)
                client.sendall(ANSWER)
                client.close()
            """)
        self.asks()
        self.server.wait_for(lambda: len(self.server.gate.back) == 3, "all to come back")
        self.assertEqual(len(self.server.gate.processes), 1)

    def test_closing_a_range_closes_connections(self):
        self.serve("""
            listener = listen()
            os.dup2(listener.fileno(), 50)
            while True:
                client, _ = listener.accept()
                head(client)
                os.dup2(client.fileno(), 70)
                client.close()
                ctypes.CDLL(None).close_range(60, 5000, 0)
            """)
        with Client(self.server) as client:
            client.send(b"GET / HTTP/1.1\r\n\r\n")
            self.assertEqual(client.socket.recv(10), b"")
        self.server.wait_for(lambda: self.server.gate.done == [1], "the end of the connection")
        self.assertEqual(len(self.server.gate.processes), 1)

    def test_duplicates_are_one_connection(self):
        self.serve("""
            listener = listen()
            while True:
                client, _ = listener.accept()
                copies = [os.dup(client.fileno()), fcntl.fcntl(client, fcntl.F_DUPFD_CLOEXEC, 40)]
                os.dup2(copies[0], 80)
                client.close()
                copy = socket.socket(fileno=80)
                head(copy)
                os.write(copies[0], ANSWER)
                for fd in copies:
                    os.close(fd)
                # Its next request would have passed no gate.
                assert copy.recv(10) == b""
                copy.close()
            """)
        for _ in range(2):
            with Client(self.server) as client:
                client.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * 2)
                self.assertEqual(client.answer()[0::2], (200, b"ok"))
                self.assertRaises((EOFError, ConnectionError), client.line)
        gate = self.server.gate
        self.server.wait_for(lambda: gate.done == [1, 2], "the end of both connections")
        self.assertEqual((gate.took, gate.back, gate.held()), ([1, 2], [], 0))

    def test_listener_is_known_again_after_exec(self):
        self.serve("""
            if len(sys.argv) == 2:
                listener = listen()
                os.set_inheritable(listener.fileno(), True)
                os.execv(sys.executable, [sys.executable, *sys.argv, str(listener.fileno())])
            listener = socket.socket(fileno=int(sys.argv[2]))
            assert listener.family == socket.AF_INET and listener.type == socket.SOCK_STREAM, listener
            assert listener.getsockname() == ("127.0.0.1", port)
            while True:
                client, _ = listener.accept()
                head(client)
                client.sendall(ANSWER)
                client.close()
            """)
        self.asks()
        self.server.wait_for(lambda: len(self.server.gate.back) == 3, "all to come back")

    def test_the_guards_own_address(self):
        self.serve("""
            listener = listen()
            assert listener.getsockname() == ("127.0.0.1", port)
            say("listens")
            listener.accept()
            """, environment={"BULKHEAD_GUARD_LISTEN": "1"})
        self.said("listens")
        with self.assertRaises(ConnectionRefusedError):
            self.server.connect()
        self.assertEqual(self.server.gate.messages, [2])

    def test_no_descriptor_is_lost_at_the_limit(self):
        self.serve("""
            listener = listen()
            listener.setblocking(False)
            resource.setrlimit(resource.RLIMIT_NOFILE, (40, 4096))
            held, full = [], 0
            while len(held) < 60:
                select.select([listener], [], [], 5)
                try:
                    held.append(listener.accept()[0])
                except BlockingIOError:
                    continue
                except OSError as error:
                    assert error.errno == errno.EMFILE, error
                    full += 1
                    resource.setrlimit(resource.RLIMIT_NOFILE, (40 + 10 * full, 4096))
            assert full
            for client in held:
                head(client)
                client.sendall(CLOSING)
                client.close()
            time.sleep(9)
            """)
        clients = [Client(self.server) for _ in range(60)]
        for client in clients:
            client.send(b"GET / HTTP/1.1\r\n\r\n")
        for client in clients:
            self.assertEqual(client.answer()[0], 200)
            client.close()

    def test_gate_that_ends(self):
        self.serve("""
            listener = listen()
            listener.setblocking(False)
            epoll = select.epoll()
            epoll.register(listener, select.EPOLLIN)
            turns = 0
            end = time.monotonic() + 2
            while time.monotonic() < end:
                for fd, _ in epoll.poll(0.5):
                    turns += 1
                    try:
                        listener.accept()
                    except BlockingIOError:
                        pass
            say("turns", turns)
            """)
        time.sleep(0.5)
        for channel in self.server.gate.shared.values():
            channel.shutdown(socket.SHUT_RDWR)
        self.said("no connection will come any more")
        self.said("turns 1")

    PASSING = """
        import threading
        listener = listen()
        ours, theirs = socket.socketpair()
        served = threading.Event()
        def serve_passed():
            while True:
                fd = socket.recv_fds(theirs, 1, 1)[1][0]
                # By a call that nobody follows, as another process would.
                text = ctypes.create_string_buffer(200)
                got = ctypes.CDLL(None).__read(fd, text, 200)
                say("got", text.raw[:max(got, 0)])
                os.close(fd)
                served.set()
        threading.Thread(target=serve_passed, daemon=True).start()
        while True:
            client, _ = listener.accept()
            socket.send_fds(ours, [b"c"], [client.fileno()])
            served.wait()
            client.close()
        """

    def test_what_is_passed_on_with_filters_is_closed(self):
        """The head of the first request is the filter's; the second one, which it has not had, would be taken for that."""
        self.serve(self.PASSING, take=True, environment={"BULKHEAD_GUARD_FILTERS": "1"})
        with Client(self.server) as client:
            client.send(b"GET /first HTTP/1.1\r\nHost: x\r\n\r\nGET /second HTTP/1.1\r\nHost: x\r\n\r\n")
            self.assertRaises((EOFError, ConnectionError), client.line)
        self.said("passed to another process are closed")
        self.assertNotIn("second", self.server.output())

    def test_stdio_with_filters_is_closed(self):
        self.serve("""
            libc = ctypes.CDLL(None)
            libc.fdopen.restype = ctypes.c_void_p
            listener = listen()
            while True:
                fd = listener._accept()[0]
                stream = ctypes.c_void_p(libc.fdopen(fd, b"r+"))
                line = ctypes.create_string_buffer(200)
                while libc.fgets(line, 200, stream):
                    say("read", line.value)
                libc.fclose(stream)
            """, take=True, environment={"BULKHEAD_GUARD_FILTERS": "1"})
        with Client(self.server) as client:
            client.send(b"GET /first HTTP/1.1\r\nHost: x\r\n\r\nGET /second HTTP/1.1\r\nHost: x\r\n\r\n")
            self.assertRaises((EOFError, ConnectionError), client.line)
        self.said("connections that are read by stdio")
        self.assertNotIn("second", self.server.output())

    def test_stdio(self):
        self.serve("""
            libc = ctypes.CDLL(None)
            libc.fdopen.restype = ctypes.c_void_p
            listener = listen()
            while True:
                fd = listener._accept()[0]
                stream = ctypes.c_void_p(libc.fdopen(fd, b"r+"))
                line = ctypes.create_string_buffer(200)
                while libc.fgets(line, 200, stream) and line.value != b"\\r\\n":
                    pass
                libc.fputs(CLOSING, stream)
                libc.fclose(stream)
            """)
        for _ in range(3):
            self.asks(1)
        self.server.wait_for(lambda: self.server.gate.done == [1, 2, 3], "all to end")

    def test_children_do_not_disturb(self):
        """A child that is a program of its own, with all closed or with all inherited, and one that only ends."""
        self.serve("""
            listener = listen()
            while True:
                client, _ = listener.accept()
                head(client)
                subprocess.run(["true"], close_fds=True)
                os.set_inheritable(client.fileno(), True)
                subprocess.run(["true"], close_fds=False)
                pid = os.fork()
                if not pid:
                    client.close()
                    os._exit(0)
                os.waitpid(pid, 0)
                client.sendall(ANSWER)
                client.close()
            """)
        self.asks(5)
        gate = self.server.gate
        self.server.wait_for(lambda: len(gate.back) == 5, "all to come back")
        self.assertEqual((len(gate.took), gate.done, len(gate.processes)), (5, [], 1))

    SWITCHING = """
        listener = listen()
        client, _ = listener.accept()
        head(client)
        client.sendall(b"HTTP/1.1 101 Switching Protocols\\r\\nUpgrade: PROTOCOL\\r\\nConnection: upgrade\\r\\n\\r\\n")
        while text := client.recv(100):
            client.sendall(ANSWER + text)
        client.close()
        time.sleep(9)
        """

    def test_a_websocket_is_a_tunnel(self):
        self.serve(self.SWITCHING.replace("PROTOCOL", "WebSocket"))
        with Client(self.server) as client:
            client.send(b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: x, websocket\r\nConnection: upgrade\r\n\r\n")
            self.assertEqual(client.line(), b"HTTP/1.1 101 Switching Protocols")
            for _ in range(3):
                client.send(b"GET / HTTP/1.1\r\n\r\n")
                while not client.buffer.endswith(b"GET / HTTP/1.1\r\n\r\n"):
                    client.more()
                client.buffer = b""
        self.server.wait_for(lambda: self.server.gate.done == [1], "the end")
        self.assertEqual(self.server.gate.back, [])

    def test_no_other_tunnel_carries_anything(self):
        """What was not asked for, or may carry requests that no gate has seen."""
        for asked, granted in (("h2c", "h2c"), ("websocket", "h2c"), ("x", "websocket"), ("websocket", "x")):
            with self.subTest(asked=asked, granted=granted):
                self.serve(self.SWITCHING.replace("PROTOCOL", granted))
                with Client(self.server) as client:
                    client.send(f"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: {asked}\r\nConnection: upgrade\r\n\r\n".encode())
                    self.assertEqual(client.line(), b"HTTP/1.1 101 Switching Protocols")
                    client.send(b"GET /unseen HTTP/1.1\r\n\r\n")
                    with self.assertRaises((EOFError, ConnectionError)):
                        while True:
                            client.more()
                    self.assertNotIn(b"unseen", client.buffer)

    def test_program_that_is_not_guarded(self):
        """The library alone, without a guard, changes nothing."""
        port = free_port()
        environment = preloaded({})
        environment.pop("BULKHEAD_GUARD", None)
        for number in (None, "900", "x"):
            if number:
                environment["BULKHEAD_GUARD"] = number
            command = [sys.executable, "-m", "http.server", str(port), "--bind", "127.0.0.1", "-d", "/usr/share"]
            one = sessions.start(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            try:
                for _ in range(100):
                    try:
                        client = socket.create_connection(("127.0.0.1", port), 5)
                        break
                    except ConnectionRefusedError:
                        time.sleep(0.05)
                with client:
                    client.sendall(b"GET / HTTP/1.0\r\n\r\n")
                    self.assertIn(b"200 OK", client.recv(1000))
            finally:
                sessions.stop(one)


if __name__ == "__main__":
    unittest.main()
