#!/usr/bin/env python3
"""Plays `bulkhead guard --control FD` for a program of the C library: the gate of the preload library's tests, and a
chain of filter processes before the server. It is the peer of the protocol, and stands in for no policy.

Runs in: the tests, started by cc_createlsock through $BULKHEAD. It writes what it has heard to $PEER_REPORT, as JSON.
With $PEER_TAKE, requests come in the bundle as from a filter, even without one.
"""

import argparse
import fcntl
import json
import os
import socket
import subprocess
import sys
import time

from guard_driver import ACCEPTING, Gate, receive


def pair():
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def start_filter(command, source, sink, **more):
    """Starts a filter, which finds its channels at descriptors 3 and 4."""
    # Out of the way of 3 and 4, so that the shell can put them there in any order.
    high = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 20) for end in (source, sink)]
    script = f'exec 3<&{high[0]} 4>&{high[1]} {high[0]}<&- {high[1]}<&-; exec "$@"'
    process = subprocess.Popen(["bash", "-c", script, "filter", *command], pass_fds=high, **{"env": {}, **more})
    for end in high:
        os.close(end)
    return process


class Peer(Gate):
    def __init__(self, control, filters, take):
        self.ended, self.servers, self.children = False, {}, []
        super().__init__(take or bool(filters))
        self.first = self.start_chain(filters) if filters else None
        self.watch(socket.socket(fileno=control), self.on_control)

    def start_chain(self, filters):
        """Starts each filter between two channels; returns the gate's end of the first."""
        first, source = pair()
        for command in filters:
            sink, following = pair()
            self.children.append(start_filter(command.split(), source, sink))
            source.close()
            sink.close()
            source = following
        self.watch(source, self.on_filtered)
        return first

    def on_control(self, control):
        before = set(self.shared)
        peeked = control.recv(2, socket.MSG_PEEK)
        self.ended = not peeked
        super().on_control(control)
        if self.first and peeked[1:] == bytes([ACCEPTING]):
            (number,) = set(self.shared) - before
            self.servers[number], self.shared[number] = self.shared[number], self.first

    def on_filtered(self, channel):
        message = receive(channel)
        if message is None:
            self.selector.unregister(channel)
            return
        data, fd = message
        number, _ = self.sent[int.from_bytes(data[2:10], "little")]
        self.servers[number].setblocking(True)
        socket.send_fds(self.servers[number], [data], [fd])
        os.close(fd)

    def report(self):
        held = [sorted(one) for one in self.processes.values()]
        return {"pid": os.getpid(), "took": self.took, "done": self.done, "back": self.back, "held": held,
                "unknown": self.unknown, "leftover": self.leftover, "ended": self.ended_processes,
                "arguments": sys.argv[1:]}


def write(path, text):
    with open(path + ".new", "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(path + ".new", path)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("guard", choices=["guard"])
    parser.add_argument("--control", type=int, required=True)
    parser.add_argument("--policy", action="append", default=[])
    parser.add_argument("--filter", action="append", default=[])
    options = parser.parse_args()
    peer = Peer(options.control, options.filter, "PEER_TAKE" in os.environ)
    path, last = os.environ["PEER_REPORT"], None
    # A server of the tests lives for seconds; nothing of it outlives this.
    end = time.monotonic() + 120
    while peer.running and peer.thread.is_alive() and time.monotonic() < end:
        text = json.dumps(peer.report())
        if text != last:
            write(path, text)
            last = text
        if peer.ended and not peer.processes:
            break
        time.sleep(0.01)
    if peer.first:
        peer.first.close()
    for child in peer.children:
        child.wait(5)
    write(path, json.dumps(peer.report()))


if __name__ == "__main__":
    main()
