"""Parameters, forms, uploads and redirects of a service, behind a site's worker and on connections of its own."""

import unittest

from harness import rootless_too
from tools import ToolsServer

FORM = "Content-Type: application/x-www-form-urlencoded"
MULTIPART = "Content-Type: multipart/form-data; boundary=XX"
BODY_MAX = 4 << 20


def part(lines, content):
    return f"--XX\r\nContent-Disposition: form-data; {lines}\r\n\r\n".encode() + content + b"\r\n"


@rootless_too
class Forms(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = cls.enterClassContext(ToolsServer(limits={"body_bytes": BODY_MAX}))

    def ask(self, target, host="main.test", headers=(), body=b""):
        with self.server.connect() as connection:
            return connection.get(target, host, headers, "POST" if body else "GET", body)

    def each(self, *words, **more):
        """The answers of both services, which must be the same."""
        answers = [self.ask(*words, host=host, **more) for host in ("main.test", "direct.test")]
        self.assertEqual(*[(answer.status, answer.text) for answer in answers])
        return answers[0]

    def test_parameters(self):
        answer = self.each("/tools/query?id=7&q=%3Cb%3E(AT%26T)%22")
        self.assertEqual(answer.text, '<p title="&lt;b&gt;(AT&amp;T)&quot;">7 bATT')
        for wrong in ("", "?id=", "?id=7%3C", "?id=x", "?id=99999999999999999999"):
            answer = self.each("/tools/query" + wrong)
            self.assertEqual(answer.status, 400, wrong)
            self.assertIn("the parameter `id`", answer.text)

    def test_forms_of_both_types(self):
        self.assertEqual(self.each("/tools/form", headers=[FORM], body=b"a=%3Cb%3E&c=d+e").text, "a=<b>\nc=d e\n")
        self.assertEqual(self.each("/tools/form", body=b"a=b").text, "a=b\n")
        body = part("name=a", b"<b>") + part('name="f"; filename=""', b"") + b"--XX--\r\n"
        self.assertEqual(self.each("/tools/form", headers=[MULTIPART], body=body).text, "a=<b>\n")

    def test_forms_that_are_none(self):
        status = lambda headers, body: self.each("/tools/form", headers=headers, body=body).status
        self.assertEqual(status(["Content-Type: text/plain"], b"a=b"), 415)
        self.assertEqual(status([MULTIPART], part("name=a; filename=b", b"x") + b"--XX--"), 415)
        self.assertEqual(status([MULTIPART], b"a=b"), 400)
        self.assertEqual(status([FORM], b"&".join([b"a=b"] * 1001)), 413)
        self.assertEqual(status([FORM], b"a=" + b"x" * (1 << 20)), 413)

    def test_uploads(self):
        content = bytes(range(256)) * 8192
        body = part("name=a", b"1") + part('name="f"; filename="../x.bin"', content) + part("name=b", b"22") + b"--XX--\r\n"
        said = f'a None 1\nf Some("../x.bin") {len(content)}\nb None 2\n'
        self.assertEqual(self.each("/tools/upload", headers=[MULTIPART], body=body).text, said)
        long = part("name=f; filename=f", b"x" * BODY_MAX) + b"--XX--\r\n"
        for host in ("main.test", "direct.test"):
            with self.subTest(host):
                self.assertEqual(self.ask("/tools/upload", host, [MULTIPART], long).status, 413)

    def test_redirects_stay_at_home(self):
        answer = self.ask("/tools/redirect?to=/a%3Fb=c")
        self.assertEqual((answer.status, answer.headers["location"]), (303, "/a?b=c"))
        for elsewhere in ("//evil.test", "/%5Cevil.test", "https://evil.test/", "/%09/evil.test"):
            answer = self.ask("/tools/redirect?to=" + elsewhere)
            self.assertEqual((answer.status, answer.headers.get("location")), (400, None), elsewhere)
