"""Services in C: what they are asked, what they answer, the statements that they call, and how they come and go."""

import subprocess
import threading
import unittest

import sdk_services
from c_services import CDataServer, CServer, c_service, c_site
from client import Load, request, until
from harness import rootless_too
from writing import Writers, look_into_sqlite

#: LIMIT: time for what comes of itself.
SOON = 10


@rootless_too
class Requests(sdk_services.Requests, unittest.TestCase):
    name = "c"

    @classmethod
    def setUpClass(cls):
        cls.server = cls.enterClassContext(CServer(limits={"body_bytes": "1MiB"}))

    def ask(self, deed, **more):
        return self.server.get(f"/c/{deed}", **more)

    def test_what_a_client_asks_is_there_and_what_it_may_not_say_is_not(self):
        headers = ["X-Forwarded-For: 10.9.9.9", "Bulkhead-Client: 10.9.9.9:1", "X-Own:   Yes  "]
        lines = self.ask("a%20b/about?q=%3Cb%3E%28x%29+%C3%BC%ff&q=2", headers=headers).text.splitlines()
        for line in ("method GET", "path /c/a%20b/about", "query q=%3Cb%3E%28x%29+%C3%BC%ff&q=2", "param bx ü?", "raw <b>(x) ü?",
                     "header x-own: Yes", "header x-forwarded-for: 127.0.0.1"):
            self.assertIn(line, lines)
        self.assertTrue(any(line.startswith("client 127.0.0.1:") for line in lines), lines)
        self.assertFalse(any("bulkhead-client" in line for line in lines), lines)

    def test_text_is_escaped(self):
        self.assertEqual(self.ask("html?q=%3Ca%20b%3D%22%27%26%3E%C3%BC").text, "&lt;a b=&quot;&#39;&amp;&gt;ü")
        self.assertEqual(self.ask("html?q=%00").status, 500)

    def test_a_form(self):
        self.assertEqual(self.ask("form", method="POST", body=b"p=1&q=%3Cx%3E+y").text, "<x> y\n")
        self.assertEqual(self.ask("form", method="POST", body=b"q=" + b"x" * 2000).status, 413)

    def test_head(self):
        with self.server.connect() as connection:
            for path, length in (("/c/early", "6"), ("/c/stream?parts=30000", None), ("/c/nothing", None)):
                connection.send(request(path, method="HEAD"))
                answer = connection.response("HEAD")
                self.assertEqual(answer.body, b"")
                if length:
                    self.assertEqual(answer.headers["content-length"], length)
            self.assertEqual(connection.get("/c/early").text, "early\n")

    def test_many_requests_of_one_connection(self):
        with self.server.connect() as connection:
            for number in range(50):
                self.assertEqual(connection.get("/c/echo", method="POST", body=b"%d" % number).text, str(number))

    def test_streams(self):
        answer = self.ask("stream?parts=200000")
        self.assertEqual(answer.body, b"".join(b"%06d\n" % number for number in range(200_000)))
        self.assertEqual(self.ask("parts").text, "one two")

    def test_responses_without_a_body(self):
        with self.server.connect() as connection:
            for status in (204, 304):
                answer = connection.get(f"/c/none?status={status}")
                self.assertEqual((answer.status, answer.body), (status, b""))
            self.assertEqual(connection.get("/c/nothing").text, "<!doctype html>\n<title>404 Not Found</title>\n<h1>404 Not Found</h1>\n")

    def test_headers(self):
        answer = self.ask("headers")
        self.assertEqual((answer.status, answer.text), (201, "007"))
        self.assertEqual((answer.headers["x-own"], answer.headers["content-length"]), ("after", "3"))
        self.assertEqual(answer.headers["x-content-type-options"], "nosniff")
        self.assertNotIn("x-large", answer.headers)
        self.assertNotIn("x-late", answer.headers)

    def test_a_failure_is_told_the_operator_alone(self):
        with self.server.connect() as connection:
            answer = connection.get("/c/error")
            self.assertEqual((answer.status, "xyzzy" in answer.text), (500, False))
            self.assertEqual(connection.get("/c/early").status, 200)
        for line in ("warning [service main/c] the secret word is xyzzy", "error [service main/c] `process` has failed with 7 for GET /c/error"):
            self.assertTrue(until(lambda line=line: line in self.server.log()), self.server.log())

    def test_half_a_response_shows_as_half(self):
        for deed in ("broken", "short"):
            with self.subTest(deed), self.server.connect() as connection:
                connection.send(request(f"/c/{deed}"))
                try:
                    # The site's worker had sent nothing of it yet.
                    self.assertEqual(connection.response().status, 502)
                except ConnectionError:
                    pass
        self.assertEqual(self.ask("early").text, "early\n")

    def test_a_client_that_goes_costs_nothing_but_its_request(self):
        for _ in range(5):
            with self.server.connect() as connection:
                connection.send(request("/c/stream?parts=10000000"))
                connection.socket.recv(1000)
            with self.server.connect() as connection:
                connection.send(b"POST /c/sum HTTP/1.1\r\nHost: main.test\r\nContent-Length: 100000\r\n\r\nabc")
        self.assertEqual(self.ask("early").text, "early\n")

    def test_orders_of_the_administrator(self):
        def send(*words, status=0):
            done = self.server.command("send", *words, "--run-dir", "run")
            self.assertEqual(done.returncode, status, done.stdout + done.stderr)
            return done.stdout

        before = self.ask("pid").text
        self.assertEqual(send("main/c", "echo", "some words, ü"), "main/c: some words, ü\n")
        self.assertRegex(send("main/c", "dance", status=1), r"^main/c: failed: after \d+ requests: what is dance\?\n$")
        self.assertRegex(send("main/c", "diagnostics"), r'"requests":\d+')
        self.assertEqual(send("main/c", "echo", "x" * 2048), "main/c: " + "x" * 2048 + "\n")
        self.assertEqual(self.ask("pid").text, before)


@rootless_too
class Life(sdk_services.Life, unittest.TestCase):
    # A process has one request at a time: others go on while one is replaced.
    name, under_load = "c", {"workers": 2}

    def serve(self, about=None, **more):
        return CServer(c_site(c_service(**about or {}), **more))

    def test_one_request_at_a_time_in_each_process(self):
        with CServer(c_site(c_service(workers=2))) as server:
            found, threads = [], []
            for _ in range(6):
                threads.append(threading.Thread(target=lambda: found.append(server.get("/c/slow?ms=300").text)))
                threads[-1].start()
            for thread in threads:
                thread.join()
            self.assertEqual(found, ["slow\n"] * 6)
            counts = [line["requests"] for line in server.order(command="status")["processes"] if line["name"].startswith("main/c")]
            self.assertEqual(sorted(counts), [3, 3])

    def test_what_was_received_is_answered_before_the_end(self):
        with CServer() as server, server.connect() as connection:
            connection.send(request("/c/slow?ms=1500"))
            # A process that sleeps says nothing of what it has.
            self.assertTrue(until(lambda: "a slow one begins" in server.log()), server.log())
            server.relaunch("main/c")
            self.assertEqual(connection.response().text, "slow\n")
            self.assertTrue(until(lambda: "info [service main/c] ends after 1 requests" in server.log(), SOON), server.log())

    def test_a_reload_changes_the_service_under_load(self):
        with CServer() as server:
            load = Load(server.port, "/c/early", seconds=4)
            self.assertIsNone(server.reload([c_site(c_service(), c_service("second"))]))
            self.assertEqual(server.status("/second/early"), 200)
            self.assertIsNone(server.reload([c_site(c_service(environment={"WORD": "1"}))]))
            self.assertEqual(server.status("/second/early"), 404)
            load.end().assert_clean(self, 200)

    def test_a_site_s_worker_that_is_relaunched_is_served_on(self):
        with CServer() as server:
            load = Load(server.port, "/c/early", seconds=4)
            before = server.workers()
            server.relaunch("main")
            load.end().assert_clean(self, 200)
            self.assertEqual(server.workers(), before)

    def test_an_init_that_fails_says_why(self):
        with CServer(c_site(c_service("c", "fail")), answers=200) as server:
            self.assertTrue(until(lambda: "no index here" in server.log() and "has failed with 5" in server.log()), server.log())

    def test_what_is_for_other_languages_is_refused_with_the_reason(self):
        about = c_site(c_service(templates=True), templates={"folder": "pages"})
        for of, files, said in (
            (about, {"pages/a.html": "a"}, "`templates` is for services in Rust"),
            (c_site(c_service(takes_connections=True)), None, "`takes_connections` is for services whose program is compiled with the SDK for Rust"),
        ):
            with self.subTest(said), CServer(of, files=files, answers=200) as server:
                self.assertTrue(until(lambda said=said: said in server.log(), SOON), server.log())

    def test_no_code_comes_after_the_start(self):
        with CServer() as server:
            self.assertEqual(server.get("/c/code").text, "Operation not permitted\n")

    def test_outside_of_bulkhead(self):
        with CServer() as server:
            said = subprocess.run([server.folder / "asked"], capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
            self.assertEqual(said.returncode, 2)
            self.assertIn("this program is started by `bulkhead run CONFIG`", said.stderr)


@rootless_too
class Calls(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = cls.enterClassContext(CDataServer())

    def test_calls_and_their_answers(self):
        rows = self.server.rows
        head = "result|id|name|balance"
        self.assertEqual(rows("user_by_id", "i2"), [head, "2|bob|50", "changed 0"])
        self.assertEqual(rows("user_by_id", "i9"), [head, "changed 0"])
        self.assertEqual(rows("users")[:3], [head, "1|ann|100", "2|bob|50"])
        self.assertEqual(rows("note", "t'; DROP TABLE users; --", free=1)[-1], "changed 1")
        self.assertEqual(rows("values", "n", "r-0.5", "tü", "bxyz"), ["result|a|b|c|d", "null|-0.5|ü|blob of 3", "changed 0"])
        self.assertEqual(rows("values", f"i{-(1 << 63)}", "r1e300", "t", "b")[1], f"{-(1 << 63)}|1e+300||blob of 0")

    def test_parameters_and_answers_of_many_parts(self):
        self.assertEqual(self.server.get("/asker/large").text, "Parameters, OK: 1 0 0\n")
        lines = self.server.rows("large", "i100000")
        self.assertEqual((len(lines), lines[-2]), (100_002, "100000|a text of some length"))

    def test_why_a_call_has_failed(self):
        call = self.server.call
        for of, name in (("asker", "secrets"), ("asker", "withdraw"), ("other", "user_by_id"), ("asker", "nothing")):
            self.assertEqual(call(name, of=of), (502, "Refused: there is no such statement for this service\n"))
        self.assertEqual(call("x" * 64), (502, "Refused: no statement has such a name\n"))
        for values in (("t1",), ("r1.5",), ("n",), (), ("i1", "i2")):
            self.assertEqual(call("user_by_id", *values)[1].split(":")[0], "Parameters")
        self.assertEqual(call("slow")[1].split(":")[0], "Late")
        self.assertEqual(call("numbers", "i1001"), (502, "TooLarge: it has more than 1000 rows\n"))
        self.assertEqual(len(self.server.rows("numbers", "i1000")), 1002)
        self.assertEqual(call("add_user", "tann")[1].split(":")[0], "Constraint")
        self.assertEqual(call("users", source="other")[1].split(":")[0], "Unavailable")

    def test_a_call_is_cancelled_at_the_deadline(self):
        self.assertEqual(self.server.call("endless", deadline=200)[1].split(":")[0], "Late")
        self.assertEqual(self.server.rows("user_by_id", "i1")[1], "1|ann|100")

    def test_a_transaction_holds_whole_or_not_at_all(self):
        balances = lambda: [line.split("|")[2] for line in self.server.rows("users")[1:3]]
        self.assertEqual(self.server.rows("transfer", "i1", "i30", "i2", "i30"), ["result", "changed 1"] * 2)
        self.assertEqual(balances(), ["70", "80"])
        self.assertEqual(self.server.call("transfer", "i1", "i30", "i2", "i-81")[1].split(":")[0], "Constraint")
        self.assertEqual(self.server.rows("transfer", "i2", "i30", "i1", "i30"), ["result", "changed 1"] * 2)
        self.assertEqual(balances(), ["100", "50"])


class Writing(Writers):
    """They ask the service in C."""

    def __init__(self, server):
        self.server = server
        super().__init__(count=2)

    def run(self, at):
        for _, mark in self.marks(at):
            status, said = self.server.call("note", f"t{mark}")
            self.note(mark, None if status == 200 else said)


@rootless_too
class Loss(unittest.TestCase):
    def test_proxies_that_come_and_go(self):
        with CDataServer() as server:
            writing = Writing(server)
            for name in ("main/catalog:data", "main/asker", "main/catalog:data"):
                before = len(writing.written)
                server.relaunch(name)
                self.assertTrue(until(lambda before=before: len(writing.written) > before + 10, SOON), writing.failed)
            self.assertEqual(writing.failed, {})
            proxy = server.proxy()
            proxy.kill()
            self.assertTrue(until(lambda: not proxy.alive and server.proxy().alive, SOON))
            before = len(writing.written)
            self.assertTrue(until(lambda: len(writing.written) > before + 5, 15), writing.failed)
            writing.finish()
            look_into_sqlite(self, server, writing, lost=lambda why: why.startswith("Lost"))

    def test_without_a_proxy_a_call_is_not_made(self):
        with CDataServer() as server:
            server.write("catalog.sql", "nonsense\n")
            # It cannot start any more.
            proxy = server.proxy()
            proxy.kill()
            self.assertTrue(until(lambda: not proxy.alive))
            # The worker may not have seen yet that it is gone, and have the call lost.
            self.assertTrue(until(lambda: "Lost" not in server.call("user_by_id", "i1")[1], 20))
            self.assertEqual(server.call("user_by_id", "i1"), (502, "Unavailable: the data source is not there\n"))

    def test_an_init_that_waits_for_rows(self):
        with CDataServer(words=["wait"]) as server:
            self.assertEqual(server.rows("user_by_id", "i1")[1], "1|ann|100")


if __name__ == "__main__":
    unittest.main()
