"""`bulkhead status` of a part of a server: a site, a role, a page."""

import json
import unittest

from client import until
from harness import Server, rootless_too, service, site

SITES = [site("main", [service(), service("more", "/more")]), site("maintenance"), site("other")]


@rootless_too
class Parts(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server(SITES)
        cls.server.copy_program("probe", "more")
        cls.enterClassContext(cls.server)

    def status(self, *words):
        answer = self.server.command("status", "--config", self.server.config, "--json", *words)
        self.assertEqual((answer.returncode, answer.stderr), (0, ""))
        return json.loads(answer.stdout)

    def named(self, *words):
        return [(process["role"], process["name"]) for process in self.status(*words)["processes"]]

    def test_a_site_has_its_services_and_no_other_site_that_begins_alike(self):
        self.assertEqual(self.named("--site", "main"), [("site", "main"), ("service", "main/probe"), ("service", "main/more")])
        self.assertEqual(self.named("--site", "main", "--role", "service")[0], ("service", "main/probe"))
        self.assertEqual(self.named("--role", "bulkheadd"), [("bulkheadd", "")])
        self.assertEqual(self.named("--role", "dataproxy"), [])

    def test_pages_are_the_whole(self):
        whole = self.named()
        for limit in (1, 2, 3, len(whole), len(whole) + 1):
            pages, after = [], []
            while True:
                page = self.status("--limit", str(limit), *after)
                self.assertLessEqual(len(page["processes"]), limit)
                pages += [(process["role"], process["name"]) for process in page["processes"]]
                if page["next"] is None:
                    break
                after = ["--after", str(page["next"])]
            self.assertEqual(pages, whole, limit)
        self.assertIsNone(self.status()["next"])

    def test_a_process_on_a_page_has_its_counts(self):
        self.assertEqual(self.server.status(host="other.test"), 200)
        counted = lambda: self.status("--site", "other")["processes"][0]["requests"]
        self.assertTrue(until(lambda: counted() > 0, 10))

    def test_the_table_says_where_to_go_on(self):
        answer = self.server.command("status", "--config", self.server.config, "--limit", "2")
        self.assertRegex(answer.stdout.splitlines()[-1], "^more: `--after [0-9]+`$")

    def test_what_is_unknown_is_said(self):
        for words, error in (
            (["--site", "mian"], 'did you mean "main"?'),
            (["--role", "sites"], 'did you mean "site"?'),
            (["--limit", "0"], "--limit"),
            (["--conditioning", "--site", "main"], "cannot be used with"),
        ):
            answer = self.server.command("status", "--config", self.server.config, *words)
            self.assertEqual((answer.returncode, answer.stdout), (2, ""))
            self.assertIn(error, answer.stderr)


class Names(unittest.TestCase):
    def test_a_removed_site_is_known_no_more(self):
        with Server([site("main"), site("other")]) as server:
            text = server.config.read_text()
            server.config.write_text(text[: text.rindex("[[site]]")])
            reload = server.command("reload", "--config", server.config)
            self.assertEqual((reload.returncode, reload.stderr), (0, ""))
            answer = server.command("relaunch", "other", "--config", server.config)
            self.assertEqual(answer.returncode, 2)
            self.assertNotIn("other", answer.stderr.partition("the names are: ")[2])
            server.config.write_text(text)
            self.assertEqual(server.command("reload", "--config", server.config).returncode, 0)
            self.assertEqual(server.command("relaunch", "other", "--config", server.config).returncode, 0)


if __name__ == "__main__":
    unittest.main()
