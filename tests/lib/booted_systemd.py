"""A real systemd, as the first process of namespaces of its own, in a control group of its own.

It has the machine's programs and network, and nothing else of it that could be changed: `/run`, `/var` and `/srv` are its own,
and it knows no units but those of the test.
"""

import contextlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from client import until
from harness import ROLES, TOP, configuration, free_port, free_uids, program

SYSTEMD = next(filter(os.path.exists, ("/usr/lib/systemd/systemd", "/lib/systemd/systemd", "/usr/bin/systemd")), None)
#: What the units of every program ask for, without what is in them on a machine.
TARGETS = ("sysinit", "basic", "sockets", "network-online", "nss-lookup", "shutdown", "umount", "multi-user", "test")
EXAMPLES = TOP / "examples" / "systemd"

FIRST = """set -eu
mount --make-rprivate /
mount -t proc proc /proc
mount -o bind /proc/sys /proc/sys
mount -o remount,ro,bind /proc/sys
umount -R -l /sys/fs/cgroup
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount -o bind "$1/console" /dev/console
for folder in /run /var/lib /var/log /var/tmp; do mount -t tmpfs tmpfs "$folder"; done
mount -o bind "$1/srv" /srv
mkdir /run/units
mount -o bind "$1/units" /run/units
exec env -i PATH="$PATH" container=test SYSTEMD_UNIT_PATH=/run/units \\
    "$2" --system --unit=test.target --show-status=0 --log-target=console
"""


def example(name):
    """The text of a unit of the examples, with programs and configuration where they are in /srv."""
    text = (EXAMPLES / name).read_text()
    return text.replace("/usr/local/bin/", "/srv/bin/").replace("/etc/bulkhead/", "/srv/")


def control_groups():
    """Where version 2 of control groups is mounted; `None` if it is not."""
    lines = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    return next((Path(line[1]) for line in lines if line[2] == "cgroup2"), None)


class Systemd:
    """Use it with `with`; the files of a server are in `srv`, which is `/srv` for what runs."""

    def __init__(self):
        self.folder = Path(tempfile.mkdtemp(prefix="bulkhead-systemd-", dir="/tmp"))
        self.srv, self.port = self.folder / "srv", free_port()
        uids = free_uids()
        self.settings = {"server": {"user_range": f"{uids[0]}-{uids[-1]}", "state_dir": "/var/lib/bulkhead",
                                    "run_dir": "/run/bulkhead", "log_dir": "/var/log/bulkhead", "gates": 2}}
        self.group = control_groups() / self.folder.name
        for path in (self.folder / "units", self.srv / "bin"):
            path.mkdir(parents=True)
        (self.folder / "console").touch()
        for path in (self.folder, self.srv):
            path.chmod(0o755)
        for name in ROLES:
            shutil.copy(program(name), self.srv / "bin" / name)
        for name in TARGETS:
            self.unit(f"{name}.target", "[Unit]\nDefaultDependencies=no\n", reload=False)

    def __enter__(self):
        self.group.mkdir()
        into = 'echo $$ >"$0/cgroup.procs" && exec unshare --mount --pid --fork --cgroup --uts --ipc --kill-child bash -c "$@"'
        command = ["bash", "-c", into, str(self.group), FIRST, "first", str(self.folder), SYSTEMD]
        with open(self.folder / "console", "ab") as console:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=console, stderr=console)
        if not until(lambda: self.systemctl("is-system-running").stdout == "running\n", 20, pause=0.2):
            self.__exit__()
            raise AssertionError(f"systemd does not come up: {self.console}")
        return self

    def __exit__(self, *_):
        self.console = (self.folder / "console").read_text()
        self.process.kill()
        self.process.wait()
        # The namespace's processes end with its first one, which ends with the process that was killed.
        until(lambda: not self.living())
        for group in sorted((path for path in self.group.rglob("*") if path.is_dir()), reverse=True):
            group.rmdir()
        self.group.rmdir()
        shutil.rmtree(self.folder)

    def living(self):
        with contextlib.suppress(OSError):
            return any(path.read_text() for path in self.group.rglob("cgroup.procs"))
        return True

    def systemctl(self, *words, timeout=60):
        """Runs `systemctl` where systemd is."""
        # The one child of `unshare` is systemd.
        tasks = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        inside = ["nsenter", "-t", tasks[0] if tasks else "0", "-m", "-p", "-C", "-i", "-u"]
        return subprocess.run([*inside, "systemctl", *words], capture_output=True, text=True, timeout=timeout, check=False)

    def show(self, name, unit="bulkhead.service"):
        """A property of a unit."""
        return self.systemctl("show", "--value", "-p", name, unit).stdout.strip()

    def unit(self, name, text, reload=True):
        path = self.folder / "units" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        if reload:
            self.systemctl("daemon-reload")

    def configure(self, *sites, more=""):
        """Writes the configuration of a server with these sites."""
        for about in sites:
            (self.srv / about["root"]).mkdir(exist_ok=True)
            (self.srv / about["root"] / "index.html").write_text(f"<h1>{about['name']}</h1>\n")
        (self.srv / "bulkhead.toml").write_text(configuration(self.port, sites, self.settings) + more)

    def journal(self):
        """What the server has logged."""
        log = self.systemctl("show", "--value", "-p", "StatusText", "-p", "Result", "bulkhead.service").stdout
        tasks = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        path = Path(f"/proc/{tasks[0]}/root/var/log/bulkhead/error.log")
        return log + (path.read_text() if path.exists() else "") + (self.folder / "console").read_text()
