"""What the kernel says of a process from outside: the facts that a layer of its jail is seen by."""

import os

#: Kinds of namespaces, as `/proc/PID/ns` names them.
NAMESPACES = ("cgroup", "ipc", "mnt", "net", "pid", "uts")
STATUS = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp", "Seccomp_filters", "Umask")


def of(process):
    """Facts of one process; none of them names a number that differs from one start to the next."""
    status = process.status()
    found = {name: status.get(name) for name in STATUS}
    found["uid"] = "root" if int(status["Uid"].split()[0]) == 0 else "own"
    found["session"] = "own" if os.getsid(process.pid) == process.pid else "shared"
    limits = process.folder.joinpath("limits").read_text().splitlines()[1:]
    found |= {line[:26].strip(): " ".join(line[26:].split()[:2]) for line in limits}
    for kind in NAMESPACES:
        own = os.readlink(process.folder / "ns" / kind) != os.readlink(f"/proc/self/ns/{kind}")
        found[f"{kind} namespace"] = "own" if own else "the machine's"
    groups = process.folder.joinpath("cgroup").read_text()
    found["control group"] = "own" if "/bulkhead-" in groups else "the launcher's"
    found["root"] = "the machine's" if os.path.samefile(process.folder / "root", "/") else "own"
    # Seen from outside, as the process would name it.
    found["folder"] = "/" if os.path.samefile(process.folder / "cwd", process.folder / "root") else "another"
    return found


def changed(before, after):
    """The names of facts that are not what they were."""
    return sorted(name for name in before | after if before.get(name) != after.get(name))
