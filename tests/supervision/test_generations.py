"""Ten generations of every process at once: each reload changes all of them, and clients keep those of before."""

import re
import tempfile
import unittest
from collections import Counter
from pathlib import Path

import client
from client import until
from harness import configuration, free_port, rootless_too, service, site
from reloading import Reloading
from tls_server import certificate

GENERATIONS = 10
BODY = b"0123456789"
#: What drains for as long as a client's request goes on.
HELD = ("site main", "bin/probe", "broker", "dataproxy", "publisher")


@rootless_too
class Generations(unittest.TestCase):
    def config(self, number):
        """A configuration in which everything differs from every other one."""
        probe = service("probe", network=[f"tcp:{number + 1}"], data=["catalog"], templates=True, max_requests=number + 1000)
        sites = [site("main", [probe], certificates=["main.pem"], templates={"folder": "templates"},
                      route=[{"path": "/behind/", "upstream": "127.0.0.1:1"}],
                      data=[{"name": "catalog", "statements": "catalog.sql"}])]
        settings = {"limits": {"drain_timeout": "2m", "head_timeout": f"{number + 20}s"}, "tls": {"ocsp_ports": [number + 1]},
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

    def test_all_of_them_are_there_and_work(self):
        server, held = self.server, []
        for number in range(1, GENERATIONS + 1):
            held.append(self.begin_upload())
            requests = lambda: sum(p["connections_now"] for p in server.order(command="status")["processes"] if p["role"] == "site")
            self.assertTrue(until(lambda: requests() >= len(held), 5), requests())
            server.config.write_text(server.with_uids(self.config(number)))
            answer = server.command("reload", "--run-dir", "run")
            self.assertEqual(answer.returncode, 0, f"generation {number}: {answer.stdout}{answer.stderr}")
        found = Counter(title for process in server.processes() for title in HELD if process.title.startswith(title))
        self.assertEqual(found, {title: GENERATIONS + 1 for title in HELD})
        for one in held:
            one.send(BODY[5:])
            self.assertEqual(one.response().status, 200)
        is_over = lambda: Counter(process.title for process in server.processes())["site main"] == 1
        self.assertTrue(until(is_over, 20), server.processes())
        self.assertEqual(re.findall(r".* (?:warning|error): .*(?:EAGAIN|temporarily unavailable).*", server.log()), [])


if __name__ == "__main__":
    unittest.main()
