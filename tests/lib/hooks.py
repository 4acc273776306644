"""What pytest is told of the tests in this repository: their options, their markers, how they are printed, which run
alone. Both conftest.py files import everything here.

Tests run in several processes (pytest-xdist), a class at a time. A test that measures time, loads the machine or uses
something that exists once on a machine has the marker `alone`: no other test of this run goes on meanwhile.
"""

import contextlib
import fcntl
import json
import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path

import durations
import machine
import pytest

MARKERS = {
    "root": "starts servers as root, with an own uid for each process",
    "rootless": "can run without root as well (`--rootless` runs these)",
    "slow": "takes more than ten seconds",
    "protocol": "tries the protocols with other programs",
    "attack": "attacks a server, or measures what an attack costs others",
    "alone": "runs while no other test does",
}


def pytest_addoption(parser):
    group = parser.getgroup("bulkhead")
    group.addoption("--rootless", action="store_true", help="run the servers as uid 65534")
    group.addoption("--write-docs", action="store_true", help="renew the tables of the documentation")
    group.addoption("--peer", choices=("bulkhead", "nginx"), default="bulkhead", help="the server that is tried")
    group.addoption("--whole", action="store_true", help="leave nothing out of the longest protocol tests")
    group.addoption("--name", action="append", default=[], help="a part of the names of the tests to run")
    group.addoption("--alone", action="store_true", help="run while no other test does")
    group.addoption("--results", help="where the results are written as JSON")


def pytest_configure(config):
    for name, meaning in MARKERS.items():
        config.addinivalue_line("markers", f"{name}: {meaning}")
    # harness.py and its like read these when they are imported, which is later.
    option = config.option
    os.environ["BULKHEAD_TEST_ROOTLESS"] = "1" if option.rootless else ""
    os.environ["BULKHEAD_WRITE_DOCS"] = "1" if option.write_docs else ""
    os.environ["BULKHEAD_PROTOCOL_PEER"] = option.peer
    os.environ["BULKHEAD_PROTOCOL_WHOLE"] = "1" if option.whole else ""
    # A run that is asked to end leaves no server behind.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    machine.metronome()
    if not hasattr(config, "workerinput"):
        os.environ["BULKHEAD_TEST_LOCKS"] = folder = tempfile.mkdtemp(prefix="bulkhead-locks-")
        config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
        config.pluginmanager.register(Results(config), "bulkhead-results")


def pytest_collection_modifyitems(config, items):
    chosen, left = [], []
    for item in items:
        mark(item)
        fits = not config.option.name or any(part in name_of(item.nodeid) for part in config.option.name)
        if config.option.rootless and not item.get_closest_marker("rootless"):
            fits = False
        (chosen if fits else left).append(item)
    items[:] = in_order(chosen, "rootless: " if config.option.rootless else "")
    config.hook.pytest_deselected(items=left)


def in_order(items, prefix):
    """The classes that take longest first, so that none of them is the last to begin; those that run alone at the end.

    A test that runs alone waits until all others that have begun are over, and keeps more from beginning. At the end
    that happens once.
    """
    known = durations.known()
    took = lambda item: known.get((prefix + name_of(item.nodeid)).rpartition(".")[0], 0)
    return sorted(items, key=lambda item: (item.get_closest_marker("alone") is not None, -took(item)))


def mark(item):
    """Adds the markers that follow from where a test is and from the decorators of harness.py."""
    method = getattr(item, "function", None)
    able = getattr(item.cls, "rootless", False) or getattr(method, "rootless", False)
    item.add_marker("rootless" if able else "root")
    if item.path.parent.name == "protocol":
        item.add_marker("protocol")


def name_of(nodeid):
    """`test_file.Class.test_name`, whatever the folder."""
    path, *names = nodeid.split("::")
    return ".".join([Path(path).stem, *names])


def whole(report, root):
    """The id of a test with all of its path, of which tests beside this folder, as those of the parts in C, lack the beginning.

    The place of a test's function has it, but names the file of the class that the test's class inherits the function from.
    """
    path, *names = report.nodeid.split("::")
    location = getattr(report, "location", None)
    if location and not (root / path).exists():
        path = str(Path(location[0]).with_name(Path(path).name))
    return "::".join([path, *names])


@contextlib.contextmanager
def only_one(exclusive):
    """Shares the machine with other tests, or has it alone.

    A test that wants to be alone queues like all others, so that those that come later do not overtake it. The locks
    end with the process that has them.
    """
    folder = Path(os.environ["BULKHEAD_TEST_LOCKS"])
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
    queue, machine = (os.open(folder / name, flags, 0o600) for name in ("queue", "machine"))
    try:
        fcntl.flock(queue, fcntl.LOCK_EX)
        fcntl.flock(machine, fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH)
        fcntl.flock(queue, fcntl.LOCK_UN)
        yield
    finally:
        # Unlocked in so many words: a child that was forked may have the descriptor still.
        fcntl.flock(machine, fcntl.LOCK_UN)
        os.close(queue)
        os.close(machine)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item):
    exclusive = item.config.option.alone or item.get_closest_marker("alone")
    with only_one(exclusive):
        item.machine, item.stood = machine.pressure(), machine.metronome().until_now()
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item):
    """Has a failure say what the machine did meanwhile, and for how long it stood still since the test began."""
    report = yield
    if report.failed:
        stood = machine.metronome().until_now() - item.stood
        report.user_properties.append(("stood", stood))
        report.sections.append(("machine", f"stood still for {stood:.1f} s; {machine.since(item.machine)}"))
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_report_teststatus(report):
    """No letters: `Results` prints a line for each test. A category is what the summary of failures goes by."""
    if report.failed:
        return ("failed" if report.when == "call" else "error"), "", ""
    return ("skipped" if report.skipped else "passed" if report.when == "call" else ""), "", ""


class Results:
    """Prints a line for each test that is over, and keeps what became of all."""

    def __init__(self, config):
        self.config, self.tests = config, {}
        self.prefix = "rootless: " if config.option.rootless else ""

    def pytest_runtest_logreport(self, report):
        test = self.tests.setdefault(report.nodeid, {
            "name": self.prefix + name_of(report.nodeid), "nodeid": self.absolute(report), "outcome": "ok", "why": "",
            "seconds": 0.0,
        })
        test["seconds"] += report.duration
        if report.failed and test["outcome"] != "FAILED":
            test |= {"outcome": "FAILED", "why": last_line(report.longreprtext), "text": said(report)}
            test["stood"] = dict(report.user_properties).get("stood", 0.0)
        elif report.skipped and test["outcome"] == "ok" and not hasattr(report, "context"):
            test |= {"outcome": "skipped", "why": report.longrepr[2].removeprefix("Skipped: ")}
        if report.when == "teardown":
            how = f"skipped: {test['why']}" if test["outcome"] == "skipped" else test["outcome"]
            self.write(f"{test['name']} ... {how} ({test['seconds']:.1f} s)")

    def absolute(self, report):
        """The id by which pytest finds the test again, from whatever folder."""
        return str(self.config.rootpath / whole(report, self.config.rootpath))

    def pytest_collectreport(self, report):
        if report.failed:
            why = last_line(report.longreprtext)
            name = self.prefix + name_of(report.nodeid)
            self.tests[report.nodeid] = {
                "name": name, "nodeid": self.absolute(report), "outcome": "FAILED", "why": why, "seconds": 0.0,
            }
            self.write(f"{name} ... FAILED")

    def write(self, line):
        terminal = self.config.pluginmanager.getplugin("terminalreporter")
        terminal.ensure_newline()
        terminal.write_line(line)
        sys.stdout.flush()

    def pytest_sessionfinish(self):
        if self.config.option.results:
            Path(self.config.option.results).write_text(json.dumps(list(self.tests.values())))


def said(report):
    """A failure, and what the machine did meanwhile."""
    return "\n".join([report.longreprtext, *(text for name, text in report.sections if name == "machine")])


def last_line(text):
    """The last line of a failure."""
    lines = [line.removeprefix("E").strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:200] if lines else ""
