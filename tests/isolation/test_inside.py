"""Every attempt of the probe's table, from inside every role and every kind of worker.

`bulkhead-probe` is started in the jail of each; `breakout` makes the same attempts as a service that serves.
"""

import json
import os
import resource
import secrets
import socket
import tempfile
import unittest
from pathlib import Path

from database_servers import PASSWORD, Redis
from jail_probe import (
    ALWAYS, GROUPS, POSTS, ROLES, WORKERS, ask, by_id, check_part, markdown, page_has, place, probe, probe_by_guard, table,
    told,
)
from harness import ROOTLESS, Process, Server, configuration, free_port, rootless_too, service, site
from tls_server import certificate

CAP_SYS_RESOURCE = 24

#: Attempts that are not made, and why that is no gap.
UNTRIED_BY_ALL = {
    "canaries": "the launcher tells the probe none: test_memory looks for them from outside, breakout from inside",
    "unix-abstract": "the server has no abstract socket: breakout is told of one of the test's",
}
UNTRIED_BY_ROLES = {
    "int80": "it ends the process, and a role makes no child that could be ended instead: test_foreign_calls",
    "touch-memory": "it may end the process, and a role makes no child: test_effects touches memory",
}
#: The gate of a guard: by the guard's own probe, which tells it of no processes but the test's.
GUARDS_GATE = "guard's gate"
ALL_ROLES = [*ROLES, GUARDS_GATE]
UNTRIED = {name: UNTRIED_BY_ALL | UNTRIED_BY_ROLES for name in ALL_ROLES} | {name: UNTRIED_BY_ALL for name in WORKERS}
UNTRIED["breakout"] = {}

#: Processes that last for a moment, or do nothing until the launcher is gone: by the guard's probe as well.
HELPERS = ("keeper", "reaper", "closer", "inspector", "loader", "signer check")
WITHOUT_CHANNEL = UNTRIED_BY_ALL | UNTRIED_BY_ROLES | {"listen-inherited": "it has no channel"}
UNTRIED |= dict.fromkeys(("keeper", "inspector", "signer check"), WITHOUT_CHANNEL)
UNTRIED |= dict.fromkeys(("reaper", "closer"), UNTRIED_BY_ALL | UNTRIED_BY_ROLES)
UNTRIED["loader"] = UNTRIED_BY_ALL | {"listen-inherited": WITHOUT_CHANNEL["listen-inherited"]}

#: What succeeds though the table expects otherwise, and why that is right.
GRANTED = {
    "socket-inet": "it was granted a port; Landlock refuses every other",
    "socket-inet6": "it was granted a port; Landlock refuses every other",
}
DEVIATES = {name: {} for name in [*ALL_ROLES, *WORKERS, "breakout"]} | {
    name: GRANTED for name in ("with network", "connector", "granted connector", "stapler")
}
#: A broker has its service's uid, and the machine's numbers of processes: it is there to look into that one service.
DEVIATES["broker"] = {
    "pidfd-open": "it opens its service's; of others it gets none that it may do anything with",
    "pidfd-getfd": "the socket that its service wants to connect",
    "vm-read": "the address to which its service wants to connect",
    "tgkill": "every role may abort itself, and this one has its service's uid",
    "sweep": "it may call pidfd_getfd, for the above",
}
DEVIATES["keeper"] = {"fds-directory": "the folder of core files that it copies from", "fds-file": "the copy that it writes"}
DEVIATES["inspector"] = {"fds-file": "where it prints, which is a pipe to the launcher and here a file of the test's"}
#: A loader has the policy of a service's calls, and sees the machine's files; of these it can open those in folders of
#: libraries alone.
DEVIATES["loader"] = dict.fromkeys(
    ("dev-fd", "o-path", "dotdot-cwd", "channel-reopen", "exec-machine"),
    "it sees which files there are, and can open and execute those in folders of libraries alone",
) | {"fds-file": "where it prints, which is a pipe to the launcher and here a file of the test's"}
DEVIATES["signer check"] = {}
#: The reaper is root, as it ends processes of any uid; it is started before anybody else, reads nothing, and can call
#: next to nothing.
DEVIATES["reaper"] = dict.fromkeys(
    ("dumpable", "rlimit-processes", "caps-effective", "caps-permitted", "caps-bounding", "uid-root", "groups"),
    "it is root, in the launcher's place",
)
#: The closer is root as well, as what it is handed may be anybody's; it reads nothing either.
DEVIATES["closer"] = dict.fromkeys(
    ("dumpable", "rlimit-processes", "caps-bounding", "uid-root", "groups"), "it is root, in the launcher's place",
)
#: A gate and the logger may have as many descriptors as the launcher, which takes as many as it may need where it is
#: allowed to.
MANY = {"rlimit-descriptors": "one for each worker, and one for each connection"}
MAY_RAISE = not ROOTLESS and int(Process(os.getpid()).status()["CapEff"], 16) >> CAP_SYS_RESOURCE & 1
if MAY_RAISE or resource.getrlimit(resource.RLIMIT_NOFILE)[1] > 65536:
    DEVIATES |= {"gate": MANY, "logger": MANY, GUARDS_GATE: MANY}

#: Of docs/security/attempts.md: "A worker of ours is to score at most 0.5".
EXPOSURE_MAX = 0.5

LAUNCHERS_SECRET = secrets.token_hex(16)
SIBLINGS_SECRET = secrets.token_hex(16)


def hints(abstract):
    """What breakout is told of the world outside; its server's folder and port are put in later."""
    known = {
        "pids": [os.getpid(), os.getppid()],
        "paths": ["@FOLDER@/other/index.html", "@FOLDER@/log/error.log", "@FOLDER@/bin/probe", "/etc/shadow"],
        "write_paths": ["@FOLDER@/other/index.html", "@FOLDER@/bulkhead.toml", "@FOLDER@/bin/probe"],
        "unix": ["@FOLDER@/run/admin.sock"],
        "abstract": [abstract],
        "canaries": [secret.encode().hex() for secret in (LAUNCHERS_SECRET, SIBLINGS_SECRET)],
    }
    return json.dumps(known)[:-1] + ', "tcp": [@PORT@]}'


def server(abstract, away):
    """A server with a process of every kind, and with a database elsewhere."""
    unused = 1
    sites = [
        site("main", [
            service("probe"),
            service("direct", "/direct", takes=True),
            service("net", "/net", network=[f"tcp:{unused}"], data=["catalog", "away"]),
            service("breakout", "/breakout", command=["bin/breakout", "--hints", hints(abstract)]),
        ], certificates=["main.pem"], route=[{"path": "/behind/", "upstream": f"127.0.0.1:{unused}"}],
            data=[{"name": "catalog", "statements": "catalog.sql"}, {"name": "away", "statements": "away.sql", **away.settings()}], templates={"folder": "templates"}),
        site("far", [{"name": "door", "remote": True, "data": ["far"]}], certificates=["far.pem"], client_ca="far-ca.pem",
             data=[{"name": "far", "statements": "far.sql"}]),
        site("other", [service("steady", "/probe", environment={"SECRET": SIBLINGS_SECRET})]),
    ]
    with tempfile.TemporaryDirectory() as folder:
        files = {"main.pem": b"".join(certificate(Path(folder), "main", "ec", "main.test")).decode(),
                 "catalog.sql": "-- name: one :one\n-- services: net\nSELECT 1;\n",
                 "away.sql": "-- name: one :one\n-- services: net\nGET one\n", "password": PASSWORD + "\n",
                 "far.sql": "-- name: one :one\n-- services: door\nSELECT 1;\n", "templates/page.html": "page\n"}
        far, key = certificate(Path(folder), "far", "ec", "far.test")
        files |= {"far.pem": (far + key).decode(), "far-ca.pem": far.decode()}
    tls = f'\n[[listen]]\naddress = "127.0.0.1:{free_port()}"\ntls = true\nunfiltered = true\n'
    text = lambda port: configuration(port, sites, {"conditioning": {"filters": [["bin/pass"]]}}) + tls
    made = Server(sites, ("probe", "breakout", "pass"), text=text, files=files)
    for name in ("direct", "net", "steady"):
        made.copy_program("probe", name)
    return place(made)


class Inside(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        abstract = f"bulkhead-test-{os.getpid()}"
        outside = socket.socket(socket.AF_UNIX)
        cls.addClassCleanup(outside.close)
        outside.bind(f"\0{abstract}")
        outside.listen()
        os.environ["BULKHEAD_TEST_SECRET"] = LAUNCHERS_SECRET
        cls.addClassCleanup(os.environ.pop, "BULKHEAD_TEST_SECRET")
        cls.server = cls.enterClassContext(server(abstract, cls.enterClassContext(Redis())))
        cls.reports = {column: probe(cls.server, name) for column, name in POSTS.items()}
        cls.reports[GUARDS_GATE] = probe_by_guard("gate", "attempts", cls.hints_of_guard())
        kinds = {name: "service" if name == "loader" else "role" for name in HELPERS}
        cls.reports |= {name: probe_by_guard(name, "attempts", cls.hints_of_guard(kind)) for name, kind in kinds.items()}
        cls.reports["breakout"] = json.loads(cls.server.get("/breakout?json").body)

    @classmethod
    def hints_of_guard(cls, kind="role"):
        """What a guard's gate might go for: the server that runs beside it, as if it were the guarded one."""
        folder = cls.server.folder
        return json.dumps({
            "kind": kind,
            "pids": [os.getpid(), *(process.pid for process in cls.server.processes())],
            "tcp": [cls.server.port],
            "paths": [f"{folder}/other/index.html", f"{folder}/log/error.log", "/etc/shadow"],
            "write_paths": [f"{folder}/other/index.html", f"{folder}/bulkhead.toml"],
            "unix": [f"{folder}/run/admin.sock"],
        })

    def test_every_attempt_is_made(self):
        for column, report in self.reports.items():
            with self.subTest(column):
                found = by_id(report)
                self.assertEqual(set(found), set(table()))
                self.assertEqual(len(report["attempts"]), len(found))
                untried = {id for id, attempt in found.items() if attempt["result"] == "not applicable"}
                self.assertEqual(untried, set(UNTRIED[column]))

    def test_nothing_succeeds_that_should_not(self):
        for column, report in self.reports.items():
            with self.subTest(column):
                wrong = [attempt for attempt in report["attempts"] if not attempt["as_expected"]]
                self.assertEqual({attempt["id"] for attempt in wrong}, set(DEVIATES[column]), told(wrong))
                self.assertEqual(set(report["summary"]["unexpected"]), set(DEVIATES[column]))

    def test_a_role_gets_nothing_but_resources_of_its_own(self):
        """Whatever the table lets pass, in a role it is limited to what costs the role alone."""
        harmless = {"rlimit-memory", "rlimit-descriptors", "fill-memory", "fill-descriptors", "descriptor-flood",
                    "out-of-band"}
        for column in ALL_ROLES:
            got = {a["id"] for a in self.reports[column]["attempts"] if a["result"] == "succeeded"}
            # A connector makes sockets; what it may connect them to is the ports and folders of its site's routes.
            # The stapler's are for the ports of responders.
            sockets = {
                "connector": {"socket-inet", "socket-inet6", "socket-unix"}, "stapler": set(GRANTED),
                "granted connector": set(GRANTED), "data's connector": {"socket-unix"}, "broker": set(DEVIATES["broker"]),
            }.get(column, set())
            self.assertLessEqual(got, harmless | sockets, column)

    def test_foreign_calls(self):
        """`int 0x80` ends the process: the probe has nothing to say any more. A service's child is ended."""
        for column, name in POSTS.items():
            with self.subTest(column):
                answer = ask(self.server, name, "foreign")
                self.assertEqual((answer["ok"], answer.get("error")),
                                 (False, "the probe was ended before it said anything"))
        for column in (*WORKERS, "breakout"):
            self.assertIn("ended by signal 31", by_id(self.reports[column])["int80"]["detail"], column)

    def test_what_probes_do_reaches_nobody(self):
        """The server has gone through all of this, and every process is the one that it was."""
        first = self.server.processes()
        for column in ("gate", "service"):
            probe(self.server, POSTS[column])
        self.assertEqual(self.server.processes(), first)
        for target in ("/", "/probe"):
            self.assertEqual(self.server.status(target), 200)
        self.assertEqual(self.server.status("/probe", "other.test"), 200)
        self.assertNotRegex(self.server.log(), "ended with signal|is broken")

    def test_memory(self):
        """Nothing that the launcher or another service knows is in the memory of a process."""
        for process in self.server.processes():
            with self.subTest(process.title):
                try:
                    held = process.memory()
                except FileNotFoundError:
                    # It has ended since the list was made: nothing is left to be read.
                    self.assertFalse(process.alive)
                    continue
                self.assertGreater(len(held), 100_000)
                self.assertNotIn(LAUNCHERS_SECRET.encode(), held)
                own = process.title.startswith("bin/steady")
                self.assertEqual(SIBLINGS_SECRET.encode() in held, own)

    def test_nobody_but_root_may_trace_it(self):
        """The kernel gives root the files in /proc of whom only root may trace.

        A service with grants may be traced by its broker, which has its uid, and so by itself, which gains it nothing.
        """
        for process in self.server.processes():
            owner = process.uid if process.title.startswith("bin/net") else 0
            self.assertEqual(process.folder.joinpath("environ").stat().st_uid, owner, process)

    def test_exposure(self):
        rows = []
        for column, name in POSTS.items():
            rows.append(self.exposure(column, probe(self.server, name, "score")))
        rows.append(self.exposure(GUARDS_GATE, probe_by_guard("gate", "score", self.hints_of_guard())))
        rows += [self.exposure(name, probe_by_guard(name, "score", self.hints_of_guard())) for name in HELPERS]
        rows.append(self.exposure("breakout", self.reports["breakout"]["score"]))
        for column, figure, _ in rows:
            if column not in ("reaper", "closer"):
                self.assertLessEqual(figure, EXPOSURE_MAX, column)
        check_part(self, "exposure", markdown(["process", "exposure", "what counts against it"], rows))

    def exposure(self, column, score):
        self.assertEqual(len(score["checks"]), 81)
        against = [f"`{check['id']}`" for check in score["checks"] if check["badness"]]
        return column, score["exposure"], ", ".join(against) or "nothing"

    def test_page(self):
        """docs/security/attempts.md has the table of what was found; what depends on the machine is not compared."""
        columns = list(self.reports)
        words = {"refused": "no", "not applicable": "–"}
        reports = {column: by_id(report) for column, report in self.reports.items()}
        parts = []
        for group, title in GROUPS.items():
            if parts:
                parts.append("\n")
            rows = [
                [f"`{id}`", about["name"], *(words.get(reports[column][id]["result"], "**yes**") for column in columns),
                 about["closed_by"]]
                for id, about in table().items() if about["group"] == group
            ]
            parts.append(f"### {group}. {title}\n\n")
            parts.append(markdown(["attempt", "what an attacker would get", *columns, "closed by"], rows))
        def stable(text):
            lines = (text.partition("### F.")[0] + text.partition("### G.")[2]).splitlines()
            return [line for line in lines if not any(f"`{id}`" in line for id in MANY)]

        text = "".join(parts)
        if stable(page_has("attempts") or "") == stable(text):
            text = page_has("attempts")
        check_part(self, "attempts", text)


@rootless_too
class Rootless(unittest.TestCase):
    """An ordinary user's server has one uid and the machine's root: what holds is what needs no root."""

    LAYERS = {"seccomp", "capabilities", "no_new_privs", "landlock", "keyring", "descriptors"}

    def test_what_needs_no_root(self):
        with Server() as server:
            for name in (*ALWAYS.values(), "main/probe"):
                report = probe(server, name)
                got = [a for a in report["attempts"] if not a["as_expected"] and a["closed_by"] in self.LAYERS]
                self.assertEqual(got, [], f"{name}: {told(got)}")

    def test_a_service_does_not_reach_the_admin_role(self):
        """Nothing but the filter keeps a process of the same user from its socket; the secret is in a file, which
        Landlock hides."""
        with Server() as server:
            found = by_id(probe(server, "main/probe"))
            self.assertEqual(found["unix-path"]["result"], "refused", found["unix-path"])
            self.assertEqual(found["give-orders"]["result"], "refused")
            self.assertEqual(found["read-paths"]["result"], "refused", found["read-paths"])


if __name__ == "__main__":
    unittest.main()
