"""Connections to FastCGI servers that are kept: for whom, for how long, and what happens when a server closes one."""

import shutil
import socket
import struct
import tempfile
import threading
import time
import unittest
from pathlib import Path

import backend
import client
from aimed import count_sockets, sends_with_its_first_bytes
from backend import Fpm, Raw
from harness import Server, rootless_too, site

FILES = {
    "main/who.php": "<?php echo getmypid();",
    "main/echo.php": '<?php echo file_get_contents("php://input");',
    "main/deaf.php": '<?php echo "heard nothing";',
    "main/after.php": '<?php echo "done"; fastcgi_finish_request(); usleep(300000);',
    "other/who.php": "<?php echo getmypid();",
}


def place(case):
    folder = Path(tempfile.mkdtemp(prefix="bulkhead-fcgi-", dir="/tmp"))
    folder.chmod(0o755)
    case.addCleanup(shutil.rmtree, folder, True)
    return folder


def crowd(count, work):
    """Has so many threads do `work`, and gives what each of them has found."""
    found = [None] * count
    threads = [threading.Thread(target=lambda at: found.__setitem__(at, work()), args=(at,)) for at in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


@unittest.skipUnless(backend.php_fpm(), "php-fpm is not installed")
@rootless_too
class Pool(unittest.TestCase):
    def fpm(self, **more):
        fpm = Fpm(place(self), **more)
        self.addCleanup(fpm.close)
        return fpm

    def routes(self, fpm, **more):
        return [{"suffix": ".php", "fastcgi": f"unix:{fpm.socket}"} | more]

    def test_children_that_end_after_so_many_requests_lose_none(self):
        fpm = self.fpm(children=2, more="pm.max_requests = 3")
        with Server(sites=[site(route=self.routes(fpm, requests=2))], programs=(), files=FILES) as server:
            def work():
                pages = [server.get("/who.php") for _ in range(30)]
                forms = [server.get("/echo.php", method="POST", body=b"x" * 70_000) for _ in range(10)]
                return {page.status for page in pages + forms}, {len(form.body) for form in forms}

            for found in crowd(4, work):
                self.assertEqual(found, ({200}, {70_000}))

    def test_bodies_that_a_script_does_not_read_are_in_nobodys_way(self):
        fpm = self.fpm(children=1)
        with Server(sites=[site(route=self.routes(fpm, requests=1))], programs=(), files=FILES) as server:
            for length in (1, 70_000, 1_000_000):
                answer = server.get("/deaf.php", method="POST", body=b"x" * length)
                self.assertEqual(answer.text, "heard nothing")
                self.assertEqual(server.get("/echo.php").text, "")

    def test_a_child_that_works_on_after_its_answer_holds_up_but_one_request(self):
        fpm = self.fpm(children=2)
        with Server(sites=[site(route=self.routes(fpm, requests=2))], programs=(), files=FILES) as server:
            for _ in range(3):
                self.assertEqual(server.get("/after.php").text, "done")
                self.assertEqual({page.status for page in crowd(4, lambda: server.get("/who.php"))}, {200})

    def test_a_pool_that_nobody_has_claimed_is_free_after_each_answer(self):
        """One child, and two sites that ask by turns: a connection that rests would hold the child for a quarter of a second."""
        fpm = self.fpm(children=1)
        sites = [site(name, route=self.routes(fpm)) for name in ("main", "other")]
        with Server(sites=sites, programs=(), files=FILES) as server:
            pids, begun = [], time.monotonic()
            for _ in range(20):
                pids += [server.get("/who.php", host=f"{name}.test").text for name in ("main", "other")]
            spent = time.monotonic() - begun
            self.assertEqual((len(pids), len(set(pids))), (40, 1))
            # With connections that are kept it takes 40 times 250 ms at the least.
            self.assertLess(spent, 5)

    def test_two_sites_share_the_children_of_a_pool(self):
        """Each has requests all the time, and as many as there are children: the children are lent by turns."""
        fpm = self.fpm(children=2)
        sites = [site(name, route=self.routes(fpm, requests=2)) for name in ("main", "other")]
        with Server(sites=sites, programs=(), files=FILES) as server:
            served, stopped = {"main": [], "other": []}, threading.Event()

            def load(name):
                while not stopped.is_set():
                    served[name].append(server.get("/who.php", host=f"{name}.test").status)

            threads = [threading.Thread(target=load, args=(name,)) for name in served for _ in range(4)]
            for thread in threads:
                thread.start()
            client.until(lambda: min(map(len, served.values())) >= 100, 20)
            stopped.set()
            for thread in threads:
                thread.join()
            for name, statuses in served.items():
                self.assertEqual(set(statuses), {200}, name)
                self.assertGreaterEqual(len(statuses), 100, name)


def record(kind, content):
    return struct.pack(">BBHHBB", 1, kind, 1, len(content), 0, 0) + content


class Fickle(Raw):
    """Answers the first request of each connection, and closes the connection when the second has come.

    `taken` is what it has read: the number of the connection, and whether it was answered.
    """

    answers = 1

    def __init__(self, **more):
        self.taken, self.count = [], 0
        super().__init__(**more)

    def serve(self, connection):
        self.count += 1
        number, data = self.count, b""
        try:
            for turn in range(self.answers + 1):
                while not data.endswith(record(5, b"")):
                    if not (more := connection.recv(65536)):
                        return
                    data += more
                is_answered = turn < self.answers
                self.taken.append((number, is_answered))
                if is_answered:
                    connection.sendall(record(6, b"Status: 200\r\n\r\nanswered") + record(3, b"\0" * 8))
                data = b""
        except OSError:
            pass
        finally:
            connection.close()


@rootless_too
class Closed(unittest.TestCase):
    """A connection that is closed with a request on it, of which nothing was answered."""

    def test_what_changes_nothing_is_asked_again_once_and_only_on_a_new_connection(self):
        behind = Fickle(path=place(self) / "f.sock")
        self.addCleanup(behind.close)
        routes = [{"path": "/h/", "fastcgi": behind.at, "requests": 4}]
        with Server(sites=[site(route=routes)], programs=()) as server:
            def closed():
                """Whether a request has come on a kept connection, if both requests came before the end of its time."""
                del behind.taken[:]
                for _ in range(2):
                    self.assertEqual(server.get("/h/x").text, "answered")
                first = behind.count - 1
                return behind.taken == [(first, True), (first, False), (first + 1, True)]

            self.assertTrue(client.until(closed, 20), behind.taken)
            # A request that may have an effect goes on a connection of its own from the start.
            for _ in range(5):
                self.assertEqual(server.get("/h/x").text, "answered")
                del behind.taken[:]
                self.assertEqual(server.get("/h/x", method="POST", body=b"a").text, "answered")
                self.assertEqual(behind.taken, [(behind.count, True)])

    def test_without_requests_each_request_has_a_connection_of_its_own(self):
        behind = Fickle(path=place(self) / "f.sock")
        self.addCleanup(behind.close)
        routes = [{"path": "/h/", "fastcgi": behind.at}]
        with Server(sites=[site(route=routes)], programs=()) as server:
            for _ in range(10):
                self.assertEqual(server.get("/h/x").text, "answered")
            self.assertEqual(behind.taken, [(number, True) for number in range(1, 11)])

    def test_a_new_connection_that_is_closed_is_not_tried_again(self):
        behind = Fickle(path=place(self) / "f.sock")
        self.addCleanup(behind.close)
        behind.answers = 0
        routes = [{"path": "/h/", "fastcgi": behind.at}]
        with Server(sites=[site(route=routes)], programs=()) as server:
            for method in ("GET", "POST"):
                self.assertEqual(server.get("/h/x", method=method).status, 502)
            self.assertEqual(behind.taken, [(1, False), (2, False)])


@rootless_too
class Busy(unittest.TestCase):
    """A server on this machine, reached by TCP, that has requests all the time: sockets for it are there before they are connected."""

    def setUp(self):
        self.behind = Fickle()
        self.addCleanup(self.behind.close)
        routes = [{"path": "/h/", "fastcgi": self.behind.at}]
        self.server = self.enterContext(Server(sites=[site(route=routes)], programs=()))

    def post(self):
        return self.server.get("/h/x", method="POST", body=b"a" * 10_000)

    def sockets(self):
        return count_sockets(self.server.process("site main"))

    @unittest.skipUnless(sends_with_its_first_bytes(), "this system has no such sockets")
    def test_nobody_hears_of_a_socket_that_is_not_used_and_it_does_not_stay(self):
        self.post()
        before, posts = self.sockets(), 1
        while self.sockets() < before + 8:
            self.assertEqual(self.post().text, "answered")
            posts += 1
            self.assertLess(posts, 1000)
        for _ in range(60):
            self.assertEqual(self.post().text, "answered")
        self.assertEqual(self.behind.taken, [(number, True) for number in range(1, posts + 61)])
        self.assertTrue(client.until(lambda: self.sockets() <= before, 20), self.sockets())
        self.assertEqual(self.behind.count, posts + 60)

    def test_a_server_that_has_gone_is_told_of_and_one_that_is_back_is_asked(self):
        for _ in range(20):
            self.assertEqual(self.post().text, "answered")
        # A thread that accepts would take one more.
        self.behind.listener.shutdown(socket.SHUT_RDWR)
        self.behind.close()
        for _ in range(20):
            self.assertEqual(self.post().status, 502)
        self.assertTrue(client.until(lambda: "cannot be connected to: " in self.server.log()), self.server.log())
        host, _, port = self.behind.at.rpartition(":")
        back = Fickle(at=(host, int(port)))
        self.addCleanup(back.close)
        for _ in range(40):
            self.assertEqual(self.post().text, "answered")
        self.assertEqual(back.taken, [(number, True) for number in range(1, 41)])
        self.assertEqual(len(self.behind.taken), 20)
