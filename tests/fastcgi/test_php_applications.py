"""WordPress, phpMyAdmin and DokuWiki as Debian packages them, behind one line of configuration, used with a browser.

Each has a MariaDB, a php-fpm and a server of its own. The browser does what people do on the first day.
"""

import json
import re
import shutil
import unittest
from urllib.parse import urlsplit

import applications
from applications import hand_over, installed
from backend import Fpm, php_fpm
from chromium import Chromium
from client import get
from database_servers import MariaDb
from harness import Server
from pictures import png

SECRET = "correct horse battery staple"

#: Refused on purpose: DokuWiki's installer tries whether its data are (and says so in the name).
EXPECTED = re.compile("/favicon.ico$|/data/dont-panic")

CONFIG = """
[[listen]]
address = "127.0.0.1:{port}"

[[site]]
name = "app"
host = ["*"]
root = "public"
php = "unix:fpm.sock"
{rules}
"""

DENY = """
  [[site.route]]
  path = "{path}"
  deny = "all"
"""


@unittest.skipUnless(php_fpm(), "php-fpm is not installed")
class Application(unittest.TestCase):
    """One application; a subclass says which, and with what rules."""

    __test__ = False
    NAME, RULES, CHILDREN = None, "", 4

    @classmethod
    def setUpClass(cls):
        if not installed(cls.NAME):
            raise unittest.SkipTest(f"Debian's package {cls.NAME} is not installed")
        cls.server = Server([], (), text=lambda port: CONFIG.format(port=port, rules=cls.RULES))
        cls.public = cls.server.folder / "public"
        applications.copy(cls.NAME, cls.public)
        cls.prepare()
        cls.addClassCleanup(Fpm(cls.server.folder, "fpm.sock", children=cls.CHILDREN).close)
        cls.enterClassContext(cls.server)
        cls.url = f"http://localhost:{cls.server.port}"
        cls.browser = cls.enterClassContext(Chromium())
        cls.picture = cls.server.write("red.png", png((208, 16, 16), 40))

    @classmethod
    def prepare(cls):
        """Configures the application."""

    @classmethod
    def database(cls):
        cls.mariadb = MariaDb()
        cls.addClassCleanup(cls.mariadb.close)

    def load(self, path):
        """Loads a page of the application, with all that belongs to it."""
        responses = self.browser.load(self.url + path)
        self.nothing_failed(responses)
        return responses

    def nothing_failed(self, responses=None):
        """Of what the page consists of, nothing was refused or missing."""
        responses = self.browser.responses() if responses is None else responses
        failed = {url: one["status"] for url, one in responses.items() if one["status"] >= 400 and not EXPECTED.search(url)}
        self.assertEqual(failed, {}, self.server.log())

    def text(self):
        return self.browser.evaluate("document.body.innerText")

    def shows(self, text):
        self.browser.until(f"document.body?.innerText.includes({json.dumps(text)})")

    def get(self, path, **more):
        return get(self.server.port, path, host=f"localhost:{self.server.port}", **more)

    def never_served(self, *paths):
        """Neither does any of these paths give a secret away, nor the source of a script."""
        for path in paths:
            answer = self.get(path)
            self.assertNotIn(b"<?php", answer.body, path)
            self.assertNotIn(SECRET.encode(), answer.body, path)

    def delivered_picture(self, url):
        """The picture comes as it was, and a browser shows it."""
        parts = urlsplit(url)
        answer = self.get(f"{parts.path}?{parts.query}" if parts.query else parts.path)
        self.assertEqual((answer.status, answer.headers["content-type"]), (200, "image/png"))
        self.assertEqual(answer.body, self.picture.read_bytes())
        self.browser.load(url)
        self.assertEqual(self.browser.evaluate("document.images[0].naturalWidth"), 40)


class WordPress(Application):
    __test__ = True
    NAME = "wordpress"
    RULES = '\n  [[site.route]]\n  path = "/wp-content/uploads/"\n  suffix = ".php"\n  deny = "all"\n'

    @classmethod
    def prepare(cls):
        cls.database()
        cls.mariadb.ask("create database wordpress")
        # Debian's own reads /etc/wordpress; without it, the wizard of WordPress asks.
        (cls.public / "wp-config.php").unlink()
        # A browser asks for it at a time of its own. WordPress would lead it to the installer, which answers with 500
        # while another request makes the tables.
        (cls.public / "favicon.ico").write_bytes(png((208, 16, 16), 16))

    def test_the_first_day(self):
        self.install()
        self.log_in()
        self.write()
        self.rest()
        self.upload()
        self.never_served("/wp-config.php", "/wp-config.php~", "/wp-config.ph%70", "/index.php/../wp-config.php", "/WP-CONFIG.PHP")

    def install(self):
        browser = self.browser
        self.load("/")
        self.assertEqual(browser.evaluate("location.pathname"), "/wp-admin/setup-config.php")
        applications.connect_wordpress(browser, self.url, "root", f"localhost:{self.mariadb.socket}")
        self.nothing_failed()
        config = self.public / "wp-config.php"
        # Nothing goes to other machines.
        alone = "define('WP_HTTP_BLOCK_EXTERNAL', true); define('DISABLE_WP_CRON', true);"
        config.write_text(config.read_text().replace("<?php", f"<?php {alone}", 1))
        applications.install_wordpress(browser, "Bulkhead's blog", SECRET)
        self.nothing_failed()
        # The installer has asked the site for a pretty address, over HTTP, and got it.
        structure = self.mariadb.ask("select option_value from wordpress.wp_options where option_name = 'permalink_structure'")
        self.assertEqual(structure.strip(), "/%year%/%monthnum%/%day%/%postname%/")

    def log_in(self):
        applications.log_in_to_wordpress(self.browser, self.url, SECRET)
        self.assertEqual(self.browser.evaluate("location.pathname"), "/wp-admin/", self.text()[:500])
        self.nothing_failed()
        self.shows("Dashboard")

    def write(self):
        """A post in the block editor, and the page that readers get."""
        browser = self.browser
        self.load("/wp-admin/post-new.php")
        # A guide for beginners opens sooner or later; its button does nothing at first.
        browser.until("!!document.querySelector('.components-modal__header')")
        browser.until("document.querySelector('.components-modal__header button')?.click(), "
                      "!document.querySelector('.components-modal__header')")
        browser.fill(".editor-post-title__input", "Hello from a browser")
        browser.press_enter()
        browser.until("document.activeElement?.classList.contains('block-editor-rich-text__editable')")
        browser.ask("Input.insertText", text="A paragraph with an ümlaut.")
        browser.click(".editor-post-publish-panel__toggle")
        browser.click(".editor-post-publish-panel .editor-post-publish-button")
        browser.until("!!document.querySelector('.post-publish-panel__postpublish')")
        self.nothing_failed()
        address = browser.evaluate("wp.data.select('core/editor').getPermalink()")
        self.assertRegex(address, rf"^{self.url}/\d{{4}}/\d\d/\d\d/hello-from-a-browser/$")
        WordPress.post = browser.evaluate("wp.data.select('core/editor').getCurrentPostId()")
        self.load(address.removeprefix(self.url))
        self.assertEqual(browser.evaluate("document.querySelector('h1').innerText"), "Hello from a browser")
        self.shows("A paragraph with an ümlaut.")
        answer = self.get("/no/such/page")
        self.assertEqual(answer.status, 404)
        self.assertIn(b"<title>Page not found &#8211; Bulkhead", answer.body, "not the page of WordPress")

    def rest(self):
        index = json.loads(self.get("/wp-json/").body)
        self.assertEqual(index["url"], self.url)
        posts = json.loads(self.get(f"/wp-json/wp/v2/posts/{self.post}?_fields=title,slug").body)
        self.assertEqual(posts, {"slug": "hello-from-a-browser", "title": {"rendered": "Hello from a browser"}})
        # As the person who has logged in, with methods that forms cannot send.
        self.load("/wp-admin/post-new.php")
        ask = "fetch('/wp-json/wp/v2/posts/%d', {method: '%s', body: %s, headers: {'X-WP-Nonce': wpApiSettings.nonce, " \
              "'Content-Type': 'application/json'}}).then(async (one) => [one.status, (await one.json()).%s])"
        body = "JSON.stringify({title: 'Another title'})"
        self.assertEqual(self.browser.evaluate(ask % (self.post, "PUT", body, "title.rendered")), [200, "Another title"])
        self.assertEqual(self.browser.evaluate(ask % (self.post, "DELETE", "null", "status")), [200, "trash"])
        refused = self.get(f"/wp-json/wp/v2/posts/{self.post}", method="DELETE")
        self.assertEqual(refused.status, 401)

    def upload(self):
        browser = self.browser
        self.load("/wp-admin/media-new.php")
        browser.choose_file(".moxie-shim input[type=file]", self.picture)
        browser.until("!!document.querySelector('.media-item .edit-attachment')")
        self.nothing_failed()
        media = json.loads(self.get("/wp-json/wp/v2/media").body)
        self.assertRegex(media[0]["source_url"], rf"^{self.url}/wp-content/uploads/\d{{4}}/\d\d/red.png$")
        self.delivered_picture(media[0]["source_url"])
        # A script among the uploads is neither run nor sent.
        path = urlsplit(media[0]["source_url"]).path
        script = (self.public / path.strip("/")).with_name("evil.php")
        script.write_text("<?php file_put_contents(__FILE__ . '.ran', 'x');")
        for suffix in ("evil.php", "evil.php/red.png", "evil.ph%70", "red.png/evil.php"):
            answer = self.get(path.replace("red.png", suffix))
            self.assertEqual(answer.status, 403, suffix)
        self.assertFalse(script.with_name("evil.php.ran").exists())


class PhpMyAdmin(Application):
    __test__ = True
    NAME = "phpmyadmin"

    @classmethod
    def prepare(cls):
        cls.database()
        cls.mariadb.ask("create user ann@localhost identified by '%s'; grant all on *.* to ann@localhost" % SECRET)
        settings = {"auth_type": "cookie", "host": "localhost", "socket": str(cls.mariadb.socket)}
        lines = [f"$cfg['Servers'][1]['{key}'] = '{value}';" for key, value in settings.items()]
        config = cls.server.write("config.inc.php", "\n".join(["<?php", "$cfg['blowfish_secret'] = str_repeat('x', 32);", *lines]))
        scratch = cls.server.folder / "scratch"
        scratch.mkdir()
        vendor = cls.public / "libraries/vendor_config.php"
        text = vendor.read_text().replace("/etc/phpmyadmin/config.inc.php", str(config))
        vendor.write_text(re.sub(r"'/var/lib/phpmyadmin/tmp/?'", f"'{scratch}/'", text))
        hand_over(scratch)

    def test_a_query(self):
        browser = self.browser
        self.load("/")
        browser.fill("#input_username", "ann")
        browser.fill("#input_password", SECRET)
        browser.submit("#input_go")
        self.nothing_failed()
        self.shows("Database server")
        self.query("create database market; create table market.goods (name text); insert into market.goods values ('söap'), ('rope')")
        self.assertEqual(self.mariadb.ask("select count(*) from market.goods").strip(), "2")
        self.query("select name, length(name) + 4000 as bytes from market.goods order by name")
        browser.until("document.querySelectorAll('.table_results tbody tr').length == 2")
        cells = "[...document.querySelectorAll('.table_results tbody td.data')].map(one => one.innerText.trim())"
        self.assertEqual(browser.evaluate(cells), ["rope", "4004", "söap", "4005"])
        # A wrong query gives an error of MariaDB's, not one of the way there.
        self.query("select broken from nowhere.at_all")
        self.shows("#1146")
        self.nothing_failed()
        self.never_served("/libraries/vendor_config.php", "/config.inc.php")

    def query(self, sql):
        self.load("/index.php?route=/server/sql")
        # Its scripts take their time: before they are ready, the button does nothing.
        ready = "document.querySelector('#sqlqueryform .CodeMirror')?.CodeMirror && $._data(document, 'events')?.submit" \
                "?.some((one) => one.selector == '#sqlqueryform.ajax')"
        self.browser.until(f"!!({ready})")
        self.browser.evaluate(f"document.querySelector('#sqlqueryform .CodeMirror').CodeMirror.setValue({json.dumps(sql)})")
        self.browser.click("#button_submit_query")
        self.browser.until("!!document.querySelector('.alert-success, .alert-danger, .result_query')")
        self.nothing_failed()


class DokuWiki(Application):
    __test__ = True
    NAME = "dokuwiki"
    # What the documents of DokuWiki want to be refused.
    RULES = "".join(DENY.format(path=f"/{name}/") for name in ("bin", "conf", "data", "inc", "vendor"))

    @classmethod
    def prepare(cls):
        # The layout of DokuWiki's own archive, instead of Debian's.
        (cls.public / "inc/preload.php").unlink()
        shutil.copytree("/etc/dokuwiki", cls.public / "conf")
        shutil.copytree("/var/lib/dokuwiki/data", cls.public / "data")
        for name in ("local.php", "acl.auth.php", "users.auth.php"):
            (cls.public / "conf" / name).unlink(missing_ok=True)
        defaults = cls.public / "conf/dokuwiki.php"
        defaults.write_text(defaults.read_text().replace("/var/lib/dokuwiki/data", "./data"))
        hand_over(cls.public)

    def test_a_page_and_a_picture(self):
        self.install()
        self.log_in()
        self.edit()
        self.upload()
        self.refused()

    def install(self):
        browser = self.browser
        self.load("/install.php")
        for name, value in (("title", "Bulkhead's wiki"), ("superuser", "ann"), ("fullname", "Ann"), ("email", "ann@example.org"),
                            ("password", SECRET), ("confirm", SECRET)):
            browser.fill(f"[name='d[{name}]']", value)
        browser.submit("form:has([name='d[title]']) [type=submit]")
        self.nothing_failed()
        self.assertTrue((self.public / "conf/users.auth.php").exists(), self.text())

    def log_in(self):
        self.load("/doku.php?id=start&do=login")
        self.browser.fill("[name=u]", "ann")
        self.browser.fill("[name=p]", SECRET)
        self.browser.submit("#dw__login [type=submit]")
        self.nothing_failed()
        self.shows("Logged in as")

    def edit(self):
        browser = self.browser
        self.load("/doku.php?id=harbour:ships&do=edit")
        browser.fill("#wiki__text", "====== Ships ======\n\nA **bulkhead** keeps an ümlaut dry.\n")
        browser.submit("#edbtn__save")
        self.nothing_failed()
        self.assertEqual(browser.evaluate("document.querySelector('#dokuwiki__content h1').innerText"), "Ships")
        self.assertEqual(browser.evaluate("document.querySelector('#dokuwiki__content strong').innerText"), "bulkhead")
        # The page's script asks for the index of words in the background.
        browser.evaluate("fetch('/lib/exe/taskrunner.php?id=harbour:ships').then((one) => one.status)")
        self.load("/doku.php?do=search&q=bulkhead")
        self.shows("1 Hits")

    def upload(self):
        browser = self.browser
        self.load("/lib/exe/mediamanager.php?ns=harbour")
        browser.choose_file("input[type=file]", self.picture)
        browser.click(".qq-upload-button ~ * [type=submit], #mediamanager__upload_button, .qq-upload-action")
        browser.until("document.body.innerText.includes('red.png')")
        self.nothing_failed()
        self.delivered_picture(f"{self.url}/lib/exe/fetch.php?media=harbour:red.png")

    def refused(self):
        self.assertIn("bulkhead", (self.public / "data/pages/harbour/ships.txt").read_text())
        for path in ("/data/pages/harbour/ships.txt", "/data//pages/harbour/ships.txt", "/d%61ta/pages/harbour/ships.txt",
                     "/lib/../data/pages/harbour/ships.txt", "/conf/users.auth.php", "/conf/local.php", "/conf/mime.conf",
                     "/conf/", "/data", "/inc/init.php", "/bin/dwpage.php", "/vendor/autoload.php"):
            answer = self.get(path)
            self.assertIn(answer.status, (400, 403), path)
            self.assertNotIn(b"bulkhead", answer.body, path)
        self.never_served("/conf/local.php", "/.htaccess", "/.htaccess.dist")


if __name__ == "__main__":
    unittest.main()
