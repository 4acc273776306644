"""Chains of filter processes in C and in Python before a CCServer, and what the two useful filters do."""

import itertools
import os
import socket
import statistics
import sys
import tempfile
import time
import unittest

from cc_world import TOP, WRAP, Client, Program, built, free_port, until, wait_for_port
from peer import start_filter

PYTHON = os.path.join(os.path.dirname(TOP), "python")
# Not a shim that looks for its interpreter in the environment, which a filter has not.
INTERPRETER = os.path.realpath(sys.executable)


def in_python(name):
    return f"{INTERPRETER} -I {PYTHON}/filters/{name}"


class Chain(unittest.TestCase):
    def setUp(self):
        self.folder = self.enterContext(tempfile.TemporaryDirectory())
        for name, text in {"index.html": "front\n", "a": "plain\n"}.items():
            with open(os.path.join(self.folder, name), "w", encoding="ascii") as file:
                file.write(text)
        self.port = free_port()

    def start(self, *filters):
        """A server behind these filters, of which the last sees requests first."""
        program = self.enterContext(
            Program([built("ccserver"), f"127.0.0.1:{self.port}", self.folder, "flt_request", *filters]))
        wait_for_port(self.port, program)
        return program

    def client(self):
        client = Client(self.port)
        self.addCleanup(client.close)
        return client

    def get(self, target, **more):
        return self.client().get(target, **more)

    def test_lengths(self):
        kinds = {"C": built("pass"), "Python": in_python("pass.py")}
        for count in range(4):
            for chosen in itertools.combinations_with_replacement(kinds, count):
                with self.subTest(chain=chosen):
                    self.port = free_port()
                    self.start(*(kinds[one] for one in chosen))
                    client = self.client()
                    for _ in range(5):
                        self.assertEqual(client.get("/a")[2], b"plain\n")

    def test_order(self):
        """filters[] has the server's side first: what is last collapses before the other looks."""
        program = self.start(in_python("refuse.py") + " --require X-None --path /deep", built("collapse"))
        at = until(program.report)["arguments"]
        self.assertEqual([at[i + 1].split()[-1].rpartition("/")[2] for i, one in enumerate(at) if one == "--filter"],
                         ["collapse", "deep"])

    def test_collapse(self):
        self.start(built("collapse") + " 4")
        client = self.client()
        for target in ("/a", "//a", "/./a", "/x/../a", "/../../a", "/x/y/../../a", "///" * 5000 + "a",
                       "/" + "x/../" * 5000 + "a", "/a?//../" + "/" * 900, "http://a.test//a"):
            with self.subTest(target[:20]):
                self.assertEqual(client.get(target)[2], b"plain\n")
        for target in ("/", "//", "/.", "/..", "/x/..", "/x/../", "/?q"):
            with self.subTest(target):
                self.assertEqual(client.get(target)[2], b"front\n")
        self.assertEqual(client.get("/1/2/3/4")[0], 404)
        self.assertEqual(client.get("/1/2/3/4/5")[0], 400)
        self.assertTrue(client.is_ended())

    def test_collapse_is_quick(self):
        """60,000 slashes cost what 60,000 letters cost: a quadratic search would take seconds."""
        self.start(built("collapse"))
        began = time.monotonic()
        for _ in range(20):
            self.assertIn(self.get("/" * 60000)[0], (200, 400))
            self.assertEqual(self.get("/" + "x/" * 30000)[0], 400)
        self.assertLess(time.monotonic() - began, 10 if WRAP else 2)

    def test_refuse(self):
        self.start(in_python("refuse.py") + " --path /private --agent EvilBot --require Host")
        for target in ("/private", "/private/x", "/%70rivate", "//private", "/x/../private", "/./private",
                       "http://a.test/private", "/%2e%2e/private"):
            with self.subTest(target):
                self.assertEqual(self.get(target)[0], 403)
        self.assertEqual(self.get("/a", headers="User-Agent: An evilbot 1.0\r\n")[0], 403)
        self.assertEqual(self.get("/a", headers="User-Agent: a person's\r\n")[2], b"plain\n")
        self.assertEqual(self.get("/a")[2], b"plain\n")

    def test_dropped_is_ended(self):
        self.start(in_python("refuse.py") + " --path /private")
        client = self.client()
        self.assertEqual(client.get("/a")[2], b"plain\n")
        self.assertEqual(client.get("/private")[0], 403)
        self.assertTrue(client.is_ended())

    def test_filters_end_with_the_chain(self):
        for command in ([built("pass")], [built("collapse")], in_python("pass.py").split()):
            with self.subTest(command[-1]):
                self.assertEqual(self.alone(command, lambda into, out: None), 0)

    def test_made_up_bundles(self):
        """Nonsense is skipped, the next request goes through, and no descriptor is kept."""
        for command in ([built("pass")], [built("collapse")], in_python("pass.py").split()):
            with self.subTest(command[-1]):
                self.assertEqual(self.alone(command, self.nonsense), 0)

    def nonsense(self, into, out):
        near, far = socket.socketpair()
        good = bytes([1, 1]) + bytes(8 + 36) + b"\0" + (18).to_bytes(4, "little") + b"GET / HTTP/1.1\r\n\r\n"
        for bad in (b"x", good[:-1], good + b"x", b"\2" + good[1:], b"\1\2" + good[2:], good[:46] + b"\7" + good[47:]):
            socket.send_fds(into, [bad], [far.fileno()])
        into.send(good)
        socket.send_fds(into, [good], [far.fileno()])
        far.close()
        out.settimeout(10)
        data, fds, _, _ = socket.recv_fds(out, 70000, 2)
        self.assertEqual((data, len(fds)), (good, 1))
        os.close(fds[0])
        near.settimeout(10)
        self.assertEqual(near.recv(1), b"")
        near.close()

    def alone(self, command, exchange):
        """Runs one filter by itself; returns its status at the end of its input."""
        ours_in, its_in = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        its_out, ours_out = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # valgrind is for our programs; an interpreter of Python takes minutes under it.
        wrap = [] if command[0] == INTERPRETER else WRAP
        process = start_filter([*wrap, *command], its_in, its_out, env={"PATH": os.environ["PATH"]})
        its_in.close()
        its_out.close()
        try:
            exchange(ours_in, ours_out)
        finally:
            ours_in.close()
            status = process.wait(20)
            ours_out.close()
        return status

    def test_forgotten_is_dropped(self):
        script = "from bulkhead_filter import requests\nfor one in requests():\n    pass\n"
        path = os.path.join(self.folder, "forget.py")
        with open(path, "w", encoding="ascii") as file:
            file.write(f"import sys\nsys.path.insert(0, {PYTHON!r})\n{script}")
        self.start(f"{INTERPRETER} {path}")
        self.assertIsNone(self.get("/a"))

    def test_cost_of_a_hop(self):
        """Bounded generously here; bench/conditioning measures it."""
        def median_us(filters):
            self.port = free_port()
            with Program([built("ccserver"), f"127.0.0.1:{self.port}", self.folder, "flt_request", *filters]) as one:
                wait_for_port(self.port, one)
                client, times = Client(self.port), []
                for _ in range(200):
                    began = time.perf_counter()
                    client.get("/a")
                    times.append((time.perf_counter() - began) * 1e6)
                client.close()
                return statistics.median(times)
        none, eight = median_us([]), median_us([built("pass")] * 8)
        self.assertLess((eight - none) / 8, 1000, f"{none:.0f} us without, {eight:.0f} us with eight")


if __name__ == "__main__":
    unittest.main()
