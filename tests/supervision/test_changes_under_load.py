"""Nothing on a site that is unchanged notices a change: no request fails, no WebSocket is closed, no upload breaks.

BULKHEAD_RELOADS=100 makes so many changes, with ten times as many connections open; five of them replace all programs.
"""

import collections
import itertools
import os
import time
import unittest

import pytest

from harness import rootless_too
from steady import Changing, Held, loads

pytestmark = [pytest.mark.alone, pytest.mark.slow]

RELOADS = int(os.environ.get("BULKHEAD_RELOADS", 6))
UPGRADES = 5 if RELOADS >= 50 else 1
#: With how many connections: of few changes, or of all.
SOCKETS, UPLOADS = (200, 20) if RELOADS >= 50 else (20, 4)
#: How long one load goes on, and how long before its end the last change is begun.
SECONDS, MARGIN = (20, 4) if RELOADS >= 50 else (6, 2)


def changes(server):
    """What is done to the server, as functions that each do one thing and return what it was."""
    every = RELOADS // UPGRADES
    for number in itertools.count(1):
        yield server.upgrade if number % every == every // 2 else server.next_change


@rootless_too
class UnderLoad(unittest.TestCase):
    def test_no_change_is_noticed(self):
        # What a replaced worker holds is drained for as long as it takes.
        with Changing(drain="10m") as server, Held(server, SOCKETS, UPLOADS, RELOADS + 2) as held:
            made, requests, failed, todo = collections.Counter(), 0, [], changes(server)
            while made.total() < RELOADS:
                running, until = loads(server, SECONDS), time.monotonic() + SECONDS - MARGIN
                upgrades = made["upgrade"]
                while made.total() < RELOADS and time.monotonic() < until:
                    made[next(todo)()] += 1
                    held.touch()
                ended = [load.finish() for load in running]
                requests += sum(load.requests for load in ended)
                upgrades = made["upgrade"] - upgrades
                failed += [f"{load.what}: {load.text}" for load in ended if load.failed > upgrades * load.not_begun]
            lost = held.finish()
            print(f"{made.total()} changes ({dict(made)}), {requests} requests, {len(failed)} loads with a failure, "
                  f"{len(lost)} of {SOCKETS} WebSockets and {UPLOADS} uploads lost")
            self.assertEqual(failed, [])
            self.assertEqual(lost, [])
            self.assertGreater(requests, 1000)


if __name__ == "__main__":
    unittest.main()
