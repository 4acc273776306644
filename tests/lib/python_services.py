"""Services in Python: a program, what its interpreter needs, and the server that runs it."""

from filter_program import PYTHON, library
from harness import TOP, free_port, service, site
from reloading import Reloading

SDK = TOP / "python"
#: What a plain service does, by its path.
PROGRAM = '''
import asyncio
import json
import os
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
