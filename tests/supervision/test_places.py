"""The launcher's own folders and files: it starts only where nobody else could have put something in its way."""

import os
import shutil
import unittest

from harness import NOBODY, ROOTLESS, Server, site


@unittest.skipIf(ROOTLESS, "root's files are what is to be protected")
class Places(unittest.TestCase):
    def refusal(self, prepare, status=2):
        """What `bulkhead run` says when it refuses to start after `prepare(folder)`."""
        server = Server([site()], programs=())
        self.addCleanup(shutil.rmtree, server.folder, ignore_errors=True)
        prepare(server.folder)
        answer = server.command("run", server.config)
        self.assertEqual(answer.returncode, status, answer.stderr)
        return answer.stderr

    def test_a_log_that_is_a_link(self):
        """As in nginx's CVE-2016-1247: whoever could replace a log would write any file as root."""
        def prepare(folder):
            (folder / "target").write_text("precious")
            (folder / "log").mkdir(mode=0o755)
            (folder / "log/error.log").symlink_to(folder / "target")
            self.target = folder / "target"

        self.assertIn("error.log", self.refusal(prepare, status=1))
        self.assertEqual(self.target.read_text(), "precious")

    def test_a_pid_file_that_is_a_link(self):
        def prepare(folder):
            (folder / "target").write_text("precious")
            (folder / "run").mkdir(mode=0o755)
            (folder / "run/bulkheadd.pid").symlink_to(folder / "target")
            self.target = folder / "target"

        self.assertIn("bulkheadd.pid", self.refusal(prepare, status=1))
        self.assertEqual(self.target.read_text(), "precious")

    def test_folders_that_others_can_write(self):
        for name in ("state", "run", "log"):
            with self.subTest(name):
                def prepare(folder):
                    (folder / name).mkdir()
                    (folder / name).chmod(0o777)

                self.assertIn("nobody but who starts bulkhead may write there", self.refusal(prepare))

    def test_folders_of_somebody_else(self):
        for name in ("state", "run", "log"):
            with self.subTest(name):
                def prepare(folder):
                    (folder / name).mkdir(mode=0o755)
                    os.chown(folder / name, NOBODY, NOBODY)

                self.assertIn(f"belongs to uid {NOBODY}", self.refusal(prepare))

    def test_a_folder_that_is_a_link(self):
        def prepare(folder):
            (folder / "elsewhere").mkdir(mode=0o755)
            (folder / "log").symlink_to(folder / "elsewhere")

        self.assertIn("is a symbolic link", self.refusal(prepare))


if __name__ == "__main__":
    unittest.main()
