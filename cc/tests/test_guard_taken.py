"""Bytes that a filter took come before those in the socket, however a server waits for them and reads them."""

import textwrap
import unittest

from guard_small import SmallServer


class Taken(SmallServer):
    """Each server gets the head of a request as taken bytes."""

    def waiting_server(self, wait):
        """A server that waits for each connection before it reads; with bytes that a filter took, and a body."""
        self.serve("listener = listen()\n" + textwrap.dedent(wait) + textwrap.dedent("""
            while True:
                client, _ = listener.accept()
                while True:
                    wait(client)
                    text = head(client)
                    if not text:
                        break
                    if text.startswith(b"POST"):
                        left = 70000
                        while left:
                            wait(client)
                            left -= len(client.recv(left))
                    client.sendall(ANSWER)
                client.close()
            """), take=True)
        self.asks()
        self.asks(size=70000)
        self.server.wait_for(lambda: len(self.server.gate.back) == 6, "all to come back")

    def test_taken_with_poll(self):
        self.waiting_server("""
            def wait(client):
                poll = select.poll()
                poll.register(client, select.POLLIN)
                assert poll.poll(5000) and poll.poll(5000)[0][1] & select.POLLIN
            """)

    def test_taken_with_select(self):
        self.waiting_server("""
            def wait(client):
                assert select.select([client], [], [client], 5)[0]
            """)

    def test_taken_with_epoll(self):
        self.waiting_server("""
            sets = {}
            def wait(client):
                if client not in sets:
                    sets[client] = select.epoll()
                    sets[client].register(client, select.EPOLLIN | select.EPOLLRDHUP)
                events = sets[client].poll(5)
                assert events and events[0][1] & select.EPOLLIN and not events[0][1] & select.EPOLLOUT, events
            """)

    def test_taken_with_edge_triggered_epoll(self):
        self.serve("""
            listener = listen()
            while True:
                client, _ = listener.accept()
                client.setblocking(False)
                epoll = select.epoll()
                epoll.register(client, select.EPOLLIN | select.EPOLLOUT | select.EPOLLET)
                ended = False
                while not ended:
                    events = epoll.poll(5)
                    assert events, "nothing came"
                    if not events[0][1] & select.EPOLLIN:
                        continue
                    text = b""
                    try:
                        while not ended:
                            part = client.recv(100)
                            ended = not part
                            text += part
                    except BlockingIOError:
                        pass
                    if text:
                        client.sendall(ANSWER)
                client.close()
            """, take=True)
        self.asks()
        self.asks()

    def test_taken_in_all_ways_of_reading(self):
        self.serve("""
            listener = listen()
            while True:
                client, _ = listener.accept()
                start = client.recv(5, socket.MSG_PEEK)
                assert start in (b"POST ", b"GET /"), start
                waiting = struct.unpack("i", fcntl.ioctl(client, termios.FIONREAD, b"1234"))[0]
                assert waiting > 20, waiting
                first = os.read(client.fileno(), 5)
                assert first == start
                second, third = bytearray(2), bytearray(3)
                assert os.readv(client.fileno(), [second, third]) == 5
                assert bytes(second + third) == (b"/ HTT" if start == b"POST " else b" HTTP"), second + third
                text, ancillary, flags, address = client.recvmsg(4)
                assert len(text) == 4 and not ancillary
                rest = head(client)
                if start == b"POST ":
                    assert len(client.recv(1000, socket.MSG_WAITALL)) == 1000
                client.sendall(ANSWER)
                client.close()
            """, take=True)
        self.asks(1)
        self.asks(2, 1000)


if __name__ == "__main__":
    unittest.main()
