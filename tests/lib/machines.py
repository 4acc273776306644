"""Two machines on one: a server that has a database, and another one whose services call its statements; and certificates for both."""

import json
import shutil
import ssl
import tempfile
import unittest
import urllib.parse
from pathlib import Path

from client import until
from databases import ANY_SCHEMA, ANY_STATEMENTS, LARGE_STATEMENTS, Sqlite, asks, data_site
from harness import Server, free_port
from tls_server import openssl
from told import _messages
from websocket_client import Client

DATA_PROXY_TO_SERVICE, SERVICE_TO_DATA_PROXY = _messages.DATA_PROXY_TO_SERVICE, _messages.SERVICE_TO_DATA_PROXY

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

    def __init__(self, papers, drain="1s", engine=Sqlite, more=""):
        self.tls, self.engine = free_port(), engine()
        schema, statements = (text.format(**engine.words) for text in (ANY_SCHEMA, ANY_STATEMENTS + LARGE_STATEMENTS))
        files = self.engine.files(schema) | {"catalog.sql": statements + more}
        files |= {name: papers.text(name) for name in ("server.pem", "server.key", "ca.pem")}
        source = "".join(f"  {name} = {json.dumps(value)}\n" for name, value in self.engine.settings().items())
        doors = "".join(map(DOOR.format, ("asker", "other")))
        text = lambda port: HOLDER.format(port=port, tls=self.tls, drain=drain) + source + doors
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


class Machines(unittest.TestCase):
    """Tests with two machines; some of them are themselves what speaks on one of these."""

    #: A call that every service may make.
    CALL = {"id": 1, "name": "users", "complete": True, "values": b""}

    @classmethod
    def setUpClass(cls):
        cls.papers = Papers()
        cls.addClassCleanup(cls.papers.close)

    def assert_writes(self, writing):
        before = len(writing.written)
        self.assertTrue(until(lambda: len(writing.written) > before + 20, 20), list(writing.failed.items())[-3:])

    def door(self, holder, service="asker"):
        """The other machine's connection to the door of a service."""
        context = ssl.create_default_context(cafile=self.papers.at("ca.pem"))
        context.load_cert_chain(self.papers.at("web.pem"), self.papers.at("web.key"))
        uri = f"wss://localhost:{holder.tls}/data/{service}/catalog"
        return Client(uri, holder.tls, ssl=context, subprotocols=["bulkhead-data.1"])

    def say(self, door, kind="Call", **values):
        door.send(SERVICE_TO_DATA_PROXY.encode(kind, **(self.CALL if kind == "Call" else {}) | values))

    def call_at_once(self, door, calls):
        """Makes calls that the door has all of before it has an answer to any."""
        door.send_all([SERVICE_TO_DATA_PROXY.encode("Call", **self.CALL | values) for values in calls])

    def answer(self, door):
        """What the door says next, but that it retires."""
        while isinstance(said := door.recv(), str):
            pass
        return DATA_PROXY_TO_SERVICE.decode(said)
