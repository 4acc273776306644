"""Deadlines that are constants: what takes longer, seen from outside, with real processes that hang.

The longest take a minute: all are begun at once, and each test waits for one of them.
"""

import shutil
import signal
import socket
import subprocess
import threading
import time
import unittest

import pytest

import harness
from client import request, until
from harness import Server, service, site, wait_for_time

pytestmark = pytest.mark.slow

#: A program in the place of the probe: it says more than is read, and hangs.
HANGS = """
#include <string.h>
#include <unistd.h>
int main(void) {
    static char text[1 << 20];
    memset(text, '1', sizeof text);
    write(1, text, sizeof text);
    write(1, text, sizeof text);
    for (;;) pause();
}
"""
#: How much later than it may a deadline is noticed on a busy machine.
LATE = 8


class WithPrograms(Server):
    """A server with a folder of programs of its own, where one may be replaced."""

    def __init__(self, sites, **more):
        super().__init__(sites, **more)
        (self.folder / "programs").mkdir(exist_ok=True)
        for name in harness.ROLES:
            shutil.copy(harness.program(name), self.folder / "programs" / name)

    @staticmethod
    def own(name, folder):
        return folder / "programs" / name


def timed(function):
    """What a function returns, and how many seconds it took."""
    begun = time.monotonic()
    result = function()
    return result, time.monotonic() - begun


class Background(threading.Thread):
    """A call that is made meanwhile."""

    def __init__(self, function):
        super().__init__(daemon=True)
        self.function, self.result = function, None
        self.start()

    def run(self):
        self.result = timed(self.function)

    def wait(self):
        self.join(90)
        return self.result


class Minute(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        silent, hangs = service("probe"), service("hangs", "/hangs", command=["bin/probe", "--hang-init"])
        sites = [site("main", [silent, hangs]), site("rests", start="on-demand", idle_stop="1s")]
        cls.server = WithPrograms(sites, limits={"start_timeout": "100s", "drain_timeout": "1s"}, answers=False)
        source = cls.server.folder / "hangs.c"
        source.write_text(HANGS)
        subprocess.run(["gcc", "-static", "-o", cls.server.folder / "programs/bulkhead-probe", source], check=True)
        cls.enterClassContext(cls.server)
        assert until(lambda: cls.server.status("/probe") == 200, 20)
        assert cls.server.status("/", "rests.test") == 200
        cls.silent = Background(lambda: cls.server.get("/probe/sleep?ms=120000", timeout=90).status)
        cls.ordered = Background(lambda: cls.server.order(command="relaunch", name="main/hangs"))
        cls.probed, cls.report_took = timed(lambda: cls.server.order(command="probe", name="main/probe", what="attempts"))
        is_probe = lambda process: process.title.startswith("bulkhead-probe")
        cls.probes = [process for process in cls.server.processes() if is_probe(process)]
        ended = lambda: until(lambda: not any(process.alive for process in cls.probes), 90)
        cls.probe_ends = Background(ended)

    def test_a_service_that_begins_no_response(self):
        status, seconds = self.silent.wait()
        self.assertEqual(status, 504)
        self.assertTrue(59 < seconds < 60 + LATE, seconds)

    def test_a_command_that_takes_longer_is_answered(self):
        answer, seconds = self.ordered.wait()
        self.assertIn("no answer within 60 s", answer["error"])
        self.assertTrue(59 < seconds < 60 + LATE, seconds)

    def test_a_probe_that_hangs_is_ended(self):
        self.assertEqual(len(self.probes), 1)
        ended, seconds = self.probe_ends.wait()
        self.assertTrue(ended)
        self.assertTrue(57 < seconds < 60 + LATE, seconds)

    def test_of_a_report_without_end_so_much_is_read(self):
        """It is answered although the probe goes on."""
        self.assertIn("did not report in JSON", self.probed["error"])
        self.assertLess(self.report_took, 30)

    def test_the_access_log_of_a_site_at_rest_is_closed(self):
        """It is after one to two minutes, in the launcher and in the logger; and open again for the next request."""
        log = self.server.folder / "log" / "rests.access.log"
        holders = [harness.Process(self.server.launcher.pid), self.server.process("logger")]
        opened = lambda: [holder for holder in holders if str(log) in holder.descriptors().values()]
        self.assertTrue(until(lambda: not opened(), 150), "it stays open")
        before = log.read_text()
        self.assertEqual(self.server.status("/?again", "rests.test"), 200)
        self.assertTrue(until(lambda: "GET /?again" in log.read_text().removeprefix(before), 10))
        self.assertEqual(opened(), holders)


class Seconds(unittest.TestCase):
    def test_a_client_of_the_admin_socket_that_says_nothing(self):
        with Server([site()], ()) as server, socket.socket(socket.AF_UNIX) as admin:
            admin.settimeout(30)
            admin.connect(str(server.folder / "run/admin.sock"))
            answer, seconds = timed(lambda: admin.makefile().readline())
        self.assertIn("no request within 5 s", answer)
        self.assertTrue(4.9 < seconds < 5 + LATE, seconds)

    def test_a_logger_that_does_not_confirm(self):
        with Server([site()], ()) as server:
            logger = server.process("logger")
            logger.signal(signal.SIGSTOP)
            try:
                answer, seconds = timed(lambda: server.command("reopen", "--config", server.config, timeout=40))
            finally:
                logger.signal(signal.SIGCONT)
        self.assertEqual(answer.returncode, 1, answer)
        self.assertTrue(9.9 < seconds < 10 + LATE, (seconds, answer))

    def test_a_process_that_nobody_waits_for(self):
        """Nine times as long as one that somebody waits for."""
        hangs = service("probe", command=["bin/probe", "--hang-init"])
        with Server([site("main", [hangs])], limits={"start_timeout": "500ms"}, answers=False) as server:
            first = server.process("bin/probe")
            ended, seconds = timed(lambda: until(lambda: not first.alive, 20))
            self.assertTrue(ended)
            self.assertTrue(4 < seconds < 4.5 + LATE, seconds)
            self.assertTrue(until(lambda: "was starting for too long" in server.log(), 5))

    def test_a_service_reads_on_for_a_while_after_its_last_answer(self):
        """So that the answer is not lost; and no longer, whatever still comes."""
        with Server([site("main", [service(takes=True)])]) as server, server.connect() as client:
            client.send(request("/probe", method="POST", headers=("Content-Length: 100000",)))
            self.assertEqual(client.response().status, 200)

            def refused():
                try:
                    client.send(b"x")
                    wait_for_time(0.05)
                except OSError:
                    return True

            ended, seconds = timed(lambda: until(refused, 20))
            self.assertTrue(ended)
            self.assertTrue(1.5 < seconds < 2 + LATE, seconds)


if __name__ == "__main__":
    unittest.main()
