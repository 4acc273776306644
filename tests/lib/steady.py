"""A server of which everything changes but one site, and what its clients do there meanwhile: load, WebSockets, slow uploads.

The site `steady` is the same for as long as the server runs. Others come, change and go, with their certificates, and so do
listeners; `Changing.next_change` makes one change of each kind after the other.
"""

import itertools
import os
import re
import shutil
import socket
import subprocess

import client
from harness import NOBODY, ROOTLESS, Server, free_port
from tls_server import certificate, insecure
from websocket_client import frame

TEXT = """
[[listen]]
address = "127.0.0.1:{port}"

[[listen]]
address = "127.0.0.1:{tls}"
tls = true
{listeners}
[server]
gates = 2

[log]
flush = "50ms"

[limits]
drain_timeout = "{drain}"

[conditioning]
exempt = ["127.0.0.0/8"]
body_min_rate = "0B/s"
{sites}
"""

STEADY = """
[[site]]
name = "steady"
host = ["steady.test"]
root = "steady"
certificates = ["steady.pem"]

[[site.service]]
name = "probe"
path = "/probe"
command = ["bin/probe"]

[[site.service]]
name = "socket"
path = "/socket"
command = ["bin/socket"]
"""

#: Every kind of change, in the order in which they are made.
KINDS = ("site added", "site changed", "certificate changed", "listener added", "site removed", "listener removed")
#: How many names the sites have that come and go: a name has its uid for good.
NAMES = 2


class Plan:
    """What is configured beside the site `steady`: one kind of change after the other."""

    def __init__(self):
        self.numbers, self.kinds = itertools.count(), itertools.cycle(KINDS)
        #: The folders of the sites, by name; where it is listened besides; and which certificate the site `moving` has.
        self.roots, self.listeners, self.certificates = {"other": "other"}, [], 0
        #: Listeners come and go at these.
        self.ports = [free_port(), free_port()]

    def plan_next(self):
        """Plans one more change; which kind it is."""
        kind, number = next(self.kinds), next(self.numbers)
        if kind == "site added":
            self.roots[f"new{number // len(KINDS) % NAMES}"] = "other"
        elif kind == "site changed":
            self.roots["other"] = "another" if self.roots["other"] == "other" else "other"
        elif kind == "site removed":
            self.roots = {name: root for name, root in self.roots.items() if not name.startswith("new")}
        elif kind == "certificate changed":
            self.certificates ^= 1
        else:
            self.listeners = [self.ports[number // len(KINDS) % 2]] if kind == "listener added" else []
        return kind


class Changing(Plan, Server):
    """A server with the site `steady`, of which everything else changes."""

    def __init__(self, drain="3s"):
        Plan.__init__(self)
        self.tls, self.drain = free_port(), drain
        Server.__init__(self, sites=[], programs=("probe", "socket"), text=self.text)
        for root in ("steady", "other", "another"):
            self.write(f"{root}/index.html", f"{root}\n")
        for name, host in (("steady", "steady"), ("moving-0", "moving"), ("moving-1", "moving")):
            self.install(name, f"{host}.test")

    def install(self, name, host):
        """Makes a certificate of this name."""
        keys = self.folder / "keys"
        keys.mkdir(exist_ok=True)
        made = self.write(f"{name}.pem", b"".join(certificate(keys, name, "ec", host)))
        made.chmod(0o600)
        if ROOTLESS and os.geteuid() == 0:
            shutil.chown(made, NOBODY, NOBODY)

    def text(self, port):
        """The configuration as it is to be."""
        site = '\n[[site]]\nname = "{0}"\nhost = ["{0}.test"]\nroot = "{1}"\n{2}'
        service = '[[site.service]]\nname = "probe"\npath = "/probe"\ncommand = ["bin/probe"]\n'
        sites = [site.format(name, root, service) for name, root in self.roots.items()]
        moving = site.format("moving", "other", f'certificates = ["moving-{self.certificates}.pem"]\n')
        listeners = "".join(f'\n[[listen]]\naddress = "127.0.0.1:{at}"\n' for at in self.listeners)
        return TEXT.format(port=port, tls=self.tls, drain=self.drain, listeners=listeners, sites="".join([STEADY, moving, *sites]))

    def write_next(self):
        """Writes the configuration with one more change; which kind it is."""
        kind = self.plan_next()
        self.config.write_text(self.with_uids(self.text(self.port)))
        return kind

    def reload(self):
        """Has the configuration read; what `bulkhead` says if it refuses."""
        answer = self.command("reload", "--run-dir", "run", timeout=40)
        return answer.stderr if answer.returncode else None

    def next_change(self):
        """Makes one more change; which kind it was. Raises if it is refused."""
        kind = self.write_next()
        if why := self.reload():
            raise AssertionError(f"{kind}: {why}")
        return kind

    def upgrade(self):
        """Has all programs replaced by those that lie where they did; what that was. Raises if it is refused."""
        answer = self.command("upgrade", "--run-dir", "run", timeout=90)
        if answer.returncode:
            raise AssertionError(f"upgrade: {answer.stdout}{answer.stderr}")
        return "upgrade"

    def state(self, times=4):
        """What clients see of everything that changes, each thing as often as it was seen so."""
        asked = [(self.port, f"{name}.test") for name in ("steady", "other", *(f"new{n}" for n in range(NAMES)))]
        asked += [(port, "steady.test") for port in self.ports]
        return [{self.seen_at(port, host) for _ in range(times)} for port, host in asked]

    @staticmethod
    def seen_at(port, host):
        try:
            answer = client.get(port, "/", host, timeout=5)
        except OSError:
            return None
        return answer.status, answer.text if answer.status == 200 else ""


def connect(server, tls):
    """A connection to the site `steady`."""
    plain = socket.create_connection(("127.0.0.1", server.tls if tls else server.port), 20)
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return insecure().wrap_socket(plain, server_hostname="steady.test") if tls else plain


class WebSocket:
    """A WebSocket that is open for as long as nobody closes it."""

    def __init__(self, connection):
        self.stream, self.unread = connection, b""
        self.stream.sendall(client.request("/socket", "steady.test", [
            "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
        ]))
        while b"\r\n\r\n" not in self.unread:
            self._more()
        head, _, self.unread = self.unread.partition(b"\r\n\r\n")
        if b" 101 " not in head:
            raise ConnectionError(f"no WebSocket: {head!r}")

    def _more(self):
        data = self.stream.recv(65536)
        if not data:
            raise ConnectionError("the WebSocket was closed")
        self.unread += data

    def exchange(self, text):
        """Says something and hears it again."""
        self.stream.sendall(frame(text))
        while len(self.unread) < 2 + len(text):
            self._more()
        said, self.unread = self.unread[2:2 + len(text)], self.unread[2 + len(text):]
        if said != text:
            raise ConnectionError(f"heard {said!r} for {text!r}")


class Upload:
    """A request whose body comes piece by piece."""

    PIECE = b"0123456789abcdef"

    def __init__(self, connection, pieces):
        self.stream, self.left, self.pieces = connection, pieces, pieces
        length = len(self.PIECE) * pieces
        self.stream.sendall(client.request(
            "/probe/echo", "steady.test", [f"Content-Length: {length}", "Connection: close"], "POST"))

    def push(self):
        """Sends one more piece, but for the last."""
        if self.left > 1:
            self.stream.sendall(self.PIECE)
            self.left -= 1

    def finish(self):
        """Sends the rest. Raises unless the answer is what was sent."""
        self.stream.sendall(self.PIECE * self.left)
        answer = b"".join(iter(lambda: self.stream.recv(65536), b""))
        whole = f'"body_length":{len(self.PIECE) * self.pieces},'.encode()
        if not answer.startswith(b"HTTP/1.1 200") or whole not in answer:
            raise ConnectionError(f"the upload was answered with {answer[:200]!r}")


class Held:
    """Connections that stay open while the server changes: WebSockets and slow uploads, half of each under TLS."""

    def __init__(self, server, sockets, uploads, pieces):
        self.lost = []
        self.sockets = [WebSocket(connect(server, number % 2)) for number in range(sockets)]
        self.uploads = [Upload(connect(server, number % 2), pieces) for number in range(uploads)]

    def touch(self):
        """Says something on each; what fails is lost, and why."""
        self._each("sockets", lambda socket: socket.exchange(b"still there"))
        self._each("uploads", Upload.push)

    def finish(self):
        """Ends the uploads; what was lost in all."""
        self.touch()
        self._each("uploads", Upload.finish)
        return self.lost

    def _each(self, which, act):
        kept = []
        for held in getattr(self, which):
            try:
                act(held)
                kept.append(held)
            except OSError as error:
                self.lost.append(f"{which}: {error}")
        setattr(self, which, kept)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for held in self.sockets + self.uploads:
            held.stream.close()


class H2Load:
    """A run of h2load over TLS in the background."""

    def __init__(self, port, target="/", host="steady.test", seconds=4, connections=4, words=()):
        command = ["h2load", "-D", str(seconds), "-c", str(connections), f"--connect-to=127.0.0.1:{port}", *words]
        self.what, self.seconds = f"h2load {' '.join(words)} {host}{target}", seconds
        # Its worker says GOAWAY, or `Connection: close`: h2load then opens no other connection, and what it cannot
        # begin has failed.
        self.not_begun = connections * (int(words[words.index("-m") + 1]) if "-m" in words else 1)
        self.process = subprocess.Popen(
            [*command, f"https://{host}:{port}{target}"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True)

    def finish(self):
        """Waits for the end, and reads what h2load counted."""
        self.text, _ = client.said_by(self.process, self.seconds)
        counts = {word: int(count) for count, word in re.findall(r"(\d+) (done|succeeded|failed|errored|timeout)", self.text)}
        self.requests = counts.get("succeeded", 0)
        # Those that h2load calls errored, and those that took too long, are among them.
        self.failed = counts.get("failed", 1)
        return self


class Wrk(client.Load):
    """A run of wrk in the background, with what has failed as one number."""

    #: wrk opens another connection when one is closed.
    not_begun = 0

    def finish(self):
        super().finish()
        self.failed = self.refused + sum(self.errors)
        return self


def loads(server, seconds):
    """Load on `steady` by every path: kept and new connections, plain and under TLS, files and a service."""
    plain = {"host": "steady.test", "seconds": seconds, "connections": 2}
    return [
        Wrk(server.port, "/", **plain), Wrk(server.port, "/probe", **plain), Wrk(server.port, "/", close=True, **plain),
        H2Load(server.tls, "/", seconds=seconds, connections=2, words=("-m", "4")),
        H2Load(server.tls, "/probe", seconds=seconds, connections=2, words=("--h1",)),
    ]
