"""The benchmark: that its cases come up and measure what they say, and that nothing is judged which noise decides."""

import importlib.machinery
import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest
import unittest.mock
from pathlib import Path

from harness import TOP, program

sys.path.insert(0, str(TOP / "bench"))
import cases  # noqa: E402
from benchlib import judge, report  # noqa: E402
from benchlib.case import Bar  # noqa: E402

#: One of each kind of server and load that the tests have the programs for, and with whom it is measured.
SAMPLE = "upstream-keep,fastcgi-close,h2-10k,guard-apache-keep,service-takes-close"
PEERS = "ours,nginx,Apache"


def rounds(*ratios):
    """Rounds in which ours needs that many times what the peer needs."""
    return {"ours": [{"cpu_us": 20.0 * ratio} for ratio in ratios], "nginx": [{"cpu_us": 20.0} for _ in ratios]}


class Judge(unittest.TestCase):
    rootless = True

    def verdicts(self, *ratios, bar=1.0, more=False):
        return judge.judged(rounds(*ratios), Bar("nginx", bar, bar / 2, more=more))

    def test_a_bar_inside_of_the_spread_is_not_told_apart(self):
        self.assertEqual(self.verdicts(0.90, 0.95, 0.98)["bar"], judge.MET)
        self.assertEqual(self.verdicts(1.10, 1.05, 1.02)["bar"], judge.NOT_MET)
        self.assertEqual(self.verdicts(0.90, 0.95, 1.01)["bar"], judge.UNKNOWN)
        self.assertEqual(self.verdicts(0.90, 0.95, 0.98)["stretch"], judge.NOT_MET)

    def test_few_rounds_are_not_judged(self):
        self.assertEqual(self.verdicts(0.5, 0.5)["bar"], judge.UNJUDGED)

    def test_more_is_better_for_rates(self):
        self.assertEqual(self.verdicts(1.1, 1.2, 1.3, more=True)["bar"], judge.MET)
        self.assertEqual(self.verdicts(0.7, 0.8, 0.9, more=True)["bar"], judge.NOT_MET)

    def test_ratios_are_of_the_same_round(self):
        """A machine that slows down slows both: medians of each server by itself would tell nothing."""
        drift = {"ours": [{"cpu_us": 9.0 * step} for step in (1, 2, 3)], "nginx": [{"cpu_us": 10.0 * step} for step in (1, 2, 3)]}
        one = judge.judged(drift, Bar("nginx", 1.0))
        self.assertAlmostEqual(one["low"], 0.9)
        self.assertAlmostEqual(one["high"], 0.9)

    def test_one_round_of_eight_may_be_off(self):
        self.assertEqual(judge.interval([9.0, 1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 0.1]), (1.0, 1.5))
        self.assertEqual(judge.interval([9.0, 1.0, 1.1, 1.2, 0.1]), (0.1, 9.0))


class Check(unittest.TestCase):
    """What `bench/check` tells the summary of `make test`."""

    @classmethod
    def setUpClass(cls):
        loader = importlib.machinery.SourceFileLoader("check", str(TOP / "bench/check"))
        cls.check = importlib.util.module_from_spec(importlib.util.spec_from_loader("check", loader))
        loader.exec_module(cls.check)

    def summary(self, judge):
        with tempfile.NamedTemporaryFile(mode="r", encoding="utf-8") as file, \
                unittest.mock.patch.dict(os.environ, {"BULKHEAD_SUMMARY": file.name}):
            return judge(), file.read()

    def test_without_figures_each_case_is_skipped(self):
        now = {"rustc": "0.1", "processor": "aes"}
        _, said = self.summary(lambda: self.check.skip(["static", "service"], now))
        self.assertRegex(said, r"^bench-check: 0 passed, 0 failed, 2 skipped \(2: .*no figures of rustc 0.1 .*aes\)\n$")

    def test_more_than_the_figure_fails(self):
        found, written = {"static": 1049, "service": 1051}, {"static": 1000, "service": 1000}
        status, said = self.summary(lambda: self.check.judge(found, written))
        self.assertEqual(status, 1)
        self.assertRegex(said, r"bench-check: 1 passed, 1 failed, 0 skipped\n  FAILED: service\n.*1,051 .*, 5.1% more")

    def test_a_case_without_a_figure_fails(self):
        status, said = self.summary(lambda: self.check.judge({"static": 1, "new": 1}, {"static": 1}))
        self.assertEqual(status, 1)
        self.assertIn("FAILED: new\n    bench/instructions.json has no figure", said)


class Cases(unittest.TestCase):
    rootless = True

    def test_names_are_unique_and_configurations_are_there(self):
        names = [case.name for case in cases.CASES]
        self.assertEqual(len(names), len(set(names)))
        self.assertLessEqual({path.stem for path in (TOP / "bench/notes").glob("*.md")}, set(names))
        for case in cases.CASES:
            for peer in [*case.peers, *([case.behind] if case.behind else [])]:
                if peer.kind not in ("axum", "none"):
                    self.assertTrue((TOP / "bench/peers" / peer.config).is_file(), f"{case.name}: {peer.config}")
            for figure in [*case.figures, *(bar.figure for bar in case.bars)]:
                self.assertIn(figure, report.FIGURES, case.name)

    def test_a_name_that_is_wrong_is_told_with_those_that_are_right(self):
        done = subprocess.run([TOP / "bench/run", "--case", "h3"], capture_output=True, text=True, timeout=20)
        self.assertEqual(done.returncode, 2)
        self.assertIn("no case h3; there are: static-100b", done.stderr)


@unittest.skipUnless({0, 1} <= os.sched_getaffinity(0), "the benchmark needs two cores")
class Run(unittest.TestCase):
    def test_a_sample_comes_up_and_has_figures(self):
        with tempfile.TemporaryDirectory(prefix="bulkhead-bench-") as folder:
            command = [TOP / "bench/run", "--quick", "--warmup=0", f"--case={SAMPLE}", f"--only={PEERS}", f"--out={folder}",
                       f"--bulkhead={program('bulkhead')}"]
            done = subprocess.run(command, capture_output=True, text=True, timeout=180)
            self.assertTrue((Path(folder) / "results.json").exists(), done.stdout + done.stderr)
            results = json.loads((Path(folder) / "results.json").read_text())
            page = (Path(folder) / "performance.md").read_text()
        # The axum program alone is built by `make bench` and by nothing else; it is not asked for here.
        self.assertEqual(results["failed"], {}, done.stdout)
        for name in SAMPLE.split(","):
            for peer, (figures,) in results["cases"][name]["rounds"].items():
                self.assertGreater(figures["requests"], 0, f"{name}, {peer}")
                self.assertGreater(figures["cpu_us"], 0, f"{name}, {peer}")
                if peer == "ours":
                    self.assertEqual(figures["errors"], 0, name)
        verdicts = set(re.findall(r"[≤≥] [\d.]+: \**([a-z]+ [a-z]+)", page))
        self.assertEqual(verdicts, {judge.UNJUDGED})
