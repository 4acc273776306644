"""The server that the protocol tests talk to: Bulkhead with plaintext and TLS, or nginx in its place.

With `--peer nginx` the same tests are run against nginx: a check of the tests themselves. Certificates are made once a
run, by a certificate authority of the run's own; nothing trusts it but the tests.
"""

import atexit
import base64
import functools
import hashlib
import os
import shutil
import ssl
import subprocess
import tempfile
from pathlib import Path

import client
from harness import Server, configuration, end, free_port, service, site

#: Which server is tested: `bulkhead` or `nginx`.
PEER = os.environ.get("BULKHEAD_PROTOCOL_PEER") or "bulkhead"
#: Whether the server has TLS; unset it to try the plaintext tests alone.
TLS = os.environ.get("BULKHEAD_PROTOCOL_TLS", "1") != "0"
HOSTS = ["main.test", "localhost"]
DAYS = "300"


def run(*words, seconds=60, **more):
    """Runs a command to its end, whatever that is."""
    more = {"stdin": subprocess.DEVNULL} | more if "input" not in more else more
    return subprocess.run(
        [str(word) for word in words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=seconds,
        check=False, errors="replace", **more,
    )


def must(*words, **more):
    """What a command that must succeed has printed."""
    done = run(*words, **more)
    if done.returncode:
        raise AssertionError(f"{' '.join(map(str, words))}: {done.returncode}\n{done.stdout}")
    return done.stdout


@functools.cache
def certificates():
    """A folder with `ca.pem`, and `ecdsa.pem` and `rsa.pem`: key, certificate and chain in one file each."""
    folder = Path(tempfile.mkdtemp(prefix="bulkhead-certificates-", dir="/tmp"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256")
    must(
        "openssl", "req", "-x509", *curve, "-nodes", "-days", DAYS, "-subj", "/CN=Bulkhead test authority",
        "-keyout", folder / "ca.key", "-out", folder / "ca.pem", "-addext", "basicConstraints=critical,CA:TRUE",
        "-addext", "keyUsage=critical,keyCertSign,cRLSign",
    )
    extensions = folder / "extensions"
    extensions.write_text(
        "basicConstraints=CA:FALSE\nkeyUsage=critical,digitalSignature\nextendedKeyUsage=serverAuth\n"
        "subjectAltName=" + ",".join(f"DNS:{host}" for host in HOSTS) + "\n"
    )
    for name, kind in (("ecdsa", curve), ("rsa", ("-newkey", "rsa:2048"))):
        key, asked, made = (folder / f"{name}.{end}" for end in ("key", "csr", "crt"))
        must("openssl", "req", *kind, "-nodes", "-subj", f"/CN={HOSTS[0]}", "-keyout", key, "-out", asked)
        must(
            "openssl", "x509", "-req", "-in", asked, "-CA", folder / "ca.pem", "-CAkey", folder / "ca.key", "-days", DAYS,
            "-CAcreateserial", "-extfile", extensions, "-out", made,
        )
        folder.joinpath(f"{name}.pem").write_text(key.read_text() + made.read_text() + (folder / "ca.pem").read_text())
    return folder


def key_hash(name):
    """The hash of a certificate's public key, as Chromium wants it."""
    public = run("openssl", "x509", "-in", certificates() / f"{name}.crt", "-noout", "-pubkey").stdout
    der = subprocess.run(
        ["openssl", "pkey", "-pubin", "-outform", "der"], input=public.encode(), capture_output=True, check=True
    ).stdout
    return base64.b64encode(hashlib.sha256(der).digest()).decode()


class Clients:
    """What both servers have in common for whoever talks to them; they have `port` and `tls_port`."""

    @property
    def url(self):
        return f"https://main.test:{self.tls_port}"

    @property
    def local_url(self):
        """For clients that cannot be told an address."""
        return f"https://localhost:{self.tls_port}"

    @staticmethod
    def context(**more):
        """A client's TLS context, which trusts the tests' authority alone."""
        context = ssl.create_default_context(cafile=certificates() / "ca.pem")
        for name, value in more.items():
            setattr(context, name, value)
        return context

    def curl(self, *words, target="/", seconds=30):
        """What curl does with these options."""
        resolve = ("--resolve", f"main.test:{self.tls_port}:127.0.0.1")
        return run(
            "curl", "-sS", "--max-time", seconds, "--cacert", certificates() / "ca.pem", *resolve, *words,
            f"{self.url}{target}", seconds=seconds + 5,
        )

    def s_client(self, *words, request="", seconds=20):
        """What `openssl s_client` prints; `request` is sent, and read until the server closes."""
        more = ("-ign_eof",) if request else ()
        name = () if "-noservername" in words or "-servername" in words else ("-servername", "main.test")
        return run(
            "openssl", "s_client", "-connect", f"127.0.0.1:{self.tls_port}", *name, "-CAfile",
            certificates() / "ca.pem", *more, *words, input=request, seconds=seconds,
        )

    def get(self, target="/", **more):
        return client.get(self.port, target, "main.test", **more)


class Bulkhead(Clients, Server):
    """Bulkhead with a plaintext listener at `port` and a TLS listener at `tls_port`."""

    def __init__(self, files=None, programs=("probe",), tls=None, more_sites=(), certificate=None, routes=(), **settings):
        self.tls_port, self.settings = free_port(), settings | {"tls": tls or {}}
        pems = {f"{name}.pem": (certificates() / f"{name}.pem").read_text() for name in ("ecdsa", "rsa")}
        if certificate:
            pems = {"given.pem": certificate}
        certified = {"certificates": list(pems)} if TLS else {}
        services = [service(name, f"/{name}") for name in programs]
        if routes:
            certified["route"] = list(routes)
        self.all_sites = [site("main", services, host=HOSTS, **certified), *more_sites]
        files = {f"main/{name}": content for name, content in (files or {}).items()}
        super().__init__(self.all_sites, programs, files=pems | files, text=self._text)
        for name in pems:
            self.folder.joinpath(name).chmod(0o600)

    def _text(self, port):
        text = configuration(port, self.all_sites, self.settings)
        if TLS:
            text += f'\n[[listen]]\naddress = "127.0.0.1:{self.tls_port}"\ntls = true\n'
        return text

    get = Clients.get


NGINX = """\
daemon off;
pid {folder}/pid;
error_log {folder}/error.log warn;
worker_processes 1;
worker_rlimit_nofile 20000;
{user}
events {{ worker_connections 16000; }}
http {{
    access_log {folder}/access.log;
    types {{ text/html html; image/png png; text/css css; application/javascript js; }}
    client_body_temp_path {folder}/t1; proxy_temp_path {folder}/t2; fastcgi_temp_path {folder}/t3;
    uwsgi_temp_path {folder}/t4; scgi_temp_path {folder}/t5;
    keepalive_timeout 300s;
    keepalive_requests 1000000;
    map $https $hsts {{ on "max-age=31536000; includeSubDomains"; default ""; }}
    ssl_protocols {protocols};
    ssl_ciphers {ciphers};
    ssl_prefer_server_ciphers on;
    ssl_session_cache shared:all:10m;
    server {{
        listen 127.0.0.1:{port};
        listen 127.0.0.1:{tls_port} ssl http2;
        server_name main.test localhost;
        root {folder}/main;
        ssl_certificate ecdsa.pem; ssl_certificate_key ecdsa.pem;
        ssl_certificate rsa.pem; ssl_certificate_key rsa.pem;
        {headers}
        server_tokens off;
    }}
    server {{
        listen 127.0.0.1:{port} default_server;
        listen 127.0.0.1:{tls_port} ssl http2 default_server;
        ssl_reject_handshake on;
        return 404;
    }}
}}
"""
STRONG = "ECDHE+AESGCM:ECDHE+CHACHA20"
HEADERS = "add_header Strict-Transport-Security $hsts; add_header X-Content-Type-Options nosniff;"


class Nginx(Clients):
    """nginx, comparably configured; it has no service, and what is Bulkhead's own is not there."""

    def __init__(self, files=None, programs=(), protocols="TLSv1.2 TLSv1.3", ciphers=STRONG, headers=HEADERS, **_):
        self.folder = Path(tempfile.mkdtemp(prefix="bulkhead-test-", dir="/tmp"))
        self.folder.chmod(0o755)
        self.port, self.tls_port = free_port(), free_port()
        for name, content in ({"index.html": "<h1>main</h1>\n"} | (files or {})).items():
            self.write(f"main/{name}", content)
        for name in ("ecdsa", "rsa"):
            shutil.copy(certificates() / f"{name}.pem", self.folder)
        user = "user nobody nogroup;" if os.geteuid() == 0 else ""
        text = NGINX.format(
            folder=self.folder, port=self.port, tls_port=self.tls_port, protocols=protocols, ciphers=ciphers, user=user,
            headers=headers,
        )
        self.folder.joinpath("nginx.conf").write_text(text)
        self.process = None

    write = Server.write

    def __enter__(self):
        program = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
        words = [program or "nginx", "-p", str(self.folder), "-c", str(self.folder / "nginx.conf")]
        with open(self.folder / "stderr", "wb") as stderr:
            self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=stderr, stderr=stderr)
        if not client.until(lambda: client.status(self.port, timeout=1) == 200, 10):
            said = (self.folder / "stderr").read_text()
            self.__exit__()
            raise AssertionError(f"nginx does not come up: {said}")
        return self

    def __exit__(self, *_):
        end(self.process)
        shutil.rmtree(self.folder, ignore_errors=True)


def serve(**more):
    """The server to be tested; use it with `with`."""
    return Nginx(**more) if PEER == "nginx" else Bulkhead(**more)


def ours(thing):
    """Marks a test of what only Bulkhead has."""
    import unittest

    return unittest.skipUnless(PEER == "bulkhead", "only of Bulkhead")(thing)
