"""One site's certificate that goes bad while the server runs: a new signer serves all others, however it comes."""

import concurrent.futures
import json
import os
import shutil
import signal
import unittest

from client import until
from dated import Dated
from harness import NOBODY, ROOTLESS, rootless_too

#: The exit status of an order that is carried out, with something left out.
LEFT_OUT = 3
#: Seconds after which a site that has not answered is dark: a handshake waits 5 s for another signer.
ANSWER = 3
SITES = ("one", "two", "three")
UPGRADE = ("upgrade",)
FORCED = ("relaunch", "signer", "--leave-out")
MISMATCH = "the file has no certificate that belongs to its key; name the key that the certificate was issued for"
#: What becomes of the file of site two, and what is said of it.
MISSING, BROKEN, MISMATCHED = "missing", "broken", "mismatched"
SAID = {
    MISSING: "the file cannot be opened: ",
    BROKEN: "the file needs exactly one private key (PEM, not encrypted); put the private key into it",
    MISMATCHED: MISMATCH,
}


@rootless_too
class Bad(unittest.TestCase):
    def setUp(self):
        sites = {name: ([f"{name}.test"], [f"DNS:{name}.test"], -1, 90) for name in SITES}
        self.server = self.enterContext(Dated(sites))
        self.file, self.kept = self.server.folder / "two.pem", self.server.folder / "kept.pem"
        # A folder comes back with its files as they were, down to the time of their last change.
        self.held = self.server.folder / "held"
        self.held.mkdir()
        if ROOTLESS and os.geteuid() == 0:
            shutil.chown(self.held, NOBODY, NOBODY)
        self.file.rename(self.held / "two.pem")
        self.file.symlink_to("held/two.pem")
        self.assertTrue(until(lambda: "two.pem of site two is in use" in self.server.log(), 20), self.server.log())

    def put(self, text):
        new = self.server.write("two.new", text)
        new.chmod(0o600)
        if ROOTLESS and os.geteuid() == 0:
            shutil.chown(new, NOBODY, NOBODY)
        new.rename(self.file)

    def spoil(self, how):
        """Has the file of site two be of no use, and waits until that was found: its site goes on meanwhile."""
        shutil.copy2(self.file, self.kept)
        known = len(self.server.log())
        if how == MISSING:
            self.held.rename(self.server.folder / "away")
        elif how == BROKEN:
            self.put("nothing\n")
        else:
            made = self.server.folder / "made"
            self.put((made / "one.crt").read_text() + (made / "two.key").read_text())
        self.assertTrue(until(lambda: "two.pem" in self.server.log()[known:], 20))
        self.assertEqual(self.pages(), SITES)

    def mend(self, how):
        if how == MISSING:
            (self.server.folder / "away").rename(self.held)
        else:
            self.put(self.kept.read_text())
        self.assertTrue(until(lambda: self.pages() == SITES, 20), self.server.log())
        self.assertEqual(self.left_out(), [])

    def pages(self):
        """What each site answers to a new client; nothing, where the handshake fails or waits for another signer."""
        with concurrent.futures.ThreadPoolExecutor(len(SITES)) as clients:
            return tuple(clients.map(lambda name: self.server.page(name, ANSWER), SITES))

    def signers(self):
        return [process.pid for process in self.server.processes("signer")]

    def left_out(self):
        status = json.loads(self.server.command("status", "--json", "--run-dir", "run").stdout)
        left_out = [(one["file"], one["instead"], one["sites"]) for one in status["left_out"]]
        return [one for one in left_out if one[0].endswith(".pem")]

    def line(self):
        return f"left out: {self.file}: handshakes with these hosts fail until the file is right: two.test"

    def only_two_is_dark(self, how, known):
        """All others are served by the new signer, and it is said at every place."""
        self.assertTrue(until(lambda: self.pages() == ("one", "", "three"), 20), self.pages())
        said = self.server.log()[known:]
        self.assertIn(f"warning [bulkheadd] `certificates` {self.file} of site two: {SAID[how]}", said)
        self.assertIn("; the signer begins without it, and handshakes with the site fail until the file is right", said)
        self.assertEqual(self.left_out(), [(str(self.file), "no certificate", ["two"])])
        text = self.server.command("status", "--run-dir", "run").stdout
        self.assertIn(self.line(), text)
        listed = json.loads(self.server.command("status", "--certificates", "--json", "--run-dir", "run").stdout)
        self.assertEqual([one["site"] for one in listed["certificates"] if one["fault"]], ["two"])

    def ordered(self, words, how):
        known = len(self.server.log())
        answer = self.server.command(*words, "--run-dir", "run", timeout=90)
        self.assertEqual(answer.returncode, LEFT_OUT, (answer.stdout, answer.stderr, self.server.log()[known:]))
        self.assertIn(self.line(), answer.stderr)
        self.assertIn(f"certificate of site two: {SAID[how]}", answer.stderr)
        return known

    def gone(self, before):
        is_new = lambda: len(self.signers()) == 1 and self.signers() != before
        self.assertTrue(until(is_new, 20), (before, self.signers()))

    def test_a_crash(self):
        for how in SAID:
            with self.subTest(how):
                self.spoil(how)
                before, known = self.signers(), len(self.server.log())
                os.kill(before[0], signal.SIGKILL)
                self.gone(before)
                self.only_two_is_dark(how, known)
                # Nothing gets worse now: a relaunch needs no permission, and says what is left out all the same.
                before = self.signers()
                self.ordered(("relaunch", "signer"), how)
                self.gone(before)
                self.assertEqual(self.pages(), ("one", "", "three"))
                self.mend(how)

    def test_a_relaunch(self):
        for how in SAID:
            with self.subTest(how):
                self.spoil(how)
                before = self.signers()
                refused = self.server.command("relaunch", "signer", "--run-dir", "run", timeout=60)
                self.assertEqual(refused.returncode, 1, refused.stdout)
                self.assertIn(SAID[how], refused.stderr)
                self.assertIn("--leave-out", refused.stderr)
                # The one that is no successor ends.
                self.assertTrue(until(lambda: self.signers() == before, 10), self.signers())
                self.assertEqual((self.pages(), self.left_out()), (SITES, []))
                known = self.ordered(FORCED, how)
                self.gone(before)
                self.only_two_is_dark(how, known)
                self.mend(how)
        self.assertEqual(self.server.command(*FORCED, "--run-dir", "run").returncode, 0)
        other = self.server.command("relaunch", "gate", "--leave-out", "--run-dir", "run")
        self.assertEqual((other.returncode, "is about certificates" in other.stderr), (2, True), other.stderr)

    def test_an_upgrade(self):
        for how in SAID:
            with self.subTest(how):
                self.spoil(how)
                before = self.signers()
                tried = self.server.command("upgrade", "--dry-run", "--run-dir", "run", timeout=60)
                self.assertEqual(tried.returncode, 0, tried.stderr)
                known = self.ordered(UPGRADE, how)
                self.gone(before)
                self.only_two_is_dark(how, known)
                self.mend(how)
        for code in (0, LEFT_OUT):
            if code:
                self.spoil(BROKEN)
            done = self.server.command("upgrade", "--json", "--run-dir", "run", timeout=90)
            said = json.loads(done.stdout)
            self.assertEqual((done.returncode, said["ended"], said["error"]), (code, "whole", None))
            self.assertEqual([one["sites"] for one in said["left_out"]], [["two"]] * (code == LEFT_OUT))


if __name__ == "__main__":
    unittest.main()
