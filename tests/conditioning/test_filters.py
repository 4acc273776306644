"""Filters: any program between the gates and the workers. They are a chain, jailed, and come back together."""

import json
import os
import re
import shutil
import signal
import subprocess
import time
import unittest

from client import Load, get, request, until
from harness import ROOTLESS, Server, rootless_too, site
from filter_program import FILTER, PYTHON, library

def filtered(*chain, kind=Server, files=None, **settings):
    """A server with a filter for each of these lists of words."""
    read = [library(), "filters"]
    filters = [{"command": [PYTHON, "-I", "filters/filter.py", *words], "read": read} for words in chain]
    policies = {"filters": filters} | settings.pop("conditioning", {})
    files = {"filters/filter.py": FILTER, "main/two": "two\n"} | (files or {})
    return kind([site()], programs=(), files=files, conditioning=policies, **settings)


def pids(server):
    return [process.pid for process in server.processes(PYTHON)]


@rootless_too
class Chain(unittest.TestCase):
    def test_requests_go_through_all_of_them_in_order(self):
        # The other way round, the second would not see what the first makes.
        with filtered(["zero=one"], ["one=two"]) as server:
            for _ in range(20):
                self.assertEqual(server.get("/zero").text, "two\n")
            self.assertEqual(server.status("/one"), 200)
            self.assertEqual(server.get("/two").text, "two\n")

    def test_every_request_of_a_connection_goes_through_it(self):
        with filtered(["zero=two"]) as server, server.connect() as connection:
            for _ in range(5):
                self.assertEqual(connection.get("/zero").text, "two\n")
                self.assertEqual(connection.get("/nothing").status, 404)
            self.assertEqual(connection.get("/refused").status, 403)

    def test_so_does_a_request_that_is_sent_along_with_another(self):
        with filtered(["zero=two"]) as server, server.connect() as connection:
            connection.send(request("/two") + request("/zero") + request("/two") + request("/refused"))
            for _ in range(3):
                self.assertEqual(connection.response().text, "two\n")
            self.assertEqual(connection.response().status, 403)

    def test_a_filter_may_answer_and_may_drop(self):
        with filtered(["first"], ["second"]) as server:
            refused = server.get("/refused")
            self.assertEqual((refused.status, refused.text), (403, "no"))
            with server.connect() as connection:
                connection.send(request("/drop"))
                self.assertTrue(connection.is_closed())
            self.assertEqual(server.status("/"), 200)

    def test_what_it_says_is_in_the_log(self):
        with filtered(["one"], ["other"]) as server:
            for number, word in enumerate(("one", "other")):
                said = lambda number=number, word=word: f"[filter {number}] filter begins: {word}" in server.log()
                self.assertTrue(until(said), server.log())


@rootless_too
class Supervision(unittest.TestCase):
    def test_when_one_dies_all_come_back_and_nothing_passes_meanwhile(self):
        with filtered(["zero=one"], ["one=two"]) as server:
            first, second = pids(server)
            os.kill(second, 9)
            self.assertTrue(until(lambda: not {first, second} & set(pids(server))))
            # The request waits for the new chain, and is filtered.
            self.assertEqual(server.get("/zero").text, "two\n")
            renewed = until(lambda: len(pids(server)) == 2 and pids(server))
            self.assertTrue(renewed)
            self.assertFalse({first, second} & set(renewed))
            self.assertEqual(server.get("/zero").text, "two\n")
            states = lambda: {process["state"] for process in server.order(command="status")["processes"]}
            self.assertTrue(until(lambda: states() == {"serving"}, 10), states())

    def test_a_request_that_ends_a_filter_ends_alone(self):
        with filtered(["first"], ["second"]) as server:
            for _ in range(3):
                self.assertIsNone(server.status("/die", timeout=5))
                # One that is sent into the chain at the very moment of its end is lost as well.
                self.assertTrue(until(lambda: server.status("/") == 200))

    def test_gates_come_and_go_and_use_the_same_chain(self):
        with filtered(["zero=two"], server={"gates": 3}) as server:
            before = pids(server)
            server.relaunch("gate")
            for _ in range(20):
                self.assertEqual(server.get("/zero").text, "two\n")
            self.assertEqual(pids(server), before)

    def test_a_relaunch_replaces_all_and_loses_no_request(self):
        with filtered(["zero=one"], ["one=two"]) as server:
            # Some are on connections that are kept, so that a chain is replaced between two of their requests.
            loads = [Load(server.port, path, seconds=3, connections=4, close=close)
                     for path, close in (("/zero", False), ("/zero", True), ("/one", False))]
            replaced = 0
            while all(load.process.poll() is None for load in loads):
                before = set(pids(server))
                server.relaunch("filter")
                for _ in range(10):
                    self.assertEqual(server.get("/zero").text, "two\n")
                ended = until(lambda before=before: not before & set(pids(server)), 10)
                self.assertTrue(ended, "the old ones are there still")
                self.assertEqual(len(pids(server)), 2)
                replaced += 1
            self.assertGreater(replaced, 1, "all but the last of them while the load went on")
            for load in loads:
                load.finish().assert_clean(self)

    def test_without_its_filters_a_server_serves_nothing(self):
        limits = {"start_timeout": "300ms"}
        with filtered(["first"], ["fail"], answers=503, limits=limits) as server:
            for _ in range(5):
                # A request that is in the chain when that ends is lost with it.
                self.assertIn(server.status("/"), (None, 503))
            self.assertTrue(until(lambda: "[filter 1] this filter is of no use" in server.log()), server.log())
            lines = [line for line in server.order(command="status")["processes"] if line["role"] == "filter"]
            self.assertEqual(len(lines), 2)


@rootless_too
class Replacement(unittest.TestCase):
    def test_a_chain_whose_last_filter_sends_nonsense_is_replaced(self):
        for gates in (1, 2):
            with self.subTest(gates=gates), filtered(["zero=babble"], ["one=two"], server={"gates": gates}) as server:
                before = set(pids(server))
                with server.connect() as lost:
                    lost.send(request("/zero"))
                    self.assertTrue(until(lambda: not before & set(pids(server))), server.stderr())
                    self.assertTrue(lost.is_closed())
                # One that is sent into the chain at the very moment of its end is lost as well.
                self.assertTrue(until(lambda: server.status("/one") == 200))
                for _ in range(5):
                    self.assertEqual(server.get("/one").text, "two\n")
                told = [line for line in server.stderr().splitlines() if "sent nonsense" in line]
                # The first passes it on, and only the last one is cut off.
                self.assertEqual(len(told), 1, told)
                self.assertIn("filter 1 ", told[0])

    def test_nonsense_right_at_the_start_is_throttled(self):
        began = time.monotonic()
        with filtered(["first"], ["babble"], answers=503, limits={"start_timeout": "300ms"}) as server:
            times = lambda: server.stderr().count("filter 1 (pid")
            self.assertTrue(until(lambda: times() >= 7, 30), server.stderr())
            # Nothing after the first time, then 10 ms, and twice as long after each further one.
            self.assertGreater(time.monotonic() - began, 0.31)
            self.assertIn(server.status("/"), (None, 503))

    def test_a_chain_in_which_a_filter_hangs_is_replaced(self):
        limits = {"start_timeout": "400ms"}
        for deeds in ((["zero=one"], ["one=hang"], ["last"]), (["zero=hang"], ["last"])):
            with self.subTest(deeds=deeds), filtered(*deeds, limits=limits) as server:
                before = set(pids(server))
                with server.connect() as hangs, server.connect() as waits:
                    hangs.send(request("/zero"))
                    self.assertTrue(until(lambda: "filter hangs" in server.log()))
                    waits.send(request("/two"))
                    self.assertTrue(until(lambda: not before & set(pids(server)), 30), server.stderr())
                    self.assertTrue(hangs.is_closed())
                    self.assertTrue(waits.is_closed())
                self.assertTrue(until(lambda: server.status("/two") == 200, 20), server.stderr())
                # The one behind that whose deed it is.
                self.assertRegex(server.stderr(), rf"filter {len(deeds) - 1} \(pid \d+\) did not read what waits for it")


class Begun(Server):
    """A server that nobody waits for."""

    def status(self, *_words, **_more):
        return 200


@rootless_too
class Starts(unittest.TestCase):
    def states(self, server):
        """The states of its filters."""
        processes = server.order(command="status")["processes"]
        return {process["state"] for process in processes if process["name"] == "filter"}

    def test_one_that_does_not_come_up_is_not_ready_and_is_ended(self):
        # A start may take nine times this, as that of a service.
        with filtered(["zero=one"], ["busy", "one=two"], kind=Begun, answers=False, limits={"start_timeout": "300ms"},
                      files={"filters/busy": ""}) as server:
            late = lambda: re.search(r"filter 1 \(pid \d+\) was starting for too long and was ended", server.log())
            self.assertTrue(until(lambda: "filter is busy" in server.log(), 10), server.log())
            self.assertEqual(self.states(server), {"starting"})
            self.assertTrue(until(late, 20), server.log())
            self.assertNotIn("serving on", server.stderr())
            (server.folder / "filters/busy").unlink()
            self.assertTrue(until(lambda: "serving on" in server.stderr(), 20), server.log())
            self.assertEqual(server.get("/zero").text, "two\n")
            self.assertEqual(self.states(server), {"serving"})

    def test_one_that_is_started_again_and_stopped_is_not_ready_either(self):
        with filtered(["busy", "zero=two"], limits={"start_timeout": "300ms"}) as server:
            (before,) = pids(server)
            server.write("filters/busy", "")
            os.kill(before, 9)
            self.assertTrue(until(lambda: "filter is busy" in server.log(), 10), server.log())
            (stopped,) = pids(server)
            os.kill(stopped, signal.SIGSTOP)
            self.assertEqual(self.states(server), {"starting"})
            self.assertTrue(until(lambda: f"filter 0 (pid {stopped}) was starting for too long" in server.log(), 20), server.log())
            (server.folder / "filters/busy").unlink()
            self.assertTrue(until(lambda: server.status("/zero") == 200, 20), server.log())

    def test_one_that_sleeps_before_it_reads_is_found_by_the_first_request(self):
        with filtered(["zero=two"], limits={"start_timeout": "2s"}) as server:
            (before,) = pids(server)
            server.write("filters/asleep", "")
            os.kill(before, 9)
            self.assertTrue(until(lambda: "filter sleeps" in server.log(), 10), server.log())
            (asleep,) = pids(server)
            with server.connect() as lost:
                began = time.monotonic()
                lost.send(request("/zero"))
                told = f"filter 0 (pid {asleep}) did not read what waits for it"
                self.assertTrue(until(lambda: told in server.log(), 30), server.log())
                # A quarter of that time is between two looks; one that works would have nine times 2 s.
                self.assertLess(time.monotonic() - began, 9)
                self.assertTrue(lost.is_closed())
            (server.folder / "filters/asleep").unlink()
            self.assertTrue(until(lambda: server.status("/zero") == 200, 30), server.log())


class Jail(unittest.TestCase):
    def test_a_filter_has_what_it_was_granted_and_nothing_else(self):
        with filtered(["own", "1"], ["own", "2"]) as server:
            seen = json.loads(server.get("/own").text)
            self.assertEqual(seen["pid"], 1)
            # The last one is this request's connection.
            self.assertEqual(seen["fds"], [0, 1, 2, 3, 4, 5])
            self.assertFalse(seen["network"])
            self.assertFalse(seen["etc"])
            self.assertEqual(seen["environment"].keys() - {"LC_CTYPE"}, set())
            self.assertEqual((seen["folder"], seen["files"]), (str(server.folder), ["filters"]))
            filters, others = server.processes(PYTHON), server.processes("bulkhead: ")
            uids = {process.uid for process in filters}
            self.assertEqual(len(uids), 2)
            self.assertFalse(uids & {process.uid for process in others} or 0 in uids)
            for process in filters:
                status = process.status()
                self.assertEqual((status["Seccomp"], status["NoNewPrivs"]), ("2", "1"))
                self.assertEqual(int(status["CapEff"], 16), 0)

    def test_its_layers_are_shown(self):
        with filtered(["first"]) as server:
            answer = server.command("status", "--config", server.config, "--json")
            lines = [line for line in json.loads(answer.stdout)["processes"] if line["role"] == "filter"]
            missing = [name for name, there in lines[0]["layers"].items() if there is False]
            # Everybody may read the machine's interpreter, so the kernel lets its processes be dumped: by their own
            # uid, which nobody else has.
            self.assertEqual(missing, ["undumpable"])

    def test_a_probe_finds_no_way_out(self):
        with filtered(["first"]) as server:
            answer = server.command("probe", "--config", server.config, "filter", "--json", timeout=90)
            self.assertEqual(answer.returncode, 0, answer.stdout[-3000:] + answer.stderr)

    def test_a_script_needs_its_interpreter(self):
        files = {"filter.py": f"#!{PYTHON}\n{FILTER}"}
        settings = {"conditioning": {"filters": [["filter.py"]]}}
        server = Server([site()], programs=(), files=files, **settings)
        server.folder.joinpath("filter.py").chmod(0o755)
        self.addCleanup(shutil.rmtree, server.folder, ignore_errors=True)
        for command in ("check", "run"):
            done = server.command(command, server.config)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn("name its interpreter first", done.stderr)


@unittest.skipUnless(shutil.which("gcc"), "gcc is not here")
class Compiled(unittest.TestCase):
    #: The least that a filter in C is: one packet in, the same packet out.
    SOURCE = r"""
    #define _GNU_SOURCE
    #include <sys/socket.h>
    #include <unistd.h>
    #include <string.h>
    int main(void) {
        static char data[70000];
        for (;;) {
            union { struct cmsghdr head; char room[CMSG_SPACE(sizeof(int))]; } control;
            struct iovec part = { data, sizeof data };
            struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control,
                                      .msg_controllen = sizeof control };
            ssize_t length = recvmsg(3, &message, 0);
            if (length <= 0) return length < 0;
            char *at = memmem(data, length, " /zero ", 7);
            if (at) memcpy(at, " /null ", 7);
            part.iov_len = length;
            int client = *(int *)CMSG_DATA(CMSG_FIRSTHDR(&message));
            if (sendmsg(4, &message, 0) < 0) return 1;
            close(client);
        }
    }
    """

    def test_a_program_of_ten_lines_is_a_filter(self):
        for kind in ("dynamic", "static"):
            with self.subTest(kind=kind):
                files = {"filter.c": self.SOURCE, "main/null": "null\n"}
                policies = {"filters": [["bin/filter", "word"]]}
                server = Server([site()], programs=(), files=files, conditioning=policies)
                flags = ["-static"] if kind == "static" else []
                output = server.folder / "bin/filter"
                subprocess.run(["gcc", *flags, "-o", output, server.folder / "filter.c"], check=True)
                with server:
                    self.assertEqual(get(server.port, "/zero").text, "null\n")
                    if not ROOTLESS:
                        self.assertEqual(oct(output.stat().st_mode & 0o7777), "0o410")


if __name__ == "__main__":
    unittest.main()
