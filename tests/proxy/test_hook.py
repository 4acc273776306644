"""A site whose worker is a program of the operator's own, with functions in it."""

import gzip
import unittest

from client import until
from harness import Server, rootless_too, site

CALC = {"suffix": ".calc", "hook": "calc"}


def own(route=(CALC,), **more):
    return site("main", route=list(route), worker=["bin/hook"], **more)


@rootless_too
class Hook(unittest.TestCase):
    def server(self, *sites, **more):
        return self.enterContext(Server(list(sites), ("hook",), **more))

    def test_what_a_function_may_say(self):
        server = self.server(own(), site("other"), files={"main/about.calc": "a file\n", "main/1.txt": "text\n"})
        response = server.get("/2+3*4.calc")
        self.assertEqual((response.status, response.body), (200, b"2+3*4 = 14\n"))
        self.assertEqual(response.headers["content-type"], "text/plain; charset=utf-8")
        self.assertEqual(response.headers["server"], "bulkhead")
        self.assertEqual(server.status("/1+x.calc"), 404)
        self.assertEqual(server.get("/about.calc").body, b"a file\n")
        self.assertEqual(server.status("/no-such.calc"), 404)
        self.assertEqual(server.get("/1.txt").body, b"text\n")
        self.assertEqual(server.status("/7.calc", "other.test"), 404)
        # The query is not the name.
        self.assertEqual(server.status("/1.txt?x.calc"), 200)

    def test_on_one_connection(self):
        server = self.server(own(), limits={"body_bytes": 64})
        with server.connect() as connection:
            for body, expected in ((b"1+1", b"1+1 = 2\n"), (b"6*7", b"6*7 = 42\n")):
                connection.send(b"POST /any.calc HTTP/1.1\r\nHost: main.test\r\nContent-Length: %d\r\n\r\n%s"
                                % (len(body), body))
                self.assertEqual(connection.response().body, expected)
            connection.send(b"POST /any.calc HTTP/1.1\r\nHost: main.test\r\nContent-Length: 65\r\n\r\n" + b"1" * 65)
            self.assertEqual(connection.response().status, 413)
        self.assertTrue(until(lambda: server.log("main.access").count("/any.calc") == 3, 5))

    def test_what_is_long_is_compressed(self):
        server = self.server(own())
        body = b"+".join([b"1"] * 2000)
        request = (b"POST /any.calc HTTP/1.1\r\nHost: main.test\r\nAccept-Encoding: gzip\r\nContent-Length: %d\r\n\r\n"
                   % len(body))
        with server.connect() as connection:
            connection.send(request + body)
            response = connection.response()
        self.assertEqual(response.headers.get("content-encoding"), "gzip")
        self.assertIn("Accept-Encoding", response.headers["vary"])
        self.assertLess(len(response.body), 500)
        self.assertEqual(gzip.decompress(response.body), body + b" = 2000\n")

    def test_terms_come_first(self):
        server = self.server(own([CALC | {"deny": ["127.0.0.1"]}]))
        self.assertEqual(server.status("/1.calc"), 403)

    def test_it_is_a_site_worker_like_others(self):
        server = self.server(own(), site("other"))
        own_status, other = (server.process(f"site {name}").status() for name in ("main", "other"))
        for field in ("CapEff", "CapBnd", "NoNewPrivs", "Seccomp", "Seccomp_filters", "Threads"):
            self.assertEqual(own_status.get(field), other.get(field), field)
        old = server.process("site main")
        server.relaunch("main")
        self.assertEqual(server.get("/3*3.calc").body, b"3*3 = 9\n")
        self.assertTrue(until(lambda: not old.alive, 5))

    def test_a_function_that_is_not_there(self):
        server = self.server(own([CALC | {"hook": "no-such"}]), site("other"), answers=500,
                             restart={"broken_after": 2, "backoff_max": "10ms"})
        said = lambda: 'a route names the hook "no-such", which this worker does not have; it has: calc' in server.log()
        self.assertTrue(until(said, 5), server.log())
        self.assertEqual(server.status("/", "other.test"), 200)

    def test_a_program_that_needs_libraries(self):
        sites = [own(), site("other")]
        server = Server(sites, (), answers=500, restart={"broken_after": 2, "backoff_max": "10ms"})
        server.copy_program("/bin/true", "hook")
        with server:
            self.assertTrue(until(lambda: "is linked dynamically, and a site's worker" in server.log(), 5), server.log())
            self.assertEqual(server.status("/", "other.test"), 200)


if __name__ == "__main__":
    unittest.main()
