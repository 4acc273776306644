"""What a tenant plants in the place of names that root follows: links, pipes, other names of files, and programs without end."""

import os
import re
import shutil
import signal
import tempfile
import time
import unittest
from pathlib import Path

from client import until
from harness import TOP, Server, program, service, site
from slow_programs import examining, step_ms, with_missing_libraries
from tls_server import certificate

ALICE, BOB = 1001, 1002
GOOD = "a:$2y$04$CCCCCCCCCCCCCCCCCCCCCu6Ry1Yy8D0LpHlAr5zQ3LVvY3YF8XPqS\n"
#: The rows of the table of keys that name a path.
ROW = re.compile(r'row\("(.*?)", "(.*?)", Class::(\w+), Kind::(\w+)\)')


def path_keys():
    """Every key that names a path: its table, the key, and what it leads to."""
    rows = ROW.findall((TOP / "crates/config/src/paths/mod.rs").read_text())
    return {(table, key): kind for table, key, _, kind in rows}


def owned(path, uid):
    os.chown(path, uid, uid, follow_symlinks=False)


class Tenants(Server):
    """A server whose sites have what they need in folders of tenants'."""

    def tenant(self, name, uid=ALICE):
        folder = self.folder / "tenants" / name
        folder.mkdir(parents=True, exist_ok=True)
        owned(folder, uid)
        return folder

    def put(self, name, source, uid=ALICE, mode=0o755):
        """A file of a tenant's, with all folders of its own below `tenants/NAME`."""
        path = self.folder / "tenants" / name
        for folder in reversed(path.relative_to(self.folder / "tenants").parents[:-1]):
            self.tenant(folder, uid)
        if isinstance(source, Path):
            shutil.copyfile(source, path)
        else:
            path.write_text(source)
        path.chmod(mode)
        owned(path, uid)
        return path


def swap_for_link(path, target, uid=ALICE):
    path.rename(path.with_name(f"{path.name}.aside"))
    path.symlink_to(target)
    owned(path, uid)


#: A configuration with every key that names a path; `{TABLE KEY}` stands for a path of its own.
EVERY_KEY = """
include = "{ include}/*.toml"

[server]
state_dir = "{[server] state_dir}"
run_dir = "{[server] run_dir}"
log_dir = "{[server] log_dir}"

[log]
error_file = "{[log] error_file}"

[conditioning]
filters = [["{[conditioning] filters}"]]

[[listen]]
address = "127.0.0.1:PORT"
tls = true
unfiltered = true

[[site]]
name = "one"
host = ["one.test"]
root = "{[[site]] root}"
follow_links = ["{[[site]] follow_links}"]
auth = {{ users = "{[[site]] users}", realm = "x" }}
certificate = "{[[site]] certificate}"
key = "{[[site]] key}"
client_ca = "{[[site]] client_ca}"
client_crl = ["{[[site]] client_crl}"]
worker = ["{[[site]] worker}"]

[[site.route]]
path = "/alias/"
alias = "{[[site.route]] alias}"
auth = {{ users = "{[[site.route]] users}", realm = "x" }}

[[site.route]]
path = "/upstream/"
upstream = "unix:{[[site.route]] upstream}/socket"

[[site.route]]
path = "/fastcgi/"
fastcgi = "unix:{[[site.route]] fastcgi}/socket"

[[site.service]]
name = "probe"
path = "/probe"
command = ["{[[site.service]] command}"]
read = ["{[[site.service]] read}"]
libraries = ["{[[site.service]] libraries}"]

[[site.data]]
name = "lite"
statements = "{[[site.data]] statements}"
schema = "{[[site.data]] schema}"

[[site.data]]
name = "socket"
engine = "postgresql"
database = "x"
user = "x"
statements = "{[[site.data]] statements}"
password = "{[[site.data]] password}"
server = "unix:{[[site.data]] server}/socket"

[[site.data]]
name = "tls"
engine = "postgresql"
database = "x"
user = "x"
statements = "{[[site.data]] statements}"
server = "db.test:5432"
server_ca = "{[[site.data]] server_ca}"
certificate = "{[[site.data]] certificate}"
key = "{[[site.data]] key}"

[site.templates]
folder = "{[site.templates] folder}"

[[site]]
name = "two"
host = ["two.test"]
vhosts = "{[[site]] vhosts}"
certificates = ["{[[site]] certificates}"]

[[site]]
name = "three"
host = ["three.test"]
root = "{[[site]] root}"
php = "unix:{[[site]] php}/socket"
"""


class Keys(unittest.TestCase):
    """Each key of the table, in one configuration: `check` says of each what is wrong, at once."""

    def said(self, plant):
        """What `check` says of a configuration in which `plant` has changed the folder of each path."""
        text = EVERY_KEY.replace("{{", "\1").replace("}}", "\2")
        server = Tenants([], programs=(), text=lambda port: "")
        self.addCleanup(shutil.rmtree, server.folder, ignore_errors=True)
        secret = server.folder / "secret"
        secret.mkdir(mode=0o700)
        self.places = {}
        for number, (table, key) in enumerate(path_keys()):
            self.assertIn(f"{{{table} {key}}}", text, "no configuration for this key")
            folder = server.tenant(f"{number}/a")
            owned(folder.parent, ALICE)
            target = folder / "target"
            self.places[table, key] = target
            text = text.replace(f"{{{table} {key}}}", str(target))
            plant(folder, secret)
        server.config.write_text(server.with_uids(text.replace("\1", "{").replace("\2", "}").replace("PORT", str(server.port))))
        begun = time.monotonic()
        done = server.command("check", server.config)
        self.assertLess(time.monotonic() - begun, 15)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertFalse(re.findall(r"unknown key|TOML syntax", done.stderr), done.stderr)
        return done.stderr

    def test_a_link_in_the_middle(self):
        said = self.said(lambda folder, secret: swap_for_link(folder, secret))
        for (table, key), place in self.places.items():
            with self.subTest(table=table, key=key):
                self.assertRegex(said, rf"{place}\S* goes through (the symbolic link )?{place.parent}, which ")

    def test_a_pipe(self):
        def plant(folder, _):
            os.mkfifo(folder / "target")

        said = self.said(plant)
        for (table, key), kind in path_keys().items():
            # A socket need not be there yet.
            with self.subTest(table=table, key=key):
                self.assertTrue(kind == "Socket" or str(self.places[table, key]) in said, said)


class Attacks(unittest.TestCase):
    """Tenants against a server that runs."""

    def setUp(self):
        alice, bob = (service(command=[f"tenants/{name}/bin/app"]) for name in ("alice", "bob"))
        self.server = server = Tenants([site("main", [alice]), site("bob", [bob])])
        server.put("alice/bin/app", program("probe"))
        server.put("bob/bin/app", program("probe"), BOB)
        server.start()
        self.addCleanup(server._end, failed=False)
        self.assertTrue(until(lambda: server.status("/probe") == 200))

    def kill(self):
        self.server.process("tenants/alice/bin/app").kill()

    def facts(self, path):
        found = path.stat()
        return found.st_uid, found.st_gid, found.st_mode, found.st_size

    def test_a_link_in_the_middle_changes_no_other_file(self):
        server = self.server
        victims = server.folder / "machine"
        victims.mkdir()
        shutil.copyfile(program("probe"), victims / "app")
        (victims / "app").chmod(0o755)
        for target in (victims, server.folder / "tenants/bob/bin"):
            with self.subTest(target=target):
                place = server.folder / "tenants/alice/bin"
                before = self.facts(target / "app")
                swap_for_link(place, target)
                reloaded = server.command("reload", "--run-dir", "run")
                self.kill()
                self.assertTrue(until(lambda: f"goes through the symbolic link {place}" in server.log(), 5), server.log())
                self.assertNotEqual(reloaded.returncode, 0, reloaded.stdout)
                self.assertEqual(self.facts(target / "app"), before)
                place.unlink()
                place.with_name("bin.aside").rename(place)
                self.assertTrue(until(lambda: server.status("/probe") == 200, 10), server.log())
        self.assertEqual(server.status("/probe", "bob.test"), 200)

    def test_another_name_of_a_program_is_not_given_away(self):
        server = self.server
        bobs, mine = server.folder / "tenants/bob/bin/app", server.folder / "tenants/alice/bin/app"
        before = self.facts(bobs)
        mine.unlink()
        os.link(bobs, mine)
        self.kill()
        self.assertTrue(until(lambda: "is another service's" in server.log(), 5), server.log())
        self.assertEqual((self.facts(bobs), server.status("/probe", "bob.test")), (before, 200))

    def test_a_program_without_end_is_not_copied(self):
        server = self.server
        mine = server.folder / "tenants/alice/bin/app"
        shutil.copyfile(program("probe"), mine.with_name("new"))
        new = mine.with_name("new")
        new.chmod(0o755)
        owned(new, ALICE)
        os.truncate(new, 3 << 30)
        os.link(new, mine.with_name("again"))
        new.rename(mine)
        self.kill()
        self.assertTrue(until(lambda: "the most that is copied" in server.log(), 5), server.log())
        self.assertEqual(server.status("/probe", "bob.test"), 200)


class Examined(unittest.TestCase):
    """A program that takes long to examine takes its time beside the launcher's loop."""

    def test_nobody_waits_for_an_examination(self):
        made = tempfile.TemporaryDirectory()
        self.addCleanup(made.cleanup)
        slow = with_missing_libraries(Path(made.name))
        server = Server([site("main", [service()]), site("other", [service("other", "/probe", command=["bin/other"])])])
        server.copy_program("probe", under="other")
        with server:
            self.assertTrue(until(lambda: server.status("/probe") == 200))
            server.copy_program(str(slow), under="probe")
            server.process("bin/probe").kill()
            helper = until(lambda: examining(server), 5)
            self.assertIsNotNone(helper, server.log())
            # For as long as the test wants.
            helper.signal(signal.SIGSTOP)
            try:
                self.assertEqual(server.command("status", "--run-dir", "run", timeout=5).returncode, 0)
                server.process("bin/other").kill()
                self.assertTrue(until(lambda: server.status("/probe", "other.test") == 200, 5), server.log())
                self.assertTrue(helper.alive)
            finally:
                helper.signal(signal.SIGCONT)
            # By what it says, or because it takes too long.
            failed = lambda: re.search(r"libn0|more than 256 libraries|does not list its libraries in time", server.log())
            self.assertTrue(until(failed, 10), server.log())
            # Milliseconds; in the loop, this took two seconds at each attempt.
            self.assertLess(step_ms(server, "lately"), 500)
            server.copy_program("probe")
            self.assertTrue(until(lambda: server.status("/probe") == 200, 15), server.log())


class Included(unittest.TestCase):
    def test_a_pipe_among_the_files_is_not_waited_for(self):
        text = lambda port: f'include = "sites/*.toml"\n[[listen]]\naddress = "127.0.0.1:{port}"\n[[site]]\nname = "main"\nhost = ["main.test"]\nroot = "main"\n'
        with Server([], programs=(), files={"main/index.html": "x", "sites/.keep": ""}, text=text) as server:
            os.mkfifo(server.folder / "sites/x.toml")
            for words in (("check", server.config), ("run", server.config), ("reload", "--run-dir", "run")):
                done = server.command(*words, timeout=10)
                self.assertNotEqual(done.returncode, 0)
                self.assertIn("it is not a file", done.stderr + done.stdout)
            self.assertEqual(server.status("/", "main.test"), 200)
            os.unlink(server.folder / "sites/x.toml")
            self.assertEqual(server.command("reload", "--run-dir", "run").returncode, 0)


class Users(unittest.TestCase):
    def test_a_link_of_a_tenants_is_never_given_to_a_worker(self):
        about = site("main", auth={"users": "tenants/alice/a/users", "realm": "x"})
        server = Tenants([about], programs=(), tls={"reread": "1s"})
        server.put("alice/a/users", GOOD, mode=0o600)
        (server.folder / "secret").mkdir(mode=0o700)
        (server.folder / "secret/users").write_text(GOOD)
        server.answers = 401
        with server:
            swap_for_link(server.folder / "tenants/alice/a", server.folder / "secret")
            self.assertTrue(until(lambda: "goes through the symbolic link" in server.log(), 10), server.log())
            done = server.command("reload", "--run-dir", "run")
            self.assertNotEqual(done.returncode, 0)
            self.assertIn("goes through the symbolic link", done.stderr)
            self.assertEqual(server.status("/"), 401)


if __name__ == "__main__":
    unittest.main()
