"""Clients that write notes while something fails, and what has to be true of the notes afterwards."""

import json
import threading
import urllib.parse

from client import Connection

WRITERS = 4


class Writing:
    """Clients that write one note after the other, and know what became of each."""

    def __init__(self, port):
        self.port, self.stopped = port, threading.Event()
        self.written, self.failed = [], {}
        self.threads = [threading.Thread(target=self._run, args=(at,), daemon=True) for at in range(WRITERS)]
        for thread in self.threads:
            thread.start()

    def _run(self, at):
        connection, number = None, 0
        while not self.stopped.is_set():
            number += 1
            mark = f"{at}-{number}"
            # Each way to write takes its turn.
            how, statement, values = [("exec", "note", [mark]), ("many", "note_with_count", [mark]),
                                      ("transaction", "two_notes", [[f"{mark}-a"], [f"{mark}-b"]])][number % 3]
            words = urllib.parse.urlencode({"statement": statement, "values": json.dumps(values)})
            try:
                connection = connection or Connection(self.port)
                answer = connection.get(f"/asker/{how}?{words}", "main.test")
                if answer.status == 200:
                    self.written.append(mark)
                else:
                    self.failed[mark] = answer.text.strip()
            except OSError as error:
                self.failed[mark], connection = repr(error), None

    def finish(self):
        self.stopped.set()
        for thread in self.threads:
            thread.join(20)
        return self


def look(case, server, writing):
    """Compares what clients know with what is in the database."""
    server.engine.check()
    marks = [mark for mark, in server.engine.rows("SELECT mark FROM notes")]
    case.assertEqual(len(marks), len(set(marks)), "something was written twice")
    there, halves = {mark for mark in marks if mark.count("-") == 1}, {mark for mark in marks if mark.count("-") == 2}
    for mark in {half.rpartition("-")[0] for half in halves}:
        case.assertLessEqual({f"{mark}-a", f"{mark}-b"}, halves, "half of a transaction")
        there.add(mark)
    missing = [mark for mark in writing.written if mark not in there]
    case.assertEqual(missing, [], "acknowledged, and not there")
    # Of what failed only that may be there of which nobody could know.
    unknown = {mark for mark, why in writing.failed.items() if "lost while the call was under way" in why}
    strange = {mark: writing.failed.get(mark) for mark in there - set(writing.written) - unknown if mark in writing.failed}
    case.assertEqual(strange, {}, "said to have failed, and there")
