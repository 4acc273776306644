"""Listings of folders whose files have any name that the kernel allows: JSON is JSON, and what is listed can be
fetched."""

import html
import json
import os
import re
import unittest
from urllib.parse import quote

from harness import Server, rootless_too, site

#: Each byte alone that a name may have, and texts that JSON, HTML or a URL might trip over.
NAMES = [bytes([byte]) for byte in range(1, 256) if byte not in b"/."]
NAMES += [
    b"\xff\xfe.txt", b"caf\xe9", "café".encode(), b"\xed\xa0\x80", b"\xf0\x9f\x98", "\u2028\u2029\ufeff".encode(),
    b'"},{"', b"<script>", b"a&amp;b", b"%41", b"%%", b"%ff", b"a b", b"a?b", b"a#b", b"a:b", b"C:\\x", b"\\u0041",
    b"\\\xff\\", b"'\"><i>", b"\x7f\x80\x9f", b"e" * 255,
]
#: Names whose paths the checks of requests refuse: those with a control character.
REFUSED = re.compile(rb"[\x00-\x1f\x7f]")


@rootless_too
class Listing(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        server = Server(sites=[site(listing=True)], programs=(), files={"main/all/sub/x": "x"})
        folder = os.fsencode(server.folder / "main/all")
        for number, name in enumerate(NAMES):
            with open(os.path.join(folder, name), "w") as file:
                file.write(str(number))
            os.chmod(os.path.join(folder, name), 0o644)
        cls.server = cls.enterClassContext(server)

    def fetched(self, href):
        """What is at a relative reference of the listing; None if no such request is let in."""
        self.assertRegex(href, r"^\./[!$-;=@-\[\]_a-z~]+$")
        answer = self.server.get("/all/" + href.removeprefix("./"))
        self.assertIn(answer.status, (200, 400), href)
        return answer.text if answer.status == 200 else None

    def test_json(self):
        answer = self.server.get("/all/", headers=["Accept: application/json"])
        self.assertEqual((answer.status, answer.headers["content-type"]), (200, "application/json"))
        # Of bytes that are no UTF-8 this would raise.
        found = json.loads(answer.body.decode())
        self.assertEqual((len(found), found[0]["name"], found[0]["href"]), (len(NAMES) + 1, "sub", "./sub/"))
        listed = {one["href"]: one["name"] for one in found}
        for number, name in enumerate(NAMES):
            with self.subTest(name):
                href = "./" + quote(name, safe="!$&'()*+,;=:@")
                # Rust and Python replace alike.
                self.assertEqual(listed.get(href), name.decode("utf-8", "replace"))
                self.assertEqual(self.fetched(href), None if REFUSED.search(name) else str(number))

    def test_html(self):
        answer = self.server.get("/all/", headers=["Accept: text/html"])
        self.assertEqual(answer.headers["content-type"], "text/html; charset=utf-8")
        text = answer.body.decode()
        found = [html.unescape(href) for href in re.findall(r'<a href="(\./[^"]*[^"/])">', text)]
        self.assertEqual(len(found), len(NAMES))
        contents = {int(text) for text in map(self.fetched, found) if text is not None}
        self.assertEqual(contents, {number for number, name in enumerate(NAMES) if not REFUSED.search(name)})


if __name__ == "__main__":
    unittest.main()
