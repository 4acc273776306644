"""Pages of templates: what services render, what is published, and what is wrong with templates."""

import unittest

from client import until
from harness import rootless_too, site
from pages import MARKS, Pages, page_site, renders


@rootless_too
class Rendering(unittest.TestCase):
    def test_a_service_renders_templates_and_values(self):
        with Pages() as server:
            self.assertEqual(server.page(x="<b>"), (200, "[1][1][1][1]&lt;b&gt;[1]ACME" * 2))
            self.assertEqual(server.page(name="mail.txt", x="<b>"), (200, "[1]<b>" * 2))
            self.assertEqual(server.page(how="value", name="company"), (200, "ACME"))
            self.assertEqual(server.page(how="value", name="nothing")[0], 404)
            status, text = server.page(name="no.html")
            self.assertEqual((status, text), (502, 'there is no template "no.html"\n'))
            # What fails is no page, and the log says why.
            self.assertEqual(server.page(how="once", name="no.html")[0], 500)
            self.assertTrue(until(lambda: 'there is no template "no.html"' in server.log(), 5), server.log())
            answer = server.get("/pages/once?name=mail.txt")
            self.assertEqual(answer.headers["content-type"], "text/plain; charset=utf-8")

    def test_a_template_that_takes_too_much_is_given_up(self):
        with Pages() as server:
            server.write("templates/slow.html", "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}")
            server.write("templates/self.html", "{% include 'self.html' %}")
            server.write("templates/long.html", "{% for a in range(9999) %}" + "x" * 1000 + "{% endfor %}")
            self.assertEqual(server.republish().returncode, 0)
            self.assertIn("5 million steps", server.page(name="slow.html")[1])
            self.assertIn("recursion limit", server.page(name="self.html")[1])
            self.assertIn("longer than 8 MiB", server.page(name="long.html")[1])
            self.assertEqual(server.of_version(), {1})

    def test_a_service_without_templates_has_none(self):
        with Pages([renders(), renders("bare", templates=False)], restart={"broken_after": 1}) as server:
            self.assertEqual(server.page("bare")[0], 500)
            said = "this service has no `templates = true` in the configuration"
            self.assertTrue(until(lambda: said in server.log(), 5), server.log())
            self.assertEqual(server.of_version(), {1})


@rootless_too
class Republish(unittest.TestCase):
    def test_what_was_written_holds_once_it_is_published(self):
        with Pages() as server:
            server.write_version(2)
            self.assertEqual(server.of_version(), {1})
            done = server.republish()
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertRegex(done.stdout, r"^main: version [0-9a-f]{16} with 6 templates holds in 1 process\n$")
            self.assertEqual(server.of_version(), {2})
            # Once more, and by its name: the version is the same.
            again = server.republish("main")
            self.assertEqual((again.returncode, again.stdout), (0, done.stdout))
            self.assertTrue(until(lambda: "[publisher main]" in server.log(), 5), server.log())

    def test_a_mistake_changes_nothing_and_is_told_with_its_line(self):
        with Pages() as server:
            server.write_version(2)
            server.write("templates/part/foot.html", "fine\n  {% if values.company %}\n")
            server.write("templates/head.html", "{% include 'hed.html' %}")
            wrong = server.republish()
            self.assertEqual(wrong.returncode, 1)
            self.assertIn("main: not published, what held before holds:", wrong.stdout)
            self.assertIn("  head.html:1: there is no template \"hed.html\"\n      {% include 'hed.html' %}\n", wrong.stdout)
            self.assertRegex(wrong.stdout, r"part/foot.html:\d: syntax error: unexpected end of input")
            self.assertEqual(server.of_version(), {1})
            [found] = server.published()
            self.assertEqual([(one["file"], one["line"]) for one in found["report"]["mistakes"]], [("head.html", 1), ("part/foot.html", 2)])
            server.write("templates/logo.png", b"\x89PNG\xff")
            self.assertIn("  logo.png: it is not UTF-8; the folder is for templates alone\n", server.republish().stdout)
            (server.folder / "templates/logo.png").unlink()
            self.assertEqual(server.publish(3).returncode, 0)
            self.assertEqual(server.of_version(), {3})

    def test_all_sites_or_one(self):
        with Pages(sites=[page_site(), page_site("second", company="Other"), site("fine")]) as server:
            self.assertEqual(server.publish(2, "second").returncode, 0)
            second = lambda: server.page(host="second.test")[1]
            self.assertEqual((server.of_version(), second()), ({1}, "[2][2][2][2][2]Other" * 2))
            done = server.publish(3)
            self.assertRegex(done.stdout, r"^main: version \S+ with 6 templates holds in 1 process\nsecond: version \S+ with ")
            self.assertEqual((server.of_version(), second()), ({3}, "[3][3][3][3][3]Other" * 2))

    def test_a_site_that_has_no_templates_is_told_which_have(self):
        with Pages() as server:
            wrong = server.republish("man")
            self.assertEqual(wrong.returncode, 2)
            self.assertIn('there is no site "man" with templates; did you mean "main"? those with templates are: main', wrong.stderr)
            self.assertEqual(server.republish("fine").returncode, 2)


class Folder(unittest.TestCase):
    def test_a_publisher_that_may_not_read_a_file_says_so(self):
        with Pages() as server:
            (server.folder / "templates/head.html").chmod(0o600)
            wrong = server.republish()
            self.assertEqual(wrong.returncode, 1)
            self.assertIn("  head.html: its publisher may not read it: let others read it", wrong.stdout)
            self.assertEqual(server.of_version(), {1})

    def test_another_folder_of_the_name_is_read_by_a_new_publisher(self):
        with Pages() as server:
            server.write_version(2, "new")
            (server.folder / "templates").rename(server.folder / "old")
            (server.folder / "new").rename(server.folder / "templates")
            server.relaunch("main:templates")
            self.assertTrue(until(lambda: server.of_version() == {2}, 5))
            self.assertEqual(server.publish(3).returncode, 0)
            self.assertEqual(server.of_version(), {3})


@rootless_too
class Check(unittest.TestCase):
    def test_check_says_what_is_wrong_with_templates(self):
        with Pages() as server:
            self.assertEqual(server.command("check", "--strict", server.config).returncode, 0)
            path = server.write("templates/part/foot.html", "\n{{ x + }}\n")
            said = server.command("check", server.config)
            self.assertEqual((said.returncode, server.command("check", "--strict", server.config).returncode), (0, 2))
            self.assertIn(f"{path}:2:1: warning: syntax error: ", said.stderr)
            self.assertIn("`{{ x + }}`", said.stderr)
            server.write_config([page_site(folder="nowhere"), site("fine")])
            self.assertIn("nowhere", server.command("check", server.config).stderr)
            server.write_config([site("main", [renders()]), site("fine")])
            said = server.command("check", server.config)
            self.assertIn("`templates` of service \"pages\": its site has none", said.stderr)
            server.write_config([page_site(services=[renders(templates=False)]), site("fine")])
            self.assertIn("nobody gets its templates", server.command("check", server.config).stderr)

    def test_a_start_with_a_mistake_serves_the_rest_and_says_what_is_wrong(self):
        server = Pages(answers=False, restart={"broken_after": 1})
        server.write("templates/head.html", "{% include 'hed.html' %}")
        with server:
            self.assertEqual(server.status("/", "fine.test"), 200)
            self.assertTrue(until(lambda: "head.html:1: there is no template" in server.log(), 5), server.log())
            # Its last words come first, then how it has ended and what can be done.
            why = "ended with exit status 1 before it was ready; error.log has what it said; `bulkhead check` says"
            self.assertTrue(until(lambda: why in server.log(), 5), server.log())
            self.assertLess(server.log().index("head.html:1: there is no template"), server.log().index(why))
            shown = server.command("status", "--run-dir", "run").stdout
            self.assertIn("ended before: main:templates: exit status 1; `error.log` says why", shown)
            self.assertIn("its publisher does not run: it ended with exit status 1;", server.republish().stdout)
