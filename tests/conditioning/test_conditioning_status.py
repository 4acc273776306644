"""`bulkhead status --conditioning`: what was shed, where and why, for people and for programs."""

import unittest

from client import until
from conditioning_status import told
from harness import TOP, Server, rootless_too, site

def total(server, reason):
    """A count of all gates."""
    return sum(process["shed"][reason] for process in told(server).values() if process["role"] == "gate")


@rootless_too
class Status(unittest.TestCase):
    def test_every_gate_and_every_site_is_there(self):
        sites = [site("main"), site("other")]
        with Server(sites, programs=(), server={"gates": 3}) as server:
            processes = told(server)
            self.assertEqual(set(processes), {"gate 0", "gate 1", "gate 2", "site main", "site other"})
            for process in processes.values():
                # All of them, by the names of the first; the unit tests compare these with the counts.
                self.assertEqual(list(process["shed"]), list(processes["gate 0"]["shed"]))
                self.assertGreater(len(process["shed"]), 15)
            table = server.command("status", "--conditioning", "--config", server.config).stdout.splitlines()
            self.assertEqual(table[0].split()[:4], ["PROCESS", "ADMITTED", "DELAYED", "SHED"])
            self.assertEqual([line.split()[0] for line in table[1:7]], ["gate"] * 3 + ["site"] * 2 + ["all"])

    def test_it_counts_what_is_served(self):
        with Server([site()], programs=()) as server:
            for _ in range(5):
                self.assertEqual(server.status("/"), 200)
            self.assertTrue(until(lambda: total(server, "admitted") == 5), told(server))

    def test_it_says_why(self):
        policies = {"first_byte_timeout": "200ms", "head_timeout": "300ms"}
        with Server([site()], programs=(), conditioning=policies) as server:
            with server.connect() as silent, server.connect() as slow, server.connect() as wrong:
                slow.send(b"GET / HTTP/1.1\r\nHost: main.test\r\n")
                wrong.send(b"GET / HTTP/1.1\r\nHost: main.test\r\nno field\r\n\r\n")
                self.assertEqual(wrong.response().status, 400)
                self.assertTrue(silent.is_closed())
                self.assertEqual(slow.response().status, 408)
            shed = {"late_first_byte": 1, "late_head": 1, "malformed": 1}
            counted = lambda: {reason: total(server, reason) for reason in shed} == shed
            self.assertTrue(until(counted), told(server))
            table = server.command("status", "--conditioning", "--config", server.config).stdout
            everybody = next(line for line in table.splitlines() if line.startswith("all "))
            for words in ("silent 1", "slow head 1", "malformed 1"):
                self.assertIn(words, everybody)

    def test_it_names_the_ranges_that_weigh_most(self):
        policies = {"first_byte_timeout": "1m", "exempt": []}
        with Server([site()], programs=(), conditioning=policies, server={"gates": 1}) as server:
            held = [server.connect(source="127.9.0.1") for _ in range(40)]
            try:
                ranges = until(lambda: told(server)["gate 0"]["top_ranges"])
                self.assertTrue(ranges and any(heavy["range"].startswith("127.") for heavy in ranges), ranges)
                table = server.command("status", "--conditioning", "--config", server.config).stdout
                self.assertIn("RANGE", table)
                self.assertIn("127.", table)
            finally:
                for connection in held:
                    connection.close()

    def test_a_process_that_does_not_answer_keeps_nobody_waiting(self):
        with Server([site()], programs=(), server={"gates": 2}) as server:
            gate = server.process("gate 1")
            gate.signal(19)
            try:
                self.assertEqual(set(told(server)), {"gate 0", "site main"})
            finally:
                gate.signal(18)
            self.assertEqual(len(told(server)), 3)


class Seeds(unittest.TestCase):
    def test_the_file_of_the_seeds_runs_as_it_is(self):
        text = (TOP / "tests/config/conditioning.toml").read_text()
        moved = lambda port: text.replace("127.0.0.1:8080", f"127.0.0.1:{port}")
        with Server([], programs=(), files={"public/index.html": "here\n"}, text=moved) as server:
            self.assertEqual(server.get("/").text, "here\n")


if __name__ == "__main__":
    unittest.main()
