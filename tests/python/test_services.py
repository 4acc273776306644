"""Services in Python: what they are asked, what they answer, and how they come and go."""

import contextlib
import json
import os
import socket
import subprocess
import threading
import unittest
from pathlib import Path

import sdk_services
from client import Load, request, until
from harness import rootless_too
from python_services import PythonServer, python, python_site
from upgrading import Upgrading


class UpgradingPython(Upgrading, PythonServer):
    """A server whose programs are its own."""


def curl(server, path, *words):
    """The status and the body of an answer over HTTP/2."""
    url = f"http://main.test:{server.h2c}{path}"
    command = ["curl", "-s", "--http2-prior-knowledge", "--resolve", f"main.test:{server.h2c}:127.0.0.1", "-w", "\n%{http_code}"]
    said = subprocess.run([*command, *words, url], capture_output=True, timeout=30, check=False).stdout
    body, _, status = said.rpartition(b"\n")
    return int(status), body


@rootless_too
class Requests(sdk_services.Requests, unittest.TestCase):
    name = "py"

    @classmethod
    def setUpClass(cls):
        cls.server = cls.enterClassContext(PythonServer(limits={"body_bytes": "1MiB"}))

    def ask(self, deed, **more):
        return self.server.get(f"/py/{deed}", **more)

    def test_what_a_client_asks_is_there_and_what_it_may_not_say_is_not(self):
        headers = ["X-Forwarded-For: 10.9.9.9", "Bulkhead-Client: 10.9.9.9:1", "Cookie: a=1; b=\"x y\"; =bad", "X-Own: Yes"]
        about = json.loads(self.ask("about?q=%3Cb%3E%28x%29&q=2", headers=headers).text)
        self.assertEqual((about["method"], about["path"], about["client"], about["scheme"]), ("GET", "/py/about", "127.0.0.1", "http"))
        self.assertEqual((about["param"], about["raw"]), ("bx", "<b>(x)"))
        self.assertEqual(about["cookies"], {"a": "1", "b": "x y"})
        fields = dict(about["headers"])
        self.assertEqual((fields["x-forwarded-for"], fields["x-own"]), ("127.0.0.1", "Yes"))
        self.assertNotIn("bulkhead-client", fields)

    def test_a_form(self):
        answer = self.ask("form", method="POST", body=b"q=%3Cx%3E+y")
        self.assertEqual(answer.text, "x y <x> y\n")

    def test_head(self):
        with self.server.connect() as connection:
            for path, length in (("/py/early", "6"), ("/py/stream?parts=3", None), ("/py/nothing", None)):
                connection.send(request(path, method="HEAD"))
                answer = connection.response("HEAD")
                self.assertEqual(answer.body, b"")
                if length:
                    self.assertEqual(answer.headers["content-length"], length)
            self.assertEqual(connection.get("/py/early").text, "early\n")

    def test_streams(self):
        answer = self.ask("stream?parts=50000")
        self.assertEqual(answer.body, b"".join(b"%06d\n" % number for number in range(50_000)))

    def test_an_exception_is_told_the_operator_alone(self):
        with self.server.connect() as connection:
            answer = connection.get("/py/error")
            self.assertEqual(answer.status, 500)
            self.assertNotIn("xyzzy", answer.text)
            self.assertEqual(connection.get("/py/early").status, 200)
        told = lambda: "error [service main/py] RuntimeError: the secret word is xyzzy" in self.server.log()
        self.assertTrue(until(told), self.server.log())
        self.assertIn("in do_error", self.server.log())

    def test_half_a_response_shows_as_half(self):
        with self.server.connect() as connection:
            connection.send(request("/py/broken"))
            try:
                # The site's worker had sent nothing of it yet.
                self.assertEqual(connection.response().status, 502)
            except ConnectionError:
                pass
        self.assertTrue(until(lambda: "the stream is at its end" in self.server.log()))

    def test_a_header_that_is_two_is_sent_to_nobody(self):
        answer = self.ask("badheader")
        self.assertEqual((answer.status, "set-cookie" in answer.headers), (500, False))

    def test_cookies_and_events(self):
        self.assertEqual(self.ask("cookie").headers["set-cookie"], "session=1; HttpOnly; Max-Age=60; Path=/; SameSite=Lax; Secure")
        self.ask("event")
        self.assertTrue(until(lambda: "warning [service main/py] something is odd" in self.server.log()))

    def test_http_2(self):
        body = self.server.write("body", os.urandom(500_000))
        self.assertEqual(curl(self.server, "/py/echo", "--data-binary", f"@{body}"), (200, body.read_bytes()))
        self.assertEqual(curl(self.server, "/py/echo", "-T", str(body)), (200, body.read_bytes()))
        self.assertEqual(curl(self.server, "/py/early", "-I")[0], 200)
        self.assertEqual(curl(self.server, "/py/stream?parts=1000")[1].count(b"\n"), 1000)
        self.assertEqual(curl(self.server, "/py/error")[0], 500)
        self.assertEqual(curl(self.server, "/py/echo", "--data-binary", f"@{self.server.write('large', bytes(1 << 21))}")[0], 413)

    def test_a_client_that_goes_costs_nothing_but_its_request(self):
        for _ in range(5):
            with self.server.connect() as connection:
                connection.send(request("/py/stream?parts=10000000"))
                connection.socket.recv(1000)
            with self.server.connect() as connection:
                connection.send(b"POST /py/sum HTTP/1.1\r\nHost: main.test\r\nContent-Length: 100000\r\n\r\nabc")
        self.assertEqual(self.ask("early").text, "early\n")

        def resting():
            lines = self.server.order(command="status")["processes"]
            return [line["connections_now"] for line in lines if line["name"] == "main/py"][0] <= 8
        self.assertTrue(until(resting, 10))

    def test_orders_of_the_administrator(self):
        def send(*words, status=0):
            done = self.server.command("send", *words, "--run-dir", "run")
            self.assertEqual(done.returncode, status, done.stdout + done.stderr)
            return done.stdout

        before = self.ask("pid").text
        self.assertEqual(send("main/py", "echo", "some words, ü"), "main/py: some words, ü\n")
        self.assertEqual(send("main/py", "dance", status=1), "main/py: failed: what is dance?\n")
        self.assertRegex(send("main/py", "diagnostics"), r'"requests":\d+')
        self.assertEqual(send("main/py", "echo", "x" * 2048), "main/py: " + "x" * 2048 + "\n")
        # It is the process of before, which has taken no harm.
        self.assertEqual(self.ask("pid").text, before)


@rootless_too
class Life(sdk_services.Life, unittest.TestCase):
    name = "py"

    def serve(self, about=None, **more):
        return PythonServer(python_site(python(**about or {}), **more))

    def test_what_was_received_is_answered_before_the_end(self):
        with PythonServer() as server, server.connect() as connection:
            connection.send(request("/py/slow?seconds=1.5"))
            lines = lambda: server.order(command="status")["processes"]
            self.assertTrue(until(lambda: any(line["connections_now"] for line in lines() if line["name"] == "main/py")))
            server.relaunch("main/py")
            self.assertEqual(connection.response().text, "slow\n")

    def test_an_upgrade_loses_no_request(self):
        with UpgradingPython() as server:
            before = server.workers()
            load = Load(server.port, "/py/early", seconds=5)
            server.put_programs(version="0.1.9")
            server.upgrade()
            load.end().assert_clean(self, 200)
            self.assertTrue(until(lambda: not set(before) & set(server.workers()), 10))
            self.assertEqual(server.status("/py/early"), 200)

    def test_a_reload_changes_the_service_under_load(self):
        with PythonServer() as server:
            load = Load(server.port, "/py/early", seconds=4)
            self.assertIsNone(server.reload([python_site(python(), python("second"))]))
            self.assertEqual(server.status("/second/early"), 200)
            more = python("py", environment=python()["environment"] | {"WORD": "1"})
            self.assertIsNone(server.reload([python_site(more)]))
            self.assertEqual(server.status("/second/early"), 404)
            load.end().assert_clean(self, 200)

    def test_workers_that_come_and_go(self):
        with PythonServer(python_site(python(workers=3, max_requests=500))) as server:
            before = server.workers()
            self.assertEqual(len(before), 3)
            loads = [Load(server.port, "/py/early", seconds=16, connections=4, close=close) for close in (False, True)]
            expected = "is replaced because it has answered"
            self.assertTrue(until(lambda: expected in server.log(), 20), server.log())
            for load in loads:
                load.end().assert_clean(self, 300)
            self.assertTrue(set(server.workers()) - set(before), "none was replaced")

    def test_it_connects_to_what_was_granted_and_to_nothing_else(self):
        with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_server(("127.0.0.1", 0)) as other:
            def serve():
                while True:
                    with contextlib.suppress(OSError), listener.accept()[0] as peer:
                        peer.sendall(b"hello\n")
            threading.Thread(target=serve, daemon=True).start()
            port = listener.getsockname()[1]
            # Its broker looks into it: with what `ctypes` needs, and without.
            for libraries in (python()["libraries"], [str(Path(python()["libraries"][0]).parent)]):
                with PythonServer(python_site(python(network=[f"tcp:127.0.0.1:{port}"], libraries=libraries))) as server:
                    self.assertEqual(server.get(f"/py/connect?port={port}").text, "hello\n" * 2)
                    answer = server.get(f"/py/connect?port={other.getsockname()[1]}")
                    self.assertEqual((answer.status, answer.text), (502, "PermissionError"))

    def test_an_init_that_fails_says_why(self):
        with PythonServer(python_site(python("py", "fail")), answers=200) as server:
            self.assertTrue(until(lambda: "ValueError: no index here" in server.log()), server.log())

    def test_an_init_that_waits_can_be_stopped(self):
        with PythonServer(python_site(python("py", "block")), answers=200) as server:
            self.assertTrue(until(server.workers))
            self.assertEqual(server.stop(), 0)
            self.assertIn("before `init` was done", server.log())

    def test_templates_are_refused_with_the_reason(self):
        about = python_site(python(templates=True), templates={"folder": "pages"})
        with PythonServer(about, files={"pages/a.html": "a"}, answers=200) as server:
            self.assertTrue(until(lambda: "`templates` is for services in Rust" in server.log(), 10), server.log())

    def test_a_client_s_own_connection_is_refused_with_the_reason(self):
        with PythonServer(python_site(python(takes_connections=True)), answers=200) as server:
            said = "`takes_connections` is for services whose program is compiled with the SDK for Rust"
            self.assertTrue(until(lambda: said in server.log()), server.log())

    def test_outside_of_bulkhead(self):
        with PythonServer() as server:
            words = [*python()["command"]]
            environment = {"PYTHONPATH": f"{server.folder / 'code'}:{python()['read'][1]}"}
            said = subprocess.run(words, env=environment, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
            self.assertEqual(said.returncode, 2)
            self.assertIn("this program is started by `bulkhead run CONFIG`", said.stderr)


class Jail(unittest.TestCase):
    def test_libraries_are_loaded_from_the_folders_that_are_named_and_from_nowhere_else(self):
        # One is in a folder that it may only read.
        native = python(libraries=[*python()["libraries"], "code/native"])
        with PythonServer(python_site(native), files={"code/native/true": Path("/bin/true").read_bytes()}) as server:
            (server.folder / "code/native/true").chmod(0o755)
            found = json.loads(server.get("/py/look").text)
            self.assertTrue(found.pop("library"))
            self.assertTrue(found.pop("map a program"))
            self.assertEqual(found.pop("folder"), ["code"])
            self.assertNotEqual(found.pop("uid"), 0)
            self.assertEqual({name: word for name, word in found.items() if word is True}, {})
            kinds = {"memory", "own file", "memfd", "read folder", "execute a program", "write a library", "passwd"}
            self.assertEqual(set(found), kinds)

    def test_folders_that_others_write_are_refused(self):
        with PythonServer(python_site(python(libraries=[*python()["libraries"], "open"])), files={"open/x": "x"}) as server:
            folder = server.folder / "open"
            for change, why in ((lambda: folder.chmod(0o777), "can be written by others than root"),
                                (lambda: os.chown(folder, 1234, 0), "belongs to uid 1234")):
                change()
                said = server.command("check", server.config)
                self.assertEqual(said.returncode, 2)
                self.assertIn(f"`libraries` {folder} {why}", said.stderr)
                with self.assertRaisesRegex(AssertionError, f"has the folder {folder} in `libraries`, which {why}"):
                    server.relaunch("main/py")
                self.assertEqual(server.status("/py/early"), 200)
                folder.chmod(0o755)

    def test_what_others_can_change_in_a_folder_is_said(self):
        with PythonServer(python_site(python(libraries=[*python()["libraries"], "packages"])), files={"packages/a/b.so": "x"}) as server:
            self.assertEqual(server.command("check", server.config).stderr, "")
            (server.folder / "packages/a/b.so").chmod(0o666)
            said = server.command("check", server.config).stderr
            self.assertIn(f"`libraries` {server.folder}/packages has a/b.so, which others than root can change", said)
            server.write_config([python_site(python(libraries=["/"]))])
            self.assertIn("`libraries` / is the whole machine", server.command("check", server.config).stderr)

    def test_without_libraries_an_interpreter_of_the_machine_is_no_service(self):
        with PythonServer() as server:
            server.write_config([python_site(python(libraries=[]))])
            said = server.command("check", server.config)
            self.assertIn("lies outside of the configuration's folder", said.stderr)

    def test_explain_and_status_name_it(self):
        with PythonServer() as server:
            text = server.command("explain", "--config", server.config, "main/py").stdout
            self.assertIn(f"LIBRARIES: it loads code from {python()['libraries'][0]} while it runs", " ".join(text.split()))


if __name__ == "__main__":
    unittest.main()
