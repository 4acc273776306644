"""Files that a service keeps in the folder of its own: whole or not at all, for nobody else, and never executed."""

import json
import os
import stat
import unittest

from client import until
from harness import ROOTLESS, Server, rootless_too, service, site

MULTIPART = "Content-Type: multipart/form-data; boundary=XX"
#: More than the service takes of one file.
LONG = b"x" * ((1 << 20) + 1)


def form(*contents):
    parts = [b'--XX\r\nContent-Disposition: form-data; name="f"; filename="../evil.sh"\r\n\r\n' + one + b"\r\n" for one in contents]
    return b"".join(parts) + b"--XX--\r\n"


@rootless_too
class Files(unittest.TestCase):
    def setUp(self):
        services = [service("tools", "/tools", command=["bin/tools"], files=True),
                    service("other", "/tools/other", command=["bin/other"]),
                    service("probe", "/probe", files=True)]
        direct = service("direct", "/tools", takes=True, command=["bin/direct"], files=True)
        self.server = Server([site("main", services), site("direct", [direct])], ("tools", "probe"), limits={"body_bytes": 4 << 20})
        self.server.copy_program("tools", "other")
        self.server.copy_program("tools", "direct")
        self.enterContext(self.server)

    def folder(self, name="main/tools"):
        return self.server.folder / "state/files" / name

    def save(self, *contents, host="main.test"):
        return self.server.get("/tools/save", host, headers=[MULTIPART], method="POST", body=form(*contents))

    def saved(self, name, host="main.test"):
        return self.server.get(f"/tools/saved?name={name}", host)

    def test_files_are_kept_beyond_the_process(self):
        contents = [b"one", os.urandom(1 << 20), b""]
        for host, name in (("main.test", "main/tools"), ("direct.test", "direct/direct")):
            with self.subTest(host):
                names = json.loads(self.save(*contents, host=host).text)
                self.assertEqual(sorted(names), sorted(os.listdir(self.folder(name))))
                self.server.relaunch(name)
                self.assertEqual([self.saved(one, host).body for one in names], contents)
                self.assertEqual(self.saved("../uids", host).status, 404)
        self.server.stop()
        self.server.start()
        self.assertTrue(until(lambda: self.saved(names[0], "direct.test").body == b"one", 5))

    def test_what_is_not_whole_leaves_nothing(self):
        self.assertEqual(self.save(b"kept", LONG).status, 413)
        self.assertEqual(len(os.listdir(self.folder())), 1, "the first was whole")
        self.assertEqual(self.save(b"kept", b"x" * (5 << 20)).status, 413)
        before = os.listdir(self.folder())
        with self.server.connect() as connection:
            head = ["POST /tools/save HTTP/1.1", "Host: main.test", MULTIPART, "Content-Length: 1000000", "", ""]
            connection.send("\r\n".join(head).encode() + form(b"x" * 200_000)[:-20])
            self.assertTrue(until(lambda: len(os.listdir(self.folder())) == len(before) + 1, 5), "it has begun")
        self.assertTrue(until(lambda: os.listdir(self.folder()) == before, 5), "the client has gone")

    def test_the_folder_is_the_services_alone(self):
        self.assertEqual(self.server.get("/tools/other", "main.test").status, 404)
        name = json.loads(self.save(b"one").text)[0]
        found, file = os.stat(self.folder()), os.stat(self.folder() / name)
        uid = self.server.process("bin/tools").uid
        self.assertEqual((found.st_uid, stat.S_IMODE(found.st_mode)), (uid, 0o700))
        self.assertEqual((file.st_uid, stat.S_IMODE(file.st_mode)), (uid, 0o600))
        self.assertFalse((self.server.folder / "state/files/main/other").exists(), "who has not asked for a folder has none")
        shown = self.server.get("/probe").text
        where = json.loads(shown)["env"]["BULKHEAD_FILES"]
        self.assertEqual(where, str(self.folder("main/probe")) if ROOTLESS else "/files")
        if not ROOTLESS:
            self.assertNotEqual(os.stat(self.folder("main/probe")).st_uid, uid)
            lines = open(f"/proc/{self.server.process('bin/tools').pid}/mountinfo").read().splitlines()
            mounts = [line.split() for line in lines if line.split()[4] == "/files"]
            self.assertEqual(len(mounts), 1)
            self.assertLessEqual({"noexec", "nosuid", "nodev", "rw"}, set(mounts[0][5].split(",")))

    def test_a_reload_gives_and_takes_the_folder(self):
        name = json.loads(self.save(b"one").text)[0]
        text = self.server.config.read_text()
        without = text.replace("files = true", "files = false")
        for now, status in ((without, 501), (text, 200)):
            self.server.config.write_text(now)
            said = self.server.command("reload", "--run-dir", "run")
            self.assertEqual(said.returncode, 0, said.stderr)
            self.assertEqual(self.saved(name).status, status)

    def test_it_is_explained(self):
        text = self.server.command("explain", "--config", self.server.config, "main/tools").stdout
        self.assertRegex(text, r"all +files +state/files/main/tools .*`files`: it writes them")
        if not ROOTLESS:
            self.assertNotIn("state/files/main/probe", text)
