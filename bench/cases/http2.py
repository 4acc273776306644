"""HTTP/2 over TLS: small and middling files on few connections, and what an idle connection costs."""

import dataclasses

from benchlib.case import Bar, Case
from benchlib.idle import Idle
from benchlib.load import H2load

from .tls import H2O, NGINX, OURS

#: Idle connections may be many, and last.
LASTING = dataclasses.replace(OURS, config="idle-ours.toml")


def idle(name, title, protocol, connections, *bars):
    return Case(name, title, (LASTING, NGINX), Idle(protocol, connections), bars, tls=True, fresh=True, rounds=3,
                figures=("kib_each", "memory_mib"),
                note="Proportional set sizes of all processes; the kernel's buffers are not in it.")


CASES = [
    Case("h2-100b", "HTTP/2 over TLS, 8 clients, 100 streams, 100 B", (OURS, NGINX, H2O), H2load("/100.bin", 8, 100),
         (Bar("nginx", 0.5), Bar("h2o", stretch=1.0)), tls=True),
    Case("h2-10k", "HTTP/2 over TLS, 8 clients, 32 streams, 10 KB", (OURS, NGINX, H2O), H2load("/10k.bin", 8, 32),
         (Bar("nginx", 0.9), Bar("h2o", stretch=1.2)), path="/10k.bin", tls=True),
    idle("idle-h2", "idle HTTP/2 TLS connection, memory", "h2", 10_000, Bar(limit=15.5, stretch=10.0, figure="kib_each")),
    idle("idle-tls", "idle TLS connection of HTTP/1.1, memory", "http/1.1", 2_000),
]
