"""Programs that are not linked statically: in their roots are their loader and their libraries, and nothing else."""

import os
import stat
import subprocess
import unittest
from pathlib import Path

from client import until
from harness import TOP, Server, service, site

#: Where a root has what it has of the machine's libraries.
FOLDERS = ("lib", "lib64", "usr")
LOADER = b"/lib64/ld-linux-x86-64.so.2\0"


def dynamic_probe():
    """The program `probe`, linked dynamically: from the folder `BULKHEAD_DYNAMIC`, or built under `target`."""
    folder = os.environ.get("BULKHEAD_DYNAMIC")
    if folder is None:
        text = subprocess.run(["rustc", "-vV"], capture_output=True, text=True, check=True).stdout
        host = next(line.split()[1] for line in text.splitlines() if line.startswith("host:"))
        target = TOP / "target" / "dynamic"
        command = ["cargo", "build", "--quiet", "-p", "packages", "--bin", "probe",
                   "--target-dir", str(target)]
        # In place of the flags of .cargo/config.toml, which link statically. How fast it is does not matter.
        environment = os.environ | {"RUSTFLAGS": "-C target-feature=-crt-static", "CARGO_PROFILE_DEV_DEBUG": "none"}
        subprocess.run(command, cwd=TOP, env=environment, check=True)
        folder = os.environ["BULKHEAD_DYNAMIC"] = str(target / host / "debug")
    return Path(folder) / "probe"


def libraries(program):
    """The files that the machine's `ldd` names for a program."""
    printed = subprocess.run(["ldd", str(program)], capture_output=True, text=True, check=True).stdout
    words = (word for line in printed.splitlines() for word in line.split())
    return {word for word in words if word.startswith("/")}


def files(root, *folders):
    """Every file below some folders of a root that is looked at from outside, by its path inside."""
    found = {}
    for folder in folders:
        for path, _, names in os.walk(root / folder):
            for name in names:
                file = Path(path, name)
                found["/" + str(file.relative_to(root))] = file.lstat()
    return found


class Dynamic(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.program = dynamic_probe()
        cls.libraries = libraries(cls.program)
        cls.server = cls.enterClassContext(Server(programs=[str(cls.program)]))
        cls.process = cls.server.process("bin/probe")
        cls.root = cls.process.folder / "root"

    def test_it_serves(self):
        self.assertGreaterEqual(len(self.libraries), 2, "the program is to be a dynamic one")
        self.assertEqual(self.server.status("/probe"), 200)

    def test_its_root_has_what_it_needs_and_no_more(self):
        found = files(self.root, *FOLDERS)
        self.assertEqual(set(found), self.libraries)
        for path, about in found.items():
            self.assertTrue(os.path.samestat(about, os.stat(path)), path)
        self.assertEqual(set(files(self.root, "etc")), {"/etc/ld.so.cache"} & {str(p) for p in Path("/etc").iterdir()})
        self.assertFalse(set(os.listdir(self.root)) - {"lib", "lib64", "usr", "etc", "dev", "tmp"})

    def test_nothing_in_its_root_is_setuid(self):
        # The configuration's folder is in it, empty, as the directory that it starts in.
        for path, about in files(self.root, ".").items():
            self.assertFalse(stat.S_ISREG(about.st_mode) and about.st_mode & 0o6000, path)

    def test_its_libraries_cannot_be_changed(self):
        mounts = (self.process.folder / "mountinfo").read_text().splitlines()
        options = {line.split()[4]: line.split()[5].split(",") for line in mounts}
        for path in self.libraries:
            self.assertTrue({"ro", "nosuid", "nodev"} <= set(options[path]), options[path])
        # What is above its root, the frame, is not shown to it.
        for other in ("/etc/ld.so.cache",):
            self.assertIn("ro", options[other])


class Restart(unittest.TestCase):
    def test_after_a_restart_and_a_change(self):
        with Server(programs=[str(dynamic_probe())]) as server:
            old = server.process("bin/probe")
            old.kill()
            self.assertTrue(until(lambda: not old.alive and server.status("/probe") == 200, 5))
            # From a dynamic program to a static one and back.
            server.copy_program("probe")
            server.relaunch("main/probe")
            process = server.process("bin/probe")
            self.assertEqual(files(process.folder / "root", *FOLDERS), {})
            server.copy_program(str(dynamic_probe()))
            server.relaunch("main/probe")
            process = server.process("bin/probe")
            self.assertEqual(set(files(process.folder / "root", *FOLDERS)), libraries(dynamic_probe()))
            self.assertEqual(server.status("/probe"), 200)

    def test_after_an_update_of_the_machines_loader(self):
        with Server(programs=[str(dynamic_probe())]) as server:
            loader = Path(LOADER.decode().rstrip("\0"))
            # Another version to whoever asks, as after an update; to the machine, the same file.
            loader.chmod(stat.S_IMODE(loader.stat().st_mode))
            old = server.process("bin/probe")
            old.kill()
            self.assertTrue(until(lambda: not old.alive and server.status("/probe") == 200, 10), server.log())

    def test_a_program_becomes_a_dynamic_one(self):
        with Server() as server:
            server.copy_program(str(dynamic_probe()))
            old = server.process("bin/probe")
            old.kill()
            self.assertTrue(until(lambda: not old.alive and server.status("/probe") == 200, 10), server.log())


class Refused(unittest.TestCase):
    """What cannot run does not, and the operator reads why; everything else serves."""

    def refusal(self, change=lambda program: program, **more):
        files = {"bin/probe": change(dynamic_probe().read_bytes())}
        server = Server([site(services=[service(**more)])], programs=[], answers=False, files=files)
        server.folder.joinpath("bin/probe").chmod(0o755)
        with server:
            self.assertTrue(until(lambda: "service main/probe: " in server.stderr(), 10))
            # What asked the loader may not be gone yet.
            self.assertTrue(until(lambda: not server.processes("bin/probe"), 10))
            self.assertEqual(server.status("/"), 200)
            return next(line for line in server.stderr().splitlines() if "service main/probe: " in line)

    def replaced(self, old, new):
        def change(program):
            self.assertIn(old, program)
            self.assertEqual(len(old), len(new))
            return program.replace(old, new)
        return change

    def test_a_library_that_is_missing(self):
        text = self.refusal(self.replaced(b"libgcc_s.so.1\0", b"libnone.so.99\0"))
        self.assertIn("bin/probe needs libnone.so.99, which is in none of the machine's folders of libraries", text)
        self.assertIn("link the program statically", text)

    def test_a_library_of_its_own(self):
        # The loader of the machine would take it; ours is not even let see it.
        text = self.refusal(environment={"LD_PRELOAD": "/tmp/libnone.so"})
        self.assertIn("its dynamic loader says: ", text)
        self.assertIn("/tmp/libnone.so", text)

    def test_a_loader_that_nobody_knows(self):
        if LOADER not in dynamic_probe().read_bytes():
            self.skipTest("needs glibc on x86_64")
        text = self.refusal(self.replaced(LOADER, b"/tmp/ld-linux-x86-64.so.222\0"))
        self.assertIn("asks for the dynamic loader /tmp/ld-linux-x86-64.so.222, which is none of /lib64/", text)
        # The kernel reads up to the first nought; what follows it may not make another name of it for us.
        text = self.refusal(self.replaced(LOADER, b"/lib/ld-musl-x86_64.so.1".ljust(len(LOADER), b"\0")))
        self.assertIn("asks for the dynamic loader /lib/ld-musl-x86_64.so.1\\x00", text)

    def test_a_head_that_is_made_up(self):
        # Where the program headers are, and how many: beyond the end, and more than anybody reads.
        far = self.refusal(lambda program: program[:32] + b"\xff" * 8 + program[40:])
        self.assertIn("bin/probe: ends before its head does", far)
        many = self.refusal(lambda program: program[:56] + b"\xff\xff" + program[58:])
        self.assertIn("bin/probe: has 65535 program headers; at least 1 and at most 64 are read", many)
        at = dynamic_probe().read_bytes().index(LOADER)
        endless = self.refusal(lambda program: program[:at + len(LOADER) - 1] + b"x" + program[at + len(LOADER):])
        self.assertIn("bin/probe: does not end the name of its dynamic loader", endless)

    def test_a_folder_that_hides_libraries(self):
        folder = os.path.dirname(min(path for path in libraries(dynamic_probe()) if "libc.so" in path))
        text = self.refusal(read=[folder])
        self.assertIn(f"lies in {folder}, of which `read` lets it execute nothing", text)


if __name__ == "__main__":
    unittest.main()
