"""A process of any role that hangs is found, killed and replaced; one that has no processor is left alone.

`BULKHEAD_STOPPED=5,40,70` stops gates for so many seconds, one after the other (`make sweep`).
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
import unittest

import pytest

import client
from client import until
from every_role import every_role
from harness import Server, rootless_too, site, wait_for_time
from new_connections import NewConnections

pytestmark = pytest.mark.alone

#: How long gates are stopped, in seconds.
STOPPED = [float(seconds) for seconds in os.environ.get("BULKHEAD_STOPPED", "2").split(",")]
#: What a new connection may wait for an answer, in seconds.
WAIT_MAX = 1.2


def clients_of(server, clients=8):
    """Clients of the server's first site."""

    def ask():
        with client.Connection(server.port, timeout=90) as connection:
            connection.send(client.request("/", headers=["Connection: close"]))
            status = connection.response().status
            return None if status == 200 else status

    return NewConnections(ask, clients)


class Gates(unittest.TestCase):
    @rootless_too
    def test_connections_of_a_gate_that_is_stopped_wait_for_its_successor(self):
        for seconds in STOPPED:
            with self.subTest(seconds=seconds), Server([site()], (), server={"gates": 2}) as server:
                clients, gate = clients_of(server), server.process("gate 0")
                self.assertTrue(until(lambda: len(clients.done) > 50))
                gate.signal(signal.SIGSTOP)
                stopped = time.monotonic()
                wait_for_time(seconds)
                with contextlib.suppress(ProcessLookupError):
                    gate.signal(signal.SIGCONT)
                clients.finish()
                since = [(took, fault) for begun, took, fault in clients.done if begun > stopped]
                self.assertEqual([fault for _, fault in since if fault], [])
                # What it had accepted goes with it: for each client, one request at most.
                self.assertLessEqual(sum(fault is not None for _, _, fault in clients.done), len(clients.threads))
                self.assertLess(max(took for took, _ in since), WAIT_MAX)
                self.assertFalse(gate.alive)
                self.assertIn(f"gate 0 (pid {gate.pid}) has not answered for ", server.log())
                self.assertIn("and is killed; it is stopped", server.log())

    @rootless_too
    def test_one_that_nobody_needed_is_found_by_the_first_connection(self):
        with Server([site()], (), server={"gates": 1}) as server:
            # Nobody asks any more.
            wait_for_time(3)
            gate = server.process("gate 0")
            gate.signal(signal.SIGSTOP)
            begun = time.monotonic()
            self.assertEqual(server.status("/"), 200)
            self.assertLess(time.monotonic() - begun, WAIT_MAX)
            self.assertFalse(gate.alive)

    def test_one_that_is_starved_is_left_alone(self):
        """Others take all processors, and the gate gets what they leave."""
        if not hasattr(os, "SCHED_IDLE"):
            self.skipTest("no such policy")
        with Server([site()], (), server={"gates": 1}) as server:
            gate, spinning = server.process("gate 0"), [sys.executable, "-c", "while True: pass"]
            self.assertEqual(server.status("/"), 200)
            os.sched_setscheduler(gate.pid, os.SCHED_IDLE, os.sched_param(0))
            os.sched_setaffinity(gate.pid, {min(os.sched_getaffinity(0))})
            with subprocess.Popen(["nice", "-n", "-10", *spinning]) as greedy:
                os.sched_setaffinity(greedy.pid, {min(os.sched_getaffinity(0))})
                try:
                    clients = clients_of(server, 4)
                    wait_for_time(4)
                    self.assertTrue(gate.alive, server.log())
                finally:
                    greedy.kill()
            clients.finish()
            self.assertEqual([fault for _, _, fault in clients.done if fault], [])
            self.assertTrue(gate.alive, server.log())


@rootless_too
class Roles(unittest.TestCase):
    #: Beside gates, sites, services and the stapler, which are tested elsewhere.
    TITLES = ("logger", "admin", "signer", "publisher main", "dataproxy main/catalog", "dataproxy main/away", "connector main",
              "broker main/net")

    def test_each_is_replaced(self):
        with every_role(type(self), restart={"hang_after": "5s"}) as server, server.connect() as used:
            old = {process.title: process for process in server.processes() if process.title.startswith(self.TITLES)}
            self.assertGreaterEqual(len(old), len(self.TITLES))
            for process in old.values():
                process.signal(signal.SIGSTOP)

            def is_replaced():
                self.assertEqual(used.get("/").status, 200, "files go on")
                now = {process.title: process.pid for process in server.processes() if process.title in old}
                return all(now.get(title, process.pid) != process.pid for title, process in old.items())

            self.assertTrue(until(is_replaced, 30, 0.2), server.processes())
            self.assertEqual(server.command("status", "--config", server.config).returncode, 0)
            for title, process in old.items():
                told = f"(pid {process.pid}) has not answered for 5"
                self.assertTrue(until(lambda told=told: told in server.log()), f"{title}: {server.log()}")


if __name__ == "__main__":
    unittest.main()
