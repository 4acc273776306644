"""Sites in files of their own: `include`, and `bulkhead site`, beside a server that runs, and without one."""

import contextlib
import json
import mmap
import os
import shutil
import unittest
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import client
from client import Load, until
from harness import NOBODY, ROOTLESS, Server, configuration, rootless_too, site
from opens import Opens


def with_folder(port):
    return 'include = "sites/*.toml"\n\n' + configuration(port, [site()], {})


def file_of(name, root=None, **more):
    """The file of a site, whose paths count from the folder of the file."""
    lines = {"name": name, "host": [f"{name}.test"], "root": root or f"../{name}"} | more
    return "[[site]]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in lines.items())


@rootless_too
class Sites(unittest.TestCase):
    def setUp(self):
        files = {f"{name}/index.html": f"<h1>{name}</h1>\n" for name in ("main", "one", "two", "three")}
        files |= {"sites/one.toml": file_of("one"), "sites/.two.toml": "half a file", "sites/README": "not one"}
        self.server = self.enterContext(Server([], files=files, text=with_folder))

    def say(self, *words):
        """What `bulkhead site` says if it does what it was told to."""
        answer = self.server.command("site", "--config", self.server.config, *words)
        self.assertEqual((answer.returncode, answer.stderr), (0, ""), words)
        return answer.stdout

    def refused(self, *words, code=2):
        answer = self.server.command("site", "--config", self.server.config, *words)
        self.assertEqual((answer.returncode, answer.stdout), (code, ""), words)
        return answer.stderr

    def names(self):
        return sorted(path.name for path in (self.server.folder / "sites").iterdir())

    def statuses(self, *names):
        return [self.server.status("/", f"{name}.test") for name in names]

    def test_each_change_holds_at_once_and_touches_nobody_else(self):
        server = self.server
        kept, pids = client.Connection(server.port), [process.pid for process in server.processes("site")]
        self.assertEqual(kept.get("/", "one.test").text, "<h1>one</h1>\n")
        load = Load(server.port, "/", "one.test", seconds=4, connections=4)
        said = self.say("add", "two", "--host", "two.test", "--host", "www.two.test", "--root", server.folder / "two")
        self.assertIn("site two: added (in ", said)
        self.assertEqual(server.get("/", "www.two.test").text, "<h1>two</h1>\n")
        self.say("disable", "two")
        self.assertEqual(self.statuses("two", "one"), [404, 200])
        self.assertIn("is disabled already", self.say("disable", "two"))
        self.say("enable", "two")
        self.assertEqual(self.statuses("two", "one"), [200, 200])
        uid = server.process("site two").uid
        self.say("remove", "two")
        self.assertEqual(self.statuses("two", "one"), [404, 200])
        self.assertEqual(self.names(), ["README", "one.toml"])
        three = server.write("three.toml", file_of("three"))
        self.say("add", "three", "--from", three)
        self.assertEqual(server.get("/", "three.test").text, "<h1>three</h1>\n")
        if uid != server.process("gate").uid:
            self.assertNotEqual(server.process("site three").uid, uid, "a uid has one owner, ever")
        load.end().assert_clean(self)
        self.assertEqual(kept.get("/", "one.test").text, "<h1>one</h1>\n")
        self.assertLessEqual(set(pids), {process.pid for process in server.processes("site")})

    def test_what_is_refused_leaves_the_folder_as_it_was(self):
        server = self.server
        before, root = self.names(), str(server.folder / "two")
        taken = self.refused("add", "two", "--host", "one.test", "--root", root, code=1)
        self.assertIn("site two: not added; nothing has changed", taken)
        self.assertIn('is already site "one"', taken)
        self.assertIn("sites/two.toml:3:", taken)
        self.assertIn("there is a site one already", self.refused("add", "one", "--host", "x.test", "--root", root, code=1))
        for name in ("../two", "Two", "a/b", ".two", "gate"):
            self.assertIn("bad name", self.refused("add", name, "--host", "two.test", "--root", root))
        two = file_of("two") + file_of("twin", "../two")
        for text, why in ((two, "has the site two, twin"), (file_of("other"), "has the site other"),
                          ("[server]\ngates = 1\n" + file_of("two"), "unknown key `server`"), ("= 1", "TOML syntax"), ("", "no [[site]]")):
            path = server.write("wrong.toml", text)
            self.assertIn(why, self.refused("add", "two", "--from", path), text)
        self.assertIn("there is no ", self.refused("remove", "two"))
        self.assertIn("(the site is in the main file)", self.refused("disable", "main"))
        self.assertIn(server.folder.name, self.refused("enable", "nobody"))
        self.assertEqual(self.names(), [name for name in before if name != ".two.toml"])
        self.assertEqual(self.statuses("one", "main", "two"), [200, 200, 404])

    def test_a_site_that_is_broken_can_be_disabled(self):
        server = self.server
        server.write("sites/broken.toml", "[[site]]\nname = 1\n")
        reload = server.command("reload", "--run-dir", "run")
        self.assertIn("sites/broken.toml:2:8", reload.stderr)
        self.assertIn("broken.toml:2:8", server.command("site", "list", "--config", server.config).stderr)
        self.say("disable", "broken")
        self.assertEqual(server.command("reload", "--run-dir", "run").returncode, 0)
        self.say("remove", "broken")

    def test_what_others_have_written_stays_as_it_runs(self):
        server, root = self.server, self.server.folder / "two"
        main = server.config.read_text()
        server.config.write_text("nonsense = 1\n" + main)
        server.write("sites/one.toml", file_of("one", "../three"))
        server.write("sites/three.toml", file_of("three"))
        for number in range(20):
            server.write(f"sites/bad{number}.toml", file_of(f"bad{number}", nonsense=1))
        # None of the other files is even opened.
        with Opens(server.folder / "sites") as opens:
            self.say("add", "two", "--host", "two.test", "--root", root)
            self.say("disable", "two")
            self.assertEqual(self.statuses("one", "two", "three"), [200, 404, 404])
            self.say("enable", "two")
            refused = self.refused("add", "four", "--host", "one.test", "--root", root, code=1)
            self.assertIn("sites/four.toml:3:9: error: \"one.test\" is already another site's", refused)
            self.assertEqual({name for name in opens.names() if name.startswith(("one", "three", "bad"))}, set())
        self.assertEqual([server.get("/", f"{name}.test").text for name in ("one", "two")], ["<h1>one</h1>\n", "<h1>two</h1>\n"])
        self.assertNotIn("bad0", server.log())
        server.config.write_text(main)
        self.assertEqual(server.command("reload", "--run-dir", "run").returncode, 3)
        self.assertEqual([server.get("/", f"{name}.test").text for name in ("one", "three")], ["<h1>three</h1>\n"] * 2)
        # Beside files that are known to be wrong it is the same.
        with Opens(server.folder / "sites") as opens:
            self.say("remove", "two")
            self.say("add", "two", "--host", "two.test", "--root", root)
            self.assertEqual({name for name in opens.names() if name.startswith(("one", "three", "bad"))}, set())
        self.assertEqual(self.statuses("two"), [200])

    def test_a_mistake_in_another_sites_file_is_that_ones(self):
        server, root = self.server, self.server.folder / "two"
        self.say("add", "two", "--host", "two.test", "--root", root)
        self.say("disable", "two")
        server.write("sites/broken.toml", file_of("broken", "../one", nonsense=1))
        for name in ("four", "five"):
            refused = self.refused("add", name, "--host", "one.test", "--root", root, code=1)
            self.assertIn(f"sites/{name}.toml:3:9: error: \"one.test\" is already another site's", refused)
            self.assertNotIn("broken", refused)
            self.assertEqual(self.names(), ["README", "broken.toml", "one.toml", "two.toml.disabled"])
        server.write("sites/broken.toml", file_of("broken", "../nowhere"))
        self.say("enable", "two")
        self.assertEqual(self.statuses("one", "two", "broken"), [200, 200, 404])
        self.say("disable", "two")
        server.write("sites/broken.toml", file_of("broken", "../one", host=["two.test"]))
        self.assertEqual(server.command("reload", "--run-dir", "run").returncode, 0)
        self.assertIn('is already site "broken"', self.refused("enable", "two", code=1))
        (server.folder / "sites" / "broken.toml").unlink()
        self.assertEqual(server.command("reload", "--run-dir", "run").returncode, 0)
        self.say("enable", "two")
        self.assertEqual([server.get("/", f"{name}.test").text for name in ("one", "two")],
                         ["<h1>one</h1>\n", "<h1>two</h1>\n"])

    def watches(self):
        """How many folders the launcher watches."""
        count = 0
        for path in Path(f"/proc/{self.server.launcher.pid}/fdinfo").iterdir():
            # It may close others meanwhile.
            with contextlib.suppress(FileNotFoundError):
                count += path.read_text().count("inotify wd:")
        return count

    def test_what_the_kernel_does_not_say_is_found_all_the_same(self):
        server, sites = self.server, self.server.folder / "sites"
        text = lambda name: server.get("/", f"{name}.test").text
        # As the command of a version before orders it: what has changed, whichever file it is.
        add = lambda name: self.assertTrue(until(lambda: server.order(command="reload-sites").get("ok"), 10), name)
        self.assertEqual(self.watches(), 1)
        # A link, whose file is elsewhere.
        linked = server.write("elsewhere.toml", file_of("three", "../three"))
        (sites / "three.toml").symlink_to(linked)
        add("first")
        self.assertEqual(text("three"), "<h1>three</h1>\n")
        server.write("elsewhere.toml", file_of("three", "../one"))
        add("second")
        self.assertEqual(text("three"), "<h1>one</h1>\n")
        # Written through a mapping in memory: a reload looks at every file.
        with open(sites / "one.toml", "r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
            at = mapped.find(b"../one")
            mapped[at : at + 6] = b"../two"
            mapped.flush()
        self.assertEqual(server.command("reload", "--run-dir", "run").returncode, 0)
        self.assertEqual(text("one"), "<h1>two</h1>\n")
        # More than the kernel keeps.
        hidden, other = sites / ".hidden", sites / ".other"
        hidden.write_text("")
        server.write("sites/one.toml", file_of("one", "../three"))
        for _ in range(int(Path("/proc/sys/fs/inotify/max_queued_events").read_text()) // 4 + 1):
            hidden.rename(other)
            other.rename(hidden)
        server.write("sites/one.toml", file_of("one"))
        add("third")
        self.assertEqual(text("one"), "<h1>one</h1>\n")
        # Another folder in the place of the one that is watched.
        sites.rename(server.folder / "away")
        shutil.copytree(server.folder / "away", sites, symlinks=True)
        if ROOTLESS and os.geteuid() == 0:
            os.chown(sites, NOBODY, NOBODY)
        server.write("sites/one.toml", file_of("one", "../three"))
        add("fourth")
        self.assertEqual(text("one"), "<h1>three</h1>\n")
        server.write("sites/one.toml", file_of("one"))
        add("fifth")
        self.assertEqual((text("one"), self.watches()), ("<h1>one</h1>\n", 1))

    def test_the_list_says_where_each_is(self):
        self.say("add", "two", "--host", "two.test", "--root", self.server.folder / "two")
        self.say("disable", "two")
        lines = [line.split() for line in self.say("list").splitlines()]
        self.assertEqual([line[:2] for line in lines], [["SITE", "STATE"], ["main", "enabled"], ["one", "enabled"], ["two", "disabled"]])
        sites = json.loads(self.say("list", "--json"))["sites"]
        self.assertEqual({one["name"]: (one["enabled"], one["file"].removeprefix(f"{self.server.folder}/")) for one in sites},
                         {"main": (True, "bulkhead.toml"), "one": (True, "sites/one.toml"),
                          "two": (False, "sites/two.toml.disabled")})

    def test_without_a_server_the_files_change(self):
        self.server.stop()
        said = self.say("add", "two", "--host", "two.test", "--root", self.server.folder / "two")
        self.assertIn("no server runs with this configuration", said)
        self.assertIn("does not exist", self.refused("add", "three", "--host", "three.test", "--root", "/nonexistent"))
        self.say("remove", "one")
        self.server.start()
        self.assertEqual(self.statuses("one", "two"), [404, 200])

    def test_many_at_once_take_turns(self):
        names = [f"s{number}" for number in range(6)]
        root = self.server.folder / "two"
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda name: self.say("add", name, "--host", f"{name}.test", "--root", root), names))
        self.assertEqual(self.statuses(*names), [200] * 6)

    def test_no_sites_at_all(self):
        server = self.server
        self.say("remove", "one")
        server.config.write_text(server.config.read_text().split("[[site]]")[0])
        answer = server.command("reload", "--run-dir", "run")
        self.assertEqual(answer.returncode, 0, answer.stderr)
        self.assertEqual(self.statuses("main"), [404])
        self.assertEqual(server.command("check", server.config).returncode, 0)
        server.stop()
        server.answers = 404
        server.start()
        self.say("add", "two", "--host", "two.test", "--root", server.folder / "two")
        self.assertTrue(until(lambda: self.statuses("two") == [200]))


class Owners(unittest.TestCase):
    def test_what_others_may_write_is_not_read(self):
        files = {"main/index.html": "x", "sites/one.toml": file_of("one", "../main")}
        with Server([], files=files, text=with_folder) as server:
            folder, one = server.folder / "sites", server.folder / "sites" / "one.toml"
            for path, mode in ((one, 0o664), (one, 0o646), (folder, 0o777)):
                before = path.stat().st_mode & 0o777
                path.chmod(mode)
                self.assertIn("can be written by others", server.command("check", server.config).stderr, path)
                self.assertNotEqual(server.command("reload", "--run-dir", "run").returncode, 0)
                path.chmod(before)
            os.chown(one, 12345, 12345)
            self.assertIn("belongs to uid 12345", server.command("check", server.config).stderr)
            self.assertEqual(server.status("/", "one.test"), 200, "what ran runs on")
