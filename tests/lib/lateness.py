"""How late this machine is: what is promised within a time is promised to a process that gets a processor."""

import threading
import time

#: How long each sleep is, in seconds, and processes that one request passes, each of which may have to wait for a
#: processor.
SLEEP, PASSED = 0.005, 4


class Lateness:
    """Sleeps again and again while it is in use, and keeps by how much the worst sleep was too long; use it with `with`."""

    def __init__(self):
        self.worst, self.ended = 0.0, threading.Event()
        self.thread = threading.Thread(target=self._sleep, daemon=True)

    def _sleep(self):
        while not self.ended.is_set():
            begun = time.monotonic()
            time.sleep(SLEEP)
            self.worst = max(self.worst, time.monotonic() - begun - SLEEP)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.thread.join()

    @property
    def of_a_request(self):
        """What a request may have waited for processors, in seconds."""
        return self.worst * PASSED
