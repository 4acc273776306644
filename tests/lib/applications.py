"""Web applications of Debian's packages, copied into the folder of a test, and WordPress's first pages."""

import subprocess
from pathlib import Path

from database_servers import MARIADB, NOBODY

PACKAGES = Path("/usr/share")


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
