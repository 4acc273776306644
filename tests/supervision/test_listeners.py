"""Several listeners: a site answers on its own only, and the same host may be another site on another."""

import unittest

import client
from harness import Server, configuration, free_port, rootless_too, site


@rootless_too
class Listeners(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.second = free_port()
        sites = [site("main"), site("other")]

        def text(port):
            inner, outer = f"127.0.0.1:{port}", f"127.0.0.1:{cls.second}"
            about = [
                {"name": "main", "host": ["main.test"], "root": "main", "services": [], "listen": [inner]},
                {"name": "second", "host": ["main.test"], "root": "second", "services": [], "listen": [outer]},
                {"name": "other", "host": ["other.test"], "root": "other", "services": []},
            ]
            return configuration(port, about, {}) + f'\n[[listen]]\naddress = "{outer}"\n'

        files = {"second/index.html": "<h1>second</h1>\n"}
        cls.server = cls.enterClassContext(Server(sites, (), text=text, files=files))

    def test_the_same_host_on_two_listeners(self):
        self.assertEqual(self.server.get("/").text, "<h1>main</h1>\n")
        with client.Connection(self.second) as connection:
            self.assertEqual(connection.get("/").text, "<h1>second</h1>\n")

    def test_a_kept_connection_stays_on_its_listener(self):
        with client.Connection(self.second) as connection:
            for name, host in [("second", "main"), ("other", "other"), ("second", "main")]:
                self.assertEqual(connection.get("/", f"{host}.test").text, f"<h1>{name}</h1>\n")


if __name__ == "__main__":
    unittest.main()
