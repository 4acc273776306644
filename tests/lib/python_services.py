"""Services in Python: a program, what its interpreter needs, and the server that runs it."""

import json
import subprocess
import urllib.parse

from databases import SCHEMA, STATEMENTS, data_site
from filter_program import PYTHON, library
from harness import TOP, free_port, service, site
from reloading import Reloading

SDK = TOP / "python"
#: Where `tests/prepare` installs Flask and others.
PACKAGES = TOP / "target" / "python"
#: What a plain service does, by its path.
PROGRAM = '''
import asyncio
import json
import os
import socket
import sys

from bulkhead_service import BodyError, Level, Response, Service, main


class Program(Service):
    async def init(self, cx):
        self.cx = cx
        if "fail" in cx.arguments:
            raise ValueError("no index here")
        if "block" in cx.arguments:
            await asyncio.Event().wait()
        print("it begins", flush=True, file=sys.stderr)

    async def process(self, request):
        deed = request.path.rpartition("/")[2]
        return await getattr(self, "do_" + deed, self.nothing)(request)

    async def command(self, name, argument):
        if name != "echo":
            raise ValueError(f"what is {name}?")
        return argument

    async def nothing(self, request):
        return Response.status_page(404)

    async def do_pid(self, request):
        return Response.text(f"{os.getpid()}\\n")

    async def do_about(self, request):
        return Response.json({
            "method": request.method, "path": request.path, "query": request.query, "client": str(request.client.ip),
            "headers": sorted([name.decode(), value.decode("latin-1")] for name, value in request.headers.raw),
            "scheme": request.scheme, "param": request.param("q"), "raw": request.raw_param("q"), "cookies": request.cookies,
        })

    async def do_sum(self, request):
        length = 0
        async for part in request.body:
            length += len(part)
        return Response.text(f"{length}\\n")

    async def do_echo(self, request):
        return Response("application/octet-stream", await request.bytes())

    async def do_early(self, request):
        return Response.text("early\\n")

    async def do_form(self, request):
        form = await request.form()
        return Response.text(f"{form.param('q')} {form.raw_param('q')}\\n")

    async def do_stream(self, request):
        async def parts():
            for number in range(int(request.param("parts"))):
                yield b"%06d\\n" % number
                await asyncio.sleep(0)
        return Response.streaming(parts(), "text/plain")

    async def do_slow(self, request):
        await asyncio.sleep(float(request.param("seconds")))
        return Response.text("slow\\n")

    async def do_error(self, request):
        raise RuntimeError("the secret word is xyzzy")

    async def do_broken(self, request):
        async def parts():
            yield b"some of it"
            raise RuntimeError("the stream is at its end")
        return Response.streaming(parts(), "text/plain")

    async def do_badheader(self, request):
        return Response.text("x").with_header("x-bad", "a\\r\\nset-cookie: b")

    async def do_event(self, request):
        self.cx.event(Level.WARNING, "something is odd")
        return Response.text("said\\n")

    async def do_cookie(self, request):
        return Response.text("set\\n").with_cookie("session", "1", max_age=60)

    async def do_connect(self, request):
        # As libraries do, on the loop and in a thread.
        port = int(request.param("port"))
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            first = await reader.read(100)
            writer.close()
            call = lambda: socket.create_connection(("127.0.0.1", port)).recv(100)
            return Response.text(first + await asyncio.get_running_loop().run_in_executor(None, call))
        except OSError as error:
            return Response.text(type(error).__name__).with_status(502)

    async def do_die(self, request):
        os.kill(os.getpid(), 9) if os.getpid() != 1 else os._exit(3)

    async def do_look(self, request):
        return Response.json(look())


def look():
    """What of its own jail it can do."""
    import mmap

    found = {"uid": os.getuid(), "folder": sorted(os.listdir("."))}

    def attempt(name, deed):
        try:
            deed()
            found[name] = True
        except Exception as error:
            found[name] = type(error).__name__

    def memory():
        mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)

    def mapped(path):
        with open(path, "rb") as file:
            mmap.mmap(file.fileno(), 4096, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_EXEC)

    def own():
        with open("/tmp/code.so", "wb") as file:
            file.write(bytes(8192))
        mapped("/tmp/code.so")

    def memfd():
        number = os.memfd_create("code")
        os.write(number, bytes(8192))
        mmap.mmap(number, 4096, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_EXEC)

    def executed(path):
        child = os.fork()
        if child == 0:
            try:
                os.execv(path, ["x"])
            except OSError as error:
                os._exit(error.errno)
        # A library has no beginning: executed, it ends by a signal.
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if status > 0:
            raise OSError(status, "")

    attempt("memory", memory)
    attempt("own file", own)
    attempt("memfd", memfd)
    attempt("library", lambda: mapped(mmap.__file__))
    attempt("read folder", lambda: mapped(__file__))
    attempt("map a program", lambda: mapped("code/native/true"))
    attempt("execute a program", lambda: executed("code/native/true"))
    attempt("write a library", lambda: open(mmap.__file__, "r+b"))
    attempt("passwd", lambda: open("/etc/passwd"))
    return found


main(Program)
'''


#: What the service `asker` of `examples/packages` does, for the tests of databases, with the SDK for Python.
ASKER = """
import asyncio
import json

from bulkhead_service import DataError, Failed, Response, Service, main


def value(found):
    return found if not isinstance(found, list) else json.dumps(found).encode()


class Asker(Service):
    async def init(self, cx):
        self.source = cx.data(cx.arguments[0])
        if len(cx.arguments) > 1:
            await self.source.many(cx.arguments[1])

    async def process(self, request):
        statement, values = request.raw_param("statement"), json.loads(request.raw_param("values") or "[]")
        try:
            found = await getattr(self, request.path.rpartition("/")[2].replace("-", "_"))(statement, values)
        except Failed as error:
            return Response.text(f"{error.fault}: {error.reason}\\n").with_status(502)
        except DataError as error:
            return Response.text(f"{error}\\n").with_status(503)
        return Response.text(json.dumps(found))

    async def one(self, statement, values):
        row = await self.source.one(statement, *map(value, values))
        return row and row.as_dict()

    async def many(self, statement, values):
        return [row.as_dict() for row in await self.source.many(statement, *map(value, values))]

    async def sync(self, statement, values):
        call = lambda: self.source.sync.many(statement, *map(value, values))
        return [row.as_dict() for row in await asyncio.get_running_loop().run_in_executor(None, call)]

    async def exec(self, statement, values):
        return await self.source.exec(statement, *map(value, values))

    async def transaction(self, statement, values):
        return [result.changed for result in await self.source.transaction(statement, *values)]

    async def give_up(self, statement, values):
        try:
            return await asyncio.wait_for(self.many(statement, values), 0.05)
        except asyncio.TimeoutError:
            return "gave up"

    async def at_once(self, statement, values):
        calls = [self.source.one(statement, number) for number in range(values[0])]
        return [row and row[0] for row in await asyncio.gather(*calls)]

    async def types(self, statement, values):
        sent = (None, True, -(1 << 63), 0.5, "'; -- \\0 \u00fc", bytes(range(256)), "x" * 300_000)
        return list(await self.source.one(statement, *sent)) == [None, 1, *sent[2:]]


main(Asker)
"""


def python(name="py", *words, **more):
    """A service in Python."""
    settings = {
        "command": [PYTHON, "-m", "program", *words], "read": ["code", str(SDK)], "libraries": [library()],
        "environment": {"PYTHONPATH": f"code:{SDK}", "PYTHONDONTWRITEBYTECODE": "1"},
    }
    return service(name, f"/{name}", **settings | more)


def python_site(*services, name="main", **more):
    """A site with services in Python, or with one."""
    return site(name, list(services) or [python()], **more)


class PythonServer(Reloading):
    """A server with services in Python, which also speaks HTTP/2 without TLS, on the port `h2c`."""

    def __init__(self, *sites, program=PROGRAM, files=None, **settings):
        files = {"code/program.py": program} | (files or {})
        self.h2c = free_port()
        super().__init__(list(sites) or [python_site()], programs=(), files=files, **settings)
        self.write_config(self.sites, **settings)

    def write_config(self, sites, text="", **settings):
        text += f'\n[[listen]]\naddress = "127.0.0.1:{self.h2c}"\nh2c = true\n'
        super().write_config(sites, text=text, **settings)

    def workers(self):
        """The pids of the services' processes."""
        return [process.pid for process in self.processes(PYTHON)]


class PythonDataServer(PythonServer):
    """A server with a source `catalog`, and the services `asker` and `other` that call its statements."""

    def __init__(self, statements="", schema="", words=(), **settings):
        asks = [python(name, command=[PYTHON, "-m", "program", "catalog", *words], data=["catalog"]) for name in ("asker", "other")]
        files = {"catalog.sql": STATEMENTS + statements, "schema.sql": SCHEMA + schema}
        super().__init__(data_site("main", asks), program=ASKER, files=files, **settings)

    def ask(self, how, statement, *values, of="asker"):
        """The status of a call, and what came."""
        words = urllib.parse.urlencode({"statement": statement, "values": json.dumps(list(values))})
        answer = self.get(f"/{of}/{how}?{words}")
        return answer.status, json.loads(answer.text) if answer.status == 200 else answer.text.strip()

    def proxy(self):
        return self.process("dataproxy main/catalog")


def missing():
    """Why the frameworks cannot be imported by the machine's own interpreter, or None."""
    words = [PYTHON, "-c", "import django, fastapi, flask, websockets"]
    found = subprocess.run(words, capture_output=True, text=True, env={"PYTHONPATH": str(PACKAGES)}, check=False)
    return f"{PYTHON} cannot import Django and others, which `tests/prepare process` installs: {found.stderr}" if found.returncode else None
