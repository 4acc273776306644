"""What is done to a server in one measurement: regular clients (client.c), and an attack beside them.

Both run on the core that the servers do not have, inside of the namespace that bench/conditioning/run has made.
"""

import json
import os
import pathlib
import re
import resource
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent.parent / "tests" / "lib")]
from attack import Attack  # noqa: E402
from benchlib import proc  # noqa: E402
from netns import SERVER, addresses  # noqa: E402

#: Attackers come from four /16s of one /8; regular clients each from a /8 of their own.
FEW = [source for second in range(1, 5) for source in addresses(f"20.{second}.0.0/16", 64)]
#: Attackers who have machines everywhere: 24 addresses in each of eleven /8s.
MANY = [source for turn in range(24) for first in range(20, 31)
        for source in addresses(f"{first}.{turn}.0.0/16", 24)[turn:turn + 1]]
#: They are many, as an address has 55,000 ports, and a port that a server has closed rests for a minute: with few
#: addresses, clients of fast servers look for a port most of the time.
OTHERS = [f"{first}.77.7.{last}" for last in range(1, 65) for first in range(31, 40)]


#: Percent of the servers' core that nobody else has in a measurement of throughput; ballast.c says why.
BALLAST = 40

#: Share of the processors that other programs, or the host for others of its guests, may take before a measurement is
#: called disturbed.
DISTURBED = 0.06


class Clients:
    """The regular clients' program, built once, run on the core of the clients."""

    def __init__(self, work, core, retries):
        self.core, self.retries, self.program = core, retries, work / "client"
        build(self.program)

    def run(self, server, seconds, connections=16, pause=0.0, timeout=30, target="/small.bin", mode="close",
            sources=OTHERS, first=False):
        """One measurement: what the clients saw; see client.c. `pause` is in seconds.

        With `first` they never wait for the attackers on their core, and time in which the host has taken a core away
        is not counted: neither is any server's fault.
        It is repeated while other programs disturb it; the quietest is kept."""
        words = [SERVER, server.port, target, mode, connections, seconds, pause * 1e6, timeout * 1e3,
                 f"{server.core},{self.core}" if first else "-", *sources]
        line = ["taskset", "-c", str(self.core), str(self.program), *map(str, words)]
        if first:
            line = ["chrt", "--fifo", "1", *line]
        best = None
        for _ in range(self.retries + 1):
            figures = self._once(server, line, seconds)
            if best is None or figures["others"] < best["others"]:
                best = figures
            if best["others"] <= DISTURBED:
                break
        return best

    @staticmethod
    def _once(server, line, seconds):
        before, cores, clock = Spent(), Cores(), time.monotonic()
        done = subprocess.run(line, stdout=subprocess.PIPE, text=True, timeout=seconds + 30, check=True)
        others, elapsed = Spent().others(before), time.monotonic() - clock
        if server.process.poll() is not None:
            raise RuntimeError(f"{server.label} ended under the load")
        lost, idle = cores.since(elapsed)
        found = json.loads(done.stdout)
        # What the server does in the time that its core is there.
        found["rate"] = found["rps"] / max(1 - lost[f"cpu{server.core}"], 0.1)
        return found | {"others": others / elapsed + sum(lost.values()), "stolen": lost, "idle": idle}


def build(program):
    """Compiles the program of this folder that has this name."""
    subprocess.run(["cc", "-O2", "-pthread", "-o", str(program), str(HERE / f"{program.name}.c")], check=True)


class Ballast:
    """Takes its part of the servers' core while it is in use."""

    def __init__(self, work, core):
        self.program, self.core, self.process = work / "ballast", core, None
        build(self.program)

    def __enter__(self):
        words = ["taskset", "-c", str(self.core), str(self.program), str(BALLAST)]
        self.process = subprocess.Popen(words)
        return self

    def __exit__(self, error, *_):
        # One that may not go first ends at once; figures without it would not be what the report says.
        ended = self.process.poll() is not None
        self.process.kill()
        self.process.wait()
        if ended and not error:
            raise RuntimeError("ballast has ended: it must be root and may not be refused a real-time priority")


class Cores:
    """What /proc/stat says of each core now."""

    def __init__(self):
        lines = pathlib.Path("/proc/stat").read_text(encoding="ascii").splitlines()
        self.words = {line.split()[0]: line.split() for line in lines if re.match(r"cpu\d", line)}

    def since(self, elapsed):
        """The shares of the time since then in which the host had given a core to others, and in which it was idle."""
        now, tick = Cores().words, os.sysconf("SC_CLK_TCK") * elapsed
        share = lambda column: {core: (int(words[column]) - int(self.words[core][column])) / tick
                                for core, words in now.items()}
        return share(8), share(4)


class Spent:
    """CPU time so far: of all cores, and of this run's own processes."""

    def __init__(self):
        self.all = sum(proc.cores().values())
        self.own = proc.usage(os.getpid())
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)
        self.ended = ended.ru_utime + ended.ru_stime

    def others(self, before):
        """Seconds that programs of others took since `before`."""
        own = proc.used(before.own, self.own)[0] + self.ended - before.ended
        return max(self.all - before.all - own, 0.0)


class Pinned:
    """An attack whose processes stay on the core of the clients; `with` as for Attack, at once settled."""

    def __init__(self, core, *words, **more):
        self.core, self.attack = core, Attack(*words, **more)

    def __enter__(self):
        before = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {self.core})
        try:
            self.attack.__enter__()
        finally:
            os.sched_setaffinity(0, before)
        self.attack.settle(60)
        return self.attack

    def __exit__(self, *error):
        self.attack.__exit__(*error)


def recover(server, seconds=30):
    """Waits until a server that was attacked answers quickly again, as before: three times within 50 ms."""
    end, good = time.monotonic() + seconds, 0
    while time.monotonic() < end and good < 3:
        began = time.monotonic()
        try:
            status = server.get("/small.bin", {})[0]
        except OSError:
            status = 0
        good = good + 1 if status == 200 and time.monotonic() - began < 0.05 else 0
        time.sleep(0.05)
    return good == 3
