"""The units of the examples, as `systemd-analyze` judges them, and the guide, which says what it says."""

import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

from booted_systemd import EXAMPLES
from harness import ROLES, TOP, program

GUIDE = (TOP / "docs" / "guide" / "operating.md").read_text()


def analyze(*words):
    """What `systemd-analyze` prints, and whether it is content."""
    done = subprocess.run(["systemd-analyze", "--no-pager", *map(str, words)], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


@unittest.skipUnless(shutil.which("systemd-analyze"), "there is no systemd-analyze")
class Units(unittest.TestCase):
    def test_they_have_no_mistake(self):
        with tempfile.TemporaryDirectory(prefix="bulkhead-units-", dir="/tmp") as folder:
            for name in ("bulkhead.service", "bulkhead.socket"):
                # A program that is not installed is a mistake, too.
                text = (EXAMPLES / name).read_text().replace("/usr/local/bin/bulkhead", str(program("bulkhead").resolve()))
                Path(folder, name).write_text(text)
            status, text = analyze("verify", "--man=no", *sorted(Path(folder).iterdir()))
            # It may complain of the machine's other units, whose places these are not.
            self.assertEqual([line for line in text.splitlines() if folder in line or "bulkhead" in line], [])
            self.assertEqual(status, 0, text)

    def test_nothing_but_the_machine_limits_processes(self):
        """systemd's own limit is 15% of the machine's, for all sites together."""
        for text in ((EXAMPLES / "bulkhead.service").read_text(), GUIDE):
            self.assertEqual(re.findall(r"^TasksMax=(.*)$", text, re.MULTILINE), ["infinity"])

    def test_the_guide_says_the_score(self):
        """The weights are those of a version of systemd: of any other, it is compared whether it is near."""
        status, text = analyze("security", "--offline=true", EXAMPLES / "bulkhead.service")
        self.assertEqual(status, 0, text)
        found = float(re.search(r"exposure level for \S+: ([0-9.]+)", text)[1])
        said = float(re.search(r"security --offline=true` gives this unit ([0-9.]+)", GUIDE)[1])
        version = int(analyze("--version")[1].split()[1])
        self.assertAlmostEqual(found, said, delta=0.01 if version == 252 else 0.5)


class Archive(unittest.TestCase):
    def test_it_has_the_units_where_systemd_finds_them(self):
        """And every program where the guide says; nothing is compiled for it."""
        (TOP / "target").mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="stage-", dir=TOP / "target") as folder:
            staged = Path(folder, "bulkhead-here")
            words = [f"OUT={program('bulkhead').resolve().parent}", f"DIST={staged.relative_to(TOP)}"]
            subprocess.run(["make", "--no-print-directory", "--old-file=build", "stage", *words], cwd=TOP, check=True, capture_output=True)
            for name in ("bulkhead.service", "bulkhead.socket"):
                self.assertEqual((staged / "lib/systemd/system" / name).read_text(), (EXAMPLES / name).read_text())
            self.assertTrue((staged / "bin/bulkhead").exists())
            self.assertLessEqual(set(ROLES) - {"bulkhead"}, {path.name for path in (staged / "libexec/bulkhead").iterdir()})
            unpacked = re.findall(r"'\*/(\w+)'", re.search(r"```sh journey install\n(tar .*?)```", GUIDE, re.S)[1])
            self.assertEqual(sorted(unpacked), sorted(path.name for path in staged.iterdir() if path.is_dir() and path.name != "docs"))


class Guide(unittest.TestCase):
    def test_the_lines_that_it_explains_are_the_units(self):
        explained = re.search(r"```ini\n(Type=notify\n.*?)```", GUIDE, re.S)[1].splitlines()
        unit = (EXAMPLES / "bulkhead.service").read_text().splitlines()
        self.assertEqual([line for line in explained if line not in unit], [])


if __name__ == "__main__":
    unittest.main()
