"""How long a process stands still, as the kernel tells it from outside (`/proc/PID/syscall`).

*Asleep* is a process in a system call that is none of those in which it waits for work: it closes, sends or reads what takes its
time. Time without a processor does not count, so that this figure is the same on a machine that is busy with other tests. *Away*
is a process that was not seen to wait for work, whatever it did: this one is to be compared with what it is without an attack.
"""

import os
import threading
import time

#: epoll_wait and its kin, poll, select, nanosleep; futex, in a thread that waits for another.
_WAITS = {
    "x86_64": {7, 23, 35, 202, 230, 232, 270, 271, 281, 441},
    "aarch64": {22, 72, 73, 98, 101, 115, 441},
}[os.uname().machine]
_PAUSE = 0.001


class Standstill(threading.Thread):
    """Looks at the first thread of a process, until it is told to `end`."""

    def __init__(self, process):
        super().__init__(daemon=True)
        self.pid, self.over = process.pid, threading.Event()
        self.asleep, self.call, self.away, self.idle = 0.0, None, 0.0, 0
        self.start()

    def run(self):
        waited = since = time.monotonic()
        before = None
        try:
            with open(f"/proc/{self.pid}/task/{self.pid}/syscall", "rb", buffering=0) as file:
                while not self.over.is_set():
                    file.seek(0)
                    word = file.read(400).split(b" ")[0]
                    call, now = int(word) if word.isdigit() else None, time.monotonic()
                    if call is None or call in _WAITS or call != before:
                        since = now
                    elif now - since > self.asleep:
                        self.asleep, self.call = now - since, call
                    self.away = max(self.away, now - waited)
                    waited = now if call in _WAITS else waited
                    self.idle = self.idle + 1 if call in _WAITS else 0
                    before = call
                    time.sleep(_PAUSE)
        except OSError:
            pass  # It has ended.

    def looks_idle(self):
        """Whether it has waited for work at the last few looks."""
        return self.idle >= 3

    def end(self):
        """Looks no more; `asleep` and `away` are seconds, and `call` the number of the call in which it was asleep."""
        self.over.set()
        self.join()
        return self
