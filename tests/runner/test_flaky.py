"""A test that fails and passes when run again makes the run red, unless the machine or tests/flaky.json excuses it."""

import datetime
import json
import os
import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import again
from harness import TOP

TESTS = TOP / "tests"
PARTS = ("run", "unit", "conftest.py", "pytest.ini",
         *(f"lib/{name}.py" for name in ("hooks", "again", "counts", "durations", "machine")))
#: Tests that fail at their first run; one of them in a process that is stopped meanwhile, as by a machine.
FILE = """
import os, subprocess, unittest
from pathlib import Path

def fails_once(test, stopped=0):
    before = Path(__file__).with_name(test.id())
    if not before.exists():
        if stopped:
            pid = os.getpid()
            subprocess.run(["sh", "-c", f"kill -STOP {pid}; sleep {stopped}; kill -CONT {pid}"], check=True)
        before.touch()
        test.fail("the first time")

class Once(unittest.TestCase):
    rootless = True

    def test_named(self):
        fails_once(self)

    def test_named_in_part(self):
        fails_once(self)

    def test_long(self):
        fails_once(self, 1.8)

class Named(unittest.TestCase):
    rootless = True

    def test_class(self):
        fails_once(self)
"""
EXCUSED = "in tests/flaky.json since 2026-01-01: as it is"
KNOWN = ("test_once.Once.test_named", "test_once.Named", "test_once.On", "test_other")


#: A crate with such a test, and one besides, as Cargo names the crate of what failed only if there are several.
CRATE = {
    "Cargo.toml": '[workspace]\nresolver = "3"\nmembers = ["once", "other"]\n',
    "other/Cargo.toml": '[package]\nname = "other"\nversion = "0.1.0"\nedition = "2024"\n',
    "other/src/lib.rs": "",
    "once/Cargo.toml": '[package]\nname = "once"\nversion = "0.1.0"\nedition = "2024"\n',
    "once/src/lib.rs": """
#[test]
fn fails_once() {
    let before = std::path::Path::new("before");
    let was = before.exists();
    std::fs::write(before, "").unwrap();
    assert!(was, "the first time");
}
""",
}


def copy_parts(tests, *known):
    """Copies what runs tests, with a list of those that are known to be flaky."""
    for part in PARTS:
        (tests / part).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(TESTS / part, tests / part)
    entries = [{"test": name, "since": "2026-01-01", "why": "as it is"} for name in known]
    (tests / "flaky.json").write_text(json.dumps(entries), encoding="utf-8")


def others():
    """This process's environment without what is said to this run of the tests."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("BULKHEAD_", "PYTEST_"))}


class Runs(unittest.TestCase):
    """Runs of a copy of tests/run with tests that pass when they are run again."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="bulkhead-flaky-")
        cls.addClassCleanup(folder.cleanup)
        cls.tests = Path(folder.name) / "tests"
        copy_parts(cls.tests, *KNOWN)
        (cls.tests / "folder").mkdir()
        (cls.tests / "folder/test_once.py").write_text(FILE, encoding="utf-8")
        cls.status, cls.said = cls.run_tests()

    @classmethod
    def run_tests(cls, *words, **settings):
        """The exit status, and what stands in the summary."""
        summary = cls.tests / "summary.txt"
        summary.unlink(missing_ok=True)
        names = others()
        python = f"{os.environ.get('PYTHONPATH', '')}:{TOP / 'target/python'}"
        names |= {"BULKHEAD_SUMMARY": str(summary), "PYTHONPATH": python} | settings
        done = subprocess.run([cls.tests / "run", "--rootless", *words], env=names, capture_output=True, text=True,
                              timeout=60, check=False)
        return done.returncode, summary.read_text(encoding="utf-8") if summary.exists() else done.stdout + done.stderr

    def test_the_run_is_red(self):
        self.assertEqual(self.status, 1, self.said)
        self.assertRegex(self.said, r"^rootless: 3 passed, 1 failed, 0 skipped\n")
        self.assertIn("name it in tests/flaky.json", self.said)

    def test_the_list_excuses_a_test_and_a_class(self):
        for name in ("Once.test_named", "Named.test_class"):
            self.assertIn(f"  flaky: rootless: test_once.{name} ({EXCUSED})\n", self.said)

    def test_a_part_of_a_name_excuses_nothing(self):
        self.assertIn("  FAILED: rootless: test_once.Once.test_named_in_part\n", self.said)

    def test_a_machine_that_stood_still_excuses(self):
        self.assertRegex(self.said, r"flaky: .* test_once.Once.test_long \(the machine stood still for \d+\.\d s\)\n")

    def test_one_that_stood_still_for_a_moment_does_not(self):
        with mock.patch.dict(os.environ, others(), clear=True):
            self.assertIsNone(again.excuse({"name": "test_once.Once.test_short", "stood": 0.9}))

    def test_it_is_the_same_when_tests_are_run_again_after_all_others(self):
        for path in (self.tests / "folder").glob("test_once.Once.*"):
            path.unlink()
        put_off = str(self.tests / "again.jsonl")
        status, said = self.run_tests("test_once.Once.test_named", BULKHEAD_AGAIN=put_off)
        self.assertEqual(status, 0, said)
        status, said = self.run_tests("--again", BULKHEAD_AGAIN=put_off)
        self.assertEqual(status, 1, said)
        self.assertRegex(said, r"once more: 1 passed, 1 failed")


class Unit(unittest.TestCase):
    """The same of `cargo test`."""

    def test_a_test_program_that_fails_once_is_red_unless_the_list_names_it(self):
        folder = Path(self.enterContext(tempfile.TemporaryDirectory(prefix="bulkhead-flaky-")))
        for name, text in CRATE.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text, encoding="utf-8")
        for known, status, called in (((), 1, "FAILED"), (("unit: -p once --lib",), 0, f"flaky, {EXCUSED}")):
            (folder / "once/before").unlink(missing_ok=True)
            copy_parts(folder / "tests", *known)
            done = subprocess.run(["tests/unit"], cwd=folder, env=others(), capture_output=True, text=True, timeout=120,
                                  check=False)
            self.assertEqual(done.returncode, status, done.stdout + done.stderr)
            self.assertIn(f"\n{called}: -p once --lib (fails_once)\n", done.stdout)


class List(unittest.TestCase):
    def test_each_entry_has_a_test_a_reason_and_a_date(self):
        for one in again.known():
            with self.subTest(test=one["test"]):
                self.assertEqual(one.keys(), {"test", "since", "why"})
                self.assertLessEqual(datetime.date.fromisoformat(one["since"]), datetime.date.today())
                self.assertGreater(len(one["why"]), 20)
                if not one["test"].startswith("unit: "):
                    self.assertTrue(self.is_there(*one["test"].split(".")), "no such test")

    @staticmethod
    def is_there(file, *names):
        files = [*TESTS.glob(f"*/{file}.py"), *TOP.glob(f"cc/tests/{file}.py")]
        text = "\n".join(path.read_text(encoding="utf-8") for path in files)
        return bool(text) and all(re.search(rf"^ *(class|def) {name}\b", text, re.MULTILINE) for name in names)
