"""The SDK's forms, sessions and events for a client of HTTP/2, whose requests come to the service as those of HTTP/1.1."""

import re
import unittest

from harness import rootless_too
from tls_server import Tls

SERVICE = '[[site.service]]\nname = "tools"\npath = "/tools"\ncommand = ["bin/tools"]\nfiles = true\n'


@rootless_too
class Http2(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Tls(more=SERVICE)
        cls.server.copy_program("tools")
        cls.enterClassContext(cls.server)

    def curl(self, path, *words):
        """What curl says, head first."""
        _, said = self.server.curl("https://b.test:{tls}" + path, "--include", "--no-buffer", "--http2", *words)
        self.assertRegex(said, "^HTTP/2 ")
        return said

    def test_a_form_with_its_token(self):
        jar = str(self.server.folder / "jar")
        page = self.curl("/tools/account", "--cookie-jar", jar)
        self.assertRegex(page, "(?m)^set-cookie: __Secure-tools=[0-9a-f]{64}; .*; Secure")
        token = re.search('value="([0-9a-f]{64})"', page)[1]
        origin = ["--header", f"Origin: https://b.test:{self.server.tls}"]
        log_in = lambda *words: self.curl("/tools/account", "--cookie", jar, "--cookie-jar", jar, "--data", "name=ann", *words)
        self.assertIn("HTTP/2 403", log_in("--data", f"csrf_token={token}", "--header", "Origin: https://evil.test"))
        self.assertIn("HTTP/2 403", log_in(*origin))
        self.assertIn("HTTP/2 303", log_in("--data", f"csrf_token={token}", *origin))
        self.assertIn("<p>ann<form", self.curl("/tools/account", "--cookie", jar))

    def test_an_upload(self):
        file = self.server.write("upload", b"x" * 500_000)
        name = re.search(r'\["([0-9a-f]{32})"\]', self.curl("/tools/save", "--form", f"f=@{file}"))[1]
        self.assertEqual(self.curl(f"/tools/saved?name={name}").rpartition("\n")[2], "x" * 500_000)

    def test_events(self):
        said = self.curl("/tools/events?ms=50", "--max-time", "2")
        self.assertIn("content-type: text/event-stream", said)
        self.assertIn("data: event 3\n\n", said)
        head = self.curl("/tools/events", "--head")
        self.assertNotIn("data:", head)
