"""Each layer of the jail switched off in turn, and some together: what then succeeds that was refused before.

A layer whose absence shows nowhere is one that no test would miss. Layers that close the same hole are taken away
together, and shown to close it one by one.
"""

import contextlib
import ctypes
import itertools
import json
import os
import re
import subprocess
import unittest
from concurrent.futures import ThreadPoolExecutor

import pytest

import process_facts
from client import until
from jail_probe import POSTS as ALL_POSTS
from jail_probe import WRITES, by_id, check_part, markdown, page_has, probe, program, table_rows, write_part
from harness import Server, service, site

pytestmark = pytest.mark.alone

POSTS = {post: ALL_POSTS[post] for post in ("gate", "site", "service", "with network")}
TITLES = {"gate": "gate 0", "site": "site main", "service": "bin/probe", "with network": "bin/net"}
#: Servers at a time.
SERVERS = 2

#: Without these nothing starts: what the server then says.
FAILS = {
    "descriptors": "descriptor 3 is not its channel",
    # Root without capabilities may not execute a service's program, which belongs to the service's group alone.
    "identity": "cannot start it: exec: Permission denied",
}
#: What is left to a process without a jail: its uid, and that of the layers above without which nothing starts.
UNJAILED_KEEPS = {"descriptors", "identity", "capabilities", "bounding set"}
RENEW = "docs/security/attempts.md says otherwise: tests/run --write-docs test_mutation renews it"
#: These keep away what is not there by itself; each has a test that puts it there.
SEEN_ALONE = {
    "label": "a service with a label that the machine does not know is started",
    "directory": "without the root as well, a service starts in the launcher's folder",
    "keyring": "without the filter as well, the launcher's session keyring is a service's",
    "capabilities": "the launcher's inheritable set is inherited; without identity, root keeps its capabilities",
    "no_new_privs": "nothing, unless landlock and seccomp are missing as well: both set it",
}
#: Layers that close the same holes: attempts of a service that succeed without all of them, and with any are refused.
TOGETHER = {
    ("root", "landlock"): {"read-machine", "read-homes", "proc-sys-read", "exec-own-file"},
    ("network namespace", "landlock", "seccomp"): {"connect-loopback"},
    ("landlock", "seccomp"): {"unix-path-listen", "mknod-fifo"},
}
#: Those that succeed without any layer at all, as a sample of every group: the probe can do what it says.
EVERYTHING = {
    "caps-effective", "kill", "ptrace", "vm-read", "proc-mem", "read-paths", "write-paths", "mknod-device", "chown",
    "connect-loopback", "unix-path", "give-orders", "unshare-user", "mount", "hostname", "reboot", "fork-bomb", "become-other",
    "become-root",
}


def made(without, **more):
    """A server without these layers."""
    sites = [site("main", [service("probe", **more), service("net", "/net", network=["tcp:1"])]), site("other")]
    settings = {"isolation": "degraded", "danger_without": list(without), "gates": 1}
    server = Server(sites, server=settings)
    server.copy_program("probe", "net")
    return server


def found(without, posts=POSTS):
    """Attempts and facts of each post without these layers."""
    with made(without) as server:
        seen = {post: process_facts.of(server.process(TITLES[post])) for post in posts}
        return {post: (by_id(probe(server, POSTS[post])), seen[post]) for post in posts}


def found_of_all(cases):
    """The same for many sets of layers, two at a time."""
    with ThreadPoolExecutor(SERVERS) as pool:
        return dict(zip((case[0] for case in cases), pool.map(lambda case: found(*case), cases)))


def layers():
    """The names of all layers in their order, as who writes a wrong one is told."""
    server = made(["none"])
    try:
        text = server.command("check", server.config).stderr
    finally:
        server._end(failed=False)
    return re.search(r"the layers of the jail are (.*)", text).group(1).split(", ")


def newly(before, after):
    """The ids of attempts that succeed now and did not before."""
    succeeds = lambda attempts, id: attempts[id]["result"] == "succeeded"
    return [id for id in after if succeeds(after, id) and not succeeds(before, id)]


def cell(ids):
    return ", ".join(f"`{id}`" for id in ids) or "–"


class Broken(Server):
    """A server that is up as soon as it says why nothing is."""

    says = ""

    def stderr(self):
        text = super().stderr()
        return text + "serving on" if self.says in text else text

    def _tell(self):
        pass


class OneByOne(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.layers = layers()
        cls.intact = found([])
        cases = [((layer,), POSTS) for layer in cls.layers if layer not in FAILS]
        # What this machine lets a process do that has a uid of its own and no jail.
        unjailed = tuple(layer for layer in cls.layers if layer not in UNJAILED_KEEPS)
        cls.without = found_of_all([*cases, (unjailed, POSTS)])
        cls.open = {post: attempts for post, (attempts, _) in cls.without.pop(unjailed).items()}

    def test_every_layer_shows(self):
        self.assertEqual(len(self.layers), 19, self.layers)
        for layer in self.layers:
            if layer in FAILS or layer in SEEN_ALONE:
                continue
            with self.subTest(layer):
                self.assertTrue(any(new or other for new, other in self.differences(layer).values()))

    def test_the_others_are_named_for_a_reason(self):
        """Who is looked at by a test of its own shows nothing here; else it belongs to the others."""
        for layer in SEEN_ALONE:
            with self.subTest(layer):
                self.assertFalse(any(new or other for new, other in self.differences(layer).values()))

    def test_what_shows(self):
        """Of each layer what it is there for, where that does not depend on the machine."""
        shows = {
            "session": {"umask", "session"},
            "rlimits": {"rlimit-processes"},
            "pid namespace": {"visible-by-kill", "pidfd-open", "kill-all"},
            "root": {"exec-machine", "o-path", "dotdot-cwd", "fds-reopen"},
            "bounding set": {"caps-bounding", "securebits"},
            "parent death": {"parent-death"},
            "seccomp": {"seccomp-mode", "socket-inet", "sweep", "write-execute", "memfd-execute", "keyring"},
        }
        for layer, attempts in shows.items():
            with self.subTest(layer):
                self.assertLessEqual(attempts, set(self.differences(layer)["service"][0]))
        for post in ("gate", "site"):
            self.assertLessEqual({"socket-inet", "fork", "sweep"}, set(self.differences("seccomp")[post][0]))
        # The others that it closes, the filter closes as well: see below.
        self.assertIn("root-list", self.differences("landlock")["with network"][0])
        spaces = {"cgroup": "cgroup", "ipc namespace": "ipc", "uts namespace": "uts", "network namespace": "net"}
        for layer, kind in spaces.items():
            for post in ("gate", "site", "service"):
                self.assertIn(f"{kind} namespace", self.differences(layer)[post][1], (layer, post))

    def differences(self, layer):
        """Of each post: the attempts that succeed anew, and the facts that are others."""
        return {
            post: (newly(self.intact[post][0], attempts), process_facts.changed(self.intact[post][1], about))
            for post, (attempts, about) in self.without[(layer,)].items()
        }

    def test_page(self):
        """The page says what was found, except for what this machine refuses a process without a jail as well."""
        rows = []
        for layer in self.layers:
            if layer in FAILS:
                rows.append([layer, *["–"] * len(POSTS), f"services do not start: {FAILS[layer]}"])
                continue
            differences = self.differences(layer)
            others = sorted({name for _, other in differences.values() for name in other})
            else_seen = ", ".join(others) or SEEN_ALONE.get(layer, "–")
            rows.append([layer, *(cell(new) for new, _ in differences.values()), else_seen])
        if WRITES:
            write_part("layers", markdown(["without", *POSTS, "what else shows"], rows))
        head, _, *written = table_rows(page_has("layers"))
        self.assertEqual(head, ["without", *POSTS, "what else shows"])
        self.assertEqual([row[0] for row in written], self.layers)
        for row, expected in zip(rows, written):
            with self.subTest(row[0]):
                self.assertEqual(row[-1], expected[-1])
                for post, found_here, on_page in zip(POSTS, row[1:], expected[1:]):
                    missing = set(on_page.split(", ")) - set(found_here.split(", ")) - {"–"}
                    refused = {id for id in missing if self.open[post][id.strip("`")]["result"] != "succeeded"}
                    more = set(found_here.split(", ")) - set(on_page.split(", ")) - {"–"}
                    self.assertEqual((more, missing - refused), (set(), set()), f"{post}: {RENEW}")


class Fails(unittest.TestCase):
    def test_nothing_starts(self):
        for layer, says in FAILS.items():
            with self.subTest(layer):
                server = made([layer])
                server.__class__ = Broken
                server.says = says
                with server:
                    self.assertNotEqual(server.status("/probe", timeout=1), 200)
                    self.assertEqual(server.processes("bin/"), [])


class Together(unittest.TestCase):
    def test_each_closes_the_hole(self):
        posts = ("service",)
        most = [tuple(part) for group in TOGETHER for part in itertools.combinations(group, len(group) - 1)]
        cases = [(case, posts) for case in dict.fromkeys([*TOGETHER, *most])]
        results = {case: result["service"][0] for case, result in found_of_all(cases).items()}
        rows = []
        for group, attempts in TOGETHER.items():
            with self.subTest(group):
                succeeds = lambda case: {id for id in attempts if results[case][id]["result"] == "succeeded"}
                self.assertEqual(succeeds(group), attempts)
                for part in itertools.combinations(group, len(group) - 1):
                    self.assertEqual(succeeds(part), set(), f"without {part}")
                rows.append([" and ".join(group), cell(sorted(attempts))])
        check_part(self, "together", markdown(["any one of", "closes, in a service"], rows))

    def test_without_any(self):
        """Nearly no jail at all: what the table says can be got is got."""
        kept = {"descriptors"}
        everything = [layer for layer in layers() if layer not in kept]
        attempts, about = found(everything, ("service",))["service"]
        got = {id for id, attempt in attempts.items() if attempt["result"] == "succeeded"}
        self.assertLessEqual(EVERYTHING, got)
        self.assertGreater(len(got), 150)
        self.assertEqual(about["uid"], "root")
        self.assertEqual(about["NoNewPrivs"], "0")


#: keyctl(2) of x86-64, and two of its operations.
KEYCTL, GET_KEYRING_ID, JOIN_SESSION_KEYRING = 250, 0, 1
SESSION_KEYRING = -3
LIBC = ctypes.CDLL(None, use_errno=True)


def keyctl(*arguments):
    result = LIBC.syscall(KEYCTL, *map(ctypes.c_long, arguments))
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


@contextlib.contextmanager
def inheritable(capability):
    """This thread has a capability in its inheritable set, and so has what it starts."""
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    before = (ctypes.c_uint32 * 6)()
    LIBC.capget(header, before)
    changed = (ctypes.c_uint32 * 6)(*before)
    changed[2] |= 1 << capability
    if LIBC.capset(header, changed):
        raise OSError(ctypes.get_errno(), "capset")
    try:
        yield
    finally:
        LIBC.capset(header, before)


class Alone(unittest.TestCase):
    """Layers that keep away what has to be put there first."""

    def seen(self, without, **more):
        with made(without, **more) as server:
            return process_facts.of(server.process("bin/probe"))

    def test_label(self):
        """A security module, if there is one, has no such label: the service does not start, but without the layer."""
        label = {"label": "bulkhead-test-none"}
        server = made([], **label)
        server.answers = False
        with server:
            self.assertTrue(until(lambda: "cannot start it: label" in server.log(), 5), server.log())
            self.assertEqual(server.processes("bin/probe"), [])
        self.assertEqual(self.seen(["label"], **label)["uid"], "own")

    def test_directory(self):
        """Who has the machine's root starts in the configuration's folder, and else where the launcher is."""
        self.assertEqual(self.seen(["root"])["folder"], "another")
        self.assertEqual(self.seen(["root", "directory"])["folder"], "/")

    def test_keyring(self):
        """Without a filter a service can ask for its session keyring: the launcher's, but for this layer."""
        keyctl(JOIN_SESSION_KEYRING, 0)
        launchers = f"keyring {keyctl(GET_KEYRING_ID, SESSION_KEYRING, 0)}"
        for without, same in ((["seccomp"], False), (["seccomp", "keyring"], True)):
            with made(without) as server:
                attempt = by_id(probe(server, "main/probe"))["keyring"]
            self.assertEqual((attempt["result"], attempt["detail"] == launchers), ("succeeded", same), attempt)

    def test_foreign_calls(self):
        """Without the filter nothing ends the probe: it says what it would say anywhere."""
        hints = json.dumps({"only": ["int80"], "inline": True, "alone": True})
        words = [program("bulkhead-probe"), "attempts", hints]
        outside = subprocess.run(words, capture_output=True, text=True, check=True, timeout=20).stdout
        with made(["seccomp"]) as server:
            for name in POSTS.values():
                found = by_id(probe(server, name, "foreign"))
                self.assertEqual(found["int80"]["result"], by_id(json.loads(outside))["int80"]["result"], name)

    def test_capabilities(self):
        """A change of uid clears most sets by itself, but not the inheritable one."""
        net_raw = 13
        with inheritable(net_raw):
            self.assertEqual(int(self.seen([])["CapInh"], 16), 0)
            self.assertEqual(int(self.seen(["capabilities"])["CapInh"], 16), 1 << net_raw)
        # As root, and it keeps what root has.
        self.assertNotEqual(int(self.seen(["identity", "capabilities", "bounding set"])["CapEff"], 16), 0)

    def test_no_new_privs(self):
        """Landlock and the filter set it as well, as neither can be applied by who may gain privileges."""
        group = ("no_new_privs", "landlock", "seccomp")
        for part in itertools.combinations(group, 2):
            self.assertEqual(self.seen(part)["NoNewPrivs"], "1", part)
        self.assertEqual(self.seen(group)["NoNewPrivs"], "0")


if __name__ == "__main__":
    unittest.main()
