"""Web applications of Debian's packages, copied into the folder of a test, a MariaDB for them, and WordPress's first pages."""

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
        scratch = folder / "tmp"
        scratch.mkdir()
        os.chown(scratch, NOBODY, NOBODY)
        # A server that starts removes temporary tables, also those of another one: hence `tmpdir`. Nothing waits for the disk.
        self.settings = [
            "--no-defaults", f"--datadir={folder}/data", f"--tmpdir={scratch}", "--character-set-server=utf8mb4",
            "--innodb-flush-method=nosync", "--innodb-flush-log-at-trx-commit=0", "--innodb-use-native-aio=0",
            "--innodb-log-file-size=4M", "--innodb-buffer-pool-size=32M",
        ]
        self.log = open(folder / "log", "w+")
        ours = ["--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve"]
        if self.start(["mariadb-install-db", *self.settings, *ours]).wait():
            self.fail("cannot be installed")
        self.process = self.start([MARIADB, *self.settings, "--skip-networking", f"--socket={self.socket}"])
        deadline = time.monotonic() + 30
        while not self.socket.exists():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.fail("does not come up")
            time.sleep(0.02)

    def start(self, command):
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, user=NOBODY, group=NOBODY,
                                extra_groups=[], cwd=self.folder)

    def fail(self, what):
        self.log.seek(0)
        raise AssertionError(f"MariaDB {what}: {self.log.read()[-3000:]}")

    def ask(self, sql):
        """The answer to a query, with tabs between its columns."""
        command = ["mariadb", "--no-defaults", f"--socket={self.socket}", "--user=root", "--batch", "--skip-column-names"]
        return subprocess.run(command, input=sql, capture_output=True, text=True, check=True).stdout

    def close(self):
        self.process.terminate()
        self.process.wait(30)
        self.log.close()
        shutil.rmtree(self.folder)


def connect_wordpress(browser, url, user, host):
    """Tells the wizard which database to use, of a user without a password; it writes `wp-config.php`."""
    browser.load(f"{url}/wp-admin/setup-config.php?step=1")
    for name, value in (("dbname", "wordpress"), ("uname", user), ("pwd", ""), ("dbhost", host)):
        browser.fill(f"#{name}", value)
    browser.submit("[name=submit]")


def install_wordpress(browser, title, password):
    """Goes on to the title and the first user, ann."""
    browser.submit(".step a")
    for name, value in (("weblog_title", title), ("user_login", "ann"), ("admin_email", "ann@example.org")):
        browser.fill(f"#{name}", value)
    # The page proposes a password, at some time.
    browser.until("document.querySelector('#pass1').value.length > 10")
    browser.fill("#pass1", password)
    browser.submit("#submit")
    browser.until("document.body.innerText.includes('Success!')")


def log_in_to_wordpress(browser, url, password):
    browser.load(f"{url}/wp-login.php")
    browser.fill("#user_login", "ann")
    browser.fill("#user_pass", password)
    browser.submit("#wp-submit")
