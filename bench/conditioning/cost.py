"""What the gate's policies and the priority tree cost."""

import json
import pathlib
import subprocess
import sys

CHECK = pathlib.Path(__file__).resolve().parent.parent / "check"


class Policies:
    """Instructions of a gate for a connection, with all policies and with as few as can be: less than noise in time is."""

    #: Two microseconds of a processor that does an instruction in each cycle of 3 GHz.
    key, title, limit = "policies", "The policies of a gate", 6000
    servers = ()
    cases = {"on": "gate-policies-on", "off": "gate-policies-off"}

    def run(self, bench):
        """{"on" or "off": {0: [{"instructions": for a connection}]}}"""
        line = [sys.executable, CHECK, "--json", "--program", bench.options.bulkhead.parent / "instructions", *self.cases.values()]
        done = subprocess.run(line, capture_output=True, text=True, timeout=600, check=False)
        if done.returncode:
            raise RuntimeError("the policies cannot be measured: " + done.stderr[-2000:])
        counted = json.loads(done.stdout)
        found = {name: {0: [{"instructions": counted[case]}]} for name, case in self.cases.items()}
        bench.say(f"{self.key} {counted}")
        return found


class Tree:
    """The crate `conditioning`'s own measurement of its tree: a million addresses of each kind."""

    key, title = "tree", "The priority tree"
    servers = ()

    def run(self, bench):
        """{"tree": {0: [what it printed, and whether it was content]}}"""
        line = ["cargo", "run", "--offline", "--release", "--quiet", "-p", "conditioning", "--example", "tree"]
        done = subprocess.run(line, cwd=bench.top, capture_output=True, text=True, timeout=900, check=False)
        bench.say(done.stdout.strip())
        if "bytes/address" not in done.stdout:
            raise RuntimeError("the tree cannot be measured: " + done.stderr[-2000:])
        return {"tree": {0: [{"text": done.stdout.strip(), "good": done.returncode == 0}]}}


POLICIES, TREE = Policies(), Tree()
