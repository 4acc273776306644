"""Orders to services: `bulkhead send`."""

import json
import signal
import unittest

from client import until
from harness import rootless_too, service, site
from pages import Pages, page_site, renders


@rootless_too
class Send(unittest.TestCase):
    def setUp(self):
        sites = [page_site(services=[renders(workers=2), service("probe")]), page_site("second"), site("fine")]
        self.server = self.enterContext(Pages(sites=sites))

    def send(self, *words, status=0):
        done = self.server.command("send", *words, "--run-dir", "run", timeout=40)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done.stdout if status < 2 else done.stderr

    def test_a_word_of_the_services_own_is_answered_by_each_process(self):
        said = self.send("main/pages", "echo", "some words")
        self.assertEqual(said, "main/pages#1: some words\nmain/pages#2: some words\n")
        said = self.send("main/pages#2", "second/pages", "echo", "again")
        self.assertEqual(said, "main/pages#2: again\nsecond/pages: again\n")

    def test_what_fails_is_told_for_each_and_keeps_no_other_from_answering(self):
        said = self.send("--all", "echo", "x", status=1)
        self.assertIn("main/pages#1: x\nmain/pages#2: x\n", said)
        self.assertIn("main/probe: failed: this service has no order \"echo\"\n", said)
        self.assertIn("second/pages: x\n", said)
        self.assertEqual(self.send("second/pages", "dance", status=1), "second/pages: failed: what is dance?\n")

    def test_what_makes_no_sense_is_refused(self):
        for words, because in [(("main/pagse", "echo"), 'did you mean "main/pages"'), (("echo",), "name a service"),
                               (("main/pages", "Echo"), "an order is a word of a-z"), (("main/pages",), "the order is missing"),
                               (("main/pages", "echo", "x" * 2049), "an argument has at most 2048 bytes"),
                               (("main/pages", "relaunch", "now"), "relaunch has no argument")]:
            with self.subTest(words=words):
                self.assertIn(because, self.send(*words, status=2))
        # A site is no service.
        answer = self.server.order(command="send", name="main")
        self.assertEqual((answer["ok"], answer["error"]), (False, "it is no service"))

    def test_answers_have_their_limits(self):
        self.assertEqual(self.send("second/pages", "long"), "second/pages: " + "x" * (16 << 10) + "\n")
        # Nothing that a service says drives the terminal.
        self.assertEqual(self.send("second/pages", "rude"), "second/pages: \\u{1b}[2J\n  second line\n")
        self.assertEqual(self.send("second/pages", "wait", status=1), "second/pages: failed: no answer within 10 s\n")

    def test_a_process_that_stands_still_keeps_no_other_from_answering(self):
        stopped = self.server.processes("bin/pages")[0]
        stopped.signal(signal.SIGSTOP)
        try:
            said = self.send("--all", "echo", "x", status=1)
        finally:
            stopped.signal(signal.SIGCONT)
        self.assertEqual(said.count("failed: no answer within 10 s"), 1, said)
        self.assertEqual(said.count(": x\n"), 2, said)

    def test_diagnostics(self):
        self.server.page()
        said = json.loads(self.send("--all", "diagnostics", "--json"))["answers"]
        self.assertEqual([one["process"] for one in said], ["main/pages#1", "main/pages#2", "main/probe", "second/pages"])
        found = [json.loads(one["answer"]) for one in said]
        self.assertEqual(sum(one["requests"] for one in found[:2]), 1)
        self.assertRegex(found[0]["templates"], r"^[0-9a-f]{16}$")
        self.assertNotIn("templates", found[2])
        self.assertIn('main/probe: {"uptime_s":', self.send("main/probe", "diagnostics"))

    def test_orders_that_every_server_knows(self):
        before = {process.pid for process in self.server.processes("bin/pages")}
        said = self.send("main/pages", "second/pages", "relaunch")
        self.assertRegex(said, r"main/pages: relaunched in \S+ s\nsecond/pages: relaunched in ")
        self.assertTrue(until(lambda: not before & {process.pid for process in self.server.processes("bin/pages")}, 10))
        self.server.write_version(2)
        self.assertRegex(self.send("main/pages", "main/probe", "republish"), r"^main: version \S+ with 6 templates holds in 2 processes\n$")
        self.assertEqual(self.server.of_version(), {2})
        log = self.server.folder / "log/main.access.log"
        log.rename(log.with_suffix(".1"))
        self.assertIn("opened anew", self.send("main/pages", "log-turn"))
        self.assertTrue(log.exists())


@rootless_too
class Rests(unittest.TestCase):
    def test_who_is_at_rest_is_not_woken(self):
        with Pages(sites=[page_site(start="on-demand", idle_stop="1s"), site("fine")]) as server:
            done = server.command("send", "main/pages", "echo", "x", "--run-dir", "run")
            self.assertEqual((done.returncode, done.stdout), (1, "main/pages: failed: it has no process now, as it is at rest or broken\n"))
            self.assertEqual(server.processes("bin/pages"), [])
