"""Two machines on one: a server that has a database, and another one whose services call its statements; and certificates for both."""

import json
import shutil
import tempfile
import urllib.parse
from pathlib import Path

from databases import SCHEMA, STATEMENTS, Sqlite, asks, data_site
from harness import Server, free_port
from tls_server import openssl

CURVE = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
#: The machine with the database.
HOLDER = """
[[listen]]
address = "127.0.0.1:{port}"

[[listen]]
address = "127.0.0.1:{tls}"
tls = true

[server]
state_dir = "state"
run_dir = "run"
log_dir = "log"

[limits]
drain_timeout = "{drain}"

[tls]
ocsp = false

[[site]]
name = "main"
host = ["localhost"]
certificates = [{{ certificate = "server.pem", key = "server.key" }}]
client_ca = "ca.pem"

  [[site.data]]
  name = "catalog"
  statements = "catalog.sql"
  schema = "schema.sql"
"""
#: Statements that only these tests have.
MORE = """
-- name: large :many
-- services: asker
-- params: rows int
-- max_rows: 20000
-- max_bytes: 16MiB
-- timeout: 30s
WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < :rows) SELECT x, hex(zeroblob(500)) AS text FROM n;
"""
DOOR = """
  [[site.service]]
  name = "{}"
  remote = true
  data = ["catalog"]
"""


class Papers:
    """Two authorities, and what they have signed."""

    def __init__(self):
        self.folder = Path(tempfile.mkdtemp(prefix="bulkhead-papers-", dir="/tmp"))
        for name in ("ca", "stranger"):
            openssl("req", "-x509", *CURVE, "-subj", f"/CN={name}", "-keyout", self.at(f"{name}.key"), "-out", self.at(f"{name}.pem"))
        for name, by in (("server", "ca"), ("web", "ca"), ("intruder", "stranger")):
            openssl("req", "-x509", "-CA", self.at(f"{by}.pem"), "-CAkey", self.at(f"{by}.key"), *CURVE, "-subj", f"/CN={name}", "-keyout",
                    self.at(f"{name}.key"), "-out", self.at(f"{name}.pem"), "-addext", "basicConstraints=critical,CA:FALSE", "-addext",
                    "subjectAltName=DNS:localhost")

    def at(self, name):
        return self.folder / name

    def text(self, name):
        return self.at(name).read_text()

    def close(self):
        shutil.rmtree(self.folder)


class Holder(Server):
    """The machine with the database, and a door for each of two services."""

    def __init__(self, papers, drain="1s"):
        self.tls, self.engine = free_port(), Sqlite()
        names = ("server.pem", "server.key", "ca.pem")
        files = {"catalog.sql": STATEMENTS + MORE, "schema.sql": SCHEMA} | {name: papers.text(name) for name in names}
        text = lambda port: HOLDER.format(port=port, tls=self.tls, drain=drain) + "".join(map(DOOR.format, ("asker", "other")))
        super().__init__([], programs=(), files=files, text=text)
        self.engine.attach(self)

    def reread(self):
        done = self.command("reload", "--run-dir", "run")
        assert done.returncode == 0, done.stdout + done.stderr


class Web(Server):
    """The machine with the services. `make` makes one of its name."""

    def __init__(self, papers, at, certificate="web", authority="ca", host="localhost", services=("asker", "other"), make=asks, code=None,
                 **more):
        source = {"engine": "remote", "server": f"{host}:{at}", "server_ca": "server-ca.pem", "certificate": "web.pem", "key": "web.key"}
        site = data_site("main", [make(name) for name in services], source=source)
        del site["data"][0]["statements"]
        files = {"server-ca.pem": papers.text(f"{authority}.pem"), "web.pem": papers.text(f"{certificate}.pem"),
                 "web.key": papers.text(f"{certificate}.key")}
        super().__init__([site], programs=("asker",), files=files | (code or {}), **more)

    def ask(self, how, statement, *values, of="asker"):
        words = urllib.parse.urlencode({"statement": statement, "values": json.dumps(list(values))})
        answer = self.get(f"/{of}/{how}?{words}", "main.test")
        text = answer.body.decode().strip()
        return answer.status, json.loads(text) if answer.status == 200 else text

    def proxy(self):
        return self.process("dataproxy main/catalog")

    reread = Holder.reread
