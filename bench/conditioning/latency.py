"""Infrequent clients beside bulk clients (the paper's figure 11), and the price of each chained filter (figure 8)."""

import subprocess

from load import FEW, MANY, OTHERS, Pinned, build, recover


class Infrequent:
    """A few clients ask for something small 50 times a second, while others download at a bounded rate.

    They are few for the server, and eight for enough samples: a p99 of 300 is what the machine did three times.
    Bulk clients take 400,000 bytes at 100,000 a second each, so that neither core is busy: whoever waits, waits for a
    process of the server. From a few networks the shares hold them back; from everywhere it is the priority.
    """

    key, title = "infrequent", "Infrequent clients beside bulk clients"
    counts, quick, limit = (0, 100, 200, 500, 1000), (0, 100, 300), 2.0
    servers = ("ours", "guarded-apache", "guarded-nginx", "apache", "nginx")

    def run(self, bench):
        """{server or server/many: {count: [figures of each round]}}"""
        counts = bench.counts(self)
        names = bench.chosen(self.servers)
        started = {name: bench.start(name) for name in names}
        found = {f"{name}/{where}": {count: [] for count in counts} for where in ("few", "many") for name in names}
        for turn in range(bench.rounds):
            for count in counts:
                for where, sources in (("few", FEW), ("many", MANY)):
                    for name, server in bench.in_turn(started, turn):
                        figures = self.measure(bench, server, count, sources)
                        found[f"{name}/{where}"][count].append(figures)
                        bench.say(f"{self.key} {count:5} {where:4} {name:14} p50 {figures['p50_us'] / 1e3:9.2f} ms  "
                                  f"p99 {figures['p99_us'] / 1e3:9.2f} ms of {figures['alone_p99_us'] / 1e3:6.2f}, "
                                  f"the host away for {figures['away_us'] / 1e3:.0f} ms")
        bench.stop()
        return found

    @staticmethod
    def ask(bench, server, seconds):
        return bench.clients.run(server, seconds, connections=8, pause=0.02, sources=OTHERS, first=True)

    def measure(self, bench, server, count, sources):
        seconds = bench.seconds * 2
        alone = self.ask(bench, server, seconds)
        with Pinned(bench.client_core, "bulk", bench.address(server), count, sources, seconds=300, rate=1000,
                    again=2000, pace=0.25, piece=25_000, target="/large.bin") as running:
            server.settle()
            figures = self.ask(bench, server, seconds)
            taken = running.counts()["answered"]
        recover(server)
        return figures | {"alone_p50_us": alone["p50_us"], "alone_p99_us": alone["p99_us"], "downloads": taken,
                          "ratio": figures["p99_us"] / alone["p99_us"]}


class Filters:
    """A single client, one request at a time, and a chain of filters that pass everything on.

    Beside them stand bare programs in C that do nothing but pass a descriptor on (hop.c): less than that a process in
    the way cannot cost on the machine.
    """

    key, title = "filters", "Chained filters"
    counts, quick, limit = (0, 1, 2, 4, 8, 16), (0, 1, 4), 10.0
    servers = ("ours", "guarded-apache", "guarded-nginx")

    def run(self, bench):
        """{server: {filters: [figures of each round]}}; all lengths of a server's chain run side by side."""
        counts, found = bench.counts(self), {}
        for name in bench.chosen(self.servers, filters=True):
            started = {count: bench.start(name, filters=count) for count in counts}
            found[name] = {count: [] for count in counts}
            for turn in range(bench.rounds * 3):
                for count, server in bench.in_turn(started, turn):
                    figures = bench.clients.run(server, max(1, bench.seconds / 2), connections=1, sources=OTHERS)
                    found[name][count].append(figures)
                    bench.say(f"{self.key} {count:3} {name:14} p50 {figures['p50_us']:7.1f} µs")
                if name == "ours":
                    found.setdefault("bare", {count: [] for count in counts})
                    self.bare(bench, found["bare"])
            bench.stop()
        return found

    @staticmethod
    def bare(bench, found):
        program = bench.work / "hop"
        build(program)
        for count, rounds in found.items():
            line = ["taskset", "-c", str(bench.options.server_core), str(program), str(count)]
            # The message alone, without any process in its way, is not of interest.
            told = subprocess.run(line, capture_output=True, text=True, timeout=60, check=True).stdout if count else "0"
            rounds.append({"p50_us": float(told)})
            bench.say(f"filters {count:3} {'bare':14} p50 {rounds[-1]['p50_us']:7.1f} µs")


INFREQUENT, FILTERS = Infrequent(), Filters()
