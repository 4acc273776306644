"""examples/matching: five services that share one database, as people use them."""

import html
import re
import threading
import unittest
import urllib.parse

from client import Load, until
from harness import rootless_too
from matching import EXAMPLE, HOST, PASSWORD, MatchingServer, Person, sent


@rootless_too
class Matching(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = cls.enterClassContext(MatchingServer())

    def person(self, name, *words, **fields):
        return Person(self.server, name).register(*words, **fields)

    def test_the_configuration_is_good(self):
        for words in (("check", "--strict", self.server.config), ("data", "check", "--config", self.server.config)):
            said = self.server.command(*words)
            self.assertEqual((said.returncode, said.stderr), (0, ""), said.stdout)

    def test_two_people_meet(self):
        ann, bob = self.person("Ann", "I fold paper.", "Origami, R&D"), self.person("Bob", "", "origami, chess")
        found = ann.page("/search?interest=ORIGAMI")
        self.assertEqual(re.findall('<a href="/profile/([^"]+)">', found), ["Bob", "Ann"])
        self.assertIn("I fold paper.", found)
        self.assertIn('href="/profile/Ann"', Person(self.server, "Eve").page("/search?interest=r%26d"))
        # One of the three interests that either has.
        self.assertRegex(ann.page("/match"), r'<a href="/profile/Bob">Bob</a> <small>33% in common</small>')
        before = sent(self.server)
        self.assertEqual(ann.write("bob", "Hello, Bob!\nA crane?"), 303)
        self.assertEqual(bob.write("Ann", "Two."), 303)
        talk = re.findall('<li( class="mine")?><p>(.*?)</p>', bob.page("/messages/Ann"), re.DOTALL)
        self.assertEqual(talk, [("", "Hello, Bob!\r\nA crane?".replace("\r", "")), (' class="mine"', "Two.")])
        self.assertRegex(bob.page("/messages"), '(?s)<a href="/messages/Ann">Ann</a>.*<p>You: Two.</p>')
        self.assertEqual(sent(self.server), before + 2)
        # Nobody else sees it, whatever the address says.
        eve = self.person("Eve")
        for path in ("/messages", "/messages/Ann", "/messages/Bob"):
            self.assertNotRegex(eve.page(path), "crane|Two")

    def test_logging_in_and_out(self):
        leo = self.person("Leo")
        self.assertIn("Leo", leo.page("/search"))
        before = dict(leo.cookies)
        self.assertEqual(leo.fill("/profile", "/profile/logout").status, 303)
        # The login is gone, and not just the cookie.
        leo.cookies = before
        self.assertEqual(leo.ask("/messages").headers["location"], "/profile")
        for name, password, status in (("Leo", "wrong horse", 403), ("Nobody", PASSWORD, 403), ("Ada", "", 403), ("leo", PASSWORD, 303)):
            answer = leo.fill("/profile", "/profile/login", name=name, password=password)
            self.assertEqual(answer.status, status, name)
        self.assertEqual(leo.ask("/messages").status, 200)
        refused = Person(self.server, "x").fill("/profile", "/profile/register", name="LEO", password=PASSWORD, interests="x")
        self.assertEqual(refused.status, 400)
        self.assertIn("Somebody has that name already.", refused.text)

    def test_a_message_is_sent_and_counted_or_neither(self):
        mia, before = self.person("Mia"), sent(self.server)
        for name in ("nobody-at-all", "Mia"):
            self.assertEqual(mia.write(name, "hello"), 400)
        self.assertEqual((sent(self.server), mia.write("Ada", "hello"), sent(self.server)), (before, 303, before + 1))

    def test_markup_of_people_is_text_everywhere(self):
        script = "<script>alert('x')</script>"
        sam = self.person("Sam", script, f"{script[:30]}, shared")
        tim = self.person("Tim", "", "shared")
        self.assertEqual(sam.fill("/profile", "/profile/change", about=script, interests=f"{script[:30]}, shared").status, 303)
        self.assertEqual(sam.write("Tim", script), 303)
        for who, path in ((tim, "/search?interest=shared"), (tim, "/match"), (tim, "/messages"), (tim, "/messages/Sam"), (tim, "/statistics"),
                          (tim, "/profile/Sam"), (sam, "/profile"), (sam, "/search?" + urllib.parse.urlencode({"interest": script}))):
            with self.subTest(path):
                text = who.page(path)
                self.assertNotIn("<script", text)
                if path != "/statistics":
                    self.assertIn("<script>", html.unescape(text))
        # On the page of statistics is what many people say.
        for number in range(7):
            self.person(f"Fan-{number}", "", "<script>x")
        self.assertIn('<th scope="row">&lt;script&gt;x<td>', tim.page("/statistics"))

    def test_a_form_that_is_not_ours_is_refused(self):
        uma, zoe, before = self.person("Uma", "as it was"), self.person("Zoe"), sent(self.server)
        forms = (("/profile/change", {"about": "changed", "interests": "x"}), ("/profile/logout", {}), ("/messages/Zoe", {"text": "hello"}),
                 ("/profile/login", {"name": "Zoe", "password": PASSWORD}),
                 ("/profile/register", {"name": "New", "password": PASSWORD, "interests": "x"}))
        for path, fields in forms:
            with self.subTest(path):
                at = "/messages/Zoe" if path.startswith("/messages") else "/profile"
                self.assertEqual(uma.post(path, **fields).status, 403)
                self.assertEqual(uma.post(path, csrf_token=zoe.token(at.replace("Zoe", "Uma")), **fields).status, 403)
                of_ours = uma.token(at)
                foreign = uma.post(path, ["Sec-Fetch-Site: cross-site"], csrf_token=of_ours, **fields)
                self.assertEqual(foreign.status, 403)
        self.assertIn("as it was", uma.page("/profile"))
        self.assertEqual((sent(self.server), uma.ask("/profile/New").status), (before, 404))

    def test_no_service_is_granted_more_than_it_calls(self):
        """Each statement that the file grants stands in the program of the service."""
        text = (EXAMPLE / "people.sql").read_text()
        granted = re.findall(r"-- (?:name|transaction): (\w+).*\n(?:-- .*\n)*?-- services: (.*)\n", text)
        parts = {one for line in re.findall("-- statements: (.*)", text) for one in line.split(", ")}
        self.assertGreater(len(granted), 15)
        for statement, services in granted:
            for name in services.split(", "):
                file = EXAMPLE / ("statistics/main.py" if name == "statistics" else f"src/bin/matching-{name}.rs")
                calls = file.read_text() + ((EXAMPLE / "src/lib.rs").read_text() if name != "statistics" else "")
                self.assertTrue(f'"{statement}"' in calls or statement in parts, f"{name} does not call {statement}")


@rootless_too
class Relaunched(unittest.TestCase):
    def test_nothing_is_lost_when_processes_are_replaced(self):
        with MatchingServer() as server:
            ann = Person(server, "Ann").register()
            Person(server, "Bob").register()
            token, stopped, answers = ann.token("/messages/Bob"), threading.Event(), []

            def write():
                while not stopped.is_set():
                    answers.append(ann.post("/messages/Bob", csrf_token=token, text=f"number {len(answers)}").status)

            writer = threading.Thread(target=write)
            writer.start()
            loads = [Load(server.port, path, HOST, seconds=5, connections=1) for path in ("/search?interest=music", "/statistics")]
            try:
                for name in ("matching/people:data", "matching/search", "matching/people:data", "matching/statistics", "matching/people:data"):
                    before = len(answers)
                    server.relaunch(name)
                    self.assertTrue(until(lambda: len(answers) > before + 3, 10))
            finally:
                stopped.set()
                writer.join(20)
            for load in loads:
                load.finish().assert_clean(self, 10)
            self.assertEqual(set(answers), {303})
            self.assertEqual(sent(server), len(answers))
            # A new process knows nobody's form, but the login is the database's.
            server.relaunch("matching/messages")
            self.assertEqual(ann.post("/messages/Bob", csrf_token=token, text="late").status, 403)
            self.assertIn(f"number {len(answers) - 1}", ann.page("/messages"))
            self.assertEqual(ann.write("Bob", "again"), 303)
            self.assertEqual(sorted({process.title.split(" ")[-1] for process in server.processes("dataproxy")}), ["matching/people"])


if __name__ == "__main__":
    unittest.main()
