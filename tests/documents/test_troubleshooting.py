"""The table of docs/guide/troubleshooting.md: each mistake is made, and is seen and told of as the table says."""

import re
import unittest
from typing import NamedTuple

import client
import mistakes
from harness import TOP

PAGE = TOP / "docs/guide/troubleshooting.md"
#: What stands in a message for what differs from server to server.
PLACEHOLDER = re.compile(r"\b(ADDRESS|CLIENT|FILE|FOLDER|HOST|NAME|PID|PORT|TEXT|UID)\b")


class Row(NamedTuple):
    mistake: str
    seen: str
    place: str
    message: str
    remedy: str

    def matches(self, text):
        """Whether the message is in a text."""
        parts = PLACEHOLDER.sub("\0", self.message).split("\0")
        return re.search("[^\n]+?".join(map(re.escape, parts)), text)


def key(row):
    """The name of its function in tests/lib/mistakes.py."""
    return re.sub(r"[\W_]+", "-", row.mistake.lower())


def rows():
    """The rows of the table of mistakes."""
    text = PAGE.read_text().split("| mistake | ", 1)[1].split("\n\n", 1)[0]
    for line in text.splitlines()[2:]:
        cells = [cell.strip() for cell in line.strip().strip("|").split(" | ")]
        mistake, seen, place, message, remedy = cells
        yield Row(mistake, seen, place, message.strip("`").strip(), remedy)


class Troubleshooting(unittest.TestCase):
    def test_each_row_has_its_mistake(self):
        named = [key(row) for row in rows()]
        self.assertEqual(sorted(named), sorted(mistakes.MISTAKES), "the table and tests/lib/mistakes.py differ")
        self.assertGreaterEqual(len(named), 25)
        for row in rows():
            self.assertTrue(row.remedy and len(PLACEHOLDER.sub("", row.message)) > 15, row)

    def test_each_mistake_leads_to_its_cause(self):
        with mistakes.World() as world:
            for row in rows():
                with self.subTest(row.mistake):
                    seen, place, told = mistakes.MISTAKES[key(row)](world)
                    self.assertIn(seen, row.seen)
                    self.assertIn(place, row.place)
                    found = client.until(lambda row=row, told=told: row.matches(told()), 10)
                    self.assertTrue(found, f"`{row.message}` is not in {told()!r}")


if __name__ == "__main__":
    unittest.main()
