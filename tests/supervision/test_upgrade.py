"""Upgrades: other programs take the place of those that run, and no client notices; or nothing has changed."""

import os
import random
import shutil
import signal
import socket
import subprocess
import threading
import unittest

import client
from client import Load, until
from filter_program import FILTER, PYTHON, library
from harness import rootless_too, service, site, wait_for_time
from service_manager import Managed, Notified, listening
from tls_server import Tls, insecure
from upgrading import Upgrading, UpgradingServer
from websocket_client import Client

SITES = [site("main", [service("probe")]), site("direct", [service("direct", "/probe", takes=True)])]
TARGETS = (("main.test", "/"), ("main.test", "/probe"), ("direct.test", "/probe"))
SLOW = 1500


def answer(stream):
    """What comes up to the end of an object of JSON."""
    got = b""
    while not got.endswith(b"}") and (more := stream.recv(65536)):
        got += more
    return got


class UpgradingTls(Upgrading, Tls):
    """The same with certificates."""


def launch(sites=SITES, **more):
    server = UpgradingServer(sites, **more)
    server.copy_program("probe", "direct")
    return server


@rootless_too
class Upgrade(unittest.TestCase):
    def setUp(self):
        self.server = self.enterContext(launch())

    def test_it_waits_for_what_a_reload_has_left_to_finish(self):
        """For longer than for anything else that is under way: the site that is removed has a request for so long."""
        server, slow = self.server, []
        begun = threading.Thread(target=lambda: slow.append(server.get("/probe/sleep?ms=6500", timeout=30).status))
        begun.start()
        counted = lambda: [one["connections_now"] for one in server.order(command="status")["processes"]
                           if one["name"] == "main/probe"]
        self.assertTrue(until(lambda: any(counted()), 10), counted())
        self.assertIsNone(server.reload(SITES[1:]))
        server.put_programs(version="0.1.9")
        self.assertIn("to 0.1.9", server.upgrade())
        begun.join()
        self.assertEqual(slow, [200])
        self.assertIn("upgrade: waits, as processes of sites that a reload has changed or removed finish", server.log())
        self.assertTrue(server.all_are_new())

    def test_all_is_replaced_under_load(self):
        server, slow = self.server, []
        pid, before = server.launcher.pid, set(server.processes())
        loads = [Load(server.port, path, host, seconds=5, connections=4, close=close) for host, path in TARGETS
                 for close in (False, True)]
        kept = client.Connection(server.port)
        self.assertEqual(kept.get("/").status, 200)
        begun = threading.Thread(target=lambda: slow.append(server.get(f"/probe/sleep?ms={SLOW}")))
        begun.start()
        wait_for_time(0.5)
        server.put_programs(version="0.1.9")
        said = server.upgrade()
        self.assertIn("upgraded from 0.1.0 to 0.1.9", said)
        for role in ("bulkheadd", "gate", "site", "service", "logger", "admin"):
            self.assertRegex(said, rf"(?m)^{role} +[1-9]\d*$")
        self.assertEqual(kept.get("/").status, 200)
        for load in loads:
            load.end().assert_clean(self)
        begun.join(20)
        self.assertEqual([(answer.status, answer.text.startswith("slept")) for answer in slow], [(200, True)])
        self.assertTrue(server.all_are_new(), server.old_ones())
        self.assertEqual((server.launcher.poll(), server.launcher.pid), (None, pid))
        self.assertTrue(until(lambda: not before & set(server.processes()), 10))
        self.assertIn("upgraded from 0.1.0 to 0.1.9 in", server.log())

    def test_what_comes_after(self):
        """All that can be ordered works as before, a restart of what crashes too; and the next upgrade, and the way back."""
        server = self.server
        for version in ("0.1.9", "0.1.0"):
            server.put_programs(version=version)
            self.assertIn(f"to {version} in", server.upgrade())
            self.assertTrue(server.all_are_new(), server.old_ones())
            for name in ("main", "main/probe", "gate", "logger", "admin"):
                server.relaunch(name)
            old = server.process("site main")
            old.kill()
            self.assertTrue(until(lambda: [one for one in server.processes("site main") if one != old], 10))
            self.assertEqual(server.get("/probe").status, 200)
            self.assertIsNone(server.reload([*SITES, site("more")]))
            self.assertEqual(server.get("/", "more.test").text, "<h1>more</h1>\n")
            self.assertIsNone(server.reload(SITES))
            self.assertEqual(server.get("/", "more.test").status, 404)
            log = server.folder / "log/main.access.log"
            log.rename(server.folder / "log/old")
            self.assertEqual(server.command("reopen", "--run-dir", "run").returncode, 0)
            self.assertTrue(log.exists())
            listed = server.command("status", "--run-dir", "run")
            self.assertEqual(listed.returncode, 0, listed.stderr)
        self.assertEqual(server.stop(), 0, server.stderr())

    def test_logs_that_were_moved_away_are_written_on(self):
        server = self.server
        log, moved = server.folder / "log/main.access.log", server.folder / "log/moved"
        log.rename(moved)
        server.put_programs()
        server.upgrade()
        self.assertEqual(server.get("/?after-the-upgrade").status, 200)
        self.assertTrue(until(lambda: "after-the-upgrade" in moved.read_text(), 5))
        self.assertFalse(log.exists())

    def test_logs_of_sites_that_rest_stay_closed(self):
        server, logs = self.server, self.server.folder / "log"
        demand = [one | {"start": "on-demand"} for one in (*SITES, site("more"))]
        self.assertIsNone(server.reload(demand))
        self.assertEqual(server.get("/?before", "more.test").status, 200)
        for log in logs.glob("*.access.log"):
            log.rename(logs / f"{log.name}.old")
        server.put_programs()
        server.upgrade()
        self.assertEqual(server.get("/?after", "more.test").status, 200)
        self.assertTrue(until(lambda: "after" in (logs / "more.access.log.old").read_text(), 5))
        self.assertIsNone(server.reload([*demand, site("last") | {"start": "on-demand"}]))
        self.assertEqual(server.get("/?last", "last.test").status, 200)
        self.assertTrue(until(lambda: (logs / "last.access.log").exists() and "last" in (logs / "last.access.log").read_text(), 5))

    def test_what_was_edited_waits_for_a_reload(self):
        server = self.server
        server.write_config([*SITES, site("more")])
        server.put_programs()
        server.upgrade()
        self.assertEqual(server.get("/", "more.test").status, 404)
        self.assertEqual(server.command("reload", "--run-dir", "run").returncode, 0)
        self.assertEqual(server.get("/", "more.test").status, 200)
        # Sites that were changed have other numbers than in the file.
        self.assertIsNone(server.reload([SITES[1], site("more", [service("probe")]), SITES[0]]))
        server.put_programs()
        server.upgrade()
        self.assertEqual(server.get("/", "more.test").text, "<h1>more</h1>\n")
        for host in ("main.test", "direct.test", "more.test"):
            self.assertEqual(server.get("/probe", host).status, 200)
        self.assertIsNone(server.reload(SITES))
        self.assertEqual(server.get("/probe", "main.test").status, 200)

    def test_sites_that_have_gone_are_no_hindrance(self):
        """The slots of their processes are there for a while, and nothing else says what they were for."""
        server = self.server
        self.assertIsNone(server.reload([site("plain"), *SITES, site("more", [service("probe")])]))
        self.assertIsNone(server.reload([site("plain")]))
        for _ in range(2):
            server.put_programs()
            server.upgrade()
            self.assertEqual(server.get("/", "plain.test").text, "<h1>plain</h1>\n")
        self.assertIsNone(server.reload([site("plain"), *SITES]))
        self.assertEqual(server.get("/probe", "main.test").status, 200)

    def test_a_site_that_was_refused_is_no_hindrance(self):
        server = self.server
        worse = site("worse", [service("probe", command=["bin/probe", "--fail-init"])])
        for sites in ([*SITES, site("more"), worse], [worse, *SITES]):
            self.assertIsNotNone(server.reload(sites))
            server.put_programs()
            server.upgrade()
            self.assertEqual(server.get("/probe", "main.test").status, 200)
        self.assertIsNone(server.reload([*SITES, site("more")]))
        server.put_programs()
        server.upgrade()
        self.assertEqual(server.get("/", "more.test").status, 200)

    def test_another_folder(self):
        server = self.server
        new = server.put_programs(server.folder / "other", version="0.1.7")
        self.assertIn("version 0.1.7 can take over from 0.1.0", server.upgrade("--dry-run", "--to", new / "bulkheadd"))
        self.assertEqual(server.executable(server.launcher.pid)[0], str(server.programs / "bulkheadd"))
        self.assertIn("to 0.1.7", server.upgrade("--to", new / "bulkheadd"))
        for pid in [server.launcher.pid, server.process("gate").pid]:
            self.assertTrue(server.executable(pid)[0].startswith(str(new)))
        # The next one is beside this.
        server.put_programs(new, version="0.1.8")
        self.assertIn("from 0.1.7 to 0.1.8", server.upgrade())

    def test_a_signal_upgrades_too(self):
        server = self.server
        server.put_programs(version="0.1.9")
        server.launcher.send_signal(signal.SIGUSR2)
        self.assertTrue(until(lambda: "upgraded from 0.1.0 to 0.1.9 in" in server.stderr(), 20), server.stderr())
        self.assertTrue(server.all_are_new(), server.old_ones())

    def test_descriptors_stay_as_many(self):
        server = self.server
        launcher = lambda: len(os.listdir(f"/proc/{server.launcher.pid}/fd"))
        counts = []
        for _ in range(5):
            server.put_programs()
            server.upgrade()
            self.assertTrue(server.all_are_new(), server.old_ones())
            self.assertTrue(until(lambda: len(server.processes("gate")) == 2, 10))
            counts.append(launcher())
        # What processes that end leave to be read, and the upgrade's own connection, may count at any look, and not for
        # long.
        self.assertTrue(until(lambda: launcher() <= min(counts) + 4, 10), (counts, launcher()))

    def refuses(self, kind, because):
        """A launcher that cannot take over leaves everything as it was."""
        server = self.server
        before, executable = server.processes(), server.executable(server.launcher.pid)
        with Load(server.port, seconds=3, connections=4) as load:
            said = server.refused("--to", server.false_launcher(kind))
            load.end().assert_clean(self)
        self.assertIn(because, said)
        self.assertEqual(server.processes(), before)
        self.assertEqual(server.executable(server.launcher.pid), executable)
        self.assertIn("nothing has changed", server.log())

    def test_launchers_that_cannot_take_over_are_refused(self):
        for kind, because in (
            ("exits", "ended with exit status 3 and said nothing"),
            ("aborts", "ended with signal 6"),
            ("prints", "wonder"),
            ("adds what must be understood", "no message of type 120"),
            ("is far ahead", "writes records of version 3; this one reads 0 to 2"),
            ("has processes that speak otherwise", "message has version"),
            ("tears", "its length or its checksum is another"),
        ):
            with self.subTest(kind):
                self.refuses(kind, because)
        # A text is no program, and one that others can write is nobody's.
        server = self.server
        text = server.owned(server.write("text", "#!/bin/sh\n"))
        self.assertIn("is not an ELF executable", server.refused("--to", text))
        program = server.put_programs(server.folder / "open") / "bulkheadd"
        program.chmod(0o775)
        self.assertIn("chmod go-w", server.refused("--to", program))
        self.assertIn("No such file", server.refused("--to", server.folder / "nowhere"))
        alone = server.put_programs(server.folder / "alone", names=["bulkheadd"])
        self.assertIn("has the programs of the roles", server.refused("--to", alone / "bulkheadd"))
        server.put_programs()
        server.upgrade()

    def test_a_part_of_another_version_is_refused(self):
        """As of an installation that was copied in part. An upgrade and a start say so in the same words."""
        server, before = self.server, self.server.processes()
        new = server.put_programs(server.folder / "other", version="0.1.9")
        for names, words in (
            (["site", "signer"], "site: is of version 0.1.0, and the launcher is of version 0.1.9 (`signer` is of version 0.1.0); "
                                 "install all programs of one version"),
            (["inspector"], "inspector: is of version 0.1.0, and the launcher is of version 0.1.9; install all programs"),
            (["bulkheadd"], "gate: is of version 0.1.9, and the launcher is of version 0.1.0 ("),
        ):
            with self.subTest(names):
                server.put_programs(new, names=names)
                self.assertIn(f"program {new}/{words}", server.refused("--to", new / "bulkheadd"))
                self.assertIn(f"program {new}/{words}", server.refused("--dry-run", "--to", new / "bulkheadd"))
                self.assertEqual(server.processes(), before)
                server.put_programs(new, version="0.1.9", names=names)
        # What is none of ours says nothing; what is not there is named as well.
        shutil.copyfile("/bin/true", server.owned(new / "broker"))
        self.assertIn(f"program {new}/broker: does not say its version, and", server.refused("--to", new / "bulkheadd"))
        (new / "broker").unlink()
        self.assertIn(f"cannot open {new}/broker: No such file", server.refused("--to", new / "bulkheadd"))
        server.stop()
        server.put_programs(version="0.1.9")
        server.put_programs(names=["site"])
        started = server.command("run", server.config)
        self.assertEqual(started.returncode, 1)
        self.assertIn(f"program {server.programs}/site: is of version 0.1.0, and the launcher is of version 0.1.9; install all",
                      started.stderr)
        server.put_programs(version="0.1.9")
        server.start()
        self.assertEqual(server.get("/probe").status, 200)

    def test_what_fails_after_it_has_taken_over_is_put_back(self):
        server = self.server
        before, pid = server.processes(), server.launcher.pid
        loads = [Load(server.port, path, seconds=4, connections=4, close=close) for path in ("/", "/probe")
                 for close in (True, False)]
        wait_for_time(0.5)
        said = server.refused("--to", server.false_launcher("stays behind"))
        for load in loads:
            load.end().assert_clean(self)
        self.assertIn("the new launcher could not take over, and this one goes on", said)
        self.assertEqual((server.processes(), server.launcher.pid), (before, pid))
        self.assertEqual(server.executable(pid)[0], str(server.programs / "bulkheadd"))
        server.relaunch("main")
        server.put_programs(version="0.1.9")
        self.assertIn("to 0.1.9", server.upgrade())

    def test_a_neighbouring_version_is_taken_over_from(self):
        """In a downgrade the record is of the next version, and has an item that this one does not know."""
        server = self.server
        for kind in ("is of the next version", "is of the version before"):
            self.assertIn("upgraded from", server.upgrade("--to", server.false_launcher(kind)))
            self.assertEqual(server.get("/probe").status, 200)
            self.assertEqual(server.executable(server.launcher.pid)[0], str(server.folder / "real/bulkheadd"))

    def test_one_that_hangs_in_earnest_stops_nobody_else(self):
        """Nobody can put the launcher before back: what serves goes on, and ends with the process that hangs."""
        server = self.server
        self.enterContext(server.begun("--to", server.false_launcher("hangs in earnest")))
        hangs = lambda: server.executable(server.launcher.pid)[0] == str(server.folder / "false")
        self.assertTrue(until(hangs, 20))
        loads = [Load(server.port, path, host, seconds=2, connections=4, close=close) for host, path in TARGETS for close in (False, True)]
        for load in loads:
            load.finish().assert_clean(self)
        server.launcher.kill()
        server.launcher.wait()
        self.assertTrue(until(lambda: not server.left(), 10), server.left())
        server.start()
        self.assertEqual(server.get("/probe").status, 200)

    def test_roles_that_do_not_come_up_leave_those_of_before(self):
        server = self.server
        before = {title: server.process(title) for title in ("site main", "site direct", "gate")}
        new = server.put_programs(server.folder / "other", version="0.1.9")
        server.false_launcher("exits", version="0.1.9").rename(new / "site")
        with Load(server.port, seconds=4, connections=4) as load:
            said = server.refused("--to", new / "bulkheadd")
            load.end().assert_clean(self)
        self.assertIn("the launcher is of version 0.1.9 now, but some processes of 0.1.0 go on", said)
        self.assertEqual(server.process("site main"), before["site main"])
        self.assertNotEqual(server.process("gate"), before["gate"])
        self.assertEqual(server.get("/probe").status, 200)
        server.put_programs(new, version="0.1.9")
        self.assertIn("from 0.1.9 to 0.1.9", server.upgrade())
        self.assertTrue(server.all_are_new(), server.old_ones())

    def test_one_that_hangs_is_ended(self):
        """No other upgrade goes on meanwhile."""
        server, refused = self.server, []

        def ask_meanwhile():
            rehearses = lambda: any("rehearse" in one.words for one in server.processes())
            refused.append(until(rehearses, 10) and server.refused())

        meanwhile = threading.Thread(target=ask_meanwhile)
        meanwhile.start()
        self.refuses("hangs", "did not end within")
        meanwhile.join(60)
        self.assertIn("an upgrade is under way", refused[0])
        server.put_programs()
        self.assertIn("upgraded from", server.upgrade())


@rootless_too
class Killed(unittest.TestCase):
    def test_a_launcher_that_is_killed_meanwhile_leaves_nothing_behind(self):
        """At whatever step: all ends with it, and the next start finds nothing in its way."""
        chance = random.Random(65)
        for _ in range(6):
            with launch() as server:
                server.put_programs(version="0.1.9")
                upgrading = subprocess.Popen(
                    [server.own("bulkhead", server.folder), "upgrade", "--run-dir", "run"], cwd=server.folder,
                    stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **server._user(),
                )
                wait_for_time(chance.uniform(0, 0.4))
                server.processes()
                server.launcher.kill()
                server.launcher.wait()
                upgrading.wait(90)
                self.assertTrue(until(lambda: not server.left(), 10), server.left())
                server.start()
                self.assertEqual(server.get("/probe").status, 200)


@rootless_too
class WithTls(unittest.TestCase):
    def test_connections_of_all_kinds_go_on(self):
        more = ('[[site.service]]\nname = "socket"\npath = "/service"\ncommand = ["bin/socket"]\n'
                '[[site.service]]\nname = "probe"\npath = "/probe"\ncommand = ["bin/probe"]\n')
        server = UpgradingTls(more=more, limits='drain_timeout = "10s"')
        for name in ("socket", "probe"):
            server.copy_program(name)
        with server:
            uri = f"wss://b.test:{server.tls}/service"
            tunnel = self.enterContext(Client(uri, server.tls, ssl=insecure(), server_hostname="b.test"))
            tunnel.send("before")
            self.assertEqual(tunnel.recv(), "before")
            upload = server.connect_tls("b.test")
            upload.sendall(b"POST /probe/echo HTTP/1.1\r\nHost: b.test\r\nContent-Length: 6\r\n\r\nabc")
            load = subprocess.Popen(
                ["h2load", "-D", "4", "-c", "4", "-m", "4", f"--connect-to=127.0.0.1:{server.tls}", f"https://a.test:{server.tls}/"],
                stdout=subprocess.PIPE, text=True,
            )
            wait_for_time(1)
            server.put_programs(version="0.1.9")
            self.assertIn("to 0.1.9", server.upgrade())
            upload.sendall(b"def")
            self.assertIn(b'"body_length":6', answer(upload))
            tunnel.send("after")
            self.assertEqual(tunnel.recv(), "after")
            said = load.communicate(timeout=30)[0]
            # After GOAWAY h2load opens no other connection: each of its streams fails once to begin, and nothing else
            # does.
            done, failed, late = (client.number(rf"(\d+) {what}", said) for what in ("succeeded", "failed", "timeout"))
            self.assertGreater(done, 100, said)
            self.assertTrue(failed <= 4 * 4 and not late and " 0 3xx, 0 4xx, 0 5xx" in said, said)
            upload.close()

    def test_tickets_and_certificates(self):
        with UpgradingTls() as server:
            file = server.folder / "session"
            self.assertIn("New, TLSv1.3", server.s_client("a.test", "-tls1_3", "-sess_out", file, "-ign_eof"))
            server.put_programs()
            server.upgrade()
            said = server.s_client("a.test", "-tls1_3", "-sess_in", file, "-ign_eof")
            self.assertIn("Reused, TLSv1.3", said)
            self.assertIn("200 OK", said)
            listed = server.command("status", "--certificates", "--run-dir", "run").stdout
            self.assertIn("a-rsa.pem", listed)


@rootless_too
class OnDemand(unittest.TestCase):
    def test_what_rests_goes_on_resting(self):
        sites = [site("main", [service("probe")]) | {"start": "on-demand", "idle_stop": "2s"}, site("busy")]
        with UpgradingServer(sites) as server:
            running = lambda: sorted(process.title for process in server.processes("site"))
            self.assertEqual(running(), ["site busy"])
            for _ in range(2):
                server.put_programs()
                server.upgrade()
                self.assertTrue(until(lambda: running() == ["site busy"], 10), running())
                self.assertEqual(server.get("/probe").status, 200)
                self.assertEqual(running(), ["site busy", "site main"])
            self.assertTrue(until(lambda: running() == ["site busy"], 15), running())


@rootless_too
class SeveralWorkers(unittest.TestCase):
    """Partitions with several processes, as many as are written or as there is work for."""

    def setUp(self):
        resting = {"min": 2, "max": 3}
        sites = [
            site("main", [service("probe", workers=3)], workers=3),
            site("direct", [service("direct", "/probe", takes=True, workers=2)]),
            site("grows", [service("grown", "/probe", workers={"min": 1, "max": 3})], idle_stop="2s"),
            site("rests", [service("resting", "/probe", workers=resting)], workers=resting, start="on-demand", idle_stop="5s"),
        ]
        server = UpgradingServer(sites, server={"gates": 1})
        for name in ("direct", "grown", "resting"):
            server.copy_program("probe", name)
        self.server = self.enterContext(server)

    def counts(self):
        titles = ("site main", "site direct", "site grows", "site rests", "bin/probe", "bin/direct", "bin/grown", "bin/resting")
        return [len(self.server.processes(title)) for title in titles]

    def busy(self, seconds):
        """More work than one process can do: each request blocks its process."""
        return Load(self.server.port, "/probe/block?ms=250", "grows.test", seconds=seconds, connections=8, close=True)

    def test_all_of_them_are_replaced_under_load(self):
        server = self.server
        self.assertEqual(self.counts(), [3, 1, 1, 0, 3, 2, 1, 0])
        loads = [self.busy(9)] + [Load(server.port, path, host, seconds=9, connections=4, close=close)
                                  for host, path in TARGETS for close in (False, True)]
        self.assertTrue(until(lambda: self.counts()[6] == 3, 6), self.counts())
        before = set(server.processes())
        server.put_programs(version="0.1.9")
        said = server.upgrade()
        self.assertRegex(said, r"(?m)^site +5$")
        self.assertRegex(said, r"(?m)^service +8$")
        for load in loads:
            load.finish().assert_clean(self, at_least=20)
        self.assertTrue(until(lambda: not before & set(server.processes()), 10), before & set(server.processes()))
        # They go when the work does, and come again with it; and one that is killed comes back.
        self.assertTrue(until(lambda: self.counts() == [3, 1, 1, 0, 3, 2, 1, 0], 15), self.counts())
        with self.busy(6) as load:
            self.assertTrue(until(lambda: self.counts()[6] == 3, 6), self.counts())
            load.finish()
        self.assertEqual(load.refused, 0, load.text)
        for title in ("site main", "bin/probe"):
            killed = server.processes(title)[1]
            killed.kill()
            again = lambda title=title, killed=killed: len(server.processes(title)) == 3 and killed not in server.processes(title)
            self.assertTrue(until(again, 10), server.processes(title))
        self.assertEqual({server.status("/probe", "main.test") for _ in range(6)}, {200})

    def test_those_that_rest_start_together_afterwards(self):
        server = self.server
        for version in ("0.1.9", "0.1.0"):
            server.put_programs(version=version)
            server.upgrade()
            self.assertTrue(until(lambda: self.counts() == [3, 1, 1, 0, 3, 2, 1, 0], 15), self.counts())
            self.assertEqual(server.get("/probe", "rests.test").status, 200)
            self.assertTrue(until(lambda: self.counts() == [3, 1, 1, 2, 3, 2, 1, 2], 5), self.counts())
            # The next upgrade replaces what was started for that request.
        server.put_programs(version="0.1.9")
        self.assertRegex(server.upgrade(), r"(?m)^site +7$")
        self.assertTrue(until(lambda: self.counts() == [3, 1, 1, 0, 3, 2, 1, 0], 15), self.counts())


class UpgradingManaged(Upgrading, Managed):
    """The same, started by a service manager."""


@rootless_too
class WithServiceManager(unittest.TestCase):
    def test_sockets_and_the_way_to_the_service_manager_are_kept(self):
        server = UpgradingManaged([site("main")], ())
        notified = self.enterContext(Notified(server.folder / "notify"))
        passed = self.enterContext(listening(port=server.port))
        inode = f"socket:[{os.fstat(passed.fileno()).st_ino}]"
        self.enterContext(server.given([passed], NOTIFY_SOCKET=notified.name))
        for _ in range(2):
            before = len(notified.read())
            server.put_programs()
            server.upgrade()
            self.assertTrue(server.all_are_new(), server.old_ones())
            self.assertTrue(notified.after(before, "READY"))
            self.assertTrue(all(inode in gate.descriptors().values() for gate in server.processes("gate")))
            self.assertEqual(server.get("/").text, "<h1>main</h1>\n")
            variables = (server.folder / f"/proc/{server.launcher.pid}/environ").read_bytes()
            self.assertNotIn(b"LISTEN_FDS", variables)
        self.assertIsNone(server.reload([site("main"), site("more")]))
        self.assertEqual(server.get("/", "more.test").status, 200)


    def test_one_that_hangs_in_earnest_says_no_more_that_it_lives(self):
        server = UpgradingManaged([site("main")], ())
        notified = self.enterContext(Notified(server.folder / "notify"))
        self.enterContext(server.given([], NOTIFY_SOCKET=notified.name, WATCHDOG_USEC=600_000))
        self.assertTrue(notified.after(0, "WATCHDOG"))
        with server.begun("--to", server.false_launcher("hangs in earnest")):
            self.assertTrue(until(lambda: server.executable(server.launcher.pid)[0] == str(server.folder / "false"), 20))
            self.assertIsNone(notified.after(len(notified.read()), "WATCHDOG", seconds=2))
            self.assertEqual(server.get("/").status, 200)
            server.launcher.kill()
            server.launcher.wait()


class Bans(unittest.TestCase):
    """As root: without, clients of other addresses cannot be made up in every container."""

    def test_a_client_that_is_banned_stays_so(self):
        with UpgradingTls() as server:
            with server.connect_tls("a.test", "127.7.7.7") as stream:
                raw = socket.socket(fileno=stream.detach())
                raw.sendall(b"\x17\x03\x03\x00\x20" + bytes(32))
                raw.close()
            listed = lambda: server.command("bans", "--run-dir", "run").stdout
            self.assertTrue(until(lambda: "127.7.7.7" in listed(), 10), listed())
            for _ in range(2):
                server.put_programs()
                server.upgrade()
                self.assertIn("127.7.7.7", listed())
                with self.assertRaises(OSError):
                    server.get_tls("a.test", "127.7.7.7")
                self.assertIn(b" 200 OK", server.get_tls("a.test"))


class Filters(unittest.TestCase):
    def test_the_chain_is_replaced_and_no_request_is_lost(self):
        command = {"command": [PYTHON, "-I", "filters/filter.py"], "read": [library(), "filters"]}
        files = {"filters/filter.py": FILTER}
        with launch(files=files, conditioning={"filters": [command, command]}) as server:
            before = set(server.processes(PYTHON))
            self.assertEqual((server.status("/probe"), len(before)), (200, 2))
            load = Load(server.port, "/probe", seconds=5, connections=4, close=True)
            wait_for_time(0.5)
            server.put_programs()
            self.assertRegex(server.upgrade(), r"(?m)^filter +2$")
            load.end().assert_clean(self)
            self.assertTrue(until(lambda: not before & set(server.processes(PYTHON)), 10))
            self.assertEqual(len(server.processes(PYTHON)), 2)
            # One that crashes has all come back, as before.
            server.processes(PYTHON)[0].kill()
            self.assertTrue(until(lambda: server.status("/probe") == 200 and len(server.processes(PYTHON)) == 2, 15))


if __name__ == "__main__":
    unittest.main()
