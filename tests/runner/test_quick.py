"""`make quick`: what it runs after a change, in a repository of the test's own."""

import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

from harness import TOP

MANIFEST = '[package]\nname = "{}"\nversion = "0.1.0"\nedition = "2024"\n'
FILES = {
    "Cargo.toml": '[workspace]\nresolver = "3"\nmembers = ["crates/*"]\n',
    "crates/site/Cargo.toml": MANIFEST.format("site"),
    "crates/site/src/lib.rs": "",
    "crates/server/Cargo.toml": MANIFEST.format("bulkhead-server"),
    "crates/server/src/lib.rs": "",
    "tests/supervision/test_sites.py": "import held\n",
    "tests/supervision/test_upgrade.py": "",
    "tests/static/test_static.py": "",
    "tests/lib/held.py": "",
    "tests/documents/test_facts.py": "",
    "README.md": "",
}


class Quick(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="bulkhead-quick-")
        self.addCleanup(folder.cleanup)
        self.top = Path(folder.name)
        for name, text in FILES.items():
            self.write(name, text)
        shutil.copy2(TOP / "tests/quick", self.top / "tests/quick")
        self.git("init", "--quiet", "--initial-branch=main")
        self.commit()

    def write(self, name, text):
        path = self.top / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def git(self, *words):
        command = ["git", "-c", "user.name=test", "-c", "user.email=test@test.invalid", *words]
        subprocess.run(command, cwd=self.top, check=True, capture_output=True)

    def quick(self, *words):
        return subprocess.run(["tests/quick", *words], cwd=self.top, capture_output=True, text=True, check=False)

    def commit(self):
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message=change")

    def listed(self, *words):
        done = self.quick("--list", *words)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_a_crate_has_its_own_tests_and_those_with_its_name(self):
        self.commit_change("crates/site/src/lib.rs")
        said = self.listed()
        self.assertIn("cargo clippy --quiet -p site --all-targets", said)
        self.assertRegex(said, r"tests/quick --unit site +#")
        self.assertRegex(said, r"tests/run .* test_sites\. +# has `site` in its name: test_sites\n")

    def test_a_crate_is_tested_by_the_name_of_its_package(self):
        self.commit_change("crates/server/src/lib.rs")
        said = self.listed()
        self.assertIn("tests/quick --unit bulkhead-server ", said)
        self.assertNotIn("tests/run", said)

    def test_a_changed_test_is_run_and_what_imports_a_changed_file(self):
        self.write("tests/lib/held.py", "# changed\n")
        self.write("tests/static/test_new.py", "")
        said = self.listed()
        self.assertRegex(said, r"tests/run .* test_sites\. test_new\. +# imports held: test_sites; changed: test_new\n")
        self.assertNotIn("cargo test", said)

    def test_pages_have_the_tests_of_documents(self):
        self.commit_change("README.md")
        self.assertRegex(self.listed(), r"tests/run .* test_facts\. ")

    def test_all_commits_of_a_branch_count(self):
        self.git("switch", "--quiet", "--create=branch")
        self.commit_change("crates/site/src/lib.rs")
        self.commit_change("README.md")
        self.assertIn("where this branch left main", said := self.listed())
        self.assertIn("-p site", said)
        self.assertNotIn("-p site", self.listed("--base", "HEAD~1"))

    def test_what_it_does_not_try_is_said(self):
        self.commit_change("Cargo.toml", FILES["Cargo.toml"] + "# changed\n")
        self.assertIn("not looked at: Cargo.toml: `make lint unit` builds all crates", self.listed())

    def test_it_ends_at_the_first_failure(self):
        self.commit_change("crates/site/src/lib.rs", "fn  badly_formatted( ) { }\n")
        done = self.quick()
        self.assertNotEqual(done.returncode, 0)
        self.assertRegex(done.stderr, r"failed after \d+ s: cargo fmt")
        self.assertNotIn("cargo clippy", done.stdout)

    def test_all_test_programs_of_a_crate_are_run(self):
        test = "#[test]\nfn it() {{ assert!({}, \"{}\") }}\n"
        self.write("crates/site/src/lib.rs", test.format("true", ""))
        self.write("crates/site/tests/other.rs", test.format("true", ""))
        done = self.quick("--unit", "site")
        self.assertEqual((done.returncode, done.stdout), (0, "2 test programs, 2 tests passed\n"), done.stderr)
        self.write("crates/site/tests/other.rs", test.format("1 > 2", "the reason"))
        done = self.quick("--unit", "site")
        self.assertEqual(done.returncode, 1)
        self.assertIn("the reason", done.stdout)

    def test_a_commit_that_is_not_there(self):
        done = self.quick("--base", "nothing")
        self.assertEqual(done.returncode, 2)
        self.assertIn("--base: no commit is called nothing", done.stderr)

    def commit_change(self, name, text="// changed\n"):
        self.write(name, text)
        self.commit()
