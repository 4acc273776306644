"""Versions under load: no request sees two of them, whatever happens to the processes meanwhile."""

import signal
import unittest

from client import until
from harness import rootless_too, site
from pages import Pages, Readers, page_site, renders
from upgrading import Upgrading

PATHS = ("/pages/page?wait=3", "/direct/page?wait=3")
#: One service with several processes, and one that has connections of its own.
SERVICES = (renders(workers=2), renders("direct", takes_connections=True))


class UpgradingPages(Upgrading, Pages):
    """A server with templates whose programs are its own."""


class Published(unittest.TestCase):
    def readers(self, server, paths=PATHS[:1], **more):
        """Readers of all paths, which begin now."""
        return [self.enterContext(Readers(server.port, path, **more)) for path in paths]

    def assert_clean(self, readers, at_least=100):
        for one in readers:
            # A busy machine reads less meanwhile.
            until(lambda one=one: one.pages > at_least, 30)
            one.__exit__()
            one.assert_clean(self, at_least)

    def publish(self, server, number):
        done = server.publish(number)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout


@rootless_too
class UnderLoad(Published):
    def test_a_hundred_versions_and_no_page_of_two(self):
        with Pages(SERVICES) as server:
            readers = self.readers(server, PATHS, count=4)
            for number in range(2, 102):
                said = self.publish(server, number)
                self.assertIn("holds in 3 processes", said)
                # What begins from here on is of this version, whichever process has it.
                for path in ("pages", "pages", "direct"):
                    self.assertEqual(server.of_version(path), {number})
            self.assert_clean(readers)
            for one in readers:
                self.assertGreater(len(one.seen), 50)

    def test_two_at_once_are_one_after_the_other(self):
        with Pages(SERVICES) as server:
            readers = self.readers(server)
            server.write_version(2)
            answers = [server.order(command="republish") for _ in range(3)]
            self.assertEqual({answer["sites"][0]["report"]["version"] for answer in answers}, {answers[0]["sites"][0]["report"]["version"]})
            self.assertEqual(server.of_version(), {2})
            self.assert_clean(readers, 1)


@rootless_too
class Killed(Published):
    def test_without_a_publisher_services_keep_what_they_have(self):
        with Pages(SERVICES) as server:
            readers = self.readers(server, PATHS)
            for number in (2, 3, 4):
                publisher = server.process("publisher")
                publisher.kill()
                self.assertTrue(until(lambda: not publisher.alive, 5))
                self.assertTrue(until(lambda: server.processes("publisher") and server.publish(number).returncode == 0, 15), server.log())
                why = f"publisher main (pid {publisher.pid}) ended with signal 9; somebody, or the kernel for want of memory, has killed it"
                self.assertIn(why, server.log())
                self.assertIn("ended before: main:templates: signal 9;", server.command("status", "--run-dir", "run").stdout)
                self.assertEqual(server.of_version("direct"), {number})
            self.assert_clean(readers)

    def test_a_killed_worker_comes_back_with_the_version_that_holds(self):
        with Pages(SERVICES) as server:
            self.publish(server, 2)
            server.write_version(3)
            for worker in server.processes("bin/pages"):
                worker.kill()
                self.assertTrue(until(lambda: not worker.alive, 5))
            self.assertTrue(until(lambda: len(server.processes("bin/pages")) == 3 and server.page()[0] == 200, 15))
            # Not what the folder has by now.
            self.assertEqual(server.of_version(), {2})

    def test_one_that_does_not_answer_keeps_a_version_from_all(self):
        with Pages(SERVICES) as server:
            stopped = server.processes("bin/pages")[-1]
            stopped.signal(signal.SIGSTOP)
            try:
                refused = server.publish(2)
                self.assertEqual(refused.returncode, 1)
                self.assertRegex(refused.stdout, r"a process of service (pages|direct) has not compiled it within 10 s")
            finally:
                stopped.signal(signal.SIGCONT)
            for path in ("pages", "direct"):
                self.assertEqual(server.of_version(path), {1})
            self.publish(server, 2)
            self.assertEqual(server.of_version("direct"), {2})


@rootless_too
class Changed(Published):
    def test_relaunches_under_load(self):
        with Pages(SERVICES) as server:
            readers = self.readers(server, PATHS)
            for number, name in enumerate(("main/pages", "main:templates", "main/direct", "main", "main:templates"), 2):
                server.relaunch(name)
                self.publish(server, number)
                self.assertEqual(server.of_version(), {number})
            self.assert_clean(readers)

    def test_reloads_bring_values_templates_and_services(self):
        with Pages(SERVICES) as server:
            readers = self.readers(server, PATHS)
            value = lambda: server.page(how="value", name="company")
            self.assertEqual(value(), (200, "ACME"))
            self.assertIsNone(server.reload([page_site(services=SERVICES, company="Other"), site("fine")]))
            self.assertEqual(value(), (200, "Other"))
            # One more site with templates, which goes again.
            sites = [page_site(services=SERVICES, company="Other"), site("fine"), page_site("second")]
            self.assertIsNone(server.reload(sites))
            self.assertEqual(server.page(host="second.test")[0], 200)
            self.assertEqual(server.publishers(), ["publisher main", "publisher second"])
            self.assertIsNone(server.reload(sites[:2]))
            self.assertTrue(until(lambda: server.publishers() == ["publisher main"], 15))
            # Nobody asks a publisher that has gone.
            self.assertRegex(server.republish().stdout, r"^main: version \S+ with 6 templates holds in 3 processes\n$")
            self.assertEqual(server.republish("second").returncode, 2)
            # Mistakes in templates refuse the whole change.
            server.write("templates/head.html", "{% if %}")
            before = server.pids("publisher", "bin/pages", "site")
            said = server.reload([page_site(services=SERVICES, company="Third"), site("fine")])
            self.assertIn("publisher main", said)
            self.assertEqual((value(), server.pids("publisher", "bin/pages", "site")), ((200, "Other"), before))
            self.assert_clean(readers)

    def test_an_upgrade_under_load(self):
        with UpgradingPages(SERVICES) as server:
            self.publish(server, 2)
            readers = self.readers(server, PATHS)
            server.put_programs(version="0.1.1")
            done = server.command("upgrade", "--run-dir", "run", timeout=60)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertRegex(done.stdout, r"publisher")
            self.publish(server, 3)
            self.assertEqual(server.of_version("direct"), {3})
            self.assert_clean(readers)

    def test_workers_that_come_and_go(self):
        with Pages([renders(workers={"min": 1, "max": 3}, max_requests=100)]) as server:
            readers = self.readers(server, count=8)
            for number in range(2, 42):
                self.publish(server, number)
                self.assertEqual(server.of_version(), {number})
            self.assert_clean(readers)


@rootless_too
class OnDemand(Published):
    def test_a_publisher_starts_with_a_service_and_goes_with_the_last(self):
        with Pages(sites=[page_site(start="on-demand", idle_stop="1s"), site("fine")]) as server:
            self.assertEqual(server.publishers(), [])
            refused = server.publish(2)
            self.assertEqual(refused.returncode, 1)
            self.assertIn("main: not published: the site is at rest: what is in its folder of templates holds when it starts", refused.stdout)
            for number in (2, 3):
                server.write_version(number)
                self.assertEqual(server.of_version(), {number})
                self.assertEqual(server.publishers(), ["publisher main"])
                self.assertTrue(until(lambda: not server.publishers() and not server.processes("bin/pages"), 15), server.processes())


class Isolated(unittest.TestCase):
    def test_a_publisher_is_named_everywhere(self):
        with Pages() as server:
            status = server.command("status", "--run-dir", "run").stdout
            self.assertRegex(status, r"publisher +main:templates ")
            text = server.command("explain", "--config", server.config, "main:templates").stdout
            self.assertIn("reads the templates of main, for its services", text)
            self.assertRegex(text, r"part +users +main/pages")

    def test_it_can_do_nothing_but_read_its_folder(self):
        with Pages() as server:
            done = server.command("probe", "--run-dir", "run", "main:templates", timeout=90)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            server.publish(2)
            publisher = server.process("publisher")
            sockets = [what for what in publisher.descriptors().values() if what.startswith("socket:")]
            # The launcher, the logger, and one process of a service.
            self.assertEqual(len(sockets), 3, publisher.descriptors())
            # Its own, and not that of one before it.
            memories = [what for what in publisher.descriptors().values() if what.startswith("/memfd:")]
            self.assertEqual(len(memories), 1, publisher.descriptors())
