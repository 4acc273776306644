"""Ends what a test has started, and all that this started: also where the test fails, and where the tests are killed.

Runs in: the tests; and as a program, the keeper, which outlives them by a moment. Each command of the tests leads a
session of its own (`start_new_session`); whatever belongs to the session, or descends from it, is ended with it. Never:
ends a process that is not of such a session.
"""

import glob
import os
import signal
import subprocess
import sys
import time

_keepers = []


def members(leader):
    """The living processes of the session `leader`, and those that descend from one of them."""
    parents, found = {}, {leader}
    for path in glob.glob("/proc/[0-9]*/stat"):
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                state, parent, _, session = file.read().rpartition(")")[2].split()[:4]
        except OSError:
            continue
        pid = int(path.split("/")[2])
        if state not in "ZX":
            parents[pid] = int(parent)
            if int(session) == leader:
                found.add(pid)
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found & parents.keys()


def end_session(leader, patience=0.0):
    """Waits for the session to end by itself, and kills what is left of it then. One that makes processes as fast as
    they are killed is caught by its group first."""
    end = time.monotonic() + patience
    while (left := members(leader)) and time.monotonic() < end:
        time.sleep(0.01)
    end = time.monotonic() + 10
    while left and time.monotonic() < end:
        try:
            os.killpg(leader, signal.SIGKILL)
        except ProcessLookupError:
            pass
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        time.sleep(0.005)
        left = members(leader)


def _tell_keeper(word, leader):
    if not _keepers:
        _keepers.append(subprocess.Popen([sys.executable, "-I", __file__], stdin=subprocess.PIPE, bufsize=0,
                                         start_new_session=True))
    _keepers[0].stdin.write(f"{word} {leader}\n".encode())


def start(command, **more):
    """Starts a command as the leader of a session, which ends with `stop`, or with the tests."""
    process = subprocess.Popen(command, start_new_session=True, **more)
    _tell_keeper("begin", process.pid)
    return process


def stop(process, patience=0.0):
    """Asks the command to end, and sees to it that all of its session has ended."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            pass
    end_session(process.pid, patience)
    process.wait(5)
    _tell_keeper("end", process.pid)


def keep():
    """Hears of sessions until the tests have ended, in whatever way; then none of these sessions is left."""
    open_ones = set()
    for line in sys.stdin:
        word, leader = line.split()
        (open_ones.add if word == "begin" else open_ones.discard)(int(leader))
    for leader in open_ones:
        end_session(leader)


if __name__ == "__main__":
    # Ctrl-C is for the tests; their end is ours.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    keep()
