"""HTTP/2 over TLS: small and middling files on few connections, and what an idle connection costs."""

import dataclasses

from benchlib.case import Bar, Case, Peer
from benchlib.load import H2load

from .tls import H2O, NGINX, OURS

CASES = [
    Case("h2-100b", "HTTP/2 over TLS, 8 clients, 100 streams, 100 B", (OURS, NGINX, H2O), H2load("/100.bin", 8, 100),
         (Bar("nginx", 0.5), Bar("h2o", stretch=1.0)), tls=True),
    Case("h2-10k", "HTTP/2 over TLS, 8 clients, 32 streams, 10 KB", (OURS, NGINX, H2O), H2load("/10k.bin", 8, 32),
         (Bar("nginx", 0.9), Bar("h2o", stretch=1.2)), path="/10k.bin", tls=True),
]
