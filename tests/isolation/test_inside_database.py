"""What an attacker who owns the service `search` of examples/matching gets from its database: `breakout` stands in its place."""

import json
import re
import sqlite3
import unittest

from client import until
from harness import ROOTLESS, rootless_too
from jail_probe import check_part, markdown
from matching import HOST, MatchingServer, Person

COMMAND = '["bin/matching-search"]'


class TakenOver(MatchingServer):
    """The example with `breakout` in the place of `search`, which may read these folders besides."""

    def __init__(self, *read):
        self.read = read
        super().__init__(self.with_breakout, programs=("breakout",))
        # As an operator would have it for a database at a server.
        self.write("secrets/people", "a password\n").chmod(0o644 if read else 0o600)

    def with_breakout(self, text):
        words = ["bin/breakout", "--path", "/search", "--data", "people", "--database", str(self.database()), "--credential",
                 str(self.folder / "secrets/people")]
        changed = text.replace(COMMAND, f"{json.dumps(words)}\n  read = {json.dumps(self.read)}")
        assert changed != text, "the command of `search` is not found"
        return changed

    def database(self):
        return self.folder / "state/data/matching/people/people.db"

    def dump(self):
        """All that is in the database."""
        with sqlite3.connect(f"file:{self.database()}?mode=ro", uri=True) as database:
            return list(database.iterdump())


@rootless_too
class InsideDatabase(unittest.TestCase):
    def test_what_an_attacker_gets(self):
        with TakenOver() as server:
            ann = Person(server, "Ann").register()
            self.assertEqual(ann.write("Ada", "nobody else reads this"), 303)
            before = server.dump()
            self.assertTrue(any("nobody else reads this" in line for line in before))
            found = json.loads(server.get("/search?json", HOST).body)["database"]
            results = {one["id"]: one["result"] for one in found}
            self.assertEqual([id for id, result in results.items() if result != "refused"], ["own-statements"], found)
            self.assertEqual((results["own-statements"], len(results)), ("allowed", 10))
            self.assertEqual(server.dump(), before)
            self.assertNotIn("nobody else reads this", json.dumps(found))
            # It is told, and the others serve as before.
            said = r'\[dataproxy matching/people\] service search called "inbox", which was not granted to it'
            self.assertTrue(until(lambda: re.search(said, server.log())), server.log())
            self.assertIn("nobody else reads this", ann.page("/messages/Ada"))
            for kind in ("html", "text"):
                self.assertIn("foreign-statements", server.get(f"/search?{kind}", HOST).text)
            for one in found:
                self.assertFalse(one["detail"] == "" and one["id"] != "own-statements", one)
            # Without root there is another error for a file that cannot be seen.
            rows = [[f"`{one['id']}`", one["name"], "no" if one["result"] == "refused" else "**yes**", one["detail"].replace(str(server.folder), "..."),
                     one["refused_by"]] for one in found]
            if not ROOTLESS:
                check_part(self, "database", markdown(["attempt", "what an attacker would get", "got", "what came of it", "refused by"], rows))

    def test_the_attempts_can_succeed(self):
        """With everything granted, and the values and names of the attempts known to the database, they do."""
        with TakenOver("secrets") as server:
            path = server.folder / "people.sql"
            text = path.read_text()
            text = text.replace("-- services: messages", "-- services: messages, search").replace("-- services: profile", "-- services: profile, search")
            text = text.replace("-- services: match\n", "-- services: match, search\n").replace("-- services: statistics", "-- services: statistics, search")
            path.write_text(text.replace("-- max_rows: 20", "-- max_rows: 2000").replace("FROM viewers WHERE token = :login;\n\n-- name: people_by", "FROM people WHERE :login IS NOT NULL;\n\n-- name: people_by"))
            server.relaunch("matching/people:data")
            found = json.loads(server.get("/search?json", HOST).body)["database"]
            got = {one["id"] for one in found if one["result"] == "got out"}
            self.assertEqual(got, {"foreign-statements", "foreign-names", "more-rows", "logins", "credential"})


if __name__ == "__main__":
    unittest.main()
