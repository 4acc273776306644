"""What the gate's policies cost: its CPU time for a connection with all of them, and with as few as can be."""

import subprocess

from load import FEW, OTHERS

#: Everything that can be left out is. `exempt` takes shares, rates and bans away from every client.
OFF = """\
priority = "fifo"
checks = "lenient"
share_max = { "/8" = 1, "/16" = 1, "/24" = 1 }
body_min_rate = "0B/s"
response_min_rate = "0B/s"
ban_after = 0
exempt = ["0.0.0.0/0", "::/0"]"""
#: Also what is not on by default.
ON = """\
checks = "strict"
rate_max = "1000000/s"
rate_burst = 1000000"""


class Policies:
    """16 regular clients, a new connection for each request; the gates' time divided by the requests."""

    key, title, limit = "policies", "The policies of a gate", 2.0
    servers = ("ours",)

    def run(self, bench):
        """{"on" or "off": {0: [figures of each round]}}"""
        if not bench.chosen(self.servers, policies=True):
            return {}
        started = {name: bench.start("ours", policies=text) for name, text in (("on", ON), ("off", OFF))}
        found = {name: {0: []} for name in started}
        for turn in range(bench.rounds * 3):
            for name, server in bench.in_turn(started, turn):
                before = server.gate_seconds()
                figures = bench.clients.run(server, bench.seconds, sources=OTHERS + FEW[:64])
                figures["gate_us"] = (server.gate_seconds() - before) * 1e6 / max(figures["completed"], 1)
                found[name][0].append(figures)
                bench.say(f"{self.key} {name:4} {figures['gate_us']:6.2f} µs a connection, {figures['rps']:.0f}/s")
        bench.stop()
        return found


class Tree:
    """The crate `conditioning`'s own measurement of its tree: a million addresses of each kind."""

    key, title = "tree", "The priority tree"
    servers = ()

    def run(self, bench):
        """{"tree": {0: [what it printed, and whether it was content]}}"""
        line = ["cargo", "run", "--offline", "--release", "--quiet", "-p", "conditioning", "--example", "tree"]
        done = subprocess.run(line, cwd=bench.top, capture_output=True, text=True, timeout=900, check=False)
        bench.say(done.stdout.strip())
        if "bytes/address" not in done.stdout:
            raise RuntimeError("the tree cannot be measured: " + done.stderr[-2000:])
        return {"tree": {0: [{"text": done.stdout.strip(), "good": done.returncode == 0}]}}


POLICIES, TREE = Policies(), Tree()
