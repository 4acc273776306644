#!/usr/bin/env python3
"""Loads that tests and benchmarks make: thousands of clients that are slow, silent, greedy or malformed.

Run by tests and benchmarks, in child processes of theirs, or by hand. The target is always an address of this machine
or of a namespace of our own (netns.py); nothing is ever sent to another one, and the number of connections, their rate
and the time are bounded. What servers answer is counted, and not interpreted.

    with Attack("incomplete", ("127.0.0.1", port), count=5000, sources=addresses("20.1.0.0/16", 50)) as attack:
        attack.settle()                       # every connection was opened at least once
        ...
    print(attack.counts())
"""

import argparse
import ctypes
import errno
import heapq
import ipaddress
import itertools
import json
import math
import multiprocessing
import os
import select
import signal
import socket
import sys
import time

# LIMIT: what one attack may ask for; 32,000 connections are the paper's largest.
COUNT_MAX, SECONDS_MAX, RATE_MAX = 40_000, 600, 20_000
# LIMIT: a process may have 20,000 descriptors where these run.
PER_PROCESS = 16_000
IP_BIND_ADDRESS_NO_PORT = 24
COUNTERS = ("opened", "open", "lost", "failed", "answered", "bytes")
HOST = "main.test"


def must_be_local(address):
    """Refuses an address that is not of this machine. Connecting a UDP socket asks the routes and sends nothing."""
    if ipaddress.ip_address(address).is_loopback:
        return
    with socket.socket(family(address), socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((address, 9))
            if probe.getsockname()[0] == address:
                return
        except OSError:
            pass
    raise ValueError(f"{address} is not an address of this machine; these loads are for nobody else")


def family(address):
    return socket.AF_INET6 if ":" in address else socket.AF_INET


class Client:
    """A connection that is opened and does nothing: the first of the kinds, and what the others have in common."""

    #: Bytes that are sent once the connection is there; `HOST` and `TARGET` are replaced.
    hello = b""
    #: Whether what arrives is read as it comes; otherwise only the end of the connection is noticed.
    reads = True
    #: The receive buffer; None for the system's choice.
    buffer = None

    def __init__(self, engine, connection):
        self.engine, self.socket, self.connected = engine, connection, False

    def begin(self):
        """The connection is there."""
        if self.hello:
            self.send(self.hello.replace(b"HOST", self.engine.host).replace(b"TARGET", self.engine.target))

    def send(self, data):
        """Sends what fits; a client that is as slow as these never fills a buffer."""
        try:
            self.socket.send(data)
        except BlockingIOError:
            pass

    def arrived(self, data):
        """Something was read; empty at the end."""

    def due(self):
        """The time that was asked for with `engine.wake` has come."""


class Incomplete(Client):
    """Sends half a request head and then nothing."""

    hello = b"GET TARGET HTTP/1.1\r\nHost: HOST\r\nX-Half: "


class Trickle(Client):
    """Sends a request head that never ends, byte by byte."""

    hello = b"GET TARGET HTTP/1.1\r\nHost: HOST\r\nX-Slow: "

    def begin(self):
        super().begin()
        self.engine.wake(self)

    def due(self):
        self.send(b"a")
        self.engine.wake(self)


class Idle(Client):
    """Asks for something small, and keeps the connection open for as long as it can."""

    hello = b"GET TARGET HTTP/1.1\r\nHost: HOST\r\nConnection: keep-alive\r\n\r\n"

    def arrived(self, data):
        if data.startswith(b"HTTP/1."):
            self.engine.count("answered")


class Persistent(Idle):
    """As `Idle`, and asks again at every `pace`."""

    def begin(self):
        super().begin()
        self.engine.wake(self)

    def due(self):
        self.begin()


class SlowReader(Client):
    """Asks for something large, and takes `piece` bytes of it at every `pace`. At its end it comes again."""

    hello = b"GET TARGET HTTP/1.1\r\nHost: HOST\r\nConnection: close\r\n\r\n"
    reads = False
    buffer = 4096

    def begin(self):
        super().begin()
        self.engine.wake(self)

    def due(self):
        left = self.engine.piece
        try:
            while left > 0:
                data = self.socket.recv(min(left, 65536))
                left -= len(data)
                self.engine.count("bytes", len(data))
                if not data:
                    self.engine.count("answered")
                    return self.engine.drop(self)
        except BlockingIOError:
            pass
        except OSError:
            return self.engine.drop(self)
        return self.engine.wake(self)


class Bulk(SlowReader):
    """A client on an ordinary line: takes a large response at a bounded rate, and then the next one."""

    buffer = 65536


class SlowBody(Client):
    """Announces a body of a megabyte, and sends it byte by byte."""

    hello = b"POST TARGET HTTP/1.1\r\nHost: HOST\r\nContent-Length: 1000000\r\n\r\n"

    def begin(self):
        super().begin()
        self.engine.wake(self)

    def due(self):
        self.send(b"a")
        self.engine.wake(self)


KINDS = {"silent": Client, "incomplete": Incomplete, "trickle": Trickle, "idle": Idle, "persistent": Persistent,
         "slow-reader": SlowReader, "bulk": Bulk, "slow-body": SlowBody}


class Engine:
    """One process's share of an attack: its connections on one epoll, opened at a bounded rate."""

    def __init__(self, attack, number, counters):
        self.kind, self.address, self.pace, self.piece = attack.kind, attack.address, attack.pace, attack.piece
        self.host, self.target = attack.host.encode(), attack.target.encode()
        share = lambda whole: whole // attack.processes + (number < whole % attack.processes)
        self.wanted, parts = share(attack.count), attack.processes
        self.rate, self.again = attack.rate / parts, attack.again / parts
        self.sources = itertools.cycle(attack.sources[number::attack.processes] or attack.sources or [None])
        self.counters, self.clients, self.timers, self.turn = counters, {}, [], itertools.count()
        self.epoll, self.opened = select.epoll(), 0
        self.end = time.monotonic() + attack.seconds

    def count(self, name, by=1):
        self.counters[COUNTERS.index(name)] += by

    def wake(self, client):
        """Has the client's `due` called after one `pace`."""
        heapq.heappush(self.timers, (time.monotonic() + self.pace, next(self.turn), client))

    def run(self, stopped):
        """Until the time is over or the parent says so."""
        last, credit = time.monotonic(), 0.0
        while (now := time.monotonic()) < self.end and not stopped():
            rate = self.rate if self.opened < self.wanted else self.again
            credit, last = min(credit + (now - last) * rate, rate / 4 + 1), now
            while credit >= 1 and self.may_open():
                credit -= 1
                self.open()
            for number, event in self.epoll.poll(0.01 if self.may_open() or self.timers else 0.1, 1024):
                self.happened(self.clients.get(number), event)
            while self.timers and self.timers[0][0] <= time.monotonic():
                client = heapq.heappop(self.timers)[2]
                if client.socket.fileno() >= 0:
                    self.guarded(client, client.due)
        for client in list(self.clients.values()):
            self.drop(client, lost=0)

    def may_open(self):
        return len(self.clients) < self.wanted and (self.again > 0 or self.opened < self.wanted)

    def open(self):
        connection = socket.socket(family(self.address[0]), socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        if self.kind.buffer:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self.kind.buffer)
        if source := next(self.sources):
            # The port is chosen at connect: the same one may serve towards another server.
            connection.setsockopt(socket.IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1)
            connection.bind((source, 0))
        result = connection.connect_ex(self.address)
        if result not in (0, errno.EINPROGRESS):
            connection.close()
            return self.count("failed")
        self.opened += 1
        self.clients[connection.fileno()] = self.kind(self, connection)
        return self.epoll.register(connection, select.EPOLLOUT | select.EPOLLRDHUP)

    def happened(self, client, event):
        if client is None:
            return
        if not client.connected:
            if event & (select.EPOLLERR | select.EPOLLHUP):
                self.count("failed")
                return self.drop(client, lost=0)
            client.connected = True
            self.count("opened")
            self.count("open")
            wanted = select.EPOLLIN if client.reads else 0
            self.epoll.modify(client.socket, wanted | select.EPOLLRDHUP)
            return self.guarded(client, client.begin)
        if client.reads and event & select.EPOLLIN:
            return self.guarded(client, lambda: self.read(client))
        # A slow reader still takes what is left when the other side has finished.
        if event & (select.EPOLLERR | select.EPOLLHUP) or client.reads:
            return self.drop(client)
        return self.epoll.modify(client.socket, 0)

    def guarded(self, client, action):
        try:
            action()
        except OSError:
            self.drop(client)

    def read(self, client):
        try:
            data = client.socket.recv(65536)
        except BlockingIOError:
            return
        self.count("bytes", len(data))
        client.arrived(data)
        if not data:
            self.drop(client)

    def drop(self, client, lost=1):
        """Closes a connection; `lost` unless it was this side that had enough."""
        if self.clients.pop(client.socket.fileno(), None) is None:
            return
        if client.connected:
            self.count("open", -1)
            self.count("lost", lost)
        client.socket.close()


class Attack:
    """A load of one kind in processes of its own.

    `count` connections are opened, `rate` a second, from `sources` in turn. After that, those that the server closes
    are opened again, `again` a second (0: never). `pace` is the pause of the slow kinds in seconds, `piece`
    what readers take at each.
    """

    def __init__(self, kind, address, count, sources=(), seconds=60, rate=4000, again=500, pace=1.0, piece=512,
                 target="/", host=HOST):
        must_be_local(address[0])
        for name, value, most in (("count", count, COUNT_MAX), ("seconds", seconds, SECONDS_MAX),
                                  ("rate", rate, RATE_MAX), ("again", again, RATE_MAX)):
            if not 0 <= value <= most:
                raise ValueError(f"{name} is {value}; it may be 0 to {most}")
        self.kind, self.address, self.count, self.sources = KINDS[kind], tuple(address), count, list(sources)
        self.seconds, self.rate, self.again, self.pace, self.piece = seconds, rate, again, pace, piece
        self.target, self.host = target, host
        self.processes = max(1, math.ceil(count / PER_PROCESS))
        self.children, self.counters, self.stop = [], [], multiprocessing.RawValue("b", 0)

    def __enter__(self):
        fork = multiprocessing.get_context("fork")
        for number in range(self.processes):
            counters = multiprocessing.RawArray("q", len(COUNTERS))
            child = fork.Process(target=self._child, args=(number, counters, os.getpid()), daemon=True)
            child.start()
            self.children.append(child)
            self.counters.append(counters)
        return self

    def __exit__(self, *_):
        self.stop.value = 1
        for child in self.children:
            child.join(10)
            if child.is_alive():
                child.kill()
                child.join()

    def _child(self, number, counters, parent):
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: no attack outlives who asked for it
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        # Whatever is measured has the first turn.
        os.nice(5)
        if os.getppid() == parent:
            Engine(self, number, counters).run(lambda: self.stop.value)

    def counts(self):
        """So far: connections opened, open now, lost (closed by the server), failed; answers; bytes read."""
        return {name: sum(counters[at] for counters in self.counters) for at, name in enumerate(COUNTERS)}

    def pids(self):
        return [child.pid for child in self.children]

    def settle(self, seconds=30, still=1.0):
        """Waits until every connection was opened once, or (with a full server) nothing new opens for `still`.

        Returns the counts."""
        end, last, since = time.monotonic() + seconds, -1, time.monotonic()
        while time.monotonic() < end:
            counts = self.counts()
            if counts["opened"] >= self.count:
                break
            if counts["opened"] != last:
                last, since = counts["opened"], time.monotonic()
            elif time.monotonic() - since > still:
                break
            time.sleep(0.05)
        return self.counts()


def head(*lines, target="/", host=HOST, method="GET"):
    """A whole request head, with these lines after the host's."""
    return "\r\n".join([f"{method} {target} HTTP/1.1", f"Host: {host}", *lines, "", ""]).encode("latin-1")


def bombs(host=HOST):
    """Requests that are made to hurt: {name: bytes}. Each is to be refused, or answered at an ordinary price."""
    half = "a" * 30_000
    return {
        "beck: 7,000 slashes": head(target="/" * 7000, host=host),
        "beck: slashes after a name": head(target="/x" + "/" * 6000 + "y", host=host),
        "beck: dots between slashes": head(target="/." * 3500, host=host),
        "climbing": head(target="/a" + "/.." * 1000 + "/etc/passwd", host=host),
        "encoded climbing": head(target="/%2e%2e/%2e%2e/%2e%2e/etc/passwd", host=host),
        "encoded NUL": head(target="/index%00.html", host=host),
        "10,000 lines": head(*[f"X-{number}: a" for number in range(10_000)], host=host),
        "one name 1,000 times": head(*["X-Again: a"] * 1000, host=host),
        "one line of 60,000 bytes": head("X-Long: " + "a" * 60_000, host=host),
        "a name of 30,000 bytes": head(half + ": a", host=host),
        "a target of 30,000 bytes": head(target="/" + half, host=host),
        "a method of 30,000 bytes": head(method="G" * 30_000, host=host),
        "1,000 ranges": head("Range: bytes=" + ",".join(f"{at}-{at}" for at in range(1000)), host=host),
        "1,000 cookies": head("Cookie: " + "; ".join(f"c{at}=1" for at in range(1000)), host=host),
        "folded lines": head("X-One: a\r\n b\r\n c", host=host),
        "bare line feeds": head(host=host).replace(b"\r\n", b"\n"),
        "NUL": head("X-One: \0", host=host),
        "two hosts": head("Host: other.test", host=host),
        "binary": bytes(range(128, 256)) * 8 + b"\r\n\r\n",
    }


def fire(address, data, source=None, timeout=5):
    """Sends bytes on a connection of their own: (status or None if there was no answer, seconds until its end)."""
    must_be_local(address[0])
    began, answer = time.monotonic(), b""
    try:
        with socket.create_connection(address, timeout, (source, 0) if source else None) as connection:
            connection.sendall(data)
            while b"\r\n" not in answer and (more := connection.recv(65536)):
                answer += more
    except OSError:
        pass
    words = answer.split(b" ", 2)
    status = int(words[1]) if len(words) > 1 and words[0].startswith(b"HTTP/") and words[1].isdigit() else None
    return status, time.monotonic() - began


def main():
    parser = argparse.ArgumentParser(description="One load, against an address of this machine; counts every second.")
    parser.add_argument("kind", choices=sorted(KINDS))
    parser.add_argument("port", type=int)
    parser.add_argument("--address", default="127.0.0.1")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--rate", type=int, default=4000, help="connections opened in a second")
    parser.add_argument("--again", type=int, default=500, help="closed ones that come again in a second")
    parser.add_argument("--pace", type=float, default=1.0, help="pause of the slow kinds, in seconds")
    parser.add_argument("--piece", type=int, default=512, help="bytes that readers take at each pause")
    parser.add_argument("--target", default="/")
    parser.add_argument("--host", default="localhost")
    parser.add_argument("--source", action="append", default=[], help="an address to come from; may be repeated")
    options = parser.parse_args()
    with Attack(options.kind, (options.address, options.port), options.count, options.source, options.seconds,
                options.rate, options.again, options.pace, options.piece, options.target, options.host) as attack:
        for _ in range(options.seconds):
            time.sleep(1)
            print(json.dumps(attack.counts()), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
