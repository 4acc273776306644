"""CPU accounting through /proc: the time used by a server's processes, all of them, and by each core.

A server is the process that was started, all its descendants (by PPid), and whatever is still in the session it
was started in (so that an orphaned helper is not lost). Time is the first field of /proc/PID/task/*/schedstat:
nanoseconds on a core, user and system, summed over all threads. The coarser utime+stime+cutime+cstime of
/proc/PID/stat (ticks of 10 ms) is kept beside it, because it still knows threads and children that have ended.
"""

import os

TICK = os.sysconf("SC_CLK_TCK")


def _stat(pid):
    """The fields of /proc/PID/stat from the state on (index 0 = field 3), or None if it has gone."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()
    except OSError:
        return None


def family(root):
    """The pids of a server: root, its descendants, and the rest of its session. {pid: start time}"""
    parents, sessions, starts = {}, {}, {}
    for name in os.listdir("/proc"):
        fields = _stat(name) if name.isdigit() else None
        if fields:
            pid = int(name)
            parents[pid], sessions[pid], starts[pid] = int(fields[1]), int(fields[3]), int(fields[19])
    members = {root} | {pid for pid, session in sessions.items() if session == root}
    grown = True
    while grown:
        new = {pid for pid, parent in parents.items() if parent in members} - members
        members |= new
        grown = bool(new)
    return {pid: starts[pid] for pid in members if pid in starts}


def alive(pid, start):
    """Whether this very process (not a later one with its number) still runs."""
    fields = _stat(pid)
    return bool(fields) and int(fields[19]) == start and fields[0] != "Z"


def usage(root):
    """CPU used so far by a server: {'threads': {(pid, tid): ns}, 'ticks': {pid: ticks}}"""
    threads, ticks = {}, {}
    for pid in family(root):
        fields = _stat(pid)
        if not fields:
            continue
        ticks[pid] = sum(int(value) for value in fields[11:15])
        for tid in _tasks(pid):
            try:
                with open(f"/proc/{pid}/task/{tid}/schedstat", encoding="ascii") as file:
                    threads[(pid, tid)] = int(file.read().split()[0])
            except OSError:
                continue
    return {"threads": threads, "ticks": ticks}


def _tasks(pid):
    try:
        return [int(name) for name in os.listdir(f"/proc/{pid}/task")]
    except OSError:
        return []


def used(before, after):
    """Seconds of CPU between two usages: (seconds, source). Ticks win only if threads ended and took time along."""
    fine = sum(ns - before["threads"].get(key, 0) for key, ns in after["threads"].items()) / 1e9
    coarse = sum(n - before["ticks"].get(pid, 0) for pid, n in after["ticks"].items()) / TICK
    if coarse > fine * 1.05 + 0.05:
        return coarse, "stat"
    return fine, "schedstat"


def by_program(before, after):
    """Seconds of CPU by program name, largest first, to see where a server of several processes spends it."""
    names = {}
    for (pid, tid), ns in after["threads"].items():
        try:
            with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
                name = file.read().strip()
        except OSError:
            name = "(ended)"
        names[name] = names.get(name, 0) + (ns - before["threads"].get((pid, tid), 0)) / 1e9
    return dict(sorted(names.items(), key=lambda item: -item[1]))


def strays(root, core):
    """The threads of a server that may run on another core than the one it was pinned to."""
    found = []
    for pid in family(root):
        for tid in _tasks(pid):
            try:
                if os.sched_getaffinity(tid) != {core}:
                    found.append(tid)
            except OSError:
                continue
    return found


def cores():
    """Busy seconds of each core since boot, everything but idle and iowait: {number: seconds}"""
    busy = {}
    with open("/proc/stat", encoding="ascii") as file:
        for line in file:
            name, *fields = line.split()
            if name.startswith("cpu") and name != "cpu":
                user, nice, system, _idle, _wait, irq, softirq, steal = map(int, fields[:8])
                busy[int(name[3:])] = (user + nice + system + irq + softirq + steal) / TICK
    return busy
