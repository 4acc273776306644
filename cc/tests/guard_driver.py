"""Plays the guard and its gate for a real server under the preload library, and counts what is said on the channels.

Runs in: the tests. It accepts on the adopted listening socket, waits for a whole request head, sends the connection as
a bundle, and takes it back after the answer. With `take` it reads the head itself and sends it along, as a filter would.
"""

import os
import selectors
import socket
import struct
import subprocess
import tempfile
import threading
import time

import sessions

OUT = os.environ.get("BULKHEAD_CC_OUT", "build")
PRELOAD = os.path.join(OUT, "libbulkhead-guard.so")
MESSAGE_MAX = 66 * 1024
CONNECTION, TOOK, DONE, BACK, KEEPS, SERVED, BATCH = 1, 1, 2, 3, 4, 5, 6
KEEP, HEAD_BYTES = 1, 8192
LISTENING, ACCEPTING, PROCESS = 1, 2, 3


def address_bytes(address):
    """An address as the protocol has it."""
    host = address[0].split("%")[0]
    ip = socket.inet_pton(socket.AF_INET6, host if ":" in host else "::ffff:" + host)
    return ip + struct.pack("<H", address[1])


def receive(channel):
    """The next message of a channel and the descriptor that came along; None at the end."""
    try:
        data, fds, _, _ = socket.recv_fds(channel, MESSAGE_MAX, 1)
    except ConnectionResetError:
        # A process that ended without having read all: the kernel says so once, ahead of what that process had given
        # back.
        return receive(channel)
    return (data, fds[0] if fds else -1) if data else None


class Gate:
    """The gate's part: accepts, waits for heads, sends bundles, hears of them again."""

    def __init__(self, take=False, keep=0):
        self.take, self.keep, self.keepers, self.served, self.told = take, keep, [], 0, 0
        self.selector = selectors.DefaultSelector()
        self.shared, self.processes, self.waiting = {}, {}, []
        self.sent, self.took, self.done, self.back, self.leftover = {}, [], [], [], 0
        self.unknown, self.ended_processes, self.accepted, self.messages = [], 0, 0, []
        self.next_id, self.deaf = 1, False
        #: With it nobody sees half of what a message has changed.
        self.whole = threading.RLock()
        self.ours, self.theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.selector.register(self.ours, selectors.EVENT_READ, self.on_control)
        self.running = True
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        while self.running:
            for key, _ in self.selector.select(0.05):
                key.data(key.fileobj)
            self.send_waiting()

    def stop(self):
        self.running = False
        self.thread.join(10)
        for key in list(self.selector.get_map().values()):
            key.fileobj.close()
        for channel in self.shared.values():
            channel.close()
        self.theirs.close()

    def lose_guard(self):
        """The guard ends, and with it the channels of the processes; what waits on the shared channels still comes."""
        for channel in [self.ours, *self.processes]:
            channel.shutdown(socket.SHUT_RDWR)

    def watch(self, item, what):
        self.selector.register(item, selectors.EVENT_READ, what)

    def on_control(self, control):
        message = receive(control)
        if message is None:
            self.selector.unregister(control)
            return
        data, fd = message
        assert data[0] == 1 and fd >= 0, data
        self.messages.append(data[1])
        item = socket.socket(fileno=fd)
        item.setblocking(False)
        if data[1] == PROCESS:
            self.processes[item] = set()
            self.watch(item, self.on_process)
            return
        (number,) = struct.unpack("<Q", data[2:])
        if data[1] == LISTENING:
            self.watch(item, lambda listener: self.on_accept(listener, number))
        else:
            item.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
            self.shared[number] = item

    def on_accept(self, listener, number):
        try:
            client, peer = listener.accept()
        except BlockingIOError:
            return
        self.accepted += 1
        self.await_head(client, number, peer, b"")

    def await_head(self, client, number, peer, taken):
        client.setblocking(False)
        if taken:
            self.on_head(client, number, peer, taken)
        if client.fileno() >= 0 and client not in [item[0] for item in self.waiting]:
            self.watch(client, lambda one: self.on_head(one, number, peer, taken))

    def on_head(self, client, number, peer, taken):
        try:
            seen = client.recv(65536, socket.MSG_PEEK)
        except BlockingIOError:
            seen = None
        except ConnectionError:
            seen = b""
        if seen == b"" and not taken:
            self.forget(client)
            client.close()
            return
        head = taken + (seen or b"")
        end = head.find(b"\r\n\r\n")
        tls = head[:1] == b"\x16"
        if end < 0 and not tls:
            return
        self.forget(client)
        if self.take and not tls and end + 4 > len(taken):
            taken += client.recv(end + 4 - len(taken))
        self.waiting.append((client, number, peer, taken))

    def forget(self, client):
        try:
            self.selector.unregister(client)
        except KeyError:
            pass

    def send_waiting(self):
        with self.whole:
            self.waiting = list(self.send_all(self.waiting))

    def send_all(self, waiting):
        """Sends these connections; yields those that must wait."""
        for client, number, peer, taken in waiting:
            head = struct.pack("<BBQ", 1, CONNECTION, self.next_id) + address_bytes(peer)
            head += address_bytes(client.getsockname()) + b"\0" + struct.pack("<I", len(taken)) + taken
            channel = self.shared.get(number)
            try:
                socket.send_fds(channel, [head], [client.fileno()])
            except (BlockingIOError, AttributeError):
                yield client, number, peer, taken
                continue
            except OSError:
                client.close()
                continue
            self.sent[self.next_id] = (number, peer)
            self.next_id += 1
            client.close()

    def on_process(self, channel):
        if self.deaf:
            time.sleep(0.0005)
            return
        message = receive(channel)
        if message is None:
            self.selector.unregister(channel)
            self.ended_processes += 1
            self.processes.pop(channel)
            channel.close()
            return
        with self.whole:
            self.on_message(channel, *message)

    def on_message(self, channel, data, fd):
        self.told += 1
        if data == bytes([1, KEEPS]):
            self.keepers.append(channel)
            self.let_keep(self.keep)
            return
        if data[1] == SERVED:
            self.served += struct.unpack("<I", data[2:])[0]
            return
        held = self.processes[channel]
        if data[1] == BATCH:
            (count,) = struct.unpack("<H", data[2:4])
            took = struct.unpack(f"<{count}Q", data[4:4 + 8 * count])
            done = struct.unpack(f"<{(len(data) - 6) // 8 - count}Q", data[6 + 8 * count:])
            held.update(took)
            self.took += took
            self.unknown += [(DONE, number) for number in done if number not in held]
            held.difference_update(done)
            self.done += done
            return
        version, kind, number = struct.unpack("<BBQ", data[:10])
        assert version == 1, data
        if kind == TOOK:
            assert data[10:] == address_bytes(self.sent[number][1]), data
            held.add(number)
            self.took.append(number)
            return
        if number not in held:
            self.unknown.append((kind, number))
        held.discard(number)
        if kind == DONE:
            self.done.append(number)
            return
        (size,) = struct.unpack("<I", data[10:14])
        assert kind == BACK and size == len(data) - 14 and fd >= 0, data
        self.back.append(number)
        self.leftover += size
        listener, peer = self.sent[number]
        client = socket.socket(fileno=fd)
        assert client.getpeername()[:2] == peer[:2], (client, peer)
        self.await_head(client, listener, peer, data[14:])

    def let_keep(self, count):
        """Tells each process that can keep connections how many it may."""
        self.keep = count
        for channel in self.keepers:
            try:
                channel.send(struct.pack("<BBII", 1, KEEP, count, HEAD_BYTES))
            except OSError:
                pass

    def held(self):
        """How many connections processes hold now."""
        with self.whole:
            return sum(len(held) for held in self.processes.values())

    def travelled(self):
        """How many times connections were sent to processes."""
        with self.whole:
            return len(self.sent)

    def all_ended(self):
        """Whether the gate was told, of each connection that it has sent, that it has ended or comes back."""
        with self.whole:
            return not self.waiting and sorted(self.sent) == sorted(self.done + self.back)

    def is_quiet(self):
        """Whether processes hold nothing, and all that they took has ended or come back, once."""
        with self.whole:
            return self.held() == 0 and sorted(self.took) == sorted(self.done + self.back)


class Server:
    """A real server under the preload library."""

    def __init__(self, command, port, take=False, environment=None, cwd=None, keep=0):
        self.gate, self.port = Gate(take, keep), port
        self.log = tempfile.TemporaryFile()
        variables = preloaded(environment or {})
        control = 900
        os.dup2(self.gate.theirs.fileno(), control)
        variables["BULKHEAD_GUARD"] = str(control)
        try:
            self.process = sessions.start(command, env=variables, cwd=cwd, pass_fds=[control],
                                          stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        finally:
            os.close(control)
        try:
            self.wait_for(lambda: self.gate.shared, "the server to listen")
        except BaseException:
            self.stop()
            raise

    def wait_for(self, condition, what, seconds=10):
        """Waits until `condition` holds."""
        end = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > end or (self.process.poll() is not None and what.endswith("listen")):
                raise AssertionError(f"waited in vain for {what}; the server says: {self.output()[-3000:]}")
            time.sleep(0.01)

    def output(self):
        """What the server has said."""
        return os.pread(self.log.fileno(), 1 << 20, 0).decode(errors="replace")

    def connect(self):
        """A client's connection."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=10)

    def signal(self, number):
        """Sends a signal to the server's first process."""
        self.process.send_signal(number)

    def stop(self):
        """Ends the server and all that it started."""
        sessions.stop(self.process)
        self.gate.stop()
        self.log.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()


def preloaded(environment):
    """The environment for a program under the preload library, which may have been built with a sanitizer."""
    variables = dict(os.environ, LD_PRELOAD=os.path.abspath(PRELOAD), PYTHONUNBUFFERED="1")
    if os.environ.get("SANITIZE"):
        first = subprocess.run(["gcc", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True)
        variables["LD_PRELOAD"] = first.stdout.strip() + " " + variables["LD_PRELOAD"]
        variables["ASAN_OPTIONS"] = "detect_leaks=0:verify_asan_link_order=0:exitcode=99"
    variables.update(environment)
    return variables


class Client:
    """A client with one connection, which reads answers exactly."""

    def __init__(self, server):
        self.socket = server.connect()
        self.buffer = b""

    def send(self, text):
        self.socket.sendall(text)

    def get(self, path, headers="", method="GET", body=b""):
        head = f"{method} {path} HTTP/1.1\r\nHost: x\r\n{headers}"
        if body:
            head += f"Content-Length: {len(body)}\r\n"
        self.send(head.encode() + b"\r\n" + body)
        return self.answer(method)

    def more(self):
        data = self.socket.recv(262144)
        if not data:
            raise EOFError(self.buffer[:200])
        self.buffer += data

    def line(self):
        while b"\r\n" not in self.buffer:
            self.more()
        line, self.buffer = self.buffer.split(b"\r\n", 1)
        return line

    def exactly(self, count):
        parts, have = [self.buffer], len(self.buffer)
        while have < count:
            data = self.socket.recv(262144)
            if not data:
                raise EOFError(f"{have} of {count}")
            parts.append(data)
            have += len(data)
        whole = b"".join(parts)
        self.buffer = whole[count:]
        return whole[:count]

    def answer(self, method="GET"):
        """The next answer: status, fields, body."""
        status = int(self.line().split()[1])
        fields = {}
        while line := self.line():
            name, value = line.decode("latin-1").split(":", 1)
            fields[name.lower()] = value.strip()
        if status < 200:
            return self.answer(method)
        if method == "HEAD" or status in (204, 304):
            return status, fields, b""
        if fields.get("transfer-encoding") == "chunked":
            body = b""
            while size := int(self.line().split(b";")[0], 16):
                body += self.exactly(size)
                self.line()
            while self.line():
                pass
            return status, fields, body
        if "content-length" in fields:
            return status, fields, self.exactly(int(fields["content-length"]))
        body = self.buffer
        while data := self.socket.recv(262144):
            body += data
        return status, fields, body

    def close(self):
        self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
