"""Control groups of a process, and one with a limit for a test."""

import os
import time
from pathlib import Path
from types import SimpleNamespace

from client import until


def mounts():
    """Where the kernel's hierarchies are: by controller for version 1, under the empty name for version 2."""
    found = {}
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ", 2)
        if kind == "cgroup":
            found |= {option: Path(before.split()[4]) for option in options.split(",")}
        elif kind == "cgroup2":
            found[""] = Path(before.split()[4])
    return found


def groups(process):
    """The folders of a process's control groups, by controller."""
    where = mounts()
    lines = process.folder.joinpath("cgroup").read_text().splitlines()
    named = ((names.split(","), path) for _, names, path in (line.split(":", 2) for line in lines))
    return {name: where[name] / path.lstrip("/") for names, path in named for name in names if name in where}


def with_memory(case, size):
    """The words that start a program in a control group with so many bytes of memory; see `with_limit`."""
    return with_limit(case, "memory", ("memory.limit_in_bytes", "memory.max"), size)


def with_limit(case, controller, files, limit):
    """The words that start a program in a control group with a limit, whose file has a name in each version; the group goes with
    the test. None if no such group can be made here."""
    found = groups(SimpleNamespace(folder=Path("/proc/self")))
    top = mounts().get("")
    parent, file = found.get(controller), files[0]
    if parent is None and top and controller in (top / "cgroup.subtree_control").read_text().split():
        parent, file = top, files[1]
    if parent is None or not os.access(parent, os.W_OK):
        return []
    group = parent / f"limited-{os.getpid()}-{time.monotonic_ns()}"
    group.mkdir()
    case.addCleanup(until, lambda: is_removed(group), 10)
    (group / file).write_text(str(limit))
    return ["sh", "-c", 'echo $$ > "$0/cgroup.procs" && exec "$@"', str(group)]


def used_by(words):
    """Bytes of memory that the group has whose words these are."""
    group = Path(words[-1])
    return next(int((group / name).read_text()) for name in ("memory.current", "memory.usage_in_bytes") if (group / name).exists())


def is_removed(group):
    """Whether a group could be removed, with those in it: the last process leaves it a moment after its end."""
    try:
        for folder in [*sorted(group.glob("**/"), reverse=True)]:
            folder.rmdir()
    except OSError:
        return not group.exists()
    return True
