"""Whatever is counted in a configuration, below, at and above its limit, and the size of the batches in which it is handled.

The numbers are those of docs/internals/limits.md: a configuration with as many as that page says is taken, one with one more is
refused, and where there is no limit the first and the last of any number are looked at. What has a row there and is tried by nobody
is a failure here.
"""

import json
import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

import counted
from counted import BATCHED, COUNTED, ELSEWHERE, LIMITED, Folder, number, rows
from harness import USER_RANGE, Server, program
from issuer import Issuer
from tls_server import certificate


class Counted(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.keys = Path(tempfile.mkdtemp(prefix="bulkhead-test-", dir="/tmp"))
        cls.addClassCleanup(shutil.rmtree, cls.keys, ignore_errors=True)
        hosts = [f"s{n}.test" for n in range(2 + number(*counted.SIGNER))]
        cls.own = certificate(cls.keys, "own", "ec", *hosts)
        cls.other = certificate(cls.keys, "other", "ec", "s0.test")
        cls.revoked = Issuer(cls.keys, "ca").crl()

    def mistakes(self, text, files):
        """What `bulkhead check` says of a configuration."""
        with tempfile.TemporaryDirectory(prefix="bulkhead-test-", dir="/tmp") as path:
            os.chmod(path, 0o755)
            folder = Folder(path, self.own, self.other, self.revoked)
            folder.write("main/index.html", b"main")
            folder.write("bin/program", program("bulkhead-probe").read_bytes())
            (folder.path / "bin/program").chmod(0o755)
            folder.fill(text, files)
            command = [program("bulkhead"), "check", "--json", folder.path / "bulkhead.toml"]
            done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
            # The certificates are made for a day or two, which is said of a hundred of them.
            others = (" ends in ", "has more warnings")
            return [one["message"] for one in json.loads(done.stdout) if not any(words in one["message"] for words in others)]

    def test_a_limit_is_where_the_page_says(self):
        for what, (row, at, made) in LIMITED.items():
            most = number(row, at)
            for count in (most - 1, most):
                with self.subTest(what, count=count):
                    self.assertEqual(self.mistakes(*made(count)), [])
            with self.subTest(what, count=most + 1):
                said = self.mistakes(*made(most + 1))
                self.assertTrue(said, "one more is taken")
                # The number stands there as such, or with its separators.
                self.assertRegex(said[0], rf"{most}\b|{most:,}\b", "it does not say how many there may be")

    def test_what_has_no_limit_is_looked_at_to_the_last(self):
        for what, (row, files, made) in BATCHED.items():
            size = number(*row) // files
            for count in (size - 1, size, size + 1):
                with self.subTest(what, count=count):
                    self.assertEqual(self.mistakes(*made(count, ())), [])
                    first, last = self.mistakes(*made(count, (0,))), self.mistakes(*made(count, (count - 1,)))
                    self.assertEqual((len(first), len(last)), (1, 1), (first, last))
            with self.subTest(what, count="two batches and one"):
                bad = (0, size - 1, size, 2 * size)
                self.assertEqual(len(self.mistakes(*made(2 * size + 1, bad))), len(bad))

    def test_every_row_about_what_is_counted_is_tried(self):
        tried = {row for row, *_ in LIMITED.values()} | set(ELSEWHERE)
        untried = [what for what in rows() if COUNTED.match(what) and not any(what.startswith(row) for row in tried)]
        self.assertEqual(untried, [])

    def test_a_start_and_a_reload_look_at_as_many(self):
        """A key that does not fit, the first and the last of more than a batch: what `check` refuses, both others refuse."""
        size = number(*counted.SIGNER)
        own = lambda port, text: text.replace("8443", str(port)).replace(counted.UIDS, USER_RANGE)
        certificate_of_one = {"c0.pem": b"".join(self.own)}
        text = lambda port: own(port, counted.certificates(1, ())[0])
        with Server([], programs=(), files={"main/index.html": "main"} | certificate_of_one, text=text) as server:
            before = server.processes()
            for bad in (1, size):
                text, files = counted.certificates(size + 1, (bad,))
                folder = Folder(server.folder, self.own, self.other)
                folder.fill("", files)
                for words in (("reload", "--run-dir", "run"), ("run", server.config)):
                    with self.subTest(words[0], bad=bad):
                        server.config.write_text(server.with_uids(own(server.port, text)))
                        done = server.command(*words)
                        self.assertNotEqual(done.returncode, 0, done.stdout)
                        self.assertEqual(done.stderr.count("has no certificate that belongs to its key"), 1, done.stderr)
            self.assertEqual(server.processes(), before)


if __name__ == "__main__":
    unittest.main()
