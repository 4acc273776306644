"""Clients that write notes while something fails, and what has to be true of the notes afterwards."""

import json
import sqlite3
import threading
import urllib.parse

from client import Connection

WRITERS = 4


class Writers:
    """Clients that write one note after the other, and know what became of each; each is a thread in `run`, with its number."""

    def __init__(self, count=WRITERS):
        self.stopped, self.written, self.failed = threading.Event(), [], {}
        self.threads = [threading.Thread(target=self.run, args=(at,), daemon=True) for at in range(count)]
        for thread in self.threads:
            thread.start()

    def marks(self, at):
        """What one of them writes, until it is to stop: each note has a mark of its own."""
        number = 0
        while not self.stopped.is_set():
            number += 1
            yield number, f"{at}-{number}"

    def note(self, mark, failure):
        """What became of a note: `failure` says why it was not written, or is nothing."""
        if failure is None:
            self.written.append(mark)
        else:
            self.failed[mark] = failure

    def finish(self):
        self.stopped.set()
        for thread in self.threads:
            thread.join(20)
        return self


class Writing(Writers):
    """They ask the service in Python, over HTTP, and write in each of three ways."""

    def __init__(self, port):
        self.port = port
        super().__init__()

    def run(self, at):
        connection = None
        for number, mark in self.marks(at):
            # Each way to write takes its turn.
            how, statement, values = [("exec", "note", [mark]), ("many", "note_with_count", [mark]),
                                      ("transaction", "two_notes", [[f"{mark}-a"], [f"{mark}-b"]])][number % 3]
            words = urllib.parse.urlencode({"statement": statement, "values": json.dumps(values)})
            try:
                connection = connection or Connection(self.port)
                answer = connection.get(f"/asker/{how}?{words}", "main.test")
                self.note(mark, None if answer.status == 200 else answer.text.strip())
            except OSError as error:
                self.note(mark, repr(error))
                connection = None


def unexplained(case, marks, writing, lost):
    """Checks that what was acknowledged is there, once and whole; gives the marks that are there although nobody was told so.

    `lost` says of a failure whether the note may be there all the same, as nobody could know.
    """
    case.assertEqual(len(marks), len(set(marks)), "something was written twice")
    there, halves = {mark for mark in marks if mark.count("-") == 1}, {mark for mark in marks if mark.count("-") == 2}
    for mark in {half.rpartition("-")[0] for half in halves}:
        case.assertLessEqual({f"{mark}-a", f"{mark}-b"}, halves, "half of a transaction")
        there.add(mark)
    case.assertEqual([mark for mark in writing.written if mark not in there], [], "acknowledged, and not there")
    return there - set(writing.written) - {mark for mark, why in writing.failed.items() if lost(why)}


def lost_under_way(why):
    return "lost while the call was under way" in why


def look(case, server, writing):
    """Compares what clients know with what is in the database."""
    server.engine.check()
    marks = [mark for mark, in server.engine.rows("SELECT mark FROM notes")]
    # Of what failed only that may be there of which nobody could know.
    strange = {mark: writing.failed[mark] for mark in unexplained(case, marks, writing, lost_under_way) if mark in writing.failed}
    case.assertEqual(strange, {}, "said to have failed, and there")


def look_into_sqlite(case, server, writing, lost=lost_under_way):
    """The same of a source `catalog` in a file; every note in it is the writers'."""
    with sqlite3.connect(server.folder / "state" / "data" / "main" / "catalog" / "catalog.db") as database:
        marks = [mark for mark, in database.execute("SELECT mark FROM notes")]
    case.assertEqual(unexplained(case, marks, writing, lost), set(), "said to have failed, and there")
