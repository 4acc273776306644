"""sqlmap, which finds spliced SQL in whatever way there is, finds none where values are bound; beside a program that splices."""

import http.server
import os
import re
import sqlite3
import subprocess
import sys
import tempfile
import threading
import unittest
import urllib.parse

from databases import DataServer, Sqlite, at_each
from harness import TOP

#: Where a value goes that sqlmap changes.
QUERY = "/asker/many?statement=user_by_name&values=" + urllib.parse.quote('["') + "ann*" + urllib.parse.quote('"]')


class Splicing(http.server.BaseHTTPRequestHandler):
    """What must not be done: the value is a part of the statement's text."""

    def do_GET(self):
        name = urllib.parse.parse_qs(urllib.parse.urlsplit(self.path).query)["name"][0]
        database = sqlite3.connect(":memory:")
        database.executescript("CREATE TABLE users (id INTEGER, name TEXT, balance INTEGER); INSERT INTO users VALUES (1, 'ann', 100)")
        try:
            status, text = 200, repr(database.execute(f"SELECT id, balance FROM users WHERE name = '{name}'").fetchall())
        except sqlite3.Error as error:
            status, text = 502, f"Database: {error}"
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def sqlmap(url, host="main.test"):
    """What sqlmap says of a URL; what takes time is left out."""
    with tempfile.TemporaryDirectory(prefix="bulkhead-sqlmap-") as folder:
        command = [sys.executable, "-m", "sqlmap.sqlmap", "--batch", "--disable-coloring", "--flush-session", "--technique=BEUQ", "--level=2", "--risk=2",
                   "--ignore-code=*", "--output-dir", folder, "--headers", f"Host: {host}", "-u", url]
        path = {"PYTHONPATH": os.pathsep.join([str(TOP / "target" / "python"), os.environ.get("PYTHONPATH", "")])}
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=folder, env=os.environ | path | {"HOME": folder}, check=False)
    return done.stdout + done.stderr


@at_each
class Bound(unittest.TestCase):
    engine = Sqlite

    def test_sqlmap_finds_nothing(self):
        with DataServer(self.engine) as server:
            self.assertEqual(server.ask("many", "user_by_name", "ann"), (200, [{"id": 1, "balance": 100}]))
            said = sqlmap(f"http://127.0.0.1:{server.port}{QUERY}")
            self.assertRegex(said, "all tested parameters do not appear to be injectable", said[-3000:])
            self.assertNotIn("is vulnerable", said)
            # It has asked in earnest, and all is there.
            lines = (server.folder / "log" / "main.access.log").read_text().splitlines()
            self.assertGreater(len(lines), 100)
            self.assertEqual(server.engine.rows("SELECT id, name, balance FROM users ORDER BY id"), [("1", "ann", "100"), ("2", "bob", "50")])


class Spliced(unittest.TestCase):
    def test_sqlmap_finds_what_is_spliced(self):
        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Splicing) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            said = sqlmap(f"http://127.0.0.1:{server.server_port}/?name=ann*")
            server.shutdown()
        self.assertTrue(re.search("is vulnerable|sqlmap identified the following injection point", said), said[-3000:])


if __name__ == "__main__":
    unittest.main()
