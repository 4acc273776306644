"""Loads that ask what a server of many parts costs: a chain of filters, and the start of very many sites."""

import dataclasses
import pathlib
import subprocess
import time

from . import idle, proc, tools
from .load import Wrk

HOP = pathlib.Path(__file__).resolve().parent.parent / "conditioning" / "hop.c"


@dataclasses.dataclass(frozen=True)
class Hops:
    """One client, one request at a time, with a chain of filters and without one: `hop_us` is what each filter adds
    to the latency, `cpu_us` what it adds to the CPU time.

    A subject without servers is hop.c: bare processes that pass a descriptor on, less than which no filter can cost.
    """

    filters: int
    checks, logged, pinned = True, False, True
    client = Wrk("/100.bin", connections=1)

    def cost(self, options):
        return 2 * self.client.cost(options)

    def command(self, options):
        return self.client.command(options)

    def measure(self, subject, options):
        if not subject.servers:
            return {"requests": 1, "hop_us": self.bare(subject.run) / self.filters}
        without, chained = (self.client.measure(Alone(server), options) for server in subject.servers)
        each = lambda figure: (chained[figure] - without[figure]) / self.filters
        return {"requests": 1, "p50_us": chained["p50_us"], "p99_us": chained["p99_us"], "without_us": without["p50_us"],
                "others": max(chained["others"], without["others"]), "hop_us": each("p50_us"), "cpu_us": each("cpu_us")}

    def bare(self, run):
        program = run.work / "hop"
        if not program.exists():
            subprocess.run([tools.find("cc"), "-O2", "-o", program, HOP], check=True)
        line = ["taskset", "-c", str(run.options.server_core), str(program), str(self.filters)]
        return float(subprocess.run(line, capture_output=True, text=True, timeout=60, check=True).stdout)


class Alone:
    """One server of a subject, as a subject."""

    def __init__(self, server):
        self.server, self.name, self.port = server, server.name, server.port

    def usage(self):
        return proc.usage(self.server.process.pid)

    def usage_behind(self):
        return {"threads": {}, "ticks": {}}

    def gone(self):
        return self.name if self.server.process.poll() is not None else ""


@dataclasses.dataclass(frozen=True)
class Sites:
    """The start of a server with that many sites: until its processes are there and hosts from the first to
    the last answer, and its memory then."""

    count: int
    checks, logged, pinned = False, False, False

    def cost(self, options):
        return self.count * 0.004 + 2

    def command(self, options):
        return f"the start, until all processes are there and 20 of the {self.count:,} hosts have answered"

    def hosts(self):
        return [f"s{index}.test" for index in range(0, self.count, max(1, self.count // 19))][:19] + [f"s{self.count - 1}.test"]

    def measure(self, subject, options):
        server = subject.servers[-1]
        cpu = proc.used({"threads": {}, "ticks": {}}, server.used_at_start)[0]
        time.sleep(1.0)
        found = idle.memory(server.process.pid)
        return {"requests": 1, "ready_s": server.ready_s, "start_cpu_s": cpu, "processes": len(found),
                "memory_mib": sum(found.values()) / 1024}


def sites_ours(count):
    return "\n".join(f'[[site]]\nname = "s{index}"\nhost = ["s{index}.test"]\nroot = "public"\n' for index in range(count))


def sites_nginx(count):
    return "\n".join(f"server {{ listen 127.0.0.1:@PORT@; server_name s{index}.test; root @DIR@/public; }}"
                     for index in range(count))
