"""Clients that connect for each request and retry nothing."""

import threading
import time


class NewConnections:
    """So many of them, until `finish`. `ask` makes one request on a connection of its own, and returns what was wrong with the answer,
    or None. In `done`: when each request began, how long it took, and what was wrong."""

    def __init__(self, ask, clients):
        self.ask, self.done, self.ended = ask, [], threading.Event()
        self.threads = [threading.Thread(target=self._run, daemon=True) for _ in range(clients)]
        for thread in self.threads:
            thread.start()

    def _run(self):
        while not self.ended.is_set():
            begun = time.monotonic()
            try:
                fault = self.ask()
            except (OSError, AssertionError) as error:
                fault = repr(error)
            self.done.append((begun, time.monotonic() - begun, fault))
            time.sleep(0.005)

    def finish(self):
        self.ended.set()
        for thread in self.threads:
            thread.join(100)
