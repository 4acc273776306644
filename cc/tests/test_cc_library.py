"""Each call of the C library (exercise*.c), with requests in the socket and with requests in the bundle."""

import glob
import os
import signal
import tempfile
import unittest

from cc_world import HERE, Program, compile_program, free_port, until


class Library(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = cls.enterClassContext(tempfile.TemporaryDirectory())
        cls.program = compile_program(folder, os.path.join(HERE, "exercise.c"),
                                      *glob.glob(os.path.join(HERE, "exercise_*.c")))

    def run_one(self, scenario, take):
        with Program([self.program, scenario, str(free_port())], take=take) as program:
            status = program.process.wait(120)
            self.assertEqual(status, 0, f"{scenario}: {program.text()}")
            self.assertEqual(program.text(), "")
            # All processes have gone, and the peer has heard all that they said.
            until(lambda: (report := program.report()) and report["ended"] and not report["held"])
            return program.report()

    def run_both(self, scenario):
        reports = []
        for take in (False, True):
            with self.subTest(scenario, buffered=take):
                reports.append(self.run_one(scenario, take))
                self.check_ledger(reports[-1])
        return reports

    def check_ledger(self, report):
        """What was taken was released, and nothing else was."""
        self.assertEqual(report["unknown"], [])
        self.assertEqual(sorted(set(report["took"])), sorted(set(report["done"] + report["back"])))
        self.assertEqual(report["held"], [])

    def test_accepting(self):
        for report in self.run_both("accepting"):
            self.assertEqual((len(report["back"]), len(report["done"])), (2, 1))
            policies = ["--policy", "flt_request", "--policy", "flt_persist", "--policy", "flt_prior"]
            self.assertEqual(report["arguments"], ["guard", "--control", "3", *policies])

    def test_pipelined(self):
        self.run_both("pipelined")

    def test_bytewise(self):
        self.run_both("bytewise")

    def test_body(self):
        self.run_both("body")

    def test_strange_body(self):
        for report in self.run_both("strange_body"):
            self.assertEqual((report["back"], len(report["done"])), ([], 2))

    def test_unread(self):
        for report in self.run_both("unread"):
            self.assertEqual((report["back"], len(report["done"])), ([], 1))

    def test_select(self):
        self.run_both("selecting")

    def test_poll(self):
        self.run_both("polling")

    def test_epoll(self):
        self.run_both("epolling")

    def test_epoll_in_a_thread(self):
        self.run_both("epolling_thread")

    def test_dup(self):
        for report in self.run_both("duplicating"):
            self.assertEqual(len(report["back"]), 1)

    def test_fork(self):
        for report in self.run_both("forking"):
            self.assertEqual(len(report["back"]), 1)

    def test_prefork(self):
        for report in self.run_both("preforking"):
            self.assertEqual(len(report["back"]), 1)

    def test_lost(self):
        self.run_both("losing")

    def test_ordinary_descriptors(self):
        self.run_both("ordinary")

    def test_the_guard_ends(self):
        with Program([self.program, "ending", str(free_port())]) as program:
            report = until(program.report)
            os.kill(report["pid"], signal.SIGKILL)
            self.assertEqual(program.process.wait(60), 0, program.text())


if __name__ == "__main__":
    unittest.main()
