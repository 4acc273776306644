"""Applications of WSGI and ASGI as services: Flask, Django and FastAPI (which is Starlette)."""

import json
import os
import subprocess
import unittest
from pathlib import Path

from client import Load, request, until
from databases import SCHEMA, STATEMENTS
from filter_program import PYTHON, library
from harness import ROOTLESS, rootless_too, service
from python_services import PACKAGES, SDK, PythonServer, missing, python_site
from websocket_client import Client

HERE = Path(__file__).resolve().parent


def application(name, interface, where, *words, data=(), **more):
    """A service that is an application."""
    environment = {"PYTHONPATH": f"apps:{SDK}:{PACKAGES}", "PYTHONDONTWRITEBYTECODE": "1"} | ({"CATALOG": "1"} if data else {})
    settings = {
        "command": [PYTHON, "-m", "bulkhead_service", interface, *words, where], "read": ["apps", str(SDK)],
        "libraries": [str(Path(library()).parent), str(PACKAGES)], "environment": environment | more.pop("environment", {}),
    }
    return service(name, f"/{name}", data=list(data), **settings | more)


FLASK = ("wsgi", "flask_app", "--root-path", "/flask")
FASTAPI = ("asgi", "fastapi_app:app", "--root-path", "/api")


class AppServer(PythonServer):
    def __init__(self, *services, answers=True, **more):
        files = {f"apps/{path.name}": path.read_text() for path in HERE.glob("applications/*.py")}
        super().__init__(python_site(*services, **more), files=files | {"catalog.sql": STATEMENTS, "schema.sql": SCHEMA}, answers=answers)


def curl(server, path, *words):
    url = f"http://main.test:{server.h2c}{path}"
    command = ["curl", "-s", "--http2-prior-knowledge", "--resolve", f"main.test:{server.h2c}:127.0.0.1"]
    return subprocess.run([*command, *words, url], capture_output=True, timeout=30, check=True).stdout


def leave(server, page, upload):
    """Clients that go in the middle of an answer, and of a body."""
    for _ in range(5):
        with server.connect() as connection:
            connection.send(request(page))
            connection.socket.recv(10)
        with server.connect() as connection:
            connection.send(f"POST {upload} HTTP/1.1\r\nHost: main.test\r\nContent-Length: 100000\r\n\r\nabc".encode())
    rest = lambda: all(line["connections_now"] == 0 for line in server.order(command="status")["processes"] if line["role"] in ("service", "gate"))
    if not until(rest, 10):
        raise AssertionError("connections of clients that have gone stay")


def said(server, text):
    return until(lambda: text in server.log(), 10)


@rootless_too
@unittest.skipIf(missing(), missing())
class Flask(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        few = application("few", "wsgi", "flask_app", "--threads", "2", "--root-path", "/few")
        script = application("script", "", "") | {"command": [PYTHON, "apps/flask_script.py"]}
        cls.server = cls.enterClassContext(AppServer(application("flask", *FLASK), few, script))

    def test_pages_uploads_and_streams(self):
        for ask in (lambda path, *words: curl(self.server, path, *words), lambda path, *words: curl(self.server, path, "--http1.1", *words)):
            home = json.loads(ask("/flask/", "-H", "X-Two: 1", "-H", "X-Two: 2"))
            self.assertEqual((home["client"], home["root"], home["agent"]), ("127.0.0.1", "/flask", "1, 2"))
            self.assertEqual(home["url"], f"http://main.test:{self.server.h2c}/flask/")
            body = self.server.write("body", os.urandom(700_000))
            self.assertEqual(json.loads(ask("/flask/upload", "--data-binary", f"@{body}")), {"bytes": 700_000})
            self.assertEqual(json.loads(ask("/flask/upload", "-X", "POST", "-T", str(body))), {"bytes": 700_000})
            # Flask puts a file of more than 500 kB into `/tmp`, which a service has where it has a root of its own.
            file = body if not ROOTLESS else self.server.write("file", bytes(400_000))
            form = json.loads(ask("/flask/form", "-F", "name=ann", "-F", f"file=@{file}"))
            self.assertEqual(form, {"fields": {"name": "ann"}, "file": file.stat().st_size})
            self.assertEqual(ask("/flask/rows").decode(), "".join(f"row {number}\n" for number in range(1000)))
            self.assertIn(b"text/csv", ask("/flask/rows", "-I"))

    def test_a_program_that_serves_its_application_itself(self):
        self.assertEqual(json.loads(self.server.get("/script/").text)["root"], "/script")

    def test_an_error_is_told_the_operator_alone(self):
        answer = self.server.get("/flask/error")
        self.assertEqual((answer.status, "xyzzy" in answer.text), (500, False))
        self.assertTrue(said(self.server, "RuntimeError: the secret word is xyzzy"))

    def test_clients_that_go_are_no_errors(self):
        leave(self.server, "/flask/rows", "/flask/upload")
        self.assertEqual(self.server.status("/flask/"), 200)
        self.assertNotIn("Gone", self.server.log())

    def test_threads_are_bounded_and_nobody_is_lost(self):
        connections = [self.enterContext(self.server.connect()) for _ in range(6)]
        for connection in connections:
            connection.send(request("/few/slow?seconds=0.3"))
        self.assertEqual([connection.response().text for connection in connections], ["slow\n"] * 6)
        load = Load(self.server.port, "/flask/pid", seconds=4)
        self.server.relaunch("main/flask")
        self.server.relaunch("main/few")
        load.end().assert_clean(self)


@rootless_too
@unittest.skipIf(missing(), missing())
class Django(unittest.TestCase):
    def test_by_wsgi_and_by_asgi(self):
        services = [application(name, name, f"django_app:{name}") for name in ("wsgi", "asgi")]
        with AppServer(*services) as server:
            for name in ("wsgi", "asgi"):
                home = json.loads(server.get(f"/{name}/").text)
                self.assertEqual(home, {"absolute": f"http://main.test/{name}/", "client": "127.0.0.1"})
                self.assertEqual(server.get(f"/{name}/upload", method="POST", body=bytes(300_000)).text, "300000")
                self.assertEqual(server.get(f"/{name}/rows").text, "".join(f"row {number}\n" for number in range(1000)))
                answer = server.get(f"/{name}/error")
                self.assertEqual((answer.status, "xyzzy" in answer.text), (500, False))
            load = Load(server.port, "/asgi/", seconds=3)
            server.relaunch("main/asgi")
            load.end().assert_clean(self)


@rootless_too
@unittest.skipIf(missing(), missing())
class FastApi(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = cls.enterClassContext(AppServer(application("api", *FASTAPI)))

    def test_pages_uploads_and_streams(self):
        home = json.loads(self.server.get("/api/").text)
        self.assertEqual(home, {"url": "http://main.test/api/", "client": "127.0.0.1", "word": "of the lifespan"})
        body = self.server.write("body", os.urandom(700_000))
        self.assertEqual(json.loads(curl(self.server, "/api/upload", "--data-binary", f"@{body}")), {"bytes": 700_000})
        self.assertEqual(curl(self.server, "/api/rows").count(b"\n"), 1000)
        self.assertEqual(self.server.get("/api/thread").text, '"thread"')
        answer = self.server.get("/api/error")
        self.assertEqual((answer.status, "xyzzy" in answer.text), (500, False))
        self.assertTrue(said(self.server, "RuntimeError: the secret word is xyzzy"))

    def test_what_fails_after_an_answer_leaves_the_answer(self):
        with self.server.connect() as connection:
            for _ in range(3):
                self.assertEqual(connection.get("/api/background").text, '"done"')
        self.assertTrue(said(self.server, "RuntimeError: after the answer"))

    def test_a_client_that_leaves_a_stream_ends_it(self):
        gone = lambda: json.loads(self.server.get("/api/state").text)["gone"]
        before = gone()
        with self.server.connect() as connection:
            connection.send(request("/api/events"))
            self.assertIn(b"200 OK", connection.socket.recv(1000))
        self.assertTrue(until(lambda: gone() == before + 1, 10))

    def test_clients_that_go_are_no_errors(self):
        leave(self.server, "/api/rows", "/api/upload")
        self.assertEqual(self.server.status("/api/"), 200)
        self.assertNotRegex(self.server.log(), "Gone|Disconnect")

    def test_sockets(self):
        closed = json.loads(self.server.get("/api/state").text)["closed"]
        with Client("ws://main.test/api/socket", self.server.port) as peer:
            for message in ("hello", "ü" * 1000, b"\0\xff" * 50_000, ""):
                peer.send(message)
                self.assertEqual(peer.recv(), message)
            peer.ping()
            peer.send("end")
            self.assertTrue(until(lambda: peer.closed_with == (4001, 4001)), peer.closed_with)
        with Client("ws://main.test/api/socket", self.server.port) as peer:
            peer.send("x")
            self.assertEqual(peer.recv(), "x")
        self.assertTrue(until(lambda: json.loads(self.server.get("/api/state").text)["closed"] == closed + 1))
        with Client("ws://main.test/api/socket", self.server.port) as peer:
            peer.send("break")
            self.assertTrue(until(lambda: peer.closed_with == (1011, 1011)), peer.closed_with)
        self.assertTrue(said(self.server, "the socket breaks"))

    def test_a_socket_that_is_refused(self):
        words = ["Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="]
        self.assertEqual(self.server.get("/api/refused", headers=words).status, 403)
        self.assertEqual(self.server.get("/api/socket", headers=words[:3]).status, 400)

    def test_a_relaunch_under_load_and_what_was_received_is_answered(self):
        load = Load(self.server.port, "/api/", seconds=4)
        with self.server.connect() as connection:
            connection.send(request("/api/slow?seconds=1.5"))
            self.server.relaunch("main/api")
            self.assertEqual(connection.response().text, '"slow"')
        load.end().assert_clean(self)
        self.assertTrue(said(self.server, "the application ends"))


@rootless_too
@unittest.skipIf(missing(), missing())
class Starts(unittest.TestCase):
    def fails(self, text, service):
        with AppServer(service, answers=200) as server:
            self.assertTrue(said(server, text), server.log())

    def test_that_fail_say_why(self):
        self.fails("there is no index", application("api", *FASTAPI, environment={"BREAK": "1"}))
        self.fails("there is no module `nothing` for the application `nothing:app`", application("api", "asgi", "nothing:app"))
        self.fails("the module `flask_app` has no `wsgi`", application("api", "wsgi", "flask_app:wsgi"))


@rootless_too
@unittest.skipIf(missing(), missing())
class Data(unittest.TestCase):
    def test_statements_from_threads_and_from_the_loop(self):
        statements = STATEMENTS.replace("services: asker", "services: flask, api").replace(", other", "").replace("services: other", "services: api")
        data = [{"name": "catalog", "statements": "catalog.sql", "schema": "schema.sql"}]
        services = [application("flask", *FLASK, data=["catalog"]), application("api", *FASTAPI, data=["catalog"])]
        server = AppServer(*services, data=data)
        server.write("catalog.sql", statements)
        with server:
            for name in ("flask", "api"):
                self.assertEqual(json.loads(server.get(f"/{name}/user/1").text), {"name": "ann", "balance": 100, "id": 1})
                self.assertEqual(server.status(f"/{name}/user/9"), 404)
            self.assertEqual(server.get("/flask/users/at-start").text, "2")
            self.assertEqual(json.loads(server.get("/api/state").text)["users"], 2)
            loads = [Load(server.port, f"/{name}/user/2", seconds=4, connections=4) for name in ("flask", "api")]
            server.relaunch("main/catalog:data")
            for load in loads:
                load.end().assert_clean(self)


if __name__ == "__main__":
    unittest.main()
