"""The acceptance configuration of Django, FastAPI and Express as it stands, but for its ports, over HTTP/1.1, HTTPS and HTTP/2."""

import contextlib
import functools
import gzip
import hashlib
import json
import os
import re
import shutil
import signal
import threading
import tomllib
import unittest

import client
import frameworks
from frameworks import Via
from harness import ROOTLESS, TOP, Server, free_port, rootless_too, wait_for_time
from stream_client import Streams, message, read_message
from tls_server import certificate, insecure
from websocket_client import Client

CONFIG = TOP / "tests/config/acceptance-proxy.toml"
HOSTS = ("django.test", "fastapi.test", "express.test")
MIB = 1 << 20
FORGED = ["X-Forwarded-For: 203.0.113.9", "X-Forwarded-Proto: https", "X-Forwarded-Host: evil.test", "Forwarded: for=203.0.113.9",
          "X-Real-IP: 203.0.113.9"]


class Applications(Server):
    """The acceptance configuration on free ports, its certificate and its static files; `changes` replace parts of the text."""

    def __init__(self, **changes):
        self.tls = free_port()
        super().__init__([], (), text=lambda port: self.text(port, changes))
        cert, key = certificate(self.write("keys/x", "").parent, "applications", "ec", *HOSTS)
        self.write("applications.pem", cert + key).chmod(0o600)
        self.write("assets/shop.css", "body { color: black }\n" * 1000)
        self.write("assets/large.bin", os.urandom(MIB))
        self.write("public/static/old.txt", "collected before\n")
        if ROOTLESS and os.geteuid() == 0:
            for path in [self.folder, *self.folder.rglob("*")]:
                shutil.chown(path, 65534, 65534)

    def text(self, port, changes):
        text = CONFIG.read_text()
        for old, new in {"127.0.0.1:8080": f"127.0.0.1:{port}", "127.0.0.1:8443": f"127.0.0.1:{self.tls}"}.items():
            assert text.count(old) == 1, old
            text = text.replace(old, new)
        for key, value in changes.items():
            text = text.replace("[limits]\n", f'[limits]\n{key} = "{value}"\n')
        return text

    def protocols(self):
        return [Via("HTTP/1.1", self.port, False, "--http1.1"), Via("HTTPS", self.tls, True, "--http1.1"),
                Via("HTTP/2", self.tls, True, "--http2")]


def over_each(test):
    """Makes a test that is run over each protocol."""

    @functools.wraps(test)
    def all_of_them(self):
        for via in self.server.protocols():
            with self.subTest(via.name):
                test(self, via)

    return all_of_them


class Asking(unittest.TestCase):
    """What all classes below do with their server."""

    def assert_arrives(self, stream, what):
        """The next line of a stream that is not empty."""
        line = b"\n"
        while line == b"\n":
            line = stream.stdout.readline()
        if not line:
            self.fail(f"the stream ended before {what}: {stream.stderr.read()}")
        self.assertEqual(line.decode().strip(), what)

    @contextlib.contextmanager
    def streaming(self, via, host, target):
        stream = via.stream(host, target)
        try:
            yield stream
        finally:
            stream.kill()
            stream.communicate()


@rootless_too
@unittest.skipIf(frameworks.missing(), frameworks.missing())
class Acceptance(Asking):
    @classmethod
    def setUpClass(cls):
        cls.server = Applications()
        folder = cls.server.folder
        cls.django = cls.enterClassContext(frameworks.django(folder))
        cls.fastapi = cls.enterClassContext(frameworks.fastapi(folder, folder / "assets/large.bin"))
        cls.express = cls.enterClassContext(frameworks.express(folder))
        cls.enterClassContext(cls.server)

    def test_a_site_takes_six_lines(self):
        text = CONFIG.read_text()
        self.assertEqual(len(tomllib.loads(text)["site"]), len(HOSTS))
        for site in text.split("\n\n[[site]]\n")[1:]:
            self.assertLessEqual(1 + len(site.strip().splitlines()), 6, site)

    @over_each
    def test_scheme_host_and_client_are_the_real_ones(self, via):
        forged = [word for line in FORGED for word in ("-H", line)]
        said = json.loads(via.ask("django.test", "/", *forged).body)
        self.assertEqual(said["secure"], via.scheme == "https")
        self.assertEqual(said["host"], f"django.test:{via.port}")
        self.assertEqual(said["absolute"], via.url("django.test", "/login/"))
        self.assertEqual(said["forwarded"], "127.0.0.1")
        said = json.loads(via.ask("fastapi.test", "/", *forged).body)
        self.assertEqual((said["url"], said["client"]), (via.url("fastapi.test"), "127.0.0.1"))
        self.assertNotIn("203.0.113.9", str(said["headers"]))
        self.assertNotIn("evil.test", str(said["headers"]))
        said = json.loads(via.ask("express.test", "/", *forged).body)
        self.assertEqual(said["secure"], via.scheme == "https")
        self.assertEqual((said["host"], said["address"]), (f"express.test:{via.port}", "127.0.0.1"))
        self.assertEqual(said["forwarded"], ["127.0.0.1"])

    @over_each
    def test_redirects_lead_back_to_the_site(self, via):
        for host, target, status, where in (
            ("django.test", "/form?x=1", 301, "/form/?x=1"),
            ("django.test", "/leave/", 302, via.url("django.test", "/login/")),
            ("fastapi.test", "/items?x=1", 307, via.url("fastapi.test", "/items/?x=1")),
            ("express.test", "/login", 303, via.url("express.test", "/")),
            ("express.test", "/back", 302, "../?x=1"),
        ):
            answer = via.ask(host, target)
            self.assertEqual((answer.status, answer.headers["location"]), (status, where), host + target)

    @over_each
    def test_a_form_with_a_token(self, via):
        page = via.ask("django.test", "/form/")
        token, cookie = page.body.decode(), page.cookies
        own = via.url("django.test", "").removesuffix("/")
        fill = ["--data", "what=tea", "--data", f"csrfmiddlewaretoken={token}", "-b", cookie]
        # A browser says Origin or Referer; over TLS Django asks for one of them.
        for line in (f"Origin: {own}", f"Referer: {own}/form/"):
            bought = via.ask("django.test", "/form/", *fill, "-H", line)
            self.assertEqual((bought.status, bought.body), (200, b"bought tea"), line)
        for line in ("Origin: https://evil.test", f"Origin: {own.replace('django', 'evil')}"):
            self.assertEqual(via.ask("django.test", "/form/", *fill, "-H", line).status, 403, line)
        self.assertEqual(via.ask("django.test", "/form/", *fill[:2], "-H", f"Origin: {own}").status, 403)

    @over_each
    def test_cookies_are_kept(self, via):
        jar = self.server.folder / f"jar-{via.name.replace('/', '')}"
        visits = [json.loads(via.ask("django.test", "/", "-b", jar, "-c", jar).body)["visits"] for _ in range(3)]
        self.assertEqual(visits, [1, 2, 3])
        answer = via.ask("express.test", "/login")
        self.assertEqual(answer.cookies, "session=a%20b; theme=dark")
        # HTTP/2 may send a cookie in several lines; a server behind it gets one.
        said = json.loads(via.ask("express.test", "/", "-b", answer.cookies).body)
        self.assertEqual(said["cookie"], answer.cookies)

    @over_each
    def test_static_files_come_from_the_site(self, via):
        css = via.ask("django.test", "/static/shop.css")
        self.assertEqual((css.status, css.body), (200, (self.server.folder / "assets/shop.css").read_bytes()))
        self.assertEqual(css.headers["content-type"].split(";")[0], "text/css")
        # Nothing of Django's is in it: a file needs no application.
        self.assertNotIn("x-frame-options", css.headers)
        tag = css.headers["etag"]
        self.assertEqual(via.ask("django.test", "/static/shop.css", "-H", f"If-None-Match: {tag}").status, 304)
        self.assertEqual(via.ask("django.test", "/static/none.css").status, 404)
        self.assertIn(via.ask("django.test", "/static/../django_shop.py", "--path-as-is").status, (400, 404))

    @over_each
    def test_downloads_with_a_range(self, via):
        whole = (self.server.folder / "assets/large.bin").read_bytes()
        for host, target in (("django.test", "/static/large.bin"), ("fastapi.test", "/download"), ("express.test", "/files/large.bin")):
            self.assertEqual(via.ask(host, target).body, whole, host)
            part = via.ask(host, target, "-r", "1000-200999")
            self.assertEqual((part.status, part.body), (206, whole[1000:201_000]), host)
            self.assertEqual(part.headers["content-range"], f"bytes 1000-200999/{len(whole)}")
            self.assertEqual(via.ask(host, target, "-r", f"{len(whole)}-").status, 416, host)
            head = via.ask(host, target, "-I")
            self.assertEqual((head.status, head.headers["content-length"]), (200, str(len(whole))), host)

    @over_each
    def test_methods(self, via):
        json_ = ["-H", "Content-Type: application/json", "--data", '{"a": [1, "ü"]}']
        patched = via.ask("express.test", "/thing", "-X", "PATCH", *json_)
        self.assertEqual(json.loads(patched.body), {"patched": {"a": [1, "ü"]}})
        self.assertEqual(via.ask("express.test", "/thing", "-X", "DELETE").status, 204)
        options = via.ask("express.test", "/thing", "-X", "OPTIONS")
        self.assertEqual((options.status, options.headers["allow"]), (204, "GET, PATCH, DELETE"))
        head = via.ask("express.test", "/thing", "-I")
        self.assertEqual((head.status, head.headers["content-length"], head.body), (200, "5", b""))
        self.assertEqual(via.ask("fastapi.test", "/items/", "-X", "PUT").status, 405)
        self.assertEqual(via.ask("django.test", "/none/").status, 404)

    @over_each
    def test_large_json_and_streamed_rows(self, via):
        plain = via.ask("fastapi.test", "/items/")
        self.assertEqual(json.loads(plain.body)[-1], {"id": 29_999, "name": "item 29999"})
        packed = via.ask("fastapi.test", "/items/", "-H", "Accept-Encoding: gzip")
        self.assertEqual(packed.headers["content-encoding"], "gzip")
        self.assertEqual(gzip.decompress(packed.body), plain.body)
        rows = via.ask("django.test", "/rows/")
        self.assertEqual(rows.body.splitlines()[-1], b"row 999")

    def test_uploads_pass_as_they_come(self):
        body = os.urandom(20 * MIB)
        sum_of = hashlib.md5(body, usedforsecurity=False).hexdigest()
        file = self.server.write("upload", body)
        for via in self.server.protocols():
            for way, words in (("length", []), ("chunks", ["-H", "Transfer-Encoding: chunked"])):
                if via.name == "HTTP/2" and words:
                    continue
                said = via.ask("fastapi.test", f"/uploads/{way}-{via.scheme}{len(via.name)}", "-T", file, "-X", "POST", *words)
                self.assertEqual(json.loads(said.body), {"md5": sum_of, "bytes": len(body)}, way)
        self.half_an_upload_is_there_before_the_rest(body, sum_of)
        self.assertEqual(self.server.protocols()[0].ask(
            "fastapi.test", "/uploads/more", "-X", "POST", "-H", "Content-Length: 40000000", "-H", "Expect:",
        ).status, 413)

    def half_an_upload_is_there_before_the_rest(self, body, sum_of):
        """The application has read half of a body when the client has not sent more."""
        half = len(body) // 2
        count = lambda name: int(client.get(self.server.port, f"/uploads/{name}", "fastapi.test").body)
        # What may be on its way: buffers of sockets, and what the server keeps.
        read = lambda name: client.until(lambda: count(name) > half - 2 * MIB, 20)
        head = f"POST /uploads/half HTTP/1.1\r\nHost: fastapi.test\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        with client.Connection(self.server.port, timeout=60) as connection:
            connection.send(head + body[:half])
            self.assertTrue(read("half"), count("half"))
            connection.send(body[half:])
            self.assertEqual(json.loads(connection.response("POST").body)["md5"], sum_of)
        with Streams(self.server.tls, "fastapi.test") as streams:
            stream = streams.ask("/uploads/half2", method="POST", protocol=None)
            streams.send(stream, body[:half])
            self.assertTrue(read("half2"), count("half2"))
            streams.send(stream, body[half:])
            streams.end(stream)
            streams.until(lambda: stream in streams.ended, "an answer")
            self.assertEqual(json.loads(streams.data[stream])["md5"], sum_of)

    @over_each
    def test_events_arrive_as_they_are_made(self, via):
        """Each event is made when the one before it has arrived; one that is held up would be waited for in vain."""
        name = via.name.replace("/", "")
        with self.streaming(via, "fastapi.test", f"/events/{name}") as stream:
            self.assert_arrives(stream, "data: first")
            for number in range(5):
                self.assertEqual(via.ask("fastapi.test", f"/events/{name}/{number}", "-X", "POST").status, 200)
                self.assert_arrives(stream, f"data: {number}")
        # The client has gone, and the application is told.
        self.assertTrue(client.until(lambda: name not in self.listeners(via), 10), self.listeners(via))
        with self.streaming(via, "express.test", "/events") as stream:
            self.assert_arrives(stream, "data: first")
            for number in range(5):
                self.assertEqual(via.ask("express.test", f"/say/{number}", "-X", "POST").body, b"1")
                self.assert_arrives(stream, f"data: {number}")
        gone = lambda: via.ask("express.test", "/say/gone", "-X", "POST").body == b"0"
        self.assertTrue(client.until(gone, 10), "Express is not told that its listener has gone")

    def listeners(self, via):
        return json.loads(via.ask("fastapi.test", "/listeners").body)

    def test_events_that_a_client_would_take_compressed(self):
        """A browser offers encodings with every request."""
        via = self.server.protocols()[2]
        with self.streaming(Via("compressed", via.port, True, "--http2", "--compressed"), "express.test", "/events") as stream:
            self.assert_arrives(stream, "data: first")
            via.ask("express.test", "/say/second", "-X", "POST")
            self.assert_arrives(stream, "data: second")

    def test_websockets(self):
        for scheme, port in (("ws", self.server.port), ("wss", self.server.tls)):
            with self.subTest(scheme):
                more = {"ssl": insecure()} if scheme == "wss" else {}
                with Client(f"{scheme}://fastapi.test:{port}/socket", port, **more) as socket:
                    self.assertEqual(json.loads(socket.recv())["url"], f"{scheme}://fastapi.test:{port}/socket")
                    for number in range(20):
                        socket.send(f"message {number}")
                        self.assertEqual(socket.recv(), f"fastapi got message {number}")
                with Client(f"{scheme}://express.test:{port}/socket", port, **more) as socket:
                    said = json.loads(socket.recv())
                    self.assertEqual(said, {"host": f"express.test:{port}", "proto": scheme.replace("ws", "http")})
                    for content in ("text", "ü" * 40_000, os.urandom(MIB)):
                        socket.send(content)
                        self.assertEqual(socket.recv(), content)

    def test_websocket_in_a_stream_of_http2(self):
        with Streams(self.server.tls, "express.test") as streams:
            tunnels = [streams.open("/socket") for _ in range(3)]
            for tunnel in tunnels:
                read_message(lambda count, tunnel=tunnel: streams.read(tunnel, count))
            for number in range(10):
                for tunnel in tunnels:
                    content = f"{tunnel} {number}".encode()
                    streams.send(tunnel, message(content, kind=1))
                    self.assertEqual(read_message(lambda count, tunnel=tunnel: streams.read(tunnel, count)), (1, content))


@rootless_too
@unittest.skipIf(frameworks.missing(), frameworks.missing())
class Silence(Asking):
    """Nobody ends a stream of events because nothing happens, however short the timeouts of connections are."""

    @classmethod
    def setUpClass(cls):
        cls.server = Applications(idle_timeout="1s")
        text = cls.server.config.read_text()
        for name in ("fastapi", "express"):
            text = text.replace(f'upstream = "unix:{name}.sock"', f'upstream = "unix:{name}.sock", answer_timeout = "2s"')
        cls.server.config.write_text(text)
        cls.enterClassContext(frameworks.fastapi(cls.server.folder))
        cls.enterClassContext(frameworks.express(cls.server.folder))
        cls.enterClassContext(cls.server)

    def test_silent_streams(self):
        with contextlib.ExitStack() as open_:
            streams, plain = {}, {}
            for via in self.server.protocols():
                name = via.name.replace("/", "")
                streams[via, name] = open_.enter_context(self.streaming(via, "fastapi.test", f"/events/{name}"))
                streams[via, ""] = open_.enter_context(self.streaming(via, "express.test", "/events"))
                plain[via] = open_.enter_context(self.streaming(via, "fastapi.test", f"/pieces/plain{name}"))
            for stream in streams.values():
                self.assert_arrives(stream, "data: first")
            for stream in plain.values():
                self.assert_arrives(stream, "first")
            # What is no stream of events ends as a failure when it has been silent for `answer_timeout`.
            for via, stream in plain.items():
                self.assertEqual(stream.stdout.read(), b"", via.name)
                self.assertNotEqual(stream.wait(10), 0, via.name)
            # Longer than each of the two timeouts.
            wait_for_time(2)
            via = self.server.protocols()[0]
            self.assertEqual(via.ask("express.test", "/say/late", "-X", "POST").body, b"3")
            for (_, name), stream in streams.items():
                if name:
                    via.ask("fastapi.test", f"/events/{name}/late", "-X", "POST")
                self.assert_arrives(stream, "data: late")


@rootless_too
@unittest.skipIf(frameworks.missing(), frameworks.missing())
class Restarts(Asking):
    """An application that is restarted, and one that dies."""

    @classmethod
    def setUpClass(cls):
        cls.server = Applications()
        cls.django = cls.enterClassContext(frameworks.django(cls.server.folder))
        cls.express = cls.enterClassContext(frameworks.express(cls.server.folder))
        cls.enterClassContext(cls.server)

    def load(self, host, path, during):
        """The statuses of requests from four clients, on connections that are kept, before and while `during` runs, and after."""
        over, statuses, troubles, after = threading.Event(), [], [], []

        def ask():
            while not over.is_set():
                try:
                    with client.Connection(self.server.port, timeout=20) as connection:
                        while not over.is_set():
                            into = after if after_it.is_set() else statuses
                            into.append(connection.get(path, host).status)
                except OSError as error:
                    troubles.append(error)

        after_it = threading.Event()
        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        try:
            self.assertTrue(client.until(lambda: len(statuses) > 50, 20))
            during()
            after_it.set()
            self.assertTrue(client.until(lambda: len(after) > 200, 20))
        finally:
            over.set()
            for thread in threads:
                thread.join()
        self.assertEqual(troubles, [])
        return set(statuses), set(after)

    def test_a_restart_under_load(self):
        def restart():
            self.express.stop()
            self.assertTrue(client.until(lambda: self.server.status("/", "express.test") in (502, 503), 10))
            self.express.start()

        meanwhile, after = self.load("express.test", "/thing", restart)
        self.assertLessEqual(meanwhile, {200, 502, 503})
        # From when it listens again, every request reaches it.
        self.assertEqual(after, {200})
        # The logger writes in its own time.
        socket = f"unix:{self.server.folder}/express.sock"
        self.assertTrue(client.until(lambda: socket in self.server.log(), 10), self.server.log())

    def test_a_reload_of_gunicorn_loses_nothing(self):
        """It is sent HUP, starts new workers, and ends the old ones when their requests are over."""

        def reload():
            before = self.workers()
            self.django.process.send_signal(signal.SIGHUP)
            self.assertTrue(client.until(lambda: self.workers() and not self.workers() & before, 20))

        self.assertEqual(self.load("django.test", "/form/", reload), ({200}, {200}))

    def workers(self):
        path = f"/proc/{self.django.process.pid}/task/{self.django.process.pid}/children"
        with open(path) as file:
            return set(file.read().split())

    @staticmethod
    def breaks_off(via):
        """Whether the answer is cut; or 502, where the server's end was seen before the beginning had been passed on."""
        try:
            return via.ask("express.test", "/die").status == 502
        except AssertionError as error:
            return re.search("curl ended with (18|92)", str(error))

    def test_one_that_dies_is_in_the_log(self):
        for via in self.server.protocols():
            try:
                self.assertTrue(self.breaks_off(via))
                self.express.process.wait(10)
                self.assertEqual(via.ask("express.test", "/").status, 502)
            finally:
                self.express.stop()
                self.express.start()
            self.assertEqual(via.ask("express.test", "/").status, 200)
        # One line for all three, as they came within ten seconds.
        said = '/die": the server broke its answer off; `upstream` of the route with `path = "/"`: unix:'
        self.assertTrue(client.until(lambda: said in self.server.log(), 15), self.server.log())


if __name__ == "__main__":
    unittest.main()
