"""Data proxies speak TLS to database servers that are said to have it, and to nobody else there."""

import os
import unittest

from client import until
from database_servers import DATABASE, NOBODY, PASSWORD, USER, MariaDb, Postgresql, Redis, quoted
from databases import AtMariaDb, AtPostgresql, AtRedis, DataServer
from renewing import HOLDS, STAYS, Renewing
from harness import free_port
from tls_server import openssl
from written_again import alike, write_again

#: A statement that says whether the connection on which it is carried out has TLS.
SECURED = "\n-- name: secured :one\n-- services: asker\n{}\n"


class WithTls:
    """A server at a TCP port of its own, with a certificate of an authority of its own; its user has to come with TLS."""

    def install(self):
        super().install()
        self.port = free_port()
        self.make_authority("ca")
        openssl("req", "-x509", "-CA", self.at("ca.crt"), "-CAkey", self.at("ca.key"), "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
                "-nodes", "-days", "2", "-subj", "/CN=database", "-keyout", self.at("server.key"), "-out", self.at("server.crt"),
                "-addext", "basicConstraints=critical,CA:FALSE", "-addext", "subjectAltName=IP:127.0.0.1")
        os.chmod(self.at("server.key"), 0o600)
        if os.geteuid() == 0:
            os.chown(self.at("server.key"), NOBODY, NOBODY)

    def make_authority(self, name):
        openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", f"/CN={name}",
                "-keyout", self.at(f"{name}.key"), "-out", self.at(f"{name}.crt"))

    def at(self, name):
        return self.folder / name

    def settings(self, password="password"):
        return super().settings(password) | {"server": f"127.0.0.1:{self.port}", "server_ca": "ca.pem"}


class PostgresqlWithTls(WithTls, Postgresql):
    def install(self):
        super().install()
        with open(self.folder / "data" / "pg_hba.conf", "a") as rules:
            rules.write("hostssl all all 127.0.0.1/32 scram-sha-256\n")

    def command(self):
        settings = [f"port={self.port}", "listen_addresses=127.0.0.1", "ssl=on", f"ssl_cert_file={self.at('server.crt')}",
                    f"ssl_key_file={self.at('server.key')}"]
        return [*super().command(), *(word for text in settings for word in ("-c", text))]

    @property
    def socket_name(self):
        return f".s.PGSQL.{self.port}" if hasattr(self, "port") else "none"

    def start(self):
        self.socket = self.folder / self.socket_name
        super().start()

    def client(self, database):
        return [*super().client(database), "-p", str(self.port)]


class PostgresqlWithoutTls(PostgresqlWithTls):
    """It has the same certificate, and does not use it."""

    def command(self):
        return ["ssl=off" if word == "ssl=on" else word for word in super().command()]


class MariaDbWithTls(WithTls, MariaDb):
    def command(self):
        own = [word for word in super().command() if word != "--skip-networking"]
        return [*own, "--bind-address=127.0.0.1", f"--port={self.port}", "--skip-name-resolve", f"--ssl-cert={self.at('server.crt')}",
                f"--ssl-key={self.at('server.key')}"]

    def prepare(self):
        super().prepare()
        self.ask(f"CREATE USER {USER}@'127.0.0.1' IDENTIFIED BY '{quoted(PASSWORD)}' REQUIRE SSL; GRANT ALL ON {DATABASE}.* TO {USER}@'127.0.0.1'")


class MariaDbWithoutTls(MariaDbWithTls):
    """It has the same certificate, and does not use it."""

    def command(self):
        return [*(word for word in super().command() if not word.startswith("--ssl")), "--skip-ssl"]


class RedisWithTls(WithTls, Redis):
    def command(self):
        return [*super().command(), "--tls-port", str(self.port), "--bind", "127.0.0.1", "--tls-cert-file", self.at("server.crt"),
                "--tls-key-file", self.at("server.key"), "--tls-ca-cert-file", self.at("ca.crt"), "--tls-auth-clients", "no"]


class RedisWithoutTls(RedisWithTls):
    """It has the same certificate, and does not use it."""

    def command(self):
        words = [*Redis.command(self), "--bind", "127.0.0.1"]
        words[words.index("--port") + 1] = str(self.port)
        return words


class PostgresqlThatAsks(PostgresqlWithTls):
    """It lets nobody in without a certificate of its authority."""

    def install(self):
        super().install()
        rules = self.folder / "data" / "pg_hba.conf"
        rules.write_text(rules.read_text().replace("32 scram-sha-256\n", "32 scram-sha-256 clientcert=verify-ca\n"))

    def command(self):
        return [*super().command(), "-c", f"ssl_ca_file={self.at('ca.crt')}"]


class MariaDbThatAsks(MariaDbWithTls):
    """It lets its user in with a certificate of its authority alone."""

    def command(self):
        return [*super().command(), f"--ssl-ca={self.at('ca.crt')}"]

    def prepare(self):
        super().prepare()
        self.ask(f"ALTER USER {USER}@'127.0.0.1' REQUIRE X509")


class RedisThatAsks(RedisWithTls):
    """It lets nobody in without a certificate of its authority."""

    def command(self):
        words = super().command()
        words[words.index("--tls-auth-clients") + 1] = "yes"
        return words


class TlsAt:
    """A database there, and what the configuration says of it: by which authority the server's certificate is checked, for which host."""

    shared = None

    def __init__(self, authority="ca", host=None):
        super().__init__()
        self.authority, self.host = authority, host

    def settings(self):
        settings = super().settings()
        return settings | ({"server": f"{self.host}:{self.at.port}"} if self.host else {})

    def files(self, schema):
        return super().files(schema) | {"ca.pem": self.at.at(f"{self.authority}.crt").read_text()}


class TlsAtPostgresql(TlsAt, AtPostgresql):
    kind = PostgresqlWithTls
    secured = "SELECT version FROM pg_stat_ssl WHERE pid = pg_backend_pid() AND ssl;"


class TlsAtMariaDb(TlsAt, AtMariaDb):
    kind = MariaDbWithTls
    secured = "SELECT variable_value AS version FROM information_schema.session_status WHERE variable_name = 'Ssl_version';"


class TlsAtRedis(TlsAt, AtRedis):
    kind = RedisWithTls
    # It has no command for that which is for everybody.
    secured = None


class ShowsAt:
    """A database there, to which a certificate of this authority is shown, or none."""

    shared = None

    def __init__(self, signed_by="ca"):
        super().__init__()
        self.signed_by = signed_by

    def settings(self):
        return super().settings() | ({"certificate": "own.pem", "key": "own.key"} if self.signed_by else {})

    def files(self, schema):
        return super().files(schema) | (self.pair(self.signed_by) if self.signed_by else {})

    def pair(self, authority):
        """A new certificate of an authority, and its key."""
        if not self.at.at(f"{authority}.crt").exists():
            self.at.make_authority(authority)
        openssl("req", "-x509", "-CA", self.at.at(f"{authority}.crt"), "-CAkey", self.at.at(f"{authority}.key"), "-newkey", "ec", "-pkeyopt",
                "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", "/CN=proxy", "-keyout", self.at.at("own.key"), "-out",
                self.at.at("own.crt"), "-addext", "basicConstraints=critical,CA:FALSE")
        return {"own.pem": self.at.at("own.crt").read_text(), "own.key": self.at.at("own.key").read_text()}


class ShowsToPostgresql(ShowsAt, TlsAtPostgresql):
    kind = PostgresqlThatAsks


class ShowsToMariaDb(ShowsAt, TlsAtMariaDb):
    kind = MariaDbThatAsks


class ShowsToRedis(ShowsAt, TlsAtRedis):
    kind = RedisThatAsks


class Cases:
    engine = None

    def server(self, engine=None, kind=DataServer, **more):
        secured = SECURED.format(self.engine.secured) if self.engine.secured else ""
        return kind(engine or self.engine(), change=lambda text: text + secured, **more)

    def assert_refused(self, engine, why):
        with self.server(engine, answers=False) as server:
            self.assertTrue(until(lambda: why in server.log(), 20), server.log())
            checked = server.command("data", "check", "--config", server.config)
            self.assertEqual(checked.returncode, 2)
            self.assertIn(why, checked.stdout)

    def test_calls_go_over_tls(self):
        with self.server() as server:
            self.assertEqual(server.get("/asker/many?statement=users", "main.test").status, 200)
            checked = server.command("data", "check", "--config", server.config)
            self.assertEqual(checked.returncode, 0, checked.stdout + checked.stderr)
            if self.engine.secured:
                self.assertIn(b"TLSv1.3", server.get("/asker/one?statement=secured", "main.test").body)
                # A call that takes too long is stopped, which needs a connection more.
                self.assertIn(b"late", server.get("/asker/one?statement=slow", "main.test").body.lower())

    def test_an_authority_that_has_not_signed_for_the_server(self):
        engine = self.engine()
        engine.at.make_authority("stranger")
        engine.authority = "stranger"
        self.assert_refused(engine, "UnknownIssuer")

    def test_authorities_that_are_read_again(self):
        engine = self.engine()
        engine.at.make_authority("stranger")
        known, stranger = (engine.at.at(f"{name}.crt").read_text() for name in ("ca", "stranger"))
        with self.server(engine, kind=Renewing) as server:
            server.renew("ca.pem", stranger, f"`server_ca`: {STAYS}")
            self.assertIn("UnknownIssuer", server.log())
            self.assertTrue(server.answers_anew(), server.log())
            # What is no certificate is refused by the reload itself.
            server.write("ca.pem", "nothing")
            self.assertIn("there is no certificate in it", server.command("reload", "--run-dir", "run").stderr)
            both, wrong = (text.decode() for text in alike((stranger + known).encode(), (stranger * 2).encode()))
            server.renew("ca.pem", both, f"`server_ca`: {HOLDS}")
            self.assertTrue(server.answers_anew(), server.log())
            # Its time, size and inode stay what they were.
            said = server.log().count(STAYS)
            write_again(server.folder / "ca.pem", wrong.encode())
            server.reread()
            self.assertTrue(until(lambda: server.log().count(STAYS) > said, 10), server.log())

    def test_a_certificate_for_another_host(self):
        self.assert_refused(self.engine(host="localhost"), "not valid for name")

    def test_a_server_without_tls(self):
        engine = self.engine()
        with self.plain(folder=None) as at:
            engine.at = at
            self.assert_refused(engine, self.no_tls)


    def test_a_server_that_asks_for_a_certificate(self):
        with self.server(self.shows()) as server:
            self.assertEqual(server.get("/asker/many?statement=users", "main.test").status, 200)
            checked = server.command("data", "check", "--config", server.config)
            self.assertEqual(checked.returncode, 0, checked.stdout + checked.stderr)

    def test_a_server_that_asks_and_is_shown_none_or_a_strangers(self):
        for signed_by in (None, "stranger"):
            with self.subTest(signed_by=signed_by), self.server(self.shows(signed_by), answers=False) as server:
                checked = server.command("data", "check", "--config", server.config)
                self.assertEqual(checked.returncode, 2, checked.stdout)
                self.assertTrue(until(lambda: "error [dataproxy main/catalog]" in server.log(), 20), server.log())

    def test_a_certificate_that_is_replaced(self):
        engine = self.shows()
        with self.server(engine, kind=Renewing) as server:
            for text, name in zip(engine.pair("ca").values(), ("own.pem", "own.key")):
                server.write(name, text)
            server.renew("own.key", engine.at.at("own.key").read_text(), HOLDS)
            self.assertTrue(server.answers_anew(), server.log())
            # The check of a key beside another certificate refuses the reload, or the data proxy waits for the other
            # half.
            pair = engine.pair("ca")
            server.write("own.key", pair["own.key"])
            server.command("reload", "--run-dir", "run")
            self.assertTrue(server.answers_anew(), server.log())
            server.renew("own.pem", pair["own.pem"], HOLDS)
            self.assertTrue(server.answers_anew(), server.log())


@unittest.skipUnless(AtPostgresql.installed(), "there is no PostgreSQL")
class TlsToPostgresql(Cases, unittest.TestCase):
    engine, plain, shows = TlsAtPostgresql, PostgresqlWithoutTls, ShowsToPostgresql
    no_tls = "server does not support TLS"


@unittest.skipUnless(AtMariaDb.installed(), "there is no MariaDB")
class TlsToMariaDb(Cases, unittest.TestCase):
    engine, plain, shows = TlsAtMariaDb, MariaDbWithoutTls, ShowsToMariaDb
    no_tls = "it speaks no TLS, which `server_ca` asks for"


@unittest.skipUnless(AtRedis.installed(), "there is no Redis")
class TlsToRedis(Cases, unittest.TestCase):
    engine, plain, shows = TlsAtRedis, RedisWithoutTls, ShowsToRedis
    # It waits for the end of what it takes for a command.
    no_tls = "it may speak no TLS, which `server_ca` asks for"


if __name__ == "__main__":
    unittest.main()
