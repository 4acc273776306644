"""What a row of the table is: who is measured, under which load, by which figure, and which bars there are."""

import dataclasses
import shutil

from . import load as loads
from . import parts, proc, servers, tools


@dataclasses.dataclass(frozen=True)
class Peer:
    """A program that is measured: how it starts, and which file of bench/peers it reads.

    `beside` are programs that are part of it (a proxy's backend that is counted); the first one's address is @BACKEND@.
    """

    name: str
    kind: str = "ours"
    config: str = "static-ours.toml"
    guard: bool = False
    values: dict = dataclasses.field(default_factory=dict)
    beside: tuple = ()


@dataclasses.dataclass(frozen=True)
class Bar:
    """What a figure of ours must reach: a number, or a ratio to a peer's.

    `limit` is the bar, `stretch` is where we want to be; either may be missing. `more` says that a larger figure is better.
    """

    beside: str | None = None
    limit: float | None = None
    stretch: float | None = None
    figure: str = "cpu_us"
    more: bool = False


@dataclasses.dataclass(frozen=True)
class Case:
    """A row. `behind` is the program that the peers are before: each has one of its own, on the core of the load, which is
    counted for nobody.

    `fresh`: every round starts the servers anew, since what the last one left would be part of the figure. `rounds` is
    another number of rounds than --rounds, for what takes long.
    """

    name: str
    title: str
    peers: tuple
    load: object
    bars: tuple = ()
    path: str = "/100.bin"
    expect: bytes | None = None
    tls: bool = False
    behind: Peer | None = None
    key: str = "p256"
    fresh: bool = False
    rounds: int | None = None
    figures: tuple = ("cpu_us",)
    note: str = ""

    def __post_init__(self):
        unknown = {bar.beside for bar in self.bars} - {None, *(peer.name for peer in self.peers)}
        assert not unknown, f"{self.name}: a bar beside {unknown}, which is not measured"


#: Programs by the kind of server, as tools.PACKAGES names them.
PROGRAMS = {"nginx": "nginx", "h2o": "h2o", "haproxy": "haproxy", "apache": "apache2", "php-fpm": "php-fpm", "bare": "cc"}


def chosen(case, options):
    """The peers of a case that are asked for."""
    return [peer for peer in case.peers if not options.only or peer.name in options.only]


def lacking(case, options):
    """Why a case cannot be measured here; empty if it can."""
    peers = chosen(case, options)
    peers += [*([case.behind] if case.behind else []), *(one for peer in peers for one in peer.beside)]
    missing = {PROGRAMS[peer.kind] for peer in peers if peer.kind in PROGRAMS and not tools.find(PROGRAMS[peer.kind])}
    missing |= set(loads.lacking(case.load))
    reasons = [f"{program} is not installed (tests/prepare bench)" for program in sorted(missing)]
    if any(peer.kind == "apache" for peer in peers) and not servers.modules():
        reasons.append("Apache's modules are not installed (tests/prepare bench)")
    if any(peer.kind == "axum" for peer in peers) and not servers.axum_alone().exists():
        reasons.append("bench/axum is not built (make bench builds it)")
    for name in ("axum-hello", "pass"):
        needs = {"axum-hello": "service-ours.toml", "pass": "filters-ours.toml"}[name]
        if any(peer.config == needs for peer in peers) and not (options.bulkhead.parent / name).exists():
            reasons.append(f"{name} is not beside {options.bulkhead.name}: make build")
    return "; ".join(reasons)


class Subject:
    """A peer of a case while it runs: its own server, and the programs that are part of it."""

    def __init__(self, case, peer, run):
        self.case, self.peer, self.name, self.run = case, peer, peer.name, run
        self.servers, self.behind = [], None

    def start(self):
        """Starts what it consists of, behind its own copy of the case's program that is counted for nobody."""
        options, backend = self.run.options, ""
        if self.case.behind:
            self.behind = self._make(self.case.behind, backend, options.load_core)
            self.behind.start()
            backend = address(self.behind)
        core = options.server_core if self.case.load.pinned else f"{options.server_core},{options.load_core}"
        for one in [*self.peer.beside, *([self.peer] if self.peer.kind != "none" else [])]:
            server = self._make(one, backend, core)
            self.servers.append(server)
            server.start()
            backend = address(server)

    def _make(self, peer, backend, core):
        name = self.name if peer is self.peer else f"{self.name}-{peer.name}"
        return make(self.case, peer, name.replace(" ", "-"), self.run, backend, core)

    @property
    def port(self):
        return self.servers[-1].port

    def check(self):
        """Refuses to measure what does not do the work. Returns the bytes of head that it sends."""
        if not self.servers:
            return None
        expected = self.case.expect if self.case.expect is not None else servers.body(self.case.path.removeprefix("/"))
        for headers in ({}, {"Connection": "close"}):
            status, text, head = self.servers[-1].get(self.case.path, {"Host": servers.HOST} | headers)
            if status != 200 or text != expected:
                about = f"status {status} and {len(text)} bytes: {text[:60]!r}"
                raise RuntimeError(f"{self.name} answers {self.case.path} with {about}")
        for server in self.servers:
            if strays := proc.strays(server.process.pid, server.core):
                raise RuntimeError(f"{self.name}: {len(strays)} threads are not pinned to core {server.core}")
        return head

    def usage(self):
        """CPU used so far by all that is counted."""
        return merged([server.process.pid for server in self.servers])

    def usage_behind(self):
        return merged([self.behind.process.pid] if self.behind else [])

    def gone(self):
        """The servers that have ended, by name."""
        return ", ".join(server.name for server in self.servers if server.process.poll() is not None)

    def log(self):
        return self.servers[-1].log() if self.servers else None

    def commands(self):
        return [server.command() for server in self.servers]

    def stop(self):
        """Ends all of it. Its access logs go, too: those of a whole run would have gigabytes."""
        servers = [*([self.behind] if self.behind else []), *self.servers]
        self.servers, self.behind = [], None
        while servers:
            server = servers.pop()
            server.stop()
            if not self.run.options.keep:
                shutil.rmtree(server.directory, ignore_errors=True)


def merged(pids):
    """The CPU used so far by several servers."""
    total = {"threads": {}, "ticks": {}}
    for pid in pids:
        one = proc.usage(pid)
        total["threads"] |= one["threads"]
        total["ticks"] |= one["ticks"]
    return total


def address(server):
    """Where a program behind listens, as configurations say it."""
    if server.kind == "php-fpm":
        return f"unix:{server.directory}/php.sock"
    return f"127.0.0.1:{server.port}"


def make(case, peer, name, run, backend, core):
    """A server of a peer, not yet started, with a folder of its own and the certificate of the case."""
    run.started += 1
    work = run.work / f"{run.started}"
    work.mkdir(mode=0o755)
    work.chmod(0o755)
    server = servers.Server(name, work, servers.free_ports(1)[0], core, run.options.bulkhead)
    server.kind, server.config, server.guard, server.tls = peer.kind, peer.config, peer.guard, case.tls
    server.values = {"BACKEND": backend} | {key: value(run.options) if callable(value) else value
                                            for key, value in peer.values.items()}
    server.first = case.path
    if isinstance(case.load, parts.Sites):
        server.hosts, server.patience, server.users = case.load.hosts(), 300, servers.free_users(case.load.count + 99)
        server.processes_min = case.load.count if peer.kind == "ours" else 0
    server.copies = {}
    if case.tls:
        server.copies["server.pem"] = run.certificate(case.key), 0o600
    if peer.config == "service-ours.toml":
        server.copies["bin/axum-hello"] = run.options.bulkhead.parent / "axum-hello", 0o755
    return server
