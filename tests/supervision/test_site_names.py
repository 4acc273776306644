"""What the name of a site stands for: who has the uids, files and data of one that was removed, or that comes back."""

import json
import os
import shutil
import signal
import subprocess
import unittest
from pathlib import Path

from client import until
from harness import NOBODY, ROOTLESS, Server, configuration, program, rootless_too, site

MULTIPART = ["Content-Type: multipart/form-data; boundary=XX"]
FORM = b'--XX\r\nContent-Disposition: form-data; name="f"; filename="f"\r\n\r\nours\r\n--XX--\r\n'
STATEMENTS = "-- name: one :one\n-- services: tools\nSELECT text FROM notes;\n"
#: Somebody else.
OTHER = 12345
#: The exit status of a reload that has left a file out.
LEFT_OUT = 3


def with_folder(port):
    return 'include = "sites/*.toml"\n\n' + configuration(port, [site()], {})


def shop(name="shop", root="../shop", **more):
    """A site with files and data, in a file of its own."""
    keys = {"name": name, "host": [f"{name}.test"], "root": root} | more
    service = {"name": "tools", "path": "/tools", "command": ["../bin/tools"], "files": True, "data": ["db"]}
    data = {"name": "db", "schema": "../schema.sql", "statements": "../db.sql"}
    lines = lambda keys: "".join(f"{key} = {json.dumps(value)}\n" for key, value in keys.items())
    return f"[[site]]\n{lines(keys).replace('True', 'true')}[[site.service]]\n{lines(service)}[[site.data]]\n{lines(data)}"


class Names(unittest.TestCase):
    def setUp(self):
        files = {"main/index.html": "main", "shop/index.html": "shop", "other/index.html": "other", "sites/shop.toml": shop(),
                 "schema.sql": "CREATE TABLE notes (text TEXT);\n", "db.sql": STATEMENTS, "new.toml": shop()}
        self.server = self.enterContext(Server([], ("tools",), files=files, text=with_folder))
        self.state, self.file = self.server.folder / "state", self.server.folder / "sites/shop.toml"
        self.assertTrue(until(lambda: self.server.status("/", "shop.test") == 200))

    def site(self, *words, code=0):
        answer = self.server.command("site", "--config", self.server.config, *words, timeout=60)
        self.assertEqual(answer.returncode, code, (words, answer.stdout, answer.stderr))
        return answer.stdout + answer.stderr

    def reload(self, code=0):
        answer = self.server.command("reload", "--run-dir", "run")
        self.assertEqual(answer.returncode, code, answer.stderr)
        return answer.stderr

    def save(self):
        """Has the service keep a file; its name."""
        answer = self.server.get("/tools/save", "shop.test", headers=MULTIPART, method="POST", body=FORM)
        self.assertEqual(answer.status, 200)
        return json.loads(answer.text)[0]

    def saved(self, name):
        return self.server.get(f"/tools/saved?name={name}", "shop.test").text

    def kept(self):
        """What is in the folder of the service."""
        return sorted(path.name for path in (self.state / "files/shop/tools").iterdir())

    def uids(self):
        """Those of the processes of the site, by their titles."""
        own = ("site shop", "dataproxy shop/db", "../bin/tools", f"{self.server.folder}/bin/tools")
        fits = lambda: [process for title in own for process in self.server.processes(title)]
        self.assertTrue(until(lambda: len(fits()) == 3, 5), self.server.processes())
        return [process.uid for process in fits()]

    def take_out(self):
        text = self.file.read_text()
        self.file.unlink()
        self.reload()
        return text

    def put(self, text):
        self.server.write("sites/shop.toml", text)
        if ROOTLESS and os.geteuid() == 0:
            os.chown(self.file, NOBODY, NOBODY)

    def assert_refused(self, text, *words):
        """A site that is put there by hand is refused by a reload, a check and a start, in these words; it is taken out again."""
        self.put(text)
        for refused in (self.reload(LEFT_OUT), self.server.command("check", self.server.config).stderr):
            for word in words:
                self.assertIn(word, refused)
        self.server.stop()
        self.server.start()
        self.assertEqual(self.server.status("/", "shop.test"), 503)
        self.assertEqual(self.server.processes("site shop"), [])
        self.server.stop()
        self.file.unlink()
        self.server.start()


@rootless_too
class Removed(Names):
    def test_what_is_left_goes_to_nobody_who_comes(self):
        file, uids = self.save(), self.uids()
        said = self.site("remove", "shop")
        self.assertIn(f"belongs to nobody: {self.state}/files/shop and {self.state}/data/shop; `bulkhead site remove --purge shop`", said)
        for words in (["--from", "new.toml"], ["--host", "shop.test", "--root", "shop"]):
            refused = self.site("add", "shop", *words, code=1)
            for remedy in ("`bulkhead site remove --purge shop`", "`bulkhead site add --adopt shop ...`", f"{self.state}/files/shop"):
                self.assertIn(remedy, refused)
        told = json.loads(self.site("add", "shop", "--from", "new.toml", "--json", code=1))
        self.assertEqual((told["ok"], told["left"]), (False, [f"{self.state}/{kind}/shop" for kind in ("files", "data")]))
        self.assertEqual(told["remedies"], ["bulkhead site remove --purge shop", "bulkhead site add --adopt shop ..."])
        listed = {one["name"]: one for one in json.loads(self.site("list", "--json"))["sites"]}
        self.assertEqual((listed["shop"]["removed"], listed["shop"]["left"]), (True, told["left"]))
        self.assertRegex(self.site("list"), r"shop +removed +/")
        self.assert_refused(shop(), 'site "shop" was removed, and has left', "bulkhead site adopt shop")
        # On purpose.
        self.site("add", "shop", "--from", "new.toml", "--adopt")
        self.assertEqual((self.saved(file), self.uids()), ("ours", uids))
        self.take_out()
        self.put(shop())
        self.reload()
        self.assertEqual((self.saved(file), self.uids()), ("ours", uids))

    def test_purged_with_all_that_a_tenant_can_leave(self):
        self.save()
        uids, folder, outside = self.uids(), self.state / "files/shop/tools", self.server.folder / "outside"
        outside.mkdir()
        (outside / "kept").write_text("kept")
        for link, to in (("out", outside), ("up", "../../.."), ("main", self.server.folder / "main")):
            (folder / link).symlink_to(to)
        os.link(outside / "kept", folder / "hard")
        os.mkfifo(folder / "fifo")
        deep = folder
        for _ in range(40):
            deep = deep / "deep"
        deep.mkdir(parents=True)
        (deep / "link").symlink_to(outside)
        owner = folder.stat().st_uid
        for above, folders, names in os.walk(folder):
            for name in [*folders, *(name for name in names if name != "hard")]:
                os.chown(f"{above}/{name}", owner, owner, follow_symlinks=False)
        said = self.site("remove", "--purge", "shop")
        self.assertIn(f"deleted: {self.state}/files/shop and {self.state}/data/shop; logs are kept", said)
        self.assertEqual([(self.state / kind / "shop").exists() for kind in ("files", "data")], [False, False])
        self.assertEqual((outside / "kept").read_text(), "kept")
        self.assertEqual((outside / "kept").stat().st_nlink, 1)
        self.assertTrue((self.server.folder / "main/index.html").exists())
        self.assertTrue((self.server.folder / "log/shop.access.log").exists())
        self.assertIn("nothing is left of one", self.site("remove", "--purge", "nobody", code=2))
        self.site("add", "shop", "--from", "new.toml")
        self.assertEqual(self.server.status("/", "shop.test"), 200)
        self.assertEqual(self.kept(), [])
        if not ROOTLESS:
            self.assertFalse(set(uids) & set(self.uids()), "a uid has one owner, ever")
        self.server.stop()
        self.server.start()
        self.assertEqual(self.server.status("/", "shop.test"), 200)

    def test_neither_a_killed_launcher_nor_a_second_command_loses_anything(self):
        file, uids = self.save(), self.uids()
        self.site("remove", "shop")
        os.kill(self.server.launcher.pid, signal.SIGKILL)
        self.server.launcher.wait()
        self.assertIn("has left", self.site("add", "shop", "--from", "new.toml", code=1))
        self.assertEqual(self.kept(), [file])
        self.server.start()
        self.assertIn("has left", self.site("add", "shop", "--from", "new.toml", code=1))
        said = json.loads(self.site("remove", "--purge", "shop", "--json"))
        self.assertEqual((said["done"], len(said["deleted"])), ("purged", 2))
        self.site("add", "shop", "--from", "new.toml")
        self.assertTrue(until(lambda: self.kept() == []))
        if not ROOTLESS:
            self.assertFalse(set(uids) & set(self.uids()))

    def test_nothing_left_is_nothing_to_say(self):
        server = self.server
        uid = lambda: server.process("site plain").uid
        for _ in range(2):
            self.site("add", "plain", "--host", "plain.test", "--root", server.folder / "other")
            before = uid()
            self.assertNotIn("nobody", self.site("remove", "plain"))
        self.site("add", "plain", "--host", "plain.test", "--root", server.folder / "other")
        if not ROOTLESS:
            self.assertNotEqual(uid(), before)
        # Taken back, if the server refuses.
        self.file.parent.chmod(0o775)
        self.assertIn("not removed; nothing has changed", self.site("remove", "plain", code=1))
        self.file.parent.chmod(0o755)
        self.reload()
        self.site("disable", "plain")
        self.site("enable", "plain")
        self.assertEqual(server.status("/", "plain.test"), 200)

    def test_disabled_and_enabled_it_keeps_all(self):
        file, uids = self.save(), self.uids()
        self.site("disable", "shop")
        self.assertEqual(self.server.status("/", "shop.test"), 404)
        self.site("enable", "shop")
        self.assertEqual((self.saved(file), self.uids()), ("ours", uids))
        # One that is disabled can be removed, with all it has.
        self.site("disable", "shop")
        self.site("remove", "--purge", "shop")
        self.assertFalse((self.state / "files/shop").exists())

    def test_without_a_server(self):
        self.save()
        self.server.stop()
        self.assertIn("no server runs", self.site("remove", "shop"))
        self.assertIn("has left", self.site("add", "shop", "--from", "new.toml", code=1))
        self.site("remove", "--purge", "shop")
        self.site("add", "shop", "--from", "new.toml")
        self.server.start()
        self.assertTrue(until(lambda: self.server.status("/", "shop.test") == 200))
        self.assertEqual(self.kept(), [])


@rootless_too
class TakenOutByHand(Names):
    def test_it_keeps_what_it_had(self):
        file, uids = self.save(), self.uids()
        text = self.take_out()
        self.assertEqual(self.server.status("/", "shop.test"), 404)
        # Whoever adds a site says whose it is.
        self.assertIn("has left", self.site("add", "shop", "--from", "new.toml", code=1))
        self.put(text)
        self.reload()
        self.assertEqual((self.saved(file), self.uids()), ("ours", uids))
        self.take_out()
        self.server.stop()
        self.put(text)
        self.server.start()
        self.assertTrue(until(lambda: self.server.status("/", "shop.test") == 200))
        self.assertEqual((self.saved(file), self.uids()), ("ours", uids))
        self.take_out()
        self.site("remove", "--purge", "shop")
        self.put(text)
        self.reload()
        self.assertEqual(self.kept(), [])

    def test_a_state_of_an_earlier_version_is_whose_it_is_now(self):
        file, uids = self.save(), self.uids()
        self.server.stop()
        for name in ("holders", "generations"):
            (self.state / name).unlink(missing_ok=True)
        self.server.start()
        self.assertTrue(until(lambda: self.server.status("/", "shop.test") == 200))
        self.assertEqual((self.saved(file), self.uids()), ("ours", uids))
        # And where the launcher is replaced.
        before = (self.state / "holders").read_text()
        (self.state / "holders").unlink()
        answer = self.server.command("upgrade", "--run-dir", "run", timeout=60)
        self.assertEqual(answer.returncode, 0, answer.stderr)
        self.assertEqual((self.state / "holders").read_text(), before)
        self.assertEqual((self.saved(file), self.uids()), ("ours", uids))


class OtherOwners(Names):
    def test_the_root_of_somebody_else_is_another_site(self):
        file, uids, root = self.save(), self.uids(), self.server.folder / "shop"
        text = self.take_out()
        os.chown(root, OTHER, OTHER)
        self.assert_refused(
            text, 'site "shop" is not the one that had this name', f"belongs to uid {OTHER}, and it belonged to uid 0",
            "bulkhead site remove --purge shop",
        )
        self.put(text)
        self.reload(LEFT_OUT)
        self.site("adopt", "shop")
        self.assertEqual((self.saved(file), self.uids()), ("ours", uids))
        # From now on it is theirs.
        self.take_out()
        os.chown(root, 0, 0)
        self.put(text)
        self.assertIn("belonged to uid 12345", self.reload(LEFT_OUT))

    def test_another_user_is_another_site(self):
        self.save()
        text = self.take_out()
        self.put(shop(user="nobody", danger_shared_user=True))
        self.assertIn('it has `user = "nobody"`, and had no `user`', self.reload(LEFT_OUT))
        self.put(text)
        self.reload()

    def test_a_site_that_stays_may_be_given_away(self):
        file, uids, root = self.save(), self.uids(), self.server.folder / "shop"
        os.chown(root, OTHER, OTHER)
        self.put(shop(index=["index.html"]))
        self.reload()
        self.assertEqual((self.saved(file), self.uids()), ("ours", uids))
        os.chown(root, uids[0], uids[0])
        self.take_out()
        self.put(shop())
        self.reload()
        self.assertEqual(self.uids(), uids)
        # Another folder of somebody else's, in one step.
        os.chown(self.server.folder / "other", OTHER + 1, OTHER + 1)
        self.put(shop(root="../other"))
        self.assertIn("is not the one that had this name", self.reload(LEFT_OUT))
        self.assertIn("belongs to uid 12346", self.reload(LEFT_OUT))
        shutil.rmtree(self.server.folder / "other")
        self.put(shop())
        self.reload()

    def test_nothing_is_deleted_while_a_process_of_the_site_lives(self):
        file = self.save()
        left = subprocess.Popen(["sleep", "600"], user=self.uids()[2], group=NOBODY, extra_groups=[])
        self.addCleanup(left.wait)
        self.addCleanup(left.kill)
        command = [str(program("bulkhead")), "site", "--config", str(self.server.config), "remove", "--purge", "shop"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as purge:
            generations = self.state / "generations"
            self.assertTrue(until(lambda: generations.exists() and "0 removed shop" in generations.read_text(), 10))
            # The server has none of its processes any more: the command waits for the other one.
            self.assertTrue(until(lambda: not self.server.processes("site shop"), 10))
            self.assertEqual((purge.poll(), self.kept()), (None, [file]))
            # Others' sites come meanwhile.
            self.site("add", "plain", "--host", "plain.test", "--root", self.server.folder / "other")
            self.assertEqual((purge.poll(), self.kept()), (None, [file]))
            left.kill()
            left.wait()
            self.assertIn("deleted: ", purge.communicate(timeout=15)[0])
        self.assertFalse((self.state / "files/shop").exists())

    def test_the_table_of_uids_keeps_those_of_the_ended(self):
        before = (self.state / "uids").read_text().splitlines()
        self.site("remove", "--purge", "shop")
        self.site("add", "shop", "--from", "new.toml")
        after = (self.state / "uids").read_text().splitlines()
        self.assertLess(set(before), set(after))
        new = sorted(line.split()[1] for line in set(after) - set(before))
        self.assertEqual(new, ["data/shop@1/db", "service/shop@1/tools", "site/shop@1"])
        self.assertEqual(Path(self.state / "generations").read_text().splitlines()[1:], ["1 current shop"])
