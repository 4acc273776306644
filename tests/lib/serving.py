"""`bulkhead serve`, started for a test."""

import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

from client import until
from harness import children, program


class Serving:
    """What `bulkhead serve WORDS` starts, in a folder of its own that every uid may read."""

    def __enter__(self):
        self.folder = Path(tempfile.mkdtemp(prefix="bulkhead-serve-test-", dir="/tmp"))
        self.folder.chmod(0o755)
        self.command = None
        return self

    def write(self, name, content="x\n"):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
        return path

    def start(self, *words, command=None):
        said = open(self.folder / "said", "w")
        self.command = subprocess.Popen([command or program("bulkhead"), "serve", *map(str, words)], stdin=subprocess.DEVNULL,
                                        stdout=said, stderr=said, cwd=self.folder)
        said.close()
        up = lambda: self.command.poll() is not None or "; Ctrl-C ends it" in self.said()
        if not until(up, 15) or self.command.poll() is not None:
            raise AssertionError(self.said())

    def said(self):
        return (self.folder / "said").read_text()

    def processes(self):
        """The launcher's children, by their titles."""
        launchers = children(self.command.pid)
        return {process.title: process for launcher in launchers for process in children(launcher.pid)}

    def __exit__(self, kind, *_):
        if self.command is not None:
            self.command.send_signal(signal.SIGTERM)
            self.command.wait(20)
        if kind is not None:
            print(f"\n---- said\n{self.said()}----", flush=True)
        shutil.rmtree(self.folder)
