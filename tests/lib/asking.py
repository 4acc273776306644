"""Clients that ask one thing after the other, over HTTP/1.1 and HTTP/2, and begin anew where a connection has ended."""

import ssl

import client
import tls_server
from stream_client import Streams


class Http1:
    """A kept-alive connection of HTTP/1.1, made anew when it has ended."""

    def __init__(self, port, tls):
        self.port, self.tls, self.connection = port, tls, None

    def ask(self, host, target, method, headers):
        for _ in range(2):
            fresh = self.connection is None
            if fresh:
                self.connection = client.Connection(self.port)
                if self.tls:
                    self.connection.socket = tls_server.insecure().wrap_socket(self.connection.socket, server_hostname=host)
                    self.host = host
            elif self.tls and self.host != host:
                self.close()
                continue
            try:
                body = b"a=b" if method == "POST" else b""
                answer = self.connection.get(target, host, headers, method, body)
                if answer.headers.get("connection") == "close":
                    self.close()
                return answer.status, answer.headers, answer.body
            except (ConnectionError, ssl.SSLError):
                self.close()
                if fresh:
                    raise
        raise AssertionError("no connection lasts for one request")

    def close(self):
        if self.connection:
            self.connection.close()
        self.connection = None


class Http2:
    """Streams of connections over TLS, none of which has so many requests that it is abuse."""

    def __init__(self, port):
        self.port, self.streams, self.host, self.asked = port, None, None, 0

    def ask(self, host, target, method, headers):
        if self.streams is None or self.host != host or self.asked >= 100 or self.streams.gone is not None:
            self.close()
            self.streams, self.host, self.asked = Streams(self.port, host, strict=False).__enter__(), host, 0
        self.asked += 1
        lines = [tuple(part.strip() for part in line.split(":", 1)) for line in headers]
        stream = self.streams.ask(target, *((name.lower(), value) for name, value in lines),
                                  method=method, protocol=None, end=True)
        status = self.streams.status(stream)
        if status in ("reset", "gone"):
            if status == "gone":
                self.close()
            return 400, {}, b""
        ended = lambda: stream in self.streams.ended or stream in self.streams.resets
        self.streams.until(ended, "the end of an answer")
        return int(status), self.streams.heads[stream], self.streams.data.pop(stream, b"")

    def close(self):
        if self.streams:
            self.streams.__exit__()
        self.streams = None
