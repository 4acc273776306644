"""Sends the probes of smuggling.py to a server, and judges the answers."""

import json
import re
import socket
import time

from client import Connection, Response
from secured import PEER
from smuggling import CANARY, GET, HIDDEN, PROBES, REFUSALS, WAITS

#: The longest wait for a server that neither answers nor closes.
PATIENCE = 2.0
#: nginx has no service for the bodies, and reads some of the probes in ways of its own; see docs/internals/testing.md.
OURS = PEER == "bulkhead"


class Answers:
    """What came back on a connection, and whether the server closed it."""

    def __init__(self, connection, data):
        self.bytes, self.closed = b"", False
        connection.settimeout(PATIENCE)
        try:
            connection.sendall(data)
        except OSError:
            pass
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            try:
                more = connection.recv(65536)
            except TimeoutError:
                break
            except OSError:
                self.closed = True
                break
            if not more:
                self.closed = True
                break
            self.bytes += more
        self.responses = list(split(self.bytes))

    @property
    def statuses(self):
        return [response.status for response in self.responses]


def split(data):
    """The answers in these bytes, those that announce another one left out."""
    while found := re.match(rb"HTTP/1\.1 \d{3} (?:[^\r\n]+\r\n)+\r\n", data):
        response = Response(found.group()[:-4], b"")
        data = data[found.end() :]
        length = response.headers.get("content-length")
        if length is not None and not data.startswith(b"HTTP/1.1 "):
            response.body, data = data[: int(length)], data[int(length) :]
        elif response.headers.get("transfer-encoding") == "chunked":
            while chunk := re.match(rb"([0-9a-fA-F]+)\r\n", data):
                size = int(chunk.group(1), 16)
                response.body += data[chunk.end() : chunk.end() + size]
                data = data[chunk.end() + size + 2 :]
                if size == 0:
                    break
        if response.status >= 200 or response.status == 101:
            yield response
    if data:
        # HTTP/0.9 has no head: an answer all the same.
        yield Response(b"HTTP/0.9 0 no head", data)


def judge(probe, answers):
    """What is wrong with the answers to a probe; None if nothing is."""
    statuses = answers.statuses
    refused = len(statuses) <= 1 and all(status in REFUSALS for status in statuses) and answers.closed
    if probe.statuses is None:
        return None if refused else f"not refused: {statuses}, {'closed' if answers.closed else 'left open'}"
    if probe.either and refused:
        return None
    if probe.statuses == WAITS:
        return None if statuses == [] and not answers.closed else f"read as {statuses}"
    # A server that closes after its answer reads nothing as something else, the canary neither.
    expected = list(probe.statuses)
    if statuses not in (expected, [*expected, 404]) or not answers.closed:
        return f"read as {statuses} instead of {expected}, {'closed' if answers.closed else 'left open'}"
    if probe.length is not None:
        length = json.loads(answers.responses[0].body)["body_length"]
        if length != probe.length:
            return f"a body of {length} bytes instead of {probe.length}"
    return None


class Probing:
    """Sends the whole table; `server` is there, and says at `/probe/echo` how long a body is."""

    def plain(self):
        return Connection(self.server.port).socket

    def secure(self):
        plain = socket.create_connection(("127.0.0.1", self.server.tls_port), timeout=5)
        return self.server.context().wrap_socket(plain, server_hostname="main.test")

    def try_all(self, connect, later):
        pids = [process.pid for process in self.server.processes()] if OURS else []
        problems = []
        for probe in PROBES:
            with connect() as connection:
                if later:
                    connection.sendall(GET + b"\r\n")
                    self.assertIn(b"200 OK", receive_page(connection))
                after = HIDDEN if probe.statuses is None else CANARY
                problem = judge(probe, Answers(connection, probe.data + after))
            if problem:
                problems.append(f"{probe.name}: {problem}")
        self.assertEqual(problems, [], f"{len(problems)} of {len(PROBES)}:\n  " + "\n  ".join(problems))
        self.assertEqual(self.server.get("/").status, 200, "the server does not go on")
        if OURS:
            self.assertEqual([process.pid for process in self.server.processes()], pids, "a process ended")
            time.sleep(0.3)
            self.assertNotIn("/hidden ", self.server.log("main.access"), "a hidden request was taken for one")
            self.assertIn("/canary ", self.server.log("main.access"), "the log does not tell")


def receive_page(connection):
    """One answer whose body has a Content-Length."""
    connection.settimeout(PATIENCE)
    data = b""
    while not (found := re.search(rb"(?i)content-length: (\d+)\r\n.*?\r\n\r\n", data, re.DOTALL)) or len(
        data
    ) < found.end() + int(found.group(1)):
        more = connection.recv(65536)
        if not more:
            raise AssertionError(f"closed after {data!r}")
        data += more
    return data
