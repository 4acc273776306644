"""What a tenant who has a bad file can do to others: the file has a largest size, its mistakes have few lines, and nobody waits for long."""

import time
import unittest

import client
import pytest
from client import until
from counting import Counting
from harness import Server, configuration, rootless_too, site

pytestmark = pytest.mark.alone

LEFT_OUT = 3
#: Bytes of a file of the configuration.
LARGEST = 1 << 20
#: LIMIT: seconds that others may wait for one such file; on two slow processors, in a jail's shadow.
SLOW = 15


def file_of(name, root="../pages", more=""):
    return f'[[site]]\nname = "{name}"\nhost = ["{name}.test"]\nroot = "{root}"\n{more}'


def filled(begin, part, end=""):
    """A text of the largest size with as many parts as there is room for, each with its number."""
    parts, length, number = [begin], len(begin) + len(end), 0
    while True:
        new = part(number)
        if length + len(new) > LARGEST:
            return "".join(parts) + end
        parts.append(new)
        length, number = length + len(new), number + 1


#: Each is as costly as such a file can be, in another stage.
COSTLY = {
    "unknown keys": filled(file_of("bad"), lambda number: f"k{number:x}=1\n"),
    "the same key": filled(file_of("bad"), lambda _: "k=1\n"),
    "sites without anything": filled("", lambda _: "[[site]]\n"),
    "sites of one name": filled("", lambda _: file_of("bad")),
    "hosts that are none, in one line": filled('[[site]]\nname="bad"\nroot="../pages"\nhost=[', lambda _: "1,", "]\n"),
    "hosts of another site": filled('[[site]]\nname="bad"\nroot="../pages"\nhost=[', lambda _: '"one.test",', "]\n"),
    "hosts, each once": filled('[[site]]\nname="bad"\nroot="../pages"\nnonsense=1\nhost=[', lambda number: f'"h{number:x}.test",', "]\n"),
    "routes": filled(file_of("bad"), lambda number: f'[[site.route]]\npath="/{number:x}"\nx=1\n'),
    "services": filled(file_of("bad"), lambda number: f'[[site.service]]\nname="s{number:x}"\n'),
    "broken lines": filled("", lambda _: "= =\n"),
    "depth": filled("x=", lambda _: "["),
    "tables in a table": filled("x=", lambda number: f"{{k{number % 7}="),
    "a long word": filled(file_of("bad"), lambda number: "k"),
    "one long string": file_of("bad", "x" * (LARGEST - 200)),
    "zeros": "\0" * LARGEST,
}


@rootless_too
class BadFiles(unittest.TestCase):
    def setUp(self):
        files = {f"{name}/index.html": f"{name}\n" for name in ("pages", "others", "main")}
        files |= {f"sites/{name}.toml": file_of(name) for name in ("one", "two")}
        text = lambda port: 'include = "sites/*.toml"\n\n' + configuration(port, [site(host=["*"])], {})
        self.server = self.enterContext(Server([], files=files, text=text))

    def timed(self, code, *words):
        """For how many seconds a command has run; it says what it has said as well."""
        begun = time.monotonic()
        answer = self.server.command(*words, timeout=90)
        spent = time.monotonic() - begun
        self.assertEqual(answer.returncode, code, (words, answer.stdout[-2000:], answer.stderr[-2000:]))
        return spent, answer.stdout + answer.stderr

    def lines(self):
        return self.server.log().count("\n")

    def test_a_file_of_the_largest_size_full_of_mistakes(self):
        server = self.server
        clients = Counting("one", lambda: client.Connection(server.port), "/", "one.test")
        for turn, (what, text) in enumerate(COSTLY.items()):
            with self.subTest(what):
                self.assertLessEqual(len(text), LARGEST)
                server.write("sites/bad.toml", text)
                root = ("../others", "../pages")[turn % 2]
                server.write("sites/two.toml", file_of("two", root))
                before, size = self.lines(), len(server.log())
                spent, said = self.timed(LEFT_OUT, "reload", "--run-dir", "run")
                self.assertLess(spent, SLOW, what)
                self.assertLess(len(said), 32 << 10, what)
                self.assertEqual(server.get("/", "two.test").text, root[3:] + "\n")
                self.assertLess(self.lines() - before, 20, what)
                self.assertLess(len(server.log()) - size, 32 << 10, what)
                spent, said = self.timed(2, "check", server.config)
                self.assertLess(spent, SLOW, what)
                self.assertLess(said.count("\n"), 500, what)
                for words in (("reload", "--run-dir", "run", "two"), ("site", "--config", server.config, "disable", "two"),
                              ("site", "--config", server.config, "enable", "two")):
                    self.assertLess(self.timed(0, *words)[0], SLOW / 3, (what, words))
        clients.finish()
        self.assertEqual(clients.failed, {})

    def test_a_longer_file_is_not_read(self):
        self.server.write("sites/bad.toml", file_of("bad", more="#" * LARGEST))
        self.assertIn("sites/bad.toml", self.timed(LEFT_OUT, "reload", "--run-dir", "run")[1])

    def bad_files(self, count):
        """Files with mistakes of their own, and some that want the host of a site that runs."""
        for number in range(count):
            text = file_of(f"bad{number}", more=("nonsense = 1\n", "index = [\n", "")[number % 3])
            if number % 3 == 2:
                text = text.replace(f'"bad{number}.test"', '"one.test"')
            self.server.write(f"sites/bad{number}.toml", text)

    def test_a_thousand_bad_files_at_once(self):
        server = self.server
        config = ("--config", server.config)
        alone = min(self.timed(0, "site", *config, order, "two")[0] for order in ("disable", "enable"))
        self.bad_files(1000)
        server.write("sites/one.toml", file_of("one", "../others"))
        before = self.lines()
        self.assertLess(self.timed(LEFT_OUT, "reload", "--run-dir", "run")[0], SLOW)
        self.assertEqual(server.get("/", "one.test").text, "others\n")
        self.assertLess(self.lines() - before, 60)
        self.assertIn("980 more files are left out; `bulkhead status` lists them", server.log())
        # Who changes one site waits for none of these, and hears of none.
        before = self.lines()
        server.write("sites/two.toml", file_of("two", "../others"))
        with_them = [self.timed(0, "reload", "--run-dir", "run", "two")]
        with_them += [self.timed(0, "site", *config, order, "two") for order in ("disable", "enable")]
        self.assertEqual(server.get("/", "two.test").text, "others\n")
        self.assertLess(min(spent for spent, _ in with_them), 3 * alone + 0.5)
        self.assertEqual([said for _, said in with_them if "bad" in said], [])
        self.assertLess(self.lines() - before, 40)
        # Hosts of bad files that are new fall to the site that has all others: nobody had them before.
        self.assertEqual(server.get("/", "bad0.test").text, "main\n")
        self.assertIn("left out: 980 more files, which `bulkhead check` says", self.timed(LEFT_OUT, "explain", *config)[1])
        self.assertEqual(self.timed(0, "explain", *config, "two")[1].count("left out: "), 0)

    def test_a_start_with_hundreds_of_bad_files(self):
        server = self.server
        self.assertTrue(until((server.folder / "state/good/two.toml").exists, 10))
        server.stop()
        self.bad_files(300)
        server.write("sites/worst.toml", COSTLY["unknown keys"])
        server.write("sites/two.toml", file_of("two", more="nonsense = 1\n"))
        begun, before = time.monotonic(), self.lines()
        server.start()
        self.assertLess(time.monotonic() - begun, 3 * SLOW)
        self.assertEqual([server.get("/", f"{name}.test").text for name in ("one", "two")], ["pages\n"] * 2)
        # At a start, these hosts are nobody's.
        self.assertEqual([server.status("/", f"{name}.test") for name in ("bad0", "bad298", "bad")], [503, 503, 503])
        self.assertLess(server.stderr().count("\n"), 400)
        self.assertIn("more mistakes in files of sites; `bulkhead check` says all", server.stderr())
        self.assertLess(self.lines() - before, 100)


if __name__ == "__main__":
    unittest.main()
