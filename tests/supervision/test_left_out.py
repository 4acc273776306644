"""A file of a site that is wrong: all others are taken in, and that one's hosts are nobody else's."""

import json
import os
import shutil
import signal
import ssl
import subprocess
import unittest
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import client
from client import until
from counting import Counting
from harness import NOBODY, ROOTLESS, Server, configuration, free_port, rootless_too, site
from tls_server import certificate

#: The exit status of a reload that has left files out.
LEFT_OUT = 3
#: Mistakes of each kind: of syntax, of a value, of something on disk, of what another site has.
MISTAKES = {
    "syntax": "[[site]]\nname = 'two'\nhost = ['two.test']\nroot = \n",
    "value": "[[site]]\nname = 'two'\nhost = ['two.test']\nroot = '../two'\nnonsense = 1\n",
    "disk": "[[site]]\nname = 'two'\nhost = ['two.test']\nroot = '../nowhere'\n",
    "conflict": "[[site]]\nname = 'two'\nhost = ['two.test', 'one.test']\nroot = '../two'\n",
}


def file_of(name, root=None, **more):
    lines = {"name": name, "host": [f"{name}.test"], "root": root or f"../{name}"} | more
    return "[[site]]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in lines.items())


def service_of(program):
    return f"[[site.service]]\nname = 'app'\npath = '/probe'\ncommand = ['../bin/{program}']\n"


class Files(unittest.TestCase):
    """Sites one, two and three in files, and one that has every host which nobody else has."""

    def setUp(self):
        self.h2c = free_port()
        files = {f"{name}/index.html": f"{name}\n" for name in ("main", "one", "two", "three", "new", "other")}
        files |= {f"sites/{name}.toml": file_of(name) for name in ("one", "two", "three")}
        listen = f'\n[[listen]]\naddress = "127.0.0.1:{self.h2c}"\nh2c = true\n'
        text = lambda port: 'include = "sites/*.toml"\n\n' + configuration(port, [site(host=["*"])], {}) + listen
        self.server = self.enterContext(Server([], files=files, text=text))
        self.sites = self.server.folder / "sites"

    def reload(self, *words, code=0):
        answer = self.server.command("reload", "--run-dir", "run", *words, timeout=60)
        self.assertEqual(answer.returncode, code, (words, answer.stdout, answer.stderr))
        return answer.stdout + answer.stderr

    def site(self, *words, code=0):
        answer = self.server.command("site", "--config", self.server.config, *words, timeout=60)
        self.assertEqual(answer.returncode, code, (words, answer.stdout, answer.stderr))
        return answer.stdout + answer.stderr

    def texts(self, *names):
        """What the hosts of these answer; the status where that is no success."""
        answers = [self.server.get("/", f"{name}.test") for name in names]
        return [answer.text.strip() if answer.status == 200 else answer.status for answer in answers]

    def left_out(self):
        """The files that `status` says are left out, with what there is instead; `None` while nobody answers."""
        answer = self.server.command("status", "--json", "--run-dir", "run")
        if answer.returncode:
            return None
        status = json.loads(answer.stdout)
        return {one["file"].rpartition("/")[2]: one["instead"] for one in status["left_out"]}

    def copies(self):
        folder = self.server.folder / "state" / "good"
        # Others are being written, and get their names when all of them have been.
        names = sorted(path.name for path in folder.iterdir() if not path.name.startswith(".")) if folder.exists() else []
        return {name: (folder / name).read_text() for name in names}

    def are_copied(self, *names):
        wanted = {f"{name}.toml": (self.sites / f"{name}.toml").read_text() for name in names}
        self.assertTrue(until(lambda: self.copies() == wanted, 10), (self.copies(), wanted))


@rootless_too
class Reloads(Files):
    def test_what_is_good_is_taken_in_and_what_is_not_goes_on(self):
        server, clients = self.server, []
        for host in ("one.test", "two.test", "three.test"):
            clients.append(Counting(host, lambda: client.Connection(server.port), "/", host, close=host == "two.test"))
        pid = server.process("site two").pid
        for turn, (kind, text) in enumerate(MISTAKES.items()):
            server.write("sites/two.toml", text)
            server.write("sites/three.toml", file_of("three", "../other" if turn % 2 == 0 else None))
            server.write(f"sites/n{turn}.toml", file_of(f"n{turn}", "../new"))
            said = self.reload(code=LEFT_OUT)
            self.assertIn("sites/two.toml: its sites go on as they run", said, kind)
            self.assertIn(f"site n{turn}: added", said, kind)
            expected = ["one", "two", "other" if turn % 2 == 0 else "three", "new"]
            self.assertEqual(self.texts("one", "two", "three", f"n{turn}"), expected, kind)
            self.assertEqual(self.left_out(), {"two.toml": "running"}, kind)
            self.assertIn("sites/two.toml is left out, and its sites go on as they run", server.log(), kind)
            self.assertEqual(server.process("site two").pid, pid, kind)
            plan = server.command("reload", "--run-dir", "run", "--json", "--dry-run")
            self.assertEqual((plan.returncode, len(json.loads(plan.stdout)["left_out"])), (LEFT_OUT, 1), kind)
            self.assertIn("left out: ", server.command("status", "--run-dir", "run").stdout, kind)
        for counting in clients:
            counting.finish()
            self.assertEqual(counting.failed, {}, counting.name)
            self.assertGreater(len(counting.answered), 20, counting.name)
        server.write("sites/two.toml", file_of("two", "../new"))
        self.reload()
        self.assertEqual((self.texts("two"), self.left_out()), (["new"], {}))

    def test_all_or_nothing_is_what_it_says(self):
        server = self.server
        server.write("sites/two.toml", MISTAKES["value"])
        server.write("sites/three.toml", file_of("three", "../other"))
        self.assertIn("two.toml:5:1: error: unknown key", self.reload("--all-or-nothing", code=1))
        self.assertEqual((self.texts("three"), self.left_out()), (["three"], {}))
        # A mistake in the main file is everybody's.
        server.config.write_text(server.config.read_text().replace("h2c = true", "h2c = 1"))
        self.assertIn("bulkhead.toml:", self.reload(code=1))
        self.assertEqual(self.texts("one", "two", "three"), ["one", "two", "three"])

    def test_one_site_alone(self):
        server = self.server
        server.write("sites/one.toml", MISTAKES["syntax"])
        server.write("sites/two.toml", file_of("two", "../new"))
        server.write("sites/three.toml", file_of("three", "../other"))
        server.config.write_text(server.config.read_text().replace("h2c = true", "h2c = 1"))
        self.assertIn("site two: changed", self.reload("two"))
        self.assertEqual(self.texts("one", "two", "three"), ["one", "new", "three"])
        server.write("sites/fourth.toml", file_of("fourth", "../new"))
        self.reload("fourth")
        self.assertEqual(self.texts("fourth", "three"), ["new", "three"])
        self.assertIn("one.toml", self.reload("one", code=LEFT_OUT))
        self.assertEqual((self.texts("one"), self.left_out()), (["one"], {"one.toml": "running"}))
        (self.sites / "fourth.toml").unlink()
        self.reload("fourth")
        self.assertEqual((self.texts("fourth"), self.left_out()), (["main"], {"one.toml": "running"}))
        self.assertIn("the site is in the main file", self.reload("main", code=1))
        self.assertIn("has no file of this site", self.reload("nobody", code=1))
        self.assertIn("sites/one.toml:", self.reload("one", "--all-or-nothing", code=1))

    def test_who_has_a_host_keeps_it(self):
        server = self.server
        # Both the first and the last file by name want the host of one that runs.
        for name in ("aaa", "zzz"):
            server.write(f"sites/{name}.toml", file_of(name, "../new", host=["two.test", f"{name}.test"]))
        server.write("sites/two.toml", file_of("two", "../other"))
        said = self.reload(code=LEFT_OUT)
        self.assertIn('sites/aaa.toml:3:9: error: "two.test" is already another site\'s', said)
        self.assertIn('sites/zzz.toml:3:9: error: `host` "two.test" with `path` "/" is already site "two"', said)
        self.assertEqual(self.texts("two", "aaa", "zzz"), ["other", "main", "main"])
        self.assertEqual(self.left_out(), {"aaa.toml": "nothing", "zzz.toml": "nothing"})
        # The name of another site is taken in the same way.
        (self.sites / "zzz.toml").unlink()
        server.write("sites/aaa.toml", file_of("two", "../new", host=["aaa.test"]))
        self.reload(code=LEFT_OUT)
        self.assertEqual(self.texts("two", "aaa"), ["other", "main"])

    def test_a_service_that_fails_refuses_its_own_sites_change(self):
        server = self.server
        shutil.copy("/bin/false", server.folder / "bin" / "false")
        for name in ("one", "two"):
            server.write(f"sites/{name}.toml", file_of(name, "../new") + service_of("false"))
        server.write("sites/three.toml", file_of("three", "../other"))
        said = self.reload(code=LEFT_OUT)
        self.assertIn("service one/app: ", said)
        self.assertEqual(self.texts("one", "two", "three"), ["one", "two", "other"])
        self.assertEqual(self.left_out(), {"one.toml": "running", "two.toml": "running"})
        self.assertIn("service one/app", self.reload("--all-or-nothing", code=1))
        server.write("sites/one.toml", file_of("one") + service_of("probe"))
        server.write("sites/two.toml", file_of("two") + service_of("probe"))
        self.reload()
        self.assertEqual((server.status("/probe", "one.test"), self.left_out()), (200, {}))

    def test_sites_come_and_go_beside_a_bad_file(self):
        server = self.server
        server.write("sites/two.toml", MISTAKES["syntax"])
        self.reload(code=LEFT_OUT)
        self.site("add", "new", "--host", "new.test", "--root", server.folder / "new")
        self.assertEqual(self.texts("new", "two"), ["new", "two"])
        self.assertEqual(self.left_out(), {"two.toml": "running"})
        for words, expected in ((("disable", "new"), ["main", "two"]), (("enable", "new"), ["new", "two"]), (("remove", "new"), ["main", "two"])):
            self.site(*words)
            self.assertEqual(self.texts("new", "two"), expected, words)
        refused = self.site("add", "new", "--host", "one.test", "--root", server.folder / "new", code=1)
        self.assertIn("site new: not added; nothing has changed", refused)
        self.assertIn('sites/new.toml:3:9: error: "one.test" is already another site\'s', refused)
        self.assertFalse((self.sites / "new.toml").exists())
        self.assertIn("two.toml:4:", self.site("list", code=LEFT_OUT))
        # The file itself can be disabled, and goes with its site.
        self.site("disable", "two")
        self.assertEqual((self.texts("two"), self.left_out()), (["main"], {}))
        self.assertIn("two.toml", self.site("enable", "two", code=2))
        server.stop()
        server.write("sites/one.toml", MISTAKES["syntax"].replace("two", "one"))
        self.site("add", "new", "--host", "new.test", "--root", server.folder / "new")
        self.assertIn("does not exist", self.site("add", "newer", "--host", "newer.test", "--root", "/nonexistent", code=2))

    def test_check_says_all_of_it_and_what_would_be_left_out(self):
        server = self.server
        server.write("sites/two.toml", MISTAKES["value"])
        server.write("sites/three.toml", file_of("three", "../nowhere"))
        answer = server.command("check", server.config)
        self.assertEqual(answer.returncode, 2)
        for part in ("two.toml:5:1: error: unknown key", "nowhere does not exist", "2 errors", "sites/two.toml: would be left out",
                     "sites/three.toml: would be left out"):
            self.assertIn(part, answer.stderr)
        answer = server.command("check", "--json", server.config)
        leaves = {one["leaves_out"].rpartition("/")[2] for one in json.loads(answer.stdout)}
        self.assertEqual((answer.returncode, leaves), (2, {"two.toml", "three.toml"}))


@rootless_too
class Commands(Files):
    """Those that read the configuration themselves answer for all sites but that of the bad file, as a start would."""

    def setUp(self):
        super().setUp()
        self.server.write("one.sql", "-- name: a :one\n-- services: app\nSELECT 1 AS n;\n")
        source = "data = ['d']\n[[site.data]]\nname = 'd'\nstatements = '../one.sql'\n"
        for name in ("one", "two"):
            self.server.write(f"sites/{name}.toml", file_of(name) + service_of("probe") + source)
        self.reload()
        self.are_copied("one", "two", "three")
        self.server.write("sites/two.toml", MISTAKES["value"])
        self.server.write("sites/new.toml", file_of("new", nonsense=1))

    def run_command(self, code, *words):
        answer = self.server.command(*words, timeout=60)
        self.assertEqual(answer.returncode, code, (words, answer.stdout, answer.stderr))
        return answer

    def test_each_answers_and_says_what_was_left_out(self):
        config = ("--config", self.server.config)
        for words in (("explain", *config), ("explain", *config, "gate"), ("data", "check", *config), ("site", *config, "list")):
            said = self.run_command(LEFT_OUT, *words).stderr
            self.assertRegex(said, r"left out: \S+sites/two.toml: its sites are those of the last good copy\n +\S+two.toml:5:1: error: unknown", words)
            self.assertRegex(said, r"left out: \S+sites/new.toml: its hosts get 503: new.test\n", words)
        for words in (("explain", *config, "--json"), ("site", *config, "list", "--json")):
            left_out = json.loads(self.run_command(LEFT_OUT, *words).stdout)["left_out"]
            self.assertEqual({one["instead"]: one["sites"] for one in left_out}, {"last good copy": ["two"], "503": ["new"]}, words)
        checked = json.loads(self.run_command(LEFT_OUT, "data", "check", *config, "--json").stdout)
        self.assertEqual([one.get("source") or one["left_out"]["instead"] for one in checked], ["one/d", "two/d", "503", "last good copy"])
        self.assertEqual([one["mistakes"] for one in checked[:2]], [[], []])

    def test_who_names_a_site_hears_of_that_sites_file_alone(self):
        config = ("--config", self.server.config)
        for words in (("explain", *config, "one"), ("explain", *config, "one/app"), ("data", "check", *config, "one/d"),
                      ("data", "gen", *config, "one/d")):
            self.assertEqual(self.run_command(0, *words).stderr, "", words)
        for words in (("explain", *config, "two"), ("explain", *config, "two/app"), ("data", "check", *config, "two/d"),
                      ("data", "gen", *config, "two/d")):
            answer = self.run_command(LEFT_OUT, *words)
            self.assertEqual(answer.stderr.count("left out: "), 1, words)
            self.assertIn("sites/two.toml: its sites are those of the last good copy", answer.stderr, words)
            self.assertNotEqual(answer.stdout, "", words)
        for words in (("explain", *config, "new"), ("explain", *config, "new/app"), ("data", "check", *config, "new/d"),
                      ("data", "gen", *config, "new/d"), ("site", *config, "adopt", "new")):
            answer = self.run_command(2, *words)
            self.assertIn("sites/new.toml: its hosts get 503", answer.stderr, words)
            self.assertNotIn("two.toml", answer.stderr, words)
        # A mistake of the main file is everybody's.
        self.server.config.write_text("nonsense = 1\n" + self.server.config.read_text())
        for words in (("explain", *config, "one"), ("data", "check", *config, "one/d"), ("site", *config, "list")):
            self.assertIn("bulkhead.toml:1:1: error: unknown key `nonsense`", self.run_command(2, *words).stderr, words)

    def test_a_guard_and_serve_read_no_files_of_sites(self):
        words = ("guard", "--config", self.server.config, "--listen", f"127.0.0.1:{free_port()}", "--", "/bin/true")
        self.assertNotIn("new.toml", self.server.command(*words, timeout=60).stderr)
        said = self.run_command(0, "serve", self.server.folder / "one", "--print-config")
        self.assertEqual((said.stderr, "include" in said.stdout), ("", False))


@rootless_too
class Starts(Files):
    def test_the_copy_that_was_good_last_stands_in(self):
        server = self.server
        self.are_copied("one", "two", "three")
        for kind, text in MISTAKES.items():
            server.write("sites/two.toml", file_of("two", "../other"))
            self.reload()
            self.are_copied("one", "two", "three")
            server.stop()
            server.write("sites/two.toml", text)
            server.start()
            self.assertEqual(self.texts("one", "two", "three"), ["one", "other", "three"], kind)
            self.assertEqual(self.left_out(), {"two.toml": "last good copy"}, kind)
            self.assertIn("sites/two.toml is left out", server.log(), kind)
            # What stands in runs as if it were the file, and is no reason to copy anything.
            self.assertIn("go on as they run", self.reload(code=LEFT_OUT), kind)
            self.assertEqual(self.copies()["two.toml"], file_of("two", "../other"), kind)
        if not ROOTLESS:
            copy = server.folder / "state/good/two.toml"
            self.assertEqual((copy.stat().st_mode & 0o777, copy.stat().st_uid, copy.parent.stat().st_mode & 0o777), (0o600, 0, 0o700))

    def test_without_a_copy_its_hosts_are_nobodys(self):
        server = self.server
        for kind, text in MISTAKES.items():
            self.are_copied("one", "two", "three")
            server.stop()
            (server.folder / "state/good/two.toml").unlink()
            server.write("sites/two.toml", text)
            server.start()
            self.assertEqual(self.texts("one", "two", "three", "nobody"), ["one", 503, "three", "main"], kind)
            for method in ("HEAD", "POST", "PUT", "OPTIONS"):
                answer = server.get("/x/y?z", "two.test", method=method)
                self.assertEqual(answer.status, 503, (kind, method))
            self.assertEqual(self.left_out(), {"two.toml": "503"}, kind)
            # It is still so after a reload, an upgrade and another start; then the file is put right.
            self.assertIn("get 503: two.test", self.reload(code=LEFT_OUT), kind)
            self.assertEqual(self.texts("two"), [503], kind)
            if kind == "value":
                answer = server.command("upgrade", "--run-dir", "run", timeout=90)
                self.assertEqual(answer.returncode, 0, answer.stderr)
                self.assertEqual(self.texts("one", "two"), ["one", 503])
                self.assertTrue(until(lambda: self.left_out() == {"two.toml": "503"}, 10), self.left_out())
            self.assertNotIn("two.toml", self.copies(), kind)
            server.write("sites/two.toml", file_of("two"))
            self.reload()
            self.assertEqual((self.texts("two"), self.left_out()), (["two"], {}), kind)

    def test_a_file_that_nobody_can_read_has_the_hosts_that_it_had_last(self):
        server = self.server
        self.are_copied("one", "two", "three")
        server.stop()
        server.write("sites/two.toml", "= nonsense\n")
        shutil.rmtree(server.folder / "two")
        server.start()
        self.assertEqual(self.texts("one", "two"), ["one", 503])
        server.stop()
        (server.folder / "state/good/two.toml").unlink()
        server.start()
        # Nobody knows its hosts: they are those of the site that has all others, and the log says so.
        self.assertEqual(self.texts("two"), ["main"])
        self.assertIn("which hosts it has is not known", server.log())

    def test_an_old_copy_takes_no_host_from_another_tenant(self):
        server = self.server
        self.are_copied("one", "two", "three")
        server.stop()
        server.write("sites/two.toml", MISTAKES["value"])
        server.write("sites/three.toml", file_of("three", host=["three.test", "two.test"]))
        server.start()
        self.assertEqual(self.texts("two", "three"), ["three", "three"])
        self.assertEqual(self.left_out(), {"two.toml": "nothing"})
        server.stop()
        # A file that is gone leaves no copy to whoever comes by its name.
        (self.sites / "two.toml").unlink()
        server.write("sites/three.toml", file_of("three"))
        server.start()
        self.are_copied("one", "three")
        server.stop()
        server.write("sites/two.toml", MISTAKES["value"].replace("two.test", "mallory.test"))
        server.start()
        self.assertEqual(self.texts("two", "mallory"), ["main", 503])

    def test_an_upgrade_beside_a_bad_file(self):
        server = self.server
        server.write("sites/two.toml", MISTAKES["syntax"])
        self.reload(code=LEFT_OUT)
        counting = Counting("two", lambda: client.Connection(server.port), "/", "two.test")
        answer = server.command("upgrade", "--run-dir", "run", timeout=90)
        self.assertEqual(answer.returncode, 0, answer.stderr)
        self.assertEqual(self.texts("one", "two", "three"), ["one", "two", "three"])
        self.assertTrue(until(lambda: self.left_out() == {"two.toml": "running"}, 10), self.left_out())
        counting.finish()
        self.assertEqual(counting.failed, {})
        self.reload(code=LEFT_OUT)
        self.assertEqual(self.texts("two"), ["two"])


class Secured(Server):
    """A site with every host, and one in a file of its own, both with certificates."""

    def __init__(self):
        self.tls = free_port()
        listen = f'\n[[listen]]\naddress = "127.0.0.1:{self.tls}"\ntls = true\n'
        main = site(host=["*"], certificates=["main.pem"])
        text = lambda port: 'include = "sites/*.toml"\n\n' + configuration(port, [main], {}) + listen
        super().__init__([], files={f"{name}/index.html": f"{name}\n" for name in ("main", "two")}, text=text)
        (self.folder / "keys").mkdir()
        self.certificates = {}
        for name in ("main", "two"):
            self.certificates[name], key = certificate(self.folder / "keys", name, "ec", f"{name}.test")
            path = self.write(f"{name}.pem", self.certificates[name] + key)
            path.chmod(0o600)
            if ROOTLESS and os.geteuid() == 0:
                shutil.chown(path, NOBODY, NOBODY)
        self.write("sites/two.toml", self.two())

    def two(self, pem="two.pem", **more):
        return file_of("two", certificates=[f"../{pem}"], **more)

    def curl(self, host, *words):
        """The exit status of curl, and the status and body of the answer."""
        resolve = ["--resolve", f"{host}:{self.tls}:127.0.0.1"]
        command = ["curl", "-sk", "--max-time", "10", *resolve, *words, "-w", " %{http_version} %{http_code}", f"https://{host}:{self.tls}/"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
        return done.returncode, done.stdout


@rootless_too
class UnderTls(unittest.TestCase):
    def test_no_request_is_answered_by_another_site(self):
        server = self.enterContext(Secured())
        self.assertEqual(server.curl("two.test", "--http2"), (0, "two\n 2 200"))
        copy = server.folder / "state/good/two.toml"
        self.assertTrue(until(copy.exists, 10))
        server.stop()
        copy.unlink()
        server.write("sites/two.toml", server.two(nonsense=1))
        server.start()
        for words, version in ((("--http2",), "2"), (("--http1.1",), "1.1")):
            code, said = server.curl("two.test", *words)
            self.assertEqual((code, said.endswith(f" {version} 503")), (0, True), said)
            self.assertEqual(server.curl("nobody.test", *words), (0, f"main\n {version} 200"))
        shown = ssl.get_server_certificate(("127.0.0.1", server.tls)).encode()
        self.assertIn(shown.strip(), server.certificates["main"])
        # Without a certificate of its own, there is no connection, or it is refused on one that is somebody else's.
        server.stop()
        server.write("sites/two.toml", server.two("gone.pem"))
        server.start()
        for words in (("--http2",), ("--http1.1",)):
            code, said = server.curl("two.test", *words)
            self.assertEqual((code != 0 or said.endswith(" 421"), "main" in said), (True, False), said)
        self.assertEqual(server.status("/", "two.test"), 503)
        # A certificate that is gone later leaves the site as it runs.
        server.write("sites/two.toml", server.two())
        self.assertEqual(server.command("reload", "--run-dir", "run").returncode, 0)
        server.write("sites/two.toml", server.two("gone.pem"))
        self.assertEqual(server.command("reload", "--run-dir", "run").returncode, LEFT_OUT)
        self.assertEqual(server.curl("two.test", "--http2"), (0, "two\n 2 200"))

    def test_a_certificate_that_only_the_signer_refuses_leaves_its_own_file_out(self):
        server = self.enterContext(Secured())
        server.write("three/index.html", "three\n")
        signer = server.process("signer")
        pair = (server.folder / "two.pem").read_bytes()
        for turn, (name, instead) in enumerate((("new", "nothing"), ("two", "running"))):
            fresh = server.write(f"fresh{turn}.pem", pair)
            fresh.chmod(0o600)
            if ROOTLESS and os.geteuid() == 0:
                shutil.chown(fresh, NOBODY, NOBODY)
            server.write(f"sites/{name}.toml", file_of(name, "../main", certificates=[f"../{fresh.name}"]))
            server.write("sites/three.toml", file_of("three", ("../three", "../main")[turn]))
            before = {process.pid for process in server.processes(f"site {name}")}
            with ThreadPoolExecutor() as pool:
                # What was examined is written over before the signer reads the file, which it has been given by then.
                os.kill(signer.pid, signal.SIGSTOP)
                try:
                    reload = pool.submit(server.command, "reload", "--run-dir", "run", timeout=60)
                    begun = lambda: {process.pid for process in server.processes(f"site {name}")} - before
                    self.assertTrue(until(begun, 20), name)
                    fresh.write_text("nothing\n")
                finally:
                    os.kill(signer.pid, signal.SIGCONT)
                answer = reload.result()
            self.assertEqual(answer.returncode, LEFT_OUT, (answer.stdout, answer.stderr))
            self.assertIn(f"sites/{name}.toml: its sites ", answer.stderr)
            self.assertIn(f"{fresh.name} of site {name}: the file needs exactly one private key", answer.stderr)
            self.assertIn(f"sites/{name}.toml is left out", server.log())
            status = json.loads(server.command("status", "--json", "--run-dir", "run").stdout)
            self.assertEqual([(Path(one["file"]).stem, one["instead"]) for one in status["left_out"]], [(name, instead)])
            # All others are taken in, and the site goes on with the certificate that it has.
            self.assertEqual(server.get("/", "three.test").text, ("three\n", "main\n")[turn])
            self.assertEqual(server.curl("two.test", "--http2"), (0, "two\n 2 200"))
            self.assertEqual(server.processes("signer"), [signer])
            (server.folder / f"sites/{name}.toml").unlink()
            server.write("sites/two.toml", server.two())
            self.assertEqual(server.command("reload", "--run-dir", "run", timeout=60).returncode, 0)
            fresh.unlink()
        self.assertEqual(json.loads(server.command("status", "--json", "--run-dir", "run").stdout)["left_out"], [])


if __name__ == "__main__":
    unittest.main()
