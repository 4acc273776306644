"""HTTP clients for the tests: raw bytes over a socket, kept-alive connections, and load by wrk."""

import re
import signal
import socket
import subprocess
import time

from machine import late, metronome

#: Seconds within which each answer of a load comes, but for those for which the machine itself stood still.
ANSWER_MAX = 5

#: Seconds for which a load goes on after what it was to see, and which it takes at least.
AFTERWARDS, SHORTEST = 0.5, 1.0

#: By how much loads are nicer than other processes. A load takes all that the processors have: it shall be what others
#: leave, or each test that goes on beside a load takes longer.
LOAD_NICE = 10

#: By their ports, servers that say what they have logged of refusals, for a load that met some.
SERVERS = {}


class Response:
    """An answer, as it was on the wire."""

    def __init__(self, head, body):
        lines = head.decode("latin-1").split("\r\n")
        self.line = lines[0]
        self.version, status = lines[0].split(" ", 2)[:2]
        self.status = int(status)
        self.headers = {}
        for line in lines[1:]:
            name, _, value = line.partition(":")
            self.headers[name.strip().lower()] = value.strip()
        self.body = body

    @property
    def text(self):
        return self.body.decode("utf-8", "replace")

    def __repr__(self):
        return f"<{self.line} {self.headers} {self.body[:200]!r}>"


class Connection:
    """A connection that says exactly what it is told to, and reads answers one by one."""

    def __init__(self, port, source=None, timeout=10):
        address = (source, 0) if source else None
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=timeout, source_address=address)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.unread = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.socket.close()

    def send(self, data):
        self.socket.sendall(data)

    def _more(self):
        data = self.socket.recv(65536)
        self.unread += data
        return bool(data)

    def _until(self, enough):
        while not enough():
            if not self._more():
                raise ConnectionError(f"closed after {self.unread[:200]!r}")

    def response(self, method="GET"):
        """Reads one answer; `method` is that of the request."""
        self._until(lambda: b"\r\n\r\n" in self.unread)
        head, _, self.unread = self.unread.partition(b"\r\n\r\n")
        response = Response(head, b"")
        if 100 <= response.status < 200:
            return self.response(method)
        if method == "HEAD" or response.status in (204, 304):
            return response
        response.body = self._body(response)
        return response

    def _body(self, response):
        length = response.headers.get("content-length")
        if length is not None:
            self._until(lambda: len(self.unread) >= int(length))
            body, self.unread = self.unread[: int(length)], self.unread[int(length) :]
            return body
        if response.headers.get("transfer-encoding", "").lower() == "chunked":
            return self._chunks()
        while self._more():
            pass
        body, self.unread = self.unread, b""
        return body

    def _chunks(self):
        body = b""
        while True:
            self._until(lambda: b"\r\n" in self.unread)
            line, _, self.unread = self.unread.partition(b"\r\n")
            size = int(line.split(b";")[0], 16)
            self._until(lambda: len(self.unread) >= size + 2)
            body, self.unread = body + self.unread[:size], self.unread[size + 2 :]
            if size == 0:
                return body

    def get(self, target="/", host="main.test", headers=(), method="GET", body=b""):
        """Asks and reads the answer."""
        self.send(request(target, host, headers, method, body))
        return self.response(method)

    def is_closed(self, within=5):
        """Whether the other side closes the connection in this time, with nothing left to be read."""
        self.socket.settimeout(within)
        try:
            return self.socket.recv(1) == b""
        except TimeoutError:
            return False
        except OSError:
            return True


def request(target="/", host="main.test", headers=(), method="GET", body=b""):
    """The bytes of a request."""
    lines = [f"{method} {target} HTTP/1.1", f"Host: {host}", *headers]
    if body:
        lines.append(f"Content-Length: {len(body)}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + body


def get(port, target="/", host="main.test", timeout=10, **more):
    """One request on a connection of its own."""
    with Connection(port, timeout=timeout) as connection:
        return connection.get(target, host, **more)


def status(port, target="/", host="main.test", timeout=10):
    """The status of one request; None if there was no answer."""
    try:
        return get(port, target, host, timeout).status
    except OSError:
        return None


def until(condition, seconds=5, pause=0.02):
    """Waits until `condition()` is true; returns its value, false if that never happened.

    Time in which the machine stands still does not count.
    """
    end = time.monotonic() + seconds
    while True:
        value = condition()
        now = time.monotonic()
        if value or now >= end:
            return value
        time.sleep(pause)
        end += late(time.monotonic() - now - pause)


def said_by(process, seconds):
    """What a load of this length has said at its end, and whether it came to one by itself."""
    try:
        return process.communicate(timeout=seconds + 15)[0], True
    except subprocess.TimeoutExpired:
        process.kill()
        return process.communicate()[0], False


class Load:
    """A run of wrk in the background, of bounded length: `finish` waits for its end, `end` ends it before."""

    def __init__(self, port, target="/", host="main.test", seconds=4, connections=8, close=False):
        command = ["nice", "-n", str(LOAD_NICE), "wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--latency"]
        command += ["--timeout", f"{seconds + 15}s"]
        command += ["-H", f"Host: {host}"] + (["-H", "Connection: close"] if close else [])
        command.append(f"http://127.0.0.1:{port}{target}")
        self.what = f"{host}{target}{' close' if close else ''}"
        self.server = SERVERS.get(port)
        self.seconds = seconds
        self.stood, self.began = metronome().until_now(), time.monotonic()
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.text = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.text is None:
            self.process.kill()
            self.process.communicate()

    def finish(self):
        """Waits for the end, and reads what wrk counted."""
        self.text, has_ended = said_by(self.process, self.seconds)
        stood = metronome().until_now() - self.stood
        if not has_ended:
            raise AssertionError(f"{self.what}: wrk does not end; the machine stood still for {stood:.1f} s")
        self.requests = number(r"(\d+) requests in", self.text)
        self.refused = number(r"Non-2xx or 3xx responses: (\d+)", self.text)
        found = re.search(r"Socket errors: connect (\d+), read (\d+), write (\d+), timeout (\d+)", self.text)
        self.errors = [int(count) for count in found.groups()] if found else [0, 0, 0, 0]
        self.errors[3] += longest(self.text) > ANSWER_MAX + stood
        return self

    def end(self):
        """Ends it when it has gone on for a while after what it was to see, and reads what wrk counted."""
        now = time.monotonic()
        time.sleep(max(AFTERWARDS, self.began + SHORTEST - now))
        self.process.send_signal(signal.SIGINT)
        return self.finish()

    def assert_clean(self, case, at_least=50):
        """Nothing went wrong, and something went on at all."""
        bad = bool(self.refused or any(self.errors))
        logged = self.server.refusals() if bad and self.server else ""
        case.assertEqual((self.refused, self.errors), (0, [0, 0, 0, 0]), f"{self.what}: {self.text}{logged}")
        case.assertGreaterEqual(self.requests, at_least, f"{self.what}: {self.text}")


def longest(text):
    """Seconds of the answer that took longest, by what wrk has printed."""
    found = re.search(r"Latency +\S+ +\S+ +([0-9.]+)(us|ms|s|m|h)\b", text)
    return float(found[1]) * {"us": 1e-6, "ms": 1e-3, "s": 1, "m": 60, "h": 3600}[found[2]] if found else 0


def number(pattern, text):
    found = re.search(pattern, text)
    return int(found.group(1)) if found else 0


def raw_exchange(port, data, timeout=5):
    """All that a server says to these bytes, until it ends or says nothing more."""
    with socket.create_connection(("127.0.0.1", port), timeout=timeout) as peer:
        peer.sendall(data)
        said = b""
        peer.settimeout(1.0)
        try:
            while more := peer.recv(65536):
                said += more
        except (TimeoutError, ConnectionResetError):
            pass
        return said


def answered(peer):
    """Whether a whole answer, or an error, has come."""
    try:
        said = peer.recv(100_000)
    except BlockingIOError:
        return False
    return b"\r\n\r\n" in said and not said.startswith(b"HTTP/1.1 200")
