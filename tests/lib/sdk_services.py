"""What services have in common, whichever SDK they are written on: each language's tests are these and its own.

`name` is that of the service, whose program knows the deeds `echo`, `sum`, `early` and `die`.
"""

import os

from client import Load, until


class Requests:
    """Of a `server` that runs for all of them, with `ask`; a body has 1 MiB at most."""

    def test_bodies_of_a_known_and_an_unknown_length(self):
        body = os.urandom(300_000)
        self.assertEqual(self.ask("echo", method="POST", body=body).body, body)
        chunks = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (body[:1], body[1:70_000], body[70_000:])) + b"0\r\n\r\n"
        for path, wanted in (("echo", body), ("sum", b"300000\n")):
            with self.server.connect() as connection:
                head = f"POST /{self.name}/{path} HTTP/1.1\r\nHost: main.test\r\nTransfer-Encoding: chunked\r\n\r\n"
                connection.send(head.encode() + chunks)
                self.assertEqual(connection.response().body, wanted)

    def test_a_body_over_the_limit_is_refused(self):
        for path in ("sum", "echo"):
            self.assertEqual(self.ask(path, method="POST", body=bytes((1 << 20) + 1)).status, 413)
            self.assertEqual(self.ask(path, method="POST", body=bytes(1 << 20)).status, 200)

    def test_an_answer_before_the_body_was_read(self):
        with self.server.connect() as connection:
            for _ in range(3):
                self.assertEqual(connection.get(f"/{self.name}/early", method="POST", body=bytes(200_000)).text, "early\n")
        self.assertEqual(self.ask("early", method="POST", body=bytes(1 << 20)).text, "early\n")

    def test_counts(self):
        count = lambda: next(line for line in self.server.order(command="status")["processes"] if line["name"] == f"main/{self.name}")["requests"]
        before = count()
        for _ in range(7):
            self.ask("early")
        self.assertEqual(count(), before + 7)


class Life:
    """Each has a server of its own: `serve` makes one, with settings of the service and of its site."""

    #: Settings of a service that is relaunched under load.
    under_load = {}

    def test_a_relaunch_loses_no_request(self):
        with self.serve(self.under_load) as server:
            before = server.workers()
            loads = [Load(server.port, f"/{self.name}/early", seconds=5, close=close) for close in (False, True)]
            for _ in range(3):
                server.relaunch(f"main/{self.name}")
            for load in loads:
                load.finish().assert_clean(self, 300)
            self.assertFalse(set(before) & set(server.workers()))

    def test_a_process_that_dies_is_replaced(self):
        with self.serve() as server:
            pid, = server.workers()
            os.kill(pid, 9)
            self.assertTrue(until(lambda: server.status(f"/{self.name}/early") == 200, 10))
            self.assertEqual(server.status(f"/{self.name}/die"), 502)
            self.assertTrue(until(lambda: server.status(f"/{self.name}/early") == 200, 10))
            self.assertNotIn(pid, server.workers())

    def test_a_start_on_demand(self):
        with self.serve(start="on-demand", idle_stop="1s") as server:
            for _ in range(2):
                self.assertEqual(server.workers(), [])
                self.assertEqual(server.status(f"/{self.name}/early"), 200)
                self.assertTrue(until(lambda: not server.workers(), 15), "it says that it is idle")
