"""How the time of a cold start is spent, by the kernel's own tracepoints."""

import os
import pathlib
import re
import statistics
import subprocess
import tempfile

#: What is traced: a process is made, executes its program, sends a message.
EVENTS = ("sched/sched_process_fork", "sched/sched_process_exec", "syscalls/sys_enter_sendmsg")
LINE = re.compile(r"^ *.+-(\d+) +\[\d+\] +\S+ +([\d.]+): (\w+)(.*)$", re.M)
CHILD = re.compile(r"\bchild_pid=(\d+)")
#: The parts of a cold request, in their order.
PARTS = ("until the process is made", "until it executes its program: the jail", "until it says that it is ready: the program",
         "until the answer has come")


class Tracing:
    """A trace of its own, with the clock of `time.monotonic`. As root."""

    def __enter__(self):
        self.mount = tempfile.mkdtemp(prefix="bulkhead-trace-")
        subprocess.run(["mount", "-t", "tracefs", "nodev", self.mount], check=True)
        self.folder = pathlib.Path(self.mount) / "instances" / f"bulkhead-{os.getpid()}"
        self.folder.mkdir()
        self.write("trace_clock", "mono")
        self.write("buffer_size_kb", "16384")
        for event in EVENTS:
            self.write(f"events/{event}/enable", "1")
        return self

    def write(self, name, text):
        (self.folder / name).write_text(text, encoding="ascii")

    def events(self):
        """All so far: the pid, the time, the name and the rest."""
        text = (self.folder / "trace").read_text(encoding="utf-8", errors="replace")
        return [(int(pid), float(at), name, rest) for pid, at, name, rest in LINE.findall(text)]

    def __exit__(self, *_):
        self.folder.rmdir()
        subprocess.run(["umount", self.mount], check=True)
        os.rmdir(self.mount)


def parts_of(events, began, ended):
    """The parts of a request that has started a process between two times, in seconds; none if no process was started."""
    within = [event for event in events if began <= event[1] <= ended]
    children = {int(CHILD.search(rest)[1]): at for _, at, name, rest in within if name == "sched_process_fork"}
    for pid, executed, name, _ in within:
        if name == "sched_process_exec" and pid in children:
            sent = [at for other, at, name, _ in within if other == pid and name == "sys_sendmsg" and at > executed]
            if sent:
                times = [began, children[pid], executed, sent[0], ended]
                return [later - earlier for earlier, later in zip(times, times[1:])]
    return None


def medians(found):
    """The median of each part, in milliseconds, by its name."""
    return {name: 1000 * statistics.median(part) for name, part in zip(PARTS, zip(*found))}
