"""`bulkhead serve`: a server without a configuration file, by words alone; and sites that run as an account."""

import os
import pwd
import shutil
import signal
import struct
import subprocess
import unittest
from pathlib import Path

from client import get, status, until
from harness import ROLES, Server, children, free_port, program, site
from serving import Serving

USER = "www-data"


def names_a_loader(elf):
    """Whether a program of 64 bits has a header of type PT_INTERP."""
    assert elf[:6] == b"\x7fELF\x02\x01"
    (offset,), (size, count) = struct.unpack_from("<Q", elf, 32), struct.unpack_from("<HH", elf, 54)
    return any(struct.unpack_from("<I", elf, offset + number * size) == (3,) for number in range(count))


class Serve(unittest.TestCase):
    def setUp(self):
        self.serving = self.enterContext(Serving())
        self.port = free_port()

    def test_a_folder(self):
        self.serving.write("public/index.html")
        self.serving.start("public", "--listen", self.port)
        self.assertEqual(status(self.port, "/", "any.test"), 200)
        self.assertIn(f"http://127.0.0.1:{self.port}/ serves {self.serving.folder}/public; Ctrl-C", self.serving.said())

    def test_logs_and_account(self):
        file = self.serving.write("public/own.txt")
        account = pwd.getpwnam(USER)
        os.chown(file, account.pw_uid, account.pw_gid)
        file.chmod(0o400)
        self.serving.start("--bind", f"127.0.0.1:{self.port}", "--sandbox", "public", "--log-dir", "logs",
                           "--error-log", "errors.log", "--cpu", 3, "--run-as", USER)
        self.assertEqual(status(self.port, "/own.txt", "a.test"), 200)
        processes = self.serving.processes()
        ids = processes["site files"].status()
        self.assertEqual(ids["Uid"].split(), [str(account.pw_uid)] * 4)
        self.assertEqual(ids["Gid"].split(), [str(account.pw_gid)] * 4)
        self.assertEqual(ids["Groups"].split(), [str(account.pw_gid)])
        self.assertEqual(sum(title.startswith("gate") for title in processes), 3)
        logs = self.serving.folder / "logs"
        lines = lambda: "".join(path.read_text() for path in logs.glob("access.log.2*"))
        self.assertTrue(until(lambda: "GET /own.txt" in lines(), 3), list(logs.iterdir()))
        self.assertFalse((logs / "error.log").exists())
        self.assertIn("serving on", (self.serving.folder / "errors.log").read_text())

    def test_two_configurations(self):
        other = free_port()
        for name in ("one/index.html", "two/index.html", "host/only.txt"):
            self.serving.write(name)
        self.serving.start("--bind", f"127.0.0.1:{self.port}", "--sandbox", "one", "--host-sandbox", "h.test", "host",
                           "--new", "--bind", f"127.0.0.1:{other}", "--sandbox", "two", "--index", "none.html")
        self.assertEqual(status(self.port, "/", "any.test"), 200)
        self.assertEqual(status(self.port, "/only.txt", "h.test"), 200)
        self.assertEqual(status(self.port, "/only.txt", "any.test"), 404)
        self.assertEqual(status(other, "/index.html", "h.test"), 200)
        self.assertEqual(status(other, "/", "h.test"), 404)
        uids = [self.serving.processes()[f"site {name}"].uid for name in ("h.test", "files", "files-2")]
        self.assertEqual(len(set(uids)), 3)

    def test_everything_is_redirected(self):
        self.serving.start("--bind", f"127.0.0.1:{self.port}", "--redirect", "https://example.org/to")
        for target, query in (("/", ""), ("/any/thing?x", "?x")):
            response = get(self.port, target, "any.test")
            self.assertEqual((response.status, response.headers["location"]), (302, f"https://example.org/to{query}"))

    def test_tls_at_the_next_bind(self):
        secure = free_port()
        self.serving.write("public/index.html")
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                        "-subj", "/CN=a.test", "-addext", "subjectAltName=DNS:a.test", "-days", "2", "-keyout", "key.pem",
                        "-out", "chain.pem"], cwd=self.serving.folder, check=True, capture_output=True)
        both = "".join((self.serving.folder / name).read_text() for name in ("key.pem", "chain.pem"))
        self.serving.write("both.pem", both).chmod(0o600)
        self.serving.start("--bind", f"127.0.0.1:{self.port}", "--sandbox", "public", "--new", "--tls", "both.pem",
                           "--bind", f"127.0.0.1:{secure}", "--sandbox", "public")
        self.assertEqual(status(self.port, "/", "a.test"), 200)
        curl = ["curl", "--silent", "--show-error", "--max-time", "10", "--cacert", "chain.pem", "--resolve",
                f"a.test:{secure}:127.0.0.1", f"https://a.test:{secure}/"]
        done = subprocess.run(curl, cwd=self.serving.folder, capture_output=True, text=True, timeout=20, check=False)
        self.assertEqual((done.returncode, done.stdout), (0, "x\n"), done.stderr)

    def test_a_folder_for_each_host(self):
        for host in ("a.test", "b.test"):
            self.serving.write(f"www/{host}/index.html", f"{host}\n")
        self.serving.start("--bind", f"127.0.0.1:{self.port}", "--vhost", "www", "--cache-control", 0,
                           "--stat-interval", 1, "--log-dir", "logs")
        for host in ("a.test", "b.test"):
            response = get(self.port, "/", host)
            self.assertEqual((response.status, response.body), (200, f"{host}\n".encode()))
            self.assertEqual(response.headers["cache-control"], "no-cache")
        self.assertEqual(status(self.port, "/", "c.test"), 404)
        self.serving.write("www/c.test/index.html")
        self.assertTrue(until(lambda: status(self.port, "/", "c.test") == 200, 5))

    def test_files_first_then_the_application(self):
        """The application is Python's own server, in another folder."""
        self.serving.write("static/here.txt", "static\n")
        for name in ("here.txt", "there.txt"):
            self.serving.write(f"application/{name}", "application\n")
        port = free_port()
        application = subprocess.Popen(["python3", "-m", "http.server", str(port), "--bind", "127.0.0.1"],
                                       cwd=self.serving.folder / "application", stdin=subprocess.DEVNULL,
                                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(application.wait)
        self.addCleanup(application.kill)
        self.serving.start("--bind", f"127.0.0.1:{self.port}", "--sandbox", "static", "--backpath", f"127.0.0.1:{port}")
        self.assertTrue(until(lambda: status(self.port, "/there.txt", "a.test") == 200, 5))
        self.assertEqual(get(self.port, "/there.txt", "a.test").body, b"application\n")
        self.assertEqual(get(self.port, "/here.txt", "a.test").body, b"static\n")
        self.assertEqual(status(self.port, "/nowhere.txt", "a.test"), 404)

    def test_unpacked_anywhere(self):
        """The layout of `make dist`; no program of it needs a library."""
        for name in ROLES:
            place = self.serving.folder / ("bin" if name == "bulkhead" else "libexec/bulkhead") / name
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(program(name), place)
            self.assertFalse(names_a_loader(place.read_bytes()), name)
        self.serving.write("public/index.html")
        self.serving.start("public", "--listen", self.port, command=self.serving.folder / "bin/bulkhead")
        self.assertEqual(status(self.port, "/", "any.test"), 200)

    def test_nothing_is_left(self):
        self.serving.write("public/index.html")
        self.serving.start("public", "--listen", self.port)
        (launcher,) = children(self.serving.command.pid)
        folder = Path(launcher.words[-1]).parent
        self.assertTrue(folder.is_dir())
        self.serving.command.send_signal(signal.SIGINT)
        self.assertEqual(self.serving.command.wait(20), 0)
        self.assertFalse(folder.exists() or launcher.alive)


class Account(unittest.TestCase):
    def test_one_that_is_not_there(self):
        server = Server([site("main", user="no-such-account")], ())
        self.addCleanup(shutil.rmtree, server.folder)
        answer = server.command("run", server.config)
        self.assertEqual(answer.returncode, 1, answer.stderr)
        self.assertIn("there is no account no-such-account, which site main", answer.stderr)

    def test_two_sites_that_share_one(self):
        both = {"user": USER, "danger_shared_user": True}
        # A process of ours may have few others of its uid; an account may have any number of them.
        for _ in range(12):
            other = subprocess.Popen(["sleep", "60"], user=USER, group=USER, extra_groups=[])
            self.addCleanup(other.wait)
            self.addCleanup(other.kill)
        server = self.enterContext(Server([site("main", **both), site("other", **both), site("third")], ()))
        uids = [server.process(f"site {name}").uid for name in ("main", "other", "third")]
        self.assertEqual(uids[0], uids[1])
        self.assertEqual(uids[0], pwd.getpwnam(USER).pw_uid)
        self.assertIn(uids[2], server.uids)
        answer = server.command("status", "--config", server.config, "--json")
        self.assertEqual(answer.returncode, 0)


if __name__ == "__main__":
    unittest.main()
