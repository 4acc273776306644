"""After many reloads, with sites and listeners that come and go under load, no process has more than it had at first.

Memory, descriptors, threads, uids, control groups and mounts are counted when the same configuration holds again and what it
has replaced has ended. What grows with the number of changes is higher at each such moment than at the one before; what is
only not given back at once goes up and down. So the least of the last third is compared with the most of the first, which
begins after a warm-up.

BULKHEAD_SOAK=1200 goes on for so many seconds, with a reload every five (`make soak`).
"""

import os
import time
import unittest

import pytest

import cgroups
from client import until
from harness import Process, rootless_too, wait_for_time
from steady import KINDS, Changing, Held, loads

pytestmark = [pytest.mark.alone, pytest.mark.slow]

SECONDS = int(os.environ.get("BULKHEAD_SOAK", 14))
#: Between two reloads; by default none waits.
PAUSE = 5 if SECONDS > 60 else 0
#: What is measured after so many rounds, each of which makes every kind of change, is compared.
WARM_UP = 2 if SECONDS > 60 else 1
#: LIMIT: what a process may have more at the end: KiB of what its allocator keeps, and descriptors of as many sites as
#: may end at once. A number that is not used again costs the logger a descriptor, three in each round. And one thread:
#: that which closes what others have sent begins with the first that has to wait.
MORE = {"KiB": 1024, "descriptors": 5, "threads": 1}


def memory(process):
    """What memory of a process is of no file, in KiB: how many share the pages of a program depends on others."""
    lines = (process.folder / "smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Anonymous:"))


def measure(server, launcher):
    """What there is, by process and kind."""
    found = {}
    steady = ("gate", "site steady", "bin/probe", "bin/socket", "logger", "admin")
    for process in [launcher, *(one for one in server.processes() if one.title.startswith(steady))]:
        name = f"{process.title} {process.pid}" if process is not launcher else "launcher"
        found[name, "KiB"] = memory(process)
        found[name, "descriptors"] = len(process.descriptors())
        found[name, "threads"] = int(process.status()["Threads"])
        found[name, "mounts"] = len((process.folder / "mountinfo").read_text().splitlines())
    found["all", "processes"] = len(server.processes())
    uids = server.folder / "state/uids"
    found["all", "uids"] = len(uids.read_text().splitlines()) if uids.exists() else 0
    found["all", "control groups"] = groups(server)
    return found


def groups(server):
    """Control groups of this server's processes, those of processes that have ended among them."""
    own = {folder.parent for process in server.processes() for folder in cgroups.groups(process).values()}
    return sum(path.is_dir() for top in own if "/bulkhead-" in str(top) for path in top.iterdir())


def grown(rounds):
    """What is more at the end than it was, of what there was at both times."""
    third = max(len(rounds) // 3, 1)
    first, last, found = rounds[:third], rounds[-third:], []
    for what in rounds[0]:
        if not all(what in one for one in first + last):
            continue
        before, after = max(one[what] for one in first), min(one[what] for one in last)
        if after > before + MORE.get(what[1], 0):
            found.append(f"{' '.join(what)}: {before}, then {after} ({[one[what] for one in rounds]})")
    return found


@rootless_too
@unittest.skipUnless(os.geteuid() == 0, "another's memory and descriptors are for root alone to see")
class Soak(unittest.TestCase):
    def test_nothing_grows(self):
        with Changing() as server, Held(server, 4, 0, 0) as held:
            launcher, rounds, until_ = Process(server.launcher.pid), [], time.monotonic() + SECONDS
            count, failed = len(server.processes()), []
            while len(rounds) < WARM_UP + 3 or time.monotonic() < until_:
                running = loads(server, 2)
                for _ in KINDS:
                    began = time.monotonic()
                    server.next_change()
                    held.touch()
                    wait_for_time(max(PAUSE - (time.monotonic() - began), 0))
                failed += [load.text for load in (one.finish() for one in running) if load.failed]
                # What was replaced finishes what it has begun, and ends.
                self.assertTrue(until(lambda: len(server.processes()) == count, 20), f"left over: {server.processes()}")
                rounds.append(measure(server, launcher))
            print(f"{len(rounds) * len(KINDS)} reloads; the launcher: "
                  f"{[one['launcher', 'KiB'] for one in rounds]} KiB")
            self.assertEqual(failed + held.lost, [])
            self.assertEqual(grown(rounds[WARM_UP:]), [])


if __name__ == "__main__":
    unittest.main()
