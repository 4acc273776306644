"""The sweep: from inside each kind of process, every value of every argument that a policy might look at.

What gets past the policy is compared with the tables in `allowed`, which a test in Rust evaluates from the policies
(crates/probe/tests/allowed.rs): a value that gets past and is in no table fails, and so does one that is in the table
and is refused.
"""

import json
import re
import tempfile
import unittest
from pathlib import Path

import pytest

from jail_probe import ALWAYS, place, probe, probe_by_guard
from client import until
from databases import ANY_SCHEMA, ANY_STATEMENTS, AtPostgresql, asks, data_site
from harness import Server, configuration, free_port, rootless_too, service, site
from tls_server import certificate

pytestmark = pytest.mark.alone

ALLOWED = Path(__file__).parent / "allowed"

#: The table of each process: by the name under which an order has it probed.
ROLES = {"gate": "gate", "main": "site", "logger": "logger", "admin": "admin", "signer": "signer", "stapler": "stapler",
         "main:connector": "connector", "main/net:connector": "connector-of-service", "main/net:broker": "broker", "main/catalog:data": "dataproxy",
         "main:templates": "publisher"}
WORKERS = {"main/probe": "service", "main/direct": "service", "main/net": "service-network", "main/jit": "service-jit"}

CALLS = "calls with arguments -1"
#: What the kernel refuses by itself, though the policy allows it.
BY_THE_KERNEL = {
    (CALLS, "mlock"): "the limit of locked memory is nought",
}
#: The same of operations on what a process holds, by the kind of descriptor.
ON_BY_THE_KERNEL = {
    ("file", "mmap-execute"): "where a process can write, nothing can be executed",
    ("connection", "mmap-write"): "what TCP has received can be mapped, to be read",
    ("TCP-socket", "mmap-write"): "what TCP has received can be mapped, to be read",
    ("directory", "mmap-write"): "it is open to be read",
    ("pipe", "mmap-read"): "it is the end that is written to",
    ("pipe", "mmap-write"): "it is the end that is written to",
}
#: Where there is nothing to map, newer kernels ask first whether anything could be executed from there.
NO_PROGRAMS = "sockets, pipes and the like lie in file systems of the kernel's own, from which nothing is executed"
#: What it refuses or not.
EITHER_BY_THE_KERNEL = {
    (kind, "mmap-execute"): NO_PROGRAMS
    for kind in ("channel", "stream", "connection", "event", "pipe", "TCP-socket", "UDP-socket")
} | {
    ("directory", "mmap-execute"): "nobody maps a directory; first the kernel asks how its file system is mounted",
    ("TCP-socket", "connect-loopback"): "Landlock has no grant for port 2, and knows of ports since Linux 6.7",
}
#: What a service in Rust shuts for itself when it is ready: from then on nothing becomes executable.
ONCE_READY = {"mmap <x, rx> flags", "mmap-execute"}
#: What a broker answers instead of the kernel. It makes the sockets that `network` grants; to connect -1, or to a port
#: that is not granted, may be refused.
BY_ITS_BROKER = "by its broker: "


def topics(text):
    """A table: topics with their words; lines that begin with blanks continue one."""
    found, topic = {}, None
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        if not line.startswith(" "):
            topic, _, line = line.rpartition(":") if line.endswith(":") else line.partition(": ")
            if topic.startswith(BY_ITS_BROKER.strip(": ")):
                more, _, line = line.partition(": ")
                topic = f"{topic}: {more}"
            found[topic] = set()
        found[topic] |= set(line.split())
    return found


def table(kind):
    """What is meant: allowed by the policy, and answered by a broker."""
    found = topics(ALLOWED.joinpath(f"{kind}.txt").read_text())
    own = {topic: words for topic, words in found.items() if not topic.startswith(BY_ITS_BROKER)}
    others = {topic.removeprefix(BY_ITS_BROKER): words for topic, words in found.items() if topic not in own}
    return own, others


def differences(kind, report, shut):
    """Lines that are not as meant, in words; what is `shut` is meant to be refused, besides."""
    own, brokers = table(kind)
    own = {topic: words - shut for topic, words in own.items() if topic not in shut}
    own.pop("calls that are not tried", None)
    operations, answered = own.pop("on a descriptor"), brokers.pop("on a descriptor", set())
    missing = set(report["missing"].get(CALLS, []))
    reached = {topic: set(words) for topic, words in report["reached"].items()}
    for topic in sorted(own.keys() | brokers.keys() | reached.keys()):
        meant, may, got = own.get(topic, set()), brokers.get(topic, set()), reached.get(topic, set())
        if topic.startswith("socket "):
            meant, may = meant | may, set()
        meant = meant - {word for about, word in BY_THE_KERNEL if about == topic}
        yield from told(topic, meant, may | (missing if topic == CALLS else set()), got)
    for held, got in report["on"].items():
        meant = operations - {word for kind, word in ON_BY_THE_KERNEL if kind == held}
        may = answered | {word for kind, word in EITHER_BY_THE_KERNEL if kind == held}
        yield from told(f"on a {held}", meant, may, set(got))


def told(topic, meant, may, got):
    if more := got - meant - may:
        yield f"gets past, and nobody meant it: {topic}: {' '.join(sorted(more))}"
    if less := meant - may - got:
        yield f"is refused, and was meant to get past: {topic}: {' '.join(sorted(less))}"


def server():
    """A server with a process of every kind."""
    unused = 1
    sites = [
        site("main", [
            service("probe"),
            service("direct", "/direct", takes=True, command=["bin/direct"]),
            service("net", "/net", network=[f"tcp:{unused}", "udp"], data=["catalog"], templates=True),
            service("jit", "/jit", jit=True),
            service("breakout", "/breakout", takes=True),
        ], certificates=["main.pem"], route=[
            {"path": "/behind/", "upstream": f"127.0.0.1:{unused}"},
            {"path": "/beside/", "upstream": "unix:@FOLDER@/beside.sock"},
        ], data=[{"name": "catalog", "statements": "catalog.sql"}], templates={"folder": "templates"}),
    ]
    with tempfile.TemporaryDirectory() as folder:
        files = {"main.pem": b"".join(certificate(Path(folder), "main", "ec", "main.test")).decode(),
                 "catalog.sql": "-- name: one :one\n-- services: net\nSELECT 1;\n", "templates/a.html": ""}
    tls = f'\n[[listen]]\naddress = "127.0.0.1:{free_port()}"\ntls = true\n'
    made = Server(sites, ("probe", "breakout"), text=lambda port: configuration(port, sites, {}) + tls, files=files)
    for name in ("direct", "net", "jit"):
        made.copy_program("probe", name)
    return place(made)


class Swept(unittest.TestCase):
    def compare(self, kind, report, shut=frozenset()):
        self.assertNotIn("error", report)
        # A sweep that did not take place finds nothing.
        self.assertGreater(report["tried"], 20_000)
        found = list(differences(kind, report, shut))
        self.assertEqual(found, [], f"{kind}:\n" + "\n".join(found))


class Inside(Swept):
    @classmethod
    def setUpClass(cls):
        cls.server = cls.enterClassContext(server())

    def test_every_role_and_every_kind_of_service(self):
        for name, kind in (ROLES | WORKERS).items():
            with self.subTest(name):
                report = probe(self.server, name, "sweep")
                # Roles make no child: there the process itself is swept.
                self.assertEqual(report["children"], name in WORKERS)
                self.assertLessEqual({"channel", "stream"}, set(report["on"]))
                self.compare(kind, report)

    def test_a_service_that_holds_a_clients_connection(self):
        report = json.loads(self.server.get("/breakout?sweep").body)
        self.assertIn("connection", report["on"])
        self.compare("service", report, ONCE_READY)

    def test_the_server_goes_on(self):
        first = self.server.processes()
        for name in (*ROLES, *WORKERS):
            probe(self.server, name, "sweep")
        # The last probe has said what it found, and may not have ended yet.
        self.assertTrue(until(lambda: self.server.processes() == first), self.server.processes())
        self.assertEqual(self.server.status("/probe"), 200)
        self.assertNotRegex(self.server.log(), "ended with signal|is broken|nonsense")


class Filter(Swept):
    def test_a_filter_that_holds_a_clients_connection(self):
        filters = {"filters": [["bin/bulkhead-probe", "filter"]]}
        with Server(programs=("probe", "bulkhead-probe"), conditioning=filters) as filtered:
            self.assertEqual(filtered.status("/probe"), 200)
            report = json.loads(filtered.get("/?sweep-filter").body)
            self.assertIn("connection", report["on"])
            self.compare("service", report)
            self.assertEqual(filtered.status("/probe"), 200)


@unittest.skipUnless(AtPostgresql.installed(), "there is no PostgreSQL")
class AtServer(Swept):
    """A data proxy of a database at a server, which holds connections to that."""

    def test_a_data_proxy(self):
        engine = AtPostgresql()
        files = engine.files(ANY_SCHEMA.format(**AtPostgresql.words)) | {"catalog.sql": ANY_STATEMENTS.format(**AtPostgresql.words)}
        sites = [data_site("main", [asks("asker"), asks("other")], source=engine.settings())]
        with place(Server(sites, ("asker",), files=files)) as server:
            report = probe(server, "main/catalog:data", "sweep")
            self.assertLessEqual({"channel", "stream"}, set(report["on"]))
            self.compare("dataproxy-at-server", report)
            # Its connector makes connections to Unix sockets alone, as its server has one.
            self.compare("connector-unix", probe(server, "main/catalog:data:connector", "sweep"))
            self.assertEqual(server.status("/asker/many?statement=users"), 200)


class WithoutOrders(Swept):
    """The processes that run beside a launcher or a guard, as hidden modes of their programs."""

    def test_the_keeper_and_the_reaper(self):
        for kind in ("keeper", "reaper"):
            with self.subTest(kind):
                self.compare(kind, probe_by_guard(kind, "sweep"))


@rootless_too
class Guard(Swept):
    """A guard's gate has no more than a launcher's."""

    def test_its_gate(self):
        self.compare("gate", probe_by_guard("gate", "sweep"))


@rootless_too
class Rootless(Swept):
    """Filters of calls need no root: an ordinary user's server has the same ones."""

    def test_the_policies_are_the_same(self):
        with Server() as server:
            for name, kind in ({name: kind for kind, name in ALWAYS.items()} | {"main/probe": "service"}).items():
                with self.subTest(name):
                    self.compare({"main": "site"}.get(name, kind), probe(server, name, "sweep"))
