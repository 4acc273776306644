"""The launcher fails closed: each system call that builds a jail is made to fail in turn, and so are descriptors.

A first trace of a child's way from clone to exec finds the calls and how often each is made; then, for each of them,
`strace -e inject` lets one fail in every child that the launcher starts. The program must then never run, the error
log must name the step, and the launcher must neither end nor spin; once nothing is injected any more, the service
comes up. So a step that is added to the jail is tried without being listed here.
"""

import re
import resource
import tempfile
import unittest

import harness
from client import until
from harness import Server, service, site, wait_for_time
from tracing import end, traced

TITLE = "service main/probe"
#: Starts follow each other quickly, and nothing is given up.
RESTART = {"broken_after": 1000, "backoff_max": "100ms"}
LIMITS = {"start_timeout": "1s"}
#: The call by which a program begins to run.
EXEC = "execveat"
#: What it begins with in a trace.
PROGRAM = '"bin/probe"'
#: What is not a step of a jail: memory, locks and the C library's own, whose failure ends a process as it would any.
NO_STEP = {"mmap", "munmap", "brk", "mremap", "madvise", "futex", "rt_sigreturn", "rt_sigprocmask", "sigaltstack",
           "exit_group", "exit", "set_robust_list", "gettid", "getpid", "getrandom", "restart_syscall"}
#: Calls, as a trace shows them, whose failure leaves nothing open, and why.
HARMLESS = {
    r"close\(": "what is closed is marked to be closed at exec before",
    r"rt_sigaction\(": "no right depends on how a signal is met",
    r"fstat\(": "what is not seen to be a directory gets fewer rights in Landlock",
    r"umask\(": "the kernel never refuses it",
    r"setuid\(0\)": "it is to fail: the way back to root",
    r"prlimit64\(0, \w+, NULL, ": "a limit that is not known is set no higher than it is to be",
}
#: By which a child says that it has descriptors of its own. One that cannot say so says nothing else either, and ends.
SAYS_NOTHING = r'write\(\d+, "\\0", 1\)'
#: Of a call that is made more often, as prctl is for each capability, these are made to fail.
FIRST, LAST = 2, 3
#: How long a failure is waited for. What the program says would be there long before.
FAILS_WITHIN = 4
#: The launcher's share of a processor, at most, while every start fails.
SHARE = 0.6


def whole(lines):
    """The calls of one process, each in one piece: strace cuts one in two when another process has something to say."""
    begun = ""
    for line in lines:
        resumed = re.match(r"<\.\.\. \w+ resumed>", line)
        line = begun + line[resumed.end():] if resumed else line
        begun = line.removesuffix(" <unfinished ...>")
        if begun == line and re.match(r"\w+\(", line):
            yield line


class Injection(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server([site("main", [service("probe")])], server={"gates": 1}, restart=RESTART, limits=LIMITS)
        cls.enterClassContext(cls.server)
        cls.launcher = harness.Process(cls.server.launcher.pid)

    def serves(self):
        return self.server.status("/probe", timeout=2) == 200

    def is_up(self):
        return until(self.serves, 6)

    def processor_time(self):
        fields = self.launcher.folder.joinpath("stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / 100

    def steps(self):
        """The calls of a child between clone and exec, in order: from one start that is only watched."""
        with tempfile.NamedTemporaryFile("r", prefix="bulkhead-trace-", dir="/tmp") as trace:
            tracer = traced(["-qq", "-o", trace.name], self.launcher.pid)
            try:
                self.server.process("bin/probe").kill()
                self.assertTrue(until(self.serves, 10), "it does not come up while it is watched")
            finally:
                end(tracer)
            lines = [line.split(None, 1) for line in trace.read().splitlines()]
        # A helper of the launcher's may execute its program meanwhile.
        child = next(pid for pid, rest in lines if rest.startswith(EXEC) and PROGRAM in rest)
        calls = []
        for call in whole(rest for pid, rest in lines if pid == child):
            calls.append(call)
            if call.startswith(EXEC):
                return calls
        raise AssertionError("the child did not execute its program")

    @staticmethod
    def tries(calls):
        """Each kind of call with those that are to fail: their numbers, and the calls themselves."""
        kinds = {}
        for call in calls:
            kinds.setdefault(call.partition("(")[0], []).append(call)
        for name, all_of_it in kinds.items():
            numbered = list(enumerate(all_of_it, 1))
            if name not in NO_STEP:
                for number, call in dict([*numbered[:FIRST], *numbered[-LAST:]]).items():
                    yield name, number, call

    def inject(self, name, number, error="EPERM"):
        """Lets the call fail in each new child until one start has failed; what the error log says of it."""
        before = len(self.server.log())
        new = lambda: self.server.log()[before:]
        failed = lambda: re.search(rf"\[bulkheadd\] {TITLE}: (.*)", new())
        began, used = harness.time.monotonic(), self.processor_time()
        old = self.server.process("bin/probe")
        inject = f"inject={name}:error={error}:when={number}"
        tracer = traced(["-qq", "-o", "/dev/null", "-e", f"trace={name}", "-e", inject], self.launcher.pid)
        try:
            old.kill()
            came = lambda: failed() or [p for p in self.server.processes("bin/probe") if p != old]
            until(came, FAILS_WITHIN, pause=0.01)
            ran = [p for p in self.server.processes("bin/probe") if p != old]
            # A process that is ended for what failed after its start may be seen before that is in the log.
            until(failed, 0.5, pause=0.01)
            said = failed()
            # Some more starts fail, and there is still nothing that runs.
            if said and not ran:
                self.assertEqual(self.server.processes("bin/probe"), [])
        finally:
            end(tracer)
        used, took = self.processor_time() - used, harness.time.monotonic() - began
        self.assertLess(used, SHARE * took + 0.1, "the launcher spins")
        self.assertIsNone(self.server.launcher.poll(), "the launcher ended")
        return said[1] if said else None, ran

    def test_each_step_fails_closed(self):
        calls = self.steps()
        known = {"close_range", "dup2", "setsid", "unshare", "setns", "fsopen", "fsconfig", "fsmount", "move_mount",
                 "chroot", "keyctl", "prctl", "setgroups", "setresgid", "setresuid", "capset",
                 "landlock_create_ruleset", "landlock_restrict_self", "seccomp", EXEC}
        self.assertLessEqual(known, {call.partition("(")[0] for call in calls}, "the trace lacks steps")
        matrix = []
        for name, number, call in self.tries(calls):
            with self.subTest(call=call, number=number):
                said, ran = self.inject(name, number)
                matrix.append(f"{name} {number}: {said or 'not reported'}{', ran' if ran else ''}")
                if not any(re.match(pattern, call) for pattern in HARMLESS):
                    self.assertFalse(ran, "the program runs in a jail that lacks a step")
                    self.assertIsNotNone(said, "nothing was said of it")
                    reason = r"Operation not permitted|not implemented"
                    if re.match(SAYS_NOTHING, call):
                        reason = "unexpected end of file"
                    self.assertRegex(said, reason)
                self.assertTrue(self.is_up(), "it does not come up again")
        if harness.os.environ.get("BULKHEAD_TEST_MATRIX"):
            print("\n" + "\n".join(matrix), flush=True)
        self.assertEqual(self.server.status("/"), 200)

    def test_the_launchers_own_steps(self):
        """What it does itself for a child: the first three of a kind fail, then the service comes up."""
        for name in ("clone3", "open_tree", "mount_setattr", "mkdir", "socketpair", "pipe2", "openat", "epoll_ctl"):
            with self.subTest(call=name):
                said, _ = self.inject(name, "1..3")
                self.assertIsNotNone(said, "nothing was said of it")
                self.assertTrue(self.is_up(), "it does not come up again")
                self.assertEqual(len(self.server.processes("bin/probe")), 1)


class Exhausted(unittest.TestCase):
    def test_descriptors_of_the_launcher(self):
        """With room for one more descriptor after the other: no start half done, no process left over, no spinning."""
        with Server([site("main", [service("probe")])], server={"gates": 1}, restart=RESTART, limits=LIMITS) as server:
            launcher = harness.Process(server.launcher.pid)
            whole = resource.prlimit(launcher.pid, resource.RLIMIT_NOFILE)
            serves = lambda: server.status("/probe", timeout=2) == 200
            count = len(server.processes())
            for room in range(10):
                with self.subTest(room=room):
                    self.exhaust(server, launcher, whole, room)
                    self.assertTrue(until(serves, 6), "it does not come up again")
                    right = lambda: len(server.processes()) == count
                    self.assertTrue(until(right, 3), f"left over: {server.processes()}")
            self.assertEqual(server.status("/"), 200)

    def exhaust(self, server, launcher, whole, room):
        times = lambda: sum(map(int, launcher.folder.joinpath("stat").read_text().rpartition(")")[2].split()[11:13]))
        used = times()
        service = server.process("bin/probe")
        # As many as are open when the process is gone, and `room` of those that its start needs.
        highest = max(launcher.descriptors()) - 3
        resource.prlimit(launcher.pid, resource.RLIMIT_NOFILE, (highest + room, whole[1]))
        try:
            service.kill()
            wait_for_time(0.35)
            self.assertIsNone(server.launcher.poll(), "the launcher ended")
            self.assertLess((times() - used) / 100, 0.3, "the launcher spins")
        finally:
            resource.prlimit(launcher.pid, resource.RLIMIT_NOFILE, whole)


if __name__ == "__main__":
    unittest.main()
