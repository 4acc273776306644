"""Mistakes of operators, each made with a server: what the client or the operator sees, and what the server says of it.

Each function makes the mistake that docs/guide/troubleshooting.md has under its first word, and returns what is seen,
where the cause is told, and what is said there. `World` has the servers that several of them share.
"""

import os
import shutil
import socket
import subprocess
import threading

import client
from backend import Mute, Raw
from harness import NOBODY, Server, free_port, program
from tls_server import certificate, insecure, openssl

#: What is seen of a start that is refused.
NO_START = "it does not start"
#: Where it is told.
ERROR_LOG = "`error.log`"
MISTAKES = {}


def mistake(function):
    MISTAKES[function.__name__.replace("_", "-")] = function
    return function


HEAD = """\
[[listen]]
address = "127.0.0.1:{port}"

[server]
user_range = "51001-51999"
state_dir = "state"
run_dir = "run"
log_dir = "log"
gates = 1

[[site]]
name = "main"
host = ["main.test"]
root = "main"
"""

ROUTES = """\
certificate = "main.pem"
body_bytes = "1KiB"

[log]
flush = "50ms"

[restart]
broken_after = 3
backoff_max = "10ms"

[[site.route]]
path = "/dead/"
upstream = "unix:dead.sock"

[[site.route]]
path = "/private-socket/"
upstream = "unix:locked.sock"

[[site.route]]
path = "/slow/"
upstream = "unix:slow.sock"
answer_timeout = "100ms"

[[site.route]]
path = "/cut/"
upstream = "unix:cut.sock"

[[site.route]]
path = "/plain-text/"
upstream = "unix:garbage.sock"

[[site.route]]
path = "/members/"
auth = {{ users = "users", realm = "Members" }}

[[site.route]]
path = "/offices/"
allow = ["10.0.0.0/8"]

[[site.route]]
suffix = ".php"
fastcgi = "unix:fpm.sock"

[[site.service]]
name = "crash"
path = "/crash"
command = ["bin/crash"]

[[listen]]
address = "127.0.0.1:{tls}"
tls = true
"""


class Cut(Raw):
    """Ends in the middle of an answer, when the client has the first half."""

    def serve(self, connection):
        self.has_half = threading.Event()
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
        self.has_half.wait(10)
        connection.close()


class World:
    """A server with many mistakes; use it with `with`."""

    def __enter__(self):
        self.tls = free_port()
        text = lambda port: (HEAD + ROUTES).format(port=port, tls=self.tls)
        self.server = server = Server([], ("crash",), text=text)
        cert, key = certificate(server.write("keys/x", "").parent, "main", "ec", "main.test")
        server.write("main.pem", cert + key).chmod(0o600)
        server.write("users", hashed("ann", "secret")).chmod(0o640)
        for name in ("index.html", "unreadable.html", "empty/x.html", ".git/config", "tool.php", "page.html"):
            server.write(f"main/{name}", f"{name}\n")
        (server.folder / "main/unreadable.html").chmod(0o600)
        (server.folder / "main/outside.html").symlink_to("/etc/hostname")
        self.backends = [
            Cut(path=server.folder / "cut.sock"), Mute(path=server.folder / "slow.sock"),
            Raw(path=server.folder / "garbage.sock", answer=lambda request: b"220 mail.test ESMTP\r\n\r\n"),
            Raw(path=server.folder / "locked.sock"),
        ]
        (server.folder / "locked.sock").chmod(0o600)
        server.__enter__()
        return self

    def __exit__(self, *words):
        for backend in self.backends:
            backend.close()
        self.server.__exit__(*words)

    def ask(self, target, host="main.test", **more):
        """What a client sees, and what the log then has of the request."""
        before = len(self.server.log())
        try:
            seen = str(self.server.get(target, host, **more).status)
        except OSError:
            seen = "the connection ends"
        return seen, ERROR_LOG, lambda: self.server.log()[before:]



def hashed(name, password):
    return subprocess.run(["htpasswd", "-nbB", "-C", "4", name, password], check=True, capture_output=True, text=True).stdout


class Refused(Server):
    """A configuration, with what it names, that `bulkhead run` refuses."""

    def __init__(self, more="", head=HEAD, **others):
        others.setdefault("programs", ())
        super().__init__([], text=lambda port: head.format(port=port) + more, files={"main/index.html": "main"}, **others)

    def run(self, *words, user=None):
        """Starts it, and expects that it ends by itself."""
        more = {"user": user, "group": user, "extra_groups": []} if user else {}
        words = words or (program("bulkhead"), "run", self.config)
        done = subprocess.run(words, capture_output=True, text=True, timeout=20, check=False, cwd=self.folder, **more)
        return NO_START if done.returncode else "it starts", "`bulkhead run`", lambda: done.stdout + done.stderr

    def __enter__(self):
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.folder, ignore_errors=True)


# The start.


@mistake
def key_of_nginx(_):
    with Refused('gzip = true\nproxy_pass = "http://127.0.0.1:3000"\n') as server:
        return server.run()


@mistake
def configuration_missing(_):
    with Refused() as server:
        server.config.unlink()
        return server.run()


@mistake
def root_missing(_):
    with Refused() as server:
        shutil.rmtree(server.folder / "main")
        return server.run()


@mistake
def root_unreadable(_):
    with Refused() as server:
        (server.folder / "main").chmod(0o700)
        return server.run()


def with_tls(server, key=None, more=""):
    cert, own = certificate(server.write("keys/x", "").parent, "main", "ec", "main.test")
    server.write("main.pem", cert)
    server.write("main.key", key or own).chmod(0o600)
    text = server.config.read_text().replace('root = "main"\n', 'root = "main"\ncertificate = "main.pem"\nkey = "main.key"\n')
    server.config.write_text(f'[[listen]]\naddress = "127.0.0.1:{free_port()}"\ntls = true\n\n{text}')


@mistake
def key_of_another_certificate(_):
    with Refused() as server:
        with_tls(server, certificate(server.write("keys/x", "").parent, "other", "ec", "main.test")[1])
        return server.run()


@mistake
def key_missing(_):
    with Refused() as server:
        with_tls(server)
        (server.folder / "main.key").unlink()
        return server.run()


@mistake
def key_encrypted(_):
    with Refused() as server:
        with_tls(server)
        key = openssl("pkey", "-aes128", "-passout", "pass:x", "-in", server.folder / "main.key")
        server.write("main.key", key)
        return server.run()


@mistake
def no_tls_listener(_):
    with Refused('certificate = "main.pem"\n') as server:
        return server.run()


@mistake
def users_missing(_):
    with Refused('auth = { users = "users" }\n') as server:
        return server.run()


@mistake
def bad_hash(_):
    with Refused('auth = { users = "users" }\n') as server:
        server.write("users", "ann:{SHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g=\n")
        return server.run()


@mistake
def host_twice(_):
    with Refused('\n[[site]]\nname = "other"\nhost = ["main.test"]\nroot = "main"\n') as server:
        return server.run()


def with_service(command="bin/probe", **more):
    return Refused(f'\n[[site.service]]\nname = "probe"\npath = "/probe"\ncommand = ["{command}"]\n', **more)


@mistake
def program_missing(_):
    with with_service() as server:
        return server.run()


@mistake
def program_not_executable(_):
    with with_service(programs=("probe",)) as server:
        (server.folder / "bin/probe").chmod(0o644)
        return server.run()


@mistake
def program_is_a_script(_):
    with with_service() as server:
        server.write("bin/probe", "#!/usr/bin/python3\n").chmod(0o755)
        return server.run()


@mistake
def not_a_socket(_):
    with Refused('\n[[site.route]]\npath = "/api/"\nupstream = "unix:app.sock"\n') as server:
        server.write("app.sock", "")
        return server.run()


@mistake
def log_folder_for_all(_):
    with Refused() as server:
        (server.folder / "log").mkdir()
        (server.folder / "log").chmod(0o777)
        return server.run()


@mistake
def port_in_use(world):
    with Refused() as server:
        text = server.config.read_text().replace(f"127.0.0.1:{server.port}", f"127.0.0.1:{world.server.port}")
        server.config.write_text(text)
        return server.run()


@mistake
def port_below_1024(_):
    with Refused() as server:
        text = server.config.read_text().replace(f"127.0.0.1:{server.port}", "127.0.0.1:81")
        server.config.write_text(text)
        programs = server.folder / "programs"
        programs.mkdir()
        for path in program("gate").parent.iterdir():
            if path.name in ("bulkhead", "bulkheadd", "gate", "site", "logger", "admin", "inspector"):
                shutil.copy(path, programs)
        for path in [server.folder, *server.folder.rglob("*")]:
            os.chown(path, NOBODY, NOBODY)
        return server.run(programs / "bulkhead", "run", server.config, user=NOBODY)


@mistake
def run_dir_twice(world):
    with Refused() as server:
        text = server.config.read_text().replace('run_dir = "run"', f'run_dir = "{world.server.folder}/run"')
        server.config.write_text(text)
        return server.run()


@mistake
def no_server(_):
    with Refused() as server:
        done = server.command("status", "--config", server.config)
        return f"exit {done.returncode}", "`bulkhead status`", lambda: done.stdout + done.stderr


# What checks warn of, and serve.


@mistake
def certificate_expired(_):
    with Refused() as server:
        with_tls(server)
        expire(server)
        return checked(server)


def expire(server):
    """OpenSSL 3.0 has no option for dates but in `ca`."""
    folder = server.folder / "keys"
    (folder / "index").write_text("")
    (folder / "ca.conf").write_text(
        f"[ca]\ndefault_ca=a\n[a]\ndatabase={folder}/index\nnew_certs_dir={folder}\nserial={folder}/serial\ndefault_md=sha256\n"
        "policy=p\nx509_extensions=x\n[p]\ncommonName=optional\n[x]\nsubjectAltName=DNS:main.test\n"
    )
    (folder / "serial").write_text("01\n")
    openssl("req", "-new", "-key", server.folder / "main.key", "-subj", "/CN=main", "-out", folder / "asked")
    openssl("ca", "-batch", "-config", folder / "ca.conf", "-selfsign", "-keyfile", server.folder / "main.key", "-in", folder / "asked",
            "-startdate", "20200101000000Z", "-enddate", "20210101000000Z", "-notext", "-out", server.folder / "main.pem")


def checked(server):
    done = server.command("check", server.config)
    return f"exit {done.returncode}", "`bulkhead check`", lambda: done.stdout + done.stderr


@mistake
def certificate_of_another_host(_):
    with Refused() as server:
        with_tls(server)
        server.config.write_text(server.config.read_text().replace('"main.test"', '"main.test", "www.test"'))
        return checked(server)


@mistake
def key_for_all(_):
    with Refused() as server:
        with_tls(server)
        (server.folder / "main.key").chmod(0o644)
        return checked(server)


@mistake
def sources_published(_):
    with Refused() as server:
        server.write("main/dump.sql", "")
        return checked(server)


# Requests.


@mistake
def file_unreadable(world):
    return world.ask("/unreadable.html")


@mistake
def link_out_of_root(world):
    return world.ask("/outside.html")


@mistake
def wrong_host(world):
    return world.ask("/", host="www.main.test")


@mistake
def client_denied(world):
    return world.ask("/offices/")


@mistake
def wrong_password(world):
    return world.ask("/members/", headers=["Authorization: Basic YW5uOndyb25n"])


@mistake
def body_too_large(world):
    return world.ask("/dead/", method="POST", body=b"x" * 2000)


@mistake
def strange_request(world):
    return world.ask("/a/..;/b")


@mistake
def upstream_dead(world):
    return world.ask("/dead/x")


@mistake
def upstream_socket_locked(world):
    return world.ask("/private-socket/x")


@mistake
def upstream_slow(world):
    return world.ask("/slow/x")


@mistake
def upstream_breaks_off(world):
    before = len(world.server.log())
    with world.server.connect() as connection:
        connection.send(client.request("/cut/x"))
        while b"half" not in connection.unread:
            connection._more()
        world.backends[0].has_half.set()
        seen = "the connection ends" if connection.is_closed() else "it stays"
    return seen, ERROR_LOG, lambda: world.server.log()[before:]


@mistake
def upstream_of_another_protocol(world):
    return world.ask("/plain-text/x")


@mistake
def fpm_missing(world):
    return world.ask("/tool.php")


@mistake
def script_missing(world):
    return world.ask("/none.php")


@mistake
def plain_text_to_tls(world):
    before = len(world.server.log())
    seen = client.raw_exchange(world.tls, b"GET / HTTP/1.1\r\nHost: main.test\r\n\r\n")
    return seen.split(b" ")[1].decode() if seen.startswith(b"HTTP") else "the connection ends", ERROR_LOG, lambda: world.server.log()[before:]


@mistake
def name_without_certificate(world):
    before = len(world.server.log())
    try:
        with socket.create_connection(("127.0.0.1", world.tls), 10) as raw, insecure().wrap_socket(raw, server_hostname="www.test"):
            seen = "a certificate"
    except OSError as error:
        seen = getattr(error, "reason", None) or str(error)
    return seen, ERROR_LOG, lambda: world.server.log()[before:]


@mistake
def service_crashes(world):
    return world.ask("/crash/now")


@mistake
def service_broken(world):
    for _ in range(6):
        world.ask("/crash/now")
    client.until(lambda: "is broken" in world.server.log(), 10)
    seen, _, _ = world.ask("/crash/now")
    return seen, ERROR_LOG, world.server.log


@mistake
def reload_refused(world):
    config = world.server.config
    text = config.read_text()
    config.write_text(text.replace('path = "/dead/"', 'pathe = "/dead/"'))
    try:
        done = world.server.command("reload", "--config", config)
    finally:
        config.write_text(text)
    return f"exit {done.returncode}; requests get {world.ask('/')[0]}", "`bulkhead reload`", lambda: done.stdout + done.stderr


@mistake
def log_folder_lost(world):
    log = world.server.folder / "log"
    log.rename(world.server.folder / "moved")
    try:
        done = world.server.command("reopen", "--config", world.server.config)
    finally:
        (world.server.folder / "moved").rename(log)
    return f"exit {done.returncode}", "`bulkhead reopen`", lambda: done.stdout + done.stderr


@mistake
def relaunch_of_nothing(world):
    done = world.server.command("relaunch", "--config", world.server.config, "mian")
    return f"exit {done.returncode}", "`bulkhead relaunch`", lambda: done.stdout + done.stderr
