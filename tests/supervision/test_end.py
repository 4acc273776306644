"""The end: what is under way is finished; and two servers do not share a run directory."""

import subprocess
import threading
import time
import unittest

from client import until
from harness import Server, rootless_too, service, site, wait_for_time

SITES = [site("main", [service()]), site("direct", [service("direct", "/probe", takes=True)])]


@rootless_too
class End(unittest.TestCase):
    def serve(self, **settings):
        server = Server(SITES, **settings)
        server.copy_program("probe", "direct")
        return self.enterContext(server)

    def slow(self, server, host, answers):
        ask = lambda: answers.append(server.get("/probe/sleep?ms=1500", host).status)
        thread = threading.Thread(target=ask)
        thread.start()
        return thread

    def test_graceful(self):
        server, answers = self.serve(), []
        threads = [self.slow(server, host, answers) for host in ("main.test", "direct.test")]
        wait_for_time(0.4)
        self.assertEqual(server.stop(), 0)
        for thread in threads:
            thread.join(5)
        self.assertEqual(answers, [200, 200])
        self.assertFalse(until(server.left, 0.1))
        self.assertFalse((server.folder / "run/admin.sock").exists())

    def test_idle_connections_do_not_hold_it_up(self):
        server = self.serve()
        with server.connect() as idle, server.connect() as unused:
            self.assertEqual(idle.get("/").status, 200)
            began = time.monotonic()
            self.assertEqual(server.stop(), 0)
            self.assertLess(time.monotonic() - began, 10)
            self.assertTrue(idle.is_closed() and unused.is_closed())

    def test_the_drain_ends(self):
        server, answers = self.serve(limits={"drain_timeout": "1s"}), []
        thread = threading.Thread(target=lambda: answers.append(server.status("/probe/sleep?ms=20000")))
        thread.start()
        wait_for_time(0.3)
        began = time.monotonic()
        self.assertEqual(server.stop(), 0)
        self.assertLess(time.monotonic() - began, 6)
        thread.join(5)
        self.assertNotEqual(answers, [200])

    def test_stop_command(self):
        server = self.serve()
        answer = server.command("stop", "--config", server.config)
        self.assertEqual((answer.returncode, server.wait(5)), (0, 0), answer.stderr)

    def test_a_second_one_is_refused(self):
        server = self.serve()
        with open(server.folder / "second", "w+") as output:
            command = [str(server.own("bulkhead", server.folder)), "run", str(server.config)]
            second = subprocess.run(
                command, stdout=output, stderr=output, timeout=10, check=False, **server._user()
            )
            output.seek(0)
            text = output.read()
        self.assertEqual(second.returncode, 1, text)
        self.assertIn("another bulkhead runs with this run_dir", text)
        self.assertEqual(server.status("/"), 200)
        self.assertEqual(server.order(command="status")["ok"], True)


if __name__ == "__main__":
    unittest.main()
