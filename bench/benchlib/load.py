"""What is done to a subject and what is read from it: one class for each kind of load, one object for each case.

A load has `measure(subject, options)`, which returns the figures of one round, and `command(options)`, what anyone may
type. CPU time is that of all processes of the subject, read before and after the client's program ran.
"""

import dataclasses
import re
import resource
import subprocess
import time

from . import proc, tools

SETTLE = 0.1        # seconds after a load, so that closing connections and writing the log are counted too
DISTURBED = 0.10    # share of a core that others may use before a measurement is called disturbed
UNITS = {"us": 1.0, "ms": 1e3, "s": 1e6, "m": 6e7, "h": 3.6e9}


def number(text, pattern, default=None):
    """The groups of a pattern as numbers; without a default, the pattern must be there."""
    match = re.search(pattern, text, re.M)
    if not match and default is None:
        raise RuntimeError("cannot read the client's output:\n" + text[-2000:])
    return [float(group) for group in match.groups()] if match else default


def children_seconds():
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


class Command:
    """A load that is a client's command line; `lines` are run at once, and their figures added up."""

    #: Whether there is load before a measurement; whether an answer is checked first; whether requests are logged;
    #: whether the servers have one core, and the clients the other.
    warms, checks, logged, pinned = True, True, True, True

    def seconds(self, options):
        return options.seconds

    def cost(self, options):
        """About how many seconds a measurement takes."""
        return self.seconds(options) + (options.warmup if self.warms else 0) + 2 * SETTLE + 0.1

    def command(self, options):
        line = self.line("PORT", self.seconds(options), options.load_core)
        return " ".join(f'"{word}"' if " " in word else word for word in line)

    def warm_up(self, subject, options):
        """A little load. These clients take whole seconds only, so they are told to stop earlier."""
        if not self.warms or not options.warmup:
            return
        load = subprocess.Popen(self.line(subject.port, 60, options.load_core), stdout=subprocess.DEVNULL,
                                stderr=subprocess.DEVNULL)
        try:
            time.sleep(options.warmup)
            # Not SIGINT, which a shell has its background commands ignore, and these with them.
            load.terminate()
            load.wait(10)
        finally:
            if load.poll() is None:
                load.kill()
                load.wait()

    def run(self, subject, options):
        """Runs the client: what it printed."""
        seconds = self.seconds(options)
        done = subprocess.run(self.line(subject.port, seconds, options.load_core), stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=seconds + 60)
        if done.returncode != 0:
            raise RuntimeError(f"{subject.name}: {self.command(options)} failed:\n{done.stdout[-2000:]}")
        return done.stdout

    def measure(self, subject, options):
        """One measurement: warm-up, then the client between two readings of the CPU time."""
        self.warm_up(subject, options)
        time.sleep(SETTLE)
        busy, load_cpu, clock = proc.cores(), children_seconds(), time.monotonic()
        before, behind = subject.usage(), subject.usage_behind()
        text = self.run(subject, options)
        ran = time.monotonic() - clock
        time.sleep(SETTLE)
        after, behind_after = subject.usage(), subject.usage_behind()
        elapsed, load_cpu = time.monotonic() - clock, children_seconds() - load_cpu
        busy = {core: value - busy[core] for core, value in proc.cores().items()}
        if gone := subject.gone():
            raise RuntimeError(f"{gone} ended during the measurement")
        figures = self.parse(text)
        cpu, source = proc.used(before, after)
        load_cpu += proc.used(behind, behind_after)[0]
        requests = max(figures["requests"], 1)
        return figures | {
            "cpu_us": cpu * 1e6 / requests,
            "cpu_source": source,
            "per_cpu_second": requests / max(cpu, 1e-9),
            "cpu_by_program_us": {name: round(value * 1e6 / requests, 3)
                                  for name, value in proc.by_program(before, after).items()},
            "server_busy": cpu / ran,
            "load_busy": load_cpu / ran,
            "others": max(busy[options.server_core] - cpu, busy[options.load_core] - load_cpu, 0.0) / elapsed,
        }


@dataclasses.dataclass(frozen=True)
class Wrk(Command):
    """wrk with one thread: requests of one path on kept-alive connections, or each on a new one."""

    path: str
    close: bool = False
    connections: int = 64
    scheme: str = "http"
    lasts: int = 0          #: seconds, if the case needs more than the others
    warms: bool = True

    def seconds(self, options):
        return self.lasts or options.seconds

    def line(self, port, seconds, core):
        words = ["taskset", "-c", str(core), "wrk", "-t1", f"-c{self.connections}", f"-d{seconds}s", "--latency"]
        words += ["-H", "Connection: close"] if self.close else []
        return words + [f"{self.scheme}://127.0.0.1:{port}{self.path}"]

    @staticmethod
    def parse(text):
        def latency(percent):
            match = re.search(rf"^\s*{percent}%\s+([\d.]+)(us|ms|s|m|h)\s*$", text, re.M)
            return float(match.group(1)) * UNITS[match.group(2)] if match else 0.0

        return {
            "requests": int(number(text, r"(\d+) requests in")[0]),
            "rps": number(text, r"Requests/sec:\s+([\d.]+)")[0],
            "p50_us": latency(50),
            "p99_us": latency(99),
            "errors": int(sum(number(text, r"connect (\d+), read (\d+), write (\d+), timeout (\d+)", [0]))
                          + number(text, r"Non-2xx or 3xx responses: (\d+)", [0])[0]),
        }


@dataclasses.dataclass(frozen=True)
class H2load(Command):
    """h2load with one thread: HTTP/2 over TLS, some clients with many streams each."""

    path: str
    clients: int = 8
    streams: int = 100

    def line(self, port, seconds, core):
        return ["taskset", "-c", str(core), "h2load", "-t1", f"-c{self.clients}", f"-m{self.streams}", f"-D{seconds}",
                f"https://127.0.0.1:{port}{self.path}"]

    @staticmethod
    def parse(text):
        done, succeeded = number(text, r"requests: \d+ total, \d+ started, (\d+) done, (\d+) succeeded")
        wrong = sum(number(text, r"status codes: \d+ 2xx, (\d+) 3xx, (\d+) 4xx, (\d+) 5xx"))
        if "Application protocol: h2" not in text:
            raise RuntimeError("this is not HTTP/2:\n" + text[-2000:])
        # The other columns are not percentiles.
        return {"requests": int(succeeded), "rps": number(text, r"finished in [\d.]+m?s, ([\d.]+) req/s")[0],
                "p50_us": None, "p99_us": None, "errors": int(done - succeeded + wrong)}


@dataclasses.dataclass(frozen=True)
class Handshakes(Command):
    """openssl s_time, several at once: one full TLS 1.3 handshake after the other, without a request or a resumption."""

    clients: int = 4
    warms: bool = False
    logged: bool = False

    def line(self, port, seconds, core):
        return ["taskset", "-c", str(core), "openssl", "s_time", "-new", "-tls1_3", "-time", str(seconds), "-connect",
                f"127.0.0.1:{port}"]

    def run(self, subject, options):
        line = self.line(subject.port, self.seconds(options), options.load_core)
        clients = [subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                    text=True) for _ in range(self.clients)]
        try:
            texts = [client.communicate(timeout=self.seconds(options) + 60)[0] for client in clients]
        finally:
            for client in clients:
                if client.poll() is None:
                    client.kill()
                    client.wait()
        if any(client.returncode for client in clients):
            raise RuntimeError(f"{subject.name}: s_time failed:\n" + texts[0][-2000:])
        return "\n".join(texts)

    def parse(self, text):
        found = [(int(count), int(seconds)) for count, seconds in re.findall(r"(\d+) connections in (\d+) real seconds", text)]
        if len(found) != self.clients:
            raise RuntimeError("cannot read s_time's output:\n" + text[-2000:])
        return {"requests": sum(count for count, _ in found), "rps": sum(count / max(seconds, 1) for count, seconds in found),
                "p50_us": None, "p99_us": None, "errors": 0}


def quietly(load, subject, options):
    """Measures again, up to --retries times, while other programs take the cores; keeps the quietest."""
    best = None
    for attempt in range(options.retries + 1):
        figures = load.measure(subject, options)
        if best is None or figures.get("others", 0) < best.get("others", 0):
            best = figures
        if best.get("others", 0) <= DISTURBED:
            break
        if attempt < options.retries:
            print(f"    {subject.name}: others used {figures['others']:.0%} of a core; again", flush=True)
    return best


def programs(load):
    """The client programs that a load needs."""
    return {"Wrk": ["wrk"], "H2load": ["h2load"], "Handshakes": ["openssl"], "Hops": ["wrk", "cc"]}.get(type(load).__name__, [])


def lacking(load):
    return [program for program in programs(load) if not tools.find(program)]
