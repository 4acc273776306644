"""What is done to the server by who has files of a site: programs, templates, and files of the configuration."""

import contextlib
import itertools
import os
import pathlib
import shutil
import tempfile

from evidence import noted
from slow_programs import with_missing_libraries

#: A template of this many bytes of what stands in each other, and is as deep as that.
BOMB_BYTES = 120_000
BOMBS = ["-", "not ", "+", "a**", "a.b.b.", "(", "[", "a if ", "a|b|"]
#: As much as a site may have, and wrong nowhere.
MUCH = "{% if a %}{{ b }}{% endif %}" * 8500
PAGES = 16


def templates(server):
    """A folder of templates that end whoever compiles them by recursion, and the most that are right, published by turns."""
    for number in range(2, PAGES):
        server.write(f"templates/{number}.html", MUCH)
    for bomb in itertools.cycle(BOMBS):
        text = bomb * (BOMB_BYTES // len(bomb))
        expression, statement = "{{ " + text + "1 }}", "{% if " + text + "1 %}" + "{% for a in b %}" * 5000
        for pages in ((expression, statement), (MUCH, MUCH)):
            for number, page in enumerate(pages):
                server.write(f"templates/{number}.html", page)
            server.order(command="republish", site="owned")
            noted()


def included_pipe(server):
    """A FIFO among the files of the configuration, which is read again and again."""
    path = server.folder / "sites/x.toml"
    with contextlib.suppress(FileExistsError):
        os.mkfifo(path)
    while True:
        noted(server.command("reload", "--run-dir", "run").returncode != 0)


def relaunch(server, name):
    """As often as the service's owner likes, whatever comes of it."""
    while True:
        noted(server.command("relaunch", "--run-dir", "run", name).returncode != 0)


def libraries(server):
    """A program that asks for 700 libraries that are not there, in 299 spellings of a folder."""
    with tempfile.TemporaryDirectory() as made:
        server.copy_program(str(with_missing_libraries(pathlib.Path(made))), "slow")
    relaunch(server, "owned/slow")


def sparse_program(server):
    """A program of three GiB of holes, which has two names."""
    program, new = server.folder / "bin/sparse", server.folder / "bin/new"
    shutil.copyfile(server.folder / "bin/owned", new)
    new.chmod(0o755)
    os.truncate(new, 3 << 30)
    # A name of the program of this round, and not of that before.
    second = server.folder / "bin/second"
    second.unlink(missing_ok=True)
    os.link(new, second)
    new.rename(program)
    relaunch(server, "owned/sparse")


@contextlib.contextmanager
def frozen(victims):
    """The file system of the attacker's site answers nothing, and somebody waits for it."""
    victims.tree.frozen = True
    try:
        yield
        assert victims.tree.waiting, "nobody waits for the file system"
    finally:
        victims.tree.frozen = False


def silent_files(server):
    """Everything that the configuration names of a site is on a file system that does not answer: processes that need it end and are
    ordered again, the configuration is read again, and clients ask for what is there."""
    for process in server.processes("site far") + server.processes("bin/far"):
        process.kill()
    for number in itertools.count():
        server.config.write_text(server.config.read_text().replace(f'realm = "{number}"', f'realm = "{number + 1}"'))
        server.command("reload", "--run-dir", "run", timeout=60)
        answer = server.command("relaunch", "--run-dir", "run", "far", timeout=60)
        noted("has not answered" in answer.stderr)
        with contextlib.suppress(OSError):
            server.get("/", "far.test", timeout=1)
