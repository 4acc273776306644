"""Files that are written again with the size, the time and the inode that they had: `cp -p`, `tar --mtime`, layers of images.

Whoever asks "has this changed?" has to see it: what is served from memory, entity tags, users.
"""

import base64
import mmap
import time
import unittest

import client
from client import until
from harness import Server, rootless_too
from written_again import write_again

FILES = 60
SIZE = 3000
CONFIG = """
[[listen]]
address = "127.0.0.1:{port}"

[tls]
reread = "1s"

[[site]]
name = "main"
host = ["main.test"]
root = "main"

  [[site.route]]
  path = "/members/"
  auth = {{ users = "users", realm = "Members" }}

[[site]]
name = "soon"
host = ["soon.test"]
root = "soon"
stat_interval = "1s"

[[site]]
name = "late"
host = ["late.test"]
root = "late"
stat_interval = "15m"
"""
#: The hash of `secret`, of the least cost.
SECRET = "ann:$2y$04$pXmKKN4LVrl/pi.63jVWLuHlaQPdiA9nAsfQDJjjvLo3dW3mdoazO\n"


def page(word):
    return (word * SIZE)[:SIZE]


@rootless_too
class Versions(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        files = {f"main/{number}.txt": page("old") for number in range(FILES)}
        files |= {f"{name}/page.txt": page("old") for name in ("soon", "late")}
        files |= {"main/members/list.txt": "members\n", "users": SECRET, "late/other.txt": "x"}
        cls.server = Server(sites=[], programs=(), files=files, text=lambda port: CONFIG.format(port=port))
        cls.enterClassContext(cls.server)

    def get(self, target, host="main.test", *headers):
        with client.Connection(self.server.port) as connection:
            return connection.get(target, host, headers)

    def test_a_file_that_was_written_again_is_served_as_it_is(self):
        ask = lambda number: self.get(f"/{number}.txt")
        # What was written a moment ago is not kept: these are.
        time.sleep(0.1)
        before = {number: [ask(number) for _ in range(3)][-1] for number in range(FILES)}
        for number in range(FILES):
            write_again(self.server.folder / f"main/{number}.txt", page("new").encode())
        for number, old in before.items():
            self.assertEqual(old.text, page("old"))
            self.assertTrue(until(lambda: ask(number).text == page("new"), 10), f"{number}.txt is what it was")
            tag = ask(number).headers["etag"]
            self.assertNotEqual(tag, old.headers["etag"], "other bytes under one strong tag")
            part = self.get(f"/{number}.txt", "main.test", "Range: bytes=0-9", f"If-Range: {old.headers['etag']}")
            self.assertEqual((part.status, part.text), (200, page("new")), "a part of what the client does not have")
            self.assertEqual(self.get(f"/{number}.txt", "main.test", f"If-None-Match: {old.headers['etag']}").status, 200)
            self.assertEqual(self.get(f"/{number}.txt", "main.test", f"If-None-Match: {tag}").status, 304)

    def test_stat_interval_is_how_long_a_file_is_not_looked_at(self):
        ask = lambda host: self.get("/page.txt", host).text
        asked = lambda: [ask(host) for host in ("soon.test", "late.test")]
        # Twice, with a second between: a folder is watched before its files are believed for longer.
        start = time.monotonic()
        while time.monotonic() - start < 2.5:
            self.assertEqual(asked(), [page("old")] * 2)
            time.sleep(0.3)
        held = []
        for name in ("soon", "late"):
            # The kernel tells of no write through a memory map, and of the end of one only when the file is closed.
            file = open(self.server.folder / name / "page.txt", "r+b")
            memory = mmap.mmap(file.fileno(), SIZE)
            held += [memory, file]
            memory[:] = page("new").encode()
            memory.flush()
        self.assertTrue(until(lambda: ask("soon.test") == page("new"), 10), "after its interval")
        self.assertEqual(ask("late.test"), page("old"), "before its interval")
        # Whatever the kernel tells of has all files compared.
        (self.server.folder / "late" / "other.txt").write_text("y")
        self.assertTrue(until(lambda: ask("late.test") == page("new"), 10))
        for each in held:
            each.close()

    def test_users_that_were_written_again_are_read(self):
        word = lambda password: "Authorization: Basic " + base64.b64encode(f"ann:{password}".encode()).decode()
        status = lambda: self.get("/members/list.txt", "main.test", word("secret")).status
        self.assertTrue(until(lambda: status() == 200, 10))
        path = self.server.folder / "users"
        # The same hash is another user's, whose name is as long.
        write_again(path, SECRET.replace("ann:", "bob:").encode())
        self.assertTrue(until(lambda: status() == 401, 10), "a user who is none any more")
        write_again(path, SECRET.encode())
        self.assertTrue(until(lambda: status() == 200, 10))
