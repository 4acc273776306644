"""A file of a site that is refused leaves nothing, by whatever order: the launcher knows what it knew before, and can be upgraded.

Each kind of mistake is made in the file of a site that runs, and in a new one, beside others that are good. BULKHEAD_SWEEP=whole (`make
sweep`) upgrades after each of them.
"""

import json
import os
import re
import shutil
import unittest

from harness import NOBODY, ROOTLESS, configuration, free_port, rootless_too, service, site
from recorded import Recorded
from tls_server import certificate
from upgrading import UpgradingServer

SWEEP = os.environ.get("BULKHEAD_SWEEP") == "whole"
LEFT_OUT = 3
#: Who may have been given a uid by an order that is refused.
GIVEN = re.compile(r"uid \d+ (?:site|service|dataproxy|connector|broker|publisher)\S*/(?:two|worse|good)\b")


def file_of(name, more="", **keys):
    lines = {"name": name, "host": [f"{name}.test"], "root": "../pages"} | keys
    return "[[site]]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in lines.items()) + more


def served_by(program):
    return f"[[site.service]]\nname = 'app'\npath = '/app'\ncommand = ['../bin/{program}']\n"


#: Each kind of mistake in the file of a site: the file, and what is said.
KINDS = {
    "syntax": (lambda name: file_of(name, "index = [\n"), "TOML syntax"),
    "an unknown key": (lambda name: file_of(name, nonsense=1), "unknown key `nonsense`"),
    "a table of the main file": (lambda name: "[server]\ngates = 2\n" + file_of(name), "unknown key `server`"),
    "a folder that is missing": (lambda name: file_of(name, root="../nowhere"), "nowhere"),
    "a host of another site": (lambda name: file_of(name, host=[f"{name}.test", "one.test"]), '"one.test"'),
    "a key that does not fit": (
        lambda name: file_of(name, "certificates = [{ certificate = '../own.crt', key = '../other.key' }]\n"), "belongs to its key"),
    "a program that is missing": (lambda name: file_of(name, served_by("none")), "bin/none"),
    "a service that exits": (lambda name: file_of(name, served_by("false")), "app"),
}


class Tenants(Recorded, UpgradingServer):
    def __init__(self):
        files = {"pages/index.html": "<h1>pages</h1>\n", "main/index.html": "<h1>main</h1>\n"}
        files |= {f"sites/{name}.toml": file_of(name) for name in ("one", "two")}
        listen = f'\n[[listen]]\naddress = "127.0.0.1:{free_port()}"\ntls = true\n'
        main = lambda port: configuration(port, [site("main", [service("probe")], host=["*"])], {"limits": {"start_timeout": "2s"}}) + listen
        super().__init__([], files=files, text=lambda port: 'include = "sites/*.toml"\n\n' + main(port))
        shutil.copy("/bin/false", self.folder / "bin/false")
        for name in ("own", "other"):
            cert, key = certificate(self.folder, name, "ec", f"{name}.test")
            for end, content in (("crt", cert), ("key", key)):
                self.write(f"{name}.{end}", content).chmod(0o600)
                if ROOTLESS and os.geteuid() == 0:
                    os.chown(self.folder / f"{name}.{end}", NOBODY, NOBODY)

    def outside(self):
        """Without logs of numbers that rest, of which a logger may have the file of before, and that of the site that has gone again."""
        passing = re.compile(r"descriptor of (logger|launcher): \S+/(two|worse|good|no-site)\.access\.log$|log good\.access\.log$")
        found = super().outside()
        for line in [line for line in found if passing.match(line)]:
            del found[line]
        return found

    def texts(self):
        return {path.name: path.read_text() for path in (self.folder / "sites").iterdir()}


@rootless_too
class RefusedFiles(unittest.TestCase):
    def setUp(self):
        self.server = self.enterContext(Tenants())

    def order(self, code, because, *words):
        """An order that is refused, or carried out in part: what is changed by it is nothing."""
        server = self.server
        with self.subTest(words):
            before = server.before()
            answer = server.command(*words, timeout=60)
            self.assertEqual(answer.returncode, code, (words, answer.stdout, answer.stderr))
            self.assertIn(because, answer.stdout + answer.stderr, words)
            self.assertEqual(server.remains(before, GIVEN), [], words)
            found = {name: server.status("/", f"{name}.test") for name in ("one", "two", "worse", "main")}
            self.assertEqual(found, dict.fromkeys(found, 200), words)
            self.assertEqual([server.get("/", f"{name}.test").text for name in ("two", "worse")], ["<h1>pages</h1>\n", "<h1>main</h1>\n"])
            if SWEEP:
                server.upgrade_to_the_end()

    def site(self, *words):
        return ("site", "--config", self.server.config, *words)

    def test_whatever_is_wrong_with_a_file_leaves_nothing_by_any_order(self):
        server, two = self.server, self.server.folder / "sites/two.toml"
        for what, (text, because) in KINDS.items():
            with self.subTest(what):
                server.write("sites/two.toml", text("two"))
                self.order(LEFT_OUT, because, "reload", "--run-dir", "run")
                self.order(1, because, "reload", "--run-dir", "run", "--all-or-nothing")
                self.order(LEFT_OUT, because, "reload", "--run-dir", "run", "two")
                self.order(1, because, "reload", "--run-dir", "run", "two", "--all-or-nothing")
                # What is started is not known by then.
                self.order(0 if "exits" in what else LEFT_OUT, "", "reload", "--run-dir", "run", "--dry-run")
                two.write_text(file_of("two"))
                files = server.texts()
                worse = server.write("worse.toml", text("worse"))
                refused = server.command(*self.site("add", "worse", "--from", worse), timeout=60)
                self.order(refused.returncode, because, *self.site("add", "worse", "--from", worse))
                self.assertIn(refused.returncode, (1, 2))
                self.assertEqual(server.texts(), files)
                # The next order finds nothing of it.
                self.order(0, "nothing has changed", "reload", "--run-dir", "run")
                self.assertIn("can take over", server.upgrade("--dry-run"))

    def test_after_an_upgrade_the_number_of_what_was_tried_has_nobodys_log(self):
        text, because = KINDS["a service that exits"]
        self.server.write("sites/two.toml", text("two"))
        for _ in range(2):
            self.order(LEFT_OUT, because, "reload", "--run-dir", "run")
            self.server.upgrade_to_the_end()

    def test_orders_about_sites_that_are_refused_change_nothing(self):
        root = [] if ROOTLESS else [
            (2, "has its uids", "uids", "--give-back", "two"), (2, "no uid was given to nobody", "uids", "--give-back", "nobody"),
            (0, "no site has left a uid", "uids", "--give-back", "--all")]
        for code, because, *words in [(1, "there is a site two already", "add", "two", "--host", "x.test", "--root", "/"),
                                      (2, "there is no", "remove", "nobody"), (2, "the site is in the main file", "remove", "main"),
                                      (2, "there is no", "disable", "nobody"), (2, "there is no site nobody", "adopt", "nobody"), *root]:
            files = self.server.texts()
            self.order(code, because, *self.site(*words))
            self.assertEqual(self.server.texts(), files, words)
        for words, because in ((("nobody",), "has no file of this site"), (("main",), "the site is in the main file")):
            self.order(1, because, "reload", "--run-dir", "run", *words)

    def test_what_is_good_beside_a_bad_file_is_taken_in_whole_and_goes_again(self):
        server = self.server
        for what in ("an unknown key", "a service that exits"):
            text, because = KINDS[what]
            before = server.before()
            server.write("sites/good.toml", file_of("good"))
            server.write("sites/two.toml", text("two"))
            answer = server.command("reload", "--run-dir", "run", timeout=60)
            self.assertEqual((answer.returncode, because in answer.stderr), (LEFT_OUT, True), answer.stderr)
            self.assertEqual(server.get("/", "good.test").text, "<h1>pages</h1>\n")
            self.assertIn("can take over", server.upgrade("--dry-run"))
            for name in ("good", "two"):
                (server.folder / f"sites/{name}.toml").unlink()
            server.write("sites/two.toml", file_of("two"))
            self.assertEqual(server.command("reload", "--run-dir", "run", timeout=60).returncode, 0)
            # The place of a name that has gone is for the next one.
            found = [line for line in server.remains(before, GIVEN) if line != "+ Target name=''"]
            self.assertEqual(found, [], what)


if __name__ == "__main__":
    unittest.main()
