"""Who may give orders: not everybody who can reach the administration socket, but who can read its secret."""

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

from client import until
from harness import NOBODY, ROOTLESS, Server, program, rootless_too
from topology import SO_PASSRIGHTS

STRANGER = NOBODY - 1
CROWD = 600
#: LIMIT: seconds for an order beside a crowd, on a machine that has much else to do; a place was once held for 5 s, so
#: that an order behind this crowd took minutes.
PATIENCE = 15
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
    admin.sendall(sys.argv[2].encode() + b"\\n")
    print(admin.makefile().readline(), end="")
except OSError as error:
    print(type(error).__name__, end="")
"""


def refuses_descriptors():
    """Whether the kernel has `SO_PASSRIGHTS`."""
    with socket.socket(socket.AF_UNIX) as any_socket:
        try:
            return any_socket.getsockopt(socket.SOL_SOCKET, SO_PASSRIGHTS) is not None
        except OSError:
            return False


class Admin(unittest.TestCase):
    def setUp(self):
        self.server = self.enterContext(Server())
        self.socket = self.server.folder / "run/admin.sock"
        self.secret = self.server.folder / "run/admin.secret"

    def order(self, uid, order, secret):
        """What a process of `uid` gets for an order: the answer, or the name of an exception."""
        command = [sys.executable, "-c", CLIENT, str(uid), str(self.socket), f"{secret}\n{json.dumps(order)}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
        return json.loads(done.stdout) if done.stdout.startswith("{") else done.stdout

    def open_to_all(self):
        """Undoes what keeps others from the socket itself."""
        self.socket.parent.chmod(0o755)
        self.socket.chmod(0o666)

    def test_the_socket_and_the_secret_keep_others_out(self):
        for path in (self.socket, self.secret):
            self.assertEqual((path.stat().st_uid, path.stat().st_mode & 0o777), (os.geteuid(), 0o600), path)
        secret = self.secret.read_text().strip()
        self.assertRegex(secret, "^[0-9a-f]{64}$")
        self.assertEqual(self.order(STRANGER, {"command": "status"}, secret), "PermissionError")
        self.assertTrue(self.order(0, {"command": "status"}, secret)["ok"])

    def test_without_the_secret_nobody_is_obeyed(self):
        self.open_to_all()
        service = self.server.process("bin/probe")
        orders = ({"command": "status"}, {"command": "relaunch", "name": "main/probe"}, {"command": "stop"})
        secret = self.secret.read_text().strip()
        for uid in (STRANGER, service.uid, self.server.process("admin").uid, 0):
            for guess in ("", "0" * 64, secret[:-1], json.dumps({"command": "stop"})):
                for order in orders:
                    with self.subTest(uid=uid, guess=guess, order=order):
                        answer = self.order(uid, order, guess)
                        self.assertEqual((answer["ok"], answer.get("processes")), (False, None))
                        self.assertIn("no permission to give orders", answer["error"])
        self.assertEqual(self.server.process("bin/probe"), service, "nothing was relaunched")
        self.assertNotIn("ordered by", self.server.log())

    def test_root_is_obeyed_and_noted(self):
        order = {"command": "relaunch", "name": "main/probe"}
        self.assertTrue(self.order(0, order, self.secret.read_text().strip())["ok"])
        noted = lambda: 'relaunch of "main/probe" ordered by uid 0' in self.server.log()
        self.assertTrue(until(noted, 3), self.server.log())

    def test_the_secret_is_another_at_each_start_and_gone_at_the_end(self):
        first = self.secret.read_text()
        self.assertEqual(self.server.stop(), 0)
        self.assertFalse(self.secret.exists())
        self.server.start()
        self.assertNotEqual(self.secret.read_text(), first)
        self.assertTrue(self.server.order(command="status")["ok"])

    def test_the_command_says_what_it_cannot_read(self):
        self.secret.unlink()
        answer = self.server.command("status", "--config", self.server.config)
        self.assertEqual(answer.returncode, 1)
        self.assertIn(f"no permission to give orders: cannot read {self.secret}", answer.stderr)


@rootless_too
@unittest.skipUnless(refuses_descriptors(), "this kernel refuses none")
class Owned(unittest.TestCase):
    """An admin role that was taken over."""

    def test_the_command_takes_no_descriptor_from_it(self):
        """One that lingers would hold whoever closes it last."""
        with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as role:
            run = Path(folder, "run")
            run.mkdir()
            (run / "admin.secret").write_text("x\n")
            role.bind(str(run / "admin.sock"))
            role.listen()
            role.settimeout(10)
            command = subprocess.Popen([program("bulkhead"), "status", "--run-dir", run], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            peer, _ = role.accept()
            with peer, socket.socket() as sent:
                with self.assertRaises(PermissionError):
                    socket.send_fds(peer, [b"{"], [sent.fileno()])
                peer.recv(4096)
                peer.sendall(b'{"ok": false, "error": "owned"}')
            _, said = command.communicate(timeout=10)
            self.assertIn("owned", said)


class Owner(unittest.TestCase):
    def test_the_owner_gives_orders(self):
        with Server() as server:
            self.assertEqual((server.folder / "run/admin.sock").stat().st_uid, NOBODY if ROOTLESS else os.geteuid())
            answer = server.command("status", "--config", server.config)
            self.assertEqual(answer.returncode, 0, answer.stderr)

    def test_a_crowd_on_the_socket_keeps_nobody_waiting(self):
        with Server() as server:
            # As many as the socket takes are there for as long as anybody lets them be: one says nothing, the next one
            # half of an order, one all but the end of it, and one does not take its answers.
            secret = (server.folder / "run/admin.secret").read_bytes()
            said = (b"", secret[:9], secret + b'{"command":"stop"', secret + b'{"command":"status"}\n')

            def crowd():
                self.assertEqual([server.status(), server.status("/probe")], [200, 200])
                for number in range(CROWD):
                    peer = self.enterContext(socket.socket(socket.AF_UNIX))
                    peer.setblocking(False)
                    try:
                        peer.connect(str(server.folder / "run/admin.sock"))
                        peer.sendall(said[number % len(said)])
                    except OSError:
                        continue

            for words in (["status"], ["status", "--certificates"], ["bans"], ["relaunch", "main/probe"], ["stop"]):
                crowd()
                with self.subTest(words):
                    began = time.monotonic()
                    answer = server.command(*words, "--config", server.config, timeout=4 * PATIENCE)
                    self.assertEqual(answer.returncode, 0, answer.stderr)
                    self.assertLess(time.monotonic() - began, PATIENCE)
            self.assertEqual(server.wait(PATIENCE), 0)


if __name__ == "__main__":
    unittest.main()
