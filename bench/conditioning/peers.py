"""The servers under test: ours, and Apache and nginx as they come, each of these with and without a guard.

Started by bench/conditioning/run as root inside of its network namespace, all on one core; each is stopped by its pids.
"""

import pathlib
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from benchlib import proc, servers, tools  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
#: Small and large files of the site: {name: bytes}
FILES = {"small.bin": 100, "large.bin": 400_000, "huge.bin": 8_000_000}
LABELS = {"ours": "Bulkhead", "guarded-apache": "Apache, guarded", "guarded-nginx": "nginx, guarded",
          "apache": "Apache alone", "nginx": "nginx alone"}
NAMES = list(LABELS)
#: How many connections a server of that configuration serves at once.
AT_ONCE = {"apache": 150, "nginx": 1536}


class Peer(servers.Server):
    """One of them. `filters` is how many programs stand in the chain."""

    number = 0

    def __init__(self, kind, work, core, program, filters=0):
        Peer.number += 1
        # In a namespace of our own every port is free; these are below those that clients get.
        super().__init__(f"{kind}-{Peer.number}", work, 8000 + Peer.number, core, program)
        self.kind, self.filters = kind, filters
        # Servers that run side by side share no uid.
        self.users = f"{51000 + 50 * Peer.number}-{51049 + 50 * Peer.number}"

    @property
    def label(self):
        return LABELS[self.kind]

    def start(self):
        super().start()
        for name, size in FILES.items():
            (self.directory / "public" / name).write_bytes(bytes(size))
            (self.directory / "public" / name).chmod(0o644)

    def argv(self):
        if self.kind == "ours":
            return [str(self.program), "run", self.configure("ours.toml")]
        plain = self.kind.removeprefix("guarded-")
        config = self.configure(f"{plain}.conf")
        command = {"apache": [tools.find("apache2"), "-f", config, "-DFOREGROUND"],
                   "nginx": [tools.find("nginx"), "-c", config]}[plain]
        if plain == self.kind:
            return command
        chain = ["--filter", str(filter_program(self.program))] * self.filters
        return [str(self.program), "guard", "--user-range", self.users, *capacity(plain), *chain, "--", *command]

    def configure(self, template):
        text = (HERE / "peers" / template).read_text(encoding="utf-8")
        for word, value in (("@PORT@", self.port), ("@DIR@", self.directory), ("@MODULES@", modules() or ""),
                            ("@USERS@", self.users), ("@POLICIES@", self.conditioning())):
            text = text.replace(word, str(value))
        path = self.directory / template
        path.write_text(text, encoding="utf-8")
        path.chmod(0o644)
        return str(path)

    def conditioning(self):
        """Our table with the chain of filters, each a process in its own jail; empty without any."""
        program = filter_program(self.program)
        filters = ", ".join(f'["{program}"]' for _ in range(self.filters))
        return f"[conditioning]\nfilters = [{filters}]" if filters else ""

    def command(self):
        line = {"ours": "bulkhead run ours.toml", "apache": "apache2 -f apache.conf -DFOREGROUND",
                "nginx": "nginx -c nginx.conf"}[self.kind.removeprefix("guarded-")]
        plain = self.kind.removeprefix("guarded-")
        guard = "" if plain == self.kind else f"bulkhead guard {' '.join(capacity(plain))} -- "
        return f"taskset -c {self.core} {guard}{line}"

    def settle(self, seconds=30):
        """Waits until no process of the server has come or gone for a while: Apache grows slowly."""
        still = 3 if "apache" in self.kind else 0.5
        end, last, since = time.monotonic() + seconds, None, time.monotonic()
        while time.monotonic() < end:
            count = len(proc.family(self.process.pid))
            if count != last:
                last, since = count, time.monotonic()
            elif time.monotonic() - since > still:
                return
            time.sleep(0.25)


def capacity(plain):
    """The option by which a guard knows how many it may send: what it knows of a server of somebody else's."""
    return ["--capacity", str(AT_ONCE[plain])]


def modules():
    """The folder of Apache's modules."""
    places = ("/usr/lib/apache2/modules", "/usr/lib64/httpd/modules", "/usr/lib/httpd/modules")
    return next((place for place in places if pathlib.Path(place).is_dir()), None)


def filter_program(program):
    """The filter that passes everything on, beside our other programs."""
    return program.parent / "pass"


def lacking(name, program):
    """Why this server cannot be measured here; empty if it can."""
    plain = name.removeprefix("guarded-")
    if plain == "apache" and not (tools.find("apache2") and modules()):
        return "apache2 is not installed (apache2-bin)"
    if plain == "nginx" and not tools.find("nginx"):
        return "nginx is not installed (nginx-light)"
    if (plain == "ours" or plain != name) and not program.exists():
        return "Bulkhead is not built; `make build`"
    if plain != name and subprocess.run([str(program), "guard", "--help"], capture_output=True).returncode != 0:
        return "this bulkhead has no `guard` yet"
    return ""


def versions(program, without):
    """What the programs say of themselves."""
    found = {"apache": tools.first_line([tools.find("apache2"), "-v"]) if "apache" not in without else "",
             "nginx": tools.first_line([tools.find("nginx"), "-v"]) if "nginx" not in without else "",
             "bulkhead": tools.first_line([str(program), "--version"]) + f" ({tools.commit()})"}
    return {name: words.partition(": ")[2] or words for name, words in found.items() if words}
