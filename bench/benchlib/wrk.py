"""Runs wrk and reads what it prints; one measurement of one server, with the CPU time the server used meanwhile."""

import re
import resource
import signal
import subprocess
import time

from . import proc
from .servers import SIZES

SETTLE = 0.2        # seconds after wrk, so that closing connections and writing the log are counted too
DISTURBED = 0.10    # share of a core that others may use before a measurement is called disturbed
UNITS = {"us": 1.0, "ms": 1e3, "s": 1e6, "m": 6e7, "h": 3.6e9}


def arguments(cell, seconds, url, core):
    """The wrk command line of a cell."""
    line = ["taskset", "-c", str(core), "wrk", "-t1", f"-c{cell.connections}", f"-d{seconds}s", "--latency"]
    if cell.mode == "close":
        line += ["-H", "Connection: close"]
    return line + [f"{url}/{SIZES[cell.size][0]}"]


def parse(text):
    """The figures in wrk's output: requests, rate, p50 and p99 in microseconds, errors and answers not 2xx/3xx."""
    def number(pattern, default=None):
        match = re.search(pattern, text)
        if not match and default is None:
            raise RuntimeError("cannot read wrk's output:\n" + text)
        return [float(group) for group in match.groups()] if match else default

    def latency(percent):
        match = re.search(rf"^\s*{percent}%\s+([\d.]+)(us|ms|s|m|h)\s*$", text, re.M)
        return float(match.group(1)) * UNITS[match.group(2)] if match else 0.0

    return {
        "requests": int(number(r"(\d+) requests in")[0]),
        "rps": number(r"Requests/sec:\s+([\d.]+)")[0],
        "p50_us": latency(50),
        "p99_us": latency(99),
        "errors": int(sum(number(r"connect (\d+), read (\d+), write (\d+), timeout (\d+)", [0]))),
        "non_2xx": int(number(r"Non-2xx or 3xx responses: (\d+)", [0])[0]),
    }


def warm_up(server, cell, seconds, core):
    """Half a second of load. wrk takes whole seconds only, so it is told to stop earlier."""
    line = arguments(cell, 60, f"http://127.0.0.1:{server.port}", core)
    load = subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        time.sleep(seconds)
        load.send_signal(signal.SIGINT)
        load.wait(10)
    finally:
        if load.poll() is None:
            load.kill()
            load.wait()


def children_seconds():
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


def measure(server, cell, seconds, warm, core):
    """One measurement: warm-up, then wrk between two readings of the server's CPU time."""
    warm_up(server, cell, warm, core)
    time.sleep(SETTLE)
    line = arguments(cell, seconds, f"http://127.0.0.1:{server.port}", core)
    busy, wrk_cpu, clock = proc.cores(), children_seconds(), time.monotonic()
    before = proc.usage(server.process.pid)
    done = subprocess.run(line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=seconds + 60)
    ran = time.monotonic() - clock
    time.sleep(SETTLE)
    after = proc.usage(server.process.pid)
    elapsed, wrk_cpu = time.monotonic() - clock, children_seconds() - wrk_cpu
    busy = {number: value - busy[number] for number, value in proc.cores().items()}
    if done.returncode != 0 or server.process.poll() is not None:
        raise RuntimeError(f"{server.name}: wrk failed or the server ended:\n{done.stdout}")
    figures = parse(done.stdout)
    cpu, source = proc.used(before, after)
    requests = max(figures["requests"], 1)
    figures.update({
        "cpu_us": cpu * 1e6 / requests,
        "cpu_source": source,
        "core_us": busy[server.core] * 1e6 / requests,
        "cpu_by_program_us": {name: round(value * 1e6 / requests, 3)
                              for name, value in proc.by_program(before, after).items()},
        "server_busy": cpu / ran,
        "wrk_busy": wrk_cpu / ran,
        "others": max(busy[server.core] - cpu, busy[core] - wrk_cpu, 0.0) / elapsed,
    })
    return figures


def measure_quietly(server, cell, options):
    """Measures again, up to --retries times, while other programs take the cores; keeps the quietest."""
    best = None
    for attempt in range(options.retries + 1):
        figures = measure(server, cell, options.seconds, options.warmup, options.wrk_core)
        if best is None or figures["others"] < best["others"]:
            best = figures
        if best["others"] <= DISTURBED:
            break
        if attempt < options.retries:
            print(f"    {server.name}: others used {figures['others']:.0%} of a core; again", flush=True)
    return best
