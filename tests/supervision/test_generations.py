"""Ten generations of every process at once: each reload changes all that works for one site, and clients keep those of before; what
works for all sites is relaunched while the one before is stopped, and cannot go.

Which roles there are is taken from the table of channels: one that is new needs its case here.
"""

import contextlib
import re
import signal
import tempfile
import unittest
from collections import Counter
from pathlib import Path

import client
import topology
from client import until
from harness import configuration, free_port, rootless_too, service, site
from reloading import Reloading
from tls_server import certificate

GENERATIONS = 10
BODY = b"0123456789"
#: What drains for as long as a client's request goes on: for each role, how many there are of one generation.
HELD = {"site": 1, "service": 1, "broker": 1, "dataproxy": 1, "publisher": 1, "connector": 2}
#: What drains at once, unless it is stopped: those that work for all sites.
STOPPED = ("gate", "filter", "signer", "stapler", "logger")
#: What passes on the order that replaces it, so that it cannot be stopped before, and ends within a second, whatever is
#: under way.
PASSES_ON = ("admin",)
#: Titles of programs that are no roles' own.
PROGRAMS = {"bin/probe": "service", "bin/pass": "filter"}


def role(process):
    word = process.title.split(" ")[0]
    return PROGRAMS.get(word, word)


@rootless_too
class Generations(unittest.TestCase):
    def config(self, number):
        """A configuration in which everything differs from every other one."""
        probe = service("probe", network=[f"tcp:{number + 1}"], data=["catalog"], templates=True, max_requests=number + 1000)
        sites = [site("main", [probe], certificates=["main.pem"], templates={"folder": "templates"},
                      route=[{"path": "/behind/", "upstream": f"127.0.0.1:{number + 1}"}],
                      data=[{"name": "catalog", "statements": "catalog.sql"}])]
        settings = {"server": {"gates": 1}, "restart": {"hang_after": "10m"}, "limits": {"drain_timeout": "2m", "head_timeout": f"{number + 20}s"}, "tls": {"ocsp_ports": [number + 1]},
                    "conditioning": {"filters": [["bin/pass", str(number)]], "body_min_rate": "0B/s", "exempt": ["127.0.0.0/8"]}}
        return configuration(self.port, sites, settings) + self.tls

    def setUp(self):
        self.tls = f'\n[[listen]]\naddress = "127.0.0.1:{free_port()}"\ntls = true\nunfiltered = true\n'
        with tempfile.TemporaryDirectory() as folder:
            pem = b"".join(certificate(Path(folder), "main", "ec", "main.test")).decode()
        statements = "-- name: one :one\n-- services: probe\nSELECT 1;\n"
        files = {"main.pem": pem, "templates/page.html": "page\n", "catalog.sql": statements, "main/index.html": "<h1>main</h1>\n"}

        def text(port):
            self.port = port
            return self.config(0)

        self.server = self.enterContext(Reloading([], ("probe", "pass"), text=text, files=files))

    def begin_upload(self):
        """A request of which the service has got the beginning."""
        held = self.enterContext(client.Connection(self.server.port, timeout=30))
        whole = client.request("/probe/echo", method="POST", headers=[f"Content-Length: {len(BODY)}"])
        held.send(whole + BODY[:5])
        return held

    def test_each_role_has_a_case(self):
        roles = {name for edge in topology.table() for name in edge} - {topology.LAUNCHER}
        self.assertEqual(roles, set(HELD) | set(STOPPED) | set(PASSES_ON))

    def test_all_of_them_are_there_and_work(self):
        server, held = self.server, []
        for number in range(1, GENERATIONS + 1):
            held.append(self.begin_upload())
            requests = lambda: sum(p["connections_now"] for p in server.order(command="status")["processes"] if p["role"] == "site")
            self.assertTrue(until(lambda: requests() >= len(held), 5), requests())
            server.config.write_text(server.with_uids(self.config(number)))
            answer = server.command("reload", "--run-dir", "run")
            self.assertEqual(answer.returncode, 0, f"generation {number}: {answer.stdout}{answer.stderr}")
        found = Counter(map(role, server.processes()))
        self.assertEqual({name: found[name] for name in HELD}, {name: (GENERATIONS + 1) * count for name, count in HELD.items()})
        for one in held:
            one.send(BODY[5:])
            self.assertEqual(one.response().status, 200)
        is_over = lambda: Counter(process.title for process in server.processes())["site main"] == 1
        self.assertTrue(until(is_over, 20), server.processes())
        self.assert_nothing_was_refused()

    def assert_nothing_was_refused(self):
        self.assertEqual(re.findall(r".* (?:warning|error): .*(?:EAGAIN|temporarily unavailable).*", self.server.log()), [])

    def test_those_that_serve_all_sites_are_there_as_often(self):
        server, stopped = self.server, []
        current = {name: next(process for process in server.processes() if role(process) == name) for name in STOPPED}
        try:
            for _ in range(GENERATIONS):
                for name in STOPPED:
                    stopped.append(current[name])
                    stopped[-1].signal(signal.SIGSTOP)
                    server.relaunch(name)
                    known = set(stopped)
                    new = lambda name=name, known=known: [p for p in server.processes() if role(p) == name and p not in known]
                    current[name] = until(new, 5)[-1]
                for name in PASSES_ON:
                    server.relaunch(name)
                    # One that is ending says so to whoever comes, and takes no order.
                    is_alone = lambda name=name: Counter(map(role, server.processes()))[name] == 1
                    self.assertTrue(until(is_alone, 5), server.processes())
            # A gate has half a second until it is relaunched, which is not always enough where others compute.
            hung = re.findall(r"(\w+)(?: \d+)? \(pid \d+\) has not answered", server.log())
            found = Counter(map(role, server.processes())) + Counter(hung)
            self.assertEqual({name: found[name] for name in STOPPED}, {name: GENERATIONS + 1 for name in STOPPED}, server.log())
            self.assertEqual(server.status("/"), 200)
        finally:
            for process in stopped:
                with contextlib.suppress(ProcessLookupError):
                    process.signal(signal.SIGCONT)
        names = STOPPED + PASSES_ON
        is_over = lambda: {name: Counter(map(role, server.processes()))[name] for name in names} == dict.fromkeys(names, 1)
        self.assertTrue(until(is_over, 20), server.processes())
        self.assertEqual(server.status("/"), 200)
        self.assert_nothing_was_refused()


if __name__ == "__main__":
    unittest.main()
