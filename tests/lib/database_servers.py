"""Throw-away servers of Debian's packages: PostgreSQL, MariaDB and Redis, each with a folder of its own and a Unix socket there as the only
way in.

Run by itself, it starts all for somebody who develops, until it is interrupted: `make db-up`.
"""

import contextlib
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

NOBODY = 65534
MARIADB, REDIS = "/usr/sbin/mariadbd", "/usr/bin/redis-server"
#: What tests and examples log in with.
DATABASE, USER, PASSWORD = "shop", "shop", "not'a \"secret\\"


def postgresql_programs():
    """The folder of the newest PostgreSQL; its name has a version in it."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: int(path.parts[-3]))
    return found[-1].parent if found else None


class DatabaseServer:
    """A server; use it with `with`, or close it. What it acknowledges outlives it, and not the machine: nothing waits for the disk."""

    #: How the configuration calls it, and the name of its socket.
    engine, socket_name = None, None

    def __init__(self, folder=None):
        self.folder = folder = Path(folder or tempfile.mkdtemp(prefix=f"bulkhead-{self.engine}-", dir="/tmp"))
        self.socket = folder / self.socket_name
        folder.mkdir(exist_ok=True)
        os.chmod(folder, 0o755)
        (folder / "tmp").mkdir()
        if os.geteuid() == 0:
            for path in (folder, folder / "tmp"):
                os.chown(path, NOBODY, NOBODY)
        self.log = open(folder / "log", "w+")
        self.process = None
        self.install()
        self.start()
        self.prepare()

    def run(self, command):
        """A process that is nobody's if this one is root's: no server runs as root."""
        identity = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}
        return subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log,
                                cwd=self.folder, **identity)

    def start(self):
        self.process = self.run(self.command())
        deadline = time.monotonic() + 60
        while not self.answers():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.fail("does not come up")
            time.sleep(0.05)

    def answers(self):
        with contextlib.suppress(subprocess.CalledProcessError):
            return self.socket.exists() and self.ask("SELECT 1") == "1\n"
        return False

    def fail(self, what):
        self.log.seek(0)
        raise AssertionError(f"{type(self).__name__} {what}: {self.log.read()[-3000:]}")

    def ask(self, sql, database=None):
        """The answer to a query of whoever may do everything, with tabs between its columns."""
        return subprocess.run(self.client(database), input=sql, capture_output=True, text=True, check=True).stdout

    def rows(self, sql, database=DATABASE):
        return [tuple(line.split("\t")) for line in self.ask(sql, database).splitlines()]

    def kill(self):
        """Ends it, and all processes that it has, without a chance to tidy up."""
        # One that stands still makes no more.
        self.process.send_signal(signal.SIGSTOP)
        theirs = children(self.process.pid)
        self.signal_all(signal.SIGKILL)
        self.process.wait(30)
        while any(is_alive(pid) for pid in theirs):
            time.sleep(0.01)

    def signal_all(self, number):
        """Tells it and all processes that it has."""
        for pid in [self.process.pid, *children(self.process.pid)]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def pause(self):
        self.signal_all(signal.SIGSTOP)

    def go_on(self):
        self.signal_all(signal.SIGCONT)

    def restart(self):
        self.stop()
        self.start()

    def stop(self):
        if self.process.poll() is None:
            self.go_on()
            self.process.send_signal(self.stop_signal)
            self.process.wait(60)

    stop_signal = signal.SIGTERM

    def settings(self, password="password"):
        """What `[[site.data]]` says of it, with the password in the file of this name."""
        return {"engine": self.engine, "server": f"unix:{self.socket}", "database": DATABASE, "user": USER, "password": password}

    def close(self):
        self.stop()
        self.log.close()
        shutil.rmtree(self.folder)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def children(pid):
    with contextlib.suppress(FileNotFoundError):
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def is_alive(pid):
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


class Postgresql(DatabaseServer):
    """A PostgreSQL, whose owner is `postgres`."""

    engine, socket_name = "postgresql", ".s.PGSQL.5432"
    # Connections are ended; `SIGTERM` would wait for them.
    stop_signal = signal.SIGINT

    def install(self):
        self.programs = postgresql_programs()
        command = [self.programs / "initdb", "-D", self.folder / "data", "-U", "postgres", "-E", "UTF8", "--locale=C.UTF-8",
                   "--auth-local=scram-sha-256", "--no-sync"]
        if self.run(command).wait():
            self.fail("cannot be installed")
        # Tests log in as the owner without a password; everybody else needs one.
        rules = self.folder / "data" / "pg_hba.conf"
        rules.write_text("local all postgres trust\nlocal all all scram-sha-256\n")

    def command(self):
        settings = ["listen_addresses=", f"unix_socket_directories={self.folder}", "unix_socket_permissions=0777",
                    "fsync=off", "shared_buffers=16MB", "max_connections=50"]
        return [self.programs / "postgres", "-D", self.folder / "data", *(word for text in settings for word in ("-c", text))]

    def prepare(self):
        self.ask(f"CREATE ROLE {USER} LOGIN PASSWORD '{PASSWORD.replace(chr(39), chr(39) * 2)}'")
        self.reset()

    def reset(self):
        """Makes the database anew, without tables."""
        self.ask(f"DROP DATABASE IF EXISTS {DATABASE} WITH (FORCE)")
        self.ask(f"CREATE DATABASE {DATABASE} OWNER {USER}")

    def client(self, database):
        return [self.programs / "psql", "-X", "-q", "-t", "-A", "-F", "\t", "-v", "ON_ERROR_STOP=1", "-h", self.folder, "-U", "postgres",
                "-d", database or "postgres"]

    def change_password(self, password):
        self.ask(f"ALTER ROLE {USER} PASSWORD '{password.replace(chr(39), chr(39) * 2)}'")

    def end_connections(self):
        """Ends those of the user's."""
        self.ask(f"SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE usename = '{USER}'")

    def load(self, schema):
        """Makes the tables of the user's."""
        self.ask(f"SET ROLE {USER};\n{schema}", DATABASE)


def quoted(text):
    """A text between the quotes of MariaDB."""
    return text.replace("\\", "\\\\").replace("'", "\\'")


class MariaDb(DatabaseServer):
    """A MariaDB, whose `root` has no password."""

    engine, socket_name = "mysql", "mariadb.sock"

    def install(self):
        # A server that starts removes temporary tables, also those of another one: hence `tmpdir`.
        self.options = [
            "--no-defaults", f"--datadir={self.folder}/data", f"--tmpdir={self.folder}/tmp", "--character-set-server=utf8mb4",
            "--innodb-use-native-aio=0", "--innodb-log-file-size=4M", "--innodb-buffer-pool-size=32M",
            "--innodb-flush-method=nosync", "--innodb-flush-log-at-trx-commit=2",
        ]
        ours = ["--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve"]
        if self.run(["mariadb-install-db", *self.options, *ours]).wait():
            self.fail("cannot be installed")

    def command(self):
        return [MARIADB, *self.options, "--skip-networking", f"--socket={self.socket}", f"--pid-file={self.folder}/pid"]

    def prepare(self):
        self.ask(f"CREATE USER {USER}@localhost IDENTIFIED BY '{quoted(PASSWORD)}'; GRANT ALL ON {DATABASE}.* TO {USER}@localhost")
        self.reset()

    def change_password(self, password):
        self.ask(f"ALTER USER {USER}@localhost IDENTIFIED BY '{quoted(password)}'")

    def end_connections(self):
        """Ends those of the user's."""
        self.ask(f"KILL USER {USER}@localhost")

    def reset(self):
        """Makes the database anew, without tables."""
        self.ask(f"DROP DATABASE IF EXISTS {DATABASE}; CREATE DATABASE {DATABASE}")

    def client(self, database):
        return ["mariadb", "--no-defaults", f"--socket={self.socket}", "--user=root", "--batch", "--skip-column-names",
                "--default-character-set=utf8mb4", *([database] if database else [])]

    def load(self, schema):
        """Makes the tables of the user's."""
        self.ask(schema, DATABASE)


class Redis(DatabaseServer):
    """A Redis, whose `default` has no password, and whose acknowledged changes are on disk."""

    engine, socket_name = "redis", "redis.sock"
    #: What the user of a data proxy needs: names of commands, transactions, and what statements do.
    rights = "+@read +@write +@transaction +command +select -@admin -@dangerous"

    def install(self):
        secret = hashlib.sha256(PASSWORD.encode()).hexdigest()
        (self.folder / "users").write_text(f"user default on nopass ~* &* +@all\nuser {USER} on #{secret} ~* {self.rights}\n")
        self.options = ["--port", "0", "--unixsocket", self.socket, "--unixsocketperm", "777", "--dir", self.folder, "--save", "", "--databases",
                        "4", "--appendonly", "yes", "--appendfsync", "always", "--aclfile", self.folder / "users"]

    def command(self):
        return [REDIS, *self.options]

    def answers(self):
        return self.socket.exists() and self.ask("PING", check=False) == "PONG\n"

    def ask(self, commands, database=None, check=True):
        return subprocess.run(self.client(database), input=commands, capture_output=True, text=True, check=check).stdout

    def prepare(self):
        self.reset()

    def reset(self):
        """Removes all keys."""
        self.ask("FLUSHALL")

    def change_password(self, password):
        self.ask(f"ACL SETUSER {USER} resetpass #{hashlib.sha256(password.encode()).hexdigest()}")

    def end_connections(self):
        """Ends those of the user's."""
        self.ask(f"CLIENT KILL USER {USER}")

    def client(self, _database):
        return ["redis-cli", "-s", self.socket]

    def load(self, commands):
        self.ask(commands)

    def settings(self, password="password"):
        return {"engine": self.engine, "server": f"unix:{self.socket}", "user": USER, "password": password}


def main():
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(kind()) for kind in (Postgresql, MariaDb, Redis)]
        for server in servers:
            secret = server.folder / "password"
            secret.write_text(PASSWORD + "\n")
            lines = "".join(f"  {key:<10} = {str(value)!r}\n" for key, value in server.settings(secret).items())
            print(f"{type(server).__name__}: {' '.join(str(word) for word in server.client(DATABASE))}\n\n  [[site.data]]\n{lines}", flush=True)
        print("all run until this is interrupted", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            signal.sigwait({signal.SIGINT, signal.SIGTERM})
    return 0


if __name__ == "__main__":
    sys.exit(main())
