"""The server whose other clients are measured: files, PHP and an HTTP server behind it, with and without TLS; and a site of an attacker's."""

import os
import pathlib
import subprocess

import tls_server
from backend import Echo, Fpm, HttpServer
from fuse_tree import Tree
from harness import Server, children, free_port, program

USER = "a:$2y$04$CCCCCCCCCCCCCCCCCCCCCu6Ry1Yy8D0LpHlAr5zQ3LVvY3YF8XPqS\n"

CONFIG = """
include = "sites/*.toml"
[[listen]]
address = "127.0.0.1:{port}"
[[listen]]
address = "127.0.0.1:{tls}"
tls = true

[[listen]]
address = "127.0.0.2:{port}"

[server]
gates = 1

[restart]
broken_after = 1000
within = "1h"
backoff_max = "10ms"

[conditioning]
exempt = []

[[site]]
name = "main"
host = ["main.test", "127.0.0.1"]
root = "main"
certificates = ["all.pem"]
  [[site.route]]
  suffix = ".php"
  fastcgi = "unix:{php}"
  requests = 3
  [[site.route]]
  path = "/behind/"
  upstream = "127.0.0.1:{behind}"
  [[site.route]]
  path = "/streamed/"
  upstream = "127.0.0.1:{behind}"
  buffer = false
  [[site.service]]
  name = "probe"
  path = "/probe"
  command = ["bin/probe"]

[[site]]
name = "spooled"
host = ["spooled.test", "127.0.0.2"]
body_bytes = "3MiB"
spool_bytes = "5MiB"
  [[site.route]]
  path = "/behind/"
  upstream = "127.0.0.1:{behind}"

[[site]]
name = "far"
host = ["far.test"]
root = "far/www"
certificates = ["far/far.pem"]
  [[site.service]]
  name = "far"
  path = "/far"
  command = ["far/bin/far"]
  [[site.route]]
  path = "/closed/"
  auth = {{ users = "far/users", realm = "0" }}

[[site]]
name = "owned"
host = ["owned.test"]
  [[site.service]]
  name = "owned"
  path = "/owned"
  command = ["bin/owned"]
  takes_connections = true
  [[site.service]]
  name = "slow"
  path = "/slow"
  command = ["bin/slow"]
  takes_connections = true
  [[site.service]]
  name = "sparse"
  path = "/sparse"
  command = ["bin/sparse"]
  takes_connections = true
  [site.templates]
  folder = "templates"
"""


class Victims:
    """Use it with `with`; `stack` ends what it starts."""

    def __init__(self, stack):
        self.stack = stack

    def __enter__(self):
        files = {"sites/.keep": "", "templates/0.html": "x", "main/page.txt": "x" * 1000, "main/ok.php": "<?php echo 'ok';", "main/form.php": "<?php echo strlen(file_get_contents('php://input'));",
                 "real/www/index.html": "far\n", "real/users": USER}
        self.tls = free_port()
        behind = self.stack.enter_context(HttpServer(Echo))
        # Attackers go in the middle of their requests.
        behind.server.handle_error = lambda *_: None
        server = Server(sites=[], programs=("probe",), files=files, text=lambda port: "")
        fpm = Fpm(server.folder)
        self.stack.callback(fpm.close)
        certificate = b"".join(tls_server.certificate(server.folder, "all", "ec", "main.test", "127.0.0.1"))
        server.write("all.pem", certificate)
        self.tree = self.stack.enter_context(self.far(server))
        words = {"port": server.port, "tls": self.tls, "php": fpm.socket, "behind": behind.port}
        server.config.write_text(server.with_uids(CONFIG.format(**words)))
        owned = server.folder / "owned"
        source = pathlib.Path(__file__).with_name("owned.c")
        subprocess.run(["cc", "-O1", "-Wall", "-Werror", "-static", "-o", owned, source], check=True, timeout=60)
        for name in ("owned", "slow", "sparse"):
            server.copy_program(str(owned), name)
        self.server = self.stack.enter_context(server)
        self.port = server.port
        for process in [server.launcher, *children(server.launcher.pid)]:
            os.sched_setaffinity(process.pid, {0})
        return self

    @staticmethod
    def far(server):
        """All of a tenant's on a file system of its own."""
        server.write("real/far.pem", b"".join(tls_server.certificate(server.folder, "far", "ec", "far.test")))
        server.write("real/bin/far", pathlib.Path(program("probe")).read_bytes()).chmod(0o755)
        (server.folder / "far").mkdir()
        real = server.folder / "real"
        for path in [real, *real.rglob("*")]:
            os.chown(path, 1001, 1001)
        return Tree(real, server.folder / "far")

    def __exit__(self, *_):
        pass
