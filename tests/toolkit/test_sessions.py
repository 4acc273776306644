"""Cookies, sessions and tokens of forms, as a browser keeps them and another site's page tries them."""

import re
import unittest

from browser import Browser
from client import until
from harness import rootless_too
from tools import ToolsServer

FORM = "Content-Type: application/x-www-form-urlencoded"


class User(Browser):
    """Has an account of the service `tools`."""

    def ask(self, target="/tools/account", method="GET", body=b"", headers=()):
        return super().ask(target, method, body, headers)

    def token(self):
        return re.search('name="csrf_token" value="([0-9a-f]{64})"', self.ask().text).group(1)

    def name(self):
        return re.search("<p>(.*?)<form", self.ask().text).group(1)

    def log_in(self, name, token, *headers):
        body = f"name={name}&csrf_token={token}".encode()
        return self.ask(method="POST", body=body, headers=[FORM, *headers])


@rootless_too
class Sessions(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = cls.enterClassContext(ToolsServer())

    def browsers(self):
        for host in ("main.test", "direct.test"):
            with self.subTest(host):
                yield User(self.server, host)

    def test_cookies(self):
        for ann in self.browsers():
            answer = ann.ask("/tools/cookie?set=a%3B%20Domain=evil.test%0d%0aX:%20y")
            self.assertEqual(answer.headers["set-cookie"],
                             "word=a%3B%20Domain=evil.test%0D%0AX:%20y; Path=/tools; Secure; HttpOnly; SameSite=Lax")
            self.assertEqual(answer.headers["cache-control"], "no-store")
            answer = ann.ask("/tools/cookie")
            self.assertEqual(answer.text, 'Some("a; Domain=evil.test\\r\\nX: y")\n')
            self.assertTrue(answer.headers["set-cookie"].startswith("word=; Path=/tools; Max-Age=0;"))

    def test_a_login_and_a_logout(self):
        for ann in self.browsers():
            token = ann.token()
            before = dict(ann.cookies)
            self.assertEqual(list(before), ["__Secure-tools"])
            origin = f"Origin: https://{ann.host}"
            answer = ann.log_in("ann", token, origin, "Sec-Fetch-Site: same-origin")
            self.assertEqual((answer.status, answer.headers["location"]), (303, "/tools/account"))
            self.assertNotEqual(ann.cookies, before)
            self.assertEqual(ann.name(), "ann")
            fixed = User(self.server, ann.host)
            fixed.cookies = before
            self.assertEqual(fixed.name(), "", "who knew the cookie before the login is nobody after it")
            self.assertEqual(ann.ask("/tools/leave", "POST").status, 403)
            self.assertEqual(ann.ask("/tools/leave", "POST", headers=[f"X-CSRF-Token: {ann.token()}"]).status, 200)
            self.assertEqual(ann.name(), "")

    def test_forms_of_others(self):
        for ann in self.browsers():
            eve = User(self.server, ann.host)
            token, of_eve = ann.token(), eve.token()
            for headers in (["Sec-Fetch-Site: cross-site"], ["Sec-Fetch-Site: same-site"], ["Origin: https://evil.test"],
                            ["Origin: null"]):
                self.assertEqual(ann.log_in("eve", token, *headers).status, 403, headers)
            for wrong in (of_eve, "", "0" * 64):
                self.assertEqual(ann.log_in("eve", wrong).status, 403, wrong)
            self.assertEqual(ann.log_in("a%3Cb", token).status, 400)
            self.assertEqual((ann.name(), ann.log_in("ann", token).status, ann.name()), ("", 303, "ann"))

    def test_a_session_ends_with_the_process(self):
        ann = User(self.server, "main.test")
        token = ann.token()
        ann.log_in("ann", token)
        old = self.server.process("bin/tools")
        old.kill()
        self.assertTrue(until(lambda: self.server.status("/tools/cookie") == 200 and not old.alive, 5))
        self.assertEqual(ann.log_in("ann", token).status, 403)
        self.assertEqual(ann.name(), "")
