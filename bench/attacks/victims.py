"""The server whose other clients are measured: files, PHP and an HTTP server behind it, with and without TLS; and a site of an attacker's."""

import os
import pathlib
import subprocess

import tls_server
from backend import Echo, Fpm, HttpServer
from harness import Server, children, free_port

CONFIG = """
include = "sites/*.toml"
[[listen]]
address = "127.0.0.1:{port}"
[[listen]]
address = "127.0.0.1:{tls}"
tls = true

[server]
gates = 1

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
        files = {"sites/.keep": "", "templates/0.html": "x", "main/page.txt": "x" * 1000, "main/ok.php": "<?php echo 'ok';", "main/form.php": "<?php echo strlen(file_get_contents('php://input'));"}
        self.tls = free_port()
        behind = self.stack.enter_context(HttpServer(Echo))
        server = Server(sites=[], programs=(), files=files, text=lambda port: "")
        fpm = Fpm(server.folder)
        self.stack.callback(fpm.close)
        certificate = b"".join(tls_server.certificate(server.folder, "all", "ec", "main.test", "127.0.0.1"))
        server.write("all.pem", certificate)
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

    def __exit__(self, *_):
        pass
