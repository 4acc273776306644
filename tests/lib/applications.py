"""Web applications of Debian's packages, copied into the folder of a test, and a MariaDB for them."""

import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

NOBODY = 65534
PACKAGES = Path("/usr/share")
MARIADB = "/usr/sbin/mariadbd"


def installed(name):
    return (PACKAGES / name / "index.php").exists() and (name == "dokuwiki" or Path(MARIADB).exists())


def copy(name, to):
    """Copies an application with what its links lead to, as its own archive would unpack it; php-fpm may write everywhere."""
    subprocess.run(["cp", "--recursive", "--dereference", str(PACKAGES / name), str(to)], check=True)
    (to / ".htaccess").unlink(missing_ok=True)
    hand_over(to)


def hand_over(folder):
    """Gives a folder to the user of php-fpm."""
    subprocess.run(["chown", "--recursive", f"{NOBODY}:{NOBODY}", str(folder)], check=True)
    subprocess.run(["chmod", "--recursive", "u=rwX,go=rX", str(folder)], check=True)


class MariaDb:
    """A MariaDB with a folder of its own, and a Unix socket there as its only way in; root has no password."""

    def __init__(self):
        self.folder = folder = Path(tempfile.mkdtemp(prefix="bulkhead-mariadb-", dir="/tmp"))
        self.socket = folder / "mariadb.sock"
        os.chmod(folder, 0o755)
        os.chown(folder, NOBODY, NOBODY)
        # Files need not outlive the machine: nothing waits for the disk.
        self.settings = ["--no-defaults", f"--datadir={folder}/data", "--innodb-flush-method=nosync", "--innodb-log-file-size=4M",
                         "--innodb-buffer-pool-size=32M", "--character-set-server=utf8mb4", "--innodb-flush-log-at-trx-commit=0"]
        self.log = open(folder / "log", "w+")
        self.run(["mariadb-install-db", *self.settings, "--auth-root-authentication-method=normal", "--skip-test-db"]).check_returncode()
        self.process = subprocess.Popen(
            [MARIADB, *self.settings, "--skip-networking", f"--socket={self.socket}", f"--pid-file={folder}/pid"],
            stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, user=NOBODY, group=NOBODY, extra_groups=[],
        )
        deadline = time.monotonic() + 30
        while not self.socket.exists():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.log.seek(0)
                raise AssertionError(f"MariaDB does not come up: {self.log.read()[-2000:]}")
            time.sleep(0.02)

    def run(self, command, **more):
        return subprocess.run(command, stdout=self.log, stderr=self.log, user=NOBODY, group=NOBODY, extra_groups=[], check=False, **more)

    def ask(self, sql):
        """The answer to a query, with tabs between its columns."""
        command = ["mariadb", "--no-defaults", f"--socket={self.socket}", "--user=root", "--batch", "--skip-column-names"]
        return subprocess.run(command, input=sql, capture_output=True, text=True, check=True).stdout

    def close(self):
        self.process.terminate()
        self.process.wait(30)
        self.log.close()
        shutil.rmtree(self.folder)
