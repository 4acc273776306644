"""One process is a rogue, in the place of a role or as a service, and sends on each of its channels what it must not.

`examples/rogue` says which; here is what it may cost: itself. Every other process keeps its pid, its descriptors and
its memory, every other site answers every request, and `error.log` has what was refused.
"""

import json
import re
import shutil
import signal
import socket
import ssl
import threading
import time
import unittest
from concurrent.futures import ThreadPoolExecutor

import harness
from backend import Raw, response
from client import Connection, Load, get, request, until
from databases import ANY_SCHEMA, ANY_STATEMENTS, SCHEMA, AtPostgresql, Sqlite, asks, data_site
from harness import Server, service, site, wait_for_time
from pages import page_site, renders
from tls_server import certificate

#: How many descriptors and how much memory another process may have more at the end than at the beginning. Caches
#: and buffers fill once; what grows with each message is far beyond that.
DESCRIPTORS_MORE = 8
MEMORY_MORE_KIB = 24 << 10
#: How often each kind of request must be answered while the rogue is at work.
ANSWERS = 200
#: Connections that a rogue is sent while it reads nothing.
UNREAD = 150
#: Ways in which a rogue answers orders, but for that of not answering; and those with a text that is an answer.
ANSWERS_OF_ITS_OWN, GOOD_ANSWERS = 13, (7, 8, 9, 12)
#: The stages of a rogue, and by when each is over.
STAGES = {"deeds": 15, "silence": 10, "end": 40}
#: Seconds that the launcher may take for an answer while a rogue is at work, on a machine that is busy with the tests
#: as well.
LAUNCHER_MAX = 5
#: A rogue does not go when it is asked to.
LIMITS = {"start_timeout": "2s", "drain_timeout": "1s", "connections": 400}


class Rogue(Server):
    """A server whose role `role` is a rogue."""

    def __init__(self, sites, role=None, **more):
        super().__init__(sites, limits=LIMITS, **more)
        self.role = role
        programs = self.folder / "programs"
        programs.mkdir(exist_ok=True)
        for name in harness.ROLES:
            shutil.copy(harness.program("rogue" if name == role else name), programs / name)

    @staticmethod
    def own(name, folder):
        return folder / "programs" / name


class Answers(threading.Thread):
    """Asks the launcher for the status again and again."""

    def __init__(self, server):
        super().__init__(daemon=True)
        self.server, self.times, self.over = server, [], threading.Event()
        self.start()

    def run(self):
        while not self.over.wait(0.1):
            begin = time.monotonic()
            self.server.order(command="status")
            self.times.append(time.monotonic() - begin)

    def longest(self):
        self.over.set()
        self.join()
        return max(self.times)


def memory_kib(process):
    return int(process.status().get("VmRSS", "0 kB").split()[0])


class Channels(unittest.TestCase):
    """What is the same for every role."""

    def others(self, title):
        """Every process but the rogue, with what it has: the launcher among them."""
        launcher = harness.Process(self.server.launcher.pid)
        # Copies of the launcher that examine a program come and go.
        lasts = lambda process: not process.title.startswith(title) and process.words != launcher.words
        processes = [*filter(lasts, self.server.processes()), launcher]
        return {process: (len(process.descriptors()), memory_kib(process)) for process in processes}

    def stage(self, name):
        self.assertTrue(until(lambda: f"rogue: stage {name}" in self.server.log(), STAGES[name]), f"no end of {name}")

    def misbehave(self, server, title, loads, refused, victims=()):
        """Lets the rogue called `title` do all that it does, while `loads` are answered.

        `refused` are patterns of lines that tell of it; `victims` are hosts and paths at which it is asked itself.
        """
        self.server = self.enterContext(server)
        rogue = server.process(title)
        before = self.others(title)
        launcher = Answers(server) if title != "admin" else None
        running = [Load(server.port, target, host, seconds=9, connections=4) for host, target in loads]
        asked = [connection for host, target in victims for connection in ask(server.port, host, target)]
        self.stage("deeds")
        # It reads nothing for a while, whatever is sent to it.
        asked += [connection for host, target in victims for connection in ask(server.port, host, target, UNREAD)]
        self.stage("silence")
        # The rogue is ended for what it sends at last, and nobody else is.
        self.assertTrue(until(lambda: not rogue.alive, STAGES["end"]), "the rogue is not ended")
        if launcher:
            self.assertLess(launcher.longest(), LAUNCHER_MAX, "the launcher waited")
        for load in running:
            load.end().assert_clean(self, ANSWERS)
        for connection in asked:
            connection.close()
        # What clients had is closed in its time.
        has_no_more = lambda process: not process.alive or len(process.descriptors()) <= before[process][0] + DESCRIPTORS_MORE
        until(lambda: all(map(has_no_more, before)), 10)
        # One that is about to execute its program has no title yet.
        until(lambda: set(self.others(title)) == set(before), 5)
        after = self.others(title)
        self.assertEqual(set(before), set(after), "another process was ended")
        for process, (descriptors, memory) in before.items():
            with self.subTest(process=process):
                self.assertLessEqual(after[process][0], descriptors + DESCRIPTORS_MORE, process.descriptors())
                self.assertLessEqual(after[process][1], memory + MEMORY_MORE_KIB)
        # A gate that does not answer while connections come is replaced before it has done everything; the last one
        # does it.
        until(lambda: all(re.search(pattern, server.log()) for pattern in refused), STAGES["end"])
        log = server.log()
        for pattern in refused:
            with self.subTest(pattern=pattern):
                self.assertRegex(log, pattern)
        self.no_line_is_forged()
        for host, target in loads:
            # A gate that is a rogue may be there again, and takes some of the connections.
            self.assertTrue(until(lambda host=host, target=target: server.status(target, host, timeout=1) == 200, 10), host)

    def no_line_is_forged(self):
        """No line of the error log pretends to be another's, and no access log of another has one of the rogue's."""
        for line in self.server.log().splitlines():
            self.assertNotRegex(line, r"^\S+ \w+ \[bulkheadd\] forged")
            self.assertNotIn("\x1b", line)
            if "forged-by-rogue" in line:
                self.assertRegex(line, r"\[(gate 1|site rogue|service rogue/\w+|admin|signer|stapler|connector rogue(/catalog:data)?|dataproxy rogue/catalog|publisher rogue)\] ")
        for path in (self.server.folder / "log").glob("*.access.log"):
            if not path.name.startswith("rogue.") and not self.may_write_all:
                self.assertNotIn("forged-by-rogue", path.read_text(errors="replace"), path.name)

    may_write_all = False


#: What the launcher and the logger say of every rogue that has a channel to each.
def ended(title):
    return [
        rf"\[bulkheadd\] {title} sent a message that it may not send",
        rf"\[bulkheadd\] {title} sent 100 such messages and was ended",
    ]


def logged(title):
    return [
        rf"\[logger\] .*malformed batches of {title}",
        rf"\[logger\] \d+ batches of {title} have numbers that were used before",
        rf"\[logger\] suppressed \d+ lines of {title}",
    ]


GOOD = [site("main", [service("probe")]), site("other", [])]
LOADS = [("main.test", "/"), ("main.test", "/probe"), ("other.test", "/")]


class Gate(Channels):
    # Gates answer for every site what cannot be passed on, so a rogue among them may write to every access log.
    may_write_all = True

    def test_gate(self):
        victims = [site(f"victim{number}", []) for number in range(12)]
        server = Rogue([*GOOD, *victims], "gate")
        self.misbehave(server, "gate 1", LOADS, [
            *ended("gate 1"), *logged("gate 1"),
            r"\[site victim\d+\] .*a gate sends what is no connection: malformed message",
            r"\[site victim\d+\] .*more connections than it has credits for",
            r"\[site victim\d+\] .*a bundle without a connection",
        ])
        for victim in victims:
            # Those that the good gate accepts are answered as before.
            answers = {server.status("/", f"{victim['name']}.test", timeout=1) for _ in range(12)}
            self.assertIn(200, answers, victim["name"])


class Site(Channels):
    def test_site(self):
        names = ["s0", "s1", "s2", "s3"]
        behind = self.enterContext(Raw(answer=lambda _: response(b"behind")))
        rogue = site("rogue", [service(name, f"/{name}") for name in names],
                     certificates=["one.pem"], route=[{"path": "/up/", "upstream": behind.at}])
        # The signer and a connector of its own kind serve another site all the while.
        fine = site("fine", [], route=[{"path": "/up/", "upstream": behind.at}])
        # It does TLS for a host below which there are others, whose requests without TLS it does not get.
        below = [site(name, [], host=["rogue.test"], path=f"/{name}/") for name in ("below", "under")]
        keyed = site("keyed", [], certificates=["one.pem"])
        server = with_tls(Rogue([*GOOD, rogue, fine, keyed, *below], "site"))
        for name in ("below", "under"):
            server.write(f"{name}/{name}/index.html", f"{name}\n")
        for name in names:
            server.copy_program("probe", name)
        loads = [*LOADS, ("fine.test", "/up/"), ("rogue.test", "/below/"), ("rogue.test", "/under/")]
        self.misbehave(server, "site rogue", loads, [
            r"\[site below\] the worker that relays to it sends what is no connection: malformed message",
            r"\[site under\] the worker that relays to it sends more connections than it has credits for",
            *ended("site rogue"), *logged("site rogue"),
            r"\[logger\] .*refused \d+ records of site rogue",
            r"\[gate \d\] .*site rogue: its worker sent",
            r"\[gate \d\] .*site rogue: its worker sends nonsense; its channel is closed",
            r"\[service rogue/s\d\] .*malformed message",
            r"\[service rogue/s\d\] .*more connections than it has credits for",
            r"\[site rogue\] .*rogue: signer: 0 signed, 6 refused",
            r"\[signer\] .*refused a signature to site rogue: it has no certificate of that number",
            r"\[signer\] .*refused a signature to site rogue: it is no step of a handshake",
            r"\[signer\] .*site rogue asks for what it may not have; its channel is closed",
            r"\[site rogue\] .*rogue: connector: 0 connected, 3 unknown",
            r"\[connector rogue\] .*the site's worker sends nonsense; its channel is closed",
        ], [("rogue.test", "/")])
        self.assertEqual(handshake(server, "keyed.test"), "TLSv1.3")


class Below(Channels):
    """It has a path below a host whose certificate another site has, which relays to it under TLS."""

    def test_site_below(self):
        server = with_tls(Rogue([
            *GOOD, site("keyed", [], certificates=["one.pem"]),
            site("rogue", [], host=["keyed.test"], path="/rogue/"), site("below", [], host=["keyed.test"], path="/below/"),
        ], "site"))
        server.write("below/below/index.html", "below\n")
        self.misbehave(server, "site rogue", [*LOADS, ("keyed.test", "/below/")], [
            *ended("site rogue"), *logged("site rogue"),
            r"\[site keyed\] .*its worker sends nonsense; its channel is closed",
        ], [("keyed.test", "/rogue/")])
        self.assertEqual([tls_status(server, target) for target in ("/", "/below/")], [200, 200])
        for asked in self.asked:
            asked.join()
        self.assertLessEqual(set(self.statuses), {None, 502, 503})

    def stage(self, name):
        """It is sent requests, of which it answers none."""
        if name == "deeds":
            self.statuses = []
            ask = lambda: self.statuses.append(tls_status(self.server, "/rogue/"))
            self.asked = [threading.Thread(target=ask, daemon=True) for _ in range(20)]
            for asked in self.asked:
                asked.start()
        super().stage(name)


class Signer(Channels):
    """It has every key already; what it says to sites costs them their TLS, and nobody anything else."""

    def test_signer(self):
        keyed = [site(f"keyed{number}", [], certificates=["one.pem"]) for number in range(10)]
        self.misbehave(with_tls(Rogue([*GOOD, *keyed], "signer")), "signer", LOADS, [
            *ended("signer"), *logged("signer"),
            r"\[site keyed\d\] .*the signer sends nonsense; its channel is closed: message ends in the middle",
            r"\[site keyed\d\] .*the signer sends nonsense; its channel is closed: message has version",
            r"\[site keyed\d\] .*the signer sends nonsense; its channel is closed: no message of type 99",
            r"\[site keyed\d\] .*the signer sends nonsense; its channel is closed: message has bytes after",
            r"\[site keyed\d\] .*the signer sends nonsense; its channel is closed: message or its descriptors over",
        ])
        log = self.server.log()
        # The kernel refuses descriptors: three of the ten get what is right, and nonsense only at the end.
        self.assertEqual(len(set(re.findall(r"\[(site keyed\d)\] .*sends nonsense; its channel is closed", log))), 10)
        # Nobody asked for its verdicts, so none is told of.
        self.assertNotIn("one.pem of site", log)
        for asked in self.handshakes:
            asked.join()
        self.assertEqual(self.outcomes, {(name, None) for name, _ in self.outcomes})
        for number in range(10):
            self.assertIsNotNone(self.server.status("/", f"keyed{number}.test"))

    def stage(self, name):
        """Clients come all the while; no signature that they get is good."""
        if name == "deeds":
            self.outcomes = set()
            names = [f"keyed{number}.test" for number in range(10)] * 3
            ask = lambda name: self.outcomes.add((name, handshake(self.server, name)))
            self.handshakes = [threading.Thread(target=ask, args=(name,)) for name in names]
            for asked in self.handshakes:
                asked.start()
        super().stage(name)


class Stapler(Channels):
    """It may have sites staple nonsense, which clients who look at it refuse; it has no key, and nobody hears orders of it."""

    def test_stapler(self):
        keyed = [site(f"keyed{number}", [], certificates=["one.pem"]) for number in range(10)]
        self.misbehave(with_tls(Rogue([*GOOD, *keyed], "stapler")), "stapler", LOADS, [
            *ended("stapler"), *logged("stapler"),
            r"\[stapler\] .*rogue: clients: staples that are none, to 10 certificates",
            r"\[site keyed\d\] .*the stapler sends nonsense; its channel is closed",
            r"\[signer\] .*stapler sends nonsense; its channel is closed",
        ])
        log = self.server.log()
        self.assertEqual(len(set(re.findall(r"\[(site keyed\d)\] .*sends nonsense; its channel is closed", log))), 10)
        for number in range(10):
            self.assertEqual(handshake(self.server, f"keyed{number}.test"), "TLSv1.3")

    def stage(self, name):
        """Clients come all the while, and get to their sites."""
        if name == "deeds":
            self.assertEqual(handshake(self.server, "keyed0.test"), "TLSv1.3")
        super().stage(name)


class Connector(Channels):
    """It may hand its own site what it likes, which the site refuses; connectors of others are other processes."""

    def test_connector(self):
        behind = self.enterContext(Raw(answer=lambda _: response(b"behind")))
        route = [{"path": "/up/", "upstream": behind.at}]
        rogue, fine = site("rogue", [], route=route), site("fine", [], route=route)
        server = Rogue([*GOOD, rogue, fine], "connector")
        loads = [*LOADS, ("rogue.test", "/"), ("fine.test", "/up/")]
        self.misbehave(server, "connector rogue", loads, [
            *ended("connector rogue"), *logged("connector rogue"),
            r"\[logger\] .*refused \d+ records of connector rogue",
            r"\[site rogue\] .*the connector has handed over what is no connection",
            r"\[site rogue\] .*the connector sends nonsense; its channel is closed",
        ], [("rogue.test", "/up/")])


class Service(Channels):
    def test_services(self):
        relayed, handed = service("relayed", "/relayed"), service("handed", "/handed", takes=True)
        server = Rogue([*GOOD, site("rogue", [relayed, handed])])
        for name in ("relayed", "handed"):
            server.copy_program("rogue", name)
        # The site's own files are answered all the while.
        self.misbehave(server, "bin/", [*LOADS[:1], *LOADS[2:], ("rogue.test", "/")], [
            *ended("service rogue/relayed"), *ended("service rogue/handed"),
            *logged("service rogue/relayed"), *logged("service rogue/handed"),
            r"\[logger\] .*refused \d+ records of service rogue/handed",
            r"\[gate \d\] .*its worker sends nonsense; its channel is closed",
            r"\[site rogue\] .*its worker sends nonsense; its channel is closed",
        ], [("rogue.test", "/relayed"), ("rogue.test", "/handed")])


def with_data(rogue=None, engine=None, kind=Rogue):
    """A server with a site that has a database; its data proxy is the rogue, or its service `relayed`, for which there is a second one."""
    both = {} if rogue else {"data": ["catalog", "second"]}
    services = [asks("asker", **both), *([] if rogue else [asks("relayed", command=["bin/relayed"], **both)])]
    words = (engine or Sqlite).words
    grants = ANY_STATEMENTS.format(**words)
    grants = grants.replace("asker, other", "asker" if rogue else "asker, relayed").replace("services: other", "services: asker")
    files = {"catalog.sql": grants} | (engine.files(ANY_SCHEMA.format(**words)) if engine else {"schema.sql": SCHEMA})
    about = data_site("rogue", services, source=engine and engine.settings())
    if not rogue:
        about["data"].append(about["data"][0] | {"name": "second"})
    return kind([*GOOD, about], rogue, programs=("probe", "asker"), files=files)


class Data(Channels):
    ASK = ("rogue.test", "/asker/many?statement=users")

    def test_a_service_and_a_data_proxy(self):
        """Its calls are refused or cost itself; another service of the same source is answered all the while."""
        server = with_data()
        server.copy_program("rogue", "relayed")
        self.misbehave(server, "bin/relayed", [*LOADS, self.ASK], [
            *ended("service rogue/relayed"),
            r"\[dataproxy rogue/second\] .*service relayed has not shown the token of its channel",
            r'\[dataproxy rogue/catalog\] .*service relayed called "secrets", which was not granted to it',
            r"\[service rogue/relayed\] .*rogue: data: calls whose answers nobody reads",
        ])

    def test_a_data_proxy_and_its_services(self):
        """It may answer what it likes: its services say so, and go on."""
        server = with_data("dataproxy")
        self.misbehave(server, "dataproxy rogue/catalog", LOADS, [
            *ended("dataproxy rogue/catalog"), *logged("dataproxy rogue/catalog"),
            r"\[logger\] .*refused \d+ records of dataproxy rogue/catalog",
        ], [self.ASK])

    @unittest.skipUnless(AtPostgresql.installed(), "there is no PostgreSQL")
    def test_a_data_proxy_of_a_server_and_its_connector(self):
        """It is connected to its own server alone, whatever it asks for; the connector closes its channel at last, and goes on."""
        server = with_data("dataproxy", AtPostgresql())
        self.misbehave(server, "dataproxy rogue/catalog", LOADS, [
            *ended("dataproxy rogue/catalog"), *logged("dataproxy rogue/catalog"),
            r"\[dataproxy rogue/catalog\] .*rogue: connector: 0 connected, 3 unknown",
            r"\[connector rogue/catalog:data\] .*sends nonsense; its channel is closed",
        ], [self.ASK])


class Replaced(Rogue):
    """A server whose database's connector is a rogue's as soon as its data proxy has connections, which the database's operator ends."""

    def __init__(self, sites, _role, **more):
        super().__init__(sites, None, **more)

    def __enter__(self):
        super().__enter__()
        connector = self.process("connector rogue/catalog:data")
        self.give("rogue")
        connector.kill()
        AtPostgresql.shared.end_connections()
        return self

    def give(self, name):
        """Makes this program the connectors'."""
        new = self.folder / "programs" / "new"
        shutil.copy(harness.program(name), new)
        new.rename(self.folder / "programs" / "connector")


@unittest.skipUnless(AtPostgresql.installed(), "there is no PostgreSQL")
class ConnectorOfData(Channels):
    ASK = ("rogue.test", "/asker/many?statement=users")

    def test_a_connector_of_a_database_and_its_data_proxy(self):
        """It may hand over what it likes: the data proxy takes no such connection, and has one again when the connector is one."""
        server = with_data("connector", AtPostgresql(), Replaced)
        self.misbehave(server, "connector rogue/catalog:data", LOADS, [
            *ended("connector rogue/catalog:data"), *logged("connector rogue/catalog:data"),
            r"\[connector rogue/catalog:data\] .*rogue: clients: what is no connection, for [1-9]\d* requests",
            r"\[dataproxy rogue/catalog\] .*the connector has handed over what is no connection",
            r"\[dataproxy rogue/catalog\] .*the connector sends nonsense; its channel is closed",
            r"\[dataproxy rogue/catalog\] .*the server cannot be connected to: ",
        ], [self.ASK])
        server.give("connector")
        for process in server.processes("connector rogue/catalog:data"):
            process.kill()
        self.assertTrue(until(lambda: server.status(self.ASK[1], self.ASK[0]) == 200, 20), server.log()[-3000:])


class Orders(Channels):
    """Orders of the administrator, which a service answers as it likes: another service's answer comes all the same."""

    def test_a_service_that_is_given_orders(self):
        sites = [*GOOD, page_site("second"), site("rogue", [service("relayed", "/relayed")])]
        server = Rogue(sites, programs=("probe", "pages"), files={"templates/page.html": "page"})
        server.copy_program("rogue", "relayed")
        self.misbehave(server, "bin/relayed", LOADS, [
            *ended("service rogue/relayed"),
            r"\[service rogue/relayed\] .*rogue: order: answered by 253 descriptors",
        ])
        # Of a message with descriptors, the text counts. It may also answer, and go, before it is asked.
        for number, said in enumerate([*self.said, self.silent.result(40)]):
            with self.subTest(number=number, said=said):
                self.assertIn(said["answer"], [None, "done"] if number in GOOD_ANSWERS else [None])
                self.assertEqual(said["error"] is None, said["answer"] is not None)

    def stage(self, name):
        """An order for each way in which the rogue answers, of which the last is not at all."""
        if name == "deeds":
            self.said = [self.send() for _ in range(ANSWERS_OF_ITS_OWN)]
            self.silent = self.enterContext(ThreadPoolExecutor()).submit(self.send)
        super().stage(name)

    def send(self):
        """What has become of an order at the rogue."""
        done = self.server.command("send", "rogue/relayed", "second/pages", "echo", "x", "--json", "--run-dir", "run", timeout=40)
        said = {one["process"]: one for one in json.loads(done.stdout)["answers"]}
        self.assertEqual(said["second/pages"]["answer"], "x", said)
        return said["rogue/relayed"]


class Templates(Channels):
    PAGE = ("rogue.test", "/pages/page")

    def with_templates(self, rogue=None):
        """A server with a site that has templates; its service `relayed`, or its publisher, is the rogue."""
        services = [renders(), *([] if rogue else [renders("relayed", command=["bin/relayed"])])]
        files = {"templates/page.html": "page"}
        return Rogue([*GOOD, page_site("rogue", services)], rogue, programs=("probe", "pages"), files=files)

    def test_a_service_and_its_publisher(self):
        """What it says of versions counts for nothing but these; its channel is closed, and the other service has its pages."""
        server = self.with_templates()
        server.copy_program("rogue", "relayed")
        self.misbehave(server, "bin/relayed", [*LOADS, self.PAGE], [
            *ended("service rogue/relayed"),
            r"\[publisher rogue\] .*service relayed sends nonsense; its channel is closed",
        ])

    def test_a_publisher_and_its_services(self):
        """It may send what it likes: services say that it cannot be used, and keep the pages that they have."""
        server = self.with_templates("publisher")
        self.misbehave(server, "publisher rogue", LOADS, [
            *ended("publisher rogue"), *logged("publisher rogue"),
            r"\[service rogue/pages\] .*templates that the publisher has sent cannot be used: a template is not UTF-8",
        ], [self.PAGE])

    def test_what_a_publisher_leaves_its_successor(self):
        """The memory for versions is full of nonsense, and no larger than it was; the successor has the operator's folder hold."""
        with self.with_templates("publisher") as server:
            page = lambda: get(server.port, self.PAGE[1], self.PAGE[0]).body
            self.assertTrue(until(lambda: b"page of the rogue" in page(), 10), server.log())
            full = f"of its memory, {16 << 20} bytes are full"
            self.assertTrue(until(lambda: full in server.log(), 5), server.log())
            self.server = server
            others = self.others("publisher rogue")
            programs = server.folder / "programs"
            shutil.copy(harness.program("publisher"), programs / "new")
            (programs / "new").rename(programs / "publisher")
            server.process("publisher rogue").kill()
            self.assertTrue(until(lambda: b"page" in (body := page()) and b"rogue" not in body, 20), server.log())
            self.assertRegex(server.log(), r"\[publisher rogue\] the version that held cannot be told.*what the folder has holds")
            self.assertEqual(set(others), set(self.others("publisher rogue")))


class Logger(Channels):
    def test_logger(self):
        # What the logger itself says goes nowhere: only the launcher writes what is said of it.
        self.misbehave(Rogue(GOOD, "logger"), "logger", LOADS, ended("logger"))

    def stage(self, name):
        """Its words are lost with it; the time that it takes is known."""
        wait_for_time({"deeds": 2, "silence": 2.5}[name])

    may_write_all = True


class SilentLogger(unittest.TestCase):
    """A pipe holds 64 KiB; whoever prints more needs somebody who reads, or makes room."""

    LOST = r"\[bulkheadd\] the logger does not keep up with what service main/probe prints: [1-9]\d+ bytes are lost"

    def print_much(self, server):
        """Has a service print 1 MiB while nobody reads it."""
        answers = [get(server.port, f"/probe/print?kib={kib}", timeout=60) for kib in (1024, 1)]
        self.assertEqual([answer.text for answer in answers], ["printed 1024 KiB\n", "printed 1 KiB\n"])
        self.assertRegex(server.log(), self.LOST)

    def test_a_rogue(self):
        """It answers the launcher, or not, and never reads."""
        with Rogue(GOOD, "logger") as server:
            probe = server.process("bin/probe")
            self.print_much(server)
            self.assertEqual(server.process("bin/probe"), probe)

    def test_one_that_hangs(self):
        """It is ended, and its successor reads what it had left."""
        with Server(GOOD) as server:
            logger = server.process("logger")
            logger.signal(signal.SIGSTOP)
            self.print_much(server)
            self.assertTrue(until(lambda: not logger.alive, 40), server.log())
            self.assertRegex(server.log(), rf"\[bulkheadd\] logger \(pid {logger.pid}\) left what others print unread")
            self.assertTrue(until(lambda: re.search(r"\[service main/probe\] x{100}", server.log()), 10))
            self.assertEqual(server.status("/probe"), 200)


class Admin(Channels):
    def test_admin(self):
        # It is ended for what it asks for and does not read.
        self.misbehave(Rogue(GOOD, "admin"), "admin", LOADS, [
            ended("admin")[0], *logged("admin"), r"\[logger\] .*refused \d+ records of admin",
            r"\[bulkheadd\] admin \(pid \d+\) does not read what it is told and was ended"])


def with_tls(server):
    """The server with a listener for TLS, and the certificate `one.pem`."""
    server.tls = harness.free_port()
    with open(server.config, "a") as file:
        file.write(f'\n[[listen]]\naddress = "127.0.0.1:{server.tls}"\ntls = true\n')
    server.write("one.pem", b"".join(certificate(server.folder, "one", "ec", "one.test")))
    return server


def handshake(server, name):
    """The version of TLS that a client gets to, if it gets anywhere."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with socket.create_connection(("127.0.0.1", server.tls), timeout=30) as stream:
            with context.wrap_socket(stream, server_hostname=name) as secured:
                return secured.version()
    except OSError:
        return None


def tls_status(server, target, name="keyed.test"):
    """The status of an answer under TLS, if there is one."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with socket.create_connection(("127.0.0.1", server.tls), timeout=90) as stream:
            with context.wrap_socket(stream, server_hostname=name) as secured:
                secured.sendall(f"GET {target} HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n".encode())
                head = b"".join(iter(lambda: secured.recv(65536), b""))
    except OSError:
        return None
    return int(head.split()[1]) if head else None


def ask(port, host, target, count=6):
    """Connections on which something was asked, to be kept."""
    connections = [Connection(port) for _ in range(count)]
    for connection in connections:
        connection.send(request(target, host))
    return connections


if __name__ == "__main__":
    unittest.main()
