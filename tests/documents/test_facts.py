"""Facts that several documents repeat are those of the code, of the command, or of the page that a test writes."""

import json
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from functools import cache
from pathlib import Path

from harness import TOP, program

sys.path.insert(0, str(TOP / "bench"))
import cases  # noqa: E402
from benchlib import chart, report  # noqa: E402

PAGES = sorted([*TOP.glob("*.md"), *TOP.glob("docs/**/*.md")])
DOCS = TOP / "docs"
NUMBERS = {"nineteen": 19}
#: Keys of the configuration that no process test names, each with the reason.
UNTESTED_KEYS = {
    "priority": "the order of those that wait is the queue's alone, and tested by the unit tests of `conditioning`",
}


def text(*parts):
    return TOP.joinpath(*parts).read_text()


def section(page, heading):
    """What stands below a heading, up to the next of its rank."""
    rank = heading.split()[0]
    return re.split(rf"^{rank} ", page.partition(f"\n{heading}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]


def bulkhead(*words, **more):
    done = subprocess.run([program("bulkhead"), *words], capture_output=True, text=True, timeout=20, check=True, **more)
    return done.stdout.rstrip()


@cache
def roles():
    """The facts of each role that pages repeat, of the table in `wire`; a row may leave out what it begins with."""
    code = text("crates/wire/src/roles.rs")
    begins = {
        "OF_A_SITE": {"heartbeat": "SiteInUse", "stops_after": "Launcher"},
        "OF_ALL": {"heartbeat": "Always", "stops_after": "Launcher"},
    }
    for scope, facts in begins.items():
        body = re.search(rf"const {scope}: Self =\s+Self \{{(.*?)\}};", code, re.DOTALL)[1]
        assert f"heartbeat: Heartbeat::{facts['heartbeat']}" in body, scope
    rows = re.findall(r"^    (\w+) = \d+: (name: .*?)\.\.(\w+);", code, re.MULTILINE | re.DOTALL)
    found = {}
    for role, row, scope in rows:
        said = {key: word or value for key, value, word in re.findall(r'(\w+): (?:\w+::(\w+)|"(\w+)")', row)}
        found[role] = {"scope": scope} | begins[scope] | said
    assert len(found) > 10 and all("name" in facts for facts in found.values())
    return found


class Facts(unittest.TestCase):
    rootless = True

    def test_pages_that_are_named_in_prose_are_there(self):
        sources = [path for folder in ("crates", "tests", "bench") for kind in ("rs", "py") for path in (TOP / folder).rglob(f"*.{kind}")]
        missing = []
        for page in [*PAGES, *sources]:
            for name in re.findall(r"(?<![\w/])docs/[\w/-]+\.md", page.read_text()):
                if not (TOP / name).exists():
                    missing.append(f"{page.relative_to(TOP)}: {name}")
        self.assertEqual(missing, [])

    def test_places_where_something_is_added_are_there(self):
        page = text("docs/internals/how-to-add.md")
        named = re.findall(r"`((?:[\w.-]+/)+[\w.-]+|Makefile)`", page)
        self.assertGreater(len(named), 40)
        self.assertEqual([name for name in named if not (TOP / name).exists()], [])
        said = re.findall(r"`(\w+)` (?:of|in)\s+`((?:[\w.-]+/)+[\w.-]+|Makefile)`", page)
        self.assertGreater(len(said), 5)
        self.assertEqual([(word, name) for word, name in said if word not in text(name)], [])

    def test_each_promise_has_its_tests(self):
        done = subprocess.run([TOP / "tests/promises"], capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_each_key_is_named_in_a_process_test(self):
        """As a key with a value, in a test, in what tests share, or in a configuration that test_acceptance_* run."""
        page = text("docs/configuration.md")
        tables = re.findall(r"<!-- keys of .*? -->\n(.*?)<!-- end -->", page, re.DOTALL)
        rows = [table.splitlines()[2:] for table in tables]
        keys = {key for table in rows for row in table for key in re.findall(r"`([^`]+)`", row.split("|")[1])}
        self.assertGreater(len(keys), 130)
        keys |= set(re.findall(r'"(/\d+)" = ', page))
        # `test_reload_keys` changes every key, and sees nothing of what a key does.
        no_effects = {"test_facts", "test_documents", "test_troubleshooting", "test_reload_keys"}
        sources = [path for path in TOP.glob("tests/*/*.py") if path.stem not in no_effects]
        sources += TOP.glob("tests/config/acceptance-*.toml")
        written = "\n".join(path.read_text() for path in sources).replace("\\n", " ")
        is_named = lambda key: re.search(rf"(?<![\w/.]){re.escape(key)}[\"']?\s*(=(?!=)|:)", written)
        self.assertEqual({key for key in keys if not is_named(key)}, set(UNTESTED_KEYS))

    def test_layers_of_the_jail(self):
        code = section(text("crates/jail/src/layers.rs").replace("pub const LAYERS", "\n## L\n"), "## L").partition("];")[0]
        layers = re.findall(r'\(("[^"]+"|PIDS)', code)
        layers = [layer.strip('"').replace("PIDS", "pid namespace") for layer in layers]
        rows = re.findall(r"^\| ([^|]+) \|", text("docs/internals/jail.md"), re.MULTILINE)[2:]
        self.assertEqual([name for row in rows for name in row.split(", ")], layers)
        for page in (TOP / "README.md", TOP / "CHANGELOG.md"):
            said = re.search(r"jail of\s+\[?(\w+) layers", page.read_text())[1]
            self.assertEqual(NUMBERS[said], len(layers), page.name)

    def test_attempts(self):
        table = section(text("docs/security/attempts.md"), "## Every attempt").partition("### What was not tried")[0]
        count = table.count("\n| `")
        self.assertEqual(re.search(r"\n(\d+) attempts: (\d+) refused", text("docs/guide/operating.md"))[1], str(count))
        self.assertIn(f"About {count // 10 * 10} escape attempts", text("README.md"))

    def test_exposure(self):
        rows = dict(re.findall(r"^\| ([\w' ]+) \| (\d+\.\d) \|", text("docs/security/attempts.md"), re.MULTILINE))
        self.assertGreater(len(rows), 10)
        of_root = rows.pop("reaper")
        self.assertEqual(rows.pop("closer"), of_root)
        least, most = (choose(rows.values(), key=float) for choose in (min, max))
        self.assertIn(f"| {least} to {most} for each process; {of_root} for the reaper and the closer, which are root |", text("README.md"))

    def test_roles(self):
        for page, heading in (("docs/internals/roles.md", "## Processes"), ("docs/security/threat-model.md", "## Roles and their rights")):
            rows = section(text(page), heading)
            for role, facts in roles().items():
                with self.subTest(page=page, role=role):
                    self.assertRegex(rows, rf"(?m)^\|[^|]*\b({facts['name']}|{role.lower()})\b")

    def test_what_a_compromise_of_each_role_gives(self):
        page = section(text("docs/security/threat-model.md"), "## What a compromise of each gives")
        given = " ".join(re.findall(r"^- \*\*([^*]+)\.\*\*", page, re.MULTILINE)).lower().replace(" ", "")
        for role, facts in roles().items():
            with self.subTest(role=role):
                self.assertRegex(given, rf"{facts['name']}|{role.lower()}")

    def test_the_order_of_the_end(self):
        page = text("docs/internals/supervision.md")
        said = re.search(r"\*\*Stopping\*\*[^)]*\)\s+retires\s+([\w,\s]+)\s+in this order", page)[1]
        order, left = ["Launcher"], [role for role in roles() if role != "Launcher"]
        while left:
            role = next(role for role in left if roles()[role]["stops_after"] in order)
            order.insert(order.index(roles()[role]["stops_after"]) + 1, role)
            left.remove(role)
        self.assertEqual(re.split(r",\s+", said), [roles()[role]["name"] for role in order[1:]])

    def test_the_roles_that_the_guide_names(self):
        page = text("docs/guide/operating.md")
        row = re.search(r"^\| `bulkhead relaunch NAME` .*a role \(([^)]+)\)", page, re.MULTILINE)[1]
        of_all = {role for role, facts in roles().items() if facts["scope"] == "OF_ALL"} - {"Launcher", "Filter"}
        ours = {roles()[role]["name"] for role in of_all}
        self.assertEqual(set(re.findall(r"\w+", row)), ours)
        asked = {}
        for names, when in re.findall(r"^\| ([\w, ]+) \| (every [^|]+) \|", page, re.MULTILINE):
            asked |= {name.replace(" ", ""): when for name in names.split(", ")}
        when = {"Short": "connections come", "InUse": "it is in use", "SiteInUse": "its site is in use"}
        when["Always"] = "every minute"
        beats = {facts["name"]: when[facts["heartbeat"]] for facts in roles().values() if facts["heartbeat"] != "Never"}
        self.assertEqual(asked.keys(), beats.keys())
        for name, needed in beats.items():
            self.assertIn(needed, asked[name], name)

    def test_commands(self):
        listed = re.findall(r"^  (\w+)  +\w", bulkhead("--help").partition("Commands:")[2].partition("Options:")[0], re.MULTILINE)
        self.assertGreater(len(listed), 10)
        page = section(text("docs/start.md"), "## Commands")
        first = [cell for row in re.findall(r"^\| (`[^|]+) \|", page, re.MULTILINE) for cell in re.findall(r"`([^`]+)`", row)]
        named = {cell.removeprefix("bulkhead ").split()[0] for cell in first}
        self.assertEqual(named, set(listed) - {"help"})

    def test_the_version_of_rust(self):
        needed = re.search(r'^rust-version = "([\d.]+)"', text("Cargo.toml"), re.MULTILINE)[1]
        for page in ("README.md", "docs/start.md"):
            self.assertEqual(re.findall(r"Rust ([\d.]+\d)", text(page)), [needed], page)

    def test_crates(self):
        tree = section(text("docs/internals/architecture.md"), "## The tree is the process diagram")
        named = re.findall(r"(?<![\w/-])([a-z0-9]+)/(?=\s)", tree.partition("    examples/")[0])
        there = {path.parent.name for path in TOP.glob("crates/*/Cargo.toml")}
        self.assertEqual(there - set(named), set())

    def test_what_is_installed(self):
        listed = re.search(r"^ROLES *:= (.*)$", text("Makefile"), re.MULTILINE)[1]
        roles = re.sub(r"\$\(shell cat (\S+)\)", lambda file: text(file[1]), listed).split()
        said = re.findall(r'"\$out/([\w.-]+)"', section(text("docs/guide/operating.md"), "## Installing"))
        self.assertEqual(sorted(said), sorted(["bulkhead", *roles]))

    def test_performance_is_what_the_results_make(self):
        results = json.loads(text("bench/results.json"))
        remedy = "bench/run --render writes it"
        self.assertEqual(text("docs/performance.md"), report.markdown(results, cases.CASES), remedy)
        self.assertEqual(text("docs/performance.svg"), chart.svg(results, cases.CASES), remedy)
        self.assertEqual(text("bench/results.json"), report.as_json(results), remedy)

    def test_figures_of_the_readme_are_those_of_the_benchmark(self):
        readme, results = text("README.md"), json.loads(text("bench/results.json"))
        self.assertEqual(readme, report.readme(readme, results), "bench/run --render writes it")
        # What is compared is there.
        self.assertRegex(readme, r"CPU per request, 100 B kept alive \| [\d.]+ µs \| [\d.]+ µs \|")
        commit = re.search(r"commit (\w+)", results["run"]["versions"]["ours"])[1]
        self.assertIn(f"at commit {commit}", readme)

    def test_targets_of_make_that_are_named_are_there(self):
        targets = set(re.findall(r"^([a-z-]+):", text("Makefile"), re.MULTILINE))
        command = re.compile(r"`(?:\w+=\S+ )?make ([a-z-]+)`")
        named = {(page.name, name) for page in PAGES for name in command.findall(page.read_text())}
        self.assertGreater(len(named), 10)
        self.assertEqual([(page, name) for page, name in sorted(named) if name not in targets], [])

    def test_the_protocol_tests_are_listed(self):
        page = section(text("docs/internals/testing.md"), "## The protocol tests")
        self.assertEqual(sorted(re.findall(r"^\| `(test_\w+\.py)`", page, re.MULTILINE)),
                         sorted(path.name for path in TOP.glob("tests/protocol/test_*.py")))

    def test_the_readme_leads_to_each_guide(self):
        linked = set(re.findall(r"\]\((docs/guide/[\w-]+\.md)\)", text("README.md")))
        self.assertEqual(linked, {str(page.relative_to(TOP)) for page in DOCS.glob("guide/*.md")})

    def test_the_readme_is_short(self):
        self.assertLessEqual(text("README.md").count("\n"), 150)

    def test_what_has_changed_in_a_version_is_short(self):
        for version in re.split(r"^## ", text("CHANGELOG.md"), flags=re.MULTILINE)[1:]:
            self.assertLessEqual(version.count("\n"), 70, version.partition("\n")[0])


class Explain(unittest.TestCase):
    """docs/security/explain.md shows what the command prints for the demo."""

    rootless = True

    @classmethod
    def setUpClass(cls):
        cls.folder = Path(tempfile.mkdtemp(prefix="explain-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.folder.chmod(0o755)
        shutil.copy(TOP / "examples/packages/demo.toml", cls.folder)
        for name in ("public", "other", "data", "bin"):
            (cls.folder / name).mkdir()
        for name in ("search", "package", "crash", "breakout"):
            shutil.copy(program(name), cls.folder / "bin")
        cls.page = text("docs/security/explain.md")

    def printed(self, *words):
        out = bulkhead("explain", *words, "--config", "demo.toml", cwd=self.folder)
        return out.replace(str(self.folder), "/srv/www")

    def test_every_process(self):
        self.assertIn(self.printed().partition("\n\nThe same sites")[0], self.page)

    def test_one_process(self):
        self.assertIn(self.printed("packages/package"), self.page)

    def test_other_servers(self):
        others = "The same sites" + self.printed().partition("The same sites")[2]
        self.assertIn(others, self.page)
        share = lambda server: re.search(rf"^{re.escape(server)} .*\((\d+%)\)", others, re.MULTILINE)[1]
        said = re.findall(r"\d+%", text("README.md").partition("worst single loss is")[2])[:3]
        self.assertEqual(said, [share("Bulkhead"), share("nginx + php-fpm"), share("one process")])


if __name__ == "__main__":
    unittest.main()
