"""A data proxy on another machine: two servers, of which one has the database, and the other the services."""

import contextlib
import os
import random
import signal
import socket
import ssl
import threading
import time
import unittest

from websockets.exceptions import ConnectionClosedError

from c_services import SOURCE, c_service, compile_program
from client import until
from harness import rootless_too
from lateness import Lateness
from machines import Holder, Machines, Web
from python_services import ASKER, PYTHON, python
from renewing import HOLDS
from writing import Writing, look

#: The `timeout` of a statement that names none, in seconds.
USUAL = 5
#: A statement that is fast, and may take no longer.
QUICK = "\n-- name: quick :one\n-- services: asker\n-- timeout: 300ms\nSELECT 1 AS one;\n"


def signalled(server, number):
    for pid in [server.launcher.pid, *(process.pid for process in server.processes())]:
        os.kill(pid, number)


@contextlib.contextmanager
def hung(server):
    """All processes of a machine are stopped: the kernel takes connections for it, and nobody answers."""
    signalled(server, signal.SIGSTOP)
    try:
        yield
    finally:
        signalled(server, signal.SIGCONT)


@rootless_too
class Remote(Machines):

    def test_calls_are_answered_and_grants_are_those_of_the_other_machine(self):
        with Holder(self.papers) as holder, Web(self.papers, holder.tls) as web:
            self.assertEqual(web.ask("many", "users")[0], 200)
            self.assertIn("ann", str(web.ask("one", "user_by_id", 1)[1]))
            self.assertEqual(web.ask("exec", "note", "here")[0], 200)
            self.assertEqual(len(web.ask("many", "numbers", 1000)[1]), 1000)
            status, said = web.ask("many", "secrets")
            self.assertNotEqual(status, 200)
            self.assertIn("no such statement for this service", said)
            self.assertTrue(until(lambda: 'service asker called "secrets", which was not granted to it' in holder.log(), 10), holder.log())
            checked = web.command("data", "check", "--config", web.config)
            self.assertEqual(checked.returncode, 0, checked.stdout + checked.stderr)

    def test_the_other_machine_may_end_and_come_back(self):
        holder = Holder(self.papers)
        with Web(self.papers, holder.tls, answers=False) as web:
            self.assertTrue(until(lambda: "the server cannot be connected to" in web.log(), 20), web.log())
            with holder:
                self.assertTrue(until(lambda: web.ask("exec", "note", "a")[0] == 200, 30), web.log())
            self.assertNotEqual(web.ask("exec", "note", "b")[0], 200)

    def test_a_door_that_is_relaunched_loses_no_call(self):
        with Holder(self.papers) as holder, Web(self.papers, holder.tls) as web:
            said, stopped = [], threading.Event()

            def write():
                at = 0
                while not stopped.is_set():
                    said.append(web.ask("exec", "note", f"n{(at := at + 1)}"))

            thread = threading.Thread(target=write, daemon=True)
            thread.start()
            for _ in range(3):
                count = len(said)
                done = holder.command("relaunch", "main/asker", "--config", holder.config)
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                self.assertTrue(until(lambda: len(said) > count + 20, 20))
            stopped.set()
            thread.join(20)
            self.assertEqual([one for one in said if one[0] != 200], [])

    def assert_refused(self, why, **more):
        with Holder(self.papers) as holder, Web(self.papers, holder.tls, answers=False, **more) as web:
            self.assertTrue(until(lambda: why in web.log(), 20), web.log())
            checked = web.command("data", "check", "--config", web.config)
            self.assertEqual(checked.returncode, 2)
            self.assertIn(why, checked.stdout)

    def test_a_certificate_of_a_stranger_is_refused(self):
        self.assert_refused("refuses the `certificate` of this machine", certificate="intruder")

    def test_another_machine_that_a_stranger_has_signed_is_refused(self):
        self.assert_refused("UnknownIssuer", authority="stranger")

    def test_a_certificate_for_another_host_is_refused(self):
        self.assert_refused("not valid for name", host="127.0.0.1")

    def test_a_service_without_a_door_is_said(self):
        self.assert_refused("has no door to `catalog` for the service `third`", services=("asker", "third"))

    def test_who_shows_no_certificate_has_no_door(self):
        ask = (b"GET /data/asker/catalog HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\nupgrade: websocket\r\n"
               b"sec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\nsec-websocket-protocol: bulkhead-data.1\r\n\r\n")
        with Holder(self.papers) as holder:
            # The gate ends the handshake, and the door would not open either.
            with socket.create_connection(("127.0.0.1", holder.port)) as plain:
                plain.sendall(ask)
                self.assertIn(b" 403 ", plain.recv(4096).splitlines()[0])
            self.assertRaises(OSError, self.over_tls, holder, ask)
            self.assertRaises(OSError, self.over_tls, holder, ask, "intruder")
            self.assertIn(b" 101 ", self.over_tls(holder, ask, "web").splitlines()[0])

    def over_tls(self, holder, ask, certificate=None):
        context = ssl.create_default_context(cafile=self.papers.at("ca.pem"))
        if certificate:
            context.load_cert_chain(self.papers.at(f"{certificate}.pem"), self.papers.at(f"{certificate}.key"))
        with socket.create_connection(("127.0.0.1", holder.tls)) as plain, context.wrap_socket(plain, server_hostname="localhost") as secured:
            secured.sendall(ask)
            return secured.recv(4096)

    def assert_ends(self, web, seconds, why):
        """A call of `quick` ends without an answer after so long, a tenth of a second, and how long a request and its answer take here."""
        with Lateness() as lateness:
            begun = time.monotonic()
            status, said = web.ask("one", "quick")
            took = time.monotonic() - begun
        self.assertNotEqual(status, 200)
        self.assertIn(why, said)
        self.assertTrue(seconds <= took < seconds + 0.1 + 0.25 + lateness.of_a_request, (took, lateness.worst))

    def test_calls_end_in_their_time_whatever_the_proxy_here_does(self):
        with Holder(self.papers, more=QUICK) as holder, Web(self.papers, holder.tls) as web:
            self.assertEqual(web.ask("one", "quick")[0], 200)
            proxy = web.process("dataproxy main/catalog")
            proxy.signal(signal.SIGSTOP)
            for _ in range(3):
                self.assert_ends(web, 0.3, "its data proxy does not answer")
            proxy.signal(signal.SIGCONT)
            self.assertTrue(until(lambda: web.ask("one", "quick")[0] == 200, 10))
            self.assertTrue(proxy.alive)

    def test_the_first_call_ends_in_its_time_when_the_other_machine_hangs(self):
        doors = lambda: sum(one["connections_now"] for one in holder.order(command="status")["processes"] if one["name"] == "main/asker")
        with Holder(self.papers, more=QUICK) as holder, Web(self.papers, holder.tls) as web:
            self.assertTrue(until(doors, 10), web.log())
            with hung(holder):
                for _ in range(3):
                    self.assert_ends(web, 0.3, "its data proxy does not answer")
            self.assertTrue(until(lambda: web.ask("one", "quick")[0] == 200, 10), web.log())

    def test_large_results(self):
        with Holder(self.papers) as holder, Web(self.papers, holder.tls) as web:
            # So many at once that parts of them alternate, and that together they have more than may wait for the other
            # machine.
            found = []
            threads = [threading.Thread(target=lambda: found.append(web.ask("many", "large", 6000))) for _ in range(12)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            whole = [{"x": at, "text": "0" * 1000} for at in range(1, 6001)]
            self.assertEqual([status for status, _ in found], [200] * 12, found[0][1][:200])
            self.assertTrue(all(rows == whole for _, rows in found))


@rootless_too
class Python(Machines):
    def test_calls_of_python(self):
        make = lambda name: python(name, command=[PYTHON, "-m", "program", "catalog"], data=["catalog"])
        with Holder(self.papers) as holder, Web(self.papers, holder.tls, make=make, code={"code/program.py": ASKER}) as web:
            self.assertEqual(web.ask("one", "user_by_id", 2), (200, {"id": 2, "name": "bob", "balance": 50}))
            self.assertEqual(web.ask("transaction", "transfer", [1, 30], [2, 30]), (200, [1, 1]))
            self.assertEqual(len(web.ask("many", "large", 3000)[1]), 3000)
            self.assertEqual(web.ask("at-once", "user_by_id", 500), (200, [None, 1, 2] + [None] * 497))
            self.assertEqual(web.ask("many", "secrets"), (502, "Refused: there is no such statement for this service"))


class CWeb(Web):
    """The machine with the services, which are in C."""

    def __init__(self, papers, at):
        super().__init__(papers, at, make=lambda name: c_service(name, data=["catalog"]))
        self.copy_program(str(compile_program(SOURCE, self.folder / "asked")))

    def ask(self, _, statement):
        answer = self.get(f"/asker/call?statement={statement}", "main.test")
        return answer.status, answer.text


class PythonWeb(Web):
    """The same in Python."""

    def __init__(self, papers, at):
        make = lambda name: python(name, command=[PYTHON, "-m", "program", "catalog"], data=["catalog"])
        super().__init__(papers, at, make=make, code={"code/program.py": ASKER})


@rootless_too
class Unheard(Machines):
    """A machine that has not said to this process of a service how long its statements may take: with every SDK, calls
    end after the `timeout` of a statement that names none, whatever the statement names there."""

    assert_ends = Remote.assert_ends

    def assert_calls_end(self, make):
        with Holder(self.papers, more=QUICK) as holder, make(self.papers, holder.tls) as web:
            with hung(holder):
                # Its new process has a connection of its own to the other machine.
                web.relaunch("main/asker")
                self.assert_ends(web, USUAL, "its data proxy does not answer")
            self.assertTrue(until(lambda: web.ask("one", "quick")[0] == 200, 20), web.log())
            with hung(holder):
                self.assert_ends(web, 0.3, "its data proxy does not answer")

    def test_in_rust(self):
        self.assert_calls_end(Web)

    def test_in_c(self):
        self.assert_calls_end(CWeb)

    def test_in_python(self):
        self.assert_calls_end(PythonWeb)


@rootless_too
class UnderLoad(Machines):
    def test_the_other_machine_is_killed(self):
        with Holder(self.papers) as holder, Web(self.papers, holder.tls) as web:
            writing, proxy = Writing(web.port), web.proxy()
            for _ in range(3):
                self.assert_writes(writing)
                holder.launcher.kill()
                holder.wait(5)
                self.assertTrue(until(lambda: not holder.left(), 10), holder.left())
                # Who asks meanwhile is told so, and nobody waits.
                self.assertTrue(until(lambda: web.ask("one", "user_by_id", 1)[0] == 502, 10))
                holder.start()
            self.assert_writes(writing)
            look(self, holder, writing.finish())
            self.assertEqual(web.proxy(), proxy)

    def test_a_killed_door(self):
        with Holder(self.papers) as holder, Web(self.papers, holder.tls) as web:
            writing = Writing(web.port)
            for title in ("site main", "datadoor", "dataproxy main/catalog"):
                self.assert_writes(writing)
                one = next(process for process in holder.processes() if title in process.title)
                one.kill()
                self.assertTrue(until(lambda: not one.alive, 10))
            self.assert_writes(writing)
            look(self, holder, writing.finish())

    def test_the_other_machine_is_reloaded(self):
        with Holder(self.papers) as holder, Web(self.papers, holder.tls) as web:
            writing = Writing(web.port)
            for at in range(4):
                self.assert_writes(writing)
                text = (holder.folder / "catalog.sql").read_text()
                holder.write("catalog.sql", f"{text}\n-- name: more{at} :one\n-- services: asker\nSELECT {at} AS number;\n")
                holder.write("ca.pem", self.papers.text("ca.pem") + self.papers.text("stranger.pem") * (at % 2))
                holder.reread()
                self.assertTrue(until(lambda: web.ask("one", f"more{at}") == (200, {"number": at}), 10), holder.log())
            look(self, holder, writing.finish())
            self.assertEqual(writing.failed, {})

    def test_the_worker_of_the_site_is_replaced(self):
        """Connections are made again before it is ended, which cuts off those that are left."""
        with Holder(self.papers) as holder, Web(self.papers, holder.tls) as web:
            writing = Writing(web.port)
            for _ in range(3):
                self.assert_writes(writing)
                before = holder.process("site main")
                holder.relaunch("main")
                self.assertTrue(until(lambda: not before.alive, 10))
            self.assert_writes(writing)
            look(self, holder, writing.finish())
            self.assertEqual(writing.failed, {})

    def test_either_machine_is_upgraded_or_relaunches_its_data_proxy(self):
        with Holder(self.papers) as holder, Web(self.papers, holder.tls) as web:
            writing = Writing(web.port)
            for server in (web, holder):
                self.assert_writes(writing)
                server.relaunch("main/catalog:data")
                self.assert_writes(writing)
                done = server.command("upgrade", "--run-dir", "run", timeout=90)
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assert_writes(writing)
            look(self, holder, writing.finish())
            self.assertEqual(writing.failed, {})

    def test_a_stop_waits_for_calls_and_not_for_connections(self):
        with Holder(self.papers, drain="12s") as holder, Web(self.papers, holder.tls) as web:
            writing, site = Writing(web.port), holder.process("site main")
            self.assert_writes(writing)
            holder.stop(10)
            self.assertFalse(site.alive)
            look(self, holder, writing.finish())
            # Those that came later had no connection.
            self.assertEqual([why for why in writing.failed.values() if "cannot be connected to" not in why], [])

    def test_a_certificate_that_is_replaced(self):
        with Holder(self.papers) as holder, Web(self.papers, holder.tls) as web:
            writing, proxy = Writing(web.port), web.proxy()
            self.assert_writes(writing)
            both = self.papers.text("ca.pem") + self.papers.text("stranger.pem")
            for authorities, certificate in ((both, "intruder"), (self.papers.text("stranger.pem"), None)):
                holder.write("ca.pem", authorities)
                holder.reread()
                if certificate:
                    web.write("web.pem", self.papers.text(f"{certificate}.pem"))
                    web.write("web.key", self.papers.text(f"{certificate}.key"))
                    web.reread()
                    self.assertTrue(until(lambda: HOLDS in web.log(), 10), web.log())
                # Connections of before stay, so they have to end.
                holder.relaunch("main/asker")
                self.assert_writes(writing)
            look(self, holder, writing.finish())
            self.assertEqual((writing.failed, web.proxy()), ({}, proxy))


@rootless_too
class Strangers(Machines):
    """Another machine that was taken over: the test, with a certificate that is as good as that one's."""

    def assert_ended_by(self, deed, door):
        """The end may come before all of the deed was said."""
        with self.assertRaises(ConnectionClosedError) as caught:
            deed(door)
            while True:
                door.recv()
        self.assertIn("1011", str(caught.exception))

    def test_nonsense_costs_whoever_says_it(self):
        with Holder(self.papers) as holder, Web(self.papers, holder.tls) as web:
            writing = Writing(web.port)
            nonsense = {
                "that is no message": lambda door: door.send(random.randbytes(300)),
                "no message, and empty": lambda door: door.send(b""),
                "a text": lambda door: door.send("a text"),
                "a login": lambda door: self.say(door, "Login", token=bytes(20)),
                "a pause": lambda door: self.say(door, "Pause", id=1),
                "a number twice": lambda door: [self.say(door, complete=False), self.say(door, complete=False)],
                "more of no call": lambda door: self.say(door, "More", id=9, complete=True, values=b""),
                "more than 128 calls": lambda door: [self.say(door, id=number, complete=False) for number in range(129)],
                "more parameters than": lambda door: [self.say(door, complete=False), *(
                    self.say(door, "More", id=1, complete=False, values=bytes(60000)) for _ in range(71))],
            }
            for what, deed in nonsense.items():
                with self.subTest(what=what), self.door(holder) as door:
                    self.assert_ended_by(deed, door)
            for what in ("a login", "a text", "a pause", "a number twice", "more of no call", "more than 128 calls", "more parameters than"):
                self.assertTrue(until(lambda: f"has sent nonsense: {what}" in holder.log(), 10), what)
            self.assert_writes(writing)
            look(self, holder, writing.finish())
            self.assertEqual(writing.failed, {})

    def test_it_calls_what_is_granted_and_nothing_else(self):
        with Holder(self.papers) as holder:
            with self.door(holder) as door:
                self.say(door)
                self.assertEqual(self.answer(door).kind, "Done")
                for number, name in enumerate(("secrets", "deposit", "users; DROP TABLE users", "")):
                    self.say(door, id=number, name=name)
                    self.assertEqual((found := self.answer(door)).kind, "Failed", name)
                    self.assertEqual((found.id, found.fault), (number, "Refused"))
            # The other service's door has that one's grants.
            with self.door(holder, "other") as door:
                self.say(door, name="secrets")
                self.assertEqual(self.answer(door).kind, "Done")
                self.say(door, name="notes")
                self.assertEqual(self.answer(door).kind, "Failed")


if __name__ == "__main__":
    unittest.main()
