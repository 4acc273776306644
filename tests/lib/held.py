"""One client that holds what it asked for, and what others see of it: streams of HTTP/2 whose window stays shut, and bodies
that do not come, many on each of many connections of one address.

Used by the test and by `bench/held-routes`. Loads are bounded, and go to this machine alone.
"""

import contextlib
import socket
import struct
import subprocess
import tempfile
import time
from pathlib import Path

from backend import Fpm
from client import Connection, until
from frames import END_HEADERS, END_STREAM, HEADERS, SETTINGS, block, frame
from netns import Networks
from tls_server import insecure
from two_ports import PATIENCE, Two, lines

CONNECTIONS, STREAMS = 40, 110
#: Each of these over HTTP/1.1 takes a connection.
POSTS = 400
ATTACKER = "20.1.1.1"
#: Of the attacker's /16 and /8, and of others.
OTHERS = ("20.1.2.9", "20.200.0.9", "21.7.0.1", "33.1.2.3")
ANSWER = 20_000
#: Processes of php-fpm, and requests of its route: each is held until its answer is taken.
CHILDREN = 8

NODE = """
require("http").createServer((request, response) => {
    const answer = () => response.end("x".repeat(%d));
    request.on("data", () => {}).on("end", answer);
}).listen(process.argv[2], () => console.log("up"));
"""
PHP = "<?php file_get_contents('php://input'); echo str_repeat('x', %d);"

ROUTES = """
  [[site.route]]
  path = "/up/"
  upstream = "unix:{folder}/node.sock"

  [[site.route]]
  path = "/few/"
  upstream = "unix:{folder}/node.sock"
  requests = 8

  [[site.route]]
  path = "/php/"
  fastcgi = "unix:{folder}/php.sock"
  script = "/x.php"
  requests = %d

  [[site.route]]
  path = "/free/"
  fastcgi = "unix:{folder}/php.sock"
  script = "/x.php"
""".replace("%d", str(CHILDREN))
PATHS = {"upstream": "/up/x", "upstream of 8": "/few/x", "FastCGI": "/php/x", "service": "/probe/echo"}


class Held(Two):
    """The server in a network of its own, with Node and php-fpm behind it; use it with `with`."""

    def __init__(self, stack):
        stack.enter_context(Networks())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir="/tmp")))
        folder.chmod(0o755)
        super().__init__("", ROUTES.format(folder=folder))
        self.write("main/x.php", PHP % ANSWER)
        (folder / "app.js").write_text(NODE % ANSWER)
        stack.callback(Fpm(folder, children=CHILDREN).close)
        node = subprocess.Popen(
            ["node", folder / "app.js", folder / "node.sock"], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL
        )
        stack.callback(node.wait, 10)
        stack.callback(node.terminate)
        stack.callback(node.stdout.close)
        assert node.stdout.readline() == b"up\n"
        (folder / "node.sock").chmod(0o666)

    def memory(self):
        """KiB of the site's worker."""
        return int(self.process("site main").status()["RssAnon"].split()[0])


def plain(port):
    peer = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE, source_address=(ATTACKER, 0))
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return peer


def secure(port):
    context = insecure()
    context.set_alpn_protocols(["h2"])
    return context.wrap_socket(plain(port), server_hostname="main.test")


def streams(server, path, method, end, window):
    """Streams of HTTP/2 on connections over TLS, one after the other."""
    begin = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS, 0, 0, struct.pack(">HI", 4, window))
    head = block(lines(path, method, b"https"))
    for _ in range(CONNECTIONS):
        peer = secure(server.tls)
        numbers = range(1, 2 * STREAMS, 2)
        peer.sendall(begin + b"".join(frame(HEADERS, END_HEADERS | end, number, head) for number in numbers))
        yield peer


def shut_windows(server, path):
    return streams(server, path, b"GET", END_STREAM, 0)


def small_windows(server, path):
    return streams(server, path, b"GET", END_STREAM, 1)


def bodies_of_http2(server, path):
    return streams(server, path, b"POST", 0, 65535)


def bodies_of_http1(server, path):
    for _ in range(POSTS):
        peer = plain(server.port)
        peer.sendall(f"POST {path} HTTP/1.1\r\nHost: main.test\r\nContent-Length: 100\r\n\r\n".encode())
        yield peer


def bodies_that_stop(server, path):
    """After more than is waited for before they are passed on."""
    head = f"POST {path} HTTP/1.1\r\nHost: main.test\r\nContent-Length: 500000\r\n\r\n".encode()
    for _ in range(POSTS // 10):
        peer = plain(server.port)
        peer.sendall(head + b"x" * 80_000)
        yield peer


ATTACKS = {
    "shut windows": shut_windows,
    "windows of a byte": small_windows,
    "no bodies, HTTP/2": bodies_of_http2,
    "no bodies, HTTP/1.1": bodies_of_http1,
    "bodies that stop": bodies_that_stop,
}


@contextlib.contextmanager
def under(server, attack, path):
    """While one client holds what it has asked for."""
    with contextlib.ExitStack() as stack:
        before = busy(server)
        for peer in ATTACKS[attack](server, path):
            stack.enter_context(contextlib.closing(peer))
        # All of it has arrived: nothing is answered, refused or begun any more.
        assert until(lambda: settled(server), PATIENCE), before
        yield


def busy(server):
    """What moves as long as requests arrive."""
    process = server.process("site main")
    return process.status()["RssAnon"], len(process.descriptors())


def settled(server):
    before = busy(server)
    time.sleep(0.3)
    return busy(server) == before


def ask(server, path, rounds):
    """What others get, each on a connection of its own and on one that is kept: statuses, and seconds for each."""
    statuses, seconds = set(), []

    def one(connection):
        began = time.monotonic()
        answer = connection.get(path)
        seconds.append(time.monotonic() - began)
        statuses.add((answer.status, bool(answer.body) or "/probe/" in path))

    with contextlib.ExitStack() as stack:
        kept = [stack.enter_context(Connection(server.port, source, PATIENCE)) for source in OTHERS]
        for _ in range(rounds):
            for source, connection in zip(OTHERS, kept):
                one(connection)
                with Connection(server.port, source, PATIENCE) as fresh:
                    one(fresh)
    return statuses, seconds
