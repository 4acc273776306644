"""The probe of the jails, as tests use it: which processes it is asked of, its answers, and tables of them.

The probe (`bulkhead-probe`) is started by the launcher in the very jail of a process and makes every attempt of its
table there. What it says is compared with what is written here: a success that is not listed, an attempt that was not
made, or one that is gone from the table, fails.
"""

import functools
import json
import os
import re
import subprocess
import tempfile

import generated
from harness import NOBODY, ROOTLESS, TOP, program

PAGE = TOP / "docs" / "security" / "attempts.md"
WRITES = bool(os.environ.get("BULKHEAD_WRITE_DOCS"))

#: What the probe is asked for, by the words of the tables.
ALWAYS = {"gate": "gate", "site": "main", "logger": "logger", "admin": "admin"}
#: Those that there are only where the configuration has certificates, servers behind a site, or grants of a network.
ROLES = ALWAYS | {
    "signer": "signer", "stapler": "stapler", "connector": "main:connector", "granted connector": "main/net:connector",
    "data's connector": "main/away:data:connector", "broker": "main/net:broker", "data proxy": "main/catalog:data",
    "data proxy at a server": "main/away:data", "publisher": "main:templates",
}
WORKERS = {
    "service": "main/probe", "with connections": "main/direct", "with network": "main/net", "filter": "filter",
    "data door": "far/door",
}
POSTS = ROLES | WORKERS

GROUPS = {
    "A": "Inherited",
    "B": "Processes",
    "C": "Files",
    "D": "Network and IPC",
    "E": "Kernel",
    "F": "Resources",
    "G": "Identity",
}


@functools.cache
def table():
    """The probe's table: attempts by their ids, with nothing tried."""
    done = subprocess.run([program("bulkhead-probe"), "list"], capture_output=True, text=True, check=True, timeout=20)
    return {attempt["id"]: attempt for attempt in json.loads(done.stdout)}


def ask(server, name, what):
    """The answer to an order for a probe."""
    return server.order(command="probe", name=name, what=what)


def probe(server, name, what="attempts"):
    """What the probe says in the jail of `name`."""
    answer = ask(server, name, what)
    if not answer["ok"]:
        raise AssertionError(f"probe of {name}: {answer['error']}")
    return answer["report"]


def probe_by_guard(process, *words):
    """What the probe says in the jail of a process that no order reaches: a guard makes the jail with the functions that
    make the real one."""
    text = """
        server.user_range = "52001-52999"
        listen = [{ address = "127.0.0.1:1" }]
        site = [{ name = "guard", host = ["*"], root = "/dev/null" }]
    """
    command = [program("bulkhead-guard"), "--config-text", text, "--probe", process, "--", *words]
    user = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if ROOTLESS else {}
    with tempfile.TemporaryFile() as output:
        subprocess.run(command, stdout=output, check=True, timeout=90, **user)
        output.seek(0)
        return json.loads(output.read())


def by_id(report):
    """The attempts of a report by their ids."""
    return {attempt["id"]: attempt for attempt in report["attempts"]}


def with_result(report, result):
    """The ids of the attempts that ended so."""
    return {attempt["id"] for attempt in report["attempts"] if attempt["result"] == result}


def told(attempts):
    """Attempts in a form that is read in a failure."""
    return "\n".join(f"{a['id']}: {a['result']} {a['errno'] or ''} {a['detail']}" for a in attempts)


def place(server):
    """Puts the server's folder and port where the configuration has `@FOLDER@` and `@PORT@`."""
    text = server.config.read_text().replace("@FOLDER@", str(server.folder)).replace("@PORT@", str(server.port))
    server.config.write_text(text)
    return server


def page_has(name):
    """The part of the page that is generated under this name."""
    return generated.part_of(PAGE.read_text(), name)


def write_part(name, text):
    """Replaces a generated part of the page."""
    PAGE.write_text(generated.with_part(PAGE.read_text(), name, text))


def check_part(case, name, text):
    """The page says what was just found; or, with --write-docs, is made to."""
    if WRITES:
        write_part(name, text)
    case.assertEqual(page_has(name), text, "docs/security/attempts.md is not what was found: tests/run --write-docs renews it")


def markdown(head, rows):
    """A table."""
    line = lambda cells: "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |\n"
    return line(head) + line(["---"] * len(head)) + "".join(map(line, rows))


def table_rows(text):
    """The rows of a table made by `markdown`, of which no cell has a bar in it."""
    return [line.strip("| ").split(" | ") for line in text.splitlines()]
