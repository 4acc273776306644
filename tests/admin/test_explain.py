"""`bulkhead explain`: what it says of a server is what that server is, and it needs none to say it."""

import json
import os
import resource
import subprocess
import tempfile
import unittest
import xml.etree.ElementTree as xml
from pathlib import Path

from client import until
from harness import ROOTLESS, Process, Server, program, rootless_too, service, site

SITES = [
    site("main", [service(read=["data"]), service("direct", "/direct", takes=True)]),
    site("other"),
]
NAMES = ["bulkheadd", "gate", "main", "main/probe", "main/direct", "other", "admin", "logger"]
#: What a process is called in its command line.
TITLES = {"main": "site main", "other": "site other", "main/probe": "bin/probe", "main/direct": "bin/direct"}


def lost(process, share="all"):
    """What falls with a process, as `kind name`."""
    return {f"{loss['kind']} {loss['name']}" for loss in process["losses"] if loss["lost"] == share}


@rootless_too
class Explain(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server(SITES, files={"data/list": "x"})
        cls.server.copy_program("probe", "direct")
        cls.enterClassContext(cls.server)

    def explain(self, *words):
        answer = self.server.command("explain", "--config", self.server.config, *words)
        self.assertEqual((answer.returncode, answer.stderr), (0, ""))
        return answer.stdout

    def explained(self, *words):
        """The processes that are explained, by name."""
        answer = json.loads(self.explain("--json", *words))
        return {process["name"]: process for process in answer["processes"]}

    def test_it_names_every_process_that_runs(self):
        explained = self.explained()
        self.assertEqual(list(explained), NAMES)
        told = {running["pid"]: name for name, about in explained.items() for running in about["running"]}
        expected = {self.server.launcher.pid: "bulkheadd"}
        for name in NAMES[1:]:
            for process in self.server.processes(TITLES.get(name, name)):
                expected[process.pid] = name
        self.assertEqual(told, expected)
        uids = {running["pid"]: running["uid"] for about in explained.values() for running in about["running"]}
        self.assertEqual(uids, {pid: Process(pid).uid for pid in uids})

    @unittest.skipIf(ROOTLESS, "one uid")
    def test_what_a_worker_has_open_is_what_falls_with_it(self):
        """Folders and logs: the kernel's list of descriptors against the losses."""
        explained = self.explained()
        folder = str(self.server.folder)
        for name in NAMES[1:]:
            process = self.server.process(TITLES.get(name, name))
            found = {what for what in process.descriptors().values() if what.startswith(folder)}
            # A site's directory is the top of a mount of its own, and is told by what it is.
            tops = [f"{process.folder}/fd/{n}" for n, what in process.descriptors().items() if what == "/"]
            sites = [f"{folder}/{one}" for one in ("main", "other")]
            found |= {site for site in sites for top in tops if os.path.samefile(site, top)}
            losses = lost(explained[name])
            logs = {f"{folder}/log/{loss[4:]}" for loss in losses if loss.startswith("log ")}
            # A service opens what it reads by name, when it wants to.
            files = {f"{folder}/{loss[6:]}" for loss in losses if loss.startswith("files ")}
            files = files if name in ("main", "other") else set()
            with self.subTest(name):
                self.assertEqual({what for what in found if os.path.isdir(what) or "/log/" in what}, logs | files)

    @unittest.skipIf(ROOTLESS, "one uid")
    def test_with_uids_of_their_own(self):
        explained = self.explained()
        probe = {"service main/probe", "users main/probe", "files data"}
        self.assertEqual(lost(explained["main/probe"]), probe)
        self.assertEqual(lost(explained["other"]), {"site other", "files other", "users other"})
        self.assertEqual(lost(explained["gate"]), set())
        self.assertEqual(lost(explained["admin"]), {"orders stop, relaunch"})
        self.assertIn("users main", lost(explained["main/direct"], "part"))
        self.assertEqual(explained["main/probe"]["falls_with_it"], [])
        self.assertNotIn("note: ", self.explain())

    @unittest.skipUnless(ROOTLESS, "as root there are many uids")
    def test_with_one_uid_everything_falls(self):
        explained = self.explained()
        for name in NAMES:
            falls = {other["name"] for other in explained[name]["falls_with_it"]}
            self.assertEqual(falls, set(NAMES) - {name})
            self.assertIn("users other", lost(explained[name]))
        self.assertIn("nothing separates them", self.explain())
        self.assertIn("missing in this server: ", self.explain())

    def test_contacts_are_channels(self):
        """As many channels as the process has sockets for them; the gates are two, and that from admin is there for an order alone."""
        probe, direct = (self.explained(name)[name] for name in ("main/probe", "main/direct"))
        self.assertEqual([contact["to"] for contact in probe["sends"]], ["bulkheadd", "main", "admin", "logger"])
        self.assertEqual([contact["to"] for contact in direct["sends"]], ["bulkheadd", "gate", "main", "admin", "logger"])
        sockets = lambda name: sum(
            what.startswith("socket:") for what in self.server.process(TITLES[name]).descriptors().values()
        )
        self.assertEqual(sockets("main/direct") - sockets("main/probe"), 2)

    def test_one_process_is_as_in_the_whole(self):
        """What is said of one that belongs to a site is found out without the others."""
        whole = self.explained()
        for name in NAMES:
            of_one, in_whole = self.explained(name)[name], dict(whole[name])
            if name in ("main", "other") or "/" in name:
                in_whole["blast"] = {key: in_whole["blast"][key] for key in ("all", "part")}
            with self.subTest(name):
                self.assertEqual(of_one, in_whole)
        notes = lambda *words: json.loads(self.explain("--json", *words))["notes"]
        self.assertEqual(notes("other"), notes())

    def test_one_process_in_detail(self):
        text = self.explain("main/direct")
        pid = self.server.process("bin/direct").pid
        self.assertIn(f"pid {pid}, ", text)
        self.assertIn("which takes connections", text)
        # With one uid for all, what it can do by itself is the least.
        if not ROOTLESS:
            self.assertIn("who holds a client's connection can answer what the client sends next on it", text)

    def test_a_broken_service_is_noted(self):
        with Server(
            [site("main", [service("bad", command=["bin/probe", "--fail-init"])])],
            restart={"broken_after": 1, "within": "10s"},
        ) as server:
            told = lambda: server.command("explain", "--config", server.config).stdout
            self.assertTrue(until(lambda: "note: main/bad does not run (broken)" in told(), 10), told())

    def test_a_name_that_nobody_has(self):
        answer = self.server.command("explain", "--config", self.server.config, "main/prob")
        self.assertEqual((answer.returncode, answer.stdout), (2, ""))
        self.assertIn("did you mean `main/probe`?", answer.stderr)

    def test_the_picture_is_one(self):
        picture = xml.fromstring(self.explain("--svg"))
        words = {text.text for text in picture.iter("{http://www.w3.org/2000/svg}text")}
        self.assertLessEqual({*NAMES, "Apache prefork", "nginx + php-fpm", "one process"}, words)


@rootless_too
class NobodyThere(unittest.TestCase):
    def test_the_configuration_alone(self):
        with Server(SITES[1:], programs=()) as server:
            running = json.loads(server.command("explain", "--config", server.config, "--json").stdout)
            server.stop()
            answer = server.command("explain", "--config", server.config, "--json")
            self.assertEqual(answer.returncode, 0)
            alone = json.loads(answer.stdout)
            self.assertTrue(running["server"]["running"])
            self.assertFalse(alone["server"]["running"])
            self.assertIn("no server is running", alone["server"]["why_not"])
            self.assertEqual(alone["assets"], running["assets"])
            if not ROOTLESS:
                blasts = lambda told: [process["blast"] for process in told["processes"]]
                self.assertEqual(blasts(alone), blasts(running))
            text = server.command("explain", "--config", server.config).stdout
            self.assertIn("alone: no server is running", text)


class OneUid(unittest.TestCase):
    """Sites that run as one account, of which the file says nothing any more."""

    def test_those_that_have_a_uid_fall_together(self):
        shared = {"user": "nobody", "danger_shared_user": True}
        with Server([site("one", **shared), site("far"), site("two", **shared)], programs=()) as server:
            (about,) = json.loads(server.command("status", "--config", server.config, "--json", "--site", "one").stdout)["processes"]
            text = server.config.read_text()
            for key, value in (("user", '"nobody"'), ("danger_shared_user", "true")):
                text = text.replace(f"{key} = {value}\n", "")
            server.config.write_text(text)
            answer = server.command("explain", "--config", server.config, "--json", "one")
            self.assertEqual((answer.returncode, answer.stderr), (0, ""))
            (one,) = json.loads(answer.stdout)["processes"]
            self.assertEqual(one["falls_with_it"], [{"name": "two", "why": f"both have the uid {about['uid']}"}])
            self.assertIn("users two", lost(one))
            self.assertEqual([run["pid"] for run in one["running"]], [about["pid"]])


@rootless_too
class SitesInFiles(unittest.TestCase):
    """Of a site, only files that may have to do with it are decoded."""

    @classmethod
    def setUpClass(cls):
        cls.folder = Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        for name in ("sites", "public/in", "other"):
            (cls.folder / name).mkdir(parents=True)
        cls.config = cls.folder / "bulkhead.toml"
        cls.config.write_text('include = "sites/*.toml"\n[[listen]]\naddress = "127.0.0.1:1"\n')

    def setUp(self):
        for path in (self.folder / "sites").iterdir():
            path.unlink()

    def write(self, name, host, root="other", more=""):
        text = f'[[site]]\nname = "{name}"\nhost = ["{host}"]\nroot = "../{root}"\n{more}'
        (self.folder / f"sites/{name}.toml").write_text(text)

    def explain(self, *words):
        return subprocess.run([program("bulkhead"), "explain", "--config", self.config, *words], capture_output=True, text=True)

    def of(self, name):
        answer = self.explain("--json", name)
        self.assertEqual((answer.returncode, answer.stderr), (0, ""))
        return json.loads(answer.stdout)["processes"][0]

    def test_what_has_to_do_with_it_is_found(self):
        shared = 'user = "nobody"\ndanger_shared_user = true\n'
        self.write("one", "one.test", "public", shared)
        self.write("host", "One.test", more='path = "/host/"\n')
        self.write("account", "\\u0061.test", more=shared)
        self.write("inside", "inside.test", "public/in")
        self.write("far", "far.test")
        one = self.of("one")
        whole = json.loads(self.explain("--json").stdout)["processes"]
        (expected,) = (process for process in whole if process["name"] == "one")
        self.assertEqual({**one, "blast": expected["blast"]}, expected)
        self.assertEqual([other["name"] for other in one["falls_with_it"]], ["account"])
        self.assertLessEqual({"users account", "files sites/../public/in", "site one"}, lost(one))
        self.assertIn("users host", lost(one, "part"))

    def test_a_mistake_elsewhere_is_not_in_its_way(self):
        self.write("one", "one.test")
        self.write("bad", "bad.test", more="nonsense = 1\n")
        self.assertEqual(self.of("one")["name"], "one")
        for words, code in (((), 3), (("gate",), 3), (("bad",), 2)):
            answer = self.explain(*words)
            self.assertEqual((answer.returncode, bool(answer.stdout)), (code, code == 3), words)
            self.assertIn("unknown key `nonsense`", answer.stderr)
        # What is left out has nothing of the site's.
        self.write("bad", "one.test", more="nonsense = 1\n")
        self.assertEqual(self.of("one")["name"], "one")

    def test_a_name_that_nobody_has(self):
        self.write("one", "one.test")
        answer = self.explain("one/shop")
        self.assertEqual((answer.returncode, answer.stdout), (2, ""))
        self.assertIn("there is no `one/shop` in this configuration; the names are: bulkheadd, gate, one,", answer.stderr)


class ManySites(unittest.TestCase):
    """What it takes grows with what there is to say: processor time, which does not depend on what else the machine does."""

    SITES = 4000

    @classmethod
    def setUpClass(cls):
        folder = Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        cls.config = folder / "bulkhead.toml"
        site = '[[site]]\nname = "s{0}"\nhost = ["h{0}.test"]\nroot = "r/s{0}"\n'
        head = '[server]\nuser_range = "100001-199999"\n[[listen]]\naddress = "127.0.0.1:1"\n'
        for number in range(cls.SITES):
            (folder / f"r/s{number}").mkdir(parents=True)
        cls.config.write_text(head + "".join(site.format(number) for number in range(cls.SITES)))

    def spent(self, *words):
        """Seconds of processor time that a command takes."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run([program("bulkhead"), *words, "--config", self.config], capture_output=True, text=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn(f"s{self.SITES - 1}", done.stdout)
        return sum(getattr(after, which) - getattr(before, which) for which in ("ru_utime", "ru_stime"))

    def test_it_is_little_beside_reading_the_configuration(self):
        """Where each site is looked up among all, it takes two hundred times as long."""
        read = min(self.spent("site", "list") for _ in range(3))
        self.assertLess(self.spent("explain"), 6 * read)
        self.assertLess(self.spent("explain", f"s{self.SITES - 1}"), 3 * read)

    def test_of_one_among_many_files_it_is_little_beside_all(self):
        """Where all files are decoded, and all that they name is looked for, it takes a third of what it takes for all. What is
        left is to open and read each: a twentieth."""
        text = self.config.read_text()
        head, *sites = text.split("[[site]]")
        self.addCleanup(self.config.write_text, text)
        folder = self.config.parent / "sites"
        folder.mkdir()
        for number, site in enumerate(sites):
            (folder / f"s{number}.toml").write_text("[[site]]" + site.replace('"r/', '"../r/'))
        self.config.write_text('include = "sites/*.toml"\n' + head)
        one = min(self.spent("explain", "--json", f"s{self.SITES - 1}") for _ in range(3))
        self.assertLess(one, self.spent("explain", "--json") / 8)


if __name__ == "__main__":
    unittest.main()
