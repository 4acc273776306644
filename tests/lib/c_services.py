"""Services in C: the program that tests ask, compiled with the SDK for C, and the server that runs it."""

import subprocess
import urllib.parse

from databases import SCHEMA, STATEMENTS, data_site
from harness import TOP, program, service, site
from reloading import Reloading

HEADERS = TOP / "c" / "include"
#: What tests ask for, by the last word of the path.
SOURCE = TOP / "c" / "tests" / "service.c"
MORE = """
-- name: types :one
-- services: asker
-- params: a int?, b blob
SELECT :a AS a, :b AS b;

-- name: values :many
-- services: asker
-- params: a int?, b real, c text, d blob
SELECT :a AS a, :b AS b, :c AS c, :d AS d;

-- name: large :many
-- services: asker
-- params: count int
-- max_rows: 100000
-- max_bytes: 16MiB
WITH RECURSIVE n(at) AS (SELECT 1 UNION ALL SELECT at + 1 FROM n WHERE at < :count) SELECT at, 'a text of some length' AS text FROM n;

-- name: endless :one
-- services: asker
-- timeout: 1m
WITH RECURSIVE n(at) AS (SELECT 1 UNION ALL SELECT at + 1 FROM n) SELECT count(*) AS count FROM n;
"""


def compile_program(source, into, *options):
    """Compiles a program of one file with the SDK for C, as a user would."""
    words = ["cc", "-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", f"-I{HEADERS}", *options, "-o", into, source, program("libbulkhead.a")]
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, check=False)
    if done.returncode:
        raise AssertionError(done.stderr)
    return into


def compile_sanitized(source, into):
    """Compiles it together with the SDK, with the sanitizers of addresses and of undefined behaviour."""
    words = ["cc", "-std=gnu11", "-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", f"-I{HEADERS}"]
    done = subprocess.run([*words, "-o", into, source, *sorted(TOP.glob("c/src/*.c"))], capture_output=True, text=True, check=False)
    if done.returncode:
        raise AssertionError(done.stderr)
    return into


def c_service(name="c", *words, **more):
    """A service in C."""
    return service(name, f"/{name}", **{"command": ["bin/asked", *words]} | more)


def c_site(*services, name="main", **more):
    """A site with services in C, or with one."""
    return site(name, list(services) or [c_service()], **more)


class CServer(Reloading):
    """A server with services in C."""

    def __init__(self, *sites, files=None, **settings):
        super().__init__(list(sites) or [c_site()], programs=(), files=files, **settings)
        compile_program(SOURCE, self.folder / "asked")
        self.copy_program(str(self.folder / "asked"))

    def workers(self):
        """The pids of the services' processes."""
        return [process.pid for process in self.processes("bin/asked")]


class CDataServer(CServer):
    """A server with a source `catalog`, and the services `asker` and `other` that call its statements."""

    def __init__(self, statements=STATEMENTS + MORE, schema=SCHEMA, words=(), about=None, **settings):
        asks = [c_service(name, *words, data=["catalog"]) for name in ("asker", "other")]
        files = {"catalog.sql": statements, "schema.sql": schema}
        super().__init__(data_site("main", asks, **about or {}), files=files, **settings)

    def call(self, statement, *values, of="asker", **more):
        """The status of a call, and what came: values are written as the program reads them."""
        words = {"statement": statement} | {f"p{at}": value for at, value in enumerate(values)} | more
        answer = self.get(f"/{of}/call?{urllib.parse.urlencode(words)}")
        return answer.status, answer.text

    def rows(self, statement, *values, **more):
        """The lines of an answer that is good."""
        status, text = self.call(statement, *values, **more)
        if status != 200:
            raise AssertionError(text)
        return text.splitlines()

    def proxy(self):
        return self.process("dataproxy main/catalog")
