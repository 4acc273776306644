"""Answers that another machine does not read: their rows wait, and others do not."""

import unittest

from client import until
from databases import Sqlite, at_each
from harness import rootless_too
from machines import Holder, Machines, Web
from writing import Writing, look

#: As many calls as have more rows together than a door may have to keep; bytes of each answer at least.
CALLS, LENGTH = 8, 10_000_000


@at_each
@rootless_too
class Unread(Machines):
    engine = Sqlite

    def call(self, door):
        # A door that has begun to wait for whoever reads nothing takes no more calls either.
        values = b"\1" + (10000).to_bytes(8, "little")
        self.call_at_once(door, [{"id": at, "name": "large", "values": values} for at in range(CALLS)])

    def read(self, door):
        """How each call ends, and the bytes of those that have an answer."""
        ends, lengths = {}, {}
        while len(ends) < CALLS:
            found = self.answer(door)
            if found.kind == "Failed":
                ends[found.id] = found.fault
                continue
            lengths[found.id] = lengths.get(found.id, 0) + len(found.results)
            if found.kind == "Done":
                ends[found.id] = found.kind
        return list(ends.values()), [lengths[at] for at, end in ends.items() if end == "Done"]

    def test_they_come_as_they_are_read(self):
        """Also where together they are more than a door keeps; those who write go on meanwhile."""
        with Holder(self.papers, engine=self.engine) as holder, Web(self.papers, holder.tls) as web:
            writing = Writing(web.port)
            with self.door(holder) as door:
                self.call(door)
                ends, lengths = self.read(door)
                self.assertEqual(ends, ["Done"] * CALLS)
                self.assertEqual(len(set(lengths)), 1)
                self.assertGreater(lengths[0], LENGTH)
                most = holder.process("datadoor").status()["VmHWM"]
                self.assertLess(int(most.split()[0]), 160 << 10, "KiB")
            self.assert_writes(writing)
            look(self, holder, writing.finish())
            self.assertEqual(writing.failed, {})

    def test_who_reads_nothing_costs_nobody(self):
        """His calls fail soon, though they have the time; others of the same service go on, and he may call again."""
        with Holder(self.papers, engine=self.engine) as holder, Web(self.papers, holder.tls) as web:
            with self.door(holder) as door:
                self.call(door)
                writing = Writing(web.port)
                self.assert_writes(writing)
                writing.finish()
                self.assertEqual(writing.failed, {})
                self.assertTrue(until(lambda: "does not read its answers" in holder.log(), 20), holder.log())
                ends, lengths = self.read(door)
                # Some have come whole before the door was full. A door does not know which calls change something, so
                # it says that one whose end has come may have.
                self.assertIn("Busy", ends)
                self.assertLessEqual(set(ends), {"Busy", "Done", "Lost"})
                self.assertTrue(all(length > LENGTH for length in lengths), lengths)
                self.say(door)
                self.assertEqual(self.answer(door).kind, "Done")
            look(self, holder, writing)


if __name__ == "__main__":
    unittest.main()
