"""A network namespace of our own, in which whole networks are local: clients may come from any address of many /8s.

Run by tests and benchmarks, as root. Nothing can leave the namespace: its only interface is its own loopback device.
It has no name; the kernel takes it away with the last process that is in it, however that ended.

    with Networks():                          # this process, and whatever it starts, is inside
        with Server(...) as server:           # listens on 127.0.0.1, which is the namespace's own
            socket.create_connection(("127.0.0.1", server.port), source_address=("20.7.0.1", 0))
"""

import ctypes
import ipaddress
import os
import subprocess

CLONE_NEWNET = 0x40000000
#: Twenty IPv4 networks of 8 bits and one IPv6 network, all of them nobody's but ours in here.
EVERYWHERE = tuple(f"{first}.0.0.0/8" for first in range(20, 40)) + ("2001:db8::/32",)
#: Where a client comes from that names no other source: an address for servers to be reached at.
SERVER = "192.0.2.1"
#: Send buffers as on a slow line, so that a response is not swallowed by loopback's four megabytes.
SETTINGS = {
    "net/ipv4/ip_local_port_range": "10000 65535",
    "net/ipv4/tcp_wmem": "4096 16384 131072",
    "net/ipv4/tcp_max_syn_backlog": "8192",
}

libc = ctypes.CDLL(None, use_errno=True)


def _call(function, *arguments):
    if function(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{function.__name__}: {os.strerror(number)}")


class Networks:
    """The namespace: `with` makes it and moves this thread into it, and leaves it at the end."""

    def __init__(self, networks=EVERYWHERE, settings=None):
        self.networks = networks
        self.settings = SETTINGS | (settings or {})
        self.outside = None

    def __enter__(self):
        self.outside = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        try:
            _call(libc.unshare, CLONE_NEWNET)
            self._furnish()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        _call(libc.setns, self.outside, CLONE_NEWNET)
        os.close(self.outside)

    def _furnish(self):
        ip("link", "set", "lo", "up")
        for network in (*self.networks, f"{SERVER}/32"):
            ip("-6" if ":" in network else "-4", "route", "add", "local", network, "dev", "lo")
        for name, value in self.settings.items():
            with open(f"/proc/sys/{name}", "w", encoding="ascii") as file:
                file.write(value)


def ip(*words):
    """One command of iproute2."""
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


def addresses(network, count):
    """`count` different addresses, spread over the whole of a network (`"20.1.0.0/16"`), its first one left out."""
    network = ipaddress.ip_network(network)
    if count >= network.num_addresses:
        raise ValueError(f"{network} has no {count} addresses for clients")
    step = (network.num_addresses - 1) // count
    return [str(network[1 + index * step]) for index in range(count)]
