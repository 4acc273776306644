"""A server whose programs are replaced while it runs, and launchers that fail in all ways in which one can."""

import contextlib
import os
import shutil
import subprocess

from client import until
from harness import NOBODY, ROLES, ROOTLESS, program
from reloading import Reloading

#: A launcher that behaves as `bulkheadd` does up to a point. REAL is a true one, and ELSEWHERE a copy without programs
#: beside it.
FALSE = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define HEAD 26

/* Of which version it says that it is, as our own programs do. */
__asm__(".pushsection .note.bulkhead, \"a\", @note\n.balign 4\n.long 9, 5, 1\n.asciz \"bulkhead\"\n.balign 4\n"
        ".ascii \"" VERSION "\"\n.balign 4\n.popsection\n");

static uint64_t checksum(const unsigned char *bytes, size_t length) {
    uint64_t sum = 0xcbf29ce484222325u;
    while (length--)
        sum = (sum ^ *bytes++) * 0x100000001b3u;
    return sum;
}

/* Puts another record in the place of the one at `number`: of another version, with an item more; with messages of another version;
   or one that is torn. */
static void rewrite(int number, int versions, int item, int messages, int tear) {
    struct stat stat;
    fstat(number, &stat);
    unsigned char *record = malloc(stat.st_size + 64);
    size_t length = pread(number, record, stat.st_size, 0);
    record[8] += versions;
    record[HEAD + 4] += messages;
    if (item) {
        const unsigned char more[] = {3, 0, 0, 0, 1, item, 9};
        memcpy(record + length, more, sizeof more);
        length += sizeof more;
    }
    uint64_t body = length - HEAD, sum = checksum(record + HEAD, body);
    memcpy(record + 10, &body, 8);
    memcpy(record + 18, &sum, 8);
    if (tear)
        record[length / 2] ^= 1;
    int memory = memfd_create("record", MFD_ALLOW_SEALING);
    if (write(memory, record, length) != (ssize_t)length || lseek(memory, 0, SEEK_SET))
        exit(9);
    fcntl(memory, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE);
    dup2(memory, number);
    close(memory);
}

/* Leaves a copy of the record in a file. */
static void copy(int number) {
    struct stat stat;
    fstat(number, &stat);
    unsigned char *record = malloc(stat.st_size);
    FILE *file = fopen(RECORD, "w");
    if (!file || pread(number, record, stat.st_size, 0) != stat.st_size || fwrite(record, stat.st_size, 1, file) != 1 || fclose(file))
        exit(9);
}

int main(int count, char **words) {
    int rehearses = count > 2 && !strcmp(words[1], "rehearse"), number = count > 2 ? atoi(words[2]) : -1;
    (void)rehearses, (void)number;
    DO;
    execv(REAL, words);
    return 8;
}
"""
#: What each does first.
KINDS = {
    "exits": "return 3",
    "aborts": "abort()",
    "hangs": "for (;;) pause()",
    "prints": 'puts("\\x1b[2Jno\\nwonder"); return 1',
    "stays behind": 'if (!rehearses) execv(ELSEWHERE, words)',
    "is of the next version": "rewrite(number, 1, 250, 0, 0)",
    "is of the version before": "rewrite(number, -1, 0, 0, 0)",
    "adds what must be understood": "rewrite(number, 1, 120, 0, 0)",
    "is far ahead": "rewrite(number, 2, 0, 0, 0)",
    "has processes that speak otherwise": "rewrite(number, 0, 0, 1, 0)",
    "tears": "rewrite(number, 0, 0, 0, 1)",
    "copies": "copy(number); return 3",
    "hangs in earnest": "if (!rehearses) for (;;) pause()",
}


class Upgrading:
    """What a server has whose programs are its own: to be named before `Server` or what is built on it."""

    @staticmethod
    def own(name, folder):
        return folder / "programs" / name

    def __init__(self, *words, **more):
        super().__init__(*words, **more)
        self.programs = self.folder / "programs"
        self.put_programs()

    def owned(self, path):
        if ROOTLESS and os.geteuid() == 0:
            os.chown(path, NOBODY, NOBODY)
        return path

    def put_programs(self, folder=None, version=None, names=ROLES):
        """Puts copies of all programs into a folder, in the place of those that are there; of another version, if one is given."""
        folder = folder or self.programs
        if not folder.exists():
            folder.mkdir()
            self.owned(folder)
        for name in names:
            new = folder / "new"
            shutil.copyfile(program(name), new)
            if version:
                assert len(version) == 5
                new.write_bytes(new.read_bytes().replace(b"0.1.0", version.encode()))
            new.chmod(0o755)
            self.owned(new).rename(folder / name)
        return folder

    def false_launcher(self, kind, version="0.1.0"):
        """A launcher that is none; a role that is none, too."""
        real = self.folder / "real"
        elsewhere = self.folder / "elsewhere"
        self.put_programs(real)
        self.put_programs(elsewhere, names=["bulkheadd"])
        source, built = self.folder / "false.c", self.folder / "false"
        source.write_text(FALSE)
        subprocess.run(
            ["cc", "-static", "-O1", "-o", built, source, f"-DDO={KINDS[kind]}", f'-DREAL="{real}/bulkheadd"',
             f'-DELSEWHERE="{elsewhere}/bulkheadd"', f'-DVERSION="{version}"', f'-DRECORD="{self.folder}/record"'], check=True,
        )
        built.chmod(0o755)
        return self.owned(built)

    def upgrade(self, *words):
        """Upgrades, and raises if that fails; what it says. Waits for the admin process of before, and for the copy of the launcher that
        reads all files after an upgrade: the next order, or the next look, is not to meet them."""
        answer = self.command("upgrade", "--run-dir", "run", *words, timeout=90)
        if answer.returncode:
            raise AssertionError(f"upgrade: {answer.stdout}{answer.stderr}{self.stderr()}")
        copies = lambda: [process for process in self.processes() if "/bulkheadd " in process.title]
        until(lambda: len(self.processes("admin")) == 1 and not copies(), 5)
        return answer.stdout

    def upgrade_to_the_end(self):
        """The same, and waits for all processes of before, which have something to finish: what is looked at next has none of them."""
        before = set(self.processes())
        self.upgrade()
        left = lambda: before & set(self.processes())
        if not until(lambda: not left(), 15):
            raise AssertionError(f"an upgrade leaves {left()}")

    def refused(self, *words):
        """Upgrades, and raises if that does not fail; why it did."""
        answer = self.command("upgrade", "--run-dir", "run", *words, timeout=90)
        if not answer.returncode:
            raise AssertionError(f"upgraded: {answer.stdout}{self.stderr()}")
        return answer.stderr

    @contextlib.contextmanager
    def begun(self, *words):
        """An upgrade that does not come to its end."""
        command = [self.own("bulkhead", self.folder), "upgrade", "--run-dir", "run", *words]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        process = subprocess.Popen(command, cwd=self.folder, **quiet, **self._user())
        try:
            yield process
        finally:
            process.kill()
            process.wait()

    def executable(self, pid):
        """Which file a process executes: its path, and whether that is what is there now."""
        link = f"/proc/{pid}/exe"
        path = os.readlink(link)
        there = os.path.exists(path) and os.stat(path).st_ino == os.stat(link).st_ino
        return path.removesuffix(" (deleted)"), there

    def old_ones(self):
        """The processes of our own programs that execute files which are not there any more."""
        # One may end meanwhile.
        found = []
        for pid in [self.launcher.pid, *(process.pid for process in self.processes())]:
            try:
                path, is_new = self.executable(pid)
            except OSError:
                continue
            if path.startswith(str(self.folder)) and not is_new:
                found.append(path)
        return found

    def all_are_new(self):
        """Whether every process executes what is there now, once the last ones have ended that had something to finish."""
        return until(lambda: not self.old_ones(), 20)


class UpgradingServer(Upgrading, Reloading):
    """A server with plain sites, whose programs and configuration are replaced."""
