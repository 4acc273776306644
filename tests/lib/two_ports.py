"""A server on two ports, in plaintext and under TLS, with servers behind its site that hang; and clients of HTTP/2."""

import socket

from frames import Http2
from harness import ROOTLESS, Server, free_port
from tls_server import certificate

#: LIMIT: seconds for an answer on a machine that has much else to do; who starves waits for as long as somebody hangs.
PATIENCE = 20

CONFIG = """
[[listen]]
address = "127.0.0.1:{port}"
h2c = true

[[listen]]
address = "127.0.0.1:{tls}"
tls = true

[server]
user_range = "51001-51999"
state_dir = "state"
run_dir = "run"
log_dir = "log"
gates = 1

[limits]
drain_timeout = "1s"
{limits}
[tls]

[[site]]
name = "main"
host = ["main.test"]
root = "main"
certificates = ["main.pem"]
{routes}
  [[site.service]]
  name = "probe"
  path = "/probe"
  command = ["bin/probe"]
"""


class Two(Server):
    """The server. `limits` and `routes` are parts of its configuration, in TOML."""

    def __init__(self, limits, routes):
        self.tls = free_port()
        text = lambda port: CONFIG.format(port=port, tls=self.tls, limits=limits, routes=routes)
        super().__init__(sites=[], text=text, files={"main/index.html": "the files", "main/x.php": ""})
        cert, key = certificate(self.write("keys/x", "").parent, "main", "ec", "main.test")
        self.write("main.pem", cert + key).chmod(0o644 if ROOTLESS else 0o600)


class PlainHttp2(Http2):
    """A client of HTTP/2 in plaintext."""

    def __init__(self, port):
        self.begin(socket.create_connection(("127.0.0.1", port), timeout=PATIENCE))


def lines(path, method=b"GET", scheme=b"http"):
    return [(b":method", method), (b":scheme", scheme), (b":authority", b"main.test"), (b":path", path.encode())]
