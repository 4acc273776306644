"""The line `serving on ...`: when it appears, each site answers, and what does not come up is named in it."""

import time
import unittest
from pathlib import Path

from backend import Raw, response
from harness import Server, rootless_too, service, site
from tls_server import Tls

#: What ends at once is given up after the second time.
RESTART = {"broken_after": 2, "within": "10s"}


def line(server):
    return next(line for line in server.stderr().splitlines() if "serving on" in line)


@rootless_too
class ServingLine(unittest.TestCase):
    def test_each_site_answers_at_that_moment(self):
        behind = self.enterContext(Raw(answer=lambda _: response(b"behind")))
        files = [f"more{number}" for number in range(6)]
        sites = [
            site("main", [service("probe")]),
            site("other", route=[{"path": "/up/", "upstream": behind.at}]),
            *map(site, files),
        ]
        with Server(sites) as server:
            asked = [("main", "/"), ("main", "/probe"), ("other", "/up/"), *((name, "/") for name in ["other", *files])]
            # One attempt each: nothing is asked again.
            statuses = [server.status(target, f"{name}.test", timeout=5) for name, target in asked]
            self.assertEqual(statuses, [200] * len(asked))
            self.assertIn(f"serving on http://127.0.0.1:{server.port}; sites: 8, services: 1, ", line(server))
            self.assertNotIn("broken", line(server))

    def test_certificates_are_there_at_that_moment(self):
        with Tls() as server:
            began = time.monotonic()
            answers = [server.get_tls(name) for name in ("a.test", "b.test")]
            self.assertEqual([answer.split(b"\r\n")[0] for answer in answers], [b"HTTP/1.1 200 OK"] * 2)
            # LIMIT: a connection waits 5 s for certificates; these do not.
            self.assertLess(time.monotonic() - began, 4)
            self.assertIn(f"https://127.0.0.1:{server.tls}", line(server))

    def test_what_does_not_come_up_is_named(self):
        sites = [site("main", [service("ends", "/ends")]), site("other")]
        server = Server(sites, (), restart=RESTART)
        server.write("bin/ends", Path("/bin/false").read_bytes()).chmod(0o755)
        with server:
            self.assertTrue(line(server).endswith(", broken: main/ends"), line(server))
            self.assertEqual(server.status("/ends"), 500)
            self.assertEqual(server.status("/"), 200)
            self.assertEqual(server.status("/", "other.test"), 200)

    def test_what_hangs_is_waited_for_as_long_as_a_start_may_take(self):
        sites = [site("main", [service("hangs", "/hangs", command=["bin/hangs", "1000"])]), site("other")]
        server = Server(sites, (), limits={"start_timeout": "1s", "drain_timeout": "1s"})
        server.write("bin/hangs", Path("/bin/sleep").read_bytes()).chmod(0o755)
        began = time.monotonic()
        with server:
            self.assertTrue(line(server).endswith(", not up yet: main/hangs"), line(server))
            # Until then it has had 1 s; the start of a process that nobody waits for may take nine times as long.
            self.assertLess(time.monotonic() - began, 6)
            self.assertEqual([server.status("/"), server.status("/", "other.test")], [200, 200])


if __name__ == "__main__":
    unittest.main()
