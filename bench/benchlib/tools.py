"""The programs the benchmark needs: where they are, and what version they are; and what machine this is."""

import glob
import os
import platform
import re
import resource
import shutil
import subprocess
import time



def find(program):
    """The path of a program, looking in the sbin directories too, or None. php-fpm has a version in its name."""
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    if program == "php-fpm" and not shutil.which(program, path=path):
        return max(glob.glob("/usr/sbin/php-fpm*"), default=None)
    return shutil.which(program, path=path)


def raise_limits():
    """Lets this process and its children open as many descriptors as they may: clients hold thousands."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def first_line(argv):
    """The first line a program says about itself, on either stream; empty if it cannot be run."""
    try:
        done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip().split("\n")[0]


def versions(ours):
    """What each program calls itself, for the report. Ours with the profile that it was built with, if that can be seen."""
    profile = ours.parent.name if ours.parent.parent.parent.name == "target" else ""
    about = ", ".join(filter(None, [commit(), f"profile {profile}" if profile else ""]))
    found = {"ours": first_line([str(ours), "--version"]) + (f" ({about})" if about else "")}
    asked = {"nginx": ["-v"], "h2o": ["-v"], "haproxy": ["-v"], "apache2": ["-v"], "php-fpm": ["-v"], "wrk": ["-v"],
             "h2load": ["--version"], "openssl": ["version"], "cc": ["--version"]}
    for program, words in asked.items():
        if path := find(program):
            line = re.sub(r"^(nginx|Server) version: | Copyright.*| - https://.*", "", first_line([path, *words]))
            found[program] = line.removeprefix("h2o version ").strip()
    return found


def commit():
    """The commit of the tree, with a + if it has changes; empty outside a repository."""
    here = os.path.dirname(os.path.abspath(__file__))
    run = lambda *argv: subprocess.run(["git", *argv], cwd=here, capture_output=True, text=True)
    try:
        head = run("rev-parse", "--short", "HEAD")
        changed = run("status", "--porcelain", "--untracked-files=no").stdout.strip()
    except OSError:
        return ""
    return f"commit {head.stdout.strip()}{'+' if changed else ''}" if head.returncode == 0 else ""


def machine():
    """Date, kernel and processor; nothing that names the machine."""
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        text = file.read()
    model = re.search(r"^model name\s*:\s*(.*)$", text, re.M)
    virtual = re.search(r"^flags\s*:.*\bhypervisor\b", text, re.M)
    return {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "kernel": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cpu": model.group(1) if model else platform.machine(),
        "cores": os.cpu_count(),
        "virtual": bool(virtual),
    }
