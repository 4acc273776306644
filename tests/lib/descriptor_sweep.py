"""Descriptors of every kind, sent in the place of a process in every way, and how their receiver stands meanwhile.

A run takes cases by a seed that it prints (`BULKHEAD_SEED` repeats it); with `BULKHEAD_SWEEP=whole` it takes each.
"""

import contextlib
import fcntl
import os
import random
import signal
import struct
import sys
import termios
import unittest

from client import until
from descriptor_kinds import IN_FUSE, Made, creatable, many
from standstill import Standstill
from topology import carriers, peers, send

WHOLE = os.environ.get("BULKHEAD_SWEEP") == "whole"
SEED = int(os.environ.get("BULKHEAD_SEED", random.randrange(1 << 32)))
#: Cases of the short form on each edge that takes descriptors, with nonsense and well framed; and of one batch, after
#: which its sender is another.
CASES, FRAMED, BATCH = 38, 20, 20
#: What is sent in any case.
WORST = ("TCP, lingering", IN_FUSE)
#: How often it is seen for how long a receiver is away when nothing is sent.
QUIET = 2
#: Seconds that a receiver may be asleep in a call, and away beyond that for each second that it is away when nothing is
#: sent: on a machine with two processors and as many tests, one that would be there is not always seen there.
BAR, FACTOR = 0.05, 4
#: How often a batch is tried whose receiver stood still, or was killed as one that hangs while we had it stopped: what
#: a sender can do, it can do again.
TRIES = 3
DESCRIPTORS_MAX = 253
#: More than any message of ours.
LONG = 70_000
#: Whether this can be done here.
CAN_SEND = os.geteuid() == 0 and bool(peers())
WHY_NOT = "only root may send in others' places, and only where the kernel has unix_diag"


def plain(made, kind):
    """A message with one."""
    return prepared(made, kind, 1)


def again(made, kind):
    """Messages of which some are still there when the receiver has had enough and closes the channel."""
    return prepared(made, kind, 1, times=8)


def crowded(made, kind):
    """As many as a message can carry; no receiver has use for more than 64."""
    return prepared(made, kind, 40 if kind.startswith("inotify") else 2, copies=127)


def long(made, kind):
    """A message that is longer than what anybody reads of it."""
    return prepared(made, kind, 1, data=b"\xee" * LONG)


WAYS = (plain, again, crowded, long)


def framed(edge):
    """A way for each message of an edge that is about descriptors: the receiver takes it for what it says."""
    def way(name, count, data):
        one = lambda made, kind: prepared(made, kind, count, data=data)
        one.__name__ = f"{name} {data.hex()}"
        return one
    return [way(*carrier) for carrier in carriers().get(edge, ())]


def prepared(made, kind, count, copies=1, times=1, data=b"\xee" * 30):
    """Makes descriptors; what it gives sends messages with them at an end, and closes them: from then on they are the receiver's. How
    many messages the kernel has taken.

    To make them takes its time, and who is stopped for as long as that is taken for one that hangs, and killed."""
    descriptors = many(made, kind, count)

    def send_all(end):
        if not descriptors:
            # Of inotify instances there is not always one more.
            return 0
        taken = sum(send(end, data, (descriptors * copies)[:DESCRIPTORS_MAX]) for _ in range(times))
        for descriptor in descriptors:
            made.let_go(descriptor, kind, taken)
        return taken
    return send_all


def is_read(end):
    """Whether nothing waits at this end."""
    return struct.unpack("i", fcntl.ioctl(end, termios.FIONREAD, bytes(4)))[0] == 0


def is_over(channel):
    """Whether its receiver has read what was sent, or has closed its end."""
    try:
        with contextlib.closing(channel.receiver.copy()) as end:
            return is_read(end)
    except OSError:
        return True


def sent_to(channel, cases, made, dies=True, patience=5):
    """Sends while the receiver is stopped, and has it seen from then on until all is read. How many messages were taken."""
    taken = 0
    receiver = channel.receiver.process
    messages = [(kind, way(made, kind)) for kind, way in cases]
    with contextlib.closing(channel.sender.copy()) as end:
        receiver.signal(signal.SIGSTOP)
        try:
            for kind, send_all in messages:
                count = send_all(end)
                if count and not channel.takes:
                    raise AssertionError(f"{channel} takes {kind}")
                taken += count
            if dies:
                channel.sender.process.kill()
        finally:
            seen = Standstill(receiver)
            receiver.signal(signal.SIGCONT)
    until(lambda: is_over(channel), patience)
    # What the last message has brought is let go of after that.
    until(lambda: seen.looks_idle() or not receiver.alive, 5)
    return taken, seen.end()


def die(channel, cases, made):
    """Sends, and has the receiver killed before it has read any. How many messages were taken."""
    messages = [way(made, kind) for kind, way in cases]
    with contextlib.closing(channel.sender.copy()) as end:
        channel.receiver.process.signal(signal.SIGSTOP)
        try:
            return sum(send_all(end) for send_all in messages)
        finally:
            channel.receiver.process.kill()


class Sweeping(unittest.TestCase):
    """What is the same for a server and for a guard."""

    LEFT_OUT = ()
    #: Seconds within which a receiver has read all, or stands still.
    PATIENCE = 5
    #: Short, it is the same twice.
    rootless = WHOLE

    @classmethod
    def setUpClass(cls):
        cls.kinds, missing = creatable()
        cls.kinds = [kind for kind in cls.kinds if kind not in cls.LEFT_OUT]
        print(f"seed {SEED}; {len(cls.kinds)} kinds, and there is no {', '.join(missing) or 'other'}", file=sys.stderr)
        cls.random = random.Random(SEED)
        cls.worst, cls.count = {}, 0

    def some(self, every, count):
        """So many of all, by the seed; or all of them."""
        return list(every) if WHOLE else self.random.sample(every, min(count, len(every)))

    def batches(self, edge):
        """Lists of cases."""
        ways = framed(edge)
        worst = [kind for kind in WORST if kind in self.kinds]
        cases = [(kind, way) for kind in worst for way in (plain, *ways)]
        cases += self.some([(kind, way) for kind in self.kinds for way in WAYS], CASES)
        cases += self.some([(kind, way) for kind in self.kinds for way in ways], FRAMED)
        return [cases[at:at + BATCH] for at in range(0, len(cases), BATCH)]

    def found(self, edge, takes=True):
        """The channels of an edge that take descriptors, or take none; there is one in any case."""
        fits = lambda: [channel for channel in self.look().between(*edge) if channel.takes == takes]
        found = until(fits, 20)
        self.assertTrue(found, f"no channel {edge} any more")
        return found

    def one(self, edge, cases, takes=True, dies=True):
        """What came of one batch on a channel of this edge that takes descriptors, or takes none."""
        channel = self.random.choice(self.found(edge, takes))
        with Made() as made:
            taken, seen = sent_to(channel, cases, made, dies, self.PATIENCE)
        self.assertTrue(taken or not cases or not channel.takes, f"{channel}: nothing was sent")
        return channel, seen

    def quiet(self, edge):
        """For how many seconds a receiver is away when nothing is sent, and the sender ends."""
        self.ready()
        return max(self.one(edge, [])[1].away for _ in range(QUIET))

    def sweep(self, edge, quiet):
        """Sends on an edge whose receiver is to stand still for no longer than it does otherwise, and a bit."""
        for cases in self.batches(edge):
            for _ in range(TRIES):
                self.ready()
                channel, seen = self.one(edge, cases)
                stood = seen.asleep >= BAR or seen.away >= BAR + FACTOR * quiet
                if not stood and channel.receiver.process.alive:
                    break
            words = [(kind, way.__name__) for kind, way in cases]
            self.assertFalse(stood, f"{channel}: asleep {seen.asleep:.3f} s in call {seen.call}, away {seen.away:.3f} s: {words}")
            self.assertTrue(channel.receiver.process.alive, f"{channel}: {words}")
            asleep, away = self.worst.get(edge, ((0, None), 0))
            self.worst[edge] = max(asleep, (seen.asleep, seen.call)), max(away, seen.away)
            type(self).count += len(cases)

    def tell(self):
        """How it was, for whoever looks."""
        for (sender, receiver), ((asleep, call), away) in sorted(self.worst.items()):
            words = f"asleep {asleep * 1000:.0f} ms (system call {call}), away {away * 1000:.0f} ms"
            print(f"{sender} to {receiver}: {words}", file=sys.stderr)
        print(f"{self.count} cases", file=sys.stderr)
