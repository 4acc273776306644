"""Other log files in place of those that are written: by order and each day; and lines that go to syslog."""

import datetime
import gzip
import os
import re
import socket
import subprocess
import threading
import time
import unittest
from pathlib import Path

from client import until
from harness import TOP, Server, program, rootless_too, service, site, wait_for_time

SYSLOG = Path("/dev/log")


def today():
    """The days that it can be while a test runs: two, around midnight."""
    now = datetime.datetime.now(datetime.timezone.utc)
    return {(now + datetime.timedelta(minutes=late)).strftime("%Y%m%d") for late in (-1, 1)}


@rootless_too
class Reopen(unittest.TestCase):
    def server(self, **settings):
        sites = [site("main", access_log="access.log"), site("other")]
        return self.enterContext(Server(sites, (), **settings))

    def reopen(self, server):
        answer = server.command("reopen", "--config", server.config)
        self.assertEqual(answer.returncode, 0, answer.stderr)

    def test_nothing_is_lost_at_the_change(self):
        server = self.server()
        logs, stop, asked = server.folder / "log", threading.Event(), []

        def ask():
            while not stop.is_set():
                asked.append(server.status(f"/?change={len(asked)}"))

        asking = threading.Thread(target=ask)
        asking.start()
        try:
            for number in range(5):
                wait_for_time(0.3)
                for name in ("access", "other.access", "error"):
                    (logs / f"{name}.log").rename(logs / f"{name}.log.{number}")
                self.reopen(server)
                # The order has been answered: nothing may be added to the old files any more.
                complete = (logs / f"access.log.{number}").read_bytes()
                wait_for_time(0.3)
                self.assertEqual((logs / f"access.log.{number}").read_bytes(), complete)
        finally:
            stop.set()
            asking.join()
        everything = lambda: "".join(path.read_text() for path in logs.glob("access.log*"))
        seen = lambda: sorted(map(int, re.findall(r"\?change=(\d+) ", everything())))
        self.assertTrue(until(lambda: seen() == list(range(len(asked))), 5), len(asked))
        self.assertTrue(set(asked) == {200} and len(asked) > 50)
        parts = [path.stat().st_size for path in logs.glob("access.log*")]
        self.assertTrue(len(parts) == 6 and all(parts), parts)
        self.assertIn("the logs are opened anew", (logs / "error.log").read_text())
        self.assertEqual(sorted(path.name for path in logs.glob("other.*")),
                         sorted(["other.access.log"] + [f"other.access.log.{number}" for number in range(5)]))

    def test_after_the_logger_was_killed(self):
        server = self.server()
        logs = server.folder / "log"
        (logs / "access.log").rename(logs / "old")
        self.reopen(server)
        old = server.process("logger")
        old.kill()
        self.assertTrue(until(lambda: set(server.processes("logger")) - {old}, 5))
        self.assertEqual(server.status("/?new=1"), 200)
        self.assertTrue(until(lambda: "?new=1 " in (logs / "access.log").read_text(), 5))
        self.assertNotIn("?new=1 ", (logs / "old").read_text())

    def test_while_the_logger_is_relaunched(self):
        server = self.server()
        logs = server.folder / "log"
        for number in range(5):
            relaunch = threading.Thread(target=server.relaunch, args=("logger",))
            relaunch.start()
            for about in range(10):
                self.assertEqual(server.status(f"/?relaunch={number}.{about}"), 200)
            (logs / "access.log").rename(logs / f"old.{number}")
            self.reopen(server)
            complete = (logs / f"old.{number}").read_bytes()
            relaunch.join()
            wait_for_time(0.3)
            self.assertEqual((logs / f"old.{number}").read_bytes(), complete)
        everything = lambda: "".join(path.read_text() for path in [*logs.glob("old.*"), *logs.glob("access.log")])
        self.assertTrue(until(lambda: everything().count("?relaunch=") == 50, 5), everything().count("?relaunch="))

    def test_a_folder_that_is_gone_loses_nothing(self):
        server = self.server()
        logs, away = server.folder / "log", server.folder / "away"
        logs.rename(away)
        answer = server.command("reopen", "--config", server.config)
        self.assertEqual(answer.returncode, 1)
        self.assertIn("the logs go on as they were", answer.stderr)
        self.assertEqual(server.status("/?kept=1"), 200)
        self.assertTrue(until(lambda: "?kept=1 " in (away / "access.log").read_text(), 5))
        away.rename(logs)

    def test_each_day_has_its_files(self):
        server = self.server(log={"daily": True, "flush": "1500ms"})
        logs = server.folder / "log"
        names = lambda: {path.name for path in logs.iterdir()}
        began = time.monotonic()
        self.assertEqual(server.status("/?day=1"), 200)
        line = lambda: any("?day=1 " in path.read_text() for path in logs.glob("access.log.*"))
        self.assertTrue(until(line, 5))
        self.assertLess(time.monotonic() - began, 2.5)
        self.assertTrue(any({f"access.log.{day}", f"other.access.log.{day}", f"no-site.access.log.{day}",
                             "error.log"} == names() for day in today()), names())
        # What is moved away comes again under the name of the day.
        for path in logs.glob("access.log.*"):
            path.rename(server.folder / "moved")
        self.reopen(server)
        self.assertEqual(server.status("/?day=2"), 200)
        self.assertTrue(until(lambda: any("?day=2 " in path.read_text() for path in logs.glob("access.log.*")), 5))

    def test_errors_elsewhere(self):
        server = Server([site("main")], (), log={"error_file": "errors/all"})
        (server.folder / "errors").mkdir()
        server_user = server._user()
        if server_user:
            os.chown(server.folder / "errors", server_user["user"], server_user["group"])
        with server:
            self.assertIn("serving on", (server.folder / "errors/all").read_text())
            self.assertFalse((server.folder / "log/error.log").exists())

    def test_errors_where_others_can_write(self):
        server = Server([site("main")], (), log={"error_file": "errors/all"})
        (server.folder / "errors").mkdir()
        (server.folder / "errors").chmod(0o777)
        answer = server.command("run", server.config)
        self.assertEqual(answer.returncode, 1)
        self.assertIn("errors must be a directory that only its owner", answer.stderr)


class AccessBytes(unittest.TestCase):
    """A file of an access log has as many bytes as it may; what is left out is counted, and is the site's own."""

    MAX = 64 << 10

    def test_at_the_limit_from_both_sides(self):
        server = self.enterContext(Server([site("main"), site("other")], (), log={"access_bytes": "64KiB"}))
        ask = lambda host="main.test": self.assertEqual(server.status("/?" + "x" * 1000, host), 200)
        log = lambda name="main.access": server.log(name).splitlines(keepends=True)
        ask()
        self.assertTrue(until(lambda: len(log()) == 1, 5))
        fit = self.MAX // len(log()[0])
        for _ in range(fit - 1):
            ask()
        self.assertTrue(until(lambda: len(log()) == fit, 5), (len(log()), fit))
        self.assertNotIn("left out", server.log())
        for _ in range(3):
            ask()
        ask("other.test")
        self.assertTrue(until(lambda: "access log of site main: left out 1 lines" in server.log(), 5), server.log())
        self.assertTrue(until(lambda: len(log("other.access")) == 1, 5))
        self.assertEqual(len(log()), fit)
        self.assertNotIn("log of site other", server.log())
        path = server.folder / "log" / "main.access.log"
        path.rename(path.with_suffix(".old"))
        self.assertEqual(server.command("reopen", "--config", server.config).returncode, 0)
        ask()
        self.assertTrue(until(lambda: len(log()) == 2, 5), log())
        self.assertRegex(log()[0], r"# \[.*\] lost 3 lines: the file is as long as `access_bytes` lets it be\n")


class Logrotate(unittest.TestCase):
    def test_as_the_documentation_has_it(self):
        server = self.enterContext(Server([site("main")], ()))
        documented = (TOP / "docs/guide/operating.md").read_text().partition("With logrotate:")[2].split("```")[1]
        text = documented.removeprefix("text\n").replace("/var/log/bulkhead", str(server.folder / "log"))
        text = text.replace("/run/bulkhead", str(server.folder / "run"))
        text = text.replace("/usr/local/bin/bulkhead", str(program("bulkhead")))
        settings = server.write("logrotate.conf", text)
        self.assertEqual(server.status("/?rotated=1"), 200)
        self.assertTrue(until(lambda: "?rotated=1 " in server.log("main.access"), 3))
        rotate = ["logrotate", "--force", "--state", str(server.folder / "logrotate.state"), str(settings)]
        done = subprocess.run(rotate, capture_output=True, text=True, timeout=30, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        logs = server.folder / "log"
        self.assertIn(b"?rotated=1 ", gzip.decompress((logs / "main.access.log.1.gz").read_bytes()))
        self.assertEqual(server.status("/?rotated=2"), 200)
        self.assertTrue(until(lambda: "?rotated=2 " in server.log("main.access"), 3))
        self.assertNotIn("?rotated=1 ", server.log("main.access"))


class Syslog(unittest.TestCase):
    def setUp(self):
        if SYSLOG.exists():
            self.skipTest(f"{SYSLOG} is the machine's own")

    def listen(self):
        """Takes the place of the machine's syslog."""
        daemon = self.enterContext(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
        daemon.bind(str(SYSLOG))
        self.addCleanup(SYSLOG.unlink)
        daemon.settimeout(5)
        return daemon

    def until_line(self, daemon, expected):
        lines = []
        while not lines or not re.fullmatch(expected, lines[-1]):
            try:
                lines.append(daemon.recv(8192).decode("ascii"))
            except TimeoutError:
                self.fail(f"no line {expected!r} among {lines}")
        return lines

    def test_lines_of_the_error_log(self):
        daemon = self.listen()
        sites = [site("main", [service("ls", "/ls", command=["bin/ls", "--no\x1b-such-option"])])]
        server = Server(sites, (), answers=200, log={"error_syslog": True})
        server.copy_program("/bin/ls")
        with server:
            lines = self.until_line(daemon, r"<30>bulkhead: \[service main/ls\] .*no.*-such-option.*")
            lines += self.until_line(daemon, r"<28>bulkhead: \[bulkheadd\] service main/ls \(pid \d+\) ended with .*")
            self.assertTrue(all(line.isprintable() for line in lines), lines)
            self.assertTrue(until(lambda: "[service main/ls]" in server.log(), 5), server.log())

    def test_without_syslog(self):
        server = self.enterContext(Server([site("main")], (), log={"error_syslog": True}))
        self.assertTrue(until(lambda: "nothing takes lines at /dev/log" in server.log(), 5), server.log())
        self.assertEqual(server.status(), 200)
        # A daemon that comes is found with the next look, and by an order at once.
        daemon = self.listen()
        self.assertEqual(server.command("reopen", "--config", server.config).returncode, 0)
        self.until_line(daemon, r"<30>bulkhead: \[bulkheadd\] the logs are opened anew")

    def test_a_daemon_that_does_not_read_stops_nobody(self):
        self.listen()
        sites = [site("main", [service("ls", "/ls", command=["bin/ls", "--no-such-option"])])]
        server = Server(sites, (), answers=200, log={"error_syslog": True}, restart={"backoff_max": "10ms"})
        server.copy_program("/bin/ls")
        with server:
            self.assertTrue(until(lambda: server.log().count("no-such-option") >= 20, 10), server.log())
            self.assertEqual(server.status("/?alive=1"), 200)
            self.assertTrue(until(lambda: "?alive=1 " in server.log("main.access"), 3))


if __name__ == "__main__":
    unittest.main()
