"""The table of long forms in docs/internals/testing.md is that of docs/internals/long-runs.json, by tests/long."""

import importlib.machinery
import importlib.util
import re
import unittest

from harness import TOP

loader = importlib.machinery.SourceFileLoader("long", str(TOP / "tests/long"))
long = importlib.util.module_from_spec(importlib.util.spec_from_loader("long", loader))
loader.exec_module(long)

OUTPUT = """\
test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 9 filtered out; finished in 0.01s
test_sweep.Sweep.test_every_call ... ok (8.1 s)
4 passed, 1 failed, 2 skipped (2: no such kernel)
Django: ok (40 s to install, 12 s to follow)
wire: 45 of 50 mutants caught (90%)
worker: 20 of 20 mutants caught (100%)
"""


class LongRuns(unittest.TestCase):
    rootless = True

    def test_the_table_is_made_from_the_records(self):
        said, made = long.PAGE.read_text(encoding="utf-8"), long.page(long.recorded())
        self.assertEqual(said, made, "tests/long --write makes the table")

    def test_each_form_is_a_target_of_the_makefile(self):
        targets = set(re.findall(r"^([\w-]+):", (TOP / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
        self.assertLessEqual(long.FORMS.keys(), targets)
        self.assertLessEqual(long.recorded().keys(), long.FORMS.keys())

    def test_figures_are_those_of_all_parts_of_a_form(self):
        found = long.figures_of(OUTPUT)
        self.assertEqual(found, {"passed": 8, "failed": 1, "skipped": 3, "mutants": 70, "caught": 65})

    def test_a_row_says_when_and_what(self):
        record = {"date": "2026-01-02", "commit": "abc", "command": "make soak", "seconds": 1230, "status": 1,
                  "figures": {"passed": 1, "failed": 2}}
        row = long.row("soak", "reloads", record)
        self.assertEqual(row, "| `make soak` | reloads | 2026-01-02, abc: **failed** | 1 passed, 2 failed, 20 min |")
