"""The records of decisions: each has a status and a date, and the index by area says the same of it."""

import re
import unittest

from harness import TOP

FOLDER = TOP / "docs/decisions"
RECORDS = sorted(FOLDER.glob("[0-9]*.md"))
#: The first lines of a record: number, title, status and date.
HEAD = re.compile(r"# (\d+)\. (.+)\n\nStatus: ([^,]+(?:, \[[^,]+)*), (\d{4}-\d\d-\d\d)\.")
#: A row of the index: number, file, title, status and date.
ROW = re.compile(r"^\| \[(\d{4})\]\(([^)]+)\) \| (.+) \| ([^|]+) \| (\S+) \|$", re.MULTILINE)
STATUS = re.compile(r"accepted|replaced (in part )?by .+|folded into .+")
LINK = re.compile(r"\[([^\]]+)\]\(([^)\s]+)\)")


def head(record):
    """What the first lines of a record say: number, title, status and date."""
    text = re.sub(r"(?<=.)\n(?=.)", " ", record.read_text().partition("\n## ")[0])
    found = HEAD.match(text)
    assert found, f"{record.name} begins with `# NUMBER. TITLE`, an empty line, and `Status: accepted, YYYY-MM-DD.`"
    return found.groups()


class Decisions(unittest.TestCase):
    rootless = True

    def test_each_record_is_in_the_index_as_it_is(self):
        rows = ROW.findall((FOLDER / "README.md").read_text())
        self.assertEqual(sorted(name for _, name, *_ in rows), [record.name for record in RECORDS])
        for number, name, title, status, date in rows:
            with self.subTest(record=name):
                self.assertTrue(name.startswith(number))
                said, *rest = head(FOLDER / name)
                self.assertEqual((int(said), rest), (int(number), [title, status, date]))

    def test_what_has_taken_the_place_of_a_record_is_there(self):
        for record in RECORDS:
            _, _, status, _ = head(record)
            with self.subTest(record=record.name):
                self.assertRegex(status, rf"\A(?:{STATUS.pattern})\Z")
                links = LINK.findall(status)
                self.assertEqual(bool(links), status != "accepted")
                for text, target in links:
                    page = record.parent / target.partition("#")[0]
                    self.assertTrue(page.exists(), target)
                    if status.startswith("replaced"):
                        self.assertTrue(page in RECORDS and page.name.startswith(text) and page > record, target)


if __name__ == "__main__":
    unittest.main()
