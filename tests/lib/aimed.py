"""Sockets that connect with the first bytes that are written to them."""

from pathlib import Path


def sends_with_its_first_bytes():
    """Whether sockets here can connect so (`tcp_fastopen` in tcp(7))."""
    return int(Path("/proc/sys/net/ipv4/tcp_fastopen").read_text()) & 1


def count_sockets(process):
    """How many sockets a process has."""
    return sum(name.startswith("socket:") for name in process.descriptors().values())
