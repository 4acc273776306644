"""The servers that answer the null service: how each is configured and started."""

import hashlib
import os
import pathlib
import shutil
import subprocess
import tempfile
import time

from benchlib import proc, servers, tools
from database_servers import DATABASE, PASSWORD, USER

TREE = pathlib.Path(__file__).resolve().parent.parent.parent
#: What the paper's ten services add to each answer.
PADDING = 3000
PHP = """<?php
$db = new mysqli('p:localhost', '@USER@', '@PASSWORD@', '@DATABASE@', 0, '@SOCKET@');
$statement = $db->prepare('SELECT digest FROM numbers WHERE id = ?');
$id = (int) $_GET['id'];
$statement->bind_param('i', $id);
$statement->execute();
$statement->bind_result($digest);
header('Content-Type: text/plain');
if (!$statement->fetch()) { http_response_code(404); exit; }
echo $digest, "\\n", str_repeat('x', @BYTES@);
"""
STATEMENTS = """\
-- name: digest_by_id :one
-- services: @SERVICES@
-- params: id int
SELECT digest FROM numbers WHERE id = :id;
"""


def hashes(number):
    return hashlib.sha1(str(number).encode()).hexdigest()


class Peer:
    """A server: `files` writes what it needs into its folder, `commands` are the programs that it is made of."""

    name, suffix = None, ""

    def __init__(self, options, database, services):
        self.options, self.database, self.services = options, database, services
        self.padding = PADDING if services > 1 else 0
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix=f"bulkhead-null-{self.name}-", dir="/tmp"))
        self.folder.chmod(0o755)
        self.port, self.inner = servers.free_ports(2)
        self.processes = []

    def write(self, name, text, mode=0o644, **values):
        escaped = PASSWORD.replace("\\", "\\\\").replace("'", "\\'")
        words = {"USER": USER, "PASSWORD": escaped, "DATABASE": DATABASE, "SOCKET": self.database.socket, "BYTES": self.padding,
                 "LITERAL": repr(PASSWORD), "PORT": self.port, "INNER": self.inner, "DIR": self.folder, "MODULES": servers.modules(), **values}
        for word, value in words.items():
            text = text.replace(f"@{word}@", str(value))
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(mode)
        return path

    def names(self):
        return [f"null{number}" for number in range(self.services)]

    def start(self):
        self.prepare()
        for command in self.commands():
            log = open(self.folder / "output.txt", "ab")
            words = ["taskset", "-c", str(self.options.server_core), *map(str, command)]
            self.processes.append(subprocess.Popen(words, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                                   start_new_session=True))
        deadline = time.monotonic() + 30
        while not self.answers():
            if time.monotonic() > deadline or any(process.poll() is not None for process in self.processes):
                raise RuntimeError(f"{self.name} does not come up: {(self.folder / 'output.txt').read_text()[-2000:]}")
            time.sleep(0.1)

    def answers(self):
        wanted = hashes(7)
        for name in self.names():
            url = f"http://127.0.0.1:{self.port}/{name}{self.suffix}?id=7"
            done = subprocess.run(["curl", "-s", "-m", "5", "-H", "Host: bench.test", url], capture_output=True, text=True)
            if not done.stdout.startswith(wanted + "\n") or len(done.stdout) != 41 + self.padding:
                return False
        return True

    def roots(self):
        return [process.pid for process in self.processes] + [self.database.process.pid]

    def stop(self):
        for process in self.processes:
            members = proc.family(process.pid)
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            for pid, start in members.items():
                if pid != process.pid and proc.alive(pid, start):
                    os.kill(pid, 9)
        shutil.rmtree(self.folder, ignore_errors=True)


class Ours(Peer):
    name, takes, workers = "ours", False, 1

    def prepare(self):
        self.write("numbers.sql", STATEMENTS, SERVICES=", ".join(self.names()))
        self.write("password", PASSWORD + "\n")
        (self.folder / "bin").mkdir()
        services = "".join(self.service(name) for name in self.names())
        self.write("bulkhead.toml", f"""\
[server]
user_range = "{servers.free_users()}"
state_dir = "state"
run_dir = "run"
log_dir = "log"
gates = 1
[[listen]]
address = "127.0.0.1:@PORT@"
[[site]]
name = "null"
host = ["bench.test"]
  [[site.data]]
  name = "numbers"
  statements = "numbers.sql"
  engine = "mysql"
  server = "unix:@SOCKET@"
  database = "@DATABASE@"
  user = "@USER@"
  password = "password"
{services}""")

    def service(self, name):
        shutil.copy(self.program("null-service"), self.folder / "bin" / name)
        (self.folder / "bin" / name).chmod(0o755)
        return self.table(name, f'["bin/{name}", "{self.padding}"]')

    def table(self, name, command, more=""):
        return f"""\
  [[site.service]]
  name = "{name}"
  path = "/{name}"
  command = {command}
  data = ["numbers"]
  takes_connections = {str(self.takes).lower()}
  workers = {self.workers}
{more}"""

    def program(self, name):
        return self.options.programs / name

    def commands(self):
        return [[self.program("bulkhead"), "run", "bulkhead.toml"]]


class OursTaking(Ours):
    name, takes = "ours-handed", True


class OursPython(Ours):
    name = "ours-python"

    def service(self, name):
        self.write(f"app/{name}.py", PYTHON, NAME=name)
        shutil.copytree(TREE / "python" / "bulkhead_service", self.folder / "app" / "bulkhead_service", dirs_exist_ok=True)
        for path in [self.folder / "app", *(self.folder / "app").rglob("*")]:
            path.chmod(0o755 if path.is_dir() else 0o644)
        python = '  libraries = ["/usr/lib/python3", "/usr/lib/python3.11"]\n  read = ["app"]\n'
        return self.table(name, f'["/usr/bin/python3", "app/{name}.py"]', python)


PYTHON = """\
from bulkhead_service import Response, Service, main


class Null(Service):
    async def init(self, cx):
        self.numbers = cx.data("numbers")

    async def process(self, request):
        row = await self.numbers.one("digest_by_id", int(request.param("id") or 0))
        return Response.text(f"{row.digest}\\n" + "x" * @BYTES@)


main(Null)
"""


class Apache(Peer):
    name, suffix = "apache", ".php"

    def prepare(self):
        for name in self.names():
            self.write(f"public/{name}.php", PHP)
        module = max(pathlib.Path(servers.modules()).glob("libphp*.so"), default=None)
        self.write("apache.conf", f"""\
ServerRoot "@DIR@"
ServerName bench.test
PidFile "@DIR@/pid"
Listen 127.0.0.1:@PORT@
LoadModule mpm_prefork_module @MODULES@/mod_mpm_prefork.so
LoadModule authz_core_module @MODULES@/mod_authz_core.so
LoadModule mime_module @MODULES@/mod_mime.so
LoadModule php_module {module}
User nobody
Group nogroup
StartServers 8
MaxRequestWorkers 64
ServerLimit 64
KeepAlive On
MaxKeepAliveRequests 0
KeepAliveTimeout 5
DocumentRoot "@DIR@/public"
<Directory "@DIR@/public">
  Require all granted
</Directory>
TypesConfig /etc/mime.types
AddHandler application/x-httpd-php .php
LogFormat "%h %l %u %t \\"%r\\" %>s %b" common
CustomLog "@DIR@/access.log" common
ErrorLog "@DIR@/error.log"
""")

    def commands(self):
        return [[tools.find("apache2"), "-f", self.folder / "apache.conf", "-DFOREGROUND"]]


NGINX = """\
user nobody nogroup;
worker_processes 1;
pid @DIR@/nginx.pid;
error_log @DIR@/nginx.log;
daemon off;
events { worker_connections 16384; }
http {
  access_log @DIR@/access.log;
  keepalive_requests 1000000000;
  @UPSTREAM@
  server {
    listen 127.0.0.1:@PORT@ backlog=4096;
    root @DIR@/public;
    @PLACE@
  }
}
"""


class NginxFpm(Peer):
    name, suffix = "nginx-fpm", ".php"

    def prepare(self):
        for name in self.names():
            self.write(f"public/{name}.php", PHP)
        self.write("fpm.conf", """\
[global]
error_log = @DIR@/fpm.log
daemonize = no
[www]
user = nobody
group = nogroup
listen = @DIR@/php.sock
listen.mode = 0666
listen.backlog = 4096
pm = static
pm.max_children = 8
""")
        self.write("nginx.conf", NGINX, UPSTREAM="", PLACE="""\
location ~ \\.php$ {
      include /etc/nginx/fastcgi_params;
      fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name;
      fastcgi_pass unix:@DIR@/php.sock;
    }""".replace("@DIR@", str(self.folder)))

    def commands(self):
        return [[tools.find("php-fpm"), "--nodaemonize", "--fpm-config", self.folder / "fpm.conf"],
                [tools.find("nginx"), "-c", self.folder / "nginx.conf"]]


class NginxAxum(Peer):
    name = "nginx-axum"

    def prepare(self):
        self.proxy(f"upstream app {{ server 127.0.0.1:{self.inner}; keepalive 64; }}", self.place("/", "app"))

    def proxy(self, upstreams, places):
        self.write("nginx.conf", NGINX, UPSTREAM=upstreams, PLACE=places)

    def place(self, path, upstream):
        return f"""\
location {path} {{
      proxy_pass http://{upstream};
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_set_header Host $host;
      proxy_set_header X-Forwarded-For $remote_addr;
    }}"""

    def axum(self, port):
        program = servers.axum_alone().with_name("axum-null")
        return [program, f"127.0.0.1:{port}", self.database.socket, USER, PASSWORD, DATABASE, self.padding]

    def commands(self):
        return [self.axum(self.inner), [tools.find("nginx"), "-c", self.folder / "nginx.conf"]]


class NginxAxumEach(NginxAxum):
    """A process for each service, as we have; with one service it is the peer above."""

    name = "axum-each"

    def prepare(self):
        self.ports = dict(zip(self.names(), servers.free_ports(self.services)))
        upstreams = (f"upstream {name} {{ server 127.0.0.1:{port}; keepalive 64; }}" for name, port in self.ports.items())
        self.proxy("\n  ".join(upstreams), "\n    ".join(self.place(f"/{name}", name) for name in self.names()))

    def commands(self):
        return [*map(self.axum, self.ports.values()), [tools.find("nginx"), "-c", self.folder / "nginx.conf"]]


GRANIAN = """\
import asyncmy


class App:
    def __rsgi_init__(self, loop):
        loop.run_until_complete(self.connect())

    async def connect(self):
        self.pool = await asyncmy.create_pool(unix_socket="@SOCKET@", user="@USER@", password=@LITERAL@, db="@DATABASE@",
                                              minsize=8, maxsize=8, autocommit=True)

    async def __rsgi__(self, scope, protocol):
        number = int(scope.query_string.partition("id=")[2])
        async with self.pool.acquire() as connection, connection.cursor() as cursor:
            await cursor.execute("SELECT digest FROM numbers WHERE id = %s", (number,))
            row = await cursor.fetchone()
        status, text = (200, f"{row[0]}\\n" + "x" * @BYTES@) if row else (404, "")
        protocol.response_str(status, [("content-type", "text/plain")], text)


app = App()
"""


class Granian(Peer):
    """Python in a server written in Rust, by its own interface, with a pool of connections; nothing in front of it."""

    name = "granian"
    PROGRAM = TREE / "target" / "bench" / "granian" / "bin" / "granian"

    def prepare(self):
        self.write("app.py", GRANIAN)

    def commands(self):
        return [[self.PROGRAM, "--interface", "rsgi", "--loop", "uvloop", "--backlog", "4096", "--no-ws", "--port", self.port, "app:app"]]


PEERS = [Ours, OursTaking, OursPython, Apache, NginxFpm, NginxAxum, NginxAxumEach, Granian]
