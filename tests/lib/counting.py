"""Clients that know of each request what has become of it: whether the answer came whole, when, and what was under way when
a process was killed."""

import threading
import time

import client


class Counting:
    """Some clients of one path, each with one request at a time, on a connection that is kept or on a new one for each."""

    def __init__(self, name, connect, target, host, clients=2, close=False):
        self.name, self.connect, self.target, self.host, self.close = name, connect, target, host, close
        self.answered, self.failed, self.asked_by = {}, {}, {}
        # Since when a request may have been on the way to a process: on a connection that is kept, from the request
        # before, as nobody knows when the answer to that came which was read so late.
        self.since = {}
        self.under_way, self.stopped = {}, threading.Event()
        self.lock, self.number = threading.Lock(), 0
        self.threads = [threading.Thread(target=self._run, args=(at,), daemon=True) for at in range(clients)]
        for thread in self.threads:
            thread.start()

    def _run(self, at):
        connection, before = None, 0.0
        while not self.stopped.is_set():
            with self.lock:
                self.number += 1
                mark = f"{self.name}-{self.number}."
            self.under_way[at], self.asked_by[mark] = mark, at
            begun = time.monotonic()
            self.since[mark] = begun if connection is None else before
            try:
                if connection is None:
                    connection = self.connect()
                # Of the two, this shows whether what was answered has a line in the log.
                sign = "&" if "?" in self.target else "?"
                answer = connection.get(f"{self.target}{sign}mark={mark}", self.host, ["Connection: close"] if self.close else [])
                if answer.status != 200:
                    raise ConnectionError(answer.line)
                self.answered[mark], before = time.monotonic(), begun
                if answer.headers.get("connection") == "close":
                    self._drop(connection)
                    connection = None
            except OSError as error:
                self.failed[mark] = (time.monotonic(), repr(error))
                self._drop(connection)
                connection = None
                # Where nobody listens for a moment, each try would count.
                time.sleep(0.01)
        self._drop(connection)

    @staticmethod
    def _drop(connection):
        if connection is not None:
            connection.close()

    def of_each(self):
        """What each of the clients was answered, in the order in which it asked: marks, and when."""
        number = lambda mark: int(mark.rpartition("-")[2].rstrip("."))
        found = {}
        for mark in sorted(self.answered, key=number):
            found.setdefault(self.asked_by[mark], []).append((mark, self.answered[mark]))
        return list(found.values())

    def finish(self):
        """Ends the clients, each after its request."""
        self.stopped.set()
        for thread in self.threads:
            thread.join(20)
        return self


class TlsConnection(client.Connection):
    """The same over TLS."""

    def __init__(self, port, context, name):
        super().__init__(port)
        self.socket = context.wrap_socket(self.socket, server_hostname=name)
