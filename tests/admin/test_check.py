"""`bulkhead check` of real files: what it refuses, `run` and `reload` refuse, and what it warns of is served."""

import json
import os
import shutil
import socket
import unittest

from client import until
from harness import NOBODY, ROOTLESS, Server, program, rootless_too
from tls_server import Tls, certificate, openssl

GOOD = "$2y$04$CCCCCCCCCCCCCCCCCCCCCu6Ry1Yy8D0LpHlAr5zQ3LVvY3YF8XPqS"


def give(*paths):
    """Has the user of a rootless server own files."""
    if ROOTLESS and os.geteuid() == 0:
        for path in paths:
            os.chown(path, NOBODY, NOBODY, follow_symlinks=False)


def files_site(more="", root="main"):
    return lambda port: (
        f'[[listen]]\naddress = "127.0.0.1:{port}"\n\n[[site]]\nname = "main"\nhost = ["main.test"]\nroot = "{root}"\n{more}'
    )


def many_certificates(count):
    """As many sites, each with a certificate and a key in files of its own."""
    return lambda port: f'[[listen]]\naddress = "127.0.0.1:{port}"\ntls = true\n' + "".join(
        f'\n[[site]]\nname = "s{number}"\nhost = ["s{number}.test"]\nroot = "main"\n'
        f'certificate = "s{number}.crt"\nkey = "s{number}.key"\n'
        for number in range(count)
    )


def service_site(command):
    return files_site(f'\n[[site.service]]\nname = "probe"\npath = "/probe"\ncommand = ["{command}"]\nread = ["."]\n')


class Checked(Server):
    """A server that need not start."""

    def __init__(self, text, **more):
        more.setdefault("programs", ())
        super().__init__(sites=[], text=text, files={"main/index.html": "main"} | more.pop("files", {}), **more)

    def check(self, *words):
        done = self.command("check", *words, self.config)
        return done.returncode, done.stderr.replace(f"{self.folder}/", "")

    def run_it(self):
        """What `run` says of what it does not start."""
        done = self.command("run", self.config)
        return done.returncode, done.stderr.replace(f"{self.folder}/", "")

    def close(self):
        shutil.rmtree(self.folder, ignore_errors=True)


@rootless_too
class Check(unittest.TestCase):
    def server(self, *words, **more):
        server = Checked(*words, **more)
        self.addCleanup(server.close)
        return server

    def test_however_many_certificates_there_are(self):
        # A process reads 128 files: a certificate and a key for each of 64 sites.
        for count in (63, 64, 65, 128, 129, 300):
            with self.subTest(count=count):
                server = self.server(many_certificates(count))
                own, key = certificate(server.folder, "own", "ec", *(f"s{number}.test" for number in range(count)))
                _, other = certificate(server.folder, "other", "ec", "s0.test")
                for number in range(count):
                    # The keys of the first and of the last belong to another certificate.
                    files = ("crt", own), ("key", other if number in (0, count - 1) else key)
                    for end, content in files:
                        path = server.write(f"s{number}.{end}", content)
                        path.chmod(0o600)
                        give(path)
                code, said = server.check()
                self.assertEqual((code, said.count("has no certificate that belongs to its key")), (2, 2), said)
                self.assertNotIn("cannot be examined", said)

    def refused(self, server, *lines):
        code, said = server.check()
        self.assertEqual(code, 2, said)
        for line in lines:
            self.assertIn(line, said)
        # Warnings of what is served are for who asks; both refuse the same.
        self.assertEqual(server.run_it(), (2, said))

    def warned(self, server, *lines):
        code, said = server.check()
        self.assertEqual(code, 0, said)
        for line in lines:
            self.assertIn(line, said)
        self.assertEqual(server.check("--strict")[0], 2)

    def good(self, server):
        self.assertEqual(server.check("--strict"), (0, ""))

    def test_every_file_is_looked_into_at_once(self):
        server = Tls(more='client_ca = "ca.pem"\nclient_crl = ["list.pem"]\nauth = { users = "users" }\n')
        self.addCleanup(shutil.rmtree, server.folder, True)
        _, other = certificate(server.keys, "other", "ec", "b.test")
        cert, key = certificate(server.keys, "own", "ec", "b.test")
        server.write("b.pem", cert + other).chmod(0o600)
        for name, content in (("ca.pem", "nothing\n"), ("list.pem", "nothing\n"), ("users", f"ann:{GOOD}\nbob:plain\n")):
            server.write(name, content)
        server.write("a-rsa.pem", cert).chmod(0o600)
        give(*server.folder.glob("*.pem"), server.folder / "users")
        done = server.command("check", server.config)
        said = done.stderr.replace(f"{server.folder}/", "")
        self.assertEqual(done.returncode, 2, said)
        for line in (
            "error: `certificates` a-rsa.pem needs exactly one private key", "error: `certificates` b.pem has no certificate that",
            "error: `client_ca` ca.pem cannot be used: there is no certificate in it", "error: `client_crl` list.pem cannot be used: ",
            "error: `users` users cannot be used: line 2: it is no user with a bcrypt hash", "= help: put the private key into it",
            "bulkhead.toml: 5 errors",
        ):
            self.assertIn(line, said)
        ran = server.command("run", server.config)
        self.assertEqual((ran.returncode, ran.stderr.replace(f"{server.folder}/", "")), (2, said))
        listed = json.loads(server.command("check", "--json", server.config).stdout)
        self.assertEqual([one["severity"] for one in listed].count("error"), 5)
        self.assertNotIn("PRIVATE KEY", done.stderr)
        encrypted = openssl("pkey", "-aes128", "-passout", "pass:x", input=key)
        server.write("b.pem", cert + encrypted).chmod(0o600)
        give(server.folder / "b.pem")
        said = server.command("check", server.config).stderr
        self.assertIn("b.pem needs exactly one private key (PEM, not encrypted)", said)

    def test_a_program_of_cargos_is_run(self):
        server = self.server(service_site("debug/probe"), files={"debug/deps/x": ""})
        shutil.copyfile(program("probe"), server.folder / "debug/deps/probe-0")
        (server.folder / "debug/deps/probe-0").chmod(0o755)
        os.link(server.folder / "debug/deps/probe-0", server.folder / "debug/probe")
        give(server.folder / "debug", *(server.folder / "debug").rglob("*"))
        before = (server.folder / "debug/probe").stat()
        self.good(server)
        with server:
            self.assertEqual(server.status("/probe"), 200)
            after = (server.folder / "debug/probe").stat()
            same = lambda found: (found.st_uid, found.st_gid, found.st_mode, found.st_nlink)
            self.assertEqual(same(before), same(after))
            server.process("debug/probe").kill()
            self.assertTrue(until(lambda: server.status("/probe") == 200, 10))

    def test_a_link_to_a_program_is_followed(self):
        server = self.server(service_site("bin/now"), programs=("probe",))
        (server.folder / "bin/now").symlink_to("probe")
        give(server.folder / "bin/now")
        self.good(server)
        with server:
            self.assertEqual(server.status("/probe"), 200)

    def test_programs_that_are_none(self):
        server = self.server(service_site("bin/script"), files={"bin/script": "#!/usr/bin/python3\n"})
        (server.folder / "bin/script").chmod(0o755)
        self.refused(server, "error: `command` bin/script is not an ELF executable, as the program of a service is", "`upstream`")
        shutil.copyfile(program("probe"), server.folder / "bin/script")
        for mode, what in ((0o4755, "is setuid or setgid"), (0o757, "can be written by everybody")):
            (server.folder / "bin/script").chmod(mode)
            self.refused(server, f"error: `command` bin/script {what}")

    def test_folders_of_its_own(self):
        server = self.server(files_site())
        (server.folder / "run").mkdir()
        (server.folder / "run").chmod(0o777)
        give(server.folder / "run")
        self.refused(server, "error: `run_dir` run belongs to uid", "and has mode 0777", "= help: run `chmod go-w run`")
        (server.folder / "run").chmod(0o755)
        self.good(server)
        server.config.write_text(server.config.read_text().replace("[server]\n", '[server]\nlog_dir = "a/b/log"\n'))
        self.refused(server, "error: `log_dir` a/b/log cannot be made", "= help: run `mkdir -p a/b`")

    def test_a_folder_that_nobody_can_read(self):
        server = self.server(files_site())
        (server.folder / "main").chmod(0o700 if not ROOTLESS else 0o000)
        who = "by this user" if ROOTLESS else 'by the worker of site "main"'
        self.refused(server, f"error: `root` main cannot be read {who}", "= help: run `chmod ", "setfacl -m u:")
        (server.folder / "main").chmod(0o755)
        (server.folder / "main/index.html").chmod(0o600 if not ROOTLESS else 0o000)
        self.warned(server, "warning: `root` main has index.html, which the worker of site \"main\" cannot read", "chmod -R o+rX main/index.html")
        (server.folder / "main/index.html").chmod(0o644)
        self.good(server)

    def test_sources_that_everybody_gets(self):
        names = ["app/settings.env", "app/tool.py", "dump.sql", "z.cgi", ".env", "x.php", "page.html"]
        server = self.server(files_site(), files={f"main/{name}": "" for name in names})
        self.warned(
            server, "warning: `root` main has app/settings.env, app/tool.py, dump.sql and 1 more, which is sent as a file", '`suffix = ".env"`'
        )
        rules = "".join(f'[[site.route]]\nsuffix = "{suffix}"\ndeny = ["0.0.0.0/0"]\n' for suffix in (".env", ".py", ".sql", ".cgi"))
        server.config.write_text(server.config.read_text().replace("[server]\n", f"{rules}[server]\n"))
        self.good(server)
        server.config.write_text(server.config.read_text().replace(rules, ""))
        with server:
            self.assertEqual(server.status("/dump.sql"), 200)

    def test_a_socket_that_nobody_listens_at(self):
        route = '[[site.route]]\npath = "/api/"\nupstream = "unix:app.sock"\n'
        server = self.server(files_site(route))
        self.warned(server, "warning: `upstream` app.sock is not there", "until then clients get 502")
        server.write("app.sock", "")
        self.refused(server, "error: `upstream` app.sock is not a socket")
        (server.folder / "app.sock").unlink()
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(str(server.folder / "app.sock"))
            self.good(server)


@rootless_too
class Broken(unittest.TestCase):
    def test_a_key_that_is_broken_while_the_server_runs_changes_nothing(self):
        with Tls() as server:
            shown = lambda: server.s_client("b.test").partition("-----BEGIN")[2].partition("-----END")[0]
            self.assertTrue(shown())
            before, signer = shown(), server.process("signer")
            cert, _ = certificate(server.keys, "one", "ec", "b.test")
            _, key = certificate(server.keys, "two", "ec", "b.test")
            server.write("b.pem", cert + key).chmod(0o600)
            give(server.folder / "b.pem")
            for order in ("relaunch signer", "reload"):
                done = server.command(*order.split(), "--config", server.config)
                self.assertEqual(done.returncode, 2 if done.stderr.startswith("bulkhead.toml") else 1, done.stderr)
                self.assertIn("has no certificate that belongs to its key", done.stderr)
                # The one that could not take its place goes.
                self.assertTrue(until(lambda: server.processes("signer") == [signer], 5), server.log())
                self.assertEqual(shown(), before)
            self.assertIn("of site b: the file has no certificate that belongs to its key; name the key", server.log())
            server.install("b", "ec", "b.test")
            self.assertEqual(server.command("relaunch", "signer", "--config", server.config).returncode, 0)
            self.assertTrue(until(lambda: shown() not in ("", before), 10))


if __name__ == "__main__":
    unittest.main()
