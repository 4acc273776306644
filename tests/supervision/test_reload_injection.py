"""A reload that fails, or whose launcher is killed, at any of its system calls leaves the old or the new, never half of each.

A first trace of a reload finds the launcher's calls; then, for each of them, `strace -e inject` lets that one fail, or kills
the launcher there. Afterwards every client sees the configuration of before, or every one that of after; a reload without a
fault then brings the new one.

By default some calls are tried, chosen by a seed that is printed (BULKHEAD_SEED); BULKHEAD_SWEEP=whole tries all
(`make sweep`).
"""

import collections
import os
import random
import re
import subprocess
import tempfile
import unittest

import pytest

from client import until
from harness import rootless_too
from steady import Changing
from tracing import end, traced

pytestmark = [pytest.mark.alone, pytest.mark.slow]

WHOLE = os.environ.get("BULKHEAD_SWEEP") == "whole"
SEED = int(os.environ.get("BULKHEAD_SEED", random.randrange(1 << 32)))
#: How many calls are tried by default: with a failure, and with the launcher's end.
FAILURES, ENDS = 8, 2
#: Calls that cannot fail, or whose failure is the allocator's or the C library's own.
NO_STEP = {"mmap", "munmap", "brk", "mremap", "madvise", "futex", "rt_sigreturn", "rt_sigprocmask", "sigaltstack", "exit_group",
           "set_robust_list", "gettid", "getpid", "restart_syscall", "close", "geteuid", "getuid"}
#: What goes on without a reload as well: how often it is called says nothing.
WAITS = {"epoll_wait", "epoll_pwait", "epoll_pwait2"}
ERROR = "ENOMEM"


class Faulty(Changing):
    """A server whose launcher can be made to fail while it reloads."""

    def changed(self, which):
        """Has the file say one of two configurations that differ in all that can differ."""
        self.roots = {"other": "another", "new0": "other"} if which else {"other": "other", "new1": "other"}
        self.listeners, self.certificates = [self.ports[which]], which
        self.config.write_text(self.with_uids(self.text(self.port)))

    def settled(self):
        """What clients see, once all of them see the same; the last that they saw, if that never is."""
        seen = []

        def same():
            seen[:] = self.state()
            return all(len(answers) == 1 for answers in seen)

        until(same, 10, pause=0.1)
        return list(seen)


@rootless_too
@unittest.skipUnless(os.geteuid() == 0, "the launcher can be traced by root alone")
class Injected(unittest.TestCase):
    def setUp(self):
        self.server = self.enterContext(Faulty())
        self.states = []
        for which in (1, 0):
            self.server.changed(which)
            self.assertIsNone(self.server.reload())
            self.states.insert(0, self.server.settled())
        self.assertNotEqual(*self.states)

    def calls(self):
        """The launcher's own calls in a reload, with how often each is made."""
        with tempfile.NamedTemporaryFile("r", prefix="bulkhead-trace-", dir="/tmp") as trace:
            tracer = traced(["-qq", "-o", trace.name], self.server.launcher.pid, follow=False)
            try:
                for which in (1, 0):
                    self.server.changed(which)
                    self.assertIsNone(self.server.reload())
            finally:
                end(tracer)
            names = re.findall(r"^(\w+)\(", trace.read(), re.M)
        # Of two reloads, one there and one back.
        return {name: -(-count // 2) for name, count in collections.Counter(names).items() if name not in NO_STEP | WAITS}

    def tries(self, count):
        """Each call with its number; or so many of them, of as many kinds as there are."""
        calls = self.calls()
        every = [(name, number) for name, times in sorted(calls.items()) for number in range(1, times + 1)]
        if WHOLE:
            return every
        print(f"BULKHEAD_SEED={SEED}: {count} of {len(every)} calls of {len(calls)} kinds")
        chance = random.Random(SEED)
        kinds = chance.sample(sorted(calls), min(count, len(calls)))
        return [(name, chance.randint(1, calls[name])) for name in kinds]

    def inject(self, name, number, what):
        """Reloads with a fault at this call; what `bulkhead` says, if it refuses."""
        words = ["-qq", "-o", "/dev/null", "-e", f"trace={name}", "-e", f"inject={name}:{what}:when={number}"]
        tracer = traced(words, self.server.launcher.pid, follow=False)
        try:
            return self.server.reload()
        except subprocess.TimeoutExpired:
            return "no answer"
        finally:
            end(tracer)

    def try_one(self, name, number, what, which):
        """One fault on the way from the other configuration to this one."""
        server = self.server
        server.changed(which)
        why = self.inject(name, number, what)
        if server.launcher.poll() is not None:
            ended = lambda: not [process for process in server.seen if process.alive]
            self.assertTrue(until(ended, 10), "processes are left")
            server.start()
            self.assertEqual(server.settled(), self.states[which], "a start reads what there is")
            return "ended"
        seen = server.settled()
        self.assertIn(seen, self.states, f"half of it: {why}")
        if why is None:
            self.assertEqual(seen, self.states[which])
        again = server.reload()
        self.assertIsNone(again, f"the next reload is refused, after {why}")
        self.assertEqual(server.settled(), self.states[which])
        return "refused" if why else "done"

    def test_a_failure_leaves_the_old_or_the_new(self):
        which, found = 0, collections.Counter()
        for name, number in self.tries(FAILURES):
            with self.subTest(call=name, number=number):
                which ^= 1
                found[self.try_one(name, number, f"error={ERROR}", which)] += 1
        print(f"failures: {dict(found)}")

    def test_the_launchers_end_leaves_the_new(self):
        which = 0
        for name, number in self.tries(ENDS):
            with self.subTest(call=name, number=number):
                which ^= 1
                self.try_one(name, number, "signal=SIGKILL", which)


if __name__ == "__main__":
    unittest.main()
