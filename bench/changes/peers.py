"""The servers whose configuration changes: each with the site `steady`, which stays, and others that come, change and go."""

import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile

import client
from harness import free_port
from steady import Plan
from tls_server import certificate

#: Each server has its own defaults for what becomes of open connections.
NGINX = """
user nobody nogroup;
daemon off;
worker_processes 2;
pid {folder}/pid;
error_log {folder}/error.log;
events {{ worker_connections 4096; }}
http {{
    access_log {folder}/access.log;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    server_names_hash_bucket_size 128;
    map $http_upgrade $connection_upgrade {{ default upgrade; '' ''; }}
    upstream behind {{ server {behind}; keepalive 64; }}
    {servers}
}}
"""
NGINX_SITE = """server {{
    {listen}
    server_name {name}.test;
    root {root};
    {tls}
    {proxied}
}}
"""
NGINX_PROXIED = """location ~ ^/(probe|socket) {
        proxy_pass http://behind;
        proxy_http_version 1.1;
        proxy_request_buffering off;
        proxy_set_header Host $host;
        proxy_set_header Upgrade $http_upgrade;
        proxy_set_header Connection $connection_upgrade;
        proxy_read_timeout 1h;
    }"""
CADDY = """{{
    auto_https off
    admin unix/{folder}/admin.sock
    persist_config off
    storage file_system {folder}/storage
}}
{sites}
"""
CADDY_SITE = """{addresses} {{
    root * {root}
    {tls}
    {proxied}
    file_server
}}
"""
CADDY_PROXIED = """@behind path /probe* /socket*
    reverse_proxy @behind {behind}"""
BULKHEAD = """
[[listen]]
address = "127.0.0.1:{port}"

[[listen]]
address = "127.0.0.1:{tls}"
tls = true
{listeners}
[server]
gates = 2

[conditioning]
exempt = ["127.0.0.0/8"]
body_min_rate = "0B/s"
{sites}
"""


class Peer(Plan):
    """A server with a folder of its own, and one change of each kind after the other."""

    def __init__(self, program, behind):
        super().__init__()
        self.program, self.behind = str(program), behind
        self.port, self.tls = free_port(), free_port()
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="bulkhead-changes-", dir="/tmp"))
        self.folder.chmod(0o755)
        for root in ("steady", "other", "another"):
            (self.folder / root).mkdir()
            (self.folder / root / "index.html").write_text(f"{root}\n")
        (self.folder / "keys").mkdir()
        for name, host in (("steady", "steady"), ("moving-0", "moving"), ("moving-1", "moving")):
            made = self.folder / f"{name}.pem"
            made.write_bytes(b"".join(certificate(self.folder / "keys", name, "ec", f"{host}.test")))
            made.chmod(0o600)

    def __enter__(self):
        self.write()
        self.process = subprocess.Popen(self.command(), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                        stderr=open(self.folder / "said", "w"), cwd=self.folder)
        if not client.until(lambda: client.status(self.port, "/", "steady.test") == 200, 20):
            raise RuntimeError(f"{self.name} does not come up: {(self.folder / 'said').read_text()}")
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(10)
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def next_change(self):
        """Writes one more change and has it read; which kind it was, once clients see it."""
        kind = self.plan_next()
        self.write()
        subprocess.run(self.reload(), check=True, capture_output=True, cwd=self.folder, timeout=60)
        page = f"{self.roots['other']}\n".encode()
        client.until(lambda: self.page() == page, 10)
        return kind

    def page(self):
        """What a client of the site `other` gets."""
        try:
            return client.get(self.port, "/", "other.test").body
        except OSError:
            return None


class Bulkhead(Peer):
    """Ours."""

    name = "bulkhead"

    def command(self):
        return [self.program, "run", str(self.folder / "bulkhead.toml")]

    def reload(self):
        return [self.program, "reload", "--run-dir", str(self.folder / "run")]

    def write(self):
        site = '\n[[site]]\nname = "{0}"\nhost = ["{0}.test"]\nroot = "{1}"\n{2}'
        proxied = "".join(f'[[site.route]]\npath = "/{path}"\nupstream = "{self.behind}"\n' for path in ("probe", "socket"))
        sites = [site.format("steady", "steady", f'certificates = ["steady.pem"]\n{proxied}'),
                 site.format("moving", "other", f'certificates = ["moving-{self.certificates}.pem"]\n'),
                 *(site.format(name, root, "") for name, root in self.roots.items())]
        listeners = "".join(f'\n[[listen]]\naddress = "127.0.0.1:{at}"\n' for at in self.listeners)
        (self.folder / "bulkhead.toml").write_text(BULKHEAD.format(
            port=self.port, tls=self.tls, listeners=listeners, sites="".join(sites)))


class Nginx(Peer):
    """nginx, which starts new workers and has the old ones finish what they have begun."""

    name = "nginx"

    def command(self):
        return [self.program, "-p", str(self.folder), "-c", str(self.folder / "nginx.conf")]

    def reload(self):
        return [*self.command(), "-s", "reload"]

    def write(self):
        def site(name, root, pem=None, proxied=""):
            ports = "".join(f"listen 127.0.0.1:{port}; " for port in [self.port, *self.listeners])
            tls = f"ssl_certificate {self.folder}/{pem}; ssl_certificate_key {self.folder}/{pem};" if pem else ""
            listen = ports + (f"listen 127.0.0.1:{self.tls} ssl http2;" if pem else "")
            return NGINX_SITE.format(name=name, root=self.folder / root, listen=listen, tls=tls, proxied=proxied)

        servers = [site("steady", "steady", "steady.pem", NGINX_PROXIED), site("moving", "other", f"moving-{self.certificates}.pem"),
                   *(site(name, root) for name, root in self.roots.items())]
        (self.folder / "nginx.conf").write_text(NGINX.format(
            folder=self.folder, behind=self.behind, servers="".join(servers)))


class Caddy(Peer):
    """Caddy, whose one process takes the new configuration."""

    name = "caddy"

    def command(self):
        return [self.program, "run", "--config", str(self.folder / "Caddyfile"), "--adapter", "caddyfile"]

    def reload(self):
        return [self.program, "reload", "--config", str(self.folder / "Caddyfile"), "--adapter", "caddyfile", "--address",
                f"unix/{self.folder}/admin.sock"]

    def write(self):
        def site(name, root, pem=None, proxied=""):
            ports = [f"http://{name}.test:{port}" for port in [self.port, *self.listeners]]
            plain = CADDY_SITE.format(addresses=", ".join(ports), root=self.folder / root, tls="", proxied=proxied)
            if not pem:
                return plain
            pem = f"{self.folder}/{pem}"
            address = f"https://{name}.test:{self.tls}"
            return plain + CADDY_SITE.format(
                addresses=address, root=self.folder / root, tls=f"tls {pem} {pem}", proxied=proxied)

        proxied = CADDY_PROXIED.format(behind=self.behind)
        sites = [site("steady", "steady", "steady.pem", proxied), site("moving", "other", f"moving-{self.certificates}.pem"),
                 *(site(name, root) for name, root in self.roots.items())]
        (self.folder / "Caddyfile").write_text(CADDY.format(folder=self.folder, sites="".join(sites)))


def programs(bulkhead):
    """The servers that are there: ours in this folder, others where a shell finds them or where Go installs programs."""
    here = os.environ.get("PATH", "") + f":/usr/sbin:{os.environ.get('GOBIN') or pathlib.Path.home() / 'go/bin'}"
    found = {Bulkhead: str(pathlib.Path(bulkhead) / "bulkhead"), Nginx: shutil.which("nginx", path=here),
             Caddy: shutil.which("caddy", path=here)}
    return {peer: program for peer, program in found.items() if program}

