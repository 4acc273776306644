"""Facts that several documents repeat are those of the code, of the command, or of the page that a test writes."""

import json
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
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
        code = text("crates/wire/src/channels.rs")
        names = re.findall(r'Self::(\w+) => "(\w+)"', code)
        self.assertGreater(len(names), 10)
        for page, heading in (("docs/internals/roles.md", "## Processes"), ("docs/security/threat-model.md", "## Roles and their rights")):
            rows = section(text(page), heading)
            for role, name in names:
                with self.subTest(page=page, role=role):
                    self.assertRegex(rows, rf"(?m)^\|[^|]*\b({name}|{role.lower()})\b")

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
        roles = re.search(r"^ROLES *:= (.*)$", text("Makefile"), re.MULTILINE)[1].split()
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

    def test_the_readme_is_short(self):
        self.assertLessEqual(text("README.md").count("\n"), 150)


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
