"""A change that is refused leaves nothing: whatever refused it, the launcher knows what it knew before, and can be upgraded.

Each refusal is injected into a reload that changes much else: sites come, go and are changed, and so are filters, listeners and
logs. What the launcher knows is compared by the record that it makes for a successor. BULKHEAD_SWEEP=whole (`make sweep`) upgrades
after each of them.
"""

import os
import re
import resource
import shutil
import socket
import unittest

from client import until
from filter_program import FILTER, PYTHON, library
from harness import NOBODY, ROOTLESS, free_port, rootless_too, service, site
from recorded import Recorded
from tls_server import certificate
from upgrading import UpgradingServer

MAIN, OLD = site("main", [service("probe")]), site("old", start="on-demand")
SWEEP = os.environ.get("BULKHEAD_SWEEP") == "whole"


def filters(*chain):
    read = [library(), "filters"]
    return {"filters": [{"command": [PYTHON, "-I", "filters/filter.py", *words], "read": read} for words in chain]}



class Staging(Recorded, UpgradingServer):
    """A server with a chain of filters, a site that rests, and all that can be wrong with others."""

    def __init__(self):
        files = {"filters/filter.py": FILTER, "bin/text": "no program", "broken.sql": "nothing\n", "pages/a.html": "{% if %}",
                 "log/folder.access.log/x": "", "plain": "ann:plain\n"}
        self.size = 900
        super().__init__([MAIN, OLD], files=files, conditioning=filters(["zero=two"]), limits={"start_timeout": "2s"})
        shutil.copy("/bin/false", self.folder / "bin/false")
        self.give("log", "log/folder.access.log", "bin/false")
        for name in ("own", "other"):
            cert, key = certificate(self.folder, name, "ec", f"{name}.test")
            for end, content in (("crt", cert), ("key", key), ("pem", cert + key)):
                self.write(f"{name}.{end}", content).chmod(0o600)
                self.give(f"{name}.{end}")

    def with_uids(self, text):
        """With a part of the uids, which each change makes longer."""
        said = super().with_uids(text)
        return said.replace(f"{self.uids[0]}-{self.uids[-1]}", f"{self.uids[0]}-{self.uids[self.size]}")

    def give(self, *names):
        if ROOTLESS and os.geteuid() == 0:
            for name in names:
                os.chown(self.folder / name, NOBODY, NOBODY)

    def change(self, *more, listeners=(), text="", **settings):
        """A change of everything, and what is wrong: what `bulkhead reload` says."""
        sites = [MAIN | {"root": "elsewhere"}, site("new"), site("later", start="on-demand"), *more]
        settings = {"conditioning": filters(["zero=one"], ["one=two"]), "log": {"access_format": "json"}} | settings
        limits = {"start_timeout": "2s"} | settings.pop("limits", {})
        self.size = 950
        return self.reload(sites, listeners=[free_port(), *listeners], text=text, limits=limits, **settings)

    def starved(self):
        """A change for which the launcher has no descriptors left."""
        pid = self.launcher.pid
        low = [number for number in map(int, os.listdir(f"/proc/{pid}/fd")) if number < 1024]
        before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (max(low) + 3, before[1]))
        try:
            return self.change()
        finally:
            resource.prlimit(pid, resource.RLIMIT_NOFILE, before)


def worse(*command, **more):
    return site("worse", [service("worse", "/x", command=command)], **more)


def tls_listener():
    return f'\n[[listen]]\naddress = "127.0.0.1:{free_port()}"\ntls = true\n'


MISFIT = {"certificate": "own.crt", "key": "other.key"}
GUARDED = {"route": [{"path": "/", "auth": {"users": "plain"}}]}
SOURCE = {"data": [{"name": "d", "statements": "broken.sql"}]}
PAGES = {"templates": {"folder": "pages"}}
#: Each way in which a reload is refused before a process is started: what is changed, and what the answer has.
BEFORE_A_START = {
    "a mistake of syntax": (lambda server: server.change(text="\n[["), "error"),
    "an unknown key": (lambda server: server.change(site("worse", nonsense=1)), "nonsense"),
    "a setting that cannot change": (lambda server: server.change(server={"gates": 5}), "restart the server"),
    "a folder that is missing": (lambda server: server.change(site("worse", follow_links=["none"])), "none"),
    "a key that does not fit": (lambda server: server.change(site("worse", **MISFIT), text=tls_listener()), "belongs to its key"),
    "users that are none": (lambda server: server.change(site("worse", **GUARDED)), "plain"),
    "a port in use": (lambda server: server.change(listeners=[server.taken]), "cannot listen on"),
    "a log that cannot be opened": (lambda server: server.change(site("folder")), "folder.access.log"),
}
#: The same, when some have been.
AFTER_STARTS = {
    "a program that is missing": (lambda server: server.change(worse("bin/none")), "bin/none"),
    "a program that is none": (lambda server: server.change(worse("bin/text")), "bin/text"),
    "a service that exits": (lambda server: server.change(worse("bin/false")), "service worse/worse"),
    "a service that says nothing": (
        lambda server: server.change(worse("bin/probe", "--hang-init"), limits={"start_timeout": "300ms"}), "worse"),
    "a filter that exits": (lambda server: server.change(conditioning=filters(["zero=two"], ["fail"])), "filter"),
    "statements that are none": (lambda server: server.change(site("worse", [service(data=["d"])], **SOURCE)), "worse"),
    "templates that are none": (lambda server: server.change(site("worse", [service(templates=True)], **PAGES)), "worse"),
}
if not ROOTLESS:
    # Of another user's process, that would take CAP_SYS_RESOURCE.
    AFTER_STARTS["too few descriptors"] = (lambda server: server.starved(), "")
#: Who may have been given a uid by one of these.
GIVEN = re.compile(r"uid \d+ (?:role|filter|.*/(?:worse|new|later|main)\b)")


@rootless_too
class Refused(unittest.TestCase):
    def setUp(self):
        self.server = self.enterContext(Staging())
        self.server.taken = self.enterContext(socket.create_server(("127.0.0.1", 0))).getsockname()[1]

    def clients_see_the_old(self):
        server = self.server
        found = {name: server.status("/", f"{name}.test") for name in ("main", "old", "new", "later", "worse")}
        self.assertEqual(found, {"main": 200, "old": 200, "new": 404, "later": 404, "worse": 404})
        self.assertEqual(server.get("/").text, "<h1>main</h1>\n")

    def refuse(self, what, told, because, may_give, upgrades=SWEEP):
        server = self.server
        with self.subTest(what):
            before = server.before()
            why = told(server)
            self.assertIsNotNone(why, "it is not refused")
            self.assertIn(because, why)
            self.assertEqual(server.remains(before, GIVEN if may_give else None), [])
            self.clients_see_the_old()
            if upgrades:
                server.upgrade_to_the_end()
            else:
                self.assertIn("can take over", server.upgrade("--dry-run"))

    def test_whatever_refuses_a_change_leaves_nothing_of_it(self):
        server = self.server
        self.clients_see_the_old()
        for what, refusal in BEFORE_A_START.items():
            self.refuse(what, *refusal, may_give=False)
        for what, refusal in AFTER_STARTS.items():
            self.refuse(what, *refusal, may_give=True)
        again = lambda: self.refuse("once more", *AFTER_STARTS["a service that exits"], may_give=True, upgrades=False)
        # Numbers of slots and of sites rest, after an upgrade anew, and are given to others: again and again the same.
        def are_given_again():
            resting = server.state().resting[1]
            again()
            return server.state().resting[1] <= resting

        if SWEEP:
            self.assertTrue(until(are_given_again, 30))
        resting = server.state().resting
        for _ in range(2):
            again()
        self.assertLessEqual(server.state().resting[1], resting[1] + 4)
        server.upgrade()
        self.clients_see_the_old()
        # What was right in all of them is taken.
        self.assertIsNone(server.change())
        self.assertEqual([server.status("/", f"{name}.test") for name in ("main", "old", "new", "later")], [200, 404, 200, 200])
        server.upgrade()
        self.assertEqual(server.status("/", "new.test"), 200)


if __name__ == "__main__":
    unittest.main()
