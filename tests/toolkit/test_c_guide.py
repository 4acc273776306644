"""docs/guide/c.md and examples/hello-c, as they are written: every block is compiled and run, against an SDK that was installed."""

import os
import re
import shlex
import subprocess
import tempfile
import unittest
from pathlib import Path

from client import until
from harness import TOP, Server, program, rootless_too

PAGE = (TOP / "docs/guide/c.md").read_text()
BLOCKS = re.findall(r"^```([^\n]+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
PROGRAMS = [text for kind, text in BLOCKS if kind == "c"]
SERVICES = [text for kind, text in BLOCKS if kind == "toml fragment"]
COMMANDS = [text for kind, text in BLOCKS if kind == "sh not-run"]
STATEMENTS = next(text for kind, text in BLOCKS if kind == "sql")
SCHEMA = "CREATE TABLE articles (id INTEGER PRIMARY KEY, name TEXT NOT NULL, price INTEGER NOT NULL); INSERT INTO articles VALUES (1, 'a <lamp>', 20);"
FOLDERS = '[server]\nstate_dir = "state"\nrun_dir = "run"\nlog_dir = "log"\n\n'
EXAMPLE = TOP / "examples/hello-c"


class Installed:
    """The SDK in a prefix of its own, as `make install` puts it there."""

    def __init__(self, test):
        self.folder = Path(test.enterClassContext(tempfile.TemporaryDirectory(prefix="bulkhead-c-", dir="/tmp")))
        self.folder.chmod(0o755)
        (self.folder / "bulkhead").mkdir()
        (self.folder / "bulkhead" / "c").symlink_to(TOP / "c")
        self.run(COMMANDS[0].replace("/usr/local", str(self.folder / "sdk")).strip() + f" OUT={program('libbulkhead.a').parent}")

    def run(self, command):
        environment = os.environ | {"PKG_CONFIG_PATH": str(self.folder / "sdk/lib/pkgconfig"), "CFLAGS": "-O1"}
        done = subprocess.run(["sh", "-ec", command], cwd=self.folder, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise AssertionError(done.stdout + done.stderr)
        return done.stdout

    def compile(self, source, name, flags=""):
        """Compiles a text as the page does, and takes no warning for an answer."""
        (self.folder / f"{name}.c").write_text(source)
        command = COMMANDS[1].replace("hello", name).replace("cc -o", f"cc -Wall -Wextra -Werror {flags} -o")
        self.run(command)
        return self.folder / "bin" / name


def served(services, programs, files):
    """A server with services of a page."""
    site = '[[listen]]\naddress = "127.0.0.1:{}"\n\n[[site]]\nname = "main"\nhost = ["main.test"]\nroot = "public"\n'
    text = lambda port: f"{FOLDERS}{site.format(port)}{''.join(services)}"
    server = Server([], (), files={"public/index.html": "index\n"} | files, text=text)
    for path in programs:
        server.copy_program(str(path))
    return server


@rootless_too
class Guide(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.sdk = Installed(cls)

    def test_every_block_runs(self):
        self.assertEqual((len(PROGRAMS), len(SERVICES), len(COMMANDS)), (2, 2, 2))
        programs = [self.sdk.compile(text, name) for text, name in zip(PROGRAMS, ("hello", "articles"))]
        with served(SERVICES, programs, {"catalog.sql": STATEMENTS, "schema.sql": SCHEMA}) as server:
            self.assertEqual(server.get("/hello?name=%3Cb%3Eann").text, "<p>Hello, bann!\n")
            self.assertEqual(server.get("/hello").text, "<p>Hello, you!\n")
            self.assertEqual(len(server.processes("bin/hello")), 4)
            self.assertEqual(server.get("/articles?id=1").text, "<p>a &lt;lamp&gt;: 20\n")
            self.assertEqual([server.status(f"/articles{query}") for query in ("", "?id=2", "?id=1%20OR%201=1")], [400, 404, 200])
            server.relaunch("main/hello")
            self.assertEqual(server.status("/hello"), 200)

    def test_linked_statically_and_by_a_compiler_of_cxx(self):
        linked = self.sdk.compile(PROGRAMS[0], "alone", "-static")
        self.assertIn("statically linked", self.sdk.run(f"readelf -l {shlex.quote(str(linked))} | grep -q INTERP || echo statically linked"))
        self.sdk.run("printf '#include <bulkhead.h>\\nint main() { return bulkhead_int(0).integer; }\\n' > x.cc && "
                     "c++ -Wall -Wextra -Werror -o x x.cc $(pkg-config --cflags --libs bulkhead) && ./x")
        with served([SERVICES[0].replace("hello", "alone")], [linked], {}) as server:
            self.assertEqual(server.get("/alone?name=bob").text, "<p>Hello, bob!\n")

    def test_every_function_is_one_of_the_header(self):
        header = (self.sdk.folder / "sdk/include/bulkhead.h").read_text()
        for name in set(re.findall(r"\b(?:bulkhead|BULKHEAD)_\w+", PAGE)):
            self.assertRegex(header, rf"\b{name}\b")

    def test_the_example(self):
        text = (EXAMPLE / "bulkhead.toml").read_text()
        self.assertIn(COMMANDS[1].strip(), text)
        compiled = self.sdk.compile((EXAMPLE / "hello.c").read_text(), "hello")
        files = {name: (EXAMPLE / name).read_text() for name in ("greetings.sql", "schema.sql")}
        with served([text[text.index("  [[site.data]]"):]], [compiled], files) as server:
            said = [server.get(f"/hello?name={name}").text for name in ("ann", "%3Cb%3E", "ann", "bob")]
            self.assertEqual(said[0], "<p>Hello, ann! I have said so 1 times.\n<ul>\n</ul>\n")
            self.assertEqual(said[3], "<p>Hello, bob! I have said so 1 times.\n<ul>\n<li>ann: 2\n<li>b: 1\n</ul>\n")
            server.process("dataproxy main/greetings").kill()
            self.assertTrue(until(lambda: server.get("/hello?name=bob").text.startswith("<p>Hello, bob! I have said so ")))


if __name__ == "__main__":
    unittest.main()
