"""A client of WebSocket over HTTP/2 (RFC 8441): that of the library `h2` (hyper-h2), which reads only when it is told to."""

import socket
import struct
import time

from tls_server import insecure

#: More than any answer takes.
PATIENCE = 20


class Streams:
    """A connection over TLS to a server of `tls_server`; use it with `with`.

    What it sends is not checked with `strict=False`. It takes from a stream as it reads, unless `greedy` is false: then
    no more comes than the stream's window has room for.
    """

    def __init__(self, port, name="b.test", strict=True, greedy=True, window=1 << 20):
        from h2.config import H2Configuration
        from h2.connection import H2Connection

        context = insecure()
        context.set_alpn_protocols(["h2"])
        self.name, self.greedy = name, greedy
        plain = socket.create_connection(("127.0.0.1", port), 10)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket, self.unread = context.wrap_socket(plain, server_hostname=name), b""
        self.http = H2Connection(H2Configuration(
            header_encoding="utf-8", validate_outbound_headers=strict, normalize_outbound_headers=strict,
        ))
        self.heads, self.data, self.ended, self.resets, self.gone = {}, {}, set(), {}, None
        #: Each RST_STREAM, also those that the library passes over: the stream and the code.
        self.told = []
        self.http.initiate_connection()
        self.http.increment_flow_control_window(window)
        self.flush()
        self.until(lambda: self.http.remote_settings.enable_connect_protocol == 1, "it offers extended CONNECT")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def flush(self):
        if data := self.http.data_to_send():
            self.socket.sendall(data)

    def until(self, condition, what, seconds=PATIENCE):
        """Reads until it is so."""
        end = time.monotonic() + seconds
        while not condition():
            self.socket.settimeout(max(end - time.monotonic(), 0.01))
            try:
                data = self.socket.recv(65536)
            except TimeoutError:
                data = None
            if not data:
                raise AssertionError(f"not before the end, or within {seconds} s: {what}; "
                                     f"{self.heads} {self.resets} {self.gone}")
            self.take(data)

    def take(self, data):
        self.unread += data
        while len(self.unread) >= 9 and len(self.unread) >= (size := 9 + int.from_bytes(self.unread[:3], "big")):
            frame, self.unread = self.unread[:size], self.unread[size:]
            self.take_frame(frame)
        self.flush()

    def take_frame(self, frame):
        from h2 import connection, events

        if frame[3] == 3:
            self.told.append((int.from_bytes(frame[5:9], "big"), int.from_bytes(frame[9:], "big")))
        for event in self.http.receive_data(frame):
            stream = getattr(event, "stream_id", None)
            if isinstance(event, events.ResponseReceived):
                self.heads[stream] = dict(event.headers)
            elif isinstance(event, events.DataReceived):
                self.data[stream] = self.data.get(stream, b"") + event.data
                if self.greedy:
                    self.http.acknowledge_received_data(event.flow_controlled_length, stream)
            elif isinstance(event, events.StreamEnded):
                self.ended.add(stream)
            elif isinstance(event, events.StreamReset):
                self.resets[stream] = event.error_code
            elif isinstance(event, events.ConnectionTerminated):
                self.gone = event.error_code
                # RFC 9113 6.8: who is asked to leave may end what is under way; the library takes it for the end.
                if self.gone == 0:
                    self.http.state_machine.state = connection.ConnectionState.CLIENT_OPEN

    def ask(self, path, *more, method="CONNECT", protocol="websocket", authority=None, end=False):
        """Opens a stream; returns its number."""
        lines = [(":method", method), (":scheme", "https"), (":authority", authority or self.name), (":path", path)]
        if protocol:
            lines.insert(1, (":protocol", protocol))
        stream = self.http.get_next_available_stream_id()
        self.http.send_headers(stream, [*lines, *more], end_stream=end)
        self.flush()
        return stream

    def open(self, path, *more, **others):
        """The number of a stream on which there is a tunnel."""
        stream = self.ask(path, ("sec-websocket-version", "13"), *more, **others)
        status = self.status(stream)
        if status != "200":
            raise AssertionError(f"{path}: {status}, no tunnel")
        return stream

    def status(self, stream):
        """That of the answer, `reset`, or `gone` if the connection has ended with an error."""
        self.until(lambda: stream in self.heads or stream in self.resets or self.gone, "an answer")
        if stream in self.heads:
            return self.heads[stream][":status"]
        return "reset" if stream in self.resets else "gone"

    def send(self, stream, data):
        """All of it, as the server makes room."""
        while data:
            self.until(lambda: self.http.local_flow_control_window(stream) > 0, "room to send")
            room = min(self.http.local_flow_control_window(stream), self.http.max_outbound_frame_size)
            piece, data = data[:room], data[room:]
            self.http.send_data(stream, piece)
            self.flush()

    def end(self, stream):
        self.http.end_stream(stream)
        self.flush()

    def reset(self, stream, code=8):
        self.http.reset_stream(stream, code)
        self.flush()

    def read(self, stream, count):
        """So many bytes of a stream."""
        self.until(lambda: len(self.data.get(stream, b"")) >= count, f"{count} bytes of stream {stream}")
        data = self.data[stream]
        self.data[stream] = data[count:]
        return data[:count]


def message(content, kind=2):
    """A frame of WebSocket, as a client sends it; the mask changes nothing."""
    size = len(content)
    length = bytes([0x80 | size]) if size < 126 else b"\xfe" + struct.pack(">H", size) if size < 65536 else (
        b"\xff" + struct.pack(">Q", size))
    return bytes([0x80 | kind]) + length + bytes(4) + content


def read_message(read):
    """The kind and the content of the next frame from a server; `read` gives as many bytes as it is asked for."""
    first, size = read(2)
    if size >= 126:
        size = int.from_bytes(read(2 if size == 126 else 8), "big")
    return first & 15, read(size)
