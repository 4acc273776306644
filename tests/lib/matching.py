"""examples/matching, put together and started as its README says, and the people who use it."""

import os
import re
import shutil
import subprocess
import urllib.parse
from pathlib import Path

from browser import Browser
from harness import NOBODY, ROOTLESS, TOP, Server, program

EXAMPLE = TOP / "examples/matching"
HOST = "localhost"
FORM = "Content-Type: application/x-www-form-urlencoded"
PASSWORD = "correct horse"


class MatchingServer(Server):
    """The example, with free uids and a free port. `change` makes another configuration of its own."""

    def __init__(self, change=str, programs=()):
        super().__init__([], programs=programs, text=lambda port: (EXAMPLE / "bulkhead.toml").read_text())
        built = Path(program("matching-search")).parent
        subprocess.run([EXAMPLE / "run", "--into", self.folder], env=os.environ | {"BUILT": str(built), "PORT": str(self.port)}, check=True)
        self.config.write_text(self.with_uids(change(self.config.read_text())))
        if ROOTLESS and os.geteuid() == 0:
            for path in [self.folder, *self.folder.rglob("*")]:
                shutil.chown(path, NOBODY, NOBODY)


class Person(Browser):
    """Somebody who looks at the site, and may have registered."""

    def __init__(self, server, name):
        super().__init__(server, HOST)
        self.name = name

    def page(self, target):
        """The text of a page that is there."""
        answer = self.ask(target)
        assert answer.status == 200, f"{target}: {answer}"
        return answer.text

    def token(self, target):
        return re.search('name="csrf_token" value="([0-9a-f]{64})"', self.page(target)).group(1)

    def post(self, target, headers=(), **fields):
        return self.ask(target, "POST", urllib.parse.urlencode(fields).encode(), [FORM, *headers])

    def fill(self, at, target, **fields):
        """Opens a page and sends its form; returns the answer."""
        return self.post(target, csrf_token=self.token(at), **fields)

    def register(self, about="", interests="music"):
        answer = self.fill("/profile", "/profile/register", name=self.name, password=PASSWORD, about=about, interests=interests)
        assert answer.status == 303, answer.text
        return self

    def write(self, name, text):
        return self.fill(f"/messages/{name}", f"/messages/{name}", text=text).status


def sent(server):
    """How many messages the page of statistics tells of."""
    return int(re.search("<li><b>([0-9]+)</b> messages", server.get("/statistics", HOST).text).group(1))
