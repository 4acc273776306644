"""Control groups of a process."""

from pathlib import Path


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
