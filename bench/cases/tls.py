"""TLS: new connections, kept-alive ones, and full handshakes with each kind of key.

The same certificate for every server; TLS 1.3, since every client here offers it. No client resumes a session.
"""

from benchlib.case import Bar, Case, Peer
from benchlib.load import Handshakes, Wrk

OURS = Peer("ours", config="tls-ours.toml")
NGINX, H2O = Peer("nginx", "nginx", "tls-nginx.conf"), Peer("h2o", "h2o", "tls-h2o.conf")
#: With the order of suites that Bulkhead has.
AES_128 = Peer("nginx with AES-128", "nginx", "tls-nginx.conf", values={"SUITES": "on"})


def kept(name, title, path, *bars):
    return Case(name, f"TLS, {title}, kept alive", (OURS, NGINX, AES_128, H2O), Wrk(path, scheme="https"), bars, path=path, tls=True)


def handshakes(key, title, limit, stretch):
    return Case(f"handshakes-{key}", f"TLS, full handshakes per second of CPU, {title}", (OURS, NGINX, AES_128), Handshakes(),
                (Bar("nginx", limit, stretch, figure="per_cpu_second", more=True),), tls=True, key=key,
                figures=("per_cpu_second", "cpu_us"))


CASES = [
    Case("tls-close", "TLS, new connections, 100 B", (OURS, NGINX, AES_128, H2O), Wrk("/100.bin", close=True, scheme="https"),
         (Bar("nginx", 0.75, 0.65),), tls=True),
    kept("tls-100b", "100 B", "/100.bin", Bar("nginx", 0.56)),
    kept("tls-10k", "10 KB", "/10k.bin", Bar("nginx", 0.64)),
    kept("tls-1m", "1 MB", "/1m.bin", Bar("nginx", 0.64), Bar("h2o", stretch=1.0)),
    handshakes("p256", "P-256", 1.3, 1.5),
    handshakes("rsa2048", "RSA-2048", 1.1, 1.15),
    handshakes("rsa4096", "RSA-4096", 1.8, 2.0),
]
