"""`user_range` while the server runs: it grows by a reload, drops nothing that was given out, and it is said when it is nearly used up."""

import json
import os
import subprocess
import unittest

from client import Load, until
from harness import service, site
from recorded import Recorded
from uids import Overlapping
from upgrading import UpgradingServer

MAIN = site("main", [service("probe")])
#: What MAIN needs: logger, admin and gate, the site, and its service.
NEEDED = 5


class Ranged(Recorded, UpgradingServer):
    """A server with so many uids of its own, from a place on; its table has some already."""

    def __init__(self, count, given=0):
        self.begin, self.count = 0, count
        super().__init__([MAIN])
        if given:
            table = "".join(f"{uid} site/gone{uid}\n" for uid in self.uids[NEEDED:NEEDED + given])
            self.write("state/uids", table)

    @property
    def range(self):
        return self.uids[self.begin:self.begin + self.count]

    @property
    def said(self):
        return f"{self.range[0]}-{self.range[-1]}"

    def with_uids(self, text):
        return super().with_uids(text).replace(f"{self.uids[0]}-{self.uids[-1]}", self.said)

    def uid_of(self, title):
        return self.process(title).uid

    def table(self):
        return (self.folder / "state/uids").read_text()


class UserRange(unittest.TestCase):
    def refused_to_another(self, uids):
        """What is said to another server that wants these."""
        other = Overlapping(uids)
        self.addCleanup(other._end, failed=False)
        done = other.command("run", other.config)
        self.assertEqual(done.returncode, 1, done.stderr)
        return done.stderr

    def test_it_grows_under_load(self):
        with Ranged(NEEDED) as server:
            loads = [Load(server.port, path, seconds=4, connections=4, close=close) for path in ("/", "/probe") for close in (False, True)]
            before = server.said
            self.assertIn(f"`user_range` {before} has 5 uids, and 6 are needed", server.reload([MAIN, site("more")]))
            server.count = 40
            self.assertIsNone(server.reload([MAIN, site("more")]))
            self.assertEqual(server.status("/", "more.test"), 200)
            self.assertEqual(server.uid_of("site more"), server.uids[NEEDED])
            for load in loads:
                load.end().assert_clean(self)
            # It is this server's alone from now on, and was not before.
            self.assertIn(f"overlaps {server.said} of the server of", self.refused_to_another(server.uids[30:50]))
            with Overlapping(server.uids[50:80]) as beside:
                self.assertEqual(beside.status(), 200)
            # At the other end too, and over a launcher that takes over, and one that starts.
            server.begin, server.count = 0, 60
            self.assertIsNone(server.reload([MAIN, site("more")]))
            server.upgrade()
            self.assertIn(f"overlaps {server.said} of the server of", self.refused_to_another(server.uids[55:70]))
            self.assertIsNone(server.reload([MAIN, site("more"), site("third")]))
            given = server.table()
            self.assertEqual(server.stop(), 0)
            server.start()
            self.assertEqual((server.status("/", "third.test"), server.table()), (200, given))

    def test_what_was_given_out_stays_in_it(self):
        with Ranged(60) as server:
            state, before = server.state(), server.said
            for begin, count in ((1, 100), (500, 100)):
                server.begin, server.count = begin, count
                why = server.reload([MAIN])
                for words in (f"{server.config}:", f"`user_range` {server.said} lacks uid {server.uids[0]} of role/",
                              "must have every uid that was given out", f"write a range that has all of {server.uids[0]}-"):
                    self.assertIn(words, why)
                checked = server.command("check", server.config)
                self.assertEqual(checked.returncode, 0, checked.stderr)
                self.assertIn(f"lacks uid {server.uids[0]}", checked.stderr)
            self.assertEqual(state.differences(server.state()), [])
            self.assertIn(f"overlaps {before} of", self.refused_to_another(server.uids[50:59]))
            # What nobody was given may go, and others may have it.
            server.begin, server.count = 0, 10
            self.assertIsNone(server.reload([MAIN]))
            with Overlapping(server.uids[50:59]) as other:
                self.assertEqual(other.status(), 200)
            self.assertEqual(server.status("/probe"), 200)

    def test_a_change_that_is_refused_for_something_else_leaves_the_old(self):
        with Ranged(NEEDED) as server:
            server.count, bad = 40, site("bad", [service("bad", "/bad", command=["bin/exits"])])
            server.copy_program("/bin/false", "exits")
            state, before = server.state(), f"{server.uids[0]}-{server.uids[NEEDED - 1]}"
            self.assertIn("service bad/bad", server.reload([MAIN, bad]))
            self.assertEqual(state.differences(server.state()), [])
            open_files = [os.readlink(f"/proc/{server.launcher.pid}/fd/{name}") for name in os.listdir(f"/proc/{server.launcher.pid}/fd")]
            self.assertEqual([name for name in open_files if name.startswith("/run/bulkhead-uids/")], [f"/run/bulkhead-uids/{before}"])
            with Overlapping(server.uids[30:60]) as other:
                self.assertEqual(other.status(), 200)
            server.count = NEEDED
            self.assertIsNone(server.reload([MAIN]))
            server.upgrade()
            server.count = 40
            self.assertIsNone(server.reload([MAIN, site("good")]))
            self.assertEqual(server.status("/", "good.test"), 200)

    def test_nobody_runs_in_what_is_new(self):
        with Ranged(NEEDED) as server:
            server.count = 40
            uid = server.uids[20]
            sleeping = subprocess.Popen(["sleep", "600"], user=uid, group=uid, extra_groups=[])
            self.addCleanup(sleeping.wait)
            self.addCleanup(sleeping.kill)
            self.assertTrue(until(lambda: os.readlink(f"/proc/{sleeping.pid}/exe").endswith("/sleep")))
            why = server.reload([MAIN, site("more")])
            self.assertIn(f"`user_range` {server.said} has uid {uid}, under which process {sleeping.pid} runs", why)
            sleeping.kill()
            sleeping.wait()
            self.assertIsNone(server.reload([MAIN, site("more")]))

    def test_another_server_has_what_is_new(self):
        with Ranged(NEEDED) as server, Overlapping(server.uids[20:40]) as other:
            state = server.state()
            server.count = 60
            why = server.reload([MAIN, site("more")])
            # By its processes, or by its lock.
            self.assertTrue("under which process" in why or f"of the server of {other.folder}" in why, why)
            self.assertEqual(state.differences(server.state()), [])
            self.assertEqual((server.status("/probe"), other.status()), (200, 200))

    def test_it_is_said_when_it_is_nearly_used_up(self):
        with Ranged(100, given=74) as server:
            said = lambda percent: f"{percent} of the 100 uids of `user_range` {server.said} are given out, 74 of them to what"
            uids = lambda: json.loads(server.command("status", "--run-dir", "run", "--json").stdout)["uids"]
            text = lambda: server.command("status", "--run-dir", "run").stdout
            check = lambda: server.command("check", server.config).stderr
            wanted = {"range": server.said, "taken": 79, "size": 100, "left": 74, "is_scarce": False}
            self.assertEqual(uids(), wanted)
            self.assertNotIn("uids:", text())
            self.assertNotIn("user_range", check() + server.log())
            sites = [MAIN]
            for percent in (80, 81):
                sites.append(site(f"more{percent}"))
                self.assertIsNone(server.reload(sites))
                self.assertEqual(uids(), wanted | {"taken": percent, "is_scarce": True})
                self.assertIn(f"uids: {percent} of the 100 of `user_range` {server.said} are given out, 74 of them", text())
                self.assertIn(f"{server.config}:", check())
                self.assertIn(f"`user_range` {server.said} is nearly used up: {percent} of 100 uids are given out", check())
                self.assertTrue(until(lambda percent=percent: server.log().count(said(percent)) == 1), server.log())
            # Once for each hundredth.
            self.assertIsNone(server.reload(sites, limits={"start_timeout": "9s"}))
            self.assertEqual(server.log().count(said(81)), 1)
            server.count = 200
            self.assertIsNone(server.reload(sites))
            self.assertEqual((uids()["size"], uids()["is_scarce"]), (200, False))
            self.assertNotIn("uids:", text())


if __name__ == "__main__":
    unittest.main()
