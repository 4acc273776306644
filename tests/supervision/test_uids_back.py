"""Uids of sites that have gone: nobody gets one before it is given back, and none is that has a process, or owns a file somewhere."""

import json
import os
import subprocess
import unittest

from client import until
from harness import Server, configuration, site
from uids import UNSHARED

MULTIPART = ["Content-Type: multipart/form-data; boundary=XX"]
FORM = b'--XX\r\nContent-Disposition: form-data; name="f"; filename="f"\r\n\r\nours\r\n--XX--\r\n'


def with_folder(port):
    return 'include = "sites/*.toml"\n\n' + configuration(port, [site()], {})


def shop(name, **more):
    """A site with a service, which writes files, in a file of its own."""
    keys = {"name": name, "host": [f"{name}.test"], "root": f"../{name}"} | more
    lines = "".join(f"{key} = {json.dumps(value)}\n" for key, value in keys.items())
    return f'[[site]]\n{lines}[[site.service]]\nname = "tools"\npath = "/tools"\ncommand = ["../bin/tools-{name}"]\nfiles = true\n'


class GivenBack(unittest.TestCase):
    def setUp(self):
        names = ("shop", "other", "next")
        files = {f"{name}/index.html": name for name in (*names, "main", "elsewhere")}
        files |= {f"{name}.toml": shop(name) for name in names} | {"sites/other.toml": shop("other")}
        self.server = Server([], (), files=files, text=with_folder)
        for name in names:
            self.server.copy_program("tools", f"tools-{name}")
        self.enterContext(self.server)
        self.folder, self.config = self.server.folder, self.server.config
        self.site("add", "shop", "--from", "shop.toml")

    def site(self, *words, code=0, command=None):
        words = ["site", "--config", self.config, *words]
        answer = command(words) if command else self.server.command(*words, timeout=60)
        self.assertEqual(answer.returncode, code, (words, answer.stdout, answer.stderr))
        return answer.stdout + answer.stderr

    def listed(self, code=0):
        """The uid and the state of each name."""
        answer = self.server.command("site", "--config", self.config, "uids", "--json", timeout=60)
        self.assertEqual(answer.returncode, code, answer.stderr)
        return {one["name"]: (one["uid"], one["state"]) for one in json.loads(answer.stdout)["uids"]}

    def back(self, *words, code=0, command=None):
        """What is said of uids that are to be given back: which folders were searched, and by their names what became of each."""
        said = json.loads(self.site("uids", "--give-back", *words, "--json", code=code, command=command))
        self.assertEqual(said["ok"], code == 0)
        return said["searched"], {one["name"]: one for one in said["uids"]}

    def removed(self):
        """The uids of the site and of its service, which has left a file, and is removed with it."""
        answer = self.server.get("/tools/save", "shop.test", headers=MULTIPART, method="POST", body=FORM)
        self.assertEqual(answer.status, 200)
        before = self.listed()
        uids = [before[name] for name in ("site/shop", "service/shop/tools")]
        self.assertEqual([state for _, state in uids], ["in use"] * 2)
        self.site("remove", "--purge", "shop")
        return [uid for uid, _ in uids]

    def given(self, path, uid, gid=None):
        path.write_text("theirs")
        os.chown(path, uid, uid if gid is None else gid)
        return path

    def test_only_what_is_left_is_given_back(self):
        refused = self.site("uids", "--give-back", "shop", code=2)
        self.assertIn("shop is in the configuration, and has its uids; nothing is given back: run `bulkhead site remove shop`", refused)
        self.assertIn("no uid was given to nobody", self.site("uids", "--give-back", "nobody", code=2))
        self.assertIn("say whose", self.site("uids", "--give-back", code=2))
        self.assertIn("no site has left a uid", self.site("uids", "--give-back", "--all"))
        self.site("disable", "shop")
        self.assertIn("site shop is disabled, and may come back", self.site("uids", "--give-back", "shop", code=2))
        self.assertEqual(self.listed()["site/shop"][1], "kept")
        self.assertIn("no site has left a uid", self.site("uids", "--give-back", "--all"))
        self.site("enable", "shop")
        (self.folder / "sites/shop.toml").unlink()
        self.assertEqual(self.server.command("reload", "--run-dir", "run").returncode, 0)
        self.assertIn("was taken out of the configuration", self.site("uids", "--give-back", "shop", code=2))
        table = self.site("uids", "shop")
        self.assertRegex(table, r"\d+ +site/shop +kept")
        self.assertNotIn("role/", table)

    def test_a_file_of_sites_with_a_mistake_keeps_all_from_being_given_back(self):
        self.removed()
        bad = self.folder / "sites/bad.toml"
        bad.write_text('[[site]]\nname = "bad"\nhost = ["bad.test"]\nrot = "main"\n')
        self.addCleanup(bad.unlink, missing_ok=True)
        self.assertEqual(self.listed(code=3)["site/shop"][1], "left")
        self.assertIn("site/shop", self.site("uids", "shop"))
        self.assertIn("nobody knows which uids its sites have", self.site("uids", "--give-back", "--all", code=2))
        bad.unlink()

    def test_what_owns_a_file_anywhere_is_not(self):
        worker, tools = self.removed()
        self.assertEqual([self.listed()[name][1] for name in ("site/shop", "service/shop/tools")], ["left"] * 2)
        # Its program is its group's.
        searched, found = self.back("shop", code=1)
        self.assertEqual(found["service/shop/tools"]["file"], f"{self.folder}/bin/tools-shop")
        self.assertTrue(found["site/shop"]["given_back"])
        self.assertLessEqual({f"{self.folder}/{name}" for name in ("state", "log", "main", "other", "shop")} | {str(self.folder)}, set(searched))
        (self.folder / "bin/tools-shop").unlink()
        self.assertNotIn("site/shop", self.listed())
        state = self.folder / "state"
        (state / "files/other/tools/deep").mkdir()
        (self.folder / "main/deep").mkdir()
        places = [self.folder / place for place in (
            "state/left", "state/cores-of-shop", "state/files/other/tools/deep/left", "log/left", "main/deep/left", "other/left",
            "shop/left", "sites/left", "left", "run/left")]
        for place in [*places, *[shared for shared in (self.shm(),) if shared]]:
            for uid, gid in ((tools, tools), (0, tools), (tools, 0)):
                with self.subTest(place=place, uid=uid, gid=gid):
                    self.given(place, uid, gid)
                    _, found = self.back("shop", code=1)
                    self.assertEqual((found["service/shop/tools"]["file"], len(found)), (str(place), 1))
                    self.assertIn("give it to somebody else (`chown`)", found["service/shop/tools"]["reason"])
                    place.unlink()
        # A folder, and a link.
        (self.folder / "main/link").symlink_to("index.html")
        os.chown(self.folder / "main/link", tools, tools, follow_symlinks=False)
        self.assertEqual(self.back("--all", code=1)[1]["service/shop/tools"]["file"], f"{self.folder}/main/link")
        (self.folder / "main/link").unlink()
        # Where nobody looks unless told to.
        outside = subprocess.run(["mktemp", "-d"], capture_output=True, text=True, check=True).stdout.strip()
        self.addCleanup(subprocess.run, ["rm", "-rf", outside], check=True)
        os.chown(outside, tools, tools)
        self.assertEqual(self.back("shop", "--search", outside, code=1)[1]["service/shop/tools"]["file"], outside)
        self.assertIn(f"uid {tools} of service/shop/tools: given back", self.site("uids", "--give-back", "--all"))
        self.next_gets({worker, tools})

    def shm(self):
        place = self.folder / "none"
        shared = os.path.isdir("/dev/shm") and type(place)(f"/dev/shm/{self.folder.name}")
        if shared:
            self.addCleanup(shared.unlink, missing_ok=True)
        return shared

    def next_gets(self, uids):
        """The next site has these, lowest first, and another server that is started with the table too."""
        self.site("add", "next", "--from", "next.toml")
        self.assertEqual(self.server.status("/", "next.test"), 200)
        uid = {name: uid for name, (uid, _) in self.listed().items()}
        self.assertEqual({uid["site/next"], uid["service/next/tools"]}, uids)
        self.assertEqual(self.server.process("site next").uid, uid["site/next"])
        answer = self.server.get("/tools/save", "next.test", headers=MULTIPART, method="POST", body=FORM)
        self.assertEqual(answer.status, 200)
        self.server.stop()
        self.server.start()
        self.assertEqual({name: uid for name, (uid, _) in self.listed().items()}, uid)

    def test_what_has_a_process_is_not_searched_for(self):
        worker, _ = self.removed()
        sleeping = subprocess.Popen(["sleep", "600"], user=worker, group=worker, extra_groups=[])
        self.addCleanup(sleeping.wait)
        self.addCleanup(sleeping.kill)
        self.assertTrue(until(lambda: os.readlink(f"/proc/{sleeping.pid}/exe").endswith("/sleep")))
        searched, found = self.back("site/shop", code=1)
        self.assertEqual((searched, found["site/shop"]["file"]), ([], None))
        self.assertIn(f"process {sleeping.pid} runs under it", found["site/shop"]["reason"])
        sleeping.kill()
        self.assertTrue(until(lambda: "Z" in open(f"/proc/{sleeping.pid}/stat").read().split(")")[1], 5))
        self.assertIn("a process that has ended has it yet", self.back("site/shop", code=1)[1]["site/shop"]["reason"])
        sleeping.wait()
        self.assertTrue(self.back("site/shop")[1]["site/shop"]["given_back"])

    def test_what_could_not_be_searched_is_not_given_back(self):
        worker, _ = self.removed()
        mounted = self.folder / "main/mounted"
        mounted.mkdir()
        mount = f'mount -t tmpfs tmpfs {mounted} && exec "$0" "$@"'
        within = lambda words: subprocess.run(
            [*UNSHARED, mount, str(self.server.own("bulkhead", self.folder)), *map(str, words)], capture_output=True, text=True,
            timeout=60, cwd=self.folder, check=False)
        _, found = self.back("site/shop", code=1, command=within)
        self.assertIn(f"another file system is mounted at {mounted}: search that as well, with `--search {mounted}`", found["site/shop"]["reason"])
        self.assertIn("site/shop", self.listed())
        with_a_file = mount.replace("&&", f"&& touch {mounted}/theirs && chown {worker} {mounted}/theirs &&")
        owned = lambda words: within(words) if mount == with_a_file else subprocess.run(
            [*UNSHARED, with_a_file, str(self.server.own("bulkhead", self.folder)), *map(str, words)], capture_output=True, text=True,
            timeout=60, cwd=self.folder, check=False)
        self.assertEqual(self.back("site/shop", "--search", mounted, code=1, command=owned)[1]["site/shop"]["file"], f"{mounted}/theirs")
        self.assertTrue(self.back("site/shop", "--search", mounted, command=within)[1]["site/shop"]["given_back"])

    def test_without_a_server_too(self):
        uids = set(self.removed())
        (self.folder / "bin/tools-shop").unlink()
        self.server.stop()
        self.assertEqual({one["given_back"] for one in self.back("--all")[1].values()}, {True})
        self.server.start()
        self.next_gets(uids)

    def test_the_launcher_takes_nothing_back_that_it_has(self):
        order = lambda: self.server.order(command="take-uids-back")
        uids = {name: uid for name, (uid, _) in self.listed().items()}
        for line, why in ((f"{uids['site/shop']} site/shop", "site/shop is in the configuration that runs, and has uid"),
                          (f"{uids['role/gate']} role/gate", "role/gate is in the configuration that runs"),
                          (f"{uids['site/shop']} site/other", "site/other does not have uid"), ("x", "lines of `UID NAME`")):
            self.server.write("state/uids_given_back", line + "\n")
            said = order()
            self.assertEqual(said["ok"], False)
            self.assertIn(why, said["error"])
        # It is asked by whom it does not trust, and finds nothing that the administrator has written.
        self.assertIn("uids_given_back: No such file", order()["error"])
        self.assertEqual({name: uid for name, (uid, _) in self.listed().items()}, uids)

    def test_a_service_that_a_site_has_no_more(self):
        uid, _ = self.listed()["service/shop/tools"]
        text = shop("shop").split("[[site.service]]")[0]
        self.server.write("sites/shop.toml", text)
        self.assertEqual(self.server.command("reload", "--run-dir", "run").returncode, 0)
        gone = lambda: not [process for process in self.server.processes() if process.uid == uid]
        self.assertTrue(until(gone, 10))
        self.assertEqual(self.listed()["service/shop/tools"], (uid, "left"))
        # Its folder is there.
        reason = self.back("shop", code=1)[1]["service/shop/tools"]
        self.assertIn(reason["file"], (f"{self.folder}/state/files/shop/tools", f"{self.folder}/bin/tools-shop"))
        self.assertEqual(self.listed()["site/shop"][1], "in use")


if __name__ == "__main__":
    unittest.main()
