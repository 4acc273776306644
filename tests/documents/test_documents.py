"""The documents: their links lead somewhere, and their examples work.

Each block of TOML is given to `bulkhead check`, and each block of shell is run, by what the words after its language say:

- ```toml: a whole configuration. The files and programs that it names are made.
- ```toml fragment: a part of one; `FRAME` has the rest.
- ```toml cargo: part of a Cargo.toml.
- ```sh: is run in an empty folder, in a network and with processes of its own.
- ```sh server: the same, beside a server that runs the last whole configuration above it on the page.
- ```sh server php-fpm: the same, with a php-fpm at each Unix socket that `php` of its sites and `fastcgi` of its routes name.
- ```sh not-run: is in `NOT_RUN`, with the reason.
"""

import errno
import os
import re
import shutil
import subprocess
import tempfile
import tomllib
import unittest
from pathlib import Path

from backend import Fpm
from harness import ROLES, TOP, program

#: Every document for people. bench/ has pages that the benchmarks write.
PAGES = sorted([*TOP.glob("*.md"), *TOP.glob("docs/**/*.md")])
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
BLOCK = re.compile(r"^( *)```([^\n`]*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
KINDS = {"toml", "toml fragment", "toml cargo", "sh", "sh server", "sh server php-fpm", "sh not-run", "sh journey install",
         "sh journey", "sh journey server"}
#: LIMIT: how many lines a recipe's configuration may have, by its heading in the cookbook.
RECIPE_LINES_MAX = {"WordPress": 12, "Django": 6, "Express": 6}
#: What stands above a fragment that does not say it itself.
FRAME = (
    ("[[listen]]", '[[listen]]\naddress = "127.0.0.1:8080"\n'),
    ("[[site]]", '[[site]]\nname = "main"\nhost = ["*"]\nroot = "public"\n'),
)
#: Folders of the operator's machine that an example may name; they are made below the scratch folder.
ELSEWHERE = re.compile(r'"(unix:)?/(srv|etc|var|run|home)/')
#: Starts a server and waits for it; what it prints is shown if something fails.
SERVE = """bulkhead run bulkhead.toml > server.out 2>&1 &
for _ in $(seq 100); do bulkhead status > /dev/null 2>&1 && grep -q 'serving on' server.out && break; sleep 0.1; done
bulkhead status > /dev/null || { cat server.out; exit 1; }
"""
#: The first line of each block that is not run, and why.
NOT_RUN = {
    "bulkhead guard -- nginx -g 'daemon off;'": "needs nginx with the machine's configuration; test_guard_servers runs it",
    "bulkhead guard -- apache2 -DFOREGROUND": "needs Apache, Node and nginx with the machine's configuration",
    "make demo                                           # in one terminal; as root for real uids":
        "builds everything, and serves until it is ended; CI runs the demo",
    "python3 tests/lib/attack.py incomplete 8080 --count 5000 --seconds 20": "a load; tests/conditioning has it",
    "make mutants                                     # each eighth mutant of eleven crates; an hour on two cores":
        "changes the code and runs its tests, again and again",
    "BULKHEAD_RELOADS=100 tests/run test_changes_under_load": "the long forms of tests that CI runs in short",
    "python3 -m venv venv": "asks PyPI; tests/python runs the page with what tests/prepare has installed",
    "make -C bulkhead/c PREFIX=/usr/local install": "installs into /usr/local; test_c_guide runs it elsewhere",
    "mkdir -p bin && cc -o bin/hello hello.c $(pkg-config --cflags --libs bulkhead)": "test_c_guide runs it",
    "make protocol                                    # installs what is missing, and runs them all": "runs these tests",
    "out=target/$(rustc -vV | sed -n 's/^host: //p')/release": "installs into /usr/local",
    "install -m 0755 search.new /srv/www/bin/search        # a new file, as the old one cannot be written while it runs":
        "writes to /srv",
    "bulkhead serve ./public                                              # 127.0.0.1:8080":
        "each line serves until it is ended; test_serve has the words",
}


def prose(page):
    """The lines of a page that are not in a block."""
    return BLOCK.sub("", page.read_text()).splitlines()


def blocks(language):
    """The blocks of a language: page, line, words after the language, text, and the text above on the page."""
    for page in PAGES:
        text = page.read_text()
        for found in BLOCK.finditer(text):
            indent, info, body = found.groups()
            if info.split()[:1] == [language]:
                body = re.sub(f"^{indent}", "", body, flags=re.MULTILINE)
                place = f"{page.relative_to(TOP)}:{text.count(chr(10), 0, found.start()) + 1}"
                yield place, info.strip(), body, text[: found.start()]


def last_configuration(above):
    """The last whole configuration in a text."""
    whole = [body for _, info, body in BLOCK.findall(above) if info.strip() == "toml"]
    return whole[-1] if whole else None


def anchors(page):
    """The names by which the headings of a page are linked to, made as GitHub makes them."""
    names = []
    for line in prose(page):
        if re.match(r"#{1,6} ", line):
            head = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", line.lstrip("#").strip())
            names.append(re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-"))
    again = [names[:at].count(name) for at, name in enumerate(names)]
    return {f"{name}-{count}" if count else name for name, count in zip(names, again, strict=True)}


class Scratch:
    """A folder in which an example finds what it names."""

    def __init__(self):
        self.folder = Path(tempfile.mkdtemp(prefix="documents-"))
        self.folder.chmod(0o755)
        programs = self.folder / "programs"
        programs.mkdir()
        for name in (*ROLES, "libbulkhead-guard.so"):
            shutil.copy(program(name), programs)
        self.environment = os.environ | {"PATH": f"{programs}:/usr/sbin:/sbin:{os.environ['PATH']}", "HOME": str(self.folder)}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.folder)

    def path(self, name):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def make_folder(self, name):
        self.path(name).mkdir(exist_ok=True)
        page = self.path(name) / "index.html"
        if not str(name).startswith("/usr/") and not page.exists():
            page.write_text("<h1>It works</h1>\n")

    def make_program(self, name):
        if not name.startswith("/usr/"):
            shutil.copy(program("axum-hello"), self.path(name))

    def make_certificate(self, name, hosts, key_name=None):
        key, certificate = self.folder / "key.pem", self.folder / "certificate.pem"
        names = ",".join(f"DNS:{host}" for host in hosts if host != "*") or "DNS:localhost"
        words = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "90",
                 "-subj", "/CN=localhost", "-addext", f"subjectAltName={names}", "-keyout", key, "-out", certificate]
        subprocess.run(words, check=True, capture_output=True)
        self.path(name).write_text(certificate.read_text() if key_name else key.read_text() + certificate.read_text())
        if key_name:
            self.path(key_name).write_text(key.read_text())
        self.path(key_name or name).chmod(0o600)

    def make_users(self, about):
        if "auth" in about:
            words = ["htpasswd", "-nbB", "ann", "secret"]
            text = subprocess.run(words, check=True, capture_output=True, text=True).stdout
            self.path(about["auth"]["users"]).write_text(text)
            self.path(about["auth"]["users"]).chmod(0o640)

    def configure(self, text):
        """Writes `bulkhead.toml` and makes what it names."""
        text = ELSEWHERE.sub(rf'"\1{self.folder}/\2/', text)
        parsed = tomllib.loads(text)
        for key in ("state_dir", "run_dir", "log_dir"):
            if key in parsed.get("server", {}):
                self.path(parsed["server"][key])
        for one in parsed.get("conditioning", {}).get("filters", []):
            about = one if isinstance(one, dict) else {"command": one}
            self.make_runnable(about)
        if "include" in parsed:
            self.make_folder(parsed["include"].rpartition("/")[0])
        for site in parsed.get("site", []):
            aliases = (route["alias"] for route in site.get("route", []) if "alias" in route)
            for folder in (*(site[key] for key in ("root", "vhosts") if key in site), *site.get("follow_links", []), *aliases):
                self.make_folder(folder)
            pairs = [one if isinstance(one, dict) else {"certificate": one} for one in site.get("certificates", [])]
            for one in [*pairs, *([site] if "certificate" in site else [])]:
                self.make_certificate(one["certificate"], site.get("host", ["*"]), one.get("key"))
            if "client_ca" in site:
                self.make_certificate(site["client_ca"], ["*"])
            self.make_runnable({"command": site.get("worker", [])})
            for about in (site, *site.get("route", [])):
                self.make_users(about)
            for data in site.get("data", []):
                for key in ("statements", "schema", "password"):
                    if key in data:
                        self.path(data[key]).write_text("-- nothing\n")
                if "server_ca" in data:
                    self.make_certificate(data["server_ca"], ["*"])
                if "certificate" in data:
                    self.make_certificate(data["certificate"], ["*"], data["key"])
            if "templates" in site:
                self.path(site["templates"]["folder"]).mkdir(exist_ok=True)
            for service in site.get("service", []):
                self.make_runnable(service)
        self.path("bulkhead.toml").write_text(text)

    def make_runnable(self, about):
        for name in about.get("command", [])[:1]:
            self.make_program(name)
        for folder in about.get("read", []):
            self.make_folder(folder)

    def check(self, text):
        self.configure(text)
        return self.run(["bulkhead", "check", "bulkhead.toml"])

    def shell(self, script):
        """Runs a script where it has a loopback device and process numbers of its own; all ends with it."""
        self.path("script").write_text("ip link set lo up\n" + script)
        apart = ["unshare", "--net", "--pid", "--mount-proc", "--fork", "--kill-child"]
        return self.run([*apart, "sh", "-eu", "script"])

    def serve(self, configuration, script):
        self.configure(configuration)
        return self.shell(SERVE + script)

    def serve_php(self, configuration, script):
        """The same, with a php-fpm at each Unix socket to which routes lead by FastCGI."""
        self.configure(configuration)
        sites = tomllib.loads(self.path("bulkhead.toml").read_text())["site"]
        targets = {site["php"] for site in sites if "php" in site}
        targets |= {route["fastcgi"] for site in sites for route in site.get("route", ()) if "fastcgi" in route}
        servers = []
        try:
            for path in (self.path(target.removeprefix("unix:")) for target in targets):
                servers.append(Fpm(path.parent, path.name, children=5))
            return self.shell(SERVE + script)
        finally:
            for server in servers:
                server.close()

    def run(self, words):
        """The exit status and what was printed; 124 for what does not end by itself."""
        output = self.path("output")
        with output.open("w") as file:
            try:
                status = subprocess.run(words, cwd=self.folder, env=self.environment, stdin=subprocess.DEVNULL, stdout=file,
                                        stderr=subprocess.STDOUT, timeout=60, check=False).returncode
            except subprocess.TimeoutExpired:
                status = 124
        return status, output.read_text(errors="replace")


class Links(unittest.TestCase):
    rootless = True

    def test_every_link_leads_somewhere(self):
        broken = []
        for page in PAGES:
            for target in LINK.findall(re.sub(r"`[^`]*`", "", "\n".join(prose(page)))):
                path, _, anchor = target.partition("#")
                to = (page.parent / path).resolve() if path else page
                if re.match(r"[a-z]+:", target):
                    continue
                if not to.exists() or (anchor and anchor not in anchors(to)):
                    broken.append(f"{page.relative_to(TOP)}: {target}")
        self.assertEqual(broken, [])


class Limits(unittest.TestCase):
    """docs/internals/limits.md names where each limit is written, and the test that holds it."""

    PAGE = TOP / "docs" / "internals" / "limits.md"

    @classmethod
    def setUpClass(cls):
        files = [path for folder, kind in (("crates", "rs"), ("cc", "[ch]"), ("c", "[ch]"), ("examples", "rs"), ("python", "py"))
                 for path in (TOP / folder).rglob(f"*.{kind}")]
        cls.code = "\n".join(path.read_text() for path in files)
        cls.page = cls.PAGE.read_text()

    def test_constants(self):
        named = {name for name in re.findall(r"`([A-Z][A-Z0-9_]{3,})`", self.page) if not hasattr(errno, name)}
        self.assertGreater(len(named), 50)
        defined = set(re.findall(r"(?:const|static|#define) ([A-Z][A-Z0-9_]+)|([A-Z][A-Z0-9_]+) =", self.code))
        self.assertEqual(sorted(named - {name for pair in defined for name in pair}), [])

    def test_tests(self):
        named = set(re.findall(r"`[a-z]+: ([a-z][a-z0-9_]{9,})`", self.page))
        self.assertGreater(len(named), 30)
        python = "\n".join(path.read_text() for path in (TOP / "tests").rglob("*.py"))
        files = lambda name: [*TOP.glob(f"crates/*/tests/{name}.rs"), *TOP.glob(f"tests/*/{name}.py")]
        known = lambda name: f"fn {name}(" in self.code or f"def {name}(" in python or files(name)
        self.assertEqual(sorted(name for name in named if not known(name)), [])

    def test_tests_of_real_processes(self):
        """`process: Class.test`, or the class alone."""
        cells = [line.rsplit(" | ", 1)[-1] for line in self.page.splitlines() if line.startswith("|")]
        named = set(re.findall(r"`(?:[a-z]+: )?(?:test_\w+\.)?([A-Z][a-z]\w+)(?:\.(test_\w+))?`", "\n".join(cells)))
        self.assertGreater(len(named), 30)
        text = "\n".join(path.read_text() for path in (TOP / "tests").rglob("test_*.py"))
        known = lambda name, test: f"\nclass {name}(" in text and (not test or f"def {test}(" in text)
        self.assertEqual(sorted(".".join(pair) for pair in named if not known(*pair)), [])


class Blocks(unittest.TestCase):
    def each(self, language, kind, attempt):
        """All blocks of a kind succeed."""
        failed = []
        for place, info, body, above in blocks(language):
            if info == kind:
                with Scratch() as scratch:
                    status, output = attempt(scratch, body, above)
                failed += [f"{place}: status {status}\n{output}"] if status else []
        self.assertEqual(failed, [], "\n" + "\n".join(failed))

    def test_every_block_is_of_a_kind(self):
        infos = [(place, info) for language in ("toml", "sh") for place, info, *_ in blocks(language)]
        self.assertEqual([(place, info) for place, info in infos if info not in KINDS], [])

    def test_no_command_hides_in_an_indented_block(self):
        command = re.compile(r"    (sudo |\$ )?(bulkhead|make|curl|cargo|tests/run|pytest) (?![a-z]+:|--orders)")
        hidden = [f"{page.relative_to(TOP)}: {line}" for page in PAGES for line in prose(page) if command.match(line)]
        self.assertEqual(hidden, [])

    def test_whole_configurations(self):
        self.each("toml", "toml", lambda scratch, body, _: scratch.check(body))

    def test_recipes_are_short(self):
        text = (TOP / "docs/guide/cookbook.md").read_text()
        for name, most in RECIPE_LINES_MAX.items():
            lines = [line for line in last_configuration(re.search(rf"^## {name}\n.*?(?=^## )", text, re.M | re.S)[0]).splitlines() if line]
            self.assertLessEqual(len(lines), most, name)

    def test_fragments(self):
        frame = lambda body: "".join(text for header, text in FRAME if header not in body)
        self.each("toml", "toml fragment", lambda scratch, body, _: scratch.check(frame(body) + body))

    def test_parts_of_a_cargo_file(self):
        for _, info, body, _ in blocks("toml"):
            for name, about in tomllib.loads(body)["dependencies"].items() if info == "toml cargo" else ():
                manifest = TOP / about["path"].partition("bulkhead/")[2] / "Cargo.toml"
                self.assertEqual(tomllib.loads(manifest.read_text())["package"]["name"], name)

    def test_commands(self):
        self.each("sh", "sh", lambda scratch, body, _: scratch.shell(body))

    def test_commands_beside_a_server(self):
        self.each("sh", "sh server", lambda scratch, body, above: scratch.serve(last_configuration(above), body))

    def test_commands_beside_a_server_and_php(self):
        self.each("sh", "sh server php-fpm", lambda scratch, body, above: scratch.serve_php(last_configuration(above), body))

    def test_what_is_not_run_has_a_reason(self):
        found = {body.splitlines()[0]: place for place, info, body, _ in blocks("sh") if info == "sh not-run"}
        self.assertEqual({line: place for line, place in found.items() if line not in NOT_RUN}, {}, "without a reason")
        self.assertEqual(NOT_RUN.keys() - found.keys(), set(), "not there any more")
