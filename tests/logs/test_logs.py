"""Logs: every answered request is one line, exactly once, whoever dies meanwhile; and nobody forges one."""

import re
import signal
import unittest

from client import until
from harness import Server, rootless_too, service, site, wait_for_time

COMBINED = re.compile(
    r'127\.0\.0\.1 - - \[\d\d/[A-Z][a-z]{2}/\d{4}:\d\d:\d\d:\d\d [+-]\d{4}\] "(?:[^"\\]|\\.)*" \d{3} (?:\d+|-) '
    r'"(?:[^"\\]|\\.)*" "(?:[^"\\]|\\.)*"'
)
#: `flush` is 200 ms; by then a worker has handed over what it has logged.
FLUSHED = 0.5
REQUESTS = 40


@rootless_too
class Logs(unittest.TestCase):
    def setUp(self):
        self.server = Server([site("main", [service()]), site("direct", [service("direct", "/probe", takes=True)])])
        self.server.copy_program("probe", "direct")
        self.enterContext(self.server)

    def ask(self, label, target="/", host="main.test"):
        for number in range(REQUESTS):
            self.assertEqual(self.server.status(f"{target}?{label}={number}", host), 200)

    def assert_all_once(self, label, log="main.access"):
        count = lambda: self.server.log(log).count(f"?{label}=")
        until(lambda: count() >= REQUESTS, 3)
        text = self.server.log(log)
        wrong = {n: text.count(f"?{label}={n} ") for n in range(REQUESTS) if text.count(f"?{label}={n} ") != 1}
        self.assertEqual(wrong, {}, "number of a request, and how many lines it has")
        for line in text.splitlines():
            self.assertTrue(COMBINED.fullmatch(line), line)

    def killed_after_flush(self, title, target="/", host="main.test", log="main.access"):
        self.ask("before", target, host)
        wait_for_time(FLUSHED)
        old = self.server.process(title)
        old.kill()
        self.assertTrue(until(lambda: set(self.server.processes(title)) - {old} and not old.alive, 5))
        self.assertTrue(until(lambda: self.server.status("/probe", host) == 200, 5))
        self.ask("after", target, host)
        self.assert_all_once("before", log)
        self.assert_all_once("after", log)

    def test_site_killed(self):
        self.killed_after_flush("site main")

    def test_gate_killed(self):
        self.killed_after_flush("gate 0")

    def test_relayed_service_killed(self):
        self.killed_after_flush("bin/probe", "/probe")

    def test_service_with_connections_killed(self):
        self.killed_after_flush("bin/direct", "/probe", "direct.test", "direct.access")

    def test_logger_killed(self):
        self.killed_after_flush("logger")

    def test_gate_answers(self):
        for number in range(REQUESTS):
            self.assertEqual(self.server.status(f"/?lost={number}", "nobody.test"), 404)
        self.assert_all_once("lost", "no-site.access")

    def test_logger_stopped_while_they_die(self):
        logger = self.server.process("logger")
        logger.signal(signal.SIGSTOP)
        self.ask("unread")
        self.ask("direct", "/probe", "direct.test")
        wait_for_time(FLUSHED)
        for title in ("site main", "bin/direct"):
            self.server.process(title).kill()
        self.assertTrue(until(lambda: self.server.status("/") == 200, 5))
        logger.kill()
        self.assert_all_once("unread")
        self.assert_all_once("direct", "direct.access")

    def test_nobody_forges_a_line(self):
        forged = '127.0.0.1 - - [01/Jan/2026:00:00:00 +0000] "GET /forged HTTP/1.1" 200 1 "-" "-"'
        for agent in (f'x" {forged}', "tab\there", 'quote"back\\slash', "\x9b31mcsi", "é"):
            with self.server.connect() as connection:
                connection.send(f"GET /?forge=1 HTTP/1.1\r\nHost: main.test\r\nUser-Agent: {agent}\r\n"
                                f"Referer: {agent}\r\n\r\n".encode("latin-1"))
                connection.response()
        for value in ("a\rb", "a\nb", "a\r\n" + forged):
            with self.server.connect() as connection:
                connection.send(f"GET /?forge=2 HTTP/1.1\r\nHost: main.test\r\nUser-Agent: {value}\r\n\r\n".encode())
                connection.response()
        self.assertTrue(until(lambda: self.server.log("main.access").count("forge=1") == 5, 3))
        everything = [self.server.log(name) for name in ("main.access", "no-site.access", "direct.access")]
        for line in "".join(everything).splitlines():
            self.assertTrue(COMBINED.fullmatch(line), line)
            self.assertFalse(line.startswith(forged[:40]), line)
            self.assertTrue(line.isprintable() and line.isascii(), line)

    def test_what_a_service_says(self):
        old = self.server.process("bin/probe")
        self.server.get("/probe/exit?code=7")
        told = lambda: f"main/probe (pid {old.pid}) ended with" in self.server.log()
        self.assertTrue(until(told, 3), self.server.log())
        line = next(line for line in self.server.log().splitlines() if f"pid {old.pid})" in line)
        self.assertIn("7", line.partition("ended with")[2])

    def test_standard_error_is_logged(self):
        # Any program may be a service; this one complains of a command line that was not meant for it.
        sites = [site("main", [service("ls", "/ls", command=["bin/ls", "--no-such-option"])])]
        server = Server(sites, (), answers=False)
        server.copy_program("/bin/ls")
        with server:
            said = lambda: re.search(r"\[service main/ls\] .*no-such-option", server.log())
            self.assertTrue(until(said, 5), server.log())


if __name__ == "__main__":
    unittest.main()
