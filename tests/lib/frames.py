"""An HTTP/2 client that sends what it is told to, right or wrong: header lines are not checked, nor compressed."""

import socket
import struct

DATA, HEADERS, RST_STREAM, SETTINGS, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 7, 8
END_STREAM, END_HEADERS, ACK = 1, 4, 1
#: What RFC 7541's static table has for `:status`.
STATUSES = {8: 200, 9: 204, 10: 206, 11: 304, 12: 400, 13: 404, 14: 500}


def frame(kind, flags, stream, body=b""):
    return struct.pack(">I", len(body))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + body


def literal(text):
    """A string without Huffman coding."""
    size = len(text)
    if size < 127:
        return bytes([size]) + text
    rest, size = b"\x7f", size - 127
    while size >= 128:
        rest, size = rest + bytes([size % 128 + 128]), size // 128
    return rest + bytes([size]) + text


def block(lines):
    """Header lines, each a literal that is never indexed."""
    return b"".join(b"\x10" + literal(name) + literal(value) for name, value in lines)


class Http2:
    """A connection over TLS; use it with `with`."""

    def __init__(self, context, port, name="main.test"):
        context.set_alpn_protocols(["h2"])
        plain = socket.create_connection(("127.0.0.1", port), timeout=5)
        secure = context.wrap_socket(plain, server_hostname=name)
        assert secure.selected_alpn_protocol() == "h2", secure.selected_alpn_protocol()
        self.begin(secure)

    def begin(self, connection):
        """Says the first words on a connection."""
        self.socket = connection
        self.unread, self.statuses, self.bodies, self.ended, self.resets = b"", {}, {}, {}, []
        # The answers' header lines come uncompressed but for the static table: there is to be no dynamic one.
        no_table = struct.pack(">HI", 1, 0)
        self.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS, 0, 0, no_table))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, data):
        self.socket.sendall(data)

    def request(self, stream, lines, *bodies):
        """A request whose body comes in these pieces."""
        end = 0 if bodies else END_STREAM
        data = frame(HEADERS, END_HEADERS | end, stream, block(lines))
        for number, body in enumerate(bodies):
            data += frame(DATA, END_STREAM if number == len(bodies) - 1 else 0, stream, body)
        self.send(data)

    def outcome(self, stream, seconds=4):
        """A status, `reset`, `goaway` or `closed`; `nothing` if nothing comes in this time."""
        self.socket.settimeout(seconds)
        try:
            while stream not in self.ended:
                while len(self.unread) < 9 or len(self.unread) < 9 + int.from_bytes(self.unread[:3], "big"):
                    more = self.socket.recv(65536)
                    if not more:
                        return "closed"
                    self.unread += more
                size = int.from_bytes(self.unread[:3], "big")
                kind, flags, at = self.unread[3], self.unread[4], int.from_bytes(self.unread[5:9], "big")
                body, self.unread = self.unread[9 : 9 + size], self.unread[9 + size :]
                if kind == GOAWAY:
                    # NO_ERROR is a farewell, not a refusal.
                    if int.from_bytes(body[4:8], "big"):
                        return "goaway"
                self.take(kind, flags, at, body)
        except TimeoutError:
            return "nothing"
        except OSError:
            return "closed"
        return self.ended[stream]

    def take(self, kind, flags, stream, body):
        if kind == SETTINGS and not flags & ACK:
            self.send(frame(SETTINGS, ACK, 0))
        elif kind == HEADERS:
            self.statuses[stream] = status(body)
        elif kind == DATA:
            self.bodies[stream] = self.bodies.get(stream, b"") + body
        elif kind == RST_STREAM:
            # After a whole answer, NO_ERROR says that the rest of the request is not wanted (RFC 9113 8.1).
            self.ended.setdefault(stream, "reset")
            self.resets.append((stream, int.from_bytes(body, "big")))
        if kind in (HEADERS, DATA) and flags & END_STREAM:
            self.ended[stream] = self.statuses[stream]


def status(lines):
    """The status that a block of header lines begins with."""
    while lines and lines[0] & 0xE0 == 0x20:
        lines = lines[1:]
    if lines[0] & 0x80:
        return STATUSES[lines[0] & 0x7F]
    # A literal whose name is one of those of the static table, with three digits, in Huffman's code or not.
    if lines[1] == 3:
        return int(lines[2:5])
    return int(digits(lines[2 : 2 + (lines[1] & 0x7F)]))


def digits(packed):
    """Three digits in Huffman's code of RFC 7541: 0, 1, 2 have 5 bits, 3 to 9 have 6."""
    bits = "".join(f"{byte:08b}" for byte in packed)
    text = ""
    while len(text) < 3:
        if int(bits[:5], 2) < 3:
            text, bits = text + str(int(bits[:5], 2)), bits[5:]
        else:
            text, bits = text + str(int(bits[:6], 2) - 0b011001 + 3), bits[6:]
    return text
