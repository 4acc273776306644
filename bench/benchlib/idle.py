"""What an idle kept-alive TLS connection costs: the memory of all processes of a server, before and with many of them."""

import contextlib
import dataclasses
import os
import pathlib
import select
import signal
import socket
import ssl
import struct
import time

from . import proc, servers

REQUEST = f"GET /100.bin HTTP/1.1\r\nHost: {servers.HOST}\r\n\r\n".encode()
SETTLE = 3.0    # seconds between the last request and the measurement


@dataclasses.dataclass(frozen=True)
class Idle:
    """Connections with one request each, then silence. The figure is `kib_each`: proportional set sizes, summed up."""

    protocol: str
    connections: int = 10_000
    clients: int = 4
    checks, logged, pinned = True, True, True

    def cost(self, options):
        return SETTLE + self.connections * 0.0009 + 2

    def command(self, options):
        return f"{self.connections:,} connections of {self.protocol} from {self.clients} processes, each with one request"

    def measure(self, subject, options):
        count = min(self.connections, 1000) if options.quick else self.connections
        pid, port = subject.servers[-1].process.pid, subject.port
        before, clients, began = memory(pid), [], time.monotonic()
        try:
            for index in range(self.clients):
                own = count // self.clients + (index < count % self.clients)
                clients.append(Client(port, self.protocol, own, options.load_core))
            for client in clients:
                if (said := client.line()) != "ready":
                    raise RuntimeError(f"{subject.name}, {self.protocol}: {said}")
            took = time.monotonic() - began
            time.sleep(SETTLE)
            during = memory(pid)
            for client in clients:
                os.write(client.tell, b"x")
            lost = sum(int(client.line()) for client in clients)
        finally:
            for client in clients:
                client.end()
        if lost:
            raise RuntimeError(f"{subject.name}, {self.protocol}: {lost} connections were closed while idle")
        if set(before) - set(during):
            raise RuntimeError(f"{subject.name}: a process ended: {set(before) - set(during)}")
        return {"requests": count, "opened_s": took, "memory_before_mib": sum(before.values()) / 1024,
                "memory_mib": sum(during.values()) / 1024, "kib_each": (sum(during.values()) - sum(before.values())) / count}


def memory(root):
    """KiB of each process of a server (proportional set size): {pid: KiB}"""
    found = {}
    for pid in proc.family(root):
        with contextlib.suppress(OSError, StopIteration):
            text = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text()
            found[pid] = next(int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:"))
    return found


def client_context(protocol):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols([protocol])
    return context


def open_connection(port, context, protocol):
    """A connection on which one request has been answered, and that is kept."""
    plain = socket.create_connection(("127.0.0.1", port), timeout=20)
    connection = context.wrap_socket(plain, server_hostname=servers.HOST)
    if connection.selected_alpn_protocol() != protocol:
        raise RuntimeError(f"it speaks {connection.selected_alpn_protocol()} instead of {protocol}")
    (ask_http2 if protocol == "h2" else ask_http1)(connection)
    return connection


def ask_http1(connection):
    connection.sendall(REQUEST)
    text = b""
    while b"\r\n\r\n" not in text or len(text.partition(b"\r\n\r\n")[2]) < 100:
        piece = connection.recv(4096)
        if not piece:
            raise ConnectionError(f"closed after {text[:100]!r}")
        text += piece
    if not text.startswith(b"HTTP/1.1 200"):
        raise RuntimeError(f"the answer is {text[:40]!r}")


def frame(kind, flags, stream, payload):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def ask_http2(connection):
    """One request in frames written by hand: no Huffman coding, no table of headers."""
    path, host = b"/100.bin", servers.HOST.encode()
    headers = b"\x82\x87\x04" + bytes([len(path)]) + path + b"\x01" + bytes([len(host)]) + host
    connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, b"") + frame(1, 5, 1, headers))
    data, answered, acknowledged = b"", False, False
    while not (answered and acknowledged):
        while len(data) < 9 or len(data) < 9 + int.from_bytes(data[:3], "big"):
            piece = connection.recv(4096)
            if not piece:
                raise ConnectionError(f"closed after {data[:100]!r}")
            data += piece
        size, kind, flags = int.from_bytes(data[:3], "big"), data[3], data[4]
        payload, data = data[9 : 9 + size], data[9 + size :]
        if kind in (3, 7):
            raise RuntimeError(f"the stream ends with frame {kind}: {payload!r}")
        if kind == 1 and b"\x88" not in payload[:6]:
            raise RuntimeError(f"the answer begins with {payload[:10]!r}")
        if kind == 4 and not flags & 1:
            connection.sendall(frame(4, 1, 0, b""))
            acknowledged = True
        answered |= kind in (0, 1) and bool(flags & 1)


class Client:
    """A process of its own that opens connections and keeps them until it is told to end."""

    def __init__(self, port, protocol, count, core):
        (self.told, its_out), (its_in, self.tell) = os.pipe(), os.pipe()
        self.pid = os.fork()
        if self.pid:
            os.close(its_out)
            os.close(its_in)
            return
        status = 1
        try:
            os.sched_setaffinity(0, {core})
            # Without the other end here, the end of the parent is an end of file.
            os.close(self.tell)
            context = client_context(protocol)
            kept = [open_connection(port, context, protocol) for _ in range(count)]
            os.write(its_out, b"ready\n")
            os.read(its_in, 1)
            closed = sum(map(is_closed, kept))
            os.write(its_out, f"{closed}\n".encode())
            status = 0
        except BaseException as error:
            os.write(its_out, f"{type(error).__name__}: {error}\n".encode())
        finally:
            os._exit(status)

    def line(self):
        """What it says next."""
        text = b""
        while not text.endswith(b"\n"):
            if not select.select([self.told], [], [], 180)[0]:
                raise RuntimeError("a client does not get its connections in time")
            piece = os.read(self.told, 4096)
            if not piece:
                raise RuntimeError("a client ended early")
            text += piece
        return text.decode().strip()

    def end(self):
        with contextlib.suppress(OSError):
            os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.tell)
        os.close(self.told)


def is_closed(connection):
    """Whether there is an end to read; a session ticket or a frame is none."""
    connection.settimeout(0.0)
    try:
        while True:
            if not connection.recv(4096):
                return True
    except (ssl.SSLWantReadError, BlockingIOError):
        return False
    except OSError:
        return True
