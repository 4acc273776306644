"""A server whose certificates have names and dates of their own, good and bad ones."""

import os
import re
import shutil
import subprocess
import time

from harness import NOBODY, ROOTLESS, Server, free_port
from tls_server import KINDS, openssl

DAY = 24 * 3600
CA = """
[ca]
default_ca = own
[own]
database = {folder}/index.txt
rand_serial = yes
new_certs_dir = {folder}
default_md = sha256
policy = any
unique_subject = no
[any]
commonName = supplied
"""


class Dated(Server):
    """A server with a site of each of SITES: its hosts, the names in its certificate, and that one's days from now."""

    def __init__(self, sites):
        self.tls = free_port()
        listed = lambda hosts: ", ".join(f'"{host}"' for host in hosts)
        text = lambda port: (
            f'[[listen]]\naddress = "127.0.0.1:{self.tls}"\ntls = true\n\n[log]\nflush = "100ms"\n\n[tls]\nreread = "1s"\n'
            + "".join(
                f'\n[[site]]\nname = "{name}"\nhost = [{listed(hosts)}]\nroot = "{name}"\ncertificates = ["{name}.pem"]\n'
                for name, (hosts, *_) in sites.items()
            )
        )
        files = {f"{name}/index.html": name for name in sites}
        super().__init__(sites=[], programs=(), text=text, files=files, answers="https")
        self.hosts = {name: hosts[0] for name, (hosts, *_) in sites.items()}
        for name, (_, names, since, ends) in sites.items():
            self.install(name, names, time.time() + since * DAY, time.time() + ends * DAY)

    def status(self, *_, timeout=10):
        """How a client that takes any certificate is answered by the first site."""
        return "https" if self.page(next(iter(self.hosts))) else None

    def page(self, name, seconds=10):
        url = f"https://{self.hosts[name]}:{self.tls}/"
        to = f"{self.hosts[name]}:{self.tls}:127.0.0.1"
        command = ["curl", "-sk", "--max-time", str(seconds), "--resolve", to, url]
        return subprocess.run(command, capture_output=True, text=True, timeout=20, check=False).stdout

    def install(self, name, names, since, ends):
        folder = self.folder / "made"
        folder.mkdir(exist_ok=True)
        for file, text in (("index.txt", ""), ("ca.cnf", CA.format(folder=folder))):
            (folder / file).write_text(text)
        key, asked, made = (folder / f"{name}.{end}" for end in ("key", "csr", "crt"))
        # Its common name is right, which nobody looks at.
        openssl("req", "-new", "-newkey", *KINDS["ec"], "-nodes", "-subj", f"/CN={self.hosts[name]}", "-keyout", key, "-out", asked)
        (folder / "ends").write_text(f"subjectAltName={','.join(names)}\n")
        dates = [time.strftime("%Y%m%d%H%M%SZ", time.gmtime(at)) for at in (since, ends)]
        openssl("ca", "-config", folder / "ca.cnf", "-selfsign", "-batch", "-notext", "-keyfile", key, "-in", asked, "-startdate",
                dates[0], "-enddate", dates[1], "-extfile", folder / "ends", "-out", made)
        new = self.write(f"{name}.new", key.read_text() + made.read_text())
        new.chmod(0o600)
        if ROOTLESS and os.geteuid() == 0:
            shutil.chown(new, NOBODY, NOBODY)
        new.rename(self.folder / f"{name}.pem")

    def said(self, name):
        """What the log has against a site's certificate."""
        about = re.escape(f"`certificates` {self.folder / name}.pem of site {name}: it ")
        return re.findall(rf"warning \[bulkheadd\] {about}([^;\n]*); ", self.log())

    def warnings(self, name):
        """The same of `status --certificates`."""
        told = self.command("status", "--certificates", "--config", self.config)
        about = re.escape(f"{self.folder / name}.pem of site {name}: it ")
        return re.findall(rf"(?m)^warning: {about}([^;\n]*); ", told.stdout)
