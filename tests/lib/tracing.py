"""strace on the launcher: what it calls, and calls that are made to fail."""

import signal
import subprocess
from pathlib import Path

from client import until


def traced(words, pid, follow=True):
    """A tracer of the launcher, and of the children that it starts unless it is not to follow; it is there when this returns."""
    tracer = subprocess.Popen(["strace", *(["-f"] if follow else []), *words, "-p", str(pid)],
                              stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    status = Path(f"/proc/{pid}/status")
    # A fault may have ended the launcher already, at a call that it makes by itself.
    attached = lambda: f"TracerPid:\t{tracer.pid}\n" in (text := status.read_text()) or "State:\tZ" in text
    if not until(attached, 5, pause=0.005):
        end(tracer)
        raise AssertionError("the tracer does not attach")
    return tracer


def end(tracer):
    """Ends a tracer; what it traced goes on."""
    tracer.send_signal(signal.SIGTERM)
    try:
        tracer.wait(5)
    except subprocess.TimeoutExpired:
        tracer.kill()
        tracer.wait(5)
