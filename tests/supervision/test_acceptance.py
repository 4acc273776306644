"""The acceptance configuration as it stands, but for its port, with the data of the demo."""

import subprocess
import unittest

from client import until
from harness import ROOTLESS, TOP, Server, program, rootless_too

CONFIG = TOP / "tests/config/main-job.toml"


def configuration(port):
    text = CONFIG.read_text()
    changed = text.replace('"127.0.0.1:8080"', f'"127.0.0.1:{port}"')
    assert changed != text, "the address is not found"
    return changed


@rootless_too
class Acceptance(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server([], ("search", "package", "crash"), text=configuration)
        made = subprocess.run(
            [program("make-site"), cls.server.folder, "--status", TOP / "examples/packages/sample-status"],
            capture_output=True, text=True, check=False, **cls.server._user(),
        )
        assert made.returncode == 0, made.stderr
        cls.enterClassContext(cls.server)

    def test_pages(self):
        for host in ("localhost", "127.0.0.1", "packages.test"):
            answer = self.server.get("/", host)
            self.assertEqual(answer.status, 200)
            self.assertIn("packages", answer.text)
        self.assertEqual(self.server.status("/style.css", "localhost"), 200)
        self.assertEqual(self.server.status("/", "other.test"), 200)
        self.assertNotEqual(self.server.get("/", "other.test").body, self.server.get("/", "localhost").body)
        self.assertEqual(self.server.status("/", "unknown.test"), 404)

    def test_search(self):
        answer = self.server.get("/search?q=bash", "localhost")
        self.assertEqual(answer.status, 200)
        self.assertIn("/package/", answer.text)
        self.assertEqual(self.server.status("/search?q=bash", "other.test"), 404)

    def test_package(self):
        answer = self.server.get("/package/g%2B%2B", "localhost")
        self.assertEqual(answer.status, 200)
        self.assertIn("g++", answer.text)
        self.assertEqual(self.server.status("/package/no-such-one", "localhost"), 404)

    def test_crash(self):
        old = self.server.process("bin/crash")
        for _ in range(2):
            self.assertEqual(self.server.status("/crash", "localhost"), 200)
            self.assertNotEqual(self.server.status("/crash/now", "localhost"), 200)
        others = [self.server.status(target, "localhost") for target in ("/", "/search?q=a", "/package/bash")]
        self.assertEqual(others, [200, 200, 200])
        self.assertTrue(until(lambda: "packages/crash (pid" in self.server.log(), 3), "it did not crash")
        self.assertNotEqual(self.server.process("bin/crash").pid, old.pid)

    def test_layers(self):
        self.assertEqual("without the layers" in self.server.stderr(), ROOTLESS)
        status = self.server.command("status", "--config", self.server.config)
        self.assertEqual(status.returncode, 0, status.stderr)
        self.assertIn("packages/search", status.stdout)


if __name__ == "__main__":
    unittest.main()
