"""An upgrade of which a part does not come up: the exit code, the answer, the status and the log say so, and the next one heals it.

BULKHEAD_SWEEP=whole (`make sweep`) has the new program of each role exit, hang, and be killed in the middle of its start.
"""

import json
import os
import subprocess
import unittest

import pytest

from client import until
from every_role import every_role
from harness import rootless_too
from upgrading import UpgradingServer

pytestmark = pytest.mark.alone

SWEEP = os.environ.get("BULKHEAD_SWEEP") == "whole"
#: Programs of our own, and of the operator's, each with the role that executes the program.
OWN = ("logger", "connector", "broker", "dataproxy", "publisher", "site", "gate", "admin")
OPERATORS = {"probe": "service", "pass": "filter"}
#: Its program reads certificates for the trial of an upgrade, too.
TRIED = "signer"
#: How the new program of a role fails.
EXITS, HANGS, KILLED = "exits", "hangs", "killed"
SHORT = [*((name, EXITS) for name in (*OWN, *OPERATORS)), ("gate", HANGS), ("site", KILLED)]
#: Of a filter that hangs nobody is told: it says nothing when it is ready.
SILENT = "pass"
WHOLE = [(name, how) for name in (*OWN, *OPERATORS) for how in (EXITS, HANGS, KILLED) if name != SILENT or how == EXITS]


@rootless_too
class Half(unittest.TestCase):
    def setUp(self):
        limits = {"start_timeout": "5s"}
        self.server = self.enterContext(every_role(type(self), UpgradingServer, limits=limits, server={"gates": 1}))
        server = self.server
        self.new = server.put_programs(server.folder / "other", version="0.1.9")
        self.false = {}
        for kind in (EXITS, HANGS):
            self.false[kind] = server.owned(server.false_launcher(kind, version="0.1.9").rename(server.folder / f"false-{kind}"))

    def put(self, name, kind):
        """Has the new program of a role be one that fails, or the right one again."""
        server, folder = self.server, self.server.folder / "bin" if name in OPERATORS else self.new
        whole = server.folder / "whole"
        whole.mkdir(exist_ok=True)
        if not (whole / name).exists():
            (whole / name).write_bytes((folder / name).read_bytes())
        beside = folder / "new"
        beside.write_bytes((self.false[kind] if kind else whole / name).read_bytes())
        beside.chmod(0o755)
        server.owned(beside).rename(folder / name)

    def upgrading(self, *words):
        server = self.server
        command = [server.own("bulkhead", server.folder), "upgrade", "--run-dir", "run", "--to", self.new / "bulkheadd", *words]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        return subprocess.Popen(command, cwd=server.folder, **pipes, **server._user())

    def ended(self, process):
        out, err = process.communicate(timeout=120)
        return process.returncode, out, err

    def status(self, *words):
        answer = self.server.command("status", "--run-dir", "run", *words, timeout=60)
        self.assertEqual(answer.returncode, 0, answer.stderr)
        return answer.stdout

    def half_way(self):
        """Whether an upgrade has left something, how much, and the roles of it with their versions."""
        said = json.loads(self.status("--json"))
        left = {(one["role"], one["version"]) for one in said["processes"] if one["is_before"] and one["state"] != "retiring"}
        return said["upgrade"], left

    def kill_one(self, name):
        """Kills the new process that hangs; whether there was one."""
        path = str((self.server.folder / "bin" if name in OPERATORS else self.new) / name)
        for process in self.server.processes():
            try:
                if self.server.executable(process.pid) == (path, True):
                    process.kill()
                    return True
            except OSError:
                continue
        return False

    def test_what_the_trial_needs_is_found_by_the_trial(self):
        before = set(self.server.processes())
        self.put(TRIED, EXITS)
        code, out, err = self.ended(self.upgrading())
        self.assertEqual((code, out), (1, ""), err)
        self.assertIn("cannot take over", err)
        self.assertEqual(self.half_way(), ({"state": "whole", "processes_before": 0}, set()))
        self.assertLessEqual(before, set(self.server.processes()))

    def try_one(self, name, how, before):
        server, role = self.server, OPERATORS.get(name, name)
        self.put(name, EXITS if how == EXITS else HANGS)
        logged = len(server.log())
        process = self.upgrading("--json")
        if how == KILLED:
            self.assertTrue(until(lambda: self.kill_one(name), 20), server.log())
        code, out, err = self.ended(process)
        self.assertEqual(code, 3, (out, err))
        said = json.loads(out)
        self.assertEqual(said["ended"], "half")
        self.assertIn("the upgrade ended half: the launcher is of version 0.1.9 now, but some processes of", said["error"])
        self.assertIn("run `bulkhead upgrade` again", said["error"])
        kept = {one["role"]: one["kept"] for one in said["roles"] if one["kept"]}
        self.assertEqual(set(kept), {role})
        state, left = self.half_way()
        self.assertEqual((state, left), ({"state": "half", "processes_before": sum(kept.values())}, {(role, before)}))
        text = self.status()
        self.assertIn("the last upgrade ended half:", text)
        self.assertRegex(text, rf"of version {before}: {role}\b")
        self.assertIn("upgrade: ended half: the launcher is of version 0.1.9", server.log()[logged:])
        self.put(name, None)
        code, out, err = self.ended(self.upgrading())
        self.assertEqual((code, err), (0, ""), out)
        self.assertEqual(self.half_way(), ({"state": "whole", "processes_before": 0}, set()))
        self.assertNotIn("of version", self.status())
        self.assertEqual((server.status("/"), server.status("/probe")), (200, 200))

    def test_whatever_does_not_come_up_is_said(self):
        before = "0.1.0"
        for name, how in WHOLE if SWEEP else SHORT:
            with self.subTest(role=name, how=how):
                try:
                    self.try_one(name, how, before)
                finally:
                    self.put(name, None)
            before = "0.1.9"

    def test_it_is_said_while_it_goes_on_and_when_the_answer_is_lost(self):
        self.put("site", HANGS)
        process = self.upgrading()
        under_way = lambda: self.half_way()[0]["state"] == "under way"
        self.assertTrue(until(under_way, 20))
        self.assertIn("an upgrade is under way: ", self.status())
        self.server.process("admin").kill()
        code, out, err = self.ended(process)
        self.assertEqual((code, out), (3, ""), err)
        self.assertIn("the upgrade ended half: the answer was lost", err)
        self.assertEqual(self.half_way()[0]["state"], "half")


if __name__ == "__main__":
    unittest.main()
