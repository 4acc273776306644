"""Labels: a service whose program has one runs under that profile of AppArmor, or not at all."""

import subprocess
import unittest
from pathlib import Path

from client import until
from harness import ROOTLESS, Server, service, site

MODULE = Path("/sys/kernel/security/apparmor")
NAME = "bulkhead-test-label"
# It may do everything but read one folder.
PROFILE = f"""profile {NAME} flags=(attach_disconnected,mediate_deleted) {{
  file, network, unix, capability, signal, ptrace, mount, pivot_root, umount,
  deny /etc/** r,
}}
"""


@unittest.skipIf(ROOTLESS, "profiles are root's to load")
@unittest.skipUnless(MODULE.exists(), "AppArmor is not active here")
class AppArmor(unittest.TestCase):
    def load(self, *words):
        subprocess.run(["apparmor_parser", *words], input=PROFILE, text=True, check=True, timeout=60)

    def test_the_profile_is_on_the_process(self):
        self.load("--replace", "--skip-cache")
        self.addCleanup(self.load, "--remove")
        with Server([site(services=[service(label=NAME)])]) as server:
            probe = server.process("bin/probe")
            read = lambda process: Path(f"/proc/{process.pid}/attr/current").read_text().strip()
            self.assertEqual(read(probe), f"{NAME} (enforce)")
            self.assertNotIn(NAME, read(server.process("site")))
            self.assertEqual(server.status("/probe"), 200)

    def test_without_its_profile_it_does_not_start(self):
        sites = [site(services=[service(label=f"{NAME}-none")])]
        with Server(sites, answers=False, limits={"start_timeout": "1s"}) as server:
            said = lambda: "cannot start it: label: No such file" in server.log("error")
            self.assertTrue(until(said, 5), server.log("error"))
            self.assertIn(server.status("/probe"), (500, 503))
            self.assertEqual(server.processes("bin/probe"), [])


if __name__ == "__main__":
    unittest.main()
