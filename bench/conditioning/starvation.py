"""Experiments in which attackers hold connections and regular clients want to be served: the paper's figures 10 and 12,
and the slow readers of its section 4.2.

For every number of attackers each server is measured just before the attack and under it; the figure of a server is
the ratio of the two, so that a machine that is slower at the moment harms nobody's figure.
"""

import time

from load import FEW, Ballast, Pinned, recover


class Starvation:
    """One such experiment: `kind` of tests/lib/attack.py, in growing numbers."""

    def __init__(self, key, title, kind, counts, quick, limit, **how):
        self.key, self.title, self.kind, self.counts, self.quick = key, title, kind, counts, quick
        self.limit, self.how = limit, {"sources": FEW, "rate": 4000, "target": "/small.bin"} | how
        self.servers = ("ours", "guarded-apache", "guarded-nginx", "apache", "nginx")

    def run(self, bench):
        """{server: {count: [figures of each round]}}"""
        counts = bench.counts(self)
        found = {name: {count: [] for count in counts} for name in bench.chosen(self.servers)}
        started = {name: bench.start(name) for name in found}
        with Ballast(bench.work, bench.options.server_core):
            for turn in range(bench.rounds):
                for count in counts:
                    for name, server in bench.in_turn(started, turn):
                        figures = self.measure(bench, server, count)
                        found[name][count].append(figures)
                        idle = " ".join(f"{core} {share:.0%}" for core, share in figures["idle"].items())
                        bench.say(f"{self.key} {count:6} {name:14} {figures['rps']:8.0f}/s of {figures['alone']:6.0f}/s"
                                  f"  held {figures['held']:6}  idle: {idle}")
        bench.stop()
        return found

    def measure(self, bench, server, count):
        alone = bench.clients.run(server, bench.seconds)
        attack = Pinned(bench.client_core, self.kind, bench.address(server), count, seconds=300, **self.how)
        with attack as running:
            server.settle()
            before = running.counts()
            figures = bench.clients.run(server, bench.seconds)
            after = running.counts()
        recovered = recover(server)
        time.sleep(0.2)
        ratio = figures["rate"] / alone["rate"] if alone["rps"] >= 1 else 0.0
        return figures | {"alone": alone["rps"], "ratio": ratio, "held": after["open"],
                          "lost": after["lost"] - before["lost"], "recovered": recovered}


#: In the paper whoever is closed stays away; here they come again, 500 a second.
INCOMPLETE = Starvation(
    "incomplete", "Incomplete connections", "incomplete", (0, 100, 150, 1500, 8000, 32000),
    (0, 200, 4000), 0.9)
PERSISTENT = Starvation(
    "persistent", "Slow persistent connections", "idle", (0, 150, 1500, 5000), (0, 200, 2000), 0.9)
READERS = Starvation(
    "readers", "Slow readers", "slow-reader", (0, 150, 1500, 5000), (0, 200, 2000), 0.9,
    target="/large.bin", pace=1.0, piece=1024)
