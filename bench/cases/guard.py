"""`bulkhead guard` before nginx and Apache: the same server, with the same configuration, with and without it."""

from benchlib.case import Bar, Case, Peer
from benchlib.load import Wrk

SERVERS = {"nginx": Peer("nginx", "nginx", "static-nginx.conf"), "apache": Peer("Apache", "apache", "static-apache.conf")}


def guarded(key, title, close, limit, stretch):
    alone = SERVERS[key]
    ours = Peer("ours", alone.kind, alone.config, guard=True)
    mode = "close" if close else "keep"
    return Case(f"guard-{key}-{mode}", f"`guard` before {title}, {'close' if close else 'kept alive'}", (ours, alone),
                Wrk("/100.bin", close=close), (Bar(alone.name, limit, stretch),))


CASES = [
    guarded("nginx", "nginx", False, 1.5, 1.15),
    guarded("nginx", "nginx", True, 1.6, 1.3),
    guarded("apache", "Apache (event)", False, 1.2, 1.0),
    guarded("apache", "Apache (event)", True, 1.25, 1.0),
]
