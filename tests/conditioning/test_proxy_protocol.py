"""Listeners behind a proxy that says, by the PROXY protocol, who a client is."""

import ipaddress
import socket
import struct
import unittest

import client
from harness import Server, configuration, rootless_too, site

REQUEST = b"GET / HTTP/1.1\r\nHost: main.test\r\nConnection: close\r\n\r\n"


def text(*trusted):
    """A configuration whose listener trusts these."""

    def write(port):
        listed = ", ".join(f'"{one}"' for one in trusted)
        keys = f"proxy_protocol = true\ntrusted = [{listed}]\n\n[server]"
        return configuration(port, [site()], {}).replace("\n[server]", keys, 1)

    return write


def version2(peer, local, port=4711):
    from_, to = ipaddress.ip_address(peer), ipaddress.ip_address(local)
    addresses = from_.packed + to.packed + struct.pack(">HH", port, 80)
    family = 0x11 if from_.version == 4 else 0x21
    return b"\r\n\r\n\0\r\nQUIT\n" + struct.pack(">BBH", 0x21, family, len(addresses)) + addresses


def ask(port, *parts, pause=0.05, source=None):
    with socket.create_connection(("127.0.0.1", port), 5, (source, 0) if source else None) as peer:
        for number, part in enumerate(parts):
            if number:
                client.time.sleep(pause)
            peer.sendall(part)
        said = b""
        try:
            while more := peer.recv(65536):
                said += more
        except ConnectionResetError:
            pass
        return said


@rootless_too
class ProxyProtocol(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server(sites=[site()], programs=(), text=text("127.0.0.1/32"), answers=None)
        # Its own check for being up would not be answered.
        cls.server.answers = True
        cls.enterClassContext(cls.server)

    def last_peer(self, address):
        return client.until(lambda: f"\n{address} " in "\n" + self.server.log("main.access"), 5)

    def test_the_client_is_whom_the_proxy_names(self):
        headers = {
            "192.0.2.1": b"PROXY TCP4 192.0.2.1 127.0.0.1 4711 80\r\n",
            "2001:db8::1": b"PROXY TCP6 2001:db8::1 ::1 4711 80\r\n",
            "192.0.2.2": version2("192.0.2.2", "127.0.0.1"),
            "2001:db8::2": version2("2001:db8::2", "::1"),
        }
        for address, header in headers.items():
            self.assertTrue(ask(self.server.port, header + REQUEST).startswith(b"HTTP/1.1 200"), address)
            self.assertTrue(self.last_peer(address), self.server.log("main.access"))

    def test_a_header_may_come_in_pieces(self):
        for header in (b"PROXY TCP4 192.0.2.9 127.0.0.1 4711 80\r\n", version2("192.0.2.9", "127.0.0.1")):
            parts = [header[:3], header[3:14], header[14:], REQUEST[:5], REQUEST[5:]]
            self.assertTrue(ask(self.server.port, *parts).startswith(b"HTTP/1.1 200"))

    def test_a_proxy_speaks_for_itself(self):
        for header in (b"PROXY UNKNOWN\r\n", b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0"):
            self.assertTrue(ask(self.server.port, header + REQUEST).startswith(b"HTTP/1.1 200"))

    def test_without_a_header_there_is_nothing(self):
        for bad in (REQUEST, b"PROXY TCP4 1 2 3 4\r\n" + REQUEST, b"PROXY" + REQUEST, b"\x16\x03\x01\x00\x01\x01"):
            self.assertTrue(ask(self.server.port, bad).startswith(b"HTTP/1.1 400"), bad)
        # A second one is no request either.
        header = b"PROXY TCP4 192.0.2.1 127.0.0.1 4711 80\r\n"
        self.assertTrue(ask(self.server.port, header + header + REQUEST).startswith(b"HTTP/1.1 400"))

    def test_who_is_not_trusted_is_not_heard(self):
        header = b"PROXY TCP4 192.0.2.66 127.0.0.1 4711 80\r\n"
        self.assertEqual(ask(self.server.port, header + REQUEST, source="127.0.0.2"), b"")
        self.assertNotIn("192.0.2.66", self.server.log("main.access"))
