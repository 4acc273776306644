"""A DNS server over TCP, with names that change and answers that lie."""

import socket
import socketserver
import struct
import threading

A, CNAME, AAAA = 1, 5, 28
SERVFAIL, NXDOMAIN = 2, 3


def encoded(name):
    labels = name.strip(".").split(".")
    return b"".join(bytes([len(label)]) + label.encode() for label in labels) + b"\0"


def record(owner, kind, ttl, data):
    return encoded(owner) + struct.pack(">HHIH", kind, 1, ttl, len(data)) + data


class Answering(socketserver.StreamRequestHandler):
    def handle(self):
        while length := self.rfile.read(2):
            question = self.rfile.read(*struct.unpack(">H", length))
            answer = self.server.answer(question)
            if answer is None:
                return
            self.wfile.write(struct.pack(">H", len(answer)) + answer)


class Dns(socketserver.ThreadingTCPServer):
    """Knows `names`: to each a list of addresses, the name that it is an alias of, or a function that makes the answer.

    A function is given the question, the name and an honest answer; `None` from it closes the connection.
    """

    daemon_threads, allow_reuse_address = True, True

    def __init__(self, at, names, ttl=1):
        super().__init__((at, 53), Answering)
        self.names, self.ttl, self.asked = names, ttl, []
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()

    def answer(self, question):
        name, end = [], 12
        while length := question[end]:
            name.append(question[end + 1 : end + 1 + length].decode())
            end += 1 + length
        name, (kind,) = ".".join(name), struct.unpack(">H", question[end + 1 : end + 3])
        self.asked.append((name, kind))
        about = self.names.get(name)
        if callable(about):
            return about(question, name, self.honest(question, end + 5, name, ["20.9.9.9"], kind))
        return self.honest(question, end + 5, name, about, kind)

    def honest(self, question, end, name, about, kind):
        records = []
        while isinstance(about, str):
            records.append(record(name, CNAME, self.ttl, encoded(about)))
            name, about = about, self.names.get(about)
        families = {A: socket.AF_INET, AAAA: socket.AF_INET6}
        for address in about or ():
            if kind == (AAAA if ":" in address else A):
                records.append(record(name, kind, self.ttl, socket.inet_pton(families[kind], address)))
        code = NXDOMAIN if about is None else 0
        head = question[:2] + struct.pack(">HHHHH", 0x8180 | code, 1, len(records), 0, 0)
        return head + question[12:end] + b"".join(records)

    def __exit__(self, *_):
        self.shutdown()
        self.server_close()
