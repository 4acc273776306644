"""A server with TLS, for tests of it; certificates for it and for its clients, by OpenSSL."""

import os
import re
import shutil
import socket
import ssl
import subprocess

from harness import ROOTLESS, Server, free_port

CONFIG = """
[[listen]]
address = "127.0.0.1:{port}"
redirect_to_https = true

[[listen]]
address = "127.0.0.1:{tls}"
tls = true

[server]
gates = 2

[log]
flush = "100ms"

[conditioning]
checks = "{conditioning}"

[limits]
{limits}

[tls]
reread = "1s"
tamper_exempt = []
{settings}

[[site]]
name = "a"
host = ["a.test", "*.a.test"]
root = "a"
certificates = ["a-ecdsa.pem", "a-rsa.pem", "a-wildcard.pem"]

[[site]]
name = "b"
host = ["b.test"]
root = "b"
certificates = ["b.pem"]
{more}

[[site]]
name = "plain"
host = ["plain.test"]
root = "plain"
"""

KINDS = {"ec": ["ec", "-pkeyopt", "ec_paramgen_curve:P-256"], "rsa": ["rsa:2048"], "ed25519": ["ed25519"]}


def openssl(*words, **more):
    return subprocess.run(["openssl", *words], check=True, capture_output=True, timeout=20, **more).stdout


def certificate(folder, name, kind, *hosts):
    """A self-signed certificate, with its key, in one file; the key alone in another, which no configuration names."""
    key, cert = folder / f"{name}.key", folder / f"{name}.crt"
    openssl(
        "req", "-x509", "-newkey", *KINDS[kind], "-nodes", "-days", "2", "-subj", f"/CN={name}", "-keyout", key,
        "-out", cert, "-addext", "subjectAltName=" + ",".join(f"DNS:{host}" for host in hosts),
    )
    return cert.read_bytes(), key.read_bytes()


def client_certificate(folder, name, authority):
    """A client's certificate with its key, signed by the certificate AUTHORITY of the folder."""
    key, asked, cert = (folder / f"{name}.{end}" for end in ("key", "csr", "crt"))
    subject = ["-subj", f"/CN={name}"]
    openssl("req", "-new", "-newkey", *KINDS["ec"], "-nodes", *subject, "-keyout", key, "-out", asked)
    ends = folder / "ends"
    ends.write_text("basicConstraints=CA:FALSE\nextendedKeyUsage=clientAuth\n")
    by = ["-CA", folder / f"{authority}.crt", "-CAkey", folder / f"{authority}.key", "-CAcreateserial"]
    openssl("x509", "-req", "-in", asked, *by, "-days", "2", "-extfile", ends, "-out", cert)
    return cert.read_bytes() + key.read_bytes()


class Tls(Server):
    """A server with TLS, and clients of it."""

    def __init__(self, settings="", more="", conditioning="strict", limits="", **others):
        self.tls = free_port()
        text = lambda port: CONFIG.format(
            port=port, tls=self.tls, settings=settings, more=more, conditioning=conditioning, limits=limits
        )
        super().__init__(sites=[], programs=(), text=text, **others)
        self.keys = self.folder / "keys"
        self.keys.mkdir()
        for name in ("a", "b", "plain"):
            self.write(f"{name}/index.html", f"{name}\n")
            self.write(f"{name}/large", b"x" * 3_000_000)
        # Key and chain in both orders.
        self.install("a-ecdsa", "ec", "a.test", key_first=True)
        self.install("a-rsa", "rsa", "a.test", "*.a.test")
        self.install("a-wildcard", "ec", "*.a.test")
        self.install("b", "ed25519", "b.test")

    def install(self, name, kind, *hosts, key_first=False):
        cert, key = certificate(self.keys, name, kind, *hosts)
        new = self.write(f"{name}.new", key + cert if key_first else cert + key)
        new.chmod(0o600)
        if ROOTLESS and os.geteuid() == 0:
            shutil.chown(new, 65534, 65534)
        new.rename(self.folder / f"{name}.pem")
        return cert

    def curl(self, url, *words):
        """What curl says: its exit status and its output."""
        resolve = []
        for host in ("a.test", "x.a.test", "b.test", "c.test"):
            for port in (self.tls, self.port):
                resolve += ["--resolve", f"{host}:{port}:127.0.0.1"]
        command = ["curl", "-sS", "-k", "--max-time", "10", *resolve, *words, url.format(tls=self.tls, port=self.port)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
        return done.returncode, done.stdout + done.stderr

    def s_client(self, name, *words):
        command = ["openssl", "s_client", "-connect", f"127.0.0.1:{self.tls}", "-servername", name, *words]
        return subprocess.run(
            command, input="GET / HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n", capture_output=True, text=True,
            timeout=20, check=False,
        ).stdout

    def subject(self, name, *words):
        """Whose certificate a client gets."""
        found = re.search(r"subject=CN = (\S+)", self.s_client(name, *words))
        return found and found[1]

    def connect_tls(self, name="a.test", source=None, context=None):
        context = context or insecure()
        raw = socket.create_connection(("127.0.0.1", self.tls), 10, source and (source, 0))
        return context.wrap_socket(raw, server_hostname=name)

    def get_tls(self, name="a.test", source=None, context=None):
        with self.connect_tls(name, source, context) as stream:
            stream.sendall(f"GET / HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n".encode())
            return b"".join(iter(lambda: stream.recv(65536), b""))


def insecure():
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context
