"""Limits below, at and above what always-on sites need: roles run, what there is no room for waits, and comes when there is.

Every limit (processes of a control group and of a user, descriptors of the launcher by its own limit and by the kernel's, memory of a
control group) is tried with a server of its own.
While there is no room for all sites: gates accept, "serving on" is said, sites that run answer 200 and the others 503 at once, the log
stays short, and a role can be replaced and the server upgraded. The short form tries what is too low; BULKHEAD_SWEEP=whole (`make
sweep`) each limit below, at and above the need.
"""

import contextlib
import json
import os
import subprocess
import tempfile
import time
import unittest
from collections import Counter
from pathlib import Path

import pytest

from cgroups import used_by, with_limit, with_memory
from client import Connection, until
from every_role import everything
from harness import NOBODY, ROOTLESS, Process, configuration, rootless_too, service, site
from upgrading import UpgradingServer

pytestmark = pytest.mark.alone

CAP_SYS_RESOURCE = 24
MIB = 1 << 20
SWEEP = os.environ.get("BULKHEAD_SWEEP") == "whole"
#: Bytes of error.log, however many sites wait and however long.
LOG_MAX = 100_000
#: Seconds within which a site is answered for that waits.
SOON = 1
ROLES = {"logger": 1, "admin": 1, "gate": 2}
#: The user of a server that is not started as root.
#: One that nothing else is started as: nobody runs databases of other tests.
USER = os.geteuid() or NOBODY - 2
#: Bytes of memory that are no limit, and of a page.
FAR, PAGE = 1 << 40, os.sysconf("SC_PAGESIZE")


class Room(UpgradingServer):
    """A server with always-on sites, of which some may wait; `limit` has the words before its command, and how it is raised."""

    uid = USER

    def __init__(self, count, limit=None, sites=None, **more):
        names = [f"s{number}" for number in range(count)]
        of_names = [site(name, [service("probe")] if number < 2 else []) for number, name in enumerate(names)]
        super().__init__(sites or of_names, **more)
        self.hosts = [f"{name}.test" for name in names]
        if limit:
            self.prefix = limit

    def need(self, of):
        """How much `bulkhead check` says that this server needs of it where it is started, and the limit that is reached first."""
        command = [*self.prefix, str(self.own("bulkhead", self.folder)), "check", "--need", "--json", str(self.config)]
        answer = subprocess.run(command, capture_output=True, text=True, check=True, cwd=self.folder, **self._user())
        return next((one["needed"], one["limit"]) for one in json.loads(answer.stdout) if one["resource"] == of)

    def ask_all(self, kills=False):
        """The statuses of all sites; raises if one is answered late, or told nothing of when to come again. While something
        `kills` workers, a connection may be lost with the one that has it."""
        found = Counter()
        for host in self.hosts:
            began = time.monotonic()
            try:
                with Connection(self.port, timeout=20) as connection:
                    answer = connection.get("/", host)
            except ConnectionError:
                if not kills:
                    raise
                found["lost"] += 1
                continue
            took = time.monotonic() - began
            if answer.status == 503 and (took > SOON or answer.headers.get("retry-after") != "5"):
                raise AssertionError(f"{host}: 503 after {took:.1f} s, {answer.headers}")
            found[answer.status] += 1
        return found

    def waiting(self):
        """The processes that wait for room, and for what."""
        answer = self.command("status", "--json", "--run-dir", "run")
        processes = json.loads(answer.stdout)["processes"]
        return {one["name"]: one["last_exit"] for one in processes if one["state"] == "waits for room"}

    def roles(self):
        found = Counter(process.title.split(" ")[0] for process in self.processes())
        return {role: found[role] for role in ROLES}

    def role_pids(self):
        return {process.pid for process in self.processes() if process.title.split(" ")[0] in ROLES}


def raise_group(words, names):
    """Takes the limit of the group away that these words put a program into."""
    group = Path(words[-1])
    for name, none in names:
        with contextlib.suppress(OSError):
            (group / name).write_text(none)


def threads_of(uid):
    """How many threads a user has."""
    found = 0
    for folder in Path("/proc").glob("[0-9]*"):
        # One may end meanwhile.
        with contextlib.suppress(OSError):
            status = Process(int(folder.name)).status()
            found += int(status["Threads"]) if status["Uid"].split()[0] == str(uid) else 0
    return found


def is_capable():
    """Whether root passes the limits that it was given."""
    return bool(int(Process(os.getpid()).status()["CapEff"], 16) >> CAP_SYS_RESOURCE & 1)


def with_memory_of(case, size):
    """The words that start a program in a control group with so many bytes of memory."""
    words = with_memory(case, size)
    if not words:
        case.skipTest("no control group with a limit of memory can be made here")
    return words


class Limits(unittest.TestCase):
    def check(self, server, waits):
        """What holds whatever there is room for; how many sites wait."""
        self.assertEqual(server.roles(), ROLES)
        found = server.ask_all()
        self.assertEqual(set(found) - {200, 503}, set(), found)
        waiting = server.waiting()
        if waits:
            self.assertGreater(found[200], 0, server.log())
            self.assertGreater(found[503], 0, found)
            self.assertIn("waiting for room: ", server.stderr())
            said = [line for line in server.log().splitlines() if " waits for room" in line and " reload: " not in line]
            self.assertEqual(len(said), 1, server.log())
        else:
            self.assertEqual((found[503], waiting, server.log().count("waits for room")), (0, {}, 0))
        self.assertNotIn("is broken", server.log())
        self.assertLess(len(server.log()), LOG_MAX)
        return waiting

    def replace_all(self, server):
        """A role is replaced, and everything, or that is refused in one sentence; nothing is lost of what runs."""
        before = server.ask_all()[200]
        for name in ("gate", "logger", "s0"):
            answer = server.command("relaunch", "--config", server.config, name)
            if answer.returncode:
                self.assertIn("there is no room for another process", answer.stderr)
                self.assertNotIn(name, ("gate", "logger"))
                self.assertEqual(answer.stderr.count(" may have"), 1, answer.stderr)
        server.put_programs()
        answer = server.command("upgrade", "--run-dir", "run", timeout=90)
        if answer.returncode:
            self.assertLess(len(answer.stderr), 4000)
        # A process of before ends a moment after its successor serves.
        self.assertTrue(until(lambda: server.roles() == ROLES, 20), server.roles())
        self.assertTrue(until(lambda: server.ask_all()[200] >= before, 20), server.log())
        gate = server.process("gate")
        gate.kill()
        self.assertTrue(until(lambda: server.roles() == ROLES and gate not in server.processes(), 10), server.log())
        self.assertLess(len(server.log()), LOG_MAX)

    def sweep(self, of, limits):
        """Tries each of the limits that `limits` makes of the need; `limited` has a server with one."""
        with self.limited(None) as server:
            need, _ = server.need(of)
        for limit in limits(need):
            with self.subTest(limit, need=need), self.limited(limit) as server:
                needed, bound = server.need(of)
                self.assertEqual((needed, bound["most"]), (need, limit))
                says = "may need" in server.log()
                self.assertEqual(says, limit < need, server.log())
                if says:
                    self.assertIn(bound["remedy"], server.log())
                waits = bool(server.waiting())
                self.assertTrue(says or not waits, server.log())
                self.check(server, waits)
                self.replace_all(server)
                yield server

    def leave(self, server, count):
        """Has only the last of its sites, for which there is room then."""
        left = server.sites[-count:]
        server.hosts = [f"{about['name']}.test" for about in left]
        self.assertIsNone(server.reload(left))

    def come_back(self, server):
        """There is room now."""
        self.assertTrue(until(lambda: server.ask_all()[200] == len(server.hosts), 30), server.log())
        self.assertEqual(server.waiting(), {})
        self.assertIn("there is room for all processes again", server.log())


@unittest.skipIf(ROOTLESS, "control groups are root's")
class Processes(Limits):
    SITES = 40

    def limited(self, limit):
        words = with_limit(self, "pids", ("pids.max", "pids.max"), limit or "max")
        if not words:
            self.skipTest("no control group with a limit of processes can be made here")
        return Room(self.SITES, words)

    def test_less_than_the_need(self):
        with self.limited(36) as server:
            waiting = self.check(server, waits=True)
            self.assertEqual({why.partition(":")[0] for why in waiting.values()}, {"processes"})
            text = server.command("status", "--run-dir", "run").stdout
            self.assertIn("waits for room: ", text)
            self.assertIn("there is not enough of processes: raise `TasksMax=`", text)
            self.replace_all(server)
            raise_group(server.prefix, [("pids.max", "max")])
            self.come_back(server)

    def test_a_site_that_goes_makes_room(self):
        with self.limited(36) as server:
            waits = next(name for name in server.waiting() if "/" not in name)
            self.assertEqual(server.status("/", f"{waits}.test"), 503)
            left = [about for about in server.sites if about["name"] not in ("s0", "s1", "s2", "s3")]
            self.assertIsNone(server.reload(left))
            self.assertTrue(until(lambda: server.status("/", f"{waits}.test") == 200, 10), server.log())

    def test_a_service_that_waits_is_answered_for_by_its_site(self):
        words = with_limit(self, "pids", ("pids.max", "pids.max"), 30)
        if not words:
            self.skipTest("no control group with a limit of processes can be made here")
        # What answers there knows nothing of such a path: 404 is its own.
        services = [service(f"p{number}", f"/p{number}", command=["bin/probe"]) for number in range(20)]
        with Room(0, words, sites=[site("main", services)]) as server:
            waiting = [f"/p{name.removeprefix('main/p')}" for name in server.waiting()]
            self.assertTrue(0 < len(waiting) < len(services), waiting)
            ask = lambda path: server.status(path, timeout=SOON)
            self.assertEqual({ask(path) for path in waiting}, {503})
            self.assertEqual((ask("/"), ask("/p0")), (200, 404))
            raise_group(server.prefix, [("pids.max", "max")])
            self.assertTrue(until(lambda: {ask(path) for path in waiting} == {404}, 10), server.log())

    def test_a_change_for_which_there_is_no_room_is_refused_in_one_sentence(self):
        with self.limited(36) as server:
            more = [site(f"new{number}") for number in range(5)]
            said = server.reload([*server.sites, *more])
            self.assertEqual(said.count("there is no room") + said.count("waits for room"), 1, said)
            self.assertIn("raise `TasksMax=`", said)
            self.check(server, waits=True)

    @unittest.skipUnless(SWEEP, "BULKHEAD_SWEEP is not set")
    def test_every_limit(self):
        limits = lambda need: (need // 2, need - 10, need - 1, need, need + 1, 2 * need)
        for server in self.sweep("processes", limits):
            raise_group(server.prefix, [("pids.max", "max")])
            self.assertTrue(until(lambda server=server: server.ask_all()[200] == len(server.hosts), 30), server.log())


@pytest.mark.alone
@rootless_too
@unittest.skipUnless(ROOTLESS, "root has no such limit")
class OfAUser(Limits):
    """RLIMIT_NPROC of a user's server, which counts what else the user runs as well: no other test's servers, therefore."""

    SITES = 40

    def limited(self, limit):
        # Those of a server before count until the kernel has forgotten them.
        until(lambda: threads_of(USER) <= self.others, 5)
        return Room(self.SITES, ["prlimit", f"--nproc={limit or 5000}:{limit or 5000}"])

    def test_less_than_the_need(self):
        limit = 40 + self.others
        with self.limited(limit) as server:
            needed, _ = server.need("processes")
            # What else the user runs is not known beforehand.
            if limit < needed:
                self.assertIn(f"and this user may have {limit}: raise `LimitNPROC=`", server.log())
            waiting = self.check(server, waits=True)
            self.assertEqual({why.partition(":")[0] for why in waiting.values()}, {"processes"})
            self.replace_all(server)
            self.leave(server, 10)
            self.come_back(server)

    def setUp(self):
        #: What the user runs that is none of this test's.
        self.others = threads_of(USER)

    def test_what_else_the_user_runs_counts(self):
        server = self.limited(None)
        need, _ = server.need("processes")
        server._end(failed=False)
        # As many sleep as sites are to wait for.
        others = [subprocess.Popen(["sleep", "1000"], **Room._user()) for _ in range(20)]
        try:
            with self.limited(need + 5 + self.others) as server:
                self.assertNotIn("may need", server.log())
                self.check(server, waits=True)
                for other in others:
                    other.kill()
                    other.wait()
                self.come_back(server)
        finally:
            for other in others:
                other.kill()
                other.wait()

    def test_the_launcher_may_have_all_that_it_was_given(self):
        server = Room(self.SITES, ["prlimit", "--nproc=36:5000"])
        with server:
            self.assertEqual(server.ask_all(), {200: self.SITES})
            self.assertNotIn("may need", server.log())

    @unittest.skipUnless(SWEEP, "BULKHEAD_SWEEP is not set")
    def test_every_limit(self):
        if self.others:
            self.skipTest(f"somebody else has {self.others} threads of this user")
        for _ in self.sweep("processes", lambda need: (need // 2, need - 10, need - 1, need, need + 1, 2 * need)):
            pass


@unittest.skipIf(ROOTLESS, "a user's processes have no uids of their own")
class OfEachUid(unittest.TestCase):
    """RLIMIT_NPROC that root was given: no uid of a site's may have more."""

    def test_a_data_proxy_has_no_room_below_it(self):
        data = [{"name": "catalog", "statements": "catalog.sql"}]
        files = {"catalog.sql": "-- name: one :one\n-- services: probe\nSELECT 1;\n"}
        with Room(0, ["prlimit", "--nproc=4:4"], sites=[site("main", [service("probe", data=["catalog"])], data=data)], files=files) as server:
            needed, bound = server.need("processes_of_a_uid")
            if is_capable():
                self.assertIsNone(bound)
                self.assertNotIn("may need", server.log())
                return
            self.assertGreater(needed, 4)
            self.assertEqual((bound["most"], bound["from"]), (4, "RLIMIT_NPROC"))
            said = f"may need {needed} processes and threads of one uid, and each uid may have 4: raise `LimitNPROC=`"
            self.assertIn(said, server.log())
            self.assertEqual(server.status("/"), 200, "sites go on without it")


@rootless_too
class Descriptors(Limits):
    SITES = 220

    def setUp(self):
        if not ROOTLESS and is_capable():
            self.skipTest("root raises the limit here")

    def limited(self, limit):
        limit = limit or 20_000
        return Room(self.SITES, ["prlimit", f"--nofile={limit}:{limit}"])

    def test_less_than_the_need(self):
        with self.limited(1025) as server:
            waiting = self.check(server, waits=True)
            self.assertEqual({why.partition(":")[0] for why in waiting.values()}, {"descriptors"})
            self.replace_all(server)
            self.leave(server, 40)
            self.come_back(server)

    @unittest.skipUnless(SWEEP, "BULKHEAD_SWEEP is not set")
    def test_every_limit(self):
        for _ in self.sweep("descriptors", lambda need: (1280, 1400, need - 1, need, 2 * need)):
            pass


@unittest.skipIf(ROOTLESS, "a user mounts nothing")
class DescriptorsOfTheKernel(Limits):
    """`fs.nr_open`, above which no process has a limit: the server is shown one of its own."""

    SITES = 220

    def limited(self, limit):
        shown = Path(self.enterContext(tempfile.TemporaryDirectory())) / "nr_open"
        shown.write_text(f"{limit or 20_000}\n")
        mounts = f'mount --bind {shown} /proc/sys/fs/nr_open && exec "$@"'
        words = ["unshare", "--mount", "sh", "-c", mounts, "sh"]
        if subprocess.run([*words, "true"], check=False, capture_output=True).returncode:
            self.skipTest("nothing can be mounted here")
        return Room(self.SITES, words)

    def test_less_than_the_need(self):
        with self.limited(1025) as server:
            needed, bound = server.need("descriptors")
            self.assertEqual((bound["most"], bound["from"]), (1025, "fs.nr_open"))
            self.assertIn(f"may need {needed} descriptors of the launcher, which may have 1025: raise `fs.nr_open` (sysctl)", server.log())
            waiting = self.check(server, waits=True)
            self.assertEqual({why.partition(":")[0] for why in waiting.values()}, {"descriptors"})

    @unittest.skipUnless(SWEEP, "BULKHEAD_SWEEP is not set")
    def test_every_limit(self):
        for _ in self.sweep("descriptors", lambda need: (1280, 1400, need - 1, need, 2 * need)):
            pass


@unittest.skipIf(ROOTLESS, "control groups are root's")
class Memory(Limits):
    SITES = 200

    def limited(self, limit, count=SITES):
        return Room(count, with_memory_of(self, limit or FAR))

    def run_with(self, count, mib):
        """More always-on sites than fit: nothing that works for all is killed, and everything that fits comes back."""
        with self.limited(mib * MIB, count) as server:
            roles = server.role_pids()
            for _ in range(3):
                found = server.ask_all()
            self.assertEqual((server.role_pids(), server.launcher.poll()), (roles, None), server.log())
            self.assertGreater(found[200], count // 4, found)
            self.assertGreater(found[503], 0, found)
            # Some of them end by another's hand: they come back where there is room, or wait.
            killed = server.processes("site ")[:20]
            for process in killed:
                process.kill()
            self.assertTrue(until(lambda: not any(process.alive for process in killed), 10))
            # The kernel may kill what comes back, as the group has no room for all.
            self.assertTrue(until(lambda: server.ask_all(kills=True)[200] >= found[200] - 10, 30), server.log())
            self.assertEqual(server.role_pids(), roles)
            self.assertLess(len(server.log()), LOG_MAX)
            self.assertNotIn("is broken", server.log())
            raise_group(server.prefix, [("memory.limit_in_bytes", "-1"), ("memory.max", "max")])
            self.come_back(server)
            self.assertEqual((server.role_pids(), server.launcher.poll()), (roles, None))

    def test_more_sites_than_fit(self):
        self.run_with(100, 40)

    @unittest.skipUnless(SWEEP, "BULKHEAD_SWEEP is not set")
    def test_600_always_on_sites(self):
        self.run_with(600, 150)

    @unittest.skipUnless(SWEEP, "BULKHEAD_SWEEP is not set")
    def test_every_limit(self):
        # The kernel counts pages.
        whole = lambda limit: limit // PAGE * PAGE
        limits = lambda need: (whole(need // 2), whole(need - 8 * MIB), whole(need - 1), whole(need) + PAGE, whole(2 * need))
        for _ in self.sweep("memory", limits):
            pass


@unittest.skipIf(ROOTLESS, "control groups are root's")
class Footprint(unittest.TestCase):
    """What the server says that it needs of memory, beside what its control group has: `footprint.rs` was measured by `bench/footprint`."""

    def compare(self, count, **of):
        with Room(count, with_memory_of(self, FAR), **of) as server:
            needed, _ = server.need("memory")
            used = used_by(server.prefix)
            self.assertTrue(needed / 4 <= used <= needed, f"{used >> 20} MiB are used, and {needed >> 20} MiB are needed")

    def test_plain_sites(self):
        self.compare(100)

    def test_gates_and_filters(self):
        filters = [["bin/pass", str(number)] for number in range(16)]
        self.compare(1, server={"gates": 32}, conditioning={"filters": filters}, programs=("probe", "pass"))

    def test_sites_with_everything(self):
        sites, files, tls = everything(20)
        self.compare(0, sites=sites, files=files, text=lambda port: configuration(port, sites, {}) + tls)


if __name__ == "__main__":
    unittest.main()
