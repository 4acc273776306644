"""What `bulkhead status --isolation` and `bulkhead probe` say of jails."""

import json
import unittest

import pytest

from harness import ROOTLESS, Server, rootless_too, service, site

#: The kernel tells of it nowhere in /proc.
LANDLOCK = "landlock"
#: What a rootless run has to do without, in the words of the table.
ROOTLESS_LACKS = {
    "identity",
    "bounding_set",
    "root",
    "mount_namespace",
    "pid_namespace",
    "ipc_namespace",
    "uts_namespace",
    "network_namespace",
    "cgroup_namespace",
    "cgroup",
}
#: What a process has of the machine's, as its work needs.
HOST = {"main/net:connector": "network", "main/net:broker": "pid"}
#: Its broker looks at what its calls point at.
LACKS = {"main/net": {"undumpable"}}
NAMES = [
    "logger", "admin", "main", "main/probe", "main/direct", "main/net", "main/net:connector", "main/net:broker", "other",
    "gate",
]
#: The exposure, from 0 to 10, that no process may exceed (systemd-analyze's word for up to 0.9 is SAFE).
EXPOSURE_MAX = 0.5


def layers(server, *words):
    """Each process's layers, without the launcher's, and the whole document."""
    done = server.command("status", "--config", server.config, *words, "--json", timeout=120)
    document = json.loads(done.stdout)
    jailed = [process for process in document["processes"] if process["role"] != "bulkheadd"]
    return [(process, process["layers"]) for process in jailed], document


def lacking(marks):
    """The layers that a process does not have."""
    return {name for name, mark in marks.items() if mark is False}


def unread(marks):
    return {name for name, mark in marks.items() if mark is None}


class Whole(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        services = [service(), service("direct", "/direct", takes=True), service("net", "/net", network=["tcp:443"])]
        cls.server = Server([site("main", services), site("other")])
        for name in ("direct", "net"):
            cls.server.copy_program("probe", name)
        cls.enterClassContext(cls.server)

    def test_every_process_has_every_layer(self):
        found, document = layers(self.server)
        self.assertEqual((len(found), document["missing"]), (11, ""))
        for process, marks in found:
            with self.subTest(process["name"]):
                self.assertEqual(lacking(marks), LACKS.get(process["name"], set()))
                self.assertEqual(unread(marks) - {"cgroup_version"}, {LANDLOCK})
                for space in ("network", "pid"):
                    host = HOST.get(process["name"]) == space
                    self.assertEqual(marks[f"{space}_namespace"], "host" if host else True)
                self.assertIn(marks["cgroup_version"], ("v1", "v2"))

    def test_the_tables(self):
        lines = self.server.command("status", "--config", self.server.config).stdout.splitlines()
        self.assertEqual(len(lines), 13)
        cells = "\n".join(lines[2:])
        self.assertEqual(cells.count("  all but landlock?; fds "), 8, cells)
        self.assertEqual(cells.count("  all but undumpable, landlock?; fds "), 1, cells)
        for host in HOST.values():
            self.assertEqual(cells.count(f"  all but landlock?; host {host}; fds "), 1, cells)
        table = self.server.command("status", "--config", self.server.config, "--isolation").stdout.splitlines()
        headings = table[0].split()
        self.assertEqual((headings[:3], len(headings)), (["PROCESS", "PID", "uid"], 20))
        for line in table[1:12]:
            cells = line.split()
            self.assertEqual(len(cells), len(headings), line)
            self.assertEqual(cells[-1], "?", line)
            self.assertEqual(cells.count("NO"), len(LACKS.get(cells[0], ())), line)
        self.assertEqual(table[12], "")
        for heading in headings[2:]:
            self.assertRegex("\n".join(table[13:]), rf"(^|\s){heading} +\w")

    @pytest.mark.slow
    def test_scores(self):
        done = self.server.command("status", "--config", self.server.config, "--isolation", "--score", timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(f"probing 1 of {len(NAMES)}: ", done.stderr)
        self.assertIn("EXPOSURE", done.stdout)
        found, document = layers(self.server, "--isolation", "--score")
        self.assertEqual(sorted(score["name"] for score in document["scores"]), sorted(NAMES))
        for score in document["scores"]:
            with self.subTest(score["name"]):
                report = score["report"]
                self.assertEqual(len(report["checks"]), 81)
                costly = [
                    (check["id"], check["weight"], check["found"]) for check in report["checks"] if check["badness"]
                ]
                self.assertLessEqual(report["exposure"], EXPOSURE_MAX, costly)
        # From inside, services see what keeps them from listing a directory that everybody may list.
        for process, marks in found:
            if process["role"] == "service":
                self.assertIs(marks[LANDLOCK], True, process["name"])

    def test_a_probe_of_each_kind(self):
        for name in ("main/probe", "main", "gate"):
            with self.subTest(name):
                done = self.server.command("probe", "--config", self.server.config, name, timeout=120)
                last = done.stdout.splitlines()[-1]
                self.assertRegex(last, r"^2\d\d attempts: \d+ refused, \d+ succeeded, \d+ not applicable; ")
                report = json.loads(
                    self.server.command("probe", "--config", self.server.config, name, "--json", timeout=120).stdout
                )
                wrong = [
                    (attempt["id"], attempt["detail"])
                    for attempt in report["attempts"]
                    if (attempt["result"], attempt["expected"]) == ("succeeded", "refused")
                ]
                self.assertEqual(wrong, [])
                self.assertEqual(done.returncode, 0)
                self.assertTrue(last.endswith("nothing succeeded that should be refused"), last)

    def test_a_wrong_name_is_refused(self):
        done = self.server.command("probe", "--config", self.server.config, "main/prob")
        self.assertEqual(done.returncode, 2)
        self.assertIn('did you mean "main/probe"?', done.stderr)


class Weakened(unittest.TestCase):
    def test_a_layer_that_was_taken_away_is_seen_to_be_missing(self):
        taken = {"isolation": "degraded", "danger_without": ["seccomp"]}
        with Server(server=taken) as server:
            found, document = layers(server, "--isolation")
            self.assertEqual(document["missing"], "seccomp")
            for process, marks in found:
                with self.subTest(process["name"]):
                    self.assertEqual(lacking(marks), {"seccomp"})
            text = server.command("status", "--config", server.config, "--isolation").stdout
            column = text.splitlines()[0].split().index("sec")
            for line in text.splitlines()[1 : len(found) + 1]:
                self.assertEqual(line.split()[column], "NO", line)
            self.assertIn("all but seccomp, landlock?", server.command("status", "--config", server.config).stdout)
            done = server.command("probe", "--config", server.config, "main/probe", timeout=120)
            self.assertEqual(done.returncode, 1)
            self.assertIn("SUCCEEDED", done.stdout)

    def test_without_landlock_a_probe_says_so(self):
        taken = {"isolation": "degraded", "danger_without": [LANDLOCK]}
        with Server(server=taken) as server:
            found, _ = layers(server, "--isolation", "--score")
            marks = {process["name"]: marks[LANDLOCK] for process, marks in found}
            self.assertIs(marks["main/probe"], False)


@rootless_too
class Rootless(unittest.TestCase):
    @unittest.skipUnless(ROOTLESS, "the server runs as root")
    def test_what_is_missing_is_said(self):
        with Server() as server:
            found, document = layers(server)
            for name in ("identity", "root", "bounding set", "pid namespace", "cgroup"):
                self.assertIn(name, document["missing"])
            for process, marks in found:
                with self.subTest(process["name"]):
                    lacks = lacking(marks) | {name for name, mark in marks.items() if mark == "host"}
                    # A process of the same user that is not dumpable can be read by root only.
                    self.assertLessEqual(ROOTLESS_LACKS - unread(marks), lacks)
                    self.assertLessEqual({"identity", "bounding_set", "pid_namespace", "cgroup"}, lacks)
                    for name in ("capabilities", "no_new_privs", "rlimits", "session", "umask", "seccomp"):
                        self.assertIs(marks[name], True, name)


if __name__ == "__main__":
    unittest.main()
