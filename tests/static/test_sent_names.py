"""`send_hidden` and `send_sources`: names that are sent as files all the same, and no others."""

import unittest

from harness import Server, rootless_too, site

FILES = {
    ".nojekyll": "nojekyll", ".well-known/x": "well known", ".git/config": "SECRET", ".pages/a.html": "pages",
    "shown.php": "<?php 1", "tool.phtml": "SECRET", "page.html": "page",
}


@rootless_too
class Sent(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        sites = [
            site("plain"),
            site("hidden", send_hidden=[".nojekyll", ".pages"]),
            site("sources", send_sources=[".php"]),
        ]
        files = {f"{one['name']}/{name}": content for one in sites for name, content in FILES.items()}
        cls.server = cls.enterClassContext(Server(sites, programs=(), files=files))

    def assert_statuses(self, name, **others):
        usual = {
            "/page.html": 200, "/.well-known/x": 200, "/.nojekyll": 404, "/.git/config": 404, "/.pages/a.html": 404,
            "/shown.php": 403, "/tool.phtml": 403,
        }
        expected = usual | {f"/{key}": value for key, value in others.items()}
        found = {target: self.server.status(target, f"{name}.test") for target in expected}
        self.assertEqual(found, expected)

    def test_without_the_keys(self):
        self.assert_statuses("plain")

    def test_send_hidden(self):
        self.assert_statuses("hidden", **{".nojekyll": 200, ".pages/a.html": 200})
        self.assertEqual(self.server.get("/.pages/a.html", "hidden.test").text, "pages")

    def test_send_sources(self):
        self.assert_statuses("sources", **{"shown.php": 200})
        self.assertEqual(self.server.get("/shown.php", "sources.test").text, "<?php 1")
