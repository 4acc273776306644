"""Servers behind a site that have names: by `hosts` and by DNS, names that move, and DNS servers that lie or are gone."""

import struct
import threading
import time
import unittest

from backend import FastCgi, Raw, response, route
from client import until
from dns import Dns, encoded, record
from harness import ROOTLESS, Server, rootless_too, site
from netns import SERVER, Networks
from reloading import Reloading

LOG = {"flush": "100ms"}
CODE = {"refused": 5, "failed": 2}


def named(name):
    """A server that says its name to everybody; it closes no connection."""
    return lambda _: response(name.encode())


def other_id(question, name, honest):
    return bytes([honest[0] ^ 1]) + honest[1:]


def other_question(question, name, honest):
    return honest.replace(encoded(name), encoded("x" * len(name.split(".")[0]) + "." + name.split(".")[1]))


def circle(question, name, honest):
    head = question[:2] + struct.pack(">HHHHH", 0x8180, 1, 3, 0, 0)
    body = record(name, 5, 1, encoded("b.test")) + record("b.test", 5, 1, encoded(name))
    return head + question[12:] + body + record(name, 1, 1, b"\x14\t\t\t")


def refused(question, name, honest):
    return honest[:3] + bytes([honest[3] & 0xF0 | CODE["refused"]]) + honest[4:]


def huge(question, name, honest):
    """Tens of thousands of records of somebody else's."""
    other = record("other.test", 1, 1, b"\x14\t\t\t")
    count = (65_000 - len(honest)) // len(other)
    return question[:2] + struct.pack(">HHHHH", 0x8180, 1, count, 0, 0) + question[12:] + other * count


LIES = {
    "id": (other_id, "what it sends is no answer"),
    "question": (other_question, "what it sends is no answer"),
    "circle": (circle, "circle of aliases"),
    "refused": (refused, "it answers REFUSED"),
    "huge": (huge, "has no address that is good"),
    "short": (lambda question, name, honest: honest[:-2], "what it sends is no answer"),
    "closed": (lambda question, name, honest: None, "192.0.2.1: "),
    "local": (["127.0.0.1", "169.254.169.254"], "has no address that is good"),
    "none": ([], "has no address that is good"),
}


@unittest.skipIf(ROOTLESS, "a network and files of its own need root")
class ServerNames(unittest.TestCase):
    def setUp(self):
        self.enterContext(Networks())

    def behind(self, host, port, answer=None, kind=Raw):
        return self.enterContext(kind(at=(host, port), answer=answer or named(host)))

    def dns(self, **names):
        names = {name.replace("_", "."): about for name, about in names.items()}
        return self.enterContext(Dns(SERVER, names))

    def server(self, sites, hosts="", kind=Server, resolver=f"nameserver {SERVER}\nsearch test\n"):
        server = kind(sites=sites, programs=(), log=LOG, tls={"reread": "1s"})
        self.hosts = server.write("hosts", "127.0.0.1 localhost\n" + hosts)
        conf = server.write("resolv.conf", resolver)
        own = f'mount --bind {self.hosts} /etc/hosts && mount --bind {conf} "$(readlink -f /etc/resolv.conf)" && exec "$@"'
        server.prefix = ["unshare", "--mount", "--propagation", "private", "sh", "-c", own, "-"]
        return self.enterContext(server)

    def says(self, server, path, status, body=None, seconds=20):
        """Whether this is answered, sooner or later."""
        def right():
            answer = server.get(path)
            return answer.status == status and (body is None or answer.body == body)
        self.assertTrue(until(right, seconds, 0.05), (path, server.get(path), server.log()[-2000:]))

    def logged(self, server, text, seconds=20):
        self.assertTrue(until(lambda: text in server.log(), seconds, 0.05), (text, server.log()[-2000:]))

    def test_by_hosts_and_by_dns(self):
        for last in (1, 2):
            self.behind(f"20.0.0.{last}", 3000)
        self.behind("20.0.0.3", 9000, kind=FastCgi)
        self.behind("127.0.0.1", 3001)
        self.dns(app_test=["20.0.0.2"], alias_test="app.test", fpm_test=["20.0.0.3"], pair_test=["20.0.0.4", "20.0.0.2"])
        server = self.server([site(route=[
            route("known.test:3000", "/hosts/"),
            route("App.test:3000", "/dns/"),
            route("alias.test:3000", "/alias/"),
            route("app:3000", "/short/"),
            route("localhost:3001", "/local/"),
            route("pair.test:3000", "/pair/"),
            route(["20.0.0.1:3000", "none.test:3000"], "/mixed/"),
        ]), site("php", php="fpm.test:9000")], hosts="20.0.0.1 known.test\n")
        server.write("php/x.php", "<?php")
        self.assertEqual(server.get("/hosts/").body, b"20.0.0.1")
        for path in ("/dns/", "/alias/", "/short/"):
            self.assertEqual(server.get(path).body, b"20.0.0.2", path)
        self.assertEqual(server.get("/local/").body, b"127.0.0.1")
        self.assertEqual(server.get("/x.php", host="php.test").body, b"answered")
        # One of two addresses is dead; one of two servers has no address.
        for path, body in (("/pair/", b"20.0.0.2"), ("/mixed/", b"20.0.0.1")):
            self.assertEqual({server.get(path).body for _ in range(8)}, {body})
        self.logged(server, "pair.test:3000 at 20.0.0.4:3000 cannot be connected to")

    def test_it_moves_while_requests_are_served(self):
        old, new = self.behind("20.0.0.1", 3000), self.behind("20.0.0.2", 3000)
        dns = self.dns(app_test=["20.0.0.1"])
        server = self.server([site(route=[route("app.test:3000")])])
        stop, answers = threading.Event(), []

        def load():
            with server.connect() as connection:
                while not stop.is_set():
                    answers.append(connection.get("/app/").body)
                    time.sleep(0.002)

        clients = [threading.Thread(target=load) for _ in range(4)]
        for one in clients:
            one.start()
        try:
            self.assertTrue(until(lambda: len(answers) > 50))
            dns.names["app.test"] = ["20.0.0.2"]
            self.assertTrue(until(lambda: answers[-20:] == [b"20.0.0.2"] * 20, 20), server.log()[-2000:])
            # A connection that was in use then is not kept either.
            before = len(old.requests)
            count = len(answers)
            self.assertTrue(until(lambda: len(answers) > count + 200))
            self.assertEqual(len(old.requests), before)
        finally:
            stop.set()
            for one in clients:
                one.join()
        self.assertEqual(set(answers), {b"20.0.0.1", b"20.0.0.2"})
        # With the DNS server gone, what was good stays.
        dns.__exit__()
        self.logged(server, "its last addresses are used")
        self.assertEqual(server.get("/app/").body, b"20.0.0.2")
        self.assertEqual(server.log().count("its last addresses are used"), 1)
        self.enterContext(Dns(SERVER, {"app.test": ["20.0.0.1"]}))
        self.says(server, "/app/", 200, b"20.0.0.1")

    def test_lies_lead_nowhere(self):
        self.behind("20.9.9.9", 3000)
        names = {f"{name}.test": about for name, (about, _) in LIES.items()}
        dns = self.enterContext(Dns(SERVER, names))
        server = self.server([site(route=[route(f"{name}.test:3000", f"/{name}/") for name in LIES])])
        for name, (_, why) in LIES.items():
            self.assertEqual(server.get(f"/{name}/").status, 502, name)
            self.logged(server, f"{name}.test:3000: the name ")
            line = next(line for line in server.log().splitlines() if f"{name}.test:3000: the name " in line)
            self.assertIn(why, line)
            self.assertIn("502", line)
        # The truth is believed.
        dns.names.update(dict.fromkeys(names, ["20.9.9.9"]))
        for name in LIES:
            self.says(server, f"/{name}/", 200, b"20.9.9.9")

    def test_every_site_hears_of_a_name_that_is_new(self):
        """The launcher opens the file; each of those who look names up gets all of it."""
        self.behind("20.0.0.2", 3000)
        names = ("main", "second", "third")
        server = self.server([site(name, route=[route("app.test:3000")]) for name in names], resolver="")
        with open(self.hosts, "a") as file:
            file.write("20.0.0.2 app.test\n")
        for name in names:
            right = lambda name=name: server.get("/app/", f"{name}.test").body == b"20.0.0.2"
            self.assertTrue(until(right, 15, 0.05), (name, server.log()[-2000:]))

    def test_files_and_configurations_change(self):
        for last in (1, 2):
            self.behind(f"20.0.0.{last}", 3000)
        sites = lambda *routes: [site(route=list(routes))]
        server = self.server(sites(route("20.0.0.1:3000")), kind=Reloading, resolver="")
        more = {"log": LOG, "tls": {"reread": "1s"}}
        self.assertIsNone(server.reload(sites(route("app.test:3000")), **more))
        self.says(server, "/app/", 502)
        self.logged(server, "app.test:3000: the name cannot be looked up: `/etc/resolv.conf` names no server")
        connector = server.process("connector")
        with open(self.hosts, "a") as file:
            file.write("20.0.0.2 app.test\n")
        self.says(server, "/app/", 200, b"20.0.0.2")
        self.logged(server, "app.test:3000 is at 20.0.0.2")
        self.assertEqual(server.process("connector"), connector)
        self.assertIsNone(server.reload(sites(route("app.test:3000"), route("gone.test:3000", "/gone/")), **more))
        self.assertEqual(server.get("/app/").body, b"20.0.0.2")
        self.assertEqual(server.get("/gone/").status, 502)


@rootless_too
class LocalNames(unittest.TestCase):
    """What needs no file and no DNS server of its own."""

    def test_localhost(self):
        behind = self.enterContext(Raw(answer=named("here")))
        port = behind.at.rpartition(":")[2]
        with Server(sites=[site(route=[route(f"localhost:{port}"), route("x.invalid:80", "/none/")])], programs=()) as server:
            self.assertEqual(server.get("/app/").body, b"here")
            self.assertEqual(server.get("/none/").status, 502)
            self.assertTrue(until(lambda: "x.invalid:80: the name " in server.log(), 20), server.log())


if __name__ == "__main__":
    unittest.main()
