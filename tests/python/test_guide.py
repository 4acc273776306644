"""docs/guide/python.md and examples/hello-python, as they are written: every block is run."""

import json
import re
import shutil
import subprocess
import unittest

from client import until
from filter_program import PYTHON
from harness import TOP, rootless_too, toml
from python_services import PACKAGES, SDK, PythonServer, missing

PAGE = (TOP / "docs/guide/python.md").read_text()
BLOCK = re.compile(r"^```([^\n]+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCKS = BLOCK.findall(PAGE)
PROGRAMS = [text for kind, text in BLOCKS if kind == "python"]
SERVICES = [text for kind, text in BLOCKS if kind == "toml fragment"]
SCHEMA = "CREATE TABLE articles (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, price INTEGER NOT NULL);\n" \
         "INSERT INTO articles VALUES (1, 'lamp', 20);\n"
STATEMENTS = """\
-- name: article_by_id :one
-- services: articles, flask
-- params: id int
SELECT id, name, price FROM articles WHERE id = :id;
"""
SITE = """
[[site]]
name = "main"
host = ["main.test"]
root = "main"
"""
DATA = """
  [[site.data]]
  name = "catalog"
  statements = "catalog.sql"
  schema = "schema.sql"
"""


def environment(folder):
    """A virtual environment as `python3 -m venv` makes it, with what `pip install` would have put there."""
    subprocess.run([PYTHON, "-m", "venv", "--without-pip", folder / "venv"], check=True)
    packages = next((folder / "venv/lib").glob("python3*")) / "site-packages"
    for name in ("flask", "werkzeug", "jinja2", "markupsafe", "itsdangerous", "blinker", "click"):
        shutil.copytree(PACKAGES / name, packages / name)
    shutil.copytree(SDK / "bulkhead_service", packages / "bulkhead_service")


class PageServer(PythonServer):
    """A server with the services of a page, and its virtual environment."""

    def __init__(self, services, files):
        self.services = services
        super().__init__(files={"main/index.html": "index\n"} | files)
        environment(self.folder)
        self.own_again()

    def own_again(self):
        """Rootless, what was made since belongs to the server's user as well."""
        user = self._user()
        if user:
            for path in (self.folder / "venv").rglob("*"):
                shutil.chown(path, user["user"], user["group"]) if not path.is_symlink() else None

    def write_config(self, sites, text="", **settings):
        super().write_config([], text=SITE + "".join(self.services) + text, **settings)


def service(name, libraries=("venv", "/usr/lib"), **more):
    """A service as a page would have it, for the blocks that stand there without."""
    words = {"name": name, "path": f"/{name}", "libraries": list(libraries), "read": ["extra"], "data": ["catalog"]} | more
    return "\n  [[site.service]]\n" + "".join(f"  {key} = {toml(value)}\n" for key, value in words.items())


@rootless_too
@unittest.skipIf(missing(), missing())
class Guide(unittest.TestCase):
    def test_every_block_runs(self):
        shop, greeter, articles, flask = PROGRAMS
        self.assertEqual(len(SERVICES), 2)
        more = [
            DATA, service("articles", command=["venv/bin/python", "extra/articles.py"]),
            service("flask", command=["venv/bin/python", "-m", "bulkhead_service", "wsgi", "--app-dir", "extra", "--root-path", "/flask", "flask_articles"]),
        ]
        files = {"shop/main.py": shop, "greeter/main.py": greeter, "extra/articles.py": articles, "extra/flask_articles.py": flask,
                 "schema.sql": SCHEMA, "catalog.sql": STATEMENTS}
        with PageServer(SERVICES + more, files) as server:
            self.assertEqual(json.loads(server.get("/shop/?name=ann").text), {"hello": "ann", "client": "127.0.0.1"})
            self.assertEqual(server.get("/greet?name=%3Cann%3E").text, "<p>Good morning, ann!")
            self.assertEqual(json.loads(server.get("/articles?id=1").text), {"name": "lamp", "price": 20})
            self.assertEqual(server.status("/articles?id=2"), 404)
            self.assertEqual(json.loads(server.get("/flask/articles/1").text), {"name": "lamp", "price": 20})
            self.assertEqual(server.status("/flask/articles/2"), 404)
            server.relaunch("main/shop")
            self.assertEqual(server.status("/shop/"), 200)
            said = server.command("check", server.config)
            self.assertEqual((said.returncode, said.stderr), (0, ""))

    def test_the_tests_of_a_service(self):
        self.assertIn('Context.for_test("--greeting", "Hello")', PAGE)
        self.assertIn('Request.get("/greet?name=ann")', PAGE)
        text = PROGRAMS[1].replace("main(Greeter)", """
    import asyncio
    from bulkhead_service import Context, Request

    async def test():
        greeter = Greeter()
        await greeter.init(Context.for_test("--greeting", "Hello"))
        print((await greeter.process(Request.get("/greet?name=ann"))).body.decode())
    asyncio.run(test())
""")
        done = subprocess.run([PYTHON, "-c", text], env={"PYTHONPATH": str(SDK)}, capture_output=True, text=True, check=True)
        self.assertEqual(done.stdout, "<p>Hello, ann!\n")

    def test_the_words_of_the_command_are_in_the_help(self):
        said = subprocess.run([PYTHON, "-m", "bulkhead_service", "--help"], env={"PYTHONPATH": str(SDK)}, capture_output=True, text=True, check=True)
        for word in ("--app-dir", "--root-path", "--threads"):
            self.assertIn(word, said.stdout)
            self.assertIn(word, PAGE)

    def test_the_example(self):
        example = TOP / "examples/hello-python"
        text = (example / "bulkhead.toml").read_text()
        one = text[text.index("  [[site.service]]"):]
        with PageServer([one], {"hello/main.py": (example / "hello/main.py").read_text()}) as server:
            self.assertEqual(server.get("/hello?name=%3Cb%3Eann").text, "<p>Hello, bann! I have said so 1 times.\n")
            self.assertTrue(until(lambda: "2 times" in server.get("/hello").text))


if __name__ == "__main__":
    unittest.main()
