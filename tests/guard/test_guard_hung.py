"""The gate of a guarded server that hangs is found, killed and replaced; one that has no processor is left alone."""

import os
import signal
import subprocess
import sys
import time
import unittest

import pytest

import guarded
from guarded_servers import python
from harness import free_port, rootless_too, wait_for_time
from new_connections import NewConnections

pytestmark = pytest.mark.alone

#: What a new connection may wait for an answer, in seconds.
WAIT_MAX = 1.2


def clients_of(guard, port=None):
    """Clients of the guarded server."""

    def ask():
        with guarded.Client(guard, port) as client:
            client.get("/")

    return NewConnections(ask, 4)


class HungGate(unittest.TestCase):
    def stops(self, guard, port=None):
        """Stops the gate under load; whoever comes then is served by its successor."""
        clients, gate = clients_of(guard, port), guard.gate
        guard.until(lambda: len(clients.done) > 50, "clients are served")
        os.kill(gate.pid, signal.SIGSTOP)
        stopped = time.monotonic()
        guard.until(lambda: any(now.pid != gate.pid for now in [guard.gate] if now), "there is another gate")
        before = len(clients.done)
        guard.until(lambda: len(clients.done) > before + 50, "clients are served again")
        clients.finish()
        since = [(took, fault) for begun, took, fault in clients.done if begun > stopped]
        self.assertEqual([fault for _, fault in since if fault], [])
        # What it had accepted goes with it: for each client, one request at most.
        self.assertLessEqual(sum(fault is not None for _, _, fault in clients.done), len(clients.threads))
        self.assertLess(max(took for took, _ in since), WAIT_MAX)
        self.assertIn(f"the gate (pid {gate.pid}) has not answered for ", guard.output())
        self.assertIn("and is killed; it is stopped", guard.output())

    @rootless_too
    def test_connections_wait_for_its_successor(self):
        with python() as guard:
            self.stops(guard)
            # Its successor is looked after as well.
            self.stops(guard)

    @rootless_too
    def test_on_sockets_of_the_guards_own(self):
        listen = free_port()
        with python("--listen", f"127.0.0.1:{listen}") as guard:
            self.stops(guard, listen)

    @rootless_too
    def test_one_that_nobody_needed_is_found_by_the_first_connection(self):
        with python() as guard:
            with guarded.Client(guard) as client:
                client.get("/")
            # Nobody asks any more.
            wait_for_time(3)
            gate = guard.gate
            os.kill(gate.pid, signal.SIGSTOP)
            begun = time.monotonic()
            with guarded.Client(guard) as client:
                client.get("/")
            self.assertLess(time.monotonic() - begun, WAIT_MAX)
            self.assertNotEqual(guard.gate.pid, gate.pid)

    def test_one_that_is_starved_is_left_alone(self):
        """Others take all processors, and the gate gets what they leave."""
        if not hasattr(os, "SCHED_IDLE"):
            self.skipTest("no such policy")
        with python() as guard:
            gate, spinning = guard.gate, [sys.executable, "-c", "while True: pass"]
            with guarded.Client(guard) as client:
                client.get("/")
            processor = {min(os.sched_getaffinity(0))}
            os.sched_setscheduler(gate.pid, os.SCHED_IDLE, os.sched_param(0))
            os.sched_setaffinity(gate.pid, processor)
            with subprocess.Popen(["nice", "-n", "-10", *spinning]) as greedy:
                os.sched_setaffinity(greedy.pid, processor)
                try:
                    clients = clients_of(guard)
                    wait_for_time(4)
                finally:
                    greedy.kill()
            clients.finish()
            self.assertEqual(guard.gate.pid, gate.pid, guard.output())
            self.assertEqual([fault for _, _, fault in clients.done if fault], [])


if __name__ == "__main__":
    unittest.main()
