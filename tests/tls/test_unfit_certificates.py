"""Certificates that clients refuse, for their dates or their names: they are served, and said to be so at every place."""

import json
import subprocess
import time
import unittest

import pytest

from client import until
from dated import DAY, Dated
from harness import NOBODY, ROOTLESS, rootless_too

EXPIRED = "has expired: clients refuse it"
NOT_YET = "is not valid yet: clients refuse it"
OTHER = "names none of the site's hosts: clients refuse it"


@rootless_too
class Unfit(unittest.TestCase):
    def test_each_is_served_and_said(self):
        sites = {
            "good": (["good.test"], ["DNS:good.test"], -1, 90),
            "wide": (["x.wide.test"], ["DNS:*.wide.test"], -1, 90),
            "number": (["number.test", "127.0.0.9"], ["IP:127.0.0.9"], -1, 90),
            "expired": (["expired.test"], ["DNS:expired.test"], -9, -1),
            "early": (["early.test"], ["DNS:early.test"], 2, 90),
            "other": (["other.test"], ["DNS:another.test", "DNS:x.other.test", "DNS:*.x.other.test"], -1, 90),
            "both": (["both.test"], ["DNS:good.test"], -9, -1),
            "soon": (["soon.test"], ["DNS:soon.test"], -1, 9.5),
        }
        expected = dict.fromkeys(sites, []) | {
            "expired": [EXPIRED], "early": [NOT_YET], "other": [OTHER], "both": [EXPIRED, OTHER], "soon": ["ends in 9 days"],
        }
        # Of one host of several, only the check speaks.
        left = "leaves out number.test of the site's hosts (it names addresses alone): clients refuse the site under this name"
        partly = {"number": [left]}
        with Dated(sites) as server:
            checked = server.command("check", server.config)
            self.assertEqual(checked.returncode, 0, checked.stderr)
            lines = server.config.read_text().splitlines()
            for name, objections in expected.items():
                with self.subTest(name):
                    self.assertEqual(server.page(name), name)
                    self.assertTrue(until(lambda: server.said(name) == objections, 5), server.log())
                    self.assertEqual(server.warnings(name), objections)
                    line = lines.index(f'certificates = ["{name}.pem"]') + 1
                    place = f"{server.config}:{line}:17: warning: `certificates` {server.folder / name}.pem "
                    told = [told.removeprefix(place) for told in checked.stderr.splitlines() if told.startswith(place)]
                    self.assertEqual(told, objections + partly.get(name, []))
            self.assertEqual(checked.stderr.count("= help: renew it"), 3)
            listed = json.loads(server.command("status", "--certificates", "--json", "--config", server.config).stdout)
            named = {one["site"]: one["named"] for one in listed["certificates"]}
            self.assertEqual({name for name in named if not named[name]}, {"other", "both"})
            if not ROOTLESS:
                command = [server.own("bulkhead", server.folder), "check", str(server.config)]
                other = subprocess.run(command, capture_output=True, text=True, user=NOBODY, group=NOBODY, extra_groups=[], check=False)
                self.assertIn("good.pem cannot be read by this user", other.stderr)

    @pytest.mark.slow
    def test_what_is_installed_or_becomes_so_while_it_runs(self):
        with Dated({"a": (["a.test"], ["DNS:a.test"], -1, 90)}) as server:
            self.assertEqual((server.said("a"), server.warnings("a")), ([], []))
            server.install("a", ["DNS:b.test"], time.time() - DAY, time.time() + 90 * DAY)
            self.assertTrue(until(lambda: server.said("a") == [OTHER], 20), server.log())
            self.assertEqual(server.page("a"), "a")
            server.install("a", ["DNS:a.test"], time.time() - DAY, time.time() + 90 * DAY)
            self.assertTrue(until(lambda: server.warnings("a") == [], 20))
            server.install("a", ["DNS:a.test"], time.time() - DAY, time.time() + 8)
            # It is said in its last day, and again when it is over; each once.
            self.assertTrue(until(lambda: server.said("a")[-1:] == [EXPIRED], 30), server.log())
            self.assertIn(server.said("a"), ([OTHER, "ends within a day", EXPIRED], [OTHER, EXPIRED]))
            server.process("signer").kill()
            self.assertTrue(until(lambda: server.page("a") == "a", 10))


if __name__ == "__main__":
    unittest.main()
