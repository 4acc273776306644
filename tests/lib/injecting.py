"""System calls of the launcher that fail as they do in practice, or at which the launcher is killed.

A first trace of what is ordered finds the launcher's own calls; then, for each of them, `strace -e inject` lets that one fail, or
kills the launcher there. By default some calls are tried, chosen by a seed that is printed (BULKHEAD_SEED);
BULKHEAD_SWEEP=whole tries all (`make sweep`), BULKHEAD_SWEEP=openat all of that name, and BULKHEAD_SWEEP=openat:3:error=EMFILE that one.
"""

import collections
import os
import random
import re
import subprocess
import tempfile

from tracing import end, traced

SWEEP = os.environ.get("BULKHEAD_SWEEP", "")
SEED = int(os.environ.get("BULKHEAD_SEED", random.randrange(1 << 32)))
#: Calls that cannot fail, or whose failure is the allocator's or the C library's own.
NO_STEP = {"mmap", "munmap", "brk", "mremap", "madvise", "futex", "rt_sigreturn", "rt_sigprocmask", "sigaltstack", "exit_group",
           "set_robust_list", "gettid", "getpid", "restart_syscall", "close", "geteuid", "getuid"}
#: What goes on without an order as well: how often it is called says nothing.
WAITS = {"epoll_wait", "epoll_pwait", "epoll_pwait2"}

#: What makes a descriptor: the process's limit, and the machine's.
OPENS = {"open", "openat", "openat2", "socket", "socketpair", "accept4", "pipe2", "dup", "dup3", "fcntl", "epoll_create1", "eventfd2",
         "memfd_create", "pidfd_open", "signalfd4", "timerfd_create", "fsopen", "fsmount", "open_tree", "recvmsg"}
#: What needs room on a disk.
GROWS = {"open", "openat", "write", "writev", "pwrite64", "mkdir", "mkdirat", "rename", "renameat", "renameat2", "symlink", "symlinkat",
         "ftruncate", "fsync", "fdatasync"}
#: What may wait, and is woken by a signal.
SLEEPS = {"read", "write", "poll", "ppoll", "waitid", "flock", "openat"}
#: What makes a process: too many of them.
STARTS = {"clone", "clone3", "fork", "vfork"}
#: What has no room in its channel.
SENDS = {"sendmsg", "sendto"}
ERRORS = ((OPENS - {"recvmsg"}, ("EMFILE", "ENFILE")), (GROWS, ("ENOSPC",)), (SLEEPS, ("EINTR",)), (STARTS | SENDS, ("EAGAIN",)))


def errors(name):
    """The errors that a call gives in practice."""
    return ["ENOMEM", *(error for names, more in ERRORS if name in names for error in more)]


class Injecting:
    """What such a test has: a `server`, and `order`, which gives the order and returns why it was refused, or None."""

    def calls(self, *orders, last=None):
        """The launcher's own calls that an order makes, with how often each is made, as these show it; up to the call `last`."""
        with tempfile.NamedTemporaryFile("r", prefix="bulkhead-trace-", dir="/tmp") as trace:
            tracer = traced(["-qq", "-o", trace.name], self.server.launcher.pid, follow=False)
            try:
                for order in orders:
                    self.assertIsNone(order())
            finally:
                end(tracer)
            names = re.findall(r"^(\w+)\(", trace.read(), re.M)
        if last is not None:
            names = names[:names.index(last) + 1]
        counted = collections.Counter(names).items()
        return {name: -(-count // len(orders)) for name, count in counted if name not in NO_STEP | WAITS}

    def tries(self, calls, count, faults):
        """Each call with its number and each of the faults that `faults` has for it; or so many of them, of as many kinds as there
        are."""
        if ":" in SWEEP:
            name, number, fault = SWEEP.split(":")
            return [(name, int(number), fault)]
        if SWEEP == "whole" or SWEEP in calls:
            of = lambda name: SWEEP in ("whole", name)
            return [(name, number, fault) for name, times in sorted(calls.items()) if of(name) for number in range(1, times + 1)
                    for fault in faults(name)]
        print(f"BULKHEAD_SEED={SEED}: {count} of {sum(calls.values())} calls of {len(calls)} kinds")
        chance = random.Random(SEED)
        kinds = chance.sample(sorted(calls), min(count, len(calls)))
        return [(name, chance.randint(1, calls[name]), chance.choice(faults(name))) for name in kinds]

    def inject(self, name, number, fault, order):
        """Gives the order with a fault at this call; why it is refused, if it is."""
        return self.faulty(["-o", "/dev/null", "-e", f"trace={name}", "-e", f"inject={name}:{fault}:when={number}"], order)

    def inject_at(self, name, path, fault, order):
        """The same with a fault at each call of this name that has this path; how many there were as well."""
        with tempfile.NamedTemporaryFile("r", prefix="bulkhead-trace-", dir="/tmp") as trace:
            why = self.faulty(["-o", trace.name, "-P", path, "-e", f"trace={name}", "-e", f"inject={name}:{fault}"], order)
            return why, trace.read().count("(INJECTED)")

    def faulty(self, words, order):
        if self.server.launcher.poll() is not None:
            # The try before has failed.
            self.server.start()
        tracer = traced(["-qq", *words], self.server.launcher.pid, follow=False)
        try:
            return order()
        except subprocess.TimeoutExpired:
            return "no answer"
        finally:
            end(tracer)


def failures(name):
    """Each of a call's errors, as strace has it."""
    return [f"error={error}" for error in errors(name)]


def ends(_):
    """The launcher's end."""
    return ["signal=SIGKILL"]
