"""nginx as its package has it, with a configuration of whoever compares with it."""

import contextlib
import pathlib
import subprocess
import tempfile

from client import until
from harness import free_port


@contextlib.contextmanager
def running(text, workers=1, files=()):
    """A server with the configuration that `text` makes of its folder and its port; `files` are what is in the folder, by their names.
    Gives its port, and the pids of the master and the workers."""
    with tempfile.TemporaryDirectory(prefix="bulkhead-nginx-", dir="/tmp") as name:
        folder, port = pathlib.Path(name), free_port()
        folder.chmod(0o755)
        for file, content in dict(files).items():
            (folder / file).write_text(content)
        config = folder / "nginx.conf"
        config.write_text(text(folder, port))
        program = subprocess.Popen(["nginx", "-c", config, "-g", "daemon off;"], stderr=subprocess.DEVNULL)
        children = lambda: list(map(int, pathlib.Path(f"/proc/{program.pid}/task/{program.pid}/children").read_text().split()))
        try:
            # The master listens before it has any.
            if not until(lambda: len(children()) == workers, 5):
                raise SystemExit("nginx does not come up")
            yield port, [program.pid, *children()]
        finally:
            program.terminate()
            program.wait(10)
