"""Programs that take long to examine, and for how long a launcher has kept others waiting."""

import contextlib
import json
import os
import subprocess

from harness import Process, children

#: Milliseconds that one step of the launcher's loop may take, whatever somebody else does (docs/internals/limits.md).
STEP_MS = 50


def with_missing_libraries(folder, count=700):
    """A program that asks its loader for so many libraries that are not there, in so many spellings of a folder."""
    stub = folder / "libn0.so"
    subprocess.run(["cc", "-shared", "-nostdlib", "-x", "c", "/dev/null", "-o", stub], check=True)
    for number in range(1, count):
        os.link(stub, folder / f"libn{number}.so")
    (folder / "main.c").write_text("int main(void) { return 0; }\n")
    spellings = ":".join(f"/usr/lib{'/.' * number}" for number in range(1, 300))
    words = ["cc", "main.c", "-o", "app", "-L.", "-Wl,--no-as-needed", f"-Wl,-rpath,{spellings}"]
    words += [f"-l:libn{number}.so" for number in range(count)]
    subprocess.run(words, check=True, cwd=folder)
    return folder / "app"


def step_ms(server, which="longest"):
    """How long the longest step of the launcher's loop has taken, of all or `lately`, in milliseconds."""
    return json.loads(server.command("status", "--json", "--run-dir", "run").stdout)["launcher_step_ms"][which]


def step_was(server, which="longest"):
    """What took most of that step."""
    return json.loads(server.command("status", "--json", "--run-dir", "run").stdout)["launcher_step"][which]


def examining(server):
    """The launcher's copy that examines a program."""
    executable = os.readlink(f"/proc/{server.launcher.pid}/exe")
    for process in children(server.launcher.pid):
        with contextlib.suppress(OSError):
            if os.readlink(process.folder / "exe") == executable and process.words == Process(server.launcher.pid).words:
                return process
    return None
