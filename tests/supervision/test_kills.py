"""Every role is killed under load, at random times: what fails is what was inside the process, and no log line is lost.

Each client has one request at a time. A kill costs requests of clients whose connections the process has in its hands: those of
its site or service, those that pass a gate at the moment, none for a role that has no connection. Such a request was on its
connection before the process was gone, for the kernel takes its time to close what a killed process has, and what comes there
meanwhile is lost with it; and it failed after the kill. A connection that is kept is one that waits for the next request.

An answer that came whole has a line in the access log; but for what the killed process itself had yet to tell the logger, which
is no older than `flush`. What it had told is *acknowledged*, as is all that it had answered before: a line that is missing is
newer than every line that is there of the same process.

BULKHEAD_KILLS=50 kills each role so often. A run prints its seed, which BULKHEAD_SEED repeats.
"""

import dataclasses
import os
import random
import re
import subprocess
import threading
import time
import unittest

import pytest

import client
import harness
from backend import Raw, response
from client import until
from counting import Counting, TlsConnection
from databases import SCHEMA, STATEMENTS, asks, data_site
from filter_program import FILTER, PYTHON, library
from harness import ROOTLESS, Server, configuration, free_port, rootless_too, service, site, wait_for_time
from pages import renders
from tls_server import certificate, insecure
from upgrading import UpgradingServer

pytestmark = [pytest.mark.alone, pytest.mark.slow]

KILLS = int(os.environ.get("BULKHEAD_KILLS", 2))
SEED = int(os.environ.get("BULKHEAD_SEED", random.randrange(1 << 32)))
CLIENTS = 2
#: What a process may keep before it tells the logger, and what a busy machine adds.
FLUSH, MARGIN = 0.05, 0.3
#: A process that has lived so long is started again at once; with more than 30 unclean exits in 50 s it would be given
#: up.
HEALTHY = 1.1 if KILLS <= 30 else 1.8

#: Whose connections a process has in its hands, by its title.
HANDS = {
    "gate 0": {"new", "direct", "tls"}, "gate 1": {"new", "direct", "tls"},
    "site main": {"page", "probe", "behind", "caller", "asker", "pages"}, "site other": {"new"}, "site secret": {"tls"},
    "bin/probe": {"probe"}, "bin/direct": {"direct"}, "bin/caller": {"caller"},
    "bin/asker": {"asker"}, "dataproxy main/catalog": {"asker"}, "bin/pages": {"pages"}, "publisher main": set(),
    "connector main": {"behind"}, "connector main/caller": {"caller"}, "broker main/caller": {"caller"},
    "signer": {"tls"}, "stapler": set(), "logger": set(), "admin": set(), harness.REAPER: set(),
}
#: Who tells the logger of requests, by the name of their clients.
TELLS = {"page": "site main", "probe": "site main", "behind": "site main", "caller": "site main", "asker": "site main", "pages": "site main", "new": "site other",
         "tls": "site secret", "direct": "bin/direct"}
#: The statements of a database of which one service asks.
ASKERS = STATEMENTS.replace("other", "asker").replace("asker, asker", "asker")
#: An inspector that never says anything; it may wait by few calls.
MUTE = "#include <poll.h>\nint main(void) { return poll(0, 0, -1); }\n"


@dataclasses.dataclass(frozen=True, eq=False)
class Kill:
    """Which process was killed, when, when nothing of it was left, and what its clients had asked at that moment."""
    title: str
    killed: float
    gone: float
    under_way: set


class Killing(Server):
    """A server that has a process of each role."""

    def __init__(self, behind, *filters):
        self.tls, self.behind = free_port(), behind
        host, port = behind.at.split(":")
        network = {"command": ["bin/caller"], "network": [f"tcp:{host}:{port}"]}
        sites = [
            data_site("main", [service("probe"), service("caller", "/caller", **network), asks("asker"), renders()],
                      templates={"folder": "templates"}, route=[{"path": "/behind", "upstream": behind.at}]),
            site("other"), site("direct", [service("direct", "/probe", takes=True)]),
            site("secret", certificates=["secret.pem"]),
        ]
        listen = f'\n[[listen]]\naddress = "127.0.0.1:{self.tls}"\ntls = true\nunfiltered = true\n'
        # A call whose broker was killed is never answered, and is not waited for at the end.
        settings = {"log": {"flush": f"{FLUSH * 1000:.0f}ms"}, "limits": {"drain_timeout": "3s"},
                    "conditioning": {"exempt": ["127.0.0.0/8"], "filters": list(filters)}}
        super().__init__(sites, programs=("probe", "caller", "asker", "pages"),
                         files={"filters/filter.py": FILTER, "catalog.sql": ASKERS, "schema.sql": SCHEMA, "templates/page.html": "page"},
                         text=lambda port: configuration(port, sites, settings) + listen)
        self.copy_program("probe", "direct")
        made = self.write("secret.pem", b"".join(certificate(self.folder, "secret", "ec", "secret.test")))
        made.chmod(0o600)
        if ROOTLESS and os.geteuid() == 0:
            os.chown(made, harness.NOBODY, harness.NOBODY)

    def clients(self):
        """Clients of every path, by what is in whose hands."""
        plain, tls = (lambda: client.Connection(self.port)), (lambda: TlsConnection(self.tls, insecure(), "secret.test"))
        caller = f"/caller/tokio?to={self.behind.at}"
        return [
            Counting("page", plain, "/", "main.test", CLIENTS), Counting("probe", plain, "/probe", "main.test", CLIENTS),
            Counting("behind", plain, "/behind", "main.test", CLIENTS), Counting("caller", plain, caller, "main.test", CLIENTS),
            Counting("direct", plain, "/probe", "direct.test", CLIENTS),
            Counting("asker", plain, "/asker/many?statement=users", "main.test", CLIENTS),
            Counting("pages", plain, "/pages/page", "main.test", CLIENTS),
            Counting("new", plain, "/", "other.test", CLIENTS, close=True),
            Counting("tls", tls, "/", "secret.test", CLIENTS, close=True),
        ]

    def living(self, title):
        """The process that is called so, if there is one."""
        if title == harness.REAPER:
            return self.reaper()
        found = self.processes(title)
        return next((process for process in found if process.title == title.removeprefix("bulkhead: ")
                     or title.startswith(("bin/", PYTHON))), None)

    def ending_with(self, victim, title):
        """What ends when this process is killed: the launcher ends the other filters with one."""
        return self.processes(title) if title == PYTHON else [victim]

    def logged(self):
        """The marks of requests that have a line."""
        logs = (self.folder / "log").glob("*access.log")
        return {mark for path in logs for mark in re.findall(r"mark=(\w+-\d+\.)", path.read_text(errors="replace"))}


def behind():
    """A server behind the site, which closes after a request of the service's, as that waits for it."""
    def answer(request):
        if not request.line.endswith("HTTP/1.0"):
            return response(b"behind")
        request.connection.sendall(response(b"behind"))
        return None

    return Raw(answer=answer)


class Kills(unittest.TestCase):
    def kill_each(self, server, titles, hands):
        """Kills each of these so often under load, and looks at what that has cost."""
        print(f"BULKHEAD_SEED={SEED}")
        chance, clients, kills = random.Random(SEED), server.clients(), []
        born = dict.fromkeys(titles, time.monotonic())
        for _ in range(KILLS):
            for title in chance.sample(titles, len(titles)):
                wait_for_time(max(born[title] + HEALTHY - time.monotonic(), chance.uniform(0.02, 0.2)))
                victim = server.living(title)
                self.assertIsNotNone(victim, f"no process {title}")
                under_way = {mark for one in clients if one.name in hands[title] for mark in one.under_way.values()}
                killed = time.monotonic()
                ending = server.ending_with(victim, title)
                victim.kill()
                self.assertTrue(until(lambda: not any(one.alive for one in ending), 10, 0.002), f"{title} is still there")
                kills.append(Kill(title, killed, time.monotonic(), under_way))
                again = lambda: (new := server.living(title)) and new != victim
                self.assertTrue(until(again, 10), f"{title} does not come back")
                born[title] = time.monotonic()
        wait_for_time(0.5)
        clients = [one.finish() for one in clients]
        self.assertGreater(sum(len(one.answered) for one in clients), 100)
        self.look_at_failures(clients, kills, hands)
        self.look_at_lines(server, clients, kills)

    def look_at_failures(self, clients, kills, hands):
        """Each was in a process that was killed. A client has one request at a time, and so at most one that a kill interrupts;
        what else a kill costs came while the process ended."""
        cost, strange = {kill: [] for kill in kills}, []
        for one in clients:
            for mark, (at, why) in one.failed.items():
                since = one.since[mark]
                # The first: of what is slow to fail, that is the one that has interrupted it.
                kill = next((kill for kill in kills if one.name in hands[kill.title] and kill.killed <= at and since <= kill.gone), None)
                if kill is None:
                    strange.append((mark, since, at, why, [kill.title for kill in kills if kill.killed <= at][-3:]))
                else:
                    cost[kill].append((mark, why, since <= kill.killed))
        for title in hands:
            of_it = [kill for kill in kills if kill.title == title]
            lost = [interrupted for kill in of_it for _, _, interrupted in cost[kill]]
            print(f"{title}: {len(of_it)} kills, {sum(len(kill.under_way) for kill in of_it)} requests under way, "
                  f"{len(lost)} failed, {lost.count(False)} of them come while it ended")
        self.assertEqual(strange, [], "they were in no killed process")
        for kill, lost in cost.items():
            interrupted = [mark for mark, _, was_under_way in lost if was_under_way]
            self.assertLessEqual(len(interrupted), CLIENTS * len(hands[kill.title]), f"{kill.title} had no more clients: {lost}")

    def look_at_lines(self, server, clients, kills):
        """Each answer that came whole has its line, if its process had told the logger of it."""
        def ends(name):
            return [kill.killed for kill in kills if kill.title == TELLS[name]]

        def untold(name, at):
            return any(killed - FLUSH - MARGIN <= at <= killed + MARGIN for killed in ends(name))

        def missing():
            logged = server.logged()
            return [mark for one in clients for mark, at in one.answered.items()
                    if mark not in logged and not untold(one.name, at)]

        def overtaken():
            """Those without a line, though the same process has told of what it answered the same client afterwards."""
            logged = server.logged()
            for one in clients:
                for answered in one.of_each():
                    for place, (mark, at) in enumerate(answered):
                        # What is read just after a kill may be of either process.
                        if mark in logged or any(killed <= at <= killed + MARGIN for killed in ends(one.name)):
                            continue
                        end = min((killed for killed in ends(one.name) if killed >= at), default=at)
                        later = [other for other, when in answered[place + 1:] if when <= end and other in logged]
                        if later:
                            yield mark, later[0]

        self.assertTrue(until(lambda: not missing(), 5), f"without a line: {missing()[:20]}")
        self.assertEqual(list(overtaken())[:20], [])


@rootless_too
class Roles(Kills):
    def test_a_kill_costs_what_was_inside(self):
        with behind() as at, Killing(at) as server:
            titles = [title for title in HANDS if server.living(title)]
            self.assertLessEqual(set(HANDS) - {harness.REAPER}, set(titles))
            self.kill_each(server, titles, {title: HANDS[title] for title in titles})


class Filters(Kills):
    def test_a_killed_filter_costs_what_was_inside(self):
        """All filters are started anew with one, so that what is in any of them is lost."""
        filters = [{"command": [PYTHON, "-I", "filters/filter.py"], "read": [library(), "filters"]}] * 2
        with behind() as at, Killing(at, *filters) as server:
            every = {"page", "probe", "behind", "caller", "asker", "pages", "direct", "new", "tls"}
            self.kill_each(server, [PYTHON], {PYTHON: every})


class Inspector(unittest.TestCase):
    """The process that looks at a program before that is started; it lives for some milliseconds. Without root nobody has to look."""

    @staticmethod
    def inspectors(server):
        """Those of copies of the launcher, which wait for them."""
        found = [process for copy in server.processes() for process in harness.children(copy.pid)]
        return [process for process in found if process.title.startswith("inspector")]

    def test_the_start_that_waits_for_it_says_that_it_has_ended(self):
        with UpgradingServer([site(services=[service()])]) as server:
            mute = server.programs / "mute"
            subprocess.run(["cc", "-static", "-O1", "-o", mute, server.write("mute.c", MUTE)], check=True)
            server.owned(mute).rename(server.programs / "inspector")
            # A program that is new has to be looked at.
            server.copy_program("probe")
            before, said = server.process("bin/probe"), []
            relaunch = lambda: said.append(server.command("relaunch", "--config", server.config, "main/probe"))
            relaunching = threading.Thread(target=relaunch)
            relaunching.start()
            inspector = until(lambda: self.inspectors(server), 5, 0.005)
            inspector[0].kill()
            relaunching.join(20)
            self.assertIn("cannot be inspected: the inspector ends with signal 9", said[0].stderr)
            self.assertEqual((server.process("bin/probe"), server.status("/probe")), (before, 200))
            # One that hangs is ended.
            relaunch()
            self.assertIn("cannot be inspected: the inspector does not answer in time", said[1].stderr)
            self.assertFalse(self.inspectors(server))
            server.put_programs(names=["inspector"])
            server.relaunch("main/probe")
            self.assertEqual(server.status("/probe"), 200)
            self.assertTrue(until(lambda: before not in server.processes("bin/probe")))


if __name__ == "__main__":
    unittest.main()
