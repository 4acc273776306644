"""What else went on on the machine while a test ran: whether a failure is the server's, or all processes stood still."""

import functools
import os
import threading
import time
from pathlib import Path

#: Seconds between two beats of the metronome, and by how much more a delay is the machine's.
BEAT, LATE = 0.1, 0.5
PRESSURE = ("cpu", "memory", "io")
#: Columns of the first line of /proc/stat: of what a machine waits for.
WAITS = {"iowait": 5, "steal": 8}


def pressure():
    """Seconds, since the machine started, in which some process waited, or all did, for each resource."""
    found = {}
    for name in PRESSURE:
        try:
            lines = Path(f"/proc/pressure/{name}").read_text().splitlines()
        except OSError:
            continue
        for line in lines:
            kind, *fields = line.split()
            found[f"{name} {kind}"] = int(dict(field.split("=") for field in fields)["total"]) / 1e6
    columns = Path("/proc/stat").read_text().split("\n", 1)[0].split()
    return found | {name: int(columns[at]) / os.sysconf("SC_CLK_TCK") for name, at in WAITS.items()}


def since(before):
    """One line about what the machine waited for since `before`, and what is free and busy now."""
    waited = [f"{name} {seconds - before.get(name, 0):.1f} s" for name, seconds in pressure().items()]
    free = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())["MemAvailable"].split()[0]
    load = Path("/proc/loadavg").read_text().split()[3]
    return f"waited for: {', '.join(waited)}; {int(free) >> 10} MiB available, {load} run"


def late(seconds):
    """How much of this delay, beyond what was asked for, is the machine's standing still."""
    return seconds if seconds > LATE else 0


class Metronome(threading.Thread):
    """Beats, and counts how long this machine let the beats wait."""

    def __init__(self):
        super().__init__(daemon=True)
        self.stood, self.last = 0.0, time.monotonic()
        self.start()

    def run(self):
        while True:
            time.sleep(BEAT)
            now = time.monotonic()
            self.stood += late(now - self.last - BEAT)
            self.last = now

    def until_now(self):
        """Seconds for which the machine stood still so far, a beat that is due among them."""
        last, stood = self.last, self.stood
        return stood + late(time.monotonic() - last - BEAT)


@functools.cache
def metronome():
    """The metronome of this process, which beats from the first call on."""
    return Metronome()


#: What a process waits for that is neither its own work nor that of another one which it has asked.
OF_THE_MACHINE = ("io some", "memory some", "steal")


class Waits:
    """How long processes have waited, since this was made, for processors, disks and memory. What else was measured is
    their own time.

    Processes that wait at the same time each count, so that on a busy machine this is more than an answer was late by.
    """

    def __init__(self, processes):
        self.delays, self.machine = delays(processes), pressure()

    def seconds(self, processes):
        """Of these processes; of one that was not there before, since it was started."""
        own = sum(max(0.0, seconds - self.delays.get(pid, 0.0)) for pid, seconds in delays(processes).items())
        now = pressure()
        return own + sum(now.get(name, 0.0) - self.machine.get(name, 0.0) for name in OF_THE_MACHINE)


def delays(processes):
    """Seconds, by process, for which its threads were ready to run and did not run; the caller's thread as well."""
    found = {"caller": delay(Path("/proc/thread-self"))}
    for process in processes:
        found[process.pid] = sum(map(delay, (process.folder / "task").glob("*")))
    return found


def delay(thread):
    """The same of a thread; none, if it has ended."""
    try:
        return int((thread / "schedstat").read_text(encoding="ascii").split()[1]) / 1e9
    except OSError:
        return 0.0
