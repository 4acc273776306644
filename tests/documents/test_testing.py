"""The tables of docs/internals/testing.md are those of long-runs.json and test-times.json beside that page."""

import importlib.machinery
import importlib.util
import json
import re
import unittest

import durations
from harness import TOP


def loaded(name):
    """A program of tests/ as a module."""
    loader = importlib.machinery.SourceFileLoader(name, str(TOP / "tests" / name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    loader.exec_module(module)
    return module


long = loaded("long")

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


class Times(unittest.TestCase):
    rootless = True

    def test_the_tables_are_made_from_the_times(self):
        times = loaded("times")
        noted = json.loads(durations.FILE.read_text(encoding="utf-8"))
        said, made = times.PAGE.read_text(encoding="utf-8"), times.page(noted)
        self.assertEqual(said, made, "tests/times --write makes the tables")

    def test_parts_of_a_class_count_together(self):
        lines = [json.dumps({"class": "test_a.A", "seconds": 6.0})] * 2 + [json.dumps({"stage": "unit", "seconds": 9})]
        found = loaded("times").of_lines([*lines, json.dumps({"class": "test_b.B", "seconds": 1.0})])
        self.assertEqual((found["stages"], found["classes"]), ({"unit": 9}, {"test_a.A": 12.0}))
