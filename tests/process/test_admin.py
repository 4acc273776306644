"""Who may give orders: not everybody who can reach the administration socket, but root and the server's owner."""

import json
import os
import subprocess
import sys
import unittest

from client import until
from harness import NOBODY, ROOTLESS, Server, rootless_too

STRANGER = NOBODY - 1
#: What another process does with a uid, the socket's path and an order; it prints the answer. It gives its rights up
#: itself, as not every user may run this interpreter.
CLIENT = """
import os, socket, sys
uid = int(sys.argv.pop(1))
os.setgroups([])
os.setgid(uid)
os.setuid(uid)
admin = socket.socket(socket.AF_UNIX)
admin.settimeout(10)
try:
    admin.connect(sys.argv[1])
    if sys.argv[2] != "null":
        admin.sendall(sys.argv[2].encode() + b"\\n")
    print(admin.makefile().readline(), end="")
except OSError as error:
    print(type(error).__name__, end="")
"""


class Admin(unittest.TestCase):
    def setUp(self):
        self.server = self.enterContext(Server())
        self.socket = self.server.folder / "run/admin.sock"

    def order(self, uid, order):
        """What a process of `uid` gets for an order: the answer, or the name of an exception."""
        command = [sys.executable, "-c", CLIENT, str(uid), str(self.socket), json.dumps(order)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
        return json.loads(done.stdout) if done.stdout.startswith("{") else done.stdout

    def open_to_all(self):
        """Undoes what keeps others from the socket itself."""
        self.socket.parent.chmod(0o755)
        self.socket.chmod(0o666)

    def test_the_socket_keeps_others_out(self):
        self.assertEqual(self.order(STRANGER, {"order": "status"}), "PermissionError")
        self.assertTrue(self.order(0, {"order": "status"})["ok"])

    def test_another_uid_is_refused(self):
        self.open_to_all()
        service = self.server.process("bin/probe")
        orders = ({"order": "status"}, {"order": "relaunch", "name": "main/probe"}, {"order": "stop"})
        for uid in (STRANGER, service.uid, self.server.process("admin").uid):
            with self.subTest(uid=uid):
                # The refusal comes before any order is read.
                answer = self.order(uid, None)
                self.assertEqual((answer["ok"], answer.get("processes")), (False, None))
                self.assertIn(f"uid {uid} may not give orders", answer["error"])
            for order in orders:
                with self.subTest(uid=uid, order=order):
                    answer = self.order(uid, order)
                    # As the order is never read, the connection's end may overtake the answer.
                    if answer not in ("ConnectionResetError", "BrokenPipeError"):
                        self.assertEqual((answer["ok"], answer.get("processes")), (False, None))
        self.assertEqual(self.server.process("bin/probe"), service, "nothing was relaunched")
        self.assertNotIn("ordered by", self.server.log())

    def test_root_is_obeyed_and_noted(self):
        self.open_to_all()
        self.assertTrue(self.order(0, {"order": "relaunch", "name": "main/probe"})["ok"])
        noted = lambda: 'relaunch of "main/probe" ordered by uid 0' in self.server.log()
        self.assertTrue(until(noted, 3), self.server.log())


@rootless_too
class Owner(unittest.TestCase):
    def test_the_owner_gives_orders(self):
        with Server() as server:
            self.assertEqual((server.folder / "run/admin.sock").stat().st_uid, NOBODY if ROOTLESS else os.geteuid())
            answer = server.command("status", "--config", server.config)
            self.assertEqual(answer.returncode, 0, answer.stderr)


if __name__ == "__main__":
    unittest.main()
