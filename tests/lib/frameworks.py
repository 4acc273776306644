"""Applications in Django, FastAPI and Express, run as their users run them; and clients of them over three protocols."""

import contextlib
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

from client import until
from harness import TOP, end

SOURCES = TOP / "tests/proxy/applications"
#: Where tests/prepare installs Express.
NODE_MODULES = TOP / "target/node/node_modules"


def missing():
    """Why the applications cannot be run here, or None."""
    if not NODE_MODULES.is_dir() or not shutil.which("node"):
        return "Express is not installed; `tests/prepare process` does that"
    found = subprocess.run(
        [sys.executable, "-c", "import django, fastapi, uvicorn, gunicorn"], capture_output=True, check=False
    )
    return "Django and others are not installed; `tests/prepare process` does that" if found.returncode else None


class Application:
    """A program that listens on `NAME.sock` of a server's folder; use it with `with`."""

    def __init__(self, name, folder, *words, **environment):
        self.socket, self.words = folder / f"{name}.sock", [str(word).format(socket=folder / f"{name}.sock") for word in words]
        self.said = folder / f"{name}.said"
        self.environment = os.environ | {"NODE_PATH": str(NODE_MODULES)} | {key: str(value) for key, value in environment.items()}
        places = [str(SOURCES), os.environ.get("PYTHONPATH"), str(TOP / "target/python")]
        self.environment["PYTHONPATH"] = ":".join(filter(None, places))
        self.process = None

    def __enter__(self):
        self.start()
        return self

    def start(self):
        with open(self.said, "ab") as said:
            self.process = subprocess.Popen(
                self.words, stdin=subprocess.DEVNULL, stdout=said, stderr=said, cwd=SOURCES, env=self.environment
            )
        if not until(lambda: self.process.poll() is not None or self.listens(), 30) or self.process.poll() is not None:
            self.stop()
            raise AssertionError(f"{self.words} does not come up: {self.said.read_text()[-2000:]}")

    def listens(self):
        with socket.socket(socket.AF_UNIX) as peer, contextlib.suppress(OSError):
            peer.connect(str(self.socket))
            # The modes are set after the socket is bound.
            return self.socket.stat().st_mode & 0o222 == 0o222
        return False

    def stop(self):
        end(self.process)

    def __exit__(self, *_):
        self.stop()


def django(folder):
    """Django under gunicorn, after `collectstatic`."""
    words = [sys.executable, SOURCES / "django_shop.py", "collectstatic", "--noinput"]
    app = Application(
        "django", folder, sys.executable, "-m", "gunicorn", "--bind", "unix:{socket}", "--workers", 2, "--threads", 4,
        "--worker-tmp-dir", "/dev/shm", "--graceful-timeout", 5, "django_shop:application", SHOP_FOLDER=folder,
    )
    done = subprocess.run(words, env=app.environment, cwd=SOURCES, capture_output=True, text=True, check=False)
    if done.returncode:
        raise AssertionError(done.stdout + done.stderr)
    return app


def fastapi(folder, download=Path("/dev/null")):
    """FastAPI under uvicorn."""
    return Application(
        "fastapi", folder, sys.executable, "-m", "uvicorn", "--uds", "{socket}", "--forwarded-allow-ips", "*",
        "--timeout-graceful-shutdown", 1, "fastapi_api:app", API_FILE=download,
    )


def express(folder):
    """Express under Node."""
    return Application("express", folder, "node", SOURCES / "express_chat.js", "{socket}", folder / "assets")


class Answer:
    """What curl was answered."""

    def __init__(self, data):
        while True:
            head, _, data = data.partition(b"\r\n\r\n")
            line, *lines = head.decode("latin-1").split("\r\n")
            self.status = int(line.split(" ")[1])
            if self.status >= 200:
                break
        pairs = [one.partition(":")[::2] for one in lines]
        self.all = [(name.strip().lower(), value.strip()) for name, value in pairs]
        self.headers, self.body = dict(self.all), data

    @property
    def cookies(self):
        """The cookies that are set, as a browser sends them back."""
        return "; ".join(value.partition(";")[0] for name, value in self.all if name == "set-cookie")


class Via:
    """A protocol: its name, options of curl, and the listener."""

    def __init__(self, name, port, tls, *options):
        self.name, self.port, self.scheme = name, port, "https" if tls else "http"
        self.options = ["curl", "-sS", "-k", "--max-time", "60", *options]

    def url(self, host, target="/"):
        return f"{self.scheme}://{host}:{self.port}{target}"

    def words(self, host, target, *more):
        return [*self.options, "--resolve", f"{host}:{self.port}:127.0.0.1", *map(str, more), self.url(host, target)]

    def ask(self, host, target="/", *more, data=None):
        done = subprocess.run(self.words(host, target, "-i", *more), input=data, capture_output=True, check=False, timeout=90)
        if done.returncode:
            raise AssertionError(f"{self.name} {host}{target}: curl ended with {done.returncode}: {done.stderr.decode()}")
        return Answer(done.stdout)

    def stream(self, host, target):
        """A curl that prints what comes as it comes."""
        words = self.words(host, target, "-N", "--max-time", 30)
        return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)
