"""Servers to put behind a site: a raw one that says what it has seen, php-fpm, and a WebSocket echo."""

import base64
import hashlib
import http.server
import os
import shutil
import socket
import struct
import subprocess
import tempfile
import threading
import time
from pathlib import Path


class Raw:
    """A server that keeps every byte it is sent, and answers each request as `answer` says.

    It understands just enough of HTTP to see where a request ends: what it takes for requests is what a naive server
    behind the site would act on.
    """

    def __init__(self, path=None, answer=None, backlog=64, accept=True, at=("127.0.0.1", 0)):
        self.seen, self.requests, self.connections = [], [], 0
        self.answer = answer or (lambda request: response(b"hello from behind"))
        self.family = socket.AF_UNIX if path else socket.AF_INET
        self.listener = socket.socket(self.family)
        if path:
            self.listener.bind(str(path))
            os.chmod(path, 0o666)
            self.at = f"unix:{path}"
        else:
            self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self.listener.bind(at)
            self.at = "%s:%d" % self.listener.getsockname()
        self.listener.listen(backlog)
        self.held = []
        if accept:
            self.start()

    def start(self):
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            self.connections += 1
            self.held.append(connection)
            threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def serve(self, connection):
        data = b""
        try:
            while True:
                while b"\r\n\r\n" not in data:
                    more = connection.recv(65536)
                    if not more:
                        self.seen.append(("end", data))
                        return
                    data += more
                head, data = data.split(b"\r\n\r\n", 1)
                request = Request(head, connection)
                data = request.read_body(data)
                self.requests.append(request)
                answer = self.answer(request)
                if answer is None:
                    return
                connection.sendall(answer)
        except OSError as error:
            self.seen.append(("broken", error))
        finally:
            connection.close()

    def close(self):
        self.listener.close()
        for connection in self.held:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            connection.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class HttpServer:
    """A server in threads, which have `handler` answer; use it with `with`."""

    def __init__(self, handler):
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.server.daemon_threads = True
        self.port = self.server.server_address[1]

    def __enter__(self):
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()


class Echo(http.server.BaseHTTPRequestHandler):
    """Says which path it has got."""

    protocol_version = "HTTP/1.1"
    # Head and body are two writes, of which the second would wait for the kernel's late acknowledgement of the first.
    disable_nagle_algorithm = True

    def do_GET(self):
        self.rfile.read(int(self.headers.get("content-length", 0)))
        body = b"GOT " + self.path.encode("latin-1")
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_HEAD = do_POST = do_OPTIONS = do_GET

    def log_message(self, *_):
        pass


class Request:
    def __init__(self, head, connection):
        self.head, self.connection, self.body = head, connection, b""
        self.line, *lines = head.decode("latin-1").split("\r\n")
        self.fields = [tuple(part.strip() for part in line.split(":", 1)) for line in lines if ":" in line]

    def all(self, name):
        return [value for key, value in self.fields if key.lower() == name]

    def field(self, name):
        found = self.all(name)
        return found[0] if found else None

    def read_body(self, data):
        if self.field("transfer-encoding") == "chunked":
            while True:
                while b"\r\n" not in data:
                    data += self.more()
                size, data = data.split(b"\r\n", 1)
                size = int(size, 16)
                while len(data) < size + 2:
                    data += self.more()
                self.body += data[:size]
                data = data[size + 2 :]
                if size == 0:
                    return data
        length = int(self.field("content-length") or 0)
        while len(data) < length:
            data += self.more()
        self.body = data[:length]
        return data[length:]

    def more(self):
        data = self.connection.recv(65536)
        if not data:
            raise OSError("the request ended in its body")
        return data


def response(body, status="200 OK", *lines):
    head = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *lines]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + body


class Silent:
    """Listens, and never accepts."""

    def __init__(self, backlog=0, path=None):
        self.raw = Raw(path=path, backlog=backlog, accept=False)
        self.at = self.raw.at


def websocket_accept(key):
    guid = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
    return base64.b64encode(hashlib.sha1((key + guid).encode()).digest()).decode()


def php_fpm():
    """The program, or None."""
    folder = "/usr/sbin"
    names = sorted(name for name in os.listdir(folder) if name.startswith("php-fpm"))
    return os.path.join(folder, names[-1]) if names else shutil.which("php-fpm")


class Fpm:
    """php-fpm with a pool of its own, on a socket in `folder`; `more` are lines of its configuration."""

    def __init__(self, folder, name="php.sock", children=3, more=""):
        self.socket = folder / name
        config = folder / f"{name}.conf"
        own = "user = nobody\ngroup = nogroup\n" if os.geteuid() == 0 else ""
        config.write_text(
            f"[global]\nerror_log = {folder}/{name}.log\ndaemonize = no\n[www]\nlisten = {self.socket}\n"
            f"listen.mode = 0666\n{own}pm = static\npm.max_children = {children}\n"
            # So that what keeps scripts apart from other files is the server's doing.
            "security.limit_extensions =\ncatch_workers_output = no\nphp_admin_value[display_errors] = 0\n"
            f"php_admin_flag[log_errors] = on\nphp_admin_value[cgi.fix_pathinfo] = 1\n{more}\n"
        )
        command = [php_fpm(), "--nodaemonize", "--fpm-config", str(config)]
        if os.geteuid() == 0:
            command.append("--allow-to-run-as-root")
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 10
        while not self.socket.exists():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError("php-fpm does not come up")
            time.sleep(0.02)

    def close(self):
        self.process.terminate()
        self.process.wait(10)


def folder():
    path = Path(tempfile.mkdtemp(prefix="bulkhead-behind-", dir="/tmp"))
    path.chmod(0o755)
    return path


def route(at, path="/app/", **more):
    return {"path": path, "upstream": at} | more


class Mute(Raw):
    """Accepts, and neither reads nor answers."""

    def serve(self, connection):
        pass


class FastCgi(Raw):
    """Answers every FastCGI request, and keeps what it was told."""

    def answered(self, told, body):
        return b"Status: 200\r\n\r\nanswered"

    def serve(self, connection):
        data, records, body = b"", b"", b""
        try:
            while more := connection.recv(65536):
                data += more
                while len(data) >= 8:
                    _, kind, _, length, padding, _ = struct.unpack(">BBHHBB", data[:8])
                    if len(data) < 8 + length + padding:
                        break
                    content, data = data[8 : 8 + length], data[8 + length + padding :]
                    if kind == 4:
                        records += content
                    if kind == 5 and content:
                        body += content
                    if kind == 5 and not content:
                        self.requests.append((parameters(records), body))
                        records, body = b"", b""
                        answer = self.answered(*self.requests[-1])
                        connection.sendall(struct.pack(">BBHHBB", 1, 6, 1, len(answer), 0, 0) + answer)
                        connection.sendall(struct.pack(">BBHHBB", 1, 3, 1, 8, 0, 0) + b"\0" * 8)
        except OSError:
            pass
        connection.close()


def parameters(data):
    found = {}
    while data:
        lengths = []
        for _ in range(2):
            if data[0] < 128:
                lengths.append(data[0])
                data = data[1:]
            else:
                lengths.append(struct.unpack(">I", data[:4])[0] & 0x7FFFFFFF)
                data = data[4:]
        name, value = data[: lengths[0]], data[lengths[0] : sum(lengths)]
        data = data[sum(lengths) :]
        assert name not in found, f"{name} twice"
        found[name.decode()] = value
    return found
