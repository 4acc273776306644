"""`bulkhead new`: what it makes builds, passes its tests, and runs as it is."""

import os
import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

from harness import TOP, Server, program

#: Crates are those that this repository was built of; what is built is kept from one run to the next.
TARGET = TOP / "target" / "new"
QUICK = {"CARGO_NET_OFFLINE": "true", "CARGO_PROFILE_RELEASE_OPT_LEVEL": "0"}


class Folder:
    """A folder in which somebody makes services."""

    def __init__(self, test):
        self.path = Path(tempfile.mkdtemp(prefix="bulkhead-new-test-", dir="/tmp"))
        self.path.chmod(0o755)
        test.addCleanup(shutil.rmtree, self.path)

    def new(self, *words):
        return self.run([program("bulkhead"), "new", *words])

    def run(self, command, under=""):
        environment = {name: value for name, value in os.environ.items() if not name.startswith("CARGO_")}
        # A compiler takes all that the processors have, and other tests go on.
        return subprocess.run(["nice", "-n", "10", *command], capture_output=True, text=True, cwd=self.path / under,
                              check=False, env=environment | QUICK)


class New(unittest.TestCase):
    def setUp(self):
        self.folder = Folder(self)

    def made(self, name, *words):
        said = self.folder.new(name, *words, "--sdk", TOP / "crates/service")
        self.assertEqual((said.returncode, said.stderr), (0, ""))
        return re.findall("^  (.+)$", said.stdout, re.MULTILINE)

    def test_a_rust_service_from_nothing_to_an_answer(self):
        if shutil.which("cargo") is None:
            self.skipTest("there is no cargo")
        into, build, run = self.made("hello")
        self.assertEqual((into, run), ("cd hello", "bulkhead run"))
        project = self.folder.path / "hello"
        shutil.copy(TOP / "Cargo.lock", project)
        TARGET.mkdir(parents=True, exist_ok=True)
        (project / "target").symlink_to(TARGET)
        for command in (build, "cargo test --release", "cargo fmt --check"):
            said = self.folder.run(["sh", "-ec", command], "hello")
            self.assertEqual(said.returncode, 0, said.stdout + said.stderr)
            self.assertNotIn("warning:", said.stderr)
        said = self.folder.run([program("bulkhead"), "check"], "hello")
        self.assertEqual(said.returncode, 0, said.stderr)
        text = (project / "bulkhead.toml").read_text()
        at = lambda port: text.replace("127.0.0.1:8080", f"127.0.0.1:{port}")
        server = Server([], (), text=at)
        server.copy_program(str(project / "bin/hello"))
        with server:
            self.assertIn("<p>Hello, O&#39;Brien!</p>", server.get("/?name=O%27Brien").text)
            self.assertEqual(server.get("/square?number=12").text, "144")
            self.assertEqual(server.status("/square?number=%3C"), 400)

    def test_a_python_service_from_nothing_to_an_answer(self):
        said = self.folder.new("hello", "--lang", "python", "--sdk", TOP / "python")
        self.assertEqual((said.returncode, said.stderr), (0, ""))
        into, test, run = re.findall("^  (.+)$", said.stdout, re.MULTILINE)
        self.assertEqual((into, run), ("cd hello", "bulkhead run"))
        project = self.folder.path / "hello"
        said = self.folder.run(["sh", "-ec", test], "hello")
        self.assertEqual(said.returncode, 0, said.stdout + said.stderr)
        self.assertIn("Ran 2 tests", said.stderr)
        text = (project / "bulkhead.toml").read_text()
        files = {f"app/{path.name}": path.read_bytes() for path in (project / "app").glob("*.py")}
        server = Server([], (), text=lambda port: text.replace("127.0.0.1:8080", f"127.0.0.1:{port}"), files=files)
        said = server.command("check")
        self.assertEqual(said.returncode, 0, said.stderr)
        with server:
            self.assertIn("<p>Hello, O&#39;Brien!</p>", server.get("/?name=O%27Brien").text)
            self.assertEqual(server.status("/elsewhere"), 404)

    def test_nothing_is_written_over(self):
        self.made("hello")
        kept = {path: path.read_bytes() for path in self.folder.path.rglob("*") if path.is_file()}
        self.assertEqual(len(kept), 4)
        for there in ("hello", "file", "link"):
            if there != "hello":
                path = self.folder.path / there
                path.symlink_to("elsewhere") if there == "link" else path.write_text("mine\n")
            said = self.folder.new(there, "--sdk", TOP / "crates/service")
            self.assertEqual((said.returncode, said.stdout), (1, ""))
            self.assertIn(f"cannot make the folder {there}: File exists", said.stderr)
        self.assertEqual({path: path.read_bytes() for path in kept}, kept)
        self.assertFalse((self.folder.path / "elsewhere").exists())

    def test_what_cannot_be_is_refused(self):
        for words, reason in (
            (["Hello"], "all lower case"),
            (["../hello"], "all lower case"),
            (["test"], "another name"),
            (["hello", "--sdk", "/nowhere"], "there is no SDK in /nowhere"),
            (["hello", "--lang", "cobol"], "possible values: rust, python"),
        ):
            said = self.folder.new(*words)
            self.assertEqual(said.returncode, 2, words)
            self.assertIn(reason, said.stderr)
        self.assertEqual(list(self.folder.path.iterdir()), [])
        # Away from the source, the SDK has to be named.
        shutil.copy(program("bulkhead"), self.folder.path)
        said = self.folder.run([self.folder.path / "bulkhead", "new", "hello"])
        self.assertEqual(said.returncode, 2)
        self.assertIn("--sdk /path/to/bulkhead/crates/service", said.stderr)
