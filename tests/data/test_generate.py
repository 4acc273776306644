"""`bulkhead data gen` writes functions that compile, and that give what the database has."""

import ast
import os
import re
import shutil
import subprocess
import sys
import unittest

from databases import DataServer, Sqlite, at_each
from harness import TOP

#: What has columns that may be NULL, has words of the languages as names, and has no columns that are known before.
MORE = """
-- name: texts :many
-- services: asker
-- params: type text?
SELECT s.id, s.text FROM secrets AS s WHERE s.text = :type;

-- name: joined :many
-- services: other
SELECT u.id, s.id AS secret FROM users AS u LEFT JOIN secrets AS s ON s.id = u.id;

-- name: forget :exec
DELETE FROM notes;

-- transaction: forget_all
-- services: asker
-- statements: forget
"""
CARGO = """\
[package]
name = "generated"
version = "0.0.0"
edition = "2024"

[workspace]

[dependencies]
bulkhead-service = { path = "%s" }
serde = { version = "1", features = ["derive"] }
"""
MAIN = """\
#![deny(warnings)]
#[allow(dead_code)]
mod catalog;

fn main() {}
"""


@at_each
class Generated(unittest.TestCase):
    engine = Sqlite

    def generate(self, server, *words):
        done = server.command("data", "gen", "main/catalog", *words)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout

    def test_python_has_what_the_database_says(self):
        with DataServer(self.engine, lambda text: text + MORE) as server:
            text = self.generate(server, "--lang", "python")
            ast.parse(text)
            self.assertRegex(text, r"class UserById:\n    \"\"\"A row of `user_by_id`.\"\"\"\n\n    id: int\n    name: str\n    balance: int\n")
            self.assertRegex(text, r"class Texts:\n.*\n\n    id: int\n    text: Optional\[str\]\n")
            # The other side of a join may be missing.
            self.assertRegex(text, r"class Joined:\n.*\n\n    id: Optional\[int\]\n    secret: Optional\[int\]\n")
            self.assertIn("    async def add_user(self, name: str) -> int:\n", text)
            self.assertIn("    async def transfer(self, id_1: int, amount_1: int, id_2: int, amount_2: int) -> list[Rows]:\n", text)
            self.assertIn("    async def texts(self, type: Optional[str]) -> list[Texts]:\n", text)
            # What nobody may call by itself has no function.
            self.assertEqual(re.findall(r"async def (forget\w*)", text), ["forget_all"])
            # It runs: the names are there, and nothing is executed but definitions.
            code = f"import sys; sys.path.insert(0, {str(TOP / 'python')!r})\n{text.replace('from __future__ import annotations', '')}\nprint(Catalog)"
            said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
            self.assertEqual(said.returncode, 0, said.stderr)
            own = self.generate(server, "--lang", "python", "--service", "other")
            self.assertEqual(re.findall("async def (\\w+)", own), ["users", "withdraw", "deposit", "secrets", "numbers", "joined"])
            refused = server.command("data", "gen", "main/catalog", "--service", "nobody")
            self.assertEqual(refused.returncode, 2)
            self.assertIn('no service "nobody" of main has catalog in its `data`', refused.stderr)

    def test_rust_compiles(self):
        if shutil.which("cargo") is None:
            self.skipTest("there is no cargo")
        with DataServer(self.engine, lambda text: text + MORE) as server:
            text = self.generate(server)
            self.assertIn("pub async fn texts(&self, r#type: Option<&str>) -> Result<Vec<Texts>, DataError>", text)
            self.assertRegex(text, r"pub struct UserById \{\n    pub id: i64,\n    pub name: String,\n    pub balance: i64,\n\}")
            # A folder for each engine, as their tests go on side by side.
            project = TOP / "target" / f"generated-{self.engine.__name__.lower()}"
            (project / "src").mkdir(parents=True, exist_ok=True)
            (project / "Cargo.toml").write_text(CARGO % (TOP / "crates/service"))
            shutil.copy(TOP / "Cargo.lock", project)
            (project / "src" / "main.rs").write_text(MAIN)
            (project / "src" / "catalog.rs").write_text(text)
            # Beside what `bulkhead new` makes in another test, whose crates are the same.
            settings = {"CARGO_TARGET_DIR": str(TOP / "target" / "new"), "CARGO_PROFILE_RELEASE_OPT_LEVEL": "0"}
            build = ["nice", "-n", "10", "cargo", "build", "--release", "--offline", "--quiet"]
            said = subprocess.run(build, cwd=project, capture_output=True, text=True,
                                  env=os.environ | settings, check=False)
            self.assertEqual(said.returncode, 0, said.stderr)


if __name__ == "__main__":
    unittest.main()
