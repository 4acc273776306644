"""All that a launcher knows, as it hands it to a successor: read out of the record that it makes for one.

The items are those of crates/wire/src/successor.rs, which is read here, so that an item more is compared as well.
"""

import collections
import os
import re
import struct
from pathlib import Path

from client import until
from harness import CLOSER, TOP

HEAD, NONE = 26, (1 << 64) - 1
SOURCE = (TOP / "crates/wire/src/successor.rs").read_text()
#: Fields that change by themselves: times, what a process says, and numbers that are given out once.
PASSING = {"age_ms", "left_ms", "next_ms", "deadline_ms", "start_ms", "unclean", "admin", "ticket", "groups", "chains", "day",
           "failures", "owes_report", "owes_shed", "owes_staples", "owes_commits", "relays_to", "last_exit", "wanted"}
#: Items about nothing that stays: what waits to be sent, or to be read once more.
PASSED = {"Waiting", "Unread", "ChainUnread", "Used"}
#: Fields that are numbers of descriptors, some of which are made for the record alone.
NUMBERS = {"Locked": {"descriptor"}, "Reaper": {"pidfd", "channel"}, "Chain": {"first", "last"}, "Process": {
    "pidfd", "control", "log", "stderr_reading", "stderr_writing", "calls", "core_folder"}}
SIZES = {"u8": "<B", "u16": "<H", "u32": "<I", "u64": "<Q", "bool": "<B"}


def layouts():
    """By its number, the name of an item and its fields, each with its type."""
    body = SOURCE[SOURCE.index("pub enum LauncherToSuccessor"):SOURCE.index("/// Why a record is refused.")]
    found = {}
    for number, name, fields in re.findall(r"^        (\d+) => (\w+) \{(.*?)\},$", body, re.M | re.S):
        found[int(number)] = name, re.findall(r"(\w+): ((?:Text|Bytes|Vec)<\w+>|\w+)", fields)
    return found


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, count):
        self.at += count
        return self.data[self.at - count:self.at]

    def number(self, form):
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def field(self, kind):
        if kind in SIZES:
            return self.number(SIZES[kind])
        if kind.startswith("Text"):
            return self.take(self.number("<H")).decode()
        if kind.startswith("Bytes"):
            return bytes(self.take(self.number("<I")))
        if kind.startswith("Vec"):
            return [self.number("<Q") for _ in range(self.number("<H"))]
        # One of few.
        return self.number("<B")


def items(record):
    """The items of a record: the name of each, and its fields."""
    known, reader = layouts(), Reader(record[HEAD:])
    found = []
    while reader.at < len(reader.data):
        part = Reader(reader.take(reader.number("<I")))
        name, fields = known[part.number("<H") >> 8]
        found.append((name, {field: part.field(kind) for field, kind in fields}))
        if part.at != len(part.data):
            raise AssertionError(f"{name} is not as {SOURCE} has it")
    return found


class State:
    """What a launcher knows, without what passes: slots and sites that serve, and how many numbers rest."""

    def __init__(self, record, descriptors):
        self.descriptors = descriptors
        all_items = items(record)
        of = lambda name: [fields for kind, fields in all_items if kind == name]
        slots, sites, logs = of("Slot"), of("Site"), of("AccessLog")
        states = {fields["slot"]: fields for fields in of("SlotState")}
        serving = {number for number, slot in enumerate(slots) if slot["stay"] == 0}
        live = {number for number, one in enumerate(sites) if one["serves"]}
        #: Numbers that rest, or are free, of slots and of sites: others are given them.
        self.resting = len(slots) - len(serving), len(sites) - len(live)
        self.logs_fit = len(logs) == len(sites) + 1
        self.lines = collections.Counter()
        for number in serving:
            self.add("Slot", slots[number] | states[number])
        for number in live:
            self.add("Site", sites[number] | {"number": number} | logs[number])
        for fields in logs[-1:]:
            self.add("AccessLog", fields)
        # One that retires still, of an upgrade before, is on its way out.
        working = {states[number]["current"] for number in serving}
        for kind, fields in all_items:
            if fields.get("serial", NONE) not in working | {NONE}:
                continue
            if kind not in PASSED | {"Slot", "SlotState", "Site", "AccessLog", "Launcher"}:
                self.add(kind, fields)

    def add(self, kind, fields):
        said = [kind]
        for name, value in sorted(fields.items()):
            if name in PASSING or name in NUMBERS.get(kind, ()):
                continue
            if name == "descriptor":
                # What it is; of a socket or a pipe, not which.
                value = re.sub(r"\[\d+\]$", "", self.descriptors.get(value, "none"))
            said.append(f"{name}={value!r}")
        self.lines[" ".join(said)] += 1

    def __eq__(self, other):
        return self.lines == other.lines

    def differences(self, other):
        """What one of the two has and the other has not."""
        return sorted([f"- {line}" for line in self.lines - other.lines] + [f"+ {line}" for line in other.lines - self.lines])


class Recorded:
    """A server of which the state can be looked at: to be named before `UpgradingServer`."""

    copies = None

    def state(self):
        """What the launcher knows now, when nothing is under way."""
        self.copies = self.copies or self.false_launcher("copies")
        said = self.refused("--to", self.copies)
        if "said nothing" not in said:
            raise AssertionError(said)
        pid = self.launcher.pid
        descriptors = {}
        for name in os.listdir(f"/proc/{pid}/fd"):
            try:
                descriptors[int(name)] = os.readlink(f"/proc/{pid}/fd/{name}")
            except OSError:
                continue
        return State((self.folder / "record").read_bytes(), descriptors)

    def kinds(self, pid):
        """How many descriptors of each kind a process has; files by their paths."""
        found = collections.Counter()
        for name in os.listdir(f"/proc/{pid}/fd"):
            try:
                found[re.sub(r":\[\d+\]$", "", os.readlink(f"/proc/{pid}/fd/{name}"))] += 1
            except OSError:
                continue
        return found

    def kinds_of_launcher(self):
        """The same of the launcher, without what it has of its helper that closes descriptors: once there was one, that stays."""
        pid = self.launcher.pid
        found = self.kinds(pid)
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            try:
                if Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")[0].decode() == CLOSER:
                    found -= collections.Counter({"socket": 1, "anon_inode:[pidfd]": 1})
            except OSError:
                continue
        return found

    def outside(self):
        """What there is of the server beside what its launcher knows, each thing as often as it is there: processes, descriptors,
        uids, files of logs."""
        processes = [(process.title, process.pid) for process in self.processes()]
        found = collections.Counter(f"process {title} {pid}" for title, pid in processes)
        looked_at = [(title, self.kinds(pid)) for title, pid in processes if title.startswith(("logger", "gate", "admin"))]
        for title, kinds in [*looked_at, ("launcher", self.kinds_of_launcher())]:
            found.update({f"descriptor of {title}: {kind}": count for kind, count in kinds.items()})
        uids = self.folder / "state/uids"
        found.update(f"uid {line}" for line in (uids.read_text().splitlines() if uids.exists() else []))
        found.update(f"log {path.name}" for path in (self.folder / "log").iterdir())
        return found

    def before(self):
        """What there is before a change, without the launcher's copies, which begin some time after an upgrade and end by themselves:
        one that is there after the change must go all the same."""
        state, outside = self.state(), self.outside()
        return state, collections.Counter({line: count for line, count in outside.items() if not re.match(r"process \S*/bulkheadd ", line)})

    def remains(self, before, given=None):
        """What is left of a change that was refused, or lacking, when all has had time to go: beside what `before` has
        returned. A uid that a process may have had stays that of its name, where the line matches `given`."""
        (state, outside), found = before, []

        def is_gone():
            now = self.outside()
            more = [line for line in now - outside if not (given and given.match(line))]
            # What an upgrade before had yet to close, and children that have yet to execute their programs, are missed
            # by nobody.
            fewer = [line for line in outside - now if not re.match(r"descriptor|process  ", line)]
            found[:] = [f"+ {line}" for line in more] + [f"- {line}" for line in fewer]
            return not found

        if not until(is_gone, 15, pause=0.1):
            return found
        after = self.state()
        return state.differences(after) + ([] if after.logs_fit else ["there is not one log for each site"])
