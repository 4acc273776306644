"""A sealed cache: a user's state is there for that user, and not to be read in the process's memory by anybody else."""

import hmac
import re
import unittest

from client import until
from harness import Server, service, site

#: No byte of it needs to be escaped, so that it is the same wherever it passes.
NOTE = "the-quick-brown-fox-4711"


def server():
    """A server with `visits` twice: behind the site's worker, and with connections of its own."""
    words = lambda name: [f"bin/{name}", "--danger-plaintext"]
    relayed = service("visits", "/visits", command=words("visits"))
    direct = service("direct", "/visits", takes=True, command=words("direct"))
    made = Server([site("main", [relayed]), site("direct", [direct])], ("visits",))
    made.copy_program("visits", "direct")
    return made


class Browser:
    """Keeps one cookie, and makes a connection for each request."""

    def __init__(self, server, host):
        self.server, self.host, self.cookie = server, host, None

    def ask(self, target="/visits", method="GET", body=b""):
        headers = [f"Cookie: other=1; {self.cookie}"] if self.cookie else []
        with self.server.connect() as connection:
            answer = connection.get(target, self.host, headers, method, body)
        line = answer.headers.get("set-cookie")
        if line:
            self.cookie = line.split(";")[0]
        return answer

    def visits(self):
        return int(re.search(r"visit number (\d+)", self.ask().text).group(1))


def derived(key, purpose):
    """What follows from a user's key in the cache `visits`, as the SDK derives it (HKDF-Expand, its first block)."""
    return hmac.digest(key, b"bulkhead sealed cache 1 " + purpose + b".visits\1", "sha256")


class Sealed(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = cls.enterClassContext(server())

    def test_each_has_their_own(self):
        for host in ("main.test", "direct.test"):
            ann, tom = Browser(self.server, host), Browser(self.server, host)
            with self.subTest(host):
                answer = ann.ask()
                self.assertEqual(answer.headers["cache-control"], "no-store")
                self.assertRegex(answer.headers["set-cookie"],
                                 r"^visits=[0-9a-f]{64}; Max-Age=3600; Path=/visits; HttpOnly; SameSite=Lax$")
                self.assertEqual(ann.ask(method="POST", body=b"note=mine").status, 303)
                self.assertEqual((ann.visits(), tom.visits(), ann.visits()), (2, 1, 3))
                self.assertIn("mine", ann.ask().text)
                self.assertNotIn("mine", tom.ask().text)
                ann.ask("/visits/forget", "POST")
                self.assertEqual((ann.visits(), tom.visits()), (1, 3))

    def test_it_is_soft_state(self):
        ann = Browser(self.server, "main.test")
        self.assertEqual((ann.visits(), ann.visits()), (1, 2))
        key = ann.cookie
        old = self.server.process("bin/visits")
        old.kill()
        self.assertTrue(until(lambda: self.server.status("/visits") == 200 and not old.alive, 5))
        self.assertEqual(ann.visits(), 1)
        self.assertNotEqual(ann.cookie, key, "a key is not taken up by a process that has not made it")

    def check_memory(self, host, title):
        ann, tom = Browser(self.server, host), Browser(self.server, host)
        ann.ask(method="POST", body=f"note={NOTE}".encode())
        self.assertIn(NOTE, ann.ask().text)
        # hyper keeps what it has last read from a connection that stays open, as those of the site's worker do.
        for _ in range(3):
            tom.ask(method="POST", body=b"note=" + b"x" * 100)
            tom.ask()
        held = self.server.process(title).memory("rw")
        digits = ann.cookie.split("=")[1]
        key = bytes.fromhex(digits)
        self.assertIn(derived(key, b"index")[:16], held, "the place of her state is there")
        secrets = {"note": NOTE.encode(), "key": key, "digits": digits.encode(), "cipher": derived(key, b"cipher")}
        for name, secret in secrets.items():
            with self.subTest(name):
                self.assertEqual(held.count(secret), 0)
        self.assertIn(NOTE, ann.ask().text, "it was there all the time")

    def test_memory_of_a_relayed_service(self):
        self.check_memory("main.test", "bin/visits")

    def test_memory_of_a_service_with_connections(self):
        self.check_memory("direct.test", "bin/direct")


if __name__ == "__main__":
    unittest.main()
