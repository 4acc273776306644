"""What is done to the server: each attack runs in a process of its own, from addresses of its own, until it is ended."""

import contextlib
import dataclasses
import itertools
import multiprocessing
import os
import re
import select
import socket
import ssl
import struct
import time
from typing import Callable

import evidence
import owners
import tenants
from client import until
from evidence import noted
from frames import DATA, END_HEADERS, HEADERS, SETTINGS, block, frame
from tls_server import insecure

PING = 6
#: The number of an attack, and of the process that makes it: the server bans an address, and the next round is to show
#: as well.
FROM = "127.77.{}.{}"
#: Seconds until an attack must have shown; an order may wait for its deadlines.
SHOWS = 60


@dataclasses.dataclass(frozen=True)
class Attack:
    act: Callable
    #: What others ask for meanwhile, and how often a second each of eight does.
    url: str
    rate: int = 250
    #: Whether it is done by who has the server's files, and not by a client: `act` gets the server.
    is_local: bool = False
    #: What the measuring process does around it; it gets all of the victims.
    around: Callable = contextlib.nullcontext
    #: Whether others come anew for each request, with a handshake that needs the signer.
    is_handshake: bool = False
    #: What error.log says while it goes on, and not before; apart from what the attack itself has noted.
    said: str = ""


def connection(port, number=1):
    """One from an address with this number, or from that of the others."""
    own = (FROM.format(number, os.getpid() % 250 + 1), 0) if number else None
    peer = socket.create_connection(("127.0.0.1", port), 10, own)
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return peer


def slow_posts(target, lines, first, drip):
    """Forty clients of one range, each with a body that begins fast and never ends."""
    return lambda port, _tls: slow_bodies(port, target, lines, first, drip)


def slow_bodies(port, target, lines, first, drip):
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
        # Who has got no answer is waited for.
        noted(len(peers) - len(select.select(peers, [], [], 0)[0]))
        time.sleep(0.1)


LENGTH = "Content-Length: 900000", b"x" * 66_000, b"y" * 70
CHUNKED = "Transfer-Encoding: chunked", b"10000\r\n" + b"x" * 65_536 + b"\r\n", b"46\r\n" + b"y" * 70 + b"\r\n"


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
                noted()
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
            noted()


def bytes_of_chunks(port, _tls):
    with connection(port, 6) as peer:
        peer.sendall(b"POST /behind/form HTTP/1.1\r\nHost: main.test\r\nTransfer-Encoding: chunked\r\n\r\n")
        while True:
            peer.sendall(b"1\r\na\r\n" * 1000)
            noted()


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
            noted()


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
            noted(len(readable))


def acknowledgements(_port, tls):
    with http2(tls) as peer:
        while True:
            peer.sendall((frame(SETTINGS, 1, 0) + frame(PING, 1, 0, struct.pack(">Q", 1))) * 100)
            noted()


def hello_of_bytes(_port, tls):
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        insecure().wrap_bio(incoming, outgoing, server_hostname="main.test").do_handshake()
    hello = outgoing.read()
    pieces = b"".join(hello[:3] + b"\0\x01" + hello[at : at + 1] for at in range(5, len(hello)))
    with connection(tls, 3) as peer:
        for at in range(len(pieces) - 1):
            peer.sendall(pieces[at : at + 1])
        noted()


def odd_paths(port, _tls):
    path = "/" + "a;b%2Fc%255cd%3Fe%253Bf/" * 300
    with connection(port, 4) as peer:
        while True:
            peer.sendall(f"GET {path} HTTP/1.1\r\nHost: main.test\r\n\r\n".encode())
            while b"\r\n\r\n" not in peer.recv(65_536):
                pass
            noted()


def owned(deed, number=5, said=b"HTTP/1.1 200 OK"):
    """What a service does that was taken over, again and again; it may have been ended for what it did before."""

    def attack(port, _tls):
        with connection(port, number) as peer:
            peer.sendall(f"GET /owned/{deed} HTTP/1.1\r\nHost: owned.test\r\nConnection: close\r\n\r\n".encode())
            answer = b""
            while more := peer.recv(65_536):
                answer += more
        noted(said in answer)
        time.sleep(0.02)

    return again(attack)


@contextlib.contextmanager
def owned_anew(victims):
    """A new process of the service, as the gate has closed the channel of one that has sent nonsense."""
    done = victims.server.command("relaunch", "--run-dir", "run", "owned/owned")
    assert done.returncode == 0, done.stdout + done.stderr
    yield


def full_spool(port, _tls):
    """Clients of four ranges, each with a body of nearly all that one may have, which never ends: together they want five times what
    the site has for bodies."""
    head = b"POST /behind/form HTTP/1.1\r\nHost: spooled.test\r\nContent-Length: 3000000\r\n\r\n"
    ranges, peers = itertools.cycle((20, 21, 22, 23)), []
    while True:
        with contextlib.suppress(OSError):
            if len(peers) < 8:
                peer = connection(port, next(ranges))
                peer.settimeout(2)
                peer.sendall(head + b"x" * 2_900_000)
                peers.append(peer)
        for peer in select.select(peers, [], [], 0)[0]:
            with contextlib.suppress(OSError):
                noted(b" 503 " in peer.recv(4096))
            peers.remove(peer)
            peer.close()
        time.sleep(0.05)


def crowd(port, _tls):
    """Sixty connections of one range that ask a service without pause; every third request is one that takes a second."""
    targets = itertools.cycle(("echo", "echo", "sleep?ms=1000"))
    peers = [connection(port, 9) for _ in range(60)]
    asking = list(peers)
    while True:
        for peer in asking:
            peer.sendall(f"GET /probe/{next(targets)} HTTP/1.1\r\nHost: main.test\r\n\r\n".encode())
        asking = select.select(peers, [], [])[0]
        for peer in asking:
            answers = re.findall(rb"HTTP/1.1 \d+", peer.recv(65_536))
            if not answers:
                return
            noted(len(answers))


PAGE, SECURE = "http://127.0.0.1:{port}/page.txt", "https://127.0.0.1:{tls}/page.txt"
HTTP2, PHP = "https://127.0.0.1:{tls}/h2/page.txt", "http://127.0.0.1:{port}/ok.php"
BEHIND, SERVICE = "http://127.0.0.1:{port}/behind/x", "http://127.0.0.1:{port}/probe/echo"
ATTACKS = {
    "slow-posts-php": Attack(slow_posts("/form.php", *LENGTH), PHP, 60),
    "slow-streams-php": Attack(slow_streams, PHP, 60),
    "slow-posts-upstream": Attack(slow_posts("/behind/form", *CHUNKED), BEHIND, 60),
    "slow-posts-streamed": Attack(slow_posts("/streamed/form", *LENGTH), "http://127.0.0.1:{port}/streamed/x", 60),
    "slow-posts-service": Attack(slow_posts("/probe/echo", *CHUNKED), SERVICE, 60),
    "full-spool": Attack(full_spool, "http://127.0.0.2:{port}/behind/x", 60, said="bodies that wait take all of `spool_bytes`"),
    "service-users": Attack(again(crowd), SERVICE),
    "bytes-of-data": Attack(again(bytes_of_data), HTTP2),
    "bytes-of-chunks": Attack(again(bytes_of_chunks), PAGE),
    "bytes-of-records": Attack(again(bytes_of_records), HTTP2),
    "pipelined": Attack(again(pipelined), PAGE),
    "acknowledgements": Attack(again(acknowledgements), HTTP2),
    "hello-of-bytes": Attack(again(hello_of_bytes), HTTP2),
    "descriptors": Attack(owned("descriptors"), PAGE, around=owned_anew),
    "lingering": Attack(owners.sent("TCP, lingering", 1), PAGE, is_local=True),
    "inotify": Attack(owners.sent("inotify", 110), PAGE, is_local=True),
    "worker-to-signer": Attack(owners.asks_signer, SECURE, 30, is_local=True, around=owners.stopped_worker, is_handshake=True),
    # From the others' own address, which no site but the owned one may refuse.
    "back": Attack(owned("back", None), PAGE, around=owned_anew),
    "back-with-heads": Attack(owned("heads", None, b"x" * 1000), PAGE, around=owned_anew),
    "log-flood": Attack(owned("flood"), PAGE, around=owned_anew),
    "odd-paths": Attack(again(odd_paths), PAGE),
    "templates": Attack(tenants.templates, PAGE, is_local=True),
    "included-pipe": Attack(tenants.included_pipe, PAGE, is_local=True),
    "silent-files": Attack(tenants.silent_files, PAGE, is_local=True, around=tenants.frozen, said="files that it needs are on a file system"),
    "libraries": Attack(tenants.libraries, PAGE, is_local=True),
    "sparse-program": Attack(tenants.sparse_program, PAGE, is_local=True),
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
        assert process.is_alive(), "the attack has ended"
    finally:
        process.kill()
        process.join()


@contextlib.contextmanager
def under(attack, victims):
    """While the attack goes on, once it has shown, by what it has noted and by what error.log says."""
    log = lambda: victims.server.log().count(attack.said) if attack.said else 1
    before, said = evidence.seen(), log() if attack.said else 0
    with attack.around(victims), beside(run, attack, victims):
        shows = until(lambda: evidence.seen() > before and log() > said, SHOWS)
        assert shows, f"the server does not do what the attack is about {attack.said}"
        yield
